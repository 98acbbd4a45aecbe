"""Attention for packs of short sequences on CUDA, in Triton: packed queries, keys and values in, mixed values out.

One program owns a block of queries or of keys of one head and sums their gradients in registers, in one fixed order:
the same step gives the same bits, which the flash kernel's atomic additions do not. The price is that the backward
pass makes the scores twice, once for the queries and once for the keys and values. `MOST` is the longest
sequence that the kernel is offered for.

Legend: T tokens in the pack, B sequences, H heads, K head width. Scores and their log-sums are kept in base 2.
"""

# mypy: disable-error-code="no-untyped-def"
# A kernel has no annotations but constexpr: Triton reads them.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from filbert.core.errors import InputError

MOST = 1_024  # longest sequence: the kernel is made for short ones and was not measured beyond
WIDTHS = (16, 32, 64, 128)
# (rows that a program owns, rows that it reads at a time, warps, stages); chosen by benchmarks/attention_kernels.py
FORWARD = (64, 64, 4, 3)  # owns queries, reads keys
BACKWARD_QUERIES = (64, 32, 4, 3)  # the same
BACKWARD_KEYS = (64, 32, 4, 3)  # owns keys, reads queries


try:
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ModuleNotFoundError:  # only CUDA builds of torch bring it; without it the kernels below are never run
    triton = tl = None


def jit(function: Callable[..., object]) -> Any:
    """A kernel where Triton is there."""
    return triton.jit(function) if triton else function


# The kernels take their many tensors, strides and sizes as tuples. `_at` is a pointer, `_t` and `_h` are strides. -----


@jit
def _tile(at, rows, stride, WIDTH: tl.constexpr):
    """Pointers to whole rows."""
    return at + rows[:, None] * stride + tl.arange(0, WIDTH)[None, :]


@jit
def _sequence(sizes):
    return tl.num_programs(0) // (sizes[0] * sizes[1]) - 1 - tl.program_id(0) // (sizes[0] * sizes[1])


