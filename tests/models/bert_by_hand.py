"""BERT in NumPy: a small model's weights and token ids in, its vectors out, as the paper has them or as is said.

Legend: L tokens of a text, D width, F width inside the feed-forward, H heads, K head width.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from filbert.models import bert

Numbers = np.ndarray[Any, np.dtype[np.float64]]


def normed(x_LD: Numbers, norm: Any, axis: int = -1) -> Numbers:
    """LayerNorm; along axis 0, what BatchNorm would do."""
    mean, spread = x_LD.mean(axis, keepdims=True), x_LD.var(axis, keepdims=True)
    weight, bias = (getattr(norm, name).detach().numpy() for name in ("weight", "bias"))
    return np.asarray((x_LD - mean) / np.sqrt(spread + norm.eps) * weight + bias)


def mapped(x_LD: Numbers, linear: torch.nn.Linear) -> Numbers:
    """x·Wᵀ + b."""
    return np.asarray(x_LD @ linear.weight.detach().numpy().T + linear.bias.detach().numpy())


def gelu(x: Numbers) -> Numbers:
    """x·Φ(x)."""
    return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def attended(x_LD: Numbers, attention: Any, said: str) -> Numbers:
    """What every token read, mapped."""
    length, width = x_LD.shape
    q_HLK, k_HLK, v_HLK = mapped(x_LD, attention.qkv).reshape(length, 3, attention.heads, -1).transpose(1, 2, 0, 3)
    size = {"√ of the width": width, "√ of the length": length, "no root": 1}.get(said, q_HLK.shape[-1])
    scores_HLL = q_HLK @ k_HLK.transpose(0, 2, 1) / math.sqrt(size)
    weights_HLL = np.exp(scores_HLL - scores_HLL.max(-1, keepdims=True))
    weights_HLL /= weights_HLL.sum(-1, keepdims=True)
    read_HLK = weights_HLL @ v_HLK
    if said == "times V again":
        read_HLK = read_HLK * v_HLK
    out_LD = mapped(read_HLK.transpose(1, 0, 2).reshape(length, width), attention.out)
    return np.maximum(out_LD, 0) if said == "ReLU after attention" else out_LD


def by_hand(model: bert.Bert, ids: list[int], said: str = "") -> Numbers:
    """[L, D] of one text of one segment; `said` names a misstatement to compute instead."""
    table = model.embeddings
    positions_LD = table.positions.weight.detach().numpy()[: len(ids)]
    x_LD = table.words.weight.detach().numpy()[ids] + table.segments.weight.detach().numpy()[0] + positions_LD
    x_LD = normed(x_LD, table.norm)
    every = []
    for layer in model.layers:
        if said == "positions in every layer":
            x_LD = x_LD + positions_LD
        axis = 0 if said == "norms over the examples" else -1
        x_LD = normed(x_LD + attended(x_LD, layer.attention, said), layer.attention_norm, axis)
        up_LF = mapped(x_LD, layer.feed.up)
        inside_LF = np.maximum(up_LF, 0) if said == "ReLU inside the feed-forward" else gelu(up_LF)
        x_LD = normed(x_LD + mapped(inside_LF, layer.feed.down), layer.feed_norm, axis)
        every.append(x_LD)
    return np.asarray(sum(every)) if said == "layers summed" else x_LD


SAID = (
    "times V again", "layers summed", "positions in every layer", "ReLU after attention", "√ of the width",
    "√ of the length", "no root", "norms over the examples", "ReLU inside the feed-forward",
)  # fmt: skip
