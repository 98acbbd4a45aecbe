"""Groups of work by threads: what stops one stops all, and nothing is at work afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from filbert.engine.threads import each

LIMIT_S = 60.0


@pytest.fixture
def heard() -> Iterator[threading.Event]:
    """Set when Ctrl-C has reached this thread, whatever the process that began the tests does with that signal."""
    event = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        event.set()
        raise KeyboardInterrupt

    before: Callable[[int, FrameType | None], object] | int | None = signal.signal(signal.SIGINT, interrupt)
    yield event
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_what_is_at_work_and_begins_nothing_more(heard: threading.Event) -> None:
    begun, ended = [], []

    def work(group: int) -> None:
        begun.append(group)
        if group == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # as Ctrl-C does
        assert heard.wait(LIMIT_S)
        sum(range(1_000_000))  # still at work when the interrupt has come
        ended.append(group)

    with pytest.raises(KeyboardInterrupt):
        each(work, list(range(40)), 2)
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 40
