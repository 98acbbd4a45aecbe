"""The next word as one record: how the text is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from filbert.core import settings
from filbert.core.protocols import Objective
from filbert.pack.stretches import Text
from filbert.tasks.task import CorpusSpec, Items
from filbert.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the text is cut."""

    max_length: int = 128
    short_prob: float = 0.0  # share of stretches that are cut shorter; short contexts are learnt anyway, at each start
    seed: int = 0

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=8, seed=0)
        settings.check_shares("task", self, "short_prob")


def items(shards: Sequence[Text], tokenizer: Tokenizer, config: Config) -> Items[Any]:
    """The texts as training reads them."""
    from filbert.tasks.causal_lm.items import Items

    return Items(shards, tokenizer, config)


SPEC = CorpusSpec(name="causal_lm", config=Config, items=items, objective=Objective.NEXT_WORDS)
