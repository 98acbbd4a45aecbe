"""Runtime metadata of a model folder: written when it is exported, read back to answer without torch.

runtime.json holds the few numbers of the shape that reading and heads need, and where each head's tensors lie in the
weight file, so that no module has to be built. The weights themselves stay in model.safetensors, and model.onnx points
into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError
from filbert.core.files import Json, json_text, write_text
from filbert.folder import fields as keys
from filbert.folder import weights
from filbert.folder.layouts.layout import ACTIVATIONS, layout
from filbert.folder.layouts.layout import KINDS as PUBLISHED
from filbert.folder.manifest import CONFIG, check_manifest, model_folder
from filbert.nn import heads

if TYPE_CHECKING:
    from filbert.folder.read_transformers import Source

ENCODER, RUNTIME = "model.onnx", "runtime.json"
SMALL_WEIGHTS, SMALL_ENCODER = "model.int8.safetensors", "model.int8.onnx"  # in eight bits (ship.int8)
FORMER_ENCODER = "model.int8.any.onnx"  # of earlier exports, whose other graph is right on some CPUs only
FORMAT = "filbert runtime 1"
EPS, ACTIVATION, POOLER = 1e-12, "gelu", "tanh"  # of heads of models whose shape does not say
WORDS = "embeddings.words.weight"
ENCODER_NAMES = ("embeddings.", "layers.", "final_norm.")
FIELDS: Mapping[str, type] = {
    "kind": str, "vocab_size": int, "width": int, "max_length": int, "parts": list, "labels": list, "eps": float,
    "activation": str, "pooler": str, "heads": dict,
}  # fmt: skip
TIED = (CONFIG, RUNTIME, ENCODER, SMALL_ENCODER, FORMER_ENCODER)  # files whose hashes are compared at every load
SHAPE_FIELDS = {"vocab_size": "vocab_size", "width": "width", "max_length": "max_length", "eps": "eps",
       "activation": "feedforward", "pooler": "pooler"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a model's shape that reading texts needs."""

    vocab_size: int
    width: int
    max_length: int


@dataclass(frozen=True, kw_only=True)
class Portable:
    """A folder that runs without torch: its runtime metadata, and as much of `folder.Loaded` as answering needs."""

    folder: Path
    config: Shape
    kind: str
    parts: tuple[str, ...]
    labels: list[str]
    problem_type: str | None
    notes: list[str]
    eps: float
    activation: str
    pooler: str  # the activation of the pooler
    heads: dict[str, npt.NDArray[Any]]  # under our names; "words" is the word table, where a head scores words
    stored: weights.Tensors  # of its weight files: what its graphs may point to

    @property
    def model(self) -> Portable:
        """Itself, where a model's config and parts are looked up."""
        return self


def write(source: Source) -> Path:
    """Writes runtime.json for the folder that these weights lie in."""
    about = source.described
    heads_of = {name: pieces for name, pieces in source.tensors.items() if not name.startswith(ENCODER_NAMES)}
    if any(name.startswith("mlm.") for name in heads_of):
        heads_of["words"] = source.tensors[WORDS]
    metadata = {
        "format": FORMAT, "kind": about.kind, "vocab_size": about.config.vocab_size, "width": about.config.width,
        "max_length": about.config.max_length, "parts": list(source.parts), "labels": list(source.labels),
        "problem_type": about.problem_type, "eps": float(vars(about.config).get("eps", EPS)),
        "activation": vars(about.config).get("feedforward", ACTIVATION),
        "heads": {name: [piece.name for piece in pieces] for name, pieces in heads_of.items()},
    }  # fmt: skip
    if (pooler := vars(about.config).get("pooler", POOLER)) != POOLER:
        metadata["pooler"] = pooler
    path = source.folder / RUNTIME
    write_text(path, json_text(metadata))
    return path


