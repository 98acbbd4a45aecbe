"""Encodings laid side by side in one row without padding, and results cut apart again.

Legend: T tokens in the pack, B sequences.
Within a pack, sequences stand in order of length: equal lengths become neighbours, and the CPU kernel sees each run of
them as one block without a copy. `starts` says where each sequence landed, so the order never leaves this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.protocols import Batch, Item
from filbert.core.records import Encoding, Ints, Packed


def pack(sequences: Sequence[Encoding], budget: int | None = None, max_len: int | None = None) -> tuple[Packed, Ints]:
    """The pack, and the first row of each sequence in the order given.

    With `budget` the row has exactly that many tokens and, with `max_len`, that constant bound of lengths, so that one
    compiled graph serves every pack: what is left over is filled with sequences of [PAD] that nobody reads.
    """
    lengths = np.fromiter((len(s) for s in sequences), dtype=np.int64, count=len(sequences))
    total = int(lengths.sum())
    if budget is not None and total > budget:
        raise ValueError(f"{total} tokens do not fit a budget of {budget}")
    order = np.argsort(lengths, kind="stable")
    edges = np.concatenate(([0], np.cumsum(lengths[order])))
    starts = np.empty(len(sequences), dtype=np.int32)
    starts[order] = edges[:-1]
    row = [sequences[i] for i in order]
    ids = _joined([s.ids for s in row])
    segments = _joined([s.segments for s in row])
    positions = np.arange(total, dtype=np.int32) - np.repeat(edges[:-1], lengths[order]).astype(np.int32)
    sizes = [int(n) for n in lengths[order]]
    if budget is not None:
        rest = budget - total
        ids, segments = (np.pad(x, (0, rest)) for x in (ids, segments))
        # The filler is cut so that no position leaves the table; its pieces are sequences like any other.
        longest = max_len or max(sizes, default=1)
        fill = [longest] * (rest // longest) + ([rest % longest] if rest % longest else [])
        positions = np.concatenate([positions, *(np.arange(n, dtype=np.int32) for n in fill)])
        sizes += fill
        edges = np.concatenate(([0], np.cumsum(sizes)))
    packed = Packed(
        ids=ids.astype(np.int32),
        positions=positions.astype(np.int32),
        segments=segments.astype(np.int32),
        boundaries=edges.astype(np.int32),
        lengths=tuple(sizes),
        max_len=max_len or max(sizes, default=0),
    )
    return packed, starts


def unpack(rows: npt.NDArray[Any], sequences: Sequence[Encoding], starts: Ints) -> list[npt.NDArray[Any]]:
    """Each sequence's own rows of a per-token result [T, …], in the order the sequences were given."""
    return [rows[start : start + len(s)] for s, start in zip(sequences, starts, strict=True)]


def bins(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of sequences that share a pack: by length, each pack as full as `budget` tokens allow.

    A sequence longer than the budget has a pack of its own: nothing is cut.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    group: list[int] = []
    size = 0
    for index in order:
        if group and size + lengths[index] > budget:
            yield group
            group, size = [], 0
        group.append(index)
        size += lengths[index]
    if group:
        yield group


def collate(items: Sequence[Item], budget: int | None = None) -> Batch:
    """Items packed together, with every target whose name ends in `_rows` moved to where its tokens landed."""
    sequences = [s for item in items for s in item.sequences]
    packed, starts = pack(sequences, budget)
    owners = np.repeat(np.arange(len(items), dtype=np.int32), [len(item.sequences) for item in items])
    targets: dict[str, list[npt.NDArray[Any]]] = {}
    first = 0
    for item in items:
        own_starts = starts[first : first + len(item.sequences)]
        places = np.concatenate([np.arange(len(s)) + a for s, a in zip(item.sequences, own_starts, strict=True)])
        for name, value in item.targets.items():
            targets.setdefault(name, []).append(places[value] if name.endswith("_rows") else np.asarray(value))
        first += len(item.sequences)
    joined = {name: np.concatenate([np.atleast_1d(v) for v in values]) for name, values in targets.items()}
    return Batch(packed=packed, starts=starts, owners=owners, targets=joined)


def _joined(arrays: list[Ints]) -> Ints:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)
