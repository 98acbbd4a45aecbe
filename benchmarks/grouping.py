"""Ways to group a pack for attention on the CPU: lengths in, CPU milliseconds of each exact way out.

    .venv/bin/python benchmarks/grouping.py

Ways: `runs` (nn.attention: neighbours of equal length, one fused call each), `alone` (a call per sequence), `padded N`
(N neighbours padded to the longest, with a mask, one fused call), `plain` (runs, but with matrix products and softmax
instead of the fused kernel). All give the same numbers; the choice in nn/attention.py is the fastest here.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from filbert.core.records import Packed, runs
from filbert.nn.attention import attend

HEADS, WIDTH = 12, 32
Way = Callable[[Tensor, Tensor, Tensor, Packed], Tensor]


def pack_of(lengths: list[int]) -> Packed:
    """A pack of those lengths, shortest first, as pack.lay lays it out."""
    sizes = sorted(lengths)
    edges = torch.tensor(np.cumsum([0, *sizes]), dtype=torch.int32)
    ids = torch.zeros(sum(sizes), dtype=torch.long)
    return Packed(ids, ids, ids, edges, tuple(sizes), max(sizes))


def alone(q: Tensor, k: Tensor, v: Tensor, packed: Packed) -> Tensor:
    """One fused call for every sequence."""
    parts, start = [], 0
    for length in packed.lengths:
        q1, k1, v1 = (x[start : start + length].transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        parts.append(F.scaled_dot_product_attention(q1, k1, v1)[0].transpose(0, 1))
        start += length
    return torch.cat(parts)


def plain(q: Tensor, k: Tensor, v: Tensor, packed: Packed) -> Tensor:
    """Runs of equal length through matrix products and softmax."""
    parts = []
    for start, n, length in runs(packed.lengths):
        q1, k1, v1 = (x[start : start + n * length].view(n, length, HEADS, WIDTH).transpose(1, 2) for x in (q, k, v))
        weights = (q1 @ k1.transpose(2, 3) / math.sqrt(WIDTH)).softmax(-1)
        parts.append((weights @ v1).transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)


def padded(q: Tensor, k: Tensor, v: Tensor, packed: Packed, size: int) -> Tensor:
    """`size` neighbours at a time, padded to the longest of them, under a mask."""
    parts, start = [], 0
    for first in range(0, len(packed.lengths), size):
        lengths = packed.lengths[first : first + size]
        longest = max(lengths)
        seen = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
        blocks = []
        for x in (q, k, v):
            block = x.new_zeros(len(lengths), longest, HEADS, WIDTH)
            block[seen] = x[start : start + sum(lengths)]
            blocks.append(block.transpose(1, 2))
        out = F.scaled_dot_product_attention(*blocks, attn_mask=seen[:, None, None, :])
        parts.append(out.transpose(1, 2)[seen])
        start += sum(lengths)
    return torch.cat(parts)


def main() -> None:
    """Every way on two mixtures of lengths, in rounds that take turns."""
    torch.set_num_threads(1)
    random = np.random.default_rng(7)
    mixtures = {
        "headlines, 180 of 10-32 tokens": random.integers(10, 33, 180).tolist(),
        "mixed, 30 log-normal of 16-512": np.clip(np.exp(random.normal(4.5, 0.866, 30)), 16, 512).astype(int).tolist(),
    }
    ways: dict[str, Way] = {"runs": attend, "alone": alone, "plain": plain}
    ways |= {f"padded {size}": partial(padded, size=size) for size in (4, 8, 32)}
    for name, lengths in mixtures.items():
        packed = pack_of(lengths)
        q, k, v = torch.randn(packed.num_tokens, 3, HEADS, WIDTH).unbind(1)
        wanted = attend(q, k, v, packed)
        spent: dict[str, list[float]] = {way: [] for way in ways}
        with torch.inference_mode():
            for _ in range(15):
                for way, work in ways.items():
                    start = time.process_time()
                    got = work(q, k, v, packed)
                    spent[way].append((time.process_time() - start) * 1e3)
                    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
        print(f"{name}: {packed.num_tokens:,} tokens, {len(set(lengths))} distinct lengths")
        for way, times in spent.items():
            print(f"  {way:10s} {statistics.median(times):8.2f} ms  ({min(times):.2f}-{max(times):.2f})")


if __name__ == "__main__":
    main()
