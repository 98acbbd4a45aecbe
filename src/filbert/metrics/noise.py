"""Probabilities from models that never saw an example's label, and the labels given, in; probable label errors out.

Legend: N examples, L labels, V views (models that look at the texts each in its own way).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
LEAST = 1e-6  # no view may rule a label out for good
NEARLY = 0.1  # a label whose lead is below this is in doubt: 0 misses 9 % of planted errors in ChnSentiCorp, 0.1 7 %


@dataclass(frozen=True, slots=True)
class Suspects:
    """Examples whose label is probably wrong, the likeliest first, and how many errors there are by an estimate."""

    rows: Places  # [S]
    margins: Numbers  # [S] p(given) - p(best other): from -1 up to NEARLY
    instead: Places  # [S] the likeliest other label
    estimated: int


def agreed(shares: Sequence[Numbers]) -> Numbers:
    """[N, L] the geometric mean of what the views say: where one is unsure the others decide."""
    logs = sum(np.log(np.maximum(view, LEAST)) for view in shares) / len(shares)
    powers = np.exp(logs - np.max(logs, axis=1, keepdims=True))
    probabilities: Numbers = powers / powers.sum(axis=1, keepdims=True)
    return probabilities


def suspects(shares_NL: Numbers, gold: npt.ArrayLike) -> Suspects:
    """Every example of which another label is likelier than its own, or nearly as likely, by how much.

    The estimate is the confident joint's (Northcutt et al. 2021): it counts those whose other label is as likely as it
    is, on average, for the examples that have it.
    """
    labels = np.asarray(gold, dtype=np.int64)
    rows = np.arange(len(labels))
    of_labels = shares_NL[rows, labels]
    others = shares_NL.copy()
    others[rows, labels] = -1.0
    instead = others.argmax(axis=1)
    margins = of_labels - others[rows, instead]
    flagged = np.flatnonzero(margins < NEARLY)
    order = flagged[np.argsort(margins[flagged], kind="stable")]
    counts = np.bincount(labels, minlength=shares_NL.shape[1])
    usual = np.bincount(labels, of_labels, minlength=shares_NL.shape[1]) / np.maximum(counts, 1)
    usual[counts == 0] = np.inf  # of a label that nothing has, nothing is usual
    sure = others[rows, instead] >= usual[instead]
    return Suspects(order, margins[order], instead[order], int((sure & (margins < 0)).sum()))
