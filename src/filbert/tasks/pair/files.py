"""Labelled pairs of texts come in, or pairs with a number; their columns, checks and repairs go out as FILES."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from filbert.forms.columns import SCORE_NAMES, one_column, pair_aliases, pair_among
from filbert.forms.headers import LABEL_NAMES
from filbert.forms.labelled import class_labels, doubted, labelled_rows
from filbert.forms.spec import Entry, FileHead, FileSpec, Roles, Rows, both_together, usual_role
from filbert.text.streams import Reading

MORE_NAMES = ("score", "similarity")  # of a label, where there is no better one


def rows(source: str, rows: Rows, roles: Roles, reading: Reading) -> Iterator[Entry]:
    """Both texts of each row with their label, which may be a number."""
    return doubted(labelled_rows(source, rows, roles, reading, may_be_numbers=True), roles, reading)


def find(source: str, by_low: Mapping[str, str]) -> dict[str, str] | None:
    """The two texts by names that stand together, and a label."""
    pair = pair_among(by_low)
    if pair is None:
        return None
    label = one_column(source, by_low, "label", LABEL_NAMES) or one_column(source, by_low, "label", MORE_NAMES)
    return {"first": by_low[pair[0]], "second": by_low[pair[1]]} | label


def late_role(spec: FileSpec, roles: Roles, name: str) -> str:
    """A label also by the names of numbers that say how alike two texts are."""
    return "label" if name in SCORE_NAMES else usual_role(spec, roles, name)


def claims_places(head: FileHead) -> bool:
    """Two columns without header of which neither repeats itself, or three of which the last does."""
    form = head.form
    rows = [row for row in form.sample if len(row) == len(form.columns)]
    num_values = [len({row[place] for row in rows}) for place in range(len(form.columns))]
    if len(form.columns) == 2:
        return min(num_values) > len(rows) / 2 and len(rows) > 10
    has_label = num_values[-1] <= max(len(rows) / 2, 3)
    return len(form.columns) == 3 and has_label and not all(row[0].isdigit() for row in rows)


def number_advice(are_measured: bool) -> str:
    """How labels that are numbers are learnt."""
    return "pair learns one number" if are_measured else "fine-tune with --set task.answer=number"


FILES = FileSpec(
    task="pair",
    rank=1,
    roles=("first", "second", "label"),
    optional=frozenset({"second", "label"}),  # to name the first alone is no fault of a file
    names={"label": LABEL_NAMES},
    second_names={"label": MORE_NAMES},
    aliases=pair_aliases("first", "second"),
    places={2: ("first", "second"), 3: ("first", "second", "label")},
    find=find,
    late_role=late_role,
    prepare=class_labels,
    rows=rows,
    claims_names=lambda head: pair_among(head.names) is not None,
    claims_places=claims_places,
    num_tokens=both_together,
    has_one_label=True,
    number_advice=number_advice,
    text_roles=("first", "second"),
)
