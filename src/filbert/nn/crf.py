"""A linear-chain CRF over packed sequences: scores of units in, likelihoods with their gradients out.

Legend: T units of all sequences laid end to end, B sequences, L tags, n sequences that still go on at a step.

p(tags) ∝ exp(begin + Σ scores + Σ transitions + end) (Lafferty et al. 2001). Sequences are walked side by side, without
padding: the loop is over the steps of the longest one (nn.crf_walk.steps). Sums are float32, or float64 where the
scores are; each step is scaled anew, so long sequences lose nothing. Decoding a text, the best legal tags and
how likely each tag is, needs no torch: nn.crf_walk.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from filbert.core.errors import InputError
from filbert.core.records import Wholes
from filbert.nn.attention import placed
from filbert.nn.crf_walk import Allowed, Steps, steps

Boundaries = Tensor | Wholes | list[int]  # [B+1]; on the host, else the GPU is waited for


class Weights(NamedTuple):
    """A CRF's scores, those of forbidden steps at NEVER."""

    begin_L: Tensor
    pair_LL: Tensor
    end_L: Tensor


# The logarithm of what cannot be. Finite: the gradient of a sum over -inf alone is NaN; here it is an exact zero.
NEVER = -1e30


class CRF(nn.Module):
    """Scores for the first tag, for each pair of neighbours and for the last one, learnt; some of them forbidden.

    It begins at zero: a softmax for each unit, over legal sequences. What `allowed` forbids has no probability, gets
    no gradient and is never predicted (crf_walk.viterbi), whatever the scores.
    """

    may_begin: Tensor
    may_pair: Tensor
    may_end: Tensor

    def __init__(self, num_labels: int, allowed: Allowed | None = None) -> None:
        super().__init__()
        _left_uncompiled()
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))  # from row to column
        self.begin = nn.Parameter(torch.zeros(num_labels))
        self.end = nn.Parameter(torch.zeros(num_labels))
        ones = np.ones(num_labels, dtype=np.bool_)
        self.allowed = Allowed(ones, np.ones((num_labels, num_labels), np.bool_), ones) if allowed is None else allowed
        length = self.allowed.impossible()
        if length is not None:
            raise InputError(f"what is allowed leaves no legal tags for a sequence of {length} units.")
        for name in ("begin", "pair", "end"):  # they follow from the tags, so they are not saved with the weights
            self.register_buffer(f"may_{name}", torch.as_tensor(getattr(self.allowed, name)), persistent=False)

    def under(self, allowed: Allowed) -> CRF:
        """The same weights where only this is allowed: a model has the number of tags, its task their names."""
        other = CRF(len(self.begin), allowed).to(self.begin.device)
        other.begin, other.transitions, other.end = self.begin, self.transitions, self.end
        return other

    def loss(
        self, scores_TL: Tensor, gold_T: Tensor, rows_U: Tensor, lengths: Tensor, weights_B: Tensor, allowed: Allowed
    ) -> Tensor:
        """Minus the log-probability of the gold tags of known sequences, whose units stand in some rows, in order.

        lengths: how many units each has; on the host, so that nothing waits for a GPU.
        """
        bounds = np.concatenate(([0], np.cumsum(_host(lengths))))
        gold_U = gold_T[rows_U].clamp(min=0)  # of an unknown sequence any: it is weighed by nothing
        log_likelihood_B = self.under(allowed).log_likelihood(scores_TL[rows_U], gold_U, bounds, check=False)
        return -(log_likelihood_B * weights_B).sum()

    def log_likelihood(self, scores_TL: Tensor, gold_T: Tensor, boundaries: Boundaries, check: bool = True) -> Tensor:
        """[B] the log-probability of the gold tags; 0 for an empty sequence.

        A gold step that is not allowed is an error that names it: it has no probability, and to leave it out would
        lose the user's data. The check waits for a GPU; without it (where `Allowed.broken` has looked before), such a
        sequence gets about NEVER.
        """
        bounds = _host(boundaries)
        if check:
            self._check(gold_T, bounds)
        scores_TL, weights = self._ready(scores_TL)
        begin_L, pair_LL, end_L = weights
        gold_T = gold_T.long()
        lengths = np.diff(bounds)
        filled = np.flatnonzero(lengths)
        emission_T = scores_TL.gather(1, gold_T[:, None]).squeeze(1)
        # What came before each unit: the begin for a first one, else a transition from its neighbour on the left.
        first, last = (self._places(places[filled]) for places in (bounds[:-1], bounds[1:] - 1))
        is_first = torch.zeros(len(gold_T), dtype=torch.bool, device=gold_T.device).index_fill(0, first, True)
        step_T = torch.where(is_first, begin_L[gold_T], pair_LL[gold_T.roll(1), gold_T])
        path_B = _sums(emission_T + step_T, lengths)
        path_B = path_B.index_add(0, self._places(filled), end_L[gold_T[last]])  # each place once: no order to matter
        return path_B - self._log_partition(scores_TL, weights, bounds)

    def log_partition(self, scores_TL: Tensor, boundaries: Boundaries) -> Tensor:
        """[B] the logarithm of the sum over all legal sequences."""
        return self._log_partition(*self._ready(scores_TL), _host(boundaries))

    def divergence(self, scores_TL: Tensor, other: CRF, other_TL: Tensor, lengths: Tensor, heat: float = 1.0) -> Tensor:
        """Σ over sequences of KL(other ‖ self), of whole legal sequences of tags, all scores divided by `heat`.

        Both are exponential families, so it is Σ μ·(θ' - θ) + log Z(θ) - log Z(θ'), with θ all scores and μ = ∇log Z
        (θ') the other's marginals of units and pairs: nothing is summed over sequences one by one.
        """
        bounds = np.concatenate(([0], np.cumsum(_host(lengths))))
        student, teacher = (
            [part / heat for part in (scores, *weights)]
            for scores, weights in (self._ready(scores_TL), other._ready(other_TL))
        )
        with torch.enable_grad():
            leaves = [part.detach().requires_grad_() for part in teacher]
            total = self._log_partition(leaves[0], Weights(*leaves[1:]), bounds).sum()
        means = torch.autograd.grad(total, leaves)
        between = sum(
            (mean * (two.detach() - one)).sum() for mean, one, two in zip(means, student, teacher, strict=True)
        )
        partition: Tensor = self._log_partition(student[0], Weights(*student[1:]), bounds).sum()
        return partition + between - total.detach()

    def _ready(self, scores_TL: Tensor) -> tuple[Tensor, Weights]:
        """Scores and weights in the precision of the sums, what is forbidden set to NEVER."""
        kind = torch.float64 if scores_TL.dtype == torch.float64 else torch.float32
        masks = (self.may_begin, self.may_pair, self.may_end)
        weights = (self.begin, self.transitions, self.end)
        begin, pair, end = (
            torch.where(may, weight.to(kind), NEVER) for weight, may in zip(weights, masks, strict=True)
        )
        return scores_TL.to(kind), Weights(begin, pair, end)

    def _log_partition(self, scores_TL: Tensor, weights: Weights, bounds: npt.NDArray[np.int64]) -> Tensor:
        walk = steps(bounds, len(scores_TL))
        by_step_TL = scores_TL[self._places(walk.rows)]
        total_n: Tensor = _LogPartition.apply(by_step_TL, *weights, walk)  # type: ignore[no-untyped-call]
        return total_n.new_zeros(len(bounds) - 1).index_copy(0, self._places(walk.order), total_n)

    def _places(self, places: npt.NDArray[np.int64]) -> Tensor:
        return placed(places, self.begin.device)

    def _check(self, gold_T: Tensor, bounds: npt.NDArray[np.int64]) -> None:
        gold = gold_T.cpu().numpy()
        broken = self.allowed.broken(gold, bounds)
        if len(broken):
            unit = int(broken[0])
            sequence = int(np.searchsorted(bounds, unit, side="right")) - 1
            begins = unit == bounds[sequence]
            before = "the beginning" if begins else f"tag {gold[unit - 1]}"
            raise InputError(
                f"sequence {sequence} of the batch, unit {unit - bounds[sequence]}: gold tag {gold[unit]} after "
                f"{before} is not allowed (or may not be the last), at {len(broken)} places in all; mend the tags, "
                "or read them as spans and write these as tags."
            )


