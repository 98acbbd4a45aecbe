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
import numpy.typing as npt

PATHS = (
    "/", "/predict", "/look", "/embed", "/rerank", "/similarity", "/info", "/models", "/models/{name}",
    "/models/{name}/predict", "/models/{name}/embed", "/models/{name}/rerank", "/models/{name}/similarity",
    "/models/{name}/pipeline/{pipeline}", "/v1/embeddings", "/v1/rerank", "/v1/models", "/v1/models/{name}", "/health",
    "/live", "/ready", "/metrics", "/openapi.json", "other",
)  # fmt: skip
STATUSES = (200, 204, 400, 401, 403, 404, 405, 408, 413, 415, 421, 422, 429, 431, 499, 500, 503, 504, 0)  # 0: any other
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # texts read together
OF_MODEL = ("texts", "goes", "dropped", "waiting")
WAITED = len(OF_MODEL)  # where the histogram of the seconds in the queue begins among a model's numbers
READ = WAITED + len(BUCKETS) + 2  # and that of the texts read together
MODEL_WIDTH = READ + len(SIZES) + 2
Numbers = npt.NDArray[np.float64]
DOWN, LOADING, READY, DRAINING = 0.0, 1.0, 2.0, 3.0  # what a process is
HEAD = 1  # its state stands before its counts


class Tally:
    """The counts of every process, of which one is this; the same memory under `fileno` in all of them."""

    def __init__(self, models: Sequence[str], workers: int = 1, worker: int = 0, fileno: int | None = None) -> None:
        self.models, self.worker = list(models), worker
        self._times = HEAD + len(PATHS) * len(STATUSES)
        self._of_models = self._times + len(PATHS) * (len(BUCKETS) + 2)
        width = self._of_models + MODEL_WIDTH * len(self.models)
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
        _observe(self._mine[at : at + len(BUCKETS) + 2], BUCKETS, seconds)

    def of_model(self, name: str) -> ModelCounts:
        """Where this process counts what a model does; it goes on from what a process before it counted."""
        at = self._of_models + self.models.index(name) * MODEL_WIDTH
        counts = ModelCounts(self._mine[at : at + MODEL_WIDTH])
        counts.set_waiting(0)
        return counts

    def text(self) -> str:
        """All of it as Prometheus reads it (text format 0.0.4)."""
        return "\n".join([*self._requests(), *self._durations(), *self._by_model(), *self._workers()]) + "\n"

    def _requests(self) -> Iterator[str]:
        yield from _headed("filbert_requests_total", "counter", "Answers, by path and status; 499: the client left.")
        sums = self._all[:, HEAD : self._times].sum(0).reshape(len(PATHS), len(STATUSES))
        for row, path in enumerate(PATHS):
            for column, status in enumerate(STATUSES):
                if sums[row, column]:
                    code = status or "other"
                    yield f'filbert_requests_total{{path="{path}",status="{code}"}} {sums[row, column]:.0f}'

    def _durations(self) -> Iterator[str]:
        name = "filbert_request_seconds"
        yield from _headed(name, "histogram", "From a request's head to its answer's last byte.")
        sums = self._all[:, self._times : self._of_models].sum(0).reshape(len(PATHS), len(BUCKETS) + 2)
        for row, path in enumerate(PATHS):
            yield from _histogram(name, f'path="{path}"', BUCKETS, sums[row])

    def _by_model(self) -> Iterator[str]:
        sums = self._all[:, self._of_models :].sum(0).reshape(len(self.models), MODEL_WIDTH)
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
        name = "filbert_queue_seconds"
        yield from _headed(name, "histogram", "How long requests waited before they were begun.")
        for row, model in enumerate(self.models):
            yield from _histogram(name, f'model="{model}"', BUCKETS, sums[row, WAITED:READ])
        name = "filbert_batch_texts"
        yield from _headed(name, "histogram", "How many texts were read together.")
        for row, model in enumerate(self.models):
            yield from _histogram(name, f'model="{model}"', SIZES, sums[row, READ:])

    def _workers(self) -> Iterator[str]:
        yield from _headed("filbert_workers", "gauge", "Processes that should be there.")
        yield f"filbert_workers {len(self._all)}"
        yield from _headed("filbert_workers_ready", "gauge", "Processes that answer.")
        yield f"filbert_workers_ready {(self._all[:, 0] == READY).sum()}"


class ModelCounts:
    """What one process counts of one model; its callers see to it that one thread counts at a time."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    @staticmethod
    def of_nobody() -> ModelCounts:
        """Counts that nobody reads."""
        return ModelCounts(np.zeros(MODEL_WIDTH))

    def went(self, num_texts: int) -> None:
        """So many texts are read together."""
        self._numbers[OF_MODEL.index("texts")] += num_texts
        self._numbers[OF_MODEL.index("goes")] += 1
        _observe(self._numbers[READ:], SIZES, num_texts)

    def waited(self, seconds: float) -> None:
        """A request is begun, so long after it came."""
        _observe(self._numbers[WAITED:READ], BUCKETS, seconds)

    def dropped(self) -> None:
        """A request was given up while it waited."""
        self._numbers[OF_MODEL.index("dropped")] += 1

    def set_waiting(self, number: int) -> None:
        """So many wait now."""
        self._numbers[OF_MODEL.index("waiting")] = number


def _observe(numbers: Numbers, edges: Sequence[float], value: float) -> None:
    """Counts a value in a histogram: its buckets, what is above all of them, and the sum."""
    numbers[bisect_left(edges, value)] += 1
    numbers[len(edges) + 1] += value


def _histogram(name: str, label: str, edges: Sequence[float], numbers: Numbers) -> Iterator[str]:
    """As Prometheus reads it; nothing where nothing was counted."""
    counts = np.cumsum(numbers[:-1])
    if not counts[-1]:
        return
    for edge, count in zip((*edges, "+Inf"), counts, strict=True):
        yield f'{name}_bucket{{{label},le="{edge}"}} {count:.0f}'
    yield f"{name}_sum{{{label}}} {numbers[-1]:.6f}"
    yield f"{name}_count{{{label}}} {counts[-1]:.0f}"


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
    if parts[:3] == ["", "v1", "models"] and len(parts) == 4:
        return "/v1/models/{name}"
    if parts[:2] != ["", "models"] or not 3 <= len(parts) <= 5:
        return "other"
    if len(parts) == 5:
        return "/models/{name}/pipeline/{pipeline}" if parts[3] == "pipeline" else "other"
    label = "/".join(["/models/{name}", *parts[3:]])
    return label if label in PATHS else "other"


_EXACT = frozenset(path for path in PATHS if "{" not in path and path != "other")
