"""JSON text comes in; its values go out with where each stands in the text, and the changes that repair some alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]  # documented nowhere, but never moved
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\n\r]*")
_OTHER = re.compile(r"[^\s,\]}]+")  # a number, true, false or null


class Edit(NamedTuple):
    """text[start:end] becomes `new`."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Node:
    """A JSON value: text[start:end], and the values within it."""

    value: Any
    start: int
    end: int
    fields: dict[str, Node] = field(default_factory=dict)  # of an object
    items: tuple[Node, ...] = ()  # of an array

    def listed(self, name: str) -> tuple[Node, ...]:
        """The items of the array in the field of that name; none where there is no such."""
        field = self.fields.get(name)
        return field.items if field is not None else ()

    def held(self, *names: str) -> Node | None:
        """The first of the named fields that is there."""
        return next((self.fields[name] for name in names if name in self.fields), None)


def parsed(text: str, start: int = 0) -> Node:
    """The value that begins there, with its places; the text must be JSON that `json.loads` has read."""
    start = _after_space(text, start)
    if text[start] == "{":
        fields, end = {}, _after_space(text, start + 1)
        while text[end] != "}":
            name, end = scanstring(text, end + 1)
            fields[name] = parsed(text, _after_space(text, end) + 1)
            end = _following(text, fields[name].end)
        return Node({name: node.value for name, node in fields.items()}, start, end + 1, fields)
    if text[start] == "[":
        items, end = [], _after_space(text, start + 1)
        while text[end] != "]":
            items.append(parsed(text, end))
            end = _following(text, items[-1].end)
        return Node([node.value for node in items], start, end + 1, items=tuple(items))
    if text[start] == '"':
        value, end = scanstring(text, start + 1)
        return Node(value, start, end)
    match = _OTHER.match(text, start)
    assert match is not None, "json.loads has read it"
    return Node(json.loads(match.group()), start, match.end())


def _after_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _following(text: str, place: int) -> int:
    """The next value of an object or array, or its end."""
    place = _after_space(text, place)
    return _after_space(text, place + 1) if text[place] == "," else place


def rewritten(text: str, node: Node, value: object) -> Edit:
    """The edit that puts another string or number in the place of one, with Chinese escaped where it was."""
    return Edit(node.start, node.end, json.dumps(value, ensure_ascii=text[node.start : node.end].isascii()))


def removals(nodes: Sequence[Node], removed: set[int]) -> list[Edit]:
    """The edits that take the numbered items out of an array, each with one comma."""
    edits: list[Edit] = []
    kept_before = False
    for number, node in enumerate(nodes):
        if number not in removed:
            kept_before = True
        elif kept_before:
            edits.append(Edit(nodes[number - 1].end, node.end, ""))
        else:
            edits.append(Edit(node.start, nodes[number + 1].start if number + 1 < len(nodes) else node.end, ""))
    return edits


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits made; one within another's stretch is not made."""
    parts, done = [], 0
    for start, end, new in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
        if start >= done:
            parts += [text[done:start], new]
            done = end
    return "".join([*parts, text[done:]])


@dataclass(frozen=True, slots=True)
class Change:
    """An edit of the text, and what it repairs."""

    edit: Edit
    what: str
    before: str
    after: str | None = None


def made(text: str, changes: Iterable[Change]) -> str:
    """The text with all changes made."""
    return edited(text, (change.edit for change in changes))


def stripped(text: str, label: Node) -> list[Change]:
    """A label without the white space around it."""
    value = label.value
    if not isinstance(value, str) or value == value.strip() or not value.strip():
        return []  # of blanks nothing would be left, which is another fault
    edit = rewritten(text, label, value.strip())
    return [Change(edit, "white space around the label removed", repr(value), repr(value.strip()))]


def removal_changes(text: str, nodes: Sequence[Node], why: Mapping[int, str]) -> list[Change]:
    """The numbered items of an array taken out, each for its reason."""
    edits = removals(nodes, set(why))
    return [
        Change(edit, why[number], text[nodes[number].start : nodes[number].end])
        for edit, number in zip(edits, sorted(why), strict=True)
    ]
