"""Texts with brat's annotations beside them (a.txt, a.ann) or lines with fastText's labels come in; plain rows go out.

A text is cut into rows at its line ends, but where an entity or a relation goes over one. Offsets count characters of
the text; where they were counted in a file whose lines end in CRLF, which has more, that is seen by the mentions.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filbert.core.errors import InputError
from filbert.forms.exports import FASTTEXT
from filbert.text.corpus import walked
from filbert.text.streams import Reading, texts, whole_lines
from filbert.text.tables import Row

_ENTITY = re.compile(r"(T\S*)\t(\S+) (\d+ \d+(?:;\d+ \d+)*)\t?(.*)")
_RELATION = re.compile(r"(R\S*)\t(\S+) \S+?:(T\S+) \S+?:(T\S+)\s*")
_PASSED = {"E": "events", "A": "attributes", "M": "attributes", "N": "links to databases", "#": "notes", "*": "sets"}


@dataclass(slots=True)
class _Marks:
    """What an .ann file says: entities and relations, each with where it stands in the text."""

    entities: list[dict[str, Any]] = field(default_factory=list)
    relations: list[dict[str, Any]] = field(default_factory=list)


def brat_rows(source: str, reading: Reading) -> Iterator[Row]:
    """The stretches of all texts with their entities and relations; of a folder, those of all files in it."""
    pairs = list(_pairs(source, reading))
    for text_path, ann_path in pairs:
        text = "".join(texts(text_path, reading))
        marks = _marks(text, ann_path, reading)
        for start, end in _stretches(text, marks):
            inside = [each for each in marks.entities if start <= each["start"] and each["end"] <= end]
            names = {each["id"] for each in inside}
            row = {
                "text": text[start:end],
                "entities": [{**each, "start": each["start"] - start, "end": each["end"] - start} for each in inside],
                "relations": [each for each in marks.relations if each["from_id"] in names],
            }
            yield (text.count("\n", 0, start) + 1 if len(pairs) == 1 else 0), row


def _pairs(source: str, reading: Reading) -> Iterator[tuple[str, str]]:
    """(text, its annotations) of the path: the one pair, or all of a folder, sorted."""
    if not os.path.isdir(source):
        stem = os.path.splitext(source)[0]
        if not os.path.isfile(f"{stem}.txt"):
            raise InputError(f"{source}: has no text beside it; brat needs {os.path.basename(stem)}.txt there.")
        yield f"{stem}.txt", f"{stem}.ann"
        return
    inside, links = walked(source)
    for link in links:
        what = "links to folders were not followed; name these folders themselves"
        reading.count(what, link, 0, "is a link to a folder, which is not followed; left out.")
    for path in sorted(each for each in map(Path, inside) if each.suffix in (".ann", ".txt")):
        other = path.with_suffix(".ann" if path.suffix == ".txt" else ".txt")
        if path.suffix == ".ann" and other.is_file():
            yield str(other), str(path)
        elif not other.is_file() and path.suffix == ".txt":
            what = "texts of the folder were left out, for no .ann file stands beside them"
            reading.count(what, str(path), 0, "no .ann file stands beside it; left out.")
        elif not other.is_file():
            reading.fault(str(path), 0, f"has no text beside it; brat needs {other.name} there.")


def _marks(text: str, ann_path: str, reading: Reading) -> _Marks:
    marks = _Marks()
    for line, content in whole_lines(ann_path, reading):
        if not content.strip():
            continue
        if (match := _ENTITY.fullmatch(content)) is not None:
            _add_entity(marks, text, match, ann_path, line, reading)
        elif (match := _RELATION.fullmatch(content)) is not None:
            marks.relations.append({"from_id": match[3], "to_id": match[4], "label": match[2]})
        elif content[0] in _PASSED:
            what = f"{_PASSED[content[0]]} of brat were passed over, for no task learns from them"
            reading.count(what, ann_path, line, f"{content[:20]!r} is passed over.")
        else:
            reading.fault(ann_path, line, f"{content[:30]!r} is not an annotation as brat writes it.")
    by_id = {each["id"]: each for each in marks.entities}
    kept = [each for each in marks.relations if each["from_id"] in by_id and each["to_id"] in by_id]
    for _ in range(len(marks.relations) - len(kept)):
        what = "relations were left out, for an entity of theirs is not there or was left out"
        reading.count(what, ann_path, 0, "a relation is left out, for an entity of it is not there.")
    for each in kept:
        ends = [by_id[each[name]] for name in ("from_id", "to_id")]
        each |= {"start": min(end["start"] for end in ends), "end": max(end["end"] for end in ends)}
    marks.relations = kept
    return marks


def _add_entity(marks: _Marks, text: str, match: re.Match[str], source: str, line: int, reading: Reading) -> None:
    name, label, stretches, mention = match.groups()
    if ";" in stretches:
        what = "entities in several pieces were left out, for tags can say only whole stretches"
        reading.count(what, source, line, f"the entity {name} is in several pieces; left out.")
        return
    start, end = map(int, stretches.split())
    after_crlf = [_without_returns(text, at) for at in (start, end)]
    for at in ((start, end), after_crlf):
        if _flat(text[at[0] : at[1]]) == _flat(mention) and at[0] < at[1] <= len(text):
            marks.entities.append({"id": name, "start": at[0], "end": at[1], "label": label})
            return
    message = f"the entity {name} at {start}:{end} is {text[start:end][:30]!r}, but is said to be {mention[:30]!r}"
    reading.fault(source, line, f"{message}; was the text changed?")


def _flat(words: str) -> str:
    return " ".join(words.split())


def _without_returns(text: str, at: int) -> int:
    """Where a place of a text with CRLF is in the same with LF."""
    place = at
    while place + text.count("\n", 0, place) > at:
        place -= 1
    return place


def _stretches(text: str, marks: _Marks) -> Iterator[tuple[int, int]]:
    """(start, end) of each row: lines, those together over which an entity or a relation goes; blank ones left out."""
    held = _merged(sorted((each["start"], each["end"]) for each in (*marks.entities, *marks.relations)))
    ends = [place for place, char in enumerate(text) if char == "\n"]
    place, cuts = 0, [-1]
    for at in ends:
        while place < len(held) and held[place][1] <= at:
            place += 1
        if place == len(held) or not held[place][0] <= at:
            cuts.append(at)
    for start, end in itertools.pairwise([*cuts, len(text)]):
        if text[start + 1 : end].strip():
            yield start + 1, end


def _merged(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in stretches:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def fasttext_rows(source: str, reading: Reading) -> Iterator[Row]:
    """The lines of a fastText file: the words that begin with __label__ are its labels, all else is its text."""
    for line, content in whole_lines(source, reading):
        if not content.strip():
            reading.report.num_blank += 1
            continue
        rest, labels = content.strip(), list[str]()
        while rest.startswith(FASTTEXT):
            label, *more = rest.split(maxsplit=1)
            labels += label.removeprefix(FASTTEXT).rstrip(",").split(f",{FASTTEXT}")
            rest = (more[0] if more else "").removeprefix(",").lstrip()
        words = rest.split(" ")
        behind = [word for word in words if word.startswith(FASTTEXT)]
        if behind:
            labels += [word.removeprefix(FASTTEXT) for word in behind]
            rest = " ".join(word for word in words if not word.startswith(FASTTEXT))
        if not all(labels) or not labels:
            reading.fault(source, line, f"has no label; write {FASTTEXT}NAME before the text.")
            continue
        yield line, {"text": rest, "label": labels}
