"""Scores of units in, the best legal tags of each sequence and every tag's probability out, without torch.

Legend: T units of all sequences laid end to end, B sequences, L tags, n sequences that still go on at a step.

Viterbi, forward and backward over sequences side by side, as nn.crf walks them; sums are float32, or float64 where the
scores are, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from filbert.core.errors import FilbertError, InputError
from filbert.core.records import Floats, Reals

Places = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MOST = 1e30  # scores beyond are taken for it: no sum of them leaves float32, so a legal path beats every illegal one
NEVER = np.float32(-1e30)  # the logarithm of what cannot be


class Transitions(NamedTuple):
    """A CRF's scores of the first tag, of each pair of neighbours and of the last tag."""

    begin_L: Floats
    pair_LL: Floats  # from row to column
    end_L: Floats


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which tags may stand first, which may follow which, which may stand last."""

    begin: Bools  # [L]
    pair: Bools  # [L, L] from row to column
    end: Bools  # [L]

    def impossible(self) -> int | None:
        """The shortest length that no legal sequence has, None where there is one of each length."""
        reached, seen, length = self.begin, set[bytes](), 1
        while reached.tobytes() not in seen:
            if not (reached & self.end).any():
                return length
            seen.add(reached.tobytes())
            reached, length = np.asarray(self.pair[reached].any(axis=0)), length + 1
        return None

    def broken(self, gold_T: npt.ArrayLike, boundaries: npt.ArrayLike) -> Places:
        """The units, in order, at which a sequence takes a step that is not allowed, or ends where it may not."""
        gold, bounds = np.asarray(gold_T, dtype=np.int64), np.asarray(boundaries, dtype=np.int64)
        if gold.size and not 0 <= gold.min() <= gold.max() < len(self.begin):
            raise InputError(f"tags go from 0 to {len(self.begin) - 1}, but here from {gold.min()} to {gold.max()}.")
        filled = np.diff(bounds) > 0
        first, last = bounds[:-1][filled], bounds[1:][filled] - 1
        wrong = np.zeros(len(gold), dtype=np.bool_)
        wrong[1:] = ~self.pair[gold[:-1], gold[1:]]
        wrong[first] = ~self.begin[gold[first]]  # also where the line above looked across two sequences
        wrong[last] |= ~self.end[gold[last]]
        return np.flatnonzero(wrong)


@dataclass(frozen=True, slots=True)
class Steps:
    """Units of packed sequences by their place in the sequence, without padding: all first ones, all second ones, …

    Within a step the longest sequence comes first, so those that go on to the next step are always the first n.
    """

    rows: Places  # [T] the units in that order
    edges: list[int]  # step s is rows[edges[s]:edges[s+1]]
    order: Places  # the sequences that hold units, the longest first

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """(begin, end, how many go on) of each step."""
        sizes = np.diff([*self.edges, self.edges[-1]]).tolist()
        return list(zip(self.edges[:-1], self.edges[1:], sizes[1:], strict=True))


def steps(boundaries: npt.ArrayLike, num_units: int) -> Steps:
    """How to walk sequences side by side: as many steps as the longest has units."""
    bounds = np.asarray(boundaries, dtype=np.int64)
    lengths = np.diff(bounds)
    if int(lengths.sum()) != num_units or (lengths < 0).any() or bounds[:1].any():
        raise InputError(f"the boundaries of the sequences must go from 0 up to {num_units}, the number of units.")
    order = np.argsort(-lengths, kind="stable")[: int((lengths > 0).sum())]
    sizes = lengths[order]
    counts = np.searchsorted(-sizes, -np.arange(sizes[0] if len(sizes) else 0), side="left")
    edges = np.concatenate(([0], np.cumsum(counts)))
    within = np.arange(int(edges[-1])) - np.repeat(edges[:-1], counts)
    rows = bounds[order][within] + np.repeat(np.arange(len(counts)), counts)
    return Steps(rows, edges.tolist(), order)


def viterbi(
    scores_TL: npt.ArrayLike,
    boundaries: npt.ArrayLike,
    weights: Transitions | None = None,
    legal: Allowed | None = None,
) -> Places:
    """[T] the tags of the best legal sequences.

    Without weights: the best legal sequence by the units' own scores (their log-probabilities, say). Of equally good
    ones the lowest tag wins, at the last unit first and then backwards.
    """
    scores = np.asarray(scores_TL)
    scores = bounded(scores if scores.dtype == np.float64 else scores.astype(np.float32))
    size = scores.shape[1]
    learned = (np.zeros(size), np.zeros((size, size)), np.zeros(size)) if weights is None else weights
    open_: Sequence[npt.ArrayLike] = (True, True, True) if legal is None else (legal.begin, legal.pair, legal.end)
    begin_L, pair_LL, end_L = (
        np.where(may, bounded(np.asarray(weight, dtype=scores.dtype)), -np.inf).astype(scores.dtype)
        for weight, may in zip(learned, open_, strict=True)
    )
    walk = steps(boundaries, len(scores))
    by_step_TL, into = scores[walk.rows], _into(pair_LL)
    best_nL = begin_L + by_step_TL[: len(walk.order)]
    pointers, finals = [], []
    for start, end, num_on in walk.ranges:
        if start:
            reached_nL, pointer_nL = into(best_nL)
            pointers.append(pointer_nL)
            best_nL = reached_nL + by_step_TL[start:end]
        finals.append(best_nL[num_on:] + end_L)
        best_nL = best_nL[:num_on]
    if any(np.isneginf(final.max(axis=1)).any() for final in finals if len(final)):
        raise InputError("a sequence has no legal tags at all: what is allowed leaves none of its length.")
    result = np.empty(len(scores), dtype=np.int64)
    tag_n = np.empty(0, dtype=np.int64)
    for step in range(len(finals) - 1, -1, -1):
        going_on = pointers[step][np.arange(len(tag_n)), tag_n] if len(tag_n) else tag_n
        tag_n = np.concatenate((going_on, finals[step].argmax(axis=1)))
        result[walk.rows[walk.edges[step] : walk.edges[step + 1]]] = tag_n
    return result


def _into(pair_LL: Reals) -> Callable[[Reals], tuple[Reals, Places]]:
    """What gives, from the best of each tag [n, L], the best way into each tag [n, L] and where it comes from.

    Tags that may follow the same tags at the same price, as all that begin an entity do, are asked about once, and only
    of those that lead to them. Of equals the lowest is taken.
    """
    kinds_GL, kind_of_L = np.unique(pair_LL.T, axis=0, return_inverse=True)
    from_ = [np.flatnonzero(row > -np.inf) for row in kinds_GL]
    width = max(1, max(map(len, from_), default=1))
    if 2 * width > len(pair_LL):  # to pick those few out would cost more than to ask all
        members = np.broadcast_to(np.arange(len(pair_LL)), kinds_GL.shape)
        return lambda best_nL: _best(best_nL[:, None] + kinds_GL, members, kind_of_L)
    member_GM, price_GM = np.zeros((len(from_), width), np.int64), np.full((len(from_), width), -np.inf, pair_LL.dtype)
    for row, (tags_, prices) in enumerate(zip(from_, kinds_GL, strict=True)):
        member_GM[row, : len(tags_)], price_GM[row, : len(tags_)] = tags_, prices[tags_]
    return lambda best_nL: _best(best_nL[:, member_GM] + price_GM, member_GM, kind_of_L)


def _best(reach_nGM: Reals, member_GM: Places, kind_of_L: Places) -> tuple[Reals, Places]:
    """[n, L] the best way into each tag of these kinds, and [n, L] the tag that it comes from."""
    at_nG1 = reach_nGM.argmax(axis=2)[:, :, None]
    reached_nG = np.take_along_axis(reach_nGM, at_nG1, 2)[:, :, 0]
    from_nG = np.take_along_axis(np.broadcast_to(member_GM, reach_nGM.shape), at_nG1, 2)[:, :, 0]
    return reached_nG[:, kind_of_L], from_nG[:, kind_of_L]


def bounded(values: Reals) -> Reals:
    """The values within ±MOST; a tag cannot be told from what is not a number."""
    if np.isnan(values).any():
        raise FilbertError("the tagger's scores are not numbers (NaN): its weights are damaged, or training diverged.")
    return np.asarray(np.clip(values, -MOST, MOST))


def marginals(scores_TL: npt.ArrayLike, boundaries: npt.ArrayLike, weights: Transitions, legal: Allowed) -> Floats:
    """[T, L] how likely each tag is over all legal sequences."""
    scores = np.asarray(scores_TL)
    scores = scores if scores.dtype == np.float64 else scores.astype(np.float32)
    masks = (legal.begin, legal.pair, legal.end)
    begin_L, pair_LL, end_L = (
        np.where(may, np.asarray(weight, dtype=scores.dtype), NEVER) for weight, may in zip(weights, masks, strict=True)
    )
    walk = steps(boundaries, len(scores))
    by_step_TL, ahead, back = scores[walk.rows], _Sums(pair_LL), _Sums(pair_LL.T)
    alpha_TL = np.empty_like(by_step_TL)
    raw_nL = begin_L + by_step_TL[: len(walk.order)]
    for start, end, num_on in walk.ranges:
        if start:
            raw_nL = ahead(raw_nL) + by_step_TL[start:end]
        raw_nL = raw_nL - _total(raw_nL, 1)[:, None]
        alpha_TL[start:end] = raw_nL
        raw_nL = raw_nL[:num_on]
    by_step_chances_TL, beta_nL = np.empty_like(alpha_TL), np.zeros((0, len(end_L)), dtype=scores.dtype)
    for start, end, num_on in reversed(walk.ranges):
        if num_on:
            beta_nL = back(by_step_TL[end : end + num_on] + beta_nL)
            beta_nL = beta_nL - beta_nL.max(axis=1, keepdims=True)
        beta_nL = np.concatenate((beta_nL, np.broadcast_to(end_L, (end - start - num_on, len(end_L)))))
        log_nL = alpha_TL[start:end] + beta_nL
        by_step_chances_TL[start:end] = np.exp(log_nL - _total(log_nL, 1)[:, None])
    chances_TL = np.empty_like(by_step_chances_TL)
    chances_TL[walk.rows] = by_step_chances_TL
    return chances_TL


class _Sums:
    """log Σ_i exp(x[i] + pair[i, j]) for rows of x, by a matrix product: L² exponentials once instead of for each row.

    A row that comes near the end of the floats' range is summed anew without leaving the logarithms (nn.crf._Sums).
    """

    LEAST = 1e-30

    def __init__(self, pair_LL: Floats) -> None:
        self.pair_LL, self.top = pair_LL, pair_LL.max(initial=NEVER)
        self.exp_LL = np.exp(pair_LL - self.top)
        self.never_L = (pair_LL <= NEVER / 2).all(axis=0)  # nothing leads there

    def __call__(self, x_nL: Floats) -> Floats:
        """[n, L]."""
        most_n1 = x_nL.max(axis=1, keepdims=True, initial=NEVER)
        sums_nL = np.exp(x_nL - most_n1) @ self.exp_LL
        near_n = ((sums_nL < self.LEAST) & ~self.never_L).any(axis=1)
        with np.errstate(divide="ignore"):  # what nothing leads to has no sum at all
            result_nL: Floats = np.where(self.never_L, NEVER, np.log(sums_nL) + most_n1 + self.top)
        if near_n.any():
            result_nL[near_n] = _total(x_nL[near_n][:, :, None] + self.pair_LL, 1)
        return result_nL


def _total(x: Reals, axis: int) -> Floats:
    """The logarithm of the sum of exponentials."""
    most = x.max(axis=axis, keepdims=True, initial=NEVER)
    return np.asarray(np.log(np.exp(x - most).sum(axis=axis)) + most.squeeze(axis), dtype=x.dtype)
