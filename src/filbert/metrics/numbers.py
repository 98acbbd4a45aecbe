"""Numbers that a model gave and the right ones in; how well they agree, with intervals, out.

Legend: N examples, R resamples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.random import generator

RESAMPLES = 1_000
Numbers = npt.NDArray[np.float64]


def pearson(gold: npt.ArrayLike, said: npt.ArrayLike) -> float:
    """The linear correlation; 0 where one side does not vary."""
    return float(_correlated(np.asarray(gold, dtype=float)[None], np.asarray(said, dtype=float)[None])[0])


def spearman(gold: npt.ArrayLike, said: npt.ArrayLike) -> float:
    """The correlation of the ranks; equal numbers share the mean of theirs."""
    return pearson(ranks(gold), ranks(said))


def ranks(values: npt.ArrayLike) -> Numbers:
    """[N] from 1; ties have their mean rank."""
    array = np.asarray(values, dtype=float)
    _, places, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Numbers = (last - (counts - 1) / 2)[places]
    return mean


def summary(gold: npt.ArrayLike, said: npt.ArrayLike, share: float = 0.95, seed: int = 0) -> dict[str, Any]:
    """Correlations and mean squared error with percentile bootstrap intervals, beside the error of the mean."""
    right, given = np.asarray(gold, dtype=float), np.asarray(said, dtype=float)
    drawn = generator(seed, "bootstrap").integers(0, max(1, len(right)), size=(RESAMPLES, len(right)))
    edges = ((1 - share) / 2, (1 + share) / 2)
    # Ranks are taken once, over all: those of each resample would cost a sort each and differ little.
    samples = {
        "pearson": _correlated(right[drawn], given[drawn]),
        "spearman": _correlated(ranks(right)[drawn], ranks(given)[drawn]),
        "mse": ((right - given) ** 2)[drawn].mean(axis=1) if len(right) else np.zeros(RESAMPLES),
    }
    return {
        "pearson": pearson(right, given),
        "spearman": spearman(right, given),
        "mse": float(((right - given) ** 2).mean()) if len(right) else 0.0,
        "mean_mse": float(right.var()) if len(right) else 0.0,
        "num_examples": len(right),
        "intervals": {name: [float(edge) for edge in np.quantile(values, edges)] for name, values in samples.items()},
    }


def _correlated(one_RN: Numbers, two_RN: Numbers) -> Numbers:
    """[R]."""
    if not one_RN.shape[1]:
        return np.zeros(len(one_RN))
    one = one_RN - one_RN.mean(axis=1, keepdims=True)
    two = two_RN - two_RN.mean(axis=1, keepdims=True)
    size = np.sqrt((one**2).sum(axis=1) * (two**2).sum(axis=1))
    found: Numbers = np.divide((one * two).sum(axis=1), size, out=np.zeros(len(one)), where=size > 1e-12)
    return found
