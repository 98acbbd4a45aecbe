"""ELMo (Peters et al. 2018): token ids in, a vector per token out, mixed of two readings of its text, onward and back.

    ELMo = γ Σ_j softmax(w)_j h_j,   h_0 = (x, x),   h_j = (onward LSTM_j, backward LSTM_j)        (eq. 1)

Legend: T tokens in the pack, R rows asked for, U different tokens in it, C bytes of a token, E width of one direction,
D = 2E width, V vocabulary.
The onward state at t has read tokens up to t and predicts t+1; the backward one has read from t on and predicts t-1.
Both directions share what a token looks like and the scores' weights (§3.1); the LSTMs are each one's own. A token's
vector x is a row of a table, or comes from its spelling: filters over its bytes, two highway layers and a map (§3.4,
Jozefowicz et al. 2016). γ and w belong to a task and are learnt with it. In the paper an LSTM is wider than the vectors
that it hands on; here it is as wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Objective
from filbert.core.records import Packed
from filbert.nn.encoder import Encoder, ModelSpec
from filbert.nn.layers import Dropout, Rows, initialise, rows_of
from filbert.nn.recurrent import Recurrent

INPUTS = ("tokens", "characters")
# A token's spelling is its UTF-8 bytes between two marks, filled up to a constant length: as published, so that every
# script has the same small alphabet.
BEGIN, END, FILL, ALPHABET = 256, 257, 258, 259
BYTE_WIDTH = 16
SPANS = ((1, 1), (2, 1), (3, 2), (4, 4), (5, 8), (6, 16), (7, 32))  # bytes that filters see; how many see so many
HIGHWAYS = 2
LIMITS = {  # generous bounds: a config outside them is a mistake or an attack, and is refused before it allocates
    "vocab_size": (1, 4_000_000),
    "direction_width": (1, 32_768),
    "layers": (1, 100),
    "filters": (1, 1_024),
    "token_bytes": (8, 1_024),
    "max_length": (1, 4_194_304),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of an ELMo. Checked when made: a wrong field is named."""

    vocab_size: int = 21_128
    direction_width: int = 512  # E
    layers: int = 2
    input: str = "tokens"  # tokens | characters
    filters: int = 32  # times 64 are the filters over characters; 32 is the paper's 2,048
    token_bytes: int = 50  # of a token's spelling, its marks included; the rest of a longer one is not seen
    max_length: int = 512
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(
                    f"elmo config: {name} is {value!r}, but must be a whole number from {low} to {high:,}."
                )
        if self.input not in INPUTS:
            raise one_of("elmo config: input", self.input, INPUTS)
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout <= 0.99:
            raise InputError(f"elmo config: dropout is {self.dropout!r}, but must be a number from 0 to 0.99.")

    @property
    def width(self) -> int:
        """D: both directions side by side."""
        return 2 * self.direction_width


PRESETS = {
    "tiny": Config(direction_width=64, filters=4),
    "small": Config(direction_width=256, filters=8),
    "base": Config(),
    "characters-tiny": Config(direction_width=64, filters=4, token_bytes=24, input="characters"),
    "characters": Config(input="characters"),
}


class Words(nn.Module):
    """A token's vector: its row of a table."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.direction_width)

    def forward(self, ids_T: Tensor) -> Tensor:
        """[T, E]."""
        return self.words(ids_T)  # type: ignore[no-any-return]


class Spellings(nn.Module):
    """A token's vector: what filters find in its spelling.

    How each token is spelled follows from the vocabulary, so it is not saved with the weights: whoever loads them tells
    it anew. Until `Elmo.spell` does, it is the token's number.
    """

    spellings: Tensor  # [V, C]

    def __init__(self, config: Config) -> None:
        super().__init__()
        numbers = spelled([str(index) for index in range(config.vocab_size)], config.token_bytes)
        self.register_buffer("spellings", torch.from_numpy(numbers), persistent=False)
        self.bytes = nn.Embedding(ALPHABET, BYTE_WIDTH)
        self.filters = nn.ModuleList(nn.Conv1d(BYTE_WIDTH, times * config.filters, span) for span, times in SPANS)
        width = sum(times for _, times in SPANS) * config.filters
        self.highways = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(HIGHWAYS))
        self.map = nn.Linear(width, config.direction_width)

    def forward(self, ids_T: Tensor) -> Tensor:
        """[T, E]; a token that is there often is read once."""
        ids_U, where_T = ids_T.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        bytes_UBC = self.bytes(self.spellings[ids_U].long()).transpose(1, 2)
        x = torch.cat([F.relu(each(bytes_UBC).amax(-1)) for each in self.filters], dim=-1)
        for highway in self.highways:  # g · relu(A x) + (1 - g) · x, with g = σ(B x): Srivastava et al. 2015
            new, gate = highway(x).chunk(2, dim=-1)
            x = torch.lerp(x, F.relu(new), torch.sigmoid(gate))
        return self.map(x)[where_T]  # type: ignore[no-any-return]


def spelled(tokens: Sequence[str], token_bytes: int) -> np.ndarray:
    """[V, C] int16: each token's bytes between the marks, cut or filled up to that many."""
    rows = np.full((len(tokens), token_bytes), FILL, dtype=np.int16)
    for row, token in zip(rows, tokens, strict=True):
        letters = token.encode("utf-8", "surrogatepass")[: token_bytes - 2]
        row[: len(letters) + 2] = (BEGIN, *letters, END)
    return rows


