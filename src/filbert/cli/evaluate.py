"""filbert evaluate: a fine-tuned model folder and labelled data in, its metrics and what they are worth out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from filbert.cli.shared import data_encoding_option, device_option, json_option, result, roles, table, typed

if TYPE_CHECKING:
    from filbert.tasks.task import Report

SHOWN = 30  # labels in the table for people; --json has all


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    train: tuple[str, ...]
    out: str | None
    task: str | None
    settings: tuple[str, ...]
    device: str
    encoding: str | None


@click.command("evaluate")
@click.argument("model")
@click.option("--data", "-d", required=True, help="Labelled file: CSV, TSV, JSONL, Parquet; .gz .xz .zst.")
@click.option("--train", multiple=True, help="What it learnt from; else what its run folder remembers.")
@click.option("--out", "-o", help="Folder for report.html and report.json.")
@click.option("--columns", metavar="ROLE=NAME,…", help="Which column is what, e.g. text=review,label=2.")
@click.option("--task", help="classify or pair, for a published folder, which does not say; else the folder's own.")
@click.option("--set", "settings", multiple=True, help="A field of the task, e.g. task.template=… with --task blank.")
@device_option
@data_encoding_option
@json_option
@typed(Options)
def command(model: str, data: str, columns: str | None, as_json: bool, options: Options) -> None:
    """Measure a fine-tuned model on labelled data; MODEL is a model folder or a run.

    Beside the score: simple models that it has to beat, rows that it knew from training, how far its probabilities can
    be believed, labels that are probably wrong, and its worst mistakes.
    """
    from filbert.run.evaluate import evaluate

    scores = evaluate(
        model, data, train=options.train, out=options.out, columns=roles(columns), encoding=options.encoding,
        task=options.task, settings=options.settings, device=options.device,
    )  # fmt: skip
    if as_json:
        result(scores)
        return
    for name, (low, high) in scores["intervals"].items():
        click.echo(f"{name:<8} {scores[name]:.4f}  (95 %: {low:.4f} to {high:.4f})")
    measure = scores["measure"]
    for name, each in scores["baselines"].items():
        if isinstance(each, dict) and measure in each:
            click.echo(f"{name:<8} {each[measure]:.4f}  ({measure}: {each['about']})")
    _details(scores)
    for sentence in scores["sentences"]:
        click.echo(f"- {sentence}")
    if options.out:
        click.echo(f"{options.out}/report.html tells more.")


def _details(scores: Report) -> None:
    """What there is to say of one kind of answer or another."""
    if "exact" in scores:
        none = f"{scores['num_unanswerable']:,} without an answer"
        click.echo(f"{scores['num_examples']:,} questions, {none}; by {scores['rule']}'s rule")
        return
    if "types" in scores:
        click.echo(f"{scores['num_entities']:,} spans in {scores['num_sentences']:,} texts")
        click.echo(_labels(scores["types"], "spans"))
        return
    if "mse" in scores:
        click.echo(f"{'mean':<8} {scores['mean_mse']:.4f}  (squared error of always saying the mean)")
        return
    if "labels" not in scores:
        click.echo(_vectors(scores))
        return
    click.echo(_labels(scores["labels"], "texts"))


def _vectors(scores: Report) -> str:
    """What else there is to say of vectors' cosines."""
    lines = [f"{scores['num_examples']:,} examples"]
    if "threshold" in scores:
        whence = "fitted on these very data, which flatters" if scores["fitted"] else "fitted on the model's dev data"
        lines.append(f"a pair from a cosine of {scores['threshold']:.4f} on, {whence}")
        lines.append(f"{'majority':<8} {scores['majority_accuracy']:.4f}  (always the most frequent label)")
    if "num_candidates" in scores:
        lines.append(f"each to be found among {scores['num_candidates']:,} texts")
    for width, values in scores.get("widths", {}).items():
        lines.append(f"at {width} numbers: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))
    return "\n".join(lines)


def _labels(scores: Report, counted: str) -> str:
    rows: list[tuple[str, ...]] = [("label", "precision", "recall", "f1", counted)]
    for label, each in list(scores.items())[:SHOWN]:
        numbers = [f"{each[name]:.3f}" for name in ("precision", "recall", "f1")]
        rows.append((label, *numbers, f"{int(each['support']):,}"))
    more = len(scores) - SHOWN
    return table(rows) + (f"\n… and {more} more labels" if more > 0 else "")
