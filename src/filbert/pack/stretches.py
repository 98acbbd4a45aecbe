"""Documents as token arrays in, an epoch's stretches or pairs of stretches out: where each begins and ends.

A round is what is planned at once: some shards of a corpus. All documents are cut in step, so a plan of a million
stretches takes a second. Every token of a round is in exactly one stretch; cuts fall between sentences wherever a
sentence fits, else between words wherever a word fits, and differ from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from filbert.core.random import Keys, keys, uniforms

Places = npt.NDArray[np.int64]
OBJECTIVES = ("mlm+nsp", "mlm+sop", "mlm")
FOLLOWS, RANDOM, NOTHING = 0, 1, -100  # the published labels of a pair: 0 is "follows", 1 is "random" (or swapped)
LEAST = 4  # tokens that a deliberately short stretch has at least
SECTION = 2**14  # tokens of a very long document that are cut in step with the rest of it


class Text(Protocol):
    """A shard: token ids, where words begin, and the token places where documents and sentences begin and the end."""

    @property
    def ids(self) -> Any:
        """[T]."""
        ...

    @property
    def words(self) -> Any:
        """[T]."""
        ...

    @property
    def documents(self) -> Any:
        """[documents + 1]."""
        ...

    @property
    def sentences(self) -> Any:
        """[sentences + 1]."""
        ...

    @property
    def num_tokens(self) -> int:
        """T."""
        ...


class Round:
    """Shards seen as one row of tokens; places count through all of them."""

    def __init__(self, shards: Sequence[Text]) -> None:
        self.shards = list(shards)
        self.bases = np.cumsum([0, *(shard.num_tokens for shard in shards)])
        self.documents = self._edges("documents")
        self.sentences = self._edges("sentences")

    def _edges(self, name: str) -> Places:
        parts = [np.asarray(getattr(s, name))[:-1] + base for s, base in zip(self.shards, self.bases, strict=False)]
        return np.concatenate([*parts, self.bases[-1:]]).astype(np.int64)

    def gathered(self, name: str, places: Places) -> npt.NDArray[Any]:
        """`ids` or `words` at these places."""
        if len(self.shards) == 1:
            return np.asarray(getattr(self.shards[0], name)[places])
        which = np.searchsorted(self.bases, places, side="right") - 1
        values = np.empty(len(places), dtype=getattr(self.shards[0], name).dtype)
        for shard in np.unique(which):
            here = which == shard
            values[here] = getattr(self.shards[shard], name)[places[here] - self.bases[shard]]
        return values

    def word_edges(self, lowest: Places, places: Places, highest: Places) -> Places:
        """Where a word begins: the nearest down to `lowest`, else the nearest up to `highest`, else -1."""
        edges = np.full(len(places), -1)
        for step, last in ((-1, lowest), (1, highest)):
            at, looking = places.copy(), np.flatnonzero(edges < 0)
            while len(looking):
                begins = self.gathered("words", at[looking]) > 0
                edges[looking[begins]] = at[looking[begins]]
                looking = looking[~begins & (at[looking] != last[looking])]
                at[looking] += step
        return edges


class Turn(NamedTuple):
    """One stretch of each document or section, before it is divided into two parts."""

    keys: Keys
    documents: Places
    number: int  # of this turn, from 0
    start: Places
    stop: Places
    room: Places  # tokens that each may have


@dataclass(frozen=True, slots=True)
class Stretches:
    """An epoch: each item's first part, its second (empty where there is none), their relation and own number."""

    first: Places  # [N]
    first_end: Places
    second: Places
    second_end: Places
    labels: Places  # FOLLOWS, RANDOM or NOTHING
    examples: Places  # [N] what randomness is keyed by
    specials: int  # [CLS] and [SEP] of each item

    @property
    def lengths(self) -> Places:
        """Tokens of each item, special ones included."""
        return self.first_end - self.first + self.second_end - self.second + self.specials

    def orders(self, indices: Places) -> Stretches:
        """These items alone."""
        first, first_end = self.first[indices], self.first_end[indices]
        second, second_end = self.second[indices], self.second_end[indices]
        labels, examples = self.labels[indices], self.examples[indices]
        return Stretches(first, first_end, second, second_end, labels, examples, self.specials)


