"""Answers as stretches of a passage, as one record: how passages are read and answers written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.records import Example, Prediction
from filbert.nn import heads
from filbert.tasks.answer import decode
from filbert.tasks.answer import measure as metrics
from filbert.tasks.task import AnyItems, FolderModel, Json, Report, TaskSpec, Trait, no_labels
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec
    from filbert.tasks.answer.items import Items, WindowScores
    from filbert.tasks.question import Question, Reading, Target
    from filbert.tasks.view import View

KEPT = ("max_length", "overlap", "longest", "rule", "threshold")

RULES = ("auto", *metrics.RULES)

SHOWN = 5  # candidates that are written unless more are asked for


@dataclass(frozen=True, kw_only=True)
class Config:
    """How passages are read and which answers are given."""

    max_length: int = 384
    overlap: int = 128  # tokens that two windows share
    longest: int = decode.LONGEST  # tokens that an answer may have
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a passage is learnt from
    rule: str = "auto"  # what counts as right: that of SQuAD, CMRC 2018, DRCD or CJRC; auto is SQuAD's or CMRC's
    threshold: float | None = None  # "no answer" must lead by so much; None: every question has an answer

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=16, overlap=0, longest=1)
        settings.check_shares("task", self, "mask_prob")
        settings.check_one_of("task", self, rule=RULES)
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise InputError(f"task.threshold is {self.threshold!r}, but must be a number.")


def from_transformers(model: FolderModel, labels: Sequence[str]) -> dict[str, Any]:
    """The fields of the config for a folder of transformers', which has none of ours."""
    return {"max_length": min(model.config.max_length, Config.max_length)}


def card(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that answers questions"


LATER = ("start", "end", "score", "no_answer")  # fields that not every record has


def record(example: Example, prediction: Prediction, top: int | None) -> Json:
    """A prediction as it is written: the answer with its place, other candidates, and the right ones if known."""
    passage = example.texts[1]
    rows = [
        {"text": passage[span.start : span.end], "start": span.start, "end": span.end, "score": round(span.score, 6)}
        for span in prediction.spans[: top or SHOWN]
    ]
    result: Json = {"answer": prediction.label}
    if prediction.label:
        result |= {name: rows[0][name] for name in ("start", "end", "score")}
    if prediction.scores:
        result["no_answer"] = round(prediction.scores[""], 6)
    if example.gold is not None:
        result["gold"] = [answer.text for answer in example.gold]
    return {**result, "candidates": rows}


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.answer.items import Items

    return Items(examples, labels, tokenizer, config)


def files() -> FileSpec:
    """What labelled files look like."""
    from filbert.tasks.answer.files import FILES

    return FILES


def question(reading: Reading, target: Target) -> Question[Any]:
    """What is explained."""
    from filbert.tasks.answer.question import Answers

    return Answers(reading, target)


def view(items: Items, raw: Sequence[WindowScores], report: Report) -> View[Any]:
    """How answers are measured beside baselines."""
    from filbert.tasks.answer.view import Answers

    return Answers(items, raw, report)


def abroad(fields: Mapping[str, object]) -> list[str]:
    """What transformers does otherwise with such a folder."""
    return ["Spans are decoded by filbert's own rules; there, by the pipeline's."]


SPEC = TaskSpec(
    name="answer",
    config=Config,
    items=items,
    record=record,
    files=files,
    abroad=abroad,
    question=question,
    card=card,
    view=view,
    part=heads.SPAN.part,
    kept=KEPT,
    traits=frozenset({Trait.RANKS}),
    num_texts=2,
    later=LATER,
    labels=no_labels,
    from_transformers=from_transformers,
)
