"""How often words stand near each other as one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from filbert.core.protocols import Objective
from filbert.core.settings import check_positive, check_whole
from filbert.corpus.cooccurrence import FARTHEST
from filbert.corpus.word_vocab import Vocabulary
from filbert.pack.stretches import Text
from filbert.tasks.task import CorpusSpec, Items


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is counted, and how much a count weighs."""

    window: int = 10  # words to each side
    x_max: float = 100.0  # the count from which on all weigh the same
    alpha: float = 0.75
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("task", self, window=1)
        check_positive("task", self, x_max=10**12, alpha=10, window=FARTHEST)


def items(shards: Sequence[Text], tokenizer: Vocabulary, config: Config) -> Items[Any]:
    """The texts as training reads them."""
    from filbert.tasks.cooccurrence.items import Items

    return Items(shards, tokenizer, config)


SPEC = CorpusSpec(name="cooccurrence", config=Config, items=items, objective=Objective.WORD_COUNTS)
