"""Attention for packs of short sequences on CUDA, in Triton: packed queries, keys and values in, mixed values out.

One program of the backward pass owns a head of a whole sequence, so every gradient is summed in one fixed order: the
same step gives the same bits, which the flash kernel's atomic additions do not. Memory and time are linear in the
tokens for the lengths that BERT reads; `MOST` says up to which the kernel is offered.

Legend: T tokens in the pack, B sequences, H heads, K head width. Scores and their log-sums are kept in base 2.
"""

# mypy: disable-error-code="no-untyped-def"
# A kernel has no annotations but constexpr: Triton reads them.

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from filbert.core.errors import InputError

MOST = 1_024  # longest sequence: beyond it one program per sequence and head leaves the GPU idle
WIDTHS = (16, 32, 64, 128)
# (queries in a block, keys in a block, warps, stages), forward and backward; chosen by benchmarks/attention_kernels.py
FORWARD = (64, 64, 4, 3)
BACKWARD = (64, 128, 8, 1)


try:
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ModuleNotFoundError:  # only CUDA builds of torch bring it; without it the kernels below are never run
    triton = tl = None


def _jit(function: Any) -> Any:
    return triton.jit(function) if triton else function


# The kernels take their many tensors, strides and sizes as tuples. `_at` is a pointer, `_t` and `_h` are strides. -----


@_jit
def _tile(at, rows, stride, WIDTH: tl.constexpr):
    """Pointers to whole rows."""
    return at + rows[:, None] * stride + tl.arange(0, WIDTH)[None, :]


@_jit
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


