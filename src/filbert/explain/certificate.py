"""An explanation and the text that it is of in; how far it can be believed out, as numbers, a verdict and a sentence.

Two questions decide, each answered by a permutation test, so that it is known how often chance alone would pass it:

1. Does the model know these words? Every token is replaced by one that nobody knows, the same wherever it stands: each
   coordinate of its vector is that of another random token. To a model whose weights are random, the text is
   exchangeable with such texts, so that whatever is measured of all alike ranks the text by pure chance. An explanation
   of such a model may follow its function faithfully and yet tells nothing about the label; it must not pass. What is
   measured is the lift: how far the target's score lies from the median of what random words get. Where the model chose
   the target, as what it is surest of, each random text has its own choice, and how sure of it the model is is added.
2. Does the order of the words matter? Comprehensiveness is how far the score falls without the first words, sufficiency
   how far it falls with them alone (DeYoung et al. 2020), here each the mean over three shares of the words, in the
   units of the target. Comprehensiveness less sufficiency is compared with that of random orders and of their reverses.
   A random order finds the one word that matters with a chance of 1 / words: of few words no order can be sure.

"faithful": both tests pass, and the numbers of a method that promises to sum to the score do. "random": the model says
the same of random words, or random orders do as well. "weak": all between, and what cannot be told. Stability and
agreement are rank correlations (Spearman); they are told and do not judge: methods that differ may each be right.

Legend: N copies, W words, O orders, K sizes, C columns of the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core.random import generator
from filbert.explain.attribution import COMPLETE, GRADIENTS, METHODS, TINY, Attribution, Changeable
from filbert.metrics.numbers import spearman

if TYPE_CHECKING:
    from filbert.explain.perturbation import Perturbation

Numbers = npt.NDArray[np.float64]
SHARES = (0.2, 0.5, 0.8)  # of the words that are kept or left out: as many from the top as from the bottom
RANDOM_TEXTS, LIFT_P = 66, 0.03  # at most one of them may do as well: 2 / (66 + 1)
ORDERS, FEWEST_ORDERS = 40, 20  # each with its reverse
FAITHFUL_P, WEAK_P = 0.05, 0.2
MOST_GAP = 0.05  # completeness: a method that is off by more has not computed what it says
LEAST_RANKED = 3  # words whose ranks can be compared


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far an explanation can be believed."""

    verdict: str  # faithful | weak | random
    sentence_en: str
    sentence_zh: str
    numbers: Mapping[str, float | tuple[float, float]]  # what could be measured, by name; pairs are 95 % of random ones

    def as_view(self) -> dict[str, Any]:
        """As a view has it."""
        numbers = {name: list(value) if isinstance(value, tuple) else value for name, value in self.numbers.items()}
        sentences = {"sentence_en": self.sentence_en, "sentence_zh": self.sentence_zh}
        return {"verdict": self.verdict, **sentences, "numbers": numbers}


@dataclass(frozen=True, slots=True)
class Ordered:
    """What the order of the words does, beside what random orders do."""

    comprehensiveness: float
    sufficiency: float
    random_comprehensiveness: tuple[float, float]  # 95 % of random orders
    random_sufficiency: tuple[float, float]
    p: float  # the share of random orders that do as well


