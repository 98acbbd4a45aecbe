"""Texts as token arrays in; how often every two words stand near each other out, in bounded memory (GloVe, §4.2).

Two words d places apart in one document add 1/d to their count, d up to a window to both sides. Counts are kept in
whole parts of 1/lcm(1…window), so that sums are exact and the same in any order. Pairs are counted a slab of text at a
time and sorted; what outgrows memory goes to unnamed files as sorted runs, which are merged at the end: nothing of size
V × V is ever made.

Legend: V vocabulary, E entries.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.pack.stretches import Places, Text

SLAB = 2**19  # tokens counted together
MOST = 2**25  # entries held in memory: half a gigabyte, and as much again while they are sorted
MERGED = 2**18  # entries of each run that a merge looks at together
FARTHEST = 20  # the widest window whose parts are few enough for whole numbers of 64 bits

Run = tuple[Places, Places]  # sorted keys, and the parts of each


@dataclass(frozen=True, eq=False)
class Entries:
    """Every two words that stand near each other, once: the lesser id first, by rising ids."""

    keys: Places  # [E] first · V + second; a mapped file where there are very many
    parts: Places  # [E] the count of each in parts of 1/unit
    vocab_size: int
    unit: int

    def __len__(self) -> int:
        return len(self.keys)

    def at(self, places: Places) -> tuple[Places, Places, npt.NDArray[np.float64]]:
        """(first, second, count) of these entries; the table is symmetric, so (second, first) has the same count."""
        first, second = np.divmod(np.asarray(self.keys[places]), self.vocab_size)
        return first, second, np.asarray(self.parts[places]) / self.unit


def entries(
    shards: Sequence[Text], vocab_size: int, window: int, left_out: Sequence[int] = (), *, most: int = MOST,
    folder: Path | str | None = None,
) -> Entries:  # fmt: skip
    """All counts of the shards. Tokens of `left_out` are passed over: their neighbours become neighbours.

    most: entries held in memory; beyond that, sorted runs go to unnamed files in the folder, else the system's own.
    """
    if not 1 <= window <= FARTHEST:
        raise InputError(f"the window is {window!r}, but must be a whole number from 1 to {FARTHEST}.")
    unit = math.lcm(*range(1, window + 1))
    held: list[Run] = []
    spilled: list[Run] = []
    for shard in shards:
        for slab in _slabs(shard, vocab_size, window, left_out):
            held.append(_summed(*_pairs(*slab, vocab_size, window, unit)))
            if sum(len(keys) for keys, _ in held) > most:
                held = [_joined(held)]
                if len(held[0][0]) > most // 2:
                    spilled.append(_in_files(iter(held), folder))
                    held = []
    keys, parts = _joined(held) if not spilled else _in_files(_merged([*spilled, _joined(held)]), folder)
    return Entries(keys, parts, vocab_size, unit)


def _slabs(shard: Text, vocab_size: int, window: int, left_out: Sequence[int]) -> Iterator[tuple[Places, Places, int]]:
    """Ids and documents of some tokens, after the last few of the slab before, and how many those are."""
    counted = np.ones(vocab_size, dtype=bool)
    counted[list(left_out)] = False
    ids, owners = np.zeros(0, np.int64), np.zeros(0, np.int64)
    edges = np.asarray(shard.documents)
    for at in range(0, shard.num_tokens, SLAB):
        new = np.asarray(shard.ids[at : at + SLAB]).astype(np.int64)
        owner = np.searchsorted(edges, np.arange(at, at + len(new)), side="right")
        num_before = len(ids)
        ids, owners = np.concatenate([ids, new[counted[new]]]), np.concatenate([owners, owner[counted[new]]])
        yield ids, owners, num_before
        ids, owners = ids[-window:], owners[-window:]


def _pairs(
    ids: Places, owners: Places, num_before: int, vocab_size: int, window: int, unit: int
) -> tuple[Places, Places]:
    """The key of every two words of one document up to `window` apart, the later one new; and the parts of each.

    (i, j) and (j, i) are one entry here. A word near itself is both, so it counts twice, as in a table of all pairs.
    """
    keys, parts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for apart in range(1, min(window, len(ids) - 1) + 1):
        begin = max(num_before - apart, 0)
        left, right = ids[begin : len(ids) - apart], ids[begin + apart :]
        together = owners[begin : len(ids) - apart] == owners[begin + apart :]
        left, right = left[together], right[together]
        keys.append(np.minimum(left, right) * vocab_size + np.maximum(left, right))
        parts.append(np.where(left == right, 2, 1) * (unit // apart))
    return np.concatenate(keys), np.concatenate(parts)


def _summed(keys: Places, parts: Places) -> Run:
    """Each key once, in rising order, with all its parts."""
    order = np.argsort(keys, kind="stable")  # which is fast where sorted runs stand one after another
    keys = keys[order]
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[begins], np.add.reduceat(parts[order], begins) if len(begins) else parts[:0]


def _joined(runs: Sequence[Run]) -> Run:
    """Several runs as one."""
    keys, parts = zip((np.zeros(0, np.int64),) * 2, *runs, strict=True)
    return _summed(np.concatenate(keys), np.concatenate(parts))


def _merged(runs: Sequence[Run]) -> Iterator[Run]:
    """The sorted runs merged, piece by piece: of the next keys of each run, all up to the least of their last ones."""
    at = [0] * len(runs)
    while any(place < len(keys) for place, (keys, _) in zip(at, runs, strict=True)):
        windows = [run[0][place : place + MERGED] for place, run in zip(at, runs, strict=True)]
        last = min(int(view[-1]) for view in windows if len(view))
        sizes = [int(np.searchsorted(view, last, side="right")) for view in windows]
        yield _joined([(k[p : p + n], v[p : p + n]) for (k, v), p, n in zip(runs, at, sizes, strict=True)])
        at = [place + size for place, size in zip(at, sizes, strict=True)]


def _in_files(runs: Iterator[Run], folder: Path | str | None) -> Run:
    """The runs, one after another, in mapped files without a name, which the system frees with the arrays."""
    with tempfile.TemporaryFile(dir=folder) as keys, tempfile.TemporaryFile(dir=folder) as parts:
        for run in runs:
            run[0].tofile(keys)
            run[1].tofile(parts)
        mapped = [np.memmap(file, dtype=np.int64, mode="r").view(np.ndarray) for file in (keys, parts)]
    return mapped[0], mapped[1]
