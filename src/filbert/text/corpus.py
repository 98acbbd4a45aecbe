"""Files, folders and standard input come in; documents go out one by one, in constant memory however large the corpus.

What is skipped, mended or cut is counted in the report; nothing is altered silently. Two rules that surprise:
a run of blank lines is one separator, and each blank line beyond the first in it counts as a blank document;
U+2028, U+2029, U+0085, vertical tab and form feed are characters of a line, never its end.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from filbert.core.errors import InputError, one_of
from filbert.core.records import Document
from filbert.text import tables
from filbert.text.streams import PIECE_CHARS, CorpusReport, Line, Reading, clean, lines, stem_and_suffix, whole_lines

__all__ = ["CorpusReport", "documents", "file_documents", "files"]

UNITS = ("blank", "line", "file")
TEXT_COLUMNS = ("text", "content")
SHOWN_CHARS = 80  # of a header that a message shows
HEAD_LINES = 8  # that tell JSON lines from plain text

Source = str | os.PathLike[str]


def documents(
    sources: Source | Iterable[Source],
    field: str | None = None,
    encoding: str = "utf-8",
    errors: str = "strict",
    unit: str = "blank",
    report: CorpusReport | None = None,
) -> Iterator[Document]:
    """Every document of the sources in order; a corpus without any text is refused when its end is reached.

    sources: files, folders (searched to the bottom, in sorted order, hidden names left out) and "-".
    field: the column or key that holds the text, for tables and JSON lines; may be left out where only one can.
    unit: what a document is in plain text: "blank" (up to a blank line), "line" or "file".
    """
    if unit not in UNITS:
        raise one_of("unit", unit, UNITS)
    reading = Reading(encoding, errors, report if report is not None else CorpusReport())
    return _documents(files(sources, reading.report), field, unit, reading, is_logged=report is None)


def _documents(paths: list[str], field: str | None, unit: str, reading: Reading, is_logged: bool) -> Iterator[Document]:
    report = reading.report
    num_before = report.num_documents
    for path in paths:
        num_at_start = report.num_documents
        for document in file_documents(path, field, unit, reading):
            report.num_documents += 1
            yield document
        report.num_files += 1
        if report.num_documents == num_at_start:
            report.empty_files.append(path)
    if report.num_documents == num_before:
        raise InputError(f"{_listed(paths)}: no text; every file is empty or blank, so there is nothing to learn from.")
    if is_logged:
        for remark in report.remarks():
            logging.getLogger(__name__).warning(remark)


def _listed(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


# -- which files -------------------------------------------------------------------------------------------------


def files(sources: Source | Iterable[Source], report: CorpusReport | None = None) -> list[str]:
    """The files that the sources name: themselves, or all with a known suffix in a folder, sorted; "-" stays "-"."""
    if isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    paths: list[str] = []
    for named in sources:
        source = os.fspath(named)
        if source != "-" and os.path.isdir(source):
            paths += _in_folder(source, report if report is not None else CorpusReport())
        else:
            paths.append(source)
    if not paths:
        raise InputError("no files were given; name files, folders or - for standard input.")
    return paths


def _in_folder(folder: str, report: CorpusReport) -> list[str]:
    shown, links = walked(folder)
    paths = [path for path in shown if stem_and_suffix(path)[1] in tables.KINDS]
    report.num_other_files += len(shown) - len(paths)
    report.others["links to folders were not followed; name these folders themselves"] += len(links)
    if not paths:
        suffixes = " ".join(tables.KINDS)
        raise InputError(f"{folder}: holds no file that ends in one of {suffixes} (also with .gz .xz .zst).")
    return sorted(paths, key=lambda path: Path(path).parts)


def walked(folder: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
    """(the files of a folder to its bottom, the links to folders in it, which are not followed); no hidden names."""

    def refuse_folder(error: OSError) -> None:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror}).") from None

    files: list[str] = []
    links: list[str] = []
    for place, folders, names in os.walk(folder, onerror=refuse_folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        links += [path for name in folders if os.path.islink(path := os.path.join(place, name))]
        files += [os.path.join(place, name) for name in names if not name.startswith(".")]
    return files, links


# -- documents of one file ---------------------------------------------------------------------------------------


def file_documents(
    source: str, field: str | None, unit: str, reading: Reading, option: str = "--field"
) -> Iterator[Document]:
    """The documents of one file, or of standard input, which is JSON lines if a field is named and else plain text.

    option: how the user names the field, for errors.
    """
    kind = "json" if source == "-" and field else tables.kind(source)
    if unit != "blank" and not (kind == "text" and field is None):
        reading.tell(f"{source}: --unit is of plain text; here each row is a document.")
    if kind == "text":
        if field is None:
            return _text_documents(source, unit, reading)
        if not field.isdecimal() or not int(field):
            raise InputError(
                f"{source}: is plain text and has no field {field!r}; leave {option} out for it, or give the number of "
                "the column if its lines have tabs, e.g. 1."
            )
        return _column_documents(source, int(field), reading)
    return _row_documents(source, field, reading, option)


def _text_documents(source: str, unit: str, reading: Reading) -> Iterator[Document]:
    gathered = _Gathered(source, reading)
    num_blank_lines = 1  # as if the file followed a separator: blank lines at its head separate nothing
    read = lines(source, reading)
    head = list(itertools.islice(read, HEAD_LINES))
    if _are_objects([text for _, text, _ in head]):
        advice = "say which field holds the text (--field)" if source == "-" else "give it the suffix .jsonl"
        raise InputError(f"{source}: holds JSON lines, whose marks and names would be learnt as text; {advice}.")
    for number, text, ends in itertools.chain(head, read):
        is_blank = ends and not gathered.is_inside and (not text or text.isspace())
        if unit == "blank" and is_blank:
            yield from gathered.finished()
            num_blank_lines += 1
            reading.report.num_blank += num_blank_lines > 1
            continue
        num_blank_lines = 0
        yield from gathered.added((number, text, ends))
        if unit == "line" and ends:
            yield from gathered.finished(counts_blank=True)
    yield from gathered.finished(counts_blank=unit == "file")


def _are_objects(head: list[str]) -> bool:
    """Whether the first lines of a plain text are JSON objects, each of them."""
    inked = [text for text in head if text.strip()]
    if not inked or not all(text.lstrip().startswith("{") for text in inked):
        return False
    try:
        return all(isinstance(value := json.loads(text), dict) and value for text in inked)
    except (ValueError, RecursionError):
        return False


def _column_documents(source: str, column: int, reading: Reading) -> Iterator[Document]:
    """One column of a tab-separated file without a header: each line is a document."""
    for number, line in whole_lines(source, reading):
        cells = line.split("\t")
        if not line or line.isspace():
            reading.report.num_blank += 1
            continue
        if len(cells) < column:
            reading.fault(source, number, f"has {len(cells)} columns, so there is no column {column}.")
            continue
        text = cells[column - 1]
        if not text or text.isspace():
            reading.report.num_blank += 1
            continue
        for piece in pieces(text, reading.report):
            yield Document(piece, source, number)


class _Gathered:
    """The lines of one document so far; passes on a piece whenever they outgrow PIECE_CHARS."""

    def __init__(self, source: str, reading: Reading) -> None:
        self.source, self.reading = source, reading
        self.parts: list[str] = []
        self.num_chars = self.line = 0
        self.is_inside = self.is_split = False  # in the middle of a line; pieces have been passed on

    def added(self, line: Line) -> Iterator[Document]:
        number, text, ends = line
        if self.parts and not self.is_inside:
            text = "\n" + text
        self.line = self.line or number
        self.parts.append(text)
        self.num_chars += len(text)
        self.is_inside = not ends
        while self.num_chars > PIECE_CHARS:
            whole = "".join(self.parts)
            cut = cut_place(whole, PIECE_CHARS)
            yield from self._passed_on(whole[:cut])
            self.parts, self.num_chars, self.line = [whole[cut:]], len(whole) - cut, number
            self.reading.report.num_split += not self.is_split
            self.is_split = True

    def finished(self, counts_blank: bool = False) -> Iterator[Document]:
        if self.parts or counts_blank:
            yield from self._passed_on("".join(self.parts))
        self.parts, self.num_chars, self.line, self.is_inside, self.is_split = [], 0, 0, False, False

    def _passed_on(self, text: str) -> Iterator[Document]:
        if text and not text.isspace():
            yield Document(text, self.source, self.line)
        elif not self.is_split:
            self.reading.report.num_blank += 1


_ENDS = re.compile(r"[。！？!?…]+[”’」』）)\"']*|\.\s")


def cut_place(text: str, limit: int) -> int:
    """Where to cut a text that is too long: after a line, a sentence or white space near the limit, else at it."""
    start = limit - min(limit // 4, 2**16)
    line_end = text.rfind("\n", start, limit)
    if line_end >= 0:
        return line_end + 1
    ends = [match.end() for match in _ENDS.finditer(text, start, limit)]
    if ends:
        return ends[-1]
    blank = next((place for place in range(limit - 1, start, -1) if text[place].isspace()), None)
    return limit if blank is None else blank + 1


def _row_documents(source: str, field: str | None, reading: Reading, option: str) -> Iterator[Document]:
    chosen = None
    for number, row in tables.rows(source, reading):
        if chosen is None:
            chosen = text_column(source, row, field, option)
            if field is None and chosen.lower() not in TEXT_COLUMNS and tables.kind(source) in ("csv", "tsv"):
                shown = ", ".join(row)[:SHOWN_CHARS]
                reading.tell(f"{source}: its first line is taken for the header, and no text: {shown}.")
        if chosen not in row:
            reading.fault(source, number, f"has no field {chosen!r}; it has {', '.join(map(repr, row)) or 'none'}.")
            continue
        value = row.pop(chosen)
        if value is not None and not isinstance(value, str):
            reading.fault(source, number, f"the field {chosen!r} holds {type(value).__name__}, but must hold text.")
            continue
        text = clean(value or "", source, number, reading)
        if not text or text.isspace():
            reading.report.num_blank += 1
            continue
        for piece in pieces(text, reading.report):
            yield Document(piece, source, number, row)


def pieces(text: str, report: CorpusReport) -> Iterator[str]:
    """The text in one piece, or in several where it is longer than PIECE_CHARS."""
    start = 0
    report.num_split += len(text) > PIECE_CHARS
    while len(text) - start > PIECE_CHARS:
        end = start + cut_place(text[start : start + PIECE_CHARS + 1], PIECE_CHARS)
        yield text[start:end]
        start = end
    yield text[start:]


def text_column(source: str, row: Mapping[str, object], field: str | None, option: str = "--field") -> str:
    """The column that holds the text: the one named, else the only one that can; anything else is refused."""
    if field is not None:
        if field not in row:
            raise one_of(f"{source}: the field", field, row)
        return field
    usual = [name for name in row if name.lower() in TEXT_COLUMNS]
    strings = [name for name, value in row.items() if isinstance(value, str)]
    for candidates in (usual, strings):
        if len(candidates) == 1:
            return candidates[0]
    raise InputError(f"{source}: which column holds the text? Name one of: {', '.join(row)} ({option}).")
