"""Labelled data as Python objects in: rows, a frame, a dataset, a generator of rows; examples for a task out.

A row is a dict, or a tuple such as (text, label). Which column is which is told as it is of files (forms.datasets), and
what is wrong is said in the same words, with the row, counted from 0, in place of the line. Nothing here is ever taken
for the path of a file: only a string or a Path by itself, or a list of these, names files.
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Protocol, runtime_checkable

from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.forms import exports
from filbert.forms.columns import column_roles, named_roles
from filbert.forms.datasets import taken_rows, tell_taken, writable
from filbert.forms.formats import Shape, of_rows
from filbert.forms.spec import FileSpec, Roles, Selection
from filbert.text import tables
from filbert.text.arguments import Dataset, Frame, Lazy, Row, called
from filbert.text.streams import Fault, Reading

SAMPLE = 1_000  # rows that tell whether the label comes last
ALLOWED = (
    "a file, or rows: a list of (text, label) or of {'text': …, 'label': …}, a DataFrame, a Dataset, or a generator of "
    "rows"
)


@runtime_checkable
class Arrow(Protocol):
    """A table of pyarrow."""

    def to_pylist(self) -> list[dict[str, Any]]:
        """Its rows."""
        ...


@runtime_checkable
class Column(Protocol):
    """A list within a cell, as polars has it."""

    def to_list(self) -> list[Any]:
        """Its values."""
        ...


Data = Iterable[object] | Mapping[str, object] | Frame | Dataset | Arrow


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under the names of their columns, which are numbers from 1 where the rows are tuples."""

    columns: tuple[str, ...]
    has_names: bool
    rows: list[dict[str, Any]]


def kept(source: object, what: str = "the data") -> Any:
    """The data as they can be read more than once: a generator becomes a list; whatever is no data is refused."""
    if isinstance(source, str | PurePath):
        if not str(source):
            raise InputError(f"{what} is '', but must be {ALLOWED}.")
        return source if isinstance(source, str) else Path(source)
    if isinstance(source, Lazy):
        raise InputError(f"{what} is {called(source)}, which is not computed yet: give what its collect() gives.")
    if isinstance(source, Mapping | Frame | Dataset | Arrow):
        return source
    if isinstance(source, set | frozenset):
        raise InputError(f"{what} is {called(source)}, which has no order; give a list.")
    no_rows = bytes | bytearray | memoryview | io.IOBase | Example
    if isinstance(source, no_rows) or not isinstance(source, Iterable):
        advice = "; give its path" if isinstance(source, io.IOBase) else ""
        raise InputError(f"{what} is {called(source)}, but must be {ALLOWED}{advice}.")
    if isinstance(source, tuple) and len(source) == 2 and all(map(_is_column, source)):
        raise InputError(f"{what} is a tuple of texts and labels; give rows: list(zip(texts, labels)).")
    return source if isinstance(source, list | tuple) else list(source)


def _is_column(value: object) -> bool:
    return isinstance(value, list | Row | Column)


def are_rows(source: object) -> bool:
    """Whether data that were `kept` are rows, rather than files and examples."""
    if isinstance(source, list | tuple):
        return any(not isinstance(part, str | PurePath | Example) for part in source)
    return not isinstance(source, str | PurePath)


def table(source: Data, what: str = "the data") -> Table:
    """The rows of whatever holds them, each a dict; cells that NumPy, pandas or polars made become plain values."""
    try:
        return _read(source, what)
    except RecursionError:
        raise InputError(
            f"{what}: a cell of it holds lists or dicts in too many levels; give rows of plain values."
        ) from None


def _read(source: Data, what: str) -> Table:
    if isinstance(source, Arrow):
        _check_once(getattr(getattr(source, "schema", None), "names", ()), what)
        return _table(source.to_pylist(), what)
    if isinstance(source, Dataset) and not isinstance(source.column_names, Mapping):
        return _of_dataset(source, what)
    if isinstance(source, Mapping):
        return _of_columns(source, what)
    if isinstance(source, Frame):
        return _of_frame(source, what)
    assert isinstance(source, Iterable)
    return _table(source, what)


