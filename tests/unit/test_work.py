"""Groups of work by threads: what stops one stops all, and nothing is at work afterwards."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from filbert.infer.work import each


def test_an_interrupt_waits_for_what_is_at_work_and_begins_nothing_more() -> None:
    begun, ended = [], []

    def work(group: int) -> None:
        begun.append(group)
        if group == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # as Ctrl-C does
        time.sleep(0.3)
        ended.append(group)

    with pytest.raises(KeyboardInterrupt):
        each(work, list(range(40)), 2)
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 40
