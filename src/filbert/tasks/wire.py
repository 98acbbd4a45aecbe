"""A task's results as JSON over HTTP, beyond its own records: for the pipelines of other clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Beside = tuple[str, ...]  # a long text, and those that are repeated beside it in each of its windows


def second_beside_first(first: str, others: Sequence[object]) -> list[Beside]:
    """Of two texts the first stands beside each window of the second, as of questions and passages."""
    return [(str(others[0]), first)] if len(others) == 1 else []


def nothing_beside(first: str, others: Sequence[object]) -> list[Beside]:
    """Texts are read one by one."""
    return []


@dataclass(frozen=True, slots=True)
class Wire:
    """A task's results over HTTP."""

    pipeline: str | None = "text-classification"  # of huggingface_hub; None: by the text, blanks or vectors
    ranks: bool = False  # its pairs are a query and a text
    may_rank: bool = False  # a head without a word about its task may be meant for pairs
    has_entities: bool = False
    beside: Callable[[str, Sequence[object]], list[Beside]] = second_beside_first


SPOKEN = Wire()  # as most tasks are