def _of_dataset(source: Dataset, what: str) -> Table:
    """Numbers that stand for names, as datasets write classes, become these; below 0 they say that there is none."""
    if not isinstance(source, Iterable):
        raise InputError(f"{what} is {called(source)}, through whose rows nobody can go; give a list of rows.")
    held = _table(source, what)
    features = getattr(source, "features", None) or {}
    for column in held.columns:
        feature = features.get(column)
        names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
        if names:
            for row in held.rows:
                row[column] = _class_name(row.get(column), names)
    return held


def _class_name(value: object, names: Sequence[str]) -> object:
    if isinstance(value, list):
        return [_class_name(each, names) for each in value]
    if type(value) is not int:
        return value
    return names[value] if 0 <= value < len(names) else None


def _of_columns(source: Mapping[str, object], what: str) -> Table:
    """A dict of columns, as datasets[:100] is."""
    if source and all(isinstance(cells, Frame | Dataset) for cells in source.values()):
        some = ", ".join(map(str, source))
        raise InputError(f"{what} is {called(source)} of several sets: {some}; give one: data[{next(iter(source))!r}].")
    _check_once(source, what)
    columns = {str(name): plain(cells) for name, cells in source.items()}
    if not columns or not all(isinstance(cells, list) for cells in columns.values()):
        raise InputError(f"{what} is a dict, but not of columns, {{'text': […], 'label': […]}}; one row is [{{…}}].")
    return _beside(columns, what)


def _of_frame(source: Frame, what: str) -> Table:
    names = list(source.columns)
    _check_once(names, what)
    get = getattr(source, "__getitem__", None)
    try:
        columns = {str(name): [plain(cell) for cell in get(name)] for name in names} if get is not None else {}
    except (TypeError, ValueError, KeyError):
        columns = {}
    if not columns and names:
        raise InputError(f"{what} is {called(source)}, through whose columns nobody can go; give a list of rows.")
    held = _beside(columns, what)
    return dataclasses.replace(held, has_names=not all(type(name) is int for name in names))


def _check_once(names: Iterable[object], what: str) -> None:
    """Refuses names of columns that are one as text, as 0 and "0" are: the later would take the other's place."""
    counts = Counter(map(str, names))
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise InputError(f"{what}: the column {twice!r} stands twice; rename one.")


def _beside(columns: Mapping[str, list[object]], what: str) -> Table:
    sizes = {name: len(cells) for name, cells in columns.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {size:,}" for name, size in sizes.items())
        raise InputError(f"{what}: its columns are not of one length: {listed}.")
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return Table(tuple(columns), True, rows)


def _table(source: Iterable[object], what: str) -> Table:
    """The rows; all are dicts, or all are tuples of one length."""
    read_rows = [_row(index, row, what) for index, row in enumerate(source)]
    names = dict.fromkeys(name for row in read_rows if isinstance(row, dict) for name in row)
    if read_rows and not isinstance(read_rows[0], dict):
        names = dict.fromkeys(str(place) for place in range(1, len(read_rows[0]) + 1))
    rows = []
    for index, row in enumerate(read_rows):
        if isinstance(row, dict) is not isinstance(read_rows[0], dict):
            kinds = ("a dict", "a tuple") if isinstance(row, dict) else ("a tuple", "a dict")
            raise InputError(f"{what} row {index}: is {kinds[0]}, but row 0 is {kinds[1]}; write all alike.")
        if not isinstance(row, dict) and len(row) != len(names):
            raise InputError(f"{what} row {index}: has {len(row)} values, but row 0 has {len(names)}.")
        rows.append(row if isinstance(row, dict) else dict(zip(names, row, strict=True)))
    return Table(tuple(names), not read_rows or isinstance(read_rows[0], dict), rows)


def _row(index: int, row: object, what: str) -> dict[str, Any] | list[Any]:
    if isinstance(row, tuple) and hasattr(row, "_fields"):  # as itertuples gives them: by name
        return {str(name): plain(value) for name, value in zip(row._fields, row, strict=True)}
    if isinstance(row, Mapping):
        return {str(name): plain(value) for name, value in row.items()}
    if names := getattr(getattr(row, "dtype", None), "names", None):  # of a structured array
        record: Any = row
        return {name: plain(record[name]) for name in names}
    values = plain(row) if isinstance(row, tuple | list | Row) else None
    if isinstance(values, list) and values:
        return values
    path = " A string in a list names a file, and files and rows do not mix." if isinstance(row, str | PurePath) else ""
    raise InputError(
        f"{what} row {index}: is {called(row)} ({str(row)[:40]!r}), but must be (text, label) or a dict.{path}"
    )


def plain(value: object) -> Any:
    """A cell as JSON would have it: lists for arrays, Python's numbers for NumPy's, None where it is missing."""
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, str):  # NumPy's strings, and the members of an Enum of strings, become plain ones
        return value if type(value) is str else str.__str__(value)
    if value is None or isinstance(value, bytes | bool | int | type):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=str)
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, Row):
        return plain(value.tolist())
    if isinstance(value, Column):
        return plain(value.to_list())
    is_missing = type(value).__name__ in ("NAType", "NaTType") and type(value).__module__.startswith("pandas")
    return None if is_missing else value


