"""An encoder and packs of one size in; its vectors and gradients by recorded CUDA graphs out.

A GPU is done with a small model's step long before a host has launched the next one's kernels, hundreds of them: with
8 layers × 384 and 8,192 tokens it works for 5 of 27 ms (experiments/2026-11-16-recorded-steps.md). A CUDA graph holds
the launches of a pass, and the host asks for all of them at once. Where they read and write is fixed then: what comes
in is copied there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from filbert.core.records import Packed
from filbert.nn.cuda_graph import CudaGraph

SIZES = 2  # of packs that are recorded; any other goes through the model as it is
SPARE, ROUND = 1.15, 32  # places for sequences: so many times the usual number, and a multiple of that


class Tape:
    """One pass of an encoder over a pack and back, recorded; its gradients are float32 and stay where they are."""

    def __init__(self, model: nn.Module, packed: Packed, num_seqs: int) -> None:
        self.model, self.tokens, self.num_seqs, self.max_len = model, len(packed.ids), num_seqs, packed.max_len
        self.device = packed.ids.device
        edges = packed.boundaries.new_full((num_seqs + 1,), self.tokens)
        # The pack that the recording reads; what comes is copied into its arrays.
        self.read = packed.mapped(lambda name, array: edges if name == "boundaries" else array.clone())
        self._put(packed)
        self.weights = self._leaves()
        self.learning = self._rehearsed()  # places among the weights that learn
        self.weights = self._leaves()
        kept = [list(self.weights.values())[place] for place in self.learning]
        self.grads = [torch.zeros_like(weight, dtype=torch.float32) for weight in kept]
        pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        with torch.set_grad_enabled(bool(self.learning)):
            self.there = CudaGraph(self._forward, self.device, pool)
        self.back: CudaGraph[None] | None = None
        if self.learning and self.there.graph is not None:
            self.grad = torch.zeros_like(self.there.result)
            self.back = CudaGraph(self._backward, self.device, pool)
            self.there.result = self.there.result.detach()  # the pass's own tensors live in the recording

    def _leaves(self) -> dict[str, Tensor]:
        """The weights that learn, under other names: a recording must have nothing to do with a graph outside of it."""
        return {n: p.detach().requires_grad_() for n, p in self.model.named_parameters() if p.requires_grad}

    def _rehearsed(self) -> list[int]:
        """One pass for nothing, which readies libraries and kernels: the places of the weights that learn by it."""
        on_cuda = self.device.type == "cuda"
        side = torch.cuda.Stream() if on_cuda else None  # type: ignore[no-untyped-call]
        if side is not None:
            side.wait_stream(torch.cuda.current_stream())
        gradients: tuple[Tensor | None, ...] = ()
        with torch.cuda.stream(side):
            out = self._forward()
            if out.requires_grad:
                leaves = list(self.weights.values())
                gradients = torch.autograd.grad(out, leaves, torch.zeros_like(out), allow_unused=True)
        if side is not None:
            torch.cuda.current_stream().wait_stream(side)
        return [place for place, grad in enumerate(gradients) if grad is not None]

    def _forward(self) -> Tensor:
        out: Tensor = torch.func.functional_call(self.model, self.weights, (self.read,))
        return out

    def _backward(self) -> None:
        leaves = list(self.weights.values())
        gradients = torch.autograd.grad(self.there.result, [leaves[place] for place in self.learning], self.grad)
        torch._foreach_copy_(self.grads, list(gradients))

    def _put(self, packed: Packed) -> None:
        """The pack where the recording reads it; places without a sequence are empty ones at the end."""
        num_edges = len(packed.boundaries)
        for into, come in ((self.read.ids, packed.ids), (self.read.positions, packed.positions),
                           (self.read.segments, packed.segments)):  # fmt: skip
            into.copy_(come)
        self.read.boundaries[:num_edges].copy_(packed.boundaries)
        self.read.boundaries[num_edges:].fill_(self.tokens)
        self.read = replace(self.read, lengths=packed.lengths)

    def takes(self, packed: Packed) -> bool:
        """Whether the recording has room for it."""
        return len(packed.boundaries) - 1 <= self.num_seqs and packed.max_len <= self.max_len

    def forward(self, packed: Packed) -> Tensor:
        """[T, D], until the next pack comes."""
        self._put(packed)
        with torch.set_grad_enabled(bool(self.learning)):
            return self.there.replay().detach()

    def backward(self, grad: Tensor) -> None:
        """Fills `grads`."""
        if self.back is None:
            self.grad = grad
            with torch.enable_grad():
                self._backward()
            return
        self.grad.copy_(grad)
        self.back.replay()


class _Context(Protocol):
    """What the forward pass keeps for the backward pass."""

    tape: Tape


class _Play(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Context, handle: Tensor, tape: Tape, packed: Packed) -> Tensor:
        ctx.tape = tape
        return tape.forward(packed)

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[None, None, None]:
        ctx.tape.backward(grad)
        return None, None, None


class Player:
    """A model's vectors in a task's loss; passes over packs of a size that came before replay a CUDA graph.

    usual: tokens of a sequence on average, where that is known; how many places a recording has must not hang on which
    pack came first, or a run that was resumed would round otherwise than one that was not.
    """

    def __init__(self, model: nn.Module, usual: float = 0.0) -> None:
        self.model, self.usual = model, usual
        self.tapes: dict[int, list[Tape]] = {}  # by size, one for each pass of a step
        self.seen: set[int] = set()
        self.used: list[Tape] = []  # in this step
        self.resting = False
        self.handle = torch.zeros((), requires_grad=True)

    def forget(self) -> None:
        """Drops all recordings: other weights learn from now on, or memory is short."""
        self.tapes, self.used = {}, []

    def begin(self, resting: bool = False) -> None:
        """A step begins; resting: nothing is played, since a recording of each part would need the memory of all."""
        self.used, self.resting = [], resting

    def __call__(self, packed: Packed, rows: Tensor | None = None) -> Tensor:
        """As the model's own."""
        learns = self.model.training and torch.is_grad_enabled() and not self.resting
        tape = self._tape(packed) if learns else None
        if tape is None:
            return self.model(packed, rows)  # type: ignore[no-any-return]
        self.used.append(tape)
        x_TD: Tensor = _Play.apply(self.handle, tape, packed) if tape.learning else tape.forward(packed)  # type: ignore[no-untyped-call]
        return x_TD if rows is None else x_TD.index_select(0, rows)

    def _tape(self, packed: Packed) -> Tape | None:
        tokens, turn = len(packed.ids), len(self.used)
        if tokens not in self.seen:  # the first goes as it is: an odd one is not worth a recording
            self.seen.add(tokens)
            return None
        if tokens not in self.tapes and len(self.tapes) >= SIZES:
            return None
        tapes = self.tapes.setdefault(tokens, [])
        if turn < len(tapes) and not tapes[turn].takes(packed):
            del tapes[turn:]
        if turn == len(tapes):
            tapes.append(self._recorded(packed))
        return tapes[turn] if turn < len(tapes) else None

    def _recorded(self, packed: Packed) -> Tape:
        devices = [packed.ids.device] if packed.ids.is_cuda else []
        with torch.random.fork_rng(devices):  # what is drawn for a recording must not change what comes after
            return Tape(self.model, packed, self._places(packed))

    def _places(self, packed: Packed) -> int:
        least = len(packed.boundaries) - 1
        usual = len(packed.ids) / self.usual if self.usual else least
        return -(-int(max(SPARE * usual, least)) // ROUND) * ROUND + ROUND

    def gradients(self) -> dict[int, Tensor]:
        """Of the weights that learn, by their places among them: those that this step's passes made, in float32."""
        if not self.used:
            return {}
        first, *others = self.used
        for other in others:
            torch._foreach_add_(first.grads, other.grads)
        return dict(zip(first.learning, first.grads, strict=True))
