"""Windows of a text and what was measured in each in; one row for each token, or one for the text, out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.text.windows import WindowEncoding

Numbers = npt.NDArray[Any]


def by_owner(windows: Sequence[WindowEncoding], rows: Sequence[Numbers], part: int = 0) -> Numbers:
    """[N, ...] a row for each token of that text, from [window's tokens, ...] of each window: its owner's."""
    return np.concatenate(
        [row[window.owned & (window.parts == part)] for window, row in zip(windows, rows, strict=True)]
    )


def slices(windows: Sequence[WindowEncoding], text: str, part: int = 0) -> list[str]:
    """What each token of that text is cut from, by its owner's offsets."""
    starts, ends = (
        by_owner(windows, column, part) for column in zip(*((w.starts, w.ends) for w in windows), strict=True)
    )
    return [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def mean_by_owned(windows: Sequence[WindowEncoding], rows: Numbers) -> Numbers:
    """[...] of the text, from [windows, ...]: the mean, each window weighing as many tokens as it owns."""
    return np.asarray(np.average(rows, axis=0, weights=[window.owned.sum() for window in windows]))
