"""GPT (Radford et al. 2018, 2019): token ids in, one vector per token out, which has seen it and what came before it.

Legend: T tokens in the pack, R rows asked for, D width, H heads, K head width, V vocabulary. Of what is being written:
N texts, G groups of W texts, S places of a group's memory.
The layout is GPT-2's: norms before attention and feed-forward and one at the end, learned positions, the word table as
output weights. Its published folders (model_type gpt2) fit: the names of their tensors stand at the end of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core.errors import InputError
from filbert.core.protocols import Objective
from filbert.core.records import Packed
from filbert.nn.decoder_attention import CausalAttention, attend_causal
from filbert.nn.encoder import ModelSpec
from filbert.nn.generation import LeftToRight
from filbert.nn.layers import Dropout, PreNorm, Rows, TanhFeedForward, initialise
from filbert.nn.positions import Learned

ROOM = 64  # places that a memory begins with beyond what it holds; then it doubles
LIMITS = {  # generous bounds: a config outside them is a mistake or an attack, and is refused before it allocates
    "vocab_size": (1, 4_000_000),
    "width": (1, 65_536),
    "layers": (1, 1_000),
    "heads": (1, 1_024),
    "inner": (1, 1_000_000),
    "max_length": (1, 4_194_304),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a GPT. Checked when made: a wrong field is named."""

    vocab_size: int = 21_128
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3_072  # width inside the feed-forward
    max_length: int = 512
    dropout: float = 0.1
    eps: float = 1e-5

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(f"gpt config: {name} is {value!r}, but must be a whole number from {low} to {high:,}.")
        for name, most in (("dropout", 0.99), ("eps", 0.1)):
            number = getattr(self, name)
            if type(number) not in (int, float) or not 0 <= number <= most:
                raise InputError(f"gpt config: {name} is {number!r}, but must be a number from 0 to {most}.")
        if self.width % self.heads:
            raise InputError(
                f"gpt config: width {self.width} cannot be shared by {self.heads} heads; it must be a multiple."
            )


PRESETS = {
    "tiny": Config(width=128, layers=2, heads=2, inner=512),
    "mini": Config(width=256, layers=4, heads=4, inner=1_024),
    "small": Config(width=512, layers=4, heads=8, inner=2_048),
    "base": Config(max_length=1_024),  # the smallest of GPT-2
    "medium": Config(width=1_024, layers=24, heads=16, inner=4_096, max_length=1_024),
}


