"""Labelled files come in; copies go out in which everything that can be repaired in one way only is, with a list of it.

The text of an example is never changed, and neither is a line in which nothing was repaired. What is not safe
(contradictions, unknown labels, spans that miss) stays as it is, for the doctor to tell.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from filbert.core.errors import FilbertError, InputError
from filbert.core.files import whole_file
from filbert.core.records import Example
from filbert.doctor import checks, mending_json
from filbert.doctor.checks import Ends
from filbert.doctor.diagnosis import CORPUS, read_for
from filbert.forms import datasets
from filbert.forms.columns import column_roles, named_roles
from filbert.forms.formats import Shape, shape, whole_json
from filbert.forms.json_places import Change, made
from filbert.forms.spec import FileForm, FileSpec, Lines, Roles, spec_of_form
from filbert.text import corpus, streams, tables
from filbert.text.characters import is_blank
from filbert.text.streams import Reading

LIST = "fixes.jsonl"
SHOWN_CHARS = 200  # of a row, in the list
LEFT_OUT = ("removed, for it stands in", "removed, for the same text and label")  # an example, and not an empty row


@dataclass(frozen=True, slots=True)
class Fix:
    """One repair; line 0 is the file as a whole, after None a row that was removed."""

    file: str
    line: int
    what: str
    before: str
    after: str | None = None


@dataclass(slots=True)
class Mended:
    """What was written, and how often each repair was made."""

    files: list[str] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # (file, what) -> how often
    remarks: list[str] = field(default_factory=list)  # on what stands in folders and was not copied


def mended(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    task: str | None = None,
    columns: Mapping[str, str | int] | None = None,
    encoding: str = "utf-8",
) -> Mended:
    """Writes repaired copies of the files into the folder `out`, unpacked, and `fixes.jsonl` beside them.

    Nothing that exists is written over, and a file that cannot be read leaves nothing behind. The first file is taken
    to be the training set: examples that stand in a later one are removed from it.
    """
    walk = streams.CorpusReport()
    sources = [_source(path, task, columns, encoding) for path in corpus.files(paths, walk)]
    folder = Path(out)
    targets = _targets(folder, sources)
    done = Mended([str(target) for target in targets], remarks=walk.remarks())
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            parts = [stack.enter_context(whole_file(target)) for target in (*targets, folder / LIST)]
            log = _Log(stack.enter_context(parts[-1].open("w", encoding="utf-8", newline="\n")), done.counts)
            leaks = _leaks(sources)
            for source, part in zip(sources, parts, strict=False):
                copy = _Copy(source, log, leaks if source is sources[0] else {})
                with part.open("w", encoding=source.copy_encoding, newline="\n") as handle:
                    copy.write(handle)
                _check_copy(source, part, copy)
            log.handle.flush()
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):  # nothing is in it, or it was never made
                folder.rmdir()
        raise
    return done


def _check_copy(source: _Source, part: Path, copy: _Copy) -> None:
    """Reads a copy again: it must hold the examples of its file and no others, but for those that were removed."""
    if source.spec is None:
        return
    before = list(map(_key, source.kept(source.path)))
    after = list(map(_key, source.kept(str(part))))
    right = len(before) - copy.num_removed
    lost = set(before) - set(after) - copy.leaked
    # Where an answer that is now a choice makes an example of a row that was none, there are more than before.
    may_gain = source.task_form is not None and source.task_form.may_gain
    if lost or (not may_gain and (len(after) != right or not set(after) <= set(before))):
        raise FilbertError(
            f"{source.path}: its repaired copy would hold {len(after):,} examples where {right:,} are right, or others "
            "than it had. That is an error of filbert: nothing was written; please report it."
        )


def _key(example: Example) -> int:
    return checks.exact_key(example.texts)


@dataclass(frozen=True, slots=True)
class _Source:
    """A file, what it is, and how it is read."""

    path: str
    spec: FileSpec | None  # of the task that it is data for; None: of a corpus
    form: Shape
    roles: Roles
    columns: Mapping[str, str | int] | None
    encoding: str

    @property
    def task_form(self) -> FileForm | None:
        """The form that it has of its task alone; None for a table, rows or a corpus."""
        return self.spec.forms.get(self.form.kind) if self.spec is not None else None

    def quiet(self) -> Reading:
        """A reading that passes over every fault: the doctor tells them."""
        return Reading(self.encoding, fault=lambda *_: None)

    def examples(self, path: str) -> Iterator[Example]:
        """Those of the file, or of a copy of it, which has the same form."""
        assert self.spec is not None, "a corpus has no examples"
        named = {role: str(column) for role, column in (self.columns or {}).items()}
        return datasets.formed(path, self.spec, self.form, named, self.quiet())

    def kept(self, path: str) -> Iterator[Example]:
        """Those that stay even where they are labelled: with a text, but in tasks whose texts may be empty."""
        may_be_blank = self.spec is not None and self.spec.keeps_blank
        return (one for one in self.examples(path) if may_be_blank or not any(map(is_blank, one.texts)))

    @property
    def copy_encoding(self) -> str:
        """The encoding of the copy: the same, without a byte order mark."""
        return "utf-8" if Reading(self.encoding).is_utf8 else self.encoding


def _source(path: str, task: str | None, columns: Mapping[str, str | int] | None, encoding: str) -> _Source:
    reading = Reading(encoding)
    if path == "-":
        raise InputError("-: standard input cannot be read twice, which repairs need; save it first.")
    if tables.kind(path) == "parquet":
        raise InputError(f"{path}: is Parquet, of which no repaired copies are made; convert it to JSON lines.")
    names = tuple(str(column) for column in (columns or {}).values())
    form = Shape("text") if task == CORPUS else shape(path, reading, names)
    if form.kind in ("brat", "held"):
        raise InputError(f"{path}: is {form.description}, of which no repaired copies are made; see it without --fix.")
    spec = read_for(path, task, form, reading, columns)
    is_table = spec is not None and spec_of_form(form.kind) is None
    roles = column_roles(path, spec, form, named_roles(spec, columns)) if spec is not None and is_table else {}
    return _Source(path, spec, form, roles, columns, encoding)


def _targets(folder: Path, sources: Sequence[_Source]) -> list[Path]:
    """Where each copy goes; refused where it would fall on something."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file, but repaired copies need a folder.")
    targets: dict[Path, str] = {folder / LIST: "the list of repairs"}
    for source in sources:
        if Path(source.path).resolve().parent == folder.resolve():
            raise InputError(f"{folder}: is where {source.path} lies; name another folder, for no file is changed.")
        target = folder / streams.stem_and_suffix(source.path)[0]
        if target in targets:
            raise InputError(f"{target}: both {targets[target]} and {source.path} would be written there; mend apart.")
        targets[target] = source.path
    for target in targets:
        if os.path.lexists(target):
            raise InputError(f"{target}: is there already; name another folder, for nothing is written over.")
    return list(targets)[1:]


