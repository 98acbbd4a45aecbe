"""A pytorch_model.bin in, its tensors out where they lie in the file, as those of safetensors are; no code of it runs.

torch.save writes a pickle beside raw numbers: in a zip archive, or before 1.6 one after the other. The pickle is read
here by a reader that knows tensors and nothing else (ALLOWED): a file that asks for any other name is refused. Only
`filbert import` comes here; nothing else opens a pickle.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np

from filbert.core.errors import InputError
from filbert.core.files import regular_file
from filbert.folder import weights
from filbert.folder.weights import DTYPES, File, Stored, Tensors, inside, named, plain_name, small_json

WEIGHTS, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
PICKLE_LIMIT, MOST_ENTRIES = 4 * 2**20, 20_000  # BERT-large has 60 KB and 400
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # of files before torch 1.6
STORAGES = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}  # fmt: skip


# What a pickle gets is tuples, since nothing can be set of one: a dataclass with slots would take a state from it.


class Kind(NamedTuple):
    """A class of storages, by safetensors' name of its numbers."""

    dtype: str


class Storage(NamedTuple):
    """Numbers that lie under a key."""

    dtype: str
    key: str
    size: int


class Slice(NamedTuple):
    """A tensor: which numbers of a storage it has, and how they are laid out."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]


class Unreadable(Exception):  # becomes a sentence with the file's name
    """Why a pickle is no table of tensors."""


def _tensor(storage: object, offset: object, shape: object, strides: object, *_: object) -> Slice:
    """What torch._utils._rebuild_tensor(_v2) is given, checked; gradients and hooks are of no use here."""
    if not isinstance(storage, Storage) or not _whole(shape) or not _whole(strides) or not _whole((offset,)):
        raise Unreadable("holds a tensor whose parts are none")
    assert isinstance(shape, tuple | list)
    assert isinstance(strides, tuple | list)
    assert isinstance(offset, int)
    step, usual = 1, []
    for size in reversed(shape):
        usual.append(step)
        step *= size
    if step and [a for a, n in zip(strides, shape, strict=True) if n != 1] != [
        a for a, n in zip(reversed(usual), shape, strict=True) if n != 1
    ]:
        raise Unreadable("holds a tensor that is not laid out row by row; save it with .contiguous()")
    if offset + step > storage.size:
        raise Unreadable("holds a tensor that reaches beyond its storage")
    return Slice(storage, offset, tuple(shape))


def _whole(sizes: object) -> bool:
    return (
        isinstance(sizes, tuple | list)
        and len(sizes) <= weights.MOST_DIMS
        and all(type(size) is int and 0 <= size < 2**48 for size in sizes)
    )


def _parameter(data: object, *_: object) -> Slice:
    """What torch._utils._rebuild_parameter is given."""
    if not isinstance(data, Slice):
        raise Unreadable("holds a parameter that is no tensor")
    return data


class Maker(NamedTuple):
    """A function that a pickle may call; unlike a function itself it has nothing that a pickle could set."""

    make: Callable[..., object]

    def __call__(self, *parts: object) -> object:
        """What it makes."""
        return self.make(*parts)


ALLOWED: Mapping[tuple[str, str], Maker | Kind] = {
    ("torch._utils", "_rebuild_tensor"): Maker(_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): Maker(_tensor),
    ("torch._utils", "_rebuild_parameter"): Maker(_parameter),
    **{("torch", name): Kind(dtype) for name, dtype in STORAGES.items()},
}


OPCODES = {  # what torch writes of a table of tensors, in any protocol; no other is followed
    getattr(pickle, name)[0]
    for name in (
        "PROTO", "FRAME", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG1",
        "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "STRING", "BINSTRING", "SHORT_BINSTRING", "EMPTY_TUPLE", "TUPLE",
        "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_DICT", "DICT", "SETITEM",
        "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID", "GET", "BINGET", "LONG_BINGET", "PUT",
        "BINPUT", "LONG_BINPUT", "MEMOIZE",
    )
}  # fmt: skip


# The reader in Python, not C's: C's takes memory for whatever place in its memo a file names.
class _Reader(pickle._Unpickler):
    """Makes what ALLOWED names, and refuses everything else before it is made."""

    stack: list[Any]
    copied = 0  # pairs that tables were made of, in all: each may name the same ones again
    dispatch: ClassVar[dict[int, Any]] = {
        code: follow for code, follow in pickle._Unpickler.dispatch.items() if code in OPCODES
    }

    def _marked(self) -> list[Any]:
        """What lies on the stack above the last mark."""
        items: list[Any] = self.pop_mark()  # type: ignore[attr-defined]  # typeshed knows no more of this reader
        return items

    def load_build(self) -> None:
        """Takes the state of a thing away: a table's notes, which nothing here reads."""
        self.stack.pop()

    def load_setitems(self) -> None:
        """Puts pairs into a table; what stands for one must be a text, since others may take for ever to compare."""
        items = self._marked()
        _put(self.stack[-1], items[::2], items[1::2])

    def load_setitem(self) -> None:
        """Puts one pair into a table."""
        value, key = self.stack.pop(), self.stack.pop()
        _put(self.stack[-1], [key], [value])

    def load_dict(self) -> None:
        """Makes a table of pairs."""
        items, table = self._marked(), dict[str, object]()
        _put(table, items[::2], items[1::2])
        self.stack.append(table)

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems

    def find_class(self, module: str, name: str) -> object:
        """One of ALLOWED, or a table."""
        if (module, name) == ("collections", "OrderedDict"):
            return Maker(self._table)
        if (module, name) not in ALLOWED:
            called = ascii(f"{module}.{name}"[:120]).strip("'")
            raise Unreadable(f"asks for {called}, which is no part of a tensor")
        return ALLOWED[module, name]

    def _table(self, pairs: object = ()) -> dict[str, object]:
        """What OrderedDict is given: nothing, or of Python 2 a list of pairs."""
        self.copied += len(pairs) if isinstance(pairs, tuple | list) else 1
        if not isinstance(pairs, tuple | list) or self.copied > MOST_ENTRIES:
            raise Unreadable("holds a table that is none")
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise Unreadable("holds a table that is none")
        table: dict[str, object] = {}
        _put(table, [key for key, _ in pairs], [value for _, value in pairs])
        return table

    def persistent_load(self, pid: object) -> Storage:
        """A storage: ("storage", kind, key, device, how many numbers), and before 1.6 a view of it, always None."""
        match pid:
            case ("storage", Kind(dtype), str(key), str(), int(count)) | (
                "storage",
                Kind(dtype),
                str(key),
                str(),
                int(count),
                None,
            ) if 0 <= count < 2**48:
                return Storage(dtype, key, count)
        raise Unreadable("names a storage in a form that is not torch's")


