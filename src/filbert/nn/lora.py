"""Low-rank adapters (Hu et al. 2021): a model in, small maps that learn beside its maps that do not out; and merged.

Legend: T tokens, D inputs, E outputs, R rank.
Beside each map W of a layer stands (alpha / R)·U·V with V [R, D] and U [E, R]. U begins at zero, so that a run begins
with what the model says already. A merged model has the maps W + (alpha / R)·U·V and nothing else.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core.errors import InputError
from filbert.nn.layers import Block


class Adapted(nn.Module):
    """A map that stays as it is, and a map of low rank beside it that learns.

    Queries, keys and values are three maps in one product: each of the `pieces` has its own pair, as in the paper.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float, pieces: int = 1) -> None:
        super().__init__()
        self.base, self.pieces, self.scale = base.requires_grad_(False), pieces, alpha / rank
        self.in_features, self.out_features = base.in_features, base.out_features
        edge = base.in_features**-0.5
        down = base.weight.new_empty(pieces * rank, base.in_features).uniform_(-edge, edge)
        self.down = nn.Parameter(down)
        self.up = nn.Parameter(base.weight.new_zeros(base.out_features, rank))

    def forward(self, x_TD: Tensor) -> Tensor:
        """[T, E]; the low rank is kept low, so that no gradient of a whole map is ever made."""
        low_TR = F.linear(x_TD, self.down) * self.scale
        pairs = zip(low_TR.chunk(self.pieces, -1), self.up.chunk(self.pieces), strict=True)
        return self.base(x_TD) + torch.cat([F.linear(low, up) for low, up in pairs], -1)  # type: ignore[no-any-return]

    @property
    def weight(self) -> Tensor:
        """[E, D] what both maps do, for whoever takes a part of a map (nn.layers)."""
        pairs = zip(self.up.chunk(self.pieces), self.down.chunk(self.pieces), strict=True)
        return self.base.weight + self.scale * torch.cat([up @ down for up, down in pairs])

    @property
    def bias(self) -> Tensor | None:
        """The base's, which does not learn."""
        return self.base.bias


def adapt(model: nn.Module, rank: int, alpha: float) -> None:
    """Puts adapters beside the attention's and the feed-forward's maps of every layer."""
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        for owner, name, pieces in (
            (block.attention, "qkv", 3), (block.attention, "out", 1), (block.feed, "up", 1), (block.feed, "down", 1),
        ):  # fmt: skip
            base: nn.Linear | None = getattr(owner, name)
            if not isinstance(base, nn.Linear):  # of an attention without heads nothing is left to learn beside
                continue
            most = min(base.in_features, base.out_features // pieces)
            if rank > most:
                raise InputError(f"tune.rank is {rank}, but a map of this model has only rank {most}; give less.")
            setattr(owner, name, Adapted(base, rank, alpha, pieces))


def merge(model: nn.Module) -> None:
    """Adds what the adapters learnt to their maps, and takes the adapters out; a model without any stays as it is."""
    for owner in list(model.modules()):
        for name, adapted in list(owner.named_children()):
            if isinstance(adapted, Adapted):
                with torch.no_grad():
                    adapted.base.weight.copy_(adapted.weight)
                setattr(owner, name, adapted.base.requires_grad_(True))
