"""Checkpoints of a run: named tensors and a state in, whole folders on disk out; the newest whole one comes back.

A checkpoint is a folder `step-00001000` with tensors.safetensors, state.json and manifest.json, which has the size and
SHA-256 of the other two and says whether it was the best so far. It is written under another name, flushed, and then
renamed, so that a process that is killed at any point leaves the one before it, whole. Nothing here is a pickle, and
nothing is used before its hash was compared.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from filbert.core.errors import FilbertError, InputError
from filbert.core.files import json_text, sha256
from filbert.folder import weights

TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
FORMAT, RUN_LOCK, SAVE_LOCK = "filbert checkpoint 1", ".lock", ".writing"
CHUNK_BYTES = 2**20  # hashed while the processor still has it at hand
STATE_LIMIT_BYTES, MANIFEST_LIMIT_BYTES = 64 * 2**20, 2**16  # numbers in bulk belong to the tensors
SAVE_WAIT_S, READ_WAIT_S = 60.0, 10.0  # others hold the folder only to tidy it, or for one save
STORED = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.bool: "BOOL",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
}  # fmt: skip
LOADED = {name: dtype for dtype, name in STORED.items()}
ARRAYS = {np.dtype(code): name for name, code in weights.DTYPES.items() if name != "BF16"}  # "<u2" there is bfloat16
TRACE = re.compile(r"step-[0-9]{8,}(\.damaged-[0-9]+)?")  # what only a checkpoint leaves
# part: being written; old: stood where a new one was just put; gone: being deleted
LEFTOVER = re.compile(r"\.(?P<name>step-[0-9]{8,}|probe)\.[0-9a-f]{8}\.(?P<kind>part|old|gone)")

Array = torch.Tensor | npt.NDArray[Any]


class _Damaged(Exception):
    """Which file of a checkpoint is not what was written, and how."""


class FileEntry(NamedTuple):
    """A file of a checkpoint, as its manifest has it."""

    name: str
    num_bytes: int
    sha256: str


# One run at a time ----------------------------------------------------------------------------------------------------

_guard = threading.Lock()
_held: dict[tuple[int, int, int], str] = {}  # (process, device, inode) of each lock file we hold: who we said we are


def _take(path: Path, about: str) -> tuple[int | None, str]:
    """The lock as an open file, or None and who has it.

    POSIX record locks, not flock: flock belongs to the open file, which forked loader workers share, so that one worker
    that outlives a killed run would lock its folder for good. A record lock belongs to the process alone, and the
    kernel drops it however that ends. Its price: it does not stop the process itself, and closing any other handle of
    the file drops it; so `_held` is asked before the file is opened.
    """
    with _guard:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            holder = _held.get((os.getpid(), status.st_dev, status.st_ino))
            if holder is not None:
                return None, holder
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(handle, 500, 0).decode("utf-8", "replace").strip()
            os.close(handle)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return None, holder or "another process"
        with contextlib.suppress(OSError):  # on a full disk the name is lost, not the lock
            os.ftruncate(handle, 0)
            os.pwrite(handle, about.encode(), 0)
        status = os.fstat(handle)
        _held[os.getpid(), status.st_dev, status.st_ino] = about
        return handle, about


def _let_go(handle: int) -> None:
    """Gives a lock back; in a forked child this only closes the child's copy."""
    with _guard:
        status = os.fstat(handle)
        _held.pop((os.getpid(), status.st_dev, status.st_ino), None)
        os.close(handle)


def _waited(path: Path, wait_s: float) -> tuple[int | None, str]:
    """As `_take`, but asks again for so long."""
    last = time.monotonic() + wait_s
    while True:
        handle, holder = _take(path, _myself())
        if handle is not None or time.monotonic() >= last:
            return handle, holder
        time.sleep(0.02)


def _myself() -> str:
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return f"process {os.getpid()} on {socket.gethostname()}, since {since}"


@contextlib.contextmanager
def locked(folder: Path | str, what: str = "run") -> Iterator[None]:
    """Holds the folder for this process; a second one is refused by a sentence that names the holder."""
    path = Path(folder) / RUN_LOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, holder = _take(path, _myself())
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written and locked ({error.strerror}); choose a folder where that is possible."
        ) from None
    if handle is None:
        raise InputError(
            f"{folder}: another {what} is using this folder ({holder}); wait until it ends, or choose another folder."
        )
    try:
        yield
    finally:
        _let_go(handle)


