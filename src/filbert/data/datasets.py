"""A labelled file comes in (table, JSON, Parquet, CoNLL, SQuAD, choices); Examples for a task go out, one by one.

Which column is which is told from known names, or by the user: by name or, without a header, by number from 1.
A labelled row with an empty text is skipped and counted; everything else that is wrong is a fault with its line.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
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
from filbert.data import markup, written
from filbert.data.formats import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, Shape, shape, table_rows
from filbert.text.streams import Reading, clean
from filbert.text.tables import Row

TASKS = ("classify", "pair", "tag", "relation", "answer", "choose", "embed", "translate")
ROLES = {
    "classify": ("text", "label"),
    "pair": ("first", "second", "label"),
    "embed": ("text", "second", "negative", "label"),
    "tag": ("text", "entities"),
    "relation": ("head", "tail", "label", "text"),
    "answer": ("question", "context", "answers"),
    "choose": ("context", "question", "options", "label"),
    "translate": ("source", "target"),
}
OPTIONAL = frozenset({"label", "entities", "answers", "second", "negative", "target"})
REQUIRED = {"choose": ("context",)}  # options may stand in columns of their own, and a context need not be asked about
UNLABELLED_ROWS = 1_000  # of a file whose rows have no label: so many are looked at for one
SCORE_NAMES = (*LABEL_NAMES, "similarity", "score")  # of pairs that are more or less alike
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
    wanted = {role: str(column) for role, column in (columns or {}).items()}
    for role in wanted:
        if role not in ROLES[task]:
            raise one_of(f"a role in columns for {task}", role, ROLES[task])
    return _examples(os.fspath(path), task, wanted, reading or Reading(encoding))


def _examples(path: str, task: str, wanted: dict[str, str], reading: Reading) -> Iterator[Example]:
    both = written.parallel(path) if task == "translate" else None
    if both is not None:
        for number, (line, texts, gold) in enumerate(written.side_by_side(both, reading)):
            yield Example(texts, gold, number, path, line)
        return
    with _named(path) as source:
        form = shape(source, reading, tuple(wanted.values()))
        yield from formed(source, task, form, wanted, reading, path)


def formed(
    source: str, task: str, form: Shape, wanted: dict[str, str], reading: Reading, called: str = ""
) -> Iterator[Example]:
    """The examples of a file whose form is known, whatever its suffix says; called: as the user names it."""
    for number, (line, texts, gold) in enumerate(_read(source, task, form, wanted, reading)):
        yield Example(texts, gold, number, called or source, line)


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


def _read(source: str, task: str, form: Shape, wanted: dict[str, str], reading: Reading) -> Iterator[Found]:
    if form.kind in markup.TASK_OF:
        meant = markup.TASK_OF[form.kind]
        if task != meant:
            raise InputError(f"{source}: is {form.told}, which is data for {meant}, not for {task}.")
        return markup.READERS[form.kind](source, reading)
    roles = column_roles(source, task, form, wanted)
    tell_unused(task, roles, form.columns, reading)
    return task_rows(source, task, table_rows(source, form, reading), roles, reading)


def tell_unused(task: str, roles: Mapping[str, str], columns: Iterable[str], reading: Reading) -> None:
    """Says which columns a task does not read."""
    unused = [name for name in columns if name not in roles.values() and not _is_option(task, roles, name)]
    if unused:
        what = "columns" if len(unused) > 1 else "column"
        reading.tell(f"{what} {', '.join(unused)} {'are' if len(unused) > 1 else 'is'} passed over.")


def task_rows(source: str, task: str, rows: Iterator[Row], roles: dict[str, str], reading: Reading) -> Iterator[Found]:
    """What the rows of a table are for a task: (line, texts, gold) each; a row with a fault is left out."""
    build: dict[str, Callable[[str, Iterator[Row], dict[str, str], Reading], Iterator[Found]]] = {
        "classify": _labelled,
        "pair": _labelled,
        "embed": _labelled,
        "tag": markup.tagged_rows,
        "relation": markup.relation_rows,
        "answer": markup.answer_rows,
        "choose": markup.choice_rows,
        "translate": written.pair_rows,
    }
    return build[task](source, rows, roles, reading)


def _is_option(task: str, roles: Mapping[str, str], name: str) -> bool:
    """Whether a column is one of a question's options, which have no role of their own."""
    return task == "choose" and "options" not in roles and markup.NUMBERED.fullmatch(name.strip()) is not None


