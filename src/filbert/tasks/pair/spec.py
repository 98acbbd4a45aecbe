"""Labels or numbers of pairs as one record: how pairs are read, what training data fix."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.core.errors import InputError, one_of
from filbert.core.records import Example, Floats, Prediction
from filbert.forms import label_sets
from filbert.nn import heads
from filbert.tasks.classify import spec as classify
from filbert.tasks.task import AnyItems, Json, Report, TaskSpec, Trait
from filbert.tasks.wire import Wire
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec
    from filbert.tasks.pair.items import Items
    from filbert.tasks.probing import Probing
    from filbert.tasks.question import Question, Reading, Target
    from filbert.tasks.view import View

KEPT = (*classify.KEPT, "answer", "center", "scale")

ANSWERS = ("auto", "label", "number")

PROBLEMS: Mapping[str, Mapping[str, object]] = {**classify.PROBLEMS, "regression": {"answer": "number"}}

VALUE = ("value",)  # the one output of a head that gives numbers


@dataclass(frozen=True, kw_only=True)
class Config(classify.Config):
    """How pairs are read, learnt and decoded."""

    answer: str = "auto"  # number where the training data's labels are numbers with fractions, else label
    center: float = 0.0  # of the numbers to learn; both are measured on the training data
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answer not in ANSWERS:
            raise one_of("task.answer", self.answer, ANSWERS)
        if not math.isfinite(self.center) or not 0 < self.scale < math.inf:
            raise InputError(f"task.center and task.scale are {self.center!r} and {self.scale!r}; leave them out.")
        for name in ("label_smoothing", "consistency", "several", "class_weights"):
            if self.answer == "number" and getattr(self, name):
                raise InputError(f"task.{name} is for labels; leave it out for numbers.")


def fitted(config: Config, examples: Sequence[Example]) -> Config:
    """The config with the unit of the training data's numbers; of labels, what classify needs of them."""
    if config.answer == "auto":
        config = replace(config, answer=_kind_of_answer(config, examples))
    if config.answer != "number":
        return classify.fitted(config, examples)
    values = np.array([number(example) for example in examples if example.gold is not None])
    if not len(values) or values.std() == 0:
        raise InputError("the training data has no two different numbers, so there is nothing to learn.")
    return replace(config, center=float(values.mean()), scale=float(values.std()))


def _kind_of_answer(config: Config, examples: Sequence[Example]) -> str:
    """number, where labels are numbers with fractions and nothing was set that is for labels."""
    if any(getattr(config, name) for name in ("label_smoothing", "consistency", "several", "class_weights")):
        return "label"
    counts = Counter(str(label_sets.only(example.gold)) for example in examples if example.gold is not None)
    values = label_sets.numbers(counts)
    return "number" if values is not None and label_sets.are_measured(values) else "label"


def idle(config: Config) -> Mapping[str, str]:
    """Fields that change nothing beside the others, and while what is so."""
    if config.answer == "number":
        return dict.fromkeys(("several", "temperature"), "while task.answer is number")
    labels = dict.fromkeys(("center", "scale"), "while task.answer is label")
    return {**classify.idle(config), **(labels if config.answer == "label" else {})}


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...] | None:
    """The names of the head's outputs where the data do not give them."""
    return VALUE if config.answer == "number" else classify.label_names(config, examples)


def problem(config: Config) -> str | None:
    """What transformers calls such a head, where it does not take it for granted."""
    return "regression" if config.answer == "number" else classify.problem(config)


def card(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that gives pairs a number" if tuple(labels) == VALUE else classify.card(labels)


def record(example: Example, prediction: Prediction, top: int | None) -> Json:
    """A prediction as it is written: as of a text, or the number."""
    if prediction.label is not None or prediction.labels is not None:
        return classify.record(example, prediction, top)
    gold = {} if example.gold is None else {"gold": example.gold}
    return {VALUE[0]: round(prediction.scores[VALUE[0]], 6), **gold}


def number(example: Example) -> float:
    """Its gold as a number; one that is none is named with its file and line."""
    try:
        value = float(label_sets.only(example.gold))
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"{example.where(example.id)}: the label {str(example.gold)[:40]!r} is no number, but "
            f"task.answer=number needs one."
        )
    return value


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.pair.items import Items

    return Items(examples, labels, tokenizer, config)


def files() -> FileSpec:
    """What labelled files look like."""
    from filbert.tasks.pair.files import FILES

    return FILES


def question(reading: Reading, target: Target) -> Question[Any]:
    """What is explained."""
    from filbert.tasks.pair.question import Numbers
    from filbert.tasks.question import Labels

    return (Numbers if reading.task.config.answer == "number" else Labels)(reading, target)


def view(items: Items, raw: Sequence[Floats], report: Report) -> View[Any]:
    """How answers are measured beside baselines."""
    from filbert.tasks.pair.view import Values

    if items.config.answer == "number":
        return Values(items, raw, report)
    return classify.view(items, raw, report)


def probe() -> type[Probing]:
    """What is probed."""
    from filbert.tasks.classify.probe import Texts

    return Texts


SPEC = TaskSpec(
    name="pair",
    config=Config,
    items=items,
    record=record,
    files=files,
    probe=probe,
    wire=Wire(ranks=True),
    question=question,
    card=card,
    view=view,
    part=heads.LABELS.part,
    kept=KEPT,
    traits=frozenset({Trait.AUGMENTS, Trait.RANKS, Trait.CHOOSES}),
    num_texts=2,
    fit=fitted,
    labels=label_names,
    idle=idle,
    problem=problem,
    problems=PROBLEMS,
    from_transformers=classify.from_transformers,
    unranked=VALUE,
    number_fields={"answer": "number"},
)