# One checkpoint -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files were compared with their hashes."""

    step: int
    path: Path
    state: dict[str, Any]
    best: bool  # whether it was the best so far when it was saved
    sha256: str = field(repr=False)  # of the tensor file

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors by name, in memory of their own, bit for bit as they were saved; hashed once more on the way."""
        path = self.path / TENSORS
        digest = hashlib.sha256()
        try:
            placed = sorted(weights.read(path).values(), key=lambda stored: (stored.start, stored.num_bytes))
            with open(path, "rb", buffering=0) as handle:
                digest.update(handle.read(placed[0].start if placed else -1))
                tensors = {stored.name: _read_tensor(handle, stored, digest) for stored in placed}
        except (OSError, InputError) as error:
            raise FilbertError(f"{path}: was there and whole, but can no longer be read ({error}).") from None
        if digest.hexdigest() != self.sha256:
            raise FilbertError(f"{path}: has changed since it was checked; ask for the newest checkpoint again.")
        return tensors


def _read_tensor(handle: FileIO, stored: weights.Stored, digest: hashlib._Hash) -> torch.Tensor:
    tensor = torch.empty(stored.shape, dtype=LOADED[stored.dtype])
    raw = memoryview(_raw(tensor))  # type: ignore[arg-type]
    for start in range(0, stored.num_bytes, CHUNK_BYTES):
        chunk = raw[start : start + CHUNK_BYTES]
        done = 0
        while done < len(chunk):
            count = handle.readinto(chunk[done:])
            if not count:
                raise InputError("it became shorter")
            done += count
        digest.update(chunk)
    return tensor


def _examined(path: Path, step: int) -> Checkpoint:
    """The checkpoint in a folder, if every byte is the one that was written."""
    try:
        manifest = _promised(path, step)
        files = manifest["files"]
        raw = (path / STATE).read_bytes()
        if hashlib.sha256(raw).hexdigest() != files[STATE]["sha256"]:
            raise _Damaged(f"{STATE} does not have the hash that {MANIFEST} gives")
        if sha256(path / TENSORS) != files[TENSORS]["sha256"]:
            raise _Damaged(f"{TENSORS} does not have the hash that {MANIFEST} gives")
        weights.read(path / TENSORS)
        state = json.loads(raw)
        if not isinstance(state, dict):
            raise _Damaged(f"{STATE} does not hold a JSON object")
    except (InputError, ValueError, RecursionError) as error:
        raise _Damaged(f"its files have their hashes, but cannot be read ({error})") from None
    except OSError as error:
        raise _read_fault(path, error) from None
    return Checkpoint(step, path, state, manifest["best"], files[TENSORS]["sha256"])


def _promised(path: Path, step: int) -> dict[str, Any]:
    """A checkpoint's manifest, if it is as it was written and the files have its sizes; cheap, whatever these are."""
    damaged = _Damaged(f"{MANIFEST} is not as filbert writes it")
    try:
        if _size(path / MANIFEST) > MANIFEST_LIMIT_BYTES:
            raise damaged
        raw = (path / MANIFEST).read_bytes()
        try:
            manifest = json.loads(raw)
            entries = [
                FileEntry(name, manifest["files"][name]["bytes"], manifest["files"][name]["sha256"])
                for name in (TENSORS, STATE)
            ]
            again = _manifest(manifest["step"], manifest["best"], entries)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise damaged from None
        if manifest["step"] != step:
            raise _Damaged(f"{MANIFEST} is of step {str(manifest['step'])[:20]}")
        if raw != again or type(manifest["best"]) is not bool:  # one flipped bit anywhere in it shows here
            raise damaged
        for name, num_bytes, _ in entries:
            size = _size(path / name)
            if size != num_bytes:
                raise _Damaged(f"{name} has {size:,} bytes, but {MANIFEST} says {str(num_bytes)[:20]}")
    except OSError as error:
        raise _read_fault(path, error) from None
    return dict(manifest)


def _read_fault(path: Path, error: OSError) -> Exception:
    """Whether an error while reading is damage, or trouble that may pass and is no reason to set anything aside."""
    name = Path(error.filename).name if isinstance(error.filename, (str, Path)) else "a file"
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return _Damaged(f"{name} is missing")
    if error.errno in (errno.EIO, errno.EISDIR, errno.ELOOP):
        return _Damaged(f"{name} cannot be read ({error.strerror})")
    return FilbertError(f"{path / name}: cannot be read ({error.strerror}); make it readable and try again.")


