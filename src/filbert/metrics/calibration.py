"""Scores and the right answers in; how far the probabilities can be believed, and what temperature mends them, out.

Legend: N examples, L labels (or options, of which a row may have fewer: what is missing is -inf), B bins.

A temperature divides all scores before they become probabilities, so no label changes (Guo et al. 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
BINS = 15  # as Guo et al. 2017 have them
COLDEST, HOTTEST = 0.05, 20.0  # beyond these a temperature says more of the data's size than of the model
ROUNDS, CLOSE = 60, 1e-10
# A temperature, or a threshold, is fitted on no fewer examples. In a simulation of models with 2 and 10 labels, 150
# draws each, whose scores were 1.3 times too large, a temperature from 20 or 30 made the log loss on others worse in
# a quarter to a half of the draws, one from 50 in 31 and 13 %, and better on average. Where they were twice too large
# 20 were enough; where nothing was wrong any fit did a little harm (from 50 examples 0.007 and 0.012). Nine in ten of
# those from 50 lay between 0.67 and 1.64 times the right one. For thresholds the number is taken over, not measured.
FEWEST = 50


def too_few(field: str, count: int, stays: str) -> str:
    """The sentence that says that a field was not fitted, and what it is instead."""
    return f"task.{field} was not fitted on the dev data: {count:,} rows are too few ({FEWEST} are needed); {stays}."


@dataclass(frozen=True, slots=True)
class Bins:
    """Examples of like confidence together: their mean confidence, how many of them are right, how many there are."""

    confidence: Numbers  # [B]
    accuracy: Numbers  # [B]
    counts: Counts  # [B] none is empty

    @property
    def error(self) -> float:
        """The expected calibration error: how far confidence and accuracy lie apart, over all examples."""
        apart = np.abs(self.confidence - self.accuracy)
        return float((apart * self.counts).sum() / max(1, int(self.counts.sum())))


def stacked(raw: Sequence[npt.ArrayLike]) -> Numbers:
    """[N, L] the rows as one array; shorter ones are filled up with -inf, which no softmax sees."""
    rows = [np.asarray(row, dtype=np.float64) for row in raw]
    scores = np.full((len(rows), max(map(len, rows), default=0)), -np.inf)
    for place, row in enumerate(rows):
        scores[place, : len(row)] = row
    return scores


def shares(scores_NL: npt.ArrayLike, temperature: float | Numbers = 1.0) -> Numbers:
    """[N, L] the softmax of each row at this temperature, or at one for each row."""
    scores = np.asarray(scores_NL, dtype=np.float64)
    scaled = scores / np.asarray(temperature, dtype=np.float64).reshape(-1, 1)
    powers = np.exp(scaled - scaled.max(axis=1, keepdims=True, initial=-1e300))
    probabilities: Numbers = powers / powers.sum(axis=1, keepdims=True)
    return probabilities


def binned(confidence: npt.ArrayLike, right: npt.ArrayLike, num_bins: int = BINS, adaptive: bool = False) -> Bins:
    """The examples in bins of equal width or, adaptive, of equal numbers (Nguyen and O'Connor 2015)."""
    sure, hit = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if adaptive:
        order = np.argsort(sure, kind="stable")
        place = np.empty(len(sure), dtype=np.int64)
        place[order] = np.arange(len(sure)) * num_bins // max(1, len(sure))
    else:  # (low, high], as published: a confidence of exactly 1 is in the last
        place = np.clip(np.ceil(sure * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    counts = np.bincount(place, minlength=num_bins)
    there = counts > 0
    sums = (np.bincount(place, values, minlength=num_bins)[there] for values in (sure, hit))
    means = [each / counts[there] for each in sums]
    return Bins(means[0], means[1], counts[there])


def brier(shares_NL: Numbers, gold: npt.ArrayLike) -> float:
    """The mean squared distance between the probabilities and the truth, from 0 to 2 (Brier 1950)."""
    if not len(shares_NL):
        return 0.0
    right = shares_NL[np.arange(len(shares_NL)), np.asarray(gold)]
    return float(((shares_NL**2).sum(axis=1) - 2 * right + 1).mean())


def log_loss(shares_NL: Numbers, gold: npt.ArrayLike) -> float:
    """The mean of -log p(right)."""
    right = shares_NL[np.arange(len(shares_NL)), np.asarray(gold)]
    return float(-np.log(np.maximum(right, 1e-300)).mean()) if len(right) else 0.0


def temperature(scores_NL: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """The temperature at which the right answers are likeliest, with one more example that says nothing.

    The loss is convex in 1/temperature, so its slope has one root: found by Newton's steps, halving where they leave
    the bracket. The one more example's answer is every label alike: without it, a model that is always right on a few
    examples would be fitted to be certain for ever.
    """
    scores = np.asarray(scores_NL, dtype=np.float64)
    if not len(scores):
        return 1.0
    there = np.isfinite(scores)
    filled = np.where(there, scores, 0.0)
    means_of_rows = filled.sum(axis=1) / there.sum(axis=1)  # what "every label alike" expects of the score
    wanted = (scores[np.arange(len(scores)), np.asarray(gold)].sum() + means_of_rows.mean()) / (1 + 1 / len(scores))
    low, high, inverse = 1 / HOTTEST, 1 / COLDEST, 1.0
    for _ in range(ROUNDS):
        chances = shares(scores, 1 / inverse)
        means = (chances * filled).sum(axis=1)
        slope = means.sum() - wanted
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        bend = (chances * filled**2).sum() - (means**2).sum()
        step = inverse - slope / bend if bend > 0 else low
        inverse, before = (step if low < step < high else (low + high) / 2), inverse
        if abs(inverse - before) < CLOSE * before:
            break
    return float(1 / inverse)


def crossfitted(scores_NL: npt.ArrayLike, gold: npt.ArrayLike) -> Numbers:
    """[N] a temperature for each example, fitted on the half of the data that it is not in: every other example."""
    scores, right = np.asarray(scores_NL, dtype=np.float64), np.asarray(gold)
    temperatures = np.ones(len(scores))
    for half in range(2):
        temperatures[half::2] = temperature(scores[1 - half :: 2], right[1 - half :: 2])
    return temperatures


def summary(scores_NL: npt.ArrayLike, gold: npt.ArrayLike, stored: float | None = None) -> dict[str, Any]:
    """ "before" and "after" a temperature, each with its errors and bins; never measured on what it was fitted to.

    stored: a temperature from other data. Without it, these data fit their own, and what it brings is measured on the
    half that had no part in it; where they are too few for that, nothing is fitted.
    """
    scores, right = np.asarray(scores_NL, dtype=np.float64), np.asarray(gold)
    is_few = stored is None and len(right) < FEWEST
    fitted = 1.0 if is_few else temperature(scores, right) if stored is None else stored
    after = crossfitted(scores, right) if stored is None and not is_few else np.full(len(scores), fitted)
    temperatures = {"before": np.ones(len(scores)), "after": after}
    measured = f"not fitted: {len(right):,} rows are too few" if is_few else "on the other half"
    return {
        "temperature": fitted,
        "measured": measured if stored is None else "on these data",
        **{name: _measured(shares(scores, values), right) for name, values in temperatures.items()},
    }


def _measured(shares_NL: Numbers, gold: npt.NDArray[np.integer]) -> dict[str, Any]:
    if not len(gold):
        return {"ece": 0.0, "adaptive_ece": 0.0, "brier": 0.0, "loss": 0.0, "bins": []}
    sure, right = shares_NL.max(axis=1), shares_NL.argmax(axis=1) == gold
    bins = binned(sure, right)
    return {
        "ece": bins.error,
        "adaptive_ece": binned(sure, right, adaptive=True).error,
        "brier": brier(shares_NL, gold),
        "loss": log_loss(shares_NL, gold),
        "bins": [
            {"confidence": float(mean), "accuracy": float(hit), "count": int(count)}
            for mean, hit, count in zip(bins.confidence, bins.accuracy, bins.counts, strict=True)
        ],
    }