def load(path: Path | str, *, verify: bool = False) -> Portable:
    """The folder as a run without torch needs it; only the heads' numbers are read.

    What runtime.json says must be what config.json and the weights say: labels and sizes come from there.
    """
    folder = model_folder(path)
    if not (folder / RUNTIME).exists():
        raise InputError(
            f"{folder}: has no {RUNTIME}, so it cannot run without torch; export it once where torch is: "
            f"filbert export {path} --out DIR, or install torch here: pip install 'filbert[train]'."
        )
    check_manifest(folder, hashes=verify, always=TIED)
    path = weights.inside(folder, RUNTIME)
    metadata = weights.small_json(path)
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path}: is not of the form {FORMAT!r}; export the folder again.")
    metadata.setdefault("pooler", POOLER)  # of exports that knew no other
    for name, form in FIELDS.items():
        if type(metadata.get(name)) is not form:
            raise InputError(f"{path}: {name} must be of type {form.__name__}; export the folder again.")
    where = weights.inside(folder, CONFIG)
    fields = weights.small_json(where)
    kind = str(fields.get("model_type"))
    notes = keys.passed_over(where, fields, layout(kind).field_names if kind in PUBLISHED else ())
    labels, _, odd = keys.labels(where, fields)
    stored = weights.read_folder(folder)
    parts = tuple(map(str, metadata["parts"]))
    _compare(path, metadata, fields, labels or [f"LABEL_{i}" for i in range(len(metadata["labels"]))])
    _check_heads(path, metadata, parts, stored)
    small = folder / SMALL_WEIGHTS
    tensors = {**stored, **(weights.read(weights.inside(folder, SMALL_WEIGHTS)) if small.exists() else {})}
    heads = {name: _numbers(path, stored[names[0]]) for name, names in metadata["heads"].items()}
    return Portable(
        folder=folder, config=Shape(metadata["vocab_size"], metadata["width"], metadata["max_length"]),
        kind=metadata["kind"],
        parts=parts, labels=[str(label) for label in metadata["labels"]], problem_type=metadata.get("problem_type"),
        notes=[*notes, *odd, *keys.beside(folder, fields)], eps=metadata["eps"],
        activation=metadata["activation"], pooler=metadata["pooler"], heads=heads,
        stored=tensors,
    )  # fmt: skip


def _compare(path: Path, metadata: Json, fields: Json, labels: list[str]) -> None:
    """Refuses a runtime.json that differs from config.json."""
    kind = str(fields.get("model_type"))
    expected: dict[str, Any] = {"kind": kind, "problem_type": keys.word(path, fields, "problem_type", keys.PROBLEMS)}
    if kind in PUBLISHED:
        published = layout(kind)
        named = {ours: theirs for theirs, ours in published.numbers.items()}
        usual = {**published.usual, **published.shape}
        expected |= {name: fields.get(named[name], usual[name]) for name in ("vocab_size", "width", "max_length")}
        expected["eps"] = fields.get(published.eps, usual["eps"]) if published.eps else usual["eps"]
        activation = ACTIVATIONS.get(str(fields.get(published.activation, "gelu")))
        expected["activation"] = activation if published.activation else usual["feedforward"]
        expected["pooler"] = usual["pooler"]
    else:
        of_filbert = fields.get("filbert")
        shape = of_filbert.get("config") if isinstance(of_filbert, dict) else None
        otherwise: dict[str, Any] = {"eps": EPS, "feedforward": ACTIVATION, "pooler": POOLER}
        if isinstance(shape, dict):
            expected |= {ours: shape.get(theirs, otherwise.get(theirs)) for ours, theirs in SHAPE_FIELDS.items()}
        expected["parts"] = of_filbert.get("parts") if isinstance(of_filbert, dict) else None
    if metadata["labels"]:
        expected["labels"] = labels
    for name, value in expected.items():
        if metadata.get(name) != value:
            raise InputError(
                f"{path}: {name} is {str(metadata.get(name))[:60]}, but {CONFIG} says {str(value)[:60]}; they are not "
                "of one folder: export it again."
            )


