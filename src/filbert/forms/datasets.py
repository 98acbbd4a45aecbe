"""A labelled file comes in (table, JSON, Parquet, CoNLL, SQuAD, choices); Examples for a task go out, one by one.

Which column is which is told from known names, or by the user: by name or, without a header, by number from 1.
A labelled row with an empty text is skipped and counted; everything else that is wrong is a fault with its line.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import shutil
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.core.errors import InputError, one_of
from filbert.core.records import Example
from filbert.forms import asked, exports, label_sets, markup, parallel, tokens
from filbert.forms.columns import column_roles, late_role, named_roles
from filbert.forms.formats import Shape, shape, table_rows
from filbert.text.streams import Reading, clean, is_clean
from filbert.text.tables import Row

TASKS = ("classify", "pair", "tag", "relation", "answer", "choose", "embed", "translate")
UNLABELLED_ROWS = 1_000  # of a file whose rows have no label: so many are looked at for one
PLAIN_NAMES = ("id", "idx", "index", "guid", "pairid", "pair_id", "source", "split")  # say nothing of likeness
NO_LABEL = "-"  # what NLI corpora write where the annotators did not agree; elsewhere it is a label, beside "+"
ENTAILMENTS = frozenset(
    ("entailment", "neutral", "contradiction", "entails", "contradicts", "contradictory", "not_entailment",
     "not-entailment", "non-entailment", "non_entailment", "entailed", "蕴含", "中立", "矛盾")
)  # fmt: skip


def examples(
    path: str | os.PathLike[str],
    task: str = "classify",
    columns: Mapping[str, str | int] | None = None,
    encoding: str = "utf-8",
    reading: Reading | None = None,
) -> Iterator[Example]:
    """The examples of one file in order, numbered from 0; what is skipped or mended is counted in reading.report.

    columns: role -> column, e.g. {"text": "review", "label": "stars"}, or {"label": 1, "text": 2} without a header.
    Gold: classify, pair and embed a label, or a tuple of labels where the file has lists; tag a tuple of Spans;
    relation a Relation; answer a tuple of Answers; choose the number of the right choice; translate the target, whose
    path may be two files with a comma between them; None where the file does not say.
    reading: says more than the encoding alone: what to do with bytes that do not decode, where faults and counts go.
    """
    if task not in TASKS:
        raise one_of("the task", task, TASKS)
    return _examples(os.fspath(path), task, named_roles(task, columns), reading or Reading(encoding))


def _examples(path: str, task: str, wanted: dict[str, str], reading: Reading) -> Iterator[Example]:
    both = parallel.parallel(path) if task == "translate" else None
    if both is not None:
        tell_columns("two files, line by line", wanted, reading)
        for number, (line, texts, gold) in enumerate(parallel.side_by_side(both, reading)):
            yield Example(texts, gold, number, path, line)
        return
    with _named(path) as source:
        try:
            form = shape(source, reading, tuple(wanted.values()))
            yield from formed(source, task, form, wanted, reading, path)
        except InputError as error:
            if path != "-":
                raise
            raise InputError(str(error).replace(source, path)) from None  # nobody knows the copy's name


def formed(
    source: str, task: str, form: Shape, wanted: dict[str, str], reading: Reading, called: str = ""
) -> Iterator[Example]:
    """The examples of a file whose form is known, whatever its suffix says; called: as the user names it."""
    found = writable(source, task, _read(source, task, form, wanted, reading), reading)
    for number, (line, texts, gold) in enumerate(found):
        yield Example(texts, gold, number, called or source, line)


def writable(source: str, task: str, found: Iterator[Found], reading: Reading) -> Iterator[Found]:
    """The same; a label that no file could hold is a fault. Texts are clean by now."""
    known = set[str]()
    for line, texts, gold in found:
        new = {*markup.labels_of(gold)} - known if task != "translate" else set()
        known |= new
        wrong = next((label for label in new if not is_clean(label)), None)
        if wrong is None:
            yield line, texts, gold
            continue
        known.discard(wrong)
        reading.fault(source, line, f"the label {wrong!r:.60} holds a NUL, or half a surrogate pair; write it without.")


@contextlib.contextmanager
def _named(path: str) -> Iterator[str]:
    """The path itself; standard input is put in a temporary file, because a shape is told by a first look."""
    if path != "-":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "-"
        with copy.open("wb") as target:
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield str(copy)


Found = tuple[int, tuple[str, ...], Any]  # (line, texts, gold)
_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_WHOLE = re.compile(r"(-?)0*(\d+)(?:\.0)?")


READERS: dict[str, Callable[[str, Reading], Iterator[Found]]] = {
    "conll": markup.conll_examples,
    "units": markup.unit_examples,
    "inside": markup.inside_examples,
    "slashed": markup.slashed_examples,
    "conllu": markup.conllu_examples,
    "marked": markup.marked_examples,
    "masked": markup.masked_examples,
    "squad": asked.squad_examples,
    "choices": asked.choice_examples,
}


def _read(source: str, task: str, form: Shape, wanted: dict[str, str], reading: Reading) -> Iterator[Found]:
    if form.kind in markup.TASK_OF:
        meant = markup.TASK_OF[form.kind]
        if task != meant:
            raise InputError(f"{source}: is {form.told}, which is data for {meant}, not for {task}.")
        tell_columns(form.told, wanted, reading)
        return READERS[form.kind](source, reading)
    roles = column_roles(source, task, form, wanted)
    tell_taken(task, form, roles, reading)
    return task_rows(source, task, lambda how: _rows(source, (task, form, roles, wanted), how), roles, reading)


def tell_columns(what: str, wanted: Mapping[str, str], reading: Reading) -> None:
    """Says that named columns are passed over, of a file that has none to name."""
    if wanted:
        named = ", ".join(f"{role}={name}" for role, name in wanted.items())
        reading.tell(f"the columns {named} are passed over, since it is {what}.")


def tell_taken(task: str, form: Shape, roles: Mapping[str, str], reading: Reading) -> None:
    """Says which columns are passed over and, where it could be otherwise, what the data were taken for."""
    if form.kind != "brat":
        _tell_passed(task, roles, [name for name in form.columns if name not in form.doubles], reading)
    if form.is_guessed:
        reading.tell(f"{read_as(task, form, roles)}.")


def _tell_passed(task: str, roles: Mapping[str, str], columns: Iterable[str], reading: Reading) -> None:
    """Says which columns a task does not read."""
    unused = [name for name in columns if name not in roles.values() and not _is_option(task, roles, name)]
    unused = [name for name in unused if name != "relations" or task not in ("tag", "relation")]  # they are counted
    if unused:
        listed = ", ".join(name or "without a name" for name in unused)
        reading.tell(f"columns {listed} are passed over." if len(unused) > 1 else f"column {listed} is passed over.")


def task_rows(
    source: str, task: str, rows: Callable[[Reading], Iterator[Row]], roles: dict[str, str], reading: Reading
) -> Iterator[Found]:
    """What the rows of a table are for a task: (line, texts, gold) each; a row with a fault is left out.

    rows: gives them from the first, as often as it is asked.
    """
    if "tokens" in roles:
        return tokens.token_rows(source, rows(reading), roles, reading)
    if task == "choose":
        again = rows(Reading(reading.encoding, "replace", fault=lambda *_: None))
        return asked.choice_rows(source, rows(reading), again, roles, reading)
    if task in ("classify", "pair", "embed"):
        return _labelled(source, rows(reading), roles, reading, task)
    build: dict[str, Callable[[str, Iterator[Row], dict[str, str], Reading], Iterator[Found]]] = {
        "tag": markup.tagged_rows,
        "relation": markup.relation_rows,
        "answer": asked.answer_rows,
        "translate": parallel.pair_rows,
    }
    return build[task](source, rows(reading), roles, reading)


def _is_option(task: str, roles: Mapping[str, str], name: str) -> bool:
    """Whether a column is one of a question's options, which have no role of their own."""
    return task == "choose" and "options" not in roles and asked.NUMBERED.fullmatch(name.strip()) is not None


