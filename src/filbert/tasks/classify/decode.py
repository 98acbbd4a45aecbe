"""A head's scores for each label in, predictions in the user's own labels out.

Legend: N texts, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from filbert.core.records import Prediction


def probabilities(scores_NL: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The softmax of each row, [N, L]."""
    scores = np.asarray(scores_NL, dtype=np.float64)
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: npt.NDArray[np.float64] = shifted / shifted.sum(axis=-1, keepdims=True)
    return shares


def chances(scores_NL: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """[N, L] how likely each label is by itself: a text may have several, or none."""
    scores = np.asarray(scores_NL, dtype=np.float64)
    chances: npt.NDArray[np.float64] = 0.5 + 0.5 * np.tanh(0.5 * scores)  # the logistic function, which never overflows
    return chances


def set_predictions(scores_NL: npt.ArrayLike, labels: Sequence[str], least: float) -> list[Prediction]:
    """All labels of each text that are at least so likely, with the probability of every one, the likeliest first."""
    result = []
    shares_NL = chances(scores_NL)
    order = np.argsort(-shares_NL, axis=-1, kind="stable")
    for places, shares in zip(order.tolist(), shares_NL.tolist(), strict=True):
        likely = tuple(labels[place] for place in places if shares[place] >= least)
        result.append(Prediction(labels=likely, scores={labels[place]: shares[place] for place in places}))
    return result


def predictions(
    scores_NL: npt.ArrayLike, labels: Sequence[str], coverage: Sequence[float] | None = None
) -> list[Prediction]:
    """The likeliest label of each text, with the probability of every label, the likeliest first."""
    shares = probabilities(scores_NL)
    order = np.argsort(-shares, axis=-1, kind="stable")
    covered = [1.0] * len(shares) if coverage is None else coverage
    return [
        Prediction(
            label=labels[row[0]],
            scores={labels[place]: float(row_shares[place]) for place in row},
            coverage=float(share),
        )
        for row, row_shares, share in zip(order.tolist(), shares, covered, strict=True)
    ]
