"""A text and where its tokens stand come in; its words, each with the numbers of its tokens, go out.

Chinese words are those of the segmenter (text.words), other words are cut at white space and punctuation. A token that
reaches over several words makes them one, as [MASK] does of its brackets; what a reader sees as one sign, such as a
family of emoji or a letter with its accents, is never cut.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from filbert.core.protocols import Segmenter
from filbert.text.words import segmenter, word_spans

JOINER = "\u200d"  # stands between the parts of one emoji
MODIFIERS = range(0x1F3FB, 0x1F400)  # skin tones
FLAGS = range(0x1F1E6, 0x1F200)  # two of these letters are a flag


@dataclass(frozen=True, slots=True)
class Group:
    """A word: text[start:end], and its tokens' numbers in order."""

    start: int
    end: int
    tokens: tuple[int, ...]


def grouped(text: str, starts: npt.ArrayLike, ends: npt.ArrayLike) -> list[Group]:
    """The words of a text that hold at least one token, in order; every token is in just one of them.

    starts, ends: where each token stands in the text, the tokens in the order of the text.
    """
    begins, behind = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    if not len(begins):
        return []
    spans = list(_whole(text, word_spans(text, _segmenter())))
    edges = np.array([end for _, end in spans], dtype=np.int64)
    groups: list[Group] = []
    for token, (start, end) in enumerate(zip(begins.tolist(), behind.tolist(), strict=True)):
        first = int(np.searchsorted(edges, start, side="right"))
        last = int(np.searchsorted(edges, max(start, end - 1), side="right"))
        if first < len(spans):  # else only signs that are no part of a word are left
            start = min(start, spans[first][0])
            end = max(end, spans[min(last, len(spans) - 1)][1] if last < len(spans) else end)
        if groups and start < groups[-1].end:
            before = groups.pop()
            groups.append(Group(before.start, max(before.end, end), (*before.tokens, token)))
        else:
            groups.append(Group(start, end, (token,)))
    return groups


def _whole(text: str, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The words, those put together between which no reader sees an edge."""
    start, end = spans[0] if spans else (0, 0)
    for next_start, next_end in spans[1:]:
        if next_start == end and _is_one(text, start, end):
            end = next_end
            continue
        yield start, end
        start, end = next_start, next_end
    if spans:
        yield start, end


def _is_one(text: str, start: int, edge: int) -> bool:
    """Whether what stands around the edge of a word that begins at `start` is one sign."""
    before, after = text[edge - 1], text[edge]
    if JOINER in (before, after) or ord(after) in MODIFIERS or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    if _is_letter(before) and _is_letter(after):  # a Chinese segmenter knows no other words
        return True
    if ord(before) not in FLAGS or ord(after) not in FLAGS:
        return False
    run = edge
    while run > start and ord(text[run - 1]) in FLAGS:
        run -= 1
    return (edge - run) % 2 == 1  # an odd letter waits for its second one


def _is_letter(char: str) -> bool:
    """A letter or digit that is no ideograph."""
    is_han = "\u3400" <= char <= "\u9fff" or "\uf900" <= char <= "\ufaff" or char >= "\U00020000"
    return char.isalnum() and not is_han


@cache
def _segmenter() -> Segmenter:
    return segmenter("auto")
