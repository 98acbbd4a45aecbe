"""Run folders: the names of their files, which process writes them, and whether a run may begin or resume there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.core.errors import InputError
from filbert.core.settings import stated
from filbert.folder.folder import check_place
from filbert.folder.manifest import CONFIG, MANIFEST
from filbert.folder.weights import INDEX, WEIGHTS
from filbert.train import loop
from filbert.train.checkpoint import Store

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MODEL, CHECKPOINTS, SHARDS, VOCAB, RECIPE, LOG = "model", "checkpoints", "shards", "vocab", "recipe.json", "log.jsonl"


def is_first() -> bool:
    """Whether this process prints and writes: the only one, or rank 0 of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def check_home(out: Path) -> None:
    """Refuses a place where no run can end: a model folder, which would go on to answer, or a strange `model` in it."""
    if (out / CONFIG).exists() and any((out / name).exists() for name in (WEIGHTS, INDEX, MANIFEST)):
        raise InputError(f"{out}: is a model folder, and not the place for a run; choose another --out.")
    check_place(out / MODEL)


def resumed_at(store: Store, out: Path, resume: bool, identity: Mapping[str, str] | None = None) -> int:
    """The step to go on from; a folder that holds a run already is not begun again by accident, nor changed."""
    checkpoint = store.newest() if (out / CHECKPOINTS).exists() else None
    if checkpoint is None and (out / MODEL / CONFIG).exists():
        raise InputError(
            f"{out}: holds a model, but no checkpoint of its run to go on from; choose another --out, or remove "
            f"{out / MODEL} if it may be made anew."
        )
    if checkpoint is not None and not resume:
        raise InputError(
            f"{out}: holds a run that came to step {checkpoint.step:,}; go on with --resume, or choose another --out."
        )
    if checkpoint is not None:
        loop.check_identity(checkpoint, identity or {})
    return checkpoint.step if checkpoint is not None else 0


def unbegun(out: Path) -> str:
    """The sentence on a run that is to go on and cannot."""
    return f"{out}: holds no checkpoint to go on from with --resume, so the run begins."


def recipe_fields(configs: Mapping[str, DataclassInstance]) -> dict[str, str]:
    """{"train.steps": "500"}: the fields that must not change within a run, each by its own name."""
    sections = ((name, stated(config)) for name, config in configs.items())
    fields = {f"{section}.{name}": json.dumps(value) for section, values in sections for name, value in values.items()}
    for name in ("checkpoint_every", "evaluate_every", "patience"):
        fields.pop(f"train.{name}", None)
    return fields


def digest(value: object, *more: Any) -> str:
    """Sixteen characters that tell whether a value, and the bytes beside it, are the same."""
    made = hashlib.sha256(json.dumps(value, sort_keys=True).encode())
    for raw in more:
        made.update(raw)
    return made.hexdigest()[:16]