def stretches(text: Round, objective: str, max_length: int, short_prob: float, seed: int, epoch: int) -> Stretches:
    """The epoch's plan."""
    specials = 2 if objective == "mlm" else 3
    at, ends, documents = _sections(text)
    active = np.flatnonzero(at < ends)
    section_keys = keys(seed, "stretches", epoch, np.arange(len(at)))
    room = np.full(len(at), max_length - specials, dtype=np.int64)
    # The first stretch of a long document has less room by chance, so that cuts fall elsewhere in every epoch.
    first_room = LEAST + ((room - LEAST + 1) * uniforms(section_keys, 0)).astype(np.int64)
    first_room = np.where(ends - at <= room, room, first_room)
    pieces: list[tuple[Places, ...]] = []
    turn = 0
    while len(active):
        key, here, end = section_keys[active], at[active], ends[active]
        wide = np.where(turn == 0, first_room[active], room[active])
        short = uniforms(key, 8 * turn + 1) < short_prob
        wide = np.where(short, LEAST + ((wide - LEAST + 1) * uniforms(key, 8 * turn + 2)).astype(np.int64), wide)
        # A stretch that is short by chance still holds its first sentence whole, and some room beside it.
        sentence = text.sentences[np.searchsorted(text.sentences, here, side="right")] - here
        whole = np.minimum(sentence + LEAST, room[active])
        wide = np.where(sentence <= room[active], np.maximum(wide, whole), wide)
        stop = _between_sentences(text, here, np.minimum(here + wide, end))
        if objective == "mlm":
            pieces.append((here, stop, stop, stop, np.full(len(here), NOTHING)))
            at[active] = stop
        else:
            pair = _pairs(text, objective, Turn(key, documents[active], turn, here, stop, wide))
            pieces.append(pair)
            # What a random second part displaced is read in the next stretch: nothing is passed over.
            at[active] = np.where(pair[4] == RANDOM, pair[1], stop) if objective == "mlm+nsp" else stop
        active = active[at[active] < end]
        turn += 1
    columns = (
        [np.concatenate(column) for column in zip(*pieces, strict=True)] if pieces else [np.zeros(0, np.int64)] * 5
    )
    first, first_end, second, second_end, labels = columns
    return Stretches(first, first_end, second, second_end, labels, np.arange(len(first)), specials)


def _sections(text: Round) -> tuple[Places, Places, Places]:
    """Where cutting begins and ends, and in which document: all of it, or a section where it is very long.

    Else the stretches of a corpus that is one document would be found one by one.
    """
    marks = text.sentences[np.searchsorted(text.sentences, np.arange(0, text.bases[-1], SECTION))]
    owners = np.searchsorted(text.documents, marks, side="right") - 1
    is_long = np.diff(text.documents, append=0)[owners] > SECTION
    starts = np.union1d(text.documents[:-1], marks[is_long])
    ends = np.append(starts[1:], text.documents[-1:])
    return starts, ends, np.searchsorted(text.documents, starts, side="right") - 1


def _between_sentences(text: Round, start: Places, limit: Places) -> Places:
    """The last sentence edge up to `limit`; where one sentence fills all the room, the last word edge; else `limit`."""
    stop = text.sentences[np.searchsorted(text.sentences, limit, side="right") - 1]
    lone = np.flatnonzero(stop <= start)
    edge = text.word_edges(start[lone] + 1, limit[lone], limit[lone])
    stop[lone] = np.where(edge < 0, limit[lone], edge)
    return stop


def _pairs(text: Round, objective: str, turn: Turn) -> tuple[Places, ...]:
    """Each stretch as two parts and their relation."""
    key, documents, number, start, stop, room = turn
    draw = [uniforms(key, 8 * number + place) for place in range(3, 8)]
    low = np.searchsorted(text.sentences, start, side="right")
    high = np.searchsorted(text.sentences, stop, side="left")
    has_edge = high > low
    edge = text.sentences[np.minimum(low + (draw[0] * (high - low)).astype(np.int64), np.maximum(high - 1, 0))]
    if objective == "mlm+sop":
        cut, swapped = np.where(has_edge, edge, stop), has_edge & (draw[1] < 0.5)
        label = np.where(has_edge, np.where(swapped, RANDOM, FOLLOWS), NOTHING)
        first, first_end = np.where(swapped, cut, start), np.where(swapped, stop, cut)
        second, second_end = np.where(swapped, start, cut), np.where(swapped, cut, stop)
        return first, first_end, second, second_end, label
    # A lone sentence is cut between two words, so that half of its pairs are true ones too.
    cut, size = np.where(has_edge, edge, -1), stop - start
    lone = np.flatnonzero(~has_edge & (size > 1))
    low, high, inside = start[lone] + 1, stop[lone] - 1, (draw[0] * (size - 1)).astype(np.int64)[lone]
    cut[lone] = text.word_edges(low, low + inside, high)
    follows = (cut >= 0) & (draw[1] < 0.5)
    # With a part from elsewhere, a lone sentence stays whole but for what the second needs.
    alone = _between_sentences(text, start, np.minimum(stop, start + np.maximum(room - 2, 1)))
    first_end = np.where(follows | has_edge, cut, alone)
    other = (draw[2] * (len(text.documents) - 2)).astype(np.int64)
    other += other >= documents  # never the same document
    low = np.searchsorted(text.sentences, text.documents[other], side="left")
    high = np.searchsorted(text.sentences, text.documents[other + 1], side="left")
    begin = text.sentences[low + (draw[3] * (high - low)).astype(np.int64)]
    limit = np.minimum(begin + room - (first_end - start), text.documents[other + 1])
    second_end = _between_sentences(text, begin, limit)
    label = np.where(follows, FOLLOWS, RANDOM)
    return start, first_end, np.where(follows, cut, begin), np.where(follows, stop, second_end), label
