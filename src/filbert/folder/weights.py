"""Weights on disk: safetensors files in, named arrays out that are read on demand, and back. No torch, no pickle.

A file is trusted for nothing: its header is bounded before it is read and every byte of its data must belong to exactly
one tensor, so that what a header promises is what the file holds and nothing is allocated on a header's word alone.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.files import json_object, regular_file, whole_file

HEADER_LIMIT = 4 * 2**20  # a header takes some 120 bytes for each tensor; BERT-large has 400 of them
JSON_LIMIT = 4 * 2**20
MOST_DIMS = 8
DTYPES = {  # safetensors' names and NumPy's; NumPy has no bfloat16, so its bits are carried as whole numbers
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip
FLOATS = ("F32", "F16", "BF16", "F64")
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".metadata", ".distcp")
ELSEWHERE = (".h5", ".msgpack", ".index", ".onnx", ".gguf")  # other frameworks' weights
_CLASS = re.compile(r"[A-Z][A-Za-z0-9]{0,80}")

Bytes = npt.NDArray[np.uint8]


class Sized(NamedTuple):
    """A tensor that is to be written, without its numbers."""

    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


class Raw(NamedTuple):
    """A tensor that is to be written."""

    dtype: str
    shape: tuple[int, ...]
    raw: Bytes


class File:
    """A weight file whose bytes are mapped when the first tensor is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def bytes(self) -> Bytes:
        """The whole file as bytes, read by the system as they are touched."""
        try:
            return np.asarray(np.memmap(self.path, dtype=np.uint8, mode="r"))
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path}: cannot be mapped into memory ({error}).") from None


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor where it lies: what it is, and which bytes of which file it has."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: File
    start: int
    num_bytes: int

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    def raw(self) -> Bytes:
        """Its bytes as they lie in the file."""
        if not self.num_bytes:
            return np.zeros(0, np.uint8)
        raw = self.file.bytes[self.start : self.start + self.num_bytes]
        if len(raw) != self.num_bytes:
            raise InputError(f"{self.file.path}: became shorter while it was read; load it again.")
        return raw

    def array(self) -> npt.NDArray[Any]:
        """Its numbers; a view of the file, except that bfloat16 becomes float32."""
        values = self.raw().view(DTYPES[self.dtype]).reshape(self.shape)
        return (values.astype(np.uint32) << 16).view(np.float32) if self.dtype == "BF16" else values


Tensors = dict[str, Stored]


def convert(folder: Path) -> str:
    """The line that converts a folder of pickles, by the class that its config.json names: so no head is lost."""
    try:
        architectures = json_object(inside(folder, "config.json"), JSON_LIMIT).get("architectures")
    except InputError:
        architectures = None
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    name = first if isinstance(first, str) and _CLASS.fullmatch(first) else "AutoModel"
    return (
        f'convert it once where you trust it: python -c "from transformers import {name} as M, AutoTokenizer as T; '
        "M.from_pretrained('IN').save_pretrained('OUT', safe_serialization=True); "
        "T.from_pretrained('IN').save_pretrained('OUT')\""
    )


def named(names: Iterable[str]) -> str:
    """At most five names and how many more there are, fit to stand in a sentence."""
    every = sorted(names)
    more = f" and {len(every) - 5} more" if len(every) > 5 else ""
    return ", ".join(repr(name[:120]) for name in every[:5]) + more


# Reading one file -----------------------------------------------------------------------------------------------------


