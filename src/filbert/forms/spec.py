"""What the labelled files of a task look like comes in, as one record of its folder; forms and doctor read by it.

A task says in its `files.py`, as FILES, which columns it reads and what they are usually called, what its rows become,
which kinds of file are data for it alone, and what is checked and repaired in them. Nothing here names a task: whoever
needs all of them gets them from `specs`, and the folders are the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol

from filbert.core import registry
from filbert.core.errors import one_of
from filbert.core.records import Example
from filbert.forms.gold import GoldKey, gold_key, labels_of
from filbert.forms.json_places import Change, Node
from filbert.text.streams import Reading
from filbert.text.tables import Row

if TYPE_CHECKING:
    from filbert.forms.formats import Shape

Entry = tuple[int, tuple[str, ...], object]  # (line, texts, gold): what becomes an Example
Roles = Mapping[str, str]  # role -> column
Rows = Callable[[Reading], Iterator[Row]]  # gives the rows from the first, as often as it is called
Lines = Iterator[tuple[int, str]]
RemovalReason = Callable[[Sequence[str], str, str], str]  # (texts, label, place) -> why an example is removed, or ""


@dataclass(frozen=True, slots=True)
class Remark:
    """What is wrong with an example or a line, and what to do about it."""

    message: str
    kind: str  # what all remarks of its sort have in common
    severity: str = "warning"  # or "error"
    line: int = 0  # where it is about a line, and not about an example


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a file is read for a task."""

    spec: FileSpec
    form: Shape
    roles: Roles  # the columns that are read
    named: Roles  # those of them that the user named


@dataclass(frozen=True, slots=True)
class FileHead:
    """The beginning of a file, by which a task claims it."""

    form: Shape
    names: frozenset[str]  # of the columns, in small letters
    first_value: Callable[[str], object]  # what stands in a column first; None where nothing does

    def has_objects(self, column: str) -> bool:
        """Whether a column holds objects, or lists of objects or lists, as spans are written; labels are no such."""
        value = self.first_value(column)
        return isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], (dict, list)))


class RepairedCopy(Protocol):
    """A repaired copy that is being written line by line."""

    @property
    def path(self) -> str:
        """The file that is copied."""

    @property
    def removed(self) -> Mapping[int, str]:
        """The lines of the examples that go -> why."""

    def quiet(self) -> Reading:
        """A reading of it that passes over every fault."""

    def is_removed(self, line: int, text: str) -> bool:
        """Whether the example of that line goes; if so, its text is written down as removed."""

    def fix(self, line: int, what: str, before: str, after: str) -> None:
        """Writes a repair down."""


def no_ids(_source: str, _reading: Reading) -> Iterator[tuple[int, str]]:
    """None: nothing in such a file has an id."""
    return iter(())


def no_remarks(_source: str, _reading: Reading) -> Iterator[Remark]:
    """None: each line is checked when it is read."""
    return iter(())


@dataclass(frozen=True, kw_only=True)
class FileForm:
    """A kind of file that is data for one task and has no columns to name."""

    read: Callable[[str, Reading], Iterator[Entry]]
    ids: Callable[[str, Reading], Iterator[tuple[int, str]]] = no_ids  # (line or 0, id) of all that has one
    check: Callable[[str, Reading], Iterator[Remark]] = no_remarks  # what reading does not refuse, and is odd
    # Repairs: of a file of lines, else of one JSON value; without either, only lines that are removed.
    repaired_lines: Callable[[RepairedCopy, Lines], Iterator[str]] | None = None
    repaired_json: Callable[[str, RemovalReason], list[Change]] | None = None
    may_gain: bool = False  # whether repairs make examples of what could not be read as one


def each_alone(counts: Sequence[int]) -> list[int]:
    """The tokens of each text that is read alone, with [CLS] and [SEP]."""
    return [count + 2 for count in counts]


def both_together(counts: Sequence[int]) -> list[int]:
    """The tokens of two texts that are read together, with [CLS] and two [SEP]."""
    return [sum(counts) + 3] if len(counts) == 2 else each_alone(counts)


def as_they_are(_source: str, rows: Iterator[Row], _selection: Selection, _reading: Reading) -> Iterator[Row]:
    """The plain rows of a file."""
    return rows


def usual_role(spec: FileSpec, _roles: Roles, name: str) -> str:
    """The role that has this name, in small letters, among its usual ones; else nothing."""
    return next((role for role, names in spec.names.items() if name in names), "")


