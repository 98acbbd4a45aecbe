"""Texts with a label each in; the units of a probe out, one for each text or pair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from filbert.core.errors import InputError
from filbert.core.records import Example, Floats
from filbert.forms import label_sets, sources
from filbert.tasks.classify.items import Items
from filbert.tasks.probing import Columns, Probing
from filbert.tasks.task import AnyItems

MOST_LABELS = 1_000


class Texts(Probing):
    """Each text, or pair, is a unit; its type are its characters."""

    unit = "text"

    def __init__(self, config: object, examples: Sequence[Example]) -> None:
        called = examples[0].source or "the data"
        if any(not isinstance(label_sets.only(example.gold), str) for example in examples):
            raise InputError(
                f"{called}: has texts with several labels, but a probe reads one; keep one label for each text."
            )
        self.names = self.labels = sources.label_names(called, examples)
        if len(self.names) > min(MOST_LABELS, len(examples) // 2):
            raise InputError(
                f"{called}: has {len(self.names):,} labels among {len(examples):,} texts, too many to learn any."
            )

    def columns(self, items: AnyItems, raw: Sequence[Floats]) -> Columns:
        """The texts."""
        assert isinstance(items, Items)
        types = np.array(["\x00".join(example.texts) for example in items.examples])
        return Columns(np.arange(len(types)), np.asarray(items.gold), types, np.stack(raw).astype(np.float32))
