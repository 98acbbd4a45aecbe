"""Groups of work and a number of threads in; all of it done, by threads that each take the next group, and told.

What they make is looked at here too: numbers that are not finite are an error, whatever runtime gave them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from filbert.core import stopping
from filbert.core.errors import FilbertError
from filbert.core.records import Floats

Group = TypeVar("Group")
Progress = Callable[[float], None]  # the share of some work that is done, from 0 to 1
PATIENCE_S = 5.0  # that an interrupted run waits for each thread, of which some may never have begun


def each(
    run_group: Callable[[Group], None], groups: list[Group], threads: int, begin: Callable[[], object] = lambda: None
) -> None:
    """Does every group, the first ones first; where few are left over for each thread, one thread does them all.

    begin: what each thread does before its first group. What fails in one stops all and is raised here; so does a stop
    (core.stopping) that the caller is within, between two groups.
    """
    stop = stopping.current()
    if threads == 1 or len(groups) < 2 * threads:
        for group in groups:
            stop.check()
            run_group(group)
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
                run_group(waiting.get_nowait())
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


class Done:
    """How much of some work is done; says so as more of it is, from whichever thread."""

    def __init__(self, total: float, on_progress: Progress) -> None:
        self.total, self.on_progress, self.done, self.lock = max(1.0, total), on_progress, 0.0, threading.Lock()

    def add(self, more: float) -> None:
        """So much more is done."""
        with self.lock:
            self.done += more
            self.on_progress(min(1.0, self.done / self.total))


def not_finite() -> FilbertError:
    """The error for numbers that no answer can be made of."""
    return FilbertError(
        "the model gives NaN or infinite numbers for these texts, so every answer would be noise: its weights are "
        "broken, or too large for the precision that was asked for; take float32, or an earlier checkpoint."
    )


def finite(vectors: Floats) -> Floats:
    """The same numbers, if all are finite: their sum tells in one pass, and only a sum that is not needs a second."""
    with np.errstate(all="ignore"):
        if np.isfinite(vectors.sum(dtype=np.float32)) or np.isfinite(vectors).all():
            return vectors
    raise not_finite()


def checked(answer: Any) -> Any:
    """What a head said of a text, if no score in it is NaN or beyond all bounds; -inf stands for what cannot be."""
    if isinstance(answer, tuple | list):
        for part in answer:
            checked(part)
    elif isinstance(answer, np.ndarray) and answer.dtype.kind == "f" and (np.isnan(answer) | (answer == np.inf)).any():
        raise not_finite()
    return answer
