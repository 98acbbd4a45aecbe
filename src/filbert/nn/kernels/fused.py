"""GELU, and dropout, sum and norm, on CUDA: a layer's outputs and bias in, the result out, gradients back.

The gradient of a bias is a sum over all tokens. The kernels here sum it while they make its terms, where it would else
take a pass of its own over all that was just written. Each program sums some rows in one fixed order and the programs'
sums are added in another: the same step gives the same bits. Forward is left to the compiler, which does it well;
of the backward of dropout, sum and norm it makes a kernel that takes eight times as long (benchmarks/fused_kernels.py).

Legend: T tokens in the pack, C columns, D width.
"""

# mypy: disable-error-code="no-untyped-def"
# A kernel has no annotations but constexpr: Triton reads them.

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from filbert.nn.dropout import DRAWN, LAST, ROUNDS, dropped, threshold
from filbert.nn.kernels.short_attention import jit, tl  # type: ignore[attr-defined]

# (rows that a program sums, rows and columns that it reads at a time, warps)
BACKWARD = (512, 16, 128, 4)
# (rows that a program sums, rows that it reads at a time, warps)
NORM_BACKWARD = (128, 4, 4)


@jit
def _gelu_slope(x):
    """Φ(x) + x·φ(x), with Φ to 1e-7: Abramowitz and Stegun 1964, 7.1.26, whose one exponential serves φ as well."""
    bell = tl.exp2(x * x * -0.7213475204444817)  # exp(-x²/2)
    t = 1.0 + 0.2316418882663604 * tl.abs(x)
    t = tl.rsqrt(t * t)  # 1/t in fewer instructions: they are what this kernel has few to spare of
    tail = (((0.5307027145 * t - 0.7265760135) * t + 0.7107068705) * t - 0.142248368) * t + 0.127414796
    tail = tail * t  # Φ(-|x|) = tail · bell
    slope = bell * (tl.where(x < 0, tail, -tail) + 0.3989422804014327 * x)
    return tl.where(x < 0, slope, 1.0 + slope)


@jit
def _gelu_kernel(
    tensors, tokens, width, SPAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr
):
    """One program: the gradient of some columns of SPAN rows, and its sum over those rows."""
    grad_at, x_at, dx_at, sums_at = tensors
    span = tl.program_id(1)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for at in range(0, SPAN, ROWS):
        rows = span * SPAN + at + tl.arange(0, ROWS)
        places = rows[:, None].to(tl.int64) * width + columns[None, :]
        if WHOLE:
            grad, x = tl.load(grad_at + places), tl.load(x_at + places)
        else:
            there = (rows < tokens)[:, None] & inside[None, :]
            grad = tl.load(grad_at + places, mask=there, other=0.0)
            x = tl.load(x_at + places, mask=there, other=0.0)
        dx = grad.to(tl.float32) * _gelu_slope(x.to(tl.float32))
        total += dx
        if WHOLE:
            tl.store(dx_at + places, dx.to(x.dtype))
        else:
            tl.store(dx_at + places, dx.to(x.dtype), mask=there)
    tl.store(sums_at + span.to(tl.int64) * width + columns, tl.sum(total, 0), mask=inside)


