"""Files as they lie come in (plain or compressed, any encoding, any line ends); numbered lines of clean text go out.

Memory stays constant: bytes travel in blocks, and a line that is longer than `PIECE_CHARS` comes in pieces.
Whatever is altered on the way (NULs, bytes that do not decode) is counted in a `CorpusReport`.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import lzma
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from filbert.core.errors import InputError, needed
from filbert.core.files import regular_file

BLOCK_BYTES = 2**20
PIECE_CHARS = 2**20  # about 3 MB of Chinese: a longer document or line is passed on in pieces
ZST_INPUT_BYTES = 2048  # 4 bytes of zstandard can stand for 128 kB, so a bomb is fed in small bites

Fault = Callable[[str, int, str], None]  # (source, line or 0, what is wrong and what to do)
Line = tuple[int, str, bool]  # (number from 1, text, whether the line ends here)


def refuse(source: str, line: int, message: str) -> None:
    """The usual way to take a fault: stop with one sentence. The doctor collects them instead."""
    raise InputError(f"{source} line {line}: {message}" if line else f"{source}: {message}")


@dataclass(slots=True)
class CorpusReport:
    """What reading a corpus met: everything that was skipped, mended or cut is counted here."""

    num_files: int = 0
    num_documents: int = 0
    num_bytes: int = 0  # after decompression
    num_blank: int = 0  # blank documents, skipped
    num_nuls: int = 0  # NUL characters, removed
    num_replaced: int = 0  # bytes or lone surrogates that became U+FFFD
    num_split: int = 0  # documents passed on in more than one piece
    num_other_files: int = 0  # files in folders left alone for their suffix
    empty_files: list[str] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)  # what else a reader met: "answers were …" -> how many
    choices: list[str] = field(default_factory=list)  # sentences on how a file was read, where that was a choice

    def remarks(self) -> list[str]:
        """One sentence for each thing a user should know; none for a clean corpus."""
        counted = {
            "blank documents or rows were skipped": self.num_blank,
            "NUL characters were removed": self.num_nuls,
            "bytes could not be decoded and became U+FFFD": self.num_replaced,
            f"documents longer than {PIECE_CHARS:,} characters were passed on in pieces": self.num_split,
            "files in the folders were left alone, for their suffix is not one of text or tables": self.num_other_files,
        }
        sums = {**counted, **self.others}.items()
        remarks = [*self.choices, *(f"{count:,} {what}." for what, count in sums if count)]
        if self.empty_files:
            more = f" and {len(self.empty_files) - 5} more" if len(self.empty_files) > 5 else ""
            remarks.append(f"no text in: {', '.join(self.empty_files[:5])}{more}.")
        return remarks


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read: their encoding, what to do with errors, and the report that counts what was met."""

    encoding: str = "utf-8"
    errors: str = "strict"  # or "replace"
    report: CorpusReport = field(default_factory=CorpusReport)
    fault: Fault = refuse
    mended: Fault | None = None  # called with the place of each thing that `count` counts; the doctor wants them
    unit: str = "line"  # or "row": of data that are Python objects, which are counted from 0

    def __post_init__(self) -> None:
        if self.errors not in ("strict", "replace"):
            raise InputError(f"errors is {self.errors!r}, but must be 'strict' or 'replace'.")
        try:
            codecs.getincrementaldecoder(self.encoding)
            "".encode(self.encoding)  # refuses codecs that are not of text, such as rot13
        except LookupError:
            raise InputError(
                f"the encoding {self.encoding!r} is unknown; use for example utf-8, gb18030, big5 or utf-16."
            ) from None

    def count(self, what: str, source: str, line: int, message: str) -> None:
        """Counts one thing that was skipped or mended: `what` ends the sentence "7 …", `message` speaks of this one."""
        self.report.others[what] += 1
        if self.mended is not None:
            self.mended(source, line, message)

    def place(self, line: int) -> str:
        """How a sentence names a line, which is counted from 1."""
        return f"line {line}" if self.unit == "line" else f"{self.unit} {line - 1}"

    def tell(self, sentence: str) -> None:
        """Adds a sentence on how a file is read to the report, once: columns that are passed over, an encoding."""
        if sentence not in self.report.choices:
            self.report.choices.append(sentence)

    @property
    def is_utf8(self) -> bool:
        """Whether the files are taken to be UTF-8, with or without a byte order mark."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig")


# -- bytes ------------------------------------------------------------------------------------------------------

_MAGIC = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}
_OTHER_KINDS = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"%PDF-": "a PDF",
    b"PAR1": "Parquet",
}
COMPRESSIONS = tuple(_MAGIC)
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods")


class _Damaged(Exception):
    """The compressed data is not what it should be."""


def stem_and_suffix(source: str) -> tuple[str, str]:
    """The name without its compression suffix, and the suffix of what is inside: 'a.csv.gz' -> ('a.csv', '.csv')."""
    name = os.path.basename(source)
    root, last = os.path.splitext(name)
    if last.lower() in COMPRESSIONS:
        name = root
    return name, os.path.splitext(name)[1].lower()


def blocks(source: str, reading: Reading) -> Iterator[bytes]:
    """The file's bytes, decompressed, in blocks of at most a megabyte; '-' is standard input."""
    with _opened(source) as raw:
        unpack = _unpacker(source, raw)
        num_read = 0
        try:
            for block in unpack(raw):
                num_read += len(block)
                reading.report.num_bytes += len(block)
                yield block
        except EOFError:
            reading.fault(source, 0, f"is cut short: its compressed data ends after {num_read:,} bytes; copy it again.")
        except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, _Damaged) as error:
            message = f"is damaged: its compressed data breaks after {num_read:,} bytes ({error}); copy it again."
            reading.fault(source, 0, message)
        except OSError as error:
            raise InputError(f"{source}: cannot be read ({error.strerror or error}).") from None


