"""Documents in; the shards that pretraining reads, on disk or in memory, and a vocabulary of them, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from filbert.builtin.texts import sample
from filbert.corpus.shards import Options, Shard, build
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import train


def built_in(every: int = 1) -> list[str]:
    """Each so manieth of the documents that ship."""
    return [("" if document.language == "zh" else " ").join(document.sentences) for document in sample()][::every]


def tokenizer_of(texts: Sequence[str], size: int) -> Tokenizer:
    """One trained on these texts."""
    return Tokenizer(train(texts, size=size).tokens)


def shards_of(texts: Sequence[str], tokenizer: Tokenizer, folder: Path, shard_tokens: int = 2**24) -> list[Shard]:
    """The texts as shards in that folder, nothing kept back."""
    source = folder / "corpus.txt"
    source.write_text("\n\n".join(texts), encoding="utf-8")
    options = Options(held=0, shard_tokens=shard_tokens)
    return build(source, tokenizer, folder / "shards", options, workers=1).train.shards


@dataclass(frozen=True)
class Row:
    """A shard in memory, each token a word; sentences are documents, or end after so many tokens as well."""

    ids: npt.NDArray[np.int64] | npt.NDArray[np.uint16]
    documents: npt.NDArray[np.int64]
    sentence: int = 0

    @property
    def words(self) -> npt.NDArray[np.uint8]:
        """Where words begin."""
        return np.ones(len(self.ids), np.uint8)

    @property
    def sentences(self) -> npt.NDArray[np.int64]:
        """Where sentences begin, and the end."""
        if not self.sentence:
            return self.documents
        return np.unique(np.concatenate([self.documents, np.arange(0, len(self.ids), self.sentence)]))

    @property
    def num_tokens(self) -> int:
        """Of all documents."""
        return len(self.ids)


@dataclass(frozen=True)
class Words:
    """Ids that are words, but for the first, which is special."""

    vocab_size: int
    special_ids: tuple[int, ...] = (0,)
