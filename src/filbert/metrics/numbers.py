"""Numbers that a model gave and the right ones in; how well they agree, with intervals, out.

Legend: N examples, R resamples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.metrics import bootstrap

Numbers = npt.NDArray[np.float64]


def pearson(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """The linear correlation; 0 where one side does not vary."""
    return float(_correlated(np.asarray(gold, dtype=float)[None], np.asarray(predicted, dtype=float)[None])[0])


def spearman(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """The correlation of the ranks; equal numbers share the mean of theirs."""
    return pearson(ranks(gold), ranks(predicted))


def ranks(values: npt.ArrayLike) -> Numbers:
    """[N] from 1; ties have their mean rank."""
    array = np.asarray(values, dtype=float)
    _, places, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Numbers = (last - (counts - 1) / 2)[places]
    return mean


def summary(gold: npt.ArrayLike, predicted: npt.ArrayLike, level: float = 0.95, seed: int = 0) -> dict[str, Any]:
    """Correlations and mean squared error with percentile bootstrap intervals, beside the error of the mean."""
    right, values = np.asarray(gold, dtype=float), np.asarray(predicted, dtype=float)
    # Ranks are taken once, over all: those of each resample would cost a sort each and differ little.
    right_ranks, value_ranks, errors = ranks(right), ranks(values), (right - values) ** 2

    def drawn_scores(places_RN: bootstrap.Counts) -> dict[str, Numbers]:
        return {
            "pearson": _correlated(right[places_RN], values[places_RN]),
            "spearman": _correlated(right_ranks[places_RN], value_ranks[places_RN]),
            "mse": errors[places_RN].mean(axis=1) if len(errors) else np.zeros(len(places_RN)),
        }

    drawn = bootstrap.of_places(len(right), drawn_scores, seed=seed, level=level)
    return {
        "pearson": pearson(right, values),
        "spearman": spearman(right, values),
        "mse": float(errors.mean()) if len(right) else 0.0,
        "mean_mse": float(right.var()) if len(right) else 0.0,
        "num_examples": len(right),
        "intervals": {name: list(pair) for name, pair in drawn.items()},
    }


def _correlated(one_RN: Numbers, two_RN: Numbers) -> Numbers:
    """[R]."""
    if not one_RN.shape[1]:
        return np.zeros(len(one_RN))
    one = one_RN - one_RN.mean(axis=1, keepdims=True)
    two = two_RN - two_RN.mean(axis=1, keepdims=True)
    size = np.sqrt((one**2).sum(axis=1) * (two**2).sum(axis=1))
    correlation: Numbers = np.divide((one * two).sum(axis=1), size, out=np.zeros(len(one)), where=size > 1e-12)
    return correlation
