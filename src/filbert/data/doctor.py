"""Corpora and labelled files come in; findings go out: what each file is, and what is wrong with it, by file and line.

Nothing stops at the first fault. Texts are hashed, not kept, so that duplicates across large files can be found.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from filbert.core.errors import InputError, did_you_mean, one_of
from filbert.core.records import Example
from filbert.data import datasets, markup
from filbert.data.formats import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, Shape, shape, table_rows
from filbert.text import corpus, streams
from filbert.text.sentences import sentences
from filbert.text.streams import Reading

SEVERITIES = ("error", "warning", "note")
MAX_OF_A_KIND = 100  # findings of one kind in one file that are listed; the rest is counted
WINDOW_CHARS = 510  # what a BERT of 512 positions reads of Chinese at once
LONG_LINE_CHARS = 100_000
FEW_EXAMPLES, LARGEST_SHARE = 5, 0.9


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a file; line 0 is the file as a whole."""

    severity: str
    file: str
    line: int
    message: str


def rendered(findings: Iterable[Finding]) -> list[str]:
    """One line of text for each finding: `train.csv:17: error: …`."""
    return [
        f"{found.file}:{found.line}: {found.severity}: {found.message}"
        if found.line
        else f"{found.file}: {found.severity}: {found.message}"
        for found in findings
    ]


def examine(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    task: str | None = None,
    columns: Mapping[str, str | int] | None = None,
    encoding: str = "utf-8",
) -> list[Finding]:
    """What the files are and what is wrong with them; `task` ("corpus" for plain text) is told from each if not given.

    Files are compared in the order given: the first with labels is taken to be the training set.
    """
    if task not in (None, "corpus", *datasets.TASKS):
        raise one_of("the task", task, ("corpus", *datasets.TASKS))
    seen = _Seen()
    findings: list[Finding] = []
    for path in corpus.files(paths):
        notebook = _Notebook(path)
        try:
            _examine_file(path, task, columns, encoding, notebook, seen)
        except InputError as error:
            notebook.add_error(error)
        findings += notebook.findings()
    return findings


class _Notebook:
    """The findings on one file, at most MAX_OF_A_KIND of each kind, and how many more there were."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.kept: list[Finding] = []
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, severity: str, line: int, message: str, kind: str = "") -> None:
        key = (severity, kind or message)
        self.counts[key] += 1
        if self.counts[key] <= MAX_OF_A_KIND:
            self.kept.append(Finding(severity, self.file, line, message))

    def fault(self, _source: str, line: int, message: str) -> None:
        self.add("error", line, message, _pattern(message))

    def mended(self, _source: str, line: int, message: str) -> None:
        self.add("warning", line, message, _pattern(message))

    def add_error(self, error: InputError) -> None:
        message = str(error).removeprefix(self.file)
        place = re.match(r" line (\d+): ", message)
        line = int(place.group(1)) if place else 0
        self.add("error", line, message[place.end() :] if place else message.removeprefix(": "))

    def findings(self) -> list[Finding]:
        """Notes on the whole file first, then the rest by line, then what was only counted."""
        order = sorted(self.kept, key=lambda found: (found.severity != "note", found.line))
        more = [
            Finding(severity, self.file, 0, f"{count - MAX_OF_A_KIND:,} more like: {kind}")
            for (severity, kind), count in self.counts.items()
            if count > MAX_OF_A_KIND
        ]
        return order + more


def _pattern(message: str) -> str:
    """The message without what differs between faults of one kind: quoted text, numbers, the name of a question."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[\d,]+\d|\d|^question \S+:", "…", message)


@dataclass(slots=True)
class _Seen:
    """What earlier files held: text hash -> (place, file, label hash), and the labels of the first labelled file."""

    texts: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    first_labels: tuple[str, Counter[str]] | None = None


def _examine_file(
    path: str,
    task: str | None,
    columns: Mapping[str, str | int] | None,
    encoding: str,
    notebook: _Notebook,
    seen: _Seen,
) -> None:
    if path == "-":
        raise InputError("-: the doctor reads a file twice, which standard input does not allow; save it first.")
    reading = Reading(encoding, fault=notebook.fault, mended=notebook.mended)
    _examine_bytes(path, encoding, notebook)
    texts = _Texts(notebook, seen)
    form = None if task == "corpus" else shape(path, reading, tuple(str(column) for column in (columns or {}).values()))
    task = task or told_task(path, form, reading)
    if task == "corpus" or form is None:
        told = (
            form.told if form is not None and form.kind != "text" else "plain text with blank lines between documents"
        )
        notebook.add("note", 0, f"read as {told}, for a corpus.")
        _examine_corpus(path, reading, texts)
    else:
        notebook.add("note", 0, f"read as {form.told}, for {task}{_taken(path, task, form, columns)}.")
        _examine_examples(path, task, columns, reading, texts)
    _tell_report(reading, notebook)


