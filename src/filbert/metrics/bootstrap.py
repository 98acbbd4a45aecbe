"""Examples and a statistic of them in; the statistic's percentile bootstrap interval (Efron 1979) out.

Legend: N examples, U kinds of examples, R resamples.

Examples that count alike are one kind, and drawing N examples with replacement is drawing how many there are of each
kind from a multinomial: no example is touched. A statistic that is no function of such counts gets the drawn places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from filbert.core.random import generator

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Interval = tuple[float, float]
Statistic = Callable[[Counts], Mapping[str, npt.NDArray[np.floating]]]  # of one chunk of resamples, [R] each
RESAMPLES = 1_000
CHUNK_CELLS = 2**22  # numbers of resamples that are held at a time
LEVEL = 0.95


def of_counts(
    counts_U: npt.ArrayLike,
    statistic: Statistic,
    *,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    purpose: str = "bootstrap",
    row_cells: int | None = None,
    rescale: bool = True,
) -> dict[str, Interval]:
    """The interval of each value of `statistic`, which gets [R, U]: how often each kind was drawn.

    row_cells: numbers that one resample holds while it is scored; by default one for each kind.
    rescale: whether the probabilities are divided by their sum, which is 1 but for rounding. The draws hang on the last
    bit, so a measure keeps to what its published intervals were drawn with.
    """
    counts = np.asarray(counts_U, dtype=np.int64)
    total, random = int(counts.sum()), generator(seed, purpose)
    probabilities = counts / max(1, total)
    if rescale and total:
        probabilities = probabilities / probabilities.sum()

    def drawn(size: int) -> Counts:
        return random.multinomial(total, probabilities, size=size) if total else np.zeros((size, len(counts)), np.int64)

    sizes = chunks(resamples, len(counts) if row_cells is None else row_cells)
    return _percentiles((statistic(drawn(size)) for size in sizes), level)


def of_places(
    total: int, statistic: Statistic, *, seed: int = 0, level: float = LEVEL, resamples: int = RESAMPLES
) -> dict[str, Interval]:
    """The interval of each value of `statistic`, which gets [R, N]: the places of the examples drawn."""
    random = generator(seed, "bootstrap")
    sizes = chunks(resamples, total)
    return _percentiles((statistic(random.integers(max(1, total), size=(size, total))) for size in sizes), level)


def chunks(resamples: int, row_cells: int) -> Iterator[int]:
    """How many resamples are drawn at a time, where each holds so many numbers."""
    size = max(1, CHUNK_CELLS // max(1, row_cells))
    for begin in range(0, resamples, size):
        yield min(size, resamples - begin)


def _percentiles(scored: Iterator[Mapping[str, npt.NDArray[np.floating]]], level: float) -> dict[str, Interval]:
    """The percentiles of each value over all chunks."""
    values: dict[str, list[npt.NDArray[np.floating]]] = {}
    for chunk in scored:
        for name, of_chunk in chunk.items():
            values.setdefault(name, []).append(of_chunk)
    edges = ((1 - level) / 2, (1 + level) / 2)
    intervals: dict[str, Interval] = {}
    for name, parts in values.items():
        low, high = np.quantile(np.concatenate(parts), edges).tolist()
        intervals[name] = low, high
    return intervals
