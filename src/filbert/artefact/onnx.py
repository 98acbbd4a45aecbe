"""A model folder in; its encoder as an ONNX graph over packs out, whose numbers stay where they lie: in the folder.

Legend: T tokens in the pack, G runs, R rows asked for, D width, H heads, K head width, N sequences of one length L.

The graph reads what `Packed` holds: ids, positions and segments of one row of tokens. Maps, norms and activations work
on the whole row. Attention walks over runs of neighbours of one length (nn.attention.runs), as the torch path does: a
Loop whose turns view their stretch of the row as [N, L, D]. So nothing is padded, lengths are free, and a pack gives
what its texts give one by one. The last layer maps the asked rows alone.

Weights are external data that point into model.safetensors: the .onnx file is some kilobytes, and a folder holds every
number once. Of bert's layouts all are known; heads are not in the graph, since they are small and NumPy does them
(decode.plain).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.artefact import folder as folders
from filbert.artefact import foreign, portable, weights
from filbert.artefact.manifest import MANIFEST, seal
from filbert.artefact.weights import Stored
from filbert.core.errors import InputError, needed
from filbert.models import bert

EXTRA = "export"
OPSET, IR = 20, 10  # LayerNormalization is of 17, Gelu of 20; onnxruntime 1.20 reads both numbers
OURS = "com.microsoft"  # onnxruntime's own operators
INPUTS = {"ids": "T", "positions": "T", "segments": "T", "starts": "G", "counts": "G", "lengths": "G", "rows": "R"}
OUTPUT = "vectors"
# Files of a folder that an exported one has no use for, or has its own of.
LEFT = (MANIFEST, "log.jsonl", "loss.svg", portable.SMALL_WEIGHTS, portable.SMALL_ENCODER, portable.SAFE_ENCODER)


def export(path: Path | str, out: Path | str, int8: bool = False) -> Path:
    """Writes a model folder again with its encoder as ONNX beside it, ready to run without torch; all else as it is.

    int8: in eight bits as well (artefact.int8).
    """
    found = folders.read(path, verify=True)
    if not isinstance(found.described.config, bert.Config):
        raise InputError(f"{found.folder}: is of the family {found.described.kind}, but only bert's goes to ONNX.")
    foreign.check_data(found)
    foreign.check_finite(found)
    with folders.whole_folder(out) as part:
        for file in sorted(found.folder.iterdir()):
            if file.is_file() and file.name not in LEFT:
                shutil.copyfile(weights.inside(found.folder, file.name), part / file.name)
        add(part, int8)
    return Path(out)


def add(folder: Path, int8: bool = False) -> None:
    """Puts model.onnx and what a run without torch needs to know into a model folder, and seals it anew."""
    source = foreign.read(folder)
    write(source)
    portable.write(source)
    if int8:
        from filbert.artefact import int8 as small

        small.write(source)
    seal(folder)


def write(source: foreign.Source) -> Path:
    """Writes model.onnx into the folder that these weights lie in."""
    return saved(Encoder(source), source.folder / portable.ENCODER)


def saved(encoder: Encoder, path: Path) -> Path:
    """Writes an encoder's graph; the same one always gives the same bytes."""
    onnx = needed("onnx", EXTRA)
    graph = encoder.graph()
    opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid(OURS, 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="filbert")
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


