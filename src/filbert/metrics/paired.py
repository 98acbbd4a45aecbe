"""What two systems score on the same examples in; how far apart they are, with an interval and a p-value, out.

Legend: N examples, K numbers of each, R resamples.

Every score here is a function of sums over the examples: accuracy of right ones, F1 of right, called and gold spans, a
correlation of products. So one bootstrap and one test serve all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filbert.core.random import generator
from filbert.metrics import bootstrap
from filbert.metrics.intervals import wilson

Numbers = npt.NDArray[np.float64]
Score = Callable[[Numbers], Numbers]  # [R, K] sums, in; [R] scores, out
RESAMPLES = 2_000
DOUBT = 0.05  # a difference whose p is above it is none
NEAR = 1e-12  # what differs by rounding alone is equal
BISECTIONS = 40  # to 1e-12, and never so far that a share is 1


@dataclass(frozen=True, slots=True)
class Difference:
    """The first system's score less the second's: its value, a 95 % interval, and how likely chance alone gives it.

    One test says all three: the edge towards 0 is where the test's p would be 0.05, so that p is below 0.05 if and only
    if the interval leaves 0 out. The other edge is the bootstrap's where that is farther.
    """

    measure: str
    value: float
    low: float
    high: float
    p: float
    test: str

    @property
    def is_certain(self) -> bool:
        """Whether chance alone would hardly give it: then, and only then, the interval is on one side of 0."""
        return self.p < DOUBT

    def sentence(self, other: str) -> str:
        """In words: "better than TF-IDF by 1.4 points (95 %: 0.8 to 2.0)"; a point is a hundredth of the measure."""
        if not self.is_certain:
            return (
                f"no better than {other}: {self.value * 100:+.1f} points of {self.measure} "
                f"(95 %: {self.low * 100:+.1f} to {self.high * 100:+.1f}; p = {self.p:.2g})"
            )
        edges = sorted((abs(self.low), abs(self.high)))
        word = "better" if self.value > 0 else "worse"
        return (
            f"{word} than {other} by {abs(self.value) * 100:.1f} points of {self.measure} "
            f"(95 %: {edges[0] * 100:.1f} to {edges[1] * 100:.1f}; p = {self.p:.2g})"
        )


def mcnemar(one_right: npt.ArrayLike, two_right: npt.ArrayLike) -> float:
    """The mid-p of McNemar's exact test: examples that one system alone has right fall either way like a coin's sides.

    Mid-p counts the outcome itself by half, as Fagerland et al. 2013 advise; the exact p is needlessly shy.
    """
    one, two = (np.asarray(side, dtype=bool) for side in (one_right, two_right))
    only = int((one & ~two).sum()), int((two & ~one).sum())
    least, total = min(only), sum(only)
    if not total:
        return 1.0
    k = np.arange(1, least + 1)
    logs = np.concatenate(([0.0], np.cumsum(np.log((total - k + 1) / k)))) - total * math.log(2)
    terms = np.exp(logs)  # of 0, 1, … least heads in `total` throws
    return float(min(1.0, 2 * terms.sum() - terms[-1]))


def accuracy(one_right: npt.ArrayLike, two_right: npt.ArrayLike, seed: int = 0) -> Difference:
    """Of the shares that are right, tested by McNemar's mid-p."""
    one, two = (np.asarray(side, dtype=np.float64)[:, None] for side in (one_right, two_right))
    value, low, high = _interval(one, two, lambda sums: sums[:, 0] / max(1, len(one)), seed)
    only = int((one > two).sum()), int((two > one).sum())
    least, most = _apart(*only, len(one))
    edges = _joined(value, (least, most), (low, high))
    return Difference("accuracy", value, *edges, mcnemar(one_right, two_right), "McNemar, mid-p")


def _apart(first: int, second: int, total: int) -> tuple[float, float]:
    """The differences that McNemar's mid-p would not reject.

    Of the examples that one system alone has right, the first's share is between the mid-p limits of a binomial, and
    1/2 there is a difference of 0. Where the two never part, that share is unknown, and how often they part is bounded
    by Wilson's interval of none.
    """
    parted = first + second
    if not parted:
        edge = wilson(0, total)[1] if total else 0.0
        return -edge, edge
    k = np.arange(1, parted + 1)
    chosen = np.concatenate(([0.0], np.cumsum(np.log((parted - k + 1) / k))))  # log of "parted choose k"
    low = 0.0 if not first else _root(lambda share: _beyond(first, chosen, share) - DOUBT / 2)
    high = 1.0 if not second else _root(lambda share: DOUBT / 2 - _beyond(second, chosen, 1 - share))
    return (2 * low - 1) * parted / total, (2 * high - 1) * parted / total