# -- which column is which ---------------------------------------------------------------------------------------


def column_roles(source: str, task: str, form: Shape, wanted: Mapping[str, str]) -> dict[str, str]:
    """Role -> column name; refuses what is missing or could be two things, and says how to name it."""
    for column in wanted.values():
        if column not in form.columns:
            raise one_of(f"{source}: the column", column, form.columns)
    if wanted:
        found = dict(wanted)
    elif form.has_header:
        found = _roles_by_name(source, task, form.columns)
    else:
        found = _roles_by_place(source, task, form)
    required = REQUIRED.get(task) or [role for role in ROLES[task] if role not in OPTIONAL]
    missing = [role for role in required if role not in found]
    if missing:
        raise InputError(
            f"{source}: no column for the {missing[0]} of {task} among {', '.join(form.columns)}; "
            f"name it: --columns {','.join(f'{role}=…' for role in ROLES[task])}."
        )
    return found


def _roles_by_name(source: str, task: str, columns: tuple[str, ...]) -> dict[str, str]:
    by_low = {name.strip().lower(): name for name in reversed(columns)}
    pair = next((pair for pair in PAIR_NAMES if pair[0] in by_low and pair[1] in by_low), None)
    if pair and task in ("pair", "embed"):
        first, second = by_low[pair[0]], by_low[pair[1]]
        if task == "embed":
            texts = {"text": first, "second": second} | _one(source, by_low, "negative", ("negative",))
            return texts if "negative" in texts else texts | _one(source, by_low, "label", SCORE_NAMES)
        return {"first": first, "second": second} | _one(source, by_low, "label", LABEL_NAMES)
    if pair and task == "classify":
        message = f"has two texts, {pair[0]} and {pair[1]}; that is data for pair, or name the one: --columns text=…"
        raise InputError(f"{source}: {message},label=….")
    found: dict[str, str] = {}
    for role, names in _ROLE_NAMES[task].items():
        found |= _one(source, by_low, role, names)
    return found


_ROLE_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "classify": {"text": TEXT_NAMES, "label": LABEL_NAMES},
    "pair": {"label": LABEL_NAMES},
    "embed": {"text": TEXT_NAMES},
    "tag": {"text": TEXT_NAMES, "entities": ("entities", "spans", "label", "labels")},
    "relation": {
        "head": ("head", "subject", "e1", "h"),
        "tail": ("tail", "object", "e2", "t"),
        "label": ("relation", *LABEL_NAMES),
        "text": TEXT_NAMES,
    },
    "answer": {
        "question": ("question", "query"),
        "context": ("context", "passage", "paragraph", "text"),
        "answers": ("answers", "answer"),
    },
    "choose": {
        "context": ("context", "passage", "article", "text", "sent1"),
        "question": ("question", "query", "sent2"),
        "options": ("options", "choices", "choice", "endings"),
        "label": ("label", "answer"),
    },
    "translate": {"source": written.SOURCE_NAMES, "target": written.TARGET_NAMES},
}
_PLAIN_NAMES = ("text", "sentence", "label", "relation", "entities", "context", "question", "answers")


def _one(source: str, by_low: dict[str, str], role: str, names: tuple[str, ...]) -> dict[str, str]:
    """{role: column} for the one column with such a name, the plainest name first; two of a kind are refused."""
    present = list(dict.fromkeys(name for name in names if name in by_low))
    plain = [name for name in present if name in _PLAIN_NAMES]
    if len(present) > 1 and not plain:
        listed = " or ".join(by_low[name] for name in present)
        raise InputError(f"{source}: which column is the {role}, {listed}? Name it: --columns {role}=….")
    chosen = (plain or present)[:1]
    return {role: by_low[chosen[0]]} if chosen else {}


