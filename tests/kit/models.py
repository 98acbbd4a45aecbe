"""A tokenizer in, a BERT so small that a test can train it out: the same weights each time, far from their start.

Beside it what a step of learning gives.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from filbert.models import bert
from filbert.text.tokenizer import Tokenizer

SHAPE: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "inner": 64, "max_length": 64, "dropout": 0.0}


M = TypeVar("M", bound=nn.Module)


def noisy(model: M, noise: float) -> M:
    """The model with noise on every weight, biases and norms too."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * noise)
    return model


def small_bert(
    tokenizer: Tokenizer, parts: tuple[str, ...], labels: int = 2, *, noise: float = 0.1, **shape: Any
) -> bert.Bert:
    """In evaluation mode; with noise, biases and norms are not as a model begins, so that leaving one out shows."""
    torch.manual_seed(0)
    model = bert.Bert(bert.Config(vocab_size=tokenizer.vocab_size, **{**SHAPE, **shape}), parts, labels)
    return (noisy(model, noise) if noise else model).eval()


def gradients(task: Any, model: Any, batch: Any) -> tuple[float, list[torch.Tensor]]:
    """The loss of a writer while it learns, and the gradient of every weight that has one."""
    model.zero_grad()
    total = task.loss(model.train(), batch)["written_loss"].total
    total.backward()
    return total.item(), [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
