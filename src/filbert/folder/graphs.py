"""An ONNX file and the folder's tensors in; its path, if it does no more than an encoder's graph does, out. No torch.

What onnxruntime is handed is looked at first, without onnx: which operators there are, how often a loop turns, and that
every number lies where the weight file says, with its size and type. So nothing is run that does not end, and nothing
is allocated that the folder's files do not justify. Whether it is the very graph that config.json gives, `verify` says.
Field numbers: onnx/onnx.proto of ONNX 1.17.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filbert.core.errors import InputError
from filbert.folder.weights import Stored, inside, plain_name

MOST_BYTES = 64 * 2**20  # a graph without its numbers has some kilobytes
MOST_DEPTH = 4  # a branch of the last layer, and in it a loop
# ONNX's own operators, and onnxruntime's, of which an encoder's graph is made (ship.encoder, ship.int8).
OPERATORS = {
    "": {
        "Abs", "Add", "Cast", "Concat", "ConcatFromSequence", "Cos", "Div", "Expand", "Gather", "Gelu", "Gemm",
        "Identity", "If", "LayerNormalization", "LessOrEqual", "Loop", "MatMul", "Max", "Mul", "Neg", "QuantizeLinear",
        "Range", "ReduceMax", "ReduceMin", "Relu", "Reshape", "SequenceEmpty", "SequenceInsert", "Shape", "Sin", "Size",
        "Slice", "Softmax", "Split", "Sub", "Transpose", "Unsqueeze", "Where",
        # What models from outside may need as well; each makes as many numbers as it is given.
        "And", "Equal", "Exp", "Log", "Min", "Mod", "Not", "Pow", "Sigmoid", "Sign", "Sqrt", "Tanh",
    },
    "com.microsoft": {"BiasGelu", "FastGelu", "FusedMatMul", "MatMulIntegerToFloat", "MultiHeadAttention"},
}  # fmt: skip
KINDS = {"F32": 1, "F16": 10, "BF16": 16, "F64": 11, "I8": 3}  # of a tensor in a weight file
BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 16: 2}  # of a number of each kind that a graph may hold
RUNS = "begins"  # the input that has one entry for each turn of a loop
NAME, OUTSIDE = 8, 13  # of a tensor: its name, and where its bytes lie if not in the graph

Value = int | bytes
Fields = Mapping[int, list[Value]]


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: what it is, what it reads and gives, and the graphs within it."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    graphs: tuple[bytes, ...]


def checked(folder: Path, name: str, stored: Mapping[str, Stored] | None = None) -> Path:
    """The path of a graph in a folder, if it is one that may be run over these tensors; else one sentence.

    stored: the tensors of the folder's weight files by name; those of eight bits are looked for beside them.
    """
    path = inside(folder, name)
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: has more than {MOST_BYTES:,} bytes, but its numbers belong into other files.")
    try:
        model = _fields(path.read_bytes())
        if model[20] or model[25] or len(model[7]) != 1:
            raise InputError(f"{path}: has functions or training within, but holds an encoder's graph alone.")
        _look(path, _bytes(model[7][0]), stored or {}, set(), 0)
    except (IndexError, UnicodeDecodeError, ValueError, OSError):
        raise InputError(f"{path}: is no ONNX graph; export the folder again.") from None
    return path


def _look(path: Path, raw: bytes, stored: Mapping[str, Stored], counts: set[str], depth: int) -> None:
    """Refuses a graph with operators, turns or numbers that an encoder's has not; counts: names that are run counts."""
    if depth > MOST_DEPTH:
        raise ValueError("nested too deeply")
    graph = _fields(raw)
    if graph[15]:
        raise InputError(f"{path}: has sparse numbers, which no encoder's graph has; export the folder again.")
    for tensor in graph[5]:
        _look_at_numbers(path, _fields(_bytes(tensor)), stored)
    shapes: set[str] = set()
    for each in graph[1]:
        node = _node(path, _bytes(each))
        if node.operator == "Size" and node.inputs == (RUNS,):
            counts = counts | {*node.outputs}
        if node.operator == "Shape":
            shapes |= {*node.outputs}
        if node.operator == "Gather" and node.inputs[0] in shapes:
            shapes |= {*node.outputs}
        if node.operator == "Loop" and (node.inputs[0] not in counts or RUNS in node.outputs):
            raise InputError(f"{path}: has a loop that does not turn once for each run; export the folder again.")
        if node.operator in ("Expand", "Range") and node.inputs[1] not in shapes:
            raise InputError(
                f"{path}: has an {node.operator} of a size that no text gives it; export the folder again."
            )
        for inner in node.graphs:
            _look(path, inner, stored, counts, depth + 1)


