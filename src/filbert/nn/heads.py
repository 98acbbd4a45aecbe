"""What every encoder shares: its width and the parts asked for in, the heads that tasks read its vectors by out.

Legend: T tokens in the pack, B sequences, D width.
An encoder keeps its weights under `embeddings` (depth 0), `layers.0`, `layers.1`, … and `final_norm`; all else counts
as a head (train.tune): so a part of any encoder can be frozen, thawed, or given a rate of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from filbert.core.errors import InputError, one_of
from filbert.nn.crf import CRF
from filbert.nn.pointer import INNER, Pointer

HEADS = ("labels", "tokens", "crf", "pointer", "span", "choice", "relation")  # of tasks, in their order


def shapes(width: int, labels: int = 2) -> dict[str, dict[str, tuple[int, ...]]]:
    """The tensors of every task head and their shapes."""
    sizes = {
        "labels": (labels, width), "tokens": (labels, width), "span": (2, width), "choice": (1, width),
        "relation": (labels, 2 * width),
    }  # fmt: skip
    found: dict[str, dict[str, tuple[int, ...]]] = {
        part: {"weight": size, "bias": size[:1]} for part, size in sizes.items()
    }
    found["crf"] = {"transitions": (labels, labels), "begin": (labels,), "end": (labels,)}
    pointer = {"edges": (2 * INNER, width), "kinds": (2 * labels, 2 * INNER)}
    found["pointer"] = {f"{name}.weight": size for name, size in pointer.items()}
    found["pointer"] |= {f"{name}.bias": size[:1] for name, size in pointer.items()}
    return found


def made(width: int, parts: tuple[str, ...], labels: int) -> nn.ModuleDict:
    """The task heads among these parts, by name; `labels` sizes them."""
    return nn.ModuleDict({part: _head(width, part, labels) for part in parts if part in HEADS})


def _head(width: int, part: str, labels: int) -> nn.Module:
    if part == "crf":
        return CRF(labels)
    if part == "pointer":
        return Pointer(width, labels)
    outputs, inputs = shapes(width, labels)[part]["weight"]
    return nn.Linear(inputs, outputs)


class Encoder(nn.Module):
    """A model of the family: `config`, `width`, the parts it was asked for, a pooler and task heads.

    A subclass builds its `embeddings` and `layers`, says `forward(packed, rows)`, and names in `own` the parts that it
    alone has, such as the head that it is pretrained with.
    """

    own: tuple[str, ...] = ()

    def __init__(self, config: Any, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__()
        known = ("pooler", *self.own, *HEADS)
        for part in parts:
            if part not in known:
                raise one_of(f"a part of {type(self).__name__.lower()}", part, known)
        self.config, self.parts, self.width = config, tuple(p for p in known if p in parts), int(config.width)
        self.pooler = nn.Linear(self.width, self.width) if "pooler" in parts else None
        self.heads = made(self.width, self.parts, labels)

    def pooled(self, first_BD: Tensor) -> Tensor:
        """tanh of a learned map of each sequence's first vector, [B, D]."""
        if self.pooler is None:
            raise InputError("this model folder has no pooler; use pool='cls' or 'mean', or fine-tune one.")
        return torch.tanh(self.pooler(first_BD))
