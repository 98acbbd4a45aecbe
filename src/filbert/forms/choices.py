"""Right choices as a file writes them (texts, numbers from 0, letters) come in; which choice each is goes out.

How they are written is decided once, by all of them: "2" is the second option's text or the third option's number, but
never the one in one row and the other in the next. What does not fit the others is named.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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

    def look(self, options: Sequence[str], answer: Any, where: str) -> None:
        """One more answer, read in every way that it can be."""
        found = readings(options, answer)
        self.num += bool(found)
        self.numbers |= {found[NUMBER]} if NUMBER in found else set()
        for way in found:
            self.fitting[way] += 1
            self.first.setdefault(way, where)
        for one, two in itertools.combinations(found, 2):
            if found[one] != found[two]:
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

    def number(self, options: Sequence[str], answer: Any) -> tuple[int, str]:
        """(which option is right, what is wrong with the answer where none is)."""
        found = readings(options, answer)
        if self.way in found:
            return found[self.way], ""
        message = f"the answer {answer!r} is not exactly one of the {len(options)} choices"
        if not found:
            return -1, f"{message}; write its text or its number, counted from 0."
        other, first = next(iter(found)), self.first[self.way]
        return -1, f"the answer {answer!r} can only be {other}, but {first} it is {self.way}; write all alike."


def readings(options: Sequence[str], answer: Any) -> dict[str, int]:
    """Each way in which the answer can be read -> the option that it then is."""
    if isinstance(answer, bool):
        return {}
    if isinstance(answer, (int, float)):
        return {NUMBER: int(answer)} if answer in range(len(options)) else {}
    said, found = str(answer), dict[str, int]()
    if said in options:
        found[TEXT] = list(options).index(said)
    if said.isascii() and said.isdigit() and int(said[:9]) < len(options):
        found[NUMBER] = int(said[:9])
    if len(said) == 1 and said.upper() in LETTERS[: len(options)]:
        found[LETTER] = LETTERS.index(said.upper())
    return found