def _beyond(count: int, chosen: Numbers, share: float) -> float:
    """P(X > count) + P(X = count) / 2 of a binomial with these logarithms of coefficients; grows with the share."""
    k = np.arange(count, len(chosen))
    terms = np.exp(chosen[count:] + k * math.log(share) + (len(chosen) - 1 - k) * math.log1p(-share))
    return float(terms.sum() - terms[0] / 2)


def _root(rising: Callable[[float], float]) -> float:
    """Where a function of a share that grows passes 0."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def compared(one_NK: npt.ArrayLike, two_NK: npt.ArrayLike, score: Score, measure: str, seed: int = 0) -> Difference:
    """Of any score of sums, tested by approximate randomisation: systems change places by chance (Noreen 1989)."""
    one, two = (np.asarray(side, dtype=np.float64) for side in (one_NK, two_NK))
    value, low, high = _interval(one, two, score, seed)
    p, reach = _swapped(one, two, score, seed)
    edges = _joined(value, (value - reach, value + reach), (low, high))
    return Difference(measure, value, *edges, p, "approximate randomisation")


def _joined(value: float, tested: tuple[float, float], drawn: tuple[float, float]) -> tuple[float, float]:
    """Towards 0 the test's edge, away from it the farther one of both; no score is farther than 1 from another."""
    low = tested[0] if value > 0 else min(tested[0], drawn[0])
    high = tested[1] if value < 0 else max(tested[1], drawn[1])
    return max(-1.0, low), min(1.0, high)


def _interval(one_NK: Numbers, two_NK: Numbers, score: Score, seed: int) -> tuple[float, float, float]:
    """The difference, and the percentile bootstrap of it over the examples (Efron 1979)."""
    value = float(score(one_NK.sum(axis=0)[None])[0] - score(two_NK.sum(axis=0)[None])[0])
    kinds, many = _kinds(one_NK, two_NK)
    total, width = int(many.sum()), one_NK.shape[1]
    if not total:
        return 0.0, 0.0, 0.0

    def differences(drawn_RU: bootstrap.Counts) -> dict[str, Numbers]:
        sums = drawn_RU.astype(np.float64) @ kinds
        return {"difference": score(sums[:, :width]) - score(sums[:, width:])}

    drawn = bootstrap.of_counts(many, differences, seed=seed, resamples=RESAMPLES, purpose="paired bootstrap")
    return value, *drawn["difference"]


def _swapped(one_NK: Numbers, two_NK: Numbers, score: Score, seed: int) -> tuple[float, float]:
    """How often systems that change places by chance lie as far apart as these, and how far they rarely do."""
    kinds, many = _kinds(one_NK, two_NK)
    width = one_NK.shape[1]
    apart = kinds[:, width:] - kinds[:, :width]
    sums = [(kinds[:, side] * many[:, None]).sum(axis=0) for side in (slice(width), slice(width, None))]
    wanted = abs(float(score(sums[0][None])[0] - score(sums[1][None])[0])) - NEAR
    random, drawn = generator(seed, "paired swaps"), []
    for size in bootstrap.chunks(RESAMPLES, len(kinds)):
        moved = random.binomial(many, 0.5, size=(size, len(many))).astype(np.float64) @ apart
        drawn.append(np.abs(score(sums[0] + moved) - score(sums[1] - moved)))
    far = np.sort(np.concatenate(drawn))[::-1]
    # p < DOUBT if and only if fewer than `allowed` are as far apart, so if the one in that place is nearer.
    allowed = math.ceil(DOUBT * (RESAMPLES + 1)) - 1
    p = (int((far >= wanted).sum()) + 1) / (RESAMPLES + 1)
    return p, float(far[allowed - 1]) + NEAR


def _kinds(one_NK: Numbers, two_NK: Numbers) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """Examples on which both systems have the same numbers are one kind: [kinds, 2K], and how many each has."""
    kinds, many = np.unique(np.concatenate((one_NK, two_NK), axis=1), axis=0, return_counts=True)
    return kinds, many
