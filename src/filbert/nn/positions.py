"""Positions of tokens: learned, sinusoidal or rotary, each a small module of its own.

Legend: T tokens in the pack, D width, H heads, K head width.
A table (learned or sinusoidal) is added once to the input; a rotation turns queries and keys in every layer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from filbert.core.errors import ONE_SEGMENT, InputError


class _Context(FunctionCtx):
    """What a forward pass leaves to its backward pass."""

    saved_tensors: tuple[Tensor, ...]
    num_rows: int


class _Looked(torch.autograd.Function):
    """Rows of a small table. The gradient is a product with the one-hot rows instead of a hundred thousand sums into
    the same few rows, which wait for each other on a GPU."""

    @staticmethod
    def forward(ctx: _Context, table: Tensor, index_T: Tensor) -> Tensor:
        """[T, D]."""
        ctx.save_for_backward(index_T)
        ctx.num_rows = table.shape[0]
        return table[index_T]

    @staticmethod
    def backward(ctx: _Context, gradient_TD: Tensor) -> tuple[Tensor, None]:
        """The table's."""
        (index_T,) = ctx.saved_tensors
        row = torch.arange(ctx.num_rows, device=index_T.device)
        return (row[:, None] == index_T[None, :]).to(gradient_TD.dtype) @ gradient_TD, None


class Table(nn.Embedding):
    """A table of few rows that are looked up by very many tokens: positions, segments."""

    def forward(self, index_T: Tensor) -> Tensor:
        """[T, D]."""
        if self.num_embeddings == 1 and not torch.compiler.is_compiling() and bool(index_T.any()):
            raise InputError(ONE_SEGMENT)
        if self.weight.is_cuda and self.weight.requires_grad and torch.is_grad_enabled():
            looked: Tensor = _Looked.apply(self.weight, index_T)  # type: ignore[no-untyped-call]
            return looked
        return super().forward(index_T)


class Learned(Table):
    """A learned table of max_length rows, added to the input (Devlin et al. 2019)."""

    def __init__(self, max_length: int, width: int) -> None:
        super().__init__(max_length, width)


class Sinusoidal(nn.Module):
    """Fixed sines and cosines, added to the input (Vaswani et al. 2017, §3.5)."""

    weight: Tensor

    def __init__(self, max_length: int, width: int) -> None:
        super().__init__()
        place = torch.arange(max_length, dtype=torch.float64).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10_000.0) / width))
        table = torch.zeros(max_length, width, dtype=torch.float64)
        table[:, 0::2] = torch.sin(place * rate)
        table[:, 1::2] = torch.cos(place * rate[: width // 2])
        self.register_buffer("weight", table.float(), persistent=False)

    def forward(self, positions_T: Tensor) -> Tensor:
        """[T, D] rows of the table."""
        return self.weight[positions_T]


class Rotary(nn.Module):
    """Turns each pair (i, i + K/2) of a query or key by an angle that grows with its place (Su et al. 2021)."""

    rate: Tensor

    def __init__(self, head_width: int, theta: float) -> None:
        super().__init__()
        half = torch.arange(0, head_width, 2, dtype=torch.int64).float() / head_width
        self.register_buffer("rate", 1.0 / theta**half, persistent=False)

    def angles(self, positions_T: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, each [T, 1, K], computed once per pack and shared by all layers of one theta."""
        angle_TK = torch.outer(positions_T.float(), self.rate.float()).repeat(1, 2)
        return angle_TK.cos().unsqueeze(1), angle_TK.sin().unsqueeze(1)


def turned(x_THK: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """x rotated by those angles, in x's own precision."""
    cos, sin = angles
    one, two = x_THK.float().chunk(2, dim=-1)
    return (x_THK.float() * cos + torch.cat((-two, one), dim=-1) * sin).to(x_THK.dtype)