class Graph:
    """Nodes in order and the numbers that they need; every value has a name."""

    def __init__(self, prefix: str = "") -> None:
        self.onnx: Any = needed("onnx", EXTRA)
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.prefix = prefix

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """The name of what an operator gives."""
        return self.ops(1, kind, *inputs, domain=domain, **attributes)[0]

    def ops(self, num: int, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> list[str]:
        """The names of the `num` values that an operator gives."""
        names = [f"{self.prefix}{kind}_{len(self.nodes)}" + (f"_{n}" if n else "") for n in range(num)]
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names

    def constant(self, value: npt.ArrayLike, kind: type = np.int64) -> str:
        """The name of a small array; equal ones are kept once."""
        array: npt.NDArray[Any] = np.asarray(value, dtype=kind)
        name = f"is_{array.dtype}_{array.shape}_{array.tobytes().hex()[:80]}".replace(" ", "")
        if name not in self.initializers:
            self.initializers[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def stored(self, piece: Stored) -> str:
        """The name of a tensor that lies in a weight file of the folder."""
        if piece.name not in self.initializers:
            tensor = self.onnx.TensorProto(name=piece.name, data_type=_kinds(self.onnx)[piece.dtype], dims=piece.shape)
            tensor.data_location = self.onnx.TensorProto.EXTERNAL
            place = {"location": piece.file.path.name, "offset": piece.start, "length": piece.num_bytes}
            tensor.external_data.extend(
                self.onnx.StringStringEntryProto(key=key, value=str(value)) for key, value in place.items()
            )
            self.initializers[piece.name] = tensor
        return piece.name


def _kinds(onnx: Any) -> dict[str, int]:
    proto = onnx.TensorProto
    floats = {"F32": proto.FLOAT, "F16": proto.FLOAT16, "BF16": proto.BFLOAT16, "F64": proto.DOUBLE}
    return {**floats, "I8": proto.INT8}


class Encoder:
    """The graph of one folder's encoder."""

    def __init__(self, source: foreign.Source) -> None:
        self.source, self.config = source, source.described.config
        self.main = Graph()
        self.float = self.main.onnx.TensorProto.FLOAT

    def graph(self) -> Any:
        """The whole, from tokens to the vectors of the asked rows."""
        config, helper = self.config, self.main.onnx.helper
        angles = self._angles()
        x = self._embedded()
        for index in range(config.layers):
            x = self._layer(x, index, angles)
        x = self._norm(x, "final_norm") if config.norm == "pre" else x
        self.main.nodes.append(helper.make_node("Identity", [x], [OUTPUT]))
        integers = self.main.onnx.TensorProto.INT64
        inputs = [helper.make_tensor_value_info(name, integers, [size]) for name, size in INPUTS.items()]
        output = helper.make_tensor_value_info(OUTPUT, self.float, ["R", config.width])
        return helper.make_graph(self.main.nodes, "filbert", inputs, [output], list(self.main.initializers.values()))

    # Pieces of a layer ------------------------------------------------------------------------------------------------

    def _embedded(self) -> str:
        config, main = self.config, self.main
        x = self._looked_up("embeddings.words.weight", "ids")
        if config.segments:
            x = main.op("Add", x, self._looked_up("embeddings.segments.weight", "segments"))
        if config.positions == "learned":
            x = main.op("Add", x, self._looked_up("embeddings.positions.weight", "positions"))
        elif config.positions == "sinusoidal":
            from filbert.nn.positions import Sinusoidal

            table = Sinusoidal(config.max_length, config.width).weight.numpy()
            main.initializers["sines"] = main.onnx.numpy_helper.from_array(table, "sines")
            x = main.op("Add", x, main.op("Gather", "sines", "positions"))
        return self._norm(x, "embeddings.norm")

    def _layer(self, x: str, index: int, angles: Sequence[tuple[str, str]]) -> str:
        name, main, post = f"layers.{index}", self.main, self.config.norm == "post"
        last = index == self.config.layers - 1
        normed = x if post or index == 0 else self._norm(x, f"{name}.attention_norm")
        mixed = self._attention(normed, index, angles)
        if last:
            mixed, x = main.op("Gather", mixed, "rows"), main.op("Gather", x, "rows")
        x = main.op("Add", x, self._linear(mixed, f"{name}.attention.out"))
        x = self._norm(x, f"{name}.attention_norm") if post else x
        inside = self._inside(x if post else self._norm(x, f"{name}.feed_norm"), f"{name}.feed.up")
        x = main.op("Add", x, self._linear(inside, f"{name}.feed.down"))
        return self._norm(x, f"{name}.feed_norm") if post else x

    def _inside(self, x: str, name: str) -> str:
        """What the feed-forward has between its two maps."""
        main, kind = self.main, self.config.feedforward
        up = self._linear(x, name)
        if kind == "relu":
            return main.op("Relu", up)
        if kind == "geglu":
            value, gate = main.ops(2, "Split", up, axis=-1, num_outputs=2)
            return main.op("Mul", main.op("Gelu", value), gate)
        return main.op("Gelu", up, approximate="tanh" if kind == "gelu-tanh" else "none")

    def _attention(self, x: str, index: int, angles: Sequence[tuple[str, str]]) -> str:
        """What every token read, [T, H·K]."""
        config, main = self.config, self.main
        heads, reach = config.heads_in(index), bert.reach(config, index)
        if not heads:
            return main.op("Slice", x, *(main.constant([n]) for n in (0, 0, 1)))
        queries, keys, values = self._projected(x, f"layers.{index}.attention.qkv")
        if angles:
            turn = angles[1 if reach else 0]
            queries, keys = (self._turned(part, heads, turn) for part in (queries, keys))
        turns = self._turns(f"layer_{index}_", (queries, keys, values), heads, reach)
        empty = main.op("SequenceEmpty", dtype=self.float)
        parts = main.op("Loop", main.op("Size", "starts"), main.constant(True, np.bool_), empty, body=turns)
        return main.op("ConcatFromSequence", parts, axis=0)

    def _turns(self, prefix: str, read: tuple[str, str, str], heads: int, reach: int) -> Any:
        """The body of the loop: one run of sequences of one length, attended and put behind those before it."""
        body, main, helper, inner = Graph(prefix), self.main, self.main.onnx.helper, heads * self.config.head_width
        turn, going, before = (prefix + name for name in ("turn", "going", "before"))
        axis = main.constant([0])
        start, count, length = (body.op("Unsqueeze", body.op("Gather", name, turn), axis) for name in _RUN)
        end = body.op("Add", start, body.op("Mul", count, length))
        shape = body.op("Concat", count, length, main.constant([inner]), axis=0)
        q, k, v = (body.op("Reshape", body.op("Slice", part, start, end, axis), shape) for part in read)
        near = [self._near(body, length, reach)] if reach else []
        optional = ["", "", *near] if near else []  # a bias of the projections, a mask of padding, and what is added
        mixed = body.op("MultiHeadAttention", q, k, v, *optional, domain=OURS, num_heads=heads)
        after = body.op("SequenceInsert", before, body.op("Reshape", mixed, main.constant([-1, inner])))
        goes = body.op("Identity", going)
        proto = main.onnx.TensorProto
        given = [
            helper.make_tensor_value_info(turn, proto.INT64, []),
            helper.make_tensor_value_info(going, proto.BOOL, []),
            helper.make_tensor_sequence_value_info(before, self.float, None),
        ]
        found = [
            helper.make_tensor_value_info(goes, proto.BOOL, []),
            helper.make_tensor_sequence_value_info(after, self.float, None),
        ]
        return helper.make_graph(body.nodes, f"{prefix}turns", given, found)

    def _near(self, body: Graph, length: str, reach: int) -> str:
        """[1, 1, L, L] 0 for tokens at most `reach` apart, far below for others."""
        main = self.main
        zero, one = main.constant(0), main.constant(1)
        places = body.op("Range", zero, body.op("Squeeze", length), one)
        apart = body.op("Sub", body.op("Unsqueeze", places, main.constant([1])), places)
        seen = body.op("LessOrEqual", body.op("Abs", apart), main.constant(reach))
        added = body.op("Where", seen, main.constant(0.0, np.float32), main.constant(-1e30, np.float32))
        return body.op("Unsqueeze", added, main.constant([0, 1]))

    def _angles(self) -> list[tuple[str, str]]:
        """cos and sin of every token's angles, [T, 1, K] each, for each of the layers' thetas."""
        config, main = self.config, self.main
        if not config.positions.startswith("rotary"):
            return []
        thetas = [bert.GLOBAL_THETA, bert.LOCAL_THETA] if config.positions == "rotary-local" else [bert.LOCAL_THETA]
        found = []
        place = main.op("Unsqueeze", main.op("Cast", "positions", to=self.float), main.constant([1]))
        for theta in thetas:
            half = np.arange(0, config.head_width, 2).astype(np.float32) / np.float32(config.head_width)
            rate = (1 / np.float32(theta) ** half).astype(np.float32)
            angle = main.op("Mul", place, main.constant([*rate, *rate], np.float32))
            angle = main.op("Unsqueeze", angle, main.constant([1]))
            found.append((main.op("Cos", angle), main.op("Sin", angle)))
        return found

    def _turned(self, x: str, heads: int, angles: tuple[str, str]) -> str:
        """Queries or keys rotated by their places (nn.positions.turned)."""
        main, width = self.main, self.config.head_width
        x = main.op("Reshape", x, main.constant([-1, heads, width]))
        one, two = main.ops(2, "Split", x, axis=-1, num_outputs=2)
        aside = main.op("Concat", main.op("Neg", two), one, axis=-1)
        turned = main.op("Add", main.op("Mul", x, angles[0]), main.op("Mul", aside, angles[1]))
        return main.op("Reshape", turned, main.constant([-1, heads * width]))

    # Maps and tables --------------------------------------------------------------------------------------------------

    def _pieces(self, name: str) -> tuple[Stored, ...]:
        return self.source.tensors[name]

    def _wide(self, piece: Stored) -> str:
        """A stored tensor as float32; onnxruntime converts it once, when the graph is loaded."""
        name = self.main.stored(piece)
        return name if piece.dtype == "F32" else self.main.op("Cast", name, to=self.float)

    def _looked_up(self, name: str, index: str) -> str:
        """Rows of a table; only they are made wide."""
        (piece,) = self._pieces(name)
        rows = self.main.op("Gather", self.main.stored(piece), index)
        return rows if piece.dtype == "F32" else self.main.op("Cast", rows, to=self.float)

    def _linear(self, x: str, name: str) -> str:
        """x·Wᵀ + b, with what the folder has of them."""
        weight, bias = self.source.tensors.get(f"{name}.weight"), self.source.tensors.get(f"{name}.bias")
        if weight is None:  # all heads were pruned: what is left is the bias
            assert bias is not None
            return self._wide(bias[0])
        return self._mapped(x, weight[0], bias[0] if bias else None)

    def _mapped(self, x: str, weight: Stored, bias: Stored | None) -> str:
        also = [self._wide(bias)] if bias is not None else []
        return self.main.op("Gemm", x, self._wide(weight), *also, transB=1)

    def _projected(self, x: str, name: str) -> tuple[str, str, str]:
        """Queries, keys and values: three maps where the folder keeps three, else one that is cut."""
        weights, biases = self._pieces(f"{name}.weight"), self.source.tensors.get(f"{name}.bias")
        if len(weights) == 3:
            own = biases or (None, None, None)
            q, k, v = (self._mapped(x, weight, bias) for weight, bias in zip(weights, own, strict=True))
        else:
            joined = self._mapped(x, weights[0], biases[0] if biases else None)
            q, k, v = self.main.ops(3, "Split", joined, axis=-1, num_outputs=3)
        return q, k, v

    def _norm(self, x: str, name: str) -> str:
        weight, bias = self._pieces(f"{name}.weight")[0], self.source.tensors.get(f"{name}.bias")
        also = [self._wide(bias[0])] if bias else []
        return self.main.op("LayerNormalization", x, self._wide(weight), *also, epsilon=float(self.config.eps), axis=-1)


_RUN = ("starts", "counts", "lengths")
