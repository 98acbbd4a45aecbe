"""Labelled data as a user names them, files or examples, in; checked examples, and what reading them met, out."""

from __future__ import annotations

import codecs
import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.forms import datasets, label_sets, objects
from filbert.forms.columns import column_roles, named_roles, role_of
from filbert.forms.datasets import label_table
from filbert.forms.formats import shape
from filbert.forms.spec import FileSpec, spec_of_form
from filbert.text import streams, tables
from filbert.text.streams import Reading

Source = str | Path | objects.Data  # a file of labelled data, several, examples, or rows in whatever holds them
UTF8 = "utf-8"


Columns = Mapping[str, str | int]  # role -> column, by name or by number from 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How files of labelled data are read: which column is what, and their encoding; None: as each file says."""

    columns: Columns | None = None
    encoding: str | None = None
    trained_on: ReadOptions | None = None  # those of a model's training data, where they fit and the user gave none

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping | None):
            raise InputError(f"columns is {self.columns!r:.60}, but must map roles to columns: {{'text': 'review'}}.")
        if not isinstance(self.encoding, str | None):
            raise InputError(f"encoding is {self.encoding!r:.60}, but must be the name of one, such as 'gb18030'.")

    def as_json(self) -> dict[str, Any]:
        """The columns and the encoding that were named; UTF-8 need not be."""
        named = {"columns": dict(self.columns or {}), "encoding": self.encoding}
        return {name: value for name, value in named.items() if value and value != UTF8}

    def remembered(self) -> dict[str, Any]:
        """What a model's folder keeps of them: those of its teacher's data where the user named none."""
        named = self.as_json()
        return named if named or self.trained_on is None else self.trained_on.as_json()


AS_EACH_SAYS = ReadOptions()


def read(
    task: str, source: Source, options: ReadOptions = AS_EACH_SAYS, reading: Reading | None = None
) -> list[Example]:
    """The examples of all of it, as the task's data; what was passed over is counted in reading.report."""
    reading = reading if reading is not None else Reading()
    source = objects.kept(source)
    if isinstance(source, str | Path):
        return list(file_examples(task, source, options, reading))
    if not isinstance(source, list | tuple) or objects.are_rows(source):
        return _row_examples(task, source, options, reading)
    parts = ([part] if isinstance(part, Example) else _listed_file(task, part, options, reading) for part in source)
    return [example for part in parts for example in part]


def _listed_file(task: str, path: str | Path, options: ReadOptions, reading: Reading) -> list[Example]:
    """The examples of one file of a list; a text that stands there is told from a file that is not there."""
    if isinstance(path, str) and path != "-" and "," not in path and not os.path.exists(path):
        raise InputError(
            f"{path[:80]}: there is no such file; a string in a list names a file. If it is a text, give rows: "
            "(text, label), or (text,) without a label."
        )
    return list(file_examples(task, path, options, reading))


def _row_examples(task: str, source: objects.Data, options: ReadOptions, reading: Reading) -> list[Example]:
    """The examples of rows, by the columns that the user gave, else by those of the training data that they have."""
    spec = registry.files(task)
    columns, trained = options.columns or {}, options.trained_on or AS_EACH_SAYS
    if not columns and trained.columns:
        have = objects.table(source).columns
        fitting = {
            role: name for role, name in trained.columns.items() if str(name) in have and not str(name).isdigit()
        }
        if fitting and all(role in fitting or role_of(spec, role) in spec.optional for role in trained.columns):
            columns = fitting
            named = ", ".join(f"{role} from {name}" for role, name in columns.items())
            reading.tell(f"columns are those of the model's training data: {named}; `columns` says otherwise.")
    return list(objects.examples(source, spec, columns, reading))


def file_examples(task: str, path: str | Path, options: ReadOptions, reading: Reading) -> Iterator[Example]:
    """The examples of one file, one by one; otherwise as `read`."""
    spec = registry.files(task)
    trained = options.trained_on or AS_EACH_SAYS
    encoding = options.encoding or (_training_encoding(str(path), trained.encoding) if trained.encoding else "")
    if encoding and not options.encoding:
        reading.tell(f"read as {encoding}, as the model's training data were; --encoding says otherwise.")
    reading = dataclasses.replace(reading, encoding=encoding or reading.encoding)
    columns = options.columns or training_columns(str(path), spec, trained.columns or {}, reading)
    if columns and not options.columns:
        named = ", ".join(f"{role} from {name}" for role, name in columns.items())
        reading.tell(f"columns are those of the model's training data: {named}; --columns says otherwise.")
    return datasets.file_examples(path, spec, columns or None, reading)


