"""Texts with two mentions each and how these relate come in; their columns, file forms and repairs go out as FILES."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from filbert.core.records import Example
from filbert.forms.columns import one_column
from filbert.forms.formats import Shape
from filbert.forms.gold import GoldKey, gold_key
from filbert.forms.headers import LABEL_NAMES, TEXT_NAMES
from filbert.forms.labelled import MORE_TEXTS
from filbert.forms.spec import FileForm, FileHead, FileSpec, Lines, RepairedCopy, Roles, Selection
from filbert.tasks.relation.reading import (
    LABEL_COLUMN,
    MASKED,
    Relation,
    is_marked,
    marked_examples,
    masked_examples,
    related_rows,
    relation_rows,
)
from filbert.text.streams import Reading
from filbert.text.tables import Row

RELATIONS = "relations"  # a column that holds all of a text's relations, as annotation tools write them
MARKED = re.compile(r"\d+\t.*<e[12]>.*</e[12]>.*<e[12]>.*</e[12]>.*")  # a sentence of SemEval-2010 task 8


def find(source: str, by_low: Mapping[str, str]) -> dict[str, str] | None:
    """The text of a file that has all relations of a text in one column."""
    if RELATIONS not in by_low:
        return None
    return one_column(source, by_low, "text", TEXT_NAMES) or one_column(source, by_low, "text", MORE_TEXTS)


def complete(roles: Roles, form: Shape) -> Roles:
    """The roles that rows have which are made of all relations of a text."""
    if RELATIONS not in form.columns or "text" not in roles:
        return roles
    return {**roles, "head": "head", "tail": "tail", "label": LABEL_COLUMN}


def prepare(source: str, rows: Iterator[Row], selection: Selection, reading: Reading) -> Iterator[Row]:
    """The plain rows, or one for each relation of a text."""
    if RELATIONS in selection.form.columns and selection.roles["head"] not in selection.form.columns:
        return related_rows(source, rows, selection.roles["text"], reading)
    return rows


def shape_of_lines(lines: Sequence[str], kind: str) -> Shape | None:
    """Sentences with marked mentions, or lines with two names and a text."""
    inked = [line.strip() for line in lines if line.strip()]
    if kind == "text" and MARKED.fullmatch(inked[0]):
        return Shape(
            "marked", description="SemEval-2010: numbered sentences with <e1> and <e2>, and a relation below each"
        )
    if kind == "text" and all(MASKED.fullmatch(line) for line in inked):
        return Shape("masked", description="a label, two names and a text on each line: label head$tail$text")
    return None


def claims_places(head: FileHead) -> bool:
    """Four columns without header, of which the first two stand in the last."""
    rows = [row for row in head.form.sample if len(row) == len(head.form.columns)]
    is_wide = len(head.form.columns) == 4
    return is_wide and sum(row[0] in row[3] and row[1] in row[3] for row in rows) > len(rows) / 2


def key(gold: object) -> GoldKey:
    """One text has many relations; only those between the same two mentions are compared."""
    if not isinstance(gold, Relation):
        return gold_key(gold)
    return GoldKey(gold.label, f"{gold.head.start} {gold.head.end} {gold.tail.start} {gold.tail.end}")


def mentions(example: Example) -> tuple[str, ...]:
    """The words of both mentions."""
    gold = example.gold
    spans = (gold.head, gold.tail) if isinstance(gold, Relation) else ()
    return tuple(example.texts[0][span.start : span.end] for span in spans)


def repaired_marked(copy: RepairedCopy, lines: Lines) -> Iterator[str]:
    """The sentences that stay, each with its relation and comment."""
    is_removed = False
    for number, line in lines:
        if is_marked(line):
            is_removed = copy.is_removed(number, line)
        if not is_removed:
            yield line


FILES = FileSpec(
    task="relation",
    rank=4,
    roles=("head", "tail", "label", "text"),
    optional=frozenset({"label"}),
    names={
        "head": ("head", "subject", "e1", "h"),
        "tail": ("tail", "object", "e2", "t"),
        "label": (LABEL_COLUMN, *LABEL_NAMES),
        "text": TEXT_NAMES,
    },
    second_names={"text": MORE_TEXTS},
    places={3: ("head", "tail", "text"), 4: ("head", "tail", "label", "text")},
    tuple_roles=("text", "head", "tail", "label"),  # as `predict` takes them
    find=find,
    complete=complete,
    reads=lambda _roles, name: name == RELATIONS,
    prepare=prepare,
    rows=relation_rows,
    forms={
        "marked": FileForm(read=marked_examples, repaired_lines=repaired_marked),
        "masked": FileForm(read=masked_examples),
    },
    shape_of_lines=shape_of_lines,
    claims_names=lambda head: head.names >= {"head", "tail"},
    claims_places=claims_places,
    gold_key=key,
    mentions=mentions,
    has_one_label=True,
    keeps_blank=True,  # a mention is no text of its own
)
