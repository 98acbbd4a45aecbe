"""Records and protocols that models, tasks and word segmenters share: items, batches, terms of a loss.

A model turns a pack into one vector per token and knows nothing of tasks. A task turns data into items and a
model's vectors into terms or predictions, and knows nothing of how the vectors came about. They meet in `train` and
`engine`. BERT with MLM+NSP and word2vec with skip-grams both fit; so do classify and answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from filbert.core.records import Array, Encoding, Packed

if TYPE_CHECKING:
    from filbert.nn.encoder import Encoder


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


@dataclass(frozen=True, slots=True)
class Term:
    """A sum over things and how many there were: a loss to descend (its name ends in `_loss`) or a number for the log.

    The mean is taken by the loop, over every part of a step and every rank: how a step is split changes nothing.
    """

    total: Array  # a scalar
    count: Array | int


@dataclass(frozen=True, slots=True)
class Decisions:
    """A head's scores of a batch, in a shape by which two models can be compared (teach.losses).

    Tasks that can be distilled give it (`decisions(model, batch)`), and before any work over how many things a
    comparison sums (`num_decisions(batch)`), as `counts` does for a loss.
    """

    kind: str  # one: each row chooses among its scores | among: neighbours choose among themselves, in each column |
    # several: every score is a yes or no | number: every score is one | vector: each row is one | chain: a CRF's
    scores: Array
    where: Array | None = None  # which rows (or cells, or groups of neighbours) count; all
    sizes: Array | None = None  # of neighbours; of a chain, on the host; of vectors, the group that each is in
    head: Any = None  # makes scores of rows of `scores` where these are vectors, since all at once would be too many
    chain: Any = None  # the CRF


class Objective(Enum):
    """What a model learns from plain text: its file and the task that teaches it name the same one."""

    MASKED_WORDS = "masked words"
    NEXT_WORDS = "the next word"
    NEAR_WORDS = "words by those around them"
    WORD_COUNTS = "how often words stand near each other"


class Plan(Protocol):
    """What an epoch holds, before anything is built: lengths to fill batches by, and orders to build a batch from."""

    @property
    def lengths(self) -> Any:
        """[N] tokens of each item."""
        ...

    def orders(self, indices: npt.NDArray[np.int64]) -> Any:
        """What `Task.batch` needs to build these items, in any process."""
        ...


class Task(Protocol):
    """An objective over data it holds: MLM+NSP, skip-grams, classification, answers (tasks.task.Items).

    `pack.batches.OneByOne` makes `plan` and `batch` of a task that builds its items one by one.
    """

    @property
    def one_graph(self) -> bool:
        """Whether all of the loss may stand in one compiled graph."""
        ...

    @property
    def longest(self) -> int:
        """Tokens of a sequence at most, where a graph is compiled or recorded; 0: nothing bounds them."""
        ...

    @property
    def window_tokens(self) -> Array:
        """Tokens of each sequence, where they are known; else empty."""
        ...

    def __len__(self) -> int:
        """How many items an epoch has."""
        ...

    def plan(self, epoch: int) -> Plan:
        """Lengths of all items of an epoch, and orders to build any of them from, in whatever process."""
        ...

    def batch(self, orders: Any, budget: int | None = None) -> Batch:
        """These items packed, with their targets; with `budget` every array but the boundaries is of one size."""
        ...

    def counts(self, batch: Batch) -> Mapping[str, float]:
        """Over how many things each loss of this batch sums, known before it is computed: {"mlm_loss": 312, …}."""
        ...

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """The terms: those whose names end in `_loss` are descended, each as its mean; the others are logged."""
        ...

    def derived(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """What follows from the mean terms of an evaluation, such as a perplexity."""
        ...


@runtime_checkable
class Segmenter(Protocol):
    """Text in, words out: their concatenation is the text, so a word's place is known without searching."""

    def __call__(self, text: str) -> Iterable[str]:
        """The words in order, white space included as words of its own."""
        ...
