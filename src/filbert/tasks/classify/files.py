"""Labelled texts come in, a text and its label in each row; their columns, checks and repairs go out as FILES."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from filbert.core.errors import InputError
from filbert.forms.columns import pair_among
from filbert.forms.headers import LABEL_NAMES, TEXT_NAMES
from filbert.forms.labelled import (
    MORE_LABELS,
    MORE_TEXTS,
    class_labels,
    doubted,
    label_beside_text,
    labelled_rows,
)
from filbert.forms.spec import Entry, FileHead, FileSpec, Roles, Rows
from filbert.text.streams import Reading


def rows(source: str, rows: Rows, roles: Roles, reading: Reading) -> Iterator[Entry]:
    """The text of each row with its label or labels."""
    return doubted(labelled_rows(source, rows, roles, reading), roles, reading)


def find(source: str, by_low: Mapping[str, str]) -> None:
    """Refuses two texts that belong together: one of them alone is not what the label is of."""
    pair = pair_among(by_low)
    if pair is not None:
        message = f"has two texts, {pair[0]} and {pair[1]}; that is data for pair, or name the one: --columns text=…"
        raise InputError(f"{source}: {message},label=….")


def claims_places(head: FileHead) -> bool:
    """Two columns without header: a text, and a label, which comes again and again."""
    return len(head.form.columns) == 2


FILES = FileSpec(
    task="classify",
    rank=0,
    roles=("text", "label"),
    optional=frozenset({"label"}),
    names={"text": TEXT_NAMES, "label": LABEL_NAMES},
    second_names={"text": MORE_TEXTS, "label": MORE_LABELS},
    aliases=dict.fromkeys(MORE_LABELS, "label"),
    places={1: ("text",), 2: ("text", "label")},
    find=find,
    prepare=class_labels,
    rows=rows,
    claims_names=lambda head: label_beside_text(head) != "",
    claims_places=claims_places,
    has_one_label=True,
    text_roles=("text",),
)
