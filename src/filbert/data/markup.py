"""Rows and files with marked-up text come in; texts with spans, relations, answers and choices go out.

Every offset is checked against the text it points into. What can be mended in one way only is mended and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from filbert.core.records import Span
from filbert.data.formats import conll_sentences, whole_json
from filbert.text.streams import Reading, clean
from filbert.text.tables import Row

Found = tuple[int, tuple[str, ...], Any]  # (line, texts, gold)


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
    """The label or labels in an example's gold: of a text, of its spans, of a relation."""
    if isinstance(gold, str):
        yield gold
    elif isinstance(gold, Relation):
        yield from [gold.label] if gold.label is not None else []
    elif isinstance(gold, tuple):
        yield from (item.label for item in gold if isinstance(item, Span))


# -- tag ---------------------------------------------------------------------------------------------------------

BEGINS, INSIDE, ENDS, SINGLE = "B", "IM", "EL", "SUW"  # BIO, BMES, BIOES and BILOU say the same in other letters


def conll_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The sentences of a CoNLL file as texts with entity spans."""
    for line, tokens, tags in conll_sentences(source, reading):
        text, places = joined(tokens)
        yield line, (text,), spans_of_tags(source, line, tags, places, reading)


def joined(tokens: list[str]) -> tuple[str, list[tuple[int, int]]]:
    """The tokens as one text, and where each stands: words with spaces between them, Chinese characters without."""
    is_spaced = any(len(token) > 1 for token in tokens)
    has_wide = any("\u2e80" <= token[0] <= "\uffef" for token in tokens)
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    end = 0
    for index, token in enumerate(tokens):
        if index and is_spaced and not (has_wide and not (_is_latin(tokens[index - 1][-1]) and _is_latin(token[0]))):
            parts.append(" ")
            end += 1
        parts.append(token)
        places.append((end, end + len(token)))
        end += len(token)
    return "".join(parts), places


def _is_latin(char: str) -> bool:
    return char.isalnum() and char < "\u2e80"


def spans_of_tags(
    source: str, line: int, tags: list[str], places: list[tuple[int, int]], reading: Reading
) -> tuple[Span, ...]:
    """The spans that tags with prefixes draw; one that goes on without having begun begins there, and is counted."""
    spans: list[Span] = []
    open_label, start = "", 0
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, label = tag.partition("-" if "-" in tag else "_")
        if tag != "O" and (not label or prefix not in BEGINS + INSIDE + ENDS + SINGLE):
            message = f"the tag {tag!r} is not O or a label with B-, I-, M-, E- or S- before it."
            reading.fault(source, line + index, message)
            prefix, label = "O", ""
        goes_on = label == open_label and label != "" and prefix in INSIDE + ENDS
        if open_label and not goes_on:
            spans.append(Span(places[start][0], places[index - 1][1], open_label))
            open_label = ""
        if label and not goes_on:
            if prefix in INSIDE + ENDS:
                what = "entities go on (I-, M-, E-) without having begun; each was begun there"
                reading.count(what, source, line + index, f"{tag} goes on with an entity that has not begun.")
            open_label, start = label, index
        if open_label and prefix in ENDS + SINGLE:
            spans.append(Span(places[start][0], places[index][1], open_label))
            open_label = ""
    return tuple(spans)


def tagged_rows(source: str, rows: Iterator[Row], roles: dict[str, str], reading: Reading) -> Iterator[Found]:
    """Rows with a text and its entities: a list of {start, end, label}, or CLUENER's {type: {mention: [[s, e]]}}."""
    for line, row in rows:
        text = _text(source, line, row, roles["text"], reading)
        marked = row.get(roles.get("entities", ""))
        if text is None:
            continue
        if marked is None:
            yield line, (text,), None
            continue
        spans = [_span(source, line, text, item, reading) for item in _items(source, line, marked, reading)]
        if None not in spans:
            kept = sorted(
                {span for span in spans if span is not None}, key=lambda span: (span.start, span.end, span.label)
            )
            yield line, (text,), tuple(kept)


def _text(source: str, line: int, row: dict[str, Any], name: str, reading: Reading) -> str | None:
    value = row.get(name)
    if isinstance(value, str):
        return clean(value, source, line, reading)
    reading.fault(source, line, f"the field {name!r} is missing or not text.")
    return None