def read(path: Path | str) -> Tensors:
    """The tensors of one safetensors file, checked against each other and the file's size; no data is read."""
    path = regular_file(path)
    try:
        with path.open("rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            start = handle.read(16)
            length = int.from_bytes(start[:8], "little")
            if len(start) < 10 or start[8:9] != b"{" or length > min(HEADER_LIMIT, size - 8):
                raise InputError(f"{path}: {_what_else(path.parent, start, length, size)}")
            handle.seek(8)
            raw = handle.read(length)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
    return _placed(path, _header(path, raw), 8 + length, size)


def _what_else(folder: Path, start: bytes, length: int, size: int) -> str:
    """Why a file with this beginning is no safetensors file."""
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and start[8:9] != b"{":
        return f"is a pickle, which can run code when opened, not a safetensors file; {convert(folder)}"
    if start[:4] == b"PK\x03\x04":
        return f"is a zip archive (as torch.save writes: a pickle inside), not a safetensors file; {convert(folder)}"
    if start[:7] == b"version" or start[:5] == b"oid s":
        return "is a Git LFS pointer, not the weights themselves; fetch them with: git lfs pull"
    if start[8:9] == b"{" and length > HEADER_LIMIT:
        return f"claims a header of {length:,} bytes, but at most {HEADER_LIMIT:,} are allowed; fetch the file again."
    if start[8:9] == b"{":
        return f"claims a header of {length:,} bytes, but has only {size:,} in all; fetch the file again."
    return "is not a safetensors file (8 bytes of length and a JSON header); fetch the file again."


def _header(path: Path, raw: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise ValueError(f"the key {twice[:120]!r} stands twice")
        return entries

    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} of the header is not UTF-8; fetch the file again.") from None
    except RecursionError:
        raise InputError(f"{path}: the header is nested too deeply; fetch the file again.") from None
    except ValueError as error:
        raise InputError(f"{path}: the header is not valid JSON ({error}); fetch the file again.") from None
    if not isinstance(header, dict):
        raise InputError(f"{path}: the header must be a JSON object; fetch the file again.")
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise InputError(f"{path}: the header's __metadata__ must map names to strings; fetch the file again.")
    return header


def _placed(path: Path, header: Mapping[str, object], first: int, size: int) -> Tensors:
    """The tensors of a header, if their bytes tile the data from the first to the last."""
    file = File(path)
    tensors = {name: _entry(file, name, entry, first, size) for name, entry in header.items()}
    at = first
    for stored in sorted(tensors.values(), key=lambda s: (s.start, s.num_bytes)):
        if stored.start != at:
            fault = "shares bytes with another tensor" if stored.start < at else "leaves unused bytes before it"
            raise InputError(f"{path}: tensor {stored.name[:120]!r} {fault}; fetch the file again.")
        at += stored.num_bytes
    if at != size:
        raise InputError(f"{path}: {size - at:,} bytes after the last tensor belong to none; fetch the file again.")
    return tensors


def _entry(file: File, name: str, entry: object, first: int, size: int) -> Stored:
    where = f"{file.path}: tensor {name[:120]!r}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise InputError(f"{where} must have dtype, shape and data_offsets, and nothing else; fetch the file again.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InputError(f"{where} has dtype {str(dtype)[:40]!r}, but one of {', '.join(DTYPES)} is needed.")
    if not _counts(shape) or len(shape) > MOST_DIMS:
        raise InputError(f"{where} has a shape that is not a list of at most {MOST_DIMS} whole numbers from 0.")
    if not _counts(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= size - first:
        raise InputError(f"{where} lies outside the file's {size - first:,} bytes of data; fetch the file again.")
    num_bytes = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
    if num_bytes != offsets[1] - offsets[0]:
        raise InputError(
            f"{where} of shape {shape} in {dtype} takes {num_bytes:,} bytes, "
            f"but the header gives it {offsets[1] - offsets[0]:,}; fetch the file again."
        )
    return Stored(name, dtype, tuple(shape), file, first + offsets[0], num_bytes)


def _counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 2**63 for number in value)


# Reading a folder -----------------------------------------------------------------------------------------------------


def inside(folder: Path, name: str) -> Path:
    """The path of a file in a folder, if it truly lies there: links may not lead out.

    The Hugging Face cache keeps `models--x/snapshots/<commit>/` full of links to `models--x/blobs/`; links that stay
    within the one `models--x` folder are therefore as good as inside. Of folders within it, one level is read
    (`1_Pooling/config.json`).
    """
    if not 1 <= len(parts := name.split("/")) <= 2 or not all(map(plain_name, parts)):
        raise InputError(f"{folder}: {name[:120]!r} is not the name of a file in this folder, and only such are read.")
    home = folder.resolve()
    path = folder / name
    try:
        target = path.resolve(strict=True)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, RuntimeError):
        raise InputError(f"{path}: cannot be read; its links lead in a circle or it is not permitted.") from None
    cache = home.parents[1] if home.parent.name == "snapshots" and home.parents[1].name.startswith("models--") else home
    if not target.is_relative_to(home) and not target.is_relative_to(cache):
        raise InputError(f"{path}: is a link that leaves the folder; copy the file itself into {folder}.")
    return regular_file(path)


