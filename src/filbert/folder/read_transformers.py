"""A model folder in, its tensors under our names out, each fitted to the shape that config.json gives; nothing built.

Everything that can be wrong with names and shapes is found here, from headers alone, before memory is taken: a module
is built only when the weight file already holds every number that it needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from filbert.core.errors import InputError
from filbert.core.records import Reals
from filbert.folder import config as configs
from filbert.folder import meta, pickled, weights
from filbert.folder.layouts.layout import layout
from filbert.folder.weights import Stored, Tensors, named
from filbert.models import bert
from filbert.nn.encoder import Shape
from filbert.nn.heads import every

NAMED = ("labels", "tokens", "pointer", "relation")  # heads with an output for each label
TABLE_LIMIT = 8 * 2**20  # bytes of a computed position table that no file has to justify


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder whose files agree with each other: what to build, and where each of its tensors lies."""

    folder: Path
    described: configs.Described
    parts: tuple[str, ...]
    labels: list[str]
    num_labels: int
    tensors: dict[str, tuple[Stored, ...]]  # our name -> its pieces, to be laid one under another
    copies: tuple[tuple[Stored, Stored], ...]  # tied tensors that were stored twice and must be equal


def names(kind: str, config: Shape, parts: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Our names and the folder's, as transformers writes them for the architecture that has those parts."""
    if kind in configs.OUR_KINDS:
        yield from ((name, (name,)) for name in meta.shapes(config, parts, 2))
        return
    assert isinstance(config, bert.Config)  # that of all kinds but our own
    published = layout(kind)
    prefix = "" if published.class_of(parts) == published.bare else published.prefix
    for ours, theirs in published.names(config, parts):
        yield ours, tuple(name if name.startswith(published.beside) else prefix + name for name in theirs)


def read(folder: Path, pickles: bool = False) -> Source:
    """The folder's config and headers, checked against each other; pickles: whether its weights may be one."""
    about = configs.described(folder)
    tensors_of = pickled.read_folder(folder) if pickles and pickled.is_one(folder) else weights.read_folder(folder)
    about.notes.extend(_left(about, tensors_of))
    stored, copies = _canonical(about.path.parent, about.kind, tensors_of)
    is_copied = any(copy.name.endswith(".weight") for copy, _ in copies)
    parts = _parts(about, stored, is_copied)
    num_labels = _num_labels(about, parts, stored)
    expected = meta.shapes(about.config, parts, num_labels)
    _check_size(about, expected, stored)
    tensors = _fitted(about, parts, expected, stored)
    labels = about.labels
    if {*NAMED} & set(parts) and not labels:
        labels = [f"LABEL_{i}" for i in range(num_labels)]
    return Source(
        folder=folder, described=about, parts=parts, labels=labels, num_labels=num_labels, tensors=tensors,
        copies=copies,
    )  # fmt: skip


def _canonical(folder: Path, kind: str, stored: Tensors) -> tuple[Tensors, tuple[tuple[Stored, Stored], ...]]:
    """The tensors without the encoder's prefix and under today's names; copies of tied ones apart."""
    tensors: Tensors = {}
    published = None if kind in configs.OUR_KINDS else layout(kind)
    for stored_name, tensor in stored.items():
        name = published.today(stored_name) if published else stored_name
        if published and published.is_passed_over(name):
            continue
        if name in tensors:
            raise InputError(
                f"{folder}: the tensor {name[:120]!r} stands twice, the second time as {stored_name[:120]!r}."
            )
        tensors[name] = tensor
    copies = []
    for copy, original in (published.tied if published else {}).items():
        if copy in tensors and original in tensors:
            copies.append((tensors.pop(copy), tensors[original]))
        elif copy in tensors and copy.endswith(".bias"):
            tensors[original] = tensors.pop(copy)
    return tensors, tuple(copies)


def _left(about: configs.Described, stored: Tensors) -> list[str]:
    """Notes on tensors that a kind of folder has and nothing here reads."""
    left = {} if about.kind in configs.OUR_KINDS else layout(about.kind).left
    return [
        f"{about.path.parent}: left out {start}*: {what}."
        for start, what in left.items()
        if any(name.startswith(start) for name in stored)
    ]


def _parts(about: configs.Described, tensors: Tensors, is_copied: bool) -> tuple[str, ...]:
    """The heads that the weights hold. One that the architecture has and the weights have not is refused or noted.

    is_copied: whether the folder stores the word table a second time, as the output weights.
    """
    if about.kind in configs.OUR_KINDS:
        return about.parts
    published = layout(about.kind)
    have = {
        part for part, start in published.evidence().items() if any(name.startswith(start) for name in tensors)
    }  # fmt: skip
    if any(name.startswith(published.classifiers) for name in tensors):
        named_heads = {"labels", "tokens", "choice"} & set(about.parts)
        have |= named_heads or {"labels" if "pooler" in have else "tokens"}
    lost = set(about.parts) - have
    if lost - {"mlm", "nsp"}:
        raise InputError(
            f"{about.path}: architectures is {about.architecture}, but the weights hold no tensor of its "
            f"{' and '.join(sorted(lost))} head; fetch the folder again or correct architectures."
        )
    if lost:
        about.notes.append(f"{about.path}: the weights hold no {' or '.join(sorted(lost))} head, though it names one.")
    if "mlm" in have and about.fields.get("tie_word_embeddings") is False and not is_copied:
        raise InputError(
            f"{about.path}: tie_word_embeddings is False, but the weights hold no output weights; filbert's "
            "are the word table: correct the field, or fetch the folder again."
        )
    return tuple(part for part in ("pooler", *bert.Bert.own_parts, *every()) if part in have)


def _num_labels(about: configs.Described, parts: tuple[str, ...], tensors: Tensors) -> int:
    """How many labels the task head has: as config.json says, or as the tensor has where it does not say."""
    if about.num_labels is not None:
        return about.num_labels
    for part in NAMED:
        for name in ("classifier.bias", "classifier.out_proj.bias", f"filbert.heads.{part}.bias", f"heads.{part}.bias"):
            if part in parts and name in tensors and len(tensors[name].shape) == 1:
                return tensors[name].shape[0]
    return 2


def _check_size(about: configs.Described, expected: dict[str, tuple[int, ...]], tensors: Tensors) -> None:
    """Refuses a config that asks for far more numbers than the weights hold, before anything is built from it."""
    described = sum(math.prod(shape) for shape in expected.values())
    held = sum(tensor.size for tensor in tensors.values())
    if described > 2 * held:
        raise InputError(
            f"{about.path}: describes a model of {described:,} numbers, but the weights hold {held:,}; "
            "they do not belong together: fetch the folder again."
        )
    table = 4 * about.config.max_length * about.config.width
    if vars(about.config).get("positions") == "sinusoidal" and table > TABLE_LIMIT + 4 * held:
        raise InputError(
            f"{about.path}: max_length {about.config.max_length:,} asks for a table of {table:,} bytes, more than the "
            "weights themselves have; give the length that the model was trained for."
        )


def _fitted(
    about: configs.Described, parts: tuple[str, ...], expected: dict[str, tuple[int, ...]], tensors: Tensors
) -> dict[str, tuple[Stored, ...]]:
    """Our names with the tensors that make them up, or one sentence that lists all that do not fit."""
    published = None if about.kind in configs.OUR_KINDS else layout(about.kind)
    fitted: dict[str, tuple[Stored, ...]] = {}
    missing, wrong, used = [], [], set()
    for ours, stored in names(about.kind, about.config, parts):
        theirs = [published.today(name) if published else name for name in stored]
        used.update(theirs)
        missing += [name for name in theirs if name not in tensors]
        pieces = tuple(tensors[name] for name in theirs if name in tensors)
        rows, *rest = expected[ours]
        shape = (rows // len(theirs), *rest)
        wrong += [f"{p.name[:120]!r} is {p.dtype} {list(p.shape)} and must be a float {list(shape)}"
                  for p in pieces if p.shape != shape or p.dtype not in weights.FLOATS]  # fmt: skip
        fitted[ours] = pieces
    extra = tensors.keys() - used
    brought = sorted({name.split(".")[2] for name in extra if name.startswith("filbert.heads.")} - every().keys())
    if brought:
        raise InputError(
            f"{about.path.parent}: has the head {brought[0][:60]!r}, which no package here brings; install the package "
            "of the task that it was fine-tuned for."
        )
    faults = [f"missing {named(missing)}"] if missing else []
    faults += [f"unexpected {named(extra)}"] if extra else []
    faults += [f"{len(wrong)} that do not fit: {'; '.join(sorted(wrong)[:5])}"] if wrong else []
    if faults:
        raise InputError(
            f"{about.path.parent}: the tensors are not those that config.json describes: {'; '.join(faults)}. "
            "Fetch the folder again."
        )
    return fitted


def check_data(source: Source) -> None:
    """Refuses untied copies: a decoder with weights of its own is another model than ours."""
    for copy, original in source.copies:
        same = copy.dtype == original.dtype and copy.shape == original.shape
        if not same or not np.array_equal(copy.raw(), original.raw()):
            raise InputError(
                f"{source.folder}: the tensor {copy.name!r} is not equal to {original.name!r}, but filbert's output "
                "weights are the word table; tie them before saving (tie_word_embeddings)."
            )


def check_finite(source: Source) -> None:
    """Refuses weights that are not numbers, by name."""
    for pieces in source.tensors.values():
        for piece in pieces:
            with np.errstate(over="ignore"):  # a float64 that float32 cannot hold is infinite there
                values = piece.array().astype(np.float32) if piece.dtype == "F64" else piece.array()
            if not finite(values):
                raise not_finite(piece)


def finite(values: Reals) -> bool:
    """Whether all the numbers are finite: their sum tells in one pass, and only a sum that is not needs a second."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum(dtype=np.float32)) or np.isfinite(values).all())


def not_finite(tensor: Stored) -> InputError:
    """The error for such a tensor."""
    return InputError(
        f"{tensor.file.path}: tensor {tensor.name!r} holds NaN or infinite numbers, so every answer would be noise; "
        "use an earlier checkpoint."
    )
