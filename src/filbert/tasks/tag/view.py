"""Spans with labels: a model's spans in; a dictionary beside them, those invented and those missing, out.

Legend: N texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from filbert.core.records import Example, Span
from filbert.metrics import baselines, paired
from filbert.tasks.tag import measure as metrics
from filbert.tasks.tag.items import Items
from filbert.tasks.view import SURE, Beaten, Numbers, Row, View, f1

AROUND = 30  # characters on both sides of a span that is shown
INVENTED, MISSING = "invented", "missing"


class Apart(NamedTuple):
    """A span that model and gold do not agree on."""

    place: int  # of its example
    span: Span
    what: str  # INVENTED or MISSING


class Spans(View[Items[Any]]):
    """Stretches of a text, each with a label."""

    looks_at_each = True
    measure = "f1"
    learns = True

    def _counts(self, spans: Sequence[Sequence[Span]]) -> Numbers:
        """[N, 3] right, called and gold spans of each text."""
        table = metrics.table([example.gold for example in self.examples], spans)
        return np.stack([part.sum(axis=1) for part in (table.right, table.called, table.there)], axis=1).astype(float)

    def beside(self, other: Self) -> paired.Difference | None:
        """By F1 of whole spans."""
        ours, theirs = (self._counts([prediction.spans for prediction in each.predictions]) for each in (self, other))
        return paired.compared(ours, theirs, f1, "f1")

    def learnt(self, train: Sequence[Example]) -> dict[str, Beaten]:
        """A dictionary of the training data's spans."""
        dictionary = baselines.Dictionary([example.texts[0] for example in train], [example.gold for example in train])
        theirs = self._counts([dictionary(example.texts[0]) for example in self.examples])
        ours = self._counts([prediction.spans for prediction in self.predictions])
        right, called, there = theirs.sum(axis=0).tolist()
        scores = {
            "precision": right / max(1, called),
            "recall": right / max(1, there),
            "f1": float(f1(theirs.sum(0)[None])[0]),
        }
        about = f"the longest match in a dictionary of {len(dictionary.labels):,} stretches of the training data"
        return {"dictionary": Beaten(scores, paired.compared(ours, theirs, f1, "f1"), about)}

    def _apart(self) -> Iterator[Apart]:
        """All that model and gold do not agree on."""
        for place, (example, prediction) in enumerate(zip(self.examples, self.predictions, strict=True)):
            gold = {(span.start, span.end, span.label) for span in example.gold}
            called = {(span.start, span.end, span.label) for span in prediction.spans}
            for span in prediction.spans:
                if (span.start, span.end, span.label) not in gold:
                    yield Apart(place, span, INVENTED)
            yield from (Apart(place, Span(*key, 0.0), MISSING) for key in sorted(gold - called))

    def _listed(self, place: int, span: Span, what: str) -> Row:
        example = self.examples[place]
        text = example.texts[0]
        before, behind = text[max(0, span.start - AROUND) : span.start], text[span.end : span.end + AROUND]
        place_of = {"file": example.source, "line": example.line, "row": place, "start": span.start, "end": span.end}
        marked = f"{before}【{text[span.start : span.end]}】{behind}"
        return {**place_of, "text": marked, "what": what, "label": span.label, "score": round(span.score, 6)}

    def mistakes(self) -> Iterator[Row]:
        """Spans that the model invented, the surest first, and, in turn with them, those that it missed."""
        apart = list(self._apart())
        invented = sorted((each for each in apart if each.what == INVENTED), key=lambda each: -each.span.score)
        missing = [each for each in apart if each.what == MISSING]
        for turn in range(max(len(invented), len(missing))):
            for group in (invented, missing):
                if turn < len(group):
                    yield self._listed(*group[turn])

    def errors(self, others: Sequence[Numbers] = ()) -> Row | None:
        """Spans that the model is sure of and the gold does not have."""
        sure = [each for each in self._apart() if each.span.score >= SURE]
        sure.sort(key=lambda each: -each.span.score)
        listed = [self._listed(each.place, each.span, "not in the gold") for each in sure]
        return {"num": len(listed), "checked": len(self.examples), "ranked": listed}
