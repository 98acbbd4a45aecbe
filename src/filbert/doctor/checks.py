"""Texts come in one by one, with where they stand; what is odd, empty, twice, contradictory or leaked goes out.

Texts are hashed, so that duplicates across large files can be found; some are kept, to be compared by neighbours.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from filbert.doctor.findings import Notebook
from filbert.forms.gold import hashed
from filbert.forms.near import Neighbours
from filbert.forms.spec import FileSpec
from filbert.text import streams
from filbert.text.characters import is_blank
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer

WINDOW_TOKENS = 512  # what a BERT reads at once
HAN_SAMPLE_CHARS = 5_000_000
KEPT_CHARS = 20_000_000  # of all texts that are kept for the search of near copies
MEASURED_TEXTS, MEASURED_CHARS = 2_000, 2**20  # tokenised together

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_SPACE = re.compile(r"\s")
_ODD = re.compile("[\ufffd\ufeff\x01-\x08\x0e-\x1f\x7f]")
_SIGNS = re.compile(r"[\W_]+")
_BITS = re.compile(r"[^\W\u2e80-\U0010ffff]{1,5}|\S")  # about the tokens of a text: Han one by one, words in bits


def exact_key(texts: Sequence[str], more: str = "") -> int:
    """A hash of texts as they stand, and of what else makes an example differ from another."""
    return hashed("\0".join((*texts, more)))


def loose_key(texts: Sequence[str], more: str = "") -> int:
    """A hash of texts without case, width, white space and punctuation; 0 where nothing is left of them."""
    bare = [_SIGNS.sub("", unicodedata.normalize("NFKC", text).casefold()) for text in texts]
    return hashed("\0".join((*bare, more))) if all(bare) else 0


# -- bytes -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ends:
    """What decoding removes from a file: a byte order mark, NULs, and which of the line ends it has."""

    has_mark: bool = False
    num_nuls: int = 0
    num_crlf: int = 0
    num_cr: int = 0
    num_lf: int = 0
    has_last: bool = False  # whether the last line is ended too

    @property
    def num_lines(self) -> int:
        """Lines that are ended, in whichever way."""
        return self.num_crlf + self.num_cr + self.num_lf


def ends(path: str, encoding: str) -> Ends:
    """How the lines of a file end, in a pass of its own; only its last end where a character has several bytes."""
    counted = Ends()
    if (
        not encoding.lower()
        .replace("_", "-")
        .startswith(("utf-8", "utf8", "gb", "big5", "ascii", "latin", "cp", "iso"))
    ):
        for text in streams.texts(path, Reading(encoding, "replace")):
            counted.has_last = text.endswith("\n") if text else counted.has_last
        return counted
    last = None
    for block in streams.blocks(path, Reading(encoding, fault=lambda *_: None)):
        counted.has_mark = counted.has_mark or (last is None and block.startswith(b"\xef\xbb\xbf"))
        both = block.count(b"\r\n") + (last == b"\r" and block.startswith(b"\n"))
        counted.num_crlf += both
        counted.num_cr += block.count(b"\r") - both
        counted.num_lf += block.count(b"\n") - both
        counted.num_nuls += block.count(b"\0")
        last = block[-1:]
    counted.has_last = last in (b"\n", b"\r")
    return counted


# -- texts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Example:
    """What the checks need of one: its texts, where it stands, and what is said of it."""

    texts: tuple[str, ...]
    line: int
    place: str  # file and line, or what else names it
    label: str | None = None
    more: str = ""  # what else makes it differ from another with the same texts
    is_named: bool = True  # whether the label can be shown; a list of spans cannot
    mentions: tuple[str, ...] = ()  # what of its text it speaks of


Stand = tuple[str, str, str | None]  # (place, file, label)


@dataclass(slots=True)
class Seen:
    """What earlier files held: texts by hash, and the labels of the first file that has any."""

    texts: dict[int, Stand] = field(default_factory=dict)
    loose: dict[int, Stand] = field(default_factory=dict)
    first_file: str = ""
    kept: list[tuple[str, ...]] = field(default_factory=list)  # texts and mentions of earlier files
    places: list[str] = field(default_factory=list)  # where each of them stands
    num_kept: int = 0  # characters
    task: str = ""  # whose data these are
    first_labels: tuple[str, Counter[str]] | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """How long a text is to a model: its tokenizer, or an estimate without one, and the window of each task."""

    tokenizer: Tokenizer | None = None
    windows: Mapping[str, int] = field(default_factory=dict)  # task -> task.max_length
    window: int = WINDOW_TOKENS  # of the other tasks

    def counts(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text, special ones not counted."""
        if self.tokenizer is None:
            return [len(_BITS.findall(text)) for text in texts]
        bounds = self.tokenizer.pieces(texts).boundaries
        return [int(end) - int(start) for start, end in itertools.pairwise(bounds)]


