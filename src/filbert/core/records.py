"""The records that every text passes through: files -> Document -> Encoding -> Packed -> scores -> Prediction.

Legend: N tokens in one sequence, T tokens in a pack, B sequences in a pack.
Arrays are NumPy here; `Packed` may hold torch tensors under the same names (see nn.attention.tensors).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Wholes = npt.NDArray[np.integer[Any]]  # whole numbers of any size
Reals = npt.NDArray[np.floating[Any]]  # floats of any precision
Array = Any  # a NumPy array in torch-free code, a torch tensor after nn.attention.tensors


@dataclass(frozen=True, slots=True)
class Document:
    """One text as the user gave it, and where it lay."""

    text: str
    source: str = ""  # file name as the user wrote it; "-" is standard input
    line: int = 0  # first line of the document in that file, from 1; 0 where lines mean nothing
    fields: Mapping[str, Any] = field(default_factory=dict)  # the other columns of its row, untouched


@dataclass(frozen=True, slots=True)
class Example:
    """One thing to learn from or to answer: one or two texts (or more, for choices) and what is right."""

    texts: tuple[str, ...]
    gold: Any = None  # a label, a list of spans, an answer; None where it is to be predicted
    id: int = 0  # its place in the data: randomness is keyed by it
    source: str = ""
    line: int = 0

    def where(self, index: int) -> str:
        """Where an error says that it stands: in its file or, where it came from none, among the examples."""
        return f"{self.source} line {self.line}" if self.source else f"example {index}"


@dataclass(frozen=True, slots=True)
class Encoding:
    """One sequence as the model reads it; every offset slices the text as given.

    `parts` says which text a token came from: 0 or 1 for the first or second text, -1 for [CLS] and [SEP].
    `starts` and `ends` are character offsets into that text (0, 0 for special tokens).
    """

    ids: Ints  # [N]
    segments: Ints  # [N] token_type_ids
    parts: Ints  # [N]
    starts: Ints  # [N]
    ends: Ints  # [N]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Packed:
    """Sequences side by side in one row of tokens, with boundaries; there is no padding and no mask."""

    ids: Array  # [T]
    positions: Array  # [T] from 0 in every sequence
    segments: Array  # [T]
    boundaries: Array  # [B+1] int32, boundaries[b]:boundaries[b+1] is sequence b
    lengths: tuple[int, ...]  # [B] the same on the host: CPU kernels group by it
    max_len: int  # an upper bound of the lengths; constant where a graph is compiled once

    @property
    def num_tokens(self) -> int:
        """T, the tokens in the row."""
        return int(self.ids.shape[0])

    def with_ids(self, ids: Array) -> Packed:
        """The same sequences with other tokens in them."""
        return replace(self, ids=ids)

    def mapped(self, change: Callable[[str, Array], Array]) -> Packed:
        """The same sequences, each array of them as `change(name, array)` gives it: on another device, say."""
        arrays = {name: change(name, getattr(self, name)) for name in ("ids", "positions", "segments", "boundaries")}
        return replace(self, **arrays)


def runs(lengths: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """(first token, N, L) for every stretch of N neighbours of one length L; empty sequences are passed over."""
    start, at = 0, 0
    while at < len(lengths):
        length, end = lengths[at], at + 1
        while end < len(lengths) and lengths[end] == length:
            end += 1
        if length:
            yield start, end - at, length
        start += (end - at) * length
        at = end


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the user's own text: text[start:end], with what it is and how sure the model is."""

    start: int
    end: int
    label: str = ""
    score: float = 1.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """A model's answer to one text, in the user's labels and characters."""

    label: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    coverage: float = 1.0  # share of the text's tokens that were read; below 1.0 only where the user asked
    labels: tuple[str, ...] | None = None  # where a text may have several, or none
    text: str | None = None  # what was written, where a task writes
