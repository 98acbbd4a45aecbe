"""Questions with options to choose from come in (C3, rows); texts with the number of the right option go out.

How right options are written (as texts, numbers from 0, letters) is decided once, by all of a file: "2" is the second
option's text or the third option's number, but never the one in one row and the other in the next. What does not fit
the others is named.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from filbert.forms.formats import whole_json
from filbert.forms.markup import text_of
from filbert.forms.questions import Place, as_list, objects, text_field
from filbert.forms.spec import Entry, Roles, Rows
from filbert.text.streams import Reading, clean

ANSWER = "answer"  # the field of the right choice, in JSON as C3 and DREAM have it
NUMBERED = re.compile(r"(?:ending|option|choice)[ _]?(\d+|[a-z])", re.IGNORECASE)


def choice_examples(source: str, reading: Reading) -> Iterator[Entry]:
    """The questions of a C3/DREAM-style file; texts are (passage, question, choice, choice, …)."""
    value = whole_json(source, reading)
    answers = Answers()
    for _, fields, place in _questions(source, value, _quiet(reading)):
        _look(answers, fields.get("choice"), fields.get(ANSWER), place)
    for passage, fields, place in _questions(source, value, reading):
        question = text_field(fields, "question", place)
        if question is None:
            continue
        yield from _question(place, (passage, question), (fields.get("choice"), fields.get(ANSWER)), answers)


def _questions(
    source: str, entries: Iterable[object], reading: Reading
) -> Iterator[tuple[str, Mapping[str, Any], Place]]:
    """(passage, question, where it stands) of each question of the file."""
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, list) or len(entry) < 2:
            reading.fault(source, 0, f"entry {number} is not [[lines], [questions], id].")
            continue
        lines = as_list(entry[0])
        if not all(isinstance(line, str) for line in lines):
            reading.fault(source, 0, f"entry {number} must begin with the lines of its passage, each a text.")
            continue
        passage = clean("\n".join(lines), source, 0, reading)
        for fields in objects(source, {"questions": entry[1]}, "questions", reading):
            question = str(fields.get("question", ""))[:30]
            yield passage, fields, Place(source, 0, f"entry {number}, question {question!r}: ", reading)


def rows(source: str, rows: Rows, roles: Roles, reading: Reading) -> Iterator[Entry]:
    """Rows with a context, a question if any, a list of options or columns ending0, ending1, … and the right one.

    They are read twice where they are labelled: how the right ones are written is told from all.
    """
    answers = Answers()
    for line, row in rows(_quiet(reading)) if "label" in roles else ():
        place = Place(source, line, "", _quiet(reading))
        _look(answers, _options(row, roles, place), row.get(roles["label"]), place)
    if doubt := answers.doubt():
        reading.tell(doubt)
    for line, row in rows(reading):
        passage = text_of(source, line, row, roles["context"], reading)
        question = text_of(source, line, row, roles["question"], reading) if "question" in roles else ""
        if passage is None or question is None:
            continue
        place = Place(source, line, "", reading)
        answer = (_options(row, roles, place), row.get(roles.get("label", "")))
        yield from _question(place, (passage, question), answer, answers)


def _quiet(reading: Reading) -> Reading:
    return Reading(reading.encoding, "replace", fault=lambda *_: None, unit=reading.unit)


def _options(row: Mapping[str, object], roles: Roles, place: Place) -> object:
    """The options of a row: a list, or what stands in the columns ending0, ending1, … or option_a, option_b, …."""
    if "options" in roles:
        return row.get(roles["options"])
    numbered = [(match[1], value) for name, value in row.items() if (match := NUMBERED.fullmatch(name.strip()))]
    values = [value for _, value in sorted(numbered, key=lambda pair: (len(pair[0]), pair[0].lower()))]
    while values and values[-1] in ("", None):  # questions may have fewer options than there are columns
        values.pop()
    if "" in values or None in values:
        place.fault("an option is empty, but one after it is not; numbers and letters would miss.")
        return None
    return values


def _look(answers: Answers, options: object, answer: object, place: Place) -> None:
    if answer not in (None, "") and isinstance(options, (list, tuple)) and all(isinstance(o, str) for o in options):
        where = f"at {place.reading.place(place.line)}" if place.line else f"in {place.where.rstrip(': ')}"
        answers.look([clean(option, "", 0, place.reading) for option in options], answer, where)


def _question(
    place: Place, texts: tuple[str, str], answered: tuple[object, object], answers: Answers
) -> Iterator[Entry]:
    """The one question, or none after a fault."""
    options, answer = answered
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


# -- how right options are written -------------------------------------------------------------------------------


TEXT, NUMBER, LETTER = WAYS = ("the text of an option", "the number of an option, counted from 0", "a letter")
ENOUGH = 10  # answers of which one should be the first option
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(slots=True)
class Answers:
    """What all answers of a file have in common."""

    num: int = 0  # answers that can be read in one way at least
    fitting: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAYS, 0))
    first: dict[str, str] = field(default_factory=dict)  # way -> where it fits for the first time
    clashes: dict[tuple[str, str], str] = field(default_factory=dict)  # two ways -> where they mean two options
    numbers: set[int] = field(default_factory=set)  # the options that are right, where answers are numbers

    def look(self, options: Sequence[str], answer: object, where: str) -> None:
        """One more answer, read in every way that it can be."""
        ways = readings(options, answer)
        self.num += bool(ways)
        self.numbers |= {ways[NUMBER]} if NUMBER in ways else set()
        for way in ways:
            self.fitting[way] += 1
            self.first.setdefault(way, where)
        for one, two in itertools.combinations(ways, 2):
            if ways[one] != ways[two]:
                self.clashes.setdefault((one, two), where)

    @property
    def way(self) -> str:
        """How the answers are written: as nearly all can be read."""
        return max(WAYS, key=self.fitting.__getitem__)

    def doubt(self) -> str:
        """What to know of answers that are numbers and never 0, as where they are counted from 1; else nothing."""
        if self.way != NUMBER or self.num < ENOUGH or 0 in self.numbers:
            return ""
        return "no answer is 0, and numbers count from 0: if these count from 1, take 1 away from each."

    def clash(self) -> str:
        """What is wrong with all: they can be read in two ways that differ; nothing where one way is meant."""
        whole = [way for way in WAYS if self.fitting[way] == self.num]
        for pair in itertools.combinations(whole, 2):
            if pair in self.clashes:
                return (
                    f"every answer can be read as {pair[0]} and as {pair[1]}, and {self.clashes[pair]} these are two "
                    "options; write the answers as letters (A, B, …), or as texts that are no numbers."
                )
        return ""

    def number(self, options: Sequence[str], answer: object) -> tuple[int, str]:
        """(which option is right, what is wrong with the answer where none is)."""
        ways = readings(options, answer)
        if self.way in ways:
            return ways[self.way], ""
        message = f"the answer {answer!r} is not exactly one of the {len(options)} choices"
        if not ways:
            return -1, f"{message}; write its text or its number, counted from 0."
        other, first = next(iter(ways)), self.first[self.way]
        return -1, f"the answer {answer!r} can only be {other}, but {first} it is {self.way}; write all alike."


def readings(options: Sequence[str], answer: object) -> dict[str, int]:
    """Each way in which the answer can be read -> the option that it then is."""
    if isinstance(answer, bool):
        return {}
    if isinstance(answer, (int, float)):
        return {NUMBER: int(answer)} if answer in range(len(options)) else {}
    text, ways = str(answer), dict[str, int]()
    if text in options:
        ways[TEXT] = list(options).index(text)
    if text.isascii() and text.isdigit() and int(text[:9]) < len(options):
        ways[NUMBER] = int(text[:9])
    if len(text) == 1 and text.upper() in LETTERS[: len(options)]:
        ways[LETTER] = LETTERS.index(text.upper())
    return ways
