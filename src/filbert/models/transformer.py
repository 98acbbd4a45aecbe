"""The Transformer (Vaswani et al. 2017): token ids in, one vector per source token, and a target token by token, out.

Legend: T tokens of the sources, U tokens of the targets, B sequences, D width, H heads, K head width, V vocabulary,
S length of a source; while writing: N rows, in G groups of W that share a source, L tokens read so far.

One embedding serves source, target and output (§3.4). The encoder is built as BERT's, under the same names, so that a
BERT of the same layout can start it (`take_encoder`). The decoder is the part "writer"; with the part "copier" it may
also copy words of its source (nn.copying).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core import settings
from filbert.core.errors import InputError
from filbert.core.records import Packed
from filbert.nn.copying import Copier, Copies, Readable, log_chances
from filbert.nn.cuda_graph import CudaGraph
from filbert.nn.decoder_attention import CausalAttention, CrossAttention, Owners, arranged
from filbert.nn.encoder import Encoder, ModelSpec
from filbert.nn.layers import BLOCKS, FEED_FORWARDS, Dropout, Rows, SelfAttention, initialise
from filbert.nn.positions import Learned, Sinusoidal, Table

POSITIONS: dict[str, type[Learned | Sinusoidal]] = {"sinusoidal": Sinusoidal, "learned": Learned}
EPS = {"scaled": 1e-5, "normed": 1e-12}  # of the norms; the latter is BERT's
SEGMENTS = 2  # kinds of segment where the embedding is BERT's
ENCODER = ("embeddings.", "layers.", "final_norm.")
GROWTH = 64  # tokens that a cache first has room for; doubled when they are written
STEADY: bool | None = None  # whether steps are captured while texts are generated; None: on a GPU
REHEARSALS = 3  # steps that are run before one is captured: what ends at once is not worth it
ALIGNED = 8  # numbers of a mask's row, or a multiple, that the kernels take as it is
LOW = float("-inf")
LIMITS = {  # generous bounds: a config outside them is a mistake or an attack, and is refused before it allocates
    "vocab_size": (1, 4_000_000),
    "width": (1, 65_536),
    "layers": (1, 1_000),
    "writer_layers": (1, 1_000),
    "heads": (1, 1_024),
    "inner": (1, 1_000_000),
    "max_length": (1, 4_194_304),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a Transformer. Checked when made: a wrong field is named."""

    vocab_size: int = 32_000
    width: int = 512
    layers: int = 6  # of the encoder
    writer_layers: int = 6  # of the decoder; one or two write several times as fast (Kasai et al. 2021)
    heads: int = 8
    inner: int = 2_048  # width inside the feed-forward
    max_length: int = 512
    positions: str = "sinusoidal"  # sinusoidal | learned
    embedding: str = "scaled"  # scaled: word vectors times √D (§3.4) | normed: BERT's, with segments and a norm
    norm: str = "post"  # post (the paper) | pre (steadier in deep stacks)
    feedforward: str = "relu"  # relu (the paper) | gelu | gelu-tanh | geglu
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(
                    f"transformer config: {name} is {value!r}, but must be a whole number from {low} to {high:,}."
                )
        settings.check_one_of(
            "transformer config", self, positions=POSITIONS, embedding=EPS, norm=BLOCKS, feedforward=FEED_FORWARDS
        )
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout <= 0.99:
            raise InputError(f"transformer config: dropout is {self.dropout!r}, but must be a number from 0 to 0.99.")
        if self.width % self.heads:
            raise InputError(
                f"transformer config: width {self.width} cannot be shared by {self.heads} heads; take a multiple."
            )


PRESETS = {
    "tiny": Config(width=128, layers=2, writer_layers=2, heads=2, inner=512),
    "small": Config(width=256, layers=3, writer_layers=3, heads=4, inner=1_024),
    "base": Config(),
    "big": Config(width=1_024, heads=16, inner=4_096, dropout=0.3),
}


Part = Callable[[Tensor], Tensor]  # what a layer adds to its input


