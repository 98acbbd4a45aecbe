"""A model, a task and the parts of a batch in; one optimiser step, its terms and gradient norm out.

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

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Task
from filbert.nn.attention import batch_tensors
from filbert.nn.cuda_graph import CudaGraph
from filbert.nn.encoder import Encoder, standing_in
from filbert.train import optim, tune
from filbert.train.distributed import Ranks, gathered, local, sharded, shares
from filbert.train.machine import Machine
from filbert.train.recorded import Player

OUT_OF_MEMORY = (  # in any allocator's words, oneDNN's last
    "out of memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "could not create a primitive",
)


Terms = dict[str, list[tuple[Tensor, Tensor]]]  # of each term (total, count), for each part of a batch


class OutOfMemoryError(Exception):
    """A part of a batch did not fit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers of a step, still on the device: of every term (total, count), the gradient's norm, 1.0 if skipped."""

    names: tuple[str, ...]
    numbers: Tensor  # [2·terms + 2]


class LossModule(nn.Module):
    """Model and task as one module: what DDP wraps and torch.compile compiles."""

    def __init__(self, model: Encoder, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch, task: Task | None = None) -> dict[str, tuple[Tensor, Tensor]]:
        """{name: (total, count)}; of another task that asks the same model, where one is given."""
        terms = (task or self.task).loss(self.model, batch)
        return {name: (term.total, torch.as_tensor(term.count)) for name, term in terms.items()}


