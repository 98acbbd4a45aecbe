"""An iterable of texts in; a fine-tuned model's prediction for each out, in order, chunk by chunk."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from filbert.core.errors import InputError
from filbert.core.records import Example, Prediction
from filbert.tasks.task import Asked, usual_request

CHUNK, CHUNK_CHARS = 2_048, 2_000_000  # texts, and characters of them, that are answered together at most
FIRST_COST, TEXT_COST = 2_000, 50  # characters of the first chunk, and what each text counts beside its own
PACE_S = 3.0  # seconds from one answer to the next, about


class Predicts(Protocol):
    """What predicts: `engine.model.Model`."""

    def predict(self, texts: Iterable[Asked], *, task: str | None = None) -> list[Prediction]:
        """One prediction for each text or pair."""
        ...


class Pace:
    """The size of a chunk: small at first, then what takes about PACE_S seconds."""

    def __init__(self) -> None:
        self.limit, self.size, self.count, self.started_at = FIRST_COST, 0, 0, 0.0

    def is_full(self, example: Example) -> bool:
        """Counts one more example; whether the chunk is full."""
        self.count += 1
        self.size += sum(map(len, example.texts))
        return self.count >= CHUNK or self.size > CHUNK_CHARS or self.size + self.count * TEXT_COST >= self.limit

    def start(self) -> None:
        """The chunk is predicted from now on."""
        self.started_at = time.perf_counter()

    def done(self) -> None:
        """The chunk is predicted; the next one may be up to four times as large."""
        times = PACE_S / max(1e-6, time.perf_counter() - self.started_at)
        self.limit = max(FIRST_COST, int((self.size + self.count * TEXT_COST) * min(4.0, max(0.25, times))))
        self.size = self.count = 0


Answered = list[tuple[Example, Prediction]]


def answered(
    model: Predicts,
    examples: Iterable[Example],
    task: str | None = None,
    unasked: Callable[[Example], Asked] = usual_request,
) -> Iterator[Answered]:
    """Every example with its prediction, some at a time, soon and then every few seconds.

    unasked: what the model is to read of an example, as the task's record says (`TaskSpec.unasked`).
    Where reading fails, all that was read is predicted first; where the model refuses a text, all before that one.
    """
    waiting: list[Example] = []
    failed: Exception | None = None
    pace, reader = Pace(), iter(examples)
    while failed is None:
        try:
            example = next(reader, None)
        except Exception as error:
            example, failed = None, error
        if example is not None:
            waiting.append(example)
            if not pace.is_full(example):
                continue
        if waiting:
            pace.start()
            yield from _predicted(model, waiting, task, unasked)
            pace.done()
            waiting = []
        if example is None:
            break
    if failed is not None:
        raise failed


def _predicted(
    model: Predicts, waiting: list[Example], task: str | None, unasked: Callable[[Example], Asked]
) -> Iterator[Answered]:
    """These with their predictions; where the model refuses the chunk, one by one, up to the text that it refuses."""
    try:
        predictions = model.predict([unasked(example) for example in waiting], task=task)
    except InputError:
        for example in waiting:
            try:
                yield [(example, model.predict([unasked(example)], task=task)[0])]
            except InputError as error:
                where = f"{example.source} line {example.line}" if example.source else f"text {example.id + 1}"
                raise InputError(f"{where}: {str(error).removeprefix('example 0: ')}") from None
        return
    yield list(zip(waiting, predictions, strict=True))


def peeked(examples: Iterable[Example], count: int) -> tuple[list[Example], Iterator[Example]]:
    """The first so many examples, fewer of long ones, and all of them; where reading fails, it fails there."""
    reader, first = iter(examples), list[Example]()
    failed: list[Exception] = []
    size = 0
    try:
        for example in itertools.islice(reader, count):
            first.append(example)
            size += sum(map(len, example.texts))
            if size > CHUNK_CHARS:
                break
    except Exception as error:
        failed.append(error)

    def rest() -> Iterator[Example]:
        yield from first
        if failed:
            raise failed[0]
        yield from reader

    return first, rest()
