"""A masked word as a question: a text with [MASK] in, every token of the vocabulary at one of them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Item
from filbert.core.records import Example, Floats, Span
from filbert.nn.torch_ops import TorchHost
from filbert.pack.lay import collate
from filbert.tasks.question import Placed, Places, Question, Reading, Target, log_odds, placed_span
from filbert.text.tokenizer import Tokenizer, Tokens
from filbert.text.windows import WindowEncoding, windowed

FILL = "fill"  # the name under which a masked word is asked for: it is no file of tasks
OVERLAP = 128


class Words(Placed[Any]):
    """Every token of the vocabulary at one [MASK]."""

    def __init__(self, reading: Reading, target: Target) -> None:
        Question.__init__(self, reading, target)
        self.masks = np.flatnonzero(reading.task.masked)
        starts, ends = reading.task.pieces.starts, reading.task.pieces.ends
        self.first, self.size, self.word = int(self.masks[0]), 1, target if isinstance(target, str) else None
        if isinstance(target, tuple):
            span = placed_span(target, self.text)
            at = [mask for mask in self.masks if starts[mask] < span.end and ends[mask] > span.start]
            if not at:
                raise InputError(f"the target stands at {span.start}:{span.end}, but there is no [MASK] there.")
            self.first, self.word = int(at[0]), span.label or None
        self.span = Span(int(starts[self.first]), int(ends[self.first]))
        tokenizer: Tokenizer = reading.task.tokenizer
        if self.word is not None and self.word not in tokenizer:
            raise InputError(f"the target {self.word!r} is no token of the vocabulary, so no [MASK] is filled with it.")
        self.candidates = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
        layout = reading.layout
        self.row = int(np.flatnonzero((layout.token == self.first) & reading.task.owned)[0])

    def table(self, host: TorchHost, batch: Batch) -> Tensor:
        """[N, V] without special tokens."""
        rows_N = self.reading.layout.rows(batch, np.array([self.row]))[:, 0]
        scores_NV = host.head("mlm", host.vectors(batch.packed, rows_N))
        return log_odds(scores_NV[:, torch.as_tensor(self.candidates, device=scores_NV.device)])

    def picked(self, first_C: Floats) -> tuple[int, str]:
        """The token's column, or that of the likeliest."""
        tokenizer: Tokenizer = self.task.tokenizer
        column = int(first_C.argmax())
        if self.word is not None:
            column = int(np.searchsorted(self.candidates, tokenizer.id_of(self.word)))
        return column, tokenizer.token_of(int(self.candidates[column]))


class Filling:
    """A text with [MASK] in it, read as a task of one example is: in windows, and copies of it in packs."""

    config = None

    def __init__(self, text: str, tokenizer: Tokenizer, max_length: int) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self.pieces: Tokens = tokenizer.pieces([text], specials=True)[0]
        self.ids = self.pieces.ids
        self.masked: npt.NDArray[np.bool_] = np.asarray(self.ids == tokenizer.mask_id)
        if not self.masked.any():
            raise InputError("the text has no [MASK]: write [MASK] where a word is missing, e.g. 今天[MASK]气很好.")
        self.owned = np.concatenate([window.owned for window in self._windows()])  # [R]

    def _windows(self) -> list[WindowEncoding]:
        tokens = Tokens(self.ids, self.pieces.starts, self.pieces.ends)
        return list(windowed(self.tokenizer, tokens, None, self.max_length, OVERLAP))

    def batch(self, orders: Places) -> Batch:
        """So many copies of the text's windows."""
        item = Item(tuple(self._windows()), {})
        return collate([item] * len(orders))

    def sources(self, which: Places) -> Places:
        """[R] the place of each row of the windows among the text's tokens; -1: special ones."""
        numbers = Tokens(np.arange(len(self.ids), dtype=np.int32), self.pieces.starts, self.pieces.ends)
        windows = windowed(self.tokenizer, numbers, None, self.max_length, OVERLAP)
        rows = [np.where(window.parts < 0, -1, window.ids) for window in windows]
        return np.concatenate(rows).astype(np.int64)

    def origins(self, example: Example) -> Places:
        """As tasks have it; what is missing stands in no text."""
        texts = np.where(self.masked, -1, 0)
        return np.stack((texts, self.pieces.starts, self.pieces.ends), axis=1).astype(np.int64)
