"""A labelled file comes in; its shape (table, JSON, or a form of one task) and its raw rows go out, with line numbers.

Nothing is guessed silently: `Shape.description` says what the file was taken for, and what is in doubt is refused.
Where a guess could be wrong, `Shape.is_guessed`, and every command that reads the file says what it was taken for.
Forms that are data for one task alone are recognised by that task (`FileSpec.shape_of_lines`, `shape_of_json`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from filbert.core.errors import InputError
from filbert.forms import brat, exports, headers
from filbert.forms.conll import nearly
from filbert.forms.spec import specs
from filbert.text import tables
from filbert.text.streams import Reading, refuse, texts, whole_lines

HEAD_LINES = 200  # by which a shape is found
TABLE_ROWS = 1000  # of a table
JSON_CHARS = 512 * 2**20  # a SQuAD-style file is one JSON value and must fit in memory


class Undecodable(InputError):
    """The head of a file has bytes that are not of its encoding, so that its shape cannot be found."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a file is."""

    # table, json (lines), array (of objects), held (an array within an object), parquet, fasttext, brat, text (lines),
    # or a form of one task: a key of FileSpec.forms
    kind: str
    columns: tuple[str, ...] = ()  # names, or "1", "2", … where there is no header
    has_header: bool = True
    delimiter: str = ""
    description: str = ""  # one sentence for the user
    sample: tuple[tuple[str, ...], ...] = field(default=(), repr=False)  # the first rows of a table without header
    is_guessed: bool = False  # whether it could be otherwise, so that users are told
    tool: str = ""  # the annotation tool whose export it is, one of forms.exports
    nested: frozenset[str] = frozenset()  # columns that hold objects or lists, which data.text reaches into
    doubles: frozenset[str] = frozenset()  # columns of an export that hold what text or label hold, by another name


def shape(source: str, reading: Reading, column_names: tuple[str, ...] = ()) -> Shape:
    """What the file is, by its suffix and its first lines; `column_names` are those the user speaks of."""
    if exports.is_brat(source):
        columns = ("text", "entities", "relations")
        description = "brat: texts (.txt) with their annotations (.ann) beside them, a row for each line"
        return Shape("brat", columns, description=description, is_guessed=True)
    kind = tables.kind(source)
    if kind == "parquet":
        return _parquet_shape(source, reading)
    _check_bytes(source, reading)
    head = list(itertools.islice(whole_lines(source, _aside(reading)), HEAD_LINES))
    inked = [line for _, line in head if line.strip()]
    if not inked:
        raise InputError(f"{source}: is empty or blank; there is nothing to learn from.")
    if inked[0].lstrip()[0] in "[{" and (kind == "json" or (kind == "text" and are_objects(inked))):
        return _json_shape(source, inked, reading, column_names)
    if kind == "json":
        raise InputError(f"{source}: does not begin with {{ or [, so it is not JSON; give it the suffix of what it is.")
    if nearly(sum(line.lstrip().startswith(exports.FASTTEXT) for line in inked), len(inked)):
        return Shape("fasttext", ("text", "label"), description="fastText: __label__… and a text on each line")
    if kind in ("text", "tsv") and (form := _line_shape([line for _, line in head], kind)) is not None:
        return form
    delimiter = _delimiter(kind, inked)
    if not delimiter:
        return Shape("text", ("1",), has_header=False, description="plain text, one text per line")
    return _table_shape(source, delimiter, reading, column_names)


def _line_shape(lines: list[str], kind: str) -> Shape | None:
    """The form of one task that a file has by its lines; None: plain text, or a table with tabs."""
    shapes = (spec.shape_of_lines(lines, kind) for spec in specs() if spec.shape_of_lines is not None)
    return next((form for form in shapes if form is not None), None)


def _value_shape(value: object) -> Shape | None:
    """The form of one task that a JSON value has; None: rows, or nothing that is known."""
    shapes = (spec.shape_of_json(value) for spec in specs() if spec.shape_of_json is not None)
    return next((form for form in shapes if form is not None), None)


def _aside(reading: Reading) -> Reading:
    """The same way of reading, without counting anything twice: for a look at the head of a file."""
    return Reading(reading.encoding, "replace", fault=lambda *_: None)


