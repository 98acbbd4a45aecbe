"""Documents come in, in their order; their tokens go out as shard files, each written whole or not at all.

The parent reads, drops repeated documents and deals chunks of text; workers split sentences, tokenise and mark words;
the results come back in order. Which shard a document is in depends on the texts alone, so any number of workers writes
the same bytes, and a shard that is there already need not be made again.

A file holds a line that says what it is, the length of the header, the header (JSON) and eight arrays on 64-byte
boundaries: ids, word marks, document and sentence offsets of the training part, then of the part held back.
Legend: T tokens, S sentences with tokens, D documents.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from filbert.core.errors import FilbertError, InputError
from filbert.core.files import whole_file
from filbert.core.protocols import Segmenter
from filbert.text.sentences import sentences
from filbert.text.tokenizer import Tokenizer
from filbert.text.words import word_numbers

CHUNK_CHARS = 2**19  # of documents dealt to a worker together: about 1.5 MB of Chinese
BYTES_PER_TOKEN = 3  # of UTF-8: about right for Chinese and English, and known before anything is tokenised
HEAD_DOCUMENTS = 20  # from so many documents on, one is held back in any case
HELD_MOST = 0.05  # of the first shard's tokens are held back where a number of them was asked for
Part = Literal["train", "held"]  # what is learnt from, and what is held back
MAGIC = b"filbert shard 1\n"
ALIGN = 64
PARTS: tuple[Part, ...] = ("train", "held")
DIGEST_BYTES = 16
EMPTY = bytes(DIGEST_BYTES)

Exclude = Callable[[list[str]], list[bool]]
Bools = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]


class Sizes(TypedDict):
    """How much one part of a shard holds."""

    documents: int
    sentences: int
    tokens: int


class Contents(TypedDict):
    """What a shard's file holds."""

    index: int
    sha256: str
    ids: str  # their type, as NumPy names it
    train: Sizes
    held: Sizes
    empty: int  # documents without a token
    excluded: int
    unknown: int  # tokens that are [UNK]


class Header(Contents):
    """What the JSON at the head of a shard's file says."""

    identity: str


# -- one chunk of documents: what a worker does --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """The tokens of a chunk of documents; those without a token and those excluded have none here."""

    ids: npt.NDArray[Any]  # [T]
    words: npt.NDArray[np.uint8]  # [T] 1 where a word begins
    sentence_sizes: Longs  # [S]
    document_sizes: Longs  # [D] in tokens
    document_sentences: Longs  # [D]
    is_excluded: Bools  # of every document that came in
    is_empty: Bools
    num_unknown: int


class Cutter:
    """Texts in, a Cut out; holds what each worker needs."""

    def __init__(self, tokenizer: Tokenizer, segmenter: Segmenter | None, exclude: Exclude | None) -> None:
        self.tokenizer, self.segmenter, self.exclude = tokenizer, segmenter, exclude
        self.dtype = id_type(tokenizer.vocab_size)
        self.begins = (~tokenizer.continues).astype(np.uint8)  # [V] 0 for ## pieces

    def __call__(self, texts: list[str]) -> Cut:
        """Every document's sentences, tokens and words."""
        excluded = np.zeros(len(texts), dtype=np.bool_)
        if self.exclude is not None and texts:
            excluded[:] = self.exclude(texts)
        parts: list[str] = []
        counts = np.zeros(len(texts), dtype=np.int64)
        for index in np.flatnonzero(~excluded).tolist():
            text = texts[index]
            spans = sentences(text)
            parts += [text[start:end] for start, end in spans]
            counts[index] = len(spans)
        pieces = self.tokenizer.pieces(parts)
        sizes = np.diff(pieces.boundaries)
        words = self._words(parts, pieces.ids, pieces.starts, sizes)
        owners = np.repeat(np.arange(len(texts)), counts)[sizes > 0]
        sizes = sizes[sizes > 0]
        document_sentences = np.bincount(owners, minlength=len(texts))
        document_sizes = np.bincount(owners, weights=sizes, minlength=len(texts)).astype(np.int64)
        kept = document_sizes > 0
        num_unknown = int(np.count_nonzero(pieces.ids == self.tokenizer.unk_id))
        ids = pieces.ids.astype(self.dtype)
        documents = document_sizes[kept], document_sentences[kept].astype(np.int64)
        return Cut(ids, words, sizes, *documents, excluded, ~kept & ~excluded, num_unknown)

    def _words(
        self, lines: list[str], ids: npt.NDArray[np.int32], starts: npt.NDArray[np.int32], sizes: Longs
    ) -> npt.NDArray[np.uint8]:
        """[T] 1 where a token's first character is in another word than that of the token before; 0 for ## pieces."""
        marks = self.begins.take(ids)
        if self.segmenter is not None and len(ids):
            line_begins = np.cumsum([0, *(len(line) + 1 for line in lines[:-1])], dtype=np.int64)
            whole = np.flatnonzero(marks)
            places = np.repeat(line_begins, sizes)
            places += starts
            numbers = word_numbers(lines, self.segmenter).take(places.take(whole))
            # Canonical order may have moved a mark to before the token that it follows.
            marks[whole] = np.diff(np.maximum.accumulate(numbers), prepend=-1) > 0
        # Only an added token that is spelt with ## can be the first of a sentence and not begin a word.
        edges = np.cumsum(sizes) - sizes
        marks[edges[sizes > 0]] = 1
        return marks


