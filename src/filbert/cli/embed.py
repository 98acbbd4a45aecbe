"""filbert embed: a model and a file of texts in, one vector for each text out."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from filbert.cli.shared import corpus, corpus_options, json_option, result, say

CHUNK = 1_024  # texts held in memory at a time: large enough for full packs of any mixture of lengths
Write = Callable[[Sequence[str], Any], None]


@click.command("embed")
@click.argument("model")
@click.option("--data", "-d", help="File, folder or - of texts; a document is one text (see --unit).")
@click.option("--text", "-t", multiple=True, help="A text given here; may be repeated.")
@click.option("--out", "-o", help="Where to: .npy for an array, else JSONL; without it, JSONL on standard output.")
@click.option("--pool", type=click.Choice(["mean", "cls", "pooled"]), help="Default: the folder's own, else mean.")
@click.option("--normalize", is_flag=True, help="Scale every vector to length 1.")
@corpus_options
@json_option
def command(model: str, data: str | None, text: tuple[str, ...], out: str | None, **options: Any) -> None:
    """Turn texts into vectors. Texts of any length are read whole, in overlapping windows.

    MODEL is a folder, a run, or `builtin` for the one that ships.
    """
    from filbert import load
    from filbert.core.errors import InputError

    pool, normalize, as_json = (options.pop(name) for name in ("pool", "normalize", "as_json"))
    if (data is None) == (not text):
        raise InputError("give the texts once: either --data FILE or one or more --text.")
    if out and not Path(out).absolute().parent.is_dir():
        raise InputError(f"{out}: its folder does not exist; make it first, so that no work is done in vain.")
    loaded = load(model)
    for note in loaded.notes:
        say(f"note: {note}")
    texts = iter(text) if data is None else (document.text for document in corpus([data], options))
    start, count = time.perf_counter(), 0
    kept: list[list[float]] | None = [] if as_json and not out else None
    with _writer(out, kept) as write:
        while chunk := list(islice(texts, CHUNK)):
            write(chunk, loaded.embed(chunk, pool=pool, normalize=normalize))
            count += len(chunk)
    seconds = time.perf_counter() - start
    if as_json:
        told = {"texts": count, "width": loaded.config.width, "coverage": 1.0, "seconds": round(seconds, 3)}
        result({**told, "out": out} if out else {**told, "vectors": kept})
    else:
        say(f"{count:,} texts, {loaded.config.width} numbers each, in {seconds:.1f} s.")


@contextlib.contextmanager
def _writer(out: str | None, kept: list[list[float]] | None) -> Iterator[Write]:
    """A function that takes texts and their vectors; the file appears whole or not at all."""
    from filbert.core.files import whole_file

    if kept is not None:
        yield lambda texts, vectors: kept.extend(map(_rounded, vectors.tolist()))
    elif out is None:
        yield lambda texts, vectors: _lines(texts, vectors, sys.stdout)
    elif out.endswith(".npy"):
        import numpy as np

        rows: list[Any] = []
        yield lambda texts, vectors: rows.append(vectors)
        with whole_file(out) as part, part.open("wb") as handle:
            np.save(handle, np.concatenate(rows) if rows else np.zeros((0, 0), dtype=np.float32))
    else:
        with whole_file(out) as part, part.open("w", encoding="utf-8", newline="\n") as handle:
            yield lambda texts, vectors: _lines(texts, vectors, handle)


def _lines(texts: Sequence[str], vectors: Any, handle: Any) -> None:
    for text, vector in zip(texts, vectors.tolist(), strict=True):
        print(json.dumps({"text": text, "vector": _rounded(vector)}, ensure_ascii=False), file=handle)


def _rounded(vector: list[float]) -> list[float]:
    """Seven figures: all that a float32 holds."""
    return [float(f"{number:.7g}") for number in vector]
