"""DistilBERT's folders (Sanh et al. 2019): model_type distilbert. A BERT without segments; its pooler ends in ReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from filbert.folder.layouts.layout import (
    ACTIVATIONS,
    Evidence,
    Layout,
    Names,
    both,
    classes,
    layers,
    of_tasks,
    task_heads,
)

if TYPE_CHECKING:
    from filbert.models.bert import Config


LAYER = {
    "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.out": ("attention.out_lin",),
    "attention_norm": ("sa_layer_norm",),
    "feed.up": ("ffn.lin1",),
    "feed.down": ("ffn.lin2",),
    "feed_norm": ("output_layer_norm",),
}


def encoder(config: Config) -> Names:
    """Of a `DistilBertModel`."""
    yield "embeddings.words.weight", ("embeddings.word_embeddings.weight",)
    yield "embeddings.positions.weight", ("embeddings.position_embeddings.weight",)
    yield from both("embeddings.norm", "embeddings.LayerNorm")
    yield from layers(config, "transformer.layer", LAYER)


def heads(parts: tuple[str, ...]) -> Names:
    """Of the classes with heads; there is none for pairs of sentences (nsp)."""
    if "pooler" in parts:
        yield from both("pooler", "pre_classifier")
    if "mlm" in parts:
        yield from both("mlm.dense", "vocab_transform")
        yield from both("mlm.norm", "vocab_layer_norm")
    if "nsp" in parts:
        yield from both("nsp", "filbert.nsp")
    yield from task_heads(parts)
    if "mlm" in parts:
        yield "mlm.bias", ("vocab_projector.bias",)


def fields(config: Config) -> dict[str, Any]:
    """What follows from the shape."""
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {"activation": names[config.feedforward], "dropout": config.dropout, "tie_word_embeddings": True}


def evidence() -> Evidence:
    """How the names of its heads' tensors begin."""
    words = ("vocab_transform.", "vocab_layer_norm.")
    return {"pooler": "pre_classifier.", "mlm": words, "nsp": "filbert.nsp.", **of_tasks()}


LAYOUT = Layout(
    kind="distilbert",
    classes=classes("DistilBert"),
    prefix="distilbert.",
    shape={
        "positions": "learned", "norm": "post", "segments": 0, "pooler": "relu", "task_types": 0, "embedding": 0,
        "eps": 1e-12,
    },
    usual={
        "vocab_size": 30_522, "width": 768, "layers": 6, "heads": 12, "inner": 3_072, "max_length": 512, "dropout": 0.1,
    },
    numbers={
        "vocab_size": "vocab_size", "dim": "width", "n_layers": "layers", "n_heads": "heads", "hidden_dim": "inner",
        "max_position_embeddings": "max_length",
    },
    dropout="dropout",
    activation="activation",
    fixed={
        "is_decoder": False, "add_cross_attention": False, "quantization_config": None, "pruned_heads": {},
        "is_encoder_decoder": False, "tie_weights_": True,
    },
    written={"attention_dropout": 0.0, "pad_token_id": 0},  # the fused kernels drop no attention
    fields=fields,
    encoder=encoder,
    heads=heads,
    words="embeddings.word_embeddings.weight",
    beside=("vocab_", "pre_classifier.", "classifier.", "qa_outputs.", "filbert."),
    evidence=evidence,
    tied={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    classifiers=("classifier.",),
)  # fmt: skip