def ordered(perturbation: Changeable, scores_W: Numbers, orders: int = ORDERS, seed: int = 0) -> Ordered:
    """The words by their scores, highest first, against random orders."""
    count = len(scores_W)
    sizes_K = _sizes(count)
    random = generator(seed, "orders")
    order_OW = np.array([np.argsort(-scores_W, kind="stable"), *(random.permutation(count) for _ in range(orders))])
    rank_OW = np.argsort(order_OW, axis=1)
    first_OKW = rank_OW[:, None] < sizes_K[:, None]
    last_OKW = rank_OW[:, None] >= (count - sizes_K)[:, None]
    kept_NW = np.concatenate((np.ones((1, count), np.bool_), *(x.reshape(-1, count) for x in (first_OKW, last_OKW))))
    value, *others = perturbation.values(kept_NW).tolist()
    first_O, last_O = np.array(others).reshape(2, -1, len(sizes_K)).mean(2)
    # Sizes come in pairs, k and W - k, so "all but the first" of an order are "the first" of its reverse.
    falls, holds = value - last_O, value - first_O
    random_falls, random_holds = (np.concatenate(both) for both in ((falls[1:], holds[1:]), (holds[1:], falls[1:])))
    beaten = random_falls - random_holds >= falls[0] - holds[0] - TINY
    return Ordered(
        float(falls[0]), float(holds[0]), _middle(random_falls), _middle(random_holds),
        (1 + int(beaten.sum())) / (1 + len(beaten)),
    )  # fmt: skip


def _sizes(count: int) -> npt.NDArray[np.int64]:
    """[K] how many words are kept, from one to all but one."""
    some = np.clip(np.rint(np.array(SHARES) * count), 1, count - 1).astype(np.int64)
    return np.unique(np.concatenate((some, count - some)))


@dataclass(frozen=True, slots=True)
class Lift:
    """How far the target's score lies above what random words get."""

    lift: float
    random: tuple[float, float]  # 95 % of the lifts of random texts
    p: float


def measured_lift(perturbation: Perturbation, texts: int = RANDOM_TEXTS, seed: int = 0) -> Lift:
    """The lift of the target over random words, beside theirs."""
    random_NC = perturbation.controls([generator(seed, "random words", example=index) for index in range(texts)])
    table_NC = np.concatenate((perturbation.first_C[None], random_NC)).astype(np.float64)
    lift_NC = table_NC - np.median(table_NC, axis=0)  # over all, the text too: no text is treated otherwise
    column_N = np.full(len(table_NC), perturbation.column)
    if perturbation.chosen and table_NC.shape[1] > 1:
        column_N[1:] = table_NC[1:].argmax(axis=1)
        measured_NC = lift_NC + table_NC
    else:
        measured_NC = np.abs(lift_NC)
    lift_N, measured_N = (each[np.arange(len(column_N)), column_N] for each in (lift_NC, measured_NC))
    as_well = int((measured_N[1:] >= measured_N[0]).sum())
    return Lift(float(lift_N[0]), _middle(lift_N[1:]), (1 + as_well) / (1 + texts))