class Embeddings(nn.Module):
    """Word and position vectors, added and dropped."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.width)
        self.positions = Learned(config.max_length, config.width)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids_T: Tensor, positions_T: Tensor) -> Tensor:
        """[T, D]."""
        return self.dropout(self.words(ids_T) + self.positions(positions_T))  # type: ignore[no-any-return]


@dataclass(slots=True, kw_only=True)
class State:
    """What has been read of each of N texts: the keys and values of every layer, so that nothing is read twice.

    W texts of a group (a beam) share one memory: first the places of what they have in common, filled up to the longest
    of all groups, then W places for each token written. A mask says which are a text's own: when texts trade places
    only the mask moves.
    """

    memory: Tensor  # [G, layers, 2, H, S, K]
    lengths_N: Tensor
    seen_NS: Tensor | None  # of the places in use those that are a text's own; None: all
    used: int  # places in use
    longest: int  # of the texts, on the host
    width: int = 1  # W
    is_grouped: bool = False

    def spread(self, width: int) -> State:
        """Each text `width` times, side by side, as a group."""
        assert not self.is_grouped, "a state is spread once"
        seen_NS = self.seen_NS
        if seen_NS is None:
            seen_NS = torch.ones(len(self.lengths_N), self.used, dtype=torch.bool, device=self.memory.device)
        lengths_N, seen_NS = (x.repeat_interleave(width, 0) for x in (self.lengths_N, seen_NS))
        return replace(self, lengths_N=lengths_N, seen_NS=seen_NS, width=width, is_grouped=True)

    def select(self, rows_N: Tensor) -> State:
        """The state of these texts; once it is spread: whole groups in their order, each made of its own texts."""
        memory = self.memory
        if not self.is_grouped or len(rows_N) < len(self.lengths_N):
            memory = memory.index_select(0, rows_N[:: self.width] // self.width)
        seen_NS = None if self.seen_NS is None else self.seen_NS[rows_N]
        return replace(self, memory=memory, lengths_N=self.lengths_N[rows_N], seen_NS=seen_NS)

    def grown(self) -> State:
        """The same with room for one token more of each text, which then counts as read."""
        used, memory, seen_NS = self.used + self.width, self.memory, self.seen_NS
        if used > memory.shape[4]:
            memory = F.pad(memory, (0, 0, 0, max(memory.shape[4], ROOM * self.width)))
        if seen_NS is not None:
            eye_WW = torch.eye(self.width, dtype=torch.bool, device=memory.device)
            seen_NS = torch.cat((seen_NS, eye_WW.repeat(len(memory), 1)), dim=1)
        lengths_N, longest = self.lengths_N + 1, self.longest + 1
        return replace(self, memory=memory, lengths_N=lengths_N, seen_NS=seen_NS, used=used, longest=longest)

    def read(self, layer: int, q_NHK: Tensor, kv_N2HK: Tensor) -> Tensor:
        """Puts each text's newest key and value into a layer's memory; what its query reads there, [N, H, K]."""
        cache, shape = self.memory[:, layer], (len(self.memory), self.width)
        kv_GW2HK = kv_N2HK.view(*shape, *kv_N2HK.shape[1:])
        cache[:, :, :, self.used - self.width : self.used] = kv_GW2HK.permute(0, 2, 3, 1, 4)
        k_GHSK, v_GHSK = cache[:, :, :, : self.used].unbind(1)
        q_GHWK = q_NHK.view(*shape, *q_NHK.shape[1:]).transpose(1, 2)
        seen = None if self.seen_NS is None else self.seen_NS.view(*shape, self.used).unsqueeze(1)
        return F.scaled_dot_product_attention(q_GHWK, k_GHSK, v_GHSK, attn_mask=seen).transpose(1, 2).flatten(0, 1)


class Gpt(LeftToRight):
    """The encoder and whichever heads were asked for; lm, which scores the next word, is the word table itself."""

    own_parts = ("lm",)

    def __init__(self, config: Config, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__(config, parts)
        self.config: Config = config
        self.add_heads(labels)
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width, eps=config.eps)
        initialise(self)

    def forward(self, packed: Packed, rows: Rows = None) -> Tensor:
        """[T, D]; for `rows` alone ([R, D], or "first" for [B, D]) the last layer maps only theirs."""
        x_TD = self.embeddings(packed.ids, packed.positions)
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            x_TD = layer(x_TD, packed, None, rows if index == last else None)
        return self.final_norm(x_TD)  # type: ignore[no-any-return]

    def word_scores(self, x_RD: Tensor) -> Tensor:
        """Scores over the vocabulary for the word after each vector's, [R, V]."""
        if "lm" not in self.parts:
            raise InputError("this model folder has no language-model head, so it cannot score words.")
        return F.linear(x_RD, self.embeddings.words.weight)

    # Writing ----------------------------------------------------------------------------------------------------------

    def started(self, packed: Packed) -> State:
        """The state after reading the pack's sequences, in the order in which they stand there; some may be empty."""
        config, device, longest = self.config, packed.ids.device, max(packed.lengths, default=0)
        lengths_N = packed.boundaries.diff().long()
        shape = (config.layers, 2, config.heads, longest + ROOM, config.width // config.heads)
        memory = self.embeddings.words.weight.new_zeros(len(lengths_N), *shape)
        texts_T = torch.arange(len(lengths_N), device=device).repeat_interleave(lengths_N, output_size=len(packed.ids))

        def read(layer: int, q_THK: Tensor, kv_T2HK: Tensor) -> Tensor:
            memory[texts_T, layer, :, :, packed.positions] = kv_T2HK
            return attend_causal(q_THK, kv_T2HK[:, 0], kv_T2HK[:, 1], packed)

        self._passed(self.embeddings(packed.ids, packed.positions), read)
        is_even = min(packed.lengths, default=0) == longest
        seen_NS = None if is_even else torch.arange(longest, device=device) < lengths_N[:, None]
        return State(memory=memory, lengths_N=lengths_N, seen_NS=seen_NS, used=longest, longest=longest)

    def step(self, ids_N: Tensor, state: State) -> tuple[Tensor, State]:
        """One token more of each text in, scores of the next [N, V] in float32 and the state after it out.

        The memory is written in place: the state that was given is spent.
        """
        if state.longest >= self.config.max_length:
            raise InputError(f"a text has {state.longest + 1} tokens, but the model reads only {state.longest}.")
        x_ND, state = self.embeddings(ids_N, state.lengths_N), state.grown()
        return self.word_scores(self.final_norm(self._passed(x_ND, state.read))).float(), state

    def _passed(self, x_TD: Tensor, read: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
        """x through all layers, [T, D]; `read` gives what a query reads of keys and values."""
        shape = (len(x_TD), 3, self.config.heads, self.width // self.config.heads)
        for index, layer in enumerate(self.layers):
            block = cast(PreNorm, layer)
            qkv_T3HK = block.attention.qkv(block.attention_norm(x_TD)).view(shape)
            x_TD = x_TD + block.attention.out(read(index, qkv_T3HK[:, 0], qkv_T3HK[:, 1:]).flatten(1))
            x_TD = x_TD + block.feed(block.feed_norm(x_TD))
        return x_TD


def _layer(config: Config) -> PreNorm:
    attention = CausalAttention(config.width, config.heads, bias=True)
    feed = TanhFeedForward(config.width, config.inner, bias=True)
    norms = (nn.LayerNorm(config.width, eps=config.eps), nn.LayerNorm(config.width, eps=config.eps))
    return PreNorm(attention, feed, norms, config.dropout)


# Foreign weight names ------------------------------------------------------------------------------------------------


def gpt2_names(config: Config) -> Iterator[tuple[str, str, bool]]:
    """Our tensors, those of a `GPT2Model` folder (without `transformer.`), and whether theirs lie transposed.

    GPT-2 keeps the weights of its linear maps as [in, out] (Conv1D), torch as [out, in].
    """
    yield "embeddings.words.weight", "wte.weight", False
    yield "embeddings.positions.weight", "wpe.weight", False
    for i in range(config.layers):
        for ours, theirs, transposed in (
            ("attention_norm", "ln_1", False), ("attention.qkv", "attn.c_attn", True),
            ("attention.out", "attn.c_proj", True), ("feed_norm", "ln_2", False), ("feed.up", "mlp.c_fc", True),
            ("feed.down", "mlp.c_proj", True),
        ):  # fmt: skip
            yield f"layers.{i}.{ours}.weight", f"h.{i}.{theirs}.weight", transposed
            yield f"layers.{i}.{ours}.bias", f"h.{i}.{theirs}.bias", False
    yield "final_norm.weight", "ln_f.weight", False
    yield "final_norm.bias", "ln_f.bias", False


def from_gpt2(weights: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """A state_dict of ours from one of transformers' `GPT2Model` or `GPT2LMHeadModel`."""
    stored = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    names = list(gpt2_names(config))
    missing = [theirs for _, theirs, _ in names if theirs not in stored]
    if missing:
        raise InputError(f"these are not the weights of a GPT-2 of {config.layers} layers: {missing[0]} is missing.")
    return {ours: stored[theirs].t() if transposed else stored[theirs] for ours, theirs, transposed in names}


SPEC = ModelSpec(
    name="gpt",
    config=Config,
    presets=PRESETS,
    model=Gpt,
    objective=Objective.NEXT_WORDS,
    own_parts=Gpt.own_parts,
)
