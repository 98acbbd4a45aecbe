"""Attention scores: queries and keys in, how well each pair fits out; masked softmax and mixed values follow from them.

Legend: Q queries, S keys and as many values, K width of a query and a key, D width of a value or a model, H heads,
T tokens in a pack, B sequences. Any dimensions may stand before these, alike on both sides or to be broadcast.

The query asks, the keys are matched against it, the values are what is returned; each value is used once, in the sum.
What the published tables of scores confuse: `general` and `additive` learn, `dot`, `scaled` and `cosine` only compare;
"concat" (Luong et al. 2015, §3.1) is the additive score of Bahdanau et al. 2015, and its tanh belongs to it. Without it
w·[q; k] is a number of the query plus a number of the key: softmax drops the first, and the query has no say.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core.errors import InputError, one_of


class Score(nn.Module):
    """How well queries fit keys of the same width; subclasses define it.

    What can be worked out of a key before anyone asks is `ready`, so that a decoder does it once and not at each step.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, q_QK: Tensor, k_SK: Tensor) -> Tensor:
        """[Q, S]."""
        return self.met(q_QK, self.ready(k_SK))

    def ready(self, k_SK: Tensor) -> Tensor:
        """The keys as `met` takes them, [S, K]."""
        return k_SK

    def met(self, q_QK: Tensor, ready_SK: Tensor) -> Tensor:
        """[Q, S]: the score of each query with each key that was made ready."""
        return q_QK @ ready_SK.mT


class Dot(Score):
    """q·k (Luong et al. 2015, §3.1, dot)."""


class Scaled(Score):
    """q·k / √K (Vaswani et al. 2017, eq. 1): the variance of a score stays near 1, whatever the width.

    K is the width of the very vectors that meet, in a head the head's: not the model's width, not the number of tokens.
    """

    def met(self, q_QK: Tensor, ready_SK: Tensor) -> Tensor:
        """[Q, S]."""
        return super().met(q_QK * self.width**-0.5, ready_SK)


class General(Score):
    """q·W·k, bilinear (Luong et al. 2015, §3.1, general)."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.bilinear = nn.Linear(width, width, bias=False)

    def ready(self, k_SK: Tensor) -> Tensor:
        """[S, K] W·k."""
        return self.bilinear(k_SK)  # type: ignore[no-any-return]


class Cosine(Score):
    """β·q·k / (‖q‖·‖k‖), with a learned strength β that begins at 1 (Graves et al. 2014, eqs. 5 and 6).

    A cosine lies between -1 and 1: without β no key could get more than e² times the weight of another.
    """

    EPS = 1e-6  # a vector shorter than this fits nothing

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.strength = nn.Parameter(torch.ones(()))

    def ready(self, k_SK: Tensor) -> Tensor:
        """[S, K] of length 1."""
        return F.normalize(k_SK, dim=-1, eps=self.EPS)

    def met(self, q_QK: Tensor, ready_SK: Tensor) -> Tensor:
        """[Q, S]."""
        return self.strength * super().met(F.normalize(q_QK, dim=-1, eps=self.EPS), ready_SK)


class Additive(Score):
    """v·tanh(W·[q; k]) (Bahdanau et al. 2015, §A.1.2; Luong et al. 2015, §3.1, concat).

    W·[q; k] is W₁·q + W₂·k: neither side is copied for each of the others before it is mapped.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, 1, bias=False)  # a bias would move all scores alike: softmax drops it

    def ready(self, k_SK: Tensor) -> Tensor:
        """[S, K] W₂·k."""
        return self.key(k_SK)  # type: ignore[no-any-return]

    def met(self, q_QK: Tensor, ready_SK: Tensor) -> Tensor:
        """[Q, S]."""
        both_QSK = self.query(q_QK).unsqueeze(-2) + ready_SK.unsqueeze(-3)
        return self.out(self.inside(both_QSK)).squeeze(-1)  # type: ignore[no-any-return]

    def inside(self, both_QSK: Tensor) -> Tensor:
        """[Q, S, K] what `out` sums up."""
        return torch.tanh(both_QSK)