def _taken(path: str, task: str, form: Shape, columns: Mapping[str, str | int] | None) -> str:
    if form.kind in ("conll", "squad", "choices") or task == "choose":
        return ""
    wanted = {role: str(column) for role, column in (columns or {}).items()}
    roles = datasets.column_roles(path, task, form, wanted)
    return " with " + ", ".join(
        f"{role} from {'column ' * (not form.has_header)}{name}" for role, name in roles.items()
    )


def _tell_report(reading: Reading, notebook: _Notebook) -> None:
    report = reading.report
    if report.num_nuls:
        notebook.add("warning", 0, f"{report.num_nuls:,} NUL characters, which are removed in reading.")
    if report.num_blank:
        notebook.add("note", 0, f"{report.num_blank:,} blank documents or rows, which are skipped.")
    if report.num_split:
        message = f"{report.num_split:,} documents longer than {streams.PIECE_CHARS:,} characters, passed on in pieces."
        notebook.add("note", 0, message)


# -- bytes -------------------------------------------------------------------------------------------------------


def _examine_bytes(path: str, encoding: str, notebook: _Notebook) -> None:
    """Byte order mark and line ends, in a pass of its own: decoding does away with both."""
    if os.path.splitext(path)[1].lower() == ".parquet":
        return
    counts: Counter[str] = Counter()
    is_first, last = True, b""
    for block in streams.blocks(path, Reading(encoding, fault=lambda *_: None)):
        if is_first and block.startswith(b"\xef\xbb\xbf"):
            notebook.add("note", 1, "begins with a byte order mark, which is left out.")
        is_first = False
        both = block.count(b"\r\n") + (last == b"\r" and block.startswith(b"\n"))
        counts["CRLF"] += both
        counts["CR"] += block.count(b"\r") - both
        counts["LF"] += block.count(b"\n") - both
        last = block[-1:]
    used = {name: count for name, count in counts.items() if count > 0}
    if len(used) > 1 and encoding.lower().startswith(("utf-8", "utf8", "gb", "ascii", "latin")):
        listed = ", ".join(f"{count:,} {name}" for name, count in used.items())
        notebook.add("note", 0, f"mixes line ends ({listed}); all are read alike.")


# -- what a file is ----------------------------------------------------------------------------------------------


def told_task(source: str, form: Shape | None, reading: Reading) -> str:
    """The task a file is data for, or "corpus"; refused where it could be two things."""
    if form is None or form.kind == "text":
        return "corpus"
    special = {"conll": "tag", "squad": "answer", "choices": "choose"}
    if form.kind in special:
        return special[form.kind]
    if not form.has_header:
        return _task_by_place(source, form)
    names = {name.lower() for name in form.columns}
    if {"question", "context"} <= names:
        return "answer"
    if {"head", "tail"} <= names:
        return "relation"
    if any(first in names and second in names for first, second in PAIR_NAMES):
        return "pair"
    label = next((name for name in form.columns if name.lower() in LABEL_NAMES), None)
    if "entities" in names or (label and _holds_objects(source, form, label, reading)):
        return "tag"
    if label and names & set(TEXT_NAMES):
        return "classify"
    if names & set(TEXT_NAMES):
        return "corpus"
    raise InputError(f"{source}: cannot tell what {', '.join(form.columns)} are; name the task and the columns.")


def _holds_objects(source: str, form: Shape, column: str, reading: Reading) -> bool:
    rows = table_rows(source, form, Reading(reading.encoding, "replace", fault=lambda *_: None))
    return isinstance(next(rows, (0, {}))[1].get(column), (dict, list))


def _task_by_place(source: str, form: Shape) -> str:
    rows = [row for row in form.sample if len(row) == len(form.columns)]
    num_values = [len({row[place] for row in rows}) for place in range(len(form.columns))]
    width = len(form.columns)
    has_label = num_values[-1] <= max(len(rows) / 2, 3)
    if width == 1:
        return "corpus"
    if width == 2:
        return "pair" if min(num_values) > len(rows) / 2 and len(rows) > 10 else "classify"
    if width == 3 and has_label and not all(row[0].isdigit() for row in rows):
        return "pair"
    if width == 4 and sum(row[0] in row[3] and row[1] in row[3] for row in rows) > len(rows) / 2:
        return "relation"
    shown = ", ".join(f"{place}: {cell[:20]!r}" for place, cell in enumerate(rows[0], 1))
    message = f"has {width} columns and no header ({shown}); name the task and say which column is which"
    raise InputError(f"{source}: {message}: --columns text=NUMBER,label=NUMBER.")


