"""Answers to what was said as one record: as translate, but for how long they are and that they never loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from filbert.core.records import Example
from filbert.tasks.task import AnyItems, TaskSpec
from filbert.tasks.translate import spec as translate
from filbert.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Config(translate.Config):
    """How dialogues are read, and how answers are written."""

    no_repeat: int = 3
    max_new: int = 64
    max_ratio: float = 0.0


def card(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that chats"


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.chat.items import Items

    return Items(examples, labels, tokenizer, config)


SPEC: TaskSpec[Config] = replace(translate.SPEC, name="chat", config=Config, items=items, card=card)  # type: ignore[arg-type, assignment]
