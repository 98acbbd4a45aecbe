"""The numerics of tasks, once for NumPy and torch: a dozen functions on arrays, and a model's vectors and heads.

Legend: T tokens in the pack, B sequences, X rows, D width, K inner width, J tokens ahead.

What must run without torch is written once, over `Ops` and `Host`: `nn.torch_ops` has both for torch tensors, this file
has the operations for NumPy arrays, and `engine.backend_onnx` is a host of them. Indexing, arithmetic and comparisons
are the arrays' own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from filbert.core.records import Packed

if TYPE_CHECKING:
    from torch import Tensor

    from filbert.nn.crf_walk import Transitions

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[Any]  # of any kind: floats, places, flags
A = TypeVar("A", "npt.NDArray[Any]", "Tensor")  # each body is checked for both


class Ops(Protocol[A]):
    """Functions that NumPy and torch call by other names, or do not both have."""

    def linear(self, x: A, weight: A, bias: A | None) -> A:
        """x·Wᵀ + b, in the precision of the weights."""
        ...

    def float32(self, x: A) -> A:
        """The same numbers in float32."""
        ...

    def tanh(self, x: A) -> A:
        """Of each number."""
        ...

    def exp(self, x: A) -> A:
        """Of each number."""
        ...

    def log(self, x: A) -> A:
        """Of each number."""
        ...

    def turn(self, angle: A) -> tuple[A, A]:
        """The cosine and the sine of each number."""
        ...

    def activation(self, name: str, x: A) -> A:
        """gelu, gelu-tanh or relu of each number."""
        ...

    def layer_norm(self, x: A, weight: A, bias: A | None, eps: float) -> A:
        """Each row with a mean of 0 and a variance of 1, scaled and moved."""
        ...

    def logsumexp(self, x: A) -> A:
        """The logarithm of the sum of exponentials over the last axis."""
        ...

    def where(self, condition: A, x: A, otherwise: A | float) -> A:
        """x where the condition holds."""
        ...

    def concatenate(self, arrays: Sequence[A]) -> A:
        """Side by side, over the last axis."""
        ...

    def sequences(self, edges: A, starts: A) -> tuple[A, A]:
        """[B] tokens of each sequence of a pack; [N] which of them begins at each of these rows."""
        ...

    def repeat(self, x: A, counts: A, total: int) -> A:
        """Each row so many times; `total` rows in all, so that nobody waits for a device to count them."""
        ...

    def segment_sum(self, x: A, lengths: A) -> A:
        """[B, …] the sum over each stretch of so many rows; an empty one has zeros."""
        ...

    def scattered(self, x: A, places: A, total: int) -> A:
        """[total, …] each row at its place; zeros elsewhere."""
        ...

    def ahead(self, x: A, reach: int) -> A:
        """[X, K, J] each row and those that follow it; past the end there are zeros."""
        ...

    def at(self, array: Numbers, like: A) -> A:
        """A host's array where `like` is."""
        ...

    def host(self, x: A) -> Numbers:
        """As a NumPy array on the host."""
        ...


class Host(Protocol[A]):
    """A model as tasks use it: vectors of tokens and its heads' scores, as torch tensors or NumPy arrays."""

    @property
    def xp(self) -> Ops[A]:
        """The operations on its arrays."""
        ...

    @property
    def width(self) -> int:
        """D, the numbers of a vector."""
        ...

    @property
    def is_training(self) -> bool:
        """Whether it learns: then some numbers are dropped and some tokens hidden."""
        ...

    def vectors(self, packed: Packed, rows: A | Literal["first"] | None = None) -> A:
        """[T, D] a vector for each token; or for the asked rows, or each sequence's first."""
        ...

    def summary(self, packed: Packed) -> A:
        """[B, D] each sequence summed up by the model's own way, where it has one."""
        ...

    def head(self, part: str, x: A) -> A:
        """What a head makes of vectors, in float32: logits, or vectors of the part `pooler`."""
        ...

    def stretches(self, part: str, x_TD: A, positions: A, reach: int) -> A:
        """[T, J, C] what a head makes of every stretch of up to `reach` tokens."""
        ...

    def transitions(self, part: str) -> Transitions:
        """A CRF's scores of tags and of pairs of them."""
        ...

    def dropout(self, x: A) -> A:
        """While it learns some numbers are 0 and the others larger; else the same."""
        ...

    def masked(self, packed: Packed, share: float, mask_id: int, never: Sequence[int]) -> Packed:
        """While it learns some tokens are [MASK], but never one of those ids; else the same."""
        ...


