"""Words that stand near each other: a corpus as token arrays in, logarithms of counts to fit out (GloVe's objective).

The loss of a pair of words is f(x)·(w·c + b + b' - log x)², with x how often they stand together, f(x) = (x / x_max)^α
or 1 where that is more (Pennington et al. 2014, eq. 8 and 9). Text is read once, to count; an epoch goes once through
all counts that are not 0. Texts may be rows of tokens or of whole words (corpus.word_vocab).

Legend: E entries (pairs of words) of the batch, N items.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Item, Term
from filbert.core.random import generator
from filbert.core.records import Encoding
from filbert.corpus.cooccurrence import entries
from filbert.corpus.word_vocab import Vocabulary
from filbert.pack.lay import row
from filbert.pack.stretches import Places, Text
from filbert.tasks import task
from filbert.tasks.cooccurrence.spec import Config

if TYPE_CHECKING:
    from torch import Tensor

    from filbert.nn.encoder import Encoder

ITEM = 32  # entries of an item, from all over the table: plans stay small however large it is


@dataclass(frozen=True, slots=True)
class Plan:
    """An epoch's items, or some of them."""

    epoch: int
    items: Places
    num_entries: int  # of the table

    @property
    def lengths(self) -> Places:
        """[N] two tokens for each entry."""
        return 2 * np.minimum(ITEM, self.num_entries - self.items * ITEM)

    def orders(self, indices: Places) -> Plan:
        """What `Task.batch` needs for these."""
        return Plan(self.epoch, self.items[indices], self.num_entries)


class LogCounts(Protocol):
    """A model that learns from such counts."""

    def log_counts(self, words_E: Tensor, contexts_E: Tensor) -> Tensor:
        """[E] the logarithm of how often each of these words has that context."""
        ...


class Items(task.Items[Config]):
    """Weighted least squares on the logarithms of counts; an item is some entries of the table."""

    parts = ("biases",)  # of a model that can be trained by it
    longest = 2 * ITEM

    def __init__(self, shards: Sequence[Text], tokenizer: Vocabulary, config: Config) -> None:
        self.config = config
        self.entries = entries(shards, tokenizer.vocab_size, config.window, tokenizer.special_ids)
        if not len(self.entries):
            raise InputError("no two words of this corpus stand near each other, so there is nothing to count.")

    def __len__(self) -> int:
        return (len(self.entries) + ITEM - 1) // ITEM

    def plan(self, epoch: int) -> Plan:
        """All items."""
        return Plan(epoch, np.arange(len(self)), len(self.entries))

    def item(self, index: int, epoch: int) -> Item:
        """One item; the same for the same (seed, epoch, index), whoever asks."""
        batch = self.batch(self.plan(epoch).orders(np.array([index])))
        nothing = np.zeros_like(batch.packed.ids)
        return Item((Encoding(batch.packed.ids, nothing, nothing, nothing, nothing),), batch.targets)

    def places(self, plan: Plan) -> Places:
        """[E] the entries of these items: a walk through the table in steps of about a golden section of it.

        The step differs from epoch to epoch and has no common divisor with the table's size: each entry is met once,
        and those of an item come from all over the table, without a permutation that would be as large as the table.
        """
        size, random = plan.num_entries, generator(self.config.seed, "entries", plan.epoch)
        begin, step = int(random.integers(size)), int(size * (0.55 + 0.1 * random.random())) + 1
        while math.gcd(step, size) > 1:
            step += 1
        turns = (plan.items[:, None] * ITEM + np.arange(ITEM)).ravel()
        entries: Places = (turns[turns < size] * step + begin) % size
        return entries

    def weight(self, counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """f of eq. 9: rare pairs are noisy, and the most frequent must not be all that matters."""
        return np.minimum(1.0, (counts / self.config.x_max) ** self.config.alpha)

    def batch(self, orders: Plan, budget: int | None = None) -> Batch:
        """Each item's words and then their contexts; with `budget`, arrays but the boundaries are of one size."""
        order = np.argsort(orders.lengths, kind="stable")
        orders = orders.orders(order)
        first, second, counts = self.entries.at(self.places(orders))
        sizes = orders.lengths // 2
        rows = np.arange(len(first)) + np.repeat(np.cumsum(sizes) - sizes, sizes)
        targets: dict[str, npt.NDArray[Any]] = {
            "word_rows": rows,
            "context_rows": rows + np.repeat(sizes, sizes),
            "log_counts": np.log(counts).astype(np.float32),
            # (i, j) and (j, i) are one entry and weigh double; a word near itself has one way round.
            "weights": (self.weight(counts) * np.where(first == second, 1, 2)).astype(np.float32),
        }
        ids = np.empty(2 * len(first), dtype=np.int32)
        ids[targets["word_rows"]], ids[targets["context_rows"]] = first, second
        if budget is not None:  # filled with entries that weigh nothing
            targets = {name: np.pad(values, (0, budget // 2 - len(first))) for name, values in targets.items()}
        packed = row(ids, None, orders.lengths, budget, self.longest)
        starts = np.empty(len(order), dtype=np.int64)
        starts[order] = packed.boundaries[: len(order)]
        return Batch(packed, starts, np.arange(len(order)), targets)

    def counts(self, batch: Batch) -> Mapping[str, float]:
        """What all entries weigh together: the loss is a mean of squared errors, each by its weight."""
        return {"count_loss": float(batch.targets["weights"].sum())}

    def loss(self, model: Encoder, batch: Batch) -> Mapping[str, Term]:
        """Σ f(x)·(w·c + b + b' - log x)² over all entries, both ways round."""
        targets, ids = batch.targets, batch.packed.ids
        words_E, contexts_E = ids[targets["word_rows"]], ids[targets["context_rows"]]
        glove: LogCounts = model  # type: ignore[assignment]
        errors_E = glove.log_counts(words_E, contexts_E).float() - targets["log_counts"]
        back_E = glove.log_counts(contexts_E, words_E).float() - targets["log_counts"]
        total = (targets["weights"] * (errors_E.square() + back_E.square())).sum() / 2
        return {"count_loss": Term(total, targets["weights"].sum())}