def read_as(task: str, form: Shape, roles: Mapping[str, str]) -> str:
    """What a file was taken for, and which column for what, as every command says it."""
    if form.kind in markup.TASK_OF:
        return f"read as {form.told}, for {task}"
    column = "" if form.has_header else "column "
    return f"read as {form.told}, for {task} with " + ", ".join(
        f"{role} from {column}{name}" for role, name in roles.items()
    )


Taken = tuple[str, Shape, dict[str, str], dict[str, str]]  # task, shape, columns that are read, those that were named


def _rows(source: str, taken: Taken, reading: Reading) -> Iterator[Row]:
    """The rows of the file with every column that is read; one that shows up late or is passed over is named."""
    return taken_rows(source, table_rows(source, taken[1], reading), taken, reading)


def taken_rows(source: str, rows: Iterator[Row], taken: Taken, reading: Reading) -> Iterator[Row]:
    """The plain rows of a file, or of what Python holds, with every column that is read."""
    task, form, roles, _ = taken
    paths = [name for name in roles.values() if name not in form.columns and "." in name]
    if paths:
        rows = exports.with_nested(rows, paths)
    if form.kind in ("json", "array", "held"):
        rows = _watched(source, rows, taken, reading)
    if task in ("classify", "pair") and (names := tokens.number_names(source, roles.get("label", ""))):
        rows = _named_labels(source, rows, (roles["label"], names), reading)
    if task == "embed" and "second" in roles and not {"label", "negative"} & roles.keys():
        _tell_unused(source, form, roles, reading)
    if task == "relation" and "relations" in form.columns and roles["head"] not in form.columns:
        rows = exports.related_rows(source, rows, roles["text"], reading)
    elif task == "tag" and "relations" in form.columns:
        rows = _counted_relations(source, rows, reading)
    return rows


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