def certified(
    perturbation: Perturbation, method: str, attribution: Attribution, *, budget: int, seed: int = 0
) -> Certificate:
    """The certificate of what a method found; budget: tokens that may be read for it."""
    count, reads = len(perturbation.words), budget // max(1, perturbation.size)
    numbers: dict[str, float | tuple[float, float]] = {"words": float(count)}
    empty = float(perturbation.values(np.zeros((1, count), np.bool_))[0])
    gap = abs(float(attribution.scores.sum()) - (perturbation.value - empty)) / max(
        abs(perturbation.value - empty), TINY
    )
    numbers["completeness_gap"] = gap
    per_order = 2 * len(_sizes(count)) if count > 1 else 1
    needed = RANDOM_TEXTS + FEWEST_ORDERS * per_order
    if reads < needed:
        return Certificate("weak", *_too_long(perturbation.size, needed * perturbation.size), numbers)
    lift = measured_lift(perturbation, seed=seed)
    numbers |= {"lift": lift.lift, "lift_random": lift.random, "lift_p": lift.p}
    order = None
    if count > 1:
        orders = min(ORDERS, (reads - RANDOM_TEXTS) // per_order)
        order = ordered(perturbation, attribution.scores, orders, seed)
        numbers |= {
            "comprehensiveness": order.comprehensiveness,
            "comprehensiveness_random": order.random_comprehensiveness,
            "sufficiency": order.sufficiency,
            "sufficiency_random": order.random_sufficiency,
            "order_p": order.p,
        }
    if count >= LEAST_RANKED:
        numbers |= _stability(perturbation, method, attribution, budget, seed)
    gap = gap if method in COMPLETE else 0.0
    return Certificate(*_verdict(lift, order, gap, count), numbers)


def _stability(
    perturbation: Perturbation, method: str, attribution: Attribution, budget: int, seed: int
) -> dict[str, float]:
    """Rank correlations: with other baselines, with another seed, with another method."""
    numbers: dict[str, float] = {}
    if method == "sampling":
        numbers["same_over_seeds"] = _alike(attribution, METHODS[method](perturbation, budget, seed + 1))
    elif method != "attention-rollout" and perturbation.baseline != "delete":
        others = [name for name in ("mask", "pad", "zero") if name != perturbation.baseline]
        others = [name for name in others if name != "zero" or perturbation.has_vectors]
        again = [METHODS[method](perturbation.with_baseline(name), budget, seed) for name in others]
        numbers["same_over_baselines"] = min(_alike(attribution, each) for each in again)
    other = "occlusion"
    if method == other:
        other = GRADIENTS[0] if perturbation.has_vectors and perturbation.baseline != "delete" else "sampling"
    numbers[f"agreement_with_{other.replace('-', '_')}"] = _alike(
        attribution, METHODS[other](perturbation, budget, seed)
    )
    return numbers


def _alike(one: Attribution, two: Attribution) -> float:
    return float(spearman(one.scores, two.scores))


def _middle(values: Numbers) -> tuple[float, float]:
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return float(low), float(high)


def _verdict(lift: Lift, order: Ordered | None, gap: float, count: int) -> tuple[str, str, str]:
    """The verdict and its sentence in two languages."""
    if lift.p > LIFT_P:
        return (
            "random",
            "No better than random: with random vectors in place of these words the model is as sure "
            f"(p = {lift.p:.2f}), so they do not say why.",
            f"不比随机更好：把这些词换成随机向量，模型同样有把握（p = {lift.p:.2f}），因此它们说明不了原因。",
        )
    if order is None:
        return (
            "weak",
            "Weak: the text has one word, so there is no order to test.",
            "偏弱：文本只有一个词，无从检验次序。",
        )
    share = 1 - order.p
    if order.p > WEAK_P:
        return (
            "random",
            f"No better than random: {order.p:.0%} of random orders of the words do as well (p = {order.p:.2f}).",
            f"不比随机更好：{order.p:.0%} 的随机次序效果同样好（p = {order.p:.2f}）。",
        )
    if gap > MOST_GAP:
        return (
            "weak",
            f"Weak: the numbers miss the score that they should sum to by {gap:.0%}.",
            f"偏弱：各词数值之和与应有的分数相差 {gap:.0%}。",
        )
    if order.p > FAITHFUL_P:
        return (
            "weak",
            f"Weak: the order of the words beats {share:.0%} of random orders, which in a text of {count} words may be "
            f"chance (p = {order.p:.2f}).",
            f"偏弱：词的次序胜过 {share:.0%} 的随机次序，但文本只有 {count} 个词，可能是巧合（p = {order.p:.2f}）。",
        )
    return (
        "faithful",
        f"Faithful: the score follows these words more closely than {share:.0%} of random orders (p = {order.p:.2f}), "
        f"and random vectors in their place score lower (p = {lift.p:.2f}).",
        f"可信：分数随这些词而变，胜过 {share:.0%} 的随机次序（p = {order.p:.2f}）；"
        f"换成随机向量，分数更低（p = {lift.p:.2f}）。",
    )


def _too_long(size: int, needed: int) -> tuple[str, str]:
    return (
        f"Weak: not compared with random order, since the text is long ({size:,} tokens); budget={needed:,} allows it.",
        f"偏弱：文本有 {size:,} 个词元，太长，未与随机次序比较；设 budget={needed:,} 即可检验。",
    )