@dataclass(frozen=True, kw_only=True)
class FileSpec:
    """The labelled files of a task: columns, readers, gold, checks and repairs."""

    task: str  # whose data they are, as messages name it
    rank: int = 100  # its place where tasks are listed; of those that claim files, later ones are asked first

    # Columns. A role is what a column is to the task, as "text" or "label".
    roles: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()  # empty: all that are not optional
    # Role -> the roles that are not needed beside it.
    stand_ins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shown: tuple[str, ...] = ()  # those that an error names as an example; empty: all
    names: Mapping[str, tuple[str, ...]]  # role -> usual names of its column, in small letters
    # Names that mean a role only where no column has a usual one.
    second_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)  # further words for roles, when users name columns
    # Number of columns without header -> their roles.
    places: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    no_places: str = ""  # what is said of a table without header where no order of columns is usual
    tuple_roles: tuple[str, ...] = ()  # of rows in Python that are tuples; empty: as in a file without header
    # (source, name in small letters -> column) -> role -> column where names mean something together; None: they do not
    find: Callable[[str, Mapping[str, str]], dict[str, str] | None] | None = None
    complete: Callable[[Roles, Shape], Roles] | None = None  # adds roles that need no column of their own
    late_role: Callable[[FileSpec, Roles, str], str] = usual_role  # of a column that only later rows have
    reads: Callable[[Roles, str], bool] | None = None  # whether a column without a role is read all the same

    # From rows and files to examples.
    prepare: Callable[[str, Iterator[Row], Selection, Reading], Iterator[Row]] = as_they_are
    rows: Callable[[str, Rows, Roles, Reading], Iterator[Entry]]
    forms: Mapping[str, FileForm] = field(default_factory=dict)  # by the kind of their Shape
    # What a file is by its first lines ("text" or "tsv" by its suffix), and by the value of a JSON file; None: no form
    # of this task.
    shape_of_lines: Callable[[Sequence[str], str], Shape | None] | None = None
    shape_of_json: Callable[[object], Shape | None] | None = None
    # Whether a path is of several files that belong together, how they are called, and what they hold.
    joined_path: Callable[[str, Reading], Iterator[Entry] | None] | None = None
    joined_as: str = ""

    # Which files are data for this task where the user does not say.
    claims_names: Callable[[FileHead], bool] | None = None
    claims_places: Callable[[FileHead], bool] | None = None
    claims_roles: Callable[[FileHead, Mapping[str, str | int]], bool] | None = None  # beside those with all its roles

    # What is right.
    labels: Callable[[object], Iterator[str]] = labels_of  # those that are counted and checked
    gold_key: Callable[[object], GoldKey] = gold_key
    mentions: Callable[[Example], tuple[str, ...]] = field(default=lambda _: ())  # of its text, that it speaks of
    gold_role: str = "label"

    # What the doctor checks.
    check: Callable[[Example], Iterator[Remark]] = field(default=lambda _: iter(()))
    num_tokens: Callable[[Sequence[int]], list[int]] = each_alone  # of what is read together, from those of the texts
    blank_text: int = 0  # the number, from 1, of the text that may be empty
    # What is said of all golds of a sort, after their number -> which golds these are.
    tallies: Mapping[str, Callable[[object], bool]] = field(default_factory=dict)
    has_one_label: bool = False  # whether each example has one of a few labels, so that their balance matters
    number_advice: Callable[[bool], str] | None = None  # where labels may be numbers; whether they surely are
    no_labels: str = ""  # what is said where no example has any, though all are labelled

    # What the doctor repairs.
    text_roles: tuple[str, ...] = ()  # labelled rows in which one of these is empty are removed
    keeps_blank: bool = False  # whether examples may have empty texts
    strips_labels: bool = True  # whether white space around a label means nothing
    repaired_row: Callable[[str, Mapping[str, Node]], list[Change]] = field(default=lambda _text, _nodes: [])
    as_repaired: Callable[[Example], Example] = field(default=lambda example: example)

    @property
    def needed(self) -> tuple[str, ...]:
        """The roles without which no row can be read."""
        return self.required or tuple(role for role in self.roles if role not in self.optional)


@cache
def specs() -> tuple[FileSpec, ...]:
    """The records of all tasks with files of their own, as lists of tasks have them: those that claim files first."""
    every = {task: registry.files(task) for task in registry.tasks()}
    readers = [spec for task, spec in every.items() if spec.task == task]  # the others read files as one of these
    return tuple(sorted(readers, key=lambda spec: (spec.claims_names is None, spec.rank, spec.task)))


def task_names() -> tuple[str, ...]:
    """The tasks with files of their own."""
    return tuple(spec.task for spec in specs())


def named_spec(task: str) -> FileSpec:
    """The record of one of these tasks; another name is refused."""
    if task not in task_names():
        raise one_of("the task", task, task_names())
    return registry.files(task)


def spec_of_form(kind: str) -> FileSpec | None:
    """The record of the task for which alone files of that kind are data; None: a table or the like, for any task."""
    return next((spec for spec in specs() if kind in spec.forms), None)