def _training_encoding(path: str, encoding: str) -> str:
    """The encoding of the training data, where the file's first megabyte does not read as UTF-8; else nothing."""
    if path == "-" or tables.kind(path) == "parquet":
        return "" if path != "-" else encoding
    head = next(streams.blocks(path.partition(",")[0] if not Path(path).exists() else path, Reading()), b"")
    try:
        codecs.getincrementaldecoder(UTF8)().decode(head)
    except UnicodeDecodeError:
        return encoding
    return encoding if streams.wide_encoding(head) else ""


def training_columns(
    path: str, spec: FileSpec, columns: Mapping[str, str | int], reading: Reading
) -> dict[str, str | int]:
    """Those of the training data's columns that the file has, where they are all that the task needs; else none."""
    if path == "-" or not columns:
        return {}
    quiet = dataclasses.replace(reading, report=streams.CorpusReport(), fault=lambda *_: None)
    try:
        roles = named_roles(spec, columns)
    except InputError:  # of another task
        return {}
    present: dict[str, str | int] = {role: column for role, column in roles.items() if _has(path, column, quiet)}
    if not present:
        return {}
    wanted = {role: str(column) for role, column in present.items()}
    try:
        column_roles(path, spec, shape(path, quiet, tuple(wanted.values())), wanted)
    except InputError:  # one that the task needs is not there
        return {}
    return present


def _has(path: str, column: str, quiet: Reading) -> bool:
    """Whether a file has a column of that name, or that number where it has no header."""
    try:
        form = shape(path, quiet)
    except InputError:  # what cannot be told without a name may be told with it
        form = None
    if form is not None and (
        spec_of_form(form.kind) is not None or form.kind == "text" or (column.isdigit() and form.has_header)
    ):
        return False
    try:
        form = shape(path, quiet, (column,))
    except InputError:
        return False
    return column in form.columns and form.has_header is not column.isdigit()


def met(source: Source, reading: Reading) -> list[str]:
    """What reading the data met, one sentence for each thing, with the name of what was read."""
    return [f"{called(source, 'the data')}: {remark}" for remark in reading.report.remarks()]


def tell(source: Source, reading: Reading) -> list[str]:
    """The same, written to standard error."""
    sentences = met(source, reading)
    for sentence in sentences:
        sys.stderr.write(f"note: {sentence}\n")
    return sentences


def check_labelled(source: Source, data: Sequence[Example], needs_gold: bool, reading: Reading | None = None) -> None:
    """Refuses data that nothing can be learnt from; where reading passed rows over, that is said too."""
    why = " ".join(["", *reading.report.remarks()]) if reading is not None else ""
    if not data:
        raise InputError(f"{called(source)}: has no examples, so there is nothing to learn.{why}")
    if needs_gold and any(example.gold is None for example in data):
        raise InputError(f"{called(source)}: has no labels; give a file with a text and a label in each row.")


def called(source: Source, otherwise: str = "the training data") -> str:
    """What an error calls it: its files, or something else where there are none."""
    return ", ".join(map(str, _named_files(source))) or otherwise


def _named_files(source: Source) -> list[str | Path]:
    """The files that it names; none of rows."""
    if isinstance(source, str | Path):
        return [source]
    if not isinstance(source, list | tuple) or objects.are_rows(source):
        return []
    return [part for part in source if isinstance(part, str | Path)]


def label_names(source: Source, data: Sequence[Example], is_named: bool = True) -> tuple[str, ...]:
    """The labels to learn, in a fixed order; is_named: whether the user said which column they stand in."""
    table = label_table(data).check()
    labels = table.labels
    single = label_sets.singles(table.counts)
    if single and not is_named and 2 * len(labels) > len(data) and files(source):
        raise InputError(
            f"{called(source)}: {single}; are the columns swapped? If they are not, say so: --columns text=…,label=…."
        )
    if len(labels) < 2:
        only = f"only the label {labels[0]!r}" if labels else "no label"
        raise InputError(f"{called(source)}: has {only}, but two or more are needed.")
    return labels


def files(source: Source) -> list[Path]:
    """The files that it came from; none where some of it came from no file."""
    named = _named_files(source)
    is_whole = isinstance(source, str | Path) or (isinstance(source, list | tuple) and len(named) == len(source))
    return [Path(part) for part in named] if is_whole else []
