"""Questions come in, asked of a passage (SQuAD, rows) or with options to choose from (C3, rows); their answers go out.

Where an answer stands is checked against its passage; how the right options are written is told from all of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from filbert.forms.choices import Answers
from filbert.forms.formats import whole_json
from filbert.forms.markup import Answer, Found, all_places, text_of
from filbert.text.streams import Reading, clean
from filbert.text.tables import Row

IMPOSSIBLE = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False, "none": False}

# -- answer ------------------------------------------------------------------------------------------------------


def squad_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The questions of a SQuAD-style file with their contexts; texts are (question, context)."""
    for article in _objects(source, whole_json(source, reading), "data", reading):
        for paragraph in _objects(source, article, "paragraphs", reading):
            context = _said(paragraph, "context", _Place(source, 0, "", reading))
            if context is None:
                continue
            for asked in _objects(source, paragraph, "qas", reading):
                place = _Place(source, 0, f"question {asked.get('id', '?')}: ", reading)
                question = _said(asked, "question", place)
                if question is None:
                    continue
                if question.strip() and context.strip():
                    yield 0, (question, context), _squad_answers(context, asked, place)
                else:
                    place.count("questions were skipped, for they or their contexts are empty", "empty; skipped.")


def _objects(source: str, holder: Mapping[str, Any], name: str, reading: Reading) -> Iterator[Mapping[str, Any]]:
    """The objects in the list of that name; anything else there is a fault."""
    items = holder.get(name)
    if not isinstance(items, (list, tuple)):
        shown = ", ".join(map(str, holder))[:60]
        reading.fault(source, 0, f"an object with {shown} has no list of {name}; give it one, or remove it.")
    for number, item in enumerate(items if isinstance(items, (list, tuple)) else (), 1):
        if isinstance(item, Mapping):
            yield item
        else:
            reading.fault(source, 0, f"item {number} of a list of {name} is not an object {{…}}.")