class Stepper:
    """Holds the weights, the copy that computes, and the optimiser."""

    def __init__(
        self,
        model: Encoder,
        task: Task,
        optimiser: optim.Settings,
        machine: Machine,
        ranks: Ranks,
        seed: int,
    ) -> None:
        self.machine, self.ranks, self.seed = machine, ranks, seed
        self.sharded = machine.sharding == "shard" and ranks.world > 1
        if self.sharded and optimiser.name != "adamw":
            raise InputError(f"machine.sharding=shard works with train.optimiser=adamw alone, not {optimiser.name}.")
        self.whole = model.cpu() if self.sharded else None  # what will hold the weights when they are put together
        self.model = (copy.deepcopy(model) if self.sharded else model).to(machine.device).train()
        has_twin = machine.half and not self.sharded
        self.twin = copy.deepcopy(self.model).to(torch.bfloat16) if has_twin else self.model
        played = machine.recorded and has_twin and ranks.world == 1
        self.player = Player(self.twin, _usual(task)) if played else None
        module = LossModule(self.twin if self.player is None else standing_in(self.twin, self.player), task)
        self.module = sharded(module, machine.device, machine.half) if self.sharded else module
        self.optimiser = optim.optimiser(self.model, *optimiser)
        self.graph: tuple[Any, CudaGraph[Tensor] | None] = (None, None)
        if self.player is not None:
            _ready_for_recording(self.optimiser, machine.device)
        self.learning = [name for name, p in self.model.named_parameters() if p.requires_grad]
        self.least = -1  # the depth from which on weights learn
        self.thaw(0)
        self.settled = self.sharded or ranks.world == 1
        compiled = machine.compiled and ranks.world == 1
        if compiled:
            torch._dynamo.reset()  # it remembers eight graphs of one function, and each run in a process makes its own
        self.run = torch.compile(self.module, fullgraph=task.one_graph) if compiled else self.module

    def thaw(self, least: int) -> None:
        """From the next step on the weights of that depth and more learn (train.tune); others are as in use."""
        if least == self.least:
            return
        if self.least > 0 and self.machine.compiled:
            torch._dynamo.reset()  # a graph for each depth: more than are remembered of one function
        self.least = least
        for module in (self.model,) if self.twin is self.model else (self.model, self.twin):
            tune.thaw(module, self.learning, least)
        self.weights: list[Tensor] = [p for p in self.model.parameters() if p.requires_grad]
        self.working: list[Tensor] = [p for p in self.twin.parameters() if p.requires_grad]
        if self.player is not None:
            self.player.forget()

    def step(
        self,
        parts: Sequence[Batch],
        counts: Mapping[str, float],
        number: int,
        rate: float,
        clip: float,
        weight: float = 1,
    ) -> Outcome:
        """One step of the optimiser over all parts; `counts` are those of all parts and ranks together.

        weight: 0 on a rank for which the batch had nothing left, and which only keeps the others company.
        """
        for group in self.optimiser.param_groups:
            group_rate = rate * group.get("scale", 1.0)
            group["lr"] = group_rate if self.player is None else group["lr"].fill_(group_rate)
        if self.player is not None:
            self.player.begin(resting=len(parts) > 1)
        seen: Terms = {}
        try:
            if not self.settled:
                self._settle(parts[0])
            self._reseed(number)
            for at, part in enumerate(parts):
                summed = self.sharded or self.ranks.world == 1 or at + 1 == len(parts)
                with contextlib.nullcontext() if summed else self.module.no_sync():  # type: ignore[operator]
                    self._backward(part, counts, seen, weight)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._forget()
            raise OutOfMemoryError(str(error).split("\n", 1)[0]) from None
        return self._moved(seen, clip)

    def _settle(self, part: Batch) -> None:
        """Two passes for nothing: the first finds out which weights the task leaves alone, which DDP must know.

        After the second DDP lays its buckets out anew, in the order in which gradients came. Sums over three ranks or
        more are rounded by where a number lies in its bucket, so every step that counts must have that lasting layout,
        the first after a resume too.
        """
        self._pass(part)
        idle = [name for name, p in self.module.named_parameters() if p.requires_grad and p.grad is None]
        self._forget()
        self.module = self.ranks.copied(self.module, self.machine.device, idle)
        self.run = torch.compile(self.module) if self.machine.compiled else self.module
        self._pass(part)
        self._forget()
        self.settled = True

    def _pass(self, part: Batch) -> None:
        terms = self.run(on_device(part, self.machine.device, self.machine.compiled))
        losses = [total for name, (total, _) in terms.items() if name.endswith("_loss")]
        torch.autograd.backward([loss for loss in losses if loss.requires_grad])

    def _reseed(self, number: int) -> None:
        """Dropout is drawn from torch's generator, which every step sets anew: nothing of it needs to be saved."""
        words = hashlib.blake2b(f"{self.seed}|dropout|{number}|{self.ranks.rank}".encode(), digest_size=7).digest()
        number = int.from_bytes(words, "little")
        torch.default_generator.manual_seed(number)
        # torch.manual_seed would ask every kind of device there could be, a millisecond each time.
        if self.machine.is_cuda:
            torch.cuda.default_generators[self.machine.device.index].manual_seed(number)

    def _backward(self, part: Batch, counts: Mapping[str, float], seen: Terms, weight: float) -> None:
        batch = on_device(part, self.machine.device, self.machine.compiled)
        terms = self.run(batch)
        # DDP takes the mean over ranks; the loss is a sum over them. A loss that nothing in the whole step is asked for
        # weighs 0 and is not left out: DDP waits for the gradients of its head.
        scale = self.ranks.world * weight
        loss = sum(
            total * (scale / counts[name] if counts[name] else 0.0)
            for name, (total, _) in terms.items()
            if name.endswith("_loss")
        )
        if isinstance(loss, Tensor) and loss.requires_grad:
            torch.autograd.backward(loss)
        for name, (total, count) in terms.items():
            seen.setdefault(name, []).append((total.detach().float() * weight, count.float() * weight))

    def _moved(self, seen: Terms, clip: float) -> Outcome:
        device = self.machine.device
        if self.twin is not self.model:
            self._brought_back()
        numbers = [sum(values).to(device) for pairs in seen.values() for values in zip(*pairs, strict=True)]
        totals = self.ranks.sums(torch.stack(numbers)) if numbers else torch.zeros(0, device=device)
        outcome = self._optimised(totals, clip) if self.player is None else self._played(totals, clip)
        if self.twin is self.model:
            self.optimiser.zero_grad(set_to_none=True)
        for weight in self.working:
            weight.grad = None
        return Outcome(tuple(seen), outcome)

    def _optimised(self, totals: Tensor, clip: float) -> Tensor:
        """Moves the weights unless something is not finite: the totals, the gradient's norm, 1.0 if skipped."""
        norm = self._clipped(clip)
        finite = torch.isfinite(norm) & torch.isfinite(totals).all()
        skipped = (~finite).float()
        self.optimiser.found_inf = skipped
        self.optimiser.step()
        if self.twin is not self.model:
            with torch.no_grad():
                torch._foreach_copy_(self.working, self.weights)
        return torch.cat([totals, torch.stack([norm.to(totals.device), skipped])])

    def _played(self, totals: Tensor, clip: float) -> Tensor:
        """The same, recorded where the gradients lie where they lay in the step before."""
        key = (clip, len(totals), *(0 if p.grad is None else p.grad.data_ptr() for p in self.weights))
        key_before, graph = self.graph
        if key != key_before:
            self.graph = (key, None)
            return self._optimised(totals, clip)
        if graph is None:
            self.totals = totals.clone()
            graph = CudaGraph(lambda: self._optimised(self.totals, clip), self.machine.device)
            self.graph = (key, graph)
        self.totals.copy_(totals)
        return graph.replay().clone()

    def _brought_back(self) -> None:
        """The copy's gradients as those of the weights, in float32, in a few kernels."""
        played = self.player.gradients() if self.player is not None else {}
        into, come = [], []
        for place, (master, weight) in enumerate(zip(self.weights, self.working, strict=True)):
            if place in played:
                master.grad = played[place]
                if weight.grad is not None:  # a weight that also has a use after the encoder
                    master.grad += weight.grad
                continue
            if weight.grad is None:
                master.grad = None
                continue
            if master.grad is None:
                master.grad = torch.empty_like(master)
            into.append(master.grad)
            come.append(weight.grad)
        if into:
            torch._foreach_copy_(into, come)

    def _clipped(self, most: float) -> Tensor:
        """The norm of the gradients of all ranks' weights, which shrink to `most` where it is above."""
        if not self.sharded:
            return optim.clip(self.weights, most)
        grads = [local(p.grad) for p in self.weights if p.grad is not None]
        squares = torch.stack([norm.float().square() for norm in torch._foreach_norm(grads)]).sum()
        norm = self.ranks.sums(squares).sqrt()
        torch._foreach_mul_(grads, (most / norm).clamp(max=1.0))
        return norm

    @property
    def measured(self) -> Encoder | LossModule:
        """The module to evaluate: the copy that computes, or the sharded module."""
        return self.module if isinstance(self.module, LossModule) and self.sharded else self.twin

    def tensors(self) -> dict[str, Tensor]:
        """The weights ("model/…") and the optimiser's state ("optimiser/…"), whole; all ranks must ask."""
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"optimiser/{name}": value for name, value in optim.tensors(self.optimiser).items()}
        return gathered(tensors) if self.sharded else tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Puts such tensors back, bit for bit."""
        of: dict[str, dict[str, Tensor]] = {"model": {}, "optimiser": {}}
        for name, tensor in tensors.items():
            kind, _, name = name.partition("/")
            of[kind][name] = tensor
        if self.sharded:
            of["model"] = shares(of["model"], self.model.state_dict())
            of["optimiser"] = shares(of["optimiser"], optim.tensors(self.optimiser))
        self.model.load_state_dict(of["model"])
        optim.restore(self.optimiser, of["optimiser"], self.model)
        if self.twin is not self.model:
            with torch.no_grad():
                torch._foreach_copy_(list(self.twin.parameters()), list(self.model.parameters()))

    def finish(self) -> Encoder:
        """The trained model, whole and in eval mode; all ranks must ask."""
        if self.whole is not None:
            self.whole.load_state_dict(gathered(self.model.state_dict()))
            self.model, self.whole = self.whole, None
        return self.model.eval()

    def _forget(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        for weight in self.working:
            weight.grad = None
        if self.player is not None:
            self.graph = (None, None)
            self.player.forget()
        if self.machine.is_cuda:
            torch.cuda.empty_cache()


def _usual(task: Task) -> float:
    """Tokens of a sequence on average, or 0 where the task does not say."""
    sizes = task.window_tokens
    return float(sum(sizes) / len(sizes)) if len(sizes) else 0.0


def _ready_for_recording(optimiser: torch.optim.Optimizer, device: torch.device) -> None:
    """Rates as numbers on the device, which a recorded step reads anew."""
    for group in optimiser.param_groups:
        group["lr"] = torch.zeros((), device=device)
        group["capturable"] = device.type == "cuda"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory, of the device or the host, was what lacked."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in str(error) for word in OUT_OF_MEMORY)


def on_device(batch: Batch, device: torch.device | str, dynamic: bool = False) -> Batch:
    """The batch as tensors on that device; `dynamic` marks what a compiled graph may not take as constant."""
    made = batch_tensors(batch, device)
    if dynamic:
        num_seqs, edges = len(made.starts), made.packed.boundaries
        for tensor in (edges, made.starts, made.owners, *made.targets.values()):
            if tensor is edges or len(tensor) == num_seqs:
                torch._dynamo.mark_dynamic(tensor, 0)
    return made
