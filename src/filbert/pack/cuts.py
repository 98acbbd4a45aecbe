"""The tokens of many texts or pairs in, the windows that each is read in out: stretches of one array of all tokens.

The windows are those of text.windows; here they are places, for all examples of a task at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from filbert.text.windows import plan

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cuts:
    """All windows of all examples in order: example i has windows edges[i]:edges[i+1].

    A window is a stretch of its first text and, of a pair, one of its second: places in one array of all tokens. Of
    these it answers for some. Without a second text those columns are empty stretches.
    """

    edges: Places  # [N+1]
    first: Places  # [B, 4] start and end of what it reads, and of what it answers for
    second: Places  # [B, 4]
    specials: int  # [CLS] and each [SEP]

    @property
    def lengths(self) -> Places:
        """[B] tokens of each window as the model reads it."""
        read: Places = self.first[:, 1] - self.first[:, 0] + self.second[:, 1] - self.second[:, 0]
        return read + self.specials

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """[B] how much each window counts among those of its example."""
        answered = self.first[:, 3] - self.first[:, 2] + self.second[:, 3] - self.second[:, 2]
        owned = np.maximum(answered, 1).astype(np.float64)  # an empty text has one empty window
        if len(owned) == len(self.edges) - 1:
            return np.ones(len(owned))
        totals = np.add.reduceat(owned, self.edges[:-1]) if len(owned) else owned
        shares: npt.NDArray[np.float64] = owned / np.repeat(totals, np.diff(self.edges))
        return shares


def cuts(first: Places, second: Places | None, max_length: int, overlap: int) -> Cuts:
    """The windows of examples whose tokens lie end to end: text i at first[i]:first[i+1], or a pair with second's."""
    specials = 2 if second is None else 3
    sides = [first, np.zeros_like(first) if second is None else second]
    sizes = [np.diff(side) for side in sides]
    long = np.flatnonzero(sizes[0] + sizes[1] > max_length - specials)
    planned = {}
    for index in long.tolist():
        one, two = (int(size[index]) for size in sizes)
        planned[index] = plan(one, None if second is None else two, max_length, overlap)
    counts = np.ones(len(first) - 1, dtype=np.int64)
    counts[long] = [len(windows) for windows in planned.values()]
    edges = np.concatenate(([0], np.cumsum(counts)))
    columns = [np.repeat(np.stack([side[:-1], side[1:]] * 2, axis=1), counts, axis=0) for side in sides]
    for index, windows in planned.items():
        for column, side, which in zip(columns, sides, range(2), strict=True):
            pairs = [window[which] for window in windows]
            rows = [(w.start, w.end, w.own_start, w.own_end) if w is not None else (0, 0, 0, 0) for w in pairs]
            column[edges[index] : edges[index + 1]] = np.array(rows, dtype=np.int64) + side[index]
    return Cuts(edges, columns[0], columns[1], specials)
