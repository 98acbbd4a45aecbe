"""Groups of items, a function and a number of threads in; the function called for each group, with progress.

Answers are checked here too: numbers that are not finite are an error, whatever runtime gave them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

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
    """Calls `run_group` for every group in order, on several threads; on one where there are few groups for each.

    begin: called by each thread before its first group. An error in one thread stops all and is raised here; so does a
    stop (core.stopping) of the caller, between two groups.
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
    """Counts work that is done, on any thread, and calls `on_progress` with its share."""

    def __init__(self, total: float, on_progress: Progress) -> None:
        self.total, self.on_progress, self.done, self.lock = max(1.0, total), on_progress, 0.0, threading.Lock()

    def add(self, more: float) -> None:
        """Adds to what is done."""
        with self.lock:
            self.done += more
            self.on_progress(min(1.0, self.done / self.total))


def not_finite() -> FilbertError:
    """The error for vectors or scores that are not finite."""
    return FilbertError(
        "the model gives NaN or infinite numbers for these texts, so every answer would be noise: its weights are "
        "broken, or too large for the precision that was asked for; take float32, or an earlier checkpoint."
    )


def finite(vectors: Floats) -> Floats:
    """The same numbers, if all are finite: their sum shows it in one pass; only a sum that is not needs a second."""
    with np.errstate(all="ignore"):
        if np.isfinite(vectors.sum(dtype=np.float32)) or np.isfinite(vectors).all():
            return vectors
    raise not_finite()


def check_finite(answer: object) -> None:
    """Refuses a head's output for a text in which a score is NaN or +inf; -inf stands for what cannot be."""
    if isinstance(answer, tuple | list):
        for part in answer:
            check_finite(part)
    elif isinstance(answer, np.ndarray) and answer.dtype.kind == "f" and (np.isnan(answer) | (answer == np.inf)).any():
        raise not_finite()