def _node(path: Path, raw: bytes) -> Node:
    """An operator, if it is one that an encoder's graph has, with nothing but numbers, words and graphs said of it."""
    fields = _fields(raw)
    domain = "".join(_text(value) for value in fields[7][-1:])
    operator = "".join(_text(value) for value in fields[4][-1:])
    if operator not in OPERATORS.get(domain, ()):
        raise InputError(
            f"{path}: has the operator {(domain + ' ' + operator).strip()[:60]!r}, which no encoder's graph has; "
            "export the folder again."
        )
    graphs: list[bytes] = []
    for attribute in fields[5]:
        attributes = _fields(_bytes(attribute))
        if attributes[5] or attributes[10] or attributes[22] or attributes[23]:
            raise InputError(f"{path}: has numbers within an operator, which no encoder's graph has; export it again.")
        graphs += [_bytes(inner) for inner in (*attributes[6], *attributes[11])]
    inputs, outputs = (tuple(map(_text, fields[number])) for number in (1, 2))
    return Node(operator, inputs, outputs, tuple(graphs))


def _look_at_numbers(path: Path, tensor: Fields, stored: Mapping[str, Stored]) -> None:
    """Refuses numbers that lie elsewhere than in this folder's weight files, or that are not as many as they claim."""
    name = _text(tensor[NAME][-1]) if tensor[NAME] else ""
    dims = [number for value in tensor[1] for number in ([value] if isinstance(value, int) else _packed(value))]
    kind, others = tensor[2][-1] if tensor[2] else 0, [n for n in (4, 5, 6, 7, 10, 11) if tensor[n]]
    if any(number >= 2**40 for number in dims) or others or kind not in BYTES:
        raise InputError(
            f"{path}: the tensor {name[:120]!r} is of a form that filbert does not write; export it again."
        )
    size = math.prod(dims) * BYTES[int(kind)]
    entries = [_fields(_bytes(entry)) for entry in tensor[OUTSIDE]]
    if not entries:
        if size != sum(len(_bytes(raw)) for raw in tensor[9]):
            raise InputError(f"{path}: the tensor {name[:120]!r} claims {size:,} bytes, but does not hold so many.")
        return
    place_of = {_text(entry[1][-1]): _text(entry[2][-1]) for entry in entries}
    place = place_of.get("location", "")
    if not plain_name(place):
        raise InputError(
            f"{path}: says that its numbers lie in {place[:120]!r}, but only files of the same folder are read."
        )
    inside(path.parent, place)
    held = stored.get(name)
    stored_at = held and {"location": held.file.path.name, "offset": str(held.start), "length": str(held.num_bytes)}
    if held is None or place_of != stored_at or tuple(dims) != held.shape or kind != KINDS.get(held.dtype):
        raise InputError(
            f"{path}: the tensor {name[:120]!r} is not where and what the folder's weights have of that name; export "
            "the folder again."
        )


# The bytes of messages ------------------------------------------------------------------------------------------------


def _fields(raw: bytes) -> Fields:
    """The values of a message by the numbers of their fields."""
    values: dict[int, list[Value]] = defaultdict(list)
    for number, value in _parts(raw):
        values[number].append(value)
    return values


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message is meant")
    return value


def _text(value: Value) -> str:
    return _bytes(value).decode()


def _packed(raw: bytes) -> Iterator[int]:
    at = 0
    while at < len(raw):
        value, at = _number(raw, at)
        yield value


def _parts(raw: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of each field: whole numbers as such, all others as their bytes."""
    at, end = 0, len(raw)
    while at < end:
        tag, at = (raw[at], at + 1) if raw[at] < 128 else _number(raw, at)
        wire = tag & 7
        if wire == 0:
            value, at = _number(raw, at)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, at = (raw[at], at + 1) if raw[at] < 128 else _number(raw, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("groups are not of ONNX")
        if size > end - at:
            raise ValueError("cut short")
        yield tag >> 3, raw[at : at + size]
        at += size


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
