"""A task's name in; what a server does differently for it out. Nothing else in this room knows the name of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Beside = tuple[str, ...]  # a long text, and those that are repeated beside it in each of its windows


@dataclass(frozen=True, slots=True)
class Wire:
    """How a task is spoken over HTTP."""

    pipeline: str | None = "text-classification"  # of huggingface_hub; None: by the text, blanks or vectors
    ranks: bool = False  # its pairs are a query and a text
    may_rank: bool = False  # a head without a word about its task may be meant for pairs
    has_entities: bool = False
    beside: Callable[[str, Sequence[object]], list[Beside]] = lambda first, others: []


def _pair(first: str, others: Sequence[object]) -> list[Beside]:
    return [(str(others[0]), first)] if len(others) == 1 else []


def _options(first: str, others: Sequence[object]) -> list[Beside]:
    question, options = others
    assert isinstance(options, list | tuple)
    return [(first, str(question), str(option)) for option in options]


ANY = Wire(beside=_pair)
TASKS: Mapping[str | None, Wire] = {
    None: Wire(pipeline=None, beside=_pair),
    "embed": Wire(pipeline=None),  # its texts are read one by one
    "classify": Wire(may_rank=True, beside=_pair),
    "pair": Wire(ranks=True, beside=_pair),
    "tag": Wire(pipeline="token-classification", has_entities=True, beside=_pair),
    "choose": Wire(beside=_options),
}


def wire(task: str | None) -> Wire:
    """How that task is spoken."""
    return TASKS.get(task, ANY)