def _check_heads(path: Path, metadata: Json, parts: tuple[str, ...], stored: weights.Tensors) -> None:
    """Refuses heads that the weights do not hold under the names that such a folder has, or of another size."""
    named, kind = metadata["heads"], metadata["kind"]
    by_bare_name = {_bare(kind, name): name for name in stored}
    for ours, names in named.items():
        if not isinstance(names, list) or len(names) != 1 or names[0] not in stored:
            raise InputError(f"{path}: names tensors that the weight file does not have; export the folder again.")
        if _bare(kind, str(names[0])) not in _theirs(kind, ours, parts):
            raise InputError(
                f"{path}: {ours[:60]!r} is no head's tensor that {names[0][:60]!r} can be; export it again."
            )
    listed = {names[0] for names in named.values()}
    lost = [name for bare, name in by_bare_name.items() if _is_heads(kind, bare) and name not in listed]
    have = {ours.split(".")[1] if ours.startswith("heads.") else ours.split(".")[0] for ours in named} - {"words"}
    if lost or have != set(parts):
        what = lost[0] if lost else ", ".join(sorted(have ^ set(parts)))
        raise InputError(f"{path}: leaves out or makes up a head ({what[:120]}); export the folder again.")
    table = (stored[named["words"][0]].shape or (0,))[-1] if "words" in named else metadata["width"]
    shapes = _shapes(metadata["width"], table, metadata["vocab_size"], len(metadata["labels"]))
    for ours, names in named.items():
        piece = stored[names[0]]
        if piece.shape != shapes.get(ours, piece.shape) or piece.dtype not in weights.FLOATS:
            raise InputError(
                f"{path.parent}: tensor {names[0]!r} is {piece.dtype} {list(piece.shape)} and must be a float "
                f"{list(shapes.get(ours, ()))}; export the folder again."
            )


def _shapes(width: int, table: int, words: int, labels: int) -> dict[str, tuple[int, ...]]:
    """The shapes of heads' tensors, where they follow from these numbers alone."""
    shapes: dict[str, tuple[int, ...]] = {"words": (words, table), "mlm.bias": (words,), "mlm.norm.weight": (table,)}
    for name, size in {"pooler": width, "mlm.dense": table, "nsp": 2}.items():
        shapes |= {f"{name}.weight": (size, width), f"{name}.bias": (size,)}
    for part, head in heads.every().items():
        shapes |= {f"heads.{part}.{name}": shape for name, shape in head.shapes(width, labels).items()}
    return shapes


def _bare(kind: str, name: str) -> str:
    """A tensor's name without the encoder's prefix, in today's words."""
    return layout(kind).today(name) if kind in PUBLISHED else name


def _theirs(kind: str, ours: str, parts: tuple[str, ...]) -> set[str]:
    """The names that a folder of that kind has for a head's tensor of ours."""
    if kind not in PUBLISHED:
        return {WORDS if ours == "words" else ours}
    published = layout(kind)
    names = {"words": (published.words,), **dict(published.heads(parts))}.get(ours, ())
    return {*names, *(copy for copy, original in published.tied.items() if original in names and ours != "words")}


def _is_heads(kind: str, bare: str) -> bool:
    """Whether a tensor of the weight file is one of a head, and no copy of another."""
    if kind not in PUBLISHED:
        return not bare.startswith(ENCODER_NAMES)
    published = layout(kind)
    is_copy = bare in published.tied or published.is_passed_over(bare)
    return bare.startswith((*published.beside, "pooler.")) and not is_copy


def _numbers(path: Path, piece: weights.Stored) -> npt.NDArray[Any]:
    """A head's numbers, as float32."""
    joined: npt.NDArray[Any] = piece.array().astype(np.float32)
    if not np.isfinite(joined).all():
        raise InputError(f"{path.parent}: tensor {piece.name!r} has numbers that are not finite; export it again.")
    return joined
