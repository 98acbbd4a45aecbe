"""ModernBERT's folders (Warner et al. 2024): model_type modernbert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.core.errors import InputError
from filbert.core.files import Json
from filbert.folder.fields import must_be
from filbert.folder.layouts.layout import Evidence, Layout, Names, both
from filbert.nn.heads import every
from filbert.nn.reach import GLOBAL_EVERY, GLOBAL_THETA, LOCAL_THETA, REACH

if TYPE_CHECKING:
    from filbert.models.bert import Config


def encoder(config: Config) -> Names:
    """Of a `ModernBertModel`."""
    yield "embeddings.words.weight", ("embeddings.tok_embeddings.weight",)
    yield "embeddings.norm.weight", ("embeddings.norm.weight",)
    for i in range(config.layers):
        for ours, theirs in (
            ("attention_norm", "attn_norm"), ("attention.qkv", "attn.Wqkv"), ("attention.out", "attn.Wo"),
            ("feed_norm", "mlp_norm"), ("feed.up", "mlp.Wi"), ("feed.down", "mlp.Wo"),
        ):  # fmt: skip
            if i or ours != "attention_norm":
                yield f"layers.{i}.{ours}.weight", (f"layers.{i}.{theirs}.weight",)
    yield "final_norm.weight", ("final_norm.weight",)


def heads(parts: tuple[str, ...]) -> Names:
    """Of the class with masked words; transformers passes over the others, and loads the rest."""
    if "mlm" in parts:
        yield "mlm.dense.weight", ("head.dense.weight",)
        yield "mlm.norm.weight", ("head.norm.weight",)
        yield "mlm.bias", ("decoder.bias",)
    for part in parts:
        if part in every():
            for name in every()[part].shapes(1, 2):
                yield f"heads.{part}.{name}", (f"filbert.heads.{part}.{name}",)
        elif part != "mlm":
            yield from both(part, f"filbert.{part}")


def fields(config: Config) -> dict[str, Any]:
    """What follows from the shape."""
    return {
        "norm_eps": config.eps,
        "mlp_dropout": config.dropout,
        "embedding_dropout": config.dropout,
        "local_attention": 2 * REACH,
        "global_attn_every_n_layers": GLOBAL_EVERY,
        "global_rope_theta": GLOBAL_THETA,
        "local_rope_theta": LOCAL_THETA,
        "tie_word_embeddings": True,
    }


def check(path: Path, fields: Json, shape: dict[str, Any]) -> None:
    """Rotations and windows, in the words of transformers 5."""
    kinds = fields.get("layer_types")
    usual = [("sliding" if i % GLOBAL_EVERY else "full") + "_attention" for i in range(shape["layers"])]
    if kinds is not None and kinds != usual:
        raise InputError(
            f"{path}: layer_types must be full_attention for every third layer from the first and sliding_attention "
            "for the others: filbert computes nothing else."
        )
    turns = fields.get("rope_parameters")
    if turns is None:
        return
    allowed = {"full_attention": GLOBAL_THETA, "sliding_attention": LOCAL_THETA}
    if not isinstance(turns, dict):
        raise InputError(f"{path}: rope_parameters must be an object with {' and '.join(allowed)}.")
    for name, theta in allowed.items():
        one = turns.get(name)
        if one is not None and not isinstance(one, dict):
            raise InputError(f"{path}: rope_parameters.{name} must be an object with rope_theta {theta}.")
        must_be(path, f"rope_parameters.{name}.rope_theta", (one or {}).get("rope_theta"), theta)
        must_be(path, f"rope_parameters.{name}.rope_type", (one or {}).get("rope_type"), "default")


def evidence() -> Evidence:
    """How the names of its heads' tensors begin."""
    of_tasks = {part: f"filbert.heads.{part}." for part in every()}
    return {"mlm": ("head.", "decoder."), "pooler": "filbert.pooler.", "nsp": "filbert.nsp.", **of_tasks}


LAYOUT = Layout(
    kind="modernbert",
    classes={"ModernBertForMaskedLM": ("mlm",), "ModernBertModel": ()},
    prefix="model.",
    shape={
        "positions": "rotary-local", "norm": "pre", "feedforward": "geglu", "segments": 0, "pooler": "tanh",
        "task_types": 0, "embedding": 0,
    },
    usual={
        "vocab_size": 50_368, "width": 768, "layers": 22, "heads": 12, "inner": 1_152, "max_length": 8_192,
        "dropout": 0.0, "eps": 1e-5,
    },
    numbers={
        "vocab_size": "vocab_size", "hidden_size": "width", "num_hidden_layers": "layers",
        "num_attention_heads": "heads", "intermediate_size": "inner", "max_position_embeddings": "max_length",
    },
    dropout="mlp_dropout",
    eps="norm_eps",
    fixed={
        "attention_bias": False, "mlp_bias": False, "norm_bias": False, "classifier_bias": False, "decoder_bias": True,
        "hidden_activation": "gelu", "classifier_activation": "gelu", "local_attention": 2 * REACH,
        "global_attn_every_n_layers": GLOBAL_EVERY, "global_rope_theta": GLOBAL_THETA, "local_rope_theta": LOCAL_THETA,
        "rope_scaling": None, "quantization_config": None, "is_decoder": False, "is_encoder_decoder": False,
        "position_embedding_type": "absolute",
    },
    written={
        "attention_dropout": 0.0, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, "cls_token_id": None,
        "sep_token_id": None,
    },
    fields=fields,
    check=check,
    encoder=encoder,
    heads=heads,
    words="embeddings.tok_embeddings.weight",
    beside=("head.", "decoder.", "filbert."),
    evidence=evidence,
    tied={"decoder.weight": "embeddings.tok_embeddings.weight"},
)  # fmt: skip
