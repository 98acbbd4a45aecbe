"""Vectors of a row of tokens in, a score out for every stretch of a few tokens and every kind that it may be of.

Legend: T tokens in the pack, D width, K inner width, J how many tokens a stretch may have, C kinds.

score(i, j, kind) = q_i·k_j/√K + begins_kind(i) + ends_kind(j): a product says whether i to j is anything, and a sum of
two numbers of which kind (the efficient form of Global Pointer, Su et al. 2022). q and k are turned by where they stand
(rotary), so that the product knows how far apart they are. Stretches begin at each token and reach J ahead: the scores
are a band, not a square.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from filbert.nn.heads import INNER, pointer
from filbert.nn.torch_ops import TORCH

NEVER = -1e30  # the score of what is no stretch: finite, so that no sum over it alone has NaN for a gradient


class Pointer(nn.Module):
    """The head; `out_features` are its kinds."""

    def __init__(self, width: int, num_kinds: int) -> None:
        super().__init__()
        self.out_features = num_kinds
        self.edges = nn.Linear(width, 2 * INNER)
        self.kinds = nn.Linear(2 * INNER, 2 * num_kinds)

    def forward(self, x_TD: Tensor, positions_T: Tensor, longest: int) -> Tensor:
        """[T, J, C] in float32: cell (i, d, c) is of the stretch from token i to token i + d, both counted."""
        return pointer(TORCH, dict(self.named_parameters()), x_TD, positions_T, longest)


def apart_loss(scores_TJC: Tensor, gold_TJC: Tensor, open_TJ: Tensor, boundaries: Tensor) -> Tensor:
    """Σ over sequences and kinds of log(1 + Σ_wrong exp(score)) + log(1 + Σ_right exp(-score)).

    Every right stretch is pushed above 0 and every other below, each kind for itself, and the many easy ones weigh
    nothing (ZLPR, Su et al. 2022). Only what is open counts.
    """
    wrong_TJC = open_TJ[:, :, None] & ~gold_TJC
    lengths = boundaries.long().diff()
    return sum(
        (
            _one_plus(torch.where(chosen, sign * scores_TJC, NEVER).logsumexp(1), lengths).sum()
            for sign, chosen in ((1, wrong_TJC), (-1, gold_TJC))
        ),
        scores_TJC.new_zeros(()),
    )


def _one_plus(x_TC: Tensor, lengths: Tensor) -> Tensor:
    """[B, C] log(1 + Σ exp(x)) over the tokens of each sequence."""
    with torch.no_grad():
        most_BC = torch.segment_reduce(x_TC, "max", lengths=lengths, unsafe=True).clamp(min=0)
        most_TC = most_BC.repeat_interleave(lengths, dim=0, output_size=len(x_TC))
    sums_BC = torch.segment_reduce((x_TC - most_TC).exp(), "sum", lengths=lengths, unsafe=True)
    return (sums_BC + (-most_BC).exp()).log() + most_BC
