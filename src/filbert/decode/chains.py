"""A CRF's scores of units in, the probability of every tag at every unit out, without torch.

Legend: T units of all sequences laid end to end, L tags, n sequences that still go on at a step.

The forward and the backward algorithm over sequences side by side, as nn.crf walks them; sums are float32 as there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.records import Floats
from filbert.decode.tags import Allowed, steps

NEVER = np.float32(-1e30)  # the logarithm of what cannot be


def marginals(
    scores_TL: npt.ArrayLike, boundaries: npt.ArrayLike, weights: tuple[Floats, Floats, Floats], legal: Allowed
) -> Floats:
    """[T, L] how likely each tag is over all legal sequences; weights: begin [L], transitions [L, L], end [L]."""
    scores = np.asarray(scores_TL, dtype=np.float32)
    masks = (legal.begin, legal.pair, legal.end)
    begin_L, pair_LL, end_L = (np.where(may, own, NEVER) for own, may in zip(weights, masks, strict=True))
    walk = steps(boundaries, len(scores))
    by_step_TL = scores[walk.rows]
    alpha_TL = np.empty_like(by_step_TL)
    raw_nL = begin_L + by_step_TL[: len(walk.order)]
    for start, end, num_on in walk.ranges:
        if start:
            raw_nL = _summed(raw_nL, pair_LL) + by_step_TL[start:end]
        raw_nL = raw_nL - _total(raw_nL, 1)[:, None]
        alpha_TL[start:end] = raw_nL
        raw_nL = raw_nL[:num_on]
    own_TL, beta_nL = np.empty_like(alpha_TL), np.zeros((0, len(end_L)), dtype=np.float32)
    for start, end, num_on in reversed(walk.ranges):
        if num_on:
            beta_nL = _summed(by_step_TL[end : end + num_on] + beta_nL, pair_LL.T)
            beta_nL = beta_nL - beta_nL.max(axis=1, keepdims=True)
        beta_nL = np.concatenate((beta_nL, np.broadcast_to(end_L, (end - start - num_on, len(end_L)))))
        log_nL = alpha_TL[start:end] + beta_nL
        own_TL[start:end] = np.exp(log_nL - _total(log_nL, 1)[:, None])
    found = np.empty_like(own_TL)
    found[walk.rows] = own_TL
    return found


def _summed(x_nL: Floats, pair_LL: Floats) -> Floats:
    """[n, L] log Σ_i exp(x[i] + pair[i, j])."""
    return _total(x_nL[:, :, None] + pair_LL, 1)


def _total(x: npt.NDArray[Any], axis: int) -> Floats:
    """The logarithm of the sum of exponentials."""
    most = x.max(axis=axis, keepdims=True, initial=NEVER)
    return np.asarray(np.log(np.exp(x - most).sum(axis=axis)) + most.squeeze(axis), dtype=np.float32)