def _size(path: Path) -> int:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise _Damaged(f"{path.name} is not a plain file")
    return status.st_size


# Writing --------------------------------------------------------------------------------------------------------------


def _raw(tensor: Array) -> npt.NDArray[np.uint8]:
    """The bytes as they go to the file: no copy of what lies in order in the processor's memory."""
    if not tensor.nbytes:
        return np.zeros(0, np.uint8)  # an empty tensor's strides may be such that torch gives no view
    if isinstance(tensor, np.ndarray):
        ordered = np.ascontiguousarray(tensor, dtype=tensor.dtype.newbyteorder("<"))
        return ordered.reshape(-1).view(np.uint8)
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _header(tensors: Mapping[str, Array]) -> tuple[bytes, list[str], int]:
    """The head of the tensors' file, the order of their data, and how many bytes that has."""
    sized: dict[str, weights.Sized] = {}
    for name, tensor in tensors.items():
        dtype = (
            ARRAYS.get(tensor.dtype.newbyteorder("<")) if isinstance(tensor, np.ndarray) else STORED.get(tensor.dtype)
        )
        if dtype is None or tensor.ndim > weights.MOST_DIMS or name == "__metadata__":
            raise ValueError(f"tensor {name!r} of {tensor.dtype} with {tensor.ndim} dimensions cannot be stored")
        sized[name] = weights.Sized(dtype, tuple(tensor.shape), tensor.nbytes)
    head, order, num_bytes = weights.header(sized)
    size = len(head) - 8
    if size > weights.HEADER_LIMIT:
        raise ValueError(f"{len(order):,} tensors need a header of {size:,} bytes; {weights.HEADER_LIMIT:,} fit")
    return head, order, num_bytes


def _state(state: Mapping[str, object]) -> bytes:
    """The state as JSON, if it comes back from there as it is: no NaN, no tuples, no keys but strings."""
    fields = dict(state)
    text = json.dumps(fields, allow_nan=False, sort_keys=True, separators=(",", ":"))
    if json.loads(text) != fields:
        raise ValueError("the state changes on its way through JSON; use lists, not tuples, and strings as keys")
    if len(text) >= STATE_LIMIT_BYTES:
        raise ValueError(f"the state has {len(text):,} bytes; {STATE_LIMIT_BYTES:,} fit; store arrays as tensors")
    return text.encode("ascii") + b"\n"


def _manifest(step: int, best: bool, entries: Iterable[FileEntry]) -> bytes:
    files = {name: {"bytes": num_bytes, "sha256": digest} for name, num_bytes, digest in entries}
    return json_text({"format": FORMAT, "step": step, "best": best, "files": files}).encode()


