"""A path in; the model folder meant, whether its files are those saved, and how it pools, out. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filbert.artefact import weights
from filbert.builtin import model as builtin
from filbert.core.errors import InputError, did_you_mean, one_of
from filbert.core.files import json_text, named, sha256, write_text
from filbert.core.version import VERSION

MANIFEST, CARD, FORMAT = "manifest.json", "README.md", "filbert model folder 1"
POOLING, CONFIG = "pooling.json", "config.json"


def model_folder(path: Path | str) -> Path:
    """The folder itself, a run's `model` inside it, or the built-in model's."""
    folder = named(path, "the model", f'the path of a folder or of a run, or "{builtin.NAME}"')
    if str(path) == builtin.NAME and not folder.exists():
        return builtin.folder()
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        hint = did_you_mean(str(path), [builtin.NAME])
        raise InputError(f"{folder}: {what}; give the folder that holds {CONFIG} and {weights.WEIGHTS}.{hint}")
    if not (folder / CONFIG).exists() and (folder / "model" / CONFIG).exists():
        return folder / "model"
    return folder


def check_manifest(folder: Path, *, hashes: bool) -> None:
    """Refuses a folder with a file that is not as its manifest says; one without a manifest is not ours to judge."""
    if not (folder / MANIFEST).exists():
        return
    files = weights.small_json(weights.inside(folder, MANIFEST)).get("files")
    if not isinstance(files, dict):
        raise InputError(f"{folder / MANIFEST}: files must be an object of file names.")
    for name, entry in files.items():
        known = isinstance(entry, dict) and type(entry.get("bytes")) is int and isinstance(entry.get("sha256"), str)
        if not known:
            raise InputError(f"{folder / MANIFEST}: the entry {name[:120]!r} must have bytes and sha256.")
        if name == CARD and not hashes:  # anyone may edit the card
            continue
        path = weights.inside(folder, name)
        if path.stat().st_size != entry["bytes"] or (hashes and sha256(path) != entry["sha256"]):
            raise InputError(
                f"{path}: is not the file that was saved ({MANIFEST} tells); fetch it again, "
                f"or delete {MANIFEST} if you changed it on purpose."
            )


def seal(folder: Path | str, **stated: Any) -> None:
    """Writes manifest.json over all files that the folder holds now; call it after adding one.

    stated: what the maker promises of the folder (`int8`: what eight bits cost); what was stated before stays.
    """
    folder = Path(folder)
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    files = {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in paths}
    promised = {**_stated(folder), **stated}
    manifest = {"format": FORMAT, "filbert": VERSION, **({"stated": promised} if promised else {}), "files": files}
    write_text(folder / MANIFEST, json_text(manifest))


def stated(folder: Path, name: str) -> dict[str, Any]:
    """What the folder's maker promises under that name; empty where nothing is."""
    found = _stated(folder).get(name, {})
    if not isinstance(found, dict):
        raise InputError(f"{folder / MANIFEST}: stated.{name} must be an object; fetch the folder again.")
    return found


def _stated(folder: Path) -> dict[str, Any]:
    if not (folder / MANIFEST).exists():
        return {}
    found = weights.small_json(weights.inside(folder, MANIFEST)).get("stated", {})
    if not isinstance(found, dict):
        raise InputError(f"{folder / MANIFEST}: stated must be an object; fetch the folder again.")
    return found


def pooling(folder: Path) -> str | None:
    """How the folder's maker turns token vectors into one: "cls" or "mean" where it is said, by us or by others.

    sentence-transformers says it in 1_Pooling/config.json; an imported folder keeps it in pooling.json.
    """
    if (folder / POOLING).exists():
        said = weights.small_json(weights.inside(folder, POOLING)).get("pool")
        if said not in ("cls", "mean"):
            raise one_of(f"{folder / POOLING}: pool", said, ("cls", "mean"))
        return str(said)
    theirs = folder / "1_Pooling" / "config.json"
    if not theirs.exists():
        return None
    modes = weights.small_json(theirs)
    wanted = {name.removeprefix("pooling_mode_") for name, on in modes.items() if on is True and "pooling_mode" in name}
    return "cls" if wanted == {"cls_token"} else "mean" if wanted == {"mean_tokens"} else None
