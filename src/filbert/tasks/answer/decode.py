"""Scores of where an answer begins and ends in, stretches of the passage out; and back: gold answers to tokens.

Legend: P passage tokens in one window, L allowed lengths, R starts that can matter, K candidates, Q questions.

The one rule for windows: an answer is a stretch of characters. Whichever windows and tokens give it, it is one
candidate, with the best score of all windows that hold it whole. The score of "no answer" is the lowest of all windows:
there is none only where every window says so (Devlin et al. 2019, 4.3).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from filbert.core.errors import FilbertError, InputError
from filbert.core.records import Ints, Prediction, Span

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
PASSAGE = 1  # the part of a window that is searched: the question is part 0
NUM_CANDIDATES = 20
LONGEST = 128  # tokens: as many as neighbouring windows share, so that some window holds each such answer whole
SHOWN = 40  # characters of a text that an error quotes


class Window(Protocol):
    """The fields of a window that decoding needs; text.windows.WindowEncoding has them."""

    @property
    def parts(self) -> Ints:
        """[N] which text each token came from."""

    @property
    def starts(self) -> Ints:
        """[N] where each token begins in its text."""

    @property
    def ends(self) -> Ints:
        """[N] where each token ends in its text."""

    @property
    def owned(self) -> npt.NDArray[np.bool_]:
        """[N] whether this window owns the token."""


# -- decoding ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best stretches of one passage, best first; among equals the earlier, then the shorter."""

    starts: Places  # [K] text[start:end] is the answer
    ends: Places  # [K]
    scores: Numbers  # [K] score of the start plus score of the end
    null: float  # the same sum for "no answer"

    @property
    def margin(self) -> float:
        """How far "no answer" is ahead of the best candidate; what a threshold is compared with."""
        return self.null - float(self.scores[0]) if len(self.scores) else np.inf


def candidates(
    windows: Sequence[Window],
    start_scores: Sequence[npt.ArrayLike],
    end_scores: Sequence[npt.ArrayLike],
    num: int = NUM_CANDIDATES,
    longest: int = LONGEST,
    part: int = PASSAGE,
) -> Candidates:
    """The `num` best stretches of at most `longest` tokens, from the [N] scores of each window's tokens.

    Nothing is approximate: the result is that of trying all pairs. A score of -inf forbids a token.
    """
    if num < 1 or longest < 1:
        raise InputError(f"there are {num} candidates of at most {longest} tokens to find; both must be at least 1.")
    rows: list[tuple[Places, Places, Numbers]] = []
    nulls = []
    for window, starts, ends in zip(windows, start_scores, end_scores, strict=True):
        begin_N, end_N = (_checked(scores, len(window.parts)) for scores in (starts, ends))
        nulls.append(begin_N[0] + end_N[0])
        inside = np.flatnonzero(window.parts == part)
        if inside.size:
            rows.append(_stretches(window, inside, begin_N[inside], end_N[inside], num, longest))
    null = float(min(nulls, default=np.inf))
    if not rows:
        nothing = np.zeros(0, dtype=np.intp)
        return Candidates(nothing, nothing, np.zeros(0), null)
    starts_K, ends_K, scores_K = _distinct(*(np.concatenate(column) for column in zip(*rows, strict=True)))
    return Candidates(starts_K[:num], ends_K[:num], scores_K[:num], null)


def _checked(scores: npt.ArrayLike, num_tokens: int) -> Numbers:
    numbers = np.asarray(scores, dtype=np.float64)
    if numbers.shape != (num_tokens,):
        raise FilbertError(f"a window of {num_tokens} tokens has scores of shape {numbers.shape}.")
    if not (numbers < np.inf).all():  # NaN as well
        raise FilbertError("the scores of an answer are not finite; the model's weights are damaged or have diverged.")
    return numbers


def _stretches(
    window: Window, inside: Places, start_P: Numbers, end_P: Numbers, num: int, longest: int
) -> tuple[Places, Places, Numbers]:
    """At least the `num` best distinct stretches of one window."""
    starts_P, ends_P = window.starts[inside].astype(np.intp), window.ends[inside].astype(np.intp)
    wanted = num
    while True:
        first, last, scores, are_all = _pairs(start_P, end_P, wanted, min(longest, len(inside)))
        begins, ends = starts_P[first], ends_P[last]
        kept = (begins < ends) & _early(begins, scores, wanted)
        are_all = are_all and bool(kept[begins < ends].all())
        begins, ends, scores = _distinct(begins[kept], ends[kept], scores[kept])
        if are_all or len(begins) >= num:
            return begins, ends, scores
        wanted *= 2  # a character that is several tokens makes several pairs of one stretch