_PLACES = {
    ("classify", 1): ("text",),
    ("classify", 2): ("text", "label"),
    ("pair", 2): ("first", "second"),
    ("pair", 3): ("first", "second", "label"),
    ("embed", 1): ("text",),
    ("embed", 2): ("text", "second"),
    ("embed", 3): ("text", "second", "label"),
    ("relation", 3): ("head", "tail", "text"),
    ("relation", 4): ("head", "tail", "label", "text"),
    ("translate", 1): ("source",),
    ("translate", 2): ("source", "target"),
}


def _roles_by_place(source: str, task: str, form: Shape) -> dict[str, str]:
    roles = _PLACES.get((task, len(form.columns)))
    if task == "tag":
        raise InputError(
            f"{source}: is {form.told}; for tag a file has a word and its tag on each line, with a tab or space "
            "between and a blank line between sentences (CoNLL: B-PER, I-PER, O), or JSON lines of text and entities."
        )
    if roles is None:
        shown = (
            ", ".join(f"{place}: {cell[:20]!r}" for place, cell in enumerate(form.sample[0], 1)) if form.sample else ""
        )
        raise InputError(
            f"{source}: has {len(form.columns)} columns and no header ({shown}); for {task} say which is which: "
            f"--columns {','.join(f'{role}=NUMBER' for role in ROLES[task])}."
        )
    if roles[-1] == "label":
        _check_label_place(source, form, roles)
    return dict(zip(roles, form.columns, strict=True))


def _check_label_place(source: str, form: Shape, roles: tuple[str, ...]) -> None:
    """Refuses a file without header whose label does not seem to come last: few values elsewhere, many there."""
    rows = [row for row in form.sample if len(row) == len(roles)]
    num_values = [len({row[place] for row in rows}) for place in range(len(roles))]
    fewest = min(num_values)
    if num_values[-1] > fewest and num_values[-1] > len(rows) / 2 and len(rows) > 3:
        likely = num_values.index(fewest) + 1
        raise InputError(
            f"{source}: without a header the label is expected in the last column, but in {len(rows):,} rows that has "
            f"{num_values[-1]:,} different values and column {likely} has {fewest:,}; say which is which: "
            f"--columns {','.join(f'{role}=…' for role in roles)}."
        )


# -- texts with a label ------------------------------------------------------------------------------------------


def _labelled(source: str, rows: Iterator[Row], roles: dict[str, str], reading: Reading) -> Iterator[Found]:
    if "label" in roles:
        rows, says_none = _dashes(rows, roles["label"])
    labels = _Labels(source, reading, "label" in roles and says_none)
    names = [roles[role] for role in ("text", "first", "second", "negative") if role in roles]
    for line, row in rows:
        texts = row_texts(source, line, row, names, reading)
        if texts is None:
            continue
        gold = None
        if "label" in roles:
            is_good, gold = labels.label(line, row.get(roles["label"]))
            if not is_good:
                continue
        if gold is not None and not all(map(str.strip, texts)):
            reading.count("labelled rows with an empty text were skipped", source, line, "the text is empty; skipped.")
            continue
        yield line, texts, gold


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
        if label not in (None, "", NO_LABEL):
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
        if self.says_none and value == NO_LABEL:
            self.reading.count(
                "rows with the label '-' were left out",
                self.source,
                line,
                "the label '-' says that there is none; left out.",
            )
            return False, None
        is_there = value is not None and value != ""
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
        if isinstance(value, float) and not math.isfinite(value):
            self.reading.fault(self.source, line, f"the label is {value}, which is no number; correct it or remove it.")
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
        """Itself, or an error that names labels which differ only by case, width or white space."""
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
    """Groups of labels that are the same but for case, width, white space, hyphens or leading zeros."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        key = "".join(unicodedata.normalize("NFKC", label).casefold().replace("_", " ").replace("-", " ").split())
        if key.isdigit() and label.strip().startswith("-"):
            key = "-" + key  # -1 is another number than 1
        whole = key.removesuffix(".0")
        groups.setdefault(whole.lstrip("0") or "0" if whole.isdigit() else key, []).append(label)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)
