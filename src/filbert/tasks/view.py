"""A task's predictions for labelled examples in; baselines, mistakes, calibration and probable errors of the gold out.

Here is what every task shares, and all that a task needs whose answer is one label. A task with other answers has a
view in a folder of its own (`TaskSpec.view`).

Legend: N examples, L labels, K numbers of each example that a score is made of, R resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from filbert.core.records import Example, Prediction
from filbert.forms import label_sets
from filbert.metrics import baselines, calibration, labels, noise, paired
from filbert.tasks.task import Report

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Row = dict[str, Any]  # of a list in a report, or a part of one
SHOWN_CHARS = 400  # of a text that is shown
SURE = 0.9  # from which on a model that disagrees with the gold is worth a look at the gold


class Answering(Protocol):
    """Items whose predictions can be reported on."""

    @property
    def examples(self) -> Sequence[Example]:
        """All of them, with gold."""

    @property
    def temperature(self) -> float:
        """What divides the scores before they are probabilities."""

    def predictions(self, raw: Sequence[Any]) -> list[Prediction]:
        """In the user's own labels and characters."""


@runtime_checkable
class GivesLabel(Answering, Protocol):
    """Items whose answer is one label."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Their names."""

    @property
    def gold(self) -> npt.NDArray[Any]:
        """[N] the place of each example's label."""

    def label_shares(self, raw: Sequence[Any]) -> Numbers:
        """[N, L] how likely each label is."""


T = TypeVar("T", bound=Answering)  # the task's items


@dataclass(frozen=True, slots=True)
class Beaten:
    """What a baseline scores, and how far the model is from it."""

    scores: Mapping[str, float]
    difference: paired.Difference | None
    about: str
    shares: tuple[Numbers, ...] = ()  # [N, L] what it holds each label for


class View(Generic[T]):
    """The report's sections for a task without any of its own: only the task's metrics."""

    measure: ClassVar[str] = ""  # that a difference from other models is in; "": none is
    looks_at_each: ClassVar[bool] = False  # whether it needs every prediction as an object
    learns: ClassVar[bool] = False  # whether one of its baselines learns from training data

    def __init__(self, items: T, raw: Sequence[Any], report: Report) -> None:
        self.items, self.report, self.examples = items, report, items.examples
        self.predictions = items.predictions(raw) if self.looks_at_each else []

    def simple(self) -> dict[str, Beaten]:
        """Baselines that need no training data."""
        return {}

    def learnt(self, train: Sequence[Example]) -> dict[str, Beaten]:
        """Baselines that learn from the model's own training data."""
        return {}

    def calibration(self, is_fitted_here: bool) -> Row | None:
        """How well probabilities are calibrated; a temperature that these data fitted is not measured on them."""
        return None

    def mistakes(self) -> Iterator[Row]:
        """The wrong answers, the surest first."""
        return iter(())

    def errors(self, others: Sequence[Numbers] = ()) -> Row | None:
        """Examples whose gold is probably wrong, the likeliest first; `others` say further how likely each label is."""
        return None

    def train_errors(self, train: Sequence[Example]) -> Row | None:
        """The same of training data; None where nothing can judge them."""
        return None

    def beside(self, other: Self) -> paired.Difference | None:
        """How far it is from another model's view of the same examples."""
        return None

    def mentions(self, example: Example) -> tuple[str, ...]:
        """The parts of its text that an example is about, such as two mentions."""
        return ()

    def shown(self, place: int) -> Row:
        """An example in a list: its file and line, and its text."""
        return shown(self.examples[place], place, self.mentions(self.examples[place]))


def shown(example: Example, place: int, mentions: Sequence[str] = ()) -> Row:
    """An example in a list: its file and line, and its texts behind the parts that it is about."""
    return {"file": example.source, "line": example.line, "row": place, "text": brief((*mentions, *example.texts))}


