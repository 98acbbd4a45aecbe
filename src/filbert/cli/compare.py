"""`filbert compare`: the names of models, one text and one labelled set in; one table and one page out."""

from __future__ import annotations

from dataclasses import dataclass

import click

from filbert.cli.shared import LearntTask, Trains, UsualTask, json_option, result, say, typed


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    task: str
    train: tuple[str, ...]
    dev: tuple[str, ...]
    test: tuple[str, ...]
    corpus: tuple[str, ...]
    tokens: int
    preset: str
    vocab: str | None
    settings: tuple[str, ...]
    seed: int


@click.command("compare", cls=Trains)
@click.option("--models", required=True, help="With commas: files of models (bert, gpt, …), folders, or builtin.")
@click.option("--task", cls=UsualTask, type=LearntTask(), show_default=True)
@click.option("--train", multiple=True, required=True, help="Labelled file to learn from.")
@click.option("--dev", multiple=True, help="Chooses the state that is measured: a file, or a share of --train: 10%.")
@click.option("--test", multiple=True, required=True, help="Labelled file that every model is measured on.")
@click.option("--corpus", multiple=True, help="Text that new models are pretrained on first, all on the same.")
@click.option("--tokens", type=click.IntRange(min=1), default=2_000_000, show_default=True, help="Read of it by each.")
@click.option("--preset", default="small", show_default=True, help="Size of new models.")
@click.option("--vocab", help="Folder or vocab.txt of new models.  [default: trained on the corpus, else the built-in]")
@click.option("-o", "--out", required=True, help="Folder for the runs, the table and the page.")
@click.option(
    "--set", "settings", multiple=True, help="Field of fine-tuning, or with pretrain. before it of the other."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of everything random.")
@json_option
@typed(Options)
def command(models: str, out: str, as_json: bool, options: Options) -> None:
    """Train several models alike and compare them.

    Rows that are done are kept: the same command goes on where it was stopped.
    """
    from filbert.run.compare import HEAD, Contest, cells, compare

    names = tuple(name.strip() for name in models.split(",") if name.strip())
    contest = Contest(
        task=options.task, train=_one(options.train) or (), test=_one(options.test) or (), models=names,
        dev=_one(options.dev), corpus=options.corpus, tokens=options.tokens, preset=options.preset,
        vocab=options.vocab, settings=options.settings, seed=options.seed,
    )  # fmt: skip
    comparison = compare(contest, out, say)
    if as_json:
        rows = [
            {key: value for key, value in row.items() if key not in ("said", "identity")} for row in comparison["rows"]
        ]
        result({"out": out, "task": comparison["task"], "rows": rows, "sentences": comparison["sentences"],
                "parted": len(comparison["parted"])})  # fmt: skip
        return
    table = [HEAD, *(cells(row) for row in comparison["rows"])]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEAD))]
    for line in table:
        first, *rest = (
            each.ljust(width) if not at else each.rjust(width)
            for at, (each, width) in enumerate(zip(line, widths, strict=True))
        )
        click.echo("  ".join([first, *rest]))
    for sentence in comparison["sentences"]:
        click.echo(f"- {sentence}")
    click.echo(f"{out}/comparison.html tells more.")


def _one(files: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """The one file, several, or none: of a flag that can be given more than once."""
    return files[0] if len(files) == 1 else files or None
