"""Vectors of texts, or the cosines of pairs, and what is right in; how well they agree, with intervals, out.

Legend: N examples, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.metrics import bootstrap
from filbert.metrics.intervals import widened
from filbert.metrics.numbers import pearson, ranks

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Measure = Callable[[npt.NDArray[np.int64]], float]  # of the examples drawn
BLOCK = 1_024  # examples at a time
DEEP = 10  # places that a recall looks at
CORRELATIONS = ("spearman", "pearson")


def cosines(first_ND: npt.ArrayLike, second_ND: npt.ArrayLike) -> Numbers:
    """[N] of each row with the same row of the other; 0 with a vector of length 0."""
    first, second = np.asarray(first_ND), np.asarray(second_ND)
    cosine = np.zeros(len(first))
    for begin in range(0, len(first), BLOCK):  # in float64, but not all at once
        rows = slice(begin, begin + BLOCK)
        cosine[rows] = (_unit(first[rows]) * _unit(second[rows])).sum(axis=-1)
    return cosine


def _unit(vectors: npt.ArrayLike) -> Numbers:
    array = np.asarray(vectors, dtype=np.float64)
    unit: Numbers = array / np.maximum(np.linalg.norm(array, axis=-1, keepdims=True), 1e-12)
    return unit


def agreement(gold: npt.ArrayLike, values: npt.ArrayLike) -> dict[str, Any]:
    """Spearman's and Pearson's correlation of cosines with numbers."""
    return _summary(_correlations(np.asarray(gold, dtype=float), np.asarray(values, dtype=float)), np.size(gold))


def _correlations(right: Numbers, values: Numbers) -> dict[str, Measure]:
    # Ranks are taken once, over all: those of each resample would cost a sort each and differ little.
    right_ranks, value_ranks = ranks(right), ranks(values)
    return {
        "spearman": lambda drawn: pearson(right_ranks[drawn], value_ranks[drawn]),
        "pearson": lambda drawn: pearson(right[drawn], values[drawn]),
    }


def separation(is_pair: Flags, cosines: npt.ArrayLike, threshold: float | None = None) -> dict[str, Any]:
    """Of pairs that belong together or not: Spearman, AUC, and the accuracy of a threshold.

    Without a threshold the best one for these very data is taken, and "fitted" says so: its accuracy flatters.
    """
    values = np.asarray(cosines, dtype=float)
    level = best_threshold(is_pair, values) if threshold is None else threshold
    is_right = ((values >= level) == is_pair).astype(float)
    measures = {
        "spearman": _correlations(is_pair.astype(float), values)["spearman"],
        "auc": lambda drawn: auc(is_pair[drawn], values[drawn]),
        "accuracy": lambda drawn: float(is_right[drawn].mean()) if len(drawn) else 0.0,
    }
    share = float(is_pair.mean()) if len(is_pair) else 0.0
    about = {"threshold": level, "fitted": threshold is None, "majority_accuracy": max(share, 1 - share)}
    return _summary(measures, len(values)) | about


def auc(is_pair: Flags, cosines: npt.ArrayLike) -> float:
    """How often one that is a pair has a larger cosine than one that is not, ties for a half (Mann, Whitney 1947)."""
    flags = np.asarray(is_pair, dtype=bool)
    yes, no = int(flags.sum()), int((~flags).sum())
    if not yes or not no:
        return 0.5
    return float((ranks(cosines)[flags].sum() - yes * (yes + 1) / 2) / (yes * no))


def best_threshold(is_pair: Flags, cosines: npt.ArrayLike) -> float:
    """The cosine from which calling a pair a pair is right most often; midway between two neighbours, the lowest."""
    levels, places = np.unique(np.asarray(cosines, dtype=float), return_inverse=True)
    if not len(levels):
        return 0.0
    flags = np.asarray(is_pair, dtype=bool)
    yes, no = (np.bincount(places[which], minlength=len(levels)) for which in (flags, ~flags))
    below = np.concatenate(([0], np.cumsum(no - yes)))  # right ones more than if all were called pairs
    best = int(below.argmax())
    if best in (0, len(levels)):
        return float(np.clip(levels[0] if best == 0 else np.nextafter(levels[-1], 2), -1, 1))
    return float((levels[best - 1] + levels[best]) / 2)


def retrieval(first_ND: npt.ArrayLike, second_ND: npt.ArrayLike, same: npt.NDArray[np.int64]) -> dict[str, Any]:
    """How far up each first text finds its second among all second texts: recall at 1 and 10, mean reciprocal rank.

    same: [N] equal texts have equal numbers and are one. Another text that is as near comes first: no luck is counted.
    """
    place = ranks_of_pairs(_unit(first_ND), _unit(second_ND), same)
    measures: dict[str, Measure] = {
        "recall@1": lambda drawn: float((place[drawn] <= 1).mean()) if len(drawn) else 0.0,
        f"recall@{DEEP}": lambda drawn: float((place[drawn] <= DEEP).mean()) if len(drawn) else 0.0,
        "mrr": lambda drawn: float((1 / place[drawn]).mean()) if len(drawn) else 0.0,
    }
    return _summary(measures, len(place)) | {"num_candidates": len(np.unique(same))}


def ranks_of_pairs(first_ND: Numbers, second_ND: Numbers, same: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[N] the place, from 1, of each first vector's own second among all different ones, by dot products."""
    _, kept, which = np.unique(same, return_index=True, return_inverse=True)
    candidates = second_ND[kept]
    place = np.zeros(len(first_ND), dtype=np.int64)
    for begin in range(0, len(first_ND), BLOCK):
        rows = slice(begin, begin + BLOCK)
        scores = np.round(first_ND[rows] @ candidates.T, 9)  # what differs by rounding alone is equal
        paired = scores[np.arange(len(scores)), which[rows]]
        place[rows] = (scores >= paired[:, None]).sum(axis=1)
    return place


def preferred(anchor_ND: npt.ArrayLike, near_ND: npt.ArrayLike, far_ND: npt.ArrayLike) -> dict[str, Any]:
    """How often the second text of a triplet is nearer to the first than the third is."""
    is_right = (cosines(anchor_ND, near_ND) > cosines(anchor_ND, far_ND)).astype(float)
    return _summary({"accuracy": lambda drawn: float(is_right[drawn].mean()) if len(drawn) else 0.0}, len(is_right))


def _summary(measures: Mapping[str, Measure], count: int, seed: int = 0) -> dict[str, Any]:
    """Each measure over all examples, and the percentile bootstrap over them (Efron 1979).

    Correlations are no shares: of them the bootstrap stays as it is.
    """

    def drawn_scores(places_RN: bootstrap.Counts) -> dict[str, Numbers]:
        return {name: np.array([measure(places) for places in places_RN]) for name, measure in measures.items()}

    drawn = bootstrap.of_places(count, drawn_scores, seed=seed, resamples=bootstrap.RESAMPLES if count else 1)
    values = {name: measure(np.arange(count)) for name, measure in measures.items()}
    intervals = {
        name: list(pair if name in CORRELATIONS else widened(pair, values[name], count)) for name, pair in drawn.items()
    }
    return {**values, "num_examples": count, "intervals": intervals}
