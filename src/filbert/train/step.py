"""One step: a model, a task and the parts of a batch in, moved weights and what the step saw out.

The weights that learn are float32. Where the machine computes in bfloat16 a copy of them does the work, and its
gradients come back to the originals. Nothing here waits for the device: whether a gradient is finite is decided there,
and an optimiser that is told so changes nothing (`found_inf`).
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from filbert.core.protocols import Batch, Task
from filbert.core.records import Packed
from filbert.train import optim
from filbert.train.distributed import Ranks
from filbert.train.machine import Machine

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "Cannot allocate memory", "std::bad_alloc")


class OutOfMemoryError(Exception):
    """A part of a batch did not fit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step saw, still on the device: for every term (total, count), the gradient's norm, 1.0 if skipped."""

    names: tuple[str, ...]
    numbers: Tensor  # [2·terms + 2]


class Work(nn.Module):
    """Model and task as one module: what DDP wraps and torch.compile compiles."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """{name: (total, count)}."""
        terms = self.task.loss(self.model, batch)
        return {name: (term.total, torch.as_tensor(term.count)) for name, term in terms.items()}


class Stepper:
    """Holds the weights, the copy that computes, and the optimiser."""

    def __init__(
        self, model: nn.Module, task: Task, optimiser: tuple[str, float, float], machine: Machine, ranks: Ranks, seed: int
    ) -> None:
        self.machine, self.ranks, self.seed = machine, ranks, seed
        self.model = model.to(machine.device).train()
        self.twin = copy.deepcopy(self.model).to(torch.bfloat16) if machine.half else self.model
        self.optimiser = optim.optimiser(self.model, *optimiser)
        self.own = [p for p in self.model.parameters() if p.requires_grad]
        self.working = [p for p in self.twin.parameters() if p.requires_grad]
        work: nn.Module = Work(self.twin, task)
        self.work = ranks.copied(work, machine.device)
        self.settled = ranks.world == 1
        self.run = torch.compile(self.work, fullgraph=ranks.world == 1) if machine.compiled else self.work

    def step(
        self, parts: Sequence[Batch], counts: Mapping[str, float], number: int, rate: float, clip: float, weight: float = 1
    ) -> Outcome:
        """One step of the optimiser over all parts; `counts` are those of all parts and ranks together.

        weight: 0 on a rank for which the batch had nothing left, and which only keeps the others company.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        seen: dict[str, list[tuple[Tensor, Tensor]]] = {}
        try:
            if not self.settled:
                self._settle(parts[0])
            self._reseed(number)
            for at, part in enumerate(parts):
                alone = self.ranks.world == 1 or at + 1 == len(parts)
                with contextlib.nullcontext() if alone else self.work.no_sync():  # type: ignore[operator]
                    self._backward(part, counts, seen, weight)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._forget()
            raise OutOfMemoryError(str(error).split("\n", 1)[0]) from None
        return self._moved(seen, clip)

    def _settle(self, part: Batch) -> None:
        """One pass for nothing: after its first, DDP lays its buckets out anew, in the order in which gradients came.

        Sums over three ranks or more are rounded by where a number lies in its bucket, so every step that counts must
        have the lasting layout, the first after a resume too.
        """
        found = self.run(on_device(part, self.machine.device, self.machine.compiled))
        sum(total for name, (total, _) in found.items() if name.endswith("_loss")).backward()
        self._forget()
        self.settled = True

    def _reseed(self, number: int) -> None:
        """Dropout is drawn from torch's generator, which every step sets anew: nothing of it needs to be saved."""
        words = hashlib.blake2b(f"{self.seed}|dropout|{number}|{self.ranks.rank}".encode(), digest_size=7).digest()
        torch.manual_seed(int.from_bytes(words, "little"))

    def _backward(self, part: Batch, counts: Mapping[str, float], seen: dict[str, Any], weight: float) -> None:
        batch = on_device(part, self.machine.device, self.machine.compiled)
        found = self.run(batch)
        # DDP takes the mean over ranks; the loss is a sum over them.
        scale = self.ranks.world * weight
        loss = sum(
            total * (scale / counts[name]) for name, (total, _) in found.items() if name.endswith("_loss") and counts[name]
        )
        if isinstance(loss, Tensor) and loss.requires_grad:
            loss.backward()
        for name, (total, count) in found.items():
            seen.setdefault(name, []).append((total.detach().float() * weight, count.float() * weight))

    def _moved(self, seen: Mapping[str, list[tuple[Tensor, Tensor]]], clip: float) -> Outcome:
        device = self.machine.device
        if self.twin is not self.model:
            pairs = [(p, w.grad) for p, w in zip(self.own, self.working, strict=True) if w.grad is not None]
            for own, gradient in pairs:
                own.grad = gradient.float()
        numbers = [sum(values).to(device) for pairs in seen.values() for values in zip(*pairs, strict=True)]  # type: ignore[union-attr]
        totals = self.ranks.sums(torch.stack(numbers)) if numbers else torch.zeros(0, device=device)
        norm = optim.clip(self.own, clip)
        finite = torch.isfinite(norm) & torch.isfinite(totals).all()
        skipped = (~finite).float()
        self.optimiser.found_inf = skipped
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.twin is not self.model:
            for weight in self.working:
                weight.grad = None
            with torch.no_grad():
                torch._foreach_copy_(self.working, self.own)
        return Outcome(tuple(seen), torch.cat([totals, torch.stack([norm.to(device), skipped])]))

    def _forget(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        for weight in self.working:
            weight.grad = None
        if self.machine.is_cuda:
            torch.cuda.empty_cache()

    def restored(self) -> None:
        """Tells the copy that computes of weights that were loaded."""
        if self.twin is not self.model:
            with torch.no_grad():
                torch._foreach_copy_(self.working, self.own)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory, of the device or the host, was what lacked."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in str(error) for word in OUT_OF_MEMORY)


def on_device(batch: Batch, device: torch.device | str, dynamic: bool = False) -> Batch:
    """The batch as tensors on that device; `dynamic` marks what a compiled graph may not take as constant."""
    device = torch.device(device)

    def moved(array: Any, kind: torch.dtype | None = None) -> Tensor:
        tensor = torch.as_tensor(array)
        if kind is not None:
            tensor = tensor.to(kind)
        if device.type == "cuda":
            return tensor.pin_memory().to(device, non_blocking=True)
        return tensor.to(device)

    packed = batch.packed
    placed = Packed(
        ids=moved(packed.ids, torch.int64),
        positions=moved(packed.positions, torch.int64),
        segments=moved(packed.segments, torch.int64),
        boundaries=moved(packed.boundaries, torch.int32),
        lengths=packed.lengths,
        max_len=packed.max_len,
    )
    targets = {name: moved(value) for name, value in batch.targets.items()}
    made = Batch(placed, moved(batch.starts), moved(batch.owners), targets)
    if dynamic:
        num_seqs = len(made.starts)
        for tensor in (placed.boundaries, made.starts, made.owners, *targets.values()):
            if tensor is placed.boundaries or len(tensor) == num_seqs:
                torch._dynamo.mark_dynamic(tensor, 0)
    return made
