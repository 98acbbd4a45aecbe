"""Model folders: `load` gives the model that a folder holds, `save` writes one whole or not at all.

A folder is config.json, model.safetensors, the tokenizer's files, README.md (the card), whatever a task adds, and
manifest.json with the size and SHA-256 of each. Reading one runs nothing and takes no memory that its files do not
justify. Sizes are compared at every load; `verify=True` compares the hashes too, so that one flipped bit is found.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from filbert.core.errors import InputError, one_of
from filbert.core.files import Json, check_free, json_text, named, write_text
from filbert.core.files import whole_folder as written_whole
from filbert.folder import caches, gpt2, meta, read_transformers, sentence_transformers, weights
from filbert.folder import card as cards
from filbert.folder import config as configs
from filbert.folder.manifest import (
    CARD,
    FORMAT,
    MANIFEST,
    check_links,
    check_manifest,
    manifest_files,
    model_folder,
    seal,
)
from filbert.nn.encoder import Encoder

TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
OURS = ("task.json", "data.json", "golden.jsonl")  # that filbert wrote beside: how it reads texts, what it said of some
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
STORED = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}
WORDS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}


class Saves(Protocol):
    """A tokenizer, or anything else that can write its files into a folder."""

    def save(self, folder: Path | str, max_length: int | None = None) -> None:
        """Writes them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What a folder holds: the model, ready to answer, and what else is known of it."""

    folder: Path  # its tokenizer's files lie here too
    model: Encoder  # in eval mode
    kind: str  # one of folder.layouts, or filbert- and a file of models
    labels: list[str]  # the task head's, in order; empty where there are none
    problem_type: str | None
    fields: dict[str, Any]  # config.json as it stands
    notes: list[str]  # what was passed over, for the user to read

    @property
    def config(self) -> Any:
        """The model's shape."""
        return self.model.config

    @property
    def family(self) -> str:
        """The file of models that it is of."""
        return meta.family(self.config)


# Reading --------------------------------------------------------------------------------------------------------------


def load(path: Path | str, *, dtype: str = "float32", verify: bool = False) -> Loaded:
    """The model of a folder (ours or transformers') or of a run; its numbers as `dtype`, or "stored" for the file's."""
    if dtype not in (*DTYPES, "stored"):
        raise one_of("dtype", dtype, (*DTYPES, "stored"))
    if gpt2.is_one(folder := model_folder(path)):
        check_links(folder)
        gpt, fields = gpt2.read(folder)
        return Loaded(
            folder=folder, model=gpt.to(DTYPES.get(dtype, torch.float32)).eval(),
            kind=gpt2.KIND, labels=[], problem_type=None, fields=fields,
            notes=[*caches.note(path, folder), *gpt2.notes(folder, fields)],
        )  # fmt: skip
    source = read(path, verify=verify)
    read_transformers.check_data(source)
    about = source.described
    model = meta.made(about.config, source.parts, source.num_labels)
    state = {name: _joined(pieces, DTYPES.get(dtype)) for name, pieces in source.tensors.items()}
    model.load_state_dict(state, strict=True, assign=True)
    if model.spells:  # how tokens are spelled follows from the vocabulary beside the weights
        from filbert.text.tokenizer import Tokenizer

        model.spell(Tokenizer.load(source.folder).vocabulary)
    return Loaded(
        folder=source.folder, model=model.eval(), kind=about.kind, labels=source.labels, fields=about.fields,
        problem_type=about.problem_type, notes=[*caches.note(path, source.folder), *about.notes],
    )  # fmt: skip


def read(path: Path | str, *, verify: bool = False, pickles: bool = False) -> read_transformers.Source:
    """The folder's files, checked, with no number read yet and nothing built; pickles: for an import alone."""
    folder = model_folder(path)
    check_manifest(folder, hashes=verify)
    return read_transformers.read(folder, pickles)


def _joined(pieces: Sequence[weights.Stored], dtype: torch.dtype | None) -> Tensor:
    """The pieces one under another as one tensor of its own memory, all finite."""
    first = pieces[0]
    rows = sum(piece.shape[0] for piece in pieces)
    kind = dtype or next(torch_dtype for torch_dtype, name in STORED.items() if name == first.dtype)
    whole = torch.empty((rows, *first.shape[1:]), dtype=kind)
    for piece, part in zip(pieces, whole.chunk(len(pieces)), strict=True):
        values = piece.array()
        if kind is torch.float32:
            with np.errstate(over="ignore"):  # a float64 too large for float32 is found below
                np.copyto(part.numpy(), values, casting="same_kind")
            values = part.numpy()
        else:
            wide = np.float64 if piece.dtype == "F64" else np.float32
            part.copy_(torch.from_numpy(values.astype(wide)))
        if not read_transformers.finite(values):
            raise read_transformers.not_finite(piece)
    return whole


