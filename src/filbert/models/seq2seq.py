"""Seq2seq: source ids in, a vector per token out; and a recurrent decoder that writes another text, word by word.

An encoder of both directions, and a decoder that begins with its last state (Sutskever et al. 2014) and, unless the
score is "none", looks back at all its vectors before each word (Bahdanau et al. 2015). Attention stands where Luong et
al. 2015, §3.1 put it, after the decoder's layers: the query is the decoder's state at that word, one vector however
long the text has become; the encoder's vectors are keys and values. Bahdanau asks with the state before, so that each
word's layers wait for the last word's attention; here all words of a known target are read at once.

Legend: T source tokens in a pack, U target tokens, B sequences, S the longest source, Q the longest target, N texts
being written, L layers, E width of a word's vector, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core.errors import InputError
from filbert.core.records import Packed
from filbert.core.settings import check_one_of
from filbert.nn.attention_scores import SCORES, mix, score
from filbert.nn.copying import Copier, Copies, Readable, log_chances
from filbert.nn.decoder_attention import Owners
from filbert.nn.encoder import Encoder, ModelSpec
from filbert.nn.grid import Grid
from filbert.nn.layers import Dropout, Rows, rows_of
from filbert.nn.recurrent import CELLS, Recurrent

NO_SCORE = "none"
LIMITS = {  # generous bounds: a config outside them is a mistake or an attack, and is refused before it allocates
    "vocab_size": (1, 4_000_000),
    "width": (2, 65_536),
    "embedding": (1, 65_536),
    "layers": (1, 100),
    "max_length": (1, 4_194_304),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a seq2seq. Checked when made: a wrong field is named."""

    vocab_size: int = 21_128  # of source and target together
    width: int = 256  # of a token's vector, half for each direction, and of the decoder's state
    embedding: int = 256  # of a word's vector
    layers: int = 2  # of the encoder, and as many of the decoder
    cell: str = "gru"  # gru | lstm
    score: str = "additive"  # one of nn.attention_scores.SCORES, or none: the last state alone
    tied: bool = True  # words are written by the table that they are read by
    max_length: int = 512  # of what is read or written at once; no table limits it
    dropout: float = 0.2

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(
                    f"seq2seq config: {name} is {value!r}, but must be a whole number from {low} to {high:,}."
                )
        if self.width % 2:
            raise InputError(f"seq2seq config: width is {self.width}, but must be even: each direction has half of it.")
        check_one_of("seq2seq config", self, cell=CELLS, score=(*SCORES, NO_SCORE))
        if type(self.tied) is not bool:
            raise InputError(f"seq2seq config: tied is {self.tied!r}, but must be true or false.")
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout <= 0.99:
            raise InputError(f"seq2seq config: dropout is {self.dropout!r}, but must be a number from 0 to 0.99.")


PRESETS = {
    "tiny": Config(width=128, embedding=128, layers=1),
    "small": Config(),
    "base": Config(width=512, embedding=512),
}


@dataclass(frozen=True, slots=True)
class State:
    """Where each of N texts stands while it is written: the decoder's state, and the source that it looks at."""

    hidden: tuple[Tensor, ...]  # [L, N, D]; of an LSTM a second one, what its cells hold
    keys_NSD: Tensor  # as the score wants them; S is 0 where nothing is looked at
    values_NSD: Tensor
    seen_NS: Tensor  # bool: where there is a token
    readable: Readable | None = None  # the source as a copier reads it

    def select(self, rows_N: Tensor) -> State:
        """The texts of these rows, in this order; a row may come again, or not at all."""
        keys_NSD, values_NSD, seen_NS = (
            part.index_select(0, rows_N) for part in (self.keys_NSD, self.values_NSD, self.seen_NS)
        )
        hidden = tuple(part.index_select(1, rows_N) for part in self.hidden)
        return State(hidden, keys_NSD, values_NSD, seen_NS, self.readable and self.readable.select(rows_N))