def _check_bytes(source: str, reading: Reading) -> None:
    """Refuses a file whose head does not decode: its shape would be found from other characters than it has."""

    def undecodable(source: str, line: int, message: str) -> None:
        try:
            refuse(source, line, message)
        except InputError as error:
            raise Undecodable(str(error)) from None

    if reading.errors == "strict":
        probe = Reading(reading.encoding, fault=undecodable)
        for _ in itertools.islice(whole_lines(source, probe), HEAD_LINES):
            pass


def _parquet_shape(source: str, reading: Reading) -> Shape:
    rows = [row for _, row in itertools.islice(tables.parquet_rows(source, Reading(fault=reading.fault)), HEAD_LINES)]
    if not rows:
        raise InputError(f"{source}: has no rows; there is nothing to learn from.")
    return of_rows(Shape("parquet", description="Parquet"), rows)


def of_rows(form: Shape, rows: Sequence[dict[str, object]]) -> Shape:
    """The shape with the columns of all rows that were looked at, and with the tool that wrote them."""
    tool = exports.tool_of(rows)
    seen = rows if not tool else [row for _, row in exports.plain_rows(tool, "", _numbered_rows(rows), QUIET)]
    left_out = rows if tool == exports.PRODIGY else ()  # these have the same columns
    columns = dict.fromkeys(name for row in (*seen, *left_out) for name in row)
    nested = {name for row in rows for name, value in row.items() if isinstance(value, (dict, list))}
    shown = exports.shown_columns(tool, columns)
    if not tool:
        return replace(form, columns=shown, nested=frozenset(nested))
    text_and_label = {name: [row.get(name) for row in seen] for name in ("text", "label") if name in columns}
    doubles = {
        name
        for name in shown
        if name not in text_and_label and [row.get(name) for row in seen] in text_and_label.values()
    }
    description = f"{form.description}, the export of {tool}"
    return replace(
        form,
        columns=shown,
        nested=frozenset(nested),
        tool=tool,
        description=description,
        is_guessed=True,
        doubles=frozenset(doubles),
    )


QUIET = Reading(fault=lambda *_: None)


def _numbered_rows(rows: Sequence[dict[str, object]]) -> Iterator[tables.Row]:
    return iter([(number, row) for number, row in enumerate(rows, 1)])


def are_objects(inked: list[str]) -> bool:
    """Whether a file is JSON whatever it is called: an object on each line, or one value over all lines."""
    if inked[0].strip() in ("{", "[", "[{") or (len(inked) == 1 and inked[0].lstrip().startswith("[{")):
        return True
    return all(isinstance(row, dict) for row in map(_value, inked))


