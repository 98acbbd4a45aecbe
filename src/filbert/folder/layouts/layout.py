"""A kind of published folder (its `model_type`) in one record: what its fields, tensors and classes are called.

No torch. Each kind is a file here that holds a `LAYOUT`; all of them are shapes of `models.bert`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.core.files import Json
from filbert.nn.heads import HEADS, every

if TYPE_CHECKING:
    from filbert.models.bert import Config

Names = Iterator[tuple[str, tuple[str, ...]]]  # our tensor, and theirs that make it up, one laid under another
Evidence = Mapping[str, str | tuple[str, ...]]
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}
KINDS = ("bert", "distilbert", "electra", "ernie", "modernbert")  # that are read and written: files here
PASSED_OVER = ("position_ids", "embeddings.token_type_ids")  # counters that old folders stored as if they were learnt
MODEL = "Model"  # how the class without a head ends


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What transformers calls what one kind of model has.

    shape: fields of our config that all of the kind share. usual: what transformers takes for a number that a folder
    leaves out, by our names. fixed: fields that change the arithmetic, and the one value that we compute. written:
    fields that are written unless the folder that was read said otherwise. encoder, heads: our tensors' names and
    theirs, those of heads for the parts that a model has. evidence: how the names of a head's tensors begin, which
    shows that it is there. classifiers: how tensors begin that may be of several heads, whose class says of which.
    """

    kind: str  # model_type
    classes: Mapping[str, tuple[str, ...]]  # transformers' classes, and the parts that each has
    prefix: str  # of the encoder's tensors, where a head stands beside it
    shape: Mapping[str, Any]
    usual: Mapping[str, Any]
    numbers: Mapping[str, str]  # their whole numbers, and ours
    dropout: str
    eps: str = ""  # without it, `usual` has the only one
    activation: str = ""  # without it, `shape` has the only feed-forward
    fixed: Mapping[str, Any]
    written: Mapping[str, Any]
    fields: Callable[[Config], dict[str, Any]]  # further ones, which follow from the shape
    check: Callable[[Path, Json, dict[str, Any]], None] | None = None  # refuses, or adds to the shape, what is left
    also: tuple[str, ...] = ()  # fields that `check` reads
    encoder: Callable[[Config], Names]
    heads: Callable[[tuple[str, ...]], Names]
    words: str  # the word table, without the prefix
    beside: tuple[str, ...]  # how the names of tensors begin that stand beside the encoder, without its prefix
    evidence: Callable[[], Evidence]
    tied: Mapping[str, str]  # copies that some folders carry along, and what they must be equal to
    classifiers: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)  # how tensors begin that are not read, and what they are
    renamed: Mapping[str, str] = field(default_factory=dict)  # the ends of tensors' names in old folders, and today's

    @property
    def field_names(self) -> set[str]:
        """The fields of config.json that are used here, or refused by their value."""
        return {self.dropout, self.eps, self.activation, *self.numbers, *self.fixed, *self.also} - {""}

    @property
    def bare(self) -> str:
        """The class without a head."""
        return next(name for name in self.classes if name.endswith(MODEL))

    def holds(self, config: Config) -> bool:
        """Whether a model of that shape is of this kind."""
        values = vars(config)
        fits = all(values[name] == value for name, value in self.shape.items())
        is_whole = all(values[name] for name in self.numbers.values())
        return fits and is_whole and (not self.activation or config.feedforward in ACTIVATIONS.values())

    def names(self, config: Config, parts: tuple[str, ...]) -> Names:
        """Our tensors and theirs, without the prefix before the encoder's."""
        yield from self.encoder(config)
        yield from self.heads(parts)

    def class_of(self, parts: Iterable[str]) -> str:
        """The class that has those heads; where several heads are there, the task's comes first."""
        have = set(parts)
        order = sorted(self.classes.items(), key=lambda each: (not {*each[1]} & HEADS.keys(), -len(each[1])))
        return next(name for name, parts_of in order if have >= set(parts_of))

    def is_passed_over(self, name: str) -> bool:
        """Whether a tensor, by its name of today, is read nowhere."""
        return name.endswith(PASSED_OVER) or name.startswith(tuple(self.left))

    def today(self, name: str) -> str:
        """A tensor's name without the encoder's prefix, in today's words."""
        name = name.removeprefix(self.prefix)
        for old, new in self.renamed.items():
            name = name.replace(old, new)
        return name


@cache
def layout(kind: str) -> Layout:
    """The layout of a kind, imported when it is asked for: an answer needs one of them."""
    record: Layout = importlib.import_module(f"filbert.folder.layouts.{kind}").LAYOUT
    return record


def both(ours: str, *theirs: str) -> Names:
    """Weight and bias."""
    for kind in ("weight", "bias"):
        yield f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in theirs)


def layers(config: Config, home: str, tensors: Mapping[str, tuple[str, ...]]) -> Names:
    """Weights and biases of each layer, which transformers keeps under home.INDEX: {ours: theirs} of one of them."""
    for index in range(config.layers):
        for ours, theirs in tensors.items():
            yield from both(f"layers.{index}.{ours}", *(f"{home}.{index}.{name}" for name in theirs))


def task_heads(parts: tuple[str, ...]) -> Names:
    """The tensors of heads of tasks, as a class with a `classifier` or `qa_outputs` has them; else under our names.

    transformers' classifiers read the pooler; a head that does not must not be taken for one (it passes over it).
    """
    specs = every()
    for part in parts:
        if part in specs:
            head = specs[part]
            is_theirs = head.theirs and ("pooler" in parts or not head.needs_pooler)
            theirs = head.theirs if is_theirs else f"filbert.heads.{part}"
            for name in head.shapes(1, 2):
                yield f"heads.{part}.{name}", (f"{theirs}.{name}",)


def classes(family: str) -> dict[str, tuple[str, ...]]:
    """Those of a family that has BERT's for tasks, and one for masked words."""
    of_tasks = {
        f"{family}For{head.architecture}": (*(("pooler",) if head.needs_pooler else ()), part)
        for part, head in HEADS.items()
        if head.architecture
    }
    return {f"{family}ForMaskedLM": ("mlm",), **of_tasks, f"{family}{MODEL}": ()}


def of_tasks() -> dict[str, str]:
    """How the names of tensors of heads of tasks begin; a `classifier` does not say whose it is."""
    return {
        part: f"{head.theirs}." if head.theirs and not head.needs_pooler else f"filbert.heads.{part}."
        for part, head in every().items()
        if head.theirs != "classifier" or head.needs_pooler
    }
