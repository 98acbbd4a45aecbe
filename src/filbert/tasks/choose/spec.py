"""Choices among options as one record: how they are read and written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.records import Example, Floats, Prediction
from filbert.nn import heads
from filbert.tasks.classify.spec import POOLS, from_transformers
from filbert.tasks.task import AnyItems, Json, Report, TaskSpec, Trait, no_labels
from filbert.tasks.wire import Beside, Wire
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec
    from filbert.tasks.choose.items import Items
    from filbert.tasks.question import Question, Reading, Target
    from filbert.tasks.view import View

KEPT = ("max_length", "overlap", "pool", "temperature")

POOL = "cls"  # of a model whose first token reads all (experiments/2026-11-18-choices.md); else the mean

BEFORE = 2  # texts of an example that are not options: passage and question


@dataclass(frozen=True, kw_only=True)
class Config:
    """How passages and options are read."""

    max_length: int = 512
    overlap: int = 128  # tokens that two windows share; at most half of one
    pool: str = "mean"  # of all vectors, or "cls": the pooler's, as published, which a BERT is fine-tuned with
    label_smoothing: float = 0.0
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a question is learnt from
    temperature: float = 1.0  # divides the scores before they are probabilities; dev data fit it

    def __post_init__(self) -> None:
        settings.check_whole("task", self, max_length=8, overlap=0)
        settings.check_one_of("task", self, pool=POOLS)
        settings.check_shares("task", self, "label_smoothing", "mask_prob")
        settings.check_positive("task", self, temperature=1_000)


def card(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that chooses among options"


def requested(questions: Iterable[object]) -> list[Example]:
    """What `predict` is given, each (passage, question, [option, option, …]), as examples."""
    examples = []
    for index, each in enumerate(questions):
        parts = each if isinstance(each, tuple | list) and len(each) == 3 else (None, None, None)
        options = parts[2] if isinstance(parts[2], list | tuple) else (None,)
        texts = (parts[0], parts[1], *options)
        if not all(isinstance(text, str) for text in texts):
            raise InputError(
                f"question {index} is {str(each)[:40]!r}, but must be (passage, question, [option, option, …]): this "
                "model chooses among options; on the command line, give them as --data."
            )
        examples.append(Example(texts, id=index))
    return examples


def record(example: Example, prediction: Prediction, top: int | None) -> Json:
    """A prediction as it is written: the options, the chosen one's number from 0 and text, and all their shares."""
    options = list(example.texts[BEFORE:])
    scores = {option: round(share, 6) for option, share in list(prediction.scores.items())[:top]}
    gold = {} if example.gold is None else {"gold": example.gold}
    answer = str(prediction.label)
    chosen = {"choice": options.index(answer), "answer": answer, "score": round(prediction.scores[answer], 6)}
    return {"options": options, **chosen, **gold, "scores": scores}


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.choose.items import Items

    return Items(examples, labels, tokenizer, config)


def files() -> FileSpec:
    """What labelled files look like."""
    from filbert.tasks.choose.files import FILES

    return FILES


def question(reading: Reading, target: Target) -> Question[Any]:
    """What is explained."""
    from filbert.tasks.choose.question import Options

    return Options(reading, target)


def options_beside(first: str, others: Sequence[object]) -> list[Beside]:
    """Question and option stand beside each window of the passage."""
    question, options = others
    assert isinstance(options, list | tuple)
    return [(first, str(question), str(option)) for option in options]


def view(items: Items, raw: Sequence[Floats], report: Report) -> View[Any]:
    """How answers are measured beside baselines."""
    from filbert.tasks.choose.view import Choices

    return Choices(items, raw, report)


SPEC = TaskSpec(
    name="choose",
    config=Config,
    items=items,
    record=record,
    files=files,
    wire=Wire(beside=options_beside),
    question=question,
    card=card,
    view=view,
    part=heads.CHOICE.part,
    kept=KEPT,
    traits=frozenset({Trait.RANKS, Trait.OPTIONS, Trait.CHOOSES}),
    num_texts=BEFORE + 1,
    pool=POOL,
    labels=no_labels,
    from_transformers=from_transformers,
    asked=requested,
)