def _items(source: str, line: int, marked: Any, reading: Reading) -> Iterator[Mapping[str, Any]]:
    """Entities in any of the known forms as {start, end (exclusive), label, text}."""
    if isinstance(marked, Mapping):
        for label, mentions in marked.items():
            for mention, places in mentions.items() if isinstance(mentions, Mapping) else ():
                for place in places if isinstance(places, list) else ():
                    is_pair = isinstance(place, list) and len(place) == 2 and all(isinstance(at, int) for at in place)
                    start, last = place if is_pair else (None, -1)
                    yield {"start": start, "end": last + 1, "label": label, "text": mention}  # the last one counts
        return
    for item in marked if isinstance(marked, (list, tuple)) else ():
        if isinstance(item, (list, tuple)) and len(item) >= 3:
            yield {"start": item[0], "end": item[1], "label": item[2]}
        elif isinstance(item, Mapping):
            yield item
        else:
            reading.fault(source, line, f"the entity {item!r} is not {{start, end, label}}.")


def _span(source: str, line: int, text: str, item: Mapping[str, Any], reading: Reading) -> Span | None:
    """The checked span, or None after a fault."""
    start, end = _first(item, "start", "start_offset", "start_idx"), _first(item, "end", "end_offset", "end_idx")
    label, mention = _first(item, "label", "type", "entity"), _first(item, "text", "mention", "word", "entity_text")
    message = ""
    if not isinstance(start, int) or not isinstance(end, int) or not isinstance(label, str) or not label:
        message = f"the entity {dict(item)!r} is not {{start, end, label}} with two whole numbers and a text."
    elif not 0 <= start < end <= len(text):
        message = f"the entity {label} at {start}:{end} leaves the text, which has {len(text)} characters."
    elif isinstance(mention, str) and text[start:end] != mention:
        message = f"the entity {label} at {start}:{end} is {text[start:end]!r}, but is said to be {mention!r}."
    if message:
        reading.fault(source, line, message + _end_hint(text, start, end, mention))
        return None
    return Span(start, end, str(label))


def _end_hint(text: str, start: Any, end: Any, mention: Any) -> str:
    if (
        isinstance(start, int)
        and isinstance(end, int)
        and isinstance(mention, str)
        and text[start : end + 1] == mention
    ):
        return " Its end seems to be that of the last character; it must be one more."
    return ""


def _first(item: Mapping[str, Any], *names: str) -> Any:
    return next((item[name] for name in names if name in item), None)


# -- relation ----------------------------------------------------------------------------------------------------


def relation_rows(source: str, rows: Iterator[Row], roles: dict[str, str], reading: Reading) -> Iterator[Found]:
    """Rows with a text and two mentions in it: each is taken where it first stands, the second not inside the first."""
    for line, row in rows:
        text, head, tail = (_text(source, line, row, roles[role], reading) for role in ("text", "head", "tail"))
        if text is None or head is None or tail is None:
            continue
        spans = two_places(text, head, tail)
        if spans is None:
            missing = next((name for name in (head, tail) if name not in text), tail)
            reading.fault(source, line, f"{missing!r} does not stand in the text {text[:30]!r} (beside the other one).")
            continue
        label = row.get(roles.get("label", ""))
        yield line, (text,), Relation(*spans, None if label is None else str(label))


def two_places(text: str, head: str, tail: str) -> tuple[Span, Span] | None:
    """Where two mentions stand: the first places that do not overlap, else one within the other, else None."""
    first, second = text.find(head), text.find(tail)
    if first < 0 or second < 0 or not head or not tail:
        return None
    later_tail, later_head = text.find(tail, first + len(head)), text.find(head, second + len(tail))
    for start, other in ((first, second), (first, later_tail), (later_head, second)):
        if min(start, other) >= 0 and (start + len(head) <= other or other + len(tail) <= start):
            first, second = start, other
            break
    return Span(first, first + len(head), "head"), Span(second, second + len(tail), "tail")


# -- answer ------------------------------------------------------------------------------------------------------


def squad_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The questions of a SQuAD-style file with their contexts; texts are (question, context)."""
    for article in _objects(source, whole_json(source, reading), "data", reading):
        for paragraph in _objects(source, article, "paragraphs", reading):
            context = clean(str(paragraph.get("context", "")), source, 0, reading)
            for asked in _objects(source, paragraph, "qas", reading):
                place = _Place(source, 0, f"question {asked.get('id', '?')}: ", reading)
                question = clean(str(asked.get("question", "")), source, 0, reading)
                if question.strip() and context.strip():
                    yield 0, (question, context), _squad_answers(context, asked, place)
                else:
                    place.count("questions were skipped, for they or their contexts are empty", "empty; skipped.")


def _objects(source: str, holder: Mapping[str, Any], name: str, reading: Reading) -> Iterator[Mapping[str, Any]]:
    """The objects in the list of that name; anything else there is a fault."""
    items = holder.get(name, ())
    for number, item in enumerate(items if isinstance(items, (list, tuple)) else [items], 1):
        if isinstance(item, Mapping):
            yield item
        else:
            reading.fault(source, 0, f"item {number} of a list of {name} is not an object {{…}}.")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer is being read, for whoever counts what is wrong with it."""

    source: str
    line: int
    where: str
    reading: Reading

    def count(self, what: str, message: str) -> None:
        self.reading.count(what, self.source, self.line, self.where + message)


