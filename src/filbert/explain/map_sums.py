"""Attention maps in; how widely and how far heads look, and what the maps come to through all layers, out.

Legend: L layers, H heads, N tokens or words, P pairs of a token at the top and one at the bottom.

Rollout and flow are those of Abnar & Zuidema 2020, "Quantifying attention flow in transformers": heads are averaged,
and half of each token's new vector is its old one (§3, the residual connection).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.records import Floats
from filbert.explain.attention_maps import Maps

RESIDUAL = 0.5  # of a token's vector that a layer leaves as it was
EPS = 1e-10  # of a flow: less than this is nothing
FAR = 10**6  # farther than any path
CELLS = 2**16  # capacities of a layer that are worked on together: they fit a cache
MOST_CELLS = 2**29  # of a whole flow: about two minutes; 30 words in 8 layers have 2**23, a row of 128 in 12 2**25

Doubles = npt.NDArray[np.float64]


# Of one map -----------------------------------------------------------------------------------------------------------


def entropy(seen: Maps | Floats) -> Floats:
    """[L, H] how widely each head looks: the mean entropy of its rows in nats, from 0 (one token) to ln N (all)."""
    values = np.maximum(_values(seen), 0)
    terms = values * np.log(values, out=np.zeros_like(values), where=values > 0)
    return np.asarray(-terms.sum(-1).mean(-1), dtype=np.float32)


def distance(seen: Maps | Floats) -> Floats:
    """[L, H] how far each head looks: the mean of |i - j| under its weights, in tokens (or words, as the map is)."""
    values = _square(seen)
    place = np.arange(values.shape[-1])
    far_NN = np.abs(place[:, None] - place).astype(np.float32)
    return np.asarray((values * far_NN).sum(-1).mean(-1), dtype=np.float32)


# Through all layers ---------------------------------------------------------------------------------------------------


def rollout(seen: Maps | Floats, residual: float = RESIDUAL) -> Floats:
    """[L, N, N] how much of each layer's vectors (rows) comes from which inputs (columns); the last is the top's.

    The product of the layers' mixed weights (Abnar & Zuidema 2020, eq. 1): all paths, each by the product of its edges.
    """
    through_LNN = mixed(seen, residual)
    for index in range(1, len(through_LNN)):
        through_LNN[index] = through_LNN[index] @ through_LNN[index - 1]
    return through_LNN.astype(np.float32)


def flow(seen: Maps | Floats, rows: Sequence[int] | None = None, residual: float = RESIDUAL) -> Floats:
    """[rows, N] the most that can flow from tokens at the top to each input; rows: of some alone, e.g. [0] for [CLS].

    The maximum flow of the layered graph whose edges carry at most their weight (Abnar & Zuidema 2020, §3). Exact; 30
    tokens in 8 layers take one to two seconds, and the work grows with rows · N³ · L.
    """
    capacities_LNN = mixed(seen, residual)
    num_layers, size = capacities_LNN.shape[:2]
    rows = range(size) if rows is None else rows
    for row in rows:
        if not 0 <= row < size:
            raise InputError(f"rows has {row}, but must have numbers from 0 to {size - 1}.")
    if len(rows) * size**3 * num_layers > MOST_CELLS:
        raise InputError(
            f"the flow of {len(rows)} rows through {num_layers} layers of {size} tokens is too much work; ask for "
            "fewer rows, e.g. rows=[0], or give the map by words."
        )
    top, bottom = (side.ravel() for side in np.meshgrid(rows, range(size), indexing="ij"))
    some = max(1, CELLS // size**2)
    parts = [
        _flows(capacities_LNN, top[at : at + some], bottom[at : at + some]) for at in range(0, len(top), some)
    ]  # fmt: skip
    return np.concatenate(parts).reshape(len(rows), size).astype(np.float32)


def mixed(seen: Maps | Floats, residual: float = RESIDUAL) -> Doubles:
    """[L, N, N] the heads' mean weights of each layer and what the residual connection adds; rows sum to 1.

    A layer whose heads were all pruned hands every token on as it is.
    """
    if not 0 <= residual < 1:
        raise InputError(f"residual is {residual!r}, but must be from 0 up to 1.")
    if isinstance(seen, Maps) and (seen.kind != "self" or seen.layers != tuple(range(len(seen.layers)))):
        raise InputError(
            f"paths lead through all layers from the first on, but this map is of kind {seen.kind!r} and of the layers "
            f"{', '.join(map(str, seen.layers))}; ask a model that reads for layers=range(n)."
        )
    sums_LNN = _square(seen).astype(np.float64).sum(1)
    identity_NN, totals = np.eye(sums_LNN.shape[-1]), sums_LNN.sum(-1, keepdims=True)
    mean_LNN = np.where(totals > 0, sums_LNN / np.where(totals > 0, totals, 1), identity_NN)
    return np.asarray((1 - residual) * mean_LNN + residual * identity_NN)


def _values(seen: Maps | Floats) -> Floats:
    values = seen.values if isinstance(seen, Maps) else np.asarray(seen, dtype=np.float32)
    if values.ndim != 4:
        raise InputError(f"maps must be [layers, heads, tokens, tokens], but these have {values.ndim} dimensions.")
    return values


def _square(seen: Maps | Floats) -> Floats:
    values = _values(seen)
    if values.shape[2] != values.shape[3]:
        raise InputError(f"this is a map of {values.shape[2]} by {values.shape[3]}; tokens must attend to themselves.")
    return values


# Maximum flow ---------------------------------------------------------------------------------------------------------
# Push and relabel (Goldberg & Tarjan 1988) for many pairs at once: each round sends all excess a layer on, along edges
# that lead closer to the sink. Distances are made anew in each round, so no push goes astray. A pair is done when none
# of its excess can reach the sink any more, or when all that its ends can carry has arrived.


class _Network:
    """P copies of the graph between the top token and the bottom one of each pair, and what flows in them.

    Node layers between top and bottom are counted from the bottom, 0 to L-2; edges l lead from node layer l+1 to l.
    """

    def __init__(self, capacities_LNN: Doubles, top: npt.NDArray[np.intp], bottom: npt.NDArray[np.intp]) -> None:
        inner = capacities_LNN[1:-1, None]
        self.down = np.repeat(inner, len(top), axis=1)  # [L-2, P, N, N] what an edge can still carry …
        self.back = np.zeros_like(self.down)  # … and what it carries, which can be sent back
        self.last = capacities_LNN[0][:, bottom].T.copy()  # [P, N] edges to the sink
        self.excess = np.zeros((len(capacities_LNN) - 1, len(top), inner.shape[-1]))  # [L-1, P, N]
        self.excess[-1] = capacities_LNN[-1][top]
        self.most = np.minimum(self.excess[-1].sum(-1), self.last.sum(-1))  # [P] the cuts at both ends
        self.sent = np.zeros(len(top))

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Only these pairs are left."""
        if not which.all():
            self.down, self.back, self.excess = self.down[:, which], self.back[:, which], self.excess[:, which]
            self.last, self.most, self.sent = self.last[which], self.most[which], self.sent[which]

    def spread(self) -> None:
        """A first guess: excess goes down, nowhere more than could go on from there if it were alone."""
        room = [self.last]
        for down in self.down:
            room.append(np.minimum(down, room[-1][:, None]).sum(-1))
        for layer in reversed(range(len(self.down))):
            pushed = _shares(self.excess[layer + 1], np.minimum(self.down[layer], room[layer][:, None]))
            free, total = np.maximum(room[layer] - self.excess[layer], 0), pushed.sum(1)
            self.move(layer, pushed * np.minimum(1, _ratio(free, total))[:, None])
        self.arrive()

    def distances(self) -> npt.NDArray[np.int64]:
        """[L-1, P, N] edges from each node to the sink along which something can still be sent; FAR: there are none."""
        far = np.full(self.excess.shape, FAR)
        far[0] = np.where(self.last > EPS, 1, FAR)
        is_open, is_used, before = self.down > EPS, self.back > EPS, None
        while before is None or (before != far).any():
            before = far.copy()
            for layer in range(len(self.down)):
                near = np.where(is_open[layer], far[layer][:, None], FAR).min(2) + 1
                np.minimum(far[layer + 1], near, out=far[layer + 1])
            for layer in reversed(range(len(self.down))):
                near = np.where(is_used[layer], far[layer + 1][:, :, None], FAR).min(1) + 1
                np.minimum(far[layer], near, out=far[layer])
        return far

    def push(self, far: npt.NDArray[np.int64]) -> None:
        """All excess goes on along edges to nodes that are one edge closer, layer by layer down, then up again."""
        for layer in reversed(range(len(self.down))):
            closer = far[layer + 1][:, :, None] == far[layer][:, None] + 1
            self.move(layer, _shares(self.excess[layer + 1], np.where(closer, self.down[layer], 0)))
        self.arrive()
        for layer in range(len(self.down)):
            closer = far[layer][:, :, None] == far[layer + 1][:, None] + 1
            returned = _shares(self.excess[layer], np.where(closer, self.back[layer].swapaxes(1, 2), 0))
            self.move(layer, -returned.swapaxes(1, 2))

    def move(self, layer: int, pushed: Doubles) -> None:
        """[P, N, N] from node layer + 1 to layer; what is negative comes back."""
        self.down[layer] -= pushed
        self.back[layer] += pushed
        self.excess[layer + 1] -= pushed.sum(2)
        self.excess[layer] += pushed.sum(1)

    def arrive(self) -> None:
        """What can reach the sink from the lowest nodes does."""
        pushed = np.minimum(self.excess[0], self.last)
        self.last = self.last - pushed
        self.excess[0] -= pushed
        self.sent += pushed.sum(1)


