"""Rows and files with two mentions in each text come in; texts with relations go out.

Every offset is checked against the text it points into.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from filbert.core.errors import InputError
from filbert.core.records import Span
from filbert.forms.gold import Labelled
from filbert.forms.markup import MENTION, Place, all_places, end_hint, first_of, moved, says_words, tell_wide, text_of
from filbert.forms.spec import Entry, Roles, Rows
from filbert.text.streams import Reading, whole_lines
from filbert.text.tables import Row

MASKED = re.compile(r"(\S+) ([^$]+)\$([^$]+)\$(.+)")  # label head$tail$text, as person relations have been published
_TAG = re.compile("(</?e[12]>)")
LABEL_COLUMN = "relation"  # the column of the label in rows that are made of a text's relations
UNNAMED = "relation"  # the type that Label Studio gives a relation without a label


@dataclass(frozen=True, slots=True)
class Relation(Labelled):
    """Two stretches of a text and how the first relates to the second; no label where it is to be predicted."""

    head: Span
    tail: Span
    label: str | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The one label, if it is known."""
        return () if self.label is None else (self.label,)


def relation_rows(source: str, rows: Rows, roles: Roles, reading: Reading) -> Iterator[Entry]:
    """Rows with a text and two mentions in it: {start, end}, [start, end], or the words, which are looked for."""
    for line, row in rows(reading):
        text = text_of(source, line, row, roles["text"], reading)
        if text is None:
            continue
        try:
            heads, tails = (_placed(text, row[roles["text"]], row.get(roles[role]), role) for role in ("head", "tail"))
        except InputError as error:
            reading.fault(source, line, str(error))
            continue
        if not all(says_words(row.get(roles[role]), "name") for role in ("head", "tail")):
            tell_wide(text, max(heads[0][1], tails[0][1]), source, line, reading)
        if max(len(heads), len(tails)) > 1:
            what = "rows have a mention that stands several times in the text; the first place was taken"
            reading.count(what, source, line, "a mention stands several times in the text; the first place was taken.")
        label = row.get(roles.get("label", ""))
        if isinstance(label, (list, Mapping)):
            reading.fault(source, line, f"the relation is {label!r:.40}, but must be one text or number.")
            continue
        yield line, (text,), Relation(*apart(heads, tails), None if label in (None, "") else str(label))


def _placed(text: str, raw_text: str, mark: object, role: str) -> list[Place]:
    """Where a mention stands in a text; numbers count the characters of `raw_text`, NULs too."""
    if "\0" not in raw_text or isinstance(mark, str):
        return places(text, mark, role)
    stretches = [moved(raw_text, place) for place in places(raw_text, mark, role)]
    if any(start == end for start, end in stretches):
        raise InputError(f"the {role} holds nothing but NULs.")
    return stretches


def places(text: str, mark: object, role: str) -> list[Place]:
    """Where a mention stands: the one place that is given as numbers, or all those of the given words."""
    named = mark if isinstance(mark, Mapping) else {}
    words = mark if isinstance(mark, str) else first_of(named, *MENTION, "name")
    at = mark if isinstance(mark, (list, tuple)) else named.get("pos", (named.get("start"), named.get("end")))
    if at == (None, None) and isinstance(words, str):
        if words not in text or not words:
            raise InputError(f"{words!r} does not stand in the text {text[:30]!r}, so it cannot be the {role}.")
        return [(start, start + len(words)) for start in all_places(text, words)]
    if not isinstance(at, (list, tuple)) or len(at) != 2 or any(type(edge) is not int for edge in at):
        raise InputError(f"the {role} is {mark!r}, but must be {{start, end}}, [start, end] or words of the text.")
    start, end = at
    if not 0 <= start < end <= len(text):
        raise InputError(f"the {role} at {start}:{end} leaves the text, which has {len(text)} characters.")
    if isinstance(words, str) and text[start:end] != words:
        message = f"the {role} at {start}:{end} is {text[start:end]!r}, but is said to be {words!r}."
        raise InputError(message + end_hint(text, start, end, words))
    return [(start, end)]


def apart(heads: list[Place], tails: list[Place]) -> tuple[Span, Span]:
    """The first places of two mentions that do not overlap; where all do, the first of each."""
    pairs = itertools.chain(((heads[0], tail) for tail in tails), ((head, tails[0]) for head in heads))
    first = (heads[0], tails[0])
    head, tail = next((pair for pair in pairs if pair[0][1] <= pair[1][0] or pair[1][1] <= pair[0][0]), first)
    return Span(*head, "head"), Span(*tail, "tail")


