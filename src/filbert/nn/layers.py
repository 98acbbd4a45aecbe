"""The pieces of an encoder layer, each its own small module: attention, feed-forwards, post-norm and pre-norm blocks.

Legend: T tokens in the pack, R rows asked for, D width, H heads, K head width.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core.records import Packed
from filbert.nn import dropout
from filbert.nn.attention import attend, attend_first, attend_first_folded, attend_mapped, sums_bias
from filbert.nn.positions import turned

Rows = (
    Tensor | Literal["first"] | None
)  # which tokens a last layer must answer for: these, each sequence's first, or all
Angles = tuple[Tensor, Tensor] | None


def rows_of(x_TD: Tensor, packed: Packed, rows: Rows) -> Tensor:
    """The requested rows of x."""
    if rows is None:
        return x_TD
    return x_TD[packed.boundaries[:-1].long() if isinstance(rows, str) else rows]


class SelfAttention(nn.Module):
    """Each token's query meets the keys of all tokens of its own sequence (Vaswani et al. 2017, eq. 1).

    Attention probabilities are never dropped: the fused kernels cannot, and what is trained must not depend on which
    kernel ran. Dropout falls on the outputs of attention and feed-forward, in the blocks below. Where heads were pruned
    (ship.prune), `head_width` says how wide each of those that are left still is.
    """

    def __init__(self, width: int, heads: int, bias: bool, reach: int = 0, head_width: int = 0) -> None:
        super().__init__()
        self.heads, self.reach = heads, reach
        inner = heads * head_width or width
        self.qkv = nn.Linear(width, 3 * inner, bias=bias)  # one product instead of three
        self.out = nn.Linear(inner, width, bias=bias)

    def forward(self, x_TD: Tensor, packed: Packed, angles: Angles = None, rows: Rows = None) -> Tensor:
        """[T, D], or [R, D] for the asked rows."""
        return self.out(self.read(x_TD, packed, angles, rows))  # type: ignore[no-any-return]

    def read(self, x_TD: Tensor, packed: Packed, angles: Angles = None, rows: Rows = None) -> Tensor:
        """What each token read, all heads side by side, before it is mapped: [T, D] or [R, D]."""
        if isinstance(rows, str):
            return self._first(x_TD, packed, angles)
        if angles is None:
            mixed_THK = attend_mapped(x_TD, self.qkv, self.heads, packed, reach=self.reach)
        else:
            q_THK, k_THK, v_THK = self.projected(x_TD, 0, 3)
            q_THK, k_THK = turned(q_THK, angles), turned(k_THK, angles)
            mixed_THK = attend(q_THK, k_THK, v_THK, packed, reach=self.reach)
        return rows_of(mixed_THK.flatten(1), packed, rows)

    def _first(self, x_TD: Tensor, packed: Packed, angles: Angles) -> Tensor:
        """Only the query of each sequence's first token is computed, so most of the layer's work falls away."""
        inner = self.qkv.out_features // 3
        first = packed.boundaries[:-1].long()
        q_BHK = self.projected(x_TD[first], 0, 1)[0]
        if angles is None and not self.reach:
            key_HKD, value_HKD = self.qkv.weight[inner:].view(2, self.heads, -1, x_TD.shape[-1])
            q_BHD = torch.einsum("bhk,hkd->bhd", q_BHK * q_BHK.shape[-1] ** -0.5, key_HKD)
            read_BHD = attend_first_folded(q_BHD, x_TD, packed)
            mixed_BHK = torch.einsum("bhd,hkd->bhk", read_BHD, value_HKD)
            if self.qkv.bias is not None:  # the keys' bias moves all scores of a question alike: softmax ignores it
                mixed_BHK = mixed_BHK + self.qkv.bias[2 * inner :].view(self.heads, -1)
        else:
            k_THK, v_THK = self.projected(x_TD, 1, 3)
            if angles is not None:
                q_BHK = turned(q_BHK, (angles[0][first], angles[1][first]))
                k_THK = turned(k_THK, angles)
            mixed_BHK = attend_first(q_BHK, k_THK, v_THK, packed, reach=self.reach)
        return mixed_BHK.flatten(1)

    def projected(self, x_TD: Tensor, begin: int, end: int) -> tuple[Tensor, ...]:
        """Some of queries (0), keys (1) and values (2), each [T, H, K]."""
        inner, bias = self.qkv.out_features // 3, self.qkv.bias
        rows = slice(begin * inner, end * inner)
        mapped = F.linear(x_TD, self.qkv.weight[rows], None if bias is None else bias[rows])
        return mapped.view(len(x_TD), end - begin, self.heads, inner // self.heads).unbind(1)


class Muted(SelfAttention):
    """What is left of an attention whose heads were all pruned: the bias of its output map alone."""

    def __init__(self, width: int, bias: bool) -> None:
        nn.Module.__init__(self)
        self.heads, self.reach = 0, 0
        self.qkv, self.out = None, Constant(width, bias)  # type: ignore[assignment]

    def read(self, x_TD: Tensor, packed: Packed, angles: Angles = None, rows: Rows = None) -> Tensor:
        """Nothing: [T, 0] or [R, 0]."""
        return rows_of(x_TD, packed, rows)[:, :0]


class Constant(nn.Module):
    """A linear map of nothing: its bias, or zeros without one, whatever comes in."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.width, self.bias = width, nn.Parameter(nn.init.zeros_(torch.empty(width))) if bias else None

    def forward(self, x_T0: Tensor) -> Tensor:
        """[T, D]."""
        return x_T0.new_zeros(len(x_T0), self.width) if self.bias is None else self.bias.expand(len(x_T0), -1)

    @property
    def weight(self) -> Tensor:
        """[D, 0], for whoever computes with the weights themselves."""
        return torch.zeros(self.width, 0) if self.bias is None else self.bias.new_zeros(self.width, 0)


