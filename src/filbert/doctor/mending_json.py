"""JSON rows come in as text; the changes that repair them go out, each with the place that it changes."""

from __future__ import annotations

from collections.abc import Mapping

from filbert.forms.json_places import Change, Node, parsed, removal_changes, stripped
from filbert.forms.spec import FileSpec, Roles
from filbert.text.characters import is_blank


def row_changes(spec: FileSpec, roles: Roles, text: str, node: Node | None = None) -> list[Change]:
    """What repairs one row, a JSON object: the text of a line, or a node of a larger one."""
    try:
        row = node or parsed(text)
    except RecursionError:
        return []
    nodes = {role: row.fields[name] for role, name in roles.items() if name in row.fields}
    changes: list[Change] = []
    if "label" in nodes and spec.strips_labels:
        for label in nodes["label"].items or (nodes["label"],):
            changes += stripped(text, label)
    return changes + spec.repaired_row(text, nodes)


def is_empty(spec: FileSpec, cells: Mapping[str, object]) -> bool:
    """Whether a row, role by role, has a label but no text; a mention or a choice is no text of its own."""
    texts = (cells.get(role) for role in spec.text_roles)
    has_blank = any(isinstance(text, str) and is_blank(text) for text in texts)
    return cells.get(spec.gold_role) not in (None, "") and has_blank


def array_changes(spec: FileSpec, roles: Roles, text: str, removed: Mapping[int, str]) -> list[Change]:
    """What repairs an array of rows, of which the numbered ones, from 1, are to be removed."""
    root = parsed(text)
    changes: list[Change] = []
    why = {number - 1: reason for number, reason in removed.items()}
    for number, row in enumerate(root.items):
        if row.fields and number not in why:
            if is_empty(spec, {role: row.value.get(name) for role, name in roles.items()}):
                why[number] = "removed, for a text is empty"
            else:
                changes += row_changes(spec, roles, text, row)
    return changes + removal_changes(text, root.items, why)
