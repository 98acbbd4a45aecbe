"""What can be explained of a model's answer to one example: a task's scores in, log-odds of each target out.

Every number is on the scale of log-odds, log p / (1 - p), of what `predict` gives as p. Probabilities saturate, so that
no word seems to matter where a model is sure; a bare logit means nothing, since softmax ignores what is added to all.
Where a score is no probability (a number, a cosine) it is taken as it is. `Labels` asks for a label, by itself where a
text has several; a task whose answers are other things has a question of its own (`TaskSpec.question`).

Legend: N copies of the example in a pack, R rows of one copy, C columns (what could be asked), L labels, U tokens of a
text, T rows of the pack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Batch
from filbert.core.records import Example, Floats, Prediction, Span
from filbert.nn.torch_ops import TorchHost


class Configured(Protocol):
    """Items of any task."""

    config: Any


T = TypeVar("T", bound=Configured)  # the items of the task that is asked
Places = npt.NDArray[np.int64]
Target = str | int | tuple[Any, ...] | None  # a label, an option's number, (start, end), (start, end, label)
FIRST = np.zeros(1, dtype=np.int64)  # which of a task's examples: its only one
MOST_SURE = 0.75  # above it a chance is the largest one, whose odds are made of all the others


def log_odds(scores: Tensor) -> Tensor:
    """log p / (1 - p) of the softmax over the last dimension, exact however sure: s - log Σ exp of all other scores."""
    top = scores.argmax(-1, keepdim=True)
    rest = scores.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
    logs = scores.log_softmax(-1)
    others = logs - torch.log1p(-logs.exp().clamp(max=MOST_SURE))
    return torch.where(torch.zeros_like(scores, dtype=torch.bool).scatter(-1, top, True), scores - rest, others)


@dataclass(frozen=True, slots=True)
class Layout:
    """One copy of an example as its task lays it out: the sequence, the place in it and the token of every row."""

    lengths: Places  # [S] of its sequences
    sequence: Places  # [R]
    place: Places  # [R]
    token: Places  # [R] which of the task's `ids` it is; -1 for [CLS] and [SEP]

    def rows(self, batch: Batch, which: Places | npt.NDArray[np.bool_]) -> Tensor:
        """[N, …] where these rows of each copy lie in a pack of copies."""
        starts = torch.as_tensor(batch.starts).view(-1, len(self.lengths))
        at = torch.as_tensor(which, device=starts.device)
        sequence, place = (torch.as_tensor(part, device=starts.device)[at] for part in (self.sequence, self.place))
        return starts[:, sequence] + place


class OneExample(Protocol):
    """Items of one example."""

    def batch(self, orders: Places) -> Batch:
        """The sequences of these examples."""
        ...

    def sources(self, which: Places) -> Places:
        """[rows] the place of each row among the tokens."""
        ...


def layout(task: OneExample) -> Layout:
    """That of items of one example."""
    batch = task.batch(FIRST)
    edges, starts = np.asarray(batch.packed.boundaries), np.asarray(batch.starts, dtype=np.int64)
    lengths = edges[np.searchsorted(edges, starts, side="right")] - starts
    sequence = np.repeat(np.arange(len(starts)), lengths)
    place = np.arange(len(sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Layout(lengths, sequence, place, task.sources(FIRST))


@dataclass(frozen=True, slots=True)
class Reading:
    """One example, as its task reads it, and the model's prediction."""

    name: str
    task: Any
    example: Example
    answer: Prediction
    layout: Layout
    origins: Places  # [U, 3] of every token of the task: which text (-1: none of the user's), start and end
    question: Callable[[Reading, Target], Question[Any]]  # what can be explained of the answer


class Question(Generic[T]):
    """The log-odds of all targets that an answer could be explained for, and which of them is."""

    placed: ClassVar[bool] = False  # whether its target is a place in the text, which moves where words are deleted

    def __init__(self, reading: Reading, target: Target) -> None:
        self.reading, self.target = reading, target
        self.task: T = reading.task

    def table(self, host: TorchHost, batch: Batch) -> Tensor:
        """[N, C] in float32, differentiable."""
        raise NotImplementedError

    def picked(self, first_C: Floats) -> tuple[int, str]:
        """The column to explain, chosen by the example's own log-odds, and its name."""
        raise NotImplementedError

    def read_from(self) -> npt.NDArray[np.float32]:
        """[R] how much the answer is read from each row of the last layer; they sum to 1."""
        pool = self.task.config.pool
        chosen = self.reading.layout.place == 0 if pool == "cls" else np.ones(len(self.reading.layout.place), bool)
        return shares(chosen)


