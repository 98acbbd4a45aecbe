"""Requests from many clients in, one model's answers to each out: whatever waits together is read together.

One thread owns the model. It takes all that has come in meanwhile, up to a number of texts and characters, answers it
in one go (the engine packs it without padding) and hands each request its own part. A queue that is full refuses.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from filbert.core.errors import FilbertError

MOST_TEXTS, MOST_CHARS = 256, 500_000  # of one go: small enough that a request behind it does not wait long
MOST_WAITING = 512  # requests; more are refused, so that those that are in are answered in time

Answers = Callable[[Sequence[Any]], list[Any]]
Asked = tuple[Sequence[Any], Future[Any]]
Job = Callable[[], Any]


class FullError(FilbertError):
    """So many requests wait that another would only make all of them late."""


class Batcher:
    """A model behind a queue; `ask` may be called from any thread."""

    def __init__(self, answers: Answers, most_waiting: int = MOST_WAITING) -> None:
        self._answers, self._most = answers, most_waiting
        self._waiting: deque[Asked] = deque()
        self._turn = threading.Condition()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name="filbert-batcher", daemon=True)
        self._worker.start()

    def ask(self, texts: Sequence[Any]) -> Future[list[Any]]:
        """The answers to these texts, when they are there; one for each, in order."""
        return self._entered(texts, Future())

    def _entered(self, texts: Sequence[Any], promised: Future[Any]) -> Future[Any]:
        with self._turn:
            if self._closed:
                raise FullError("the server is about to stop.")
            if len(self._waiting) >= self._most:
                raise FullError(f"{self._most} requests wait already; ask again in a second.")
            self._waiting.append((texts, promised))
            self._turn.notify()
        return promised

    def alone(self, job: Job) -> Future[Any]:
        """What a job gives that must have the model to itself, such as a look inside it; it waits for its turn."""
        return self._entered((job,), Future())

    @property
    def num_waiting(self) -> int:
        """Requests that nobody has begun with."""
        return len(self._waiting)

    def close(self) -> None:
        """Answers all that was accepted, then ends."""
        with self._turn:
            self._closed = True
            self._turn.notify()
        self._worker.join()

    def _work(self) -> None:
        while some := self._taken():
            if _is_job(some[0][0]):
                self._do(*some[0])
                continue
            texts = [text for own, _ in some for text in own]
            try:
                found = self._answers(texts)
            except BaseException as error:
                self._alone(some, error)
                continue
            at = 0
            for own, promised in some:
                promised.set_result(found[at : at + len(own)])
                at += len(own)

    @staticmethod
    def _do(job: Sequence[Any], promised: Future[Any]) -> None:
        try:
            promised.set_result(job[0]())
        except BaseException as error:
            promised.set_exception(error)

    def _alone(self, some: list[Asked], error: BaseException) -> None:
        """One of several requests was at fault: each is asked by itself, so that only that one hears of it."""
        if len(some) == 1:
            some[0][1].set_exception(error)
            return
        for own, promised in some:
            try:
                promised.set_result(self._answers(own))
            except BaseException as own_error:
                promised.set_exception(own_error)

    def _taken(self) -> list[Asked]:
        """Some requests to answer together; none when all is done and nothing more may come."""
        with self._turn:
            while True:
                while not self._waiting and not self._closed:
                    self._turn.wait()
                some = self._together()
                if some or (self._closed and not self._waiting):
                    return some

    def _together(self) -> list[Asked]:
        """Those at the head of the queue that one go can answer, without the ones whose clients left."""
        some: list[Asked] = []
        texts = chars = 0
        while self._waiting:
            own, promised = self._waiting[0]
            size = sum(map(_size, own))
            if some and (_is_job(own) or texts + len(own) > MOST_TEXTS or chars + size > MOST_CHARS):
                break
            self._waiting.popleft()
            if promised.set_running_or_notify_cancel():
                some.append((own, promised))
                texts, chars = texts + len(own), chars + size
            if some and _is_job(own):
                break
        return some


def _is_job(asked: Sequence[Any]) -> bool:
    return len(asked) == 1 and callable(asked[0])


def _size(text: Any) -> int:
    return len(text) if isinstance(text, str) else sum(map(_size, text)) if isinstance(text, list | tuple) else 0