def _pairs(start_P: Numbers, end_P: Numbers, num: int, longest: int) -> tuple[Places, Places, Numbers, bool]:
    """First and last tokens and scores of the `num` best pairs and all their equals, and whether these are all pairs.

    A start whose best pair is not among the `num` best of all starts' best pairs has no pair among the `num` best.
    So few rows of the band of all pairs are ever made.
    """
    best_P = start_P + _running_best(end_P, longest)
    rows_R = np.flatnonzero(best_P >= max(_nth_best(best_P, num), -np.finfo(np.float64).max))
    padded = np.concatenate([end_P, np.full(longest - 1, -np.inf)])
    scores_RL = start_P[rows_R, None] + np.lib.stride_tricks.sliding_window_view(padded, longest)[rows_R]
    allowed = scores_RL > -np.inf
    chosen = allowed & (scores_RL >= _nth_best(scores_RL.ravel(), num))
    row, length = np.nonzero(chosen)
    are_all = len(rows_R) == np.count_nonzero(best_P > -np.inf) and len(row) == np.count_nonzero(allowed)
    return rows_R[row], rows_R[row] + length, scores_RL[row, length], are_all


def _early(begins: Places, scores: Numbers, num: int) -> npt.NDArray[np.bool_]:
    """Of all pairs that equal the last in score, often very many, those that begin no later than the `num` first."""
    are_tied = scores == scores.min(initial=np.inf)
    ties = np.flatnonzero(are_tied)
    last = begins[ties[num - 1]] if len(ties) > num else begins.max(initial=0)
    early: npt.NDArray[np.bool_] = ~are_tied | (begins <= last)
    return early


def _running_best(values_P: Numbers, width: int) -> Numbers:
    """[P] the highest of each value and the width - 1 after it, in log(width) steps."""
    best, reach = np.concatenate([values_P, np.full(width - 1, -np.inf)]), 1
    while 2 * reach <= width:
        best = np.maximum(best[:-reach], best[reach:])
        reach *= 2
    size = len(values_P)
    highest: Numbers = np.maximum(best[:size], best[width - reach :][:size])
    return highest


def _nth_best(values: Numbers, num: int) -> float:
    return float(np.partition(values, -num)[-num]) if num < len(values) else -np.inf


def _distinct(starts: Places, ends: Places, scores: Numbers) -> tuple[Places, Places, Numbers]:
    """Each stretch once, with its best score; best first, then earlier, then shorter."""
    order = np.lexsort((ends, starts, -scores))
    starts, ends, scores = starts[order], ends[order], scores[order]
    _, first = np.unique(starts * (ends.max(initial=0) + 1) + ends, return_index=True)
    first.sort()
    return starts[first], ends[first], scores[first]


def probabilities(candidates: Candidates, with_null: bool = True) -> tuple[Numbers, float]:
    """The softmax over the candidates and, with_null, "no answer": [K] of the former, one of the latter."""
    scores = np.append(candidates.scores, candidates.null if with_null else -np.inf)
    top = scores.max()
    if top == -np.inf:
        return np.zeros(len(candidates.scores)), 0.0
    shares = np.exp(scores - top) if top < np.inf else (scores == top).astype(np.float64)
    shares /= shares.sum()
    return shares[:-1], float(shares[-1])


def prediction(text: str, candidates: Candidates, threshold: float | None = None, coverage: float = 1.0) -> Prediction:
    """The best answer as `label`, "" where there is none; all candidates as `spans`, with their probabilities.

    There is none where null - best > threshold; `scores` then and otherwise has the probability of that under "".
    Without a threshold every question has an answer (SQuAD 1.1), and "no answer" takes no part.
    """
    shares, none = probabilities(candidates, with_null=threshold is not None)
    columns = zip(candidates.starts.tolist(), candidates.ends.tolist(), shares.tolist(), strict=True)
    spans = tuple(Span(start, end, "", share) for start, end, share in columns)
    is_empty = not spans or (threshold is not None and candidates.margin > threshold)
    label = "" if is_empty else text[spans[0].start : spans[0].end]
    return Prediction(label, {} if threshold is None else {"": none}, spans, coverage)


def fitted_threshold(
    margins_Q: npt.ArrayLike, answered_Q: npt.ArrayLike, empty_Q: npt.ArrayLike
) -> tuple[float, float]:
    """The threshold with the highest mean score, and that mean, over all thresholds there are.

    `margins_Q` are Candidates.margin, `answered_Q` what the best candidate scores (EM or F1), `empty_Q` what an empty
    answer scores. Questions of one margin change sides together. The threshold lies midway to the next margin, so
    that it does not hang on a rounding; among equals it is the lowest. O(Q log Q).
    """
    margins, answered, empty = (np.asarray(values, dtype=np.float64) for values in (margins_Q, answered_Q, empty_Q))
    if not margins.size:
        raise InputError("there is no question to fit the threshold of 'no answer' on.")
    if np.isnan(margins).any():
        raise FilbertError("the scores of an answer are not finite; the model's weights are damaged or have diverged.")
    edges, side = np.unique(margins, return_inverse=True)
    gains = np.bincount(side, weights=answered - empty)
    moved = np.isfinite(edges)  # a passage without candidates stays empty at any threshold
    totals = empty.sum() + gains[edges == -np.inf].sum() + np.concatenate([np.zeros(1), np.cumsum(gains[moved])])
    best = int(np.argmax(totals))
    edges = edges[moved] if moved.any() else np.zeros(1)
    low = edges[best - 1] if best else min(edges[0] - 2.0, np.nextafter(edges[0], -np.inf))
    high = edges[best] if best < len(edges) else edges[-1] + 2.0
    middle = low + (high - low) / 2
    return float(middle if low <= middle < high else low), float(totals[best] / margins.size)