class _Context(FunctionCtx):
    """What the forward pass leaves to the backward pass."""

    saved_tensors: tuple[Tensor, ...]
    walk: Steps


class _LogPartition(torch.autograd.Function):
    """The forward algorithm; its gradient are the marginals, by the backward algorithm: nothing [T, L, L] is kept."""

    @staticmethod
    def forward(
        ctx: _Context, by_step_TL: Tensor, begin_L: Tensor, pair_LL: Tensor, end_L: Tensor, walk: Steps
    ) -> Tensor:
        alpha_TL, total_n = _forward(by_step_TL, Weights(begin_L, pair_LL, end_L), walk)
        ctx.save_for_backward(by_step_TL, alpha_TL, begin_L, pair_LL, end_L)
        ctx.walk = walk
        return total_n

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad_n: Tensor) -> tuple[Tensor | None, ...]:
        by_step_TL, alpha_TL, begin_L, pair_LL, end_L = ctx.saved_tensors
        units_TL, pairs_LL = _backward(by_step_TL, alpha_TL, Weights(begin_L, pair_LL, end_L), ctx.walk, grad_n)
        grad_end_L = torch.zeros_like(end_L)
        for start, end, num_on in ctx.walk.ranges:
            grad_end_L += units_TL[start + num_on : end].sum(0)  # the last units of those that end here
        return units_TL, units_TL[: len(grad_n)].sum(0), pairs_LL, grad_end_L, None


