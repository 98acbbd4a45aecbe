"""Texts, or pairs of them, as tokens and windows: what the tasks that read them share.

A text longer than `max_length` is read in overlapping windows (text.windows), [CLS] text [SEP] or [CLS] first [SEP]
second [SEP] each. A window owns some of the tokens that it reads, and each token is owned by one window.

Legend: U tokens of all texts, T tokens of a row, B sequences (windows), N examples, D width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from filbert.core.protocols import Batch, Item, Plan
from filbert.core.records import Array, Encoding, Example, Ints, Packed
from filbert.nn.ops import A, Host, Ops
from filbert.pack.cuts import Cuts, cuts
from filbert.pack.lay import Laid, Places, by_length, row
from filbert.tasks.task import Labelled, R, Reads
from filbert.text.tokenizer import Pieces, Tokenizer

ROUND = 32  # what bounds lengths in a compiled graph is a multiple of it, so that other data find the graph again

W = TypeVar("W", bound=Reads)


@dataclass(frozen=True, slots=True)
class ItemPlan:
    """The plan of a task of which every epoch has the same items: an item's order is its number."""

    lengths: npt.NDArray[np.int64]

    def orders(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The numbers themselves."""
        return indices


class Windowed(Labelled[W, R]):
    """Examples in windows: `tokens` of all texts end to end, and `cuts`, which of them each window reads."""

    ids: Ints
    cuts: Cuts
    mark_ids: Ints = np.zeros(0, dtype=np.int32)  # of tokens that mark a place in a text, and are never hidden
    mask_prob: float = 0.0  # share of tokens that are hidden behind [MASK] while a model learns

    def __init__(self, examples: Sequence[Example], labels: Sequence[str], tokenizer: Tokenizer, config: W) -> None:
        self.examples, self.labels, self.tokenizer, self.config = list(examples), tuple(labels), tokenizer, config

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def tokens(self) -> Ints:
        """[U] the tokens of all examples."""
        return self.ids

    def cut(self, texts: Sequence[tuple[str, ...]], overlap: int) -> Pieces:
        """Reads the texts as tokens and windows; all first texts, then all second ones."""
        count = len(texts)
        pieces = self.tokenizer.pieces([each[side] for side in range(self.num_texts) for each in texts])
        self.ids = np.asarray(pieces.ids, dtype=np.int32)
        bounds = np.asarray(pieces.boundaries, dtype=np.int64)
        second = bounds[count:] if self.num_texts == 2 else None
        self.take(cuts(bounds[: count + 1], second, self.config.max_length, overlap))
        return pieces

    def take(self, windows: Cuts) -> None:
        """The windows to read, and what follows from them."""
        self.cuts, self.shares, self.window_tokens = windows, windows.shares, windows.lengths
        longest = int(self.window_tokens.max(initial=1))
        self.longest = min(-(-longest // ROUND) * ROUND, max(longest, self.config.max_length))
        totals = np.concatenate(([0], np.cumsum(self.window_tokens)))
        self.lengths = np.diff(totals[windows.edges])

    def origins(self, example: Example) -> Places:
        """[U, 3] of items of this example alone, where each token stands: in which text (-1: none), start, end."""
        pieces = self.tokenizer.pieces(list(example.texts))
        texts = np.repeat(np.arange(len(example.texts)), np.diff(pieces.boundaries))
        return np.stack((texts, pieces.starts, pieces.ends), axis=1).astype(np.int64)

    def plan(self, epoch: int) -> Plan:
        """Every epoch has all examples."""
        return ItemPlan(self.lengths)

    # Batches ----------------------------------------------------------------------------------------------------------

    def windows_of(self, which: Places) -> Places:
        """[B] the windows of these examples, in order."""
        first = self.cuts.edges[which]
        return ranges(first, self.cuts.edges[which + 1] - first)

    def laid(self, which: Places, budget: int | None = None) -> Laid:
        """The windows of these examples packed by length, and the token in each row; filled up to `budget`."""
        chosen = self.windows_of(which)
        order = by_length(self.window_tokens[chosen])
        # Where the first text of a row's window ends in it, and which of the texts' tokens stands there.
        windows, owner, place = chosen[order.which], order.owner, order.place
        first, second = self.cuts.first[windows], self.cuts.second[windows]
        middle, last = (first[:, 1] - first[:, 0] + 1)[owner], (self.window_tokens[windows] - 1)[owner]
        begins = np.where(place > middle, second[owner, 0] - middle, first[owner, 0])
        is_text = (place > 0) & (place != middle) & (place != last)
        source = np.where(is_text, begins + place - 1, -1)
        ids = np.full(len(source), self.tokenizer.sep_id, dtype=np.int32)
        ids[place == 0] = self.tokenizer.cls_id
        ids[is_text] = self.ids[source[is_text]]
        bound = 0
        if budget is not None and len(ids) < budget:  # a text of many windows may have more: nothing is cut
            bound = max(int(order.lengths.max(initial=0)), self.longest)
        segments = (place > middle).astype(np.int32)
        packed = row(ids, segments, order.lengths, budget if bound else None, bound, self.tokenizer.pad_id)
        counts = self.cuts.edges[which + 1] - self.cuts.edges[which]
        return Laid(packed, order.starts, np.repeat(np.arange(len(which)), counts), source)

    def sources(self, which: Places) -> Places:
        """[rows] the place among `tokens` of each row of these examples' windows, window by window."""
        laid = self.laid(which)
        lengths = self.window_tokens[self.windows_of(which)]
        return laid.source[ranges(laid.starts, lengths)]

    def pooling(self, which: Places) -> dict[str, Array]:
        """Targets that say how the windows of these examples become one vector each.

        owned: [B, 5] places in each window, the start and end of what it owns of each text and the [SEP] between them.
        """
        chosen = self.windows_of(which)
        first, second = self.cuts.first[chosen], self.cuts.second[chosen]
        middle = first[:, 1:2] - first[:, :1] + 1
        first_owned, second_owned = first[:, 2:] - first[:, :1] + 1, second[:, 2:] - second[:, :1] + middle + 1
        return {
            "num_windows": self.cuts.edges[which + 1] - self.cuts.edges[which],
            "shares": self.shares[chosen].astype(np.float32),
            "owned": np.concatenate((first_owned, second_owned, middle), axis=1),
        }

    def item(self, index: int, epoch: int = 0) -> Item:
        """The windows of one example as sequences, and its targets."""
        batch = self.batch(np.array([index]))
        edges, ids = batch.packed.boundaries, batch.packed.ids
        rows = [ids[start : edges[np.searchsorted(edges, start, side="right")]] for start in batch.starts]
        return Item(tuple(_encoding(each) for each in rows), batch.targets)

    # A model's vectors ------------------------------------------------------------------------------------------------

    def read(self, host: Host[A], packed: Packed) -> Packed:
        """The pack as the model reads it: while it learns, some tokens are hidden."""
        if not self.mask_prob:
            return packed
        tokenizer = self.tokenizer
        never = (tokenizer.cls_id, tokenizer.sep_id, *self.mark_ids.tolist())
        return host.masked(packed, self.mask_prob, tokenizer.mask_id, never)

    @abstractmethod
    def batch(self, orders: Places, budget: int | None = None) -> Batch:
        """The windows of these examples packed by length, and their targets."""


def pooled(host: Host[A], packed: Packed, batch: Batch, pool: str, pooler: bool) -> A:
    """[N, D] in float32 one vector for each example: of [CLS], of all tokens, or the model's own way to sum up.

    Of several windows the mean, each weighing as many tokens as it owns; `pooler`: [CLS] goes through that part.
    """
    xp, targets = host.xp, batch.targets
    several = len(batch.starts) != len(targets["num_windows"])
    if pool == "own":
        window_BD = xp.float32(host.summary(packed)[xp.sequences(packed.boundaries, batch.starts)[1]])
    elif pool == "cls":
        first_BD = host.vectors(packed, batch.starts)
        window_BD = xp.float32(host.head("pooler", first_BD) if pooler else first_BD)
    else:
        window_BD = means(xp, xp.float32(host.vectors(packed)), packed, batch.starts, targets if several else None)
    if not several:
        return window_BD
    return xp.segment_sum(window_BD * targets["shares"][:, None], targets["num_windows"])


def means(xp: Ops[A], hidden_TD: A, packed: Packed, starts_B: A, targets: Mapping[str, Array] | None) -> A:
    """[B, D] the mean of each window's vectors: of all, or, with targets, of [CLS], [SEP] and the tokens it owns."""
    lengths, places = xp.sequences(packed.boundaries, starts_B)
    if targets is None:
        means_BD: A = xp.segment_sum(hidden_TD, lengths)[places] / lengths[places][:, None]
        return means_BD
    total = len(hidden_TD)
    owned_SX = xp.scattered(targets["owned"], places, len(lengths))
    owned_TX = xp.repeat(owned_SX, lengths, total)
    position = packed.positions[:total]
    last = xp.repeat(lengths - 1, lengths, total)
    counted = (position == 0) | (position == owned_TX[:, 4]) | (position == last)
    for column in (0, 2):
        counted = counted | ((position >= owned_TX[:, column]) & (position < owned_TX[:, column + 1]))
    counts = xp.segment_sum(xp.float32(counted), lengths)[places]
    chosen_BD: A = xp.segment_sum(hidden_TD * counted[:, None], lengths)[places] / counts[:, None]
    return chosen_BD


def ranges(first: Places, counts: Places) -> Places:
    """first[0], first[0]+1, … counts[0] of them, then those of first[1], and so on."""
    if (counts == 1).all():
        return first
    ends = np.cumsum(counts)
    places: Places = np.arange(int(ends[-1])) + np.repeat(first - (ends - counts), counts)
    return places


def _encoding(ids: Ints) -> Encoding:
    nowhere = np.zeros_like(ids)
    parts = nowhere.copy()
    parts[[0, -1]] = -1
    return Encoding(ids, nowhere, parts, nowhere, nowhere)
