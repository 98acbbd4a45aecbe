"""Vectors of tokens and a model's heads as arrays in; what the heads say of them out, without torch.

Legend: T tokens in the pack, B sequences, X rows of vectors, D width, V vocabulary, L labels, K inner width of the
pointer, J tokens that a stretch may have, C kinds.

Heads are small beside an encoder, so NumPy does them as fast as anything. Each is the twin of a module (nn.heads,
nn.pointer, models.bert); tests/contract/test_runtime.py holds them equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.protocols import Batch
from filbert.core.records import Floats, Packed

Places = npt.NDArray[np.int64]
Rows = npt.NDArray[Any] | Literal["first"] | None
POINTER_WIDTH, POINTER_THETA = 64, 10_000.0  # as nn.pointer has them


class Host(Protocol):
    """A model that answers with arrays: what tasks ask where there is no torch (`Task.heard`)."""

    heads: Heads
    width: int

    def __call__(self, packed: Packed, rows: Rows = None) -> Floats:
        """[T, D] a vector for each token, or for the asked rows, or each sequence's first."""
        ...


class Heads:
    """The weights of all heads, under our names: `heads.labels.weight`, `pooler.bias`, `mlm.dense.weight`, …"""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]], eps: float = 1e-12, activation: str = "gelu") -> None:
        self.arrays = {name: np.asarray(array, dtype=np.float32) for name, array in arrays.items()}
        self.eps, self.activation = eps, activation

    def linear(self, name: str, x_XD: Floats) -> Floats:
        """x·Wᵀ + b, [X, L]."""
        found = x_XD @ self.arrays[f"{name}.weight"].T
        bias = self.arrays.get(f"{name}.bias")
        return np.asarray(found if bias is None else found + bias, dtype=np.float32)

    def head(self, part: str, x_XD: Floats) -> Floats:
        """What a task's head says, [X, L]."""
        return self.linear(f"heads.{part}", x_XD)

    def pooled(self, first_BD: Floats) -> Floats:
        """tanh of a learned map of each sequence's first vector, [B, D]."""
        if "pooler.weight" not in self.arrays:
            raise InputError("this model folder has no pooler; use pool='cls' or 'mean', or fine-tune one.")
        return np.tanh(self.linear("pooler", first_BD))

    @property
    def fills(self) -> bool:
        """Whether there is a head that scores words."""
        return "mlm.dense.weight" in self.arrays

    def word_scores(self, x_XD: Floats) -> Floats:
        """Scores over the vocabulary, [X, V], as a masked-language-model head gives them."""
        if not self.fills:
            raise InputError("this model folder has no masked-language-model head, so it cannot fill in blanks.")
        x_XD = _ACTIVATIONS[self.activation](self.linear("mlm.dense", x_XD))
        x_XD = x_XD - x_XD.mean(axis=-1, keepdims=True)
        x_XD = x_XD / np.sqrt((x_XD**2).mean(axis=-1, keepdims=True) + self.eps) * self.arrays["mlm.norm.weight"]
        x_XD = x_XD + self.arrays.get("mlm.norm.bias", np.float32(0))
        return np.asarray(x_XD @ self.arrays["words"].T + self.arrays["mlm.bias"], dtype=np.float32)

    def chain(self) -> tuple[Floats, Floats, Floats]:
        """A CRF's begin [L], transitions [L, L] and end [L]."""
        begin, pair, end = (self.arrays[f"heads.crf.{name}"] for name in ("begin", "transitions", "end"))
        return begin, pair, end

    def pointer(self, x_TD: Floats, positions_T: npt.NDArray[Any], longest: int) -> Floats:
        """[T, J, C] the score of the stretch from each token that is so many long, for each kind (nn.pointer)."""
        edges_TX = self.linear("heads.pointer.edges", x_TD)
        own_TX = self.linear("heads.pointer.kinds", edges_TX)
        both_T2K = _turned(edges_TX.reshape(len(x_TD), 2, POINTER_WIDTH), positions_T)
        q_TK, k_TK = both_T2K[:, 0], both_T2K[:, 1]
        pair_TJ = np.einsum("tk,tjk->tj", q_TK, _ahead(k_TK, longest)) * np.float32(POINTER_WIDTH**-0.5)
        begins_TC, ends_TC = np.split(own_TX, 2, axis=-1)
        return np.asarray(pair_TJ[:, :, None] + begins_TC[:, None] + _ahead(ends_TC, longest), dtype=np.float32)


def sequences(packed: Packed, starts_B: npt.NDArray[Any]) -> Places:
    """[B] the place of each window, which begins there, among the pack's sequences."""
    return np.searchsorted(packed.boundaries, starts_B).astype(np.int64)


