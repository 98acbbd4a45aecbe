"""Requests from many clients in, one model's answers to each out: whatever waits together is read together.

A few threads own the model. Each takes what has come in meanwhile, up to a number of tokens, answers it in one go (the
engine packs it without padding) and hands each request its own part. A request with more tokens than that is answered
in several goes, with those of others between them. A queue that is full refuses, and a request whose client left, or
whose time is over, is dropped wherever it stands.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from filbert.core.errors import FilbertError
from filbert.serve.limits import num_tokens

BUDGET = 4_096  # tokens of one go: small enough that a request behind it does not wait long
LEAST = 256  # tokens: where several threads share what waits, none goes for less
MOST_WAITING = 512  # requests
FAILED = -1 << 40  # in place of the number of texts that have no answer: none will be given

Answers = Callable[[Any, Sequence[Any]], list[Any]]  # the kind of question and some texts in, one answer each out
Job = Callable[[], Any]


class FullError(FilbertError):
    """So many requests wait that another would only make all of them late."""


class _Request:
    """Texts of one kind of question, how far their answers are, and to whom they are promised."""

    __slots__ = ("begun", "found", "job", "kind", "left", "promised", "sizes", "texts")

    def __init__(self, kind: Hashable, texts: Sequence[Any], job: Job | None = None) -> None:
        self.kind, self.texts, self.job = kind, texts, job
        self.sizes = num_tokens(list(texts))
        self.found: list[Any] = [None] * len(texts)
        self.begun, self.left = 0, len(texts)  # texts that a thread has taken; that have no answer yet
        self.promised: Future[Any] = Future()


class _Part(NamedTuple):
    """Some neighbouring texts of a request."""

    request: _Request
    start: int
    end: int


class Batcher:
    """A model behind a queue; `ask` may be called from any thread."""

    def __init__(
        self,
        answers: Answers,
        most_waiting: int = MOST_WAITING,
        budget: int = BUDGET,
        threads: int = 1,
        begin: Callable[[], object] = lambda: None,
    ) -> None:
        self._answers, self._most, self._budget, self._begin = answers, most_waiting, budget, begin
        self._waiting: deque[_Request] = deque()
        self._turn = threading.Condition()
        self._closed, self._tokens = False, 0
        self.num_goes = self.num_texts = self.num_dropped = 0
        names = [f"filbert-batcher-{number}" for number in range(threads)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def ask(self, texts: Sequence[Any], kind: Hashable = "predict") -> Future[list[Any]]:
        """The answers to these texts, when they are there; one for each, in order."""
        return self._entered(_Request(kind, texts))

    def alone(self, job: Job) -> Future[Any]:
        """What a job gives that needs a thread of the model to itself, such as a look inside; it waits for its turn."""
        return self._entered(_Request(None, ("",), job))

    def _entered(self, request: _Request) -> Future[Any]:
        if not request.texts:
            request.promised.set_result([])
            return request.promised
        with self._turn:
            if self._closed:
                raise FullError("the server is about to stop.")
            if len(self._waiting) >= self._most:
                self._waiting = deque(each for each in self._waiting if not self._gone(each))
                if len(self._waiting) >= self._most:
                    raise FullError(f"{self._most} requests wait already; ask again in a second.")
            self._waiting.append(request)
            self._tokens += sum(request.sizes)
            self._turn.notify()
        return request.promised

    @property
    def num_waiting(self) -> int:
        """Requests that are not all taken."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether another request would be refused, unless clients of some that wait have left."""
        return len(self._waiting) >= self._most

    @property
    def is_alive(self) -> bool:
        """Whether every thread is there."""
        return all(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Answers all that was accepted, then ends."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        self._begin()
        while parts := self._taken():
            request = parts[0].request
            if request.job is not None:
                self._told(parts, request.job)
            else:
                texts = [text for own, start, end in parts for text in own.texts[start:end]]
                self._told(parts, partial(self._answers, request.kind, texts))

    def _told(self, parts: list[_Part], work: Job) -> None:
        """Does some work and hands out what comes of it, to each its own."""
        try:
            found = work()
        except BaseException as error:
            if len({id(part.request) for part in parts}) == 1:
                with self._turn:
                    is_first, parts[0].request.left = parts[0].request.left >= 0, FAILED
                if is_first:
                    _settle(parts[0].request.promised, error=error)
                return
            # One of several requests was at fault: each is asked by itself, so that only that one hears of it.
            for part in parts:
                own = part.request.texts[part.start : part.end]
                self._told([part], partial(self._answers, part.request.kind, own))
            return
        if parts[0].request.job is not None:
            _settle(parts[0].request.promised, found)
            return
        at, done = 0, list[_Request]()
        with self._turn:
            for request, start, end in parts:
                request.found[start:end] = found[at : at + end - start]
                request.left -= end - start
                at += end - start
                if request.left == 0:
                    done.append(request)
        for request in done:
            _settle(request.promised, request.found)

    def _taken(self) -> list[_Part]:
        """Some texts to answer together; none when all is done and nothing more may come."""
        with self._turn:
            while True:
                while not self._waiting and not self._closed:
                    self._turn.wait()
                parts = self._together()
                if parts or (self._closed and not self._waiting):
                    self.num_goes += bool(parts)
                    self.num_texts += sum(part.end - part.start for part in parts)
                    return parts

    def _together(self) -> list[_Part]:
        """Texts at the head of the queue that one go can answer: all of one kind, without those nobody waits for."""
        share = max(LEAST, -(-self._tokens // len(self._threads)))  # the rest is for the thread that is free next
        budget, parts = min(self._budget, share), list[_Part]()
        others: list[_Request] = []
        while self._waiting and budget > 0:
            request = self._waiting.popleft()
            if self._gone(request):
                continue
            if parts and (request.job is not None or request.kind != parts[0].request.kind):
                others.append(request)
                continue
            start = end = request.begun
            while end < len(request.texts) and (request.sizes[end] <= budget or (not parts and end == start)):
                budget -= request.sizes[end]
                self._tokens -= request.sizes[end]
                end += 1
            request.begun = end
            if end > start:
                parts.append(_Part(request, start, end))
            if end < len(request.texts):
                # What is left of a long request goes behind those who wait.
                (self._waiting.append if end > start else others.append)(request)
                break
            if request.job is not None:
                break
        self._waiting.extendleft(reversed(others))
        if self._waiting and parts:
            self._turn.notify()
        return parts

    def _gone(self, request: _Request) -> bool:
        """Whether nobody waits for it any more; then it is forgotten."""
        if not request.promised.done():
            return False
        self._tokens -= sum(request.sizes[request.begun :])
        self.num_dropped += request.left > 0
        return True


def _settle(promised: Future[Any], found: Any = None, error: BaseException | None = None) -> None:
    """Keeps a promise that may have been given up, in another thread and at this moment."""
    if promised.done() or not promised.set_running_or_notify_cancel():
        return
    if error is not None:
        promised.set_exception(error)
    else:
        promised.set_result(found)
