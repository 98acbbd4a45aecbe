"""Rows with a text and its entities, or with tokens and their tags, come in; texts with spans go out.

Tags are texts, with prefixes (B-PER) or without, or numbers whose names the file keeps (forms.class_names). Numbers
without names are labels as they stand, and 0 is none. Every offset is checked against the text it points into.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from filbert.core.records import Span
from filbert.forms import conll
from filbert.forms.class_names import number_names
from filbert.forms.markup import MENTION, end_hint, first_of, moved, says_words, tell_wide, text_of
from filbert.forms.spec import Entry, Roles, Rows
from filbert.tasks.tag import words
from filbert.text.streams import Reading, clean
from filbert.text.tables import Row

_PREFIXES = words.BEGINS + words.INSIDE + words.ENDS + words.SINGLE
TWICE = "an entity stands twice in its list; it was taken once."


# -- entities ----------------------------------------------------------------------------------------------------


def rows(source: str, rows: Rows, roles: Roles, reading: Reading) -> Iterator[Entry]:
    """Rows with tokens and their tags, or with a text and its entities."""
    build = token_rows if "tokens" in roles else entity_rows
    return build(source, rows(reading), roles, reading)


def entity_rows(source: str, rows: Iterator[Row], roles: Roles, reading: Reading) -> Iterator[Entry]:
    """Rows with a text and its entities: a list of {start, end, label}, or CLUENER's {type: {mention: [[s, e]]}}."""
    for line, row in rows:
        text = text_of(source, line, row, roles["text"], reading)
        marked = row.get(roles.get("entities", ""))
        if text is None:
            continue
        if marked is None:
            yield line, (text,), None
            continue
        raw_text = row[roles["text"]]  # what the offsets count
        items = list(_items(source, line, marked, reading))
        spans = [_span(source, line, raw_text, item, reading) for item in items]
        if None not in spans:
            kept = sorted(
                {Span(*moved(raw_text, (span.start, span.end)), span.label) for span in spans if span is not None},
                key=lambda span: (span.start, span.end, span.label),
            )
            for _ in range(len(spans) - len(kept)):
                reading.count("entities stand twice; each was taken once", source, line, TWICE)
            if not all(map(says_words, items)):
                tell_wide(text, max((span.end for span in kept), default=0), source, line, reading)
            yield line, (text,), tuple(kept)


def _items(source: str, line: int, marked: object, reading: Reading) -> Iterator[Mapping[str, Any]]:
    """Entities in any of the known forms as {start, end (exclusive), label, text}."""
    if isinstance(marked, Mapping):
        for label, mentions in marked.items():
            if not isinstance(mentions, Mapping) or not all(isinstance(held, list) for held in mentions.values()):
                message = f"the entities of {label!r} are {mentions!r:.40}, but must be {{mention: [[start, end], …]}}."
                reading.fault(source, line, message)
                continue
            for mention, places in mentions.items():
                for place in places:
                    is_pair = isinstance(place, list) and len(place) == 2 and all(isinstance(at, int) for at in place)
                    start, last = place if is_pair else (None, -1)
                    yield {"start": start, "end": last + 1, "label": label, "text": mention}  # the last one counts
        return
    if not isinstance(marked, (list, tuple)):
        reading.fault(source, line, f"the entities are {marked!r:.40}, but must be a list of {{start, end, label}}.")
        return
    for item in marked:
        if isinstance(item, (list, tuple)) and len(item) >= 3:
            yield {"start": item[0], "end": item[1], "label": item[2]}
        elif isinstance(item, Mapping):
            yield item
        else:
            reading.fault(source, line, f"the entity {item!r} is not {{start, end, label}}.")


