"""The gold of an example comes in, a label, several, spans or a task's own record; its labels and its key go out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from filbert.core.records import Span


class Labelled(ABC):
    """A task's own record of what is right, some of which are labels that are counted and learnt."""

    __slots__ = ()

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The labels in it; none where they are to be predicted."""


class GoldKey(NamedTuple):
    """By what two examples with the same texts are compared."""

    label: str | None
    more: str = ""  # what else makes an example differ from another with the same texts
    is_shown: bool = True  # whether the label can be shown; a list of spans cannot


def labels_of(gold: object) -> Iterator[str]:
    """The label or labels in an example's gold: of a text, one or several, of its spans, of a task's own record."""
    if isinstance(gold, str):
        yield gold
    elif isinstance(gold, Labelled):
        yield from gold.labels
    elif isinstance(gold, tuple):
        yield from (item.label if isinstance(item, Span) else item for item in gold if isinstance(item, Span | str))


def no_labels(_gold: object) -> Iterator[str]:
    """None: the gold is a text that is to be written, and no name of anything."""
    return iter(())


def gold_key(gold: object) -> GoldKey:
    """The label or labels of a text; of any other gold a hash, which is not shown."""
    if gold is None or isinstance(gold, str):
        return GoldKey(gold)
    if isinstance(gold, tuple) and gold and all(isinstance(label, str) for label in gold):
        return GoldKey(", ".join(sorted(label.strip() for label in gold)))
    return GoldKey(f"{hashed(repr(gold)):x}", is_shown=False)


def hashed(text: str) -> int:
    """64 bits of the text's hash; never 0."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1
