"""Sequences of tokens in, one row without padding out, with the place that each token came from; and rows cut apart.

Legend: T tokens in the pack, B sequences.
Every `Packed` is made here. Within one, sequences stand in order of length: equal lengths become neighbours, and the
CPU kernel sees each run of them as one block without a copy. `Laid.starts` says where each sequence landed, so the
order never leaves this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from filbert.core.protocols import Batch, Item
from filbert.core.records import Array, Encoding, Ints, Packed, Wholes

Places = npt.NDArray[np.int64]


class Laid(NamedTuple):
    """A pack, where each sequence begins in it and whose it is, and which token stands in each row."""

    packed: Packed
    starts: Places  # [B] first row of each sequence, in the order they were given
    owners: Places  # [B] the item that each sequence belongs to
    source: Places  # [T] place among the maker's own tokens; -1: [CLS], [SEP] and the like; without filler


@dataclass(frozen=True, slots=True)
class Order:
    """Sequences in order of length, and for each row of tokens which of them it is in and where."""

    which: Places  # [B] the sequences by length, as places in the order given
    lengths: Places  # [B] theirs
    owner: Places  # [T] place in `which`
    place: Places  # [T] place within its sequence
    starts: Places  # [B] first row of each sequence, in the order given


def by_length(lengths: npt.ArrayLike) -> Order:
    """How sequences of these lengths stand in a row."""
    sizes = np.asarray(lengths, dtype=np.int64)
    which = np.argsort(sizes, kind="stable")
    sizes = sizes[which]
    begins = np.cumsum(sizes) - sizes
    starts = np.empty_like(begins)
    starts[which] = begins
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return Order(which, sizes, owner, np.arange(len(owner)) - np.repeat(begins, sizes), starts)


def row(
    ids: Wholes,
    segments: Wholes | None,
    lengths: Sequence[int] | Places,
    budget: int | None = None,
    bound: int = 0,
    pad: int = 0,
) -> Packed:
    """Tokens that lie as their sequences do, as a pack; `segments` None: all 0.

    With `budget` the row has exactly that many tokens and, with `bound`, that constant bound of lengths, so that one
    compiled graph serves every pack: what is left over is filled with sequences of `pad` that are not used.
    """
    sizes = [int(length) for length in lengths]
    if budget is not None and len(ids) > budget:
        raise ValueError(f"{len(ids)} tokens do not fit a budget of {budget}")
    segments = np.zeros(len(ids), dtype=np.int32) if segments is None else segments
    if budget is not None:
        rest, longest = budget - len(ids), bound or max(sizes, default=1)
        # The filler is cut so that no position leaves the table; its pieces are sequences like any other.
        sizes += [longest] * (rest // longest) + ([rest % longest] if rest % longest else [])
        ids, segments = np.pad(ids, (0, rest), constant_values=pad), np.pad(segments, (0, rest))
    edges = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    return Packed(
        ids=ids.astype(np.int32, copy=False),
        positions=(np.arange(len(ids)) - np.repeat(edges[:-1], sizes)).astype(np.int32),
        segments=segments.astype(np.int32, copy=False),
        boundaries=edges.astype(np.int32),
        lengths=tuple(sizes),
        max_len=bound or max(sizes, default=0),
    )


def pack(sequences: Sequence[Encoding], budget: int | None = None, max_len: int | None = None) -> tuple[Packed, Ints]:
    """The pack of encodings, and the first row of each in the order given; `budget` and `max_len` as `row` has them."""
    laid = lay(sequences, budget, max_len)
    return laid.packed, laid.starts.astype(np.int32)


def lay(sequences: Sequence[Encoding], budget: int | None = None, max_len: int | None = None) -> Laid:
    """The same with the place of each token among those of all encodings end to end."""
    lengths = np.fromiter((len(each) for each in sequences), dtype=np.int64, count=len(sequences))
    order = by_length(lengths)
    source = (np.cumsum(lengths) - lengths)[order.which][order.owner] + order.place
    nothing = np.zeros(0, dtype=np.int32)
    ids = np.concatenate([nothing, *(each.ids for each in sequences)])
    segments = np.concatenate([nothing, *(each.segments for each in sequences)])
    packed = row(ids[source], segments[source], order.lengths, budget, max_len or 0)
    return Laid(packed, order.starts, np.arange(len(sequences)), source)


def gathered(packed: Packed, rows: Array, positions: Array, boundaries: Array, lengths: Sequence[int]) -> Packed:
    """Some rows of a pack, of arrays or of tensors, as other sequences than they were in."""
    sizes = tuple(lengths)
    return Packed(
        ids=packed.ids[rows], positions=positions, segments=packed.segments[rows], boundaries=boundaries,
        lengths=sizes, max_len=max(sizes, default=0),
    )  # fmt: skip


def restored(ids: Array, positions: Array, boundaries: Array, lengths: Array) -> Packed:
    """A pack that travelled as the arrays, or tensors, that it is made of; all its segments are 0."""
    sizes = tuple(lengths.tolist())
    return Packed(ids, positions, ids * 0, boundaries, sizes, max(sizes, default=0))


def stretch(packed: Packed, begin: int, end: int) -> tuple[slice, Packed]:
    """Which rows the sequences begin:end of a pack have, and these sequences as a pack of their own."""
    first, lengths = sum(packed.lengths[:begin]), packed.lengths[begin:end]
    rows = slice(first, first + sum(lengths))
    return rows, gathered(packed, rows, packed.positions[rows], packed.boundaries[begin : end + 1] - first, lengths)


def unpack(rows: npt.NDArray[np.generic], sequences: Sequence[Encoding], starts: Ints) -> list[npt.NDArray[np.generic]]:
    """Each sequence's own rows of a per-token result [T, …], in the order the sequences were given."""
    return [rows[start : start + len(each)] for each, start in zip(sequences, starts, strict=True)]


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
    packed, starts = pack([each for item in items for each in item.sequences], budget)
    owners = np.repeat(np.arange(len(items), dtype=np.int32), [len(item.sequences) for item in items])
    targets: dict[str, list[npt.NDArray[Any]]] = {}
    first = 0
    for item in items:
        item_starts = starts[first : first + len(item.sequences)]
        places = np.concatenate([np.arange(len(s)) + a for s, a in zip(item.sequences, item_starts, strict=True)])
        for name, value in item.targets.items():
            targets.setdefault(name, []).append(places[value] if name.endswith("_rows") else np.asarray(value))
        first += len(item.sequences)
    joined = {name: np.concatenate([np.atleast_1d(v) for v in values]) for name, values in targets.items()}
    return Batch(packed=packed, starts=starts, owners=owners, targets=joined)
