"""A reason to stop in; work that checks it between its steps ends, however deep in a model it stands.

    with within(Stop(seconds=30)):
        model.explain(text)  # raises StoppedError between two packs, once the time is over or `stop` was called

A stop holds for the thread that is within it; what shares its work out to other threads hands it on (engine.threads).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from filbert.core.errors import FilbertError


class StoppedError(FilbertError):
    """Work that ended before it was done: it was stopped, its result is no longer wanted, or its time is over."""


class Stop:
    """Whether work is to end: `stop` was called, its time is over, or nobody wants its result."""

    def __init__(self, seconds: float | None = None, is_unwanted: Callable[[], bool] | None = None) -> None:
        self._stopped = threading.Event()
        self._is_unwanted = is_unwanted
        self._due = None if seconds is None else time.monotonic() + seconds

    def stop(self) -> None:
        """Ends the work at its next check; may be called from any thread."""
        self._stopped.set()

    def check(self) -> None:
        """Raises StoppedError where the work is to end; costs less than a microsecond."""
        if self._stopped.is_set():
            raise StoppedError("it was told to stop before it was done.")
        if self._due is not None and time.monotonic() >= self._due:
            raise StoppedError("its time was over before it was done.")
        if self._is_unwanted is not None and self._is_unwanted():
            raise StoppedError("nobody waits for it any more.")


NEVER = Stop()
_OF_THREAD = threading.local()


def current() -> Stop:
    """The stop that this thread is within; else NEVER."""
    stop: Stop = getattr(_OF_THREAD, "stop", NEVER)
    return stop


@contextmanager
def within(stop: Stop) -> Iterator[None]:
    """What this thread does meanwhile ends by that stop."""
    before = current()
    _OF_THREAD.stop = stop
    try:
        yield
    finally:
        _OF_THREAD.stop = before
