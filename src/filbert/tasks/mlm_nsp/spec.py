"""Masked words and next sentences as one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Objective
from filbert.pack.masking import KINDS
from filbert.pack.stretches import OBJECTIVES, Text
from filbert.tasks.task import CorpusSpec, Items
from filbert.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Config:
    """How stretches are cut and masked."""

    objective: str = "mlm+nsp"
    masking: str = "whole-word"
    mask_prob: float = 0.15
    max_length: int = 128
    short_prob: float = 0.1  # share of stretches that are cut shorter, so that short inputs are learnt too
    seed: int = 0

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise one_of("task.objective", self.objective, OBJECTIVES)
        if self.masking not in KINDS:
            raise one_of("task.masking", self.masking, KINDS)
        if type(self.max_length) is not int or not self.max_length >= 8:
            raise InputError(f"task.max_length is {self.max_length!r}, but must be a whole number of 8 or more.")
        for name in ("mask_prob", "short_prob"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"task.{name} is {getattr(self, name)!r}, but must be from 0 up to 1.")


def least_documents(config: Config) -> int:
    """Half of all second parts are of another document."""
    return 2 if config.objective == "mlm+nsp" else 1


def items(shards: Sequence[Text], tokenizer: Tokenizer, config: Config) -> Items[Any]:
    """The texts as training reads them."""
    from filbert.tasks.mlm_nsp.items import Items

    return Items(shards, tokenizer, config)


SPEC = CorpusSpec(
    name="mlm_nsp",
    config=Config,
    items=items,
    objective=Objective.MASKED_WORDS,
    least_documents=least_documents,
)
