"""A pack in, its sequences as lines of one length out, and back: so two packs meet line by line.

Legend: T tokens in the pack, B sequences, S the longest of them, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from filbert.core.records import Packed
from filbert.nn.attention import placed


@dataclass(frozen=True, slots=True)
class Grid:
    """The tokens of a pack as a line for each sequence, all as long as the longest: so two packs meet line by line."""

    rows_BS: Tensor  # the row of each place; T where the line has none
    back_T: Tensor  # the place of each row, lines counted through
    edges_2B: Tensor  # each line's first and last row; T of an empty one

    @classmethod
    def of(cls, packed: Packed, device: torch.device) -> Grid:
        """Worked out on the host, from the lengths alone."""
        sizes = np.asarray(packed.lengths, dtype=np.int64)
        ends = np.cumsum(sizes)
        total, at = int(sizes.sum()), np.arange(int(sizes.max(initial=0)))
        inside = at < sizes[:, None]
        rows = np.where(inside, (ends - sizes)[:, None] + at, total)
        edges = np.where(sizes, np.stack((ends - sizes, ends - 1)), total)
        return cls(*(placed(part, device) for part in (rows, np.flatnonzero(inside), edges)))

    def laid(self, x_TD: Tensor) -> Tensor:
        """[B, S, D], zeros where a line has no token.

        Rows are put into zeros. If empty places read one row of zeros, its gradient would be summed one by one: on a
        GPU that took most of a step.
        """
        full_XD = x_TD.new_zeros(self.rows_BS.numel(), *x_TD.shape[1:]).index_copy(0, self.back_T, x_TD)
        return full_XD.view(*self.rows_BS.shape, *x_TD.shape[1:])

    def taken(self, x_BSD: Tensor) -> Tensor:
        """[T, D] the lines one after another, without what fills them up."""
        return x_BSD.flatten(0, 1).index_select(0, self.back_T)

    def last(self, x_TD: Tensor) -> Tensor:
        """[B, D] where each direction's half ends: forward at the last token, backward at the first."""
        forward_BH, backward_BH = F.pad(x_TD, (0, 0, 0, 1)).chunk(2, -1)
        return torch.cat((forward_BH[self.edges_2B[1]], backward_BH[self.edges_2B[0]]), -1)