class Embeddings(nn.Module):
    """Word and position vectors added: words times √D as in the paper, or segments and a norm as in BERT."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        normed = config.embedding == "normed"
        self.words = nn.Embedding(config.vocab_size, config.width)
        self.positions = POSITIONS[config.positions](config.max_length, config.width)
        self.segments = Table(SEGMENTS, config.width) if normed else None
        self.norm = nn.LayerNorm(config.width, eps=EPS["normed"]) if normed else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.scale = 1.0 if normed else math.sqrt(config.width)

    def forward(self, ids_T: Tensor, positions_T: Tensor, segments_T: Tensor | None = None) -> Tensor:
        """[T, D]; no segments: all are of the first kind."""
        x_TD = self.words(ids_T) * self.scale + self.positions(positions_T)
        if self.segments is not None:
            x_TD = x_TD + (self.segments.weight[0] if segments_T is None else self.segments(segments_T))
        return self.dropout(self.norm(x_TD))  # type: ignore[no-any-return]


class WriterBlock(nn.Module):
    """A decoder's layer: what was written is read, then the source, then the feed-forward follows (§3.1)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, eps = config.width, EPS[config.embedding]
        self.attention = CausalAttention(width, config.heads, bias=True)
        self.cross = CrossAttention(width, config.heads, bias=True)
        self.feed = FEED_FORWARDS[config.feedforward](width, config.inner, bias=True)
        self.attention_norm, self.cross_norm, self.feed_norm = (nn.LayerNorm(width, eps=eps) for _ in range(3))
        self.dropout, self.pre = Dropout(config.dropout), config.norm == "pre"

    def forward(self, x_UD: Tensor, memory_TD: Tensor, target: Packed, source: Packed) -> Tensor:
        """[U, D] of whole targets at once; source b is that of target b."""
        return self._through(
            x_UD, lambda x: self.attention(x, target), lambda x: self.cross(x, memory_TD, target, source)
        )

    def step(self, x_ND: Tensor, state: State, index: int) -> Tensor:
        """[N, D] of each row's newest token; this is the writer's layer `index`."""
        return self._through(
            x_ND,
            lambda x: self.attention.out(state.back(index, self.attention.qkv(x))),
            lambda x: self.cross.out(state.attend_source(index, self.cross.q(x))),
        )

    def _through(self, x: Tensor, past: Part, attend_source: Part) -> Tensor:
        x = self._added(x, self.attention_norm, past)
        x = self._added(x, self.cross_norm, attend_source)
        return self._added(x, self.feed_norm, self.feed)

    def _added(self, x: Tensor, norm: nn.Module, part: Part) -> Tensor:
        if self.pre:
            return x + self.dropout(part(norm(x)))  # type: ignore[no-any-return]
        return norm(x + self.dropout(part(x)))  # type: ignore[no-any-return]


class Writer(nn.Module):
    """The decoder's layers and, where they norm first, the norm that follows the last."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layers = nn.ModuleList(WriterBlock(config) for _ in range(config.writer_layers))
        self.final_norm = _final_norm(config)

    def blocks(self) -> Iterator[WriterBlock]:
        """The layers in order."""
        yield from self.layers  # type: ignore[misc]

    def forward(self, x_UD: Tensor, memory_TD: Tensor, target: Packed, source: Packed) -> Tensor:
        """[U, D] of whole targets at once; source b is that of target b."""
        for block in self.blocks():
            x_UD = block(x_UD, memory_TD, target, source)
        return self.final_norm(x_UD)  # type: ignore[no-any-return]

    def step(self, x_ND: Tensor, state: State) -> Tensor:
        """[N, D] of each row's newest token alone."""
        for index, block in enumerate(self.blocks()):
            x_ND = block.step(x_ND, state, index)
        return self.final_norm(x_ND)  # type: ignore[no-any-return]


