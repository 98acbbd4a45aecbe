"""Packing loses nothing and mixes nothing: pack, then unpack, gives every sequence back in its own order."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.core.protocols import Item
from filbert.core.records import Encoding
from filbert.pack.lay import bins, collate, pack, unpack

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def numbered(lengths: list[int]) -> list[Encoding]:
    """Sequences in which every token id is different, so that a swap shows."""
    edges = np.cumsum([0, *lengths])
    made = []
    for a, b in itertools.pairwise(edges.tolist()):
        ids = np.arange(a, b, dtype=np.int32)
        made.append(Encoding(ids, ids % 2, ids * 0, ids, ids + 1))
    return made


@given(LENGTHS)
@settings(max_examples=100, deadline=None)
def test_unpack_undoes_pack(lengths: list[int]) -> None:
    sequences = numbered(lengths)
    packed, starts = pack(sequences)
    assert packed.num_tokens == sum(lengths) == packed.boundaries[-1]
    assert sorted(packed.lengths) == list(packed.lengths) == sorted(lengths)
    for column in ("ids", "segments"):
        got = unpack(getattr(packed, column), sequences, starts)
        for sequence, rows in zip(sequences, got, strict=True):
            np.testing.assert_array_equal(rows, getattr(sequence, column))
    for sequence, places in zip(sequences, unpack(packed.positions, sequences, starts), strict=True):
        np.testing.assert_array_equal(places, np.arange(len(sequence)))


@given(LENGTHS, st.integers(0, 100), st.sampled_from([None, 40, 64]))
@settings(max_examples=100, deadline=None)
def test_a_budget_fills_the_row_exactly(lengths: list[int], spare: int, max_len: int | None) -> None:
    sequences = numbered(lengths)
    budget = sum(lengths) + spare
    packed, starts = pack(sequences, budget, max_len)
    assert packed.num_tokens == budget == sum(packed.lengths) == packed.boundaries[-1]
    assert max(packed.lengths) <= packed.max_len == (max_len or max(lengths))
    assert packed.positions.max() < packed.max_len
    for sequence, rows in zip(sequences, unpack(packed.ids, sequences, starts), strict=True):
        np.testing.assert_array_equal(rows, sequence.ids)


@given(LENGTHS, st.integers(1, 60))
@settings(max_examples=100, deadline=None)
def test_bins_hold_each_once_within_the_budget(lengths: list[int], budget: int) -> None:
    groups = list(bins(lengths, budget))
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    assert all(len(group) == 1 or sum(lengths[i] for i in group) <= budget for group in groups)


@given(st.lists(LENGTHS, min_size=1, max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_rows_follow_their_tokens(shapes: list[list[int]], random: object) -> None:
    """An item of several windows: its `_rows` targets still point at the tokens they pointed at."""
    items, wanted, labels = [], [], []
    for index, lengths in enumerate(shapes):
        sequences = numbered(lengths)
        ids = np.concatenate([s.ids for s in sequences])
        rows = np.array([random.randrange(len(ids)) for _ in range(4)])  # type: ignore[attr-defined]
        wanted.append(ids[rows])
        labels.append(index)
        items.append(Item(tuple(sequences), {"some_rows": rows, "label": np.array(index)}))
    batch = collate(items)
    np.testing.assert_array_equal(batch.packed.ids[batch.targets["some_rows"]], np.concatenate(wanted))
    np.testing.assert_array_equal(batch.targets["label"], labels)
    np.testing.assert_array_equal(batch.owners, np.repeat(np.arange(len(shapes)), [len(s) for s in shapes]))
