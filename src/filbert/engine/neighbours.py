"""Vectors in; the nearest of them, groups of them, or near duplicates among them out, by cosine and without chance.

Everything is exact and works in blocks: what is held besides the vectors does not grow with them. Equally near ones
come in the order in which they were given. Cosines are rounded to six decimals, since the order in which a machine adds
moves them by nearly as much.

Legend: N vectors, Q queries, K clusters, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.random import generator
from filbert.core.records import Floats
from filbert.pack.pooling import unit_length

QUERIES, VECTORS = 256, 16_384  # of one block
PLACES = 6  # decimals of a cosine that count
TRIES, ROUNDS = 4, 100  # of k-means: starts, and steps at most of each
Numbers = npt.NDArray[np.int64]


class Hit(NamedTuple):
    """A search result: its key, its cosine with the query, and its place among the vectors."""

    key: Any
    score: float
    place: int


class Embeds(Protocol):
    """What turns texts into vectors: `engine.model.Model`."""

    def embed(self, texts: Sequence[str], *, normalize: bool | None = None, width: int | None = None) -> Floats:
        """One vector for each text."""
        ...


class Index:
    """Vectors with a key each, a text or whatever else; the keys are their places where none are given."""

    def __init__(self, vectors: npt.ArrayLike, keys: Iterable[object] | None = None) -> None:
        self.vectors = unit_length(_table(vectors))
        if not isinstance(keys, Iterable | None):
            raise InputError(f"keys is {keys!r:.60}, but must be a list with one for each vector.")
        self.keys: Sequence[Any] = range(len(self.vectors)) if keys is None else list(keys)  # a column has an index
        if len(self.keys) != len(self.vectors):
            raise InputError(f"there are {len(self.vectors):,} vectors but {len(self.keys):,} keys.")

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: npt.ArrayLike, top: int = 5) -> list[list[Hit]]:
        """The `top` nearest of each query vector, the nearest first."""
        if type(top) is not int or top < 1:
            raise InputError(f"top is {top!r}, but must be a whole number of 1 or more.")
        query_QD = unit_length(_table(queries))
        if len(self) and len(query_QD) and query_QD.shape[1] != self.vectors.shape[1]:
            raise InputError(
                f"the queries have {query_QD.shape[1]} numbers each, but the vectors have {self.vectors.shape[1]}."
            )
        hits = []
        for begin in range(0, len(query_QD), QUERIES):
            scores, places = self._nearest(query_QD[begin : begin + QUERIES], min(top, len(self)))
            for row in zip(scores.tolist(), places.tolist(), strict=True):
                hits.append([Hit(self.keys[place], score, place) for score, place in zip(*row, strict=True)])
        return hits

    def _nearest(self, query_QD: Floats, top: int) -> tuple[Floats, Numbers]:
        """[Q, top] cosines and places."""
        scores = np.zeros((len(query_QD), 0), dtype=np.float32)
        places = np.zeros((len(query_QD), 0), dtype=np.int64)
        for begin in range(0, len(self) if top else 0, VECTORS):
            block = _cosines(query_QD, self.vectors[begin : begin + VECTORS])
            here = np.broadcast_to(np.arange(begin, begin + block.shape[1]), block.shape)
            # The best so far stand first and have the lower places, so that equal ones stay in order.
            scores, places = np.concatenate((scores, block), axis=1), np.concatenate((places, here), axis=1)
            kept = min(top, scores.shape[1])
            least = np.partition(scores, -kept, axis=1)[:, -kept]
            rows, columns = np.nonzero(scores >= least[:, None])
            order = np.lexsort((columns, -scores[rows, columns], rows))
            rows, columns = rows[order], columns[order]
            first = np.searchsorted(rows, np.arange(len(query_QD)))
            chosen = columns[first[:, None] + np.arange(kept)]
            scores, places = np.take_along_axis(scores, chosen, axis=1), np.take_along_axis(places, chosen, axis=1)
        return scores, places


def search(
    model: Embeds, queries: Sequence[str], texts: Sequence[str], top: int = 5, width: int | None = None
) -> list[list[Hit]]:
    """The texts that are nearest to each query, the nearest first; a hit's key is its text."""
    index = Index(model.embed(texts, normalize=True, width=width), list(texts))
    return index.search(model.embed(queries, normalize=True, width=width), top)


def clusters(vectors: npt.ArrayLike, num: int, seed: int = 0) -> Numbers:
    """[N] the cluster of each vector, from 0 in the order in which they first come: k-means by cosine.

    The best of several starts, each drawn so that its centres lie apart (Arthur and Vassilvitskii 2007; Dhillon and
    Modha 2001). There are fewer clusters than `num` where there are fewer different vectors.
    """
    points_ND = unit_length(_table(vectors))
    if type(num) is not int or not 1 <= num <= max(1, len(points_ND)):
        raise InputError(f"{num!r} clusters were asked for, but must be a whole number from 1 to {len(points_ND):,}.")
    if not len(points_ND):
        return np.zeros(0, dtype=np.int64)
    attempts = [_settled(points_ND, _apart(points_ND, num, seed, start)) for start in range(TRIES)]
    _, labels = max(attempts, key=lambda pair: pair[0])
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    renamed: Numbers = np.argsort(np.argsort(first))[inverse]
    return renamed


