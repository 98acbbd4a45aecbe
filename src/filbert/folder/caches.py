"""A published model's name in; its folder in a cache of this machine, and what else lies there, out. No network.

Hugging Face keeps `models--ORG--NAME/snapshots/COMMIT`, of which `refs/main` names one; ModelScope keeps `ORG/NAME`,
with `___` for a dot. Their environment variables say where, as they do to their own libraries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from filbert.core.errors import InputError

CONFIG = "config.json"
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")


def find(name: str) -> Path | None:
    """The folder of that model: ORG/NAME, or NAME alone where one organisation's lies here; None where none does."""
    if not NAME.fullmatch(name):
        return None
    models = dict(sorted(_models()))
    if name in models:
        return models[name]
    fitting = [each for each in models if each.rpartition("/")[2] == name]
    if len(fitting) > 1:
        raise InputError(f"{name}: may be {' or '.join(fitting[:5])}, which lie in a cache here; give one whole.")
    return models[fitting[0]] if fitting else None


def names() -> list[str]:
    """The models that lie in a cache here."""
    return sorted({name for name, _ in _models()})


def note(name: object, folder: Path) -> list[str]:
    """What a user reads who gave a name and not a folder."""
    is_cached = any(folder.is_relative_to(root) for root in (_hugging_face(), *_model_scope()))
    return [f"{name}: is read from {folder}."] if is_cached and str(name) != str(folder) else []


def _models() -> Iterator[tuple[str, Path]]:
    """(name, folder) of each that has a config.json."""
    for home in _folders(_hugging_face(), "models--*"):
        main = home / "refs" / "main"
        try:
            commit = main.read_text(encoding="utf-8", errors="replace")[:200].strip() if main.is_file() else ""
        except OSError:
            commit = ""
        snapshots = sorted(_folders(home / "snapshots", "*"), key=lambda path: (path.name == commit, path.name))
        for folder in reversed(snapshots):
            if (folder / CONFIG).is_file():
                yield home.name.removeprefix("models--").replace("--", "/", 1), folder
                break
    for root in _model_scope():
        for folder in _folders(root, "*/*"):
            if (folder / CONFIG).is_file():
                yield f"{folder.parent.name}/{folder.name}".replace("___", "."), folder


def _folders(root: Path, pattern: str) -> list[Path]:
    try:
        return [path for path in root.glob(pattern) if path.is_dir()]
    except OSError:
        return []


def _home() -> Path:
    return Path(os.path.expanduser("~"))  # which stays as it is where there is none


def _hugging_face() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache")
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or home / "hub").expanduser()


def _model_scope() -> tuple[Path, ...]:
    root = Path(os.environ.get("MODELSCOPE_CACHE") or _home() / ".cache" / "modelscope").expanduser()
    return (root / "hub" / "models", root / "hub", root / "models")
