"""Text that must not be seen comes in, as strings or data files; which documents share text with it goes out.

The rule, for texts without case, width, accents, white space and punctuation (letters and digits are left):

- Two texts overlap if they share a run of 24 Han characters or 64 letters. A mixture counts in proportion: a Han
  character (or kana, or a Hangul syllable) for eight, any other letter or digit for three, and a run has 192.
- A forbidden text too short to have such a run overlaps if it stands in the document whole, provided that it has at
  least half of it: 12 Han characters or 32 letters. Anything shorter is found everywhere and says nothing.

Runs are compared by hashes of 64 bits, not letter by letter: with 10^8 places in the documents and 10^7 forbidden runs,
the chance of one accidental hit is about one in ten thousand. A text written in other characters (Traditional and
Simplified), translated or reworded is another text and is not found.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.forms import conll
from filbert.forms.formats import are_objects, whole_json
from filbert.text import tables
from filbert.text.characters import CODE_POINTS
from filbert.text.corpus import walked
from filbert.text.streams import Reading, whole_lines

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Source = str | os.PathLike[str]

SIZE = 24
WIDE, NARROW = 8, 3  # what a Han character and a letter count for: 24 of one or 64 of the other make a run
BLOCK_CHARS = 2**18  # characters looked at together, so that the arrays stay in the cache

# -- letters -----------------------------------------------------------------------------------------------------

FIRST_WIDE = 0x2E80  # from here on, nearly every letter is a Han character, kana or a Hangul syllable
_UNFOLDED = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0x20000, 0x2F800), (0x30000, 0x323B0))
_LAST_FOLDED = 0x30000
_BASE = 0x9E3779B97F4A7C15  # odd and 5 modulo 8: its powers repeat as late as can be
_INVERSE = pow(_BASE, -1, 2**64)


@functools.cache
def _letters() -> tuple[npt.NDArray[np.uint8], Hashes]:
    """What each code point counts for (0: it is dropped), and a random number for its letter after folding."""
    folded = np.zeros(CODE_POINTS, dtype=np.uint64)
    for low, high in _UNFOLDED:
        folded[low:high] = np.arange(low, high)
    for code in range(_LAST_FOLDED):
        if not folded[code]:
            folded[code] = _folded(chr(code))
    counts = np.where(folded >= FIRST_WIDE, WIDE, NARROW).astype(np.uint8)
    counts[folded == 0] = 0
    return counts, _mixed(folded)


def _folded(char: str) -> int:
    """The letter without case, width and accents; 0 for what is neither letter nor digit."""
    if unicodedata.category(char)[0] not in "LN":
        return 0
    letters = "".join(
        part for part in unicodedata.normalize("NFKD", char.lower()) if unicodedata.category(part)[0] in "LN"
    )
    return ord(letters) if len(letters) == 1 else ord(char)


def _mixed(values: Hashes) -> Hashes:
    """Each number scrambled (the finaliser of SplitMix64), so that neighbours have nothing in common."""
    values = values + np.uint64(_BASE)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@functools.cache
def _powers(num: int) -> tuple[Hashes, Hashes]:
    """The powers of the base and of its inverse, modulo 2^64."""
    both = []
    for base in (_BASE, _INVERSE):
        factors = np.full(num, base, dtype=np.uint64)
        factors[0] = 1
        both.append(np.multiply.accumulate(factors))
    return both[0], both[1]


# -- runs --------------------------------------------------------------------------------------------------------


class _Block:
    """Some texts laid end to end as letters, with everything needed to hash any stretch of them.

    The hash of letters i to j is Σ value[k]·base^(k-i): a difference of two prefix sums, moved to the origin.
    """

    def __init__(self, texts: list[str]) -> None:
        raw = "".join(texts).encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(raw, dtype=np.uint32).astype(np.intp)  # as an index: NumPy would convert it each time
        counts, values = _letters()
        count = counts[codes]
        kept = np.flatnonzero(count)
        count = count[kept]
        self.num = len(kept)
        # The powers are made once, in a length that fits this and most other blocks.
        powers, self.inverses = _powers(max(2 ** (self.num - 1).bit_length(), BLOCK_CHARS) if self.num else BLOCK_CHARS)
        self.sums: Hashes = np.zeros(self.num + 1, dtype=np.uint64)
        np.cumsum(values[codes[kept]] * powers[: self.num], out=self.sums[1:])
        self.counts = np.zeros(self.num + 1, dtype=np.int64)
        np.cumsum(count, out=self.counts[1:])
        self.after = np.repeat(np.arange(1, self.num + 1, dtype=np.int32), count)  # [count] the letter that reaches it
        bounds = np.cumsum([0, *map(len, texts)])
        self.bounds: Places = np.searchsorted(kept, bounds)  # [text] its first letter; one more for the end

    def ends(self, starts: Places, size: int) -> Places:
        """Where the shortest stretch from each start that counts for `size` ends; all must lie in the block."""
        ends: Places = self.after[self.counts[starts] + (size - 1)].astype(np.int64)
        return ends

    def hashes(self, starts: Places, ends: Places) -> Hashes:
        """The hash of each stretch."""
        hashes: Hashes = (self.sums[ends] - self.sums[starts]) * self.inverses[starts]
        return hashes

    def anchors(self, size: int) -> Hashes:
        """The hash of the stretch of `size` from the first letter, the second, and so on, while there is one."""
        num = int(np.searchsorted(self.counts, self.counts[-1] - size, side="right"))
        ends = self.after[self.counts[:num] + (size - 1)].astype(np.intp)
        hashes: Hashes = self.sums[ends]
        hashes -= self.sums[:num]
        hashes *= self.inverses[:num]
        return hashes

    def owners(self, starts: Places) -> Places:
        """The text in which each letter stands."""
        return np.searchsorted(self.bounds, starts, side="right") - 1


def _blocks(texts: Iterable[str], num_chars: int = BLOCK_CHARS) -> Iterator[tuple[int, _Block]]:
    """The texts in groups of about `num_chars`, each with the number of its first text."""
    group: list[str] = []
    first = size = 0
    for text in texts:
        if group and size + len(text) > num_chars:
            yield first, _Block(group)
            first, group, size = first + len(group), [], 0
        group.append(text)
        size += len(text)
    if group:
        yield first, _Block(group)


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of some texts: every one of the full size, and the whole of each text between that and its half."""

    owners: Places  # [run] the text it comes from
    hashes: Hashes  # [run]
    anchors: Hashes  # [run] the hash of its first half
    lengths: Places  # [run] in letters; 0 for a run of the full size, whose length follows from its start


