"""A labelled file comes in (a table, JSON, Parquet, or a form of one task); Examples for a task go out, one by one.

Which column is which is told from known names, or by the user: by name or, without a header, by number from 1.
A labelled row with an empty text is skipped and counted; everything else that is wrong is a fault with its line.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.forms import exports
from filbert.forms.columns import column_roles, late_role, named_roles
from filbert.forms.formats import Shape, shape, table_rows
from filbert.forms.gold import labels_of
from filbert.forms.spec import Entry, FileSpec, Roles, Selection, named_spec, spec_of_form
from filbert.text.streams import Reading, is_clean
from filbert.text.tables import Row

_WHOLE = re.compile(r"(-?)0*(\d+)(?:\.0)?")


def examples(
    path: str | os.PathLike[str],
    task: str,
    columns: Mapping[str, str | int] | None = None,
    encoding: str = "utf-8",
    reading: Reading | None = None,
) -> Iterator[Example]:
    """The examples of one file in order, numbered from 0; what is skipped or mended is counted in reading.report.

    task: one of `spec.task_names`, whose `files.py` says what the gold is; it is None where the file does not say.
    columns: role -> column, e.g. {"text": "review", "label": "stars"}, or {"label": 1, "text": 2} without a header.
    reading: says more than the encoding alone: what to do with bytes that do not decode, where faults and counts go.
    """
    return file_examples(path, named_spec(task), columns, reading or Reading(encoding))


def file_examples(
    path: str | os.PathLike[str], spec: FileSpec, columns: Mapping[str, str | int] | None, reading: Reading
) -> Iterator[Example]:
    """The same by the record of the task's files; columns that are none of it are refused at once."""
    return _examples(os.fspath(path), spec, named_roles(spec, columns), reading)


def _examples(path: str, spec: FileSpec, named: Roles, reading: Reading) -> Iterator[Example]:
    joined = spec.joined_path(path, reading) if spec.joined_path is not None else None
    if joined is not None:
        tell_columns(spec.joined_as, named, reading)
        for number, (line, texts, gold) in enumerate(joined):
            yield Example(texts, gold, number, path, line)
        return
    with _named(path) as source:
        try:
            form = shape(source, reading, tuple(named.values()))
            yield from formed(source, spec, form, named, reading, path)
        except InputError as error:
            if path != "-":
                raise
            raise InputError(str(error).replace(source, path)) from None  # nobody knows the copy's name


def formed(
    source: str, spec: FileSpec, form: Shape, named: Roles, reading: Reading, called: str = ""
) -> Iterator[Example]:
    """The examples of a file whose form is known, whatever its suffix says; called: as the user names it."""
    entries = writable(source, spec, _read(source, spec, form, named, reading), reading)
    for number, (line, texts, gold) in enumerate(entries):
        yield Example(texts, gold, number, called or source, line)


def writable(source: str, spec: FileSpec, entries: Iterator[Entry], reading: Reading) -> Iterator[Entry]:
    """The same; a label that no file could hold is a fault. Texts are clean by now."""
    seen = set[str]()
    for line, texts, gold in entries:
        new = {*spec.labels(gold)} - seen
        seen |= new
        wrong = next((label for label in new if not is_clean(label)), None)
        if wrong is None:
            yield line, texts, gold
            continue
        seen.discard(wrong)
        reading.fault(source, line, f"the label {wrong!r:.60} holds a NUL, or half a surrogate pair; write it without.")


@contextlib.contextmanager
def _named(path: str) -> Iterator[str]:
    """The path itself; standard input is put in a temporary file, because its first lines are read for its shape."""
    if path != "-":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "-"
        with copy.open("wb") as target:
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield str(copy)


def _read(source: str, spec: FileSpec, form: Shape, named: Roles, reading: Reading) -> Iterator[Entry]:
    owner = spec_of_form(form.kind)
    if owner is not None:
        if form.kind not in spec.forms:
            raise InputError(f"{source}: is {form.description}, which is data for {owner.task}, not for {spec.task}.")
        tell_columns(form.description, named, reading)
        return spec.forms[form.kind].read(source, reading)
    roles = column_roles(source, spec, form, named)
    selection = Selection(spec, form, roles, named)
    tell_taken(selection, reading)
    return spec.rows(source, lambda how: _rows(source, selection, how), roles, reading)


def tell_columns(what: str, named: Roles, reading: Reading) -> None:
    """Says that named columns are passed over, of a file that has none to name."""
    if named:
        listed = ", ".join(f"{role}={name}" for role, name in named.items())
        reading.tell(f"the columns {listed} are passed over, since it is {what}.")


