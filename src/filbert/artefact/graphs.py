"""An ONNX file in; the names of the files that its numbers lie in, each one of the same folder, out. No torch, no onnx.

A graph may say that a tensor's bytes lie in another file, wherever that is. onnxruntime of today refuses paths that
leave the folder; older ones, which we run on as well, read them. So the few fields that can name a file are walked here
first. Field numbers: onnx/onnx.proto of ONNX 1.17.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from filbert.artefact.weights import inside, plain_name
from filbert.core.errors import InputError

MOST_BYTES = 64 * 2**20  # a graph without its numbers has some kilobytes
MOST_DEPTH = 32
LOCATION = b"location"
# Of each kind of message, the fields that hold others: those through which a tensor can be reached
FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {1: "key", 2: "value"},
}


def checked(folder: Path, name: str) -> Path:
    """The path of a graph in a folder, if all files that it names lie there truly; else one sentence."""
    path = inside(folder, name)
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: has more than {MOST_BYTES:,} bytes, but its numbers belong into other files.")
    try:
        places = sorted(set(_places(path.read_bytes(), "model", 0)))
    except (IndexError, UnicodeDecodeError, ValueError):
        raise InputError(f"{path}: is no ONNX graph; export the folder again.") from None
    for place in places:
        if not plain_name(place):
            raise InputError(
                f"{path}: says that its numbers lie in {place[:120]!r}, but only files of the same folder are read."
            )
        inside(folder, place)
    return path


def _places(raw: bytes, kind: str, depth: int) -> Iterator[str]:
    """The values of all `location` entries within a message."""
    if depth > MOST_DEPTH:
        raise ValueError("nested too deeply")
    wanted, found = FIELDS[kind], {"key": b"", "value": b""}
    for number, part in _parts(raw):
        below = wanted.get(number)
        if below is None:
            continue
        if kind == "entry":
            found[below] = part
        elif LOCATION in part:  # most of a graph names no file, and need not be walked
            yield from _places(part, below, depth + 1)
    if found["key"] == LOCATION:
        yield found["value"].decode()


def _parts(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each field that has a length (protobuf's wire type 2); plain numbers are passed over."""
    at, end = 0, len(raw)
    while at < end:
        tag, at = _number(raw, at)
        wire = tag & 7
        if wire == 0:
            _, at = _number(raw, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        elif wire == 2:
            size, at = _number(raw, at)
            if size > end - at:
                raise ValueError("cut short")
            yield tag >> 3, raw[at : at + size]
            at += size
        else:
            raise ValueError("groups are not of ONNX")


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """A whole number of seven bits a byte, and where it ends."""
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number too long")
