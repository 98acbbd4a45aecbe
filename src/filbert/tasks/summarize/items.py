"""A short text written from a long one: articles and summaries in, the loss of an encoder-decoder, or summaries, out.

As translate, but for this: an article longer than `max_length` is read in stretches, and the writer sees the vectors of
all of them as one memory. So nothing of it is left out, in learning neither, and what attention costs grows with the
article's length, not with its square. ROUGE stands beside that of the article's first sentence, which is hard to beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from filbert.tasks.task import Report
from filbert.tasks.translate import items as translate
from filbert.tasks.translate import measure as metrics
from filbert.tasks.written import Text
from filbert.text.sentences import sentences


class Items(translate.Items):
    """Summaries; an article whose summary is not known can be summarized, not learnt from."""

    joins: ClassVar[bool] = True
    copies: ClassVar[bool] = True

    def evaluated(self, raw: Sequence[list[Text]]) -> Report:
        """ROUGE with intervals, beside that of the first sentence; ROUGE-L is the one to look at first."""
        texts, right = self._pairs(raw)
        report = metrics.rouge_summary(
            texts, right, lead=[first_sentence(example.texts[0]) for example in self.examples]
        )
        edges = report["intervals"]
        return report | {"intervals": {name: edges[name] for name in ("rouge_l", "rouge_1", "rouge_2")}}


def first_sentence(text: str) -> str:
    """The first sentence of a text; nothing of an empty one."""
    start, end = next(iter(sentences(text)), (0, 0))
    return text[start:end]
