"""A model folder in; the same folder with its encoder as ONNX beside its weights, ready to run without torch, out."""

from __future__ import annotations

from pathlib import Path

from filbert.core.errors import InputError, needed
from filbert.core.registry import model_of
from filbert.folder import folder as folders
from filbert.folder import graphs, read_transformers, runtime, weights
from filbert.folder.manifest import MANIFEST, seal
from filbert.models import bert
from filbert.ship import encoder
from filbert.ship import int8 as small

# Files of a folder that an exported one has no use for, or has its own of.
LEFT = (MANIFEST, "log.jsonl", "loss.svg", runtime.SMALL_WEIGHTS, runtime.SMALL_ENCODER, runtime.FORMER_ENCODER)


def export(path: Path | str, out: Path | str, int8: bool = False) -> Path:
    """Writes a model folder again with its encoder as ONNX beside it, ready to run without torch; all else as it is.

    int8: in eight bits as well (ship.int8).
    """
    source = folders.read(path, verify=True)
    config = source.described.config
    if not isinstance(config, bert.Config) and model_of(config).graph is None:
        raise InputError(f"{source.folder}: is of the family {source.described.kind}, but only bert's goes to ONNX.")
    read_transformers.check_data(source)
    read_transformers.check_finite(source)
    with folders.whole_folder(out, source.folder) as part:
        folders.copied(source.folder, part, LEFT)
        add(part, int8)
    return Path(out)


def add(folder: Path, int8: bool = False) -> None:
    """Puts model.onnx and what a run without torch needs to know into a model folder, and seals it anew."""
    source = read_transformers.read(folder)
    encoder.saved(encoder.Encoder(source), folder / runtime.ENCODER)
    runtime.write(source)
    if int8:
        small.write(source)
    seal(folder)


def changed_graphs(folder: Path) -> list[str]:
    """The names of graphs in a folder that are not those which its config and weights give."""
    source = read_transformers.read(folder)
    made: dict[str, encoder.Encoder] = {runtime.ENCODER: encoder.Encoder(source)}
    if (folder / runtime.SMALL_ENCODER).exists() and (folder / runtime.SMALL_WEIGHTS).exists():
        made[runtime.SMALL_ENCODER] = small.SmallEncoder(source, weights.read(folder / runtime.SMALL_WEIGHTS))
    onnx, names = needed("onnx", encoder.EXTRA), []
    for name, graph in made.items():
        path = graphs.checked(folder, name, runtime.load(folder).stored)
        if onnx.load(str(path), load_external_data=False).graph != graph.graph():
            names.append(name)
    return names
