"""Rows and files with marked-up text come in; texts with spans, relations, answers and choices go out.

Every offset is checked against the text it points into. What can be mended in one way only is mended and counted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from filbert.core.errors import InputError
from filbert.core.records import Span
from filbert.forms import conll, units
from filbert.forms.formats import MASKED
from filbert.forms.spacing import joined
from filbert.text.streams import Reading, clean, whole_lines
from filbert.text.tables import Row

Found = tuple[int, tuple[str, ...], Any]  # (line, texts, gold)
Place = tuple[int, int]  # a mention is text[start:end]


@dataclass(frozen=True, slots=True)
class Relation:
    """Two stretches of a text and how the first relates to the second; no label where it is to be predicted."""

    head: Span
    tail: Span
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An accepted answer: context[start : start + len(text)], or start -1 where it is not a stretch of the context."""

    text: str
    start: int = -1


def labels_of(gold: Any) -> Iterator[str]:
    """The label or labels in an example's gold: of a text, one or several, of its spans, of a relation."""
    if isinstance(gold, str):
        yield gold
    elif isinstance(gold, Relation):
        yield from [gold.label] if gold.label is not None else []
    elif isinstance(gold, tuple):
        yield from (item.label if isinstance(item, Span) else item for item in gold if isinstance(item, Span | str))


# -- tag ---------------------------------------------------------------------------------------------------------

MENTION = ("text", "mention", "word", "entity_text")  # fields that say what is marked
_WIDE = re.compile("[\U00010000-\U0010ffff]")
BEGINS, INSIDE, ENDS, SINGLE = "B", "IM", "EL", "SUW"  # BIO, BMES, BIOES and BILOU say the same in other letters


def conll_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The sentences of a CoNLL file as texts with entity spans."""
    for found in conll.sentences(source, reading):
        text, places = joined(found.words, found.are_words)
        yield found.lines[0], (text,), spans_of_tags(source, found.lines, found.tags, places, reading)


def unit_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The sentences of a CoNLL file without prefixes: every word or character is a span with its label."""
    for found in conll.sentences(source, reading):
        yield found.lines[0], *_covered(found.words, found.tags, found.are_words)


def inside_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The same where O says that there is no label: neighbours with one label are one span."""
    reading.tell("neighbours with one label are taken for one span, since no prefix tells where one begins.")
    for found in conll.sentences(source, reading):
        text, places = joined(found.words, found.are_words)
        runs = itertools.groupby(range(len(found.tags)), key=found.tags.__getitem__)
        several = [(label, list(run)) for label, run in runs if label != "O"]
        yield (
            found.lines[0],
            (text,),
            tuple(Span(places[run[0]][0], places[run[-1]][1], label) for label, run in several),
        )


def slashed_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The lines of a file of words and their labels (word/label), each word a span."""
    for line, words, labels in units.slashed(source, reading):
        yield line, *_covered(words, labels)


def conllu_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The sentences of a CoNLL-U file with the spaces that it tells of, each word a span with its part of speech."""
    for line, words, labels, spaces in units.conllu(source, reading):
        written = [word + " " * space for word, space in zip(words, spaces, strict=True)]
        starts = itertools.accumulate(map(len, written), initial=0)
        spans = (Span(at, at + len(word), label) for at, word, label in zip(starts, words, labels, strict=False))
        yield line, ("".join(written).rstrip(),), tuple(spans)


def _covered(words: list[str], labels: list[str], are_words: bool | None = None) -> tuple[tuple[str], tuple[Span, ...]]:
    text, places = joined(words, are_words)
    return (text,), tuple(Span(*place, label) for place, label in zip(places, labels, strict=True))


def spans_of_tags(
    source: str, lines: Sequence[int], tags: list[str], places: list[tuple[int, int]], reading: Reading
) -> tuple[Span, ...]:
    """The spans that tags with prefixes draw; one that goes on without having begun begins there, and is counted.

    lines: of each tag.
    """
    spans: list[Span] = []
    open_label, start = "", 0
    for index, tag in enumerate([*tags, "O"]):
        prefix, label = (tag[:1], tag[2:]) if tag[1:2] in ("-", "_") else (tag, "")
        if tag != "O" and (not label or prefix not in BEGINS + INSIDE + ENDS + SINGLE):
            message = f"the tag {tag!r} is not O or a label with B-, I-, M-, E- or S- before it."
            reading.fault(source, lines[index], message)
            prefix, label = "O", ""
        goes_on = label == open_label and label != "" and prefix in INSIDE + ENDS
        if open_label and not goes_on:
            spans.append(Span(places[start][0], places[index - 1][1], open_label))
            open_label = ""
        if label and not goes_on:
            if prefix in INSIDE + ENDS:
                what = "entities go on (I-, M-, E-) without having begun; each was begun there"
                reading.count(what, source, lines[index], f"{tag} goes on with an entity that has not begun.")
            open_label, start = label, index
        if open_label and prefix in ENDS + SINGLE:
            spans.append(Span(places[start][0], places[index][1], open_label))
            open_label = ""
    return tuple(spans)


def tagged_rows(source: str, rows: Iterator[Row], roles: dict[str, str], reading: Reading) -> Iterator[Found]:
    """Rows with a text and its entities: a list of {start, end, label}, or CLUENER's {type: {mention: [[s, e]]}}."""
    for line, row in rows:
        text = text_of(source, line, row, roles["text"], reading)
        marked = row.get(roles.get("entities", ""))
        if text is None:
            continue
        if marked is None:
            yield line, (text,), None
            continue
        given = row[roles["text"]]  # what the offsets count
        items = list(_items(source, line, marked, reading))
        spans = [_span(source, line, given, item, reading) for item in items]
        if None not in spans:
            kept = sorted(
                {Span(*_moved(given, (span.start, span.end)), span.label) for span in spans if span is not None},
                key=lambda span: (span.start, span.end, span.label),
            )
            for _ in range(len(spans) - len(kept)):
                reading.count("entities stand twice; each was taken once", source, line, TWICE)
            if not all(map(_says_words, items)):
                _tell_wide(text, max((span.end for span in kept), default=0), (source, line, reading))
            yield line, (text,), tuple(kept)


