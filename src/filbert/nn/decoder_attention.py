"""Attention of a writer over packs: queries, keys and values in, what each token read of its past or of its source out.

Legend: T tokens of a pack (of the sources), U tokens of the targets, B target sequences, H heads, K head width,
L length of a target, S length of its source, N pairs of the same two lengths.

No token is padded. On CUDA in half precision PyTorch's flash kernel reads the boundaries of both packs; elsewhere
sequences of the same lengths go through PyTorch's fused kernel together, as in nn.attention.
tests/nn/test_across.py proves both functions equal to their definition.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core.errors import InputError
from filbert.core.records import Packed, runs
from filbert.nn.attention import HALF, placed
from filbert.nn.layers import Angles, Rows, SelfAttention, rows_of
from filbert.nn.positions import turned

Owners = Sequence[int] | np.ndarray | Tensor | None  # best kept on the host: a tensor on a GPU makes the host wait
Places = np.ndarray[tuple[int], np.dtype[np.int64]]
NOTHING = -1  # the owner of a target that has no source: it reads zeros


def attend_causal(q_THK: Tensor, k_THK: Tensor, v_THK: Tensor, packed: Packed) -> Tensor:
    """softmax(q·k / √K)·v of each token over itself and those before it in its own sequence, [T, H, K]."""
    if q_THK.is_cuda and q_THK.dtype in HALF:
        return _flash(q_THK, k_THK, v_THK, packed, packed, causal=True)
    parts = []
    for start, n, length in runs(packed.lengths):
        rows = slice(start, start + n * length)
        parts.append(_fused(q_THK[rows], k_THK[rows], v_THK[rows], n, causal=True))
    return _joined(parts, q_THK)


def attend_across(
    q_UHK: Tensor, k_THK: Tensor, v_THK: Tensor, target: Packed, source: Packed, owners_B: Owners = None
) -> Tensor:
    """softmax(q·k / √K)·v of each token of target b over all tokens of source owners_B[b], [U, H, K].

    No owners: source b is that of target b. It is the fast case; `arranged` brings a source into that order once for
    all layers. A target without a source (owner -1) or with an empty one reads zeros.
    """
    if owners_B is not None:
        both_T2HK, source = arranged(torch.stack((k_THK, v_THK), 1), source, target, owners_B)
        k_THK, v_THK = both_T2HK.unbind(1)
    elif len(target.lengths) != len(source.lengths):
        raise InputError(
            f"{len(target.lengths)} targets cannot read {len(source.lengths)} sources one by one; say their owners."
        )
    if q_UHK.is_cuda and q_UHK.dtype in HALF:
        return _flash(q_UHK, k_THK, v_THK, target, source, causal=False)
    pairs, order = _pairs(target.lengths, source.lengths)
    if order is not None:
        q_rows, k_rows = (torch.from_numpy(rows).to(q_UHK.device) for rows in order)
        q_UHK, k_THK, v_THK = q_UHK[q_rows], k_THK[k_rows], v_THK[k_rows]
    parts, q_at, k_at = [], 0, 0
    for n, q_size, k_size in pairs:
        q_end, k_end = q_at + n * q_size, k_at + n * k_size
        q_part, k_part, v_part = q_UHK[q_at:q_end], k_THK[k_at:k_end], v_THK[k_at:k_end]
        if q_size:
            parts.append(_fused(q_part, k_part, v_part, n) if k_size else torch.zeros_like(q_part))
        q_at, k_at = q_end, k_end
    out_UHK = _joined(parts, q_UHK)
    return out_UHK if order is None else torch.empty_like(out_UHK).index_copy(0, q_rows, out_UHK)


def arranged(x: Tensor, source: Packed, target: Packed, owners_B: Owners) -> tuple[Tensor, Packed]:
    """x of the sources' tokens, [T, …], and their pack, in the targets' order: source b is then that of target b.

    -1 owns nothing; targets after the last owner (what fills a pack up) own nothing either. A source with several
    targets stands there several times. What is in order already is given back as it is.
    """
    owners = tuple(int(owner) for owner in (range(len(source.lengths)) if owners_B is None else _listed(owners_B)))
    num_targets, num_sources = len(target.lengths), len(source.lengths)
    if len(owners) > num_targets or any(not NOTHING <= owner < num_sources for owner in owners):
        raise InputError(
            f"owners are {owners[:8]}…, but must be at most {num_targets} numbers from -1 to {num_sources - 1}: "
            "for each target the place of its source."
        )
    owners += (NOTHING,) * (num_targets - len(owners))
    if owners == tuple(range(num_sources)):
        return x, source
    sizes = np.asarray((*source.lengths, 0), dtype=np.int64)  # the last one is that of NOTHING
    index = np.asarray(owners, dtype=np.int64)
    rows = placed(_rows(sizes, index), x.device)
    lengths = tuple(sizes[index].tolist())
    edges = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    moved = replace(
        source, ids=source.ids[rows], positions=source.positions[rows], segments=source.segments[rows],
        boundaries=placed(edges, x.device), lengths=lengths,
    )  # fmt: skip
    return x[rows], moved


class CausalAttention(SelfAttention):
    """A decoder's masked attention: each query meets the keys up to its own token (Vaswani et al. 2017, §3.2.3).

    Its weights are those of an encoder's attention, and it fits into the same blocks.
    """

    def __init__(self, width: int, heads: int, bias: bool) -> None:
        super().__init__(width, heads, bias)

    def read(self, x_TD: Tensor, packed: Packed, angles: Angles = None, rows: Rows = None) -> Tensor:
        """What each token read, all heads side by side, before it is mapped: [T, D] or [R, D]."""
        q_THK, k_THK, v_THK = self.projected(x_TD, 0, 3)
        if angles is not None:
            q_THK, k_THK = turned(q_THK, angles), turned(k_THK, angles)
        return rows_of(attend_causal(q_THK, k_THK, v_THK, packed).flatten(1), packed, rows)


class CrossAttention(nn.Module):
    """Each target token's query meets the keys of all tokens of its source (Vaswani et al. 2017, §3.2.3)."""

    def __init__(self, width: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=bias)
        self.kv = nn.Linear(width, 2 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x_UD: Tensor, memory_TD: Tensor, target: Packed, source: Packed) -> Tensor:
        """[U, D]; source b is that of target b."""
        q_UHK = self.q(x_UD).view(len(x_UD), self.heads, -1)
        k_THK, v_THK = self.memory(memory_TD)
        return self.out(attend_across(q_UHK, k_THK, v_THK, target, source).flatten(1))  # type: ignore[no-any-return]

    def memory(self, memory_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the source's tokens, each [T, H, K]: the same for every token that is written."""
        k_THK, v_THK = self.kv(memory_TD).view(len(memory_TD), 2, self.heads, -1).unbind(1)
        return k_THK, v_THK


def _listed(owners: Sequence[int] | np.ndarray | Tensor) -> Sequence[int]:
    return owners.tolist() if isinstance(owners, np.ndarray | Tensor) else owners


def _rows(sizes: Places, order: Places) -> Places:
    """The token places of these sequences, one after another."""
    starts = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    ordered = sizes[order]
    rows: Places = np.arange(int(ordered.sum())) + np.repeat(starts[order] - (np.cumsum(ordered) - ordered), ordered)
    return rows


@functools.lru_cache(maxsize=64)
def _pairs(
    targets: tuple[int, ...], sources: tuple[int, ...]
) -> tuple[tuple[tuple[int, int, int], ...], tuple[Places, Places] | None]:
    """(N, L, S) of the pairs by length, and the token places that bring both packs into that order; None: they are."""
    q_sizes, k_sizes = np.asarray(targets, dtype=np.int64), np.asarray(sources, dtype=np.int64)
    order = np.lexsort((k_sizes, q_sizes))
    both = np.stack((q_sizes, k_sizes), 1)
    sizes, counts = np.unique(both, axis=0, return_counts=True)  # rows in rising order, as lexsort has them
    pairs = tuple((int(n), int(q), int(k)) for (q, k), n in zip(sizes, counts, strict=True))
    if np.array_equal(order, np.arange(len(order))):
        return pairs, None
    return pairs, (_rows(q_sizes, order), _rows(k_sizes, order))


def _fused(q: Tensor, k: Tensor, v: Tensor, n: int, *, causal: bool = False) -> Tensor:
    """N sequences of one length, [N·L, H, K], through PyTorch's kernel."""
    q_NHLK, k_NHSK, v_NHSK = (x.view(n, len(x) // n, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q_NHLK, k_NHSK, v_NHSK, is_causal=causal).transpose(1, 2).flatten(0, 1)


def _joined(parts: list[Tensor], like: Tensor) -> Tensor:
    if not parts:
        return like  # without a token, but tied to the graph
    return torch.cat(parts) if len(parts) != 1 else parts[0]


@functools.lru_cache(maxsize=1)
def _causal_spelling() -> dict[str, Any]:
    """The argument by which this torch's kernel looks back only: a window from 2.11 on, a flag before."""
    from torch.nn.attention.varlen import varlen_attn

    windows = "window_size" in inspect.signature(varlen_attn).parameters
    return {"window_size": (-1, 0)} if windows else {"is_causal": True}


def _flash(q: Tensor, k: Tensor, v: Tensor, target: Packed, source: Packed, *, causal: bool) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    if not len(q) or not len(k):
        return torch.zeros_like(q)
    edges, longest = (target.boundaries, source.boundaries), (target.max_len, source.max_len)
    out = varlen_attn(q, k, v, *edges, *longest, **(_causal_spelling() if causal else {}))
    assert isinstance(out, Tensor)
    return out