def _watched(source: str, rows: Iterator[Row], taken: Taken, reading: Reading) -> Iterator[Row]:
    """The rows; a column that the first ones do not have, and that would have been read, is refused."""
    task, form, roles, wanted = taken
    known = set(form.columns) | form.nested
    for line, row in rows:
        if not wanted and not row.keys() <= known:
            for name in row.keys() - known:
                role = late_role(task, roles, name)
                if role:
                    named = ",".join(f"{each}={column}" for each, column in (roles | {role: name}).items())
                    message = f"brings the column {name!r}, which no row before it has; name it: --columns {named}."
                    reading.fault(source, line, message)
            known |= row.keys()
        yield line, row


def _tell_unused(source: str, form: Shape, roles: Mapping[str, str], reading: Reading) -> None:
    """Pairs without a label are learnt as alike: whoever has a label in another column should know."""
    unused = [name for name in form.columns if name not in roles.values() and name.lower() not in PLAIN_NAMES]
    if unused:
        message = "no column is read as a label or number, so every pair is taken for alike"
        reading.tell(f"{message}; if one says how alike they are: --columns …,label={unused[0]}.")


def _counted_relations(source: str, rows: Iterator[Row], reading: Reading) -> Iterator[Row]:
    for line, row in rows:
        for _ in row.get("relations") or ():
            reading.count(
                "relations between entities were passed over, which tag does not learn; see relation", source, line,
                "a relation is passed over, which tag does not learn.",
            )  # fmt: skip
        yield line, row


# -- texts with a label ------------------------------------------------------------------------------------------


