"""Paths in; checked bytes out, and files and folders that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from filbert.core.errors import InputError

Json = Mapping[str, Any]  # an object of a JSON file, as it was read
_parts: set[Path] = set()  # folders that `whole_folder` of this process writes now
LOOKS = 3  # at a lock, before it is believed
JSON_LIMIT_BYTES = 64 * 2**20  # a tokenizer.json of 250k tokens has 17 MB; a config has 1 kB


def regular_file(path: Path | str) -> Path:
    """The path, if it is a plain file that can be read now; pipes, devices and folders are named and refused."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except OSError as error:  # a loop of symbolic links, no permission, a name that is too long
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a named pipe" if stat.S_ISFIFO(mode) else "a device or socket"
        raise InputError(f"{path}: is {kind}, but a plain file is needed here.")
    return path


def json_object(path: Path | str, limit_bytes: int = JSON_LIMIT_BYTES) -> dict[str, Any]:
    """The object that a JSON file holds; oversize, too deep, broken or repeated keys are refused by name."""
    value = _json(Path(path), limit_bytes)
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds a JSON {type(value).__name__}, but an object {{…}} is needed.")
    return value


def json_array(path: Path | str, limit_bytes: int = JSON_LIMIT_BYTES) -> list[Any]:
    """The list that a JSON file holds; refused as an object's file is."""
    value = _json(Path(path), limit_bytes)
    if not isinstance(value, list):
        raise InputError(f"{path}: holds a JSON {type(value).__name__}, but a list […] is needed.")
    return value


def _json(path: Path, limit_bytes: int) -> Any:
    path = regular_file(path)
    size = path.stat().st_size
    if size > limit_bytes:
        raise InputError(f"{path}: has {size:,} bytes, more than the {limit_bytes:,} that such a file may have.")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8, but JSON must be.") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply; no model file is.") from None
    except ValueError as error:
        raise InputError(f"{path}: is not valid JSON ({error}).") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:60]!r} stands twice")
    return result


def json_text(value: object) -> str:
    """Readable JSON: keys in their own order, two spaces, Chinese unescaped, a final newline.

    Half a character, which JSON may hold and UTF-8 may not, can only be written escaped; then all is.
    """
    text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    is_whole = text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
    return text if is_whole else json.dumps(value, indent=2) + "\n"


@contextlib.contextmanager
def whole_file(path: Path | str) -> Iterator[Path]:
    """A temporary path beside `path` to write to; renamed onto it when the block ends well, removed otherwise.

    What a process that was killed left of an earlier try goes first; while another process writes it, it is refused.
    """
    path = Path(path)
    part, owner = _claimed_part(path)
    try:
        yield part
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(part, path)
    except OSError as error:
        if _is_of_another(error, part):
            raise
        raise InputError(unwritten(path, error)) from error
    finally:
        part.unlink(missing_ok=True)
        os.close(owner)


@contextlib.contextmanager
def whole_folder(path: Path | str, is_ours: Callable[[Path], bool], kind: str) -> Iterator[Path]:
    """A temporary folder beside `path` to write to; renamed onto it when the block ends well, removed otherwise.

    is_ours: whether the folder that stands there may be replaced, as a `kind` of filbert's. What a process that was
    killed left goes first; the folder before, if it was killed while it replaced that, is put back. A path that is such
    a temporary folder itself is written to as it is.
    """
    path = Path(path).absolute()
    if path in _parts:
        yield path
        return
    check_free(path, is_ours, kind)
    part, old, owner = path, path, -1
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part, owner = _claimed_part(path, is_folder=True)
        old = part.with_name(part.name.removesuffix("part") + "old")
        _parts.add(part)
        yield part
        for file in [*part.rglob("*"), part]:
            flush(file)
        if path.exists():
            os.rename(path, old)
        os.rename(part, path)
        flush(path.parent)
    except OSError as error:
        if owner >= 0 and _is_of_another(error, part):
            raise
        raise InputError(unwritten(path, error)) from error
    finally:
        _parts.discard(part)
        if old != path and old.exists() and not path.exists():  # stopped between the two renames
            os.rename(old, path)
        for leftover in {part, old} - {path}:
            shutil.rmtree(leftover, ignore_errors=True)
        if owner >= 0:
            os.close(owner)


def check_free(path: Path, is_ours: Callable[[Path], bool], kind: str) -> None:
    """Refuses a place where something stands that `whole_folder` would not replace."""
    try:
        is_kept = os.path.lexists(path) and (path.is_symlink() or not path.is_dir() or not is_ours(path))
    except OSError as error:
        raise InputError(unwritten(path, error)) from error
    if is_kept:
        raise InputError(f"{path}: is there already and is not {kind} of filbert; choose another place.")


