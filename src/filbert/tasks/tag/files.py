"""Texts with spans, or words with tags, come in; their columns, file forms, checks and repairs go out as FILES."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from filbert.core.errors import InputError
from filbert.forms import conll
from filbert.forms.columns import named_roles, pair_among
from filbert.forms.formats import HEAD_LINES, Shape
from filbert.forms.headers import TEXT_NAMES
from filbert.forms.labelled import MORE_TEXTS, label_beside_text
from filbert.forms.spec import FileForm, FileHead, FileSpec, Roles, Selection, usual_role
from filbert.tasks.classify.files import FILES as WHOLE_TEXTS
from filbert.tasks.tag import repairs, words
from filbert.tasks.tag.rows import rows
from filbert.text.streams import Reading
from filbert.text.tables import Row

TOKEN_NAMES, TAG_NAMES = ("tokens", "words"), ("ner_tags", "ner", "tags", "labels", "label", "pos_tags", "upos")
RELATIONS = "relations"  # a column that holds the relations between the entities of a text
MIN_BREAKS = 2  # blank lines in a .tsv from which its rows may be the words of sentences


def find(_source: str, by_low: Mapping[str, str]) -> dict[str, str] | None:
    """Tokens and their tags, where there are no entities."""
    if "entities" in by_low:
        return None
    tokens = next(({"tokens": by_low[name]} for name in TOKEN_NAMES if name in by_low), {})
    tags = next(({"tags": by_low[name]} for name in TAG_NAMES if name in by_low), {})
    return tokens | tags if tokens and (tags or "text" not in by_low) else None


def late_role(spec: FileSpec, roles: Roles, name: str) -> str:
    """A text or its entities; a file with tokens has all that it needs."""
    return "" if {"tokens", "tags"} & roles.keys() else usual_role(spec, roles, name)


def prepare(source: str, rows: Iterator[Row], selection: Selection, reading: Reading) -> Iterator[Row]:
    """The plain rows; relations between their entities are counted."""
    return _counted_relations(source, rows, reading) if RELATIONS in selection.form.columns else rows


def _counted_relations(source: str, rows: Iterator[Row], reading: Reading) -> Iterator[Row]:
    for line, row in rows:
        for _ in row.get(RELATIONS) or ():
            reading.count(
                "relations between entities were passed over, which tag does not learn; see relation", source, line,
                "a relation is passed over, which tag does not learn.",
            )  # fmt: skip
        yield line, row


def shape_of_lines(lines: Sequence[str], kind: str) -> Shape | None:
    """A file with a word and its tag per line, by what it holds; a .tsv must be surer, since it may be a table."""
    inked = [line for line in lines if line.strip()]
    bare = sum(" " not in line.partition("\t")[0].strip() or line.startswith("#") for line in inked)
    if kind == "tsv" and not conll.nearly(bare, len(inked)):
        return None
    tags = Shape("conll", description="CoNLL: a token and its tag per line, a blank line between sentences")
    if conll.is_tagged(lines, len(lines) >= HEAD_LINES):
        return tags
    num_breaks = sum(not line.strip() for line in lines)
    if kind == "tsv" and num_breaks < max(MIN_BREAKS, len(lines) / 100):
        return None  # a table of short texts in which a line is blank by mistake
    columns = conll.columns(lines)
    form = words.kind([line for line in lines if not columns.is_comment(line)])
    if form in ("units", "inside") and conll.are_marked(columns.labels):
        return tags  # reading will name those that are written otherwise
    return None if form in (None, "slashed" if kind == "tsv" else None) else Shape(form, description=words.FORMS[form])


def claims_names(head: FileHead) -> bool:
    """Entities, or tokens and tags without a text, or a text with spans for its label; two texts are no such data."""
    if pair_among(head.names) is not None:
        return False
    has_tags = not head.names.isdisjoint(TOKEN_NAMES) and not head.names.isdisjoint(TAG_NAMES)
    if head.names & {"entities", "spans"} or (has_tags and "text" not in head.names):
        return True
    label = label_beside_text(head)
    return label != "" and head.has_objects(label)


def claims_roles(head: FileHead, columns: Mapping[str, str | int]) -> bool:
    """A text and its label, where the label holds spans."""
    try:
        roles = named_roles(WHOLE_TEXTS, columns)
    except InputError:
        return False
    label = roles.get("label", "")
    is_there = head.form.kind != "table" and label in head.form.columns
    return len(roles) > 1 and is_there and head.has_objects(label)


FILES = FileSpec(
    task="tag",
    rank=3,
    roles=("text", "entities", "tokens", "tags"),
    optional=frozenset({"entities", "tokens", "tags"}),
    stand_ins={"tokens": ("text",)},
    shown=("text", "entities"),
    names={"text": TEXT_NAMES, "entities": ("entities", "spans", "label", "labels")},
    second_names={"text": MORE_TEXTS},
    aliases=dict.fromkeys(TOKEN_NAMES, "tokens") | {"ner_tags": "tags", "pos_tags": "tags"},
    no_places=(
        "for tag a file has a word and its tag on each line, with a tab or space between and a blank line between "
        "sentences (CoNLL: B-PER, I-PER, O), or JSON lines of text and entities."
    ),
    tuple_roles=("text", "entities", "tokens", "tags"),
    find=find,
    late_role=late_role,
    reads=lambda _roles, name: name == RELATIONS,  # they are counted
    prepare=prepare,
    rows=rows,
    forms={
        "conll": FileForm(read=words.conll_examples, check=repairs.unended, repaired_lines=repairs.repaired_prefixed),
        "units": FileForm(read=words.unit_examples, repaired_lines=repairs.repaired_sentences),
        "inside": FileForm(read=words.inside_examples, repaired_lines=repairs.repaired_sentences),
        "conllu": FileForm(read=words.conllu_examples, repaired_lines=repairs.repaired_sentences),
        "slashed": FileForm(read=words.slashed_examples),
    },
    shape_of_lines=shape_of_lines,
    claims_names=claims_names,
    claims_roles=claims_roles,
    gold_role="entities",
    check=repairs.check,
    no_labels="no example has an entity; are they in another column, or written another way?",
    text_roles=("text",),
    repaired_row=repairs.repaired_row,
    as_repaired=repairs.trimmed_spans,
)