@jit
def _store_sum(totals_at, part, x, place, sizes, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Leaves a block's sum over rows in totals [slots, 3, H, K], where its gradient's bias wants it.

    Blocks of one sequence are neighbours and those of two never share a slot, as ⌈L/ROWS⌉ ≤ ⌊L/ROWS⌋ + 1.
    """
    block, head, start = place
    slot = start.to(tl.int32) // ROWS + _sequence(sizes) + block
    row = ((slot * 3 + part) * sizes[1] + head) * WIDTH
    tl.store(totals_at + row + tl.arange(0, WIDTH), tl.sum(x, 0))


@jit
def _place(edges_at, sizes, WIDTH: tl.constexpr):
    """What this program owns: block, head, the sequence's first token and length, where these are in [T, H, K], [H, T].

    The last sequences, the longest, go first.
    """
    blocks, heads, tokens = sizes
    me = tl.program_id(0)
    block, head, seq = me % blocks, (me // blocks) % heads, _sequence(sizes)
    start = tl.load(edges_at + seq).to(tl.int64)
    length = (tl.load(edges_at + seq + 1) - start).to(tl.int32)
    return block, head, start, length, (start * heads + head) * WIDTH, head.to(tl.int64) * tokens + start


@jit
def _some_keys(q, places, state, span, factor, WIDTH: tl.constexpr, KEYS: tl.constexpr, RAGGED: tl.constexpr):
    """Some blocks of keys, with the softmax kept running: its maximum, its sum, the mixed values."""
    k_at, v_at, k_t, v_t = places
    most, total, mixed = state
    begin, end, length = span
    for at in range(begin, end, KEYS):
        rows = at + tl.arange(0, KEYS)
        if RAGGED:
            there = rows < length
            k = tl.load(_tile(k_at, rows, k_t, WIDTH), mask=there[:, None], other=0.0)
            v = tl.load(_tile(v_at, rows, v_t, WIDTH), mask=there[:, None], other=0.0)
            scores = tl.where(there[None, :], tl.dot(q, tl.trans(k)) * factor, float("-inf"))
        else:
            k = tl.load(_tile(k_at, rows, k_t, WIDTH))
            v = tl.load(_tile(v_at, rows, v_t, WIDTH))
            scores = tl.dot(q, tl.trans(k)) * factor
        higher = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(most - higher)
        total = total * shrink + tl.sum(weights, 1)
        mixed = tl.dot(weights.to(v.dtype), v, mixed * shrink[:, None])
        most = higher
    return most, total, mixed


@jit
def _forward_kernel(tensors, strides, sizes, factor, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """One program: a block of queries of one head of one sequence."""
    q_at, k_at, v_at, out_at, logs_at, edges_at = tensors
    q_t, q_h, k_t, k_h, v_t, v_h = strides
    block, head, start, length, base, flat = _place(edges_at, sizes, WIDTH)
    if block * QUERIES < length:
        rows = block * QUERIES + tl.arange(0, QUERIES)
        there = rows < length
        q = tl.load(_tile(q_at + start * q_t + head * q_h, rows, q_t, WIDTH), mask=there[:, None], other=0.0)
        places = (k_at + start * k_t + head * k_h, v_at + start * v_t + head * v_h, k_t, v_t)
        most = tl.full([QUERIES], float("-inf"), tl.float32)
        total = tl.zeros([QUERIES], tl.float32)
        mixed = tl.zeros([QUERIES, WIDTH], tl.float32)
        whole = length // KEYS * KEYS
        most, total, mixed = _some_keys(q, places, (most, total, mixed), (0, whole, length), factor, WIDTH, KEYS, False)
        if whole < length:
            most, total, mixed = _some_keys(
                q, places, (most, total, mixed), (whole, length, length), factor, WIDTH, KEYS, True
            )
        mixed = (mixed / total[:, None]).to(q.dtype)
        tl.store(_tile(out_at + base, rows, sizes[1] * WIDTH, WIDTH), mixed, mask=there[:, None])
        tl.store(logs_at + flat + rows, most + tl.log2(total), mask=there)


@jit
def _to_queries(queries, read, dq, left, factor, RAGGED: tl.constexpr):
    """Adds one block of keys to the queries' gradient; only `left` of a ragged block are there."""
    q, grad, logs, deltas = queries
    k, v = read
    scores = tl.dot(q, tl.trans(k))
    dweights = tl.dot(grad, tl.trans(v))
    scores = scores * factor - logs[:, None]
    if RAGGED:
        scores = tl.where((tl.arange(0, k.shape[0]) < left)[None, :], scores, float("-inf"))
    dscores = tl.exp2(scores) * (dweights - deltas[:, None])
    return tl.dot(dscores.to(k.dtype), k, dq)


@jit
def _queries_kernel(
    tensors, strides, sizes, factors,
    WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One program: the gradient of a block of queries. It leaves the keys its `sums`: log-sums and out times gradient.

    The last block of keys, the only ragged one, comes first, so that its loads wait together with the queries'.
    """
    q_at, k_at, v_at, out_at, grad_at, logs_at, sums_at, dq_at, edges_at, totals_at = tensors
    q_t, q_h, k_t, k_h, v_t, v_h, dq_t, dq_h = strides
    factor, scale = factors
    block, head, start, length, base, flat = _place(edges_at, sizes, WIDTH)
    if block * QUERIES < length:
        rows, row = block * QUERIES + tl.arange(0, QUERIES), sizes[1] * WIDTH
        there = rows < length
        k_at, v_at = k_at + start * k_t + head * k_h, v_at + start * v_t + head * v_h
        last = (length - 1) // KEYS * KEYS
        keys = last + tl.arange(0, KEYS)
        inside = (keys < length)[:, None]
        q = tl.load(_tile(q_at + start * q_t + head * q_h, rows, q_t, WIDTH), mask=there[:, None], other=0.0)
        grad = tl.load(_tile(grad_at + base, rows, row, WIDTH), mask=there[:, None], other=0.0)
        out = tl.load(_tile(out_at + base, rows, row, WIDTH), mask=there[:, None], other=0.0)
        logs = tl.load(logs_at + flat + rows, mask=there, other=0.0)
        k = tl.load(_tile(k_at, keys, k_t, WIDTH), mask=inside, other=0.0)
        v = tl.load(_tile(v_at, keys, v_t, WIDTH), mask=inside, other=0.0)
        deltas = tl.sum(out.to(tl.float32) * grad.to(tl.float32), 1)
        left = sums_at + (flat + rows) * PARTS
        tl.store(left, logs, mask=there)
        tl.store(left + 1, deltas, mask=there)
        queries = (q, grad, logs, deltas)
        dq = _to_queries(queries, (k, v), tl.zeros([QUERIES, WIDTH], tl.float32), length - last, factor, True)
        for at in range(0, last, KEYS):
            keys = at + tl.arange(0, KEYS)
            k, v = tl.load(_tile(k_at, keys, k_t, WIDTH)), tl.load(_tile(v_at, keys, v_t, WIDTH))
            dq = _to_queries(queries, (k, v), dq, KEYS, factor, False)
        made = _tile(dq_at + start * dq_t + head * dq_h, rows, dq_t, WIDTH)
        dq *= scale
        tl.store(made, dq.to(q.dtype), mask=there[:, None])
        if totals_at is not None:  # a query that is not there has the gradient 0
            _store_sum(totals_at, 0, dq, (block, head, start), sizes, QUERIES, WIDTH)


@jit
def _to_keys(keys, read, dk, dv, factor):
    """Adds one block of queries to the keys' and the values' gradients. The scores are keys by queries."""
    k, v = keys
    q, grad, logs, deltas = read
    scores = tl.dot(k, tl.trans(q))
    dweights = tl.dot(v, tl.trans(grad))
    weights = tl.exp2(scores * factor - logs[None, :])
    dv = tl.dot(weights.to(grad.dtype), grad, dv)
    dscores = weights * (dweights - deltas[None, :])
    return tl.dot(dscores.to(q.dtype), q, dk), dv


@jit
def _apart_sums(sums):
    """(log-sums, deltas); what stands beyond them in a row of `sums` only fills it up."""
    if sums.shape[1] == 2:
        logs, deltas = tl.split(sums)
    else:
        firsts, seconds = tl.split(tl.reshape(sums, [sums.shape[0], 2, 2]))
        logs, _ = tl.split(firsts)
        deltas, _ = tl.split(seconds)
    return logs, deltas


@jit
def _keys_kernel(
    tensors, strides, sizes, factors,
    WIDTH: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One program: the gradients of a block of keys and of their values. It reads the sums that the queries' left.

    No score is masked: a query that is not there has the log-sum ∞ and so weighs 0; a key that is not there touches
    its own row only, which is not stored. The last block of queries comes first, as above.
    """
    q_at, k_at, v_at, grad_at, sums_at, dk_at, dv_at, edges_at, totals_at = tensors
    q_t, q_h, k_t, k_h, v_t, v_h, dk_t, dk_h, dv_t, dv_h = strides
    factor, scale = factors
    block, head, start, length, base, flat = _place(edges_at, sizes, WIDTH)
    if block * KEYS < length:
        keys, row = block * KEYS + tl.arange(0, KEYS), sizes[1] * WIDTH
        inside = (keys < length)[:, None]
        q_at, grad_at, sums_at = q_at + start * q_t + head * q_h, grad_at + base, sums_at + flat * PARTS
        last = (length - 1) // QUERIES * QUERIES
        rows = last + tl.arange(0, QUERIES)
        there = rows < length
        k = tl.load(_tile(k_at + start * k_t + head * k_h, keys, k_t, WIDTH), mask=inside, other=0.0)
        v = tl.load(_tile(v_at + start * v_t + head * v_h, keys, v_t, WIDTH), mask=inside, other=0.0)
        q = tl.load(_tile(q_at, rows, q_t, WIDTH), mask=there[:, None], other=0.0)
        grad = tl.load(_tile(grad_at, rows, row, WIDTH), mask=there[:, None], other=0.0)
        logs, deltas = _apart_sums(tl.load(_tile(sums_at, rows, PARTS, PARTS), mask=there[:, None], other=0.0))
        logs = tl.where(there, logs, float("inf"))
        dk = tl.zeros([KEYS, WIDTH], tl.float32)
        dk, dv = _to_keys((k, v), (q, grad, logs, deltas), dk, dk, factor)
        for at in range(0, last, QUERIES):
            rows = at + tl.arange(0, QUERIES)
            q, grad = tl.load(_tile(q_at, rows, q_t, WIDTH)), tl.load(_tile(grad_at, rows, row, WIDTH))
            logs, deltas = _apart_sums(tl.load(_tile(sums_at, rows, PARTS, PARTS)))
            dk, dv = _to_keys((k, v), (q, grad, logs, deltas), dk, dv, factor)
        made = _tile(dk_at + start * dk_t + head * dk_h, keys, dk_t, WIDTH)
        dk *= scale
        tl.store(made, dk.to(k.dtype), mask=inside)
        made = _tile(dv_at + start * dv_t + head * dv_h, keys, dv_t, WIDTH)
        tl.store(made, dv.to(v.dtype), mask=inside)
        if totals_at is not None:
            _store_sum(totals_at, 1, tl.where(inside, dk, 0.0), (block, head, start), sizes, KEYS, WIDTH)
            _store_sum(totals_at, 2, tl.where(inside, dv, 0.0), (block, head, start), sizes, KEYS, WIDTH)


def check() -> None:
    """Refuses where Triton is not installed."""
    if triton is None:
        raise InputError("the triton attention kernel needs Triton, which CUDA builds of torch bring; take flash.")


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _strides(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(stride for tensor in tensors for stride in tensor.stride()[:2])


def _forward(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, max_len: int) -> tuple[Tensor, Tensor]:
    tokens, heads, width = q.shape
    out, logs = q.new_empty(q.shape), q.new_empty((heads, tokens), dtype=torch.float32)
    queries, keys, warps, stages = FORWARD
    blocks = -(-max_len // queries)
    _forward_kernel[(blocks * heads * (len(edges) - 1),)](
        (q, k, v, out, logs, edges), _strides(q, k, v), (blocks, heads, tokens), math.log2(math.e) / math.sqrt(width),
        WIDTH=width, QUERIES=queries, KEYS=keys, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out, logs


def _totals(qkv: Tensor, edges: Tensor) -> Tensor:
    """Room for the sums of the gradients by blocks of rows, [slots, 3, H, K]; not every slot has a block."""
    slots = len(qkv) // min(BACKWARD_QUERIES[0], BACKWARD_KEYS[0]) + len(edges) - 1
    return qkv.new_zeros((slots, *qkv.shape[1:]), dtype=torch.float32)


def _backward(
    inputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], edges: Tensor, max_len: int, totals: Tensor | None = None
) -> None:
    """Fills `grads` (of q, k, v) from `inputs`: q, k, v, out, the gradient of out, logs; and `totals`, if wanted."""
    q, k, v, out, grad, logs = inputs
    dq, dk, dv = grads
    tokens, heads, width = q.shape
    scale = 1 / math.sqrt(width)
    factors = (math.log2(math.e) * scale, scale)
    # A load of fewer numbers than a program has threads is done anew by every thread that uses one: fill it up.
    parts = 2 if 2 * BACKWARD_KEYS[1] >= 32 * BACKWARD_KEYS[2] else 4
    sums, grad = logs.new_empty((heads, tokens, parts)), grad.contiguous()
    queries, keys, warps, stages = BACKWARD_QUERIES
    blocks = -(-max_len // queries)
    _queries_kernel[(blocks * heads * (len(edges) - 1),)](
        (q, k, v, out, grad, logs, sums, dq, edges, totals), _strides(q, k, v, dq), (blocks, heads, tokens), factors,
        WIDTH=width, QUERIES=queries, KEYS=keys, PARTS=parts, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    keys, queries, warps, stages = BACKWARD_KEYS
    blocks = -(-max_len // keys)
    _keys_kernel[(blocks * heads * (len(edges) - 1),)](
        (q, k, v, grad, sums, dk, dv, edges, totals), _strides(q, k, v, dk, dv), (blocks, heads, tokens), factors,
        WIDTH=width, KEYS=keys, QUERIES=queries, PARTS=parts, num_warps=warps, num_stages=stages,
    )  # fmt: skip


# As operators of torch, so that a compiled graph takes each as one node ----------------------------------------------


@torch.library.custom_op("filbert::short_attention", mutates_args=())
def _apart(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, max_len: int) -> tuple[Tensor, Tensor]:
    return _forward(_dense(q), _dense(k), _dense(v), edges, max_len)


@torch.library.custom_op("filbert::short_attention_backward", mutates_args=())
def _apart_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logs: Tensor, edges: Tensor, max_len: int
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    _backward((_dense(q), _dense(k), _dense(v), out, grad, logs), (dq, dk, dv), edges, max_len)
    return dq, dk, dv


@torch.library.custom_op("filbert::short_attention_joined", mutates_args=())
def _joined(qkv: Tensor, edges: Tensor, max_len: int, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    q, k, v = _dense(qkv).unbind(1)
    return _forward(q, k, v, edges, max_len)


@torch.library.custom_op("filbert::short_attention_joined_backward", mutates_args=())
def _joined_backward(
    grad: Tensor, qkv: Tensor, out: Tensor, logs: Tensor, edges: Tensor, max_len: int, has_bias: bool
) -> tuple[Tensor, Tensor]:
    made = torch.empty(qkv.shape, dtype=qkv.dtype, device=qkv.device)
    totals = _totals(qkv, edges) if has_bias else None
    _backward((*_dense(qkv).unbind(1), out, grad, logs), made.unbind(1), edges, max_len, totals)
    return made, logs.new_empty(0) if totals is None else totals.flatten(1).sum(0)


@_apart.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, max_len: int) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


@_apart_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logs: Tensor, edges: Tensor, max_len: int
) -> tuple[Tensor, ...]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


@_joined.register_fake
def _(qkv: Tensor, edges: Tensor, max_len: int, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    tokens, _, heads, width = qkv.shape
    return qkv.new_empty((tokens, heads, width)), qkv.new_empty((heads, tokens), dtype=torch.float32)


@_joined_backward.register_fake
def _(
    grad: Tensor, qkv: Tensor, out: Tensor, logs: Tensor, edges: Tensor, max_len: int, has_bias: bool
) -> tuple[Tensor, Tensor]:
    return qkv.new_empty(qkv.shape), logs.new_empty(qkv.shape[1:].numel() if has_bias else 0)


class _Context(FunctionCtx):
    """What a forward pass leaves to its backward pass."""

    saved_tensors: tuple[Tensor, ...]
    max_len: int
    bias_dtype: torch.dtype | None


def _keep(ctx: _Context, inputs: tuple[Tensor, Tensor, Tensor, Tensor, int], output: tuple[Tensor, Tensor]) -> None:
    *tensors, edges, ctx.max_len = inputs
    ctx.save_for_backward(*tensors, *output, edges)


def _keep_joined(
    ctx: _Context, inputs: tuple[Tensor, Tensor, int, Tensor | None], output: tuple[Tensor, Tensor]
) -> None:
    qkv, edges, ctx.max_len, bias = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(qkv, *output, edges)


def _apart_gradients(ctx: _Context, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_apart_backward(grad, *ctx.saved_tensors, ctx.max_len), None, None


def _joined_gradients(ctx: _Context, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    made, dbias = _joined_backward(grad, *ctx.saved_tensors, ctx.max_len, ctx.bias_dtype is not None)
    return made, None, None, None if ctx.bias_dtype is None else dbias.to(ctx.bias_dtype)


_apart.register_autograd(_apart_gradients, setup_context=_keep)
_joined.register_autograd(_joined_gradients, setup_context=_keep_joined)


def attend(q_THK: Tensor, k_THK: Tensor, v_THK: Tensor, edges: Tensor, max_len: int) -> Tensor:
    """softmax(q·k / √K)·v within each sequence, [T, H, K]."""
    return _apart(q_THK, k_THK, v_THK, edges, max_len)[0]  # type: ignore[no-any-return]


def attend_joined(qkv_T3HK: Tensor, edges: Tensor, max_len: int, bias: Tensor | None = None) -> Tensor:
    """The same for queries, keys and values that lie side by side; so does their gradient, which saves a copy of it.

    A bias [3HK] is one that they already have in them, without a gradient: it gets that here.
    """
    return _joined(qkv_T3HK, edges, max_len, bias)[0]  # type: ignore[no-any-return]
