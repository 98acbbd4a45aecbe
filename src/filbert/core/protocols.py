"""What models, tasks and word segmenters promise each other: the few shapes that everything hangs on.

A model turns a pack into one vector per token and knows nothing of tasks. A task turns data into items and a
model's vectors into a loss or predictions, and knows nothing of how the vectors came about. They meet in `run`
(training) and `infer` (answers). BERT with MLM+NSP and word2vec with skip-grams both fit; so do classify and answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from filbert.core.records import Array, Encoding, Packed


@dataclass(frozen=True, slots=True)
class Item:
    """One example ready to pack: one sequence, or several windows of a long text, and what is to be learnt.

    A target whose name ends in `_rows` holds token places, counted through the item's sequences laid end to end;
    packing moves them to where the tokens land. Any other target is carried as it is, one entry per item or row.
    """

    sequences: tuple[Encoding, ...]
    targets: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Batch:
    """Items packed together: the row of tokens, where each sequence begins in it, whose it is, and the targets."""

    packed: Packed
    starts: Array  # [B] first row of each sequence, in the order the items gave them
    owners: Array  # [B] index of the item that each sequence belongs to
    targets: Mapping[str, Array]


class Backbone(Protocol):
    """A model: tokens in, one vector per token out. `rows` asks for some tokens only, so the last layer can skip."""

    width: int

    def __call__(self, packed: Packed, rows: Array | None = None) -> Array:
        """[T, D], or [len(rows), D]."""
        ...


class Task(Protocol):
    """An objective over data it holds: MLM+NSP, skip-grams, classification, answers."""

    def __len__(self) -> int:
        """How many items an epoch has."""
        ...

    def item(self, index: int, epoch: int) -> Item:
        """The item of that index; every random choice in it is a function of (seed, epoch, index)."""
        ...

    def loss(self, model: Any, batch: Batch) -> tuple[Array, Mapping[str, float]]:
        """A scalar to descend, and numbers for the log."""
        ...


@runtime_checkable
class Segmenter(Protocol):
    """Text in, words out: their concatenation is the text, so a word's place is known without searching."""

    def __call__(self, text: str) -> Iterable[str]:
        """The words in order, white space included as words of its own."""
        ...
