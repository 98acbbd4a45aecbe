"""Packed ids in; the rows that are masked, what stands there instead, and their gold ids out.

What is masked or left as one is a unit: a token, a word, or a run of words. Of the chosen tokens 80 % become [MASK],
10 % a random token and 10 % stay (Devlin et al. 2019, §3.1). All sequences of a pack are done at once; every draw is
keyed by its sequence, so a sequence gets the same masks in whatever pack it lies.

Legend: T tokens of the row, U units, B sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filbert.core.random import Draws, Keys, uniforms
from filbert.core.records import Wholes

KINDS = ("whole-word", "token", "span", "both")
SPAN_PROB, SPAN_WORDS = 0.2, 10  # a run of words ends with this chance after each, and at so many (SpanBERT, §3.1)
UNITS, STRADDLES, DICE, WHICH, SPANS, KIND = range(1, 7)  # one counter stream for each kind of draw
STREAM = 2**40

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of tokens about to be masked."""

    owners: Places  # [T] the sequence each token is in
    places: Places  # [T] its place in that sequence
    ordinary: Flags  # [T] not a special token
    words: Flags  # [T] begins a word
    keys: Keys  # [B] what each sequence's draws hang on


def draws(row: Row, stream: int, at: Places) -> Draws:
    """A draw for each token at these rows of the row."""
    return uniforms(row.keys[row.owners[at]], row.places[at] + stream * STREAM)


def chosen(row: Row, kind: str, mask_prob: float) -> Places:
    """Rows of the tokens to mask: units in random order until `mask_prob` of a sequence's tokens are taken.

    The unit that straddles the mark is taken with just the chance that keeps the rate exact on average.
    """
    tokens = np.flatnonzero(row.ordinary)
    if not len(tokens):
        return tokens
    begins = _begins(row, kind, tokens)
    heads = tokens[begins]  # [U] each unit's first token
    unit = np.cumsum(begins) - 1  # [T'] of each ordinary token
    sizes = np.bincount(unit, minlength=len(heads))
    owners = row.owners[heads]
    # Whole numbers, so that a sequence's order does not hang on its place in the pack.
    order = np.argsort(owners * 2**44 + (draws(row, UNITS, heads) * 2**44).astype(np.int64), kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    num_seqs = len(row.keys)
    totals = np.bincount(row.owners[tokens], minlength=num_seqs)
    starts = np.cumsum(totals) - totals
    left = (totals * mask_prob)[owners[order]] - (before - starts[owners[order]])
    taken = np.zeros(len(heads), dtype=bool)
    taken[order] = left > draws(row, STRADDLES, heads[order]) * sizes[order]
    rows: Places = tokens[taken[unit]]
    return rows


def _begins(row: Row, kind: str, tokens: Places) -> Flags:
    """Which of these tokens begin a unit; the first of a part always does."""
    gap = np.ones(len(tokens), dtype=bool)
    gap[1:] = np.diff(tokens) > 1  # a special token lies between
    if kind == "token":
        return np.ones(len(tokens), dtype=bool)
    words = row.words[tokens] | gap
    if kind == "both":
        by_token = uniforms(row.keys, KIND * STREAM) < 0.5
        return words | by_token[row.owners[tokens]]
    if kind == "span":
        count = np.cumsum(words)
        first = np.flatnonzero(gap)
        nth: Places = count - np.repeat(count[first], np.diff([*first, len(tokens)]))  # of the words in this part
        begins: Flags = gap | (words & ((draws(row, SPANS, tokens) < SPAN_PROB) | (nth % SPAN_WORDS == 0)))
        return begins
    return words


def hidden(row: Row, rows: Places, gold: Wholes, mask_id: int, others: Wholes) -> Wholes:
    """What stands at the chosen rows: [MASK], one of the `others`, or the token itself."""
    dice = draws(row, DICE, rows)
    swapped = others[(draws(row, WHICH, rows) * len(others)).astype(np.int64)]
    return np.where(dice < 0.8, mask_id, np.where(dice < 0.9, swapped, gold)).astype(gold.dtype)