class Layer(nn.Module):
    """An LSTM onward and one back, each over what it found in the layer below."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.onward = Recurrent("lstm", width, width)
        self.back = Recurrent("lstm", width, width, backward=True)
        self.dropout = Dropout(dropout)

    def forward(self, onward_TE: Tensor, back_TE: Tensor, packed: Packed) -> tuple[Tensor, Tensor]:
        """Each [T, E]."""
        return self.onward(self.dropout(onward_TE), packed), self.back(self.dropout(back_TE), packed)


class Mix(nn.Module):
    """γ Σ_j softmax(w)_j h_j: which layers a task reads; all alike until it learns."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Like each of them."""
        mixed = [share * layer for share, layer in zip(self.weights.softmax(-1), layers, strict=True)]
        return self.gamma * torch.stack(mixed).sum(0)


class Elmo(Encoder):
    """The encoder, the mix of its layers, and whichever heads were asked for; lm scores the neighbouring words."""

    own_parts = ("lm",)
    mixes = True
    spells = True
    directions = ("forward", "backward")

    def __init__(self, config: Config, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__(config, parts)
        self.config: Config = config
        self.add_heads(labels)
        self.embeddings = Words(config) if config.input == "tokens" else Spellings(config)
        self.layers = nn.ModuleList(Layer(config.direction_width, config.dropout) for _ in range(config.layers))
        self.mix = Mix(config.layers + 1)
        self.lm = nn.Linear(config.direction_width, config.vocab_size) if "lm" in parts else None
        initialise(self)
        if isinstance(self.embeddings, Words):  # of the size that LSTMs work with; nothing norms it on the way
            nn.init.normal_(self.embeddings.words.weight, std=config.direction_width**-0.5)

    def spell(self, tokens: Sequence[str]) -> None:
        """Takes the spelling of the vocabulary's tokens; nothing to do where a token is a row of a table."""
        if isinstance(self.embeddings, Spellings):
            if len(tokens) != self.config.vocab_size:
                raise InputError(f"elmo has {self.config.vocab_size:,} tokens, but {len(tokens):,} were spelled.")
            table = torch.from_numpy(spelled(tokens, self.config.token_bytes))
            self.embeddings.spellings.copy_(table)

    def forward(self, packed: Packed, rows: Rows = None) -> Tensor:
        """[T, D]: the mix of all layers, or its asked rows ("first": each sequence's first token)."""
        sides = [torch.cat((onward, back), dim=-1) for onward, back in self._read(packed)]
        return cast(Tensor, self.mix([rows_of(side_TD, packed, rows) for side_TD in sides]))

    def both_ways(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """[T, E] each: the last layer's states, onward to predict the next word and back to predict the one before."""
        return self._read(packed)[-1]

    def _read(self, packed: Packed) -> list[tuple[Tensor, Tensor]]:
        """Every layer's states of both directions, the tokens' own vectors first."""
        x_TE = self.embeddings(packed.ids)
        states = [(x_TE, x_TE)]
        for index, layer in enumerate(self.layers):
            sides = layer(*states[-1], packed)
            if index:  # the second layer adds to what the first found (§3.4)
                sides = (sides[0] + states[-1][0], sides[1] + states[-1][1])
            states.append(sides)
        return states

    def word_scores(self, x_RE: Tensor) -> Tensor:
        """Scores over the vocabulary for the word next to each vector's, in the vector's own direction, [R, V]."""
        if self.lm is None:
            raise InputError("this model folder has no language-model head, so it cannot score words.")
        return self.lm(x_RE)  # type: ignore[no-any-return]


SPEC = ModelSpec(
    name="elmo",
    config=Config,
    presets=PRESETS,
    model=Elmo,
    objective=Objective.NEXT_WORDS,
    rate=3e-3,
    own_parts=Elmo.own_parts,
)
