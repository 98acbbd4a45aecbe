"""Right options and chosen ones in; how many agree, with an interval, and what could be had without reading, out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.metrics.intervals import wilson


def summary(
    is_right: npt.ArrayLike, gold: npt.ArrayLike, num_options: npt.ArrayLike, share: float = 0.95
) -> dict[str, Any]:
    """Accuracy beside that of always taking the most frequent place, and of chance."""
    right, places, counts = (np.asarray(values) for values in (is_right, gold, num_options))
    total = len(right)
    accuracy = float(right.mean()) if total else 0.0
    low, high = wilson(int(right.sum()), total, share) if total else (0.0, 0.0)
    return {
        "accuracy": accuracy,
        "majority_accuracy": float(np.bincount(places).max() / total) if total else 0.0,
        "chance_accuracy": float((1 / counts).mean()) if total else 0.0,
        "num_examples": total,
        "intervals": {"accuracy": [low, high]},
    }
