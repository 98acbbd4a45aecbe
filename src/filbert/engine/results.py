"""Records of predictions in, as they are made; a results file that no crash and no second writer spoils out.

The suffix says the form: JSON lines, CSV or TSV; or plain lines, of commands that write texts. A table has a column for
each field; lists and objects stand in their cells as JSON. TSV knows no quotes, so tabs and line ends in its cells
become spaces, which is counted.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.core.errors import InputError
from filbert.core.files import locked_by_us, regular_file, unwritten
from filbert.core.records import Example

FORMS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
OPEN_AS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
Record = dict[str, Any]


def form_of(path: Path | str, forms: Mapping[str, str] = FORMS, otherwise: str = "") -> str:
    """How a file of that name is written, JSON lines without a suffix; one that promises something else is refused.

    otherwise: the form of every suffix but those of other formats, for commands that write plain lines.
    """
    suffix = Path(path).suffix.lower()
    if suffix in forms:
        return forms[suffix]
    if otherwise and suffix not in OTHER_FORMATS:
        return otherwise
    if not suffix:  # promises nothing
        return "jsonl"
    listed = ", ".join(forms)
    raise InputError(f"{path}: ends in {suffix}, but the suffix says how results are written; take one of: {listed}.")


OTHER_FORMATS = {
    ".json", ".xlsx", ".xls", ".ods", ".parquet", ".arrow", ".feather", ".npy", ".npz", ".pt", ".pkl", ".html", ".htm",
    ".xml", ".pdf", ".docx", ".zip", ".gz", ".xz", ".zst", ".bz2", ".7z", ".db", ".sqlite", ".png", ".svg", ".conll",
    ".safetensors", ".yaml", ".yml",
}  # fmt: skip


def check_place(path: Path | str, data: Iterable[Path | str] = ()) -> None:
    """Refuses, before any work is done, a file whose folder is not there, that is no plain file, or one of the data."""
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"{path}: its folder does not exist; make it first, so that no work is done in vain.")
    if os.path.lexists(path):
        regular_file(path)
        for each in data:
            if os.path.exists(each) and os.path.samefile(each, path):
                raise InputError(f"{path}: is of the data that are read, and would be replaced; choose another --out.")


class Table:
    """Records as the lines of a table; the columns are those of the first record, and those that may come later."""

    def __init__(self, form: str, later: Sequence[str] = ()) -> None:
        self.form, self.later = form, tuple(later)
        self.columns: tuple[str, ...] = ()
        self.num_mended = 0  # cells of a TSV whose tabs and line ends became spaces

    def text(self, records: Sequence[Record]) -> str:
        """The lines, with the header before the first."""
        if self.form == "jsonl":
            return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        if self.form == "lines":
            return "".join(" ".join(record["written"].split("\n")) + "\n" for record in records)
        header = not self.columns and bool(records)
        if header:
            self.columns = tuple(dict.fromkeys((*records[0], *self.later)))
        rows = ([self.cell(record.get(name)) for name in self.columns] for record in map(self._checked, records))
        return self._joined([list(self.columns), *rows] if header else rows)

    def _checked(self, record: Record) -> Record:
        for name in record:
            if name not in self.columns:
                raise InputError(
                    f"the field {name!r} has no column, since the first result had none; write to a .jsonl file."
                )
        return record

    def cell(self, value: object) -> str:
        """A value as a cell holds it."""
        if value is None:
            return ""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if self.form == "tsv" and re.search("[\t\r\n]", text):
            self.num_mended += 1
            text = re.sub("\r\n|[\t\r\n]", " ", text)
        return text

    def _joined(self, rows: Iterable[list[str]]) -> str:
        if self.form == "tsv":
            return "".join("\t".join(row) + "\n" for row in rows)
        return "".join(map(_csv_line, rows))


def _csv_line(row: Sequence[str]) -> str:
    """A row of a CSV; both signs of a line end are quoted, which the writer does of those that end its own lines."""
    made = io.StringIO()
    csv.writer(made, lineterminator="\r\n").writerow(row)
    return made.getvalue().removesuffix("\r\n") + "\n"


@dataclass(frozen=True, slots=True)
class Place:
    """How far a file of results came: so many, and where the last text stood."""

    count: int
    file: str | None
    line: int
    texts: tuple[str, ...]


class Results(AbstractContextManager["Results"]):
    """A file of results, open for this process alone. Each batch is on the disk before the next is begun.

    A file that got no result is not left behind, unless it was there before.
    """

    def __init__(self, path: Path | str, resume: bool = False, later: Sequence[str] = (), otherwise: str = "") -> None:
        self.path, self.count, self.torn, self.whole = Path(path), 0, False, 0
        self.table = Table(form_of(path, otherwise=otherwise), later)
        check_place(path)
        self.handle = self._taken()
        try:
            if self._size() and not resume:
                raise InputError(f"{path}: is there already; go on with --resume, or choose another --out.")
            self.before = self._before() if self._size() else None
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _taken(self) -> int:
        """The file, locked: the system lets go of that however a process ends."""
        while True:
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | OPEN_AS, 0o666)
            except OSError as error:
                raise InputError(unwritten(self.path, error)) from None
            if not locked_by_us(handle):
                os.close(handle)
                raise InputError(
                    f"{self.path}: another process is writing it now; wait until that ends, or choose another --out."
                )
            if os.path.exists(self.path) and os.path.samestat(os.fstat(handle), os.stat(self.path)):
                return handle
            os.close(handle)  # whoever had it removed it meanwhile

    def close(self) -> None:
        """Lets go of the file; one without any result is removed."""
        if self.handle < 0:
            return
        try:
            if not self._size():
                self.path.unlink(missing_ok=True)
        except OSError:  # nobody may remove it: then it stays, empty
            pass
        finally:
            os.close(self.handle)
            self.handle = -1

    def _size(self) -> int:
        return os.fstat(self.handle).st_size

    def _before(self) -> Place | None:
        """What an earlier run left; a last line that was not finished is cut off."""
        last, number = b"", 0
        with self.path.open("rb") as file:
            for record in self._records(file):
                last, number = record, number + 1
            file.seek(self.whole)
            tail = file.read(2)
        self.count = number - (self._has_header and number > 0)
        if self.table.form == "lines":
            self._cut(tail)
            return Place(self.count, None, 0, ()) if self.count else None
        try:
            fields = self._read(last) if self.count else {"text": ""}
            more = [fields[name] for name in ("second", "negative") if name in fields]
            texts = (fields["text"], *more, *fields.get("options", ()))
            place = Place(self.count, fields.get("file"), int(fields.get("line") or 0), texts)
            if not number and tail != b'{"':
                raise ValueError("nothing of ours")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{self.path} line {max(1, number)}: is not a result that predict wrote; choose another --out."
            ) from None
        self._cut(tail)
        return place if self.count else None

    def _cut(self, tail: bytes) -> None:
        if tail:
            self.torn = True
            os.ftruncate(self.handle, self.whole)

    @property
    def _has_header(self) -> bool:
        return self.table.form in ("csv", "tsv")

    def _records(self, file: Iterable[bytes]) -> Iterator[bytes]:
        """Each whole record, the header of a table among them; `whole` is where the last of them ends."""
        record = b""
        for line in file:
            record += line
            is_open = self.table.form == "csv" and record.count(b'"') % 2
            if line.endswith(b"\n") and not is_open:
                if not self.whole and self._has_header:
                    self.table.columns = tuple(self._cells(record))
                self.whole += len(record)
                yield record
                record = b""

    def _cells(self, record: bytes) -> list[str]:
        text = record.decode("utf-8", "surrogatepass").removesuffix("\n")
        return text.split("\t") if self.table.form == "tsv" else next(csv.reader(io.StringIO(text, newline="")))

    def _read(self, record: bytes) -> Record:
        if self.table.form == "jsonl":
            return dict(json.loads(record))
        fields: Record = dict(zip(self.table.columns, self._cells(record), strict=True))
        return {**fields, **({"options": json.loads(fields["options"])} if "options" in fields else {})}

    def rest(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The examples that have no result yet; those that have one must be the same as then."""
        before, number = self.before, 0
        for number, example in enumerate(examples, 1):
            if before is None or number > before.count:
                yield example
            elif number == before.count and not self._is_there(example, before):
                self._other(number)
        if before is not None and number < before.count:
            self._other(number)

    def _is_there(self, example: Example, before: Place) -> bool:
        if self.table.form == "lines":  # which do not say of what they are
            return True
        texts = tuple(map(Table(self.table.form).cell, example.texts))
        return (example.line, texts) == (before.line, before.texts) and before.file in (None, example.source)

    def _other(self, number: int) -> None:
        raise InputError(
            f"{self.path}: its {self.count:,} results are not of this data, whose text {number:,} is another; "
            f"choose another --out."
        )

    def write(self, records: Sequence[Record]) -> None:
        """Adds these; when it returns they are on the disk. Where they cannot be written whole, none is."""
        data = self.table.text(records).encode("utf-8", "surrogatepass")
        try:
            with memoryview(data) as view:
                done = 0
                while done < len(data):
                    done += os.write(self.handle, view[done:])
            os.fsync(self.handle)
        except BaseException as error:  # Ctrl-C too
            os.ftruncate(self.handle, self.whole)
            if not isinstance(error, OSError):
                raise
            held = (
                f"it holds {self.count:,} results, all whole; make room, then go on with --resume" if self.count else ""
            )
            sentence = unwritten(self.path, error)
            raise InputError(f"{sentence.removesuffix('.')}: {held}." if held else sentence) from None
        self.whole += len(data)
        self.count += len(records)

    def remarks(self) -> list[str]:
        """Notes on what the format could not hold."""
        if not self.table.num_mended:
            return []
        return [f"{self.table.num_mended:,} cells had tabs or line ends, which TSV cannot hold; they are spaces now."]