class Perceptron(Additive):
    """v·tanh(U·tanh(W·[q; k] + b) + c): a perceptron of two layers, where the additive score has one and no biases."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.key = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def inside(self, both_QSK: Tensor) -> Tensor:
        """[Q, S, K]."""
        return torch.tanh(self.second(torch.tanh(both_QSK)))


SCORES: dict[str, type[Score]] = {
    "dot": Dot,
    "scaled": Scaled,
    "general": General,
    "cosine": Cosine,
    "additive": Additive,
    "mlp": Perceptron,
}


def score(name: str, width: int) -> Score:
    """The score of that name, for queries and keys of that width."""
    if name not in SCORES:
        raise one_of("the attention score", name, SCORES)
    return SCORES[name](width)


def mix(scores_QS: Tensor, values_SD: Tensor, mask_QS: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """[Q, D] the values weighed by softmax of their scores, and [Q, S] the weights; mask: what may be seen.

    A query that may see nothing gets zeros, not NaN. The softmax of half precision is taken in float32.
    """
    scores_QS = scores_QS.to(torch.promote_types(scores_QS.dtype, torch.float32))
    if mask_QS is None:
        weights_QS = scores_QS.softmax(-1)
    else:
        # The least finite number and not -inf, of which a row would give NaN; here it gives weights, set to zero.
        least = torch.finfo(scores_QS.dtype).min
        weights_QS = scores_QS.masked_fill(~mask_QS, least).softmax(-1) * mask_QS
    weights_QS = weights_QS.to(values_SD.dtype)
    return weights_QS @ values_SD, weights_QS


def mix_within(scores_T: Tensor, values_TD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
    """[B, D] and [T]: the same where each sequence of a pack is asked by one query; nothing is padded.

    An empty sequence gives zeros.
    """

    def summed(x: Tensor) -> Tensor:
        return torch.segment_reduce(x, "sum", lengths=lengths_B, unsafe=True)

    def spread(x_B: Tensor) -> Tensor:
        return x_B.repeat_interleave(lengths_B, output_size=len(scores_T))

    kind = torch.promote_types(scores_T.dtype, torch.float32)
    scores_T = scores_T.to(kind)
    most_B = torch.segment_reduce(scores_T.detach(), "max", lengths=lengths_B, unsafe=True)
    shares_T = (scores_T - spread(most_B)).exp()
    weights_T = shares_T / spread(summed(shares_T))
    mixed_BD = summed(weights_T[:, None] * values_TD.to(kind))
    return mixed_BD.to(values_TD.dtype), weights_T.to(values_TD.dtype)


class MultiHead(nn.Module):
    """Attentions side by side, each with its own maps of queries, keys and values (Vaswani et al. 2017, §3.2.2).

    Any score will do; the heads share what it learns and differ by their maps. All heads side by side are D wide again,
    so the last map is D × D, and nothing follows it.
    """

    def __init__(self, width: int, heads: int, name: str = "scaled") -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise InputError(f"width {width} cannot be shared by {heads} heads; it must be a multiple of their number.")
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.score = score(name, width // heads)

    def forward(self, q_QD: Tensor, k_SD: Tensor, v_SD: Tensor, mask_QS: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[Q, D] what each query read, and [H, Q, S] by which weights; mask: what may be seen, by every head."""
        q_HQK, k_HSK, v_HSK = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
            for layer, x in ((self.query, q_QD), (self.key, k_SD), (self.value, v_SD))
        )
        mask_HQS = None if mask_QS is None else mask_QS.unsqueeze(-3)
        mixed_HQK, weights_HQS = mix(self.score(q_HQK, k_HSK), v_HSK, mask_HQS)
        return self.out(mixed_HQK.transpose(-3, -2).flatten(-2)), weights_HQS
