"""A text that can be changed and the name of a method in; one signed number for each of its words out.

- integrated-gradients (Sundararajan et al. 2017, eq. 1): the gradient along the straight way from the emptied text to
  the text. The numbers sum to F(text) - F(emptied text) (completeness); the way is cut finer until they do.
- gradient-x-input: the gradient at the text itself, times its distance from the emptied one.
- occlusion (Zeiler and Fergus 2014): how far F falls where the word is missing.
- sampling (Štrumbelj and Kononenko 2014): Shapley values; how far F rises when the word comes to those that came before
  it, the mean over random orders. Each order is followed backwards too, which halves the noise (Mitchell et al. 2022).
- attention-rollout (Abnar and Zuidema 2020): what reaches the answer through all layers' attention. It knows neither
  sign nor target.

Captum is not used. Its methods take a tensor whose first dimension is examples, one changed example each; here many
changed copies of a text lie in one pack without padding, and one rule cuts the way where F bends, with the error known
(F at both ends of each piece is), where captum takes a fixed number of steps. tests/parity/test_captum.py holds
integrated gradients and Shapley values equal to its.

Legend: N copies, W words, S samples, I nodes of a quadrature, P pieces of the way, L layers, H heads, T rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.random import generator

if TYPE_CHECKING:
    from filbert.explain.perturbation import Perturbation

Numbers = npt.NDArray[np.float64]
Groups = Sequence[npt.NDArray[np.int64]]  # words that are left out together
NODES = 6  # of the quadrature on each piece: exact for polynomials of degree 11
TOLERANCE = 2e-3  # how far the sum may be off, as a share of what it should be
MOST_STEPS = 600  # gradients of one text at most
TINY = 1e-6  # a difference of log-odds that is a rounding


class Changeable(Protocol):
    """An example that can be changed: explain.perturbation.Perturbation."""

    size: int

    @property
    def words(self) -> Sequence[object]:
        """W, what can be left out."""
        ...

    def values(self, kept_NW: npt.ArrayLike) -> Numbers:
        """[N] what F is where only these words are left."""

    def along(self, shares_N: npt.ArrayLike) -> tuple[Numbers, Numbers]:
        """[N] F on the way from the emptied text (0) to the text (1), and [N, W] each word's part of its slope."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """A number for each word, and how many times the text was read for it."""

    scores: Numbers  # [W]
    reads: int
    coarse: int = 1  # so many neighbouring words were left out together, since the text has too many


