"""The pretrained model that ships: nothing in, its folder out."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from filbert.core.errors import InputError

NAME = "builtin"


def folder() -> Path:
    """The folder of the built-in model: a small BERT for Chinese and English; its README.md is the card."""
    path = Path(str(importlib.resources.files("filbert.builtin"))) / "model"
    if not (path / "config.json").exists():
        raise InputError("this install has no built-in model; give a folder, or install filbert from a release.")
    return path