def _put(table: object, keys: Sequence[object], values: Sequence[object]) -> None:
    if not isinstance(table, dict) or not all(isinstance(key, str) for key in keys):
        raise Unreadable("has something that is no text where the name of a tensor should be")
    table.update(zip(keys, values, strict=True))


def _object(handle: BinaryIO) -> object:
    """The next object of a stream of pickles."""
    try:
        return _Reader(handle, encoding="utf-8").load()
    except Unreadable:
        raise
    except Exception as error:  # whatever a broken pickle makes the reader stumble over
        raise Unreadable(f"is no whole pickle ({type(error).__name__})") from None


# Files ----------------------------------------------------------------------------------------------------------------


def is_one(folder: Path) -> bool:
    """Whether a folder's weights are such files alone."""
    if (folder / weights.WEIGHTS).exists() or (folder / weights.INDEX).exists():
        return False
    return (folder / WEIGHTS).exists() or (folder / INDEX).exists()


def read_folder(folder: Path) -> Tensors:
    """The tensors of a folder's one file, or of the shards that its index names."""
    if (folder / WEIGHTS).exists():
        return read(inside(folder, WEIGHTS))
    index = inside(folder, INDEX)
    places = small_json(index).get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(value, str) for value in places.values()):
        raise InputError(f"{index}: weight_map must map tensor names to file names.")
    tensors: Tensors = {}
    for shard in sorted(set(places.values())):
        if not plain_name(shard) or not shard.endswith(".bin"):
            raise InputError(f"{index}: weight_map names {shard[:120]!r}, but only .bin files of this folder are read.")
        of_shard = read(inside(folder, shard))
        if strays := {name for name in of_shard if places.get(name) != shard}:
            raise InputError(f"{folder / shard}: has tensors that {INDEX} does not place there: {named(strays)}.")
        tensors |= of_shard
    if lost := places.keys() - tensors.keys():
        raise InputError(f"{index}: weight_map names tensors that their shards do not hold: {named(lost)}.")
    return tensors


