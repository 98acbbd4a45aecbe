"""Right and predicted labels in, as numbers from 0; accuracy, F1, their intervals, tables and baselines out.

Everything is computed from the confusion matrix, whose rows are right and whose columns are predicted labels. Only its
filled cells are kept: with 4,000 labels it has 16 million cells, and no more of them filled than there are examples.

Legend: L labels, U filled cells, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import needed
from filbert.metrics import bootstrap
from filbert.metrics.intervals import widened, wilson

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
MOST_DENSE = 50  # labels whose confusion matrix is written whole; of more, its filled cells


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often each right label (row) was called what (column): the filled cells, row by row."""

    rows: Counts  # [U]
    columns: Counts  # [U]
    counts: Counts  # [U] above 0
    num_labels: int

    @property
    def total(self) -> int:
        """How many examples there are."""
        return int(self.counts.sum())

    @property
    def right(self) -> Counts:
        """[L] examples of each label that were called it."""
        return self._summed(self.rows, self.rows == self.columns)

    @property
    def there(self) -> Counts:
        """[L] examples of each label."""
        return self._summed(self.rows)

    @property
    def called(self) -> Counts:
        """[L] how often each label was predicted."""
        return self._summed(self.columns)

    def _summed(self, places: Counts, chosen: npt.NDArray[np.bool_] | None = None) -> Counts:
        sums = np.zeros(self.num_labels, dtype=np.int64)
        np.add.at(sums, places, self.counts if chosen is None else self.counts * chosen)
        return sums

    def dense(self) -> Counts:
        """[L, L]."""
        matrix = np.zeros((self.num_labels, self.num_labels), dtype=np.int64)
        matrix[self.rows, self.columns] = self.counts
        return matrix

    def as_json(self) -> list[list[int]] | dict[str, Any]:
        """As JSON holds it: the matrix or, of many labels, its filled cells [right, called, times] by place."""
        if self.num_labels <= MOST_DENSE:
            return self.dense().tolist()  # type: ignore[no-any-return]
        cells = np.stack((self.rows, self.columns, self.counts), axis=1).tolist()
        return {"num_labels": self.num_labels, "cells": cells}


def confusion(gold: npt.ArrayLike, predicted: npt.ArrayLike, num_labels: int) -> Confusion:
    """How often each right label was called what."""
    cells = np.asarray(gold, dtype=np.int64) * num_labels + np.asarray(predicted, dtype=np.int64)
    places, counts = np.unique(cells, return_counts=True)
    return Confusion(places // num_labels, places % num_labels, counts.astype(np.int64), num_labels)


def accuracy(table: Confusion) -> float:
    """The share that is right."""
    return float(table.right.sum() / max(1, table.total))


def per_label(table: Confusion) -> dict[str, Numbers]:
    """{"precision", "recall", "f1", "support"}, each [L]; 0 where there is nothing to divide by."""
    right, called, there = table.right.astype(np.float64), table.called, table.there
    return {
        "precision": right / np.maximum(called, 1),
        "recall": right / np.maximum(there, 1),
        "f1": 2 * right / np.maximum(called + there, 1),
        "support": there.astype(np.float64),
    }


def macro_f1(table: Confusion) -> float:
    """The mean F1 of all labels that occur, as right ones or as predicted ones."""
    return float(_macro(table.right[None], table.called[None], table.there[None])[0])


def _macro(right: Counts, called: Counts, there: Counts) -> Numbers:
    """The same for many tables at once, from [R, L] each."""
    total = called + there
    f1 = 2 * right / np.maximum(total, 1)
    mean: Numbers = f1.sum(axis=1) / np.maximum((total > 0).sum(axis=1), 1)
    return mean


def intervals(
    table: Confusion, level: float = 0.95, resamples: int = bootstrap.RESAMPLES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Of accuracy the interval of a share (Wilson 1927), of macro F1 the bootstrap over the examples (Efron 1979)."""
    total = table.total
    if not total:
        return {"accuracy": (0.0, 0.0), "f1": (0.0, 0.0)}
    drawn = bootstrap.of_counts(
        table.counts, lambda drawn_RU: {"f1": _macro(*_drawn(table, drawn_RU))}, seed=seed, level=level,
        resamples=resamples, row_cells=max(len(table.counts), table.num_labels),
    )  # fmt: skip
    return {
        "accuracy": wilson(int(table.right.sum()), total, level),
        "f1": widened(drawn["f1"], macro_f1(table), total),
    }


def _drawn(table: Confusion, drawn_RU: Counts) -> tuple[Counts, Counts, Counts]:
    """Right, called and there, each [R, L'], of the labels that occur, when the cells hold these numbers."""
    occurring, both = np.unique(np.concatenate((table.rows, table.columns)), return_inverse=True)
    rows, columns = np.split(both, 2)
    is_right = table.rows == table.columns
    totals = []
    for places, cells_RU in ((rows, drawn_RU * is_right), (columns, drawn_RU), (rows, drawn_RU)):
        order = np.argsort(places, kind="stable")
        first = np.flatnonzero(np.diff(places[order], prepend=-1))
        sums = np.zeros((len(drawn_RU), len(occurring)), dtype=np.int64)
        sums[:, places[order][first]] = np.add.reduceat(cells_RU[:, order], first, axis=1)
        totals.append(sums)
    return totals[0], totals[1], totals[2]


def majority(table: Confusion) -> float:
    """The accuracy of always saying the most frequent right label."""
    return float(table.there.max(initial=0) / max(1, table.total))


def summary(table: Confusion, labels: Sequence[str], seed: int = 0) -> dict[str, Any]:
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
        "num_examples": table.total,
        "intervals": {name: list(pair) for name, pair in intervals(table, seed=seed).items()},
        "labels": each,
        "confusion": table.as_json(),
    }


def grouped_accuracy(counts_S2: Counts, seed: int = 0) -> tuple[float, bootstrap.Interval]:
    """The share of units that are right, and its interval, where the units of a group are drawn together.

    counts_S2: of each group the units that are right, and all.
    """
    if not len(counts_S2):
        return 0.0, (0.0, 0.0)
    kinds, many = np.unique(counts_S2, axis=0, return_counts=True)

    def share(drawn_RU: Counts) -> dict[str, npt.NDArray[np.float64]]:
        sums = drawn_RU.astype(float) @ kinds
        return {"accuracy": sums[:, 0] / np.maximum(sums[:, 1], 1)}

    value = float(counts_S2[:, 0].sum() / max(1, int(counts_S2[:, 1].sum())))
    return value, widened(bootstrap.of_counts(many, share, seed=seed)["accuracy"], value, len(counts_S2))


def tfidf(texts: Sequence[str], gold: npt.ArrayLike, others: Sequence[str]) -> Counts:
    """What a linear classifier on character 1- to 3-grams predicts for other texts: the baseline to beat."""
    features = needed("sklearn.feature_extraction.text", "metrics")
    linear = needed("sklearn.svm", "metrics")
    least = 2 if len(texts) >= 1_000 else 1  # a rare n-gram is all that a small set has
    options = {"analyzer": "char", "ngram_range": (1, 3), "sublinear_tf": True, "min_df": least}
    counter = features.TfidfVectorizer(**options)
    classifier = linear.LinearSVC().fit(counter.fit_transform(texts), np.asarray(gold))
    return np.asarray(classifier.predict(counter.transform(others)), dtype=np.int64)
