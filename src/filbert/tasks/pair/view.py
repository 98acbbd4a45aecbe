"""One number for each pair: a model's numbers in; baselines beside them, and the farthest ones, out.

Legend: N pairs, R resamples, K sums that a correlation is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from filbert.core.records import Example, Floats
from filbert.forms import label_sets
from filbert.metrics import baselines, numbers, paired
from filbert.tasks.pair.items import Items
from filbert.tasks.task import Report
from filbert.tasks.view import Beaten, Numbers, Row, View, amount_learnt, is_pair


class Values(View[Items]):
    """One number for each pair."""

    looks_at_each = True
    measure = "pearson"
    learns = True

    def __init__(self, items: Items, raw: Sequence[Floats], report: Report) -> None:
        super().__init__(items, raw, report)
        self.gold = np.asarray(items.gold, dtype=np.float64)
        self.values = np.array([next(iter(each.scores.values())) for each in self.predictions])

    def beside(self, other: Self) -> paired.Difference | None:
        """By correlation."""
        return self._against(other.values)

    def learnt(self, train: Sequence[Example]) -> dict[str, Beaten]:
        """Ridge regression on TF-IDF."""
        rows = [example.texts for example in train]
        gold = [float(label_sets.only(example.gold)) for example in train]
        model = baselines.numbers(rows, gold, is_pair(rows))
        values = model.values([example.texts for example in self.examples])
        scores = {
            "pearson": numbers.pearson(self.gold, values),
            "spearman": numbers.spearman(self.gold, values),
            "mse": float(((self.gold - values) ** 2).mean()) if len(values) else 0.0,
        }
        about = f"ridge regression on TF-IDF, {amount_learnt(model)}"
        return {"tfidf": Beaten(scores, self._against(values), about)}

    def _against(self, values: Numbers) -> paired.Difference:
        return paired.compared(self._products(self.values), self._products(values), _correlation, "pearson")

    def _products(self, values: Numbers) -> Numbers:
        """[N, 6] what a correlation is made of, both sides in units of their own spread."""
        one, two = ((side - side.mean()) / (side.std() or 1.0) for side in (self.gold, values))
        return np.stack((np.ones(len(one)), one, two, one * one, two * two, one * two), axis=1)

    def mistakes(self) -> Iterator[Row]:
        """The farthest first."""
        off = np.abs(self.values - self.gold)
        for place in np.argsort(-off, kind="stable").tolist():
            value = round(float(self.values[place]), 4)
            yield self.shown(place) | {"gold": float(self.gold[place]), "said": value, "score": float(off[place])}


def _correlation(sums_RK: Numbers) -> Numbers:
    count, one, two, squared, other, both = np.moveaxis(sums_RK, -1, 0)
    spread = np.sqrt(np.maximum(count * squared - one**2, 0) * np.maximum(count * other - two**2, 0))
    correlation: Numbers = np.divide(count * both - one * two, spread, out=np.zeros(len(sums_RK)), where=spread > 1e-12)
    return correlation
