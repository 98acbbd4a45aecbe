"""Corpora and labelled files come in; findings go out: what each file is, and what is wrong with it, by file and line.

Nothing stops at the first fault.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from filbert.core.errors import InputError, one_of
from filbert.doctor import checks
from filbert.doctor.findings import MAX_OF_A_KIND, Finding, Notebook, rendered
from filbert.doctor.labelled import examine_labelled
from filbert.forms import datasets
from filbert.forms.columns import column_roles, named_roles
from filbert.forms.formats import Shape, Undecodable, shape, table_rows
from filbert.forms.labelled import has_text
from filbert.forms.spec import FileHead, FileSpec, named_spec, spec_of_form, specs, task_names
from filbert.text import corpus
from filbert.text.sentences import sentences
from filbert.text.streams import CorpusReport, Reading

__all__ = ["MAX_OF_A_KIND", "Finding", "examine", "read_for", "rendered"]

LONG_LINE_CHARS = 100_000
LOST = ("NUL characters were removed.", "became U+FFFD.")  # remarks of which a file should be rid
BLANK_LINES = "blank"  # the unit of a corpus: documents stand between blank lines
CORPUS = "corpus"  # what a file is said to be for where it is data for no task
FIRST_ROWS = 200  # of a column, by which it is seen what it holds


class _Books(NamedTuple):
    """Where findings on a file are written, what earlier files held, and how texts are measured."""

    notebook: Notebook
    seen: checks.Seen
    measure: checks.Measure | None


def examine(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    task: str | None = None,
    columns: Mapping[str, str | int] | None = None,
    encoding: str = "utf-8",
    measure: checks.Measure | None = None,
    most: int | None = MAX_OF_A_KIND,
) -> list[Finding]:
    """What the files are and what is wrong with them; `task`: "corpus" for plain text; None: by each file.

    Files are compared in the order given: the first with labels is taken to be the training set.
    measure: whose tokens count; most: findings of one kind that are listed of each file, None for all.
    """
    if task not in (None, CORPUS, *task_names()):
        raise one_of("the task", task, (CORPUS, *task_names()))
    seen = checks.Seen()
    findings: list[Finding] = []
    walk, named = CorpusReport(), [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    folders = ", ".join(os.fspath(path) for path in named if os.path.isdir(path))
    for path in corpus.files(named, walk):
        notebook = Notebook(path, most)
        try:
            _examine_file(path, task, columns, encoding, _Books(notebook, seen, measure))
        except InputError as error:
            notebook.add_error(error)
        findings += notebook.findings()
    return [*findings, *(Finding("note", folders, 0, remark) for remark in walk.remarks())]


def _examine_file(
    path: str,
    task: str | None,
    columns: Mapping[str, str | int] | None,
    encoding: str,
    books: _Books,
) -> None:
    notebook, seen, measure = books
    if path == "-":
        raise InputError("-: the doctor reads a file twice, which standard input does not allow; save it first.")
    reading = Reading(encoding, fault=notebook.fault, mended=notebook.mended)
    _examine_bytes(path, encoding, notebook)
    form, broken = (None, None) if task == CORPUS else _form(path, encoding, columns)
    try:
        spec = read_for(path, task, form, reading, columns)
        roles = _roles(path, spec, form, columns)
    except InputError as error:
        raise broken or error from None
    texts = checks.Texts(notebook, seen, spec, measure)
    if spec is None or form is None:
        description = (
            form.description
            if form is not None and form.kind != "text"
            else "plain text with blank lines between documents"
        )
        notebook.add("note", 0, f"read as {description}, for a corpus.")
        _examine_corpus(path, str((columns or {}).get("text", "")) or None, reading, texts)
    else:
        taken = datasets.read_as(spec, form, roles)
        if not form.is_guessed:  # else every command that reads the file says so, and it is among the remarks below
            notebook.add("note", 0, f"{taken}.")
        examine_labelled(path, spec, columns, form, texts, reading)
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


def _roles(
    path: str, spec: FileSpec | None, form: Shape | None, columns: Mapping[str, str | int] | None
) -> dict[str, str]:
    if form is None or spec is None or spec_of_form(form.kind) is not None:
        return {}
    return column_roles(path, spec, form, named_roles(spec, columns))


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


def read_for(
    source: str,
    task: str | None,
    form: Shape | None,
    reading: Reading,
    columns: Mapping[str, str | int] | None = None,
) -> FileSpec | None:
    """The record of the task that a file is data for; None for a corpus; refused where it could be two things.

    task: the one that the user names; None: the one that claims the file.
    """
    if task is not None:
        return None if task == CORPUS else named_spec(task)
    owner = spec_of_form(form.kind) if form is not None else None
    if owner is not None:
        return owner
    if columns and form is not None:
        return _spec_of_columns(source, form, columns, reading)
    if form is None or form.kind == "text":
        return None
    head = _head(source, form, reading)
    return _spec_by_name(source, head) if form.has_header else _spec_by_place(source, head)


def _head(source: str, form: Shape, reading: Reading) -> FileHead:
    """What tasks claim a file by; a column's first value is read when it is asked for."""

    @cache
    def first_value(column: str) -> object:
        rows = table_rows(source, form, Reading(reading.encoding, "replace", fault=lambda *_: None))
        values = (row.get(column) for _, row in itertools.islice(rows, FIRST_ROWS))
        return next((value for value in values if value not in (None, [])), None)

    return FileHead(form, frozenset(name.strip().lower() for name in form.columns), first_value)