def _span(source: str, line: int, text: str, item: Mapping[str, object], reading: Reading) -> Span | None:
    """The checked span, or None after a fault."""
    start, end = first_of(item, "start", "start_offset", "start_idx"), first_of(item, "end", "end_offset", "end_idx")
    label, mention = first_of(item, "label", "type", "entity"), first_of(item, *MENTION)
    message = ""
    if type(start) is not int or type(end) is not int or not isinstance(label, str) or not label:
        message = f"the entity {dict(item)!r} is not {{start, end, label}} with two whole numbers and a text."
    elif start >= end and 0 <= start <= len(text):
        message = f"the entity {label} at {start}:{end} is empty; its end must be above its start."
    elif not 0 <= start < end <= len(text):
        message = f"the entity {label} at {start}:{end} leaves the text, which has {len(text)} characters."
    elif not text[start:end].strip("\0"):
        message = f"the entity {label} at {start}:{end} holds nothing but NULs."
    elif isinstance(mention, str) and text[start:end] != mention:
        message = f"the entity {label} at {start}:{end} is {text[start:end]!r}, but is said to be {mention!r}."
    if message:
        reading.fault(source, line, message + end_hint(text, start, end, mention))
        return None
    return Span(start, end, str(label))


# -- tokens ------------------------------------------------------------------------------------------------------


def token_rows(source: str, rows: Iterator[Row], roles: Mapping[str, str], reading: Reading) -> Iterator[Entry]:
    """The rows as texts with the spans that their tags draw; None as gold where there are no tags."""
    names = number_names(source, roles.get("tags", ""))
    first = list(itertools.islice(rows, 1_000))
    style = _style([_tags(row.get(roles.get("tags", "")), names) or () for _, row in first])
    is_named = False
    for line, row in itertools.chain(first, rows):
        tokens = _tokens(source, line, row, roles["tokens"], reading)
        if tokens is None:
            continue
        tagged = row.get(roles.get("tags", ""))
        text, places = words.joined(tokens)
        if tagged is None:
            yield line, (text,), None
            continue
        tags = _tags(tagged, names)
        if tags is None or len(tags) != len(tokens):
            count = "no list" if tags is None else f"{len(tags)}"
            message = f"has {len(tokens)} tokens, but {count} of tags that can be read; each token needs its tag."
            reading.fault(source, line, message)
            continue
        if not names and not is_named and any(type(tag) is int for tag in tagged):
            message = (
                f"the tags in {roles['tags']!r} are numbers without names: each is a label as it stands, 0 is none."
            )
            reading.tell(message)
            is_named = True
        yield line, (text,), _spans(source, line, (tags, places), style, reading)


def _tokens(source: str, line: int, row: Mapping[str, object], name: str, reading: Reading) -> list[str] | None:
    value = row.get(name)
    if not isinstance(value, (list, tuple)) or not all(isinstance(token, str) for token in value):
        reading.fault(source, line, f"the field {name!r} must be a list of texts, one for each token.")
        return None
    return [clean(token, source, line, reading) or " " for token in value]


def _tags(value: object, names: Sequence[str]) -> list[str] | None:
    """The tags as texts; None where they are no list of texts or of numbers that have names."""
    if not isinstance(value, (list, tuple)):
        return None
    tags: list[str] = []
    for tag in value:
        if type(tag) is int and names:
            if not 0 <= tag < len(names):
                return None
            tags.append(names[tag])
        elif type(tag) is int:
            tags.append(str(tag) if tag else "O")
        elif isinstance(tag, str) and tag:
            tags.append(tag)
        else:
            return None
    return tags


def _style(tags: Sequence[Sequence[str]]) -> str:
    """How tags draw spans: by prefixes, by neighbours with one label where O is none, or every token by itself."""
    labels = {tag for row in tags for tag in row}
    prefixed = [tag for tag in labels if tag[:1] in _PREFIXES and tag[1:2] in ("-", "_") and tag[2:]]
    if (prefixed and len(prefixed) == len(labels - {"O"})) or conll.are_marked(labels):
        return "prefixes"
    return "inside" if "O" in labels else "units"


def _spans(
    source: str, line: int, tagged: tuple[list[str], list[tuple[int, int]]], style: str, reading: Reading
) -> tuple[Span, ...]:
    tags, places = tagged
    if style == "prefixes":
        return words.spans_of_tags(source, [line] * (len(tags) + 1), tags, places, reading)
    if style == "units":
        return tuple(Span(*place, tag) for place, tag in zip(places, tags, strict=True))
    runs = itertools.groupby(range(len(tags)), key=tags.__getitem__)
    several = [(tag, list(run)) for tag, run in runs if tag != "O"]
    return tuple(Span(places[run[0]][0], places[run[-1]][1], tag) for tag, run in several)