def _squad_answers(context: str, asked: Mapping[str, Any], place: _Place) -> tuple[Answer, ...] | None:
    """The accepted answers; none for a question without one; None where the file does not say."""
    if "answers" not in asked:
        return None
    if str(asked.get("is_impossible", "false")).lower() == "true":  # CJRC writes it as a text
        return ()
    given = _objects(place.source, asked, "answers", place.reading)
    return _placed_all(context, ((str(item.get("text", "")), item.get("answer_start")) for item in given), place)


def _placed_all(context: str, given: Iterable[tuple[str, Any]], place: _Place) -> tuple[Answer, ...]:
    once = dict.fromkeys((text, start if isinstance(start, int) else None) for text, start in given if text)
    return tuple(dict.fromkeys(placed(context, text, start, place) for text, start in once))


def placed(context: str, text: str, start: Any, place: _Place) -> Answer:
    """The answer where it is said to stand; else at the nearest place where it does stand; else without a place."""
    if isinstance(start, int) and start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    places = _places(context, text)
    if not places:
        what = "answers do not stand in their context; they count in evaluation but not in training"
        place.count(what, f"the answer {text[:30]!r} does not stand in the context.")
        return Answer(text)
    said = start if isinstance(start, int) else 0
    found = min(places, key=lambda place: abs(place - said))
    if start is not None:
        what = "answers did not stand at answer_start and were moved to the nearest place where they do"
        place.count(what, f"the answer {text[:30]!r} does not stand at {start}; the nearest place is {found}.")
    return Answer(text, found)


def _places(context: str, text: str) -> list[int]:
    places = []
    place = context.find(text) if text else -1
    while place >= 0:
        places.append(place)
        place = context.find(text, place + 1)
    return places


def answer_rows(source: str, rows: Iterator[Row], roles: dict[str, str], reading: Reading) -> Iterator[Found]:
    """Rows with question, context and answers: {text: […], answer_start: […]}, a list of such, or one text."""
    for line, row in rows:
        question = _text(source, line, row, roles["question"], reading)
        context = _text(source, line, row, roles["context"], reading)
        if question is None or context is None:
            continue
        given = row.get(roles.get("answers", ""))
        gold = None
        if given is not None:
            gold = _placed_all(context, _given(given), _Place(source, line, "", reading))
        yield line, (question, context), gold


def _given(answers: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(answers, str):
        yield answers, None
    elif isinstance(answers, Mapping):
        starts = iter(_listed(answers.get("answer_start", [])))
        for text in _listed(answers.get("text", [])):
            yield str(text), next(starts, None)
    elif isinstance(answers, Iterable):
        for item in answers:
            yield from _given(item)


# -- choose ------------------------------------------------------------------------------------------------------


def choice_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The questions of a C3/DREAM-style file; texts are (passage, question, choice, choice, …)."""
    for number, entry in enumerate(whole_json(source, reading), 1):
        if not isinstance(entry, list) or len(entry) < 2:
            reading.fault(source, 0, f"entry {number} is not [[lines], [questions], id].")
            continue
        passage = clean("\n".join(map(str, _listed(entry[0]))), source, 0, reading)
        for asked in _objects(source, {"questions": entry[1]}, "questions", reading):
            question = clean(str(asked.get("question", "")), source, 0, reading)
            choices = [clean(str(choice), source, 0, reading) for choice in _listed(asked.get("choice", ()))]
            answer = asked.get("answer")
            if len(choices) < 2 or (answer is not None and choices.count(str(answer)) != 1):
                message = f"the answer {answer!r} is not exactly one of the {len(choices)} choices"
                reading.fault(source, 0, f"entry {number}, question {question[:30]!r}: {message}.")
                continue
            gold = None if answer is None else choices.index(str(answer))
            yield 0, (passage, question, *choices), gold


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


READERS: dict[str, Callable[[str, Reading], Iterator[Found]]] = {
    "conll": conll_examples,
    "squad": squad_examples,
    "choices": choice_examples,
}