class NumpyOps:
    """The operations on NumPy arrays."""

    def linear(self, x: Numbers, weight: Numbers, bias: Numbers | None) -> Numbers:
        """x·Wᵀ + b."""
        product = x @ weight.T
        return np.asarray(product if bias is None else product + bias, dtype=np.float32)

    def float32(self, x: Numbers) -> Numbers:
        """The same numbers in float32."""
        return np.asarray(x, dtype=np.float32)

    def tanh(self, x: Numbers) -> Numbers:
        """Of each number."""
        return np.tanh(x)

    def exp(self, x: Numbers) -> Numbers:
        """Of each number."""
        return np.exp(x)

    def log(self, x: Numbers) -> Numbers:
        """Of each number."""
        return np.log(x)

    def turn(self, angle: Numbers) -> tuple[Numbers, Numbers]:
        """The cosine and the sine of each number."""
        return np.cos(angle), np.sin(angle)

    def activation(self, name: str, x: Numbers) -> Numbers:
        """gelu, gelu-tanh or relu of each number."""
        if name == "relu":
            return np.maximum(x, np.float32(0))
        if name == "gelu-tanh":  # Hendrycks and Gimpel 2016
            return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), dtype=np.float32)
        wide = np.asarray(x, dtype=np.float64)
        return np.asarray(0.5 * wide * (1 + erf(wide / math.sqrt(2))), dtype=np.float32)

    def layer_norm(self, x: Numbers, weight: Numbers, bias: Numbers | None, eps: float) -> Numbers:
        """Each row with a mean of 0 and a variance of 1, scaled and moved."""
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight
        return np.asarray(x if bias is None else x + bias, dtype=np.float32)

    def logsumexp(self, x: Numbers) -> Numbers:
        """The logarithm of the sum of exponentials over the last axis."""
        most = x.max(axis=-1)
        return np.asarray(np.log(np.exp(x - most[..., None]).sum(axis=-1)) + most)

    def where(self, condition: Numbers, x: Numbers, otherwise: Numbers | float) -> Numbers:
        """x where the condition holds."""
        return np.where(condition, x, np.asarray(otherwise, dtype=x.dtype))

    def concatenate(self, arrays: Sequence[Numbers]) -> Numbers:
        """Side by side, over the last axis."""
        return np.concatenate(arrays, axis=-1)

    def sequences(self, edges: Numbers, starts: Numbers) -> tuple[Numbers, Numbers]:
        """[B] tokens of each sequence of a pack; [N] which of them begins at each of these rows."""
        return np.diff(np.asarray(edges, dtype=np.int64)), np.asarray(np.searchsorted(edges, starts), dtype=np.int64)

    def repeat(self, x: Numbers, counts: Numbers, total: int) -> Numbers:
        """Each row so many times."""
        return np.repeat(x, counts, axis=0)

    def segment_sum(self, x: Numbers, lengths: Numbers) -> Numbers:
        """[B, …] the sum over each stretch of so many rows; an empty one has zeros."""
        edges = np.concatenate(([0], np.cumsum(lengths)))
        sums = np.zeros((len(lengths), *x.shape[1:]), dtype=x.dtype)
        filled = np.flatnonzero(lengths)
        if len(filled):
            sums[filled] = np.add.reduceat(x[: edges[-1]], edges[filled])
        return sums

    def scattered(self, x: Numbers, places: Numbers, total: int) -> Numbers:
        """[total, …] each row at its place; zeros elsewhere."""
        rows = np.zeros((total, *x.shape[1:]), dtype=x.dtype)
        rows[places] = x
        return rows

    def ahead(self, x: Numbers, reach: int) -> Numbers:
        """[X, K, J] each row and those that follow it, a view; past the end there are zeros."""
        padded = np.concatenate((x, np.zeros((reach - 1, x.shape[1]), dtype=x.dtype)))
        return np.lib.stride_tricks.sliding_window_view(padded, reach, axis=0)

    def at(self, array: Numbers, like: Numbers) -> Numbers:
        """The array itself."""
        return array

    def host(self, x: Numbers) -> Numbers:
        """The array itself."""
        return x


NUMPY = NumpyOps()


def erf(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The error function, which NumPy lacks, to 1e-12: its series near 0, its continued fraction elsewhere."""
    size = np.minimum(np.abs(x), 6.0)
    near, square = size < 2.5, size * size
    term, series = size.copy(), size.copy()
    for n in range(1, 40):  # Σ (-1)ⁿ x²ⁿ⁺¹ / (n! (2n + 1)); beyond 2.5 it would cancel
        term = np.where(near, -term * square / n, 0.0)
        series += term / (2 * n + 1)
    far, tail = np.maximum(size, 2.5), np.zeros_like(size)
    for n in range(40, 0, -1):  # erfc(x) = exp(-x²)/√π · 1/(x + ½/(x + 1/(x + 3/2/(x + …))))
        tail = (n / 2) / (far + tail)
    rest = np.exp(-far * far) / (math.sqrt(math.pi) * (far + tail))
    value: npt.NDArray[np.float64] = np.sign(x) * np.where(near, 2 / math.sqrt(math.pi) * series, 1 - rest)
    return value
