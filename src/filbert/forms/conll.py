"""A file with a word and its tag on each line comes in; its columns, and its sentences word by word, go out.

Which column is what follows from nearly all lines, not from one: numbers that count the words of a sentence are an
index, a digit behind every character (科0 技1) counts the characters of a word, and of two layers of tags the first,
outer one is taken. Whatever is passed over is counted or named.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from filbert.text.streams import CorpusReport, Reading, whole_lines

LOOKED_LINES = 5_000  # by which the columns are found
FEWEST = 4  # lines of a word and O that are taken for sentences without an entity
WORDS = 0.3  # share of tokens of several characters from which a file is of words, and not of characters
DOCUMENT = "-DOCSTART-"
TAG = re.compile(r"(?:O|[BIMESLUW][-_].+)")
# Of CoNLL-2000, and of German in CoNLL-2003: no layer of entities.
CHUNKS = frozenset(
    ("NP", "VP", "PP", "ADJP", "ADVP", "SBAR", "PRT", "CONJP", "INTJ", "LST", "UCP", "NC", "VC", "PC")
)  # fmt: skip
_EDGE = re.compile(r"([bi])[-_](.+)|(.+)[-_]([bi])")
_NUMBERED = re.compile(r"(.|\D+)([0-9]{1,2})")  # 科0, and the digit 3 as 30


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column, from 0, holds the word and which its tag, of how many; and what else a file's lines have."""

    count: int = 2
    word: int = 0
    tag: int = 1
    layers: tuple[int, ...] = ()  # further columns of the same tags
    is_indexed: bool = False  # whether the first column counts the words
    is_numbered: bool = False  # whether a digit behind each character counts those of a word
    has_words: bool = False  # of several characters as a rule, between which spaces stand
    has_prefixes: bool = False  # B-, I- …, or O
    labels: frozenset[str] = field(default=frozenset(), repr=False)  # the tags that were looked at

    def is_comment(self, line: str) -> bool:
        """`# id …` between sentences: begins with #, and has other columns than a word, or no tag."""
        if not line.startswith("#"):
            return False
        row = cells(line)
        if len(row) != self.count:
            return True
        if self.has_prefixes:
            return line[1:2] in (" ", "\t") and not TAG.fullmatch(row[self.tag])
        return self.count > 2 and line[1:2] in (" ", "\t") and row[self.tag] not in self.labels

    def is_gap(self, line: str) -> bool:
        """Whether a sentence ends there."""
        return not line.strip() or line.startswith(DOCUMENT)

    def tag_place(self, line: str) -> int:
        """Where the tag begins in a line; 0 where the line is not of a word."""
        row = cells(line)
        if self.is_gap(line) or self.is_comment(line) or len(row) != self.count:
            return 0
        separator = "\t" if "\t" in line else " "
        place = 0
        for cell in row[: self.tag]:
            place += len(cell) + 1
            while separator == " " and line.startswith(" ", place):
                place += 1
        return place

    def remarks(self) -> list[str]:
        """What of the columns is passed over, in a sentence for each kind."""
        remarks = []
        left = [at for at in range(self.count) if at not in (self.word, self.tag, *self.layers)]
        if left:
            what = ", the first of which counts the words," if self.is_indexed and len(left) > 1 else ""
            what = ", which counts the words," if self.is_indexed and len(left) == 1 else what
            remarks.append(
                f"words are in column {self.word + 1} and tags in column {self.tag + 1}; {_listed(left)}{what} "
                f"{'is' if len(left) == 1 else 'are'} passed over."
            )
        if self.layers:
            remarks.append(
                f"tags stand in several layers: those of column {self.tag + 1} are taken, and {_listed(self.layers)} "
                "passed over."
            )
        if self.is_numbered:
            remarks.append("characters are numbered within words (科0 技1); the numbers are left out.")
        return remarks


