"""Shards with marked words in; a vocabulary of whole words, and the same texts as rows of their numbers, out.

A shard keeps tokens, and where words begin. A word is the run of tokens from one mark to the next, so whole words are
had without reading the texts again: 国王 is one word here and two tokens there. Word vectors are compared with people's
judgements of words, which is why they need this. Words that are rare, hold an unknown token or have neither letter nor
digit are left out of the texts, as word2vec leaves them out: their neighbours become neighbours.

Legend: T tokens of a shard, W words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.random import generator
from filbert.pack.stretches import Places, Text
from filbert.text.tokenizer import Tokenizer

LONGEST = 64  # tokens that a word may have
SLAB = 2**20  # tokens looked at together, and the rest of the last word
# A word's number before it has one: Σ (token + 1)·R^place modulo 2^64. Two of ten million words share one by a chance
# of 3 in a million.
POWERS = np.cumprod(np.full(LONGEST, generator(0, "lexicon").integers(2**63, dtype=np.uint64) | np.uint64(1)))

Prints = npt.NDArray[np.uint64]


class Vocabulary(Protocol):
    """A tokenizer or a `WordVocabulary`: how many ids there are, and which of them are no words."""

    @property
    def vocab_size(self) -> int:
        """V."""
        ...

    @property
    def special_ids(self) -> tuple[int, ...]:
        """[UNK] and the like."""
        ...


@dataclass(frozen=True, eq=False)
class WordVocabulary:
    """Whole words, the most frequent first; stands where a tokenizer does for a task that asks its size alone."""

    words: tuple[str, ...]
    counts: Places  # [V] how often each stands in the shards that it was made from
    prints: Prints = field(repr=False)  # [V] sorted
    order: Places = field(repr=False)  # [V] the word that each of them is of
    special_ids: tuple[int, ...] = ()

    @property
    def vocab_size(self) -> int:
        """V."""
        return len(self.words)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Each word's number."""
        return {word: at for at, word in enumerate(self.words)}

    def texts(self, shards: Sequence[Text]) -> list[WordText]:
        """The shards, word by word."""
        return [WordText(shard, self) for shard in shards]


@dataclass(frozen=True, eq=False)
class WordText:
    """A shard (pack.stretches.Text) whose tokens are whole words of a vocabulary; made when it is first looked at."""

    shard: Text
    vocabulary: WordVocabulary

    @cached_property
    def _arrays(self) -> tuple[npt.NDArray[np.uint32], Places, Places]:
        ids, starts = [], []
        for begins, prints in _slabs(self.shard):
            at = np.searchsorted(self.vocabulary.prints, prints).clip(max=self.vocabulary.vocab_size - 1)
            is_known = self.vocabulary.prints[at] == prints
            ids.append(self.vocabulary.order[at[is_known]].astype(np.uint32))
            starts.append(begins[is_known])
        places = np.concatenate([np.zeros(0, np.int64), *starts])
        # Texts and sentences of which no word is left are none.
        documents, sentences = (
            np.unique(np.searchsorted(places, np.asarray(edges)))
            for edges in (self.shard.documents, self.shard.sentences)
        )
        return np.concatenate([np.zeros(0, np.uint32), *ids]), documents, sentences

    @property
    def ids(self) -> npt.NDArray[np.uint32]:
        """[W]."""
        return self._arrays[0]

    @property
    def words(self) -> npt.NDArray[np.uint8]:
        """[W] 1: each is a word."""
        return np.ones(self.num_tokens, dtype=np.uint8)

    @property
    def documents(self) -> Places:
        """[documents + 1] where each begins, and W."""
        return self._arrays[1]

    @property
    def sentences(self) -> Places:
        """[sentences + 1] where each begins, and W."""
        return self._arrays[2]

    @property
    def num_tokens(self) -> int:
        """W."""
        return len(self.ids)


class _Counted(NamedTuple):
    """Words by their prints, each once: how often they stand in the shards, and one place of each."""

    prints: Prints  # [W] sorted
    counts: Places  # [W]
    where: Places  # [W, 2] the number of a shard, and a token of it at which the word begins


def word_vocabulary(
    shards: Sequence[Text], tokenizer: Tokenizer, min_count: int = 5, most: int = 1_000_000
) -> WordVocabulary:
    """The words that stand in the shards at least so often, at most so many; ties in the order of their letters."""
    counted = _Counted(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros((0, 2), np.int64))
    for number, shard in enumerate(shards):
        for begins, prints in _slabs(shard):
            distinct, first, counts = np.unique(prints, return_index=True, return_counts=True)
            where = np.stack([np.full(len(distinct), number), begins[first]], axis=1)
            counted = _merged(counted, _Counted(distinct, counts, where))
    kept = np.flatnonzero(counted.counts >= min_count)
    named: dict[str, tuple[int, int]] = {}  # should two runs of tokens spell one word, the more frequent stands for it
    for at in kept[np.argsort(-counted.counts[kept], kind="stable")]:
        word = _spelled(shards, counted.where[at], tokenizer)
        if any(map(str.isalnum, word)):
            named.setdefault(word, (-int(counted.counts[at]), int(at)))
    if not named:
        raise InputError(f"no word stands in these texts {min_count} times; take more text, or a smaller min_count.")
    words = tuple(sorted(named, key=lambda word: (named[word][0], word))[:most])
    rows = np.array([named[word][1] for word in words])
    order = np.argsort(counted.prints[rows])
    return WordVocabulary(words, counted.counts[rows], counted.prints[rows][order], order)


def _slabs(shard: Text) -> Iterator[tuple[Places, Prints]]:
    """Where each word begins and its print, some million tokens at a time; words beyond LONGEST tokens are left out."""
    marks, ids, num_tokens = shard.words, shard.ids, shard.num_tokens
    at = 0
    while at < num_tokens:
        end = min(at + SLAB, num_tokens)
        while end < num_tokens and not marks[end]:
            end += 1
        begins = np.flatnonzero(marks[at:end])  # the first is 0: every shard, and so every slab, begins with a word
        sizes = np.diff(begins, append=end - at)
        places = np.arange(end - at) - np.repeat(begins, sizes)
        values = (ids[at:end].astype(np.uint64) + np.uint64(1)) * POWERS[places.clip(max=LONGEST - 1)]
        prints = np.add.reduceat(values, begins)
        fits = sizes <= LONGEST
        yield begins[fits] + at, prints[fits]
        at = end


def _merged(one: _Counted, two: _Counted) -> _Counted:
    """Counts of the same print added up; where it was first seen is kept."""
    prints = np.concatenate([one.prints, two.prints])
    order = np.argsort(prints, kind="stable")
    begins = np.flatnonzero(np.diff(prints[order], prepend=~prints[order][:1]))
    counts = np.add.reduceat(np.concatenate([one.counts, two.counts])[order], begins)
    where = np.concatenate([one.where, two.where])[order[begins]]
    return _Counted(prints[order[begins]], counts, where)


def _spelled(shards: Sequence[Text], where: Places, tokenizer: Tokenizer) -> str:
    """The word that stands there, as its tokens spell it; nothing where one is unknown."""
    shard, begin = shards[where[0]], int(where[1])
    end = begin + 1
    while end < shard.num_tokens and not shard.words[end]:
        end += 1
    tokens = [int(token) for token in shard.ids[begin:end]]
    if not set(tokens).isdisjoint(tokenizer.special_ids):
        return ""
    return "".join(tokenizer.vocabulary[token].removeprefix("##") for token in tokens)
