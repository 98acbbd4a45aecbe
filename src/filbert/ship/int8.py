"""A model folder in; its encoder's maps in whole numbers of eight bits out: a quarter of the weights, faster on a CPU.

Legend: T tokens in the pack, D width in, N width out.

Weights have one scale for each output, activations one for each token, found as it is read: a scale for a whole pack
would leave a quiet token few levels (0.992 instead of 0.997 of the cosine, experiments/2026-11-16-onnx.md), and would
make a text's answer depend on its neighbours. What follows GELU is never below -0.17, so there most levels lie above 0.
Norms, softmax and sums stay float32. A map leaves its bias to what comes next, which adds it in passing (BiasGelu,
MultiHeadAttention): a pass over the row for itself is dear beside such products (experiments/2026-11-16-inference.md).

CPUs without VNNI add two neighbouring products of bytes in sixteen bits, and what does not fit is cut silently. So of
two neighbours of one sign the levels add up to at most 128, which with an activation of 255 fits. That takes a fifth of
the levels, costs nothing that can be measured (0.9968 of the cosine for 0.9969), and one graph is right everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.records import Floats
from filbert.folder import config as configs
from filbert.folder import read_transformers, weights
from filbert.folder.runtime import SMALL_ENCODER, SMALL_WEIGHTS
from filbert.folder.weights import Stored, Tensors
from filbert.ship.encoder import OURS, Encoder, Mapped, saved

LEVELS = 127  # of a weight, to each side
TOGETHER = 128  # levels that two neighbours of one sign have together, at most: 255 · 128 < 2^15
MIDDLE = 128  # what stands for 0 in an activation, whose bytes have no sign
FLOOR = {"gelu": 0.1701, "gelu-tanh": 0.1701, "relu": 0.0}  # how far below 0 what follows an activation may lie
BELOW = 32  # of the 256 levels after an activation, those that lie below 0
SCALE = ".scale"
APART = ".int8"  # of a folder whose weights have our own names, which a graph knows as those in float32


def write(source: read_transformers.Source) -> None:
    """Writes the weights in eight bits and their graph into the folder that the weights lie in."""
    small = source.folder / SMALL_WEIGHTS
    weights.write(small, dict(_quantised(source)))
    saved(SmallEncoder(source, weights.read(small)), source.folder / SMALL_ENCODER)


def _quantised(source: read_transformers.Source) -> Any:
    """The maps of all layers, each [D, N] as onnxruntime takes it, and the scale of every output."""
    for name, pieces in source.tensors.items():
        if not name.startswith("layers.") or len(pieces[0].shape) != 2:
            continue
        wide = np.concatenate([piece.array().astype(np.float32) for piece in pieces])
        rounded, scale = levels(wide)
        rounded = np.ascontiguousarray(rounded.T)
        name = named(source, name)
        yield name, ("I8", rounded.shape, rounded.view(np.uint8).reshape(-1))
        yield name + SCALE, ("F32", scale.shape, scale.view(np.uint8))


def named(source: read_transformers.Source, name: str) -> str:
    """What a map in eight bits is called: no tensor of the folder may have that name."""
    return name + APART if source.described.kind in configs.OUR_KINDS else name


def levels(weight_ND: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """The levels of a map's weights, [N, D], and the scale of each output, [N]; no two neighbours can be cut."""
    pairs = weight_ND[:, : weight_ND.shape[1] // 2 * 2].reshape(len(weight_ND), -1, 2)
    alone, both = np.abs(weight_ND).max(axis=1, initial=0), np.abs(pairs.sum(axis=2)).max(axis=1, initial=0)
    scale = np.maximum(np.maximum(alone / LEVELS, both / TOGETHER), 1e-12).astype(np.float32)
    rounded = np.rint(weight_ND / scale[:, None])
    of_pairs = rounded[:, : pairs.shape[1] * 2].reshape(pairs.shape)  # a view
    first, sums = of_pairs[:, :, 0], of_pairs.sum(axis=2)
    first -= np.sign(sums) * np.maximum(np.abs(sums) - TOGETHER, 0)  # both were rounded up: one level too many
    return rounded.astype(np.int8), scale


class SmallEncoder(Encoder):
    """The same graph with maps in eight bits."""

    def __init__(self, source: read_transformers.Source, small: Tensors) -> None:
        super().__init__(source)
        self.small = small

    def _map(self, x: str, name: str) -> Mapped:
        biases = self.source.tensors.get(f"{name}.bias")
        if named(self.source, f"{name}.weight") not in self.small:  # all heads were pruned
            return super()._map(x, name)
        floor = FLOOR.get(self.config.feedforward) if name.endswith("feed.down") else None
        rows, scale, middle = self._rows(x, floor)
        return self._product(rows, scale, middle, name), self._bias(biases) if biases else None

    def _projected(self, x: str, name: str) -> tuple[Sequence[str], str | None]:
        mapped, bias = self._map(x, name)
        assert mapped is not None
        return [mapped], bias

    def _bias(self, pieces: Sequence[Stored]) -> str:
        wide = [self._wide(piece) for piece in pieces]
        return wide[0] if len(wide) == 1 else self.root.op("Concat", *wide, axis=0)

    def _product(self, rows: str, scale: str, middle: int, name: str) -> str:
        main, root = self.main, self.root
        numbers, scales = (root.stored(self.small[named(self.source, f"{name}.weight") + end]) for end in ("", SCALE))
        one, none = root.constant(1.0, np.float32), root.constant(middle, np.uint8)
        raw = main.op("MatMulIntegerToFloat", rows, numbers, one, scales, none, domain=OURS)
        return main.op("Mul", raw, scale)

    def _rows(self, x: str, floor: float | None) -> tuple[str, str, int]:
        """x as bytes [T, D], the scale of each row [T, 1], and what stands for 0."""
        main, axis = self.main, self.root.constant([-1])
        most = main.op("ReduceMax", x, axis, keepdims=1)
        if floor is None:
            low = main.op("Neg", main.op("ReduceMin", x, axis, keepdims=1))
            middle, levels, least = MIDDLE, LEVELS, 1e-12
            most = main.op("Max", most, low)
        else:
            middle = BELOW if floor else 0
            levels = 255 - middle
            least = max(1e-12, floor * levels / middle) if middle else 1e-12
        most = main.op("Max", most, self.root.constant(least, np.float32))
        scale = main.op("Div", most, self.root.constant(levels, np.float32))
        flat = main.op("Reshape", scale, self.root.constant([-1]))
        zeros = main.op("Expand", self.root.constant(middle, np.uint8), main.op("Shape", flat))
        rows = main.op("QuantizeLinear", x, flat, zeros, axis=0)
        return rows, scale, middle