@cache
def _left_uncompiled() -> None:
    """Keeps a CRF's sums out of compiled graphs: a walk as long as the longest sequence would serve one batch alone.

    Done when the first CRF is made: naming it loads torch's compiler, a second that no other model should wait for.
    """
    for name in ("loss", "divergence"):
        setattr(CRF, name, torch.compiler.disable(getattr(CRF, name)))  # type: ignore[no-untyped-call]


def _forward(by_step_TL: Tensor, weights: Weights, walk: Steps) -> tuple[Tensor, Tensor]:
    """The log-weights of each tag given all before it, each row summing to one, [T, L]; and the log-partition, [n]."""
    begin_L, pair_LL, end_L = weights
    ahead = _Sums(pair_LL)
    alpha_TL = torch.empty_like(by_step_TL)
    raw_nL = begin_L + by_step_TL[: len(walk.order)]
    total_n = raw_nL.new_zeros(len(walk.order))
    for start, end, num_on in walk.ranges:
        count = end - start
        if start:
            raw_nL = ahead(raw_nL) + by_step_TL[start:end]
        scale_n = raw_nL.logsumexp(1)
        raw_nL = alpha_TL[start:end] = raw_nL - scale_n[:, None]
        total_n[:count] += scale_n
        total_n[num_on:count] += (raw_nL[num_on:] + end_L).logsumexp(1)
        raw_nL = raw_nL[:num_on]
    return alpha_TL, total_n


def _backward(
    by_step_TL: Tensor, alpha_TL: Tensor, weights: Weights, walk: Steps, grad_n: Tensor
) -> tuple[Tensor, Tensor]:
    """Each unit's marginals [T, L] and the sum of those of pairs [L, L], both weighed by the sequences' grad_n."""
    _, pair_LL, end_L = weights
    units_TL, pairs_LL, back = torch.empty_like(alpha_TL), torch.zeros_like(pair_LL), _Sums(pair_LL.T)
    beta_nL = alpha_TL.new_zeros(0, len(end_L))
    for start, end, num_on in reversed(walk.ranges):
        if num_on:
            after_nL = by_step_TL[end : end + num_on] + beta_nL
            joint_nLL = alpha_TL[start : start + num_on, :, None] + pair_LL + after_nL[:, None, :]
            pairs_LL += torch.mv(joint_nLL.flatten(1).softmax(1).T, grad_n[:num_on]).view_as(pairs_LL)
            beta_nL = back(after_nL)
            beta_nL = beta_nL - beta_nL.max(1, keepdim=True).values  # kept near 0; softmax divides it out
        ends_nL = end_L.expand(end - start - num_on, -1)
        beta_nL = torch.cat((beta_nL, ends_nL))
        marginals_nL = (alpha_TL[start:end] + beta_nL).softmax(1)
        units_TL[start:end] = marginals_nL * grad_n[: end - start, None]
    return units_TL, pairs_LL


class _Sums:
    """log Σ_i exp(x[i] + pair[i, j]) for rows of x.

    On a CPU the sum is a matrix product: L² exponentials once instead of L² for each row, and those of NEVER are slow.
    A row that comes near the end of the floats' range is summed anew without leaving the logarithms.
    """

    LEAST = 1e-30

    def __init__(self, pair_LL: Tensor) -> None:
        self.pair_LL = pair_LL
        self.top = pair_LL.max() if pair_LL.numel() else pair_LL.new_zeros(())
        self.exp_LL = (pair_LL - self.top).exp()
        self.never_L = (pair_LL <= NEVER / 2).all(0)  # nothing leads there

    def __call__(self, x_nL: Tensor) -> Tensor:
        if x_nL.is_cuda:  # to ask for rows that need it would wait for the GPU
            return self.exact(x_nL)
        most_n1 = x_nL.max(1, keepdim=True).values
        sums_nL = (x_nL - most_n1).exp() @ self.exp_LL
        near_n = ((sums_nL < self.LEAST) & ~self.never_L).any(1)
        result_nL = (sums_nL.log() + most_n1 + self.top).masked_fill(self.never_L, NEVER)
        if near_n.any():
            result_nL[near_n] = self.exact(x_nL[near_n])
        return result_nL

    def exact(self, x_nL: Tensor) -> Tensor:
        """The same, slower, for any values."""
        return (x_nL[:, :, None] + self.pair_LL).logsumexp(1)


def _sums(values_T: Tensor, lengths: npt.NDArray[np.int64]) -> Tensor:
    """[B] the sum of each sequence's values."""
    sizes = torch.as_tensor(lengths).to(values_T.device, non_blocking=True)
    return torch.segment_reduce(values_T, "sum", lengths=sizes, unsafe=True)


def _host(boundaries: Boundaries) -> npt.NDArray[np.int64]:
    held = boundaries.cpu().numpy() if isinstance(boundaries, Tensor) else boundaries
    return np.asarray(held, dtype=np.int64)
