"""Scores over the vocabulary at a masked place in, ranked candidates in the user's characters out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from filbert.core.records import Floats


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to fill a blank: the text to put there, the vocabulary's token, and its probability."""

    text: str
    token: str
    score: float


@dataclass(frozen=True, slots=True)
class Blank:
    """One [MASK] in the user's text: text[start:end], and what the model would put there, best first."""

    start: int
    end: int
    candidates: tuple[Candidate, ...]


def ranked(
    scores_V: Floats, top: int, token_of: Callable[[int], str], barred: Sequence[int] = ()
) -> tuple[Candidate, ...]:
    """The `top` likeliest tokens with their share of all probability; `barred` ids (special tokens) are passed over."""
    shifted = np.exp(scores_V.astype(np.float64) - scores_V.max())
    shares = shifted / shifted.sum()
    open_ = shares.copy()
    open_[list(barred)] = -1.0
    best = np.argsort(-open_, kind="stable")[:top]
    names = [(token_of(int(index)), float(shares[index])) for index in best if open_[index] >= 0]
    return tuple(Candidate(name.removeprefix("##"), name, score) for name, score in names)


def filled(text: str, blanks: Sequence[Blank]) -> str:
    """The text with the best candidate in every blank."""
    for blank in sorted(blanks, key=lambda blank: -blank.start):
        if blank.candidates:
            text = text[: blank.start] + blank.candidates[0].text + text[blank.end :]
    return text
