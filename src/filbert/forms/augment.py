"""Labelled texts in, changed copies of them with the same labels out: words put in by a model, left out or exchanged.

Every copy is a function of (seed, way of change, copy, example): no order, worker or other example has a part in it.
Only data to learn from goes through here. Deletion and exchange are those of EDA (Wei & Zou 2019); words put in by the
model that was pretrained to do that are those of Wu et al. 2019, without the label in sight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from filbert.core.random import generator
from filbert.core.records import Encoding, Example
from filbert.text.tokenizer import Tokenizer, Tokens
from filbert.text.vocab import PREFIX
from filbert.text.windows import windowed

KINDS = ("replace", "delete", "swap")
OVERLAP = 64  # tokens that two windows of a long text share while words are put in
CHUNK = 2_048  # texts whose words are put in together

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Options:
    """How texts are changed: in which ways, how much of each, how many copies by each way."""

    kinds: tuple[str, ...]
    prob: float
    copies: int
    seed: int


class Fills(Protocol):
    """Puts words into windows: a pretrained model, which lives above this room."""

    max_length: int

    def __call__(
        self,
        windows: Sequence[Encoding],
        blanks: Sequence[Places],
        hidden: Sequence[npt.NDArray[np.int32]],
        drawn: Sequence[npt.NDArray[np.float64]],
    ) -> Sequence[Places]:
        """For each window the ids at its blanks, given what is hidden there and a draw from 0 up to 1 for each."""
        ...


def copies(examples: Sequence[Example], tokenizer: Tokenizer, how: Options, fill: Fills | None) -> list[Example]:
    """The changed copies of all examples, numbered on from them; one that came out as it went in is left out."""
    changed: list[Example] = []
    for kind in how.kinds:
        for copy in range(how.copies):
            for example, texts in _changed(kind, copy, examples, tokenizer, how, fill):
                if texts != example.texts:
                    changed.append(replace(example, texts=texts, id=len(examples) + len(changed)))
    return changed


def _changed(
    kind: str, copy: int, examples: Sequence[Example], tokenizer: Tokenizer, how: Options, fill: Fills | None
) -> Iterator[tuple[Example, tuple[str, ...]]]:
    """Every example and its changed texts."""
    continues = tokenizer.continues
    for begin in range(0, len(examples), CHUNK):
        some = examples[begin : begin + CHUNK]
        flat = [text for example in some for text in example.texts]
        randoms = [generator(how.seed, f"augment {kind}", copy, example.id) for example in some]
        each = [random for random, example in zip(randoms, some, strict=True) for _ in example.texts]
        tokens = list(tokenizer.pieces(flat))
        if kind == "replace":
            assert fill is not None, "words are put in by a model"
            changed = _replaced(flat, tokens, each, tokenizer, how.prob, fill)
        else:
            change = {"delete": deleted, "swap": swapped}[kind]
            changed = [
                change(text, units(words, continues), how.prob, random)
                for text, words, random in zip(flat, tokens, each, strict=True)
            ]
        left = iter(changed)
        for example in some:
            yield example, tuple(next(left) for _ in example.texts)


def units(tokens: Tokens, continues: npt.NDArray[np.bool_]) -> Places:
    """[N, 2] where the words of a text begin and end: tokens, with those that go on with the one before."""
    begins = np.flatnonzero(~continues[tokens.ids]) if len(tokens.ids) else np.zeros(0, dtype=np.int64)
    ends = np.append(begins[1:], len(tokens.ids)) - 1 if len(begins) else begins
    return np.stack([tokens.starts[begins], tokens.ends[ends]], axis=1).astype(np.int64)


def deleted(text: str, words: Places, prob: float, random: np.random.Generator) -> str:
    """The text without this share of its words, at least one; one stays."""
    gone = _chosen(len(words), prob, random, spare=1)
    return _spliced(text, words[gone], [""] * len(gone))


def swapped(text: str, words: Places, prob: float, random: np.random.Generator) -> str:
    """The text with this share of its words, at least one, exchanged with the next; what stands between them stays."""
    order = np.arange(len(words))
    for place in _chosen(len(words) - 1, prob, random).tolist():
        order[[place, place + 1]] = order[[place + 1, place]]
    return _spliced(text, words, [text[start:end] for start, end in words[order].tolist()])


def _chosen(size: int, prob: float, random: np.random.Generator, spare: int = 0) -> Places:
    """Some of so many places in order: the share, but one at least and `spare` fewer than all."""
    if size <= spare:
        return np.zeros(0, dtype=np.int64)
    count = min(max(round(prob * size), 1), size - spare)
    return np.sort(random.permutation(size)[:count])


def _spliced(text: str, places: npt.NDArray[np.integer], put: Sequence[str]) -> str:
    """The text with other characters at these places, which stand in order."""
    parts, at = [], 0
    for (start, end), word in zip(places.tolist(), put, strict=True):
        parts += [text[at:start], word]
        at = end
    return "".join([*parts, text[at:]])


def _replaced(
    texts: Sequence[str],
    tokens: Sequence[Tokens],
    randoms: Sequence[np.random.Generator],
    tokenizer: Tokenizer,
    prob: float,
    fill: Fills,
) -> list[str]:
    """The texts with some of their tokens hidden and filled in again; long ones are read in windows."""
    hidden = [_chosen(len(pieces.ids), prob, random) for pieces, random in zip(tokens, randoms, strict=True)]
    draws = [random.random(len(places)) for places, random in zip(hidden, randoms, strict=True)]
    windows: list[Encoding] = []
    blanks: list[Places] = []
    for pieces, places in zip(tokens, hidden, strict=True):
        masked = pieces.ids.copy()
        masked[places] = tokenizer.mask_id
        for window in windowed(tokenizer, Tokens(masked, pieces.starts, pieces.ends), None, fill.max_length, OVERLAP):
            at = np.flatnonzero((window.ids == tokenizer.mask_id) & window.owned)
            if len(at):
                windows.append(window)
                blanks.append(at)
    # Each token is owned by one window, and windows stand in order: their blanks, end to end, are the hidden tokens.
    edges = np.cumsum([len(at) for at in blanks])[:-1]
    joined = [
        np.concatenate([pieces.ids[at] for pieces, at in zip(tokens, hidden, strict=True)]),
        np.concatenate(draws),
    ]
    if not windows:
        return list(texts)
    filled = np.concatenate(fill(windows, blanks, *(np.split(each, edges) for each in joined)))
    skipped = tokenizer.continues * len(PREFIX)
    result, first = [], 0
    for text, pieces, places in zip(texts, tokens, hidden, strict=True):
        words = [
            tokenizer.vocabulary[index][skipped[index] :] for index in filled[first : first + len(places)].tolist()
        ]
        first += len(places)
        result.append(_spliced(text, np.stack([pieces.starts[places], pieces.ends[places]], axis=1), words))
    return result
