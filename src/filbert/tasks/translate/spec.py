"""Texts written from texts, as one record: how they are read and how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.records import Example, Prediction
from filbert.tasks.task import AnyItems, Json, Report, TaskSpec, Trait, no_labels
from filbert.tasks.written import Text
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec
    from filbert.tasks.translate.items import Items
    from filbert.tasks.view import View

LATER = ("unknown", "cut")  # fields that not every record has

KEPT = ("max_length", "beam", "length_penalty", "no_repeat", "max_new", "max_ratio", "temperature", "top_k", "top_p")


@dataclass(frozen=True, kw_only=True)
class Config:
    """How texts are read, and how others are written from them."""

    max_length: int = 512  # tokens of a source, or of a stretch of it, and of a target
    beam: int = 4  # beginnings that a search keeps; 1 takes the likeliest token each time
    length_penalty: float = 0.6  # the larger, the longer the texts (Wu et al. 2016, eq. 14)
    no_repeat: int = 0  # no stretch of so many tokens is written twice; 0: any may
    max_new: int = 16  # tokens that a text has at most …
    max_ratio: float = 2.0  # … and so many more for each of its source's
    temperature: float = 0.0  # above 0 the next token is drawn, from scores divided by it, and no beam is searched
    top_k: int = 0  # drawn among so many of the likeliest tokens; 0: all
    top_p: float = 1.0  # drawn among the likeliest that together have this probability (Holtzman et al. 2020)
    seed: int = 0  # of what is drawn
    label_smoothing: float = 0.1  # while learning (Vaswani et al. 2017, §5.4)
    mask_prob: float = 0.0  # share of the source's tokens hidden behind [MASK], other ones each time it is learnt from

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=8, beam=1, no_repeat=0, max_new=1, top_k=0, seed=0)
        settings.check_positive("task", self, top_p=1)
        settings.check_shares("task", self, "label_smoothing", "mask_prob")
        for name, most in (("length_penalty", 10), ("max_ratio", 100), ("temperature", 100)):
            if not 0 <= getattr(self, name) <= most:
                raise InputError(f"task.{name} is {getattr(self, name)!r}, but must be from 0 to {most}.")


def idle(config: Config) -> Mapping[str, str]:
    """Fields that change nothing beside the others, and while what is so."""
    if config.temperature:
        return dict.fromkeys(("beam", "length_penalty"), "while task.temperature is above 0: tokens are drawn")
    drawn = dict.fromkeys(("top_k", "top_p", "seed"), "while task.temperature is 0: nothing is drawn")
    return drawn | ({"length_penalty": "while task.beam is 1: no two texts are compared"} if config.beam == 1 else {})


def card(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that translates"


def record(example: Example, prediction: Prediction, top: int | None) -> Json:
    """A prediction as it is written: the text, how likely its tokens are, what to mind, and the right text if known."""
    gold = {} if example.gold is None else {"gold": example.gold}
    return {"written": prediction.text, **{name: round(value, 6) for name, value in prediction.scores.items()}, **gold}


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.translate.items import Items

    return Items(examples, labels, tokenizer, config)


def files() -> FileSpec:
    """What labelled files look like."""
    from filbert.tasks.translate.files import FILES

    return FILES


def view(items: Items, raw: Sequence[list[Text]], report: Report) -> View[Any]:
    """How answers are measured beside baselines."""
    from filbert.tasks.translate.view import Texts

    return Texts(items, raw, report)


SPEC = TaskSpec(
    name="translate",
    config=Config,
    items=items,
    record=record,
    files=files,
    card=card,
    view=view,
    part="writer",
    kept=KEPT,
    traits=frozenset({Trait.WRITES}),
    later=LATER,
    labels=no_labels,
    idle=idle,
)