def flush(path: Path) -> None:
    """Makes sure that a file or folder is on the disk, where the system can do that."""
    with contextlib.suppress(PermissionError):  # Windows opens no folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def unwritten(path: Path | str, error: OSError) -> str:
    """The sentence for a file or folder that could not be written."""
    reason = error.strerror or str(error)
    advice = {
        errno.ENOSPC: "; make room, or choose another place",
        errno.EDQUOT: "; make room, or choose another place",
        errno.EFBIG: "; files may not be so large here, so choose another place",
        errno.ENOENT: "; make its folder first",
        errno.EACCES: "; choose a place where you may write",
        errno.EPERM: "; choose a place where you may write",
        errno.EROFS: "; choose a place where you may write",
    }
    return f"{path}: could not be written ({reason}){advice.get(error.errno or 0, '')}."


# What a process that was killed leaves --------------------------------------------------------------------------------

# A part is locked for as long as its writer lives: the system lets go of that however the writer ends.


def _claimed_part(path: Path, is_folder: bool = False) -> tuple[Path, int]:
    """A new file or folder beside `path`, and the open handle whose lock says that somebody is writing it."""
    try:
        remove_leftovers(path)
        part, owner = _locked_part(path, is_folder)
    except OSError as error:
        raise InputError(unwritten(path, error)) from error
    if any(other != part and _is_owned(other) for other in _parts_of(path, "part")):
        part.rmdir() if is_folder else part.unlink(missing_ok=True)
        os.close(owner)
        raise InputError(f"{path}: another process is writing it now; wait until that ends, or choose another place.")
    return part, owner


def _locked_part(path: Path, is_folder: bool) -> tuple[Path, int]:
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        if is_folder:
            part.mkdir()
        owner = os.open(part, os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if locked_by_us(owner) and os.path.lexists(part):  # not taken for a leftover before it was locked
            return part, owner
        os.close(owner)


def _is_of_another(error: OSError, part: Path) -> bool:
    """Whether it is some other file's that was read or written meanwhile."""
    paths = [Path(each) for each in (error.filename, error.filename2) if isinstance(each, str | os.PathLike)]
    return bool(paths) and not any(each == part or part in each.parents for each in paths)  # a copy's error names two


def locked_by_us(handle: int) -> bool:
    """Whether this open file is now locked for us; False where another process has it. True where nothing locks."""
    return _lock(handle) is not False


def _lock(handle: int) -> bool | None:
    """Whether this open file is now locked for us; None where nothing locks, as on some file systems."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def remove_leftovers(path: Path) -> None:
    """Removes what writers of `path` that no longer live have left beside it; a whole folder they moved is put back."""
    for leftover in _parts_of(path, "part|old"):
        with contextlib.suppress(OSError):
            if _is_owned(leftover) is not False:
                continue
            if leftover.suffix == ".old" and not path.exists():
                os.rename(leftover, path)
            elif leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def _parts_of(path: Path, ends: str) -> list[Path]:
    """What writers of `path` have beside it."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.({ends})")
    try:
        parts = [path.with_name(each) for each in sorted(os.listdir(path.parent)) if name.fullmatch(each)]
    except OSError:  # no folder yet, or none that can be read
        return []
    return [each for each in parts if not each.is_symlink()]


def _is_owned(part: Path) -> bool | None:
    """Whether some process is still writing it; None where that cannot be told."""
    try:
        handle = os.open(part.with_suffix(".part"), os.O_RDONLY)
    except FileNotFoundError:  # of an `old`, whose part has taken its place
        return False
    except OSError:
        return None
    try:
        for attempt in range(LOOKS):  # another process that looks too has it for an instant
            is_ours = _lock(handle)
            if is_ours is not False:
                return None if is_ours is None else False
            time.sleep(0.01 if attempt < LOOKS - 1 else 0)
        return True
    finally:
        os.close(handle)


def write_text(path: Path | str, text: str) -> None:
    """Writes a small text file whole or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def sha256(path: Path | str) -> str:
    """The file's SHA-256 in hexadecimal."""
    with Path(path).open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def named(path: object, what: str, example: str) -> Path:
    """The path that a user gave; anything else is refused in one sentence. what, example: "the model", "a folder"."""
    if isinstance(path, str | PurePath) and str(path):
        return Path(path)
    shown = repr(path) if path in (None, "") else f"of type {type(path).__name__}"
    raise InputError(f"{what} is {shown}, but must be {example}.")
