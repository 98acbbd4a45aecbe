"""The one loop: a model and a task in, a trained model and its log out.

Order, masks and batches are functions of (seed, epoch, example); dropout alone uses torch's generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from filbert.core.errors import FilbertError, InputError
from filbert.core.protocols import Batch, Item, Task
from filbert.core.random import permutation
from filbert.data.packing import collate
from filbert.nn.attention import tensors
from filbert.train.optim import adamw, rate


@dataclass(frozen=True, kw_only=True)
class Config:
    """How long and how fast to train."""

    steps: int = 1_000
    batch_tokens: int = 4_096
    learning_rate: float = 1e-3
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InputError(f"train.{name} is {getattr(self, name)!r}, but must be a whole number of 1 or more.")
        if not 0 < self.learning_rate < 1:
            raise InputError(f"train.learning_rate is {self.learning_rate!r}, but must be above 0 and below 1.")


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did."""

    step: int  # from 1
    epoch: int
    loss: float
    numbers: Mapping[str, float]  # the task's own
    num_tokens: int


def fit(model: nn.Module, task: Task, config: Config, told: Callable[[Step], bool | None], device: str = "cpu") -> None:
    """Trains until `steps` are done or `told`, which hears of every step, answers False."""
    optimiser = adamw(model, config.learning_rate, config.weight_decay)
    model.train().to(device)
    for done, (epoch, items) in enumerate(batches(task, config)):
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * rate(done, config.steps, config.warmup)
        batch = on_device(collate(items), device)
        loss, numbers = task.loss(model, batch)
        if not torch.isfinite(loss):
            raise FilbertError(
                f"the loss is {float(loss.detach())} at step {done + 1}; try a smaller train.learning_rate."
            )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimiser.step()
        heard = told(Step(done + 1, epoch, float(loss.detach()), numbers, batch.packed.num_tokens))
        if heard is False or done + 1 == config.steps:
            break
    model.eval()


def batches(task: Task, config: Config) -> Iterator[tuple[int, list[Item]]]:
    """(epoch, items) without end: each epoch in its own order, a batch filled to at most `batch_tokens`."""
    epoch, waiting, size = 0, list[Item](), 0
    while True:
        for index in permutation(len(task), config.seed, epoch):
            item = task.item(int(index), epoch)
            length = sum(len(s) for s in item.sequences)
            if waiting and size + length > config.batch_tokens:
                yield epoch, waiting
                waiting, size = [], 0
            waiting.append(item)
            size += length
        epoch += 1


def on_device(batch: Batch, device: str) -> Batch:
    """The batch as tensors on that device."""

    def moved(array: Any) -> torch.Tensor:
        return torch.as_tensor(array).to(device)

    targets = {name: moved(value) for name, value in batch.targets.items()}
    return Batch(tensors(batch.packed, device), moved(batch.starts), moved(batch.owners), targets)
