"""filbert translate: a model that translates and texts in, their translations out, in order."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from filbert.cli.shared import (
    data_encoding_option,
    device_option,
    json_option,
    read_options,
    refuse_for_texts,
    result,
    say,
    typed,
)

if TYPE_CHECKING:
    from filbert.engine.model import Model
    from filbert.engine.results import Record

LINES = "lines"  # how a file is written whose suffix does not say otherwise


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a command that writes is given, beside its model."""

    text: tuple[str, ...]
    data: tuple[str, ...]
    out: str | None
    resume: bool
    settings: tuple[str, ...]
    device: str
    encoding: str | None
    as_json: bool


def writing(task: str, about: str) -> click.Command:
    """A command that asks a model of that task for texts; other commands that write are made by it too."""

    @click.command(task, help=f"{about}\n\nMODEL is a folder or a run of `filbert finetune {task}`.")
    @click.argument("model")
    @click.option("--text", "-t", multiple=True, help="A text given here; may be repeated.")
    @click.option(
        "--data", "-d", multiple=True,
        help="File or folder of texts: plain lines, CSV, TSV, JSONL, Parquet; .gz .xz .zst; or -. May be repeated.",
    )  # fmt: skip
    @click.option(
        "--out", "-o", help="File to write: a line for each text, or .jsonl, .csv, .tsv; else standard output."
    )
    @click.option("--resume", is_flag=True, help="Go on where OUT ends.")
    @click.option("--set", "settings", multiple=True, help="A field of the task, e.g. task.beam=8.")
    @device_option
    @data_encoding_option
    @json_option
    @typed(Options)
    def command(model: str, options: Options) -> None:
        answer_all(task, model, options)

    return command


command = writing("translate", "Translate texts.")


def answer_all(task: str, model: str, options: Options) -> None:
    """Writes what the model writes for each text: a line each, a record each, or one JSON object."""
    from filbert.cli.asking import Asking, Texts, results_file
    from filbert.core.errors import InputError
    from filbert.engine.results import Table, check_place, form_of
    from filbert.text.streams import Reading

    here, data, out = options.text, options.data, options.out
    if (not data) == (not here):
        raise InputError("give the texts once: either --data FILE, or one or more --text.")
    refuse_for_texts(here, ["encoding"])
    if options.resume and not out:
        raise click.UsageError("--resume goes on with a file: give its --out.")
    if out:
        form_of(out, otherwise=LINES)
        check_place(out)
    loaded = writer(task, model, options)
    for note in loaded.notes:
        say(f"note: {note}")
    how = read_options(None, options.encoding, loaded.trained_on)
    texts, reading = Texts([(text,) for text in here], data, task, how), Reading()
    kept: list[dict[str, Any]] = []

    def show(records: list[Record]) -> None:
        if options.as_json:
            kept.extend(records)
        else:
            click.echo(Table(LINES).text(records), nl=False)

    with contextlib.ExitStack() as stack:
        results = stack.enter_context(results_file(out, options.resume, task, texts, LINES)) if out else None
        count = Asking(loaded, task, texts, results, show).all(texts.read(reading), reading)
    if options.as_json:
        result({"texts": count, **({"out": out} if out else {"written": kept})})
    elif out:
        say(f"{out}: {count:,} texts.")


def writer(task: str, model: str, options: Options) -> Model:
    """The model, if that is what it was trained for; with the task's fields that were set."""
    from filbert import load
    from filbert.core.errors import InputError
    from filbert.ship.verify import task_of

    loaded = load(model, device=options.device)
    learnt = task_of(loaded)
    if learnt not in (None, task):
        raise InputError(f"{model}: is a model for {learnt}, not for {task}; ask it with filbert {named(learnt)}.")
    loaded.task(task)  # refuses a model that was trained for nothing, and says how one for this is made
    return loaded.reading(task, options.settings, []) if options.settings else loaded


def named(task: str) -> str:
    """The command that asks a model of that task."""
    from filbert.cli.main import filbert
    from filbert.core import registry
    from filbert.tasks.task import Trait

    writes = Trait.WRITES in registry.task(task).traits
    return task if writes and task in filbert.list_commands(click.get_current_context()) else "predict"
