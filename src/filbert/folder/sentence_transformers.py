"""modules.json of a sentence-transformers folder in; how a text's vector is made of its tokens', out. No torch.

Legend: N texts, D width.

A module is followed (Transformer, Pooling by cls or mean, Dense, Normalize, Dropout) or named: where one stands that is
not computed here, a vector in its maker's way is refused, and the encoder still loads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from filbert.core.errors import InputError
from filbert.core.files import json_array, json_text
from filbert.core.records import Floats
from filbert.folder import weights
from filbert.folder.fields import listed, squeezed
from filbert.nn.ops import NUMPY
from filbert.pack.pooling import unit_length
from filbert.text.tokenizer_files import CONFIG as TOKENIZER

MODULES, PROMPTS, READING = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
POOLING, POOL_CONFIG = "pooling.json", "1_Pooling/config.json"  # of earlier filbert; of a folder without modules.json
MAKER = "sentence_transformers."
POOLS = {"cls": "cls", "mean": "mean", "cls_token": "cls", "mean_tokens": "mean"}
ACTIVATIONS: Mapping[str, Callable[[Floats], Any]] = {
    "Identity": lambda x: x, "Tanh": np.tanh, "ReLU": lambda x: NUMPY.activation("relu", x),
    "GELU": lambda x: NUMPY.activation("gelu", x),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
LEAST_WINDOW = 8
MOST_WIDTH = 65_536
TEXT = "sentence_embedding"  # what a Dense reads and writes
WIDTHS = ("embedding_dimension", "word_embedding_dimension")
HARMLESS = {  # what else such files carry, by file, and why it changes nothing
    MODULES: {"idx": "modules stand in order", "name": "of the module; nothing asks for it"},
    PROMPTS: {"__version__": "which version wrote it", "model_type": "modules.json names the modules",
              },
    READING: {"transformer_task": "config.json names the heads", "modality_config": "only texts are read",
              "module_output_name": "the last layer's vectors in any case",
              "tokenizer_args": "the tokenizer's files say it", "model_args": "config.json says it",
              "config_args": "config.json says it", "unpad_inputs": "nothing is padded here",
              "processing_kwargs": "no text is cut or padded here"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dense:
    """A learned map of a text's vector and what follows it."""

    weight: weights.Stored
    bias: weights.Stored | None
    activation: str

    def __call__(self, vectors_ND: Floats) -> Floats:
        """[N, out]."""
        mapped = vectors_ND @ self.weight.array().astype(np.float32).T
        if self.bias is not None:
            mapped = mapped + self.bias.array().astype(np.float32)
        return np.asarray(ACTIVATIONS[self.activation](mapped), dtype=np.float32)


Step = Dense | Literal["unit"]


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """How a folder's maker makes vectors; all empty where its files do not tell."""

    pool: str | None = None  # cls or mean
    steps: tuple[Step, ...] = ()  # after pooling
    max_length: int | None = None  # tokens of a window; texts are read whole
    lowercase: bool = False  # every text, before the tokenizer sees it
    prompts: Mapping[str, str] = field(default_factory=dict)  # that are not empty
    prompt: str | None = None  # the name of that which stands before every text
    refused: str = ""  # why vectors cannot be made as the maker does, as a sentence
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # that say so, with their folders

    @property
    def unit(self) -> bool:
        """Whether its vectors have length 1."""
        return bool(self.steps) and self.steps[-1] == "unit"

    @property
    def width(self) -> int | None:
        """How many numbers a vector has, where that is not the model's own width."""
        dense = [step for step in self.steps if isinstance(step, Dense)]
        return dense[-1].weight.shape[0] if dense else None

    def stepped(self, vectors_ND: Floats) -> Floats:
        """What the modules after pooling make of the vectors."""
        for step in self.steps:
            vectors_ND = unit_length(vectors_ND) if step == "unit" else step(vectors_ND)
        return vectors_ND


