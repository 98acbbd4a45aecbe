"""Rows with one text or several and a label come in; the texts with their labels, all of one kind, go out.

A labelled row with an empty text is skipped and counted; everything else that is wrong is a fault with its line.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from filbert.forms import label_sets
from filbert.forms.class_names import number_names
from filbert.forms.gold import labels_of
from filbert.forms.headers import LABEL_NAMES, TEXT_NAMES
from filbert.forms.spec import Entry, FileHead, Roles, Rows, Selection
from filbert.text.streams import Reading, clean
from filbert.text.tables import Row

UNLABELLED_ROWS = 1_000  # of a file whose rows have no label: so many are looked at for one
NO_LABEL = "-"  # what NLI corpora write where the annotators did not agree; elsewhere it is a label, beside "+"
ENTAILMENTS = frozenset(
    ("entailment", "neutral", "contradiction", "entails", "contradicts", "contradictory", "not_entailment",
     "not-entailment", "non-entailment", "non_entailment", "entailed", "蕴含", "中立", "矛盾")
)  # fmt: skip
TEXT_ROLES = ("text", "first", "second", "negative")  # in the order of an example's texts
MORE_TEXTS, MORE_LABELS = ("data",), ("score",)  # what a text and a label are called where there is nothing better
_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")


def has_text(names: Iterable[str]) -> bool:
    """Whether one of the columns, in small letters, is a text."""
    return not {*TEXT_NAMES, *MORE_TEXTS}.isdisjoint(names)


def label_beside_text(head: FileHead) -> str:
    """The column of labels in a file with a column of texts; nothing where there are not both."""
    label = next((name for name in head.form.columns if name.strip().lower() in (*LABEL_NAMES, *MORE_LABELS)), "")
    return label if has_text(head.names) else ""


def labelled_rows(
    source: str, rows: Rows, roles: Roles, reading: Reading, may_be_numbers: bool = False
) -> Iterator[Entry]:
    """The texts of all rows with a label each, a tuple of labels where the file has lists; None where it has none."""
    coming, says_none = rows(reading), False
    if "label" in roles:
        coming, says_none = _dashes(coming, roles["label"])
    labels = _Labels(source, reading, says_none)
    names = [roles[role] for role in TEXT_ROLES if role in roles]
    for line, row in coming:
        texts = row_texts(source, line, row, names, reading)
        if texts is None:
            continue
        gold = None
        if "label" in roles:
            is_good, gold = labels.label(line, row.get(roles["label"]))
            if not is_good:
                continue
            if may_be_numbers and isinstance(gold, str) and _COMMA.fullmatch(gold):
                reading.fault(source, line, f"the label {gold!r} has a decimal comma; write it with a point, as 4.5.")
                continue
        if gold is not None and not all(map(str.strip, texts)):
            reading.count("labelled rows with an empty text were skipped", source, line, "the text is empty; skipped.")
            continue
        yield line, texts, gold


def doubted(entries: Iterator[Entry], roles: Roles, reading: Reading) -> Iterator[Entry]:
    """The same; where most labels stand once it is said, for then texts may stand where labels should."""
    counts: Counter[str] = Counter()
    for entry in entries:
        counts.update(labels_of(entry[2]))
        yield entry
    if single := label_sets.singles(counts):
        named = ",".join(f"{role}=…" for role in roles)
        reading.tell(f"{single}; are the columns swapped? Say which is which: --columns {named}.")


def row_texts(
    source: str, line: int, row: Mapping[str, object], names: list[str], reading: Reading
) -> tuple[str, ...] | None:
    """The row's texts, cleaned, or None after a fault."""
    texts = []
    for name in names:
        value = row.get(name)
        if not isinstance(value, str):
            what = "is missing" if value is None else f"holds {type(value).__name__}"
            reading.fault(source, line, f"the field {name!r} {what}, but must hold text.")
            return None
        texts.append(clean(value, source, line, reading))
    return tuple(texts)