# -- texts -------------------------------------------------------------------------------------------------------

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_SPACE = re.compile(r"\s")
_ODD = re.compile("[\ufffd\ufeff\x01-\x08\x0e-\x1f\x7f]")
HAN_SAMPLE_CHARS = 5_000_000


class _Texts:
    """Looks at every text once: lengths, Chinese, odd characters, duplicates; keeps numbers and hashes only."""

    def __init__(self, notebook: _Notebook, seen: _Seen) -> None:
        self.notebook, self.seen = notebook, seen
        self.lengths: Counter[int] = Counter()
        self.num_sampled = self.num_han = self.num_odd = self.num_texts = 0
        self.labels: Counter[str] = Counter()

    def look(self, texts: tuple[str, ...], line: int, place: str, label: str | None = None, key: str = "") -> None:
        """One example: its texts, where it stands, its label, and what else makes it differ from another."""
        self.num_texts += 1
        for text in texts:
            self.lengths[len(text)] += 1
            if self.num_sampled < HAN_SAMPLE_CHARS:
                self.num_sampled += len(text) - len(_SPACE.findall(text))
                self.num_han += len(_HAN.findall(text))
            odd = _ODD.search(text)
            if odd:
                self._odd(odd.group(), line + text.count("\n", 0, odd.start()) if line else 0, place)
        if not any(map(str.strip, texts)):
            self.notebook.add(
                "warning", line, "the text is empty." if line else f"{place}: the text is empty.", "empty"
            )
            return
        self._compare("\0".join((*texts, key)), line, place, label)

    def _odd(self, char: str, line: int, place: str) -> None:
        self.num_odd += 1
        what = {
            "\ufffd": "holds U+FFFD, the mark of a character that was lost earlier",
            "\ufeff": "holds a byte order mark (U+FEFF) in the middle",
        }.get(char, f"holds the control character U+{ord(char):04X}")
        self.notebook.add("warning", line, f"{what}." if line else f"{place}: {what}.", what)

    def _compare(self, text: str, line: int, place: str, label: str | None) -> None:
        key = _hash(text)
        label_key = _hash(label) if label is not None else 0
        here = (place, self.notebook.file, label_key)
        there, file, other = self.seen.texts.setdefault(key, here)
        if there == place and file == self.notebook.file:
            return
        where = "" if line else f"{place}: "
        if label is not None and other and other != label_key:
            message = f"{where}labelled {label!r}, but the same text has another label at {there}."
            self.notebook.add("warning", line, message, "the same text has another label elsewhere")
        elif file == self.notebook.file:
            self.notebook.add("warning", line, f"{where}the same text stands at {there}.", "the same text stands twice")
        if file != self.notebook.file:
            message = f"{where}the same text stands in another file, at {there}: leakage if one tests the other."
            self.notebook.add("warning", line, message, f"the same text stands in {file}: leakage")

    def tell(self, called: str) -> None:
        """The summary: how many, how long, how Chinese."""
        if not self.num_texts:
            self.notebook.add("error", 0, "holds no text that can be used.")
            return
        share = 100 * self.num_han / max(1, self.num_sampled)
        total = sum(self.lengths.values())
        message = (
            f"{self.num_texts:,} {called}; characters: half up to {_quantile(self.lengths, 0.5):,}, "
            f"95 % up to {_quantile(self.lengths, 0.95):,}, longest {max(self.lengths):,}; {share:.0f} % Chinese."
        )
        self.notebook.add("note", 0, message)
        num_long = sum(count for size, count in self.lengths.items() if size > WINDOW_CHARS)
        if num_long and called != "documents":
            message = (
                f"{num_long:,} texts ({100 * num_long / total:.1f} %) are longer than {WINDOW_CHARS} characters and "
            )
            self.notebook.add("note", 0, message + "will be read in overlapping windows.")


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def _quantile(lengths: Counter[int], share: float) -> int:
    left = share * sum(lengths.values())
    for size in sorted(lengths):
        left -= lengths[size]
        if left <= 0:
            return size
    return max(lengths)


# -- corpora -----------------------------------------------------------------------------------------------------