def _last_first() -> list[FileSpec]:
    """The records in the order in which they are asked whether a file is theirs: the most particular first."""
    return sorted(specs(), key=lambda spec: spec.rank, reverse=True)


def _spec_by_name(source: str, head: FileHead) -> FileSpec | None:
    """The task that claims a file by the names of its columns; None for texts alone."""
    claims = (spec for spec in _last_first() if spec.claims_names is not None and spec.claims_names(head))
    claimed = next(claims, None)
    if claimed is not None or has_text(head.names):
        return claimed
    listed = ", ".join(head.form.columns)
    raise InputError(f"{source}: cannot tell what {listed} are; name the task and the columns.")


def _spec_of_columns(source: str, form: Shape, columns: Mapping[str, str | int], reading: Reading) -> FileSpec | None:
    """The task whose roles the user speaks of, the first of several; refused where none has them."""
    if set(columns) == {"text"}:  # a text and nothing else is what all tasks of one text begin with
        return None
    head = _head(source, form, reading)
    claims = (spec for spec in specs() if spec.claims_roles is not None and spec.claims_roles(head, columns))
    claimed = next(claims, None) or next((spec for spec in specs() if _are_roles(spec, columns)), None)
    if claimed is not None:
        return claimed
    listed, tasks = ", ".join(columns), sorted(specs(), key=lambda spec: spec.rank)
    named = " or ".join(spec.task for spec in tasks)
    raise InputError(f"{source}: no task has columns for {listed}; name the task: --task {named}.")


def _are_roles(spec: FileSpec, columns: Mapping[str, str | int]) -> bool:
    try:
        named = named_roles(spec, columns)
    except InputError:
        return False
    return len(named) > 1


def _spec_by_place(source: str, head: FileHead) -> FileSpec | None:
    """The task that claims a file without header by what stands where; None for texts alone."""
    width = len(head.form.columns)
    if width == 1:
        return None
    claims = (spec for spec in _last_first() if spec.claims_places is not None and spec.claims_places(head))
    claimed = next(claims, None)
    if claimed is not None:
        return claimed
    rows = [row for row in head.form.sample if len(row) == width]
    shown = ", ".join(f"{place}: {cell[:20]!r}" for place, cell in enumerate(rows[0], 1))
    message = f"has {width} columns and no header ({shown}); name the task and say which column is which"
    raise InputError(f"{source}: {message}: --columns text=NUMBER,label=NUMBER.")


# -- corpora -----------------------------------------------------------------------------------------------------


def _examine_corpus(path: str, column: str | None, reading: Reading, texts: checks.Texts) -> None:
    notebook = texts.notebook
    num_single = num_lines = 0
    for document in corpus.file_documents(path, column, BLANK_LINES, reading, "--columns text=NAME"):
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