# Examples -------------------------------------------------------------------------------------------------------------


def examples(
    source: Data, spec: FileSpec, columns: Mapping[str, str | int], reading: Reading, what: str = "the data"
) -> Iterator[Example]:
    """The examples of the rows in order, numbered from 0; what is skipped or mended is counted in reading.report.

    columns: role -> column, by name, or by number from 1 where rows are tuples.
    """
    named = named_roles(spec, columns)
    held = table(source, what)
    if not held.rows:
        return
    by_row = dataclasses.replace(
        reading, unit="row", fault=_at_row(reading.fault), mended=reading.mended and _at_row(reading.mended)
    )
    form = _shape(held)
    roles = _roles(form, spec, named, what)
    selection = Selection(spec, form, roles, named)
    numbered = list(enumerate(held.rows, 1))

    def rows(how: Reading) -> Iterator[tables.Row]:
        made = exports.plain_rows(form.tool, what, iter(numbered), how) if form.tool else iter(numbered)
        return taken_rows(what, made, selection, how)

    tell_taken(selection, reading)
    entries = writable(what, spec, spec.rows(what, rows, roles, by_row), by_row)
    for number, (_, texts, gold) in enumerate(entries):
        yield Example(texts, gold, number)


def _at_row(fault: Fault) -> Fault:
    """The callback for faults, with rows counted from 0 as the caller counts them, and not from 1 as here."""

    def at(source: str, row: int, message: str) -> None:
        fault(f"{source} row {row - 1}" if row else source, 0, message)

    return at


def _shape(held: Table) -> Shape:
    """What the rows are, as of a file with or without a header."""
    if held.has_names:
        return of_rows(Shape("rows", held.columns, description="rows"), held.rows)
    sample = tuple(tuple(map(str, row.values())) for row in held.rows[:SAMPLE])
    return Shape("rows", held.columns, has_header=False, description="rows", sample=sample)


def _roles(form: Shape, spec: FileSpec, named: Roles, what: str) -> dict[str, str]:
    """Role -> column; the advice is for Python."""
    places = spec.tuple_roles
    if places and not form.has_header and not named and len(form.columns) <= len(places):
        named = dict(zip(places, form.columns, strict=False))
    try:
        return column_roles(what, spec, form, named)
    except InputError as error:
        raise InputError(_in_python(str(error))) from None


def _in_python(sentence: str) -> str:
    """A sentence whose advice is of the command line, with what is written in Python instead."""

    def in_python(match: re.Match[str]) -> str:
        pairs = (pair.partition("=") for pair in match[1].split(","))
        return "columns={" + ", ".join(f"'{role}': {name}" for role, _, name in pairs) + "}"

    return re.sub(r"--columns ([^\s.;]+)", in_python, sentence)
