"""Every head in one record: its tensors and their shapes, its module, and what it computes, with torch or NumPy.

Legend: T tokens in the pack, X rows of vectors, D width, V vocabulary, L labels, K inner width of the pointer, J tokens
that a stretch may have, C kinds.

What a head computes is a function over `nn.ops.Ops`: torch modules call it, and so does a folder that runs without
torch. Heads of tasks stand here, or come with a task from outside (`TaskSpec.heads`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import numpy as np

from filbert.core import registry
from filbert.core.errors import InputError, one_of
from filbert.nn.ops import A, Numbers, Ops

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, ...]
INNER, THETA = 64, 10_000.0  # of the pointer: the width of its questions and keys, and how fast they are turned
NO_POOLER = "this model folder has no pooler; use pool='cls' or 'mean', or fine-tune one."
NO_MASKED_HEAD = "this model folder has no masked-language-model head, so it cannot fill in blanks."
NO_PAIR_HEAD = "this model has no head for next-sentence prediction; pretrain one: --objective mlm+nsp."


class Applied(Protocol):
    """What a head makes of vectors [X, D], by its tensors."""

    def __call__(self, xp: Ops[A], weights: Mapping[str, A], x: A) -> A:
        """[X, outputs]."""
        ...


def linear(xp: Ops[A], weights: Mapping[str, A], x: A) -> A:
    """x·Wᵀ + b."""
    return xp.linear(x, weights["weight"], weights.get("bias"))


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """A head that a task reads a model's vectors by.

    shapes: (width, labels) -> the shape of each tensor. build: (width, labels) -> its module; a head without one of
    its own gets a module that holds these tensors and calls `apply`. theirs: the names that transformers has for its
    tensors, where the model has a pooler if `needs_pooler`; empty: only filbert has it.
    """

    part: str
    shapes: Callable[[int, int], Mapping[str, Shape]]
    apply: Applied = linear
    build: Callable[[int, int], nn.Module] | None = None
    theirs: str = ""
    needs_pooler: bool = False
    architecture: str = ""  # transformers' class of a BERT with it, less `BertFor`
    lacks: str = "transformers has no such head; export it as onnx"  # and why it may have none, and what to do then

    def module(self, width: int, labels: int) -> nn.Module:
        """A fresh one."""
        if self.build is not None:
            return self.build(width, labels)
        shapes = self.shapes(width, labels)
        if self.apply is linear and set(shapes) == {"weight", "bias"}:
            from torch import nn

            outputs, inputs = shapes["weight"]
            return nn.Linear(inputs, outputs)
        from filbert.nn.encoder import Head

        return Head(self, width, labels)


def _sized(outputs: int = 0, times: int = 1) -> Callable[[int, int], Mapping[str, Shape]]:
    """The shapes of a linear map from `times` vectors to so many outputs; 0: one for each label."""

    def shapes(width: int, labels: int) -> Mapping[str, Shape]:
        rows = outputs or labels
        return {"weight": (rows, times * width), "bias": (rows,)}

    return shapes


def _crf_shapes(width: int, labels: int) -> Mapping[str, Shape]:
    return {"transitions": (labels, labels), "begin": (labels,), "end": (labels,)}


def _crf(width: int, labels: int) -> nn.Module:
    from filbert.nn.crf import CRF

    return CRF(labels)


def _pointer_shapes(width: int, labels: int) -> Mapping[str, Shape]:
    sizes = {"edges": (2 * INNER, width), "kinds": (2 * labels, 2 * INNER)}
    weights = {f"{name}.weight": size for name, size in sizes.items()}
    return weights | {f"{name}.bias": size[:1] for name, size in sizes.items()}


def _pointer(width: int, labels: int) -> nn.Module:
    from filbert.nn.pointer import Pointer

    return Pointer(width, labels)


LABELS = HeadSpec(
    part="labels",
    shapes=_sized(),
    theirs="classifier",
    needs_pooler=True,
    architecture="SequenceClassification",
    lacks="transformers reads a text's label from [CLS] through a pooler, and this model from the mean of all tokens; "
    "fine-tune with task.pool=cls",
)
TOKENS = HeadSpec(part="tokens", shapes=_sized(), theirs="classifier", architecture="TokenClassification")
CRF = HeadSpec(
    part="crf",
    shapes=_crf_shapes,
    build=_crf,
    lacks="transformers has no CRF: it would give each token's label by itself; fine-tune with task.decoder=softmax",
)
POINTER = HeadSpec(
    part="pointer",
    shapes=_pointer_shapes,
    build=_pointer,
    lacks="transformers has no head that scores spans; fine-tune with task.decoder=softmax",
)
SPAN = HeadSpec(part="span", shapes=_sized(2), theirs="qa_outputs", architecture="QuestionAnswering")
CHOICE = HeadSpec(
    part="choice",
    shapes=_sized(1),
    theirs="classifier",
    needs_pooler=True,
    architecture="MultipleChoice",
    lacks="transformers scores an option from [CLS] through a pooler, and this model from the mean of all tokens; "
    "fine-tune with task.pool=cls",
)
RELATION = HeadSpec(
    part="relation",
    shapes=_sized(times=2),
    lacks="transformers has no head for two mentions of a text; export it as onnx",
)

HEADS: Mapping[str, HeadSpec] = MappingProxyType(
    {head.part: head for head in (LABELS, TOKENS, CRF, POINTER, SPAN, CHOICE, RELATION)}
)


@cache
def every() -> Mapping[str, HeadSpec]:
    """Every head by its part's name: ours, and those that tasks from outside bring."""
    brought = {head.part: head for name in registry.outside_tasks() for head in registry.task(name).heads}
    if taken := sorted(brought.keys() & HEADS.keys()):
        raise InputError(f"a task from outside brings the head {taken[0]!r}, but there is one of that name already.")
    return MappingProxyType({**HEADS, **brought})