def sums(values_TD: npt.NDArray[Any], boundaries: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[B, D] the sum over each sequence's tokens; an empty one has zeros."""
    edges = np.asarray(boundaries, dtype=np.int64)
    found = np.zeros((len(edges) - 1, *values_TD.shape[1:]), dtype=values_TD.dtype)
    filled = np.flatnonzero(np.diff(edges))
    if len(filled):
        found[filled] = np.add.reduceat(values_TD[: edges[-1]], edges[filled])
    return found


def means(hidden_TD: Floats, packed: Packed, starts_B: npt.NDArray[Any], owned: npt.NDArray[Any] | None) -> Floats:
    """[B, D] the mean of each window's vectors: all, or [CLS], [SEP] and the tokens that it owns."""
    places, edges = sequences(packed, starts_B), np.asarray(packed.boundaries, dtype=np.int64)
    lengths = np.diff(edges)
    if owned is None:
        return np.asarray(sums(hidden_TD, edges)[places] / lengths[places, None], dtype=np.float32)
    own_BX = np.zeros((len(lengths), 5), dtype=np.int64)
    own_BX[places] = owned
    own_TX, last_T = np.repeat(own_BX, lengths, axis=0), np.repeat(lengths - 1, lengths)
    position = np.asarray(packed.positions)[: len(last_T)]
    counted = (position == 0) | (position == own_TX[:, 4]) | (position == last_T)
    for column in (0, 2):
        counted |= (position >= own_TX[:, column]) & (position < own_TX[:, column + 1])
    chosen_TD = hidden_TD[: len(last_T)] * counted[:, None].astype(np.float32)
    counts = sums(counted.astype(np.float32)[:, None], edges)
    return np.asarray(sums(chosen_TD, edges)[places] / counts[places], dtype=np.float32)


def text_vectors(host: Host, batch: Batch, pool: str, pooler: bool) -> Floats:
    """[N, D] one vector for each text of a batch, its windows averaged by how much of it each owns."""
    counts, packed = batch.targets["num_windows"], batch.packed
    several = len(batch.starts) != len(counts)
    if pool == "own":
        raise InputError("this model sums texts up in its own way, which needs torch: pip install filbert[train].")
    if pool == "cls":
        window_BD = host(packed, batch.starts)
        window_BD = host.heads.pooled(window_BD) if pooler else window_BD
    else:
        window_BD = means(host(packed), packed, batch.starts, batch.targets["owned"] if several else None)
    if not several:
        return window_BD
    edges = np.concatenate(([0], np.cumsum(counts)))
    return np.asarray(sums(window_BD * batch.targets["shares"][:, None], edges), dtype=np.float32)


# Activations ----------------------------------------------------------------------------------------------------------


def gelu(x: Floats) -> Floats:
    """x·Φ(x), by the error function."""
    wide = np.asarray(x, dtype=np.float64)
    return np.asarray(0.5 * wide * (1 + erf(wide / math.sqrt(2))), dtype=np.float32)


def gelu_tanh(x: Floats) -> Floats:
    """The tanh form of GELU (Hendrycks and Gimpel 2016)."""
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), dtype=np.float32)


def relu(x: Floats) -> Floats:
    """x where it is above 0."""
    return np.maximum(x, np.float32(0))


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
    found: npt.NDArray[np.float64] = np.sign(x) * np.where(near, 2 / math.sqrt(math.pi) * series, 1 - rest)
    return found


_ACTIVATIONS = {"gelu": gelu, "gelu-tanh": gelu_tanh, "relu": relu, "geglu": gelu}  # as models.bert.MaskedHead has them


def _turned(x_T2K: Floats, positions_T: npt.NDArray[Any]) -> Floats:
    """Each pair (i, i + K/2) turned by an angle that grows with the token's place (nn.positions)."""
    half = np.arange(0, POINTER_WIDTH, 2).astype(np.float32) / np.float32(POINTER_WIDTH)
    rate = (np.float32(1) / np.float32(POINTER_THETA) ** half).astype(np.float32)
    angle_T1K = np.tile(np.outer(np.asarray(positions_T, dtype=np.float32), rate), (1, 2))[:, None]
    one, two = np.split(x_T2K, 2, axis=-1)
    aside = np.concatenate((-two, one), axis=-1)
    return np.asarray(x_T2K * np.cos(angle_T1K) + aside * np.sin(angle_T1K), dtype=np.float32)


def _ahead(x_TK: Floats, longest: int) -> Floats:
    """[T, J, K] each token's row and those of the next; past the end there are zeros."""
    padded = np.concatenate((x_TK, np.zeros((longest - 1, x_TK.shape[1]), dtype=x_TK.dtype)))
    return np.lib.stride_tricks.sliding_window_view(padded, longest, axis=0).transpose(0, 2, 1)
