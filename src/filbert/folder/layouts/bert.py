"""BERT's folders: model_type bert."""

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
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.out": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed.up": ("intermediate.dense",),
    "feed.down": ("output.dense",),
    "feed_norm": ("output.LayerNorm",),
}


def encoder(config: Config) -> Names:
    """Of a `BertModel`."""
    yield "embeddings.words.weight", ("embeddings.word_embeddings.weight",)
    if config.positions == "learned":
        yield "embeddings.positions.weight", ("embeddings.position_embeddings.weight",)
    if config.segments:
        yield "embeddings.segments.weight", ("embeddings.token_type_embeddings.weight",)
    yield from both("embeddings.norm", "embeddings.LayerNorm")
    yield from layers(config, "encoder.layer", LAYER)


def heads(parts: tuple[str, ...]) -> Names:
    """Of the classes with heads."""
    if "pooler" in parts:
        yield from both("pooler", "pooler.dense")
    if "mlm" in parts:
        yield from both("mlm.dense", "cls.predictions.transform.dense")
        yield from both("mlm.norm", "cls.predictions.transform.LayerNorm")
    if "nsp" in parts:
        yield from both("nsp", "cls.seq_relationship")
    yield from task_heads(parts)
    if "mlm" in parts:
        yield "mlm.bias", ("cls.predictions.bias",)


def fields(config: Config) -> dict[str, Any]:
    """What follows from the shape."""
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "hidden_act": names[config.feedforward],
        "hidden_dropout_prob": config.dropout,
        "layer_norm_eps": config.eps,
        "tie_word_embeddings": True,
    }


def evidence() -> Evidence:
    """How the names of its heads' tensors begin."""
    return {"pooler": "pooler.", "mlm": "cls.predictions.", "nsp": "cls.seq_relationship.", **of_tasks()}


LAYOUT = Layout(
    kind="bert",
    classes={
        "BertForPreTraining": ("pooler", "mlm", "nsp"),
        "BertForNextSentencePrediction": ("pooler", "nsp"),
        **classes("Bert"),
    },
    prefix="bert.",
    shape={"positions": "learned", "norm": "post", "pooler": "tanh", "task_types": 0, "embedding": 0},
    usual={
        "vocab_size": 30_522, "width": 768, "layers": 12, "heads": 12, "inner": 3_072, "max_length": 512, "segments": 2,
        "dropout": 0.1, "eps": 1e-12,
    },
    numbers={
        "vocab_size": "vocab_size", "hidden_size": "width", "num_hidden_layers": "layers",
        "num_attention_heads": "heads", "intermediate_size": "inner", "max_position_embeddings": "max_length",
        "type_vocab_size": "segments",
    },
    dropout="hidden_dropout_prob",
    eps="layer_norm_eps",
    activation="hidden_act",
    fixed={
        "is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute",
        "quantization_config": None, "pruned_heads": {}, "is_encoder_decoder": False,
    },
    written={"attention_probs_dropout_prob": 0.0, "pad_token_id": 0},  # the fused kernels drop no attention
    fields=fields,
    encoder=encoder,
    heads=heads,
    words="embeddings.word_embeddings.weight",
    beside=("cls.", "classifier.", "qa_outputs.", "filbert."),
    evidence=evidence,
    tied={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    classifiers=("classifier.",),
    renamed={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},  # the names of 2018
)  # fmt: skip
