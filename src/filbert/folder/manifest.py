"""A path in; the model folder meant, and whether its files are those that were saved, out. No torch."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from filbert.builtin import model as builtin
from filbert.core.errors import InputError, did_you_mean
from filbert.core.files import json_text, named, sha256, write_text
from filbert.core.version import VERSION
from filbert.folder import weights

MANIFEST, CARD, FORMAT = "manifest.json", "README.md", "filbert model folder 1"
CONFIG = "config.json"
WANTED = f"give the folder that holds {CONFIG} and {weights.WEIGHTS}"
_NUMBERED = re.compile(r"[0-9]+_[A-Za-z]+$")
# All that a folder's answers hang on: of these none may be a link that leaves it, or stand beside what was saved.
READ = (
    CONFIG, weights.WEIGHTS, weights.INDEX, "vocab.txt", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "task.json", "data.json", "runtime.json", "model.onnx",
    "model.int8.onnx", "model.int8.any.onnx", "model.int8.safetensors", "golden.jsonl", "pooling.json", "modules.json",
    "config_sentence_transformers.json", "sentence_bert_config.json", "generation_config.json", "adapter_config.json",
)  # fmt: skip


def model_folder(path: Path | str) -> Path:
    """The folder itself, a run's `model` inside it, the built-in model's, or that of a name in a cache here."""
    folder = named(path, "the model", f'the path of a folder or of a run, or "{builtin.NAME}"')
    if str(path) == builtin.NAME and not folder.exists():
        return builtin.folder()
    if not folder.exists():
        from filbert.folder import caches  # few need them

        if (cached := caches.find(str(path))) is not None:
            return cached
        others = caches.names() if caches.NAME.fullmatch(str(path)) else []
        there = f" and no such model among those in a cache here ({', '.join(others[:10])})" if others else ""
        hint = did_you_mean(str(path), [builtin.NAME, *others])
        raise InputError(f"{folder}: there is no such folder{there}; {WANTED}.{hint}")
    if not folder.is_dir():
        raise InputError(f"{folder}: is a file; {WANTED}.")
    if not (folder / CONFIG).exists() and (folder / "model" / CONFIG).exists():
        return folder / "model"
    return folder


def check_links(folder: Path) -> None:
    """Refuses files of a folder that are links which lead out of it, whatever reads them."""
    for name in READ:
        if (folder / name).is_symlink():
            weights.inside(folder, name)


def check_manifest(folder: Path, *, hashes: bool, always: Collection[str] = ()) -> None:
    """Refuses a folder with a file that is not as its manifest says; without one, only links are looked at.

    hashes: of every file, else of those in `always` alone.
    """
    check_links(folder)
    files = manifest_files(folder)
    for name, entry in (files or {}).items():
        if name == CARD and not hashes:  # anyone may edit the card
            continue
        path = weights.inside(folder, name)
        try:
            same = path.stat().st_size == entry["bytes"]
            same = same and (not (hashes or name in always) or sha256(path) == entry["sha256"])
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
        if not same:
            raise InputError(
                f"{path}: is not the file that was saved ({MANIFEST} tells); fetch it again, "
                f"or delete {MANIFEST} if you changed it on purpose."
            )
    read = (*READ, *(f"{home.name}/{name}" for home in _homes(folder) for name in (CONFIG, weights.WEIGHTS)))
    strays = [name for name in read if files is not None and name not in files and (folder / name).exists()]
    if strays:
        raise InputError(
            f"{folder / strays[0]}: was not there when the folder was saved ({MANIFEST} tells); take it away, "
            f"or delete {MANIFEST} if you added it on purpose."
        )


def manifest_files(folder: Path) -> dict[str, Any] | None:
    """The files that the manifest names, each with its size and hash; None where there is no manifest."""
    if not (folder / MANIFEST).exists():
        return None
    files = weights.small_json(weights.inside(folder, MANIFEST)).get("files")
    if not isinstance(files, dict):
        raise InputError(f"{folder / MANIFEST}: files must be an object of file names.")
    for name, entry in files.items():
        is_entry = isinstance(entry, dict) and type(entry.get("bytes")) is int and isinstance(entry.get("sha256"), str)
        if not is_entry:
            raise InputError(f"{folder / MANIFEST}: the entry {name[:120]!r} must have bytes and sha256.")
    return files


def fingerprint(folder: Path) -> str | None:
    """The SHA-256 of manifest.json, which has that of every other file; None where there is none."""
    return sha256(weights.inside(folder, MANIFEST)) if (folder / MANIFEST).exists() else None


def was_sealed(folder: Path) -> bool:
    """Whether a folder without manifest.json once had one: only filbert writes what it holds."""
    ours = any((folder / name).exists() for name in ("golden.jsonl", "runtime.json", "task.json"))
    return ours or "filbert" in weights.small_json(weights.inside(folder, CONFIG))


def seal(folder: Path | str, **stated: object) -> None:
    """Writes manifest.json over all files that the folder holds now; call it after adding one.

    stated: what the maker promises of the folder (`int8`: what eight bits cost); what was stated before stays.
    """
    folder = Path(folder)
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    paths += sorted(path for home in _homes(folder) for path in home.iterdir() if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in paths}
    files = {name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for name, path in named.items()}
    promised = {**_stated(folder), **stated}
    manifest = {"format": FORMAT, "filbert": VERSION, **({"stated": promised} if promised else {}), "files": files}
    write_text(folder / MANIFEST, json_text(manifest))


def _homes(folder: Path) -> list[Path]:
    """The folders within, as sentence-transformers numbers those of its modules."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and _NUMBERED.match(path.name))


def stated(folder: Path, name: str) -> dict[str, Any]:
    """What the folder's maker promises under that name; empty where nothing is."""
    value = _stated(folder).get(name, {})
    if not isinstance(value, dict):
        raise InputError(f"{folder / MANIFEST}: stated.{name} must be an object; fetch the folder again.")
    return value


def _stated(folder: Path) -> dict[str, Any]:
    if not (folder / MANIFEST).exists():
        return {}
    value = weights.small_json(weights.inside(folder, MANIFEST)).get("stated", {})
    if not isinstance(value, dict):
        raise InputError(f"{folder / MANIFEST}: stated must be an object; fetch the folder again.")
    return value
