"""filbert predict: a fine-tuned model folder and texts in, what it says of each out, in order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from filbert.cli.shared import (
    encoding_option,
    errors_option,
    json_option,
    model_options,
    model_wishes,
    progress,
    result,
    roles,
    say,
)

if TYPE_CHECKING:
    from filbert.core.records import Example


@click.command("predict")
@click.argument("model")
@click.option("--text", "-t", multiple=True, help="A text given here; may be repeated.")
@click.option("--pair", nargs=2, multiple=True, metavar="FIRST SECOND", help="Two texts, or question and passage.")
@click.option("--data", "-d", help="File of texts: plain lines, CSV, TSV, JSONL, Parquet; .gz .xz .zst; or -.")
@click.option("--out", "-o", help="JSONL file to write, each result as it comes; without it, standard output.")
@click.option("--columns", metavar="ROLE=NAME,…", help="Which column is what, e.g. text=review.")
@click.option("--task", help="classify or pair, for a published folder, which does not say; nsp, for a pretrained one.")
@click.option("--set", "settings", multiple=True, help="A field of the task, e.g. task.template=… with --task blank.")
@click.option(
    "--top", type=click.IntRange(1), help="So many labels of each text, the likeliest.  [default: all; of over 50, 20]"
)
@click.option("--resume", is_flag=True, help="Go on where OUT ends.")
@model_options
@errors_option
@encoding_option
@json_option
def command(model: str, data: str | None, out: str | None, **options: Any) -> None:
    """Label texts or pairs, or answer questions, by a fine-tuned model; MODEL is a model folder or a run.

    Texts of any number and length: they are read as they come, and whole. An interrupted run keeps what it wrote.
    """
    from filbert import load
    from filbert.core.errors import InputError
    from filbert.infer.predict import CHUNK, Results, answered, peeked, record, usual_top
    from filbert.text.streams import Reading

    as_json, top = options["as_json"], options["top"]
    here = [(text,) for text in options["text"]] + list(options["pair"])
    if (data is None) == (not here):
        raise InputError("give the texts once: either --data FILE, or one or more --text or --pair.")
    if options["resume"] and not out:
        raise click.UsageError("--resume goes on with a file: give its --out.")
    reading = Reading(options["encoding"], errors=options["errors"])
    results = Results(out, options["resume"]) if out else None
    loaded = load(model, **model_wishes(options))
    task = loaded.task(options["task"] or (loaded.untuned if options["pair"] else None))
    examples = _examples(here, data, reading, (task, options["columns"]))
    if options["settings"]:
        first, examples = peeked(examples, CHUNK)
        loaded = loaded.reading(task, options["settings"], [example.texts[0] for example in first])
    for note in loaded.notes:
        say(f"note: {note}")
    if top is None and (top := usual_top(len(loaded.labels))) is not None:
        say(f"note: of {len(loaded.labels):,} labels the {top} likeliest are given; --top {len(loaded.labels)}: all.")
    begun, count = time.perf_counter(), 0
    kept: list[dict[str, Any]] = []
    try:
        if results is not None:
            _tell_resumed(results)
            examples = results.rest(examples)
        shown = progress(examples, unit="texts", quiet=out is None)
        for chunk in answered(loaded, shown, task):
            records = [record(task, example, said, top) for example, said in chunk]
            count += len(records)
            if results is not None:
                results.write(records)
            elif as_json:
                kept += records
            else:
                for found in records:
                    result(found)
    except BaseException as error:
        if results is not None and (count or isinstance(error, KeyboardInterrupt)):
            say(f"{out}: holds {results.count:,} results, all of what was finished; go on with --resume.")
        raise
    for note in reading.report.remarks():
        say(f"note: {note}")
    seconds = round(time.perf_counter() - begun, 3)
    if as_json:
        result({"texts": count, "seconds": seconds, **({"out": out} if out else {"predictions": kept})})
    else:
        say(f"{count:,} texts in {seconds:.1f} s.")


def _examples(
    here: list[tuple[str, ...]], data: str | None, reading: Any, how: tuple[str, str | None]
) -> Iterator[Example]:
    from filbert.core.records import Example
    from filbert.core.registry import member
    from filbert.data.datasets import examples

    if data is None:
        return (Example(texts, id=number) for number, texts in enumerate(here))
    return examples(data, getattr(member("tasks", how[0]), "DATA", how[0]), roles(how[1]), reading=reading)


def _tell_resumed(results: Any) -> None:
    if results.torn:
        say(f"note: {results.path}: its last line was not finished and is written anew.")
    if results.count:
        say(f"{results.path}: {results.count:,} results are there already.")
