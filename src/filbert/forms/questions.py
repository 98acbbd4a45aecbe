"""JSON of questions comes in; its lists of objects and its texts go out, and what is wrong is said with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from filbert.text.streams import Reading, clean


@dataclass(frozen=True, slots=True)
class Place:
    """Where a question is being read, for whoever counts what is wrong with it."""

    source: str
    line: int
    where: str
    reading: Reading

    def count(self, what: str, message: str) -> None:
        """Counts what is skipped or mended."""
        self.reading.count(what, self.source, self.line, self.where + message)

    def fault(self, message: str) -> None:
        """Says what is wrong."""
        self.reading.fault(self.source, self.line, self.where + message)


def objects(source: str, holder: Mapping[str, object], name: str, reading: Reading) -> Iterator[Mapping[str, Any]]:
    """The objects in the list of that name; anything else there is a fault."""
    items = holder.get(name)
    if not isinstance(items, (list, tuple)):
        shown = ", ".join(map(str, holder))[:60]
        reading.fault(source, 0, f"an object with {shown} has no list of {name}; give it one, or remove it.")
    for number, item in enumerate(items if isinstance(items, (list, tuple)) else (), 1):
        if isinstance(item, Mapping):
            yield item
        else:
            reading.fault(source, 0, f"item {number} of a list of {name} is not an object {{…}}.")


def text_field(holder: Mapping[str, object], name: str, place: Place) -> str | None:
    """The text in the field, cleaned; empty where there is none; None after a fault."""
    value = holder.get(name, "")
    if value is None or isinstance(value, str):
        return clean(value or "", place.source, place.line, place.reading)
    place.fault(f"the {name} is {value!r:.40}, but must be text.")
    return None


def as_list(value: object) -> list[Any]:
    """The items of a list; of anything else, itself alone."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def mappings(holder: object, name: str) -> Iterator[Mapping[str, Any]]:
    """The objects in the list of that name, whatever else is there."""
    items = holder.get(name) if isinstance(holder, Mapping) else None
    return (item for item in (items if isinstance(items, list) else ()) if isinstance(item, Mapping))
