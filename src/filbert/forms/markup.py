"""Rows in which stretches of a text are marked come in; where these stretches stand, checked, goes out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from filbert.text.streams import Reading, clean

Place = tuple[int, int]  # a mention is text[start:end]
MENTION = ("text", "mention", "word", "entity_text")  # fields that say what is marked
_WIDE = re.compile("[\U00010000-\U0010ffff]")


def text_of(source: str, line: int, row: Mapping[str, object], name: str, reading: Reading) -> str | None:
    """What the field holds, cleaned; None after a fault."""
    value = row.get(name)
    if isinstance(value, str):
        return clean(value, source, line, reading)
    reading.fault(source, line, f"the field {name!r} is missing or not text.")
    return None


def all_places(context: str, text: str) -> list[int]:
    """Where the text stands in the context: the first character of each place."""
    places = []
    place = context.find(text) if text else -1
    while place >= 0:
        places.append(place)
        place = context.find(text, place + 1)
    return places


def moved(text: str, place: Place) -> Place:
    """Where a stretch of a text lies in the same without its NULs, which `clean` leaves out."""
    start, end = (at - text.count("\0", 0, at) for at in place)
    return start, end


def says_words(mark: object, *more: str) -> bool:
    """Whether a mark says what it marks beside where it stands, so that the place is checked."""
    return isinstance(mark, str) or (isinstance(mark, Mapping) and isinstance(first_of(mark, *MENTION, *more), str))


def tell_wide(text: str, end: int, source: str, line: int, reading: Reading) -> None:
    """Counts a text of which a tool that counts UTF-16 units would mean another stretch, and nothing shows it."""
    if _WIDE.search(text, 0, end):
        what = "texts have marks whose words are not given behind characters that are two in UTF-16 (😀)"
        message = "marks stand behind a character that is two in UTF-16 (😀); their places were taken to count it once."
        reading.count(f"{what}; places were taken to count them once", source, line, message)


def end_hint(text: str, start: object, end: object, mention: object) -> str:
    """What seems to be counted otherwise than in characters from start to end."""
    if type(start) is not int or type(end) is not int or not isinstance(mention, str) or min(start, end) < 0:
        return ""
    if text[start:end] == mention:
        return ""
    if text[start : end + 1] == mention:
        return " Its end seems to be that of the last character; it must be one more."
    for encoding, size, called in (("utf-16-le", 2, "UTF-16 units, of which 😀 has two"), ("utf-8", 1, "bytes")):
        held = text.encode(encoding, "surrogatepass")[start * size : end * size]
        if held == mention.encode(encoding, "surrogatepass"):
            return f" Its places seem to count {called}; they must count characters."
    return ""


def first_of(item: Mapping[str, object], *names: str) -> Any:
    """What the first of these fields that is there holds; None where none is."""
    return next((item[name] for name in names if name in item), None)
