"""A corpus of any size comes in; memory-mapped shards of its tokens go out, made once and used again.

`build` tokenises in parallel and writes a folder: meta.json, and 00000.shard, 00001.shard and so on, each with the
documents of one stretch of the corpus. A document whose text (white space around it aside) stood before is dropped, by
128 bits of its hash. What fixes the shards is their identity: the corpus's files (names, sizes, times), the tokenizer,
the options and what is excluded. The same identity again: nothing is done, or only what is missing or cut short.

Legend: T tokens in a shard.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, TypedDict, cast

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.files import json_object, json_text, regular_file, write_text
from filbert.core.protocols import Segmenter
from filbert.corpus import writer
from filbert.corpus.writer import Contents, Exclude, Part
from filbert.text.corpus import CorpusReport, Source, documents, file_documents, files
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer
from filbert.text.words import Words, segmenter

FORMAT = 1  # of the folder; another number makes another identity
KIND = "filbert shards"
META = "meta.json"
_SHARD = re.compile(r"\d{5,}\.shard")
_LEFT_OVER = re.compile(r"\.(?:meta\.json|\d{5,}\.shard|seen)\..*\.part")  # of a run that was killed


@dataclass(frozen=True, kw_only=True)
class Options:
    """What fixes the shards besides the corpus and the tokenizer.

    A document is held back by the hash of its text: wherever it stands, and whatever stands beside it, it stays held.
    Two exceptions: where the first shard would hold none, the document of least hash in it is held back, if the shard
    has 20 documents, or if it has two and others follow. And where fewer than `held_tokens` are held back there, more
    documents are, in the order of their hashes, up to a twentieth of the shard.
    """

    words: bool = True  # mark where words begin by the segmenter; else each token that is no ## piece begins one
    segmenter: str = "auto"
    held: float = 0.005  # share of documents kept back for measuring
    held_tokens: int = 0  # so many at least, where they are no more than a twentieth; 0: whatever the share gives
    shard_tokens: int = 2**24  # about so many in a shard: a document's are taken to be its bytes in UTF-8 over 3
    field: str | None = None  # these four: how the corpus is read, see text.corpus.documents
    encoding: str = "utf-8"
    errors: str = "strict"
    unit: str = "blank"  # a document ends at a blank line
    most_bytes: int = 0  # of the corpus that are read, shared out over its files by their sizes; 0 reads everything

    def __post_init__(self) -> None:
        if not 0 <= self.held < 1:
            raise InputError(f"shards: held is {self.held!r}, but must be from 0 up to 1.")
        if self.held_tokens < 0:
            raise InputError(f"shards: held_tokens is {self.held_tokens}, but must be 0 or more.")
        if self.shard_tokens < 1:
            raise InputError(f"shards: shard_tokens is {self.shard_tokens}, but must be 1 or more.")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What became of the corpus: every document read is kept, or dropped for one of three reasons."""

    num_read: int = 0
    num_kept: int = 0
    num_held: int = 0  # of those kept, the ones held back
    num_duplicate: int = 0  # dropped: the same text stood before
    num_empty: int = 0  # dropped: no token
    num_excluded: int = 0  # dropped: `exclude` said so
    num_tokens: int = 0
    num_held_tokens: int = 0
    num_unknown: int = 0  # tokens that are [UNK]
    num_sentences: int = 0
    num_bytes: int = 0  # of the corpus, decompressed
    num_shards: int = 0
    num_made: int = 0  # shards that the last run had to make
    seconds: float = 0.0  # of the last run
    notes: tuple[str, ...] = ()  # what reading the corpus met

    @property
    def unknown_share(self) -> float:
        """The share of tokens that are [UNK]."""
        return self.num_unknown / max(1, self.num_tokens)

    def remarks(self) -> list[str]:
        """What a user should know, one sentence each."""
        lines = [
            f"{self.num_read:,} documents were read, {self.num_kept:,} kept ({self.num_held:,} of them held back for "
            f"measuring): {self.num_tokens:,} tokens in {self.num_sentences:,} sentences and {self.num_shards:,} "
            f"shards."
        ]
        dropped = {
            "dropped, for the same text stood before": self.num_duplicate,
            "dropped, for they have no token": self.num_empty,
            "dropped, for they are excluded": self.num_excluded,
        }
        lines += [f"{count:,} documents were {what}." for what, count in dropped.items() if count]
        if self.num_unknown:
            lines.append(f"{self.num_unknown:,} tokens ({self.unknown_share:.2%}) are [UNK].")
        return [*lines, *self.notes]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a build is, after every chunk."""

    num_documents: int  # read
    num_bytes: int  # read, decompressed
    num_tokens: int  # made in this run
    num_shards: int  # finished in this run
    seconds: float


class Entry(Contents):
    """What meta.json says of one shard."""

    file: str
    bytes: int
    begin: int  # of its arrays in the file


class Meta(TypedDict):
    """What meta.json says."""

    kind: str
    status: str
    identity: dict[str, Any]  # see `_identity`
    vocab_size: int
    report: dict[str, Any]  # the fields of a Report
    shards: list[Entry]


# -- reading -------------------------------------------------------------------------------------------------------


class Shard:
    """The tokens of some documents; its arrays are mapped when they are first asked for."""

    def __init__(self, path: Path, entry: Entry, split: Part, identity: str) -> None:
        self.path, self._entry, self._split, self._identity = path, entry, split, identity
        self.num_bytes: int = entry["bytes"]
        self.num_tokens, self.num_documents = entry[split]["tokens"], entry[split]["documents"]

    def __reduce__(self) -> tuple[Any, ...]:
        return Shard, (self.path, self._entry, self._split, self._identity)

    @cached_property
    def _arrays(self) -> list[npt.NDArray[Any]]:
        try:
            mapped = np.memmap(self.path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path}: cannot be mapped ({error}); build the shards again.") from None
        if len(mapped) != self.num_bytes:  # or a look beyond its end would kill the process
            lengths = f"has {len(mapped):,} bytes where {self.num_bytes:,} were written"
            raise InputError(f"{self.path}: {lengths}; build the shards again.")
        # What is mapped stays as it is, also where another build puts a new file in its place: so only now is it known
        # whose tokens these are.
        header = writer.mapped_header(mapped)
        if header is None or (header["identity"], header["sha256"]) != (self._identity, self._entry["sha256"]):
            raise InputError(
                f"{self.path}: is of another build by now (another corpus, vocabulary or options); give each run its "
                "own --shards, and build these again."
            )
        # Plain views: slices of a memmap object are slower, and it is kept alive by them anyway.
        raw = mapped.view(np.ndarray)
        places = writer.array_places(self._entry, self._entry["begin"])[0][self._split]
        ends = [place + np.dtype(kind).itemsize * length for kind, place, length in places]
        return [raw[place:end].view(kind) for (kind, place, _), end in zip(places, ends, strict=True)]

    @property
    def ids(self) -> npt.NDArray[Any]:
        """[T] uint16, or uint32 for a vocabulary beyond 65,536; no special tokens."""
        return self._arrays[0]

    @property
    def words(self) -> npt.NDArray[np.uint8]:
        """[T] 1 where a token begins a word; every sentence begins with one."""
        return self._arrays[1]

    @property
    def documents(self) -> npt.NDArray[np.int64]:
        """[documents + 1] where each begins, and T."""
        return self._arrays[2]

    @property
    def sentences(self) -> npt.NDArray[np.int64]:
        """[sentences + 1] where each begins, and T; every document begins with one, and none is empty."""
        return self._arrays[3]


@dataclass(frozen=True, eq=False)
class Split:
    """The shards that are learnt from, or those held back; shards without a document are left out."""

    shards: list[Shard]

    @cached_property
    def num_tokens(self) -> int:
        """Tokens of all its shards."""
        return sum(shard.num_tokens for shard in self.shards)

    @cached_property
    def num_documents(self) -> int:
        """Documents of all its shards."""
        return sum(shard.num_documents for shard in self.shards)


@dataclass(frozen=True, eq=False)
class Shards:
    """A finished folder; it holds no mapping itself, so it travels to other processes at no cost."""

    folder: Path
    meta: Meta = field(repr=False)

    @property
    def report(self) -> Report:
        """What became of the corpus when the shards were made."""
        stored = self.meta["report"]
        return Report(
            **{f.name: stored[f.name] for f in fields(Report) if f.name != "notes"}, notes=tuple(stored["notes"])
        )

    @property
    def vocab_size(self) -> int:
        """How many ids the tokenizer has."""
        return int(self.meta["vocab_size"])

    @property
    def has_words(self) -> bool:
        """Whether word marks are a segmenter's."""
        return bool(self.meta["identity"]["options"]["words"])

    @property
    def num_tokens(self) -> int:
        """Tokens of both splits."""
        return self.train.num_tokens + self.held.num_tokens

    @property
    def num_documents(self) -> int:
        """Documents of both splits."""
        return self.train.num_documents + self.held.num_documents

    @cached_property
    def train(self) -> Split:
        """What is learnt from."""
        return self._split("train")

    @cached_property
    def held(self) -> Split:
        """What is kept back for measuring."""
        return self._split("held")

    def _split(self, name: Part) -> Split:
        identity = _digest(self.meta["identity"])
        entries = (entry for entry in self.meta["shards"] if entry[name]["documents"])
        return Split([Shard(self.folder / entry["file"], entry, name, identity) for entry in entries])

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "meta": self.meta}

    def verify(self) -> None:
        """Reads every byte and refuses a shard whose contents are not those that were written."""
        for entry in self.meta["shards"]:
            path = self.folder / entry["file"]
            with path.open("rb") as handle:
                handle.seek(entry["begin"])
                if hashlib.file_digest(handle, "sha256").hexdigest() != entry["sha256"]:
                    raise InputError(f"{path}: its contents have changed since it was written; delete it and build.")


