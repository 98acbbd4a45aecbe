"""A model folder in; one that `transformers` loads with the same numbers, or what it cannot hold of it, out."""

from __future__ import annotations

from pathlib import Path

from filbert.core.errors import InputError
from filbert.core.files import Json, json_text, write_text
from filbert.core.registry import is_task, task
from filbert.folder import card, runtime, sentence_transformers, weights
from filbert.folder import folder as folders
from filbert.folder.config import OUR_KINDS
from filbert.folder.layouts.layout import layout
from filbert.folder.manifest import MANIFEST, seal
from filbert.nn.encoder import Shape
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
    source = folders.read(path, verify=True)
    about = source.described
    if about.kind in OUR_KINDS:
        raise InputError(f"{source.folder}: is of the layout {about.kind}, and transformers has no class for it.")
    published = layout(about.kind)
    architecture = published.class_of(source.parts)
    for part in source.parts:
        if part in every() and part not in published.classes[architecture]:
            raise InputError(f"{source.folder}: {every()[part].lacks}.")
    task_fields = weights.small_json(weights.inside(source.folder, TASK)) if (source.folder / TASK).exists() else {}
    remarks = _remarks(task_fields)
    loads = "AutoModel" + architecture.removeprefix(published.bare.removesuffix("Model")).removeprefix("Model")
    with folders.whole_folder(out, source.folder) as part_folder:
        folders.copied(source.folder, part_folder, LEFT)
        _write_modules(part_folder, task_fields, about.config)
        seal(part_folder)
        loader = f"`transformers.{loads}.from_pretrained(FOLDER)` and `AutoTokenizer` load it, with the same numbers."
        card.renew(part_folder, {SECTION: "\n".join([loader, "", card.bullets(remarks)])})
    return Path(out), loads, remarks


def _write_modules(part: Path, task_fields: Json, config: Shape) -> None:
    """The files by which sentence-transformers makes the vectors that a folder was fine-tuned for."""
    name = task_fields.get("task")
    gives_vectors = is_task(name) and not task(str(name)).part
    if not gives_vectors or task_fields.get("pool", "mean") not in ("cls", "mean"):
        return
    files = sentence_transformers.module_files(str(task_fields.get("pool", "mean")), config.width, unit=True)
    files[sentence_transformers.READING] = json_text(
        {"max_seq_length": task_fields.get("max_length", config.max_length)}
    )
    for name, text in files.items():
        (part / name).parent.mkdir(exist_ok=True)
        write_text(part / name, text)


def _remarks(task_fields: Json) -> list[str]:
    """What transformers does not do with such a folder."""
    length = task_fields.get("max_length")
    remarks = ["A text longer than the model is cut there, not read in windows."]
    if length:
        remarks = [f"A text longer than {length} tokens is cut there (max_length={length}), not read in windows."]
    heat = task_fields.get("temperature", 1.0)
    if heat != 1.0:
        remarks.append(f"Scores are not calibrated there: divide the logits by {heat!r} first.")
    if task_fields.get("several"):
        remarks.append(f"A label is given from a probability of {task_fields['several']!r} on; there, say so yourself.")
    if task_fields.get("answer", "label") != "label":
        remarks.append(f"The number is logit × {task_fields.get('scale', 1.0)!r} + {task_fields.get('center', 0.0)!r}.")
    name = task_fields.get("task")
    return remarks + (task(str(name)).abroad(task_fields) if is_task(name) else [])