def _apart(points_ND: Floats, num: int, seed: int, start: int) -> Floats:
    """[K, D] points, each drawn in proportion to how far it lies from those before it."""
    random = generator(seed, "clusters", epoch=start)
    chosen = [int(random.integers(len(points_ND)))]
    distance = np.full(len(points_ND), np.inf)
    while len(chosen) < num:
        near = 1.0 - _cosines(points_ND, points_ND[chosen[-1:]])[:, 0].astype(np.float64)
        distance = np.minimum(distance, np.maximum(near, 0.0))
        if not distance.sum():
            break  # all others equal one that is chosen
        chosen.append(int(random.choice(len(points_ND), p=distance / distance.sum())))
    return points_ND[chosen]


def _settled(points_ND: Floats, centres_KD: Floats) -> tuple[float, Numbers]:
    """How near all points are to their centres, together, and [N] which those are."""
    labels = np.full(len(points_ND), -1, dtype=np.int64)
    total = 0.0
    for _ in range(ROUNDS):
        nearest, scores = _assigned(points_ND, centres_KD)
        total = float(scores.sum(dtype=np.float64))
        if (nearest == labels).all():
            break
        labels = nearest
        sums = np.zeros(centres_KD.shape, dtype=np.float64)
        np.add.at(sums, labels, points_ND)
        empty = np.setdiff1d(np.arange(len(sums)), labels)
        sums[empty] = points_ND[np.argsort(scores, kind="stable")[: len(empty)]]  # begin anew where the fit is worst
        centres_KD = unit_length(sums.astype(np.float32))
    return total, labels


def _assigned(points_ND: Floats, centres_KD: Floats) -> tuple[Numbers, Floats]:
    """[N] the nearest centre of each point, and its cosine."""
    nearest = np.zeros(len(points_ND), dtype=np.int64)
    scores = np.zeros(len(points_ND), dtype=np.float32)
    for begin in range(0, len(points_ND), VECTORS):
        rows = slice(begin, begin + VECTORS)
        block = _cosines(points_ND[rows], centres_KD)
        nearest[rows], scores[rows] = block.argmax(axis=1), block.max(axis=1)
    return nearest, scores


def communities(vectors: npt.ArrayLike, threshold: float = 0.95) -> list[list[int]]:
    """Places of near duplicates: those whose cosine is at least that, directly or through others; largest first.

    One that has no such neighbour is in none.
    """
    points_ND = unit_length(_table(vectors))
    if not isinstance(threshold, int | float | np.number) or not -1 <= threshold <= 1:
        raise InputError(f"the threshold is {threshold!r}, but a cosine is from -1 to 1.")
    root = np.arange(len(points_ND))
    for one, two in _near(points_ND, threshold):
        low, high = sorted((_root(root, one), _root(root, two)))
        root[high] = low
    groups: dict[int, list[int]] = {}
    for place in range(len(root)):
        groups.setdefault(_root(root, place), []).append(place)
    duplicates = [group for group in groups.values() if len(group) > 1]
    return sorted(duplicates, key=lambda group: (-len(group), group[0]))


def _near(points_ND: Floats, threshold: float) -> Iterator[tuple[int, int]]:
    """All pairs of places, the lower first, whose cosine is at least the threshold."""
    for begin in range(0, len(points_ND), QUERIES):
        mine = points_ND[begin : begin + QUERIES]
        for other in range(begin, len(points_ND), VECTORS):
            rows, columns = np.nonzero(_cosines(mine, points_ND[other : other + VECTORS]) >= threshold)
            for one, two in zip((rows + begin).tolist(), (columns + other).tolist(), strict=True):
                if one < two:
                    yield one, two


def _root(root: Numbers, place: int) -> int:
    while root[place] != place:
        root[place] = root[root[place]]
        place = int(root[place])
    return place


def _cosines(first: Floats, second: Floats) -> Floats:
    """[rows, rows] cosines of unit vectors, rounded to PLACES decimals."""
    rounded: Floats = np.round(first @ second.T, PLACES)
    return rounded


def _table(vectors: npt.ArrayLike) -> Floats:
    """[N, D] in float32, all finite."""
    try:
        array = np.asarray(vectors)
        if array.dtype.kind not in "fiub" and array.size:
            raise ValueError(f"they are of type {array.dtype}")
        array = array.astype(np.float32, copy=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the vectors are no table of numbers ({error}): give one row for each text.") from None
    if array.size == 0 and array.ndim < 2:
        return np.zeros((0, 0), dtype=np.float32)
    if array.ndim != 2:
        raise InputError(f"the vectors have the shape {array.shape}, but must be a table: one row for each text.")
    if not np.isfinite(array).all():
        raise InputError("some vectors hold numbers that are not finite; were they made by a damaged model?")
    return array
