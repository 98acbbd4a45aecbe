"""filbert embed: a model and a file of texts in, one vector for each text out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

from filbert.cli.shared import corpus_options, json_option, result, say

CHUNK = 1_024  # texts held in memory at a time: large enough for full packs of any mixture of lengths


@click.command("embed")
@click.argument("model")
@click.option("--data", "-d", help="File, folder or - of texts; a document is one text (see --unit).")
@click.option("--text", "-t", multiple=True, help="A text given here; may be repeated.")
@click.option("--out", "-o", type=click.Path(dir_okay=False), help="Output: .npy for an array, else JSONL; default standard output.")
@click.option("--pool", type=click.Choice(["mean", "cls", "pooled"]), help="Which vector; default the folder's own, else mean.")
@click.option("--normalize", is_flag=True, help="Scale every vector to length 1.")
@corpus_options
@json_option
def command(
    model: str, data: str | None, text: tuple[str, ...], out: str | None, pool: str | None, normalize: bool, as_json: bool,
    **reading: str,
) -> None:  # fmt: skip
    """Turn texts into vectors; long texts are read whole."""
    from filbert.core.errors import InputError
    from filbert.infer.model import load

    if (data is None) == (not text):
        raise InputError("give the texts once: either --data FILE or one or more --text.")
    loaded = load(model)
    for note in loaded.notes:
        say(f"note: {note}")
    texts = iter(text) if data is None else _read(data, reading)
    start, count = time.perf_counter(), 0
    with _writer(out) as write:
        while chunk := list(islice(texts, CHUNK)):
            write(chunk, loaded.embed(chunk, pool=pool, normalize=normalize))
            count += len(chunk)
    seconds = time.perf_counter() - start
    if as_json and out:
        result({"texts": count, "width": loaded.config.width, "seconds": round(seconds, 3), "coverage": 1.0, "out": out})
    else:
        say(f"{count:,} texts, {loaded.config.width} numbers each, in {seconds:.1f} s.")