def id_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest type that holds every id."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


# -- workers -------------------------------------------------------------------------------------------------------

_cutter: Cutter | None = None


def _begin(tokenizer: Tokenizer, segmenter: Segmenter | None, exclude: Exclude | None) -> None:
    """What a worker does first: it leaves Ctrl-C to its parent, and ends when the parent is gone however that went."""
    global _cutter  # noqa: PLW0603 - the one value of a worker process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    gc.freeze()
    gc.set_threshold(100_000)  # a chunk makes many small objects and no cycles
    _cutter = Cutter(tokenizer, segmenter, exclude)


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def _cut(texts: list[str]) -> Cut:
    assert _cutter is not None
    return _cutter(texts)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some neighbouring documents of one shard, and which of them their hash holds back."""

    shard: int
    texts: list[str]
    hashes: list[float]  # from 0 up to 1
    is_last: bool  # in its shard
    ends_corpus: bool


def cuts(chunks: Iterable[Chunk], cutter: Cutter, workers: int) -> Generator[tuple[Chunk, Cut]]:
    """Every chunk with its cut, in order; few wait at any time, so memory stays bounded."""
    rest = iter(chunks)
    head = list(islice(rest, 2))
    if workers == 1 or len(head) < 2:  # one chunk is done before a worker has started
        yield from ((chunk, cutter(chunk.texts)) for chunk in _both(head, rest))
        return
    pending: deque[tuple[Chunk, Future[Cut]]] = deque()
    # Spawned, since a process with threads must not be forked.
    context = multiprocessing.get_context("spawn")
    parts = (cutter.tokenizer, cutter.segmenter, cutter.exclude)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=parts)
    try:
        for chunk in _both(head, rest):
            pending.append((chunk, pool.submit(_cut, chunk.texts)))
            if len(pending) > 2 * workers:
                first, future = pending.popleft()
                yield first, future.result()
        while pending:
            first, future = pending.popleft()
            yield first, future.result()
    except BrokenProcessPool:
        raise FilbertError(
            "a worker process died while it tokenised, perhaps for want of memory; run again with fewer workers, and "
            "the shards that are finished will be kept."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _both(head: list[Chunk], rest: Iterator[Chunk]) -> Iterator[Chunk]:
    while head:
        yield head.pop(0)
    yield from rest


# -- documents to chunks -------------------------------------------------------------------------------------------


class Seen:
    """The digests met so far: a hash table in a nameless file, so that memory stays flat however many they are."""

    def __init__(self, folder: Path, slots: int = 2**16) -> None:
        self.folder, self.slots, self.count = folder, slots, 0
        try:
            self.file = self._made(slots)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> InputError:
        return InputError(f"{self.folder}: could not be written ({error.strerror}); make room there and run again.")

    def _made(self, slots: int) -> int:
        path = self.folder / f".seen.{os.getpid()}.{slots}.part"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        path.unlink()
        os.ftruncate(file, slots * DIGEST_BYTES)
        return file

    def close(self) -> None:
        """Gives the file back."""
        os.close(self.file)

    def added(self, digest: bytes) -> bool:
        """Whether the digest is new; it is not the next time."""
        try:
            is_new = self._put(self.file, self.slots, digest)
            self.count += is_new
            if self.count * 2 > self.slots:
                self._grow()
        except OSError as error:
            raise self._refused(error) from error
        return is_new

    @staticmethod
    def _put(file: int, slots: int, digest: bytes) -> bool:
        place = int.from_bytes(digest[:8], "little") & (slots - 1)
        while True:
            run = os.pread(file, min(8, slots - place) * DIGEST_BYTES, place * DIGEST_BYTES)
            for at in range(0, len(run), DIGEST_BYTES):
                entry = run[at : at + DIGEST_BYTES]
                if entry == digest:
                    return False
                if entry == EMPTY:
                    os.pwrite(file, digest, place * DIGEST_BYTES + at)
                    return True
            place = (place + len(run) // DIGEST_BYTES) & (slots - 1)

    def _grow(self) -> None:
        slots = self.slots * 4
        larger = self._made(slots)
        for start in range(0, self.slots * DIGEST_BYTES, 2**20):
            block = os.pread(self.file, 2**20, start)
            for at in range(0, len(block), DIGEST_BYTES):
                digest = block[at : at + DIGEST_BYTES]
                if digest != EMPTY:
                    self._put(larger, slots, digest)
        os.close(self.file)
        self.file, self.slots = larger, slots


@dataclass(slots=True)
class Dealing:
    """Texts in, chunks out; counts what it drops. Documents of shards that are `done` are read but not passed on."""

    shard_tokens: int
    done: frozenset[int]
    seen: Seen
    num_duplicate: int = 0
    num_shards: int = 0
    _texts: list[str] = field(default_factory=list)
    _hashes: list[float] = field(default_factory=list)

    def chunks(self, texts: Iterable[str]) -> Iterator[Chunk]:
        """The chunks in order; the last one of each shard says so, and is empty where all was passed on before."""
        size = num_chars = 0
        for text in texts:
            raw = text.strip().encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(raw, digest_size=DIGEST_BYTES).digest()
            if not self.seen.added(digest):
                self.num_duplicate += 1
                continue
            if size >= self.shard_tokens * BYTES_PER_TOKEN:  # not sooner, since the corpus may end there
                yield from self._passed_on(is_last=True, ends_corpus=False)
                size = num_chars = 0
            if self.num_shards not in self.done:
                self._texts.append(text)
                self._hashes.append(int.from_bytes(digest[8:], "little") / 2**64)
                num_chars += len(text)
            size += len(raw)
            if num_chars >= CHUNK_CHARS:
                yield from self._passed_on(is_last=False, ends_corpus=False)
                num_chars = 0
        yield from self._passed_on(is_last=True, ends_corpus=True)

    def _passed_on(self, is_last: bool, ends_corpus: bool) -> Iterator[Chunk]:
        shard = self.num_shards
        if shard not in self.done:
            texts, hashes, self._texts, self._hashes = self._texts, self._hashes, [], []
            yield Chunk(shard, texts, hashes, is_last, ends_corpus)
        self.num_shards += is_last


# -- chunks to a file ----------------------------------------------------------------------------------------------


class Gathered:
    """The cuts of one shard so far."""

    def __init__(self, held: float, held_tokens: int = 0) -> None:
        self.held, self.held_tokens = held, held_tokens
        self.cuts: list[Cut] = []
        self.hashes: list[npt.NDArray[np.float64]] = []

    def add(self, chunk: Chunk, cut: Cut) -> None:
        """Takes in the next cut."""
        self.cuts.append(cut)
        kept = ~(cut.is_excluded | cut.is_empty)
        self.hashes.append(np.array(chunk.hashes, dtype=np.float64)[kept])

    def held_back(self, last: Chunk) -> list[Bools]:
        """Which documents of each cut are held back: by their hash, and in the first shard at least one if it can be.

        There it is the one of least hash if none is under the share, from HEAD_DOCUMENTS documents on, or from two on
        where other shards follow.
        """
        masks = [hashes < self.held for hashes in self.hashes]
        count = sum(map(len, masks))
        enough = count >= (HEAD_DOCUMENTS if last.ends_corpus else 2)
        if last.shard == 0 and self.held > 0 and enough and not any(mask.any() for mask in masks):
            least = min(float(hashes.min(initial=2.0)) for hashes in self.hashes)
            masks = [hashes == least for hashes in self.hashes]
        if last.shard == 0 and self.held > 0 and enough and self.held_tokens:
            masks = self._filled(masks)
        return masks

    def _filled(self, masks: list[Bools]) -> list[Bools]:
        """More documents, in the order of their hashes, until there are tokens enough to measure something on.

        One that would take more than its share of what is learnt from is passed over.
        """
        hashes, held = np.concatenate(self.hashes), np.concatenate(masks)
        sizes = np.concatenate([cut.document_sizes for cut in self.cuts])
        count, most = int(sizes[held].sum()), HELD_MOST * int(sizes.sum())
        for place in np.argsort(hashes, kind="stable").tolist():
            if count >= self.held_tokens:
                break
            if not held[place] and count + int(sizes[place]) <= most:
                held[place] = True
                count += int(sizes[place])
        return np.split(held, np.cumsum([len(mask) for mask in masks])[:-1])

    def write(self, path: Path, identity: str, last: Chunk) -> None:
        """The shard's file, whole or not at all."""
        masks = self.held_back(last)
        buffers: list[npt.NDArray[Any]] = []
        parts: dict[Part, Sizes] = {}
        for name in PARTS:
            taken = [_taken(cut, mask if name == "held" else ~mask) for cut, mask in zip(self.cuts, masks, strict=True)]
            document_sizes = np.concatenate([cut.document_sizes for cut in taken])
            sentence_sizes = np.concatenate([cut.sentence_sizes for cut in taken])
            arrays = (
                [cut.ids for cut in taken],
                [cut.words for cut in taken],
                [_offsets(document_sizes)],
                [_offsets(sentence_sizes)],
            )
            for pieces in arrays:
                num_bytes = sum(piece.nbytes for piece in pieces)
                buffers += [*pieces, np.zeros(-num_bytes % ALIGN, dtype=np.uint8)]
            parts[name] = {
                "documents": len(document_sizes),
                "sentences": len(sentence_sizes),
                "tokens": int(document_sizes.sum()),
            }
        digest = hashlib.sha256()
        for buffer in buffers:
            digest.update(buffer.data)
        header: Header = {
            "identity": identity,
            "index": last.shard,
            "sha256": digest.hexdigest(),
            "ids": self.cuts[0].ids.dtype.str,
            "train": parts["train"],
            "held": parts["held"],
            "empty": sum(int(cut.is_empty.sum()) for cut in self.cuts),
            "excluded": sum(int(cut.is_excluded.sum()) for cut in self.cuts),
            "unknown": sum(cut.num_unknown for cut in self.cuts),
        }
        _write(path, header, buffers)


