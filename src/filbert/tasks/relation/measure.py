"""A table of right and predicted relations in; precision, recall and F1 of those that are one, with intervals, out.

"No relation" is a label like any other for a model, but finding it is not what is asked: as in TACRED (Zhang et al.
2017) and most work since, what is right there does not count, and what is wrong there counts against the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.records import Wholes
from filbert.metrics import bootstrap
from filbert.metrics.intervals import widened
from filbert.metrics.labels import Confusion


def summary(table: Confusion, none: int | None, level: float = 0.95, seed: int = 0) -> dict[str, Any]:
    """Micro-averaged over the examples; `none` is the place of the label that says that there is no relation."""
    apart = -1 if none is None else none
    there, called = table.rows != apart, table.columns != apart
    chosen = (there & called & (table.rows == table.columns), there & called, there & ~called, ~there & called)
    # Every example is one of five: so much is enough to draw them again.
    right, both, missed, invented = (int(table.counts[which].sum()) for which in chosen)
    kinds = np.array([right, both - right, missed, invented, table.total - both - missed - invented])
    scores = {name: float(value) for name, value in _shares(kinds).items()}
    drawn = bootstrap.of_counts(kinds, lambda drawn_RU: _shares(drawn_RU.T), seed=seed, level=level, rescale=False)
    interval = widened(drawn["micro_f1"], scores["micro_f1"], int(kinds.sum()))
    return {**scores, "intervals": {"micro_f1": list(interval)}}


def _shares(kinds: Wholes) -> dict[str, npt.NDArray[np.float64]]:
    """From [5, …] counts: right, taken for another relation, missed, invented, rightly none."""
    right, confused, missed, invented, _ = kinds
    there, called = right + confused + missed, right + confused + invented
    return {
        "micro_f1": 2 * right / np.maximum(there + called, 1),
        "micro_precision": right / np.maximum(called, 1),
        "micro_recall": right / np.maximum(there, 1),
    }
