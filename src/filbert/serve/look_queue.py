"""Jobs that look inside a model in; what each found out, one after another on a thread of their own, within a budget.

A look can take many times what an answer takes. So it never stands in the queue of a model, only so many wait, each
has so many seconds, and one that nobody waits for, or whose time is over, ends between two packs (core.stopping).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from filbert.core import stopping
from filbert.serve.limits import Refused
from filbert.serve.queue import FullError, Promised, settle

MOST_WAITING = 4  # more would only be late
END_S = 1.0  # that a job has to stop where it stands, once it must

Job = Callable[[], Any]


class _Look(NamedTuple):
    """A job, to whom its result is promised, and when it is too late to begin."""

    job: Job
    promised: Promised[Any]
    due: float


class LookQueue:
    """A thread for looks; it begins with the first of them."""

    def __init__(self, budget_s: float, deadline_s: float, on_start: Callable[[], object] = lambda: None) -> None:
        self.budget_s = min(budget_s, deadline_s)
        self._deadline_s, self._on_start = deadline_s, on_start
        self._waiting: deque[_Look] = deque()
        self._turn = threading.Condition()
        self._is_closed = self._is_over = False
        self._thread: threading.Thread | None = None

    def ask(self, job: Job, num_bytes: int = 0) -> Promised[Any]:
        """What the job gives, when it is done, of so many bytes, about; FullError where too many wait."""
        look = _Look(job, Promised[Any](), time.monotonic() + self._deadline_s)
        look.promised.num_bytes = num_bytes
        with self._turn:
            if self._is_closed:
                raise FullError("the server is about to stop.")
            self._waiting = deque(each for each in self._waiting if not each.promised.done())
            if len(self._waiting) >= MOST_WAITING:
                raise FullError(f"{MOST_WAITING} looks inside a model wait already; ask again in a moment.")
            self._waiting.append(look)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="filbert-look", daemon=True)
                self._thread.start()
            self._turn.notify()
        return look.promised

    def close(self, within_s: float | None = None) -> bool:
        """Does what waits, then ends; what takes longer is given up. Whether the thread has ended."""
        with self._turn:
            self._is_closed = True
            self._turn.notify()
        if self._thread is None:
            return True
        self._thread.join(within_s)
        self._is_over = True
        self._thread.join(END_S)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether its thread is there."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        self._on_start()
        while (look := self._next()) is not None:
            if look.promised.done():
                continue
            if time.monotonic() > look.due:
                settle(look.promised, error=FullError("it waited too long for its turn; ask again in a moment."))
                continue
            look.promised.is_started = True
            self._do(look)

    def _next(self) -> _Look | None:
        with self._turn:
            while not self._waiting:
                if self._is_closed:
                    return None
                self._turn.wait()
            return None if self._is_over else self._waiting.popleft()

    def _do(self, look: _Look) -> None:
        stop = stopping.Stop(self.budget_s, lambda: self._is_over or look.promised.done())
        try:
            with stopping.within(stop):
                shown = look.job()
        except stopping.StoppedError:
            why = f"this look takes more than the {self.budget_s:g} seconds that one may take; give a shorter text, " \
                  "or explain it by gradient-x-input."  # fmt: skip
            settle(look.promised, error=Refused(504, why))
        except BaseException as error:
            settle(look.promised, error=error)
        else:
            settle(look.promised, shown)
