"""One label or one number for two texts: labelled pairs in, the loss of a head, its scores or its numbers out.

Both texts are read together, [CLS] first [SEP] second [SEP], the second as segment 1 (Devlin et al. 2019, §4.1). A pair
longer than `max_length` is read in windows that hold a stretch of each (text.windows), and they make one decision.
`answer="label"` is for entailment or paraphrase, `answer="number"` for similarity, `answer="auto"` follows the labels:
of three or more numbers, some with fractions, a number is learnt. The head's one output is then learnt by squared
error, in units of the training data's own mean and spread, which the folder keeps.

Legend: N pairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch, Decisions, Term
from filbert.core.records import Example, Prediction
from filbert.forms import label_sets
from filbert.metrics import numbers
from filbert.tasks.classify import items as classify
from filbert.text.tokenizer import Tokenizer

HEAD = classify.HEAD
KEPT = (*classify.KEPT, "answer", "center", "scale")
ANSWERS = ("auto", "label", "number")
AUGMENTS = True
PROBLEMS = {**classify.PROBLEMS, "regression": {"answer": "number"}}
published = classify.published
VALUE = ("value",)  # the one output of a head that gives numbers


@dataclass(frozen=True, kw_only=True)
class Config(classify.Config):
    """How pairs are read and what is asked of the scores."""

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
        config = replace(config, answer=_told_answer(config, examples))
    if config.answer != "number":
        return classify.fitted(config, examples)
    values = np.array([number(example) for example in examples if example.gold is not None])
    if not len(values) or values.std() == 0:
        raise InputError("the training data has no two different numbers, so there is nothing to learn.")
    return replace(config, center=float(values.mean()), scale=float(values.std()))


def _told_answer(config: Config, examples: Sequence[Example]) -> str:
    """number, where labels are numbers with fractions and nothing was set that is for labels."""
    if any(getattr(config, name) for name in ("label_smoothing", "consistency", "several", "class_weights")):
        return "label"
    counts = Counter(str(label_sets.only(example.gold)) for example in examples if example.gold is not None)
    values = label_sets.numbers(counts)
    return "number" if values is not None and label_sets.are_measured(values) else "label"


def idle(config: Config) -> dict[str, str]:
    """Fields that change nothing beside the others, and while what is so."""
    if config.answer == "number":
        return dict.fromkeys(("several", "temperature"), "while task.answer is number")
    labels = dict.fromkeys(("center", "scale"), "while task.answer is label")
    return classify.idle(config) | (labels if config.answer == "label" else {})


def label_names(config: Config, examples: Sequence[Example]) -> tuple[str, ...] | None:
    """The head's outputs where the data do not say."""
    return VALUE if config.answer == "number" else classify.label_names(config, examples)


def problem(config: Config) -> str | None:
    """What transformers calls such a head, where it does not take it for granted."""
    return "regression" if config.answer == "number" else classify.problem(config)


def called(labels: Sequence[str]) -> str:
    """What a card calls such a model."""
    return "A model that gives pairs a number" if tuple(labels) == VALUE else classify.called(labels)


def record(example: Example, said: Prediction, top: int | None) -> dict[str, Any]:
    """A prediction as it is written: as of a text, or the number."""
    if said.label is not None or said.labels is not None:
        return classify.record(example, said, top)
    gold = {} if example.gold is None else {"gold": example.gold}
    return {VALUE[0]: round(said.scores[VALUE[0]], 6), **gold}


def number(example: Example) -> float:
    """Its gold as a number; one that is none is named with its file and line."""
    try:
        value = float(label_sets.only(example.gold))
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"{classify.place_of(example, example.id)}: the label {str(example.gold)[:40]!r} is no number, but "
            f"task.answer=number needs one."
        )
    return value


class Task(classify.Task):
    """Classification of pairs of texts, or a number for each."""

    num_texts = 2
    config: Config

    def __init__(
        self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: Config
    ) -> None:
        super().__init__(examples, labels, tokenizer, config)
        if config.answer == "number":
            self.watched = "explained"

    def remarks(self) -> list[str]:
        """What a run says of its labels where they are numbers."""
        if self.config.answer == "number":
            counts = Counter(f"{value:g}" for value in self.gold[~np.isnan(self.gold)].tolist())
            said = "one number is learnt (task.answer=label would learn names)"
        elif self.config.several:
            return []
        else:
            counts = Counter({label: int((self.gold == place).sum()) for place, label in enumerate(self.labels)})
            said = f"{len(self.labels)} names are learnt; for one number --set task.answer=number"
        values = label_sets.numbers(counts) if counts.total() else None
        return [] if values is None else [f"{label_sets.number_range(counts, values)}: {said}."]

    def _golds(self, examples: Sequence[Example]) -> npt.NDArray[Any]:
        if self.config.answer != "number":
            return super()._golds(examples)
        return np.array([math.nan if e.gold is None else number(e) for e in examples], dtype=np.float32)

    @property
    def has_unknown(self) -> bool:
        """Whether some pair has no gold."""
        return bool(np.isnan(self.gold).any()) if self.config.answer == "number" else super().has_unknown

    def counts(self, batch: Batch) -> Mapping[str, float]:
        """How many pairs each loss sums over."""
        if self.config.answer != "number":
            return super().counts(batch)
        return {"label_loss": int((~np.isnan(batch.targets["label"])).sum())}

    def loss(self, model: Any, batch: Batch) -> Mapping[str, Term]:
        """Of labels the cross-entropy, of numbers the squared error; `explained` is the share of the variance."""
        if self.config.answer != "number":
            return super().loss(model, batch)
        import torch

        gold = (batch.targets["label"] - self.config.center) / self.config.scale
        known = ~torch.isnan(gold)
        off = torch.where(known, (self.scores(model, batch)[:, 0] - gold) ** 2, 0.0).sum()
        count = known.sum()
        return {"label_loss": Term(off, count), "explained": Term((count - off).detach(), count)}

    def decisions(self, model: Any, batch: Batch) -> Decisions:
        """As classify has it, or the numbers in units of their spread."""
        found = super().decisions(model, batch)
        return replace(found, kind="number") if self.config.answer == "number" else found

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """In the user's own labels or units."""
        if self.config.answer != "number":
            return super().predictions(raw)
        return [Prediction(scores={VALUE[0]: value}) for value in self._values(raw).tolist()]

    def evaluated(self, raw: Sequence[Any]) -> dict[str, Any]:
        """How right they are."""
        if self.config.answer != "number":
            return super().evaluated(raw)
        return numbers.summary(self.gold, self._values(raw))

    def _values(self, raw: Sequence[Any]) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = np.asarray(raw, dtype=np.float64)[:, 0] * self.config.scale
        return found + self.config.center
