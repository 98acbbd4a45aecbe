"""Clocks, medians and tables: comes in a piece of work or its samples, goes out seconds, ratios, verdicts."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one piece of work cost."""

    cpu_s: float
    wall_s: float


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A median and the extremes around it."""

    median: float
    low: float
    high: float

    def text(self, digits: int = 2) -> str:
        """`1.23 (1.20-1.31)`; the range is the smallest and the largest round, not a confidence interval."""
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}-{self.high:.{digits}f})"


def spread(values: Sequence[float]) -> Spread:
    """The median and the range of some numbers."""
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def cpu_seconds() -> float:
    """CPU seconds of this process, of its ended children and of its living descendants.

    Living descendants are read from /proc (10 ms steps): an engine that keeps worker processes must not look free.
    """
    return time.process_time() + _others_s()


def measured(work: Callable[[], object]) -> Sample:
    """The cost of running `work` once."""
    others = _others_s()  # read outside the two clocks: looking through /proc costs milliseconds
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
    return Sample(cpu_s=cpu_s + _others_s() - others, wall_s=wall_s)


def _others_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + _living_descendants_s(os.getpid())


def _living_descendants_s(root: int) -> float:
    parents: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # the process ended while we looked
            continue
        parents[int(entry.parent.name)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) * _TICK_S)
    total, frontier = 0.0, {root}
    while frontier:
        frontier = {pid for pid, (parent, _) in parents.items() if parent in frontier}
        total += sum(parents[pid][1] for pid in frontier)
    return total


def rotated(items: Sequence[str], turn: int) -> list[str]:
    """The items in another order each round, so that no contender always runs first or after the same neighbour."""
    start = turn % len(items) if items else 0
    order = [*items[start:], *items[:start]]
    return order[::-1] if turn % 2 else order


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """How many times less we cost than a peer, round by round: a noisy minute hits both sides of its own round."""
    return spread([peer / own for own, peer in zip(ours, theirs, strict=True)])


def verdict(value: float, target: float | None, *, at_most: bool = False) -> str:
    """PASS or MISS against a target, or nothing where there is none."""
    if target is None:
        return ""
    return "PASS" if (value <= target if at_most else value >= target) else "MISS"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table, the first column to the left and the others to the right."""
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def machine() -> dict[str, object]:
    """What a reader needs to know about where the numbers came from."""
    names = ("torch", "transformers", "tokenizers", "onnxruntime", "openvino", "ctranslate2", "sentence-transformers")
    cpu = next((row.split(":")[1].strip() for row in _cpuinfo() if row.startswith("model name")), platform.processor())
    flags = next((row for row in _cpuinfo() if row.startswith("flags")), "").split()
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "instructions": [name for name in ("avx2", "avx512f", "avx512_vnni", "amx_tile") if name in flags],
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version for name in (*names, "filbert") if (version := _version(name))},
    }


def samples_as_json(samples: Sequence[Sample]) -> list[dict[str, float]]:
    """Samples as plain objects."""
    return [asdict(sample) for sample in samples]


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
