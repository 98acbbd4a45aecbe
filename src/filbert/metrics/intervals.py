"""A share and how many examples it is of in; a 95 % interval that knows small numbers, out.

The bootstrap draws the examples again, so that it knows nothing of what none of them shows: of four that are all right
every resample is right, and its interval would be from 1 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

SAME = 1e-12  # edges that are so near are one


def wilson(num_right: float, total: float, share: float = 0.95) -> tuple[float, float]:
    """The score interval of a share (Wilson 1927): 4 of 4 are 0.51 to 1, not 1 to 1. Of nothing, nothing is known."""
    if not total:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + share) / 2)
    part, spread = num_right / total, z * z / total
    middle = part + spread / 2
    half = z * math.sqrt(part * (1 - part) / total + spread / (4 * total))
    low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
    # An edge that is 0 or 1 by the formula must be so in floating point too.
    return (0.0 if num_right == 0 else max(0.0, low)), (1.0 if num_right == total else min(1.0, high))


def widened(edges: Sequence[float], value: float, total: int, most: float = 1.0) -> tuple[float, float]:
    """The bootstrap's edges; where all resamples are alike, those of a share of that value of so many examples.

    For scores from 0 to `most`, such as F1: an example is right in part, and what is right in part varies less.
    """
    low, high = float(edges[0]), float(edges[1])
    if not total or high - low > SAME * most:
        return low, high
    low, high = wilson(min(max(value / most, 0.0), 1.0) * total, total)
    return low * most, high * most
