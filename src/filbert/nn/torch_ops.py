"""A torch model as tasks use it, and the operations on its tensors: `nn.ops.Host` and `nn.ops.Ops` for torch.

Legend: T tokens in the pack, B sequences, X rows, D width, J tokens ahead, C kinds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from filbert.core.errors import InputError
from filbert.core.records import Packed
from filbert.nn.crf_walk import Transitions
from filbert.nn.heads import NO_PAIR_HEAD
from filbert.nn.ops import Numbers

if TYPE_CHECKING:
    from filbert.nn.encoder import Encoder

ACTIVATIONS = ("gelu", "gelu-tanh", "relu")


class TorchOps:
    """The operations on torch tensors; each carries a gradient where torch's own does."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x·Wᵀ + b, in the precision of the weights."""
        return F.linear(x.to(weight.dtype), weight, bias)

    float32 = staticmethod(Tensor.float)

    tanh = staticmethod(torch.tanh)
    exp = staticmethod(torch.exp)
    log = staticmethod(torch.log)

    def turn(self, angle: Tensor) -> tuple[Tensor, Tensor]:
        """The cosine and the sine of each number."""
        return angle.cos(), angle.sin()

    def activation(self, name: str, x: Tensor) -> Tensor:
        """gelu, gelu-tanh or relu of each number."""
        return F.relu(x) if name == "relu" else F.gelu(x, approximate="tanh" if name == "gelu-tanh" else "none")

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        """Each row with a mean of 0 and a variance of 1, scaled and moved."""
        return F.layer_norm(x, weight.shape, weight, bias, eps)

    def logsumexp(self, x: Tensor) -> Tensor:
        """The logarithm of the sum of exponentials over the last axis."""
        return x.logsumexp(-1)

    def where(self, condition: Tensor, x: Tensor, otherwise: Tensor | float) -> Tensor:
        """x where the condition holds."""
        return torch.where(condition, x, otherwise)

    def concatenate(self, arrays: Sequence[Tensor]) -> Tensor:
        """Side by side, over the last axis."""
        return torch.cat(tuple(arrays), dim=-1)

    def sequences(self, edges: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """[B] tokens of each sequence of a pack; [N] which of them begins at each of these rows."""
        # Edges as they are, since a compiled graph can search nothing that it made itself.
        return edges.long().diff(), torch.searchsorted(edges, starts.to(edges.dtype))

    def repeat(self, x: Tensor, counts: Tensor, total: int) -> Tensor:
        """Each row so many times."""
        return x.repeat_interleave(counts, dim=0, output_size=total)

    def segment_sum(self, x: Tensor, lengths: Tensor) -> Tensor:
        """[B, …] the sum over each stretch of so many rows."""
        return torch.segment_reduce(x, "sum", lengths=lengths, unsafe=True)

    def scattered(self, x: Tensor, places: Tensor, total: int) -> Tensor:
        """[total, …] each row at its place; zeros elsewhere."""
        rows = x.new_zeros(total, *x.shape[1:])
        rows[places] = x
        return rows

    def ahead(self, x: Tensor, reach: int) -> Tensor:
        """[X, K, J] each row and those that follow it, a view; past the end there are zeros."""
        return F.pad(x, (0, 0, 0, reach - 1)).unfold(0, reach, 1)

    def at(self, array: Numbers, like: Tensor) -> Tensor:
        """A host's array on the device of `like`."""
        return torch.as_tensor(array, device=like.device)

    def host(self, x: Tensor) -> Numbers:
        """As a NumPy array on the host."""
        return x.cpu().numpy()


TORCH = TorchOps()


@dataclass(frozen=True, slots=True)
class TorchHost:
    """A torch model as tasks use it, in training or not."""

    model: Encoder
    xp: ClassVar[TorchOps] = TORCH

    @property
    def width(self) -> int:
        """D, the numbers of a vector."""
        return self.model.width

    @property
    def is_training(self) -> bool:
        """Whether it learns."""
        return self.model.training

    def vectors(self, packed: Packed, rows: Tensor | Literal["first"] | None = None) -> Tensor:
        """[T, D] a vector for each token; or for the asked rows, or each sequence's first."""
        return self.model(packed, rows)  # type: ignore[no-any-return]

    def summary(self, packed: Packed) -> Tensor:
        """[B, D] each sequence summed up by the model's own way."""
        return self.model.summary(packed)

    def head(self, part: str, x: Tensor) -> Tensor:
        """What a head makes of vectors, in float32."""
        if part == "pooler":
            return self.model.pooled(x).float()
        if part == "mlm":
            return self.model.word_scores(x).float()
        if part == "nsp":
            return self._pair_head(x).float()
        head = self.model.heads[part]
        kind = next(itertools.chain(head.parameters(), head.buffers())).dtype
        return head(x.to(kind)).float()  # type: ignore[no-any-return]

    def _pair_head(self, x: Tensor) -> Tensor:
        if "nsp" not in self.model.parts:
            raise InputError(NO_PAIR_HEAD)
        nsp: torch.nn.Linear = self.model.get_submodule("nsp")  # type: ignore[assignment]
        return nsp(x.to(nsp.weight.dtype))  # type: ignore[no-any-return]

    def stretches(self, part: str, x_TD: Tensor, positions: Tensor, reach: int) -> Tensor:
        """[T, J, C] what a head makes of every stretch of up to `reach` tokens."""
        return self.model.heads[part](x_TD, positions, reach)  # type: ignore[no-any-return]

    def transitions(self, part: str) -> Transitions:
        """A CRF's scores of tags and of pairs of them."""
        head = self.model.heads[part]
        begin, pair, end = (
            head.get_parameter(name).detach().float().cpu().numpy() for name in ("begin", "transitions", "end")
        )
        return Transitions(begin, pair, end)

    def dropout(self, x: Tensor) -> Tensor:
        """While it learns some numbers are 0 and the others larger."""
        return F.dropout(x, self.model.config.dropout, self.model.training)

    def masked(self, packed: Packed, share: float, mask_id: int, never: Sequence[int]) -> Packed:
        """While it learns some tokens are [MASK], by chance: what was trained on blanks bears that best."""
        if not (self.model.training and share):
            return packed
        ids = packed.ids
        drawn = torch.rand(len(ids), device=ids.device) < share
        for each in never:
            drawn = drawn & (ids != each)
        return packed.with_ids(torch.where(drawn, mask_id, ids))
