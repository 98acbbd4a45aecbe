"""Groups of work and a number of threads in; all of it done, by threads that each take the next group."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from filbert.core import stopping

Group = TypeVar("Group")
PATIENCE_S = 5.0  # that an interrupted run waits for each thread, of which some may never have begun


def each(
    work: Callable[[Group], None], groups: list[Group], threads: int, begin: Callable[[], object] = lambda: None
) -> None:
    """Does every group, the first ones first; where few are left over for each thread, one thread does them all.

    begin: what each thread does before its first group. What fails in one stops all and is raised here; so does a stop
    (core.stopping) that the caller is within, between two groups.
    """
    stop = stopping.current()
    if threads == 1 or len(groups) < 2 * threads:
        for group in groups:
            stop.check()
            work(group)
        return
    waiting: queue.SimpleQueue[Group] = queue.SimpleQueue()
    for group in groups:
        waiting.put(group)
    failed: list[BaseException] = []

    def worker(over: threading.Event) -> None:
        try:
            begin()
            while not failed:
                stop.check()
                work(waiting.get_nowait())
        except queue.Empty:
            return
        except BaseException as error:
            failed.append(error)
        finally:
            over.set()

    ends = [threading.Event() for _ in range(threads)]  # not `join`: once interrupted, it takes a thread for ended
    try:
        for over in ends:
            threading.Thread(target=worker, args=(over,), daemon=True).start()
        for over in ends:
            over.wait()
    except BaseException as error:  # Ctrl-C: a library that is at work when the process ends aborts it
        failed.append(error)
        for over in ends:
            over.wait(PATIENCE_S)
        raise
    if failed:
        raise failed[0]
