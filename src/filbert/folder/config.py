"""config.json in, the shape of a model with its labels out, every field checked before it is used; and back.

The kinds: `bert` and `modernbert` as transformers writes them, `filbert-bert` for our other layouts of it, and
`filbert-NAME` for every other file of models.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.core.errors import InputError, one_of
from filbert.core.files import Json
from filbert.core.registry import members, model
from filbert.core.version import VERSION
from filbert.folder import fields as keys
from filbert.folder import sentence_transformers
from filbert.folder.meta import family
from filbert.folder.weights import inside, small_json
from filbert.models import bert
from filbert.nn.encoder import Shape
from filbert.nn.heads import HEADS, every

NAME = "config.json"
OUR_KINDS = {f"filbert-{name}": name for name in members("models")}  # kinds that only we write, and their files
KINDS = ("bert", "modernbert", *OUR_KINDS)
FIELDS = keys.NAMES
DEFAULTS = {  # what transformers takes for a field that a folder leaves out
    "bert": dataclasses.replace(bert.PRESETS["base"], vocab_size=30_522),
    "modernbert": dataclasses.replace(bert.PRESETS["modern"], vocab_size=50_368),
}
ACTIVATIONS = keys.ACTIVATIONS
ARCHITECTURES: dict[str, tuple[str, ...]] = {  # transformers' classes, and the parts that each has
    "BertForPreTraining": ("pooler", "mlm", "nsp"),
    "BertForMaskedLM": ("mlm",),
    "BertForNextSentencePrediction": ("pooler", "nsp"),
    **{
        f"BertFor{head.architecture}": (*(("pooler",) if head.needs_pooler else ()), part)
        for part, head in HEADS.items()
        if head.architecture
    },
    "BertModel": (),
    "ModernBertForMaskedLM": ("mlm",),
    "ModernBertModel": (),
}
FIXED: dict[str, dict[str, Any]] = {  # fields that change the arithmetic, and the one value that we compute
    "bert": {
        "is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute",
        "quantization_config": None, "pruned_heads": {}, "is_encoder_decoder": False,
    },
    "modernbert": {
        "attention_bias": False, "mlp_bias": False, "norm_bias": False, "classifier_bias": False, "decoder_bias": True,
        "hidden_activation": "gelu", "classifier_activation": "gelu", "local_attention": 2 * bert.REACH,
        "global_attn_every_n_layers": bert.GLOBAL_EVERY, "global_rope_theta": bert.GLOBAL_THETA,
        "local_rope_theta": bert.LOCAL_THETA, "rope_scaling": None, "quantization_config": None, "is_decoder": False,
        "is_encoder_decoder": False, "position_embedding_type": "absolute",
    },
}  # fmt: skip
DEFAULT_FIELDS: dict[str, dict[str, Any]] = {  # written unless the folder that was read said otherwise
    "bert": {"attention_probs_dropout_prob": 0.0, "pad_token_id": 0},  # the fused kernels drop no attention
    "modernbert": {
        "attention_dropout": 0.0, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, "cls_token_id": None,
        "sep_token_id": None,
    },
}  # fmt: skip
NOT_KEPT = ("torch_dtype", "_name_or_path", "num_labels", "layer_types", "rope_parameters")  # not written again
DTYPES = ("float32", "float16", "bfloat16", "float64", "auto")
PROBLEMS = keys.PROBLEMS
LONGEST_LIST = 1_001  # in a shape: a number for each layer, and one more


@dataclass(frozen=True, kw_only=True)
class Described:
    """The fields of a config.json, checked; the weights are not read yet."""

    path: Path
    kind: str
    config: Any  # the Config of its file of models
    parts: tuple[str, ...]  # the heads that its architecture has
    architecture: str
    labels: list[str]  # as id2label gives them; empty where it gives none
    num_labels: int | None
    problem_type: str | None
    fields: dict[str, Any]  # the file as it stands, less what is never used
    notes: list[str]


def described(folder: Path) -> Described:
    """The folder's config.json, read and checked."""
    if not (folder / NAME).exists() and (folder / sentence_transformers.MODULES).exists():
        sentence_transformers.check_begins(folder)
    if not (folder / NAME).exists() and (folder / keys.ADAPTER).exists():
        raise InputError(keys.adapter(folder))
    path = inside(folder, "config.json")
    fields = small_json(path)
    kind = fields.get("model_type")
    if kind not in KINDS:
        raise one_of(f"{path}: model_type", keys.short(kind), KINDS)
    notes = keys.passed_over(path, fields)
    for name, allowed in FIXED.get(kind, {}).items():
        _must_be(path, name, fields.get(name), allowed)
    keys.word(path, fields, "dtype", DTYPES)
    keys.word(path, fields, "torch_dtype", DTYPES)
    architecture, parts = _architecture(path, fields, kind)
    labels, num_labels, odd = keys.labels(path, fields)
    notes += odd + keys.beside(folder, fields)
    config = _of_filbert(path, fields, OUR_KINDS[kind]) if kind in OUR_KINDS else _of_transformers(path, fields, kind)
    return Described(
        path=path, kind=kind, config=config, parts=parts, architecture=architecture,
        labels=labels, num_labels=num_labels,
        problem_type=keys.word(path, fields, "problem_type", PROBLEMS), fields=fields, notes=notes,
    )  # fmt: skip