def plain_name(name: str) -> bool:
    """Whether this names a file in a folder and nothing else: no separators, no parents, nothing unprintable."""
    return 0 < len(name) <= 200 and name not in (".", "..") and name.isprintable() and not set(name) & set("/\\:")


def small_json(path: Path) -> dict[str, Any]:
    """The object of a small JSON file."""
    try:
        return json_object(path, JSON_LIMIT)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None


def read_folder(folder: Path) -> Tensors:
    """The tensors of a model folder: of its one weight file, or of the shards that its index names."""
    if (folder / WEIGHTS).exists() or (folder / WEIGHTS).is_symlink():
        return read(inside(folder, WEIGHTS))
    if (folder / INDEX).exists():
        return _sharded(folder)
    raise InputError(_no_weights(folder))


def _sharded(folder: Path) -> Tensors:
    index = inside(folder, INDEX)
    places = small_json(index).get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(value, str) for value in places.values()):
        raise InputError(f"{index}: weight_map must map tensor names to file names.")
    shards = sorted(set(places.values()))
    for shard in shards:
        if not plain_name(shard) or not shard.endswith(".safetensors"):
            raise InputError(
                f"{index}: weight_map names {shard[:120]!r}, but only .safetensors files of this folder are read."
            )
    tensors: Tensors = {}
    for shard in shards:
        of_shard = read(inside(folder, shard))
        strays = {name for name in of_shard if places.get(name) != shard}
        if strays:
            raise InputError(f"{folder / shard}: has tensors that {INDEX} does not place there: {named(strays)}.")
        tensors |= of_shard
    lost = places.keys() - tensors.keys()
    if lost:
        raise InputError(f"{index}: weight_map names tensors that their shards do not hold: {named(lost)}.")
    return tensors


def _no_weights(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    for name in names:
        if name in ("pytorch_model.bin", "pytorch_model.bin.index.json"):
            return (
                f"{folder / name}: is a pickle, which can run code when opened, so it is not opened; bring the folder "
                f"in once: filbert import {folder} --out DIR reads its tensors and runs nothing."
            )
        if name.endswith(PICKLES):
            return (
                f"{folder / name}: is a pickle, which can run code when opened, so it is not opened; {convert(folder)}"
            )
    for name in names:
        if name.endswith(ELSEWHERE):
            return f"{folder / name}: another framework's weights; filbert reads {WEIGHTS}; {convert(folder)}"
    return f"{folder}: holds neither {WEIGHTS} nor {INDEX}; is it a model folder?"


# Writing --------------------------------------------------------------------------------------------------------------


def header(tensors: Mapping[str, Sized], metadata: Mapping[str, str] | None = None) -> tuple[bytes, list[str], int]:
    """The head of a file with these tensors (dtype, shape, bytes), the order of their data, and all bytes of that.

    Wider numbers come first and the data begins at a multiple of 64, so that every tensor is aligned when mapped.
    """
    order = sorted(tensors, key=lambda name: (-np.dtype(DTYPES[tensors[name].dtype]).itemsize, name))
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name in order:
        dtype, shape, num_bytes = tensors[name]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + num_bytes]}
        at += num_bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text, order, at


def write(path: Path | str, tensors: Mapping[str, Raw]) -> None:
    """Writes tensors by name as a safetensors file; the same tensors always give the same bytes."""
    sized = {name: Sized(dtype, shape, raw.nbytes) for name, (dtype, shape, raw) in tensors.items()}
    head, order, _ = header(sized, {"format": "pt"})  # transformers asks for this word
    with whole_file(path) as part, part.open("wb") as handle:
        handle.write(head)
        for name in order:
            *_, raw = tensors[name]
            handle.write(np.ascontiguousarray(raw).data)