def _moved(given: str, place: Place) -> Place:
    """Where a stretch of a text lies in the same without its NULs, which `clean` leaves out."""
    start, end = (at - given.count("\0", 0, at) for at in place)
    return start, end


def _says_words(mark: Any, *more: str) -> bool:
    """Whether a mark says what it marks beside where it stands, so that the place is checked."""
    return isinstance(mark, str) or (isinstance(mark, Mapping) and isinstance(_first(mark, *MENTION, *more), str))


def _tell_wide(text: str, end: int, where: tuple[str, int, Reading]) -> None:
    """Counts a text of which a tool that counts UTF-16 units would mean another stretch, and nothing shows it."""
    if _WIDE.search(text, 0, end):
        source, line, reading = where
        what = "texts have marks whose words are not given behind characters that are two in UTF-16 (😀)"
        message = "marks stand behind a character that is two in UTF-16 (😀); their places were taken to count it once."
        reading.count(f"{what}; places were taken to count them once", source, line, message)


TWICE = "an entity stands twice in its list; it was taken once."


def text_of(source: str, line: int, row: dict[str, Any], name: str, reading: Reading) -> str | None:
    """What the field holds, cleaned; None after a fault."""
    value = row.get(name)
    if isinstance(value, str):
        return clean(value, source, line, reading)
    reading.fault(source, line, f"the field {name!r} is missing or not text.")
    return None


def _items(source: str, line: int, marked: Any, reading: Reading) -> Iterator[Mapping[str, Any]]:
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


def _span(source: str, line: int, text: str, item: Mapping[str, Any], reading: Reading) -> Span | None:
    """The checked span, or None after a fault."""
    start, end = _first(item, "start", "start_offset", "start_idx"), _first(item, "end", "end_offset", "end_idx")
    label, mention = _first(item, "label", "type", "entity"), _first(item, *MENTION)
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
        reading.fault(source, line, message + _end_hint(text, start, end, mention))
        return None
    return Span(start, end, str(label))


def _end_hint(text: str, start: Any, end: Any, mention: Any) -> str:
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


def _first(item: Mapping[str, Any], *names: str) -> Any:
    return next((item[name] for name in names if name in item), None)


# -- relation ----------------------------------------------------------------------------------------------------


_TAG = re.compile("(</?e[12]>)")


def relation_rows(source: str, rows: Iterator[Row], roles: dict[str, str], reading: Reading) -> Iterator[Found]:
    """Rows with a text and two mentions in it: {start, end}, [start, end], or the words, which are looked for."""
    for line, row in rows:
        text = text_of(source, line, row, roles["text"], reading)
        if text is None:
            continue
        try:
            heads, tails = (_placed(text, row[roles["text"]], row.get(roles[role]), role) for role in ("head", "tail"))
        except InputError as error:
            reading.fault(source, line, str(error))
            continue
        if not all(_says_words(row.get(roles[role]), "name") for role in ("head", "tail")):
            _tell_wide(text, max(heads[0][1], tails[0][1]), (source, line, reading))
        if max(len(heads), len(tails)) > 1:
            what = "rows have a mention that stands several times in the text; the first place was taken"
            reading.count(what, source, line, "a mention stands several times in the text; the first place was taken.")
        label = row.get(roles.get("label", ""))
        if isinstance(label, (list, Mapping)):
            reading.fault(source, line, f"the relation is {label!r:.40}, but must be one text or number.")
            continue
        yield line, (text,), Relation(*apart(heads, tails), None if label in (None, "") else str(label))