def _write(path: Path, header: Header, buffers: Sequence[npt.NDArray[np.generic]]) -> None:
    raw = json.dumps(header).encode()
    raw += b" " * (-(len(MAGIC) + 8 + len(raw)) % ALIGN)
    try:
        with whole_file(path) as part, part.open("wb") as handle:
            handle.write(MAGIC + len(raw).to_bytes(8, "little") + raw)
            for buffer in buffers:
                handle.write(buffer.data)
    except InputError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"{path}: the disk is full; make room and run again, and the shards that are finished will be kept."
            ) from error.__cause__
        raise


def _offsets(sizes: Longs) -> Longs:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)]).astype("<i8")


def _taken(cut: Cut, documents: Bools) -> Cut:
    """Some documents of a cut."""
    if documents.all():
        return cut
    in_sentences = np.repeat(documents, cut.document_sentences)
    in_tokens = np.repeat(documents, cut.document_sizes)
    return Cut(
        cut.ids[in_tokens],
        cut.words[in_tokens],
        cut.sentence_sizes[in_sentences],
        cut.document_sizes[documents],
        cut.document_sentences[documents],
        cut.is_excluded,
        cut.is_empty,
        cut.num_unknown,
    )


# -- a file's header -----------------------------------------------------------------------------------------------


def array_places(header: Contents, begin: int) -> tuple[dict[str, list[tuple[str, int, int]]], int]:
    """The (type, place, length) of each part's arrays in a file whose header ends at `begin`, and the file's size."""
    places: dict[str, list[tuple[str, int, int]]] = {}
    for name in PARTS:
        part = header[name]
        tokens, documents, num_sentences = part["tokens"], part["documents"] + 1, part["sentences"] + 1
        shapes = ((header["ids"], tokens), ("|u1", tokens), ("<i8", documents), ("<i8", num_sentences))
        places[name] = []
        for kind, length in shapes:
            places[name].append((kind, begin, length))
            num_bytes = np.dtype(kind).itemsize * length
            begin += num_bytes + -num_bytes % ALIGN
    return places, begin


def mapped_header(raw: npt.NDArray[np.uint8]) -> Header | None:
    """The header of a shard file that is mapped, or None where it is something else."""
    with contextlib.suppress(ValueError):
        head = raw[: len(MAGIC) + 8].tobytes()
        size = int.from_bytes(head[len(MAGIC) :], "little")
        if head.startswith(MAGIC) and size < 2**16:
            header: Header = json.loads(raw[len(head) : len(head) + size].tobytes())
            return header if {"identity", "sha256"} <= set(header) else None
    return None


def read_header(path: Path) -> tuple[Header, int] | None:
    """A shard file's header and where it ends, or None where the file is missing, cut short or something else."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError), path.open("rb") as handle:
        head = handle.read(len(MAGIC) + 8)
        size = int.from_bytes(head[len(MAGIC) :], "little")
        if head.startswith(MAGIC) and size < 2**16:
            header: Header = json.loads(handle.read(size))
            begin = len(head) + size
            if array_places(header, begin)[1] == os.fstat(handle.fileno()).st_size:
                return header, begin
    return None
