"""One process per contender: comes in orders over a pipe, goes out vectors or seconds.

A process each, because thread pools, allocators and OpenMP runtimes of one library must not cost another anything.
Only one worker has an order at a time; the others wait on their pipes.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from peers import CONTENDERS, Encode, Setup, reference
from timing import Sample, measured
from workloads import Workload

REFERENCE = "reference"
_SPAWN = multiprocessing.get_context("spawn")


class Broken(Exception):
    """A contender that could not do what it was asked; the text says why."""


def set_environment(threads: int) -> None:
    """Thread counts and silence for every library, inherited by the workers before they import anything."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(threads)
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}
    os.environ.update(quiet | {"TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"})


class Worker:
    """The parent's end of one contender's process."""

    def __init__(self, name: str, setup: Setup) -> None:
        self.name = name
        self._pipe, other = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(other, name, setup), daemon=False)
        self._process.start()
        other.close()
        self._answer()  # built

    def vectors(self, workload: Workload, batch: int) -> np.ndarray:
        """Every text of a workload encoded once, by the very calls that will be timed."""
        return self._ask("vectors", workload, batch)

    def sample(self, workload: Workload, batch: int) -> Sample:
        """One timed pass: seconds for all texts, or the median call where the workload asks for that."""
        return self._ask("sample", workload, batch)

    def close(self) -> None:
        """Ends the process."""
        self._pipe.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.terminate()

    def _ask(self, *order: Any) -> Any:
        self._pipe.send(order)
        return self._answer()

    def _answer(self) -> Any:
        try:
            good, value = self._pipe.recv()
        except EOFError:
            raise Broken(f"{self.name}: its process ended") from None
        if not good:
            raise Broken(f"{self.name}: {value}")
        return value


def prepared(name: str, setup: Setup) -> None:
    """Runs a contender's cached export in a process of its own, so that the timed one stays free of the exporter."""
    prepare = CONTENDERS[name].prepare
    if prepare is None:
        return
    process = _SPAWN.Process(target=_prepare, args=(name, setup))
    process.start()
    process.join()
    if process.exitcode:
        raise Broken(f"{name}: its export failed (see above)")


def _prepare(name: str, setup: Setup) -> None:
    prepare = CONTENDERS[name].prepare
    assert prepare is not None
    prepare(setup)


def _serve(pipe: Connection, name: str, setup: Setup) -> None:
    try:
        encode = reference(setup) if name == REFERENCE else CONTENDERS[name].build(setup)
    except BaseException as error:
        pipe.send((False, _reason(error)))
        return
    pipe.send((True, None))
    while True:
        try:
            order, workload, batch = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, _ORDERS[order](encode, workload, batch)))
        except Exception as error:
            pipe.send((False, _reason(error)))


def _vectors(encode: Encode, workload: Workload, batch: int) -> np.ndarray:
    return np.concatenate([encode(texts, batch) for texts in workload.calls])


def _sample(encode: Encode, workload: Workload, batch: int) -> Sample:
    encode(workload.calls[0][:1], batch)  # wakes thread pools that slept while others ran
    if not workload.per_call:
        return measured(lambda: [encode(texts, batch) for texts in workload.calls])
    clocks = []
    for texts in workload.calls * 2:
        cpu, wall = time.process_time(), time.perf_counter()
        encode(texts, batch)
        clocks.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu_s, wall_s = (statistics.median(column) for column in zip(*clocks, strict=True))
    return Sample(cpu_s=cpu_s, wall_s=wall_s)


def _reason(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({os.path.basename(frame.filename)}:{frame.lineno})"


_ORDERS = {"vectors": _vectors, "sample": _sample}