def _placed(text: str, written: str, given: Any, role: str) -> list[Place]:
    """Where a mention stands in a text; numbers count the characters of what is written, where NULs are some."""
    if "\0" not in written or isinstance(given, str):
        return places(text, given, role)
    found = [_moved(written, place) for place in places(written, given, role)]
    if any(start == end for start, end in found):
        raise InputError(f"the {role} holds nothing but NULs.")
    return found


def places(text: str, given: Any, role: str) -> list[Place]:
    """Where a mention stands: the one place that is given as numbers, or all those of the given words."""
    named = given if isinstance(given, Mapping) else {}
    words = given if isinstance(given, str) else _first(named, *MENTION, "name")
    at = given if isinstance(given, (list, tuple)) else named.get("pos", (named.get("start"), named.get("end")))
    if at == (None, None) and isinstance(words, str):
        if words not in text or not words:
            raise InputError(f"{words!r} does not stand in the text {text[:30]!r}, so it cannot be the {role}.")
        return [(start, start + len(words)) for start in all_places(text, words)]
    if not isinstance(at, (list, tuple)) or len(at) != 2 or any(type(edge) is not int for edge in at):
        raise InputError(f"the {role} is {given!r}, but must be {{start, end}}, [start, end] or words of the text.")
    start, end = at
    if not 0 <= start < end <= len(text):
        raise InputError(f"the {role} at {start}:{end} leaves the text, which has {len(text)} characters.")
    if isinstance(words, str) and text[start:end] != words:
        message = f"the {role} at {start}:{end} is {text[start:end]!r}, but is said to be {words!r}."
        raise InputError(message + _end_hint(text, start, end, words))
    return [(start, end)]


def apart(heads: list[Place], tails: list[Place]) -> tuple[Span, Span]:
    """The first places of two mentions that do not overlap; where all do, the first of each."""
    pairs = itertools.chain(((heads[0], tail) for tail in tails), ((head, tails[0]) for head in heads))
    first = (heads[0], tails[0])
    head, tail = next((pair for pair in pairs if pair[0][1] <= pair[1][0] or pair[1][1] <= pair[0][0]), first)
    return Span(*head, "head"), Span(*tail, "tail")


def marked_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The sentences of a SemEval-2010 task 8 file: <e1>…</e1> and <e2>…</e2> in a numbered line, then the relation."""
    begun: tuple[int, str, tuple[Span, Span]] | None = None
    label: str | None = None
    is_broken = False  # whether the sentence was, so that its relation belongs to none
    for line, written in whole_lines(source, reading):
        sentence = written.strip().partition("\t")[2]
        if is_marked(written):
            if begun is not None:
                yield begun[0], (begun[1],), Relation(*begun[2], label)
            begun, label = _unmarked(source, line, sentence, reading), None
            is_broken = begun is None
        elif written.startswith("Comment"):
            reading.count("comments on sentences were passed over", source, line, "is a comment; passed over.")
        elif written.strip() and label is None and (begun is not None or is_broken):
            label = written.strip()
        elif written.strip():
            what = "lines that are neither a sentence nor its relation were passed over"
            reading.count(what, source, line, f"{written[:30]!r} is no sentence nor its relation; passed over.")
    if begun is not None:
        yield begun[0], (begun[1],), Relation(*begun[2], label)


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


def masked_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The lines `label head$tail$text` in whose text every character of the two names is written as #.

    A name is taken where as many # stand; of two names of one length the head's is the first.
    """
    for line, written in whole_lines(source, reading):
        found = MASKED.fullmatch(written.strip())
        if found is None:
            if written.strip():
                reading.fault(source, line, f"{written[:30]!r} is not `label head$tail$text`.")
            else:
                reading.report.num_blank += 1
            continue
        label, head, tail, text = found.groups()
        runs = [match.span() for match in re.finditer("#+", text)]
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


def all_places(context: str, text: str) -> list[int]:
    """Where the text stands in the context: the first character of each place."""
    places = []
    place = context.find(text) if text else -1
    while place >= 0:
        places.append(place)
        place = context.find(text, place + 1)
    return places


TASK_OF = {
    **dict.fromkeys(("conll", *units.TOLD), "tag"),
    **dict.fromkeys(("marked", "masked"), "relation"),
    "squad": "answer",
    "choices": "choose",
}