def read(folder: Path, width: int) -> Vectors:
    """How the folder's files make vectors; width: of its encoder. Files that contradict themselves are refused."""
    vectors = _followed(folder, width) if (folder / MODULES).exists() else _pooled_alone(folder, width)
    if (folder / POOLING).exists():
        pool = weights.small_json(weights.inside(folder, POOLING)).get("pool")
        if pool not in ("cls", "mean"):
            raise InputError(f"{folder / POOLING}: pool is {str(pool)[:60]!r}, but must be cls or mean.")
        vectors = replace(vectors, pool=str(pool), files=(*vectors.files, POOLING))
    vectors = _read_as(folder, vectors)
    vectors = _prompted(folder, vectors)
    refusal = f"{vectors.refused} Give pool=… to pool them otherwise." if vectors.refused else ""
    return replace(vectors, notes=(*([refusal] if refusal else []), *vectors.notes))


def module_files(pool: str, width: int, unit: bool) -> dict[str, str]:
    """The files by which sentence-transformers makes vectors so: names and contents."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] if unit else [])]
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"{MAKER}models.{kind}"}
              for i, (path, kind) in enumerate(kinds)]  # fmt: skip
    modes = {f"pooling_mode_{name}": POOLS[name] == pool for name in ("cls_token", "mean_tokens")}
    files = {MODULES: json_text(modules), POOL_CONFIG: json_text({"word_embedding_dimension": width, **modes})}
    return files | ({"2_Normalize/config.json": json_text({})} if unit else {})


# The modules ----------------------------------------------------------------------------------------------------------


def _followed(folder: Path, width: int) -> Vectors:
    """The modules in their order."""
    path = weights.inside(folder, MODULES)
    vectors = Vectors(files=(MODULES,))
    kinds: list[str] = []
    for place, entry in enumerate(json_array(path, weights.JSON_LIMIT)):
        where = f"{path}: module {place}"
        kind, home = _entry(where, entry, folder)
        kinds.append(kind)
        if (kind == "Transformer" and place) or kinds.count("Pooling") > 1:
            raise InputError(f"{where} is {kind} once more; one Transformer and one Pooling are read.")
        if kind != "Transformer" and not place:
            vectors = replace(
                vectors, refused=f"{where} is {kind[:60]}, but filbert's vectors begin with a Transformer."
            )
        if place and kind not in ("Pooling", "Dropout") and not vectors.pool and not vectors.refused:
            vectors = replace(vectors, refused=f"{where} is {kind}, which stands before a Pooling: it is not computed.")
        if place:
            vectors = _with(vectors, kind, home, where, width)
    return vectors


def check_begins(folder: Path) -> None:
    """Refuses a folder without a config.json of its own where modules.json says why: its encoder lies elsewhere."""
    path = weights.inside(folder, MODULES)
    for place, entry in enumerate(json_array(path, weights.JSON_LIMIT)[:1]):
        kind, _ = _entry(f"{path}: module {place}", entry, folder)
        if kind != "Transformer":
            raise InputError(f"{path}: module {place} is {kind[:60]}, but a folder that begins with a Transformer is "
                             "needed; give the folder of one of its parts.")  # fmt: skip


def _entry(where: str, entry: object, folder: Path) -> tuple[str, Path]:
    """A module's class, without its package, and its folder."""
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in ("path", "type")):
        raise InputError(f"{where} must be an object with path and type.")
    if unknown := sorted(set(entry) - {"path", "type", *HARMLESS[MODULES]}):
        raise InputError(f"{where} has {unknown[0][:60]}, which is not read; take it away if nothing hangs on it.")
    kind = str(entry["type"])
    if not kind.startswith(MAKER):
        raise InputError(f"{where} is of the type {kind[:80]!r}: filbert never runs code that a folder names.")
    name = kind.rpartition(".")[2]
    home = str(entry["path"])
    if name == "Transformer" and home:
        raise InputError(f"{where} lies in {home[:60]!r}; put its files, config.json among them, beside {MODULES}.")
    if home and not weights.plain_name(home):
        raise InputError(f"{where} lies in {home[:60]!r}, which is not the name of a folder in this one.")
    return name, folder / home


def _with(vectors: Vectors, kind: str, home: Path, where: str, width: int) -> Vectors:
    """The vectors so far, with this module after them."""
    files = tuple(f"{home.name}/{name}" for name in ("config.json", weights.WEIGHTS) if (home / name).exists())
    vectors = replace(vectors, files=(*vectors.files, *files))
    if kind == "Pooling":
        return _pooled(vectors, home, width)
    if kind == "Normalize":
        _check_names(home)
        return replace(vectors, steps=(*vectors.steps, "unit"))
    if kind == "Dense":
        dense = _dense(home, vectors.width or width)
        return replace(vectors, steps=(*vectors.steps, dense))
    if kind == "Dropout":  # of training
        return vectors
    return replace(vectors, refused=vectors.refused or f"{where} is {kind[:60]}, which filbert does not compute.")


