"""Texts with spans in; the units of a probe out: words where every word has a label, else tokens with their tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from filbert.core.records import Example, Floats
from filbert.tasks.probing import Columns, Probing
from filbert.tasks.tag.decode import rows as token_rows
from filbert.tasks.tag.items import NOTHING, Items
from filbert.tasks.tag.spec import Config, fitted, label_names
from filbert.tasks.task import AnyItems


class Spans(Probing):
    """Where every word has a label, words: the mean of their tokens. Else tokens, with the tags that a head learns."""

    def __init__(self, config: Config, examples: Sequence[Example]) -> None:
        self.names = self.labels = label_names(config, examples)
        self.unit = "token"
        if fitted(config, examples).scheme == "plain":
            self.unit = "word"
            self.labels = tuple(sorted({span.label for example in examples for span in example.gold}))

    @staticmethod
    def size(example: Example) -> int:
        """Its spans, and what lies outside of them."""
        return len(example.gold) + 1

    def columns(self, items: AnyItems, raw: Sequence[Floats]) -> Columns:
        """The words, or the tokens."""
        assert isinstance(items, Items)
        if self.unit == "word":
            return self._words(items, raw)
        has_tag = items.gold != NOTHING
        texts = np.repeat(np.arange(len(raw)), [len(vectors_SD) for vectors_SD in raw])
        types = items.ids[has_tag].astype(np.int64)
        return Columns(texts[has_tag], items.gold[has_tag], types, np.concatenate(raw)[has_tag])

    def _words(self, items: Items[Any], raw: Sequence[Floats]) -> Columns:
        texts, golds, types, vectors = [], [], [], []
        for index, (example, tokens, vectors_SD) in enumerate(zip(items.examples, items.pieces, raw, strict=True)):
            starts, ends = [span.start for span in example.gold], [span.end for span in example.gold]
            words = token_rows(starts, ends, tokens.starts, tokens.ends)
            for place in np.flatnonzero(~words.bare & ~words.shared).tolist():
                span = example.gold[place]
                texts.append(index)
                golds.append(self.labels.index(span.label))
                types.append(example.texts[0][span.start : span.end])
                vectors.append(vectors_SD[words.first[place] : words.last[place] + 1].mean(axis=0))
        made = np.array(vectors, dtype=np.float32).reshape(-1, raw[0].shape[1])
        return Columns(
            np.array(texts, dtype=np.int64), np.array(golds, dtype=np.int64), np.array(types, dtype=str), made
        )
