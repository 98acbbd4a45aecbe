"""Choices among options: a model's scores in; the likest option and the commonest place beside them, and mistakes, out.

Legend: N questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from filbert.core.records import Floats
from filbert.metrics import baselines, calibration, paired
from filbert.tasks.choose.items import Items
from filbert.tasks.task import Report
from filbert.tasks.view import SURE, Beaten, Flags, Numbers, Row, View, believed


class Choices(View[Items]):
    """One of the options that each question has."""

    measure = "accuracy"

    def __init__(self, items: Items, raw: Sequence[Floats], report: Report) -> None:
        super().__init__(items, raw, report)
        self.gold = np.asarray(items.gold, dtype=np.int64)
        self.options = [example.texts[-len(row) :] for example, row in zip(self.examples, raw, strict=True)]
        self.scores = calibration.stacked(raw)
        self.shares = calibration.shares(self.scores, items.temperature)

    def _right(self, chosen: Sequence[int]) -> Flags:
        """[N]; of two options that are alike either is right."""
        rows = zip(self.options, chosen, self.gold.tolist(), strict=True)
        return np.array([options[place] == options[gold] for options, place, gold in rows], dtype=np.bool_)

    def beside(self, other: Self) -> paired.Difference | None:
        """By accuracy."""
        ours, theirs = (self._right(each.shares.argmax(axis=1).tolist()) for each in (self, other))
        return paired.accuracy(ours, theirs)

    def simple(self) -> dict[str, Beaten]:
        """The commonest place, and the option that is likest to passage and question."""
        pairs = zip(self.examples, self.options, strict=True)
        questions = ["\n".join(example.texts[: -len(options)]) for example, options in pairs]
        commonest = int(np.bincount(self.gold, minlength=1).argmax())
        places = [min(commonest, len(options) - 1) for options in self.options]
        likest = baselines.closest(questions, self.options)
        return {
            "majority": self._against(places, "always the commonest place"),
            "tfidf": self._against(likest, "the option likest to passage and question by TF-IDF"),
        }

    def _against(self, chosen: Sequence[int], about: str) -> Beaten:
        ours, right = self._right(self.shares.argmax(axis=1).tolist()), self._right(chosen)
        scores = {"accuracy": float(right.mean()) if len(right) else 0.0}
        return Beaten(scores, paired.accuracy(ours, right), about)

    def calibration(self, is_fitted_here: bool) -> Row | None:
        """Of the likeliest option."""
        return believed(self.scores, self.gold, self.items.temperature, is_fitted_here)

    def mistakes(self) -> Iterator[Row]:
        """Wrong choices."""
        chosen = self.shares.argmax(axis=1)
        wrong = np.flatnonzero(~self._right(chosen.tolist()))
        sure = self.shares.max(axis=1)
        for place in wrong[np.argsort(-sure[wrong], kind="stable")].tolist():
            options = self.options[place]
            answers = {"gold": options[int(self.gold[place])], "said": options[int(chosen[place])]}
            yield self.shown(place) | answers | {"score": float(sure[place])}

    def errors(self, others: Sequence[Numbers] = ()) -> Row | None:
        """Questions of which the model is sure that another option is right."""
        listed = [row for row in self.mistakes() if row["score"] >= SURE]
        return {"num": len(listed), "checked": len(self.examples), "ranked": listed}
