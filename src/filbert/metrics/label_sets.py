"""Right labels and probabilities of texts with several labels in; F1, accuracy, intervals and a threshold out.

Legend: N texts, L labels, U different rows, R resamples. micro: over all labels of all texts. macro: the mean of the
labels' own F1, over all labels, as scikit-learn has it; of nothing 0. accuracy: of whole sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.metrics import bootstrap
from filbert.metrics.intervals import widened, wilson

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def measures(hits_RL: npt.ArrayLike, predicted_RL: npt.ArrayLike, gold_RL: npt.ArrayLike) -> dict[str, Numbers]:
    """{"micro_f1", "macro_f1"}, each [R], from how often labels were predicted and right, predicted, and right."""
    hits, both = np.asarray(hits_RL, dtype=np.float64), np.add(predicted_RL, gold_RL, dtype=np.float64)
    each_RL = 2 * hits / np.maximum(both, 1)
    return {"micro_f1": 2 * hits.sum(-1) / np.maximum(both.sum(-1), 1), "macro_f1": each_RL.mean(-1)}


def summary(
    gold_NL: npt.ArrayLike, chances_NL: npt.ArrayLike, least: float, labels: Sequence[str], seed: int = 0
) -> dict[str, Any]:
    """All of it as one object for people and machines: metrics at the top, "intervals" and "labels"."""
    chances = np.asarray(chances_NL, dtype=np.float64).reshape(-1, len(labels))
    gold, predicted = np.asarray(gold_NL).reshape(chances.shape) == 1, chances >= least
    hits, called, there = (part.sum(axis=0) for part in (gold & predicted, predicted, gold))
    right = np.clip(np.where(gold, chances, 1 - chances), 1e-300, 1)  # the probability of what is right
    sets, counts = np.unique(gold, axis=0, return_counts=True)
    columns = {
        "precision": hits / np.maximum(called, 1),
        "recall": hits / np.maximum(there, 1),
        "f1": 2 * hits / np.maximum(called + there, 1),
        "support": there,
    }
    return {
        **{name: float(value) for name, value in measures(hits, called, there).items()},
        "accuracy": float((gold == predicted).all(axis=1).mean()) if len(gold) else 0.0,
        "majority_accuracy": float(counts.max() / len(gold)) if len(sets) else 0.0,  # always the most frequent set
        "loss": float(-np.log(right).mean()) if right.size else 0.0,
        "threshold": least,
        "num_examples": len(gold),
        "intervals": {name: list(pair) for name, pair in intervals(gold, predicted, seed=seed).items()},
        "labels": {
            label: {name: round(float(values[place]), 6) for name, values in columns.items()}
            for place, label in enumerate(labels)
        },
    }


def intervals(
    gold_NL: Flags, predicted_NL: Flags, level: float = 0.95, resamples: int = bootstrap.RESAMPLES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Of accuracy the interval of a share, of the others the bootstrap over the texts (Efron 1979).

    Texts alike in both are drawn together.
    """
    if not len(gold_NL):
        return dict.fromkeys(("micro_f1", "macro_f1", "accuracy"), (0.0, 0.0))
    rows_UX, counts_U = np.unique(np.concatenate((gold_NL, predicted_NL), axis=1), axis=0, return_counts=True)
    gold_UL, predicted_UL = np.split(rows_UX, 2, axis=1)
    hits_UL = gold_UL & predicted_UL

    def scores(drawn_RU: bootstrap.Counts) -> dict[str, Numbers]:
        weights_RU = drawn_RU.astype(np.float64)
        return measures(weights_RU @ hits_UL, weights_RU @ predicted_UL, weights_RU @ gold_UL)

    drawn = bootstrap.of_counts(counts_U, scores, seed=seed, level=level, resamples=resamples, rescale=False)
    values = measures((gold_NL & predicted_NL).sum(0), predicted_NL.sum(0), gold_NL.sum(0))
    num_right = int((gold_NL == predicted_NL).all(axis=1).sum())
    return {
        **{name: widened(drawn[name], float(value), len(gold_NL)) for name, value in values.items()},
        "accuracy": wilson(num_right, len(gold_NL), level),
    }


def best_threshold(gold_NL: npt.ArrayLike, chances_NL: npt.ArrayLike, start: float) -> float:
    """The least probability of a predicted label that gives the highest micro F1; of equals the nearest to `start`.

    Only places between two neighbouring probabilities differ, so all of them are tried at once.
    """
    chances = np.asarray(chances_NL, dtype=np.float64).ravel()
    gold = np.asarray(gold_NL).ravel() == 1
    if not gold.any():
        return start
    order = np.argsort(-chances, kind="stable")
    sorted_chances, hits = chances[order], np.cumsum(gold[order])
    f1 = 2 * hits / (np.arange(1, len(hits) + 1) + gold.sum())
    following = np.append(sorted_chances[1:], 0.0)
    is_edge = sorted_chances > following  # those of one probability are predicted together
    if not is_edge.any():
        return start
    low, high, f1 = following[is_edge], sorted_chances[is_edge], f1[is_edge]
    inside = np.where((low < start) & (start <= high), start, (low + high) / 2)
    best = np.lexsort((np.abs(inside - start), -f1))[0]
    return float(inside[best])
