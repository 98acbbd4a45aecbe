"""Ids in, the pack that a model reads out, in the order in which they were given."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from filbert.core.records import Packed


def packed_of(texts: Sequence[Sequence[int]]) -> Packed:
    """These ids in a row, in this order."""
    sizes = tuple(map(len, texts))
    edges = torch.tensor([0, *itertools.accumulate(sizes)], dtype=torch.int32)
    ids = torch.tensor([word for text in texts for word in text], dtype=torch.int64)
    positions = torch.cat([torch.arange(size) for size in sizes] or [torch.arange(0)])
    return Packed(ids, positions, torch.zeros_like(ids), edges, sizes, max(sizes, default=0))
