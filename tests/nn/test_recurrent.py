"""Recurrent layers over packs: the same numbers as torch gives each sequence by itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.records import Encoding, Packed
from filbert.nn.attention import tensors
from filbert.nn.recurrent import Recurrent
from filbert.pack.lay import pack


def packed_of(*sizes: int) -> Packed:
    """Sequences of these lengths in a row."""
    rows = [np.arange(size, dtype=np.int32) for size in sizes]
    found = [
        Encoding(row, np.zeros_like(row), np.zeros_like(row), np.zeros_like(row), np.zeros_like(row)) for row in rows
    ]
    return tensors(pack(found)[0])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("way", ["forward", "backward", "both"])
@pytest.mark.parametrize("sizes", [(1,), (3, 1, 7, 7, 2), (0, 4, 0, 2), ()])
def test_packed_equals_one_by_one(cell: str, way: str, sizes: tuple[int, ...]) -> None:
    """Vectors and last states, in float32, within 1e-6."""
    torch.manual_seed(0)
    layer = Recurrent(cell, 5, 4, both=way == "both", backward=way == "backward")
    packed = packed_of(*sizes)
    x = torch.randn(sum(sizes), 5)
    got, state = layer.run(x, packed)
    assert got.shape == (sum(sizes), layer.width)
    edges = packed.boundaries.tolist()
    for at, (begin, end) in enumerate(itertools.pairwise(edges)):
        if begin == end:
            assert not state[:, at].any()
            continue
        own = x[begin:end].flip(0) if way == "backward" else x[begin:end]
        want, last = layer.cell(own[:, None])
        last = last[0] if cell == "lstm" else last
        want = want[:, 0].flip(0) if way == "backward" else want[:, 0]
        torch.testing.assert_close(got[begin:end], want, atol=1e-6, rtol=0)
        torch.testing.assert_close(state[:, at], last[:, 0], atol=1e-6, rtol=0)


def test_gradients_reach_every_token() -> None:
    """As those of a sequence by itself."""
    torch.manual_seed(0)
    layer, packed = Recurrent("gru", 3, 2, both=True), packed_of(2, 5)
    x = torch.randn(7, 3, requires_grad=True)
    layer(x, packed)[packed.boundaries[1]].sum().backward()  # of the second sequence's first token
    assert x.grad is not None
    assert not x.grad[:2].any()
    assert x.grad[2:].abs().sum(1).gt(0).all()


def test_an_unknown_cell_is_named() -> None:
    """With what is allowed."""
    with pytest.raises(InputError, match=r"the cell is 'rnn', but must be one of: lstm, gru"):
        Recurrent("rnn", 2, 2)
