"""BERT: token ids in, one vector per token out; classic (Devlin et al. 2019) and modern (Warner et al. 2024) layouts.

Legend: T tokens in the pack, R rows asked for, B sequences, D width, V vocabulary.
Folders of `transformers` load and save bit-equal: BERT's, DistilBERT's, ELECTRA's, ERNIE's and ModernBERT's
(`folder.layouts` has the names of their tensors).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from filbert.core.errors import InputError, one_of
from filbert.core.protocols import Objective
from filbert.core.records import Packed
from filbert.core.settings import LATER
from filbert.nn.encoder import Encoder, ModelSpec, made
from filbert.nn.heads import NO_MASKED_HEAD, every, masked_words
from filbert.nn.layers import BLOCKS, FEED_FORWARDS, Angles, Dropout, Muted, Rows, SelfAttention, initialise
from filbert.nn.positions import Learned, Rotary, Sinusoidal, Table
from filbert.nn.reach import GLOBAL_EVERY, GLOBAL_THETA, LOCAL_THETA, REACH
from filbert.nn.torch_ops import ACTIVATIONS, TORCH

POSITIONS = ("learned", "sinusoidal", "rotary", "rotary-local")
POOLERS = ("tanh", "gelu", "relu")  # what follows the pooler's map
LIMITS = {  # generous bounds: a config outside them is a mistake or an attack, and is refused before it allocates
    "vocab_size": (1, 4_000_000),
    "width": (1, 65_536),
    "layers": (1, 1_000),
    "heads": (1, 1_024),
    "inner": (1, 1_000_000),
    "max_length": (1, 4_194_304),
    "segments": (0, 1_024),
    "task_types": (0, 1_024),
    "embedding": (0, 65_536),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a BERT. Checked when made: a wrong field is named."""

    vocab_size: int = 21_128
    width: int = 768
    layers: int = 12
    heads: int | tuple[int, ...] = 12  # of a pruned model: as it was, then those left in each layer
    inner: int = 3_072  # width inside the feed-forward
    max_length: int = 512
    segments: int = 2  # kinds of segment (token_type_ids); 0: no segment table
    positions: str = "learned"  # learned | sinusoidal | rotary | rotary-local
    norm: str = "post"  # post (classic, with biases) | pre (modern, without)
    feedforward: str = "gelu"  # gelu | gelu-tanh | relu | geglu
    pooler: str = field(default="tanh", metadata=LATER)  # what follows the pooler's map: tanh | gelu | relu
    task_types: int = field(default=0, metadata=LATER)  # kinds of task, of which a text has the first; 0: no table
    embedding: int = field(default=0, metadata=LATER)  # width of the tables of words, positions and segments; 0: width
    dropout: float = 0.1
    eps: float = 1e-12

    def __post_init__(self) -> None:
        for name, (low, high) in LIMITS.items():
            value = self.all_heads if name == "heads" else getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(
                    f"bert config: {name} is {value!r}, but must be a whole number from {low} to {high:,}."
                )
        words = {
            "positions": POSITIONS, "norm": tuple(BLOCKS), "feedforward": tuple(FEED_FORWARDS), "pooler": POOLERS,
        }  # fmt: skip
        for name, allowed in words.items():
            if getattr(self, name) not in allowed:
                raise one_of(f"bert config: {name}", getattr(self, name), allowed)
        for name, most in (("dropout", 0.99), ("eps", 0.1)):
            number = getattr(self, name)
            if type(number) not in (int, float) or not 0 <= number <= most:
                raise InputError(f"bert config: {name} is {number!r}, but must be a number from 0 to {most}.")
        if self.width % self.all_heads or (self.positions.startswith("rotary") and self.head_width % 2):
            raise InputError(
                f"bert config: width {self.width} cannot be shared by {self.all_heads} heads; "
                "it must be a multiple (an even one with rotary positions)."
            )
        left = self.heads[1:] if isinstance(self.heads, tuple) else (self.heads,) * self.layers
        if len(left) != self.layers or any(type(n) is not int or not 0 <= n <= self.all_heads for n in left):
            raise InputError(
                f"bert config: heads is {str(self.heads)[:60]}, but must be a whole number or, of a pruned model, that "
                f"number and then for each of the {self.layers} layers how many of them are left."
            )

    @property
    def all_heads(self) -> int:
        """The heads of a layer before any was pruned."""
        return self.heads[0] if isinstance(self.heads, tuple) and self.heads else self.heads  # type: ignore[return-value]

    @property
    def embedding_width(self) -> int:
        """The width of the tables of words, positions and segments."""
        return self.embedding or self.width

    @property
    def head_width(self) -> int:
        """The width of a head, pruned model or not."""
        return self.width // self.all_heads

    def heads_in(self, index: int) -> int:
        """The heads of layer `index`."""
        return self.heads[1 + index] if isinstance(self.heads, tuple) else self.heads


