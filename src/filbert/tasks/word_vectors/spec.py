"""Words by those around them as one record: what predicts what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from filbert.core.errors import InputError
from filbert.core.protocols import Objective
from filbert.core.settings import check_one_of, check_shares, check_whole
from filbert.corpus.word_vocab import Vocabulary
from filbert.pack.stretches import Text
from filbert.tasks.task import CorpusSpec, Items

OBJECTIVES = ("skip-gram", "cbow")
OUTPUTS = {"negative": "contexts", "hierarchical": "nodes"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Which words predict which."""

    objective: str = "skip-gram"  # skip-gram | cbow
    output: str = "negative"  # negative | hierarchical
    window: int = 5  # words to each side at most
    negatives: int = 5  # noise words for each right one
    noise_power: float = 0.75  # of their frequency, by which noise words are drawn
    subsample: float = 1e-3  # words more frequent than this are left out now and then; 0 keeps all
    max_length: int = 512  # of a stretch of text; windows end where it ends
    seed: int = 0

    def __post_init__(self) -> None:
        check_one_of("task", self, objective=OBJECTIVES, output=OUTPUTS)
        check_whole("task", self, window=1, negatives=1, max_length=8)
        check_shares("task", self, "subsample")
        if not 0 <= self.noise_power <= 1:
            raise InputError(f"task.noise_power is {self.noise_power!r}, but must be from 0 to 1.")


def idle(config: Config) -> dict[str, str]:
    """Fields that change nothing beside the others, and while what is so."""
    if config.output == "negative":
        return {}
    return dict.fromkeys(("negatives", "noise_power"), f"while task.output is {config.output}: nothing is drawn")


def items(shards: Sequence[Text], tokenizer: Vocabulary, config: Config) -> Items[Any]:
    """The texts as training reads them."""
    from filbert.tasks.word_vectors.items import Items

    return Items(shards, tokenizer, config)


SPEC = CorpusSpec(name="word_vectors", config=Config, items=items, objective=Objective.NEAR_WORDS, idle=idle)