def _said(holder: Mapping[str, Any], name: str, place: _Place) -> str | None:
    """The text in the field, cleaned; empty where there is none; None after a fault."""
    value = holder.get(name, "")
    if value is None or isinstance(value, str):
        return clean(value or "", place.source, place.line, place.reading)
    place.fault(f"the {name} is {value!r:.40}, but must be text.")
    return None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer is being read, for whoever counts what is wrong with it."""

    source: str
    line: int
    where: str
    reading: Reading

    def count(self, what: str, message: str) -> None:
        self.reading.count(what, self.source, self.line, self.where + message)

    def fault(self, message: str) -> None:
        self.reading.fault(self.source, self.line, self.where + message)


def _squad_answers(context: str, asked: Mapping[str, Any], place: _Place) -> tuple[Answer, ...] | None:
    """The accepted answers; none for a question without one; None where the file does not say."""
    said = str(asked.get("is_impossible", "false")).lower()  # CJRC writes it as a text
    if said not in IMPOSSIBLE:
        place.fault(f"is_impossible is {asked['is_impossible']!r:.40}, but must be true or false.")
    if IMPOSSIBLE.get(said):
        if asked.get("answers"):
            what = "questions are said to have no answer and have some, which were passed over"
            place.count(what, "is_impossible is true, so its answers were passed over.")
        return ()
    if "answers" not in asked:
        return None
    given = [item for each in _listed(asked["answers"]) for item in _given(each, None, place)]
    return _placed_all(context, given, place)


def _placed_all(context: str, given: Iterable[tuple[str, Any]], place: _Place) -> tuple[Answer, ...]:
    held = list(given)
    for _ in range(sum(not text for text, _ in held)):
        place.count("answers are empty and were passed over", "an answer is empty; passed over.")
    once = dict.fromkeys((text, _start(start, place)) for text, start in held if text)
    return tuple(dict.fromkeys(placed(context, text, start, place) for text, start in once))


def _start(said: Any, place: _Place) -> int | None:
    """Where an answer is said to begin: a whole number, also written 12.0 or "12"; None: nothing is said."""
    if said is None or said == "":
        return None
    if isinstance(said, (int, float, str)) and not isinstance(said, bool):
        try:
            value = float(said)
            if value.is_integer():
                return int(value)
        except (ValueError, OverflowError):
            pass
    place.fault(f"answer_start is {str(said)[:30]!r}, but must be a whole number: the character with which it begins.")
    return None


def placed(context: str, text: str, start: int | None, place: _Place) -> Answer:
    """The answer where it is said to stand; else at the nearest place where it does stand; else without a place."""
    if start is not None and start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    places = all_places(context, text)
    if not places:
        what = "answers do not stand in their context; they count in evaluation but not in training"
        place.count(what, f"the answer {text[:30]!r} does not stand in the context.")
        return Answer(text)
    found = min(places, key=lambda place: abs(place - (start or 0)))
    if start is None and len(places) > 1:
        what = "answers have no answer_start and stand several times in their context; the first place was taken"
        place.count(what, f"the answer {text[:30]!r} stands {len(places)} times; the first place was taken.")
    if start is not None:
        what = "answers did not stand at answer_start and were moved to the nearest place where they do"
        place.count(what, f"the answer {text[:30]!r} does not stand at {start}; the nearest place is {found}.")
    return Answer(text, found)


def answer_rows(source: str, rows: Iterator[Row], roles: dict[str, str], reading: Reading) -> Iterator[Found]:
    """Rows with question, context and answers: {text: […], answer_start: […]}, a list of such, or one text."""
    for line, row in rows:
        question = text_of(source, line, row, roles["question"], reading)
        context = text_of(source, line, row, roles["context"], reading)
        if question is None or context is None:
            continue
        given = row.get(roles.get("answers", ""))
        gold = None
        if given is not None:
            place = _Place(source, line, "", reading)
            gold = _placed_all(context, _given(given, row.get(roles.get("answer_start", "")), place), place)
        yield line, (question, context), gold


def _given(answers: Any, starts: Any, place: _Place) -> Iterator[tuple[str, Any]]:
    """(text, where it is said to begin) of each answer; starts: what a column of its own says of that."""
    if isinstance(answers, Mapping) and "text" in answers:
        yield from _given(answers["text"], answers.get("answer_start", starts), place)
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
            yield from _given(item, start, place)
    elif answers != {}:
        message = f"the answers are {answers!r:.40}, but must be text, or {{text: […], answer_start: […]}}."
        place.fault(message)


# -- choose ------------------------------------------------------------------------------------------------------


NUMBERED = re.compile(r"(?:ending|option|choice)[ _]?(\d+|[a-z])", re.IGNORECASE)


def choice_examples(source: str, reading: Reading) -> Iterator[Found]:
    """The questions of a C3/DREAM-style file; texts are (passage, question, choice, choice, …)."""
    value = whole_json(source, reading)
    answers = Answers()
    for _, asked, place in _asked(source, value, _quiet(reading)):
        _look(answers, asked.get("choice"), asked.get("answer"), place)
    for passage, asked, place in _asked(source, value, reading):
        question = _said(asked, "question", place)
        if question is None:
            continue
        yield from _question(place, (passage, question), (asked.get("choice"), asked.get("answer")), answers)


def _asked(source: str, entries: Any, reading: Reading) -> Iterator[tuple[str, Mapping[str, Any], _Place]]:
    """(passage, question, where it stands) of each question of the file."""
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, list) or len(entry) < 2:
            reading.fault(source, 0, f"entry {number} is not [[lines], [questions], id].")
            continue
        lines = _listed(entry[0])
        if not all(isinstance(line, str) for line in lines):
            reading.fault(source, 0, f"entry {number} must begin with the lines of its passage, each a text.")
            continue
        passage = clean("\n".join(lines), source, 0, reading)
        for asked in _objects(source, {"questions": entry[1]}, "questions", reading):
            said = str(asked.get("question", ""))[:30]
            yield passage, asked, _Place(source, 0, f"entry {number}, question {said!r}: ", reading)


def choice_rows(
    source: str, rows: Iterator[Row], again: Iterator[Row], roles: dict[str, str], reading: Reading
) -> Iterator[Found]:
    """Rows with a context, a question if any, a list of options or columns ending0, ending1, … and the right one.

    again: the same rows, from which it is told how the right ones are written.
    """
    answers = Answers()
    for line, row in again if "label" in roles else ():
        place = _Place(source, line, "", _quiet(reading))
        _look(answers, _options(row, roles, place), row.get(roles["label"]), place)
    if doubt := answers.doubt():
        reading.tell(doubt)
    for line, row in rows:
        passage = text_of(source, line, row, roles["context"], reading)
        question = text_of(source, line, row, roles["question"], reading) if "question" in roles else ""
        if passage is None or question is None:
            continue
        place = _Place(source, line, "", reading)
        given = (_options(row, roles, place), row.get(roles.get("label", "")))
        yield from _question(place, (passage, question), given, answers)


def _quiet(reading: Reading) -> Reading:
    return Reading(reading.encoding, "replace", fault=lambda *_: None, unit=reading.unit)


def _options(row: Mapping[str, Any], roles: Mapping[str, str], place: _Place) -> Any:
    """The options of a row: a list, or what stands in the columns ending0, ending1, … or option_a, option_b, …."""
    if "options" in roles:
        return row.get(roles["options"])
    found = [(match[1], value) for name, value in row.items() if (match := NUMBERED.fullmatch(name.strip()))]
    values = [value for _, value in sorted(found, key=lambda pair: (len(pair[0]), pair[0].lower()))]
    while values and values[-1] in ("", None):  # questions may have fewer options than there are columns
        values.pop()
    if "" in values or None in values:
        place.fault("an option is empty, but one after it is not; numbers and letters would miss.")
        return None
    return values


def _look(answers: Answers, options: Any, answer: Any, place: _Place) -> None:
    if answer not in (None, "") and isinstance(options, (list, tuple)) and all(isinstance(o, str) for o in options):
        where = f"at {place.reading.place(place.line)}" if place.line else f"in {place.where.rstrip(': ')}"
        answers.look([clean(option, "", 0, place.reading) for option in options], answer, where)


def _question(place: _Place, texts: tuple[str, str], given: tuple[Any, Any], answers: Answers) -> Iterator[Found]:
    """The one question, or none after a fault."""
    options, answer = given
    if not isinstance(options, (list, tuple)) or len(options) < 2 or not all(isinstance(each, str) for each in options):
        place.fault("needs two options or more: a list of texts, or columns ending0, ending1, ….")
        return
    choices = [clean(option, place.source, place.line, place.reading) for option in options]
    if answer in (None, ""):
        yield place.line, (*texts, *choices), None
        return
    gold, wrong = answers.number(choices, answer)
    if clash := answers.clash():
        wrong = wrong or clash
    if wrong:
        place.fault(wrong)
        return
    if choices.count(choices[gold]) > 1:
        what = "questions have their answer twice among the choices; the first was taken"
        place.count(what, f"the answer {answer!r} is not exactly one of the {len(choices)} choices, but two.")
    yield place.line, (*texts, *choices), gold


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
