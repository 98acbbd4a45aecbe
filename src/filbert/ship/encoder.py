"""A model folder in; its encoder as an ONNX graph over packs out, whose numbers stay where they lie: in the folder.

Legend: T tokens in the pack, G runs, R rows asked for, D width, H heads, K head width, N sequences of one length L, B
sequences.

The graph reads what `Packed` holds: ids, positions and segments of one row of tokens. Maps, norms and activations work
on the whole row. Attention walks over runs of neighbours of one length (core.records.runs), as the torch path does: a
Loop whose turns view their stretch of the row as [N, L, D]. So nothing is padded, lengths are free, and a pack gives
what its texts give one by one. The last layer maps the asked rows alone; where these are the sequences' first tokens
(`first`), it folds its maps into their questions, as nn.attention.attend_first_folded does.

Weights are external data that point into model.safetensors: the .onnx file is some kilobytes, and a folder holds every
number once. Of bert's layouts all are known; heads are not in the graph, since they are small and NumPy does them
(nn.heads).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import needed
from filbert.core.registry import model_of
from filbert.folder import read_transformers
from filbert.folder.weights import Stored
from filbert.models import bert
from filbert.nn.reach import GLOBAL_THETA, LOCAL_THETA

EXTRA = "export"
OPSET, IR = 20, 10  # LayerNormalization is of 17, Gelu of 20; onnxruntime 1.20 reads both numbers
OURS = "com.microsoft"  # onnxruntime's own operators
# A run's first token, the one after its last, its [N, L, -1], and its first and one after last sequence.
RUN: dict[str, list[str | int]] = {"begins": ["G", 1], "ends": ["G", 1], "shapes": ["G", 3], "places": ["G", 2]}
INPUTS: dict[str, list[str | int]] = {"ids": ["T"], "positions": ["T"], "segments": ["T"], **RUN, "rows": ["R"]}
FIRST = "first"  # true where `rows` are the sequences' first tokens
OUTPUT = "vectors"
Stretch = Callable[[str, int, int], str]  # a row of tokens and some of its columns in, this run's [N, L, D] out
Mapped = tuple[str | None, str | None]  # a product and what is still to be added to it


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

    def __init__(self, prefix: str = "", numbers: dict[str, object] | None = None) -> None:
        self.onnx: Any = needed("onnx", EXTRA)
        self.nodes: list[Any] = []
        self.initializers: dict[str, object] = {} if numbers is None else numbers
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


def _kinds(onnx: ModuleType) -> dict[str, int]:
    proto = onnx.TensorProto
    floats = {"F32": proto.FLOAT, "F16": proto.FLOAT16, "BF16": proto.BFLOAT16, "F64": proto.DOUBLE}
    return {**floats, "I8": proto.INT8}


class Encoder:
    """The graph of one folder's encoder."""

    def __init__(self, source: read_transformers.Source) -> None:
        self.source, self.config = source, source.described.config
        self.root = self.main = Graph()  # main: where nodes go now, which is a branch of the root at times
        self.float = self.main.onnx.TensorProto.FLOAT
        self.widened: dict[str, str] = {}
        self.eps = float(vars(self.config).get("eps", 1e-12))

    def graph(self) -> Any:
        """The whole, from tokens to the vectors of the asked rows."""
        config, helper = self.config, self.main.onnx.helper
        build = model_of(config).graph
        vectors = self._bert() if build is None else self.op("Gather", build(self), "rows")
        self.main.nodes.append(helper.make_node("Identity", [vectors], [OUTPUT]))
        proto = self.main.onnx.TensorProto
        inputs = [helper.make_tensor_value_info(name, proto.INT64, shape) for name, shape in INPUTS.items()]
        inputs.append(helper.make_tensor_value_info(FIRST, proto.BOOL, []))
        output = helper.make_tensor_value_info(OUTPUT, self.float, ["R", config.width])
        return helper.make_graph(self.main.nodes, "filbert", inputs, [output], list(self.main.initializers.values()))

    def _bert(self) -> str:
        """The vectors of the asked rows, as BERT makes them."""
        angles = self._angles()
        x = normed = self._embedded()
        for index in range(self.config.layers):
            x, normed = self._layer(x, normed, index, angles)
        return normed

    # What a model from outside makes its graph of (ModelSpec.graph); `ids`, `positions` and `segments` are its inputs.

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The name of what an ONNX operator gives."""
        return self.main.op(kind, *inputs, **attributes)

    def constant(self, value: npt.ArrayLike, kind: type = np.int64) -> str:
        """The name of a small array."""
        return self.main.constant(value, kind)

    def linear(self, x: str, name: str) -> str:
        """x·Wᵀ + b by the tensors of that name."""
        product, rest = self._map(x, name)
        assert product is not None
        return product if rest is None else self.op("Add", product, rest)

    # Pieces of a layer ------------------------------------------------------------------------------------------------

    def _embedded(self) -> str:
        config, main = self.config, self.main
        x = self.looked_up("embeddings.words.weight", "ids")
        if config.segments:
            x = main.op("Add", x, self.looked_up("embeddings.segments.weight", "segments"))
        if config.positions == "learned":
            x = main.op("Add", x, self.looked_up("embeddings.positions.weight", "positions"))
        elif config.positions == "sinusoidal":
            from filbert.nn.positions import Sinusoidal

            table = Sinusoidal(config.max_length, config.embedding_width).weight.numpy()
            main.initializers["sines"] = main.onnx.numpy_helper.from_array(table, "sines")
            x = main.op("Add", x, main.op("Gather", "sines", "positions"))
        if config.task_types:
            x = main.op("Add", x, self.looked_up("embeddings.task_types.weight", main.constant([0])))
        x = self.norm(x, "embeddings.norm")
        return x if config.embedding_width == config.width else self.linear(x, "embeddings.project")

    def _layer(self, x: str, normed: str, index: int, angles: Sequence[tuple[str, str]]) -> tuple[str, str]:
        """x and its norm after a layer; where norms come last the two are one."""
        name, post = f"layers.{index}", self.config.norm == "post"
        after = f"layers.{index + 1}.attention_norm" if index + 1 < self.config.layers else "final_norm"
        norms = ("attention_norm", "feed_norm") if post else ("feed_norm", "")
        mixed = self._attention(normed, index, angles)
        if index + 1 == self.config.layers:
            x = self.main.op("Gather", x, "rows")
        x, normed = self._joined(x, self._map(mixed, f"{name}.attention.out"), f"{name}.{norms[0]}")
        inside = self._inside(normed, f"{name}.feed.up")
        return self._joined(x, self._map(inside, f"{name}.feed.down"), f"{name}.{norms[1]}" if post else after)

    def _joined(self, x: str, mapped: Mapped, norm: str) -> tuple[str, str]:
        """x with what a map made of it, and the norm of that; where norms come last the two are one."""
        main = self.main
        for part in mapped:
            x = main.op("Add", x, part) if part else x
        normed = self.norm(x, norm)
        return normed if self.config.norm == "post" else x, normed

    def _inside(self, x: str, name: str) -> str:
        """What the feed-forward has between its two maps."""
        main, kind = self.main, self.config.feedforward
        up, bias = self._map(x, name)
        assert up is not None
        if bias and kind in ("gelu", "gelu-tanh"):
            return main.op("BiasGelu" if kind == "gelu" else "FastGelu", up, bias, domain=OURS)
        up = main.op("Add", up, bias) if bias else up
        if kind == "relu":
            return main.op("Relu", up)
        if kind == "geglu":
            value, gate = main.ops(2, "Split", up, axis=-1, num_outputs=2)
            return main.op("Mul", main.op("Gelu", value), gate)
        return main.op("Gelu", up, approximate="tanh" if kind == "gelu-tanh" else "none")

    def _attention(self, x: str, index: int, angles: Sequence[tuple[str, str]]) -> str:
        """What every token read, [T, H·K]; in the last layer what the asked rows did, [R, H·K]."""
        config, reach = self.config, bert.reach(self.config, index)
        last, turn = index + 1 == config.layers, angles[1 if reach else 0] if angles else None
        if not last:
            return self._read(x, index, turn)
        if turn or reach or not config.heads_in(index):  # what cannot be folded
            return self._rows_read(x, index, turn)
        ways = {}
        for way in ("then", "else"):
            self.main = Graph(f"{way}_", self.root.initializers)
            output = self._read_first(x, index) if way == "then" else self._rows_read(x, index, None)
            shown = self.main.onnx.helper.make_tensor_value_info(output, self.float, None)
            ways[f"{way}_branch"] = self.main.onnx.helper.make_graph(self.main.nodes, way, [], [shown])
        self.main = self.root
        return self.main.op("If", FIRST, **ways)

    def _rows_read(self, x: str, index: int, angles: tuple[str, str] | None) -> str:
        return self.main.op("Gather", self._read(x, index, angles), "rows")

    def _read(self, x: str, index: int, angles: tuple[str, str] | None) -> str:
        """What every token read, [T, H·K]."""
        config, main = self.config, self.main
        heads, reach = config.heads_in(index), bert.reach(config, index)
        if not heads:
            return main.op("Slice", x, *(main.constant([n]) for n in (0, 0, 1)))
        made, bias = self._projected(x, f"layers.{index}.attention.qkv")
        inner = heads * config.head_width
        if angles:
            made = [main.op("Add", made[0], bias)] if bias else made
            made = made if len(made) == 3 else main.ops(3, "Split", made[0], axis=-1, num_outputs=3)
            made, bias = [*(self._turned(part, heads, angles) for part in made[:2]), made[2]], None
        columns = [(made[0], n * inner, (n + 1) * inner) for n in range(3)]
        parts = [(part, 0, inner) for part in made] if len(made) == 3 else columns

        def turn(body: Graph, stretch: Stretch) -> str:
            q, k, v = (stretch(*part) for part in parts)
            near = self._near(body, q, reach) if reach else ""
            inputs = [q, k, v, bias or "", "", near]  # between them a mask of padding
            while not inputs[-1]:
                del inputs[-1]
            mixed = body.op("MultiHeadAttention", *inputs, domain=OURS, num_heads=heads)
            return body.op("Reshape", mixed, main.constant([-1, heads * config.head_width]))

        return self._walked(f"layer_{index}_", turn)

    def _read_first(self, x: str, index: int) -> str:
        """What each sequence's first token read, [B, H·K], with no other token's key or value made.

        The key matrix goes into the question and the value matrix onto the answer; the keys' bias moves all scores of
        a question alike, and softmax ignores it.
        """
        config, main, name = self.config, self.main, f"layers.{index}.attention.qkv"
        heads, width = config.heads_in(index), config.head_width
        (query, key, value), (query_bias, _, value_bias) = self._thirds(f"{name}.weight"), self._thirds(f"{name}.bias")
        q = main.op("Gemm", main.op("Gather", x, "rows"), query, *([query_bias] if query_bias else []), transB=1)
        q = main.op("Mul", q, main.constant(width**-0.5, np.float32))
        q_HBK = main.op("Transpose", main.op("Reshape", q, main.constant([-1, heads, width])), perm=[1, 0, 2])
        by_head = main.constant([heads, width, config.width])
        q_HBD = main.op("MatMul", q_HBK, main.op("Reshape", key, by_head))
        q_BHD = main.op("Transpose", q_HBD, perm=[1, 0, 2])
        zero, one, axis = main.constant([0]), main.constant([1]), main.constant([0])

        def turn(body: Graph, stretch: Stretch) -> str:
            x_NLD = stretch(x, 0, config.width)
            place = body.op("Gather", "places", body.prefix + "turn")
            edges = (body.op("Gather", place, zero), body.op("Gather", place, one))
            q_NHD = body.op("Slice", q_BHD, *edges, axis)
            scores = body.op("FusedMatMul", q_NHD, x_NLD, transB=1, domain=OURS)
            return body.op("MatMul", body.op("Softmax", scores, axis=-1), x_NLD)

        read_HBD = main.op("Transpose", self._walked(f"first_{index}_", turn), perm=[1, 0, 2])
        mixed_HBK = main.op("FusedMatMul", read_HBD, main.op("Reshape", value, by_head), transB=1, domain=OURS)
        mixed = main.op("Transpose", mixed_HBK, perm=[1, 0, 2])
        mixed = main.op("Reshape", mixed, main.constant([-1, heads * width]))
        return main.op("Add", mixed, value_bias) if value_bias else mixed

    def _thirds(self, name: str) -> Sequence[str]:
        """What queries, keys and values have of a weight or bias; empty names where there is none."""
        pieces = self.source.tensors.get(name)
        if pieces is None:
            return "", "", ""
        if len(pieces) == 3:
            return [self._wide(piece) for piece in pieces]
        return self.root.ops(3, "Split", self._wide(pieces[0]), axis=0, num_outputs=3)

    def _walked(self, prefix: str, turn: Callable[[Graph, Stretch], str]) -> str:
        """What a turn makes of each run of sequences of one length, one behind another.

        turn: takes the graph of the turns and what gives a row's stretch of this run as [N, L, D].
        """
        main, helper, proto = self.main, self.main.onnx.helper, self.main.onnx.TensorProto
        body = Graph(prefix, self.root.initializers)
        at, going, before = (prefix + name for name in ("turn", "going", "before"))
        begin, end, shape = (body.op("Gather", name, at) for name in ("begins", "ends", "shapes"))

        def stretch(part: str, left: int, right: int) -> str:
            edges = [body.op("Concat", edge, main.constant([n]), axis=0) for edge, n in ((begin, left), (end, right))]
            return body.op("Reshape", body.op("Slice", part, *edges), shape)

        made = turn(body, stretch)
        after = body.op("SequenceInsert", before, made)
        is_going = body.op("Identity", going)
        inputs = [
            helper.make_tensor_value_info(at, proto.INT64, []),
            helper.make_tensor_value_info(going, proto.BOOL, []),
            helper.make_tensor_sequence_value_info(before, self.float, None),
        ]
        outputs = [
            helper.make_tensor_value_info(is_going, proto.BOOL, []),
            helper.make_tensor_sequence_value_info(after, self.float, None),
        ]
        turns = helper.make_graph(body.nodes, f"{prefix}turns", inputs, outputs)
        empty, num = main.op("SequenceEmpty", dtype=self.float), main.op("Size", "begins")
        parts = main.op("Loop", num, main.constant(True, np.bool_), empty, body=turns)
        return main.op("ConcatFromSequence", parts, axis=0)

    def _near(self, body: Graph, q: str, reach: int) -> str:
        """[1, 1, L, L] 0 for tokens of q [N, L, D] that are at most `reach` apart, far below for others."""
        main = self.main
        zero, one = main.constant(0), main.constant(1)
        places = body.op("Range", zero, body.op("Gather", body.op("Shape", q), one), one)
        apart = body.op("Sub", body.op("Unsqueeze", places, main.constant([1])), places)
        seen = body.op("LessOrEqual", body.op("Abs", apart), main.constant(reach))
        added = body.op("Where", seen, main.constant(0.0, np.float32), main.constant(-1e30, np.float32))
        return body.op("Unsqueeze", added, main.constant([0, 1]))

    def _angles(self) -> list[tuple[str, str]]:
        """cos and sin of every token's angles, [T, 1, K] each, for each of the layers' thetas."""
        config, main = self.config, self.main
        if not config.positions.startswith("rotary"):
            return []
        thetas = [GLOBAL_THETA, LOCAL_THETA] if config.positions == "rotary-local" else [LOCAL_THETA]
        angles = []
        place = main.op("Unsqueeze", main.op("Cast", "positions", to=self.float), main.constant([1]))
        for theta in thetas:
            half = np.arange(0, config.head_width, 2).astype(np.float32) / np.float32(config.head_width)
            rate = (1 / np.float32(theta) ** half).astype(np.float32)
            angle = main.op("Mul", place, main.constant([*rate, *rate], np.float32))
            angle = main.op("Unsqueeze", angle, main.constant([1]))
            angles.append((main.op("Cos", angle), main.op("Sin", angle)))
        return angles

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
        name = self.root.stored(piece)
        if piece.dtype != "F32" and name not in self.widened:
            self.widened[name] = self.root.op("Cast", name, to=self.float)
        return self.widened.get(name, name)

    def looked_up(self, name: str, index: str) -> str:
        """Rows of a table; only they are made wide."""
        (piece,) = self._pieces(name)
        rows = self.main.op("Gather", self.main.stored(piece), index)
        return rows if piece.dtype == "F32" else self.main.op("Cast", rows, to=self.float)

    def _map(self, x: str, name: str) -> Mapped:
        """x·Wᵀ + b as a product and what is still to be added to it; with all heads pruned there is no product."""
        weight, bias = self.source.tensors.get(f"{name}.weight"), self.source.tensors.get(f"{name}.bias")
        if weight is None:
            assert bias is not None
            return None, self._wide(bias[0])
        also = [self._wide(bias[0])] if bias else []
        return self.main.op("Gemm", x, self._wide(weight[0]), *also, transB=1), None

    def _projected(self, x: str, name: str) -> tuple[Sequence[str], str | None]:
        """Queries, keys and values, and what is still to be added to them, [3·H·K].

        Three maps where the folder keeps three, else one that is cut.
        """
        weights, biases = self._pieces(f"{name}.weight"), self.source.tensors.get(f"{name}.bias")
        bias_names = [[self._wide(bias)] for bias in biases] if biases else [[] for _ in weights]
        maps = [
            self.main.op("Gemm", x, self._wide(w), *also, transB=1) for w, also in zip(weights, bias_names, strict=True)
        ]
        return maps, None

    def norm(self, x: str, name: str) -> str:
        """The layer norm of that name."""
        weight, bias = self._pieces(f"{name}.weight")[0], self.source.tensors.get(f"{name}.bias")
        also = [self._wide(bias[0])] if bias else []
        return self.main.op("LayerNormalization", x, self._wide(weight), *also, epsilon=self.eps, axis=-1)
