"""What happens in a server in; the text that Prometheus reads, summed over all worker processes, out.

The numbers lie in memory that the processes share. Each writes only its own part, so that nothing is locked and a
process that takes the place of a killed one counts on from where that was.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np

PATHS = (
    "/", "/predict", "/look", "/embed", "/rerank", "/similarity", "/info", "/models", "/models/{name}",
    "/models/{name}/predict", "/models/{name}/pipeline/{pipeline}", "/v1/embeddings", "/v1/models", "/health", "/live",
    "/ready", "/metrics", "/openapi.json", "other",
)  # fmt: skip
STATUSES = (200, 204, 400, 401, 404, 405, 408, 413, 422, 429, 431, 499, 500, 503, 504, 0)  # 0: any other
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
OF_MODEL = ("texts", "goes", "dropped", "waiting")
DOWN, LOADING, READY = 0.0, 1.0, 2.0  # what a process is
HEAD = 1  # its state stands before its counts


class Tally:
    """The counts of every process, of which one is this; the same memory under `fileno` in all of them."""

    def __init__(self, models: Sequence[str], workers: int = 1, worker: int = 0, fileno: int | None = None) -> None:
        self.models, self.worker = list(models), worker
        self._times = HEAD + len(PATHS) * len(STATUSES)
        self._own = self._times + len(PATHS) * (len(BUCKETS) + 2)
        width = self._own + len(OF_MODEL) * len(self.models)
        size = workers * width * 8
        if fileno is None and workers > 1:
            fileno = _shared_file()
            os.ftruncate(fileno, size)
        self.fileno = fileno
        self._memory = mmap.mmap(-1 if fileno is None else fileno, size)
        self._all = np.frombuffer(self._memory, dtype=np.float64).reshape(workers, width)
        self._mine = self._all[worker]

    def set_state(self, state: float, worker: int | None = None) -> None:
        """This process, or another that its parent speaks for, is down, loading or ready."""
        self._all[self.worker if worker is None else worker, 0] = state

    def are_ready(self) -> bool:
        """Whether every process is."""
        return bool((self._all[:, 0] == READY).all())

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Counts one answer."""
        row = PATHS.index(path)
        column = STATUSES.index(status) if status in STATUSES else len(STATUSES) - 1
        self._mine[HEAD + row * len(STATUSES) + column] += 1
        at = self._times + row * (len(BUCKETS) + 2)
        self._mine[at + bisect_left(BUCKETS, seconds)] += 1
        self._mine[at + len(BUCKETS) + 1] += seconds

    def set_model(self, name: str, counts: Sequence[float]) -> None:
        """What a model's queue has done since this process began; it counts on from an earlier process."""
        at = self._own + self.models.index(name) * len(OF_MODEL)
        self._mine[at : at + len(OF_MODEL)] = counts

    def of_model(self, name: str) -> list[float]:
        """What stands there."""
        at = self._own + self.models.index(name) * len(OF_MODEL)
        return [float(value) for value in self._mine[at : at + len(OF_MODEL)]]

    def text(self) -> str:
        """All of it as Prometheus reads it (text format 0.0.4)."""
        return "\n".join([*self._requests(), *self._durations(), *self._by_model(), *self._workers()]) + "\n"

    def _requests(self) -> Iterator[str]:
        yield from _headed("filbert_requests_total", "counter", "Answers, by path and status; 499: the client left.")
        sums = self._all[:, HEAD : self._times].sum(0).reshape(len(PATHS), len(STATUSES))
        for row, path in enumerate(PATHS):
            for column, status in enumerate(STATUSES):
                if sums[row, column]:
                    told = status or "other"
                    yield f'filbert_requests_total{{path="{path}",status="{told}"}} {sums[row, column]:.0f}'

    def _durations(self) -> Iterator[str]:
        name = "filbert_request_seconds"
        yield from _headed(name, "histogram", "From a request's head to its answer's last byte.")
        sums = self._all[:, self._times : self._own].sum(0).reshape(len(PATHS), len(BUCKETS) + 2)
        for row, path in enumerate(PATHS):
            counts = np.cumsum(sums[row, :-1])
            if not counts[-1]:
                continue
            for edge, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                yield f'{name}_bucket{{path="{path}",le="{edge}"}} {count:.0f}'
            yield f'{name}_sum{{path="{path}"}} {sums[row, -1]:.6f}'
            yield f'{name}_count{{path="{path}"}} {counts[-1]:.0f}'

    def _by_model(self) -> Iterator[str]:
        sums = self._all[:, self._own :].sum(0).reshape(len(self.models), len(OF_MODEL))
        about = {
            "texts": ("filbert_texts_total", "counter", "Texts that were read."),
            "goes": ("filbert_goes_total", "counter", "Times that waiting texts were read together."),
            "dropped": ("filbert_dropped_total", "counter", "Requests given up while they waited."),
            "waiting": ("filbert_waiting", "gauge", "Requests that wait."),
        }
        for column, key in enumerate(OF_MODEL):
            yield from _headed(*about[key])
            for row, model in enumerate(self.models):
                yield f'{about[key][0]}{{model="{model}"}} {sums[row, column]:.0f}'

    def _workers(self) -> Iterator[str]:
        yield from _headed("filbert_workers", "gauge", "Processes that should be there.")
        yield f"filbert_workers {len(self._all)}"
        yield from _headed("filbert_workers_ready", "gauge", "Processes that answer.")
        yield f"filbert_workers_ready {(self._all[:, 0] == READY).sum()}"


def _shared_file() -> int:
    """A file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("filbert-metrics")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _headed(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def path_label(path: str) -> str:
    """A path as it is counted and logged: never what a client made up."""
    if path in _EXACT:
        return path
    parts = path.split("/")
    if parts[:2] == ["", "models"] and len(parts) > 2:
        rest = {3: "", 4: "/predict" if parts[3:] == ["predict"] else None}
        if len(parts) == 5 and parts[3] == "pipeline":
            return "/models/{name}/pipeline/{pipeline}"
        found = rest.get(len(parts))
        return "other" if found is None else "/models/{name}" + found
    return "other"


_EXACT = frozenset(path for path in PATHS if "{" not in path and path != "other")