class _Log:
    """Writes down each repair."""

    def __init__(self, handle: IO[str], counts: Counter[tuple[str, str]]) -> None:
        self.handle, self.counts = handle, counts

    def add(self, fix: Fix) -> None:
        self.counts[fix.file, fix.what] += 1
        self.handle.write(json.dumps(dataclasses.asdict(fix), ensure_ascii=False) + "\n")


# -- what is twice -----------------------------------------------------------------------------------------------


def _keys(texts: Sequence[str], more: str) -> tuple[int, int]:
    return checks.exact_key(texts, more), checks.loose_key(texts, more)


def _leaks(sources: Sequence[_Source]) -> dict[int, str]:
    """Hashes of the examples of all files but the first -> the file."""
    file_of: dict[int, str] = {}
    for source in sources[1:]:
        if source.spec is not None and source.spec is sources[0].spec:
            for example in source.examples(source.path):
                for key in _keys(example.texts, source.spec.gold_key(example.gold).more):
                    file_of.setdefault(key, source.path)
    file_of.pop(0, None)  # the hash of what has no letters
    return file_of


class Removals:
    """Says of each example whether it is to be removed, and why."""

    def __init__(self, leaks: Mapping[int, str]) -> None:
        self.leaks = leaks
        self.seen: dict[tuple[int, str], str] = {}
        self.leaked: set[int] = set()  # hashes of the texts of what stands in another file

    def reason(self, texts: Sequence[str], label: str, place: str, more: str = "") -> str:
        """Why the example goes, or nothing."""
        exact, loose = _keys(texts, more)
        leaked = self.leaks.get(exact) or self.leaks.get(loose)
        if leaked:
            self.leaked.add(checks.exact_key(texts))
            return f"removed, for it stands in {leaked} too"
        first = self.seen.setdefault((exact, label), place)
        return "" if first == place else "removed, for the same text and label stand before"


