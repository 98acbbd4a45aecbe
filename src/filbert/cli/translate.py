"""filbert translate: a model that translates and texts in, their translations out, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from filbert.cli.shared import data_encoding_option, device_option, json_option, result, say


def writing(task: str, about: str) -> click.Command:
    """A command that asks a model of that task for texts; other commands that write are made by it too."""

    @click.command(task, help=f"{about}\n\nMODEL is a folder or a run of `filbert finetune {task}`.")
    @click.argument("model")
    @click.option("--text", "-t", multiple=True, help="A text given here; may be repeated.")
    @click.option("--data", "-d", help="File of texts: plain lines, CSV, TSV, JSONL, Parquet; .gz .xz .zst; or -.")
    @click.option("--out", "-o", help="File to write, a line for each text; without it, standard output.")
    @click.option("--set", "settings", multiple=True, help="A field of the task, e.g. task.beam=8.")
    @device_option
    @data_encoding_option
    @json_option
    def command(model: str, text: tuple[str, ...], data: str | None, out: str | None, **options: Any) -> None:
        answer_all(task, model, (text, data, out), options)

    return command


command = writing("translate", "Translate texts.")


def answer_all(
    task: str, model: str, where: tuple[tuple[str, ...], str | None, str | None], options: dict[str, Any]
) -> None:
    """Writes what the model writes for each text: a line each, or one JSON object."""
    from filbert.core.errors import InputError
    from filbert.core.files import write_text
    from filbert.core.records import Example
    from filbert.data.sources import file_examples
    from filbert.infer.predict import answered, record
    from filbert.text.streams import Reading

    texts, data, out = where
    if (data is None) == (not texts):
        raise InputError("give the texts once: either --data FILE, or one or more --text.")
    loaded, reading = writer(task, model, options), Reading()
    given: Iterable[Example] = (Example((text,), id=number) for number, text in enumerate(texts))
    if data is not None:
        how = {"encoding": options["encoding"], "trained_on": loaded.trained_on}
        given = file_examples(task, data, how, reading)
    told = [(record(task, *pair, None), pair[1]) for some in answered(loaded, given, task) for pair in some]
    for note in reading.report.remarks():
        say(f"note: {note}")
    lines = [" ".join((said.text or "").split("\n")) for _, said in told]
    if options["as_json"]:
        result({"texts": len(told), "written": [found for found, _ in told]})
    elif out:
        write_text(out, "".join(f"{line}\n" for line in lines))
        say(f"{out}: {len(lines):,} texts.")
    else:
        for line in lines:
            click.echo(line)


def writer(task: str, model: str, options: dict[str, Any]) -> Any:
    """The model, if that is what it was trained for; with the task's fields that were set."""
    from filbert import load
    from filbert.core.errors import InputError
    from filbert.infer.verify import task_of

    loaded = load(model, device=options["device"])
    own = task_of(loaded)
    if own not in (None, task):
        raise InputError(f"{model}: is a model for {own}, not for {task}; ask it with filbert {named(own)}.")
    loaded.task(task)  # refuses a model that was trained for nothing, and says how one for this is made
    return loaded.reading(task, options["settings"], []) if options["settings"] else loaded


def named(task: str) -> str:
    """The command that asks a model of that task."""
    return task if task in ("translate", "summarize", "chat") else "predict"
