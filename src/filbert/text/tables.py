"""CSV, TSV, JSON-lines and Parquet files come in; their rows go out, each with the line it began on."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from filbert.core.errors import InputError, needed
from filbert.core.files import regular_file
from filbert.text.streams import COMPRESSIONS, Reading, stem_and_suffix, whole_lines

Cells = tuple[int, list[str]]  # (line, cells)
Row = tuple[int, dict[str, Any]]  # (line, or row number for Parquet; column -> value)

KINDS = {
    ".txt": "text",
    ".text": "text",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
}
_SEPARATOR = re.compile(r"sep=[,;|\t]?", re.IGNORECASE)  # a first line that Excel understands
_QUOTED = re.compile('"(?:[^"]|"")*"')  # a cell, whole on its line
QUOTE_LIMIT_CHARS = 64 * 2**20  # a quote that is never closed must not swallow a corpus


def kind(source: str) -> str:
    """'text', 'csv', 'tsv', 'json' or 'parquet', by the suffix; whatever is not known is text."""
    return KINDS.get(stem_and_suffix(source)[1], "text")


def rows(source: str, reading: Reading, delimiter: str | None = None) -> Iterator[Row]:
    """The rows of a table with a header, or of JSON lines, as dictionaries."""
    what = kind(source)
    if what == "parquet":
        return parquet_rows(source, reading)
    if what == "json" or (what == "text" and delimiter is None):
        return json_rows(source, reading)
    delimiter = delimiter or {"tsv": "\t"}.get(what, "")
    return headed(source, cells(source, reading, delimiter), reading, delimiter)


# -- comma- and tab-separated ------------------------------------------------------------------------------------


def cells(source: str, reading: Reading, delimiter: str = "") -> Iterator[Cells]:
    """The rows of a delimited file, header included if there is one; an empty delimiter is told from the first line.

    Commas and semicolons: RFC 4180, a quoted cell may hold delimiters, line ends and doubled quotes; spaces before a
    cell are none of it (`a, "b, c"` has two cells, as spreadsheets and csv's skipinitialspace have it).
    Tabs: no quoting, as in the TSV format proper; a quotation mark is text like any other.
    """
    lines = whole_lines(source, reading)
    first = next(lines, None)
    if first is None:
        return
    if _SEPARATOR.fullmatch(first[1].strip()):
        raise InputError(f"{source} line 1: {first[1].strip()!r} is a hint for Excel and no row; remove the line.")
    delimiter = delimiter or header_delimiter(first[1])
    record = _Record(source, lines, delimiter, reading)
    number, line = first
    while True:
        if not line or (line.isspace() and delimiter not in line):
            reading.report.num_blank += 1
        elif delimiter == "\t":
            yield number, line.split(delimiter)
        elif '"' not in line:
            yield number, [cell.lstrip(" ") for cell in line.split(delimiter)]
        elif (row := record.cells(number, line)) is not None:
            yield number, row
        following = next(lines, None)
        if following is None:
            return
        number, line = following


def header_delimiter(header: str) -> str:
    """Comma, unless the first line has none and a semicolon or tab instead."""
    return "," if "," in header else "\t" if "\t" in header else ";" if ";" in header else ","


class _Record:
    """Parses the records that hold quotation marks; takes further lines while a quoted cell is open."""

    def __init__(self, source: str, lines: Iterator[tuple[int, str]], delimiter: str, reading: Reading) -> None:
        self.source, self.lines, self.delimiter, self.reading = source, lines, delimiter, reading

    def cells(self, number: int, line: str) -> list[str] | None:
        """The record's cells, or None after a fault."""
        row: list[str] = []
        place = 0
        while True:
            place += spaces(line, place, self.delimiter)
            if line.startswith('"', place):
                quoted = self._quoted(number, line, place + 1)
                if quoted is None:
                    return None
                cell, line, place = quoted
                if place < len(line) and line[place] != self.delimiter:
                    message = 'a quoted cell goes on after its closing quotation mark; write "" for a quote inside it.'
                    self.reading.fault(self.source, number, message)
                    return None
                row.append(cell)
            else:
                end = line.find(self.delimiter, place)
                end = len(line) if end < 0 else end
                row.append(line[place:end])
                place = end
            if place >= len(line):
                return row
            place += 1

    def _quoted(self, number: int, line: str, place: int) -> tuple[str, str, int] | None:
        """The cell that opens before `place`, the line on which it closes, and the place after its closing quote."""
        parts: list[str] = []
        num_chars = 0
        while True:
            end = line.find('"', place)
            if end < 0:
                parts.append(line[place:] + "\n")
                num_chars += len(line) - place + 1
                following = next(self.lines, None)
                if following is None or num_chars > QUOTE_LIMIT_CHARS:
                    self.reading.fault(self.source, number, "the quotation mark opened on this line is never closed.")
                    return None
                line, place = following[1], 0
            elif line.startswith('"', end + 1):
                parts.append(line[place : end + 1])
                num_chars += end + 1 - place
                place = end + 2
            else:
                parts.append(line[place:end])
                return "".join(parts), line, end + 1


def spaces(line: str, place: int, delimiter: str) -> int:
    """How many spaces before a cell are none of it: all, but before a quotation mark that quotes no whole cell."""
    start = place
    while line.startswith(" ", place):
        place += 1
    quoted = _QUOTED.match(line, place) if place > start else None
    is_text = line.startswith('"', place) and (
        quoted is None or line[quoted.end() : quoted.end() + 1] not in ("", delimiter)
    )
    return 0 if is_text and place > start else place - start


def headed(source: str, table: Iterator[Cells], reading: Reading, delimiter: str = ",") -> Iterator[Row]:
    """Rows as dictionaries under the names of the first; a row of another width is a fault, as is a name twice."""
    table = itertools.dropwhile(lambda row: not any(map(str.strip, row[1])), table)
    first = next(table, None)
    if first is None:
        return
    number, names = first[0], [name.strip() for name in first[1]]
    twice = {name for name, count in Counter(names).items() if count > 1}
    if twice:
        reading.fault(source, number, f"the column {min(twice)!r} stands twice in the header; rename one.")
        return
    for line, row in table:
        if not any(map(str.strip, row)):
            reading.report.num_blank += 1
        elif len(names) > 1 and [cell.strip() for cell in row] == names:
            what = "rows repeat the header, as where files were put together, and were passed over"
            reading.count(what, source, line, "repeats the header; passed over.")
        elif len(row) == len(names):
            yield line, dict(zip(names, row, strict=True))
        else:
            standard = f"the header has {len(names)}: {', '.join(names)}"
            reading.fault(source, line, ragged(len(row), len(names), standard, delimiter))


def ragged(num_cells: int, num_wanted: int, standard: str, delimiter: str = ",") -> str:
    """The sentence for a row that is too short or too long."""
    advice = "quote a cell that has a delimiter in it"
    if delimiter == "\t":
        short = "a tab is missing, or a line end (LF or CR) inside a cell breaks the row in two"
        advice = short if num_cells < num_wanted else "a tab cannot stand inside a cell"
    return f"has {num_cells} cells, but {standard}; {advice}."


# -- JSON lines --------------------------------------------------------------------------------------------------


class Twice(ValueError):
    """An object has two fields of one name, of which only the last would be read."""


def _once(fields: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(fields)
    if len(row) < len(fields):
        twice = next(name for name, count in Counter(name for name, _ in fields).items() if count > 1)
        raise Twice(f"the field {twice!r} stands twice in one object; rename or remove one.")
    return row


decoded = json.JSONDecoder(object_pairs_hook=_once).decode  # like json.loads, but no field is dropped


def json_rows(source: str, reading: Reading) -> Iterator[Row]:
    """One JSON object per line; blank lines are skipped and counted."""
    lines = whole_lines(source, reading)
    coming = next(lines, None)
    while coming is not None:
        (number, line), coming = coming, next(lines, None)
        if not line or line.isspace():
            reading.report.num_blank += 1
            continue
        try:
            value = decoded(line)
        except Twice as error:
            reading.fault(source, number, str(error))
            continue
        except (ValueError, RecursionError) as error:
            reading.fault(source, number, _broken_json(line, error, is_last=coming is None))
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            reading.fault(source, number, f"holds a JSON {_json_type(value)}, but one object {{…}} per line is needed.")


def _broken_json(line: str, error: Exception, is_last: bool) -> str:
    if is_last:
        return f"the file ends in the middle of a JSON object ({error}); it was cut short, so copy or write it again."
    if line.strip() in ("{", "["):
        return "the JSON goes over several lines, but one object per line is needed (JSON lines)."
    return f"is not a JSON object ({error}); one object per line is needed."


def _json_type(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return names.get(type(value), type(value).__name__)


# -- Parquet -----------------------------------------------------------------------------------------------------


def parquet_rows(source: str, reading: Reading) -> Iterator[Row]:
    """The rows of a Parquet file in batches of 256, so that a large file need not fit."""
    parquet = needed("pyarrow.parquet", "data")
    arrow = needed("pyarrow", "data")
    path = regular_file(source)
    if path.suffix.lower() in COMPRESSIONS:
        raise InputError(f"{source}: Parquet is compressed within; unpack the outer compression first.")
    reading.report.num_bytes += path.stat().st_size
    if not reading.is_utf8:
        reading.tell(f"{source}: --encoding is of text files; Parquet says its own.")
    try:
        with parquet.ParquetFile(path) as file:
            number, names = 0, file.schema_arrow.names
            if twice := next((name for name, count in Counter(names).items() if count > 1), ""):
                reading.fault(source, 0, f"the column {twice!r} stands twice; rename one.")
                return
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (arrow.ArrowException, OSError) as error:
        reading.fault(source, 0, f"is not a Parquet file that can be read ({str(error).partition(chr(10))[0]}).")
    except UnicodeDecodeError:
        reading.fault(
            source, 0, f"a string after row {number:,} is not UTF-8; write the file again with clean strings."
        )