def _flows(capacities_LNN: Doubles, top: npt.NDArray[np.intp], bottom: npt.NDArray[np.intp]) -> Doubles:
    """[P] the maximum flow of each pair."""
    if len(capacities_LNN) == 1:
        return np.asarray(capacities_LNN[0][top, bottom])
    network, flows, pairs = _Network(capacities_LNN, top, bottom), np.zeros(len(top)), np.arange(len(top))
    network.spread()
    for _ in range(100 + 4 * network.excess[:, 0].size):  # far more rounds than it takes, lest rounding go on for ever
        far = network.distances()
        can_go = np.where(far < FAR, network.excess, 0).sum((0, 2)) > EPS
        going = can_go & (network.sent < network.most - EPS)
        flows[pairs] = network.sent
        pairs = pairs[going]
        network.keep(going)
        if not len(pairs):
            break
        network.push(far[:, going])
    return flows


def _shares(excess: Doubles, capacities: Doubles) -> Doubles:
    """[P, N, N] the excess of each node over its edges, in proportion to what they can carry, and no more than that."""
    return np.asarray(capacities * np.minimum(1, _ratio(excess, capacities.sum(-1)))[..., None])


def _ratio(some: Doubles, total: Doubles) -> Doubles:
    return np.divide(some, total, out=np.zeros_like(total), where=total > 0)