class Texts:
    """Looks at every text of a file once: lengths, Chinese, odd characters, duplicates; keeps numbers and hashes."""

    def __init__(
        self, notebook: Notebook, seen: Seen, spec: FileSpec | None = None, measure: Measure | None = None
    ) -> None:
        self.notebook, self.seen, self.measure = notebook, seen, measure or Measure()
        self.spec = spec  # of the task that the file is data for; None: of a corpus
        self.lengths: Counter[int] = Counter()
        self.tokens: Counter[int] = Counter()
        self.num_sampled = self.num_han = self.num_texts = 0
        self.waiting: list[tuple[str, ...]] = []
        self.num_waiting = 0
        self.kept: list[Example] = []
        self.is_all_kept = True
        self.leaked: set[str] = set()  # places

    def look(self, example: Example) -> None:
        """One example or document."""
        self.num_texts += 1
        self.seen.first_file = self.seen.first_file or self.notebook.file
        line = example.line
        for text in example.texts:
            self.lengths[len(text)] += 1
            if self.num_sampled < HAN_SAMPLE_CHARS:
                self.num_sampled += len(text) - len(_SPACE.findall(text))
                self.num_han += len(_HAN.findall(text))
            odd = _ODD.search(text)
            if odd:
                self._odd(odd.group(), line + text.count("\n", 0, odd.start()) if line else 0, example.place)
        if self.spec is not None:
            self._measure(example.texts)
        may_lack = self.spec.blank_text if self.spec is not None else 0
        blank = [number for number, text in enumerate(example.texts, 1) if is_blank(text) and number != may_lack]
        if blank:
            what = "the text" if len(example.texts) == 1 else f"text {blank[0]} of {len(example.texts)}"
            message = f"{what} is empty, or only white space and control characters; remove the row."
            self.warn(example, message, "empty text")
        else:
            self._compare(example)
            self._keep(example)

    def warn(self, example: Example, message: str, kind: str, severity: str = "warning") -> None:
        """A finding on one example: by its line or, where lines mean nothing, by what else names it."""
        where = "" if example.line else f"{example.place.removeprefix(self.notebook.file).strip()}: "
        self.notebook.add(severity, example.line, where + message, kind)

    def _odd(self, char: str, line: int, place: str) -> None:
        what = {
            "\ufffd": "holds U+FFFD, the mark of a character that was lost earlier; take the text from its source",
            "\ufeff": "holds a byte order mark (U+FEFF) in the middle; remove it",
        }.get(char, f"holds the control character U+{ord(char):04X}; remove it")
        self.notebook.add("warning", line, f"{what}." if line else f"{place}: {what}.", what)

    def _compare(self, example: Example) -> None:
        file, label = self.notebook.file, example.label
        here: Stand = (example.place, file, label)
        key = exact_key(example.texts, example.more)
        there, other_file, other = self.seen.texts.setdefault(key, here)
        if other_file != file:
            self._leak(example, "the same text", there, other_file)
        if (there, other_file) != (example.place, file):
            self._same(example, there, other, other_file == file)
            return
        loose = loose_key(example.texts, example.more) if self.spec is not None else 0
        if loose:
            there, other_file, _ = self.seen.loose.setdefault(loose, here)
            if other_file != file:
                what = "the same text but for case, width, white space or punctuation"
                self._leak(example, what, there, other_file)

    def _same(self, example: Example, there: str, other: str | None, is_here: bool) -> None:
        label = example.label
        if label is not None and other is not None and other != label:
            says = (
                f"labelled {label!r}, but the same text is {other!r}" if example.is_named else "marked otherwise than"
            )
            message = f"{says} at {there}; keep the one that is right."
            self.warn(example, message, "the same text has another label elsewhere")
        elif is_here:
            what = "text" if label is None else "text and label"
            self.warn(
                example,
                f"the same {what} at {there}; keep one of the two{' (--fix does)' * (label is not None)}.",
                "the same text stands twice",
            )

    def _leak(self, example: Example, what: str, there: str, file: str) -> None:
        self.leaked.add(example.place)
        message = f"{what} stands in another file, at {there}: leakage if one tests the other"
        is_training = self.spec is not None and file == self.seen.first_file
        advice = "remove it from the training file (--fix does)" if is_training else "remove one of the two"
        self.warn(example, f"{message}; {advice}.", f"{what} stands in {file}: leakage")

    # -- near copies -------------------------------------------------------------------------------------------------

    def _keep(self, example: Example) -> None:
        if self.spec is None or not self.is_all_kept:
            return
        self.seen.num_kept += sum(map(len, example.texts))
        self.is_all_kept = self.seen.num_kept <= KEPT_CHARS
        if self.is_all_kept:
            self.kept.append(example)

    def tell_near(self) -> None:
        """Texts that are nearly the same as one of an earlier file for the same task; for when the file is read."""
        task = self.spec.task if self.spec is not None else ""
        seen, rows = self.seen, [(*example.texts, *example.mentions) for example in self.kept]
        if seen.kept and rows and seen.task == task:
            for match in Neighbours(rows, seen.kept).leaks():
                example = self.kept[match.row]
                if example.place not in self.leaked:
                    there = seen.places[match.other - len(rows)]
                    message = f"nearly the same text stands in another file, at {there}: leakage if one tests the other"
                    self.warn(
                        example, f"{message}; compare them.", "nearly the same text stands in another file: leakage"
                    )
        if not self.is_all_kept:
            message = f"the first {len(rows):,} examples were compared with those of other files; of the rest, only "
            self.notebook.add(
                "note", 0, message + "copies that differ at most by case, width, space and signs are told."
            )
        seen.task = seen.task or task
        if seen.task == task:
            seen.kept += rows
            seen.places += [example.place for example in self.kept]

    # -- lengths -----------------------------------------------------------------------------------------------------

    def _measure(self, texts: tuple[str, ...]) -> None:
        self.waiting.append(texts)
        self.num_waiting += sum(map(len, texts))
        if len(self.waiting) >= MEASURED_TEXTS or self.num_waiting >= MEASURED_CHARS:
            self._measured()

    def _measured(self) -> None:
        assert self.spec is not None, "a corpus is not read in windows"
        counts = iter(self.measure.counts([text for texts in self.waiting for text in texts]) if self.waiting else ())
        for texts in self.waiting:
            self.tokens.update(self.spec.num_tokens([next(counts) for _ in texts]))
        self.waiting, self.num_waiting = [], 0

    def tell(self, called: str) -> None:
        """The summary: how many, how long, how Chinese, how long to a model."""
        if not self.num_texts:
            self.notebook.add("error", 0, "holds no text that can be used; see the other findings on it.")
            return
        share = 100 * self.num_han / max(1, self.num_sampled)
        message = (
            f"{self.num_texts:,} {called}; characters: half up to {quantile(self.lengths, 0.5):,}, "
            f"95 % up to {quantile(self.lengths, 0.95):,}, longest {max(self.lengths):,}; {share:.0f} % Chinese."
        )
        self.notebook.add("note", 0, message)
        if self.spec is not None:
            self._measured()
            self._tell_tokens(self.measure.windows.get(self.spec.task, self.measure.window))

    def _tell_tokens(self, window: int) -> None:
        edges = [16]
        while edges[-1] < max(self.tokens):
            edges.append(2 * edges[-1])
        bars = []
        for low, high in zip([0, *edges], edges, strict=False):
            count = sum(number for size, number in self.tokens.items() if low < size <= high)
            bars += [f"{low + 1}-{high}: {count:,}"] if count else []
        how = "" if self.measure.tokenizer else ", estimated (--model counts them)"
        num_long = sum(number for size, number in self.tokens.items() if size > window)
        share = 100 * num_long / self.tokens.total()
        long = (
            f"{num_long:,} ({share:.1f} %) are longer and will be read in overlapping windows"
            if num_long
            else "all fit"
        )
        message = f"tokens{how}: {', '.join(bars)}; longest {max(self.tokens):,}; the window has {window}: {long}."
        self.notebook.add("note", 0, message)


def quantile(lengths: Counter[int], share: float) -> int:
    """The least size that so large a share does not exceed."""
    left = share * lengths.total()
    for size in sorted(lengths):
        left -= lengths[size]
        if left <= 0:
            return size
    return max(lengths)