def _examine_corpus(path: str, reading: Reading, texts: _Texts) -> None:
    notebook = texts.notebook
    num_single = num_lines = 0
    for document in corpus.file_documents(path, None, "blank", reading):
        texts.look((document.text,), document.line, f"{path}:{document.line}")
        num_single += _is_one_sentence(document.text)
        num_lines += document.text.count("\n") + 1
        if len(document.text) > LONG_LINE_CHARS:
            for number, size in _long_lines(document.text):
                message = f"the line has {size:,} characters; is a line end missing?"
                notebook.add("warning", document.line + number, message, "the line is very long")
    texts.tell("documents")
    if num_lines > 1000 * max(1, texts.num_texts):
        message = f"{num_lines:,} lines in a row without a blank one are one document; if each is a text: --unit line."
        notebook.add("warning", 0, message)
    if num_single:
        share = 100 * num_single / texts.num_texts
        message = f"{num_single:,} documents ({share:.0f} %) have one sentence; next-sentence pairs need two."
        notebook.add("warning" if share > 50 else "note", 0, message)


def _is_one_sentence(text: str) -> bool:
    head = text[:2000]
    return len(text) <= len(head) and len(sentences(head)) == 1


def _long_lines(text: str) -> Iterator[tuple[int, int]]:
    return ((number, len(line)) for number, line in enumerate(text.split("\n")) if len(line) > LONG_LINE_CHARS)


# -- labelled files ----------------------------------------------------------------------------------------------


def _examine_examples(
    path: str, task: str, columns: Mapping[str, str | int] | None, reading: Reading, texts: _Texts
) -> None:
    num_labelled = 0
    for example in datasets.examples(path, task, columns, reading=reading):
        place = f"{path}:{example.line}" if example.line else f"{path} example {example.id + 1}"
        texts.look(example.texts, example.line, place, *_label_and_key(example))
        texts.labels.update(markup.labels_of(example.gold))
        num_labelled += example.gold is not None
        if task == "tag":
            _examine_overlaps(example, texts.notebook)
    texts.tell("examples")
    if num_labelled < texts.num_texts:
        texts.notebook.add(
            "note", 0, f"{texts.num_texts - num_labelled:,} examples have no label and can only be predicted."
        )
    if texts.labels:
        _examine_labels(path, task, texts.labels, texts.notebook, texts.seen)


def _label_and_key(example: Example) -> tuple[str | None, str]:
    gold = example.gold
    if isinstance(gold, markup.Relation):  # one text has many relations; only the same two mentions are a duplicate
        return gold.label, f"{gold.head.start} {gold.head.end} {gold.tail.start} {gold.tail.end}"
    return (gold if isinstance(gold, str) else None), ""


def _examine_overlaps(example: Example, notebook: _Notebook) -> None:
    for first, second in zip(example.gold or (), (example.gold or ())[1:], strict=False):
        if second.start < first.end:
            places = " and ".join(f"{span.label} {span.start}:{span.end}" for span in (first, second))
            message = f"the entities {places} overlap."
            notebook.add("warning", example.line, message, "entities overlap; a tagger can learn only one of them")


def _examine_labels(path: str, task: str, labels: Counter[str], notebook: _Notebook, seen: _Seen) -> None:
    total = labels.total()
    shown = ", ".join(f"{label} ({count:,})" for label, count in labels.most_common(20))
    more = f" and {len(labels) - 20} more" if len(labels) > 20 else ""
    notebook.add("note", 0, f"{len(labels)} labels: {shown}{more}.")
    for group in datasets.near_duplicates(labels):
        listed = " and ".join(f"{label!r} ({labels[label]:,})" for label in group)
        notebook.add("error", 0, f"the labels {listed} differ only by case, width or white space; write them alike.")
    usual = [label for label, count in labels.items() if count >= FEW_EXAMPLES]
    for label, count in labels.items():
        if count < FEW_EXAMPLES:
            hint = did_you_mean(label, usual) if not label.isdigit() else ""
            message = f"the label {label!r} stands only {count} time{'s' * (count > 1)}.{hint}"
            notebook.add("warning", 0, message, "a label stands fewer than 5 times")
        if count > LARGEST_SHARE * total and task in ("classify", "pair"):
            share = 100 * count / total
            message = f"the label {label!r} stands on {share:.0f} % of the examples: to say it always scores as much."
            notebook.add("warning", 0, message)
    if seen.first_labels is None:
        seen.first_labels = (path, labels)
        return
    first, known = seen.first_labels
    for label in labels:
        if label not in known:
            message = f"the label {label!r} is not one of the {len(known)} in {first}.{did_you_mean(label, known)}"
            notebook.add("error", 0, message, f"a label is not in {first}")
