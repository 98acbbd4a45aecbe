"""A short text written from a long one: articles and summaries in, the loss of an encoder-decoder, or summaries, out.

As translate, but for this: an article longer than `max_length` is read in stretches, and the writer sees the vectors of
all of them as one memory. So nothing of it is left out, in learning neither, and what attention costs grows with the
article's length, not with its square. ROUGE stands beside that of the article's first sentence, which is hard to beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from filbert.metrics import generation as metrics
from filbert.tasks.translate import items as translate
from filbert.tasks.translate.items import HEAD, KEPT, LATER, ONE_ANSWER, idle, label_names, record
from filbert.text.sentences import sentences

__all__ = ["DATA", "HEAD", "KEPT", "LATER", "ONE_ANSWER", "Config", "Task", "called", "idle", "label_names", "record"]
DATA = "translate"  # what its files are read as


@dataclass(frozen=True, kw_only=True)
class Config(translate.Config):
    """How articles are read, and how summaries are written."""

    no_repeat: int = 3  # a summary says nothing twice
    length_penalty: float = 1.0
    max_new: int = 128
    max_ratio: float = 0.0  # a long article has no longer summary


def called(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that summarizes"


class Task(translate.Task):
    """Summaries; an article whose summary is not known can be summarized, not learnt from."""

    joins: ClassVar[bool] = True
    copies: ClassVar[bool] = True

    def evaluated(self, raw: Sequence[Any]) -> dict[str, Any]:
        """ROUGE with intervals, beside that of the first sentence; ROUGE-L is the one to look at first."""
        said, right = self._pairs(raw)
        told = metrics.rouge_summary(said, right, lead=[_first(example.texts[0]) for example in self.examples])
        edges = told["intervals"]
        return told | {"intervals": {name: edges[name] for name in ("rouge_l", "rouge_1", "rouge_2")}}


def _first(text: str) -> str:
    """The first sentence."""
    start, end = next(iter(sentences(text)), (0, 0))
    return text[start:end]