def read(path: Path) -> Tensors:
    """The tensors of one file, each with its place in it; no number is read."""
    path = regular_file(path)
    try:
        with path.open("rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            is_zip = handle.read(4) == b"PK\x03\x04"
            handle.seek(0)
            table, places = _archive(handle, size) if is_zip else _in_a_row(handle, size)
            return _stored(path, table, places)
    except Unreadable as error:
        raise InputError(f"{path}: {error}; none of its code was run, and nothing of it is read.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None


def _archive(handle: BinaryIO, size: int) -> tuple[object, dict[str, tuple[int, int]]]:
    """The object of a zip archive, and (place, bytes) of each storage."""
    try:
        return _zipped(handle, size)
    except (Unreadable, OSError):
        raise
    except Exception as error:  # whatever a broken archive makes zipfile stumble over
        raise Unreadable(f"is a broken archive ({type(error).__name__})") from None


def _zipped(handle: BinaryIO, size: int) -> tuple[object, dict[str, tuple[int, int]]]:
    """The object of data.pkl, and (place, bytes) of each storage."""
    with zipfile.ZipFile(handle) as archive:
        entries = {each.filename: each for each in archive.infolist()[: MOST_ENTRIES + 1]}
        pickles = [name for name in entries if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(entries) > MOST_ENTRIES or len(pickles) != 1:
            raise Unreadable("is no archive of torch.save")
        root, main = pickles[0].removesuffix("data.pkl"), entries[pickles[0]]
        if main.file_size > PICKLE_LIMIT or any(each.compress_type for each in entries.values()):
            raise Unreadable(f"is no archive of torch.save (compressed, or its pickle above {PICKLE_LIMIT:,} bytes)")
        order = entries.get(f"{root}byteorder")
        if order is not None and (order.file_size > 16 or archive.read(order) != b"little"):
            raise Unreadable("holds numbers whose bytes are the other way round")
        table = _object(io.BytesIO(archive.read(main)))
        places = {}
        for name, entry in entries.items():
            if name.startswith(f"{root}data/"):
                handle.seek(entry.header_offset)
                head = handle.read(30)
                if len(head) < 30 or head[:4] != b"PK\x03\x04":
                    raise Unreadable("is a broken archive")
                start = entry.header_offset + 30 + int.from_bytes(head[26:28], "little")
                start += int.from_bytes(head[28:30], "little")
                if start + entry.file_size > size:
                    raise Unreadable("ends before its numbers do; fetch it again")
                places[name.removeprefix(f"{root}data/")] = (start, entry.file_size)
    return table, places


def _in_a_row(handle: BinaryIO, size: int) -> tuple[object, dict[str, tuple[int, int]]]:
    """The same of a file before torch 1.6: pickles, then for each key how many numbers, and the numbers."""
    start = io.BytesIO(handle.read(PICKLE_LIMIT))
    magic, protocol, about, table, keys = (_object(start) for _ in range(5))
    if magic != MAGIC or protocol != PROTOCOL or not isinstance(about, dict) or not isinstance(keys, list):
        raise Unreadable("is no file of torch.save")
    if not about.get("little_endian", True):
        raise Unreadable("holds numbers whose bytes are the other way round")
    sizes = {
        each.storage.key: np.dtype(DTYPES[each.storage.dtype]).itemsize
        for each in (table.values() if isinstance(table, dict) else ())
        if isinstance(each, Slice)
    }
    places, at = {}, start.tell()
    for key in keys:
        handle.seek(at)
        count = int.from_bytes(handle.read(8), "little")
        if not isinstance(key, str) or key not in sizes or at + 8 + count * sizes[key] > size:
            raise Unreadable("ends before its numbers do, or has numbers of no tensor; fetch it again")
        places[key] = (at + 8, count * sizes[key])
        at += 8 + count * sizes[key]
    return table, places


def _stored(path: Path, table: object, places: Mapping[str, tuple[int, int]]) -> Tensors:
    """Each tensor of the table, where its bytes lie."""
    if not isinstance(table, dict) or not table:
        raise Unreadable("holds no table of tensors")
    file, tensors = File(path), {}
    for name, each in table.items():
        if not isinstance(each, Slice):
            raise Unreadable(f"has under {name[:60]!r} something that is no tensor")
        item = np.dtype(DTYPES[each.storage.dtype]).itemsize
        place, num_bytes = places.get(each.storage.key, (0, -1))
        if each.storage.size * item != num_bytes:
            raise Unreadable(f"has no numbers for {name[:60]!r}, or not so many as it says")
        start, count = place + each.offset * item, math.prod(each.shape) * item
        tensors[name] = Stored(name, each.storage.dtype, each.shape, file, start, count)
    return tensors
