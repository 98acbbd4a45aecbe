"""word2vec: token ids in, each token's own vector out, the same wherever it stands (Mikolov et al. 2013a, b).

Legend: T tokens in the pack, R rows asked for, D width, V vocabulary, P turns on the longest way down the tree.
What predicts is `embeddings.words`. What is predicted has a second table, which only pretraining needs: `contexts`, a
vector for each word (negative sampling), or `nodes`, a vector for each inner node of a Huffman tree (hierarchical
softmax). Which words predict which, skip-gram or CBOW, is the task's business.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
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
                    f"word2vec config: {name} is {value!r}, but must be a whole number from {low} to {high:,}."
                )
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout <= 0.99:
            raise InputError(f"word2vec config: dropout is {self.dropout!r}, but must be a number from 0 to 0.99.")


PRESETS = {"tiny": Config(width=64), "small": Config(width=100), "base": Config()}


class Embeddings(nn.Module):
    """A vector for each word."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.width)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids_R: Tensor) -> Tensor:
        """[R, D]."""
        return self.dropout(self.words(ids_R))  # type: ignore[no-any-return]


class Nodes(nn.Module):
    """The inner nodes of a Huffman tree whose leaves are the words: frequent ones hang high (2013b, §2.1).

    A word is reached by a turn at each node on its way down. With the input's vector x, node vector n and sign s (+1 or
    -1) of each turn, p(word | x) = Π σ(s·n·x): it sums to 1 over all words, at the cost of some log V of them.
    """

    paths: Tensor  # [V, P] the nodes on the way to each word, from below
    signs: Tensor  # [V, P] the turns there; 0 where the way has ended
    frequencies: Tensor  # [V] what the tree was made from

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(max(1, vocab_size - 1), width))
        for name, is_kept in (("frequencies", True), ("paths", False), ("signs", False)):
            self.register_buffer(name, torch.ones(vocab_size), persistent=is_kept)
        self._grow()
        # Weights that are loaded are of the tree that is loaded with them.
        self.register_load_state_dict_post_hook(lambda module, _: module._grow())  # type: ignore[no-untyped-call]

    def grow(self, counts_V: npt.ArrayLike) -> None:
        """Hangs the words anew, by how often each stands in the text; the nodes' vectors should be fresh."""
        self.frequencies.copy_(torch.as_tensor(np.asarray(counts_V, dtype=np.float32)))
        self._grow()

    def _grow(self) -> None:
        paths, signs = huffman(self.frequencies.detach().float().cpu().numpy())
        device = self.frequencies.device
        self.paths, self.signs = torch.from_numpy(paths).to(device), torch.from_numpy(signs).to(device)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """[…, P, D] the nodes' vectors on the way to each word, and […, P] the turns."""
        return nn.functional.embedding(self.paths[ids], self.weight), self.signs[ids]


def huffman(counts_V: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
    """[V, P] the inner nodes on the way to each word, and [V, P] the turns there; no tree has shorter ways on average.

    The two rarest are joined again and again (Huffman 1952). Joined ones come in rising order by themselves, so two
    queues do without a heap.
    """
    num_words = len(counts_V)
    order = np.argsort(counts_V, kind="stable")
    weights = counts_V.astype(np.float64)
    leaves, joined = deque((float(weights[leaf]), int(leaf)) for leaf in order), deque[tuple[float, int]]()
    parents, turns = np.zeros(2 * num_words - 1, np.int64), np.zeros(2 * num_words - 1, np.int8)
    for node in range(num_words, 2 * num_words - 1):
        total = 0.0
        for turn in (1, -1):
            rarest = leaves if leaves and (not joined or leaves[0][0] <= joined[0][0]) else joined
            weight, child = rarest.popleft()
            parents[child], turns[child] = node, turn
            total += weight
        joined.append((total, node))
    at, root = np.arange(num_words), 2 * num_words - 2
    parents[root] = root
    paths, signs = [np.zeros((num_words, 0), np.int64)], [np.zeros((num_words, 0), np.int8)]
    while (at != root).any():  # all words go up together; the root's own turn is 0
        signs.append(turns[at, None])
        at = parents[at]
        paths.append(root - at[:, None])
    return np.concatenate(paths, axis=1), np.concatenate(signs, axis=1)


class Word2vec(Encoder):
    """The table, and whichever of `contexts` and `nodes` pretraining asks for."""

    own_parts = ("contexts", "nodes")

    def __init__(self, config: Config, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__(config, parts)
        self.config: Config = config
        self.add_heads(labels)
        self.embeddings = Embeddings(config)
        self.contexts = nn.Embedding(config.vocab_size, config.width) if "contexts" in parts else None
        self.nodes = Nodes(config.vocab_size, config.width) if "nodes" in parts else None
        initialise(self)
        # As the authors' program begins: small words, and nothing predicted yet.
        nn.init.uniform_(self.embeddings.words.weight, -0.5 / config.width, 0.5 / config.width)
        if self.contexts is not None:
            nn.init.zeros_(self.contexts.weight)

    def forward(self, packed: Packed, rows: Rows = None) -> Tensor:
        """[T, D], or [R, D] of the rows asked for."""
        return self.embeddings(rows_of(packed.ids, packed, rows))  # type: ignore[no-any-return]


SPEC = ModelSpec(
    name="word2vec",
    config=Config,
    presets=PRESETS,
    model=Word2vec,
    objective=Objective.NEAR_WORDS,
    rate=1e-2,
    own_parts=Word2vec.own_parts,
)
