"""One vector for each sequence, window by window, in; one vector for each text out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from filbert.core.records import Floats

POOLS = ("mean", "cls", "pooled", "own")  # own: as the model itself sums a text up, where it does (models.han)


def text_vectors(vectors_BD: Floats, weights: Sequence[float], owners: Sequence[int], num_texts: int) -> Floats:
    """The mean of each text's windows, weighed by how much of the text each answers for, [texts, D]."""
    if len(owners) == num_texts:
        return vectors_BD
    owner = np.asarray(owners)
    share = np.asarray(weights, dtype=np.float64)
    share = share / np.bincount(owner, weights=share, minlength=num_texts)[owner]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    return np.add.reduceat(vectors_BD * share[:, None], starts).astype(np.float32)


def unit_length(vectors: Floats) -> Floats:
    """Each vector divided by its length, so that a dot product is a cosine."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Floats = (vectors / np.maximum(norms, 1e-12)).astype(np.float32)
    return unit