class Dropout(nn.Module):
    """Sets a share of the numbers to zero while training, and scales the rest so that their mean stays."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def extra_repr(self) -> str:
        """As torch's own shows it."""
        return f"p={self.share}"

    def forward(self, x: Tensor) -> Tensor:
        """Like x."""
        if not self.training or not self.share:
            return x
        if x.is_cuda and torch.compiler.is_compiling() and x.numel() < dropout.MOST:
            return dropout.dropped(x, self.share, torch.rand(2, device=x.device))
        return F.dropout(x, self.share)


class FeedForward(nn.Module):
    """D -> inner, GELU, inner -> D: BERT's (Devlin et al. 2019, footnote 4: inner is 4D)."""

    times = 1  # what `up` gives, in units of inner

    def __init__(self, width: int, inner: int, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(width, self.times * inner, bias=bias)
        self.down = nn.Linear(inner, width, bias=bias)

    def forward(self, x_TD: Tensor) -> Tensor:
        """[T, D]."""
        return self.down(self.inside(x_TD))  # type: ignore[no-any-return]

    def inside(self, x_TD: Tensor) -> Tensor:
        """[T, inner]; on a GPU our kernel makes the gradient of the bias as well (nn.kernels.fused)."""
        up = self.up
        if not (x_TD.is_cuda and sums_bias(up.bias, x_TD)):
            return F.gelu(up(x_TD))
        from filbert.nn.kernels import fused

        return fused.gelu(F.linear(x_TD, up.weight, up.bias.detach()), up.bias)


class ReluFeedForward(FeedForward):
    """D -> inner, ReLU, inner -> D: the original Transformer's."""

    def inside(self, x_TD: Tensor) -> Tensor:
        """[T, inner]."""
        return F.relu(self.up(x_TD))


class TanhFeedForward(FeedForward):
    """As BERT's with the tanh form of GELU, which some published folders name gelu_new or gelu_pytorch_tanh."""

    def inside(self, x_TD: Tensor) -> Tensor:
        """[T, inner]."""
        return F.gelu(self.up(x_TD), approximate="tanh")


class GatedFeedForward(FeedForward):
    """D -> 2·inner, one half through GELU times the other, inner -> D (GEGLU, Shazeer 2020)."""

    times = 2

    def inside(self, x_TD: Tensor) -> Tensor:
        """[T, inner]."""
        value, gate = self.up(x_TD).chunk(2, dim=-1)
        return F.gelu(value) * gate  # type: ignore[no-any-return]


FEED_FORWARDS: dict[str, type[FeedForward]] = {
    "gelu": FeedForward,
    "gelu-tanh": TanhFeedForward,
    "relu": ReluFeedForward,
    "geglu": GatedFeedForward,
}


class Block(nn.Module):
    """Attention and feed-forward with their norms; where the norms stand is the subclasses' one difference."""

    def __init__(
        self, attention: SelfAttention, feed: FeedForward, norms: tuple[nn.Module, nn.Module], dropout: float
    ) -> None:
        super().__init__()
        self.attention, self.feed, self.dropout = attention, feed, Dropout(dropout)
        self.attention_norm, self.feed_norm = norms


class PostNorm(Block):
    """LayerNorm(x + f(x)) after attention and after feed-forward: the classic layer."""

    def forward(self, x_TD: Tensor, packed: Packed, angles: Angles = None, rows: Rows = None) -> Tensor:
        """[T, D], or [R, D] for the asked rows."""
        read = self.attention.read(x_TD, packed, angles, rows)
        x = self._added(rows_of(x_TD, packed, rows), read, self.attention.out, self.attention_norm)
        return self._added(x, self.feed.inside(x), self.feed.down, self.feed_norm)

    def _added(self, into_TD: Tensor, x: Tensor, layer: nn.Linear, norm: nn.Module) -> Tensor:
        """The norm of into + dropout(layer(x)); in a compiled step our kernel makes its gradients (nn.kernels.fused).

        Without dropout the compiler's own kernel is as good.
        """
        ours = self.dropout.share and self.training and torch.compiler.is_compiling() and sums_bias(layer.bias, x)
        if not (ours and isinstance(norm, nn.LayerNorm) and norm.bias is not None):
            return norm(into_TD + self.dropout(layer(x)))  # type: ignore[no-any-return]
        from filbert.nn.kernels import fused

        added = F.linear(x, layer.weight, layer.bias.detach())
        return fused.add_norm(into_TD, added, norm, layer.bias, self.dropout.share)


class PreNorm(Block):
    """x + f(LayerNorm(x)): steadier in deep stacks; the last layer is followed by one more norm."""

    def forward(self, x_TD: Tensor, packed: Packed, angles: Angles = None, rows: Rows = None) -> Tensor:
        """[T, D], or [R, D] for the asked rows."""
        mixed = self.attention(self.attention_norm(x_TD), packed, angles, rows)
        x = rows_of(x_TD, packed, rows) + self.dropout(mixed)
        return x + self.dropout(self.feed(self.feed_norm(x)))  # type: ignore[no-any-return]


BLOCKS: dict[str, type[Block]] = {"post": PostNorm, "pre": PreNorm}


def initialise(module: nn.Module, std: float = 0.02) -> None:
    """BERT's start: normal(0, 0.02) for weights, zero biases, unit norms; smaller where a layer adds to its input.

    The reference cuts the normal at two deviations; transformers does not, and torch's truncated normal costs seconds.
    What a layer adds starts 1/√(2·layers) as large (as in GPT-2): with full size, all tokens of a post-norm stack run
    into one vector within ten steps at a rate of 1e-3 (experiments/2026-11-16-collapse.md).
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    blocks = [part for part in module.modules() if isinstance(part, Block)]
    with torch.no_grad():
        for block in blocks:
            for adding in (block.attention.out, block.feed.down):
                adding.weight.mul_((2 * len(blocks)) ** -0.5)
