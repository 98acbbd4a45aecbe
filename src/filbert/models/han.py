"""HAN: token ids in, a vector per token and one per document out, words read into sentences and these into documents.

Hierarchical attention networks (Yang et al. 2016, §2.2). Words go through a GRU of both directions; attention makes one
vector of each sentence; these go through a second GRU; attention makes one vector of the document.

Legend: T tokens in the pack, N sentences, B documents (sequences of the pack), E width of a word's vector, D width.
A token's vector is its word state beside the state of its sentence, half of D each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from filbert.core.errors import InputError
from filbert.core.records import Packed
from filbert.core.settings import check_one_of
from filbert.nn.attention import tensors
from filbert.nn.attention_scores import mix_within
from filbert.nn.encoder import Encoder, ModelSpec
from filbert.nn.layers import Dropout, Rows, rows_of
from filbert.nn.recurrent import CELLS, Recurrent
from filbert.pack.lay import row

ENDING = frozenset("。！？；…｡．.!?;") | {"[SEP]"}  # tokens that end a sentence
LIMITS = {  # generous bounds: a config outside them is a mistake or an attack, and is refused before it allocates
    "vocab_size": (1, 4_000_000),
    "width": (4, 65_536),
    "embedding": (1, 65_536),
    "max_length": (1, 4_194_304),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a HAN. Checked when made: a wrong field is named."""

    vocab_size: int = 21_128
    width: int = 256  # of a token and of a document: half is the words' level, half the sentences'
    embedding: int = 128  # of a word's vector
    cell: str = "gru"  # gru | lstm
    ends: tuple[int, ...] = ()  # ids of the tokens that end a sentence, as `fitted` finds them
    max_length: int = 512  # of what is read at once; no table limits it
    dropout: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends", tuple(self.ends))  # a config that was read from a file has a list
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(f"han config: {name} is {value!r}, but must be a whole number from {low} to {high:,}.")
        if self.width % 4:
            raise InputError(
                f"han config: width is {self.width}, but must be a multiple of 4: two levels have two directions each."
            )
        check_one_of("han config", self, cell=CELLS)
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout <= 0.99:
            raise InputError(f"han config: dropout is {self.dropout!r}, but must be a number from 0 to 0.99.")
        for token in self.ends:
            if type(token) is not int or not 0 <= token < self.vocab_size:
                raise InputError(
                    f"han config: ends has {token!r}, but must have ids of a vocabulary of {self.vocab_size:,}, from 0."
                )


PRESETS = {
    "tiny": Config(width=128, embedding=64),
    "small": Config(),
    "paper": Config(width=200, embedding=200, dropout=0.0),  # §3.3: words of 200, 50 for each direction
    "base": Config(width=1_024, embedding=300),
}


def fitted(config: Config, vocabulary: Sequence[str]) -> Config:
    """The config with the tokens of this vocabulary that end a sentence."""
    return replace(config, ends=tuple(index for index, token in enumerate(vocabulary) if token in ENDING))


@dataclass(frozen=True, slots=True)
class Weights:
    """What both attentions looked at, and of which sentence and document each weight is."""

    words_T: Tensor  # sum to 1 in each sentence
    sentences_N: Tensor  # sum to 1 in each document
    sentence_T: Tensor  # the sentence that each token stands in
    document_N: Tensor  # the document that each sentence stands in


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that was worked out on the way up, named as in the paper; H is half of D."""

    word_TH: Tensor  # h_it
    context_NH: Tensor  # h_i, the states of sentences among their neighbours
    document_BD: Tensor
    weights: Weights


class Embeddings(nn.Module):
    """A vector for each word, dropped."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.embedding)
        self.dropout = Dropout(config.dropout)

    def forward(self, packed: Packed) -> Tensor:
        """[T, E]."""
        return self.dropout(self.words(packed.ids))  # type: ignore[no-any-return]


