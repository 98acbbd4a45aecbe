"""Tokens that stand in raw texts and a text in; where they stand in it out.

transformers looks for some as they are written, and for others, which are marked as normalized, in the text as BERT
folds it: in lower case, without accents, with spaces around ideographs, and the token folded alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from filbert.text.characters import Characters


class Normalized(str):
    """A token that is looked for in the folded text."""

    __slots__ = ()


class Place(NamedTuple):
    """Where a token stands, and its id."""

    start: int
    end: int
    number: int


class Finder:
    """Looks for tokens in texts."""

    def __init__(self, tokens: Iterable[str], ids: Mapping[str, int], characters: Characters) -> None:
        tokens = list(tokens)
        self.ids, self.characters = ids, characters
        self.raw = _alternatives(token for token in tokens if not isinstance(token, Normalized))
        folded = [(characters.normal(token), ids[token]) for token in tokens if isinstance(token, Normalized)]
        self.forms = {form: index for form, index in reversed(folded) if form.strip()}
        self.folded = _alternatives(self.forms)
        self.looks_for_any = self.raw is not None or self.folded is not None

    def stands_in(self, text: str) -> bool:
        """Whether one of the tokens does."""
        return next(self.places(text), None) is not None

    def places(self, text: str) -> Iterator[Place]:
        """All of them in order: those as they are written first, and between these the others."""
        at = 0
        for match in self.raw.finditer(text) if self.raw is not None else ():
            yield from self._folded(text, at, match.start())
            yield Place(*match.span(), self.ids[match[0]])
            at = match.end()
        yield from self._folded(text, at, len(text))

    def _folded(self, text: str, start: int, end: int) -> Iterator[Place]:
        if self.folded is None:
            return
        matches = list(self.folded.finditer(self.characters.normal(text[start:end])))
        if not matches:
            return
        edges = np.array([0, *accumulate(len(self.characters.normal(char)) for char in text[start:end])])
        for match in matches:
            first = int(np.searchsorted(edges, match.start(), "right")) - 1
            last = int(np.searchsorted(edges, match.end(), "left"))
            yield Place(start + first, start + last, self.forms[match[0]])


def _alternatives(tokens: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern for any of the tokens, the longest first."""
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
