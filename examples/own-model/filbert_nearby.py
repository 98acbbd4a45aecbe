"""An encoder without attention: in each layer a token reads its two neighbours. T tokens of the pack, D width."""

from dataclasses import dataclass

import torch

from filbert.nn.encoder import Encoder, ModelSpec
from filbert.nn.layers import initialise, rows_of


@dataclass(frozen=True, kw_only=True)
class Config:
    vocab_size: int = 21_128
    width: int = 128
    layers: int = 3
    max_length: int = 512
    dropout: float = 0.1


class Layer(torch.nn.Module):  # norm(x + relu(W·[left, x, right])); a neighbour of another text counts as zeros
    def __init__(self, width):
        super().__init__()
        self.map, self.norm = torch.nn.Linear(3 * width, width), torch.nn.LayerNorm(width, 1e-12)

    def forward(self, x_TD, inside_T1):
        left_TD, right_TD = x_TD.roll(1, 0) * inside_T1, x_TD.roll(-1, 0) * inside_T1.roll(-1, 0)
        return self.norm(x_TD + torch.relu(self.map(torch.cat((left_TD, x_TD, right_TD), 1))))


class Nearby(Encoder):
    def __init__(self, config, parts=(), labels=2):
        super().__init__(config, parts)
        self.embeddings = torch.nn.ModuleDict({"words": torch.nn.Embedding(config.vocab_size, config.width)})
        self.layers = torch.nn.ModuleList(Layer(config.width) for _ in range(config.layers))
        self.add_heads(labels)
        initialise(self)

    def forward(self, packed, rows=None):  # vectors of all tokens of a pack, or of some rows
        x_TD, inside_T1 = self.embeddings["words"](packed.ids), (packed.positions > 0)[:, None]
        for layer in self.layers:
            x_TD = layer(x_TD, inside_T1)
        return rows_of(x_TD, packed, rows)


def graph(g):  # the same as ONNX, so that `filbert export` makes a folder that runs without torch
    def rolled(x, at, ends=(0, 2**31)):  # the rows from `at` on, and then those before
        first, last, at = (g.constant([place]) for place in (*ends, at))
        return g.op("Concat", g.op("Slice", x, at, last), g.op("Slice", x, first, at), axis=0)

    x, inside = g.looked_up("embeddings.words.weight", "ids"), g.op("Sign", g.op("Cast", "positions", to=1))
    inside = g.op("Unsqueeze", inside, g.constant([1]))
    for index in range(g.config.layers):
        left, right = g.op("Mul", rolled(x, -1), inside), g.op("Mul", rolled(x, 1), rolled(inside, 1))
        mapped = g.op("Relu", g.linear(g.op("Concat", left, x, right, axis=1), f"layers.{index}.map"))
        x = g.norm(g.op("Add", x, mapped), f"layers.{index}.norm")
    return x


SPEC = ModelSpec(name="nearby", config=Config, presets={"small": Config()}, model=Nearby, rate=1e-3, graph=graph)
