"""config.json in, the shape of a model with its labels out, every field checked before it is used; and back.

The kinds: those of `folder.layouts` as transformers writes them, `filbert-bert` for our other layouts of it, and
`filbert-NAME` for every other file of models.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.core.errors import InputError, one_of
from filbert.core.files import Json
from filbert.core.registry import members, model
from filbert.core.settings import stated
from filbert.core.version import VERSION
from filbert.folder import fields as keys
from filbert.folder import sentence_transformers
from filbert.folder.layouts.layout import ACTIVATIONS, Layout, layout
from filbert.folder.layouts.layout import KINDS as PUBLISHED
from filbert.folder.meta import family
from filbert.folder.weights import inside, small_json
from filbert.models import bert
from filbert.nn.encoder import Shape
from filbert.nn.heads import every

NAME = "config.json"
OUR_KINDS = {f"filbert-{name}": name for name in members("models")}  # kinds that only we write, and their files
KINDS = (*PUBLISHED, *OUR_KINDS)
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
    published = layout(kind) if kind in PUBLISHED else None
    notes = keys.passed_over(path, fields, published.field_names if published else ())
    for name, allowed in (published.fixed if published else {}).items():
        keys.must_be(path, name, fields.get(name), allowed)
    keys.word(path, fields, "dtype", DTYPES)
    keys.word(path, fields, "torch_dtype", DTYPES)
    architecture, parts = _architecture(path, fields, kind)
    labels, num_labels, odd = keys.labels(path, fields)
    notes += odd + keys.beside(folder, fields)
    config = _of_transformers(path, fields, published) if published else _of_filbert(path, fields, OUR_KINDS[kind])
    return Described(
        path=path, kind=kind, config=config, parts=parts, architecture=architecture,
        labels=labels, num_labels=num_labels,
        problem_type=keys.word(path, fields, "problem_type", PROBLEMS), fields=fields, notes=notes,
    )  # fmt: skip


def _of_transformers(path: Path, fields: Json, published: Layout) -> bert.Config:
    """The shape that a transformers config describes."""
    shape = {**published.usual, **published.shape}
    for name, ours in published.numbers.items():
        low, high = bert.LIMITS[ours]
        value = fields.get(name, shape[ours])
        if type(value) is not int or not max(low, 1) <= value <= high:
            raise InputError(
                f"{path}: {name} is {keys.short(value)!r}, but must be a whole number from {max(low, 1)} to {high:,}."
            )
        shape[ours] = value
    if published.eps:
        shape["eps"] = _number(path, fields, published.eps, shape["eps"], 0.1)
    shape["dropout"] = _number(path, fields, published.dropout, shape["dropout"], 0.99)
    if published.check is not None:
        published.check(path, fields, shape)
    if published.activation:
        activation = fields.get(published.activation, "gelu")
        if not isinstance(activation, str) or activation not in ACTIVATIONS:
            raise one_of(f"{path}: {published.activation}", keys.short(activation), ACTIVATIONS)
        shape["feedforward"] = ACTIVATIONS[activation]
    turned = str(shape["positions"]).startswith("rotary")
    if shape["width"] % shape["heads"] or (turned and shape["width"] // shape["heads"] % 2):
        names = {ours: theirs for theirs, ours in published.numbers.items()}
        raise InputError(
            f"{path}: {names['width']} {shape['width']} cannot be shared by {names['heads']} {shape['heads']}; "
            f"it must be {'an even' if turned else 'a'} multiple."
        )
    return bert.Config(**shape)


def _number(path: Path, fields: Json, name: str, default: float, most: float) -> float:
    value = fields.get(name, default)
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= most:
        raise InputError(f"{path}: {name} is {keys.short(value)!r}, but must be a number from 0 to {most}.")
    return float(value)


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
    classes = layout(kind).classes
    first = listed[0] if isinstance(listed, list) else listed
    if not isinstance(listed, list) or not isinstance(first, str) or first not in classes:
        raise one_of(f"{path}: architectures", keys.short(first), list(classes))
    return first, classes[first]


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
    return next((kind for kind in PUBLISHED if layout(kind).holds(config)), "filbert-bert")


def fields_of(
    config: Shape, parts: tuple[str, ...], labels: Sequence[str], dtype: str, more: Mapping[str, object]
) -> dict[str, Any]:
    """The fields of config.json for such a model; of `more`, those that the model does not fix itself are kept."""
    kind = kind_of(config)
    metadata: dict[str, Any] = {"version": VERSION, "dropout": config.dropout}
    fields: dict[str, Any] = {"model_type": kind}
    if kind in OUR_KINDS:
        shape = stated(config)  # type: ignore[arg-type]  # Shape is a protocol of dataclasses
        metadata = {"version": VERSION, "config": shape, "parts": list(parts)}
    else:
        assert isinstance(config, bert.Config)  # no other has a kind of transformers'
        published = layout(kind)
        fields["architectures"] = [published.class_of(parts)]
        fields |= {name: getattr(config, ours) for name, ours in published.numbers.items()}
        fields |= published.fields(config)
    if labels:
        fields["id2label"] = {str(i): label for i, label in enumerate(labels)}
        fields["label2id"] = {label: i for i, label in enumerate(labels)}
    fields |= {"dtype": dtype, "filbert": metadata}
    former = more.get("model_type")
    gone = layout(former).field_names if former in PUBLISHED and former != kind else ()  # of a kind that it is no more
    kept = {name: value for name, value in more.items() if name not in NOT_KEPT and name not in gone}
    return (dict(layout(kind).written) if kind in PUBLISHED else {}) | kept | fields
