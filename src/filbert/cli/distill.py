"""filbert distill: a teacher and texts in, a run folder with a smaller model that says much the same out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from filbert.cli.shared import (
    Trains,
    check_force,
    data_encoding_option,
    json_option,
    result,
    roles,
    typed,
)

if TYPE_CHECKING:
    from filbert.run.distill import Wish
    from filbert.run.run import Finished


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    preset: str | None
    arch: str | None
    layers: str | None
    inner: int | None
    student: str | None
    general: bool
    task: str | None
    dev: tuple[str, ...]
    test: tuple[str, ...]
    epochs: float | None
    columns: str | None
    settings: tuple[str, ...]
    seed: int
    resume: bool
    force: bool
    encoding: str | None


@click.command("distill", cls=Trains)
@click.argument("teacher")
@click.option("--data", "-d", multiple=True, required=True, help="To learn from: labelled, unlabelled, or raw text.")
@click.option("-o", "--out", required=True, help="Run folder to write.")
@click.option("--preset", help="Student: a new model of this size, e.g. tiny, mini, small.")
@click.option("--arch", help="Of --preset: the kind of model.  [default: the teacher's]")
@click.option("--layers", help="Student: so many of the teacher's layers, or these, from 0: 0,2,5.")
@click.option("--inner", type=click.IntRange(1), help="Student: the teacher with so wide feed-forwards.")
@click.option("--student", help="Student: a folder or run to begin with, e.g. a pruned one.")
@click.option("--general", is_flag=True, help="Learn how the teacher reads, from raw text, instead of its task.")
@click.option("--task", help="Of a published teacher that reads pairs: pair.")
@click.option("--dev", multiple=True, help="Says after each epoch how good it is: a labelled file, or a share: 10%.")
@click.option("--test", multiple=True, help="Labelled file that both are measured on once, at the end.")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), help="Passes over the data.  [default: 3 or more]")
@click.option("--columns", metavar="ROLE=NAME,…", help="Which column is what, e.g. text=review,label=2.")
@click.option("--set", "settings", multiple=True, help="Any field of the recipe, e.g. distil.temperature=4.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of everything random.")
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint in OUT.")
@click.option("--force", is_flag=True, help="Resume even if the recipe or the data changed.")
@data_encoding_option
@json_option
@typed(Options)
def command(teacher: str, data: tuple[str, ...], out: str, as_json: bool, options: Options) -> None:
    """Train a small model to say what a large one says; TEACHER is a fine-tuned folder or a run.

    Rows without a label are learnt from too: the teacher says what is right. Both models are then measured side by
    side on --dev and --test.
    """
    from filbert.run.distill import Wish, distill
    from filbert.run.finetune import Finetuned
    from filbert.run.folders import is_first

    check_force(force=options.force, resume=options.resume)
    started = time.monotonic()
    wish = Wish(
        preset=options.preset, arch=options.arch, layers=options.layers, inner=options.inner, student=options.student
    )
    finished: Finished
    if options.general:
        finished = _general(teacher, data, out, wish, options)
    else:
        finished = distill(
            teacher, _one(data) or (), out, wish, dev=_one(options.dev), test=_one(options.test), task=options.task,
            settings=options.settings, epochs=options.epochs, seed=options.seed, columns=roles(options.columns),
            encoding=options.encoding, resume=options.resume, force=options.force,
        )  # fmt: skip
    if not is_first():
        return
    took, report = time.monotonic() - started, finished.report if isinstance(finished, Finetuned) else {}
    state, distilled = finished.outcome.state, report.get("distilled", {})
    if as_json:
        result({"out": out, "steps": state.step, "seconds": round(took, 1), **distilled})
        return
    click.echo(f"{out}/model: {state.step:,} steps in {took:.0f} s.")
    for sentence in distilled.get("sentences", ()):
        click.echo(f"- {sentence}")
    if report:
        click.echo(f"{out}/report.html tells more.")


def _general(teacher: str, data: tuple[str, ...], out: str, wish: Wish, options: Options) -> Finished:
    """The run without a task; what only a task has is refused."""
    from filbert.corpus.shards import Options as ReadOptions
    from filbert.run.distill import distill_general
    from filbert.run.pretrain import Corpus

    of_tasks = {
        "task": options.task, "dev": options.dev, "test": options.test, "epochs": options.epochs,
        "columns": options.columns,
    }  # fmt: skip
    for name, value in of_tasks.items():
        if value:
            raise click.UsageError(f"--{name} is of a task, which --general has none; give train.steps with --set.")
    corpus = Corpus(sources=data, reading=ReadOptions(encoding=options.encoding or "utf-8"))
    return distill_general(
        teacher, corpus, out, wish, settings=options.settings, seed=options.seed, resume=options.resume,
        force=options.force,
    )  # fmt: skip


def _one(files: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """The one file, several, or none: of a flag that can be given more than once."""
    return files[0] if len(files) == 1 else files or None
