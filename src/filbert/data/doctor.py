"""Corpora and labelled files come in; findings go out: what each file is, and what is wrong with it, by file and line.

Nothing stops at the first fault.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from filbert.core.errors import InputError, one_of
from filbert.data import checks, datasets, markup
from filbert.data.findings import MAX_OF_A_KIND, Finding, Notebook, rendered
from filbert.data.formats import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, Shape, shape, table_rows
from filbert.data.labelled import examine_labelled
from filbert.text import corpus
from filbert.text.sentences import sentences
from filbert.text.streams import Reading

__all__ = ["MAX_OF_A_KIND", "Finding", "examine", "rendered", "told_task"]

LONG_LINE_CHARS = 100_000
LOST = ("NUL characters were removed.", "became U+FFFD.")  # remarks of which a file should be rid


def examine(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    task: str | None = None,
    columns: Mapping[str, str | int] | None = None,
    encoding: str = "utf-8",
    measure: checks.Measure | None = None,
    most: int | None = MAX_OF_A_KIND,
) -> list[Finding]:
    """What the files are and what is wrong with them; `task` ("corpus" for plain text) is told from each if not given.

    Files are compared in the order given: the first with labels is taken to be the training set.
    measure: whose tokens count; most: findings of one kind that are listed of each file, None for all.
    """
    if task not in (None, "corpus", *datasets.TASKS):
        raise one_of("the task", task, ("corpus", *datasets.TASKS))
    seen = checks.Seen()
    findings: list[Finding] = []
    for path in corpus.files(paths):
        notebook = Notebook(path, most)
        try:
            _examine_file(path, task, columns, encoding, (notebook, seen, measure))
        except InputError as error:
            notebook.add_error(error)
        findings += notebook.findings()
    return findings


def _examine_file(
    path: str,
    task: str | None,
    columns: Mapping[str, str | int] | None,
    encoding: str,
    books: tuple[Notebook, checks.Seen, checks.Measure | None],
) -> None:
    notebook, seen, measure = books
    if path == "-":
        raise InputError("-: the doctor reads a file twice, which standard input does not allow; save it first.")
    reading = Reading(encoding, fault=notebook.fault, mended=notebook.mended)
    _examine_bytes(path, encoding, notebook)
    form = None if task == "corpus" else shape(path, reading, tuple(str(column) for column in (columns or {}).values()))
    task = task or told_task(path, form, reading)
    texts = checks.Texts(notebook, seen, task, measure)
    if task == "corpus" or form is None:
        told = (
            form.told if form is not None and form.kind != "text" else "plain text with blank lines between documents"
        )
        notebook.add("note", 0, f"read as {told}, for a corpus.")
        _examine_corpus(path, reading, texts)
    else:
        notebook.add("note", 0, f"read as {form.told}, for {task}{_taken(path, task, form, columns)}.")
        examine_labelled(path, task, columns, form, reading, texts)
    _tell_report(reading, notebook)


def _taken(path: str, task: str, form: Shape, columns: Mapping[str, str | int] | None) -> str:
    if form.kind in markup.TASK_OF:
        return ""
    wanted = {role: str(column) for role, column in (columns or {}).items()}
    roles = datasets.column_roles(path, task, form, wanted)
    return " with " + ", ".join(
        f"{role} from {'column ' * (not form.has_header)}{name}" for role, name in roles.items()
    )


def _tell_report(reading: Reading, notebook: Notebook) -> None:
    """What reading passed over or mended, counted by kind, in the words of every command that reads."""
    for remark in reading.report.remarks():
        notebook.add("warning" if remark.endswith(LOST) else "note", 0, remark)


# -- bytes -------------------------------------------------------------------------------------------------------


def _examine_bytes(path: str, encoding: str, notebook: Notebook) -> None:
    """Byte order mark and line ends, in a pass of its own: decoding does away with both."""
    if os.path.splitext(path)[1].lower() == ".parquet":
        return
    ends = checks.ends(path, encoding)
    if ends.has_mark:
        notebook.add("note", 1, "begins with a byte order mark, which is left out.")
    counts = {"CRLF": ends.num_crlf, "CR": ends.num_cr, "LF": ends.num_lf}
    used = {name: count for name, count in counts.items() if count > 0}
    if len(used) > 1:
        listed = ", ".join(f"{count:,} {name}" for name, count in used.items())
        notebook.add("note", 0, f"mixes line ends ({listed}); all are read alike.")


# -- what a file is ----------------------------------------------------------------------------------------------


def told_task(source: str, form: Shape | None, reading: Reading) -> str:
    """The task a file is data for, or "corpus"; refused where it could be two things."""
    if form is None or form.kind == "text":
        return "corpus"
    if form.kind in markup.TASK_OF:
        return markup.TASK_OF[form.kind]
    if not form.has_header:
        return _task_by_place(source, form)
    names = {name.lower() for name in form.columns}
    if names & {"options", "choices", "ending0"}:
        return "choose"
    if {"question", "context"} <= names:
        return "answer"
    if {"head", "tail"} <= names:
        return "relation"
    if any(first in names and second in names for first, second in PAIR_NAMES):
        return "pair"
    label = next((name for name in form.columns if name.lower() in LABEL_NAMES), None)
    if "entities" in names or (label and _holds_objects(source, form, label, reading)):
        return "tag"
    if label and names & set(TEXT_NAMES):
        return "classify"
    if names & set(TEXT_NAMES):
        return "corpus"
    raise InputError(f"{source}: cannot tell what {', '.join(form.columns)} are; name the task and the columns.")


def _holds_objects(source: str, form: Shape, column: str, reading: Reading) -> bool:
    rows = table_rows(source, form, Reading(reading.encoding, "replace", fault=lambda *_: None))
    return isinstance(next(rows, (0, {}))[1].get(column), (dict, list))


def _task_by_place(source: str, form: Shape) -> str:
    rows = [row for row in form.sample if len(row) == len(form.columns)]
    num_values = [len({row[place] for row in rows}) for place in range(len(form.columns))]
    width = len(form.columns)
    has_label = num_values[-1] <= max(len(rows) / 2, 3)
    if width == 1:
        return "corpus"
    if width == 2:
        return "pair" if min(num_values) > len(rows) / 2 and len(rows) > 10 else "classify"
    if width == 3 and has_label and not all(row[0].isdigit() for row in rows):
        return "pair"
    if width == 4 and sum(row[0] in row[3] and row[1] in row[3] for row in rows) > len(rows) / 2:
        return "relation"
    shown = ", ".join(f"{place}: {cell[:20]!r}" for place, cell in enumerate(rows[0], 1))
    message = f"has {width} columns and no header ({shown}); name the task and say which column is which"
    raise InputError(f"{source}: {message}: --columns text=NUMBER,label=NUMBER.")


# -- corpora -----------------------------------------------------------------------------------------------------


def _examine_corpus(path: str, reading: Reading, texts: checks.Texts) -> None:
    notebook = texts.notebook
    num_single = num_lines = 0
    for document in corpus.file_documents(path, None, "blank", reading):
        texts.look(checks.Example((document.text,), document.line, f"{path}:{document.line}"))
        num_single += _is_one_sentence(document.text)
        num_lines += document.text.count("\n") + 1
        if len(document.text) > LONG_LINE_CHARS:
            for number, size in _long_lines(document.text):
                message = f"the line has {size:,} characters; is a line end missing?"
                notebook.add("warning", document.line + number, message, "the line is very long")
    texts.tell("documents")
    if num_lines > 1000 * max(1, texts.num_texts):
        message = f"{num_lines:,} lines in a row without a blank one are one document; if each is a text: --unit line."
        notebook.add("warning", 0, message)
    if num_single:
        share = 100 * num_single / texts.num_texts
        message = f"{num_single:,} documents ({share:.0f} %) have one sentence; next-sentence pairs need two."
        notebook.add("warning" if share > 50 else "note", 0, message)


def _is_one_sentence(text: str) -> bool:
    head = text[:2000]
    return len(text) <= len(head) and len(sentences(head)) == 1


def _long_lines(text: str) -> Iterator[tuple[int, int]]:
    return ((number, len(line)) for number, line in enumerate(text.split("\n")) if len(line) > LONG_LINE_CHARS)
