"""What a run without torch must know of a model folder: written when it is exported, read back without torch.

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

from filbert.artefact import weights
from filbert.artefact.manifest import check_manifest, model_folder
from filbert.core.errors import InputError
from filbert.core.files import json_text, write_text

if TYPE_CHECKING:
    from filbert.artefact.foreign import Source

ENCODER, RUNTIME = "model.onnx", "runtime.json"
SMALL_WEIGHTS, SMALL_ENCODER = "model.int8.safetensors", "model.int8.onnx"  # in eight bits (artefact.int8)
FORMER_ENCODER = "model.int8.any.onnx"  # of earlier exports, whose other graph is right on some CPUs only
FORMAT = "filbert runtime 1"
WORDS = "embeddings.words.weight"
ENCODER_NAMES = ("embeddings.", "layers.", "final_norm.")
FIELDS: Mapping[str, type] = {
    "kind": str, "vocab_size": int, "width": int, "max_length": int, "parts": list, "labels": list, "eps": float,
    "activation": str, "heads": dict,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a model's shape that reading texts needs."""

    vocab_size: int
    width: int
    max_length: int


@dataclass(frozen=True, kw_only=True)
class Portable:
    """A folder that runs without torch: as much of `folder.Loaded` as answering needs."""

    folder: Path
    config: Shape
    kind: str
    parts: tuple[str, ...]
    labels: list[str]
    problem_type: str | None
    notes: list[str]
    eps: float
    activation: str
    heads: dict[str, npt.NDArray[Any]]  # under our names; "words" is the word table, where a head scores words

    @property
    def model(self) -> Portable:
        """Itself: what is asked of a model before it reads are its parts."""
        return self


def write(source: Source) -> Path:
    """Writes runtime.json for the folder that these weights lie in."""
    about = source.described
    own = {name: pieces for name, pieces in source.tensors.items() if not name.startswith(ENCODER_NAMES)}
    if any(name.startswith("mlm.") for name in own):
        own["words"] = source.tensors[WORDS]
    told = {
        "format": FORMAT, "kind": about.kind, "vocab_size": about.config.vocab_size, "width": about.config.width,
        "max_length": about.config.max_length, "parts": list(source.parts), "labels": list(source.labels),
        "problem_type": about.problem_type, "eps": float(about.config.eps), "activation": about.config.feedforward,
        "heads": {name: [piece.name for piece in pieces] for name, pieces in own.items()},
    }  # fmt: skip
    path = source.folder / RUNTIME
    write_text(path, json_text(told))
    return path


def is_portable(path: Path | str) -> bool:
    """Whether a folder was exported."""
    return (model_folder(path) / RUNTIME).exists()


def load(path: Path | str, *, verify: bool = False) -> Portable:
    """The folder as a run without torch needs it; only the heads' numbers are read."""
    folder = model_folder(path)
    if not (folder / RUNTIME).exists():
        raise InputError(
            f"{folder}: has no {RUNTIME}, so it cannot run without torch; export it once where torch is: "
            f"filbert export {path} --out DIR, or install torch here: pip install 'filbert[train]'."
        )
    check_manifest(folder, hashes=verify)
    path = weights.inside(folder, RUNTIME)
    told = weights.small_json(path)
    if told.get("format") != FORMAT:
        raise InputError(f"{path}: is not of the form {FORMAT!r}; export the folder again.")
    for name, kind in FIELDS.items():
        if type(told.get(name)) is not kind:
            raise InputError(f"{path}: {name} must be of type {kind.__name__}; export the folder again.")
    stored = weights.read_folder(folder)
    heads = {name: _numbers(path, stored, names) for name, names in told["heads"].items()}
    return Portable(
        folder=folder, config=Shape(told["vocab_size"], told["width"], told["max_length"]), kind=told["kind"],
        parts=tuple(map(str, told["parts"])), labels=[str(label) for label in told["labels"]],
        problem_type=told.get("problem_type"), notes=[], eps=told["eps"], activation=told["activation"], heads=heads,
    )  # fmt: skip


def _numbers(path: Path, stored: weights.Tensors, names: Any) -> npt.NDArray[Any]:
    """The tensors of these names, one under another, as float32."""
    if not isinstance(names, list) or not names or any(name not in stored for name in names):
        raise InputError(f"{path}: names tensors that the weight file does not have; export the folder again.")
    found = [stored[name].array() for name in names]
    joined: npt.NDArray[Any] = (found[0] if len(found) == 1 else np.concatenate(found)).astype(np.float32)
    if not np.isfinite(joined).all():
        raise InputError(f"{path.parent}: tensor {names[0][:120]!r} has numbers that are not finite; export it again.")
    return joined
