"""Our packs in; what torch.nn.Transformer of the same size makes of them, padded, out.

Legend: T tokens of the sources, U tokens of the targets, B sequences, S the longest source, Q the longest target,
N rows being written, L tokens written so far, D width, V vocabulary.

It offers what any writer offers (filbert.models.transformer), so that the very same task, loop, batches, optimiser and
search serve both. Words, positions and output are those of the paper, as in ours; everything between is torch's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core.records import Packed
from filbert.models import transformer
from filbert.nn.grid import Grid
from filbert.nn.positions import Sinusoidal


@dataclass(frozen=True, slots=True)
class State:
    """The sources and all that was written: torch's layers have no cache."""

    memory_NSD: Tensor
    filled_NS: Tensor  # bool: where there is no token
    ids_NL: Tensor

    def select(self, rows_N: Tensor) -> State:
        """These rows, in this order."""
        return State(self.memory_NSD[rows_N], self.filled_NS[rows_N], self.ids_NL[rows_N])


class Peer(nn.Module):
    """torch.nn.Transformer between a table of words and itself."""

    def __init__(self, config: transformer.Config) -> None:
        super().__init__()
        # cuDNN's attention makes a plan for every new shape, and padded batches have a new one at nearly every step.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self.config, self.width = config, config.width
        self.words = nn.Embedding(config.vocab_size, config.width)
        nn.init.normal_(self.words.weight, std=config.width**-0.5)
        self.positions = Sinusoidal(config.max_length, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.net = nn.Transformer(
            config.width, config.heads, config.layers, config.writer_layers, config.inner, config.dropout,
            activation=config.feedforward, batch_first=True, norm_first=config.norm == "pre",
        )  # fmt: skip
        self.net.encoder.use_nested_tensor = False  # it would part training from use
        if config.norm == "post":  # torch norms once more after the last layer; the paper does not
            self.net.encoder.norm = self.net.decoder.norm = None

    def _embedded(self, ids_BS: Tensor) -> Tensor:
        positions_S = torch.arange(ids_BS.shape[1], device=ids_BS.device)
        return self.dropout(self.words(ids_BS) * math.sqrt(self.width) + self.positions(positions_S))  # type: ignore[no-any-return]

    def forward(self, packed: Packed, rows: Any = None) -> Tensor:
        """[T, D] the vectors of the sources."""
        grid = Grid.of(packed, packed.ids.device)
        filled_BS = grid.rows_BS == len(packed.ids)
        ids_BS = grid.laid(packed.ids[:, None]).squeeze(-1)
        x_BSD = self.net.encoder(self._embedded(ids_BS), src_key_padding_mask=filled_BS)
        return grid.taken(x_BSD)

    def decoded(self, target: Packed, memory_TD: Tensor, source: Packed, owners_B: Any) -> Tensor:
        """[U, D] teacher forcing: what comes after each token of the targets."""
        state, grid = self.started(memory_TD, source), Grid.of(target, memory_TD.device)
        state = state.select(torch.as_tensor(owners_B).to(memory_TD.device))
        x_BQD = self._written(grid.laid(target.ids[:, None]).squeeze(-1), state)
        return grid.taken(x_BQD)

    def _written(self, ids_BQ: Tensor, state: State) -> Tensor:
        size = ids_BQ.shape[1]
        later_QQ = torch.ones(size, size, dtype=torch.bool, device=ids_BQ.device).triu(1)
        return self.net.decoder(  # type: ignore[no-any-return]
            self._embedded(ids_BQ), state.memory_NSD, tgt_mask=later_QQ, memory_key_padding_mask=state.filled_NS,
            tgt_is_causal=False,
        )  # fmt: skip

    def word_scores(self, x_UD: Tensor) -> Tensor:
        """[U, V]."""
        return F.linear(x_UD, self.words.weight)

    def started(self, memory_TD: Tensor, source: Packed) -> State:
        """Before the first word."""
        grid = Grid.of(source, memory_TD.device)
        nothing = torch.zeros(len(source.lengths), 0, dtype=torch.int64, device=memory_TD.device)
        return State(grid.laid(memory_TD), grid.rows_BS == len(memory_TD), nothing)

    def step(self, ids_N: Tensor, state: State) -> tuple[Tensor, State]:
        """[N, V] what comes next, by reading all that was written once more."""
        state = State(state.memory_NSD, state.filled_NS, torch.cat((state.ids_NL, ids_N[:, None]), 1))
        return self.word_scores(self._written(state.ids_NL, state)[:, -1]).float(), state

    def take(self, model: transformer.Transformer) -> Peer:
        """The weights of ours."""
        places = {
            "attention.qkv.": "self_attn.in_proj_", "attention.out.": "self_attn.out_proj.",
            "cross.out.": "multihead_attn.out_proj.", "feed.up.": "linear1.", "feed.down.": "linear2.",
            "attention_norm.": "norm1.", "cross_norm.": "norm2.", "final_norm.": "norm.",
        }  # fmt: skip
        state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("embeddings.")}
        found = {"words.weight": model.embeddings.words.weight}
        for name, tensor in state.items():
            if ".cross.q." in name:
                name, tensor = (
                    name.replace("cross.q.", "multihead_attn.in_proj_"),
                    torch.cat((tensor, state[name.replace("cross.q.", "cross.kv.")])),
                )
            elif ".cross.kv." in name:
                continue
            last = "norm3." if name.startswith("writer.") else "norm2."
            for ours, theirs in {**places, "feed_norm.": last}.items():
                name = name.replace(ours, theirs)
            side = "decoder." if name.startswith("writer.") else "encoder."
            found[f"net.{side}{name.removeprefix('writer.')}"] = tensor
        own = self.state_dict()
        self.load_state_dict({name: found.pop(name, tensor) for name, tensor in own.items()})
        assert not found, sorted(found)
        return self