def brief(texts: Sequence[str]) -> str:
    """Texts in one line, cut where they are long."""
    share = max(40, SHOWN_CHARS // max(1, len(texts)))
    return " ‖ ".join(text if len(text) <= share else text[: share - 1] + "…" for text in texts)


def is_pair(rows: Sequence[tuple[str, ...]]) -> bool:
    """Whether the two texts of each row are to be compared."""
    return bool(rows) and len(rows[0]) == 2


def amount_learnt(model: baselines.Learnt) -> str:
    """How many rows a baseline has seen."""
    part = f"{model.num_rows:,} of {model.num_of:,}" if model.num_rows < model.num_of else f"{model.num_of:,}"
    return f"learnt from {part} rows"


def believed(scores_NL: Numbers, gold: Places, temperature: float, is_fitted_here: bool) -> Row:
    """How well the probabilities of these scores are calibrated."""
    # What a temperature brings is measured on the half that did not fit it.
    if is_fitted_here or temperature == 1.0:
        summary = calibration.summary(scores_NL, gold)
        return summary | ({"temperature": temperature} if temperature != 1.0 else {})
    return calibration.summary(scores_NL, gold, temperature)


def f1(sums_RK: Numbers) -> Numbers:
    """[R] micro F1 from how many are right, called and gold."""
    scores: Numbers = 2 * sums_RK[:, 0] / np.maximum(sums_RK[:, 1] + sums_RK[:, 2], 1)
    return scores


# One label ------------------------------------------------------------------------------------------------------------


class Labels(View[GivesLabel]):
    """One label for each example."""

    measure = "accuracy"
    learns = True

    def __init__(self, items: GivesLabel, raw: Sequence[Any], report: Report) -> None:
        super().__init__(items, raw, report)
        self.labels = items.labels
        self.gold = np.asarray(items.gold, dtype=np.int64)
        self.shares: Numbers = items.label_shares(raw).reshape(len(self.gold), len(self.labels))

    def label(self, example: Example) -> str:
        """Its gold label."""
        return str(label_sets.only(example.gold))

    def texts(self, example: Example) -> tuple[str, ...]:
        """What simple models count of it."""
        return example.texts

    def _rows(self, examples: Sequence[Example]) -> list[tuple[str, ...]]:
        return [self.texts(example) for example in examples]

    @property
    def right(self) -> Flags:
        """[N] which of the model's are right."""
        right: Flags = self.shares.argmax(axis=1) == self.gold
        return right

    def _against(self, answers: Places, about: str, shares: tuple[Numbers, ...] = ()) -> Beaten:
        table = labels.confusion(self.gold, answers, len(self.labels))
        scores = {"accuracy": labels.accuracy(table), "f1": labels.macro_f1(table)}
        return Beaten(scores, paired.accuracy(self.right, answers == self.gold), about, shares)

    def beside(self, other: Self) -> paired.Difference | None:
        """By accuracy."""
        return paired.accuracy(self.right, other.right)

    def simple(self) -> dict[str, Beaten]:
        """Always the most frequent label."""
        commonest = int(np.bincount(self.gold, minlength=1).argmax())
        return {"majority": self._against(np.full(len(self.gold), commonest), "always the most frequent label")}

    def learnt(self, train: Sequence[Example]) -> dict[str, Beaten]:
        """Logistic regression on TF-IDF."""
        places = {name: place for place, name in enumerate(self.labels)}
        labelled = [example for example in train if self.label(example) in places]
        gold = np.array([places[self.label(example)] for example in labelled], dtype=np.int64)
        rows = self._rows(labelled)
        model = baselines.labels(rows, gold, len(self.labels), is_pair(rows))
        shares = model.shares(self._rows(self.examples))
        about = f"logistic regression on TF-IDF, {amount_learnt(model)}"
        return {"tfidf": self._against(shares.argmax(axis=1), about, (shares,))}

    def calibration(self, is_fitted_here: bool) -> Row | None:
        """Of the likeliest label."""
        # Scores that were divided by a temperature are, as logarithms of shares, those scores but for a constant.
        temperature = self.items.temperature
        scores = np.log(np.maximum(self.shares, 1e-300)) * temperature
        return believed(scores, self.gold, temperature, is_fitted_here)

    def mistakes(self) -> Iterator[Row]:
        """Wrong labels."""
        sure = self.shares.max(axis=1)
        wrong = np.flatnonzero(~self.right)
        for place in wrong[np.argsort(-sure[wrong], kind="stable")].tolist():
            answer = self.labels[int(self.shares[place].argmax())]
            gold = self.labels[int(self.gold[place])]
            yield self.shown(place) | {"gold": gold, "said": answer, "score": float(sure[place])}

    def errors(self, others: Sequence[Numbers] = ()) -> Row | None:
        """By what the model and the baseline, which both never saw these labels, agree on."""
        every = np.arange(len(self.gold))
        return self._mislabelled(noise.agreed((self.shares, *others)), self.gold, self.examples, every)

    def train_errors(self, train: Sequence[Example]) -> Row | None:
        """By models that never saw the label that they judge."""
        places = {name: place for place, name in enumerate(self.labels)}
        gold = np.array([places[self.label(example)] for example in train], dtype=np.int64)
        rows = self._rows(train)
        unseen = baselines.unseen(rows, gold, len(self.labels), is_pair(rows))
        return self._mislabelled(noise.agreed(unseen.shares), gold[unseen.rows], train, unseen.rows)

    def _mislabelled(self, shares_NL: Numbers, gold: Places, examples: Sequence[Example], chosen: Places) -> Row:
        """The probable label errors as an object; `chosen` are the places of these among all examples."""
        suspects = noise.suspects(shares_NL, gold)
        ranked = zip(suspects.rows.tolist(), suspects.margins.tolist(), suspects.instead.tolist(), strict=True)
        listed = []
        for row, margin, other in ranked:
            place = int(chosen[row])
            row_shown = shown(examples[place], place, self.mentions(examples[place]))
            names = {"gold": self.labels[int(gold[row])], "instead": self.labels[other]}
            listed.append(row_shown | names | {"margin": round(margin, 6)})
        counts = {"num": len(listed), "estimated": suspects.estimated, "checked": len(gold), "of": len(examples)}
        return {**counts, "ranked": listed}
