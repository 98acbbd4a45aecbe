"""Answers out of passages: a model's answers in; the likest sentence beside them, and the worst ones, out.

Legend: N questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from filbert.metrics import baselines, paired
from filbert.tasks.answer import measure as metrics
from filbert.tasks.answer.items import Items, WindowScores
from filbert.tasks.task import Report
from filbert.tasks.view import SURE, Beaten, Numbers, Row, View
from filbert.text.sentences import sentences


class Answers(View[Items]):
    """A stretch of a passage, or that there is none."""

    looks_at_each = True
    measure = "f1"

    def __init__(self, items: Items, raw: Sequence[WindowScores], report: Report) -> None:
        super().__init__(items, raw, report)
        self.accepted = [[answer.text for answer in example.gold] for example in self.examples]
        self.f1 = self._scores([prediction.label or "" for prediction in self.predictions]).f1

    def _scores(self, answers: Sequence[str]) -> metrics.Scores:
        return metrics.scores(answers, self.accepted, self.report["rule"])

    def beside(self, other: Self) -> paired.Difference | None:
        """By F1 of the answers' characters or words."""
        return self._against(other.f1)

    def _against(self, f1: Numbers) -> paired.Difference:
        count = max(1, len(self.f1))
        return paired.compared(self.f1[:, None], f1[:, None], lambda sums: sums[:, 0] / count, "f1")

    def simple(self) -> dict[str, Beaten]:
        """The sentence of the passage that is likest to the question."""
        questions, cut = [], []
        for example in self.examples:
            question, passage = example.texts
            questions.append(question)
            cut.append([passage[start:end] for start, end in sentences(passage)])
        best = baselines.closest(questions, cut)
        answers = [each[place] if place >= 0 else "" for each, place in zip(cut, best, strict=True)]
        measured = self._scores(answers)
        scores = {"exact": float(measured.exact.mean()), "f1": float(measured.f1.mean())} if answers else {}
        about = "the sentence that is likest to the question by TF-IDF"
        return {"tfidf": Beaten(scores, self._against(measured.f1), about)}

    def _sure(self, place: int) -> float:
        prediction = self.predictions[place]
        return float(prediction.spans[0].score) if prediction.spans and prediction.label else 0.0

    def _listed(self, place: int) -> Row:
        answers = {"gold": self.accepted[place], "said": self.predictions[place].label or ""}
        return self.shown(place) | answers | {"f1": float(self.f1[place]), "score": round(self._sure(place), 6)}

    def mistakes(self) -> Iterator[Row]:
        """The worst answers, of these the surest first."""
        order = sorted(np.flatnonzero(self.f1 < 1).tolist(), key=lambda place: (self.f1[place], -self._sure(place)))
        return map(self._listed, order)

    def errors(self, others: Sequence[Numbers] = ()) -> Row | None:
        """Questions whose answer has nothing in common with one that the model is sure of."""
        wrong = [place for place in np.flatnonzero(self.f1 == 0).tolist() if self._sure(place) >= SURE]
        listed = [self._listed(place) for place in sorted(wrong, key=lambda place: -self._sure(place))]
        return {"num": len(listed), "checked": len(self.examples), "ranked": listed}