def ordered_parts(parts: Iterable[str], model: str, of_model: tuple[str, ...]) -> tuple[str, ...]:
    """These parts in the order in which a model has them; an unknown one is refused. of_model: parts of this model."""
    order = ("pooler", *of_model, *every())
    for part in (wanted := tuple(parts)):
        if part not in order:
            raise one_of(f"a part of {model}", part, order)
    return tuple(part for part in order if part in wanted)


# What heads compute ---------------------------------------------------------------------------------------------------


def masked_words(xp: Ops[A], weights: Mapping[str, A], x: A, activation: str, eps: float) -> A:
    """Scores over the vocabulary, [X, V]; `words` is the word table, which the output weights are (tied)."""
    x = xp.activation(activation, xp.linear(x, weights["dense.weight"], weights.get("dense.bias")))
    x = xp.layer_norm(x, weights["norm.weight"], weights.get("norm.bias"), eps)
    return xp.linear(x, weights["words"], weights["bias"])


def pointer(xp: Ops[A], weights: Mapping[str, A], x_TD: A, positions_T: A, reach: int) -> A:
    """[T, J, C] in float32: cell (i, d, c) is of the stretch from token i to token i + d, both counted (nn.pointer)."""
    edges_TX = xp.linear(x_TD, weights["edges.weight"], weights["edges.bias"])
    kinds_TX = xp.float32(xp.linear(edges_TX, weights["kinds.weight"], weights["kinds.bias"]))
    edges_TX, num_kinds = xp.float32(edges_TX), kinds_TX.shape[-1] // 2
    angles = _angles(xp, positions_T)
    q_TK, k_TK = (_turned(xp, edges_TX[:, side], angles) for side in (slice(None, INNER), slice(INNER, None)))
    pair_TJ = (q_TK[:, None] @ xp.ahead(k_TK, reach))[:, 0] * INNER**-0.5
    begins_TC, ends_TC = kinds_TX[:, :num_kinds], kinds_TX[:, num_kinds:]
    scores_TJC: A = pair_TJ[:, :, None] + begins_TC[:, None] + xp.ahead(ends_TC, reach).swapaxes(1, 2)
    return scores_TJC


def _angles(xp: Ops[A], positions_T: A) -> tuple[A, A]:
    """cos and sin, each [T, K], of how far each pair (i, i + K/2) is turned at each place (nn.positions.Rotary)."""
    half: Numbers = np.arange(0, INNER, 2).astype(np.float32) / np.float32(INNER)
    rate = (np.float32(1) / np.float32(THETA) ** half).astype(np.float32)
    angle_TK = xp.float32(positions_T)[:, None] * xp.at(np.tile(rate, 2), positions_T)
    return xp.turn(angle_TK)


def _turned(xp: Ops[A], x_TK: A, angles: tuple[A, A]) -> A:
    half = INNER // 2
    aside_TK = xp.concatenate((-x_TK[:, half:], x_TK[:, :half]))
    turned_TK: A = x_TK * angles[0] + aside_TK * angles[1]
    return turned_TK