def opened(folder: Path | str) -> Shards:
    """The shards in a folder; one that is unfinished, or has a shard missing or cut short, is refused by name."""
    folder = Path(folder)
    meta = _meta(folder)
    if meta is None:
        raise InputError(f"{folder}: holds no {META}, so it is not a folder of shards.")
    if meta["status"] != "finished":
        raise InputError(f"{folder}: its shards are not finished; run the same build again, and it will go on.")
    damaged = _damaged(folder, meta)
    if damaged:
        raise InputError(
            f"{folder / damaged[0]}: is missing or cut short; run the same build again, which makes only that."
        )
    return Shards(folder, meta)


def _meta(folder: Path) -> Meta | None:
    """What meta.json says; None where there is none. One that is not ours is refused."""
    path = folder / META
    if not path.exists():
        return None
    meta = json_object(path)
    if meta.get("kind") != KIND or not {"status", "identity", "shards", "report", "vocab_size"} <= set(meta):
        raise InputError(f"{path}: was not written by filbert for shards; name another folder.")
    if meta["identity"].get("format") != FORMAT:
        meta["status"] = "of another format"
    return cast(Meta, meta)


def _damaged(folder: Path, meta: Meta) -> list[str]:
    """The files that are not as long as they were written."""
    names = []
    for entry in meta["shards"]:
        try:
            size = (folder / entry["file"]).stat().st_size
        except OSError:
            size = -1
        if size != entry["bytes"]:
            names.append(entry["file"])
    return names