def runs(texts: Iterable[str], size: int = SIZE) -> Runs:
    """The runs by which the texts are known."""
    parts = [_block_runs(first, block, size * WIDE) for first, block in _blocks(texts)]
    if not parts:
        parts = [_block_runs(0, _Block([]), size * WIDE)]
    return Runs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _block_runs(first: int, block: _Block, size: int) -> tuple[Places, Hashes, Hashes, Places]:
    texts_counts = np.diff(block.counts[block.bounds])
    short = np.flatnonzero((texts_counts >= size // 2) & (texts_counts < size))
    last = np.repeat(block.counts[block.bounds[1:]], np.diff(block.bounds))  # [letter] the count at its text's end
    starts = np.concatenate([np.flatnonzero(block.counts[:-1] + size <= last), block.bounds[short]])
    num_long = len(starts) - len(short)
    ends = np.concatenate([block.ends(starts[:num_long], size), block.bounds[short + 1]])
    lengths = ends - starts
    lengths[:num_long] = 0
    anchors = block.hashes(starts, block.ends(starts, size // 2))
    return block.owners(starts) + first, block.hashes(starts, ends), anchors, lengths


class _Sieve:
    """Says of most numbers that they are not in a set, at the price of one look into a table of bits."""

    def __init__(self, hashes: Hashes) -> None:
        self.num_bits = min(max(len(hashes), 2**12).bit_length() + 4, 31)
        places = hashes >> np.uint64(64 - self.num_bits)
        self.table = np.zeros(2 ** (self.num_bits - 3), dtype=np.uint8)
        for bit in range(8):
            self.table[places[(places & np.uint64(7)) == bit] >> np.uint64(3)] |= np.uint8(1 << bit)

    def passed(self, hashes: Hashes) -> Places:
        """The places of those that may be in the set: all that are, and a few that are not."""
        places = (hashes >> np.uint64(64 - self.num_bits)).view(np.int64)
        bits = np.uint8(1) << (places & 7).astype(np.uint8)
        places >>= 3
        bits &= self.table[places]
        return np.flatnonzero(bits)


class Fingerprints:
    """The runs of text that must not be seen; called with documents, says which of them hold one.

    Holds no text. Memory: 8 bytes for each forbidden run, and up to 8 for the tables of bits.
    """

    def __init__(self, forbidden: Runs, size: int = SIZE) -> None:
        if size < 2 or size % 2:
            raise InputError(f"size is {size}, but must be an even number of Han characters, 2 or more.")
        self.size = size
        is_long = forbidden.lengths == 0
        self.long = np.unique(forbidden.hashes[is_long])
        short = np.unique(
            np.rec.fromarrays(
                [forbidden.anchors[~is_long], forbidden.hashes[~is_long], forbidden.lengths[~is_long]],
                dtype=[("anchor", np.uint64), ("hash", np.uint64), ("length", np.int64)],
            )
        )
        self.short_anchors, self.short_hashes, self.short_lengths = (
            np.ascontiguousarray(short[name]) for name in ("anchor", "hash", "length")
        )
        self.anchors = _Sieve(forbidden.anchors)
        self.longs = _Sieve(self.long)
        self.shorts = _Sieve(self.short_anchors)
        digest = hashlib.sha256(f"filbert overlap 1, {size}, {len(self.long)}".encode())
        for array in (self.long, self.short_anchors, self.short_hashes, self.short_lengths):
            digest.update(array.tobytes())
        self.digest = digest.hexdigest()

    @classmethod
    def of(cls, texts: Iterable[str], size: int = SIZE) -> Fingerprints:
        """Those of the given texts; `size` is the length of a run in Han characters, 8/3 of it in letters."""
        return cls(runs(texts, size), size)

    @classmethod
    def read(cls, sources: Source | Iterable[Source], reading: Reading | None = None, size: int = SIZE) -> Fingerprints:
        """Those of every string in data files of any columns; see `strings`."""
        prints = cls.of(strings(sources, reading), size)
        if not len(prints):
            listed = ", ".join(map(str, [sources] if isinstance(sources, (str, os.PathLike)) else sources))
            raise InputError(f"{listed}: no text in it is long enough to be known by, so nothing would be kept out.")
        return prints

    def __len__(self) -> int:
        return len(self.long) + len(self.short_hashes)

    def __call__(self, texts: list[str]) -> list[bool]:
        """Which of the documents share a run with the forbidden text."""
        is_hit = np.zeros(len(texts), dtype=bool)
        is_hit[self.matches(texts)[0]] = True
        return [bool(value) for value in is_hit]

    def matches(self, texts: Iterable[str]) -> tuple[Places, Hashes]:
        """Every shared run: the number of the document, and the hash by which `runs` knows it."""
        parts = [self._matches(first, block) for first, block in _blocks(texts)]
        if not parts:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _matches(self, first: int, block: _Block) -> tuple[Places, Hashes]:
        anchors = block.anchors(self.size * WIDE // 2)
        starts = self.anchors.passed(anchors)
        longs = self._longs(block, starts)
        shorts = self._shorts(block, starts, anchors[starts])
        starts, ends, hashes = (np.concatenate(pair) for pair in zip(longs, shorts, strict=True))
        owners = block.owners(starts)
        inside = ends <= block.bounds[owners + 1]  # a run must not go from one document into the next
        return owners[inside] + first, hashes[inside]

    def _longs(self, block: _Block, starts: Places) -> tuple[Places, Places, Hashes]:
        starts = starts[block.counts[starts] + self.size * WIDE <= block.counts[-1]]
        ends = block.ends(starts, self.size * WIDE)
        hashes = block.hashes(starts, ends)
        likely = self.longs.passed(hashes)
        if len(likely):
            places = np.searchsorted(self.long, hashes[likely])
            likely = likely[self.long[np.minimum(places, len(self.long) - 1)] == hashes[likely]]
        return starts[likely], ends[likely], hashes[likely]

    def _shorts(self, block: _Block, starts: Places, anchors: Hashes) -> tuple[Places, Places, Hashes]:
        likely = self.shorts.passed(anchors)
        starts, anchors = starts[likely], anchors[likely]
        low = np.searchsorted(self.short_anchors, anchors, side="left")
        num = np.searchsorted(self.short_anchors, anchors, side="right") - low
        starts = np.repeat(starts, num)
        which = np.repeat(low, num) + np.arange(len(starts)) - np.repeat(np.cumsum(num) - num, num)
        ends = starts + self.short_lengths[which]
        fits = ends <= block.num
        starts, ends, which = starts[fits], ends[fits], which[fits]
        hashes = block.hashes(starts, ends)
        same = hashes == self.short_hashes[which]
        return starts[same], ends[same], hashes[same]


# -- every string of a data file ---------------------------------------------------------------------------------

NOT_DATA = (".md", ".rst", ".html", ".py", ".sh")
NOT_DATA_NAMES = ("licence", "license", "readme", "manifest")
HEAD_LINES = 200
LONGEST_TOKEN = 40  # characters
_WORD_AND_TAG = re.compile(r"(\S+)/[A-Za-z]{1,4}(?:\](?:/?[A-Za-z]{1,4})?)?")
_ELEMENT = re.compile(r"</?[A-Za-z]\w{0,9}>")


def strings(sources: Source | Iterable[Source], reading: Reading | None = None) -> Iterator[str]:
    """Every text in the files, whatever their columns: cells, JSON strings, sentences of tagged tokens.

    sources: files and folders. In folders everything counts but hidden files, licences and documentation.
    Marks such as <e1> are taken out, and word/tag sentences and CoNLL are joined to running text.
    """
    reading = reading if reading is not None else Reading()
    for path in _files(sources):
        for text in _strings(path, reading):
            yield _ELEMENT.sub("", text) if "<" in text else text


def _files(sources: Source | Iterable[Source]) -> list[str]:
    if isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    paths: list[str] = []
    folders = list(map(Path, sources))
    for source in folders:
        if not source.is_dir():
            paths.append(str(source))
            continue
        files, links = walked(source)
        for link in map(Path, links):  # what is not read is not kept out
            if not any(each.is_dir() and link.resolve().is_relative_to(each.resolve()) for each in folders):
                raise InputError(f"{link}: is a link to a folder, which is not followed; name that folder too.")
        inside = [path for path in sorted(map(Path, files)) if _is_data(path.relative_to(source))]
        if not inside:
            raise InputError(f"{source}: holds no data file, so there is nothing to keep out.")
        paths += map(str, inside)
    return paths


def _is_data(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    name = path.name.lower()
    return not hidden and path.suffix.lower() not in NOT_DATA and not name.startswith(NOT_DATA_NAMES)


def _strings(path: str, reading: Reading) -> Iterator[str]:
    kind = tables.kind(path)
    if kind == "parquet":
        for _, row in tables.parquet_rows(path, reading):
            yield from _inside(row)
        return
    lines = whole_lines(path, reading)
    head = [line for _, line in zip(range(HEAD_LINES), (text for _, text in lines), strict=False)]
    rest = (text for _, text in lines)
    inked = [line for line in head if line.strip()]
    if kind == "json" or (kind == "text" and inked and inked[0].lstrip()[0] in "[{" and are_objects(inked)):
        yield from _json_strings(path, head, rest, reading)
        return
    delimiter = tables.header_delimiter(head[0]) if kind == "csv" and head and "\t" not in head[0] else "\t"
    tokens = _token_column(head)
    if tokens is not None:
        yield from _sentences(_chained(head, rest), *tokens)
        return
    has_tags = _is_tagged(head)
    for line in _chained(head, rest):
        if has_tags:
            yield _WORD_AND_TAG.sub(r"\1", line).replace("[", "")
        elif delimiter == "\t" or '"' not in line:
            yield from line.split(delimiter)
        else:  # line by line and forgiving: a quotation mark left open must not cost a row
            yield from next(csv.reader([line], delimiter=delimiter), [])


def _chained(head: list[str], rest: Iterable[str]) -> Iterator[str]:
    yield from head
    yield from rest


def _json_strings(path: str, head: list[str], rest: Iterable[str], reading: Reading) -> Iterator[str]:
    """JSON lines if the first line is a value by itself, else one value in the whole file."""
    first = next((line for line in head if line.strip()), "")
    try:
        _values(first)
    except (ValueError, RecursionError):
        yield from _inside(whole_json(path, reading))
        return
    for number, line in enumerate(_chained(head, rest), 1):
        if line.strip():
            try:
                value = _values(line)
            except (ValueError, RecursionError) as error:
                reading.fault(path, number, f"is not JSON ({error}); mend it, so that its text can be kept out.")
                continue
            yield from _inside(value)


def _values(line: str) -> Any:
    """What a line of JSON holds, objects as tuples of their values: of a field that stands twice, both."""
    return json.loads(line, object_pairs_hook=lambda fields: tuple(value for _, value in fields))


def _inside(value: object) -> Iterator[str]:
    """Every string in a JSON value, and lists of short ones as one text; the names of fields are not text."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value
            if isinstance(value, list) and len(value) > 1 and all(map(_is_short, value)):
                yield " ".join(value)  # the tokens of a text, of which each by itself is too short to be known by


def _is_short(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TOKEN


def _token_column(head: list[str]) -> tuple[int, bool] | None:
    """The column of the tokens in a file of one token per line, and whether its characters are numbered; else None."""
    lines = [line for line in head if line.strip() and not line.startswith(("#", conll.DOCUMENT))]
    if not lines:
        return None
    rows = [conll.cells(line) for line in lines]
    if all(len(row) == 10 and row[0][:1].isdigit() for row in rows):  # CoNLL-U
        return 1, False
    form = conll.columns(head)
    num_tagged = sum(len(row) == form.count and bool(conll.TAG.fullmatch(row[form.tag])) for row in rows)
    return (form.word, form.is_numbered) if form.count > 1 and num_tagged >= 0.95 * len(rows) else None


def _sentences(lines: Iterable[str], column: int, is_numbered: bool) -> Iterator[str]:
    tokens: list[str] = []
    for line in lines:
        row = conll.cells(line)
        if not line.strip() or line.startswith(conll.DOCUMENT):
            yield " ".join(tokens)
            tokens = []
        elif not (line.startswith("#") and (column or len(row) < 2)):  # a comment
            token = row[column] if len(row) > column else ""
            tokens.append(conll.bare(token) if is_numbered else token)
    yield " ".join(tokens)


def _is_tagged(head: list[str]) -> bool:
    """Whether nearly every word is written as word/tag; a handful of words is too few to tell."""
    words = [word for line in head for word in line.split()]
    return len(words) >= 8 and sum(bool(_WORD_AND_TAG.fullmatch(word)) for word in words) >= 0.95 * len(words)
