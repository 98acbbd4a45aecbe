"""Texts come in, or pairs that are more or less alike; their columns, checks and repairs go out as FILES."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from filbert.forms.columns import SCORE_NAMES, one_column, pair_aliases, pair_among
from filbert.forms.formats import Shape
from filbert.forms.headers import PAIR_NAMES, TEXT_NAMES
from filbert.forms.labelled import MORE_TEXTS, labelled_rows
from filbert.forms.spec import Entry, FileSpec, Roles, Rows, Selection
from filbert.text.streams import Reading
from filbert.text.tables import Row

PLAIN_NAMES = ("id", "idx", "index", "guid", "pairid", "pair_id", "source", "split")  # say nothing of likeness


def rows(source: str, rows: Rows, roles: Roles, reading: Reading) -> Iterator[Entry]:
    """The texts of each row: one, two that are alike, a third that is not; or two and how alike they are."""
    return labelled_rows(source, rows, roles, reading, may_be_numbers=True)


def find(source: str, by_low: Mapping[str, str]) -> dict[str, str] | None:
    """Two texts by names that stand together, with a third that is unlike them or with a label."""
    pair = pair_among(by_low)
    if pair is None:
        return None
    texts = {"text": by_low[pair[0]], "second": by_low[pair[1]]} | one_column(source, by_low, "negative", ("negative",))
    return texts if "negative" in texts else texts | one_column(source, by_low, "label", SCORE_NAMES)


def late_role(_spec: FileSpec, roles: Roles, name: str) -> str:
    """A label, or the other text of the one that is read."""
    if name in SCORE_NAMES:
        return "label"
    seconds = {two for one, two in PAIR_NAMES if one == roles["text"].strip().lower()}
    return "second" if name in seconds else "negative" if name == "negative" else ""


def prepare(_source: str, rows: Iterator[Row], selection: Selection, reading: Reading) -> Iterator[Row]:
    """The plain rows; of pairs without a label it is said that all are taken for alike."""
    if "second" in selection.roles and not {"label", "negative"} & selection.roles.keys():
        _tell_unused(selection.form, selection.roles, reading)
    return rows


def _tell_unused(form: Shape, roles: Roles, reading: Reading) -> None:
    """Pairs without a label are learnt as alike: whoever has a label in another column should know."""
    unused = [name for name in form.columns if name not in roles.values() and name.lower() not in PLAIN_NAMES]
    if unused:
        message = "no column is read as a label or number, so every pair is taken for alike"
        reading.tell(f"{message}; if one says how alike they are: --columns …,label={unused[0]}.")


FILES = FileSpec(
    task="embed",
    rank=2,
    roles=("text", "second", "negative", "label"),
    optional=frozenset({"second", "negative", "label"}),
    names={"text": TEXT_NAMES},
    second_names={"text": MORE_TEXTS},
    aliases=pair_aliases("text", "second"),
    places={1: ("text",), 2: ("text", "second"), 3: ("text", "second", "label")},
    tuple_roles=("text", "second", "label"),
    find=find,
    late_role=late_role,
    prepare=prepare,
    rows=rows,
    text_roles=("text", "second", "negative"),
)