@contextlib.contextmanager
def _opened(source: str) -> Iterator[io.BufferedReader]:
    if source == "-":
        stdin: Any = sys.stdin.buffer
        yield stdin if hasattr(stdin, "peek") else io.BufferedReader(stdin)
        return
    path = regular_file(source)
    try:
        handle = path.open("rb")
    except OSError as error:
        raise InputError(f"{source}: cannot be read ({error.strerror}).") from None
    with handle:
        yield handle


def _unpacker(source: str, raw: io.BufferedReader) -> Callable[[IO[bytes]], Iterator[bytes]]:
    """How to read the stream: by its suffix, which its first bytes must confirm; standard input by these alone."""
    head = raw.peek(16)[:16]
    content = next((suffix for suffix, magic in _MAGIC.items() if head.startswith(magic)), "")
    if head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:  # zstandard's skippable frame, as pzstd writes
        content = ".zst"
    named = os.path.splitext(source)[1].lower()
    named = named if named in _MAGIC else ""
    if source != "-" and head and named != content:
        if content:
            raise InputError(
                f"{source}: begins as a {content} file, but is not named so; rename it to end in {content}."
            )
        raise InputError(
            f"{source}: is named {named}, but does not begin as such a file; rename it or compress it again."
        )
    if os.path.splitext(source)[1].lower() in WORKBOOKS and head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise InputError(f"{source}: is a workbook, not text; save it as CSV UTF-8 (File, Save As) and give that file.")
    for magic, kind in _OTHER_KINDS.items():
        if head.startswith(magic):
            raise InputError(
                f"{source}: is {kind}, not text; unpack or convert it first (Parquet must end in .parquet)."
            )
    return _UNPACKERS[content]


def _uncompressed(raw: IO[bytes]) -> Iterator[bytes]:
    while block := raw.read(BLOCK_BYTES):
        yield block


def _gz(raw: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=raw) as unpacked:
        while block := unpacked.read1(BLOCK_BYTES):
            yield block


def _xz(raw: IO[bytes]) -> Iterator[bytes]:
    """One stream after another, NULs between them left out: LZMAFile would take a damaged later one for the end."""
    stream: lzma.LZMADecompressor | None = None
    rest = b""
    while bite := rest or raw.read(BLOCK_BYTES):
        rest = b""
        if stream is None and not (bite := bite.lstrip(b"\0")):
            continue
        stream = stream or lzma.LZMADecompressor(lzma.FORMAT_XZ)
        unpacked = stream.decompress(bite, BLOCK_BYTES)
        while unpacked:
            yield unpacked
            unpacked = b"" if stream.eof or stream.needs_input else stream.decompress(b"", BLOCK_BYTES)
        if stream.eof:
            rest, stream = stream.unused_data, None
    if stream is not None:
        raise EOFError


