"""An encoder in; one whose vectors are the outputs of all its layers, side by side, out.

Legend: T tokens in the pack, D width of a layer.
A task asks a model for the vectors of a pack, makes of them what it needs (the mean of a text, the tokens that each
window owns) and gives that to its head. Here a vector has every layer's, side by side, and a head is the identity.
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
    """A head that returns its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(0))  # heads are asked for their precision by it

    def forward(self, x: Tensor) -> Tensor:
        """The same."""
        return x


class _Kept(threading.local):
    """The layers' outputs of a pass, of each thread by itself; None while none is wanted."""

    kept: list[Tensor] | None = None


class Hidden(nn.Module):
    """An encoder whose vectors are its layers' side by side: first the embeddings, last what the encoder itself gives.

    So the last layer is taken behind the final norm, where there is one. What is kept on the way is kept by thread,
    since the engine lets several work on one encoder.
    """

    def __init__(self, backbone: Encoder) -> None:
        super().__init__()
        self.backbone, self.config, self.widths = backbone, backbone.config, tuple[int, ...]()
        self.heads = nn.ModuleDict({"labels": Echo(), "tokens": Echo()})
        self._of_thread = _Kept()

    def forward(self, packed: Packed, rows: None = None) -> Tensor:
        """[T, ΣD]."""
        kept: list[Tensor] = []
        self._of_thread.kept = kept
        try:
            final_TD = self.backbone(packed)
        finally:
            self._of_thread.kept = None
        if not self._mixes:
            kept.append(final_TD)
        self.widths = tuple(each.shape[-1] for each in kept)
        return torch.cat([each.float() for each in kept], dim=-1)

    @property
    def width(self) -> int:
        """The numbers of a vector, all layers' together; known once something was read."""
        return sum(self.widths)

    @property
    def _mixes(self) -> bool:
        """Whether the encoder hands its layers to a mix of them (ELMo): what arrives there are the layers."""
        return self.backbone.mixes

    def _keep(self, _module: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
        kept = self._of_thread.kept
        if kept is not None:  # else another thread's use of the same encoder, which is none of ours
            kept.append(output[0] if isinstance(output, tuple) else output)  # a HAN's level gives scores as well

    def _keep_mixed(self, _module: nn.Module, inputs: tuple[Sequence[Tensor], ...]) -> None:
        kept = self._of_thread.kept
        if kept is not None:
            kept.extend(inputs[0])

    def hooks(self) -> list[RemovableHandle]:
        """Forward hooks on the encoder's stages; the caller removes them."""
        pieces = dict(self.backbone.named_children())
        if self._mixes:
            return [pieces["mix"].register_forward_pre_hook(self._keep_mixed)]
        stages = [pieces["embeddings"], *self.backbone.stack]
        return [stage.register_forward_hook(self._keep) for stage in stages[:-1]]


@contextmanager
def every_layer(backbone: Encoder) -> Iterator[Hidden]:
    """The encoder that gives all layers' outputs within the block; its hooks are removed afterwards."""
    hidden = Hidden(backbone)
    hooks = hidden.hooks()
    try:
        yield hidden
    finally:
        for hook in hooks:
            hook.remove()
