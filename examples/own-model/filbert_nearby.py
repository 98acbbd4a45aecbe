"""An encoder without attention: in every layer each token reads itself and its two neighbours, and nothing else.

Small, fast, and enough where words near each other say it. Legend: T tokens of the pack, D width.
"""

from dataclasses import dataclass

import torch
from torch import nn

from filbert.nn.encoder import Encoder, ModelSpec
from filbert.nn.layers import initialise, rows_of


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of such a model."""

    vocab_size: int = 21_128
    width: int = 128
    layers: int = 3
    max_length: int = 512
    dropout: float = 0.1
    eps: float = 1e-12


class Layer(nn.Module):
    """norm(x + relu(W·[left, x, right])); a pack has no padding, so a neighbour may be of another text and is 0 then."""

    def __init__(self, config):
        super().__init__()
        self.map, self.norm = nn.Linear(3 * config.width, config.width), nn.LayerNorm(config.width, config.eps)

    def forward(self, x_TD, inside_T1):
        left_TD, right_TD = x_TD.roll(1, 0) * inside_T1, x_TD.roll(-1, 0) * inside_T1.roll(-1, 0)
        return self.norm(x_TD + torch.relu(self.map(torch.cat((left_TD, x_TD, right_TD), 1))))


class Nearby(Encoder):
    """A vector for each token of a pack, or for the asked rows."""

    def __init__(self, config, parts=(), labels=2):
        super().__init__(config, parts)
        self.embeddings = nn.ModuleDict({"words": nn.Embedding(config.vocab_size, config.width)})
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.add_heads(labels)
        initialise(self)

    def forward(self, packed, rows=None):
        x_TD, inside_T1 = self.embeddings["words"](packed.ids), (packed.positions > 0)[:, None]
        for layer in self.layers:
            x_TD = layer(x_TD, inside_T1)
        return rows_of(x_TD, packed, rows)


def graph(g):
    """The same as ONNX, so that `filbert export` makes a folder that runs without torch."""
    size, one = g.op("Size", "ids"), g.constant(1)
    place = g.op("Range", g.constant(0), size, one)
    left, right = (g.op("Mod", g.op("Add", place, by), size) for by in (g.op("Sub", size, one), one))
    inside = g.op("Sign", g.op("Unsqueeze", g.op("Cast", "positions", to=1), g.constant([1])))
    neighbours = ((left, inside), (right, g.op("Gather", inside, right)))
    x = g.looked_up("embeddings.words.weight", "ids")
    for index in range(g.config.layers):
        before, after = (g.op("Mul", g.op("Gather", x, at), mask) for at, mask in neighbours)
        mapped = g.op("Relu", g.linear(g.op("Concat", before, x, after, axis=1), f"layers.{index}.map"))
        x = g.norm(g.op("Add", x, mapped), f"layers.{index}.norm")
    return x


PRESETS = {"small": Config(), "large": Config(width=256, layers=6)}
SPEC = ModelSpec(name="nearby", config=Config, presets=PRESETS, model=Nearby, rate=1e-3, graph=graph)
