"""Labelled examples of a task in; the units whose labels a linear probe reads off a layer's vectors out.

Legend: N units (texts, words or tokens), D width of all layers side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from filbert.core.records import Example, Floats
from filbert.pack.lay import Places
from filbert.tasks.task import AnyItems


class Columns(NamedTuple):
    """Of each unit: the item that it stands in, its label among `labels`, its type, its vector."""

    item_N: Places
    gold_N: Places
    type_N: npt.NDArray[Any]  # the same for the same word, or text
    vectors_ND: Floats


class Probing(ABC):
    """What is probed of a task's examples."""

    names: tuple[str, ...]  # the labels that its items have
    labels: tuple[str, ...]  # those of the units
    unit: str  # text, word or token

    @abstractmethod
    def __init__(self, config: object, examples: Sequence[Example]) -> None:
        """config: how the task reads texts, before the examples fix anything of it."""

    @staticmethod
    def size(example: Example) -> int:
        """About how many units an example has."""
        return 1

    @abstractmethod
    def columns(self, items: AnyItems, raw: Sequence[Floats]) -> Columns:
        """The units of these items, from the vectors that stand where a head's answers would."""