class State:
    """What a decoder remembers: keys and values of the sources, made once, and of all that each row has read.

    W rows of a group (a beam) share their source and one past: slot l·W + w holds what row w of the group read at place
    l, and a mask says which slots are a row's own. When rows trade places only the mask moves.
    """

    def __init__(self, memory: list[tuple[Tensor, Tensor]], seen: Tensor | None, heads: int) -> None:
        self.memory = memory  # keys and values of each layer, [G, H, S, K]
        self.seen_G11S = seen  # 0 for a source's tokens, -inf for what fills it up; None: all are as long
        self.heads, self.width, self.length, self.grouped = heads, 1, 0, False
        self.past: Tensor | None = None  # [layers, 2, G, H, room·W, K]
        self.readable: Readable | None = None  # the sources as a copier reads them
        self.mask_NL: Tensor | None = None  # [N, L·W] 0 for a row's own slots, -inf for the others'; None: W is 1

    def spread(self, width: int) -> State:
        """Each row `width` times, side by side, as a group."""
        assert not self.grouped, "a state is spread once"
        self.width, self.grouped = width, True
        if self.past is not None:
            self.past = self.past.repeat_interleave(width, dim=4)
        self.mask_NL = self._alone().repeat(1, self.length) if width > 1 else None
        return self

    def select(self, rows_N: Tensor) -> State:
        """The state of these rows; once it is spread: whole groups in their order, each made of its own rows."""
        if self.mask_NL is not None:
            self.mask_NL = self.mask_NL[rows_N]
        if not self.keeps(rows_N):
            groups_G = rows_N[:: self.width] // self.width
            self.memory = [(keys[groups_G], values[groups_G]) for keys, values in self.memory]
            self.seen_G11S = None if self.seen_G11S is None else self.seen_G11S[groups_G]
            self.readable = None if self.readable is None else self.readable.select(groups_G)
            self.past = None if self.past is None else self.past[:, :, groups_G]
        return self

    def keeps(self, rows_N: Tensor) -> bool:
        """Whether these rows are those of all groups, in their order."""
        return self.grouped and len(rows_N) == self.width * len(self.memory[0][0])

    def opened(self) -> Tensor:
        """[1] the place of one token more of each row, for which there is room now."""
        self.length += 1
        if self.mask_NL is not None:
            self.mask_NL = torch.cat((self.mask_NL, self._alone()), 1)
        if self.past is not None and self.past.shape[4] < self.length * self.width:
            self.past = torch.cat((self.past, torch.empty_like(self.past)), 4)
        return torch.full((1,), self.length - 1, device=self.memory[0][0].device)

    def scored(self, ids_N: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """[N, V] the scores that a step's `compute` gives for these tokens."""
        return compute(ids_N)

    def back(self, layer: int, qkv_N3D: Tensor) -> Tensor:
        """[N, D] what each row reads of its past, the token included whose query, key and value these are."""
        size = qkv_N3D.shape[1] // (3 * self.heads)
        qkv_3GHWK = qkv_N3D.view(-1, self.width, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        keys, values = self.put(layer, qkv_3GHWK[1:]).unbind(0)
        mask = None if self.mask_NL is None else self.mask_NL.view(len(keys), 1, self.width, -1)
        return self._mixed(qkv_3GHWK[0], keys, values, mask)

    def put(self, layer: int, kv_2GHWK: Tensor) -> Tensor:
        """[2, G, H, L·W, K] keys and values of the past, these at its end."""
        if self.past is None:
            self.past = kv_2GHWK.new_empty(self._shape(GROWTH))
        end = self.length * self.width
        self.past[layer, :, :, :, end - self.width : end] = kv_2GHWK
        return self.past[layer, :, :, :, :end]

    def attend_source(self, layer: int, q_ND: Tensor) -> Tensor:
        """[N, D] what each row reads of its source."""
        q_GHWK = q_ND.view(-1, self.width, self.heads, q_ND.shape[1] // self.heads).transpose(1, 2)
        return self._mixed(q_GHWK, *self.memory[layer], self.seen_G11S)

    def copies(self, x_ND: Tensor, copier: Copier) -> Copies:
        """What each row may copy of its source."""
        assert self.readable is not None
        ids_GWS, *logs = copier.met(x_ND.view(-1, self.width, x_ND.shape[1]), self.readable)
        return Copies(ids_GWS.flatten(0, 1), *(each.flatten(0, 1) for each in logs))

    def _mixed(self, q_GHWK: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        mask = mask if mask is None else mask.expand(-1, -1, self.width, -1)
        out_GHWK = F.scaled_dot_product_attention(q_GHWK, keys, values, attn_mask=mask)
        return out_GHWK.transpose(1, 2).flatten(2).flatten(0, 1)

    def _shape(self, room: int) -> tuple[int, ...]:
        groups, heads, _, size = self.memory[0][0].shape
        return len(self.memory), 2, groups, heads, room * self.width, size

    def _alone(self) -> Tensor:
        """[N, W] each row sees its own one of its group's slots."""
        keys = self.memory[0][0]
        eye = torch.full((self.width, self.width), LOW, device=keys.device, dtype=keys.dtype).fill_diagonal_(0)
        return eye.repeat(len(keys), 1)


class Steady(State):
    """The same with fixed places: all of the room is read, and what is not a row's own is masked.

    On a GPU the host is the slower of the two. So a step that was done some times with the same rows and the same room
    is captured and replayed from then on (nn.cuda_graph).
    """

    def __init__(self, memory: list[tuple[Tensor, Tensor]], seen: Tensor | None, heads: int) -> None:
        super().__init__(memory, seen, heads)
        self.at_1 = torch.zeros(1, dtype=torch.int64, device=memory[0][0].device)  # the length, for the device
        self.slots_W = self.at_1  # those of the newest token
        self.turns, self.graph, self.ids_N = 0, cast(CudaGraph[Tensor] | None, None), self.at_1
        self._moved()

    def spread(self, width: int) -> State:
        """Each row `width` times, side by side, as a group."""
        super().spread(width)
        return self._moved()

    def select(self, rows_N: Tensor) -> State:
        """The state of these rows; places stay while all rows do."""
        if self.keeps(rows_N) and self.mask_NL is not None:
            self.mask_NL.copy_(self.mask_NL[rows_N])
            return self
        super().select(rows_N)
        return self._moved()

    def scored(self, ids_N: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """[N, V] the scores that a step's `compute` gives for these tokens, valid until the next step."""
        if self.past is None or self.past.shape[4] <= self.length * self.width:
            self._moved()
        self.length, self.turns = self.length + 1, self.turns + 1
        if self.turns <= REHEARSALS:
            return compute(ids_N)
        if self.graph is None:
            input_N = ids_N.clone()
            self.ids_N, self.graph = input_N, CudaGraph(lambda: compute(input_N), ids_N.device)
        self.ids_N.copy_(ids_N)
        return self.graph.replay()

    def opened(self) -> Tensor:
        """[1] the place of one token more of each row, on the device alone."""
        assert self.mask_NL is not None
        at_1 = self.at_1.clone()
        self.slots_W = at_1 * self.width + torch.arange(self.width, device=at_1.device)
        self.mask_NL.index_copy_(1, self.slots_W, self._alone())
        self.at_1.add_(1)
        return at_1

    def put(self, layer: int, kv_2GHWK: Tensor) -> Tensor:
        """[2, G, H, room·W, K] keys and values of the past, these in their slots."""
        assert self.past is not None
        return self.past[layer].index_copy_(3, self.slots_W, kv_2GHWK)

    def _moved(self) -> State:
        """Room for one token more at least, in new tensors: a graph captured before is of no use."""
        self.turns, self.graph = 0, None
        keys, used = self.memory[0][0], self.length * self.width
        shape = self._shape(GROWTH * 2 ** (self.length // GROWTH).bit_length())
        past, mask_NL = keys.new_zeros(shape), keys.new_full((len(keys) * self.width, shape[4]), LOW)
        if self.past is not None:  # zeros, not just any bits: what is masked is read, and no number times 0 is none
            past[:, :, :, :, :used] = self.past[:, :, :, :, :used]
            mask_NL[:, :used] = 0 if self.mask_NL is None else self.mask_NL[:, :used]
        self.past, self.mask_NL = past, mask_NL
        return self


class Transformer(Encoder):
    """The encoder, whichever heads were asked for, and with the part "writer" the decoder, which "copier" lets copy."""

    own_parts = ("writer", "copier")

    def __init__(self, config: Config, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__(config, parts)
        self.config: Config = config
        self.add_heads(labels)
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.layers))
        self.final_norm = _final_norm(config)
        self.writer = Writer(config) if "writer" in parts else None
        self.copier = Copier(config.width) if "copier" in parts else None
        # Words of variance 1/D are of variance 1 once they are scaled, and so are the scores of a normed vector.
        initialise(self, std=config.width**-0.5 if config.embedding == "scaled" else 0.02)
        if self.writer is not None and config.embedding == "normed":
            # Begun with BERT's 0.02 as well, a writer learns later to look at its source.
            for part in filter(None, (self.writer, self.copier)):
                initialise(part, std=config.width**-0.5)
        with torch.no_grad():
            for block in self.writer.blocks() if self.writer else ():
                for adding in (block.attention.out, block.cross.out, block.feed.down):
                    adding.weight.mul_((3 * config.writer_layers) ** -0.5)

    @property
    def is_post_norm(self) -> bool:
        """Whether each layer's sum is normed behind it."""
        return self.config.norm == "post"

    def forward(self, packed: Packed, rows: Rows = None) -> Tensor:
        """[T, D], the memory; for `rows` alone ([R, D], or "first" for [B, D]) the last layer does only their work."""
        x_TD = self.embeddings(packed.ids, packed.positions, packed.segments)
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers if packed.num_tokens else ()):
            x_TD = layer(x_TD, packed, None, rows if index == last else None)
        return self.final_norm(x_TD)  # type: ignore[no-any-return]

    def decoded(self, target: Packed, memory_TD: Tensor, source: Packed, owners_B: Owners = None) -> Tensor:
        """[U, D]: the vector at place t has read the target up to t and its source, and says what comes next."""
        memory_TD, source = arranged(memory_TD, source, target, owners_B)
        x_UD = self.embeddings(target.ids, target.positions)
        return self._writer()(x_UD, memory_TD, target, source)  # type: ignore[no-any-return]

    def word_scores(self, x_UD: Tensor) -> Tensor:
        """Scores over the vocabulary for the given vectors, [U, V]; the output weights are the word table (§3.4)."""
        return F.linear(x_UD, self.embeddings.words.weight)

    def copies(
        self, x_UD: Tensor, target: Packed, memory_TD: Tensor, source: Packed, owners_B: Owners = None
    ) -> Copies | None:
        """What each token of the targets may copy of its source next; None of a model that cannot copy."""
        return None if self.copier is None else self.copier.copies(x_UD, target, memory_TD, source, owners_B)

    def started(self, memory_TD: Tensor, source: Packed) -> State:
        """The state before the first token of a target for each source."""
        state = self._started(memory_TD, source)
        state.readable = None if self.copier is None else self.copier.readable(memory_TD, source)
        return state

    def _started(self, memory_TD: Tensor, source: Packed) -> State:
        num, longest = len(source.lengths), max((1, *source.lengths))
        kind = Steady if (memory_TD.is_cuda if STEADY is None else STEADY) else State
        if kind is Steady:  # a mask whose rows are not so wide would be copied at every step
            longest = -(-longest // ALIGNED) * ALIGNED
        lengths_B = source.boundaries.diff()
        owner_T = torch.arange(num, device=memory_TD.device).repeat_interleave(lengths_B, output_size=len(memory_TD))
        slot_T = owner_T * longest + source.positions
        memory = []
        for block in self._writer().blocks():
            keys, values = (_by_source(x_THK, slot_T, num, longest) for x_THK in block.cross.memory(memory_TD))
            memory.append((keys, values))
        if min(source.lengths, default=longest) == longest:
            return kind(memory, None, self.config.heads)
        # An empty source is one token of zeros: all that is read of it is zero.
        filled_BS = torch.arange(longest, device=memory_TD.device) >= lengths_B.clamp(min=1)[:, None]
        seen_BS = memory[0][0].new_zeros(num, longest).masked_fill(filled_BS, LOW)
        return kind(memory, seen_BS[:, None, None], self.config.heads)

    def step(self, ids_N: Tensor, state: State) -> tuple[Tensor, State]:
        """Scores of each row's next token, [N, V] in float32, and the state with ids_N read."""
        if state.length >= self.config.max_length:
            raise InputError(f"this model writes at most {self.config.max_length} tokens; lower max_new.")

        def work(ids_N: Tensor) -> Tensor:
            x_ND = self.embeddings(ids_N, state.opened())
            x_ND = self._writer().step(x_ND, state)
            scores_NV = self.word_scores(x_ND).float()
            return scores_NV if self.copier is None else log_chances(scores_NV, state.copies(x_ND, self.copier))

        return state.scored(ids_N, work), state

    def take_encoder(self, weights: Mapping[str, Tensor]) -> None:
        """Starts the encoder with these weights, a BERT's or another Transformer's; their heads are passed over."""
        encoder = {name: weight for name, weight in self.state_dict().items() if name.startswith(ENCODER)}
        for name, weight in encoder.items():
            if name not in weights or weights[name].shape != weight.shape:
                raise InputError(
                    f"these weights have no {name} of shape {tuple(weight.shape)}, so they do not fit this encoder; "
                    "a BERT fits embedding=normed, positions=learned, norm=post with the same sizes and feedforward."
                )
        self.load_state_dict({name: weights[name] for name in encoder}, strict=False)

    def _writer(self) -> Writer:
        if self.writer is None:
            raise InputError("this model has no writer, so it cannot write; train it on pairs of texts.")
        return self.writer


def _layer(config: Config) -> nn.Module:
    attention = SelfAttention(config.width, config.heads, bias=True)
    feed = FEED_FORWARDS[config.feedforward](config.width, config.inner, bias=True)
    first, second = (nn.LayerNorm(config.width, eps=EPS[config.embedding]) for _ in range(2))
    return BLOCKS[config.norm](attention, feed, (first, second), config.dropout)


def _final_norm(config: Config) -> nn.Module:
    return nn.LayerNorm(config.width, eps=EPS[config.embedding]) if config.norm == "pre" else nn.Identity()


def _by_source(x_THK: Tensor, slot_T: Tensor, num: int, longest: int) -> Tensor:
    """[B, H, S, K] from a pack's row; zeros fill up what is shorter."""
    full = x_THK.new_zeros(num * longest, *x_THK.shape[1:]).index_copy(0, slot_T, x_THK)
    return full.view(num, longest, *x_THK.shape[1:]).transpose(1, 2).contiguous()


SPEC = ModelSpec(
    name="transformer",
    config=Config,
    presets=PRESETS,
    model=Transformer,
    rate=1e-3,
    writes=True,
    own_parts=Transformer.own_parts,
)
