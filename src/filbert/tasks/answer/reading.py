"""Questions with the passages that answer them come in (SQuAD, rows); texts with the accepted answers go out.

Where an answer stands is checked against its passage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from filbert.forms.formats import whole_json
from filbert.forms.markup import all_places, text_of
from filbert.forms.questions import Place, as_list, objects, text_field
from filbert.forms.spec import Entry, Roles, Rows
from filbert.text.streams import Reading, clean

IMPOSSIBLE = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False, "none": False}


@dataclass(frozen=True, slots=True)
class Answer:
    """An accepted answer: context[start : start + len(text)], or start -1 where it is not a stretch of the context."""

    text: str
    start: int = -1


def squad_examples(source: str, reading: Reading) -> Iterator[Entry]:
    """The questions of a SQuAD-style file with their contexts; texts are (question, context)."""
    for article in objects(source, whole_json(source, reading), "data", reading):
        for paragraph in objects(source, article, "paragraphs", reading):
            context = text_field(paragraph, "context", Place(source, 0, "", reading))
            if context is None:
                continue
            for fields in objects(source, paragraph, "qas", reading):
                place = Place(source, 0, f"question {fields.get('id', '?')}: ", reading)
                question = text_field(fields, "question", place)
                if question is None:
                    continue
                if question.strip() and context.strip():
                    yield 0, (question, context), _squad_answers(context, fields, place)
                else:
                    place.count("questions were skipped, for they or their contexts are empty", "empty; skipped.")


def _squad_answers(context: str, fields: Mapping[str, object], place: Place) -> tuple[Answer, ...] | None:
    """The accepted answers; none for a question without one; None where the file does not say."""
    impossible = str(fields.get("is_impossible", "false")).lower()  # CJRC writes it as a text
    if impossible not in IMPOSSIBLE:
        place.fault(f"is_impossible is {fields['is_impossible']!r:.40}, but must be true or false.")
    if IMPOSSIBLE.get(impossible):
        if fields.get("answers"):
            what = "questions are said to have no answer and have some, which were passed over"
            place.count(what, "is_impossible is true, so its answers were passed over.")
        return ()
    if "answers" not in fields:
        return None
    starts = [item for each in as_list(fields["answers"]) for item in _starts(each, None, place)]
    return _placed_all(context, starts, place)


def _placed_all(context: str, starts: Iterable[tuple[str, object]], place: Place) -> tuple[Answer, ...]:
    held = list(starts)
    for _ in range(sum(not text for text, _ in held)):
        place.count("answers are empty and were passed over", "an answer is empty; passed over.")
    once = dict.fromkeys((text, _start(start, place)) for text, start in held if text)
    return tuple(dict.fromkeys(placed(context, text, start, place) for text, start in once))


def _start(value: object, place: Place) -> int | None:
    """Where an answer is said to begin: a whole number, also written 12.0 or "12"; None: nothing is said."""
    if value is None or value == "":
        return None
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            number = float(value)
            if number.is_integer():
                return int(number)
        except (ValueError, OverflowError):
            pass
    place.fault(f"answer_start is {str(value)[:30]!r}, but must be a whole number: the character with which it begins.")
    return None


def placed(context: str, text: str, start: int | None, place: Place) -> Answer:
    """The answer where it is said to stand; else at the nearest place where it does stand; else without a place."""
    if start is not None and start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    places = all_places(context, text)
    if not places:
        what = "answers do not stand in their context; they count in evaluation but not in training"
        place.count(what, f"the answer {text[:30]!r} does not stand in the context.")
        return Answer(text)
    nearest = min(places, key=lambda place: abs(place - (start or 0)))
    if start is None and len(places) > 1:
        what = "answers have no answer_start and stand several times in their context; the first place was taken"
        place.count(what, f"the answer {text[:30]!r} stands {len(places)} times; the first place was taken.")
    if start is not None:
        what = "answers did not stand at answer_start and were moved to the nearest place where they do"
        place.count(what, f"the answer {text[:30]!r} does not stand at {start}; the nearest place is {nearest}.")
    return Answer(text, nearest)


def rows(source: str, rows: Rows, roles: Roles, reading: Reading) -> Iterator[Entry]:
    """Rows with question, context and answers: {text: […], answer_start: […]}, a list of such, or one text."""
    for line, row in rows(reading):
        question = text_of(source, line, row, roles["question"], reading)
        context = text_of(source, line, row, roles["context"], reading)
        if question is None or context is None:
            continue
        answers = row.get(roles.get("answers", ""))
        gold = None
        if answers is not None:
            place = Place(source, line, "", reading)
            gold = _placed_all(context, _starts(answers, row.get(roles.get("answer_start", "")), place), place)
        yield line, (question, context), gold


def _starts(answers: object, starts: object, place: Place) -> Iterator[tuple[str, object]]:
    """(text, where it is said to begin) of each answer; starts: what a column of its own says of that."""
    if isinstance(answers, Mapping) and "text" in answers:
        yield from _starts(answers["text"], answers.get("answer_start", starts), place)
    elif isinstance(answers, str):
        yield (
            clean(answers, place.source, place.line, place.reading),
            starts[0] if isinstance(starts, (list, tuple)) and len(starts) == 1 else starts,
        )
    elif isinstance(answers, (list, tuple)):
        several = starts if isinstance(starts, (list, tuple)) else [starts] * len(answers)
        if len(several) != len(answers):
            place.fault(f"has {len(answers)} answers, but {len(several)} of answer_start; each answer needs its own.")
            return
        for item, start in zip(answers, several, strict=True):
            yield from _starts(item, start, place)
    elif answers != {}:
        message = f"the answers are {answers!r:.40}, but must be text, or {{text: […], answer_start: […]}}."
        place.fault(message)
