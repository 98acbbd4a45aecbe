"""A model folder and a wish in; the folder to ship, whole or not at all, with cases and costs measured, out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from filbert.core import keywords
from filbert.engine.model import load
from filbert.folder.folder import import_folder, whole_folder
from filbert.folder.manifest import model_folder
from filbert.folder.read_transformers import Source
from filbert.forms import sources
from filbert.nn.heads import every
from filbert.ship import cost, onnx, verify
from filbert.text.streams import Reading


@keywords.checked()
def export(
    path: Path | str,
    out: Path | str,
    *,
    int8: bool = False,
    dev: sources.Source | None = None,
    options: sources.ReadOptions = sources.AS_EACH_SAYS,
) -> tuple[Path, cost.Cost]:
    """Writes a folder that runs without torch, with golden cases; what eight bits cost, where they are wished for.

    dev: labelled data on which the cost is measured; options: how they are read. Everything is made beside its
    place and renamed when it is whole, so that whoever looks never finds half of it.
    """
    with whole_folder(out, model_folder(path)) as part:
        onnx.export(path, part, int8)
        if not (part / verify.GOLDEN).exists():
            loaded = load(part, runtime="onnx")
            task, reading = verify.task_of(loaded), Reading()
            read_as = replace(options, trained_on=loaded.trained_on)
            verify.write(part, sources.read(task, dev, read_as, reading) if dev is not None and task else ())
            if dev is not None and not int8:  # else `cost` prints it
                sources.tell(dev, reading)
        stated = cost.write(part, dev, options) if int8 else {}
    return Path(out), stated


def imported(source: Path | str, out: Path | str) -> Source:
    """Writes a foreign folder as one of ours, if the whole of it can be read here: weights, tokenizer, head, labels."""
    with whole_folder(out, model_folder(source)) as part:
        read = import_folder(source, part)
        model = load(part, device="cpu")
        if every().keys() & set(read.parts):
            model.reads([])
    return read
