"""A model folder in; one that `transformers` loads with the same numbers, or what it cannot hold of it, out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filbert.core.errors import InputError
from filbert.core.files import json_text, write_text
from filbert.core.registry import is_task, task
from filbert.folder import card, runtime, sentence_transformers, weights
from filbert.folder import folder as folders
from filbert.folder.config import ARCHITECTURES, OWN, architecture_of
from filbert.folder.manifest import MANIFEST, seal
from filbert.nn.heads import every

TASK, SECTION = "task.json", "In transformers"
LEFT = (
    MANIFEST, "log.jsonl", "loss.svg", runtime.ENCODER, runtime.RUNTIME, runtime.SMALL_WEIGHTS,
    runtime.SMALL_ENCODER, runtime.FORMER_ENCODER,
)  # fmt: skip


def export(path: Path | str, out: Path | str) -> tuple[Path, str, list[str]]:
    """Writes the folder as transformers takes it; the class that loads it, and what only filbert does with it.

    A folder of which transformers would make another model is refused with one sentence.
    """
    found = folders.read(path, verify=True)
    about = found.described
    if about.kind in OWN:
        raise InputError(f"{found.folder}: is of the layout {about.kind}, and transformers has no class for it.")
    architecture = architecture_of(about.kind, found.parts)
    for part in found.parts:
        if part in every() and part not in ARCHITECTURES[architecture]:
            raise InputError(f"{found.folder}: {every()[part].lacks}.")
    said = weights.small_json(weights.inside(found.folder, TASK)) if (found.folder / TASK).exists() else {}
    remarks = _remarks(said)
    loads = "AutoModel" + architecture.removeprefix("Modern").removeprefix("Bert").removeprefix("Model")
    with folders.whole_folder(out, found.folder) as part_folder:
        folders.copied(found.folder, part_folder, LEFT)
        _write_modules(part_folder, said, about.config)
        seal(part_folder)
        told = f"`transformers.{loads}.from_pretrained(FOLDER)` and `AutoTokenizer` load it, with the same numbers."
        card.renew(part_folder, {SECTION: "\n".join([told, "", card.bullets(remarks)])})
    return Path(out), loads, remarks


def _write_modules(part: Path, said: dict[str, Any], config: Any) -> None:
    """The files by which sentence-transformers makes the vectors that a folder was fine-tuned for."""
    name = said.get("task")
    gives_vectors = is_task(name) and not task(str(name)).part
    if not gives_vectors or said.get("pool", "mean") not in ("cls", "mean"):
        return
    files = sentence_transformers.written(str(said.get("pool", "mean")), config.width, unit=True)
    files[sentence_transformers.READING] = json_text({"max_seq_length": said.get("max_length", config.max_length)})
    for name, text in files.items():
        (part / name).parent.mkdir(exist_ok=True)
        write_text(part / name, text)


def _remarks(said: dict[str, Any]) -> list[str]:
    """What transformers does not do with such a folder."""
    length = said.get("max_length")
    found = ["A text longer than the model is cut there, not read in windows."]
    if length:
        found = [f"A text longer than {length} tokens is cut there (max_length={length}), not read in windows."]
    heat = said.get("temperature", 1.0)
    if heat != 1.0:
        found.append(f"Scores are not calibrated there: divide the logits by {heat!r} first.")
    if said.get("several"):
        found.append(f"A label is given from a probability of {said['several']!r} on; there, say so yourself.")
    if said.get("answer", "label") != "label":
        found.append(f"The number is logit × {said.get('scale', 1.0)!r} + {said.get('center', 0.0)!r}.")
    name = said.get("task")
    return found + (task(str(name)).abroad(said) if is_task(name) else [])