def _backward(grad: Tensor, x: Tensor, dx: Tensor, sums: Tensor) -> None:
    """Fills `dx` and, by spans of rows, its sums."""
    tokens, width = x.shape
    span, rows, columns, warps = BACKWARD
    _gelu_kernel[(-(-width // columns), len(sums))](
        (grad, x, dx, sums), tokens, width,
        SPAN=span, ROWS=rows, COLUMNS=columns, WHOLE=tokens % span == 0 and width % columns == 0, num_warps=warps,
    )  # fmt: skip


@torch.library.custom_op("filbert::gelu_backward", mutates_args=())
def gelu_backward(grad_TC: Tensor, x_TC: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of x and, in float32, its sum over T."""
    grad, x = grad_TC.contiguous(), x_TC.contiguous()
    dx, sums = torch.empty_like(x), x.new_empty((-(-len(x) // BACKWARD[0]), x.shape[1]), dtype=torch.float32)
    _backward(grad, x, dx, sums)
    return dx, sums.sum(0)


@gelu_backward.register_fake
def _(grad_TC: Tensor, x_TC: Tensor) -> tuple[Tensor, Tensor]:
    return x_TC.new_empty(x_TC.shape), x_TC.new_empty(x_TC.shape[1:], dtype=torch.float32)


def quick_gelu(x: Tensor) -> Tensor:
    """x·Φ(x) with the Φ of the kernel above: a third of the instructions of erf, which a compiled kernel waits for."""
    wide = x.float()
    bell = torch.exp2(wide * wide * -0.7213475204444817)
    t = 1.0 + 0.2316418882663604 * wide.abs()
    t = torch.rsqrt(t * t)
    tail = (((0.5307027145 * t - 0.7265760135) * t + 0.7107068705) * t - 0.142248368) * t + 0.127414796
    tail = tail * t * bell
    return (wide * torch.where(wide < 0, tail, 1.0 - tail)).to(x.dtype)


class _Context(FunctionCtx):
    """What a forward pass leaves to its backward pass."""

    saved_tensors: tuple[Tensor, ...]
    share: float


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, x: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return quick_gelu(x) if torch.compiler.is_compiling() else F.gelu(x)

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, Tensor]:
        (x,) = ctx.saved_tensors
        dx, dbias = gelu_backward(grad, x)
        return dx, dbias.to(x.dtype)


def gelu(x_TC: Tensor, bias_C: Tensor) -> Tensor:
    """GELU of x, [T, C]. The bias is already in x, without a gradient: it gets that here."""
    return _Gelu.apply(x_TC, bias_C)  # type: ignore[no-any-return,no-untyped-call]


# Dropout, sum and norm ------------------------------------------------------------------------------------------------


def _fixed(value: float) -> Any:
    """A number that kernels may read."""
    return tl.constexpr(value) if tl else value


_A, _B, _C = (_fixed(shift) for shift, _ in ROUNDS)
_FA, _FB, _FC = (_fixed(factor) for _, factor in ROUNDS)
_MA, _MB, _MC, _MZ = (_fixed(2 ** (32 - shift) - 1) for shift in (*(shift for shift, _ in ROUNDS), LAST))
_Z, _DRAWN = _fixed(LAST), _fixed(float(DRAWN))


@jit
def _folded(x, BITS: tl.constexpr, MASK: tl.constexpr):
    """x xor its upper bits, without the sign that the shift brings in."""
    return x ^ ((x >> BITS) & MASK)


@jit
def _kept(places, first, second, THRESHOLD: tl.constexpr):
    """Which numbers dropout left: nn.dropout.kept, place by place."""
    mixed = places ^ first
    mixed = _folded(mixed, _A, _MA) * _FA + second
    mixed = _folded(mixed, _B, _MB) * _FB + second
    mixed = _folded(mixed, _C, _MC) * _FC + second
    return _folded(mixed, _Z, _MZ) >= THRESHOLD


@jit
def _norm_kernel(
    tensors, tokens, width, scale, SPAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    THRESHOLD: tl.constexpr,
):  # fmt: skip
    """One program: the gradients of SPAN rows, and over those rows the sums for the norm's and the layer's biases."""
    grad_at, sum_at, mean_at, rstd_at, weight_at, drawn_at, dsum_at, dx_at, totals_at = tensors
    span = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    inside = columns < width
    weight = tl.load(weight_at + columns, mask=inside, other=0.0).to(tl.float32)
    by_weight = tl.zeros([COLUMNS], tl.float32)
    by_shift = tl.zeros([COLUMNS], tl.float32)
    by_bias = tl.zeros([COLUMNS], tl.float32)
    first = (tl.load(drawn_at) * _DRAWN).to(tl.int32) * 251
    second = (tl.load(drawn_at + 1) * _DRAWN).to(tl.int32) * 241
    for at in range(0, SPAN, ROWS):
        rows = span * SPAN + at + tl.arange(0, ROWS)
        there = (rows < tokens)[:, None] & inside[None, :]
        places = rows[:, None].to(tl.int64) * width + columns[None, :]
        grad = tl.load(grad_at + places, mask=there, other=0.0).to(tl.float32)
        x = tl.load(sum_at + places, mask=there, other=0.0).to(tl.float32)
        mean = tl.load(mean_at + rows, mask=rows < tokens, other=0.0)
        rstd = tl.load(rstd_at + rows, mask=rows < tokens, other=0.0)
        normal = (x - mean[:, None]) * rstd[:, None]
        part = grad * weight[None, :]
        along = tl.sum(part, 1) / width
        slope = tl.sum(part * normal, 1) / width
        dsum = (part - along[:, None] - normal * slope[:, None]) * rstd[:, None]
        tl.store(dsum_at + places, dsum.to(dsum_at.dtype.element_ty), mask=there)
        dx = tl.where(_kept(places.to(tl.int32), first, second, THRESHOLD), dsum * scale, 0.0)
        tl.store(dx_at + places, dx.to(dx_at.dtype.element_ty), mask=there)
        by_weight += tl.sum(grad * normal, 0)
        by_shift += tl.sum(grad, 0)
        by_bias += tl.sum(dx, 0)
    totals = totals_at + span.to(tl.int64) * 3 * width + columns
    tl.store(totals, by_weight, mask=inside)
    tl.store(totals + width, by_shift, mask=inside)
    tl.store(totals + 2 * width, by_bias, mask=inside)


class _NormGradients(NamedTuple):
    """What the backward kernel of the norm fills."""

    dsum: Tensor
    dx: Tensor
    totals: Tensor  # [programs, 3, D] of the biases, by spans of rows


def _norm_backward(inputs: tuple[Tensor, ...], share: float, gradients: _NormGradients) -> None:
    """Fills the gradients of the sum and of what was dropped and, by spans of rows, the sums of the biases."""
    tokens, width = inputs[0].shape
    span, rows, warps = NORM_BACKWARD
    _norm_kernel[(len(gradients.totals),)](
        (*inputs, *gradients), tokens, width, 1 / (1 - share), SPAN=span, ROWS=rows,
        COLUMNS=1 << (width - 1).bit_length(), THRESHOLD=threshold(share), num_warps=warps,
    )  # fmt: skip


@torch.library.custom_op("filbert::norm_backward", mutates_args=())
def norm_backward(
    grad_TD: Tensor, sum_TD: Tensor, mean_T: Tensor, rstd_T: Tensor, weight_D: Tensor, drawn: Tensor, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the sum; of what was added to it, before dropout; and [3, D] of the biases.

    These are the norm's weight and bias and the bias of the layer whose output was dropped.
    """
    inputs = [x.contiguous() for x in (grad_TD, sum_TD, mean_T, rstd_T, weight_D, drawn)]
    tokens, width = sum_TD.shape
    dsum = torch.empty_like(inputs[1])
    dx = torch.empty_like(dsum)
    totals = dsum.new_empty((-(-tokens // NORM_BACKWARD[0]), 3, width), dtype=torch.float32)
    _norm_backward(tuple(inputs), share, _NormGradients(dsum, dx, totals))
    return dsum, dx, totals.sum(0)


@norm_backward.register_fake
def _(
    grad_TD: Tensor, sum_TD: Tensor, mean_T: Tensor, rstd_T: Tensor, weight_D: Tensor, drawn: Tensor, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    totals = sum_TD.new_empty((3, sum_TD.shape[1]), dtype=torch.float32)
    return sum_TD.new_empty(sum_TD.shape), sum_TD.new_empty(sum_TD.shape), totals


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _Context,
        into: Tensor,
        x: Tensor,
        weight: Tensor,
        shift: Tensor,
        bias: Tensor,
        drawn: Tensor,
        how: tuple[float, float],
    ) -> Tensor:
        share, eps = how
        total = into + dropped(x, share, drawn)
        out, mean, rstd = torch.native_layer_norm(total, [total.shape[1]], weight, shift, eps)
        ctx.save_for_backward(total, mean, rstd, weight, drawn)
        ctx.share = share
        return out

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        total, mean, rstd, weight, drawn = ctx.saved_tensors
        dsum, dx, totals = norm_backward(grad, total, mean, rstd, weight, drawn, ctx.share)
        dweight, dshift, dbias = totals.to(weight.dtype)
        return dsum, dx, dweight, dshift, dbias, None, None


def add_norm(into_TD: Tensor, x_TD: Tensor, norm: torch.nn.LayerNorm, bias_D: Tensor, share: float) -> Tensor:
    """The norm of the sum, x dropped first. The bias is already in x, without a gradient: it gets that here."""
    drawn, how = torch.rand(2, device=x_TD.device), (share, norm.eps)
    return _AddNorm.apply(into_TD, x_TD, norm.weight, norm.bias, bias_D, drawn, how)  # type: ignore[no-any-return,no-untyped-call]