def _labelled(source: str, rows: Iterator[Row], roles: dict[str, str], reading: Reading, task: str) -> Iterator[Found]:
    says_none = False
    if "label" in roles:
        rows, says_none = _dashes(rows, roles["label"])
    labels = _Labels(source, reading, says_none)
    names = [roles[role] for role in ("text", "first", "second", "negative") if role in roles]
    counts: Counter[str] = Counter()
    for line, row in rows:
        texts = row_texts(source, line, row, names, reading)
        if texts is None:
            continue
        gold = None
        if "label" in roles:
            is_good, gold = labels.label(line, row.get(roles["label"]))
            if not is_good:
                continue
            if task in ("pair", "embed") and isinstance(gold, str) and _COMMA.fullmatch(gold):
                reading.fault(source, line, f"the label {gold!r} has a decimal comma; write it with a point, as 4.5.")
                continue
        if gold is not None and not all(map(str.strip, texts)):
            reading.count("labelled rows with an empty text were skipped", source, line, "the text is empty; skipped.")
            continue
        counts.update(markup.labels_of(gold))
        yield line, texts, gold
    single = label_sets.singles(counts)
    if single and task != "embed":
        reading.tell(f"{single}; are the columns swapped? Say which is which: --columns {_spelt(roles)}.")


def _spelt(roles: Iterable[str]) -> str:
    return ",".join(f"{role}=…" for role in roles)


def row_texts(
    source: str, line: int, row: dict[str, Any], names: list[str], reading: Reading
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

    def label(self, line: int, value: Any) -> tuple[bool, str | tuple[str, ...] | None]:
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
        if _called(kind) != _called(type(value)):
            message = (
                f"the label {value!r} is {_called(type(value))}, but {self.reading.place(first)} has {_called(kind)}; "
                "write all alike."
            )
            self.reading.fault(self.source, line, message)
            return False, None
        found = tuple(str(each).lower() if isinstance(each, bool) else str(each) for each in several)
        return True, tuple(dict.fromkeys(found)) if isinstance(value, list) else found[0]


def _called(kind: type) -> str:
    return {str: "text", bool: "true or false", list: "a list"}.get(kind, "a number")


@dataclass(frozen=True, slots=True)
class LabelTable:
    """The labels of a dataset in a fixed order, how often each stands, and which look like the same one twice."""

    labels: tuple[str, ...]
    counts: Mapping[str, int]
    near_duplicates: tuple[tuple[str, ...], ...] = ()

    def check(self) -> LabelTable:
        """Itself, or an error that names labels which are blank, or differ only by case, width or white space."""
        blank = next((name for name in self.labels if not name.strip()), None)
        if blank is not None:
            raise InputError(f"the label of {self.counts[blank]:,} rows is {blank!r}; name it, or remove the rows.")
        for group in self.near_duplicates:
            listed = " and ".join(f"{name!r} ({self.counts[name]:,} times)" for name in group)
            raise InputError(f"the labels {listed} differ only by case or white space; write them alike.")
        return self


def label_table(data: Iterable[Example]) -> LabelTable:
    """The labels of classify, pair, tag and relation examples, sorted: numbers by value, else by character."""
    counts: Counter[str] = Counter()
    for example in data:
        counts.update(markup.labels_of(example.gold))
    is_numeric = all(label.isascii() and label.isdigit() for label in counts)
    labels = tuple(sorted(counts, key=(lambda label: (int(label), label)) if is_numeric else None))
    return LabelTable(labels, dict(counts), near_duplicates(labels))


def near_duplicates(labels: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Groups of labels that are the same but for case, width, white space or zeros that say nothing (1, 01, 1.0).

    Signs are not white space: A and A- are two grades, -1 and 1 two numbers.
    """
    groups: dict[str, list[str]] = {}
    for label in labels:
        key = " ".join(unicodedata.normalize("NFKC", label).casefold().replace("_", " ").split())
        whole = _WHOLE.fullmatch(key)
        groups.setdefault(whole[1] + whole[2] if whole else key, []).append(label)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)
