"""Texts in several scripts come in; shards in memory, made by the real tokenizer and segmenter, go out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from filbert.builtin.texts import sample
from filbert.corpus.writer import Cutter
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import train
from filbert.text.words import segmenter

LANGUAGES = ("zh", "en", "mixed")
ONE_IN_1000 = 3.0902  # a normal variable is above this once in a thousand times
AWKWARD = [
    "好。",
    "a",
    "他用iPhone15拍了unaffordable的photo，真的playing得很好！",
    "Σίσυφος naïve Ünïcödé.",
    "𠀀𠀁𠀂 日本語のテキスト。 한국어 텍스트. ไทยไม่มีช่องว่าง",
    "🙂👩‍👩‍👧 \u200b\u00ad",
    "[MASK] [SEP] ##ing [UNK] 。",
    "…！？",
    " \t\u3000",
    "x" * 150 + " 中国人民银行行长周小川",
    "而且这句话没有标点一直说下去" * 12,
    "a sentence without any end that goes on and on " * 8,
    "unaffordableness" * 6,
]


@dataclass(frozen=True)
class Tokens:
    """A shard in memory."""

    ids: npt.NDArray[Any]
    words: npt.NDArray[Any]
    documents: npt.NDArray[np.int64]
    sentences: npt.NDArray[np.int64]

    @property
    def num_tokens(self) -> int:
        return len(self.ids)


@cache
def pool(language: str) -> tuple[str, ...]:
    """The documents of that language; "mixed" has sentences of both in every document."""
    if language != "mixed":
        space = "" if language == "zh" else " "
        return tuple(space.join(document.sentences) for document in sample(language))
    pairs = zip(sample("zh"), sample("en"), strict=False)
    return tuple("".join(f"{a}{b}" for a, b in zip(z.sentences, e.sentences, strict=False)) for z, e in pairs)


@cache
def tokenizer() -> Tokenizer:
    """One of 3,000 tokens, so that many words are of several pieces."""
    return Tokenizer(train([*pool("zh"), *pool("en")], size=3_000).tokens)


def tokens(texts: Sequence[str], marks: str = "auto") -> Tokens:
    """The texts as one shard; those without a token are left out, as the writer of shards does."""
    cut = Cutter(tokenizer(), segmenter(marks), None)(list(texts))
    return Tokens(cut.ids, cut.words, offsets(cut.document_sizes), offsets(cut.sentence_sizes))


@cache
def shard(language: str) -> Tokens:
    """All documents of a language."""
    return tokens(pool(language))


def made_up(document_sizes: Sequence[int], sentence: int = 12, seed: int = 0) -> Tokens:
    """Documents of these sizes with sentences of up to twice `sentence` tokens, and words of one token or more."""
    random = np.random.default_rng(seed)
    documents = offsets(document_sizes)
    total = int(documents[-1])
    cuts = np.cumsum(random.integers(1, 2 * sentence, size=total + 1))
    sentences = np.unique(np.concatenate([documents, cuts[cuts < total]]))
    words = (random.random(total) < 0.6).astype(np.uint8)
    words[sentences[:-1]] = 1
    return Tokens(random.integers(5, 3_000, size=total).astype(np.uint16), words, documents, sentences)


def offsets(sizes: Sequence[int] | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@st.composite
def shards(draw: st.DrawFn) -> Tokens:
    """Two documents or more: sentences of the pools beside awkward ones, in any script."""
    pieces = st.one_of(
        st.sampled_from(AWKWARD),
        st.sampled_from([document[:60] for language in LANGUAGES for document in pool(language)[:40]]),
        st.text(st.characters(codec="utf-8"), max_size=12),
    )
    texts = draw(st.lists(st.lists(pieces, max_size=6).map("".join), max_size=6))
    return tokens(["第一篇。Two words.", "second document", *texts])


def assert_as_expected(seen: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Pearson's chi-square test; what would come about by chance less than once in a thousand times is refused."""
    statistic = float(((seen - expected) ** 2 / expected).sum())
    free = len(seen) - 1
    spread = 2 / (9 * free)
    critical = free * (1 - spread + ONE_IN_1000 * spread**0.5) ** 3  # Wilson and Hilferty, 1931
    assert statistic < critical, (statistic, critical, seen.tolist(), expected.tolist())
    return statistic
