"""How weights move: parameters in, an AdamW with BERT's exceptions and a warm-up-then-decay schedule out."""

from __future__ import annotations

import torch
from torch import nn


def adamw(model: nn.Module, learning_rate: float, weight_decay: float = 0.01) -> torch.optim.AdamW:
    """AdamW that decays matrices only: norms and biases stay free, as in the reference (optimization.py)."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.999), eps=1e-6, fused=True)


def rate(step: int, steps: int, warmup: float = 0.1) -> float:
    """The share of the peak rate at `step` of `steps`: a straight line up over the warm-up, then down to zero."""
    rising = max(1, round(steps * warmup))
    if step < rising:
        return (step + 1) / rising
    return max(0.0, (steps - step) / max(1, steps - rising))
