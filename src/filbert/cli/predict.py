"""filbert predict: a fine-tuned model folder and texts in, what it says of each out, in order."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from filbert.cli.shared import (
    ModelOptions,
    data_encoding_option,
    errors_option,
    json_option,
    load_model,
    model_options,
    read_options,
    refuse_for_texts,
    result,
    say,
    typed,
)

if TYPE_CHECKING:
    from filbert.engine.results import Record


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """What was given on the command line, beside what `command` names."""

    text: tuple[str, ...]
    pair: tuple[tuple[str, str], ...]
    columns: str | None
    task: str | None
    settings: tuple[str, ...]
    top: int | None
    resume: bool
    errors: str
    encoding: str | None
    as_json: bool


@click.command("predict")
@click.argument("model")
@click.option("--text", "-t", multiple=True, help="A text given here; may be repeated.")
@click.option("--pair", nargs=2, multiple=True, metavar="FIRST SECOND", help="Two texts, or question and passage.")
@click.option(
    "--data", "-d", multiple=True,
    help="File or folder of texts: plain lines, CSV, TSV, JSONL, Parquet; .gz .xz .zst; or -. May be repeated.",
)  # fmt: skip
@click.option("--out", "-o", help="File to write as results come: .jsonl, .csv or .tsv; without it, standard output.")
@click.option("--columns", metavar="ROLE=NAME,…", help="Which column is what, e.g. text=review.")
@click.option("--task", help="classify or pair, for a published folder, which does not say; nsp, for a pretrained one.")
@click.option("--set", "settings", multiple=True, help="A field of the task, e.g. task.template=… with --task blank.")
@click.option(
    "--top", type=click.IntRange(1), help="So many labels of each text, the likeliest.  [default: all; of over 50, 20]"
)
@click.option("--resume", is_flag=True, help="Go on where OUT ends.")
@model_options
@errors_option
@data_encoding_option
@json_option
@typed(Options)
def command(model: str, data: tuple[str, ...], out: str | None, options: Options) -> None:
    """Label texts or pairs, or answer questions, by a fine-tuned model; MODEL is a model folder or a run.

    Texts of any number and length: they are read as they come, and whole. An interrupted run keeps what it wrote.
    """
    from filbert.cli.asking import Asking, Texts, results_file
    from filbert.core.errors import InputError
    from filbert.engine.answers import CHUNK, peeked
    from filbert.engine.reader import usual_top
    from filbert.engine.results import check_place, form_of
    from filbert.text.streams import Reading

    here = [(text,) for text in options.text] + list(options.pair)
    if (not data) == (not here):
        raise InputError("give the texts once: either --data FILE, or one or more --text or --pair.")
    refuse_for_texts(here, ("columns", "encoding", "errors"))
    if options.resume and not out:
        raise click.UsageError("--resume goes on with a file: give its --out.")
    if out:
        form_of(out)
        check_place(out)
    reading = Reading(errors=options.errors)
    loaded = load_model(model, options)
    task = loaded.task(options.task or (loaded.untuned if options.pair else None))
    texts = Texts(here, data, task, read_options(options.columns, options.encoding, loaded.trained_on))
    examples = texts.read(reading)
    if options.settings:
        first, examples = peeked(examples, CHUNK)
        loaded = loaded.reading(task, options.settings, [example.texts[0] for example in first])
    for note in loaded.notes:
        say(f"note: {note}")
    top = options.top
    if top is not None and not loaded.reader(task).spec.ranks(loaded.labels):
        raise click.UsageError(f"--top is of what gives several labels or answers their shares; {task} has one answer.")
    if top is None and (top := usual_top(len(loaded.labels))) is not None:
        say(f"note: of {len(loaded.labels):,} labels the {top} likeliest are given; --top {len(loaded.labels)}: all.")
    started = time.perf_counter()
    kept: list[dict[str, Any]] = []

    def show(records: list[Record]) -> None:
        if options.as_json:
            kept.extend(records)
        else:
            for record in records:
                result(record)

    with contextlib.ExitStack() as stack:
        results = stack.enter_context(results_file(out, options.resume, task, texts)) if out else None
        count = Asking(loaded, task, texts, results, show, top).all(examples, reading)
    seconds = round(time.perf_counter() - started, 3)
    if options.as_json:
        result({"texts": count, "seconds": seconds, **({"out": out} if out else {"predictions": kept})})
    else:
        say(f"{count:,} texts in {seconds:.1f} s.")