class Labels(Question[Any]):
    """Every label of the example."""

    def table(self, host: TorchHost, batch: Batch) -> Tensor:
        """[N, L]."""
        config, scores_NL = self.task.config, self.task.scores(host, batch)
        return scores_NL if config.several else log_odds(scores_NL / config.temperature)

    def picked(self, first_C: Floats) -> tuple[int, str]:
        """The label's column."""
        names = list(self.task.labels)
        if self.target is not None and self.target not in names:
            raise one_of("the target", self.target, names)
        column = int(first_C.argmax()) if self.target is None else names.index(self.target)
        return column, names[column]

    def rows_of(self, name: str) -> npt.NDArray[np.float32]:
        """[R] the rows that a target of the batch names, where the head reads nothing else."""
        batch, layout = self.task.batch(FIRST), self.reading.layout
        rows = np.asarray(batch.starts)[layout.sequence] + layout.place
        return shares(np.isin(rows, np.asarray(batch.targets[name])))


class Placed(Question[T]):
    """A target that is a stretch of the text; columns are stretches of as many tokens, with each kind."""

    placed = True
    part = 0  # the text that it is in

    def __init__(self, reading: Reading, target: Target) -> None:
        super().__init__(reading, target)
        self.span = self._span(target)
        inside = reading.origins[:, 0] == self.part
        overlaps = (reading.origins[:, 1] < self.span.end) & (reading.origins[:, 2] > self.span.start)
        tokens = np.flatnonzero(inside & overlaps)
        if not len(tokens):
            raise InputError(
                f"the target stands at {self.span.start}:{self.span.end}, where the model reads nothing; give the "
                "start and end of a stretch of the text."
            )
        self.first, self.size = int(tokens[0]), len(tokens)

    @property
    def text(self) -> str:
        """The text that the stretch is in."""
        return self.reading.example.texts[self.part]

    def _span(self, target: Target) -> Span:
        """The stretch that is meant: one that the model names, by its label or its characters, or one by its place."""
        spans = sorted(self.reading.answer.spans, key=lambda span: -span.score)
        if isinstance(target, tuple):
            return placed_span(target, self.text)
        if target is None:
            if not spans:
                raise InputError(f"{self.nothing}; name a place: target=(start, end) or (start, end, label).")
            return spans[0]
        for span in spans:
            if target in (span.label, self.text[span.start : span.end]):
                return span
        at = self.text.find(str(target)) if target else -1
        if at < 0:
            named = [span.label or self.text[span.start : span.end] for span in spans]
            raise one_of("the target", target, list(dict.fromkeys(named)) or ["(start, end)", "(start, end, label)"])
        return Span(at, at + len(str(target)))

    nothing = "the model finds no entity in this text"

    def read_from(self) -> npt.NDArray[np.float32]:
        """The rows of the stretch."""
        tokens = self.reading.layout.token
        return shares((tokens >= self.first) & (tokens < self.first + self.size))

    def called(self, kind: str) -> str:
        """The stretch as the user reads it."""
        stretch = self.text[self.span.start : self.span.end]
        return f"{kind}: {stretch}" if kind else stretch


def placed_span(target: tuple[object, ...], text: str) -> Span:
    """(start, end) or (start, end, label), checked."""
    if len(target) in (2, 3):
        start, end, label = (*target, "")[:3]
        if type(start) is int and type(end) is int and isinstance(label, str) and 0 <= start < end <= len(text):
            return Span(start, end, label)
    raise InputError(
        f"the target is {target!r}, but a place is (start, end) or (start, end, label), from 0 to {len(text)}."
    )


def shares(chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """[R] the chosen rows, which sum to 1."""
    return (chosen / max(1, int(chosen.sum()))).astype(np.float32)
