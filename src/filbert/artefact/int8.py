"""A model folder in; its encoder's maps in whole numbers of eight bits out: a quarter of the weights, faster on a CPU.

Legend: T tokens in the pack, D width in, N width out.

Weights have one scale for each output, activations one for each token, found as it is read: a scale for a whole pack
would leave a quiet token few levels (0.992 instead of 0.997 of the cosine, experiments/2026-11-16-int8.md). What
follows GELU is never below -0.17, so there all 255 levels lie above it. Norms, softmax and sums stay float32.

Two graphs share the numbers. A CPU that multiplies bytes in one step (VNNI) takes signed weights; on others that
product saturates silently, and they take the same weights as unsigned ones, with the same results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.artefact import foreign, weights
from filbert.artefact.onnx import OURS, Encoder, saved
from filbert.artefact.portable import SAFE_ENCODER, SMALL_ENCODER, SMALL_WEIGHTS
from filbert.artefact.weights import Stored, Tensors

LEVELS = 127  # of a weight, to each side
MIDDLE = 128  # what stands for 0 where bytes have no sign
FLOOR = {"gelu": 0.1701, "gelu-tanh": 0.1701, "relu": 0.0}  # how far below 0 what follows an activation may lie
SCALE = ".scale"


def write(source: foreign.Source) -> None:
    """Writes the weights in eight bits and both graphs into the folder that the weights lie in."""
    small = source.folder / SMALL_WEIGHTS
    weights.write(small, dict(_quantised(source)))
    stored = weights.read(small)
    for name, signed in ((SMALL_ENCODER, True), (SAFE_ENCODER, False)):
        saved(SmallEncoder(source, stored, signed), source.folder / name)


def _quantised(source: foreign.Source) -> Any:
    """The maps of all layers, each [D, N] as onnxruntime takes it, and the scale of every output."""
    for name, pieces in source.tensors.items():
        if not name.startswith("layers.") or len(pieces[0].shape) != 2:
            continue
        for piece in pieces:
            wide = piece.array().astype(np.float32)
            scale = np.maximum(np.abs(wide).max(axis=1, initial=0), 1e-12) / LEVELS
            rounded = np.ascontiguousarray(np.rint(wide / scale[:, None]).astype(np.int8).T)
            yield piece.name, ("I8", rounded.shape, rounded.view(np.uint8).reshape(-1))
            yield piece.name + SCALE, ("F32", scale.shape, scale.astype(np.float32).view(np.uint8))


class SmallEncoder(Encoder):
    """The same graph with maps in eight bits."""

    def __init__(self, source: foreign.Source, small: Tensors, signed: bool) -> None:
        super().__init__(source)
        self.small, self.signed = small, signed
        self.rounded: dict[tuple[str, float | None], tuple[str, str]] = {}

    def _linear(self, x: str, name: str) -> str:
        weight, bias = self.source.tensors.get(f"{name}.weight"), self.source.tensors.get(f"{name}.bias")
        floor = FLOOR.get(self.config.feedforward) if name.endswith("feed.down") else None
        if weight is None or floor is None:
            return super()._linear(x, name)
        return self._product(x, weight[0], bias[0] if bias else None, floor)

    def _mapped(self, x: str, weight: Stored, bias: Stored | None) -> str:
        return self._product(x, weight, bias, None)

    def _product(self, x: str, weight: Stored, bias: Stored | None, floor: float | None) -> str:
        main = self.main
        rows, scale = self._rows(x, floor)
        numbers, own = main.stored(self.small[weight.name]), main.stored(self.small[weight.name + SCALE])
        zero = main.constant(0, np.int8)
        if not self.signed:
            integers = main.onnx.TensorProto
            wide = main.op("Cast", numbers, to=integers.INT32)
            numbers = main.op("Cast", main.op("Add", wide, main.constant(MIDDLE, np.int32)), to=integers.UINT8)
            zero = main.constant(MIDDLE, np.uint8)
        middle = main.constant(0 if floor is not None else MIDDLE, np.uint8)
        one = main.constant(1.0, np.float32)
        raw = main.op("MatMulIntegerToFloat", rows, numbers, one, own, middle, zero, domain=OURS)
        found = main.op("Mul", raw, scale)
        added = self._added(weight, bias, floor)
        return found if added is None else main.op("Add", found, added)

    def _added(self, weight: Stored, bias: Stored | None, floor: float | None) -> str | None:
        """The bias; where the input was raised by `floor`, less what that brings."""
        if not floor:
            return None if bias is None else self._wide(bias)
        scale = self.small[weight.name + SCALE].array()
        raised = self.small[weight.name].array().astype(np.float32).sum(axis=0) * scale * np.float32(floor)
        own = (0.0 if bias is None else bias.array().astype(np.float32)) - raised
        return self._kept(f"{weight.name}.bias", np.asarray(own, dtype=np.float32))

    def _kept(self, name: str, value: npt.NDArray[Any]) -> str:
        self.main.initializers[name] = self.main.onnx.numpy_helper.from_array(value, name)
        return name

    def _rows(self, x: str, floor: float | None) -> tuple[str, str]:
        """x as bytes [T, D] and the scale of each row [T, 1]; what several maps read is rounded once."""
        if (x, floor) in self.rounded:
            return self.rounded[x, floor]
        main, axis = self.main, self.main.constant([-1])
        if floor is None:
            low = main.op("Neg", main.op("ReduceMin", x, axis, keepdims=1))
            most, levels, zero = main.op("Max", main.op("ReduceMax", x, axis, keepdims=1), low), LEVELS, MIDDLE
        else:
            x_raised = main.op("Add", x, main.constant(floor, np.float32)) if floor else x
            most, levels, zero = main.op("ReduceMax", x_raised, axis, keepdims=1), 255, 0
        most = main.op("Max", most, main.constant(1e-12, np.float32))
        times = main.op("Div", main.constant(levels, np.float32), most)
        spread = main.op("Mul", x if floor is None else x_raised, times)
        rows = main.op("QuantizeLinear", spread, main.constant(1.0, np.float32), main.constant(zero, np.uint8))
        self.rounded[x, floor] = rows, main.op("Div", most, main.constant(levels, np.float32))
        return self.rounded[x, floor]


def path_of(folder: Path, signed: bool) -> Path:
    """The graph for a CPU with or without signed products of bytes."""
    return folder / (SMALL_ENCODER if signed else SAFE_ENCODER)
