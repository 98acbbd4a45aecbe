"""What every layer makes of a text: an encoder of the family in, one whose vectors are all its layers' out.

Legend: T tokens in the pack, D width of a layer.
A task asks a model for the vectors of a pack, makes of them what it needs (the mean of a text, the tokens that each
window owns) and gives that to its head. Here a vector is every layer's, side by side, and a head says what it is given.
So one forward pass, and the task's own windows and pooling, serve all layers: `engine.answers(task)` gives features.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from filbert.core.records import Packed
from filbert.nn.encoder import Encoder


class Echo(nn.Module):
    """A head that says what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(0))  # heads are asked for their precision by it

    def forward(self, x: Tensor) -> Tensor:
        """The same."""
        return x


class Kept(threading.local):
    """What this thread's run of an encoder leaves; None: it is none of ours."""

    layers: list[Tensor] | None = None


class Hidden(Encoder):
    """An encoder whose vectors are its layers' side by side: first the embeddings, last what the encoder itself gives.

    So the last layer is taken behind the final norm, where there is one. What is kept on the way is kept by thread,
    since the engine lets several work on one encoder.
    """

    def __init__(self, backbone: Encoder) -> None:
        super().__init__(backbone.config)
        self.backbone, self.pooler = backbone, None
        self.widths: tuple[int, ...] = ()  # known once something was read
        self.heads = nn.ModuleDict({"labels": Echo(), "tokens": Echo()})
        self._kept = Kept()

    def forward(self, packed: Packed, rows: None = None) -> Tensor:
        """[T, ΣD]."""
        kept: list[Tensor] = []
        self._kept.layers = kept
        try:
            final_TD = self.backbone(packed)
        finally:
            self._kept.layers = None
        if not self.backbone.mixes:  # else what arrives at the mix are the layers
            kept.append(final_TD)
        self.widths = tuple(each.shape[-1] for each in kept)
        self.width = sum(self.widths)
        return torch.cat([each.float() for each in kept], dim=-1)

    def _keep(self, _module: nn.Module, _given: object, made: Tensor | tuple[Tensor, ...]) -> None:
        kept = self._kept.layers
        if kept is not None:  # else another thread's use of the same encoder, which is none of ours
            kept.append(made[0] if isinstance(made, tuple) else made)  # a HAN's level gives scores as well

    def _keep_mixed(self, _module: nn.Module, inputs: tuple[Sequence[Tensor], ...]) -> None:
        kept = self._kept.layers
        if kept is not None:
            kept.extend(inputs[0])

    def hooks(self) -> list[RemovableHandle]:
        """What listens to the encoder until it is removed."""
        if self.backbone.mixes:
            return [self.backbone.get_submodule("mix").register_forward_pre_hook(self._keep_mixed)]
        stages = [self.backbone.get_submodule("embeddings"), *self.backbone.stack]
        return [stage.register_forward_hook(self._keep) for stage in stages[:-1]]


@contextmanager
def every_layer(backbone: Encoder) -> Iterator[Hidden]:
    """The encoder that gives all layers, as long as the block lasts; afterwards nothing listens to it any more."""
    hidden = Hidden(backbone)
    hooks = hidden.hooks()
    try:
        yield hidden
    finally:
        for hook in hooks:
            hook.remove()