def _pooled_alone(folder: Path, width: int) -> Vectors:
    """A folder with 1_Pooling and no modules.json."""
    home = folder / "1_Pooling"
    if not (home / "config.json").exists():
        return Vectors()
    return _pooled(Vectors(files=(POOL_CONFIG,)), home, width)


def _pooled(vectors: Vectors, home: Path, width: int) -> Vectors:
    """The pooling that a folder asks for, in the words of sentence-transformers 6 or in the switches before it."""
    path = weights.inside(home.parent, f"{home.name}/config.json")
    config = weights.small_json(path)
    for name in WIDTHS:
        if config.get(name, width) != width:
            raise InputError(
                f"{path}: {name} is {str(config[name])[:20]}, but the model's vectors have {width} numbers."
            )
    switches = {name: on for name, on in config.items() if name.startswith("pooling_mode_")}
    if not all(isinstance(on, bool) for on in switches.values()):
        raise InputError(f"{path}: the fields pooling_mode_… must be true or false.")
    named = config.get("pooling_mode", [name.removeprefix("pooling_mode_") for name, on in switches.items() if on])
    modes = named if isinstance(named, list) else [named]
    if not modes or not all(isinstance(mode, str) for mode in modes):
        raise InputError(f"{path}: pooling_mode must name how vectors are pooled: cls or mean.")
    unknown = sorted(set(config) - {*WIDTHS, *switches, "pooling_mode", "include_prompt"})
    notes = vectors.notes
    if unknown:
        notes = (*notes, f"{path}: passed over {listed(unknown[:20])}.")
    refused = vectors.refused
    if len(modes) > 1 or modes[0] not in POOLS:
        refused = (
            f"{path}: pooling_mode is {' and '.join(mode[:30] for mode in modes)}, but filbert pools by cls or mean."
        )
    elif config.get("include_prompt", True) is not True:
        notes = (*notes, f"{path}: include_prompt is {config['include_prompt']}, so prompts are not put before texts.")
    pool = None if refused else POOLS[modes[0]]
    return replace(vectors, pool=pool, refused=refused, notes=notes)


def _check_names(home: Path) -> dict[str, Any]:
    """A module's config.json, where it has one; one that reads something else than a text's vector is refused."""
    if not (home / "config.json").exists():
        return {}
    path = weights.inside(home.parent, f"{home.name}/config.json")
    config = weights.small_json(path)
    for name in ("module_input_name", "module_output_name"):
        if config.get(name, TEXT) not in (TEXT, None):
            raise InputError(f"{path}: {name} is {str(config[name])[:60]!r}, but only {TEXT} is read and written here.")
    ours = {"module_input_name", "module_output_name", "in_features", "out_features", "bias", "activation_function"}
    if unknown := sorted(set(config) - ours):
        raise InputError(f"{path}: has {unknown[0][:60]}, which is not read; take it away if nothing hangs on it.")
    return config


def _dense(home: Path, width: int) -> Dense:
    """A Dense module, its sizes compared with its config and with what comes before it."""
    config = _check_names(home)
    path = home / "config.json"
    sizes = config.get("out_features"), config.get("in_features")
    if not all(type(size) is int and 1 <= size <= MOST_WIDTH for size in sizes) or sizes[1] != width:
        raise InputError(f"{path}: in_features and out_features are {sizes[1]} and {sizes[0]}, but {width} come in.")
    named = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    activation = str(named).rpartition(".")[2]
    if not str(named).startswith("torch.nn.modules.") or activation not in ACTIVATIONS:
        raise InputError(
            f"{path}: activation_function is {str(named)[:80]!r}, but must be of {', '.join(ACTIVATIONS)}."
        )
    if not (home / weights.WEIGHTS).exists():
        raise InputError(f"{home}: has no {weights.WEIGHTS}; save the folder once with a newer sentence-transformers.")
    stored = weights.read(weights.inside(home.parent, f"{home.name}/{weights.WEIGHTS}"))
    wanted = {"linear.weight": sizes, **({"linear.bias": sizes[:1]} if config.get("bias", True) else {})}
    if {name: piece.shape for name, piece in stored.items()} != wanted:
        raise InputError(
            f"{home / weights.WEIGHTS}: holds other tensors than {path} describes; fetch the folder again."
        )
    for piece in stored.values():
        if piece.dtype not in weights.FLOATS or not np.isfinite(piece.array()).all():
            raise InputError(f"{home / weights.WEIGHTS}: tensor {piece.name} has numbers that are not finite.")
    return Dense(stored["linear.weight"], stored.get("linear.bias"), activation)


