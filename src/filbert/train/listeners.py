"""A callback, an object with the methods of `Listener`, or several of them in; listeners out.

A function is called for every step as log.jsonl has it: {"step": 1, "loss": …}, and for measurements and events in
their order, {"step": …, "held": {…}} and {"event": …, "message": …}. An object has the methods of `Listener`. All are
called after the log was written, and none takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from filbert.core.errors import InputError


@runtime_checkable
class Listener(Protocol):
    """Is called with the entries of a run's log: its journal, or a user's object."""

    def step(self, entry: Entry) -> None:
        """A step was done."""
        ...

    def evaluation(self, entry: Entry) -> None:
        """The held-out items were measured."""
        ...

    def event(self, kind: str, message: str, **more: Any) -> None:
        """Something out of the ordinary."""
        ...


Entry = Mapping[str, Any]  # a line of the log
Callback = Callable[[dict[str, Any]], object]
Listening = Listener | Callback  # one that a user may name
Listeners = Listening | Iterable[Listening] | None  # the argument `listener` of all runs


class Silent:
    """A listener that does nothing; others override what they need."""

    def step(self, entry: Entry) -> None:
        """Nothing."""

    def evaluation(self, entry: Entry) -> None:
        """Nothing."""

    def event(self, kind: str, message: str, **more: Any) -> None:
        """Nothing."""


class Several:
    """Listeners that are called one after another."""

    def __init__(self, *members: Listener) -> None:
        self.members = members

    def step(self, entry: Entry) -> None:
        """A step was done."""
        for member in self.members:
            member.step(entry)

    def evaluation(self, entry: Entry) -> None:
        """The held-out items were measured."""
        for member in self.members:
            member.evaluation(entry)

    def event(self, kind: str, message: str, **more: Any) -> None:
        """Something out of the ordinary."""
        for member in self.members:
            member.event(kind, message, **more)


class Function:
    """A function that is given everything as one mapping each time."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback

    def step(self, entry: Entry) -> None:
        """A step, with the task's numbers beside the others."""
        fields = {name: value for name, value in entry.items() if name != "numbers"}
        self.callback(fields | dict(entry.get("numbers", {})))

    def evaluation(self, entry: Entry) -> None:
        """A measurement."""
        self.callback(dict(entry))

    def event(self, kind: str, message: str, **more: Any) -> None:
        """An event."""
        self.callback({"event": kind, "message": message, **more})


def several(listener: Listeners) -> tuple[Listener, ...]:
    """The listeners that a user named: none, a function, an object, or an iterable of such."""
    if listener is None:
        return ()
    if isinstance(listener, Listener):
        return (listener,)
    if callable(listener):
        return (Function(listener),)
    if isinstance(listener, str | bytes | Mapping) or not isinstance(listener, Iterable):
        raise InputError(
            f"listener is of type {type(listener).__name__}, but must be a function that takes an entry of the log, an "
            "object with the methods step, evaluation and event, or a list of such."
        )
    return tuple(one for each in listener for one in several(each))