class Level(nn.Module):
    """Things in order in; the state of each, and how informative it is, out.

    u = tanh(W·h + b), score = u·query (eqs. 5 and 6 for words, 8 and 9 for sentences). The query is learned like any
    weight: it asks "what is the informative word?" and is the same for all texts.
    """

    def __init__(self, cell: str, inputs: int, width: int) -> None:
        super().__init__()
        self.recurrent = Recurrent(cell, inputs, width // 2, both=True)
        self.key = nn.Linear(width, width)
        self.query = nn.Parameter(torch.randn(width) * width**-0.5)

    def forward(self, x: Tensor, packed: Packed) -> tuple[Tensor, Tensor]:
        """[things, H] states and [things] scores."""
        state = self.recurrent(x, packed)
        return state, torch.tanh(self.key(state)) @ self.query


class Han(Encoder):
    """The two levels, `layers.0` of words and `layers.1` of sentences, and whichever heads were asked for."""

    has_levels = True
    sums_up = True
    looks = True

    def __init__(self, config: Config, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__(config, parts)
        self.config: Config = config
        self.add_heads(labels)
        half = config.width // 2
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList([Level(config.cell, config.embedding, half), Level(config.cell, half, half)])
        self.dropout = Dropout(config.dropout)

    def forward(self, packed: Packed, rows: Rows = None) -> Tensor:
        """[T, D] each token's word state beside its sentence's state; or of the asked rows."""
        read = self.read(packed)
        return rows_of(torch.cat((read.word_TH, read.context_NH[read.weights.sentence_T]), -1), packed, rows)

    def summary(self, packed: Packed) -> Tensor:
        """[B, D] a vector for each document through both attentions, in the pack's order; zeros where it is empty."""
        return self.read(packed).document_BD

    def attention_of(self, packed: Packed) -> Weights:
        """The weights of words and of sentences."""
        return self.read(packed).weights

    def read(self, packed: Packed) -> Reading:
        """Both levels, from words to sentences to documents.

        The document's vector is Σ αᵢ·[sᵢ; hᵢ]: beside the paper's v = Σ αᵢ·hᵢ (eq. 10) stand the sentences' own vectors
        under the same weights. So documents are as wide as tokens, and a head reads either.
        """
        sentences, documents = grouped(packed, self.config.ends)
        word_TH, scores_T = self.layers[0](self.embeddings(packed), sentences)
        sentence_NH, words_T = mix_within(scores_T, word_TH, _lengths(sentences))
        sentence_NH = self.dropout(sentence_NH)
        context_NH, scores_N = self.layers[1](sentence_NH, documents)
        both_ND = torch.cat((sentence_NH, context_NH), -1)
        document_BD, sentences_N = mix_within(scores_N, both_ND, _lengths(documents))
        weights = Weights(words_T, sentences_N, _owners(sentences), _owners(documents))
        return Reading(word_TH, context_NH, document_BD, weights)


def grouped(packed: Packed, ends: Sequence[int]) -> tuple[Packed, Packed]:
    """The pack's tokens as a pack of sentences, and its sentences as a pack of documents.

    A sentence goes on to the last of the ends that stand together (？！, 。[SEP]), or to the end of its sequence.
    Recurrent kernels need lengths on the host, so on a GPU the ids are waited for, once for each pack.
    """
    ids = np.asarray(packed.ids.cpu())
    edges = np.concatenate(([0], np.cumsum(packed.lengths))).astype(np.int64)
    ending = np.isin(ids, np.asarray(ends, dtype=np.int64))
    begins = np.zeros(len(ids) + 1, dtype=bool)
    begins[1:-1] = ending[:-1] & ~ending[1:]
    begins[edges] = True  # of each document, and where the row is over
    firsts = np.flatnonzero(begins)
    counts = np.diff(np.searchsorted(firsts, edges))
    device = packed.ids.device
    return _pack(np.diff(firsts), device), _pack(counts, device)


def _pack(lengths: np.ndarray, device: torch.device) -> Packed:
    """A pack of sequences of these lengths, whose things are numbered in their order."""
    return tensors(row(np.arange(int(lengths.sum())), None, lengths), device)


def _lengths(packed: Packed) -> Tensor:
    """[sequences], on the device."""
    return packed.boundaries.diff().long()  # type: ignore[no-any-return]


def _owners(packed: Packed) -> Tensor:
    """[things] the sequence that each stands in."""
    lengths = _lengths(packed)
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths, output_size=packed.num_tokens)


SPEC = ModelSpec(
    name="han",
    config=Config,
    presets=PRESETS,
    model=Han,
    rate=5e-3,
    fit=fitted,
)