@_jit
def _forward_kernel(tensors, strides, sizes, factor, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """One program: a block of queries of one head of one sequence. The last sequences, the longest, go first."""
    q_at, k_at, v_at, out_at, logs_at, edges_at = tensors
    q_t, q_h, k_t, k_h, v_t, v_h = strides
    blocks, heads, tokens = sizes
    me = tl.program_id(0)
    block, head = me % blocks, (me // blocks) % heads
    seq = tl.num_programs(0) // (blocks * heads) - 1 - me // (blocks * heads)
    start = tl.load(edges_at + seq).to(tl.int64)
    length = (tl.load(edges_at + seq + 1) - start).to(tl.int32)
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
        own = (start * heads + head) * WIDTH
        tl.store(_tile(out_at + own, rows, heads * WIDTH, WIDTH), mixed, mask=there[:, None])
        tl.store(logs_at + head.to(tl.int64) * tokens + start + rows, most + tl.log2(total), mask=there)


@_jit
def _deltas(places, row, length, WIDTH: tl.constexpr, QUERIES: tl.constexpr):
    """The sum of output times its gradient, for every query of the sequence."""
    out_at, grad_at, deltas_at = places
    for at in range(0, length, QUERIES):
        rows = at + tl.arange(0, QUERIES)
        there = rows < length
        out = tl.load(_tile(out_at, rows, row, WIDTH), mask=there[:, None], other=0.0).to(tl.float32)
        grad = tl.load(_tile(grad_at, rows, row, WIDTH), mask=there[:, None], other=0.0).to(tl.float32)
        tl.store(deltas_at + rows, tl.sum(out * grad, 1), mask=there)


@_jit
def _block_gradients(k, v, places, steps, span, factors, WIDTH: tl.constexpr, QUERIES: tl.constexpr):
    """One block of keys against every query: the gradients of its keys and values, and its share of the queries'."""
    q_at, grad_at, logs_at, deltas_at, sums_at, dq_at = places
    q_t, row, dq_t = steps
    begin, length = span
    factor, scale = factors
    keys = begin + tl.arange(0, k.shape[0])
    known = keys < length
    is_first, is_last = begin == 0, begin + k.shape[0] >= length
    dk = tl.zeros([k.shape[0], WIDTH], tl.float32)
    dv = tl.zeros([k.shape[0], WIDTH], tl.float32)
    for at in range(0, length, QUERIES):
        rows = at + tl.arange(0, QUERIES)
        there = rows < length
        q = tl.load(_tile(q_at, rows, q_t, WIDTH), mask=there[:, None], other=0.0)
        grad = tl.load(_tile(grad_at, rows, row, WIDTH), mask=there[:, None], other=0.0)
        logs = tl.load(logs_at + rows, mask=there, other=float("inf"))  # a query that is not there weighs 0
        deltas = tl.load(deltas_at + rows, mask=there, other=0.0)
        scores = tl.dot(k, tl.trans(q)) * factor - logs[None, :]
        weights = tl.where(known[:, None], tl.exp2(scores), 0.0)
        dv = tl.dot(weights.to(grad.dtype), grad, dv)
        dweights = tl.dot(v, tl.trans(grad))
        dscores = (weights * (dweights - deltas[None, :])).to(q.dtype)
        dk = tl.dot(dscores, q, dk)
        dq = tl.dot(tl.trans(dscores), k)
        sums = _tile(sums_at, rows, row, WIDTH)
        dq += tl.load(sums, mask=there[:, None] & (is_first == 0), other=0.0)
        tl.store(sums, dq, mask=there[:, None] & (is_last == 0))
        tl.store(_tile(dq_at, rows, dq_t, WIDTH), (dq * scale).to(q.dtype), mask=there[:, None] & is_last)
    return dk * scale, dv


@_jit
def _backward_kernel(
    tensors, grads, strides, sizes, factors,
    WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One program: one head of one sequence, blocks of keys outside, blocks of queries inside.

    A block of keys keeps its own gradients in registers. What it adds to the queries' gradients waits in `sums` for
    the next block; only this program touches it.
    """
    q_at, k_at, v_at, out_at, grad_at, logs_at, edges_at = tensors
    dq_at, dk_at, dv_at, sums_at, deltas_at = grads
    q_t, q_h, k_t, k_h, v_t, v_h, dq_t, dq_h, dk_t, dk_h, dv_t, dv_h = strides
    heads, tokens = sizes
    me = tl.program_id(0)
    head, seq = me % heads, tl.num_programs(0) // heads - 1 - me // heads
    start = tl.load(edges_at + seq).to(tl.int64)
    length = (tl.load(edges_at + seq + 1) - start).to(tl.int32)
    own, flat = (start * heads + head) * WIDTH, head.to(tl.int64) * tokens + start
    _deltas((out_at + own, grad_at + own, deltas_at + flat), heads * WIDTH, length, WIDTH, QUERIES)
    tl.debug_barrier()
    places = (
        q_at + start * q_t + head * q_h, grad_at + own, logs_at + flat, deltas_at + flat, sums_at + own,
        dq_at + start * dq_t + head * dq_h,
    )  # fmt: skip
    for begin in range(0, length, KEYS):
        keys = begin + tl.arange(0, KEYS)
        known = (keys < length)[:, None]
        k = tl.load(_tile(k_at + start * k_t + head * k_h, keys, k_t, WIDTH), mask=known, other=0.0)
        v = tl.load(_tile(v_at + start * v_t + head * v_h, keys, v_t, WIDTH), mask=known, other=0.0)
        steps = (q_t, heads * WIDTH, dq_t)
        dk, dv = _block_gradients(k, v, places, steps, (begin, length), factors, WIDTH, QUERIES)
        tl.store(_tile(dk_at + start * dk_t + head * dk_h, keys, dk_t, WIDTH), dk.to(k.dtype), mask=known)
        tl.store(_tile(dv_at + start * dv_t + head * dv_h, keys, dv_t, WIDTH), dv.to(v.dtype), mask=known)
        tl.debug_barrier()  # the sums are written before the next block of keys reads them


def check() -> None:
    """Says so where Triton is not there."""
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


def _backward(given: tuple[Tensor, ...], grads: tuple[Tensor, ...], edges: Tensor) -> None:
    """Fills `grads` (of q, k, v) from `given`: q, k, v, out, the gradient of out, logs."""
    q, k, v, out, grad, logs = given
    tokens, heads, width = q.shape
    sums, deltas = q.new_empty(q.shape, dtype=torch.float32), torch.empty_like(logs)
    queries, keys, warps, stages = BACKWARD
    scale = 1 / math.sqrt(width)
    _backward_kernel[(heads * (len(edges) - 1),)](
        (q, k, v, out, grad.contiguous(), logs, edges), (*grads, sums, deltas), _strides(q, k, v, *grads),
        (heads, tokens), (math.log2(math.e) * scale, scale),
        WIDTH=width, QUERIES=queries, KEYS=keys, num_warps=warps, num_stages=stages,
    )  # fmt: skip


# As operators of torch, so that a compiled graph takes each as one node ----------------------------------------------


@torch.library.custom_op("filbert::short_attention", mutates_args=())
def _apart(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, max_len: int) -> tuple[Tensor, Tensor]:
    return _forward(_dense(q), _dense(k), _dense(v), edges, max_len)


@torch.library.custom_op("filbert::short_attention_backward", mutates_args=())
def _apart_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logs: Tensor, edges: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    _backward((_dense(q), _dense(k), _dense(v), out, grad, logs), (dq, dk, dv), edges)
    return dq, dk, dv


@torch.library.custom_op("filbert::short_attention_joined", mutates_args=())
def _joined(qkv: Tensor, edges: Tensor, max_len: int) -> tuple[Tensor, Tensor]:
    q, k, v = _dense(qkv).unbind(1)
    return _forward(q, k, v, edges, max_len)


@torch.library.custom_op("filbert::short_attention_joined_backward", mutates_args=())
def _joined_backward(grad: Tensor, qkv: Tensor, out: Tensor, logs: Tensor, edges: Tensor) -> Tensor:
    made = torch.empty(qkv.shape, dtype=qkv.dtype, device=qkv.device)
    _backward((*_dense(qkv).unbind(1), out, grad, logs), made.unbind(1), edges)
    return made


@_apart.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, edges: Tensor, max_len: int) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


@_apart_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logs: Tensor, edges: Tensor) -> tuple[Tensor, ...]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


@_joined.register_fake
def _(qkv: Tensor, edges: Tensor, max_len: int) -> tuple[Tensor, Tensor]:
    tokens, _, heads, width = qkv.shape
    return qkv.new_empty((tokens, heads, width)), qkv.new_empty((heads, tokens), dtype=torch.float32)


@_joined_backward.register_fake
def _(grad: Tensor, qkv: Tensor, out: Tensor, logs: Tensor, edges: Tensor) -> Tensor:
    return qkv.new_empty(qkv.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, edges, _ = inputs
    ctx.save_for_backward(*tensors, *output, edges)


def _apart_gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_apart_backward(grad, *ctx.saved_tensors), None, None


def _joined_gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return _joined_backward(grad, *ctx.saved_tensors), None, None


_apart.register_autograd(_apart_gradients, setup_context=_keep)
_joined.register_autograd(_joined_gradients, setup_context=_keep)


def attend(q_THK: Tensor, k_THK: Tensor, v_THK: Tensor, edges: Tensor, max_len: int) -> Tensor:
    """softmax(q·k / √K)·v within each sequence, [T, H, K]."""
    return _apart(q_THK, k_THK, v_THK, edges, max_len)[0]  # type: ignore[no-any-return]


def attend_joined(qkv_T3HK: Tensor, edges: Tensor, max_len: int) -> Tensor:
    """The same for queries, keys and values that lie side by side; so does their gradient, which saves a copy of it."""
    return _joined(qkv_T3HK, edges, max_len)[0]  # type: ignore[no-any-return]