def _removed_lines(source: _Source, removals: Removals) -> dict[int, str]:
    """The lines of the examples to be removed -> why."""
    assert source.spec is not None, "a corpus has no examples"
    reasons: dict[int, str] = {}
    for example in source.examples(source.path):
        if example.gold is None:
            continue
        key = source.spec.gold_key(source.spec.as_repaired(example).gold)
        reason = removals.reason(example.texts, (key.label or "").strip(), str(example.line), key.more)
        if reason:
            reasons[example.line] = reason
        elif not source.spec.keeps_blank and any(map(is_blank, example.texts)):
            reasons[example.line] = "removed, for a text is empty"
    return reasons


# -- copies ------------------------------------------------------------------------------------------------------


class _Copy:
    """One file, rewritten line by line or, where it is one JSON value, at once."""

    def __init__(self, source: _Source, log: _Log, leaks: Mapping[int, str]) -> None:
        self.source, self.log = source, log
        self.removals = Removals(leaks)
        self._removed: dict[int, str] = {}
        self.num_removed = 0  # examples, without rows that are none

    @property
    def path(self) -> str:
        """The file that is copied."""
        return self.source.path

    @property
    def removed(self) -> Mapping[int, str]:
        """The lines of the examples that go -> why."""
        return self._removed

    def quiet(self) -> Reading:
        """A reading of the file that passes over every fault."""
        return self.source.quiet()

    @property
    def leaked(self) -> set[int]:
        """The hashes of what was removed because it stands in another file."""
        return self.removals.leaked

    def write(self, handle: IO[str]) -> None:
        """The repaired file."""
        source = self.source
        ends = checks.ends(source.path, source.encoding)
        self._tell_ends(ends)
        has_json_repairs = source.task_form is not None and source.task_form.repaired_json is not None
        if source.spec is not None and (source.form.kind == "array" or has_json_repairs):
            self._write_json(source.spec, handle)
            return
        lines = self._lines()
        first = True
        for line in lines:
            handle.write(line if first else "\n" + line)
            first = False
        if ends.has_last and not first:
            handle.write("\n")

    def fix(self, line: int, what: str, before: str, after: str | None = None) -> None:
        """Writes one repair down."""
        shown = None if after is None else after[:SHOWN_CHARS]
        self.num_removed += what.startswith(LEFT_OUT)
        self.log.add(Fix(self.source.path, line, what, before[:SHOWN_CHARS], shown))

    def _tell_ends(self, ends: Ends) -> None:
        if ends.has_mark:
            self.fix(1, "byte order mark removed", "U+FEFF", "")
        if ends.num_nuls:
            self.fix(0, "NUL characters removed", f"{ends.num_nuls:,} NUL", "")
        if ends.num_crlf or ends.num_cr:
            self.fix(0, "line ends made LF", f"{ends.num_crlf:,} CRLF, {ends.num_cr:,} CR", f"{ends.num_lines:,} LF")

    def _lines(self) -> Iterator[str]:
        source = self.source
        kind = "text" if source.spec is None else source.form.kind
        if source.spec is not None and kind != "text":
            self._removed = _removed_lines(source, self.removals)
        lines = streams.whole_lines(source.path, Reading(source.encoding))
        if source.task_form is not None and source.task_form.repaired_lines is not None:
            return source.task_form.repaired_lines(self, lines)
        if source.spec is not None and kind == "table":
            return self._table(source.spec, lines)
        if source.spec is not None and kind == "json":
            return self._json_lines(source.spec, lines)
        return (line for number, line in lines if not self.is_removed(number, line))

    def is_removed(self, line: int, text: str) -> bool:
        """Whether the example of that line goes; if so, its text is written down as removed."""
        if line in self._removed:
            self.fix(line, self._removed[line], text)
        return line in self._removed

    # -- tables --------------------------------------------------------------------------------------------------

    def _table(self, spec: FileSpec, lines: Lines) -> Iterator[str]:
        form, roles = self.source.form, self.source.roles
        names = form.columns
        is_header = form.has_header
        for number, record, places in records(lines, form.delimiter):
            if is_header and record.strip(f" {form.delimiter}"):
                is_header = False
            elif places is not None and len(places) == len(names):
                if self.is_removed(number, record) or self._is_empty_row(spec, number, record, places):
                    continue
                if "label" in roles and spec.strips_labels:
                    record = self._stripped(number, record, places[names.index(roles["label"])])
            yield record

    def _is_empty_row(self, spec: FileSpec, number: int, record: str, places: list[Place]) -> bool:
        names, roles = self.source.form.columns, self.source.roles
        is_unquoted = self.source.form.delimiter == "\t"
        cells = {role: cell(record[slice(*places[names.index(name)])], is_unquoted) for role, name in roles.items()}
        is_empty = mending_json.is_empty(spec, cells)
        if is_empty:
            self.fix(number, "removed, for a text is empty", record)
        return is_empty

    def _stripped(self, number: int, record: str, place: Place) -> str:
        raw = record[slice(*place)]
        is_quoted = raw.startswith('"') and self.source.form.delimiter != "\t"
        new = f'"{raw[1:-1].strip()}"' if is_quoted else raw.strip()
        if new == raw or not new.strip('"'):
            return record  # of blanks nothing would be left, which is another fault
        self.fix(number, "white space around the label removed", raw, new)
        return record[: place[0]] + new + record[place[1] :]

    # -- JSON ----------------------------------------------------------------------------------------------------

    def _json_lines(self, spec: FileSpec, lines: Lines) -> Iterator[str]:
        roles = self.source.roles
        coming = next(lines, None)
        while coming is not None:
            (number, line), coming = coming, next(lines, None)
            if self.is_removed(number, line):
                continue
            try:
                row = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError):
                if coming is None and line.lstrip().startswith("{"):
                    self.fix(number, "unfinished last line removed", line)
                    continue
                row = None
            if not isinstance(row, dict):
                yield line
                continue
            if mending_json.is_empty(spec, {role: row.get(name) for role, name in roles.items()}):
                self.fix(number, "removed, for a text is empty", line)
                continue
            changes = mending_json.row_changes(spec, roles, line)
            for change in changes:
                self.fix(number, change.what, change.before, change.after)
            yield made(line, changes)

    def _write_json(self, spec: FileSpec, handle: IO[str]) -> None:
        source = self.source
        whole_json(source.path, Reading(source.encoding))  # refuses what is not JSON, by line
        text = "".join(streams.texts(source.path, Reading(source.encoding)))
        changes = self._json_changes(spec, text)
        for change in changes:
            self.fix(text.count("\n", 0, change.edit[0]) + 1, change.what, change.before, change.after)
        handle.write(made(text, changes))

    def _json_changes(self, spec: FileSpec, text: str) -> list[Change]:
        form = self.source.task_form
        if form is not None and form.repaired_json is not None:
            return form.repaired_json(text, self.removals.reason)
        return mending_json.array_changes(spec, self.source.roles, text, _removed_lines(self.source, self.removals))