def _listed(columns: Sequence[int]) -> str:
    return f"column{'s' * (len(columns) > 1)} {', '.join(str(at + 1) for at in columns)}"


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence, their tags, and the line of each."""

    lines: list[int]
    words: list[str]
    tags: list[str]
    are_words: bool  # in this file, or characters


def nearly(matching: int, total: int) -> bool:
    """Whether all of so many lines fit but one in twenty, or one at all: reading will name those that do not."""
    return total > 0 and total - matching <= (max(1, total // 20) if total > 2 else 0)


def cells(line: str) -> list[str]:
    """The columns of a line: between tabs if it has any, else between spaces; the first may be a space itself."""
    return line.rstrip().split("\t") if "\t" in line else re.split(" +", line.rstrip())


def columns(lines: Sequence[str]) -> Columns:
    """What the columns of a file are, by its first lines, blank ones included."""
    rows = [cells(line) if line.strip() and not line.startswith(("#", DOCUMENT)) else [] for line in lines]
    widths = Counter(len(row) for row in rows if row)
    count = widths.most_common(1)[0][0] if widths else 0
    usual = [row for row in rows if row and len(row) == count]
    if count < 2:
        return Columns(count, 0, count - 1)
    is_indexed = count > 2 and _counts(_cells_of(rows, 0, count), len(usual))
    word = int(is_indexed)
    tagged = [at for at in range(word + 1, count) if _are_tags(usual, at)]
    tag, layers = _layers(usual, tagged, word)
    is_numbered = _is_numbered(_cells_of(rows, word, count), len(usual))
    tokens = [bare(row[word]) if is_numbered else row[word] for row in usual]
    return Columns(
        count, word, tag, layers, is_indexed, is_numbered,
        has_words=sum(len(each) > 1 for each in tokens) >= WORDS * len(tokens),
        has_prefixes=tag in tagged,
        labels=frozenset(row[tag] for row in usual),
    )  # fmt: skip


def _cells_of(rows: Sequence[Sequence[str]], column: int, count: int) -> list[str]:
    """The cells of a column; "" where a row has not `count` cells."""
    return [row[column] if len(row) == count else "" for row in rows]


def _are_tags(rows: Sequence[Sequence[str]], column: int) -> bool:
    """Whether nearly all cells of a column are tags with a prefix, or O."""
    return nearly(sum(TAG.fullmatch(row[column]) is not None for row in rows), len(rows))


def _counts(column: Sequence[str], total: int) -> bool:
    """Whether nearly all cells count on from the one before, within sentences; "" stands between these."""
    good, before = 0, -1
    for cell in column:
        number = int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 10 else -1
        good += number >= 0 and (number == before + 1 if before >= 0 else number <= 1)
        before = number
    return total > 1 and nearly(good, total)


def _is_numbered(tokens: Sequence[str], total: int) -> bool:
    """Whether nearly all tokens are a character and its place in its word, from 0 on: 科0 技1 北0 京1."""
    num_matching, num_digits, num_odd, before = 0, 0, 0, -1
    for token in tokens:
        match = _NUMBERED.fullmatch(token)
        number = int(match[2]) if match else -1
        num_matching += number >= 0
        num_digits += match is not None and match[1].isdigit()
        num_odd += number > 0 and number != before + 1
        before = number
    are_signs = 2 * num_digits < num_matching  # else they are numbers of two and three digits
    return total > 1 and nearly(num_matching, total) and are_signs and num_odd <= num_matching // 50


def _layers(rows: Sequence[Sequence[str]], tagged: Sequence[int], word: int) -> tuple[int, tuple[int, ...]]:
    """The column of the tags, and further ones of such tags: the last, or the first of several layers.

    Layers stand right behind the word, or have labels in common; a column that tags chunks is none (CoNLL-2003).
    """
    last = tag = len(rows[0]) - 1
    if last not in tagged:
        return last, ()
    labels = {at: {row[at][2:] for row in rows if TAG.fullmatch(row[at]) and row[at] != "O"} for at in tagged}
    is_all = len(tagged) == last - word
    for at in range(last - 1, word, -1):
        if not labels.get(at) or labels[at] <= CHUNKS or not (is_all or labels[at] & labels[tag]):
            break
        tag = at
    return tag, tuple(range(tag + 1, last + 1))


def are_marked(labels: Iterable[str]) -> bool:
    """Whether labels say of some kind where it begins and where it goes on, in any letters: b-per, I-PER, PER-B."""
    edges: dict[str, set[str]] = {"b": set(), "i": set()}
    for label in labels:
        if match := _EDGE.fullmatch(label.lower()):
            edges[match[1] or match[4]].add(match[2] or match[3])
    return bool(edges["b"] & edges["i"])


def bare(word: str) -> str:
    """A character without its number: 技 of 技1, 3 of 30."""
    match = _NUMBERED.fullmatch(word)
    return match[1] if match else word


def is_tagged(lines: Sequence[str], is_head: bool) -> bool:
    """Whether nearly every line is a word and a tag with a prefix, or O; not all are alike, unless these are a head."""
    form = columns(lines)
    if not form.has_prefixes:
        return False
    inked = [line for line in lines if not form.is_gap(line) and not form.is_comment(line)]
    tags = [row[form.tag] for line in inked if len(row := cells(line)) == form.count]
    num_matching = sum(bool(TAG.fullmatch(tag)) for tag in tags)
    is_all = len(tags) == len(inked) >= FEWEST and form.count == 2  # a word and O on each line: not a text by chance
    return nearly(num_matching, len(inked)) and (is_head or is_all or len(set(tags)) > 1)


def columns_of(source: str, reading: Reading) -> Columns:
    """What the columns of a file are, without counting anything."""
    aside = Reading(reading.encoding, "replace", CorpusReport(), fault=lambda *_: None)
    return columns([line for _, line in itertools.islice(whole_lines(source, aside), LOOKED_LINES)])


def sentences(source: str, reading: Reading) -> Iterator[Sentence]:
    """The sentences of a file; what its columns hold beside words and tags is named, comments are counted."""
    form = columns_of(source, reading)
    for remark in form.remarks():
        reading.tell(remark)
    lines, words, tags = list[int](), list[str](), list[str]()
    for number, line in itertools.chain(whole_lines(source, reading), [(0, "")]):
        if form.is_gap(line):
            if words:
                yield Sentence(lines, words, tags, form.has_words)
            lines, words, tags = [], [], []
            if line.startswith(DOCUMENT):
                what = "lines that begin a document (-DOCSTART-) were passed over"
                reading.count(what, source, number, "begins a document; passed over.")
        elif form.is_comment(line):
            reading.count(COMMENTS, source, number, "is a comment; passed over.")
        elif len(row := cells(line)) != form.count:
            reading.fault(source, number, _odd(line, row, form.count))
        else:
            word = row[form.word] if row[form.word].strip() else " "
            words.append(bare(word) if form.is_numbered else word)
            tags.append(row[form.tag])
            lines.append(number)


COMMENTS = "comment lines (#) were passed over"


def _odd(line: str, row: Sequence[str], count: int) -> str:
    """What is wrong with a line that has not as many columns as the others."""
    if len(row) < 2:
        return f"{line[:20]!r} is not a token and a tag with a space or tab between them."
    return (
        f"has {len(row)} columns, but the other lines have {count}: a word and its tag must be one of these each, "
        "without a space or tab inside."
    )
