"""Which items share a step: an epoch's lengths in, batches of at most so many tokens out, and a batch's parts.

The order of an epoch is a function of (seed, epoch) and a batch is a stretch of it, so a step is the same whoever
builds it; a batch is dealt into parts (ranks, micro-batches) only afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from filbert.core.protocols import Batch, Item
from filbert.core.random import permutation
from filbert.pack.lay import collate

Places = npt.NDArray[np.int64]


class EpochItems(NamedTuple):
    """Items of an epoch, by their numbers."""

    epoch: int
    which: Places


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """The plan of a task whose items are others in every epoch."""

    epoch: int
    lengths: Places

    def orders(self, indices: Places) -> EpochItems:
        """The numbers, and the epoch that they are of."""
        return EpochItems(self.epoch, indices)


class OneByOne(ABC):
    """A task that builds its items one by one: `__len__`, `item`, `counts` and `loss` are enough for one of it."""

    one_graph = True
    longest = 0
    window_tokens: Places = np.zeros(0, dtype=np.int64)

    @abstractmethod
    def __len__(self) -> int:
        """How many items an epoch has."""

    @abstractmethod
    def item(self, index: int, epoch: int) -> Item:
        """The item of that number; every random choice in it is a function of (seed, epoch, index)."""

    def plan(self, epoch: int) -> EpochPlan:
        """Lengths, counted item by item."""
        items = (self.item(index, epoch) for index in range(len(self)))
        lengths = [sum(len(sequence) for sequence in item.sequences) for item in items]
        return EpochPlan(epoch, np.array(lengths, dtype=np.int64))

    def batch(self, orders: EpochItems, budget: int | None = None) -> Batch:
        """These items, packed."""
        return collate([self.item(int(index), orders.epoch) for index in orders.which], budget)

    def derived(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """Nothing follows from the means."""
        return {}


def batches(lengths: Places, seed: int, epoch: int, budget: int) -> list[Places]:
    """The epoch's items in its order, cut into batches of at most `budget` tokens, all about equally full.

    An item longer than the budget has a batch of its own: nothing is cut.
    """
    order = permutation(len(lengths), seed, epoch)
    if not len(order):
        return []
    ends = np.cumsum(lengths[order])
    full = _filled(ends, budget)
    # As many batches again, or hardly more, but even: the last would otherwise be a small and noisy step.
    for more in (0, 1, len(full) // 64, len(full) // 32, len(full) // 16):
        num_batches = len(full) + more
        if len(even := _filled(ends, budget, num_batches)) == num_batches:
            return np.split(order, even[:-1])
    return np.split(order, full[:-1])


def _filled(ends: Places, budget: int, num_batches: int = 0) -> list[int]:
    """Where each batch stops: when it is full, or when its share of all tokens is reached."""
    stops: list[int] = []
    at, used, total = 0, 0, int(ends[-1])
    while at < len(ends):
        share = total * (len(stops) + 1) // num_batches if len(stops) < num_batches else total
        at = max(at + 1, int(np.searchsorted(ends, min(used + budget, share), side="right")))
        used = int(ends[at - 1])
        stops.append(at)
    return stops


def part(indices: Places, lengths: Places, which: int, num_parts: int) -> Places:
    """One of the parts that a batch is dealt into: by length, back and forth, so that parts are about equally full."""
    if num_parts == 1:
        return indices
    order = np.argsort(-lengths[indices], kind="stable")
    turn, seat = np.divmod(np.arange(len(indices)), num_parts)
    mine = np.where(turn % 2, num_parts - 1 - seat, seat) == which
    dealt: Places = indices[np.sort(order[mine])]
    return dealt


def part_budget(batch_tokens: int, longest: int, num_parts: int) -> int:
    """Tokens that a part has at most."""
    return max(batch_tokens, longest) if num_parts == 1 else -(-batch_tokens // num_parts) + longest