def integrated_gradients(perturbation: Changeable, budget: int = 0, seed: int = 0) -> Attribution:
    """Each word's part of ∫ dF/dα, the way from the emptied text cut in two wherever a piece is off."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    points, weights = (points + 1) / 2, weights / 2
    pieces, reads = [(0.0, 0.5), (0.5, 1.0)], 0
    done: dict[tuple[float, float], tuple[Numbers, float]] = {}  # [W] of each piece, and how far its sum is off
    values: dict[float, float] = {}
    while True:
        ends = [end for end in dict.fromkeys(end for piece in pieces for end in piece) if end not in values]
        inner_PI = np.array([low + (high - low) * points for low, high in pieces])
        value_N, slope_NW = perturbation.along(np.concatenate((inner_PI.ravel(), ends)))
        reads += len(value_N)
        values |= dict(zip(ends, value_N[inner_PI.size :].tolist(), strict=True))
        slope_PIW = slope_NW[: inner_PI.size].reshape(*inner_PI.shape, slope_NW.shape[1])
        for (low, high), slope_IW in zip(pieces, slope_PIW, strict=True):
            part_W = (high - low) * (weights @ slope_IW)
            done[low, high] = part_W, abs(float(part_W.sum()) - (values[high] - values[low]))
        allowed = TOLERANCE * max(abs(values[1.0] - values[0.0]), TINY)
        if sum(off for _, off in done.values()) <= allowed or reads >= MOST_STEPS:
            return Attribution(sum((part_W for part_W, _ in done.values()), np.zeros(slope_NW.shape[1])), reads)
        # Where the whole is off by more than is allowed, some piece is off by more than its share of that.
        coarse = [piece for piece, (_, off) in done.items() if off > allowed / len(done)]
        for piece in coarse:
            del done[piece]
        pieces = [half for low, high in coarse for half in ((low, (low + high) / 2), ((low + high) / 2, high))]


def gradient_x_input(perturbation: Changeable, budget: int = 0, seed: int = 0) -> Attribution:
    """The slope at the text itself, as if F were straight all the way."""
    return Attribution(perturbation.along([1.0])[1][0], 1)


def occlusion(perturbation: Changeable, budget: int, seed: int = 0) -> Attribution:
    """F of the text less F without the word; of too many words for the budget several together."""
    groups, coarse = _groups(len(perturbation.words), budget // max(1, perturbation.size))
    kept = np.ones((len(groups) + 1, len(perturbation.words)), dtype=np.bool_)
    for row, group in enumerate(groups, 1):
        kept[row, group] = False
    whole, *others = perturbation.values(kept).tolist()
    return Attribution(_spread(np.array([whole - value for value in others]), groups), len(kept), coarse)


def sampling(perturbation: Changeable, budget: int, seed: int = 0, samples: int | None = None) -> Attribution:
    """Shapley values from random orders, each followed forth and back."""
    reads = budget // max(1, perturbation.size)
    groups, coarse = _groups(len(perturbation.words), reads // 8)
    size = len(groups)
    pairs = samples or int(np.clip(reads // max(1, 2 * size), 4, 12))
    random = generator(seed, "shapley")
    orders = [order for _ in range(pairs) for order in _both(random.permutation(size))]
    rank = np.argsort(np.array(orders).reshape(-1, size), axis=1)  # [S, groups] when each comes
    kept_NG = (rank[:, None, :] < np.arange(size + 1)[None, :, None]).reshape(-1, size)
    kept_NW = np.zeros((len(kept_NG), len(perturbation.words)), dtype=np.bool_)
    for place, group in enumerate(groups):
        kept_NW[:, group] = kept_NG[:, place, None]
    rises = np.diff(perturbation.values(kept_NW).reshape(len(rank), size + 1), axis=1)
    return Attribution(_spread(np.take_along_axis(rises, rank, axis=1).mean(0), groups), len(kept_NW), coarse)


def attention_rollout(perturbation: Perturbation, budget: int = 0, seed: int = 0) -> Attribution:
    """How much of each word stands in the vectors that the answer is read from, layers' attention followed back."""
    import torch

    from filbert.explain.map_sums import rollout
    from filbert.nn import maps

    layout = perturbation.layout
    sites = [site for site in maps.sites(perturbation.backbone) if site.kind == "self"]
    if not sites:
        raise InputError(
            f"{type(perturbation.backbone).__name__} has no attention to follow; take occlusion or sampling."
        )
    heads = range(max(site.attention.heads for site in sites))
    (_, batch), *_ = perturbation.packs(1, 1)
    with torch.inference_mode(), maps.kept(sites) as kept:
        perturbation.question.table(perturbation.host, batch)
    order = np.argsort(np.argsort(batch.starts.cpu().numpy()))  # the place of each of our sequences in the pack
    read_R, reached_R = perturbation.question.read_from(), np.zeros(len(layout.place))
    for sequence, place in enumerate(order.tolist()):
        with torch.inference_mode():
            maps_L = [maps.weights(site, kept[site], place, heads) for site in sites]  # zeros for a pruned head
            weights_LHTT = torch.stack(maps_L).cpu().numpy()
        mine = layout.sequence == sequence
        reached_R[mine] = read_R[mine] @ np.asarray(rollout(weights_LHTT)[-1], dtype=np.float64)
    inside = perturbation.word_R >= 0
    scores = np.bincount(perturbation.word_R[inside], weights=reached_R[inside], minlength=len(perturbation.words))
    return Attribution(scores.astype(np.float64), 1)


Method = Callable[..., Attribution]
METHODS: dict[str, Method] = {
    "integrated-gradients": integrated_gradients,
    "gradient-x-input": gradient_x_input,
    "occlusion": occlusion,
    "sampling": sampling,
    "attention-rollout": attention_rollout,
}
GRADIENTS = ("integrated-gradients", "gradient-x-input")  # those that need a vector for each token
COMPLETE = ("integrated-gradients", "sampling")  # those whose numbers sum to F(text) - F(emptied text)


def _both(order: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return order, order[::-1]


def _groups(count: int, most: int) -> tuple[Groups, int]:
    """Runs of neighbouring words, at most so many, and how many words a run has."""
    coarse = -(-count // max(1, min(count, max(most, 8)))) if count else 1
    return [np.arange(begin, min(begin + coarse, count)) for begin in range(0, count, coarse)], coarse


def _spread(scores: Numbers, groups: Groups) -> Numbers:
    """[W] each word its share of what its run got."""
    sizes = np.array([len(group) for group in groups], dtype=np.int64)
    return np.repeat(scores / np.maximum(sizes, 1), sizes)
