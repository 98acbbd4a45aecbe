"""GloVe: token ids in, each token's own vector out, learnt from counts of neighbours (Pennington et al. 2014).

Legend: T tokens in the pack, R rows asked for, D width, V vocabulary, E pairs of words.
A word has a vector as a word and one as a context of others: w·c + b + b' is to be the logarithm of the count (eq. 8).
Both tables learn the same thing from different beginnings, so the vector of a word is the sum of the two (§4.2). The
biases are for pretraining alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from filbert.core.errors import InputError
from filbert.core.protocols import Objective
from filbert.core.records import Packed
from filbert.nn.encoder import Encoder, ModelSpec
from filbert.nn.layers import Dropout, Rows, initialise, rows_of

LIMITS = {"vocab_size": (1, 4_000_000), "width": (1, 65_536), "max_length": (1, 4_194_304)}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a table of vectors. Checked when made: a wrong field is named."""

    vocab_size: int = 21_128
    width: int = 300
    max_length: int = 512  # of a text that a task hands over at once; the vectors themselves know no places
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(
                    f"glove config: {name} is {value!r}, but must be a whole number from {low} to {high:,}."
                )
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout <= 0.99:
            raise InputError(f"glove config: dropout is {self.dropout!r}, but must be a number from 0 to 0.99.")


PRESETS = {"tiny": Config(width=64), "small": Config(width=100), "base": Config()}


class Embeddings(nn.Module):
    """Two vectors for each word, whose sum stands for it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.width)
        self.contexts = nn.Embedding(config.vocab_size, config.width)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids_R: Tensor) -> Tensor:
        """[R, D]."""
        return self.dropout(self.words(ids_R) + self.contexts(ids_R))  # type: ignore[no-any-return]


class Biases(nn.Module):
    """How frequent each word is by itself, as a word and as a context."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.zeros(vocab_size))
        self.contexts = nn.Parameter(torch.zeros(vocab_size))


class GloVe(Encoder):
    """Both tables; with the part `biases`, ready to learn from counts."""

    own_parts = ("biases",)

    def __init__(self, config: Config, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__(config, parts)
        self.config: Config = config
        self.add_heads(labels)
        self.embeddings = Embeddings(config)
        self.biases = Biases(config.vocab_size) if "biases" in parts else None
        initialise(self)
        for table in (self.embeddings.words, self.embeddings.contexts):  # as the authors' program begins
            nn.init.uniform_(table.weight, -0.5 / config.width, 0.5 / config.width)

    def forward(self, packed: Packed, rows: Rows = None) -> Tensor:
        """[T, D], or [R, D] of the rows asked for."""
        return self.embeddings(rows_of(packed.ids, packed, rows))  # type: ignore[no-any-return]

    def log_counts(self, words_E: Tensor, contexts_E: Tensor) -> Tensor:
        """[E] the logarithm of how often each of these words has that context, as the model has it: w·c + b + b'."""
        if self.biases is None:
            raise InputError("this model has no biases, so it cannot tell counts; build it with the part 'biases'.")
        products_E = (self.embeddings.words(words_E) * self.embeddings.contexts(contexts_E)).sum(-1)
        log_counts_E: Tensor = products_E + self.biases.words[words_E] + self.biases.contexts[contexts_E]
        return log_counts_E


SPEC = ModelSpec(
    name="glove",
    config=Config,
    presets=PRESETS,
    model=GloVe,
    objective=Objective.WORD_COUNTS,
    own_parts=GloVe.own_parts,
)