Place = tuple[int, int]


def cell(raw: str, is_unquoted: bool) -> str:
    """What a cell says, as it is written in the file; tabs part cells that are never quoted."""
    if is_unquoted:
        return raw
    raw = raw[tables.spaces(raw, 0, "") :]
    return raw[1:-1].replace('""', '"') if raw.startswith('"') else raw


def records(lines: Iterable[tuple[int, str]], delimiter: str) -> Iterator[tuple[int, str, list[Place] | None]]:
    """(line, text, where its cells stand) of each record of a table, as tables.cells reads it; None for a broken one.

    Blank lines are records without cells, so that the texts make the file again.
    """
    coming = iter(lines)
    for number, line in coming:
        if delimiter == "\t" or '"' not in line:
            edges = [-1, *(place for place, char in enumerate(line) if char == delimiter), len(line)]
            is_blank = not line or (line.isspace() and delimiter not in line)
            yield number, line, None if is_blank else [(start + 1, end) for start, end in itertools.pairwise(edges)]
        else:
            yield number, *_quoted_record(line, coming, delimiter)


def _quoted_record(line: str, coming: Iterator[tuple[int, str]], delimiter: str) -> tuple[str, list[Place] | None]:
    """The record that begins with this line, taking further ones while a quoted cell is open."""
    done: list[str] = []
    base = place = 0  # where the line begins in the record, and how much of it is read
    cells: list[Place] = []
    while True:
        start = base + place  # spaces before a cell are none of it, but they are there to be removed
        place += tables.spaces(line, place, delimiter)
        is_quoted = line.startswith('"', place)
        place += is_quoted
        while is_quoted:
            end = line.find('"', place)
            if end >= 0 and not line.startswith('"', end + 1):
                place = end + 1
                break
            place = end + 2
            if end < 0:
                following = next(coming, None) if base < tables.QUOTE_LIMIT_CHARS else None
                if following is None:
                    return "\n".join([*done, line]), None
                done.append(line)
                base, line, place = base + len(line) + 1, following[1], 0
        if not is_quoted:
            place = end if (end := line.find(delimiter, place)) >= 0 else len(line)
        if place < len(line) and line[place] != delimiter:
            return "\n".join([*done, line]), None
        cells.append((start, base + place))
        if place >= len(line):
            return "\n".join([*done, line]), cells
        place += 1
