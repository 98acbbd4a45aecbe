"""Whoever wants to hear of a run in, a function, an object or several; one listener that tells them all out.

A function hears of every step as log.jsonl has it: {"step": 1, "loss": …}, and of measurements and events in their
order, {"step": …, "held": {…}} and {"event": …, "message": …}. An object has the methods of `loop.Told`. All are told
after the log was written, and none takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from filbert.core.errors import InputError
from filbert.train.loop import Told

Hears = Callable[[dict[str, Any]], object]


@runtime_checkable
class _Listener(Protocol):
    """`loop.Told`, for a look at what a user gave."""

    step: Any
    evaluation: Any
    event: Any


class Several:
    """Listeners that are told one after another."""

    def __init__(self, *members: Told) -> None:
        self.members = members

    def step(self, entry: Mapping[str, Any]) -> None:
        """A step was done."""
        for member in self.members:
            member.step(entry)

    def evaluation(self, entry: Mapping[str, Any]) -> None:
        """The held-out items were asked."""
        for member in self.members:
            member.evaluation(entry)

    def event(self, kind: str, message: str, **more: Any) -> None:
        """Something out of the ordinary."""
        for member in self.members:
            member.event(kind, message, **more)


class Function:
    """A function that hears everything as one mapping each time."""

    def __init__(self, hears: Hears) -> None:
        self.hears = hears

    def step(self, entry: Mapping[str, Any]) -> None:
        """A step, with the task's numbers beside the others."""
        self.hears({name: value for name, value in entry.items() if name != "numbers"} | dict(entry.get("numbers", {})))

    def evaluation(self, entry: Mapping[str, Any]) -> None:
        """A measurement."""
        self.hears(dict(entry))

    def event(self, kind: str, message: str, **more: Any) -> None:
        """An event."""
        self.hears({"event": kind, "message": message, **more})


def several(told: Any) -> list[Told]:
    """The listeners that a user gave as `told`: none, a function, an object, or a list of such."""
    if told is None:
        return []
    if isinstance(told, _Listener):
        return [told]
    if callable(told):
        return [Function(told)]
    if isinstance(told, str | bytes | Mapping) or not isinstance(told, Iterable):
        raise InputError(
            f"told is of type {type(told).__name__}, but must be a function that takes an entry of the log, an object "
            "with the methods step, evaluation and event, or a list of such."
        )
    return [listener for each in told for listener in several(each)]
