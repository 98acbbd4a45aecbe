"""Texts written from texts: what a model wrote in; the source as it is beside it, and the worst texts, out.

Legend: N texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from filbert.metrics import paired
from filbert.tasks.task import Report
from filbert.tasks.translate import measure as metrics
from filbert.tasks.translate.items import Items
from filbert.tasks.view import Beaten, Row, View
from filbert.tasks.written import Text


class Texts(View[Items]):
    """A text written from each text."""

    looks_at_each = True
    measure = "rouge_l"

    def __init__(self, items: Items, raw: Sequence[list[Text]], report: Report) -> None:
        super().__init__(items, raw, report)
        self.gold = [str(example.gold) for example in self.examples]
        self.texts = [prediction.text or "" for prediction in self.predictions]
        self.rouge_l = metrics.rouge(self.texts, self.gold)["rouge_l"]

    def beside(self, other: Self) -> paired.Difference | None:
        """By ROUGE-L."""
        return self.against(other.texts, "").difference

    def simple(self) -> dict[str, Beaten]:
        """The source as it is."""
        return {"copy": self.against([example.texts[0] for example in self.examples], "the source as it is")}

    def against(self, texts: Sequence[str], about: str) -> Beaten:
        """What other texts score; BLEU only where the task's own evaluation could take it."""
        rouge_l, count = metrics.rouge(texts, self.gold)["rouge_l"], max(1, len(texts))
        scores = {"rouge_l": float(rouge_l.sum() / count)}
        if texts and "bleu" in self.report:
            metric = metrics.sacrebleu_metrics(self.report["tokenize"])["bleu"]
            scores = {"bleu": float(metric.corpus_score(list(texts), [self.gold]).score), **scores}
        ours, theirs = self.rouge_l[:, None], rouge_l[:, None]
        return Beaten(scores, paired.compared(ours, theirs, lambda sums: sums[:, 0] / count, "rouge_l"), about)

    def mistakes(self) -> Iterator[Row]:
        """What has least in common with the right text, by the F1 of ROUGE-L; of these the surest first."""
        sure = [prediction.scores.get("score", 0.0) for prediction in self.predictions]
        for place in sorted(range(len(self.texts)), key=lambda place: (self.rouge_l[place], -sure[place])):
            if self.rouge_l[place] < 1:
                texts = {"gold": self.gold[place], "said": self.texts[place]}
                yield self.shown(place) | texts | {"f1": float(self.rouge_l[place]), "score": round(sure[place], 6)}