PRESETS = {
    "tiny": Config(width=128, layers=2, heads=2, inner=512),
    "mini": Config(width=256, layers=4, heads=4, inner=1_024),
    "small": Config(width=512, layers=4, heads=8, inner=2_048),
    "fill": Config(width=384, layers=8, heads=6, inner=1_536),
    "medium": Config(width=512, layers=8, heads=8, inner=2_048),
    "base": Config(),
    "large": Config(width=1_024, layers=24, heads=16, inner=4_096),
    "modern": Config(
        width=768, layers=22, inner=1_152, max_length=8_192, segments=0, positions="rotary-local",
        norm="pre", feedforward="geglu", dropout=0.0, eps=1e-5,
    ),
}  # fmt: skip


class Embeddings(nn.Module):
    """Word, position and segment vectors added, normed and dropped; the last two only where the config has them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.embedding_width
        self.words = nn.Embedding(config.vocab_size, width)
        tables = {"learned": Learned, "sinusoidal": Sinusoidal}
        table = tables.get(config.positions)
        self.positions = table(config.max_length, width) if table else None
        self.segments = Table(config.segments, width) if config.segments else None
        self.task_types = Table(config.task_types, width) if config.task_types else None
        self.norm = nn.LayerNorm(width, eps=config.eps, bias=config.norm == "post")
        self.dropout = Dropout(config.dropout)
        self.project = nn.Linear(width, config.width) if width != config.width else None

    def forward(self, packed: Packed) -> Tensor:
        """[T, D]."""
        x_TD = self.words(packed.ids)
        if self.segments is not None:
            x_TD = x_TD + self.segments(packed.segments)
        if self.positions is not None:
            x_TD = x_TD + self.positions(packed.positions)
        if self.task_types is not None:
            x_TD = x_TD + self.task_types.weight[0]
        x_TD = self.dropout(self.norm(x_TD))
        return x_TD if self.project is None else self.project(x_TD)  # type: ignore[no-any-return]


class MaskedHead(nn.Module):
    """A vector per masked token in, scores over the vocabulary out; the output weights are the word table (tied)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        bias = config.norm == "post"
        self.dense = nn.Linear(config.width, config.embedding_width, bias=bias)
        self.norm = nn.LayerNorm(config.embedding_width, eps=config.eps, bias=bias)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.activation = config.feedforward if config.feedforward in ACTIVATIONS else "gelu"

    def forward(self, x_RD: Tensor, table_VD: Tensor) -> Tensor:
        """[R, V]."""
        return masked_words(
            TORCH, {**dict(self.named_parameters()), "words": table_VD}, x_RD, self.activation, self.norm.eps
        )


class Bert(Encoder):
    """The encoder and whichever heads were asked for; `parts` names them, `labels` sizes a task head.

    Parts: pooler, mlm, nsp (pretraining), and one task head of published folders: labels (of the pooled text),
    tokens (a label each), span (start and end), choice (one score for each candidate). Only our folders have crf (which
    label follows which, beside tokens), pointer (a score for each stretch and label) and relation (a label of the
    vectors of two marks side by side).
    """

    own_parts = ("mlm", "nsp")
    steady = True

    def __init__(self, config: Config, parts: tuple[str, ...] = (), labels: int = 2) -> None:
        super().__init__(config, parts)
        self.config: Config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(_layer(config, index) for index in range(config.layers))
        self.angles_of = [int(bool(reach(config, index))) for index in range(config.layers)]  # global, or near alone
        pre = config.norm == "pre"
        self.final_norm = nn.LayerNorm(config.width, eps=config.eps, bias=False) if pre else nn.Identity()
        if config.positions.startswith("rotary"):
            thetas = (GLOBAL_THETA, LOCAL_THETA) if config.positions == "rotary-local" else (LOCAL_THETA,)
            self.rotary = nn.ModuleList(Rotary(config.head_width, theta) for theta in thetas)
        else:
            self.rotary = nn.ModuleList()
        self.pooler = nn.Linear(config.width, config.width) if "pooler" in parts else None
        self.mlm = MaskedHead(config) if "mlm" in parts else None
        self.nsp = nn.Linear(config.width, 2) if "nsp" in parts else None
        self.heads = made(config.width, self.parts, labels)
        initialise(self)  # in the order in which they were built

    def forward(self, packed: Packed, rows: Rows = None) -> Tensor:
        """[T, D]; for `rows` alone ([R, D], or "first" for [B, D]) the last layer does only their work."""
        x_TD = self.embeddings(packed)
        angles: list[Angles] = [rotary.angles(packed.positions) for rotary in self.rotary] or [None, None]  # type: ignore[operator]
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            x_TD = layer(x_TD, packed, angles[self.angles_of[index]], rows if index == last else None)
        return self.final_norm(x_TD)  # type: ignore[no-any-return]

    def pooled(self, first_BD: Tensor) -> Tensor:
        """The activation of a learned map of each sequence's first vector, [B, D]."""
        if self.config.pooler == "tanh" or self.pooler is None:
            return super().pooled(first_BD)
        return TORCH.activation(self.config.pooler, self.pooler(first_BD))

    @property
    def is_post_norm(self) -> bool:
        """Whether each layer's sum is normed behind it."""
        return self.config.norm == "post"

    def word_scores(self, x_RD: Tensor) -> Tensor:
        """Scores over the vocabulary for the given vectors, [R, V]."""
        if self.mlm is None:
            raise InputError(NO_MASKED_HEAD)
        return self.mlm(x_RD, self.embeddings.words.weight)  # type: ignore[no-any-return]