# -- gold answers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """Where an accepted answer stands in a passage's windows, or why no window can teach it.

    `rows` are (window, first token, last token), tokens counted in their window; the window that owns most of the
    answer comes first. text[start:end] is what those tokens decode to.
    """

    kind: str  # "exact", "widened" to whole tokens, "trimmed" of edges that have no token, or one of FAULTS
    rows: tuple[tuple[int, int, int], ...] = ()
    start: int = 0
    end: int = 0
    fault: str = ""  # a sentence for the user where there are no rows


FAULTS = ("no token", "no window")


def target(text: str, windows: Sequence[Window], answer: str, start: int, part: int = PASSAGE) -> Target:
    """The first and last token of the answer that stands at text[start:], in every window that holds it whole."""
    end = start + len(answer)
    if not answer or start < 0 or text[start:end] != answer:
        raise InputError(_misplaced(text, answer, start))
    insides = [np.flatnonzero(window.parts == part) for window in windows]
    offsets = _offsets(windows, insides)
    starts, ends = (
        _laid([getattr(window, name) for window in windows], insides, offsets) for name in ("starts", "ends")
    )
    first, after = int(np.searchsorted(ends, start, "right")), int(np.searchsorted(starts, end, "left"))
    named = f"the answer {_quoted(answer)} at character {start}"
    if first >= after:
        if any(map(_has_token, answer)):
            return Target("no window", fault=f"{named} stands in no window: its part of the passage is not read.")
        return Target("no token", fault=f"{named} holds nothing that the model can read.")
    begin, stop = int(starts[first]), int(ends[after - 1])
    if any(map(_has_token, text[start:begin] + text[max(stop, start) : end])):
        return Target(
            "no window", fault=f"{named} stands in no window to its end: the rest of the passage is not read."
        )
    rows = []
    for index, (window, inside, offset) in enumerate(zip(windows, insides, offsets, strict=True)):
        if offset <= first and after <= offset + len(inside):
            row = (index, int(inside[first - offset]), int(inside[after - 1 - offset]))
            rows.append((-int(window.owned[row[1] : row[2] + 1].sum()), row))
    if not rows:
        message = (
            f"{named} has {after - first} tokens, and no window holds all of them; let the windows overlap by more."
        )
        return Target("no window", fault=message)
    kind = "widened" if begin < start or stop > end else "trimmed" if (begin, stop) != (start, end) else "exact"
    return Target(kind, tuple(row for _, row in sorted(rows)), begin, stop)


def tally(targets: Iterable[Target]) -> dict[str, int]:
    """How many answers are of each kind."""
    counted = Counter(target.kind for target in targets)
    return {kind: counted[kind] for kind in ("exact", "widened", "trimmed", *FAULTS) if counted[kind]}


def _misplaced(text: str, answer: str, start: int) -> str:
    if not answer:
        return "an empty answer has no place; leave the list of answers empty where a question has none."
    if not 0 <= start < len(text):
        return f"the answer {_quoted(answer)} is said to stand at character {start}, but the passage has {len(text)}."
    stands = _quoted(text[start : start + len(answer)])
    place = text.find(answer)
    hint = f"it stands at {place}." if place >= 0 else "it stands nowhere in the passage."
    return f"the answer {_quoted(answer)} does not stand at character {start}: there stands {stands}, and {hint}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")


def _offsets(windows: Sequence[Window], insides: Sequence[Places]) -> list[int]:
    """How many of the passage's tokens come before each window's own; a window that owns none repeats the last."""
    offset = num_owned = 0
    offsets = []
    for window, inside in zip(windows, insides, strict=True):
        owned = np.flatnonzero(window.owned[inside])
        if owned.size:
            offset = num_owned - int(owned[0])
            num_owned += len(owned)
        offsets.append(offset)
    return offsets


def _laid(columns: Sequence[Ints], insides: Sequence[Places], offsets: Sequence[int]) -> Ints:
    """[passage tokens] the windows' values, each token's once."""
    sizes = [offset + len(inside) for inside, offset in zip(insides, offsets, strict=True)]
    whole = np.zeros(max(sizes, default=0), dtype=np.int32)
    for column, inside, offset in zip(columns, insides, offsets, strict=True):
        whole[offset : offset + len(inside)] = column[inside]
    return whole


def _has_token(char: str) -> bool:
    """Whether the character must be some token's: not so spaces, control characters and marks that are stripped."""
    return unicodedata.category(char)[0] in "LNPS" and char != "\ufffd"
