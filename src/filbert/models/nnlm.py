"""NNLM (Bengio et al. 2003): token ids in, a vector per token out, made of it and the few tokens before it.

    y = b + W x + U tanh(d + H x),   x = (C(w_t), C(w_t-1), …, C(w_t-n+2))        (eq. 1)

Legend: T tokens in the pack, R rows asked for, N = n-1 words that are read, M width of a word, D width, V vocabulary.
C, d and H are the encoder, whose vector at t is tanh(d + H x); b, W and U are the head that scores the word at t+1. W,
the direct way from the words to the scores, is optional: with it x stands beside the hidden vector, so that the head is
one linear map of both. Before a sequence begins stands one learned vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from filbert.core.errors import InputError
from filbert.core.protocols import Objective
from filbert.core.records import Packed
from filbert.nn.encoder import ModelSpec
from filbert.nn.generation import LeftToRight
from filbert.nn.layers import Dropout, Rows, initialise, rows_of

LIMITS = {  # generous bounds: a config outside them is a mistake or an attack, and is refused before it allocates
    "vocab_size": (1, 4_000_000),
    "word_width": (1, 65_536),
    "hidden": (1, 65_536),
    "order": (2, 1_024),
    "max_length": (1, 4_194_304),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of an NNLM. Checked when made: a wrong field is named."""

    vocab_size: int = 21_128
    word_width: int = 256
    hidden: int = 512
    order: int = 5  # n of the n-grams: n-1 words are read, and the next is predicted
    direct: bool = False  # with it training is faster; without, all must pass the hidden layer (§4.2)
    max_length: int = 512
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(
                    f"nnlm config: {name} is {value!r}, but must be a whole number from {low} to {high:,}."
                )
        if type(self.direct) is not bool:
            raise InputError(f"nnlm config: direct is {self.direct!r}, but must be true or false.")
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout <= 0.99:
            raise InputError(f"nnlm config: dropout is {self.dropout!r}, but must be a number from 0 to 0.99.")

    @property
    def width(self) -> int:
        """D: the hidden vector, and beside it the words that were read where they have a way of their own."""
        return self.hidden + (self.direct and (self.order - 1) * self.word_width)

    @property
    def layers(self) -> int:
        """There is but one."""
        return 1


PRESETS = {
    "tiny": Config(word_width=64, hidden=128),
    "small": Config(),
    "base": Config(word_width=512, hidden=1_024, order=8),
}


class Embeddings(nn.Module):
    """C: a vector for each word, and one for every place before the first."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.word_width)
        self.start = nn.Parameter(torch.randn(config.word_width) * 0.02)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids_RN: Tensor, exists_RN: Tensor) -> Tensor:
        """[R, N·M]: the words of each row side by side, the nearest first."""
        x_RNM = torch.where(exists_RN.unsqueeze(-1), self.words(ids_RN), self.start)
        return self.dropout(x_RNM.flatten(1))  # type: ignore[no-any-return]


class Hidden(nn.Module):
    """tanh(d + H x), with x beside it where the words have a direct way to the scores."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.map = nn.Linear((config.order - 1) * config.word_width, config.hidden)
        self.direct = config.direct

    def forward(self, x_RX: Tensor) -> Tensor:
        """[R, D]."""
        hidden = torch.tanh(self.map(x_RX))
        return torch.cat((hidden, x_RX), dim=-1) if self.direct else hidden


@dataclass(frozen=True, slots=True)
class State:
    """What has been read of each of several texts: its last tokens, the newest first, and how many there were."""

    ids_QN: Tensor
    lengths_Q: Tensor

    def select(self, rows: Tensor) -> State:
        """The state of these texts, in that order; one may be there several times."""
        return State(self.ids_QN[rows], self.lengths_Q[rows])


class Nnlm(LeftToRight):
    """The encoder and whichever heads were asked for; lm is the one that scores the next word (b, U and W)."""

    own_parts = ("lm",)

    def __init__(self, config: Config, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__(config, parts)
        self.config: Config = config
        self.add_heads(labels)
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList([Hidden(config)])
        self.lm = nn.Linear(self.width, config.vocab_size) if "lm" in parts else None
        initialise(self)

    def forward(self, packed: Packed, rows: Rows = None) -> Tensor:
        """[T, D], or [R, D] for the asked rows ("first": each sequence's first token)."""
        places_R = rows_of(torch.arange(len(packed.ids), device=packed.ids.device), packed, rows)
        back_N = torch.arange(self.config.order - 1, device=places_R.device)
        exists_RN = packed.positions[places_R, None] >= back_N
        ids_RN = packed.ids[(places_R[:, None] - back_N).clamp(min=0)]
        return self._vectors(ids_RN, exists_RN)

    def _vectors(self, ids_RN: Tensor, exists_RN: Tensor) -> Tensor:
        return self.layers[0](self.embeddings(ids_RN, exists_RN))  # type: ignore[no-any-return]

    def word_scores(self, x_RD: Tensor) -> Tensor:
        """Scores over the vocabulary for the word after each vector's, [R, V]."""
        if self.lm is None:
            raise InputError("this model folder has no language-model head, so it cannot score words.")
        return self.lm(x_RD)  # type: ignore[no-any-return]

    # Writing ----------------------------------------------------------------------------------------------------------

    def started(self, packed: Packed) -> State:
        """The state after reading the pack's sequences, in the order in which they stand there."""
        ends_Q = packed.boundaries[1:].long()
        places_QN = ends_Q[:, None] - 1 - torch.arange(self.config.order - 1, device=ends_Q.device)
        ids_QN = packed.ids[places_QN.clamp(min=0)] if len(packed.ids) else torch.zeros_like(places_QN)
        return State(ids_QN, ends_Q - packed.boundaries[:-1].long())

    def step(self, ids_Q: Tensor, state: State) -> tuple[Tensor, State]:
        """One token more of each text in, scores of the next [Q, V] in float32 and the state after it out."""
        ids_QN = torch.cat((ids_Q[:, None], state.ids_QN[:, :-1]), dim=1)
        lengths_Q = state.lengths_Q + 1
        exists_QN = torch.arange(self.config.order - 1, device=ids_Q.device) < lengths_Q[:, None]
        scores_QV = self.word_scores(self._vectors(ids_QN, exists_QN)).float()
        return scores_QV, State(ids_QN, lengths_Q)


SPEC = ModelSpec(
    name="nnlm",
    config=Config,
    presets=PRESETS,
    model=Nnlm,
    objective=Objective.NEXT_WORDS,
    rate=3e-3,
    own_parts=Nnlm.own_parts,
)
