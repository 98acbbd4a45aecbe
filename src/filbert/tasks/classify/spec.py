"""Classification of texts as one record: how texts are read, what training data fix, how a result is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.records import Example, Floats, Prediction
from filbert.forms import label_sets
from filbert.nn import heads
from filbert.tasks.task import AnyItems, FolderModel, Json, Report, TaskSpec, Trait, usual_view
from filbert.tasks.wire import Wire
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec
    from filbert.tasks.classify.items import Items
    from filbert.tasks.probing import Probing
    from filbert.tasks.view import View

POOLS = ("mean", "cls", "own")  # own: as the model itself sums a text up, where it does
BALANCED = "balanced"
START = 0.5  # from which on one of several labels is given, until dev data say better
PROBLEMS = {"multi_label_classification": {"several": START}}  # what transformers' names for heads say of the config
KEPT = ("max_length", "overlap", "pool", "several", "temperature")  # what a folder keeps of the config


@dataclass(frozen=True, kw_only=True)
class Config:
    """How texts are read, learnt and decoded."""

    max_length: int = 512
    pool: str = "mean"
    label_smoothing: float = 0.0
    consistency: float = 0.0  # weight of R-Drop: two runs with other dropout and masks agree (Liang et al. 2021)
    mask_prob: float = 0.0  # share of tokens hidden behind [MASK], other ones each time a text is learnt from
    overlap: int = 64  # tokens that two windows share; at most half of one
    several: bool | float = 0.0  # labels of one text: all of at least this probability (true: 0.5); 0: the likeliest
    class_weights: str = ""  # of the labels in the loss: balanced, or spam=2,ham=0.5; those not named weigh 1
    temperature: float = 1.0  # divides the scores before they are probabilities; dev data fit it

    def __post_init__(self) -> None:
        if type(self.several) is bool:
            object.__setattr__(self, "several", START if self.several else 0.0)
        if not 0 <= self.several < 1:
            raise InputError(f"task.several is {self.several!r}, but must be true, false or a number from 0 up to 1.")
        if self.class_weights not in ("", BALANCED):
            label_sets.weights(self.class_weights)
        settings.check_whole("task", self, max_length=8, overlap=0)
        settings.check_one_of("task", self, pool=POOLS)
        settings.check_shares("task", self, "label_smoothing", "mask_prob")
        settings.check_positive("task", self, temperature=1_000)
        if not 0 <= self.consistency <= 100:
            raise InputError(f"task.consistency is {self.consistency!r}, but must be from 0 to 100.")


Fitting = TypeVar("Fitting", bound=Config)  # also a config of those that read pairs


def from_transformers(model: FolderModel, labels: Sequence[str]) -> dict[str, Any]:
    """The fields of the config for a folder of transformers', which has none of ours."""
    return {"max_length": model.config.max_length, "pool": "cls" if "pooler" in model.parts else "mean"}


def problem(config: Config) -> str | None:
    """What transformers calls such a head, where it does not take it for granted."""
    return "multi_label_classification" if config.several else None


def fitted(config: Fitting, examples: Sequence[Example]) -> Fitting:
    """The config with what the training data fix: whether texts have several labels, and what balances them."""
    golds = [example.gold for example in examples if example.gold is not None]
    if not config.several and any(not isinstance(label_sets.only(gold), str) for gold in golds):
        config = replace(config, several=True)  # a list of one label in every row is one label each
    if config.class_weights != BALANCED:
        return config
    from filbert.forms.datasets import label_table

    table = label_table(_with_sets(config, examples))
    weights = label_sets.balance(table.counts, len(golds), bool(config.several))
    return replace(config, class_weights=json.dumps(weights, ensure_ascii=False))


def idle(config: Config) -> Mapping[str, str]:
    """Fields that change nothing beside the others, and while what is so."""
    return {"temperature": "while task.several gives a text several labels"} if config.several else {}


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...] | None:
    """Where texts have several labels, those that occur; else the data say."""
    if not config.several:
        return None
    from filbert.forms.datasets import label_table

    names = label_table(_with_sets(config, examples)).check().labels
    if not names:
        raise InputError("no text of the training data has a label, so there is nothing to learn.")
    return names


def _with_sets(config: Config, examples: Sequence[Example]) -> list[Example]:
    """The examples with their labels apart, where they have several."""
    if not config.several:
        return list(examples)
    sets = label_sets.parted([example.gold for example in examples])
    return [replace(example, gold=gold) for example, gold in zip(examples, sets, strict=True)]


def card(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return f"A classifier of {len(labels)} labels"


def record(example: Example, prediction: Prediction, top: int | None) -> Json:
    """A prediction as it is written: the likeliest label and its probability, the right one if known, and all."""
    scores = {label: round(share, 6) for label, share in list(prediction.scores.items())[:top]}
    gold = {} if example.gold is None else {"gold": example.gold}
    if prediction.labels is not None:
        return {"labels": list(prediction.labels), **gold, "scores": scores}
    return {
        "label": prediction.label,
        "score": round(prediction.scores[str(prediction.label)], 6),
        **gold,
        "scores": scores,
    }


def items(examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config) -> AnyItems:
    """The examples as training and answers read them."""
    from filbert.tasks.classify.items import Items

    return Items(examples, labels, tokenizer, config)


def files() -> FileSpec:
    """What labelled files look like."""
    from filbert.tasks.classify.files import FILES

    return FILES


def view(items: Items[Fitting], raw: Sequence[Floats], report: Report) -> View[Any]:
    """How answers are measured beside baselines."""
    from filbert.tasks.classify.view import Sets

    return Sets(items, raw, report) if items.config.several else usual_view(items, raw, report)


def probe() -> type[Probing]:
    """What is probed."""
    from filbert.tasks.classify.probe import Texts

    return Texts


SPEC = TaskSpec(
    name="classify",
    config=Config,
    items=items,
    record=record,
    files=files,
    probe=probe,
    wire=Wire(may_rank=True),
    card=card,
    view=view,
    part=heads.LABELS.part,
    kept=KEPT,
    traits=frozenset({Trait.AUGMENTS, Trait.RANKS, Trait.ANY_TEXT, Trait.CHOOSES, Trait.USUAL}),
    fit=fitted,
    labels=label_names,
    idle=idle,
    problem=problem,
    problems=PROBLEMS,
    from_transformers=from_transformers,
)