def _must_be(path: Path, name: str, value: object, allowed: object) -> None:
    if value is None or (value == allowed and isinstance(value, bool) == isinstance(allowed, bool)):
        return
    if allowed in (None, {}) and not value:
        return
    shown = "absent" if allowed in (None, {}) else repr(allowed)
    raise InputError(f"{path}: {name} is {keys.short(value)!r}, but must be {shown}: filbert computes nothing else.")


def _of_transformers(path: Path, fields: Json, kind: str) -> bert.Config:
    """The shape that a transformers config describes."""
    default = DEFAULTS[kind]
    shape: dict[str, Any] = {}
    for name, ours in FIELDS.items():
        if name == "type_vocab_size" and kind == "modernbert":
            continue
        low, high = bert.LIMITS[ours]
        value = fields.get(name, getattr(default, ours))
        if type(value) is not int or not max(low, 1) <= value <= high:
            raise InputError(
                f"{path}: {name} is {keys.short(value)!r}, but must be a whole number from {max(low, 1)} to {high:,}."
            )
        shape[ours] = value
    modern = kind == "modernbert"
    shape["eps"] = _number(path, fields, "norm_eps" if modern else "layer_norm_eps", default.eps, 0.1)
    shape["dropout"] = _number(path, fields, "mlp_dropout" if modern else "hidden_dropout_prob", default.dropout, 0.99)
    if modern:
        _check_modern(path, fields, shape["layers"])
    else:
        activation = fields.get("hidden_act", "gelu")
        if not isinstance(activation, str) or activation not in ACTIVATIONS:
            raise one_of(f"{path}: hidden_act", keys.short(activation), ACTIVATIONS)
        shape["feedforward"] = ACTIVATIONS[activation]
    if shape["width"] % shape["heads"] or (modern and shape["width"] // shape["heads"] % 2):
        raise InputError(
            f"{path}: hidden_size {shape['width']} cannot be shared by num_attention_heads {shape['heads']}; "
            f"it must be {'an even' if modern else 'a'} multiple."
        )
    return dataclasses.replace(default, **shape)


def _number(path: Path, fields: Json, name: str, default: float, most: float) -> float:
    value = fields.get(name, default)
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= most:
        raise InputError(f"{path}: {name} is {keys.short(value)!r}, but must be a number from 0 to {most}.")
    return float(value)


def _check_modern(path: Path, fields: Json, layers: int) -> None:
    """ModernBERT's rotations and windows, in the words of transformers 5."""
    kinds = fields.get("layer_types")
    every = [("sliding" if i % bert.GLOBAL_EVERY else "full") + "_attention" for i in range(layers)]
    if kinds is not None and kinds != every:
        raise InputError(
            f"{path}: layer_types must be full_attention for every third layer from the first and sliding_attention "
            "for the others: filbert computes nothing else."
        )
    turns = fields.get("rope_parameters")
    if turns is None:
        return
    allowed = {"full_attention": bert.GLOBAL_THETA, "sliding_attention": bert.LOCAL_THETA}
    if not isinstance(turns, dict):
        raise InputError(f"{path}: rope_parameters must be an object with {' and '.join(allowed)}.")
    for name, theta in allowed.items():
        one = turns.get(name)
        if one is not None and not isinstance(one, dict):
            raise InputError(f"{path}: rope_parameters.{name} must be an object with rope_theta {theta}.")
        _must_be(path, f"rope_parameters.{name}.rope_theta", (one or {}).get("rope_theta"), theta)
        _must_be(path, f"rope_parameters.{name}.rope_type", (one or {}).get("rope_type"), "default")


def _of_filbert(path: Path, fields: Json, name: str) -> Any:
    """The shape that a config of ours describes."""
    ours = fields.get("filbert")
    shape = ours.get("config") if isinstance(ours, dict) else None
    if not isinstance(shape, dict):
        raise InputError(f"{path}: filbert.config must be an object with the fields of the model's shape.")
    config = model(name).config
    names = [field.name for field in dataclasses.fields(config)]
    for field in shape:
        if field not in names:
            raise one_of(f"{path}: a field of filbert.config", field[:60], names)
    for field, value in shape.items():
        if isinstance(value, str | list | dict) and len(value) > (LONGEST_LIST if isinstance(value, list) else 60):
            raise InputError(f"{path}: filbert.config.{field} is too long to be a {field}.")
    try:
        return config(**{field: tuple(value) if isinstance(value, list) else value for field, value in shape.items()})
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _architecture(path: Path, fields: Json, kind: str) -> tuple[str, tuple[str, ...]]:
    """The class that transformers would load the folder with, and the heads it has."""
    if kind in OUR_KINDS:
        ours, allowed = fields.get("filbert"), _parts_of(OUR_KINDS[kind])
        parts = ours.get("parts", []) if isinstance(ours, dict) else []
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise InputError(f"{path}: filbert.parts must be a list of names, of: {', '.join(allowed)}.")
        for part in parts:
            if part not in allowed:
                raise one_of(f"{path}: a name in filbert.parts", part[:60], allowed)
        return "", tuple(part for part in allowed if part in parts)
    listed = fields.get("architectures")
    if listed is None or listed == []:
        return "", ()
    classes = [name for name in ARCHITECTURES if name.startswith("Modern") == (kind == "modernbert")]
    first = listed[0] if isinstance(listed, list) else listed
    if not isinstance(listed, list) or not isinstance(first, str) or first not in classes:
        raise one_of(f"{path}: architectures", keys.short(first), classes)
    return first, ARCHITECTURES[first]


def _parts_of(name: str) -> tuple[str, ...]:
    """The heads that a model of that file may have."""
    return ("pooler", *model(name).own_parts, *every())


# Writing --------------------------------------------------------------------------------------------------------------


def kind_of(config: Shape) -> str:
    """The kind of folder that holds such a model: one of transformers' where it has the layout, else our own."""
    if not isinstance(config, bert.Config):
        return f"filbert-{family(config)}"
    if isinstance(config.heads, tuple):  # pruned: transformers has no such layers
        return "filbert-bert"
    layout = (config.positions, config.norm, config.feedforward, config.segments > 0)
    if layout == ("rotary-local", "pre", "geglu", False):
        return "modernbert"
    is_classic = layout[:2] == ("learned", "post") and layout[2] in ACTIVATIONS.values() and layout[3]
    return "bert" if is_classic else "filbert-bert"


def architecture_of(kind: str, parts: Iterable[str]) -> str:
    """The transformers class that has those heads; where several heads are there, the task's comes first."""
    have = set(parts)
    if kind == "modernbert":
        return "ModernBertForMaskedLM" if "mlm" in have else "ModernBertModel"
    order = sorted((name for name in ARCHITECTURES if name.startswith("Bert")), key=_task_first)
    return next(name for name in order if have >= set(ARCHITECTURES[name]))


def _task_first(name: str) -> tuple[bool, int]:
    heads = ARCHITECTURES[name]
    return not set(heads) & HEADS.keys(), -len(heads)


def fields_of(
    config: Shape, parts: tuple[str, ...], labels: Sequence[str], dtype: str, more: Mapping[str, object]
) -> dict[str, Any]:
    """The fields of config.json for such a model; of `more`, those that the model does not fix itself are kept."""
    kind = kind_of(config)
    metadata: dict[str, Any] = {"version": VERSION, "dropout": config.dropout}
    fields: dict[str, Any] = {"model_type": kind}
    if kind in OUR_KINDS:
        shape = dataclasses.asdict(config)  # type: ignore[call-overload]  # Shape is a protocol of dataclasses
        metadata = {"version": VERSION, "config": shape, "parts": list(parts)}
    else:
        assert isinstance(config, bert.Config)  # no other has a kind of transformers'
        fields["architectures"] = [architecture_of(kind, parts)]
        fields |= {name: getattr(config, ours) for name, ours in FIELDS.items()}
        fields |= _modern_fields(config) if kind == "modernbert" else _classic_fields(config)
    if labels:
        fields["id2label"] = {str(i): label for i, label in enumerate(labels)}
        fields["label2id"] = {label: i for i, label in enumerate(labels)}
    fields |= {"dtype": dtype, "filbert": metadata}
    kept = {name: value for name, value in more.items() if name not in NOT_KEPT}
    return DEFAULT_FIELDS.get(kind, {}) | kept | fields


def _classic_fields(config: bert.Config) -> dict[str, Any]:
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "hidden_act": names[config.feedforward],
        "hidden_dropout_prob": config.dropout,
        "layer_norm_eps": config.eps,
        "tie_word_embeddings": True,
    }


def _modern_fields(config: bert.Config) -> dict[str, Any]:
    return {
        "norm_eps": config.eps,
        "mlp_dropout": config.dropout,
        "embedding_dropout": config.dropout,
        "local_attention": 2 * bert.REACH,
        "global_attn_every_n_layers": bert.GLOBAL_EVERY,
        "global_rope_theta": bert.GLOBAL_THETA,
        "local_rope_theta": bert.LOCAL_THETA,
        "tie_word_embeddings": True,
    }
