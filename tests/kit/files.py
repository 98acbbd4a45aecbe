"""What a test writes to disk comes in; the path of the file, or what the readers make of it, goes out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from filbert.core.records import Example
from filbert.forms.datasets import examples
from filbert.text.streams import CorpusReport, Reading


def write(path: Path, data: str | bytes, encoding: str = "utf-8") -> Path:
    """The file of these bytes, or of this text."""
    path.write_bytes(data.encode(encoding) if isinstance(data, str) else data)
    return path


def json_lines(*rows: object) -> str:
    """Each row as a line of JSON."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def lines(path: Path, *rows: object) -> Path:
    """The file of these rows, each a line of JSON."""
    return write(path, json_lines(*rows))


def columns(path: Path, rows: Iterable[tuple[object, ...]]) -> Path:
    """The file of these rows, their cells with tabs between."""
    return write(path, "".join("\t".join(map(str, row)) + "\n" for row in rows))


def labelled(path: Path, data: Iterable[Example]) -> Path:
    """The file of these examples, each a text, a tab and its label."""
    return columns(path, ((example.texts[0], example.gold) for example in data))


def changed(path: Path, **fields: object) -> Path:
    """The file of a JSON object with these fields otherwise."""
    return write(path, json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields))


def read(
    path: Path, task: str = "classify", columns: Mapping[str, str | int] | None = None, encoding: str = "utf-8"
) -> tuple[list[Example], list[str]]:
    """The examples of a file, and what the reader says of it without the file's name."""
    report = CorpusReport()
    found = list(examples(path, task, columns=columns, reading=Reading(encoding, report=report)))
    return found, [remark.replace(f"{path}: ", "") for remark in report.remarks()]
