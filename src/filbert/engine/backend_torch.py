"""Encodings in any order and of any lengths in; packed into batches, their vectors in that order out.

Legend: T tokens in the pack, B sequences, D width.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from filbert.core import stopping
from filbert.core.errors import InputError
from filbert.core.records import Encoding, Floats, Packed
from filbert.engine.threads import Done, Progress, check_finite, each, not_finite
from filbert.nn.attention import batch_tensors, tensors
from filbert.nn.encoder import Encoder
from filbert.nn.torch_ops import TorchHost
from filbert.pack.lay import bins, pack
from filbert.tasks.task import AnyItems

# Tokens in one pack. Measured (experiments/2026-11-16-cpu-encoding.md): below 1,000 the matrix products lose speed,
# above 8,000 the activations leave the caches. On a GPU a pack must fill the machine.
CPU_BUDGET, CUDA_BUDGET = 4_096, 65_536

Take = Callable[[Packed, Tensor | None], Tensor]  # a pack, and which tokens count, in; [B, D] out
Kept = Sequence[npt.NDArray[np.bool_]]

# On a CPU one single-threaded worker per core beats one worker of many threads; what a worker sets holds for it alone.
SINGLE_THREADED = functools.partial(torch.set_num_threads, 1)

if hasattr(os, "register_at_fork"):  # a forked process has none of torch's threads, and would wait for them for ever
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


class Engine:
    """An encoder on a device, fed with full packs."""

    has_torch = True

    def __init__(self, backbone: Encoder, device: str = "cpu", budget: int | None = None) -> None:
        self.backbone, self.device = backbone.to(device).eval(), device
        backbone.register_forward_hook(_finite)  # whoever asks it: the tasks do so themselves
        self.budget = budget or (CUDA_BUDGET if device.startswith("cuda") else CPU_BUDGET)
        self.on_progress: Progress | None = None  # called while `answers` works, also within one long text

    def first(self, sequences: Sequence[Encoding]) -> Floats:
        """The last layer's vector of each sequence's first token ([CLS]), [B, D]; that layer does nothing else."""

        def take(packed: Packed, _: Tensor | None) -> Tensor:
            return self.backbone(packed, "first")  # type: ignore[no-any-return]

        return self._run(sequences, take)

    def mean(self, sequences: Sequence[Encoding], kept: Kept | None = None) -> Floats:
        """The mean of each sequence's token vectors, [B, D]; with `kept`, of those tokens only."""

        def take(packed: Packed, counted: Tensor | None) -> Tensor:
            hidden_TD = self.backbone(packed)
            if counted is not None:
                hidden_TD = hidden_TD * counted[:, None]
            lengths = torch.tensor(packed.lengths, device=hidden_TD.device)
            totals = lengths if counted is None else torch.segment_reduce(counted, "sum", lengths=lengths)
            return torch.segment_reduce(hidden_TD, "sum", lengths=lengths) / totals[:, None]

        return self._run(sequences, take, kept)

    def summaries(self, sequences: Sequence[Encoding]) -> Floats:
        """The vector that the model itself makes of each sequence, [B, D] (models.han)."""
        if not self.backbone.sums_up:
            raise InputError("pool is own, but this model has no such way to sum a text up; take mean or cls.")

        def take(packed: Packed, _: Tensor | None) -> Tensor:
            return self.backbone.summary(packed)

        return self._run(sequences, take)

    def rows(self, sequence: Encoding, places: npt.NDArray[np.intp]) -> Tensor:
        """The last layer's vectors of some tokens of one sequence, [R, D], on the device."""
        packed, _ = pack([sequence])
        with torch.inference_mode():
            wanted = torch.as_tensor(places, device=self.device)
            return self.backbone(tensors(packed, self.device), wanted)  # type: ignore[no-any-return]

    def pooled(self, first_BD: Floats) -> Floats:
        """BERT's tanh layer on first vectors, [B, D]."""
        with torch.inference_mode():
            first = torch.as_tensor(first_BD, device=self.device)
            return self.backbone.pooled(first).float().cpu().numpy()

    @property
    def fills(self) -> bool:
        """Whether it has a head for masked words."""
        return self.backbone.fills

    def word_scores(self, sequence: Encoding, places: npt.NDArray[np.intp]) -> Floats:
        """Scores over the vocabulary for some tokens of one sequence, [R, V]."""
        stopping.current().check()
        with torch.inference_mode():
            return self.backbone.word_scores(self.rows(sequence, places)).float().cpu().numpy()

    def answers(self, task: AnyItems) -> list[Any]:
        """The raw output of a task's head for each of its items, in order, computed as in training."""
        lengths, host = task.lengths.tolist(), TorchHost(self.backbone)
        out: list[Any] = [None] * len(lengths)

        def answer_group(group: list[int]) -> None:
            batch = batch_tensors(task.batch(np.asarray(group)), self.device)
            with torch.inference_mode():
                for index, answer in zip(group, task.raw(host, batch), strict=True):
                    check_finite(answer)
                    out[index] = answer

        threads = torch.get_num_threads() if self.device == "cpu" else 1
        with _followed(self.backbone, sum(lengths), self.on_progress):
            each(answer_group, list(bins(lengths, self.budget))[::-1], threads, SINGLE_THREADED)
        return out

    def _run(self, sequences: Sequence[Encoding], take: Take, kept: Kept | None = None) -> Floats:
        out = np.empty((len(sequences), self.backbone.width), dtype=np.float32)
        groups = list(bins([len(s) for s in sequences], self.budget))

        def run_group(group: list[int]) -> None:
            packed, starts = pack([sequences[i] for i in group])
            # The pack holds its sequences in order of their starts.
            order = np.asarray(group)[np.argsort(starts, kind="stable")]
            counted = None if kept is None else np.concatenate([kept[i] for i in order]).astype(np.float32)
            with torch.inference_mode():
                flags = None if counted is None else torch.as_tensor(counted, device=self.device)
                out[order] = take(tensors(packed, self.device), flags).float().cpu().numpy()

        threads = torch.get_num_threads() if self.device == "cpu" else 1
        # The longest first: no worker is left alone with them at the end.
        each(run_group, groups[::-1], threads, SINGLE_THREADED)
        return out


@contextlib.contextmanager
def _followed(backbone: Encoder, num_tokens: int, on_progress: Progress | None) -> Iterator[None]:
    """Calls `on_progress` during the block as each layer is done: a long text is one pack, and takes its time."""
    layers = max((m for m in backbone.modules() if isinstance(m, torch.nn.ModuleList)), key=len, default=())
    if on_progress is None or not len(layers):
        yield
        return
    done = Done(num_tokens * len(layers), on_progress)

    def count(_: nn.Module, inputs: tuple[object, ...], __: object) -> None:
        done.add(len(inputs[0]) if inputs and isinstance(inputs[0], Tensor) else 0)

    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _finite(module: nn.Module, inputs: object, vectors: object) -> None:
    """Refuses vectors that are not finite, before a head makes answers of them that look like any others."""
    if not isinstance(vectors, Tensor) or not vectors.is_floating_point():
        return
    detached = vectors.detach()  # their sum tells in one pass; only a sum that is not finite needs a second
    if not (math.isfinite(detached.sum(dtype=torch.float32).item()) or detached.isfinite().all()):
        raise not_finite()