# How texts are read ---------------------------------------------------------------------------------------------------


def window(folder: Path, most: int) -> int:
    """The tokens of a window: as many as the model has places, and no more than tokenizer_config.json gives a text."""
    path = folder / TOKENIZER
    if not path.exists():
        return most
    config = weights.small_json(weights.inside(folder, TOKENIZER))
    for name in ("model_max_length", "max_len"):
        value = config.get(name)
        if value is not None:
            return min(most, _length(path, name, value))
    return most


def _length(path: Path, name: str, value: object) -> int:
    if isinstance(value, int | float) and LEAST_WINDOW <= value < math.inf and value == int(value):
        return int(value)
    raise InputError(f"{path}: {name} is {str(value)[:30]}, but must be a whole number of {LEAST_WINDOW} or more.")


def _read_as(folder: Path, vectors: Vectors) -> Vectors:
    """With sentence_bert_config.json: how long a window is, and whether texts are lower-cased."""
    if not (folder / READING).exists():
        return vectors
    path = weights.inside(folder, READING)
    config = weights.small_json(path)
    length, lower = config.get("max_seq_length"), config.get("do_lower_case", False)
    if not isinstance(lower, bool):
        raise InputError(f"{path}: do_lower_case is {str(lower)[:60]!r}, but must be true or false.")
    unknown = sorted(set(config) - {"max_seq_length", "do_lower_case", *HARMLESS[READING]})
    notes = [f"{path}: passed over {listed(unknown[:20])}."] if unknown else []
    return replace(
        vectors, lowercase=lower, notes=(*vectors.notes, *notes), files=(*vectors.files, READING),
        max_length=None if length is None else _length(path, "max_seq_length", length),
    )  # fmt: skip


def _prompted(folder: Path, vectors: Vectors) -> Vectors:
    """With config_sentence_transformers.json: what stands before texts."""
    if not (folder / PROMPTS).exists():
        return vectors
    path = weights.inside(folder, PROMPTS)
    config = weights.small_json(path)
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise InputError(f"{path}: prompts must be an object of names and texts.")
    if default is not None and default not in prompts:
        raise InputError(f"{path}: default_prompt_name is {str(default)[:60]!r}, which is none of prompts.")
    full = {str(name): text for name, text in prompts.items() if text}
    notes, refused = list(vectors.notes), vectors.refused
    if default in full and any("include_prompt" in note for note in notes):
        refused = refused or f"{path}: its prompt stands before texts and is not pooled, which filbert does not do."
    others = sorted(set(full) - {default})
    if others:
        notes.append(f"{path}: its prompts {listed(others[:20])} are put before texts by name "
                    "alone: embed(texts, prompt=…).")  # fmt: skip
    similar = config.get("similarity_fn_name")
    if similar not in (None, "cosine"):
        notes.append(f"{path}: similarity_fn_name is {str(similar)[:30]}, but searching here is by cosine.")
    notes += squeezed(path, config.get("activation_fn"))
    ours = {"activation_fn", "prompts", "default_prompt_name", "similarity_fn_name", *HARMLESS[PROMPTS]}
    if unknown := sorted(set(config) - ours):
        notes.append(f"{path}: passed over {listed(unknown[:20])}.")
    return replace(
        vectors, prompts=full, prompt=default if default in full else None, notes=tuple(notes), refused=refused,
        files=(*vectors.files, PROMPTS),
    )  # fmt: skip


def carried(folder: Path, vectors: Vectors) -> Sequence[tuple[str, Path]]:
    """The files that say how vectors are made: their names and where they lie, to be copied along."""
    return [(name, weights.inside(folder, name)) for name in dict.fromkeys(vectors.files)]