def marked_examples(source: str, reading: Reading) -> Iterator[Entry]:
    """The sentences of a SemEval-2010 task 8 file: <e1>…</e1> and <e2>…</e2> in a numbered line, then the relation."""
    open_sentence: tuple[int, str, tuple[Span, Span]] | None = None
    label: str | None = None
    is_broken = False  # whether the sentence was, so that its relation belongs to none
    for line, content in whole_lines(source, reading):
        sentence = content.strip().partition("\t")[2]
        if is_marked(content):
            if open_sentence is not None:
                yield open_sentence[0], (open_sentence[1],), Relation(*open_sentence[2], label)
            open_sentence, label = _unmarked(source, line, sentence, reading), None
            is_broken = open_sentence is None
        elif content.startswith("Comment"):
            reading.count("comments on sentences were passed over", source, line, "is a comment; passed over.")
        elif content.strip() and label is None and (open_sentence is not None or is_broken):
            label = content.strip()
        elif content.strip():
            what = "lines that are neither a sentence nor its relation were passed over"
            reading.count(what, source, line, f"{content[:30]!r} is no sentence nor its relation; passed over.")
    if open_sentence is not None:
        yield open_sentence[0], (open_sentence[1],), Relation(*open_sentence[2], label)


def is_marked(line: str) -> bool:
    """Whether a line of such a file is a sentence with its number."""
    number, tab, sentence = line.strip().partition("\t")
    return bool(tab) and number.isdigit() and _TAG.search(sentence) is not None


def _unmarked(source: str, line: int, sentence: str, reading: Reading) -> tuple[int, str, tuple[Span, Span]] | None:
    """The sentence without its tags and quotation marks, and where the tags stood; None after a fault."""
    if sentence.startswith('"') and sentence.endswith('"') and len(sentence) > 1:
        sentence = sentence[1:-1]
    text, at = "", dict[str, int]()
    for piece in _TAG.split(sentence):
        if _TAG.fullmatch(piece) and piece not in at:
            at[piece] = len(text)
        else:
            text += piece
    head, tail = ((at.get(f"<{name}>", -1), at.get(f"</{name}>", -1)) for name in ("e1", "e2"))
    if min(*head, *tail) < 0 or head[0] >= head[1] or tail[0] >= tail[1]:
        reading.fault(source, line, "must hold <e1>…</e1> and <e2>…</e2>, each once and around some text.")
        return None
    return line, text, (Span(*head, "head"), Span(*tail, "tail"))


def masked_examples(source: str, reading: Reading) -> Iterator[Entry]:
    """The lines `label head$tail$text` in whose text every character of the two names is written as #.

    A name is taken where as many # stand; of two names of one length the head's is the first.
    """
    for line, content in whole_lines(source, reading):
        match = MASKED.fullmatch(content.strip())
        if match is None:
            if content.strip():
                reading.fault(source, line, f"{content[:30]!r} is not `label head$tail$text`.")
            else:
                reading.report.num_blank += 1
            continue
        label, head, tail, text = match.groups()
        runs = [run.span() for run in re.finditer("#+", text)]
        heads, tails = (
            [(at, at + len(name)) for at in all_places(text, name)]
            or [(start, end) for start, end in runs if end - start == len(name)]
            for name in (head, tail)
        )
        if heads and tails:
            yield line, (text,), Relation(*apart(heads, tails), label)
        else:
            what = "rows were left out, for a name does not stand in the text, nor as many #"
            reading.count(what, source, line, f"{(tail if heads else head)!r} does not stand in the text; left out.")


# -- relations ---------------------------------------------------------------------------------------------------


def related_rows(source: str, rows: Iterator[Row], text: str, reading: Reading) -> Iterator[Row]:
    """A row for each relation of a text: between entities by their ids (doccano, Label Studio), or spans (Prodigy)."""
    for line, row in rows:
        entities = {str(each["id"]): each for each in _mappings(row.get("entities")) if "id" in each}
        relations = _mappings(row.get("relations"))
        if not relations:
            what = "texts were left out, for no relation is marked in them"
            reading.count(what, source, line, "no relation is marked in the text; left out.")
        for relation in relations:
            ends = [_end(relation, entities, *names) for names in (("from_id", "head_span"), ("to_id", "child_span"))]
            label = relation.get("type") if relation.get("type") != UNNAMED else None
            label = label or relation.get("label") or relation.get("labels")
            label = label[0] if isinstance(label, list) and label else label
            if None in ends:
                reading.fault(source, line, f"the relation {str(dict(relation))[:60]} is not between two entities.")
                continue
            yield line, {text: row.get(text), "head": ends[0], "tail": ends[1], LABEL_COLUMN: label}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _end(
    relation: Mapping[str, object], entities: Mapping[str, object], by_id: str, by_span: str
) -> dict[str, Any] | None:
    """One end of a relation, as {start, end}."""
    span = relation.get(by_span) or entities.get(str(relation.get(by_id)))
    if not isinstance(span, Mapping):
        return None
    start, end = (next((span[n] for n in (name, f"{name}_offset") if n in span), None) for name in ("start", "end"))
    return {"start": start, "end": end}