class Embeddings(nn.Module):
    """A vector for each word, dropped.

    The table also scores words, so its rows begin with a length near 1 and are read √E times as long (Vaswani et al.
    2017, §3.4).
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.embedding)
        nn.init.normal_(self.words.weight, std=config.embedding**-0.5)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids_T: Tensor) -> Tensor:
        """[T, E]."""
        return self.dropout(self.words(ids_T) * self.words.embedding_dim**0.5)  # type: ignore[no-any-return]


class Writer(nn.Module):
    """The decoder: its recurrent layers, how they begin, what they look at, and how a vector becomes a word."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, self.kinds = config.width, 2 if config.cell == "lstm" else 1
        self.layers = nn.ModuleList(
            Recurrent(config.cell, width if index else config.embedding, width) for index in range(config.layers)
        )
        self.bridge = nn.Linear(width, self.kinds * config.layers * width)
        self.score = None if config.score == NO_SCORE else score(config.score, width)
        self.join = nn.Linear(2 * width, width, bias=False) if self.score else None
        self.narrow = nn.Linear(width, config.embedding, bias=False) if config.embedding != width else nn.Identity()
        self.words = None if config.tied else nn.Linear(config.embedding, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dropout = Dropout(config.dropout)

    def initial_state(self, last_BD: Tensor) -> tuple[Tensor, ...]:
        """[L, B, D], of an LSTM two: tanh of a learned map of the encoder's last state (Bahdanau et al. 2015, §A.2.2).

        Bahdanau takes the backward direction's alone; here both, for a decoder that may look at nothing else.
        """
        mapped = torch.tanh(self.bridge(last_BD)).view(len(last_BD), self.kinds, len(self.layers), last_BD.shape[-1])
        return tuple(part.contiguous() for part in mapped.permute(1, 2, 0, 3))

    def looked(self, state_BQD: Tensor, at: State) -> tuple[Tensor, Tensor]:
        """[B, Q, D] tanh(W·[what was read; state]) (Luong et al. 2015, eq. 5), and [B, Q, S] by which weights."""
        if self.score is None or self.join is None:
            return state_BQD, state_BQD.new_zeros(*state_BQD.shape[:2], 0)
        scores_BQS = self.score.met(state_BQD, at.keys_NSD)
        read_BQD, weights_BQS = mix(scores_BQS, at.values_NSD, at.seen_NS[:, None])
        return torch.tanh(self.join(torch.cat((read_BQD, state_BQD), -1))), weights_BQS


class Seq2seq(Encoder):
    """The encoder, whichever heads were asked for and, with the part "writer", the decoder.

    With the part "copier" it may also copy words of its source (nn.copying).
    """

    own_parts = ("writer", "copier")

    def __init__(self, config: Config, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__(config, parts)
        self.config: Config = config
        self.add_heads(labels)
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(
            Recurrent(config.cell, config.width if index else config.embedding, config.width // 2, both=True)
            for index in range(config.layers)
        )
        self.dropout = Dropout(config.dropout)
        self.writer = Writer(config) if "writer" in parts else None
        self.copier = Copier(config.width) if "copier" in parts else None

    def forward(self, packed: Packed, rows: Rows = None) -> Tensor:
        """[T, D] both directions of the last layer, side by side; or of the asked rows."""
        x = self.embeddings(packed.ids)
        for index, layer in enumerate(self.layers):
            x = layer(self.dropout(x) if index else x, packed)
        return rows_of(x, packed, rows)

    def decoded(self, target: Packed, memory_TD: Tensor, source: Packed, owners_B: Tensor) -> Tensor:
        """[U, D]: the vector at each target token says what comes after it, knowing all target tokens up to it.

        Sequence b of the target reads sequence owners[b] of the source, both in the order of their packs.
        """
        return self._decoded(target, memory_TD, source, owners_B)[0]

    def attention_of(self, target: Packed, memory_TD: Tensor, source: Packed, owners_B: Tensor) -> list[Tensor]:
        """[its target tokens, its source tokens] for each target: how much it looked where before the next word."""
        if self.config.score == NO_SCORE:
            raise InputError("this seq2seq looks at nothing (its score is 'none'), so there is no attention to show.")
        weights_BQS = self._decoded(target, memory_TD, source, owners_B)[1]
        sizes = [source.lengths[owner] for owner in owners_B.tolist()]
        return [w_QS[:q, :s] for w_QS, q, s in zip(weights_BQS, target.lengths, sizes, strict=True)]

    def word_scores(self, x_UD: Tensor) -> Tensor:
        """[U, V] scores of what comes next."""
        writer = self._writer()
        table_VE = self.embeddings.words.weight if writer.words is None else writer.words.weight
        return F.linear(writer.narrow(x_UD), table_VE, writer.bias)

    def copies(
        self, x_UD: Tensor, target: Packed, memory_TD: Tensor, source: Packed, owners_B: Owners = None
    ) -> Copies | None:
        """What each token of the targets may copy of its source next; None of a model that cannot copy."""
        return None if self.copier is None else self.copier.copies(x_UD, target, memory_TD, source, owners_B)

    def started(self, memory_TD: Tensor, source: Packed) -> State:
        """Before the first word of a text for each source sequence, in the pack's order."""
        state = self._started(memory_TD, source)
        return state if self.copier is None else replace(state, readable=self.copier.readable(memory_TD, source))

    def _started(self, memory_TD: Tensor, source: Packed) -> State:
        writer, places = self._writer(), Grid.of(source, memory_TD.device)
        hidden = writer.initial_state(places.last(memory_TD))
        if writer.score is None:
            nothing = memory_TD.new_zeros(len(source.lengths), 0, self.width)
            return State(hidden, nothing, nothing, places.rows_BS[:, :0] < 0)
        values_BSD = places.laid(memory_TD)
        return State(hidden, writer.score.ready(values_BSD), values_BSD, places.rows_BS < len(memory_TD))

    def step(self, ids_N: Tensor, state: State) -> tuple[Tensor, State]:
        """[N, V] scores, in float32, of what comes after these tokens, and where the texts stand then."""
        writer = self._writer()
        x_1ND, lasts = self.embeddings(ids_N)[None], []
        for index, layer in enumerate(writer.layers):
            before = tuple(part[index : index + 1] for part in state.hidden)
            x_1ND = writer.dropout(x_1ND) if index else x_1ND
            x_1ND, last = layer.cell(x_1ND, before if len(before) > 1 else before[0])  # type: ignore[operator]
            lasts.append(last if isinstance(last, tuple) else (last,))
        hidden = tuple(torch.cat(parts) for parts in zip(*lasts, strict=True))
        x_N1D, _ = writer.looked(x_1ND.transpose(0, 1), state)
        x_N1D, state = writer.dropout(x_N1D), replace(state, hidden=hidden)
        scores_NV = self.word_scores(x_N1D[:, 0]).float()
        if self.copier is None or state.readable is None:
            return scores_NV, state
        copies = Copies(*(each.squeeze(1) for each in self.copier.met(x_N1D, state.readable)))
        return log_chances(scores_NV, copies), state

    def _decoded(self, target: Packed, memory_TD: Tensor, source: Packed, owners_B: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors, [U, D], and weights, [B, Q, S]."""
        writer, state = self._writer(), self._started(memory_TD, source).select(owners_B.to(memory_TD.device))
        x_UD = self.embeddings(target.ids)
        for index, layer in enumerate(writer.layers):
            before = tuple(part[index : index + 1] for part in state.hidden)
            x_UD, _ = layer.run(writer.dropout(x_UD) if index else x_UD, target, before)  # type: ignore[operator]
        places = Grid.of(target, x_UD.device)
        x_BQD, weights_BQS = writer.looked(places.laid(x_UD), state)
        return writer.dropout(places.taken(x_BQD)), weights_BQS

    def _writer(self) -> Writer:
        if self.writer is None:
            raise InputError("this seq2seq has no decoder, so it cannot write; train it to translate or to summarise.")
        return self.writer


SPEC = ModelSpec(
    name="seq2seq",
    config=Config,
    presets=PRESETS,
    model=Seq2seq,
    rate=2e-3,
    writes=True,
    own_parts=Seq2seq.own_parts,
)