# -- building ------------------------------------------------------------------------------------------------------


def build(
    sources: Source | Iterable[Source],
    tokenizer: Tokenizer,
    folder: Path | str,
    options: Options | None = None,
    *,
    workers: int = 0,
    exclude: Exclude | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Shards:
    """The corpus as shards in the folder: those that lie there if their identity is the same, else made now.

    workers: processes that tokenise; 0 is one for each core, 1 does everything in this process. The bytes are the same.
    exclude: says of each of some texts whether to drop it. It must travel to other processes, and judge each text by
    itself; its attribute `digest`, or else its name, is part of the identity.
    A build that was stopped, even killed, goes on where it was. Two builds of one folder take turns.
    """
    folder = Path(folder)
    options = options or Options()
    if workers < 0:
        raise InputError(f"shards: workers is {workers}, but must be 1 or more, or 0 for one on each core.")
    report = CorpusReport()
    inside = os.path.abspath(folder) + os.sep
    paths = [name for name in files(sources, report) if name == "-" or not os.path.abspath(name).startswith(inside)]
    segment = segmenter(options.segmenter) if options.words else None
    identity = _identity(paths, tokenizer, options, segment, exclude)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be a folder for shards ({error.strerror}).") from None
    with _lock(folder):
        meta = _meta(folder)
        _refuse_others(folder, meta)
        is_same = meta is not None and meta["identity"] == identity
        if is_same and meta is not None and meta["status"] == "finished" and not _damaged(folder, meta):
            return Shards(folder, meta)
        cutter = writer.Cutter(tokenizer, segment, exclude)
        making = _Making(folder, paths, cutter, options, identity)
        return making.finished(workers or _num_cores(), report, on_progress)


def texts(paths: list[str], options: Options, report: CorpusReport) -> Iterator[str]:
    """The texts of these files, read as the options say; where a file is not read to its end, the report says so."""
    if not options.most_bytes:
        how = (options.field, options.encoding, options.errors, options.unit)
        yield from (document.text for document in documents(paths, *how, report))
        return
    reading = Reading(options.encoding, options.errors, report)
    sizes = [regular_file(name).stat().st_size if name != "-" else 0 for name in paths]
    for name, size in zip(paths, sizes, strict=True):
        left = options.most_bytes * size / max(1, sum(sizes)) if size else options.most_bytes
        before = report.num_documents
        for document in file_documents(name, options.field, options.unit, reading):
            if left <= 0:
                report.others[f"files were read only in part: {options.most_bytes / 1e6:,.0f} MB in all"] += 1
                break
            left -= len(document.text.encode())
            report.num_documents += 1
            yield document.text
        report.num_files += 1
        if report.num_documents == before:
            report.empty_files.append(name)


def _identity(
    paths: list[str], tokenizer: Tokenizer, options: Options, segment: Segmenter | None, exclude: Exclude | None
) -> dict[str, Any]:
    """All that the shards depend on, as JSON holds it."""
    settings = json.dumps(asdict(tokenizer.settings), ensure_ascii=True)
    name = getattr(exclude, "__qualname__", type(exclude).__qualname__)
    return {
        "format": FORMAT,
        "corpus": corpus_identity(paths),
        "tokenizer": hashlib.sha256(settings.encode()).hexdigest(),
        "options": asdict(options),
        "segmenter": segment.name if isinstance(segment, Words) else None,
        "exclude": None if exclude is None else str(getattr(exclude, "digest", name)),
    }


def _digest(identity: Mapping[str, object]) -> str:
    """What the files of one build have in common, and those of no other."""
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def corpus_identity(paths: list[str]) -> list[list[Any]]:
    """Name, size and time of each file; what comes through a pipe is never the same."""
    named: list[list[Any]] = []
    for name in paths:
        status = regular_file(name).stat() if name != "-" else None
        named.append([os.path.abspath(name), status.st_size, status.st_mtime_ns] if status else ["-", token_hex(8)])
    return named


def _refuse_others(folder: Path, meta: Meta | None) -> None:
    """Refuses a folder with anything in it that we did not write: what we write may be deleted again."""
    for name in sorted(os.listdir(folder)):
        is_ours = name == META or (meta is not None and _SHARD.fullmatch(name))
        if not is_ours and not name.startswith("."):
            raise InputError(f"{folder}: holds {name!r}, which is not a shard of filbert's; name an empty folder.")


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Waits until no other process builds in the folder; the system lets go of the lock however a process ends."""
    try:
        import fcntl
    except ImportError:  # not a Unix
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.getLogger(__name__).warning(f"{folder}: another process is building these shards; waiting for it.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Making:
    """One run that makes what is missing in a folder."""

    def __init__(
        self, folder: Path, paths: list[str], cutter: writer.Cutter, options: Options, identity: dict[str, object]
    ) -> None:
        self.folder, self.paths, self.cutter, self.options, self.identity = folder, paths, cutter, options, identity
        self.digest = _digest(identity)
        self.num_tokens = self.num_made = 0
        self.start = time.monotonic()

    def finished(self, workers: int, report: CorpusReport, on_progress: Callable[[Progress], None] | None) -> Shards:
        """Reads the corpus, writes the shards that are missing, and seals the folder."""
        self._write_meta("in progress", [], Report())
        done = self._kept()
        with contextlib.closing(writer.Seen(self.folder)) as seen:
            dealing = writer.Dealing(self.options.shard_tokens, done, seen)
            self._write_shards(dealing, workers, report, on_progress)
        if "-" not in self.paths and corpus_identity(self.paths) != self.identity["corpus"]:
            raise InputError(f"{self.paths[0]}: the corpus changed while it was read; run again when it stands still.")
        entries = [self._entry(index) for index in range(dealing.num_shards)]
        summary = self._report(entries, dealing, report)
        if not summary.num_kept:
            dropped = f"{summary.num_empty:,} have no token and {summary.num_excluded:,} are excluded"
            raise InputError(f"{self.paths[0]}: no document is left to learn from: {dropped}.")
        return Shards(self.folder, self._write_meta("finished", entries, summary))

    def _write_shards(
        self,
        dealing: writer.Dealing,
        workers: int,
        report: CorpusReport,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        kept = self.options
        gathered = writer.Gathered(kept.held, kept.held_tokens)
        chunks = dealing.chunks(texts(self.paths, kept, report))
        with contextlib.closing(writer.cuts(chunks, self.cutter, workers)) as results:
            for chunk, cut in results:
                gathered.add(chunk, cut)
                self.num_tokens += len(cut.ids)
                if chunk.is_last:
                    gathered.write(self._path(chunk.shard), self.digest, chunk)
                    gathered = writer.Gathered(kept.held, kept.held_tokens)
                    self.num_made += 1
                if on_progress is not None:
                    on_progress(self._progress(report))

    def _progress(self, report: CorpusReport) -> Progress:
        return Progress(
            num_documents=report.num_documents,
            num_bytes=report.num_bytes,
            num_tokens=self.num_tokens,
            num_shards=self.num_made,
            seconds=time.monotonic() - self.start,
        )

    def _path(self, index: int) -> Path:
        return self.folder / f"{index:05}.shard"

    def _kept(self) -> frozenset[int]:
        """The shards that lie there whole, of this very identity; all other files of ours are deleted."""
        kept = set()
        for name in os.listdir(self.folder):
            path = self.folder / name
            if _SHARD.fullmatch(name):
                read = writer.read_header(path)
                index = int(path.stem)
                if read is not None and read[0].get("identity") == self.digest and path == self._path(index):
                    kept.add(index)
                    continue
                path.unlink()
            elif _LEFT_OVER.fullmatch(name):
                path.unlink()
        return frozenset(kept)

    def _entry(self, index: int) -> Entry:
        """What meta.json says of a shard: its header, and where that ends."""
        path = self._path(index)
        read = writer.read_header(path)
        if read is None:
            raise InputError(f"{path}: is gone or cut short although it was just written; who else writes there?")
        header, begin = read
        rest = {name: value for name, value in header.items() if name != "identity"}
        return cast(Entry, {"file": path.name, "bytes": path.stat().st_size, "begin": begin, **rest})

    def _report(self, entries: list[Entry], dealing: writer.Dealing, report: CorpusReport) -> Report:
        def total(part: Part, what: Literal["documents", "sentences", "tokens"]) -> int:
            return sum(entry[part][what] for entry in entries)

        made = Report(
            num_read=report.num_documents,
            num_kept=total("train", "documents") + total("held", "documents"),
            num_held=total("held", "documents"),
            num_duplicate=dealing.num_duplicate,
            num_empty=sum(entry["empty"] for entry in entries),
            num_excluded=sum(entry["excluded"] for entry in entries),
            num_tokens=total("train", "tokens") + total("held", "tokens"),
            num_held_tokens=total("held", "tokens"),
            num_unknown=sum(entry["unknown"] for entry in entries),
            num_sentences=total("train", "sentences") + total("held", "sentences"),
            num_bytes=report.num_bytes,
            num_shards=len(entries),
            num_made=self.num_made,
            seconds=round(time.monotonic() - self.start, 3),
            notes=tuple(report.remarks()),
        )
        num_dropped = made.num_duplicate + made.num_empty + made.num_excluded
        assert made.num_read == made.num_kept + num_dropped, "every document must be accounted for"
        if "-" in self.paths:
            note = "standard input cannot be read twice, so the next run will make these shards anew."
            return replace(made, notes=(*made.notes, note))
        return made

    def _write_meta(self, status: str, entries: list[Entry], report: Report) -> Meta:
        meta: Meta = {
            "kind": KIND,
            "status": status,
            "identity": self.identity,
            "vocab_size": self.cutter.tokenizer.vocab_size,
            "report": asdict(report),
            "shards": entries,
        }
        write_text(self.folder / META, json_text(meta))
        return json.loads(json.dumps(meta))  # type: ignore[no-any-return]
