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


def predictions(
    scores_NL: npt.ArrayLike, labels: Sequence[str], coverage: Sequence[float] | None = None
) -> list[Prediction]:
    """The likeliest label of each text, with the probability of every label, the likeliest first."""
    shares = probabilities(scores_NL)
    order = np.argsort(-shares, axis=-1, kind="stable")
    covered = [1.0] * len(shares) if coverage is None else coverage
    return [
        Prediction(
            label=labels[row[0]], scores={labels[place]: float(own[place]) for place in row}, coverage=float(share)
        )
        for row, own, share in zip(order.tolist(), shares, covered, strict=True)
    ]
