"""What every encoder is: its config, its width, its parts and the heads that tasks read it by.

Legend: T tokens in the pack, R rows asked for, B sequences, D width.
An encoder keeps its weights under `embeddings` (depth 0), `layers.0`, `layers.1`, … and `final_norm`; all else counts
as a head (train.tune): so a part of any encoder can be frozen, thawed, or given a rate of its own.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy.typing as npt
import torch
from torch import Tensor, nn

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Objective
from filbert.core.records import Packed
from filbert.nn.heads import NO_MASKED_HEAD, NO_POOLER, HeadSpec, every, ordered_parts
from filbert.nn.torch_ops import TORCH


class Shape(Protocol):
    """What the config of every encoder has."""

    @property
    def vocab_size(self) -> int:
        """V, the tokens of its vocabulary."""
        ...

    @property
    def width(self) -> int:
        """D, the numbers of a vector."""
        ...

    @property
    def max_length(self) -> int:
        """Tokens of a sequence at most."""
        ...

    @property
    def dropout(self) -> float:
        """The share of numbers that are dropped while it learns."""
        ...


C = TypeVar("C", bound=Shape)
E = TypeVar("E", bound="Encoder")


def as_is(config: C, vocabulary: Sequence[str]) -> C:
    """Nothing of the shape follows from the tokens."""
    return config


class GraphBuilder(Protocol):
    """What a model builds its ONNX graph with (ship.encoder); values have names, `ids` and `positions` are inputs."""

    config: Any

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """What an operator gives."""
        ...

    def constant(self, value: npt.ArrayLike, kind: type = ...) -> str:
        """A small array."""
        ...

    def looked_up(self, name: str, index: str) -> str:
        """Rows of a table of the model."""
        ...

    def linear(self, x: str, name: str) -> str:
        """x·Wᵀ + b by the model's tensors of that name."""
        ...

    def norm(self, x: str, name: str) -> str:
        """The layer norm by the model's tensors of that name."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSpec(Generic[C]):
    """The record of a model; `name` is that of its file, or of its entry point."""

    name: str
    config: type[C]  # frozen, keyword-only, checked when made
    presets: Mapping[str, C]
    model: Callable[[C, tuple[str, ...], int], Encoder]  # of a config, the parts asked for and a number of labels
    objective: Objective | None = None  # what it learns from plain text; None: it learns from examples alone
    rate: float | None = None  # of fine-tuning; None: by its width
    train: Mapping[str, object] = field(default_factory=dict)  # what pretraining it takes for fields of `train` …
    task: Mapping[str, object] = field(default_factory=dict)  # … and of its task, where nobody says otherwise
    writes: bool = False  # it can be trained to translate, summarise and chat
    first_reads_all: bool = False  # its first token has read the whole text: it can be asked for all of it
    own_parts: tuple[str, ...] = ()  # the parts that it alone has
    fit: Callable[[C, Sequence[str]], C] = as_is  # what the shape takes from the vocabulary
    shapes: Callable[[C, tuple[str, ...], int], Mapping[str, tuple[int, ...]]] | None = None  # of its tensors

    graph: Callable[[GraphBuilder], str] | None = None  # its ONNX graph: the name of [T, D] all tokens' vectors

    def preset(self, name: str, vocab_size: int) -> C:
        """The preset of that name for a vocabulary of that size."""
        if name not in self.presets:
            raise one_of(f"the {self.name} preset", name, self.presets)
        return replace(self.presets[name], vocab_size=vocab_size)  # type: ignore[type-var]


class Head(nn.Module):
    """The module of a head that its record alone defines: its tensors, and what they make of vectors."""

    def __init__(self, spec: HeadSpec, width: int, labels: int) -> None:
        super().__init__()
        self.spec = spec
        for name, shape in spec.shapes(width, labels).items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
            if len(shape) > 1:
                nn.init.normal_(self.get_parameter(name), std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """[X, outputs]."""
        return self.spec.apply(TORCH, dict(self.named_parameters()), x)


def made(width: int, parts: Sequence[str], labels: int) -> nn.ModuleDict:
    """The task heads among these parts, by name; `labels` sizes them."""
    specs = every()
    return nn.ModuleDict({part: specs[part].module(width, labels) for part in specs if part in parts})


def standing_in(model: E, forward: Callable[..., Tensor]) -> E:
    """A model of the same weights and modules, whose vectors come another way; nothing is copied but the shell."""
    made = copy.copy(model)
    made.forward = forward
    made._forward_pre_hooks, made._forward_hooks = OrderedDict(), OrderedDict()  # the model's own are called by itself
    return made


class Encoder(nn.Module):
    """A model of the family: a pack in, one vector per token out.

    A subclass builds its `embeddings` and `layers`, defines `forward(packed, rows)`, and names in `own_parts` what only
    it has, such as the head that it is pretrained with.
    """

    own_parts: ClassVar[tuple[str, ...]] = ()
    steady: ClassVar[bool] = False  # a GPU's work hangs on a pack's size and boundaries alone: it can be recorded
    mixes: ClassVar[bool] = False  # its vectors are a learnt mix of all layers (`mix`)
    has_levels: ClassVar[bool] = False  # it attends to words, then to sentences (`attention_of`)
    sums_up: ClassVar[bool] = False  # it has a way of its own from words to a text (`summary`)
    directions: ClassVar[tuple[str, ...]] = ()  # in which it predicts neighbouring words: forward, backward
    spells: ClassVar[bool] = False  # it reads its tokens by their characters, which it gets by `spell`
    config: Shape
    pooler: nn.Linear | None
    heads: nn.ModuleDict

    def __init__(self, config: Shape, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__()
        self.config = config
        self.parts, self.width = ordered_parts(parts, type(self).__name__.lower(), self.own_parts), int(config.width)

    @property
    def fills(self) -> bool:
        """Whether it has a head for masked words."""
        return "mlm" in self.parts

    @property
    def writes(self) -> bool:
        """Whether it has a decoder."""
        return "writer" in self.parts

    @property
    def is_post_norm(self) -> bool:
        """Whether each layer's sum is normed behind it, as in the first BERT."""
        return False

    @property
    def stack(self) -> tuple[nn.Module, ...]:
        """Its layers, the lowest first; none of a table of words."""
        return tuple(layer for name, each in self.named_children() if name == "layers" for layer in each.children())

    def add_heads(self, labels: int) -> None:
        """Builds the requested pooler and task heads; a subclass calls it, at a fixed place in the order of draws."""
        self.pooler = nn.Linear(self.width, self.width) if "pooler" in self.parts else None
        self.heads = made(self.width, self.parts, labels)

    def pooled(self, first_BD: Tensor) -> Tensor:
        """tanh of a learned map of each sequence's first vector, [B, D]."""
        if self.pooler is None:
            raise InputError(NO_POOLER)
        return torch.tanh(self.pooler(first_BD))

    def word_scores(self, x_RD: Tensor) -> Tensor:
        """Scores over the vocabulary for the given vectors, [R, V]."""
        raise InputError(NO_MASKED_HEAD)

    def summary(self, packed: Packed) -> Tensor:
        """[B, D] each sequence summed up by the model's own way (models.han)."""
        raise InputError("task.pool is own, but this model has no such way to sum a text up; take mean or cls.")

    def both_ways(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """[T, D] of each direction of a model with two."""
        raise NotImplementedError(f"{type(self).__name__} does not read in two directions")

    def spell(self, vocabulary: Sequence[str]) -> None:
        """Gives the model the spelling of its tokens; most have no use for it."""
