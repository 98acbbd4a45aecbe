"""Reading and writing files so that nothing is half-done: paths in, checked bytes and whole files out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from filbert.core.errors import InputError

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
    path = regular_file(path)
    size = path.stat().st_size
    if size > limit_bytes:
        raise InputError(f"{path}: has {size:,} bytes, more than the {limit_bytes:,} that such a file may have.")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
    try:
        value = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8, but JSON must be.") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply; no model file is.") from None
    except ValueError as error:
        raise InputError(f"{path}: is not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds a JSON {type(value).__name__}, but an object {{…}} is needed.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:60]!r} stands twice")
    return result


def json_text(value: Any) -> str:
    """Stable, readable JSON: sorted nothing, two spaces, Chinese as Chinese, a final newline."""
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


@contextlib.contextmanager
def whole_file(path: Path | str) -> Iterator[Path]:
    """A temporary path beside `path` to write to; renamed onto it when the block ends well, removed otherwise."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(part, path)
    except OSError as error:
        raise InputError(f"{path}: could not be written ({error.strerror}).") from error
    finally:
        part.unlink(missing_ok=True)


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
    given = repr(path) if path in (None, "") else f"of type {type(path).__name__}"
    raise InputError(f"{what} is {given}, but must be {example}.")