def _dashes(rows: Iterator[Row], column: str) -> tuple[Iterator[Row], bool]:
    """The same rows, and whether the label '-' says that there is none: so it does beside labels of entailment.

    The first other label decides; rows before it wait.
    """
    waiting: list[Row] = []
    has_dash = False
    for row in rows:
        waiting.append(row)
        label = row[1].get(column)
        if label is not None and not (isinstance(label, str) and label in ("", NO_LABEL)):
            is_entailment = isinstance(label, str) and label.strip().lower() in ENTAILMENTS
            return itertools.chain(waiting, rows), is_entailment
        has_dash = has_dash or label == NO_LABEL
        if not has_dash and len(waiting) >= UNLABELLED_ROWS:
            break  # a file without labels, of any size
    return itertools.chain(waiting, rows), False


class _Labels:
    """Labels as they come: all of one type, all there or none there."""

    def __init__(self, source: str, reading: Reading, says_none: bool = False) -> None:
        self.source, self.reading, self.says_none = source, reading, says_none  # whether '-' is no label
        self.type_line: tuple[type, int] | None = None
        self.is_labelled: bool | None = None

    def label(self, line: int, value: object) -> tuple[bool, str | tuple[str, ...] | None]:
        """(whether the row can be used, its label as text, or its labels where the file has lists)."""
        if self.says_none and isinstance(value, str) and value == NO_LABEL:
            self.reading.count(
                "rows with the label '-' were left out",
                self.source,
                line,
                "the label '-' says that there is none; left out.",
            )
            return False, None
        is_there = value is not None and not (isinstance(value, str) and value == "")
        if self.is_labelled is None:
            self.is_labelled = is_there
        if is_there != self.is_labelled:
            state = (
                "has no label, but rows before it have"
                if self.is_labelled
                else "has a label, but rows before it have none"
            )
            self.reading.fault(self.source, line, f"{state}; label all rows or none.")
            return False, None
        if not is_there:
            return True, None
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(each, (str, int, float)) and each != "" for each in several):
            message = f"the label is {str(value)[:40]}, but must be text or a number, or a list of such."
            self.reading.fault(self.source, line, message)
            return False, None
        wrong = next((each for each in several if isinstance(each, float) and not math.isfinite(each)), None)
        if wrong is not None:
            self.reading.fault(self.source, line, f"the label is {wrong}, which is no number; correct it or remove it.")
            return False, None
        if isinstance(value, str) and label_sets.is_pythons(value):
            message = f'the label {value[:40]!r} is a list as Python writes it; write it as JSON: ["a", "b"], or a|b.'
            self.reading.fault(self.source, line, message)
            return False, None
        kind, first = self.type_line = self.type_line or (type(value), line)
        if _type_name(kind) != _type_name(type(value)):
            before = f"{self.reading.place(first)} has {_type_name(kind)}"
            message = f"the label {value!r} is {_type_name(type(value))}, but {before}; write all alike."
            self.reading.fault(self.source, line, message)
            return False, None
        labels = tuple(str(each).lower() if isinstance(each, bool) else str(each) for each in several)
        return True, tuple(dict.fromkeys(labels)) if isinstance(value, list) else labels[0]


def _type_name(kind: type) -> str:
    return {str: "text", bool: "true or false", list: "a list"}.get(kind, "a number")


def class_labels(source: str, rows: Iterator[Row], selection: Selection, reading: Reading) -> Iterator[Row]:
    """The rows; numbers that stand for labels are named as the library `datasets` writes both."""
    column = selection.roles.get("label", "")
    names = number_names(source, column)
    return _named_labels(source, rows, (column, names), reading) if names else rows


def _named_labels(
    source: str, rows: Iterator[Row], named: tuple[str, tuple[str, ...]], reading: Reading
) -> Iterator[Row]:
    """The rows with names for the numbers of their labels, as the library `datasets` writes both; -1 is no label."""
    column, names = named
    reading.tell(f"numbers in the column {column} are named as the file says: 0 is {names[0]}, and so on.")
    for line, row in rows:
        label = row.get(column)
        if type(label) is not int:
            yield line, row
        elif -1 <= label < len(names):
            yield line, {**row, column: None if label < 0 else names[label]}
        else:
            reading.fault(source, line, f"the label is {label}, but names are there for 0 to {len(names) - 1}.")