# Writing --------------------------------------------------------------------------------------------------------------


def save(
    folder: Path | str,
    model: Encoder,
    tokenizer: Saves,
    *,
    labels: Sequence[str] = (),
    card: str = "",
    fields: Mapping[str, object] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Writes a model folder that transformers loads as well wherever it has the layout; an older one is replaced whole.

    `fields` are further fields of config.json (a loaded folder's own, problem_type); `files` are further small files.
    """
    if isinstance(labels, str):
        raise InputError(f"labels is one string, {labels[:60]!r}, but must be a list of them.")
    head = {part: model.heads[part].out_features for part in read_transformers.NAMED if part in model.heads}
    if any(size != len(labels) for size in head.values()):
        raise InputError(f"{folder}: the model's head has {head} outputs, but {len(labels)} labels were given.")
    state = model.state_dict()
    tensors = dict(_pieces(configs.kind_of(model.config), model, state))
    more = dict(fields or {})
    if hasattr(tokenizer, "pad_id"):
        more["pad_token_id"] = tokenizer.pad_id
    dtype = WORDS[STORED[next(model.parameters()).dtype]]
    about = configs.fields_of(model.config, model.parts, labels, dtype, more)
    with whole_folder(folder) as part:
        tokenizer.save(part, model.config.max_length)
        _write(part, tensors, about, card, files or {})
    return Path(folder)


def _pieces(kind: str, model: Encoder, state: Mapping[str, Tensor]) -> Iterator[tuple[str, weights.Raw]]:
    """The model's tensors as the folder names them, cut where transformers keeps three for our one."""
    for ours, theirs in read_transformers.names(kind, model.config, model.parts):
        for name, piece in zip(theirs, state[ours].detach().cpu().chunk(len(theirs)), strict=True):
            raw = piece.contiguous().view(torch.uint8).numpy().reshape(-1)
            yield name, weights.Raw(STORED[piece.dtype], tuple(piece.shape), raw)


def import_folder(source: Path | str, out: Path | str) -> read_transformers.Source:
    """Writes a transformers folder as one of ours: tensors bit for bit in their own precision, labels and tokenizer.

    All of it is read first, so that nothing is written which cannot be read back.
    """
    from filbert.text import vocab
    from filbert.text.tokenizer import Tokenizer

    folder = model_folder(source)
    card = f"Imported from the folder `{folder.resolve().name}`."
    if gpt2.is_one(folder):
        model, fields = gpt2.read(folder)
        tokenizer = Tokenizer.load(folder)
        save(out, model, tokenizer, card=card)
        done = read(out)
        done.described.notes.extend([*gpt2.notes(folder, fields), *vocab.unlike(folder, tokenizer.vocabulary)])
        return done
    loaded = read(source, verify=True, pickles=True)
    about = loaded.described
    tokenizer = Tokenizer.load(loaded.folder)
    check_sizes(loaded.folder, tokenizer.vocab_size, about.config.vocab_size)
    vectors = sentence_transformers.read(loaded.folder, about.config.width)
    about.notes[:0] = caches.note(source, loaded.folder)
    about.notes.extend([*vocab.unlike(loaded.folder, tokenizer.vocabulary), *vectors.notes])
    read_transformers.check_data(loaded)
    read_transformers.check_finite(loaded)
    tensors = {
        name: weights.Raw(piece.dtype, piece.shape, piece.raw())
        for ours, theirs in read_transformers.names(configs.kind_of(about.config), about.config, loaded.parts)
        for name, piece in zip(theirs, loaded.tensors[ours], strict=True)
    }
    dtype = WORDS[loaded.tensors["embeddings.words.weight"][0].dtype]
    fields = configs.fields_of(about.config, loaded.parts, loaded.labels, dtype, about.fields)
    with whole_folder(out, loaded.folder) as part:
        TokenizerFiles(loaded.folder).save(part, about.config.max_length)
        carry(loaded.folder, vectors, part)
        for name in OURS:
            if (loaded.folder / name).exists():
                shutil.copyfile(weights.inside(loaded.folder, name), part / name)
        has_list = not vectors.pool or (loaded.folder / sentence_transformers.MODULES).exists()
        files = (
            {} if has_list else sentence_transformers.module_files(vectors.pool or "", about.config.width, unit=False)
        )
        _write(part, tensors, fields, card, {n: text for n, text in files.items() if not (part / n).exists()})
        about.notes.extend(_left(loaded, set(os.listdir(part))))
    return loaded


def _left(source: read_transformers.Source, taken: Collection[str]) -> list[str]:
    """A note on what its import does not take along of a folder; its card is written anew, its shards are joined."""
    joined = {piece.file.path.name for pieces in source.tensors.values() for piece in pieces}
    expected = {*taken, *joined, CARD, MANIFEST, weights.INDEX}
    names = [file.name for file in source.folder.iterdir() if file.name[:1] != "."]
    left = [name for name in names if name not in expected]
    return [f"{source.folder}: not taken along: {weights.named(left)}."] if left else []


def check_sizes(folder: Path, tokens: int, rows: int) -> None:
    """Refuses a tokenizer with more tokens than the model has rows for."""
    if tokens > rows:
        raise InputError(
            f"{folder}: the tokenizer knows {tokens:,} tokens but the model only {rows:,}; they are not of one folder."
        )


def carry(source: Path, vectors: sentence_transformers.Vectors, out: Path) -> None:
    """Copies what says how vectors are made into a folder that is being written."""
    for name, path in sentence_transformers.carried(source, vectors):
        (out / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, out / name)


def copied(source: Path, out: Path, left: Collection[str]) -> None:
    """Copies a model folder's files, and those of its numbered modules, but for some."""
    homes = [home for home in sorted(source.iterdir()) if home.is_dir() and home.name[:1].isdigit()]
    for file in sorted([*source.iterdir(), *(file for home in homes for file in home.iterdir())]):
        name = file.relative_to(source).as_posix()
        if file.is_file() and name not in left:
            (out / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(weights.inside(source, name), out / name)


@dataclass(frozen=True)
class TokenizerFiles:
    """A folder's tokenizer as it lies: saving copies the files, and adds vocab.txt where only tokenizer.json has it."""

    folder: Path

    def save(self, folder: Path | str, max_length: int | None = None) -> None:
        """Copies them; `max_length` stands in the files already."""
        from filbert.text.tokenizer import Tokenizer

        for name in TOKENIZER_FILES:
            if (self.folder / name).exists():
                shutil.copyfile(weights.inside(self.folder, name), Path(folder) / name)
        if not (self.folder / "vocab.txt").exists():
            tokens = Tokenizer.load(self.folder).vocabulary
            write_text(Path(folder) / "vocab.txt", "".join(f"{token}\n" for token in tokens))


def _write(part: Path, tensors: Mapping[str, weights.Raw], fields: Json, card: str, files: Mapping[str, str]) -> None:
    weights.write(part / weights.WEIGHTS, tensors)
    write_text(part / configs.NAME, json_text(fields))
    write_text(part / CARD, cards.made(fields, card, answers="task.json" in {*files, *os.listdir(part)}))
    for name, text in files.items():
        if not all(map(weights.plain_name, name.split("/"))) or name.count("/") > 1 or (part / name).exists():
            raise InputError(f"{part.name}: {name!r} cannot be the name of a further file in a model folder.")
        (part / name).parent.mkdir(exist_ok=True)
        write_text(part / name, text)
    seal(part)


def whole_folder(path: Path | str, source: Path | str | None = None) -> AbstractContextManager[Path]:
    """A temporary folder beside `path` to write to; renamed onto it when the block ends well, removed otherwise.

    What stood there is replaced only if it was empty or a model folder of ours, but never the one it is made of.
    """
    path = named(path, "the place", "the path of a folder to write")
    if source is not None and path.resolve() == Path(source).resolve():
        raise InputError(f"{path}: is the folder that it would be made of, and would be lost; choose another --out.")
    return written_whole(path, _replaceable, "a model folder")


def check_place(path: Path) -> None:
    """Refuses, before any work is done, a place where `save` would not write."""
    check_free(path, _replaceable, "a model folder")


def _replaceable(path: Path) -> bool:
    """Whether it is empty or a model folder of ours; one that holds anything else besides is refused by name."""
    if not any(path.iterdir()):
        return True
    try:
        if weights.small_json(path / MANIFEST).get("format") != FORMAT:
            return False
        written = {MANIFEST, *(manifest_files(path) or {})}
    except InputError:
        return False
    held = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_symlink() or not file.is_dir()}
    if held - written:
        raise InputError(
            f"{path}: holds {weights.named(held - written)} beside what filbert wrote, and would be replaced whole; "
            "take that away, or choose another place."
        )
    return True
