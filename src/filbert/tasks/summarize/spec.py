"""Summaries as one record: as translate, but for how long they are and that nothing is said twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from filbert.core.records import Example
from filbert.tasks.task import AnyItems, Report, TaskSpec
from filbert.tasks.translate import spec as translate
from filbert.tasks.written import Text
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.tasks.summarize.items import Items
    from filbert.tasks.view import View


@dataclass(frozen=True, kw_only=True)
class Config(translate.Config):
    """How articles are read, and how summaries are written."""

    no_repeat: int = 3  # a summary says nothing twice
    length_penalty: float = 1.0
    max_new: int = 128
    max_ratio: float = 0.0  # a long article has no longer summary


def card(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that summarizes"


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.summarize.items import Items

    return Items(examples, labels, tokenizer, config)


def view(items: Items, raw: Sequence[list[Text]], report: Report) -> View[Any]:
    """How answers are measured beside baselines."""
    from filbert.tasks.summarize.view import Summaries

    return Summaries(items, raw, report)


SPEC: TaskSpec[Config] = replace(  # type: ignore[assignment]
    translate.SPEC,
    name="summarize",
    config=Config,
    items=items,  # type: ignore[arg-type]
    card=card,
    view=view,
)
