"""A labelled file comes in; its shape (table, JSON, CoNLL, SQuAD, choices) and its raw rows go out, with line numbers.

Nothing is guessed silently: what the shape was taken to be is said in `Shape.told`, and what cannot be told is refused.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from filbert.core.errors import InputError
from filbert.data import conll, units
from filbert.text import tables
from filbert.text.streams import Reading, texts, whole_lines

HEAD_LINES = 200  # what a shape is told from
MIN_BREAKS = 2  # blank lines in a .tsv from which its rows may be the words of sentences
JSON_CHARS = 512 * 2**20  # a SQuAD-style file is one JSON value and must fit in memory

# Column names that mean one thing everywhere. Pairs are looked for before single texts: text_a alone is a text.
LABEL_NAMES: tuple[str, ...] = (
    *("label", "labels", "gold_label", "class", "category", "target", "sentiment", "quality", "is_duplicate"),
    *("relation", "y", "标签", "类别", "标注"),
)
TEXT_NAMES: tuple[str, ...] = (
    *("text", "sentence", "review", "content", "text_a", "comment", "title", "query", "question", "headline"),
    *("document", "body", "abstract", "news", "tweet", "sms", "message", "文本", "内容", "评论", "标题", "句子"),
)
PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("s1", "s2"),
    ("q1", "q2"),
    ("sent1", "sent2"),
    ("question1", "question2"),
    ("query1", "query2"),
    ("premise", "hypothesis"),
    ("first", "second"),
    ("#1 string", "#2 string"),
    ("anchor", "positive"),
    ("query", "title"),
    ("query", "document"),
    ("query", "content"),
    ("question", "sentence"),
)
OTHER_NAMES: tuple[str, ...] = (
    *("id", "idx", "index", "guid", "uid", "pairid", "pair_id", "#1 id", "#2 id", "date", "time", "source", "url"),
    *("genre", "level", "context", "answers", "entities", "head", "tail", "score", "split", "user", "author"),
    *("similarity", "negative"),
    *("src", "tgt", "translation", "summary", "highlights", "article", "dialogue", "post", "reply", "response"),
    *("原文", "译文", "正文", "摘要", "问题", "回答"),
    *("passage", "options", "choices", "answer", *(f"{name}{n}" for name in ("ending", "option") for n in range(10))),
)
KNOWN_NAMES = frozenset({*LABEL_NAMES, *TEXT_NAMES, *OTHER_NAMES, *itertools.chain.from_iterable(PAIR_NAMES)})

MARKED = re.compile(r"\d+\t.*<e[12]>.*</e[12]>.*<e[12]>.*</e[12]>.*")  # a sentence of SemEval-2010 task 8
MASKED = re.compile(r"(\S+) ([^$]+)\$([^$]+)\$(.+)")  # label head$tail$text, as person relations have been published


@dataclass(frozen=True, slots=True)
class Shape:
    """What a file is."""

    # table, json (lines), array (of objects), parquet, squad, choices, conll, marked, masked, text (lines), or one of
    # data.units: slashed, conllu, units, inside
    kind: str
    columns: tuple[str, ...] = ()  # names, or "1", "2", … where there is no header
    has_header: bool = True
    delimiter: str = ""
    told: str = ""  # one sentence for the user
    sample: tuple[tuple[str, ...], ...] = field(default=(), repr=False)  # the first rows of a table without header


def shape(source: str, reading: Reading, column_names: tuple[str, ...] = ()) -> Shape:
    """What the file is, by its suffix and its first lines; `column_names` are those the user speaks of."""
    kind = tables.kind(source)
    if kind == "parquet":
        first = next(tables.parquet_rows(source, Reading(fault=reading.fault)), None)
        if first is None:
            raise InputError(f"{source}: has no rows; there is nothing to learn from.")
        return Shape("parquet", tuple(first[1]), told="Parquet")
    head = list(itertools.islice(whole_lines(source, _aside(reading)), HEAD_LINES))
    inked = [line for _, line in head if line.strip()]
    if not inked:
        raise InputError(f"{source}: is empty or blank; there is nothing to learn from.")
    if inked[0].lstrip()[0] in "[{" and (kind == "json" or source == "-"):
        return _json_shape(source, inked, reading)
    if kind == "json":
        raise InputError(f"{source}: does not begin with {{ or [, so it is not JSON; give it the suffix of what it is.")
    if kind in ("text", "tsv") and (tagged := _tagged([line for _, line in head], kind)) is not None:
        return tagged
    if kind == "text" and MARKED.fullmatch(inked[0].strip()):
        return Shape("marked", told="SemEval-2010: numbered sentences with <e1> and <e2>, and a relation below each")
    if kind == "text" and all(MASKED.fullmatch(line.strip()) for line in inked):
        return Shape("masked", told="a label, two names and a text on each line: label head$tail$text")
    delimiter = _delimiter(kind, inked)
    if not delimiter:
        return Shape("text", ("1",), has_header=False, told="plain text, one text per line")
    return _table_shape(source, delimiter, reading, column_names)


def _tagged(lines: list[str], kind: str) -> Shape | None:
    """A file with a word and its tag per line, by what it holds; a .tsv must be surer, since it may be a table."""
    inked = [line for line in lines if line.strip()]
    bare = sum(" " not in line.partition("\t")[0].strip() or line.startswith("#") for line in inked)
    if kind == "tsv" and not units.nearly(bare, len(inked)):
        return None
    if conll.is_tagged(lines, len(lines) >= HEAD_LINES):
        return Shape("conll", told="CoNLL: a token and its tag per line, a blank line between sentences")
    num_breaks = sum(not line.strip() for line in lines)
    if kind == "tsv" and num_breaks < max(MIN_BREAKS, len(lines) / 100):
        return None  # a table of short texts in which a line is blank by mistake
    known = conll.columns(lines)
    found = units.kind([line for line in lines if not known.is_comment(line)])
    return None if found in (None, "slashed" if kind == "tsv" else None) else Shape(found, told=units.TOLD[found])


def _aside(reading: Reading) -> Reading:
    """The same way of reading, without counting anything twice: for a look at the head of a file."""
    return Reading(reading.encoding, "replace", fault=lambda *_: None)


def _json_shape(source: str, inked: list[str], reading: Reading) -> Shape:
    try:
        first = json.loads(inked[0])
    except (ValueError, RecursionError):
        first = None
    if isinstance(first, dict) and not ("data" in first and len(inked) == 1):
        return Shape("json", tuple(first), told="JSON lines")
    if first is None and inked[0].startswith("{") and len(inked[0]) > 1 and len(inked) > 1 and inked[1].startswith("{"):
        return Shape("json", told="JSON lines")  # the first line is broken: reading will name it
    value = whole_json(source, _aside(reading))
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        return Shape("squad", told="SQuAD-style JSON: contexts with questions and answers")
    if isinstance(value, list) and value and isinstance(value[0], list):
        return Shape("choices", told="C3/DREAM-style JSON: passages with questions and choices")
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return Shape("array", tuple(value[0]), told="a JSON array of objects")
    if isinstance(value, dict):
        return Shape("json", tuple(value), told="JSON lines")
    raise InputError(f"{source}: is JSON of no known form; use JSON lines with one object per line.")


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
        return json.loads("".join(parts))
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
        if len(names) > 1 and any(name in KNOWN_NAMES for name in names):
            return delimiter
    tabs = {line.count("\t") for line in inked}
    # The same number of tabs on every line of a .csv without a known header: it is tab-separated, whatever its name.
    return "\t" if len(tabs) == 1 and 0 not in tabs else tables.header_delimiter(first)


def _table_shape(source: str, delimiter: str, reading: Reading, column_names: tuple[str, ...]) -> Shape:
    rows = [tuple(row) for _, row in itertools.islice(tables.cells(source, _aside(reading), delimiter), 1000)]
    if not rows:
        raise InputError(f"{source}: no row of it can be read; is a quotation mark left open on the first line?")
    first = tuple(cell.strip() for cell in rows[0])
    called = {",": "comma", "\t": "tab", ";": "semicolon"}[delimiter]
    if _is_header(source, first, column_names):
        return Shape("table", first, True, delimiter, f"{called}-separated with the header {', '.join(first)}")
    columns = tuple(str(place) for place in range(1, len(first) + 1))
    told = f"{called}-separated without a header, {len(first)} column{'s' * (len(first) > 1)}"
    return Shape("table", columns, False, delimiter, told, tuple(rows))


def _is_header(source: str, first: tuple[str, ...], column_names: tuple[str, ...]) -> bool:
    """A first row is a header if its cells are known names, or those the user speaks of; a mixture is refused."""
    named = [name for name in column_names if not name.isdigit()]
    if named:
        return all(name in first for name in named)
    if column_names:
        return False
    known = [cell for cell in first if cell.lower() in KNOWN_NAMES]
    low = {cell.lower() for cell in first}
    has_roles = bool(low & set(LABEL_NAMES)) and bool(low & {*TEXT_NAMES, *itertools.chain.from_iterable(PAIR_NAMES)})
    if len(known) == len(first) or has_roles:
        return True
    if known and len(first) > 1:
        unknown = next(cell for cell in first if cell not in known)
        raise InputError(
            f"{source} line 1: is it a header? {known[0]!r} is a known column name, {unknown[:40]!r} is not; say which "
            "column is which, by name with a header or by number without: --columns text=1,label=2."
        )
    return False


def table_rows(source: str, form: Shape, reading: Reading) -> Iterator[tables.Row]:
    """The rows of a table, of JSON or of a plain text as dictionaries, under the column names of the shape."""
    if form.kind == "parquet":
        return tables.parquet_rows(source, reading)
    if form.kind == "json":
        return tables.json_rows(source, reading)
    if form.kind == "array":
        return _array_rows(source, reading)
    if form.kind == "text":
        return ((number, {"1": line}) for number, line in whole_lines(source, reading))
    table = tables.cells(source, reading, form.delimiter)
    return tables.headed(source, table, reading) if form.has_header else _numbered(source, table, form, reading)


def _array_rows(source: str, reading: Reading) -> Iterator[tables.Row]:
    for number, row in enumerate(whole_json(source, reading), 1):
        if isinstance(row, dict):
            yield number, row
        else:
            reading.fault(source, 0, f"item {number} of the array is not an object {{…}}.")


def _numbered(source: str, table: Iterator[tables.Cells], form: Shape, reading: Reading) -> Iterator[tables.Row]:
    width = len(form.columns)
    for line, row in table:
        if len(row) == width:
            yield line, dict(zip(form.columns, row, strict=True))
        elif any(cell.strip() for cell in row):
            reading.fault(source, line, tables.ragged(len(row), width, f"line 1 has {width}", form.delimiter))
