"""The question of pretraining's own head, whether a second text follows a first, as one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from filbert.core import settings
from filbert.core.records import Example
from filbert.tasks.classify import spec as classify
from filbert.tasks.task import AnyItems, TaskSpec, Trait
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec

LABELS = ("follows", "does not follow")


@dataclass(frozen=True, kw_only=True)
class Config:
    """How pairs are read."""

    max_length: int = 512
    overlap: int = 64  # tokens that two windows share; at most half of one
    pool: ClassVar[str] = "cls"
    several: ClassVar[float] = 0.0
    class_weights: ClassVar[str] = ""
    mask_prob: ClassVar[float] = 0.0
    temperature: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=8, overlap=0)


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.nsp.items import Items

    return Items(examples, labels, tokenizer, config)


def files() -> FileSpec:
    """What labelled files look like."""
    from filbert.tasks.nsp.files import FILES

    return FILES


SPEC = TaskSpec(
    name="nsp",
    config=Config,
    items=items,
    record=classify.record,
    files=files,
    card=classify.card,
    part="nsp",
    traits=frozenset({Trait.RANKS}),
    num_texts=2,
)
