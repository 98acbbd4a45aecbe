"""Vectors of texts as one record: how they are read and what they learn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.records import Example, Prediction
from filbert.tasks.classify.spec import POOLS
from filbert.tasks.task import AnyItems, Json, TaskSpec, Trait, no_labels
from filbert.tasks.wire import Wire, nothing_beside
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec
    from filbert.tasks.question import Question, Reading, Target

TEXTS = ("text", "second", "negative")  # what a prediction's texts are called

KEPT = ("max_length", "overlap", "pool", "widths", "threshold")

LOSSES = {
    "contrastive": ("contrastive",),
    "ranking": ("ranking",),
    "both": ("contrastive", "ranking"),
    "dropout": ("dropout",),
}

OBJECTIVES = ("auto", *LOSSES)

KINDS = {  # what data are, and the objectives that they can be learnt by, their own first
    "texts": ("dropout",),
    "pairs": ("contrastive", "dropout"),
    "triplets": ("contrastive", "dropout"),
    "labels": ("both", "ranking", "contrastive", "dropout"),  # 0 and 1
    "numbers": ("ranking", "dropout"),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """How texts are read and what their vectors are to learn."""

    max_length: int = 512
    pool: str = "mean"
    objective: str = "auto"  # auto is what the data are for
    temperature: float = 0.05  # of the cosines: the smaller, the more the hardest comparisons count
    group: int = 32  # examples that are compared with each other
    widths: str = ""  # e.g. 384,192,96: the first so many numbers are vectors as well (Kusupati et al. 2022)
    mask_prob: float = 0.0  # share of tokens that each reading hides behind [MASK], where texts alone are learnt from
    overlap: int = 64  # tokens that two windows share; at most half of one
    threshold: float | None = None  # pairs of at least that cosine belong together; fitted on dev data with labels

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=8, overlap=0, group=2)
        settings.check_one_of("task", self, pool=POOLS, objective=OBJECTIVES)
        settings.check_positive("task", self, temperature=10)
        settings.check_shares("task", self, "mask_prob")
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise InputError(f"task.threshold is {self.threshold!r}, but a cosine is from -1 to 1.")
        widths(self)


def widths(config: Config) -> tuple[int, ...]:
    """How many numbers of a vector are a vector too, the most first; none where only all are."""
    listed = [word.strip() for word in str(config.widths).split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in listed):
        raise InputError(f"task.widths is {config.widths!r}, but must be whole numbers with commas, e.g. 384,192,96.")
    return tuple(sorted({int(word) for word in listed}, reverse=True))


def fitted(config: Config, examples: Sequence[Example]) -> Config:
    """The config as it is, where it fits the training data."""
    kind = kind_of(examples, golds(examples))
    if config.objective not in ("auto", *KINDS[kind]):
        what = f"pairs with {kind}" if kind in ("labels", "numbers") else kind
        raise InputError(
            f"task.objective={config.objective} does not learn from {what}; leave it out, or set it to "
            f"{' or '.join(KINDS[kind])}."
        )
    return config


def card(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that turns texts into vectors"


def requested(pairs: Iterable[object]) -> list[Example]:
    """What `predict` is given, (first, second) or a triplet (text, positive, negative), as examples."""
    if isinstance(pairs, str):
        raise InputError("pairs is one string, but a list of pairs is needed: write predict([(first, second)]).")
    examples: list[Example] = []
    for index, texts in enumerate(pairs):
        parts = [texts] if isinstance(texts, str) else list(texts) if isinstance(texts, (list, tuple)) else []
        parts = [*parts[:2], *(parts[2] if len(parts) == 3 and isinstance(parts[2], (list, tuple)) else parts[2:])]
        if len(parts) not in (2, 3) or not all(isinstance(text, str) for text in parts):
            raise InputError(
                f"pair {index} is {str(texts)[:40]!r}, but must be two strings, or three of a triplet: this model "
                "reads pairs; `embed` gives single texts their vectors."
            )
        if examples and len(examples[0].texts) != len(parts):
            raise InputError(
                f"pair {index} has {len(parts)} texts, but those before it have {len(examples[0].texts)}; ask pairs "
                "and triplets apart."
            )
        examples.append(Example(tuple(parts)))
    return examples


def record(example: Example, prediction: Prediction, top: int | None) -> Json:
    """A prediction as it is written: the cosine of the two vectors, and what is right if known."""
    gold = {} if example.gold is None else {"gold": example.gold}
    return {name: round(score, 6) for name, score in prediction.scores.items()} | gold


def kind_of(examples: Sequence[Example], gold: npt.NDArray[np.float32]) -> str:
    """What the data are, of KINDS; a mixture is refused with its place."""
    first = examples[0] if examples else Example(("", ""))
    shape = (len(first.texts), first.gold is not None)
    for index, example in enumerate(examples):
        if (len(example.texts), example.gold is not None) != shape:
            raise InputError(
                f"{example.where(index)}: is not like the examples before it; give all of them one, two "
                "or three texts, and all or none a label."
            )
    if shape[0] not in (1, 2, 3) or shape in ((1, True), (3, True)):
        raise InputError(
            f"{first.where(0)}: has {shape[0]} texts{' and a label' * shape[1]}, but embed reads a text, "
            "a pair, a pair with a label or a number, or a triplet."
        )
    if shape[1]:
        return "labels" if np.isin(gold, (0, 1)).all() else "numbers"
    return ("texts", "pairs", "triplets")[shape[0] - 1]


def golds(examples: Sequence[Example]) -> npt.NDArray[np.float32]:
    """[N] the numbers, not a number where there is none; what is no number is named with its file and line."""
    numbers = np.full(len(examples), math.nan, dtype=np.float32)
    for index, example in enumerate(examples):
        if example.gold is None:
            continue
        try:
            numbers[index] = float(example.gold)
        except (TypeError, ValueError):
            numbers[index] = math.nan
        if not math.isfinite(numbers[index]):
            raise InputError(
                f"{example.where(index)}: the label {str(example.gold)[:40]!r} is no number, but embed "
                "learns from 0 and 1 or from numbers; if it is a third text: --columns text=1,second=2,negative=3."
            )
    return numbers


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.embed.items import Items

    return Items(examples, labels, tokenizer, config)


def files() -> FileSpec:
    """What labelled files look like."""
    from filbert.tasks.embed.files import FILES

    return FILES


def question(reading: Reading, target: Target) -> Question[Any]:
    """What is explained."""
    from filbert.tasks.embed.question import Likeness

    return Likeness(reading, target)


def abroad(fields: Mapping[str, object]) -> list[str]:
    """What transformers does otherwise with such a folder."""
    pool = fields.get("pool", "mean")
    if pool not in ("cls", "mean"):
        return ["A text is summed up in the model's own way; there is none there."]
    return [f"A text's vector is the {pool} of the last layer, to length 1; sentence-transformers does so."]


SPEC = TaskSpec(
    name="embed",
    config=Config,
    items=items,
    record=record,
    files=files,
    abroad=abroad,
    wire=Wire(pipeline=None, beside=nothing_beside),
    question=question,
    card=card,
    kept=KEPT,
    traits=frozenset({Trait.NEEDS_NO_GOLD}),
    num_texts=2,
    texts=TEXTS,
    fit=fitted,
    labels=no_labels,
    asked=requested,
    widths=widths,
)
