"""Right and predicted labels in, as numbers from 0; accuracy, F1, their intervals, tables and baselines out.

Everything is told from the confusion matrix C[L, L], whose rows are right and whose columns are predicted labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import needed
from filbert.core.random import generator

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
RESAMPLES = 1_000
CHUNK_CELLS = 2**22  # numbers of resampled tables that are held at a time


def confusion(gold: npt.ArrayLike, predicted: npt.ArrayLike, num_labels: int) -> Counts:
    """[L, L] how often each right label (row) was called what (column)."""
    cells = np.asarray(gold, dtype=np.int64) * num_labels + np.asarray(predicted, dtype=np.int64)
    return np.bincount(cells, minlength=num_labels**2).reshape(num_labels, num_labels)


def accuracy(table: Counts) -> float:
    """The share that is right."""
    return float(np.trace(table) / max(1, table.sum()))


def per_label(table: Counts) -> dict[str, Numbers]:
    """{"precision", "recall", "f1", "support"}, each [L]; 0 where there is nothing to divide by."""
    right = np.diag(table).astype(np.float64)
    called, there = table.sum(axis=0), table.sum(axis=1)
    return {
        "precision": right / np.maximum(called, 1),
        "recall": right / np.maximum(there, 1),
        "f1": 2 * right / np.maximum(called + there, 1),
        "support": there.astype(np.float64),
    }


def macro_f1(table: Counts) -> float:
    """The mean F1 of all labels that occur, as right ones or as predicted ones."""
    return float(_macro(np.diag(table)[None], table.sum(axis=0)[None], table.sum(axis=1)[None])[0])


def _macro(right: npt.NDArray[Any], called: npt.NDArray[Any], there: npt.NDArray[Any]) -> Numbers:
    """The same for many tables at once, from [R, L] each."""
    total = called + there
    f1 = 2 * right / np.maximum(total, 1)
    mean: Numbers = f1.sum(axis=1) / np.maximum((total > 0).sum(axis=1), 1)
    return mean


def intervals(
    table: Counts, share: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """The percentile bootstrap of accuracy and macro F1 over the examples (Efron 1979).

    Drawing n examples with replacement is drawing the table's cells from a multinomial: no example is touched.
    """
    rows, columns = np.nonzero(table)
    total, num_labels = int(table.sum()), len(table)
    if not total:
        return {"accuracy": (0.0, 0.0), "f1": (0.0, 0.0)}
    weights = table[rows, columns] / total
    is_row, is_column = (np.eye(num_labels)[places] for places in (rows, columns))
    is_right = is_row * (rows == columns)[:, None]
    random = generator(seed, "bootstrap")
    size = max(1, CHUNK_CELLS // len(rows))
    found: dict[str, list[Numbers]] = {"accuracy": [], "f1": []}
    for begin in range(0, resamples, size):
        drawn = random.multinomial(total, weights / weights.sum(), size=min(size, resamples - begin)).astype(float)
        right = drawn @ is_right
        found["accuracy"].append(right.sum(axis=1) / total)
        found["f1"].append(_macro(right, drawn @ is_column, drawn @ is_row))
    edges = ((1 - share) / 2, (1 + share) / 2)
    cut = {name: np.quantile(np.concatenate(values), edges) for name, values in found.items()}
    return {name: (float(low), float(high)) for name, (low, high) in cut.items()}


def majority(table: Counts) -> float:
    """The accuracy of always saying the most frequent right label."""
    return float(table.sum(axis=1).max() / max(1, table.sum()))


def summary(table: Counts, labels: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """All of it as one object for people and machines: metrics at the top, "intervals", "labels" and "confusion"."""
    columns = per_label(table)
    each = {
        label: {name: round(float(values[place]), 6) for name, values in columns.items()}
        for place, label in enumerate(labels)
    }
    return {
        "accuracy": accuracy(table),
        "f1": macro_f1(table),
        "majority_accuracy": majority(table),
        "num_examples": int(table.sum()),
        "intervals": {name: list(pair) for name, pair in intervals(table, seed=seed).items()},
        "labels": each,
        "confusion": table.tolist(),
    }


def tfidf(texts: Sequence[str], gold: npt.ArrayLike, asked: Sequence[str], **settings: Any) -> Counts:
    """What a linear classifier on character 1- to 3-grams says of the asked texts: the baseline to beat."""
    features = needed("sklearn.feature_extraction.text", "metrics")
    linear = needed("sklearn.svm", "metrics")
    least = 2 if len(texts) >= 1_000 else 1  # a rare n-gram is all that a small set has
    wanted = {"analyzer": "char", "ngram_range": (1, 3), "sublinear_tf": True, "min_df": least, **settings}
    counter = features.TfidfVectorizer(**wanted)
    learnt = linear.LinearSVC().fit(counter.fit_transform(texts), np.asarray(gold))
    return np.asarray(learnt.predict(counter.transform(asked)), dtype=np.int64)
