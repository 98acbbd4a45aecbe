"""Corpora and labelled files come in; findings go out: what each file is, and what is wrong with it, by file and line.

Nothing stops at the first fault.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping

from filbert.core.errors import InputError, one_of
from filbert.doctor import checks
from filbert.doctor.findings import MAX_OF_A_KIND, Finding, Notebook, rendered
from filbert.doctor.labelled import examine_labelled
from filbert.forms import datasets, markup
from filbert.forms.columns import ROLES, TAG_NAMES, TOKEN_NAMES, column_roles, named_roles
from filbert.forms.formats import Shape, Undecodable, shape, table_rows
from filbert.forms.headers import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES
from filbert.text import corpus
from filbert.text.sentences import sentences
from filbert.text.streams import CorpusReport, Reading

__all__ = ["MAX_OF_A_KIND", "Finding", "examine", "rendered", "told_task"]

LONG_LINE_CHARS = 100_000
LOST = ("NUL characters were removed.", "became U+FFFD.")  # remarks of which a file should be rid
FIRST_ROWS = 200  # of a column, from which it is told what it holds


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
    walk, given = CorpusReport(), [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    folders = ", ".join(os.fspath(path) for path in given if os.path.isdir(path))
    for path in corpus.files(given, walk):
        notebook = Notebook(path, most)
        try:
            _examine_file(path, task, columns, encoding, (notebook, seen, measure))
        except InputError as error:
            notebook.add_error(error)
        findings += notebook.findings()
    return [*findings, *(Finding("note", folders, 0, remark) for remark in walk.remarks())]


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
    form, broken = (None, None) if task == "corpus" else _form(path, encoding, columns)
    try:
        task = task or told_task(path, form, reading, columns)
        roles = _roles(path, task, form, columns)
    except InputError as error:
        raise broken or error from None
    texts = checks.Texts(notebook, seen, task, measure)
    if task == "corpus" or form is None:
        told = (
            form.told if form is not None and form.kind != "text" else "plain text with blank lines between documents"
        )
        notebook.add("note", 0, f"read as {told}, for a corpus.")
        _examine_corpus(path, str((columns or {}).get("text", "")) or None, reading, texts)
    else:
        taken = datasets.read_as(task, form, roles)
        if not form.is_guessed:  # else every command that reads the file says so, and it is among the remarks below
            notebook.add("note", 0, f"{taken}.")
        examine_labelled(path, task, columns, form, reading, texts)
    _tell_report(reading, notebook)


def _form(path: str, encoding: str, columns: Mapping[str, str | int] | None) -> tuple[Shape, Undecodable | None]:
    """What the file is; where bytes of its head do not decode, what it is without them, and what is wrong with them."""
    names = tuple(str(column) for column in (columns or {}).values())
    try:
        return shape(path, Reading(encoding), names), None
    except Undecodable as error:
        try:
            return shape(path, Reading(encoding, "replace", fault=lambda *_: None), names), error
        except InputError:
            raise error from None


def _roles(path: str, task: str, form: Shape | None, columns: Mapping[str, str | int] | None) -> dict[str, str]:
    if form is None or task == "corpus" or form.kind in markup.TASK_OF:
        return {}
    return column_roles(path, task, form, named_roles(task, columns))


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


def told_task(source: str, form: Shape | None, reading: Reading, columns: Mapping[str, str | int] | None = None) -> str:
    """The task a file is data for, or "corpus"; refused where it could be two things."""
    if form is not None and form.kind in markup.TASK_OF:
        return markup.TASK_OF[form.kind]
    if columns and form is not None:
        return _task_of_columns(source, form, columns, reading)
    if form is None or form.kind == "text":
        return "corpus"
    if not form.has_header:
        return _task_by_place(source, form)
    return _task_by_name(source, form, reading)


def _task_by_name(source: str, form: Shape, reading: Reading) -> str:
    names = {name.strip().lower() for name in form.columns}
    if names & {"options", "choices", "ending0"}:
        return "choose"
    if {"question", "context"} <= names:
        return "answer"
    if {"head", "tail"} <= names:
        return "relation"
    if any(first in names and second in names for first, second in PAIR_NAMES):
        return "pair"
    label = next((name for name in form.columns if name.strip().lower() in (*LABEL_NAMES, "score")), None)
    has_text = bool(names & {*TEXT_NAMES, "data"})
    if names & {"entities", "spans"} or (names & set(TOKEN_NAMES) and names & set(TAG_NAMES) and "text" not in names):
        return "tag"
    if label and has_text:
        return "tag" if _holds_spans(source, form, label, reading) else "classify"
    if has_text:
        return "corpus"
    raise InputError(f"{source}: cannot tell what {', '.join(form.columns)} are; name the task and the columns.")


def _holds_spans(source: str, form: Shape, column: str, reading: Reading) -> bool:
    """Whether a column holds objects, or lists of objects or lists, as entities are written; labels are no such."""
    rows = table_rows(source, form, Reading(reading.encoding, "replace", fault=lambda *_: None))
    values = (row.get(column) for _, row in itertools.islice(rows, FIRST_ROWS))
    first = next((value for value in values if value not in (None, [])), None)
    return isinstance(first, dict) or (isinstance(first, list) and isinstance(first[0], (dict, list)))


def _task_of_columns(source: str, form: Shape, columns: Mapping[str, str | int], reading: Reading) -> str:
    """The task whose roles the user speaks of; refused where several have them."""
    fitting = [task for task in ROLES if _are_roles(task, columns)]
    if set(columns) == {"text"}:  # a text and nothing else is what all tasks of one text begin with
        return "corpus"
    if fitting[:1] == ["classify"] and isinstance(form.columns, tuple):
        label = named_roles("classify", columns).get("label", "")
        spans = form.kind != "table" and label in form.columns and _holds_spans(source, form, label, reading)
        return "tag" if spans else "classify"
    for task in ("pair", "tag", "relation", "answer", "choose", "embed", "translate"):
        if task in fitting:
            return task
    listed = ", ".join(columns)
    raise InputError(f"{source}: no task has columns for {listed}; name the task: --task {' or '.join(ROLES)}.")


def _are_roles(task: str, columns: Mapping[str, str | int]) -> bool:
    try:
        named = named_roles(task, columns)
    except InputError:
        return False
    return len(named) > 1


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


def _examine_corpus(path: str, column: str | None, reading: Reading, texts: checks.Texts) -> None:
    notebook = texts.notebook
    num_single = num_lines = 0
    for document in corpus.file_documents(path, column, "blank", reading, "--columns text=NAME"):
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
