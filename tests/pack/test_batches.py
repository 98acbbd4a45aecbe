"""Batches: each item once, never above the budget, about equally full; parts of a batch too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.core.protocols import Item
from filbert.core.records import Encoding
from filbert.pack.batches import EpochPlan, OneByOne, batches, part, part_budget
from filbert.tasks.windowed import ItemPlan

LENGTHS = st.lists(st.integers(1, 60), max_size=80).map(lambda sizes: np.array(sizes, dtype=np.int64))


class Numbered(OneByOne):
    """Item i has 1 + i % 5 tokens, all of them i."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def item(self, index: int, epoch: int) -> Item:
        ids = np.full(1 + index % 5, index, dtype=np.int32)
        return Item((Encoding(ids, ids * 0, ids * 0, ids * 0, ids * 0),), {"index": np.array([index + 100 * epoch])})


@pytest.mark.slow
@given(LENGTHS, st.integers(1, 200), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_each_item_once_within_the_budget(lengths: np.ndarray, budget: int, seed: int, epoch: int) -> None:
    made = batches(lengths, seed, epoch, budget)
    order = np.concatenate([*made, np.zeros(0, dtype=np.int64)]).tolist()
    assert sorted(order) == list(range(len(lengths)))
    assert all(len(batch) == 1 or lengths[batch].sum() <= budget for batch in made)
    again = batches(lengths, seed, epoch, budget)
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in made]
    other = batches(lengths, seed, epoch + 1, budget)
    if len(lengths) > 20:
        assert np.concatenate(other).tolist() != order


@pytest.mark.parametrize("budget", [4_096, 16_384])
@pytest.mark.parametrize("num_items", [40, 100, 700, 3_000])
def test_batches_are_about_equally_full(num_items: int, budget: int) -> None:
    """None is off the mean by more than the longest item, and there are hardly more than there must be."""
    for seed in range(15):
        random = np.random.default_rng(seed)
        lengths = random.integers(5, 129, size=num_items)
        lengths[random.random(num_items) < 0.5] = 128
        sizes = np.array([lengths[batch].sum() for batch in batches(lengths, seed, 0, budget)])
        assert sizes.max() <= budget
        assert np.abs(sizes - sizes.mean()).max() <= 128
        least = -(-lengths.sum() // budget)
        assert len(sizes) <= least + 1 + least // 16


def test_a_long_item_is_a_batch_by_itself() -> None:
    lengths = np.array([5, 900, 5, 5])
    made = batches(lengths, 0, 0, 20)
    assert [1] in [batch.tolist() for batch in made]
    assert part_budget(20, 900, 1) >= 900  # and a row of constant size has room for it


@pytest.mark.slow
@given(LENGTHS.filter(len), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_parts_share_a_batch_evenly(lengths: np.ndarray, num_parts: int) -> None:
    indices = np.random.default_rng(0).permutation(len(lengths))
    parts = [part(indices, lengths, which, num_parts) for which in range(num_parts)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(lengths)))
    sizes = [int(lengths[each].sum()) for each in parts]
    assert max(sizes) - min(sizes) <= lengths.max()
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert max(sizes) <= part_budget(int(lengths.sum()), int(lengths.max()), num_parts)
    place = {index: at for at, index in enumerate(indices.tolist())}
    for each in parts:  # in the batch's own order
        assert [place[i] for i in each.tolist()] == sorted(place[i] for i in each.tolist())


def test_a_task_of_items_is_planned_and_built() -> None:
    task = Numbered(23)
    for epoch in (1, 2):
        made = task.plan(epoch)
        steps = batches(made.lengths, 3, epoch, 12)
        assert made.lengths.tolist() == [1 + i % 5 for i in range(23)]
        seen = []
        for indices in steps:
            batch = task.batch(made.orders(indices))
            assert batch.packed.num_tokens == made.lengths[indices].sum() <= 12
            assert batch.targets["index"].tolist() == [i + 100 * epoch for i in indices]
            assert batch.packed.ids[batch.starts].tolist() == indices.tolist()
            seen += indices.tolist()
        assert sorted(seen) == list(range(23))


def test_a_task_may_tell_its_lengths() -> None:
    class Telling(Numbered):
        def plan(self, epoch: int) -> EpochPlan:
            return EpochPlan(epoch, np.full(self.size, 7 + epoch))

        def item(self, index: int, epoch: int) -> Item:
            raise AssertionError("nothing is built for its length")

    made = Telling(3).plan(2)
    steps = batches(made.lengths, 0, 2, 20)
    assert made.lengths.tolist() == [9, 9, 9]
    assert sorted(map(len, steps)) == [1, 2]
    assert made.orders(np.array([2, 0])).epoch == 2
    assert made.orders(np.array([2, 0])).which.tolist() == [2, 0]


def test_items_that_stay_the_same_are_their_numbers() -> None:
    made = ItemPlan(np.array([4, 2, 6]))
    assert made.lengths.tolist() == [4, 2, 6]
    assert made.orders(np.array([2, 0])).tolist() == [2, 0]


def test_no_items_are_no_batches() -> None:
    assert batches(np.zeros(0, dtype=np.int64), 0, 0, 10) == []
