"""The pretrained model that ships: nothing in, its folder out."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from filbert.core.errors import InputError

NAME = "builtin"


def _path() -> Path:
    return Path(str(importlib.resources.files("filbert.builtin"))) / "model"


def is_there() -> bool:
    """Whether this install carries it: archives may hold the small files and not the weights."""
    return all((_path() / name).exists() for name in ("config.json", "model.safetensors"))


def folder() -> Path:
    """The folder of the built-in model: a small BERT for Chinese and English; its README.md is the card."""
    if not is_there():
        raise InputError(
            f"{_path()}: this copy of filbert came without the built-in model; install the whole package, or name a "
            "folder, e.g. the one that `filbert demo` makes."
        )
    return _path()
