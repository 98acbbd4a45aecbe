"""Attention to the past and to a source, over packs: equal to its definition, sequence by sequence, with gradients."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from filbert.core.errors import InputError
from filbert.core.records import Packed
from filbert.nn import decoder_attention
from filbert.nn.layers import BLOCKS, FeedForward

pytestmark = pytest.mark.usefixtures("one_thread")
HEADS, WIDTH = 2, 4


def packed_of(*sizes: int) -> Packed:
    """Sequences of these lengths in a row, in this order."""
    edges = torch.tensor([0, *itertools.accumulate(sizes)], dtype=torch.int32)
    positions = torch.cat([torch.arange(size) for size in sizes] or [torch.arange(0)])
    zeros = torch.zeros_like(positions)
    return Packed(torch.arange(len(positions)), positions, zeros, edges, tuple(sizes), max(sizes, default=0))


def drawn(tokens: int, count: int = 3) -> list[Tensor]:
    """Queries, keys or values that want gradients."""
    return [torch.randn(tokens, HEADS, WIDTH, requires_grad=True) for _ in range(count)]


def defined(q_LHK: Tensor, k_SHK: Tensor, v_SHK: Tensor, causal: bool) -> Tensor:
    """softmax(q·k / √K)·v of one sequence, token by token (Vaswani et al. 2017, eq. 1)."""
    rows = []
    for place in range(len(q_LHK)):
        end = place + 1 if causal else len(k_SHK)
        if not end:
            rows.append(torch.zeros(HEADS, WIDTH))
            continue
        weights_SH = ((q_LHK[place] * k_SHK[:end]).sum(-1) / WIDTH**0.5).softmax(0)
        rows.append((weights_SH[:, :, None] * v_SHK[:end]).sum(0))
    return torch.stack(rows) if rows else q_LHK


def equal(got: Tensor, want: Tensor, leaves: list[Tensor]) -> None:
    """Within 1e-5, and so the gradients of every input."""
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
    if not want.numel() or not want.requires_grad:  # nothing was read, so there is nothing to learn
        return
    toward = torch.randn_like(got)
    both = [torch.autograd.grad(x, leaves, toward, allow_unused=True, materialize_grads=True) for x in (got, want)]
    for mine, theirs in zip(*both, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("sizes", [(1,), (5,), (1, 3, 3, 7), (4, 2, 4), (0, 3, 0), (0,), ()])
def test_the_past_and_nothing_else(sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    packed = packed_of(*sizes)
    leaves = drawn(sum(sizes))
    spans = list(itertools.pairwise(packed.boundaries.tolist()))
    want = torch.cat([defined(*(x[a:b] for x in leaves), causal=True) for a, b in spans] or [leaves[0]])
    equal(decoder_attention.attend_causal(*leaves, packed), want, leaves)


CASES = [
    ((2, 3), (4, 1), (0, 1)),
    ((2, 3), (4, 1), None),
    ((2, 3), (4, 1), (1, 0)),
    ((3, 1, 3, 3, 2), (2, 5, 2, 4), (3, 1, 0, 2, 0)),  # one source of two targets; pairs alike that stand apart
    ((3, 1, 3), (2, 5), (0, -1, 0)),  # a target without a source
    ((3, 1, 3), (2, 5), (1,)),  # what fills a pack up has none either
    ((2, 0, 3), (0, 3, 2), (0, 1, 2)),  # an empty source, an empty target
    ((1, 2), (0, 0), (1, 0)),
    ((0,), (3,), (0,)),
    ((), (), ()),
    ((), (3,), ()),
]


@pytest.mark.parametrize(("targets", "sources", "owners"), CASES)
@pytest.mark.parametrize("kind", [tuple, np.array, torch.tensor])
def test_all_of_the_own_source_and_nothing_else(
    targets: tuple[int, ...], sources: tuple[int, ...], owners: tuple[int, ...] | None, kind: Any
) -> None:
    torch.manual_seed(0)
    target, source = packed_of(*targets), packed_of(*sources)
    leaves = [*drawn(sum(targets), 1), *drawn(sum(sources), 2)]
    edges_t, edges_s = target.boundaries.tolist(), source.boundaries.tolist()
    whose = list(range(len(targets)) if owners is None else owners)
    whose += [-1] * (len(targets) - len(whose))
    rows = []
    for b, owner in enumerate(whose):
        begin, end = (edges_s[owner], edges_s[owner + 1]) if owner >= 0 else (0, 0)
        part = [leaves[0][edges_t[b] : edges_t[b + 1]], *(x[begin:end] for x in leaves[1:])]
        rows.append(defined(*part, causal=False))
    given = None if owners is None else kind(owners)
    equal(decoder_attention.attend_across(*leaves, target, source, given), torch.cat(rows or [leaves[0]]), leaves)


def test_a_source_is_brought_into_the_targets_order_once() -> None:
    source, target = packed_of(1, 3, 2), packed_of(4, 4, 5, 1)
    x, moved = decoder_attention.arranged(torch.arange(6.0)[:, None], source, target, (2, 0, -1, 1))
    assert x[:, 0].tolist() == [4, 5, 0, 1, 2, 3]
    assert moved.lengths == (2, 1, 0, 3)
    assert moved.boundaries.tolist() == [0, 2, 3, 3, 6]
    assert moved.ids.tolist() == [4, 5, 0, 1, 2, 3]
    assert moved.positions.tolist() == [0, 1, 0, 0, 1, 2]
    same, untouched = decoder_attention.arranged(x, source, packed_of(1, 1, 1), (0, 1, 2))
    assert same is x
    assert untouched is source


@pytest.mark.parametrize("owners", [(0, 2), (0, -2), (0, 1, 1)])
def test_owners_that_cannot_be_are_refused(owners: tuple[int, ...]) -> None:
    target, source = packed_of(2, 3), packed_of(4, 1)
    with pytest.raises(InputError, match=r"at most 2 numbers from -1 to 1"):
        decoder_attention.attend_across(*drawn(5, 1), *drawn(5, 2), target, source, owners)


def test_without_owners_there_are_as_many_sources_as_targets() -> None:
    with pytest.raises(InputError, match=r"2 targets cannot read 1 sources"):
        decoder_attention.attend_across(*drawn(5, 1), *drawn(5, 2), packed_of(2, 3), packed_of(5))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_with_causal_attention_reads_no_later_token(norm: str) -> None:
    """The layers' blocks take it as they take an encoder's attention, the asked rows included."""
    torch.manual_seed(0)
    norms = (torch.nn.LayerNorm(8), torch.nn.LayerNorm(8))
    block = BLOCKS[norm](decoder_attention.CausalAttention(8, 2, bias=True), FeedForward(8, 16, True), norms, 0.0)
    packed, x = packed_of(2, 4), torch.randn(6, 8, requires_grad=True)
    out = block(x, packed)
    (gradient,) = torch.autograd.grad(out[3].square().sum(), x, retain_graph=True)
    assert gradient.abs().sum(1).gt(0).tolist() == [False, False, True, True, False, False]
    torch.testing.assert_close(block(x, packed, None, torch.tensor([5, 3])), out[[5, 3]])
    torch.testing.assert_close(block(x, packed, None, "first"), out[[0, 2]])


def test_half_precision_follows_float32() -> None:
    torch.manual_seed(0)
    target, source = packed_of(3, 5), packed_of(7, 2)
    leaves = [*drawn(8, 1), *drawn(9, 2)]
    want = decoder_attention.attend_across(*leaves, target, source)
    got = decoder_attention.attend_across(*(x.bfloat16() for x in leaves), target, source)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), want, atol=0.03, rtol=0)


def test_this_torch_has_the_spelling_that_the_kernel_is_called_by() -> None:
    """Whichever it is: the kernel's own signature has it."""
    from torch.nn.attention.varlen import varlen_attn

    spelled = decoder_attention._causal_spelling()
    assert set(spelled) <= set(inspect.signature(varlen_attn).parameters)
    assert spelled in ({"window_size": (-1, 0)}, {"is_causal": True})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_the_flash_kernel_equals_the_definition(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    target, source = packed_of(3, 17, 0, 2), packed_of(9, 2, 4, 0)
    q = torch.randn(22, 4, 64, device="cuda", dtype=kind)
    k, v = (torch.randn(15, 4, 64, device="cuda", dtype=kind) for _ in range(2))
    on_gpu = [
        Packed(*(x.cuda() for x in (p.ids, p.positions, p.segments, p.boundaries)), p.lengths, p.max_len)
        for p in (target, source)
    ]
    owners = (2, 0, 3, 1)
    got = decoder_attention.attend_across(q, k, v, *on_gpu, owners)
    want = decoder_attention.attend_across(q.float(), k.float(), v.float(), *on_gpu, owners)
    torch.testing.assert_close(got.float(), want, atol=0.02, rtol=0)
    got = decoder_attention.attend_causal(q, q, q, on_gpu[0])
    want = decoder_attention.attend_causal(*(q.float(),) * 3, on_gpu[0])
    torch.testing.assert_close(got.float(), want, atol=0.02, rtol=0)
