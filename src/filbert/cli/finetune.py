"""filbert finetune: a pretrained model folder and labelled data in, a run folder with a model for the task out."""

from __future__ import annotations

import time
from dataclasses import dataclass

import click

from filbert.cli.shared import LearntTask, Trains, check_force, encoding_option, json_option, result, roles, typed
from filbert.core import registry


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    dev: tuple[str, ...]
    test: tuple[str, ...]
    arch: str | None
    preset: str | None
    vocab: str | None
    epochs: float | None
    columns: str | None
    settings: tuple[str, ...]
    seed: int
    resume: bool
    force: bool
    encoding: str


@click.command("finetune", cls=Trains)
@click.argument("task", type=LearntTask())
@click.option("--train", multiple=True, required=True, help="Labelled file to learn from: CSV, TSV, JSONL, Parquet, …")
@click.option(
    "--dev", multiple=True, help="Says after each epoch how good it is: a file, or a share of --train: 10% or 0.1."
)
@click.option("--test", multiple=True, help="Labelled file that the model is measured on once, at the end.")
@click.option("--model", help="Folder or run whose weights and vocabulary it begins with.  [default: builtin]")
@click.option("--arch", help="Instead: a new model of this kind, e.g. han, gpt, transformer; see --preset, --vocab.")
@click.option("--preset", help="Size of a new one.  [default: small]")
@click.option("--vocab", help="Folder or vocab.txt of a new one.  [default: that of the built-in model]")
@click.option("-o", "--out", required=True, help="Run folder to write.")
@click.option(
    "--epochs", type=click.FloatRange(0, min_open=True), help="Passes over the data.  [default: 3, more if few rows]"
)
@click.option("--columns", metavar="ROLE=NAME,…", help="Which column is what, e.g. text=review,label=2.")
@click.option("--set", "settings", multiple=True, help="Any field of the recipe, e.g. train.learning_rate=1e-4.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of everything random.")
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint in OUT.")
@click.option("--force", is_flag=True, help="Resume even if the recipe or the data changed.")
@encoding_option
@json_option
@typed(Options)
def command(task: str, train: tuple[str, ...], model: str | None, out: str, as_json: bool, options: Options) -> None:
    """Train a model for a task on labelled data.

    Texts longer than task.max_length are read whole, in overlapping windows.
    """
    from filbert.run.finetune import finetune
    from filbert.run.folders import is_first

    check_force(force=options.force, resume=options.resume)
    if model is not None and options.arch is not None:
        raise click.UsageError("give one of --model (a folder to begin with, or builtin) and --arch (a new model).")
    started = time.monotonic()
    finished = finetune(
        task, _one(train) or (), model, out, dev=_one(options.dev), test=_one(options.test), settings=options.settings,
        epochs=options.epochs, seed=options.seed, columns=roles(options.columns), encoding=options.encoding,
        arch=options.arch, preset=options.preset, vocab=options.vocab, resume=options.resume, force=options.force,
    )  # fmt: skip
    if not is_first():
        return
    state, took = finished.outcome.state, time.monotonic() - started
    best = {name: value for name, value in finished.best.items() if name != "step"}
    if as_json:
        summary = {
            "out": out,
            "model": model or options.arch or "builtin",
            "steps": state.step,
            "seconds": round(took, 1),
            "labels": len(finished.labels),
        }
        judged = {name: {measure: each[measure] for measure in (*each["intervals"], "intervals", "sentences")}
                  for name, each in finished.report.get("evaluations", {}).items()}  # fmt: skip
        result({**summary, "best_step": finished.best.get("step"), "held": best, **judged})
        return
    watched = finished.watched
    numbers = f" Best at step {finished.best['step']:,}: {watched} {best[watched]:.4f}." if best else ""
    few = {0: "answers" if registry.task(task).part else "vectors", 1: "a number"}
    outputs = few.get(len(finished.labels), f"{len(finished.labels)} labels")
    click.echo(f"{out}/model: {outputs}, {state.step:,} steps in {took:.0f} s.{numbers}")
    for name, each in finished.report.get("evaluations", {}).items():
        first = each["measure"]
        click.echo(f"{name}: {first} {each[first]:.4f} ({' to '.join(f'{e:.4f}' for e in each['intervals'][first])})")
        for sentence in each["sentences"]:
            click.echo(f"- {sentence}")
    if finished.report:
        click.echo(f"{out}/report.html tells more.")


def _one(files: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """The one file, several, or none: of a flag that can be given more than once."""
    return files[0] if len(files) == 1 else files or None
