"""Running text in a drawing: a text and the stretches of it that are marked in; pieces with their places out.

Lines break between words, or between the signs of scripts that have no spaces; a text that is written from right to
left runs that way. Neighbours of one mark on one line are one piece, so that the reader's program joins their letters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

from filbert.draw.svg import is_leftward, label, width_of

P_co = TypeVar("P_co", covariant=True)  # what marks a stretch: its label, or all that is known of it

LONGEST = 24  # letters without a space after which a line may break


@dataclass(frozen=True, slots=True)
class Look:
    """How large the letters are, and how far apart the lines, in px."""

    size: float = 15.0
    lead: float = 28.0


class Mark(NamedTuple, Generic[P_co]):
    """text[start:end] is marked."""

    start: int
    end: int
    payload: P_co


@dataclass(frozen=True, slots=True)
class Piece(Generic[P_co]):
    """A stretch on one line: its text, where it begins and its base line, how wide it is, and what marks it."""

    text: str
    x: float
    y: float
    width: float
    size: float
    payload: P_co | None = None
    is_first: bool = True  # of the stretch that is marked: one that is broken has its label once
    leftward: bool = False  # how it runs, which may be against its line
    edge: str | None = None  # start or end where it stands at the edge of its line: there it is anchored


def pieces(text: str, marked: Sequence[Mark[P_co]]) -> list[tuple[str, P_co | None]]:
    """The whole text in order, cut at the edges of what is marked: (stretch, mark), or (stretch, None)."""
    cut: list[tuple[str, P_co | None]] = []
    end = 0
    for start, until, payload in marked:
        if start > end:
            cut.append((text[end:start], None))
        if until > max(start, end):
            cut.append((text[max(start, end) : until], payload))
        end = max(end, until)
    return [*cut, (text[end:], None)] if end < len(text) else cut


def apart(marked: Sequence[Mark[P_co]]) -> list[Mark[P_co]]:
    """Of marks in order of their starts those that begin behind the one before: none lies within another."""
    kept: list[Mark[P_co]] = []
    for mark in marked:
        if not kept or mark.start >= kept[-1].end:
            kept.append(mark)
    return kept


def laid(
    stretches: Sequence[tuple[str, P_co | None]], x: float, y: float, width: float, look: Look, leftward: bool = False
) -> Iterator[Piece[P_co]]:
    """The pieces in lines of that width below y; leftward: lines begin at the right."""
    line: list[Piece[P_co]] = []
    at, base = 0.0, y + look.size
    for (text, payload), runs in zip(stretches, _directions(stretches, leftward), strict=True):
        is_first = True
        for unit in _units(text):
            wide = width_of(unit, look.size)
            if unit == "\n" or (line and at + width_of(unit.rstrip(), look.size) > width):
                yield from _placed(line, x, width, leftward)
                line, at, base = [], 0.0, base + look.lead
            if unit == "\n" or (not line and not unit.strip()):
                continue
            if line and line[-1].payload is payload and not (payload is not None and is_first):
                last = line.pop()
                line.append(replace(last, text=last.text + unit, width=last.width + wide))
            else:
                line.append(Piece(unit, at, base, wide, look.size, payload, is_first, runs))
            is_first, at = False, at + wide
    yield from _placed(line, x, width, leftward)


def _directions(stretches: Sequence[tuple[str, object]], leftward: bool) -> list[bool]:
    """Whether each runs leftward.

    What has no direction, such as a bracket, goes with its neighbours where both agree, else with the text (as UAX #9
    has it).
    """
    of_texts = [_direction(text) for text, _ in stretches]
    directions: list[bool] = []
    before: bool | None = None
    for index, runs in enumerate(of_texts):
        later = next((each for each in of_texts[index:] if each is not None), None)
        directions.append(runs if runs is not None else later if later is not None and later == before else leftward)
        before = before if runs is None else runs
    return directions


def _direction(text: str) -> bool | None:
    """Whether a text runs leftward; None where nothing in it has a direction."""
    kinds = {unicodedata.bidirectional(char) for char in text}
    return is_leftward(text) if kinds & {"L", "R", "AL", "EN", "AN"} else None


def _placed(line: Sequence[Piece[P_co]], x: float, width: float, leftward: bool) -> Iterator[Piece[P_co]]:
    """The pieces of a line at their places; neighbours that run against the line stand in their own order."""
    at = 0.0
    for against, run in groupby(line, lambda piece: piece.leftward != leftward):
        for piece in reversed(list(run)) if against else run:
            edge = None if at else "end" if leftward else "start"
            yield replace(piece, x=x + (width - at - piece.width if leftward else at), edge=edge)
            at += piece.width


def _units(text: str) -> Iterator[str]:
    """What a line may break behind: words with their spaces, signs of wide scripts, ends of lines."""
    unit = ""
    for char in text:
        wide = unicodedata.east_asian_width(char) in "WF"
        if char == "\n" or (wide and unit and not unicodedata.category(char).startswith("P_co")):
            if unit:
                yield unit
            unit = ""
        unit += char
        if char.isspace() or (len(unit) >= LONGEST and not unicodedata.combining(char)):
            yield unit
            unit = ""
    if unit:
        yield unit


def drawn(piece: Piece[P_co]) -> str:
    """The piece's text in the middle of its room, since fonts differ in width; at an edge, from there on."""
    anchor = piece.edge if piece.edge and piece.payload is None else "middle"
    x = piece.x + piece.width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
    return label(piece.text, x, piece.y, size=piece.size, anchor=anchor)
