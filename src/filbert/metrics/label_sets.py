"""Right labels and probabilities of texts with several labels in; F1, accuracy, intervals and a threshold out.

Legend: N texts, L labels, U different rows, R resamples. micro: over all labels of all texts. macro: the mean of the
labels' own F1, over all labels, as scikit-learn has it; where nothing is right or said, 0. accuracy: of whole sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.random import generator
from filbert.metrics.intervals import widened, wilson
from filbert.metrics.labels import CHUNK_CELLS, RESAMPLES

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def measures(hits_RL: npt.ArrayLike, said_RL: npt.ArrayLike, right_RL: npt.ArrayLike) -> dict[str, Numbers]:
    """{"micro_f1", "macro_f1"}, each [R], from how often labels were said and right, said, and right."""
    hits, both = np.asarray(hits_RL, dtype=np.float64), np.add(said_RL, right_RL, dtype=np.float64)
    each_RL = 2 * hits / np.maximum(both, 1)
    return {"micro_f1": 2 * hits.sum(-1) / np.maximum(both.sum(-1), 1), "macro_f1": each_RL.mean(-1)}


def summary(
    gold_NL: npt.ArrayLike, chances_NL: npt.ArrayLike, least: float, labels: Sequence[str], seed: int = 0
) -> dict[str, Any]:
    """All of it as one object for people and machines: metrics at the top, "intervals" and "labels"."""
    chances = np.asarray(chances_NL, dtype=np.float64).reshape(-1, len(labels))
    gold, said = np.asarray(gold_NL).reshape(chances.shape) == 1, chances >= least
    hits, called, there = (part.sum(axis=0) for part in (gold & said, said, gold))
    told = {name: float(value) for name, value in measures(hits, called, there).items()}
    own = np.clip(np.where(gold, chances, 1 - chances), 1e-300, 1)
    sets, counts = np.unique(gold, axis=0, return_counts=True)
    columns = {
        "precision": hits / np.maximum(called, 1),
        "recall": hits / np.maximum(there, 1),
        "f1": 2 * hits / np.maximum(called + there, 1),
        "support": there,
    }
    return {
        **told,
        "accuracy": float((gold == said).all(axis=1).mean()) if len(gold) else 0.0,
        "majority_accuracy": float(counts.max() / len(gold)) if len(sets) else 0.0,  # always the most frequent set
        "loss": float(-np.log(own).mean()) if own.size else 0.0,
        "threshold": least,
        "num_examples": len(gold),
        "intervals": {name: list(pair) for name, pair in intervals(gold, said, seed=seed).items()},
        "labels": {
            label: {name: round(float(values[place]), 6) for name, values in columns.items()}
            for place, label in enumerate(labels)
        },
    }


def intervals(
    gold_NL: Flags, said_NL: Flags, share: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Of accuracy the interval of a share, of the others the bootstrap over the texts (Efron 1979).

    Texts alike in both are drawn together.
    """
    if not len(gold_NL):
        return dict.fromkeys(("micro_f1", "macro_f1", "accuracy"), (0.0, 0.0))
    rows_UX, counts_U = np.unique(np.concatenate((gold_NL, said_NL), axis=1), axis=0, return_counts=True)
    gold_UL, said_UL = np.split(rows_UX, 2, axis=1)
    random, size = generator(seed, "bootstrap"), max(1, CHUNK_CELLS // len(rows_UX))
    parts: list[dict[str, Numbers]] = []
    for begin in range(0, resamples, size):
        drawn_RU = random.multinomial(len(gold_NL), counts_U / len(gold_NL), size=min(size, resamples - begin))
        drawn_RU = drawn_RU.astype(np.float64)
        parts.append(measures(drawn_RU @ (gold_UL & said_UL), drawn_RU @ said_UL, drawn_RU @ gold_UL))
    edges = ((1 - share) / 2, (1 + share) / 2)
    cut = {name: np.quantile(np.concatenate([part[name] for part in parts]), edges) for name in parts[0]}
    hits, said, gold = ((gold_NL & said_NL).sum(0), said_NL.sum(0), gold_NL.sum(0))
    values = {name: float(value) for name, value in measures(hits, said, gold).items()}
    found = {name: widened(cut[name].tolist(), value, len(gold_NL)) for name, value in values.items()}
    num_right = int((gold_NL == said_NL).all(axis=1).sum())
    return {**found, "accuracy": wilson(num_right, len(gold_NL), share)}


def best_threshold(gold_NL: npt.ArrayLike, chances_NL: npt.ArrayLike, start: float) -> float:
    """The least probability at which a label is said that gives the highest micro F1; of equals the nearest to `start`.

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
    is_edge = sorted_chances > following  # those of one probability are said together
    if not is_edge.any():
        return start
    low, high, f1 = following[is_edge], sorted_chances[is_edge], f1[is_edge]
    inside = np.where((low < start) & (start <= high), start, (low + high) / 2)
    best = np.lexsort((np.abs(inside - start), -f1))[0]
    return float(inside[best])