def _write(path: Path, pieces: Iterable[npt.NDArray[np.uint8] | bytes]) -> FileEntry:
    """Writes and flushes a new file; its name, size and hash."""
    digest, size = hashlib.sha256(), 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for piece in pieces:
            view = memoryview(piece)  # type: ignore[arg-type]
            for start in range(0, len(view), CHUNK_BYTES):
                chunk = view[start : start + CHUNK_BYTES]
                digest.update(chunk)
                size += len(chunk)
                while len(chunk):
                    chunk = chunk[os.write(handle, chunk) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    return FileEntry(path.name, size, digest.hexdigest())


def _flush(folder: Path) -> None:
    """Makes sure that the names in a folder are on the disk, where the file system can do that."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems flush no folders
            raise
    finally:
        os.close(handle)


def _name(step: int) -> str:
    return f"step-{step:08d}"


# The store ------------------------------------------------------------------------------------------------------------


class Store:
    """The checkpoints of one run folder: the newest `keep` whole ones, and the best."""

    def __init__(self, folder: Path | str, keep: int = 2) -> None:
        if type(keep) is not int or keep < 2:
            raise InputError(f"keep is {keep!r}, but must be a whole number of 2 or more: the newest may be damaged.")
        self.folder = Path(folder)
        self.keep = keep
        self.notes: list[str] = []  # what was set aside or tidied up, for the user

    def check_writable(self) -> None:
        """Refuses, before any step is done, a folder in which a checkpoint could not be written."""
        probe = self._beside("probe", "part")
        try:
            with self._saving():
                try:
                    _write(probe, [b"probe"])
                    _flush(self.folder)
                finally:
                    probe.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                f"{self.folder}: checkpoints cannot be written here ({error.strerror}); "
                "choose another folder or make this one writable."
            ) from None

    def save(self, step: int, tensors: Mapping[str, Array], state: Mapping[str, object], *, best: bool = False) -> Path:
        """Writes the checkpoint of a step whole or not at all, then lets go of those that are no longer needed.

        `state` must come back from JSON as it is: strings as keys, lists, finite numbers. A step that is saved again
        with the same tensors stays the best if it was.
        """
        if type(step) is not int or step < 0:
            raise ValueError(f"step is {step!r}, but must be a whole number from 0")
        text = _state(state)
        header, order, num_bytes = _header(tensors)
        place, part = self.folder / _name(step), self._beside(_name(step), "part")
        try:
            with self._saving():
                try:
                    os.mkdir(part)
                    pieces = (_raw(tensors[name]) for name in order)  # one at a time: a GPU's tensors are copied here
                    entries = [_write(part / TENSORS, chain((header,), pieces)), _write(part / STATE, [text])]
                    best = best or self._was_best(step, entries[0][2])
                    _write(part / MANIFEST, [_manifest(step, best, entries)])
                    _flush(part)
                    self._put(part, place)
                finally:
                    shutil.rmtree(part, ignore_errors=True)
                self._prune(step)
        except OSError as error:
            raise FilbertError(
                f"{place}: the checkpoint of step {step} needs {len(header) + num_bytes + len(text):,} bytes and could "
                f"not be written ({error.strerror}{self._free()}); those before it are whole: make room or choose "
                "another disk, and resume."
            ) from None
        return place

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint; None only where there never was one.

        Damaged ones that are newer are set aside with a note. If all are damaged the run must not begin again at
        step 0 as if nothing had been, so that is an error.
        """
        checkpoint = self._first(best=False)
        if checkpoint is not None:
            return checkpoint
        lost = sorted(name for name in self._names() if TRACE.fullmatch(name))
        if not lost:
            return None
        raise InputError(
            f"{self.folder}: none of the checkpoints here is whole ({weights.named(lost)}); "
            f"restore one from a copy, or delete {self.folder} to begin again at step 0."
        )

    def best(self) -> Checkpoint | None:
        """The newest whole checkpoint of those saved as the best so far; None if there is none."""
        return self._first(best=True)

    # What lies there

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be read ({error.strerror}); give a folder.") from None

    def _steps(self) -> list[int]:
        """The steps that have a checkpoint, whole or not, newest first."""
        numbers = [(int(name[5:]), name) for name in self._names() if re.fullmatch(r"step-[0-9]{8,18}", name)]
        return sorted((step for step, name in numbers if name == _name(step)), reverse=True)

    def _first(self, best: bool) -> Checkpoint | None:
        self._tidy()
        tried = set[int]()
        while fresh := [step for step in self._steps() if step not in tried]:  # a run may be saving: look each time
            step = fresh[0]
            tried.add(step)
            if best and self._flag(step) is False:
                continue
            checkpoint = self._usable(step)
            if checkpoint is not None and (checkpoint.best or not best):
                return checkpoint
        return None

    def _flag(self, step: int) -> bool | None:
        """Whether the checkpoint of a step was the best so far; None if it is damaged."""
        try:
            return bool(_promised(self.folder / _name(step), step)["best"])
        except _Damaged:
            return None

    def _was_best(self, step: int, digest: str) -> bool:
        """Whether this step was saved before, with the same tensors, and as the best."""
        with contextlib.suppress(_Damaged, FilbertError):
            manifest = _promised(self.folder / _name(step), step)
            return bool(manifest["best"] and manifest["files"][TENSORS]["sha256"] == digest)
        return False

    def _usable(self, step: int) -> Checkpoint | None:
        """The checkpoint of a step, if it is whole; a damaged one is set aside, unless it was pruned meanwhile."""
        path = self.folder / _name(step)
        with contextlib.suppress(_Damaged):
            return _examined(path, step)
        with self._owned(READ_WAIT_S) as ours:
            try:
                return _examined(path, step)  # nobody renames now: what was seen before may have been half of that
            except _Damaged as fault:
                if os.path.lexists(path):
                    self._set_aside(path, str(fault), ours)
        return None

    # Changing what lies there

    def _beside(self, name: str, kind: str) -> Path:
        return self.folder / f".{name}.{secrets.token_hex(4)}.{kind}"

    def _make_folder(self) -> None:
        new = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        for folder in new:
            _flush(folder.parent)

    @contextlib.contextmanager
    def _saving(self) -> Iterator[None]:
        """The tidied folder for this process alone."""
        self._make_folder()
        handle, holder = _waited(self.folder / SAVE_LOCK, SAVE_WAIT_S)
        if handle is None:
            raise FilbertError(f"{self.folder}: {holder} is writing here too; end one of the two.")
        try:
            self._sweep()
            yield
        finally:
            _let_go(handle)

    @contextlib.contextmanager
    def _owned(self, wait_s: float) -> Iterator[bool]:
        """Whether no other process writes here during the block; False too where nothing can be written."""
        handle: int | None = None
        with contextlib.suppress(OSError):
            handle, _ = _waited(self.folder / SAVE_LOCK, wait_s)
        try:
            yield handle is not None
        finally:
            if handle is not None:
                _let_go(handle)

    def _put(self, part: Path, place: Path) -> None:
        """Gives a whole checkpoint its name; what had it before is moved away first, as folders replace no folders."""
        old: Path | None = None
        if os.path.lexists(place):
            old = self._beside(place.name, "old")
            os.rename(place, old)
        try:
            os.rename(part, place)
        except BaseException:
            if old is not None:
                os.rename(old, place)
            raise
        _flush(self.folder)
        if old is not None:
            self._remove(old)

    def _prune(self, latest: int) -> None:
        """Lets go of what is older than the newest `keep` that have their manifest and sizes; never of the best."""
        num_whole, num_best = 0, 0
        for step in self._steps():
            try:
                flag = self._flag(step)
            except FilbertError:  # it cannot be read now, so it is left alone
                continue
            newest_best = bool(flag) and not num_best
            if num_whole >= self.keep and not newest_best and step != latest:
                self._remove(self.folder / _name(step))
            num_whole += flag is not None
            num_best += bool(flag)

    def _remove(self, path: Path) -> None:
        """Deletes a checkpoint, which first loses its name, so that nobody ever reads the half of it; or a leftover."""
        gone = path if LEFTOVER.fullmatch(path.name) else self._beside(path.name, "gone")
        with contextlib.suppress(OSError):
            if gone != path:
                os.rename(path, gone)
            if gone.is_dir() and not gone.is_symlink():
                shutil.rmtree(gone)
            else:
                os.unlink(gone)
        for left in {path, gone}:
            if os.path.lexists(left):
                self._tell(f"{left}: is no longer needed, but could not be deleted.")

    def _tidy(self) -> None:
        """Removes what killed processes left, if there is any and nobody is writing."""
        if any(LEFTOVER.fullmatch(name) for name in self._names()):
            with self._owned(0) as ours:
                if ours:
                    self._sweep()

    def _sweep(self) -> None:
        """As `_tidy`, by the one process that may write here: nobody else's work is in progress."""
        for match in filter(None, map(LEFTOVER.fullmatch, sorted(self._names()))):
            path, name = self.folder / match[0], match["name"]
            if match["kind"] == "old" and not os.path.lexists(self.folder / name):  # stopped between two renames
                with contextlib.suppress(OSError):
                    os.rename(path, self.folder / name)
                    self._tell(f"{self.folder / name}: restored; a run was stopped while it replaced it.")
            elif match["kind"] == "part" and name != "probe":
                self._remove(path)
                self._tell(f"{self.folder / name}: was not finished when its run was stopped; the rest was removed.")
            else:
                self._remove(path)

    def _set_aside(self, path: Path, fault: str, ours: bool) -> None:
        taken = set(self._names())
        number = next(number for number in range(1, len(taken) + 2) if f"{path.name}.damaged-{number}" not in taken)
        what = "left where it is and skipped"
        if ours:
            with contextlib.suppress(OSError):
                os.rename(path, self.folder / f"{path.name}.damaged-{number}")
                what = f"set aside as {path.name}.damaged-{number}"
                _flush(self.folder)
        self._tell(f"{path}: {fault}; {what}.")

    def _tell(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _free(self) -> str:
        with contextlib.suppress(OSError):
            return f"; {shutil.disk_usage(self.folder).free:,} are free"
        return ""
