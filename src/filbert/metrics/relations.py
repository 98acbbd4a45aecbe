"""A table of right and predicted relations in; precision, recall and F1 of those that are one, with intervals, out.

"No relation" is a label like any other for a model, but finding it is not what is asked: as in TACRED (Zhang et al.
2017) and most work since, what is right there does not count, and what is wrong there counts against the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.random import generator
from filbert.metrics.labels import Counts

RESAMPLES = 1_000


def summary(table: Counts, none: int | None, share: float = 0.95, seed: int = 0) -> dict[str, Any]:
    """Micro-averaged over the examples; `none` is the place of the label that says that there is no relation."""
    real = np.ones(len(table), dtype=bool)
    if none is not None:
        real[none] = False
    # Every example is one of five: so much is enough to draw them again.
    right = np.diag(table)[real].sum()
    both, missed, invented = table[real][:, real].sum(), table[real][:, ~real].sum(), table[~real][:, real].sum()
    kinds = np.array([right, both - right, missed, invented, table.sum() - both - missed - invented])
    found = {name: float(value) for name, value in _shares(kinds).items()}
    total = int(kinds.sum())
    drawn = generator(seed, "bootstrap").multinomial(total, kinds / max(1, total) if total else [0.2] * 5, RESAMPLES)
    edges = ((1 - share) / 2, (1 + share) / 2)
    return {**found, "intervals": {"micro_f1": [float(e) for e in np.quantile(_shares(drawn.T)["micro_f1"], edges)]}}


def _shares(kinds: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.float64]]:
    """From [5, …] counts: right, taken for another relation, missed, invented, rightly none."""
    right, confused, missed, invented, _ = kinds
    there, called = right + confused + missed, right + confused + invented
    return {
        "micro_f1": 2 * right / np.maximum(there + called, 1),
        "micro_precision": right / np.maximum(called, 1),
        "micro_recall": right / np.maximum(there, 1),
    }
