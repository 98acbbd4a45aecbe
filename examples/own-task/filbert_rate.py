"""Ratings in their order, such as 1 to 5 stars: one score for a text, and a bar between each two ratings.

A text is above a bar with the probability sigmoid(score - bar) (McCullagh 1980, the proportional odds model). So it is
worse to take 5 stars for 1 than for 4, which a classifier does not know. Legend: N texts, L ratings, B = L - 1 bars.
"""

from dataclasses import replace

import numpy as np

from filbert.core.protocols import Term
from filbert.nn.heads import HeadSpec
from filbert.tasks.classify import items as classify
from filbert.tasks.classify.spec import SPEC as CLASSIFY


def above(xp, weights, x):
    """[N, B] the log-odds that each text is above each bar; `xp` computes with NumPy arrays and with torch tensors."""
    spread = np.linspace(-2, 2, len(weights["bars"]), dtype=np.float32)  # where the bars stand before they learn
    return xp.linear(x, weights["score"], None) - weights["bars"] - xp.at(spread, x)


SHAPES = lambda width, labels: {"score": (1, width), "bars": (labels - 1,)}  # noqa: E731
HEAD = HeadSpec(part="rate", shapes=SHAPES, apply=above)


class Items(classify.Items):
    """Texts with a rating; how they are read, packed, and measured is as `classify` has it."""

    part = HEAD.part

    def scores(self, host, batch):
        """[N, L] the logarithm of each rating's probability: above the bar below it, and not above the next."""
        above_NB = host.head(self.part, host.dropout(self.vectors(host, batch)))
        share_NB = 1 / (1 + host.xp.exp(-above_NB))
        all_N1 = share_NB[:, :1] * 0 + 1
        edges = host.xp.concatenate((all_N1, share_NB, all_N1 * 0))
        return host.xp.log(host.xp.where(edges[:, :-1] > edges[:, 1:], edges[:, :-1] - edges[:, 1:], 0.0) + 1e-6)

    def loss(self, model, batch):
        """Of every bar the cross-entropy: is the text above it or not?"""
        import torch
        import torch.nn.functional as F

        from filbert.nn.torch_ops import TorchHost

        gold_N, host = batch.targets["label"], TorchHost(model)
        above_NB = host.head(self.part, host.dropout(self.vectors(host, batch)))
        bars_B = torch.arange(above_NB.shape[1], device=above_NB.device)
        is_above_NB, known = (gold_N[:, None] > bars_B).float(), gold_N != classify.NOTHING
        off_NB = F.binary_cross_entropy_with_logits(above_NB, is_above_NB, reduction="none")
        right = (((above_NB > 0).sum(1) == gold_N) & known).sum()
        return {"label_loss": Term((off_NB.sum(1) * known).sum(), known.sum()), "accuracy": Term(right, known.sum())}


SPEC = replace(
    CLASSIFY, name="rate", items=Items, part=HEAD.part, heads=(HEAD,), from_transformers=None, problems={},
    card=lambda labels: f"A model that rates texts from {labels[0]} to {labels[-1]}",
)  # fmt: skip