def reach(config: Config, index: int) -> int:
    """How far layer `index` sees to each side; 0: everywhere."""
    return REACH if config.positions == "rotary-local" and index % GLOBAL_EVERY else 0


def _layer(config: Config, index: int) -> nn.Module:
    bias = config.norm == "post"
    left = config.heads_in(index)
    attention: SelfAttention = Muted(config.width, bias)
    if left:
        attention = SelfAttention(config.width, left, bias, reach(config, index), config.head_width)
    feed = FEED_FORWARDS[config.feedforward](config.width, config.inner, bias)
    norms: list[nn.Module] = [nn.LayerNorm(config.width, eps=config.eps, bias=bias) for _ in range(2)]
    if config.norm == "pre" and index == 0:
        norms[0] = nn.Identity()  # the embeddings were normed just before (as in ModernBERT)
    return BLOCKS[config.norm](attention, feed, (norms[0], norms[1]), config.dropout)


def shapes(config: Config, parts: tuple[str, ...] = (), labels: int = 2) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor in such a Bert's state_dict, without building one: folders are checked by it."""
    width, table, biased = config.width, config.embedding_width, config.norm == "post"
    sizes: dict[str, tuple[int, ...]] = {"embeddings.words.weight": (config.vocab_size, table)}
    if config.positions == "learned":
        sizes["embeddings.positions.weight"] = (config.max_length, table)
    if config.segments:
        sizes["embeddings.segments.weight"] = (config.segments, table)
    if config.task_types:
        sizes["embeddings.task_types.weight"] = (config.task_types, table)

    def add(name: str, outputs: int, inputs: int | None = None, bias: bool = biased) -> None:
        sizes[f"{name}.weight"] = (outputs,) if inputs is None else (outputs, inputs)
        if bias:
            sizes[f"{name}.bias"] = (outputs,)

    add("embeddings.norm", table)
    if table != width:
        add("embeddings.project", width, table, bias=True)
    for i in range(config.layers):
        inner = config.heads_in(i) * config.head_width
        if inner:
            add(f"layers.{i}.attention.qkv", 3 * inner, width)
            add(f"layers.{i}.attention.out", width, inner)
        elif biased:
            sizes[f"layers.{i}.attention.out.bias"] = (width,)
        add(f"layers.{i}.feed.up", config.inner * (2 if config.feedforward == "geglu" else 1), width)
        add(f"layers.{i}.feed.down", width, config.inner)
        add(f"layers.{i}.feed_norm", width)
        if i or biased:
            add(f"layers.{i}.attention_norm", width)
    if not biased:
        add("final_norm", width)
    if "mlm" in parts:
        add("mlm.dense", table, width)
        add("mlm.norm", table)
        sizes["mlm.bias"] = (config.vocab_size,)
    head_specs = every()
    for part in parts:
        if part in head_specs:
            shapes_of = head_specs[part].shapes(config.width, labels)
            sizes |= {f"heads.{part}.{name}": size for name, size in shapes_of.items()}
        elif part != "mlm":
            add(part, width if part == "pooler" else 2, width, bias=True)
    return sizes


SPEC = ModelSpec(
    name="bert",
    config=Config,
    presets=PRESETS,
    model=Bert,
    objective=Objective.MASKED_WORDS,
    first_reads_all=True,
    own_parts=Bert.own_parts,
    shapes=shapes,
)
