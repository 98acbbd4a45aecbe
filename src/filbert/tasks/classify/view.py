"""Several labels for each text: a model's answers in; baselines, mistakes and probable errors of the gold out.

Legend: N texts, L labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from filbert.core.records import Example, Floats
from filbert.metrics import baselines, paired
from filbert.tasks.classify.items import Items, set_golds
from filbert.tasks.task import Report
from filbert.tasks.view import SURE, Beaten, Flags, Numbers, Row, View, f1


class Sets(View[Items[Any]]):
    """Any number of labels for each text."""

    measure = "micro_f1"
    learns = True

    def __init__(self, items: Items[Any], raw: Sequence[Floats], report: Report) -> None:
        super().__init__(items, raw, report)
        self.labels = items.labels
        self.gold = np.asarray(items.gold) == 1
        self.chances: Numbers = items.label_shares(raw).reshape(self.gold.shape)
        self.called = self.chances >= items.config.several

    def beside(self, other: Self) -> paired.Difference | None:
        """By micro F1."""
        return self._against(other.called, "").difference

    def simple(self) -> dict[str, Beaten]:
        """Always the most frequent set of labels."""
        kinds, many = np.unique(self.gold, axis=0, return_counts=True)
        answers = np.repeat(kinds[many.argmax()][None], len(self.gold), axis=0)
        return {"majority": self._against(answers, "always the most frequent set of labels")}

    def learnt(self, train: Sequence[Example]) -> dict[str, Beaten]:
        """A logistic regression on TF-IDF for each label."""
        gold, rows = set_golds(train, self.labels), [example.texts for example in train]
        answers = baselines.sets(rows, gold, [example.texts for example in self.examples]) >= 0.5
        return {"tfidf": self._against(answers, "logistic regression on TF-IDF for each label")}

    def _against(self, answers: Flags, about: str) -> Beaten:
        ours, theirs = (np.stack(((self.gold & each).sum(1), each.sum(1), self.gold.sum(1)), axis=1).astype(float)
                        for each in (self.called, answers))  # fmt: skip
        scores = {
            "micro_f1": float(f1(theirs.sum(axis=0)[None])[0]),
            "accuracy": float((answers == self.gold).all(1).mean()),
        }
        return Beaten(scores, paired.compared(ours, theirs, f1, "micro_f1"), about)

    def mistakes(self) -> Iterator[Row]:
        """Examples with a wrong or missing label, those first of which a label is the surest to be wrong."""
        off = np.where(self.gold != self.called, np.abs(self.chances - self.gold), 0.0).max(axis=1, initial=0.0)
        for place in np.argsort(-off, kind="stable").tolist():
            if off[place] > 0:
                sides = {"gold": self._names(self.gold[place]), "said": self._names(self.called[place])}
                yield self.shown(place) | sides | {"score": float(off[place])}

    def _names(self, flags: Flags) -> list[str]:
        return [name for name, flag in zip(self.labels, flags.tolist(), strict=True) if flag]

    def errors(self, others: Sequence[Numbers] = ()) -> Row | None:
        """Labels that are there, or are not, though the model is sure of the opposite."""
        off = np.abs(self.chances - self.gold)
        at, which = np.nonzero(off >= SURE)
        order = np.argsort(-off[at, which], kind="stable")
        listed = [
            self.shown(row)
            | {"gold": self._names(self.gold[row]), "label": self.labels[label]}
            | {"instead": "not there" if self.gold[row, label] else "there", "score": float(off[row, label])}
            for row, label in zip(at[order].tolist(), which[order].tolist(), strict=True)
        ]
        return {"num": len(listed), "checked": len(self.gold), "ranked": listed}
