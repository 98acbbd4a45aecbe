"""Requests from many clients in, one model's answers to each out: whatever waits together is read together.

A few threads own the model. Each takes what has come in meanwhile, up to a number of tokens, answers it as one batch
(the engine packs it without padding) and hands each request its own part.

Requests stand in two lines: those of a text that is not very long, or of texts that half a batch holds; and longer
ones, which take several batches. In each line the first is finished before the next begins; while both wait, each has
half of what is read. A line takes no request that could not be answered in time, by what waits there and the speed that
was measured; one that has waited too long all the same is refused before it is begun. A request whose client left is
dropped wherever it stands.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar, cast

from filbert.core import stopping
from filbert.core.errors import FilbertError, InputError
from filbert.serve.limits import Refused, num_tokens
from filbert.serve.metrics import ModelCounts
from filbert.serve.speed import Speed, family

BUDGET = 4_096  # tokens of one batch: small enough that a request behind it does not wait long
ALONE = 4  # batches: a single text of more stands among the long requests
LEAST = 256  # tokens: where several threads share what waits, none begins for less
MOST_WAITING = 512  # requests
SHARE = 1 / 3  # of the deadline that a line may hold: with both lines full each has half the speed, and there is room
PATIENT = 0.1  # of the deadline that a request has waited before it can be too late for it
END_S = 1.0  # that a thread has to stop where it stands, once it must
FAILED = -1 << 40  # in place of the number of texts that have no answer: none will be given

_NUMBERED = re.compile(r"(example|question|pair|text) (\d+)\b")
T = TypeVar("T")
Answers = Callable[[Any, Sequence[Any]], list[Any]]  # the kind of question and some texts in, one answer each out


class FullError(FilbertError):
    """So much waits that another request would only be late; `retry_s`: when to come again."""

    def __init__(self, message: str, retry_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class Promised(Future[T], Generic[T]):
    """An answer that will come; `is_started`: whether it is worked on; `num_bytes`: about what it will have."""

    is_started = False
    num_bytes = 0


class _Request:
    """Texts of one kind of question, how far their answers are, and to whom they are promised."""

    __slots__ = ("answers", "due", "entered", "kind", "num_taken", "num_unanswered", "promised", "sizes", "texts")

    def __init__(self, kind: Hashable, texts: Sequence[object], sizes: list[int], deadline_s: float) -> None:
        self.kind, self.texts, self.sizes = kind, texts, sizes
        self.answers: list[Any] = [None] * len(texts)
        self.num_taken, self.num_unanswered = 0, len(texts)  # by a thread; so far
        self.entered = time.monotonic()
        self.due = self.entered + deadline_s
        self.promised = Promised[list[Any]]()


class _Part(NamedTuple):
    """Some neighbouring texts of a request."""

    request: _Request
    start: int
    end: int

    @property
    def tokens(self) -> int:
        return sum(self.request.sizes[self.start : self.end])


class _Line:
    """Requests in the order in which they are begun, and the tokens of each kind that have no answer yet."""

    def __init__(self) -> None:
        self.waiting: deque[_Request] = deque()
        self.owed: Counter[Hashable] = Counter()


class Batcher:
    """A model behind a queue; `ask` may be called from any thread."""

    def __init__(
        self,
        answers: Answers,
        most_waiting: int = MOST_WAITING,
        budget: int = BUDGET,
        threads: int = 1,
        on_start: Callable[[], object] = lambda: None,
        deadline_s: float = math.inf,
        counts: ModelCounts | None = None,
    ) -> None:
        self._answers, self._most, self._budget, self._on_start = answers, most_waiting, budget, on_start
        self._deadline_s, self._counts = deadline_s, counts or ModelCounts.of_nobody()
        self._short, self._long = _Line(), _Line()
        self._turn = threading.Condition()
        self._is_closed = self._is_over = False
        self._tokens = 0  # that no thread has taken
        self._ahead = 0  # tokens by which short requests have had more than long ones, while both waited
        self.speed = Speed(budget)
        self.num_batches = self.num_texts = self.num_dropped = 0
        names = [f"filbert-batcher-{number}" for number in range(threads)]
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def ask(
        self, texts: Sequence[object], kind: Hashable = "predict", sizes: list[int] | None = None
    ) -> Promised[list[Any]]:
        """The answers to these texts, when they are there, one for each, in order; sizes: what each costs, in tokens.

        Raises FullError where it could not be answered in time, and Refused where it never could.
        """
        request = _Request(kind, texts, sizes or num_tokens(list(texts)), self._deadline_s)
        if not request.texts:
            request.promised.set_result([])
            return request.promised
        line = self._line(request)
        with self._turn:
            if self._is_closed:
                raise FullError("the server is about to stop.")
            if self.num_waiting >= self._most:
                self._forget_gone()
                if self.num_waiting >= self._most:
                    raise FullError(f"{self._most:,} requests wait already; ask again in a second.")
            self._check_time(request, line)
            line.waiting.append(request)
            line.owed[family(kind)] += sum(request.sizes)
            self._tokens += sum(request.sizes)
            self._counts.set_waiting(self.num_waiting)
            self._turn.notify()
        return request.promised

    def _line(self, request: _Request) -> _Line:
        """One text is read in one batch, so that in the other line it would only wait for its turn twice."""
        most = ALONE * self._budget if len(request.texts) == 1 else self._budget // 2
        return self._long if sum(request.sizes) > most else self._short

    def _check_time(self, request: _Request, line: _Line) -> None:
        """Refuses what cannot be answered in time; the first in a line is always tried: slow moments pass."""
        alone_s = self._alone_s(request, self.speed.at_best)
        if alone_s is not None and alone_s > self._deadline_s:
            raise Refused(
                413, f"this would take about {alone_s:,.0f} seconds here, more than the {self._deadline_s:g} that an "
                "answer may take; send fewer texts at once.",
            )  # fmt: skip
        if not +line.owed or math.isinf(self._deadline_s):
            return
        held_s = self._line_s(line)
        if held_s is None:  # nothing was measured yet: one batch for each thread
            if sum(line.owed.values()) > self._budget * len(self._threads):
                raise FullError("the first answers are still being measured; ask again in a second.")
            return
        more_s = (self.speed.seconds(request.kind, sum(request.sizes)) or 0.0) / len(self._threads)
        over_s = held_s + more_s - SHARE * self._deadline_s
        if over_s > 0:
            why = f"the requests that wait will take {held_s:,.0f} seconds; ask again in a moment."
            raise FullError(why, min(10.0, max(1.0, over_s)))

    def _alone_s(self, request: _Request, seconds: Callable[[Hashable, int], float | None]) -> float | None:
        """What it takes with nothing beside it: a text is read by one thread."""
        most = max(-(-sum(request.sizes) // len(self._threads)), *request.sizes)
        return seconds(request.kind, most)

    def _line_s(self, line: _Line) -> float | None:
        """What a line will take, if nothing else is read."""
        each = [self.speed.seconds(kind, tokens) for kind, tokens in line.owed.items() if tokens > 0]
        return None if None in each else math.fsum(seconds or 0.0 for seconds in each) / len(self._threads)

    @property
    def num_waiting(self) -> int:
        """Requests that are not all taken."""
        return len(self._short.waiting) + len(self._long.waiting)

    @property
    def is_full(self) -> bool:
        """Whether another request would be refused, unless clients of some that wait have left."""
        return self.num_waiting >= self._most

    @property
    def is_alive(self) -> bool:
        """Whether every thread is there."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def has_threads(self) -> bool:
        """Whether any thread is there."""
        return any(thread.is_alive() for thread in self._threads)

    def close(self, within_s: float | None = None) -> bool:
        """Answers all that was accepted, then ends; what takes longer is given up. Whether every thread has ended."""
        with self._turn:
            self._is_closed = True
            self._turn.notify_all()
        until = None if within_s is None else time.monotonic() + within_s
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        with self._turn:
            self._is_over = True
            self._turn.notify_all()
        for thread in self._threads:
            thread.join(END_S)
        return not self.has_threads

    # -- the threads -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._on_start()
        while parts := self._taken():
            texts = [text for request, start, end in parts for text in request.texts[start:end]]
            start_s = time.perf_counter()
            is_answered = self._answer(parts, texts)
            seconds = time.perf_counter() - start_s
            with self._turn:
                for part in parts:
                    self._line(part.request).owed[family(part.request.kind)] -= part.tokens
                if is_answered:
                    self.speed.measured(parts[0].request.kind, sum(part.tokens for part in parts), seconds)

    def _answer(self, parts: list[_Part], texts: Sequence[object]) -> bool:
        """Answers some texts and hands out what comes of it, to each its own; whether all went well."""
        stop = stopping.Stop(is_unwanted=lambda: self._is_over or all(part.request.promised.done() for part in parts))
        try:
            with stopping.within(stop):
                answers = self._answers(parts[0].request.kind, texts)
        except BaseException as error:
            if len({id(part.request) for part in parts}) == 1:
                with self._turn:
                    request = parts[0].request
                    is_first, request.num_unanswered = request.num_unanswered >= 0, FAILED
                if is_first:
                    settle(request.promised, error=_of_request(error, parts[0].start))
                return False
            # One of several requests was at fault: each is answered by itself, so that only that one gets the error.
            for part in parts:
                self._answer([part], list(part.request.texts[part.start : part.end]))
            return False
        at, done = 0, list[_Request]()
        with self._turn:
            for request, start, end in parts:
                request.answers[start:end] = answers[at : at + end - start]
                request.num_unanswered -= end - start
                at += end - start
                if request.num_unanswered == 0:
                    done.append(request)
        for request in done:
            settle(request.promised, request.answers)
        return True

    def _taken(self) -> list[_Part]:
        """Some texts to answer together; none when all is done and nothing more may come."""
        with self._turn:
            while True:
                while not self.num_waiting and not self._is_closed:
                    self._turn.wait()
                parts = [] if self._is_over else self._together()
                self._counts.set_waiting(self.num_waiting)
                if parts:
                    self.num_batches += 1
                    self.num_texts += (num := sum(part.end - part.start for part in parts))
                    self._counts.went(num)
                    return parts
                if self._is_over or (self._is_closed and not self.num_waiting):
                    return []

    def _together(self) -> list[_Part]:
        """Texts of one batch, all of one kind, for those who still wait; half of it for each line."""
        for line in (self._short, self._long):
            while line.waiting and self._is_gone(line.waiting[0]):
                line.waiting.popleft()
        short, long = self._short.waiting, self._long.waiting
        if not short or not long:
            self._ahead = 0
        lead = short if short and (not long or self._ahead <= 0) else long
        if not lead:
            return []
        kind, is_behind = lead[0].kind, self._ahead >= 0
        share = max(LEAST, -(-self._tokens // len(self._threads)))  # the rest is for the thread that is free next
        budget, parts = min(self._budget, share), list[_Part]()
        both = bool(short) and bool(long) and long[0].kind == kind
        of_short = self._take(self._short, kind, budget // 2 if both else budget, parts)
        of_long = 0
        if long and long[0].kind == kind:
            of_long = self._take(self._long, kind, budget - of_short, parts, is_behind)
        if both and of_short + of_long < budget:
            of_short += self._take(self._short, kind, budget - of_short - of_long, parts)
        if short and long:
            self._ahead += of_short - of_long
        if (short or long) and parts:
            self._turn.notify()
        return parts

    def _take(self, line: _Line, kind: Hashable, budget: int, parts: list[_Part], at_least_one: bool = False) -> int:
        """Adds parts of a line's first requests of that kind that fit into the budget; gives how many tokens."""
        others, left, taken = list[_Request](), budget, 0
        while line.waiting and left > 0:
            request = line.waiting.popleft()
            if self._is_gone(request):
                continue
            if request.kind != kind:
                others.append(request)
                if line is self._long:  # the first is finished before another begins
                    break
                continue
            start = end = request.num_taken
            must = not parts or (at_least_one and not taken)
            while end < len(request.texts) and (request.sizes[end] <= left or (must and end == start)):
                left -= request.sizes[end]
                taken += request.sizes[end]
                end += 1
            if end > start:
                self._started(request, end)
                parts.append(_Part(request, start, end))
            if end < len(request.texts):
                others.insert(0, request)
                break
        line.waiting.extendleft(reversed(others))
        self._tokens -= taken
        return taken

    def _started(self, request: _Request, end: int) -> None:
        if not request.promised.is_started:
            request.promised.is_started = True
            self._counts.waited(time.monotonic() - request.entered)
        request.num_taken = end

    def _is_gone(self, request: _Request) -> bool:
        """Whether nobody waits for it any more, or it could only be late; then it is forgotten."""
        now = time.monotonic()
        if not request.promised.done() and not request.promised.is_started and now - request.entered > self._patient_s:
            alone_s = self._alone_s(request, self.speed.seconds) or 0.0
            if now + alone_s > request.due:
                why = "it waited so long that its answer would be late; ask again in a moment."
                settle(request.promised, error=FullError(why))
        if not request.promised.done():
            return False
        rest = sum(request.sizes[request.num_taken :])
        self._tokens -= rest
        self._line(request).owed[family(request.kind)] -= rest
        if request.num_unanswered > 0:
            self.num_dropped += 1
            self._counts.dropped()
        return True

    @property
    def _patient_s(self) -> float:
        return PATIENT * self._deadline_s

    def _forget_gone(self) -> None:
        for line in (self._short, self._long):
            line.waiting = deque(each for each in line.waiting if not self._is_gone(each))


def _of_request(error: BaseException, start: int) -> BaseException:
    """What is wrong with a text, which the model counts among those of one batch, by its number in the request."""
    named = _NUMBERED.match(str(error)) if isinstance(error, InputError) else None
    if named is None or not start:
        return error
    return InputError(f"{named[1]} {int(named[2]) + start}{str(error)[named.end() :]}")


def settle(promised: Promised[T], answer: T | None = None, error: BaseException | None = None) -> None:
    """Sets the result or the error of a future that another thread may cancel at the same time."""
    if promised.done() or not promised.set_running_or_notify_cancel():
        return
    if error is not None:
        promised.set_exception(error)
    else:
        promised.set_result(cast(T, answer))
