"""Vectors of texts, or the cosines of pairs, and what is right in; how well they agree, with intervals, out.

Legend: N examples, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.random import generator
from filbert.metrics.intervals import widened
from filbert.metrics.numbers import RESAMPLES, pearson, ranks

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Measure = Callable[[npt.NDArray[np.int64]], float]  # of the examples drawn
BLOCK = 1_024  # examples at a time
DEEP = 10  # places that a recall looks at


def cosines(first_ND: npt.ArrayLike, second_ND: npt.ArrayLike) -> Numbers:
    """[N] of each row with the same row of the other; 0 with a vector of length 0."""
    first, second = np.asarray(first_ND), np.asarray(second_ND)
    found = np.zeros(len(first))
    for begin in range(0, len(first), BLOCK):  # in float64, but not all at once
        rows = slice(begin, begin + BLOCK)
        found[rows] = (_unit(first[rows]) * _unit(second[rows])).sum(axis=-1)
    return found


def _unit(vectors: npt.ArrayLike) -> Numbers:
    array = np.asarray(vectors, dtype=np.float64)
    unit: Numbers = array / np.maximum(np.linalg.norm(array, axis=-1, keepdims=True), 1e-12)
    return unit


def agreement(gold: npt.ArrayLike, said: npt.ArrayLike) -> dict[str, Any]:
    """Spearman's and Pearson's correlation of cosines with numbers."""
    return _summary(_correlations(np.asarray(gold, dtype=float), np.asarray(said, dtype=float)), np.size(gold))


def _correlations(right: Numbers, given: Numbers) -> dict[str, Measure]:
    # Ranks are taken once, over all: those of each resample would cost a sort each and differ little.
    right_ranks, given_ranks = ranks(right), ranks(given)
    return {
        "spearman": lambda drawn: pearson(right_ranks[drawn], given_ranks[drawn]),
        "pearson": lambda drawn: pearson(right[drawn], given[drawn]),
    }


def told_apart(is_pair: Flags, said: npt.ArrayLike, threshold: float | None = None) -> dict[str, Any]:
    """Of pairs that belong together or not: Spearman, AUC, and the accuracy of a threshold.

    Without a threshold the best one for these very data is taken, and "fitted" says so: its accuracy flatters.
    """
    given = np.asarray(said, dtype=float)
    level = best_threshold(is_pair, given) if threshold is None else threshold
    is_right = ((given >= level) == is_pair).astype(float)
    measures = {
        "spearman": _correlations(is_pair.astype(float), given)["spearman"],
        "auc": lambda drawn: auc(is_pair[drawn], given[drawn]),
        "accuracy": lambda drawn: float(is_right[drawn].mean()) if len(drawn) else 0.0,
    }
    share = float(is_pair.mean()) if len(is_pair) else 0.0
    about = {"threshold": level, "fitted": threshold is None, "majority_accuracy": max(share, 1 - share)}
    return _summary(measures, len(given)) | about


def auc(is_pair: Flags, said: npt.ArrayLike) -> float:
    """How often one that is a pair has a larger cosine than one that is not, ties for a half (Mann, Whitney 1947)."""
    flags = np.asarray(is_pair, dtype=bool)
    yes, no = int(flags.sum()), int((~flags).sum())
    if not yes or not no:
        return 0.5
    return float((ranks(said)[flags].sum() - yes * (yes + 1) / 2) / (yes * no))


def best_threshold(is_pair: Flags, said: npt.ArrayLike) -> float:
    """The cosine from which calling a pair a pair is right most often; midway between two neighbours, the lowest."""
    given = np.asarray(said, dtype=float)
    levels, places = np.unique(given, return_inverse=True)
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
    place = places_of_own(_unit(first_ND), _unit(second_ND), same)
    measures: dict[str, Measure] = {
        "recall@1": lambda drawn: float((place[drawn] <= 1).mean()) if len(drawn) else 0.0,
        f"recall@{DEEP}": lambda drawn: float((place[drawn] <= DEEP).mean()) if len(drawn) else 0.0,
        "mrr": lambda drawn: float((1 / place[drawn]).mean()) if len(drawn) else 0.0,
    }
    return _summary(measures, len(place)) | {"num_candidates": len(np.unique(same))}


def places_of_own(first_ND: Numbers, second_ND: Numbers, same: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[N] the place, from 1, of each first vector's own second among all different ones, by dot products."""
    _, kept, which = np.unique(same, return_index=True, return_inverse=True)
    candidates = second_ND[kept]
    found = np.zeros(len(first_ND), dtype=np.int64)
    for begin in range(0, len(first_ND), BLOCK):
        rows = slice(begin, begin + BLOCK)
        scores = np.round(first_ND[rows] @ candidates.T, 9)  # what differs by rounding alone is equal
        own = scores[np.arange(len(scores)), which[rows]]
        found[rows] = (scores >= own[:, None]).sum(axis=1)
    return found


def preferred(anchor_ND: npt.ArrayLike, near_ND: npt.ArrayLike, far_ND: npt.ArrayLike) -> dict[str, Any]:
    """How often the second text of a triplet is nearer to the first than the third is."""
    is_right = (cosines(anchor_ND, near_ND) > cosines(anchor_ND, far_ND)).astype(float)
    return _summary({"accuracy": lambda drawn: float(is_right[drawn].mean()) if len(drawn) else 0.0}, len(is_right))


def _summary(measures: Mapping[str, Measure], count: int, share: float = 0.95, seed: int = 0) -> dict[str, Any]:
    """Each measure over all examples, and the percentile bootstrap over them (Efron 1979).

    Correlations are no shares: of them the bootstrap stays as it is.
    """
    random, edges = generator(seed, "bootstrap"), ((1 - share) / 2, (1 + share) / 2)
    samples: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(RESAMPLES if count else 1):
        drawn = random.integers(0, max(1, count), size=count)
        for name, measure in measures.items():
            samples[name].append(measure(drawn))
    values = {name: measure(np.arange(count)) for name, measure in measures.items()}
    found = {name: np.quantile(drawn, edges).tolist() for name, drawn in samples.items()}
    for name in set(found) - {"spearman", "pearson"}:
        found[name] = list(widened(found[name], values[name], count))
    return {**values, "num_examples": count, "intervals": found}