def _value(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _json_shape(source: str, inked: list[str], reading: Reading, column_names: tuple[str, ...]) -> Shape:
    first = _value(inked[0])
    if isinstance(first, dict) and not (len(inked) == 1 and _holds_rows(first)):
        rows = [row for row in map(_value, inked) if isinstance(row, dict)]
        return _with_late(source, of_rows(Shape("json", description="JSON lines"), rows), reading, column_names)
    if first is None and inked[0].startswith("{") and len(inked[0]) > 1 and len(inked) > 1 and inked[1].startswith("{"):
        return _broken_lines(source, inked, reading)
    value = whole_json(source, _aside(reading))
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        beside = [name for name, held in value.items() if name != "data" and held and isinstance(held, (list, dict))]
        if beside:
            reading.tell(f"of the JSON object only data is read; {', '.join(beside)} beside it passed over.")
    if (form := _value_shape(value)) is not None:
        return form
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        return of_rows(Shape("held", description="a JSON object with an array of objects in data"), value["data"])
    if isinstance(value, list) and any(isinstance(row, dict) for row in value):
        return of_rows(
            Shape("array", description="a JSON array of objects"), [row for row in value if isinstance(row, dict)]
        )
    if isinstance(value, dict):
        names = ", ".join(map(repr, list(value)[:5]))
        message = f"is one JSON object with {names}; write its rows as JSON lines, one object per line"
        raise InputError(f"{source}: {message}, or as an array of objects.")
    raise InputError(f"{source}: is JSON of no known form; use JSON lines with one object per line.")


def _holds_rows(value: Mapping[str, object]) -> bool:
    """Whether an object is no row, but has rows within: {"data": […]}, {"train": [{…}, …]}."""
    lists = [
        value_of
        for value_of in value.values()
        if isinstance(value_of, list) and all(isinstance(row, dict) for row in value_of)
    ]
    return isinstance(value.get("data"), list) or (len(lists) == len(value) and any(lists))


def _broken_lines(source: str, inked: list[str], reading: Reading) -> Shape:
    """JSON lines of which the first is broken: reading will name it; where all are, it is named now."""
    rows = [row for row in map(_value, inked) if isinstance(row, dict)]
    if not rows:
        for _ in tables.json_rows(source, Reading(reading.encoding, "replace")):
            break
    return of_rows(Shape("json", description="JSON lines"), rows)


def _with_late(source: str, form: Shape, reading: Reading, column_names: tuple[str, ...]) -> Shape:
    """The shape with the columns that the user names and that only rows behind the head have."""
    roots = {name if name in form.columns else name.partition(".")[0] for name in column_names}
    missing = roots - {*form.columns, *form.nested}
    late = dict[str, bool]()
    for _, row in tables.json_rows(source, _aside(reading)) if missing else ():
        for name in missing & row.keys():
            late[name] = late.get(name, False) or isinstance(row[name], (dict, list))
        if len(late) == len(missing):
            break
    nested = form.nested | {name for name, is_nested in late.items() if is_nested}
    return replace(form, columns=(*form.columns, *late), nested=nested)


def whole_json(source: str, reading: Reading) -> Any:
    """The one value that a JSON file holds."""
    parts: list[str] = []
    num_chars = 0
    for text in texts(source, reading):
        parts.append(text)
        num_chars += len(text)
        if num_chars > JSON_CHARS:
            raise InputError(f"{source}: is one JSON value of more than {JSON_CHARS:,} characters; use JSON lines.")
    try:
        return tables.decoded("".join(parts))
    except tables.Twice as error:
        raise InputError(f"{source}: {error}") from None
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        raise InputError(f"{source} line {line}: is not valid JSON ({error}); was it cut short?") from None


def _delimiter(kind: str, inked: list[str]) -> str:
    if kind == "tsv":
        return "\t"
    if kind == "text":  # a tab here and there is text; a tab on nearly every line separates columns
        return "\t" if sum("\t" in line for line in inked) >= 0.9 * len(inked) else ""
    first = inked[0]
    for delimiter in (",", "\t", ";"):
        names = [name.strip().strip('"').lower() for name in first.split(delimiter)]
        if len(names) > 1 and any(name in headers.USUAL_NAMES for name in names):
            return delimiter
    tabs = {line.count("\t") for line in inked}
    # The same number of tabs on every line of a .csv without a known header: it is tab-separated, whatever its name.
    return "\t" if len(tabs) == 1 and 0 not in tabs else tables.header_delimiter(first)


def _table_shape(source: str, delimiter: str, reading: Reading, column_names: tuple[str, ...]) -> Shape:
    some = itertools.islice(tables.cells(source, _aside(reading), delimiter), TABLE_ROWS)
    rows = [tuple(row) for _, row in some if any(map(str.strip, row))]
    if not rows:
        raise InputError(f"{source}: no row of it can be read; is a quotation mark left open on the first line?")
    first = tuple(cell.strip() for cell in rows[0])
    parts = first[0].lower().split("|")
    if len(first) == 1 < len(parts) and set(parts) <= headers.USUAL_NAMES:
        raise InputError(f"{source}: {first[0][:80]!r} parts its columns by |, which is not read; use commas or tabs.")
    called = {",": "comma", "\t": "tab", ";": "semicolon"}[delimiter] + "-separated"
    are_numbers = _are_places(first, column_names)
    seems = _header(source, first, rows[1:], column_names)
    if seems == headers.SURE:
        is_sure = headers.has_usual_names(first) and not are_numbers
        listed = ", ".join(first)
        is_guessed = not is_sure and (not column_names or are_numbers)
        description = (
            f"{called}; its first line is taken for the header: {listed}"
            if is_guessed
            else (f"{called} with the header {listed}")
        )
        form = Shape("table", first, True, delimiter, description, is_guessed=is_guessed)
        # Of two columns with one name the first counts.
        whole = [dict(zip(first[::-1], row[::-1], strict=True)) for row in rows[1:] if len(row) == len(first)]
        return replace(form, tool=exports.tool_of_table(whole))
    columns = tuple(str(place) for place in range(1, len(first) + 1))
    description = f"{called} without a header, {len(first)} column{'s' * (len(first) > 1)}"
    if seems == headers.PERHAPS:
        description += f" (its first line, {', '.join(first)[:80]}, is read as the others are)"
    return Shape("table", columns, False, delimiter, description, tuple(rows), is_guessed=seems == headers.PERHAPS)


def _header(source: str, first: tuple[str, ...], below: list[tuple[str, ...]], column_names: tuple[str, ...]) -> int:
    """Whether a first row is a header: by known names, by those the user speaks of, by its looks; doubt is refused."""
    if any(not name.isdigit() for name in column_names) or headers.has_usual_names(first):
        return headers.SURE
    seems = headers.looks(first, below)
    if column_names and _are_places(first, column_names):
        return seems  # a first row may hold the number 1 where the user speaks of column 1
    if column_names or seems == headers.SURE:
        return headers.SURE if any(name in first for name in column_names) else seems
    usual = [cell for cell in first if cell.lower() in headers.USUAL_NAMES]
    if seems == headers.PERHAPS or (usual and len(first) > 1):
        unknown = next(cell for cell in first if cell not in usual)
        kind = (
            f"{usual[0]!r} is a known column name, {unknown[:40]!r} is not"
            if usual
            else (f"{', '.join(first)[:80]} stands there alone")
        )
        raise InputError(
            f"{source} line 1: is it a header? {kind}; say which column is which, by name with a header or by number "
            "without: --columns text=1,label=2."
        )
    return headers.NO


def _are_places(first: tuple[str, ...], column_names: tuple[str, ...]) -> bool:
    """Whether the columns that the user speaks of are places from 1, and no names in a first row that counts them."""
    places = {str(place) for place in range(1, len(first) + 1)}
    return bool(column_names) and set(column_names) <= places and set(first) != places


def table_rows(source: str, form: Shape, reading: Reading) -> Iterator[tables.Row]:
    """The rows of a table, of JSON or of a plain text as dictionaries, under the column names of the shape."""
    rows = _raw_rows(source, form, reading)
    return exports.plain_rows(form.tool, source, rows, reading) if form.tool else rows


def _raw_rows(source: str, form: Shape, reading: Reading) -> Iterator[tables.Row]:
    if form.kind == "parquet":
        return tables.parquet_rows(source, reading)
    if form.kind == "json":
        return tables.json_rows(source, reading)
    if form.kind in ("array", "held"):
        return _array_rows(source, reading)
    if form.kind == "brat":
        return brat.brat_rows(source, reading)
    if form.kind == "fasttext":
        return brat.fasttext_rows(source, reading)
    if form.kind == "text":
        return ((number, {"1": line}) for number, line in whole_lines(source, reading))
    table = tables.cells(source, reading, form.delimiter)
    if form.has_header:
        return tables.headed(source, table, reading, form.delimiter)
    return _numbered(source, table, form, reading)


def _array_rows(source: str, reading: Reading) -> Iterator[tables.Row]:
    value = whole_json(source, reading)
    for number, row in enumerate(value["data"] if isinstance(value, dict) else value, 1):
        if isinstance(row, dict):
            yield number, row
        else:
            reading.fault(source, 0, f"item {number} of the array is not an object {{…}}.")


def _numbered(source: str, table: Iterator[tables.Cells], form: Shape, reading: Reading) -> Iterator[tables.Row]:
    width = len(form.columns)
    for line, row in table:
        if not any(map(str.strip, row)):
            reading.report.num_blank += 1
        elif len(row) == width:
            yield line, dict(zip(form.columns, row, strict=True))
        else:
            reading.fault(source, line, tables.ragged(len(row), width, f"line 1 has {width}", form.delimiter))
