"""Muon: matrices, their gradients and momenta in; each matrix moved along the nearest orthogonal matrix out.

Legend: N matrices of one shape, R rows, C columns.
Momentum and the quintic iteration are Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon). Decay and the
scale of the step are Liu et al. 2025, "Muon is scalable for LLM training": 0.2·sqrt(max(R, C)) gives each step the size
that AdamW's has, so that both can share one learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

MOMENTUM = 0.95
ITERATIONS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)  # a·X + b·(XXᵀ)X + c·(XXᵀ)²X: steepest at zero, so that five rounds suffice
EPS = 1e-7
BATCH_NUMBERS = 2**25  # in one stack; a larger one would only take more memory


def move(
    matrices: Sequence[Tensor],
    momenta: Sequence[Tensor],
    *,
    learning_rate: float,
    weight_decay: float,
    pieces: int = 1,
    found_inf: Tensor | None = None,
) -> None:
    """One step, in place. Matrices of one shape go as one stack, so that a step is a few kernels.

    Each matrix is `pieces` of equal height, one under another, and each piece is made orthogonal by itself: queries,
    keys and values are three maps that only share a product. Where `found_inf` is 1 nothing changes, whatever the
    gradients hold.
    """
    for chosen in _stacks(matrices):
        weights = [matrices[i] for i in chosen]
        kept = [momenta[i] for i in chosen]
        rows, columns = weights[0].shape
        shape = torch.Size((len(chosen) * pieces, rows // pieces, columns))
        step_NRC = _step(weights, kept, shape, found_inf) * (0.2 * math.sqrt(max(shape[1:])))
        changes = list(step_NRC.view(len(chosen), *weights[0].shape).unbind(0))
        torch._foreach_add_(changes, weights, alpha=weight_decay)
        # A rate of 0 leaves each weight as it is, bit for bit: the changes are finite even in a step that is skipped.
        torch._foreach_mul_(changes, learning_rate if found_inf is None else learning_rate * (1 - found_inf))
        torch._foreach_sub_(weights, changes)


def _step(weights: list[Tensor], kept: list[Tensor], shape: torch.Size, found_inf: Tensor | None) -> Tensor:
    """The orthogonal directions for one stack; the momenta go on by one step (Nesterov's form)."""
    grad_NRC = torch.stack([weight.grad for weight in weights if weight.grad is not None]).view(shape)
    old_NRC = torch.stack(kept).view(shape)
    new_NRC = old_NRC.lerp(grad_NRC, 1 - MOMENTUM)
    step_NRC = orthogonal(grad_NRC.lerp(new_NRC, MOMENTUM)).to(grad_NRC.dtype)
    if found_inf is not None:  # where, not a product: 0 times NaN is NaN
        skipped = found_inf > 0
        new_NRC = torch.where(skipped, old_NRC, new_NRC)
        step_NRC = torch.where(skipped, torch.zeros_like(step_NRC), step_NRC)
    torch._foreach_copy_(kept, list(new_NRC.view(len(kept), *kept[0].shape).unbind(0)))
    return step_NRC


def orthogonal(x_NRC: Tensor) -> Tensor:
    """Each matrix with its singular values brought near 1, by Newton and Schulz; in bfloat16 on a GPU."""
    a, b, c = QUINTIC
    tall = x_NRC.shape[-2] > x_NRC.shape[-1]
    x = x_NRC.mT if tall else x_NRC  # the smaller side first: the products are of that size
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=EPS)
    if x.is_cuda:
        x = x.bfloat16()
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).contiguous()


def _stacks(matrices: Sequence[Tensor]) -> Iterator[list[int]]:
    """The places of matrices that go together: one shape, at most `BATCH_NUMBERS` numbers."""
    alike: dict[torch.Size, list[int]] = {}
    for place, matrix in enumerate(matrices):
        alike.setdefault(matrix.shape, []).append(place)
    for shape, places in alike.items():
        most = max(1, BATCH_NUMBERS // shape.numel())
        for begin in range(0, len(places), most):
            yield places[begin : begin + most]