def tell_taken(selection: Selection, reading: Reading) -> None:
    """Says which columns are passed over and, where it could be otherwise, what the data were taken for."""
    form = selection.form
    if form.kind != "brat":
        _tell_passed(selection, [name for name in form.columns if name not in form.doubles], reading)
    if form.is_guessed:
        reading.tell(f"{read_as(selection.spec, form, selection.roles)}.")


def _tell_passed(selection: Selection, columns: Iterable[str], reading: Reading) -> None:
    """Says which columns a task does not read."""
    spec, roles = selection.spec, selection.roles
    unused = [name for name in columns if name not in roles.values()]
    unused = [name for name in unused if spec.reads is None or not spec.reads(roles, name)]
    if unused:
        listed = ", ".join(name or "without a name" for name in unused)
        reading.tell(f"columns {listed} are passed over." if len(unused) > 1 else f"column {listed} is passed over.")


def read_as(spec: FileSpec, form: Shape, roles: Roles) -> str:
    """What a file was taken for, and which column for what, as every command says it."""
    if spec_of_form(form.kind) is not None:
        return f"read as {form.description}, for {spec.task}"
    column = "" if form.has_header else "column "
    return f"read as {form.description}, for {spec.task} with " + ", ".join(
        f"{role} from {column}{name}" for role, name in roles.items()
    )


def _rows(source: str, selection: Selection, reading: Reading) -> Iterator[Row]:
    """The rows of the file with every column that is read; one that shows up late or is passed over is named."""
    return taken_rows(source, table_rows(source, selection.form, reading), selection, reading)


def taken_rows(source: str, rows: Iterator[Row], selection: Selection, reading: Reading) -> Iterator[Row]:
    """The plain rows of a file, or of what Python holds, with every column that is read."""
    form = selection.form
    paths = [name for name in selection.roles.values() if name not in form.columns and "." in name]
    if paths:
        rows = exports.with_nested(rows, paths)
    if form.kind in ("json", "array", "held"):
        rows = _watched(source, rows, selection, reading)
    return selection.spec.prepare(source, rows, selection, reading)


def _watched(source: str, rows: Iterator[Row], selection: Selection, reading: Reading) -> Iterator[Row]:
    """The rows; a column that the first ones do not have, and that would have been read, is refused."""
    roles = selection.roles
    seen = set(selection.form.columns) | selection.form.nested
    for line, row in rows:
        if not selection.named and not row.keys() <= seen:
            for name in row.keys() - seen:
                role = late_role(selection.spec, roles, name)
                if role:
                    named = ",".join(f"{each}={column}" for each, column in {**roles, role: name}.items())
                    message = f"brings the column {name!r}, which no row before it has; name it: --columns {named}."
                    reading.fault(source, line, message)
            seen |= row.keys()
        yield line, row


@dataclass(frozen=True, slots=True)
class LabelTable:
    """The labels of a dataset in a fixed order, how often each stands, and which look like the same one twice."""

    labels: tuple[str, ...]
    counts: Mapping[str, int]
    near_duplicates: tuple[tuple[str, ...], ...] = ()

    def check(self) -> LabelTable:
        """Itself, or an error that names labels which are blank, or differ only by case, width or white space."""
        blank = next((name for name in self.labels if not name.strip()), None)
        if blank is not None:
            raise InputError(f"the label of {self.counts[blank]:,} rows is {blank!r}; name it, or remove the rows.")
        for group in self.near_duplicates:
            listed = " and ".join(f"{name!r} ({self.counts[name]:,} times)" for name in group)
            raise InputError(f"the labels {listed} differ only by case or white space; write them alike.")
        return self


def label_table(data: Iterable[Example]) -> LabelTable:
    """The labels of examples, sorted: numbers by value, else by character."""
    counts: Counter[str] = Counter()
    for example in data:
        counts.update(labels_of(example.gold))
    is_numeric = all(label.isascii() and label.isdigit() for label in counts)
    labels = tuple(sorted(counts, key=(lambda label: (int(label), label)) if is_numeric else None))
    return LabelTable(labels, dict(counts), near_duplicates(labels))


def near_duplicates(labels: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Groups of labels that are the same but for case, width, white space or zeros that say nothing (1, 01, 1.0).

    Signs are not white space: A and A- are two grades, -1 and 1 two numbers.
    """
    groups: dict[str, list[str]] = {}
    for label in labels:
        key = " ".join(unicodedata.normalize("NFKC", label).casefold().replace("_", " ").split())
        whole = _WHOLE.fullmatch(key)
        groups.setdefault(whole[1] + whole[2] if whole else key, []).append(label)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)