def _zst(raw: IO[bytes]) -> Iterator[bytes]:
    zstandard = needed("zstandard", "data")
    context = zstandard.ZstdDecompressor()
    frame = None
    rest = b""
    while bite := rest or raw.read(ZST_INPUT_BYTES):
        frame = frame or context.decompressobj()
        try:
            unpacked = frame.decompress(bite)
        except zstandard.ZstdError as error:
            raise _Damaged(str(error)) from None
        for start in range(0, len(unpacked), BLOCK_BYTES):
            yield unpacked[start : start + BLOCK_BYTES]
        rest = frame.unused_data if frame.eof else b""
        frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError


_UNPACKERS: dict[str, Callable[[IO[bytes]], Iterator[bytes]]] = {
    "": _uncompressed,
    ".gz": _gz,
    ".xz": _xz,
    ".zst": _zst,
}


# -- text -------------------------------------------------------------------------------------------------------

# A decoder that meets a bad byte writes these marks; strict decoders cannot produce lone surrogates otherwise.
_MARK, _MARK_MORE = "\udc00", "\udc01"
_MARKS = re.compile("\udc00\udc01*")
_UNCLEAN = re.compile("[\0\ud800-\udfff]")


def _marked(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _MARK + _MARK_MORE * (error.end - error.start - 1), error.end


codecs.register_error("filbert.marked", _marked)


def texts(source: str, reading: Reading) -> Iterator[str]:
    """The file as text in pieces: line ends are \\n, a byte order mark and NULs are gone, bad bytes are dealt with."""
    decoder = _Decoder(source, reading)
    for block in blocks(source, reading):
        yield decoder.text(block)
    yield decoder.text(b"", final=True)


class _Decoder:
    """Turns the blocks of one file into text and knows the line and the byte where it stands."""

    def __init__(self, source: str, reading: Reading) -> None:
        self.source, self.reading = source, reading
        self.line, self.num_bytes, self.at_start = 1, 0, True
        self.decoder = codecs.getincrementaldecoder(reading.encoding)()
        self.newlines = io.IncrementalNewlineDecoder(None, translate=True)

    def text(self, block: bytes, final: bool = False) -> str:
        if self.num_bytes == 0 and block and self.reading.is_utf8:
            self._refuse_wide(block)
        state = self.decoder.getstate()
        try:
            text = self.decoder.decode(block, final)
        except UnicodeDecodeError as error:
            text = self._mended(block, final, state, error)
        self.num_bytes += len(block)
        if self.at_start and text:
            text, self.at_start = text.removeprefix("\ufeff"), False
        if "\0" in text:
            self.reading.report.num_nuls += text.count("\0")
            text = text.replace("\0", "")
        text = self.newlines.decode(text, final)
        self.line += text.count("\n")
        return text

    def _refuse_wide(self, block: bytes) -> None:
        name = wide_encoding(block)
        if name:
            message = f"is {name.upper()}, not UTF-8; read it with --encoding {name} or convert it to UTF-8."
            raise InputError(f"{self.source}: {message}")

    def _mended(self, block: bytes, final: bool, state: tuple[bytes, int], error: UnicodeDecodeError) -> str:
        """The block's text with U+FFFD for what does not decode: counted, or reported line by line where strict."""
        self.decoder.setstate(state)
        self.decoder.errors = "filbert.marked"
        text = self.decoder.decode(block, final)
        self.decoder.errors = "strict"
        if self.reading.errors == "strict":
            self._report(text, self.num_bytes - len(state[0]), error)
        self.reading.report.num_replaced += text.count(_MARK) + text.count(_MARK_MORE)
        return text.replace(_MARK_MORE, "").replace(_MARK, "\ufffd")

    def _report(self, text: str, base: int, error: UnicodeDecodeError) -> None:
        probe = io.IncrementalNewlineDecoder(None, translate=True)
        probe.setstate(self.newlines.getstate())
        line, done, offset, last = self.line, 0, base, 0
        for mark in _MARKS.finditer(text):
            before = text[done : mark.start()]
            line += probe.decode(before).count("\n")
            offset = offset + len(before.encode(self.reading.encoding, "replace")) if done else base + error.start
            if line != last:
                value = error.object[offset - base]
                message = (
                    f"byte 0x{value:02x} at offset {offset:,} is not {self.reading.encoding.upper()}"
                    f"{encoding_hint(error.object, offset - base) if not last else '.'}"
                )
                self.reading.fault(self.source, line, message)
            last, done, offset = line, mark.end(), offset + len(mark.group())
            if not self.reading.is_utf8:
                return  # the length in bytes of what follows is known for UTF-8 only


def wide_encoding(head: bytes) -> str:
    """'utf-16', 'utf-32-le' and so on where the first bytes of a file show one, else an empty string."""
    if head.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "utf-32"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    head = head[:4096]
    by_place = [head[place::4].count(0) for place in range(4)]
    if sum(by_place) < 0.3 * len(head) or len(head) < 4:
        return ""
    full = [count > 0.6 * len(head) / 4 for count in by_place]  # which of four neighbours are NUL as a rule
    names = {
        (False, True, False, True): "utf-16-le",
        (True, False, True, False): "utf-16-be",
        (False, True, True, True): "utf-32-le",
        (False, False, True, True): "utf-32-le",
        (True, True, True, False): "utf-32-be",
        (True, True, False, False): "utf-32-be",
    }
    return names.get((full[0], full[1], full[2], full[3]), "")


def encoding_hint(data: bytes, bad: int) -> str:
    """What the bytes around a bad one may be instead, as the end of a sentence with advice."""
    start = data.rfind(b"\n", 0, bad) + 1
    sample = data[start : start + 2**16]
    for name in ("utf-16-le", "utf-16-be", "gb18030", "big5"):
        if _reads_as_chinese(sample, name):
            return f", but the text reads as {name.upper()}; use --encoding {name} or convert it to UTF-8."
    return "; give --encoding, e.g. gb18030 or latin-1; commands with --errors replace can put U+FFFD there."


def _reads_as_chinese(sample: bytes, encoding: str) -> bool:
    """Whether the bytes decode to plausible Chinese; ASCII taken for UTF-16 does too, so high bytes must abound."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return False
    num_high = len(sample) - len(sample.translate(None, bytes(range(128, 256))))
    num_han = sum("\u4e00" <= char <= "\u9fff" for char in text)
    num_usual = sum(char.isascii() or "\u3000" <= char <= "\u303f" or "\uff00" <= char <= "\uffef" for char in text)
    share = 0.1 if b"\0" in sample else 0.25
    enough = num_high >= share * len(sample) if encoding.startswith("utf-16") else num_high >= 1.6 * num_han
    return enough and num_han > 1 and "\0" not in text and num_han + num_usual >= 0.9 * len(text)


# -- lines ------------------------------------------------------------------------------------------------------


def lines(source: str, reading: Reading) -> Iterator[Line]:
    """The file's lines; only \\n, \\r\\n and \\r end one. One beyond PIECE_CHARS comes in pieces."""
    number, num_held, is_continued = 1, 0, False
    held: list[str] = []
    for text in texts(source, reading):
        *ended, tail = text.split("\n")
        for part in ended:
            if held:
                part = "".join([*held, part])
                held, num_held = [], 0
            yield number, part, True
            number, is_continued = number + 1, False
        if tail:
            held.append(tail)
            num_held += len(tail)
        if num_held >= PIECE_CHARS:
            yield number, "".join(held), False
            held, num_held, is_continued = [], 0, True
    if held or is_continued:
        yield number, "".join(held), True


def whole_lines(source: str, reading: Reading, limit_chars: int = 64 * 2**20) -> Iterator[tuple[int, str]]:
    """The file's lines, each in one piece, for formats whose records are lines; one beyond the limit is refused."""
    held: list[str] = []
    for number, text, ends in lines(source, reading):
        if held or not ends:
            held.append(text)
            if len(held) * PIECE_CHARS > limit_chars:
                raise InputError(
                    f"{source} line {number}: is longer than {limit_chars:,} characters; is it one record?"
                )
        if ends:
            yield number, "".join(held) if held else text
            held = []


def is_clean(text: str) -> bool:
    """Whether there is no NUL and no lone surrogate in it."""
    return _UNCLEAN.search(text) is None


def clean(text: str, source: str, line: int, reading: Reading) -> str:
    """A string out of JSON or Parquet without NULs and lone surrogates, by the same rules as text out of a file."""
    if not _UNCLEAN.search(text):
        return text
    num_nuls = text.count("\0")
    reading.report.num_nuls += num_nuls
    num_lone = len(_UNCLEAN.findall(text)) - num_nuls
    if num_lone and reading.errors == "strict":
        reading.fault(
            source,
            line,
            "holds half a surrogate pair, which is no character; mend it, or replace it (--errors replace).",
        )
    reading.report.num_replaced += num_lone
    return _UNCLEAN.sub("\ufffd", text.replace("\0", ""))
