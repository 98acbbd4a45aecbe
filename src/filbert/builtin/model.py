"""The pretrained model that ships: nothing in, its folder out."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from filbert.core.errors import InputError

NAME = "builtin"


def _path() -> Path:
    return Path(str(importlib.resources.files("filbert.builtin"))) / "model"


def is_there() -> bool:
    """Whether this install carries it."""
    return (_path() / "config.json").exists()


def folder() -> Path:
    """The folder of the built-in model: a small BERT for Chinese and English; its README.md is the card."""
    if not is_there():
        raise InputError(
            "this version carries no built-in model yet; give a folder, e.g. the one `filbert demo` makes."
        )
    return _path()
