"""filbert embed: a model and a file of texts in, one vector for each text out."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

import click

from filbert.cli.shared import (
    CorpusOptions,
    ModelOptions,
    corpus,
    corpus_options,
    json_line,
    json_option,
    load_model,
    model_options,
    refuse_for_texts,
    refuse_options,
    result,
    say,
    typed,
)

if TYPE_CHECKING:
    from filbert.core.records import Floats
    from filbert.engine.results import Record

CHUNK = 1_024  # texts held in memory at a time: large enough for full packs of any mixture of lengths
Write = Callable[[Sequence[str], Any], None]


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions, CorpusOptions):
    """What was given on the command line, beside what `command` names."""

    pool: str | None
    normalize: bool
    prompt: str | None
    width: int | None
    search: str | None
    top: int
    clusters: int | None
    as_json: bool


@click.command("embed")
@click.argument("model")
@click.option(
    "--data", "-d", multiple=True,
    help="File, folder or - of texts; a document is one text (see --unit). May be repeated.",
)  # fmt: skip
@click.option("--text", "-t", multiple=True, help="A text given here; may be repeated.")
@click.option(
    "--out", "-o", help="Where to: .npy for an array, .jsonl, .csv or .tsv; without it, JSONL on standard output."
)
@click.option(
    "--pool", type=click.Choice(["mean", "cls", "pooled", "own"]), help="Default: the folder's own, else mean."
)
@click.option(
    "--normalize", is_flag=True, help="Scale every vector to length 1; where the folder says so it is done anyway."
)
@click.option("--prompt", metavar="NAME", help="One of the folder's prompts, put before every text.")
@click.option("--width", type=click.IntRange(1), help="Only the first so many numbers of each vector.")
@click.option("--search", metavar="QUERY", help="Print the texts nearest to this one instead of vectors.")
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="How many --search prints.")
@click.option("--clusters", type=click.IntRange(1), help="Print each text's group, of so many, instead of vectors.")
@model_options
@corpus_options
@json_option
@typed(Options)
def command(model: str, data: tuple[str, ...], text: tuple[str, ...], out: str | None, options: Options) -> None:
    """Turn texts into vectors, or search or group them by these.

    MODEL is a folder, a run, or `builtin` for the one that ships. Texts of any length are read whole, in windows.
    """
    from filbert.core.errors import InputError
    from filbert.engine.results import FORMS, check_place, form_of
    from filbert.text.corpus import files as corpus_files

    as_json, width = options.as_json, options.width
    if (not data) == (not text):
        raise InputError("give the texts once: either --data FILE or one or more --text.")
    refuse_for_texts(text, ("field", "unit", "encoding", "errors"))
    if options.search is None:
        refuse_options(["top"], "says how many texts --search prints; give that too")
    is_query = options.search is not None or options.clusters
    if out:
        form_of(out, FORMS if is_query else {".npy": "array", **FORMS})
        check_place(out, corpus_files(data) if data else ())
    if options.search is not None and options.clusters:
        raise click.UsageError("--search and --clusters are two questions: ask one at a time.")
    loaded = load_model(model, options)
    for note in loaded.notes:
        say(f"note: {note}")
    if width and width not in loaded.widths:
        learnt = ", ".join(map(str, loaded.widths))
        say(
            f"note: the model was not fine-tuned for vectors of {width} numbers, only of {learnt}; they may serve less."
        )
    texts = (document.text for document in corpus(data, options)) if data else iter(text)
    embed = partial(
        loaded.embed, pool=options.pool, normalize=options.normalize or None, width=width, prompt=options.prompt
    )
    if is_query:
        _ask(embed, texts, options, out)
        return
    start, count = time.perf_counter(), 0
    kept: list[list[float]] | None = [] if as_json and not out else None
    with _writer(out, kept) as write:
        while chunk := list(islice(texts, CHUNK)):
            write(chunk, embed(chunk))
            count += len(chunk)
    seconds, size = time.perf_counter() - start, width or loaded.widths[0]
    if as_json:
        summary = {"texts": count, "width": size, "coverage": 1.0, "seconds": round(seconds, 3)}
        result({**summary, "out": out} if out else {**summary, "vectors": kept})
    else:
        say(f"{count:,} texts, {size} numbers each, in {seconds:.1f} s.")


def _ask(embed: Callable[[list[str]], Floats], texts: Iterator[str], options: Options, out: str | None) -> None:
    """The texts nearest to a query, or every text's cluster: one JSON object a line, or all in one."""
    import numpy as np

    from filbert.engine.neighbours import Index, clusters

    kept: list[str] = []
    rows: list[Any] = [embed([])]
    while chunk := list(islice(texts, CHUNK)):
        kept += chunk
        rows.append(embed(chunk))
    vectors, query = np.concatenate(rows), options.search
    if query is not None:
        hits = Index(vectors, kept).search(embed([query]), options.top)[0]
        results = [{"text": hit.key, "score": round(hit.score, 6), "place": hit.place} for hit in hits]
    else:
        assert options.clusters is not None  # or there was no question
        labels = clusters(vectors, options.clusters).tolist() if kept else []
        results = [{"text": text, "cluster": label} for text, label in zip(kept, labels, strict=True)]
    query_fields = {"query": query} if query is not None else {"clusters": len({each["cluster"] for each in results})}
    if out:
        with _table(out) as add:
            add(results)
    if options.as_json:
        result({"texts": len(kept), **query_fields, **({"out": out} if out else {"found": results})})
    elif not out:
        for each in results:
            result(each)


@contextlib.contextmanager
def _writer(out: str | None, kept: list[list[float]] | None) -> Iterator[Write]:
    """A function that takes texts and their vectors; the file appears whole or not at all."""
    from filbert.core.files import whole_file

    if kept is not None:
        yield lambda texts, vectors: kept.extend(map(_rounded, vectors.tolist()))
    elif out is None:
        yield lambda texts, vectors: _lines(texts, vectors, sys.stdout)
    elif out.lower().endswith(".npy"):
        import numpy as np

        rows: list[Any] = []
        yield lambda texts, vectors: rows.append(vectors)
        with whole_file(out) as part, part.open("wb") as handle:
            np.save(handle, np.concatenate(rows) if rows else np.zeros((0, 0), dtype=np.float32))
    else:
        is_table = out.lower().endswith((".csv", ".tsv"))
        with _table(out) as add:
            yield lambda texts, vectors: add(
                [_row(*each, is_table) for each in zip(texts, vectors.tolist(), strict=True)]
            )


@contextlib.contextmanager
def _table(out: str) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    """A function that takes records; the file, whose suffix says its form, appears whole or not at all."""
    from filbert.core.files import whole_file
    from filbert.engine.results import Table, form_of

    table = Table(form_of(out))
    with whole_file(out) as part, part.open("w", encoding="utf-8", errors="surrogatepass", newline="") as handle:

        def add(records: list[Record]) -> None:
            handle.write(table.text(records))

        yield add
    if table.num_mended:
        say(f"note: {table.num_mended:,} cells had tabs or line ends, which TSV cannot hold; they are spaces now.")


def _row(text: str, vector: list[float], is_table: bool) -> dict[str, Any]:
    """A text and its vector, whose numbers have a column each in a table."""
    if is_table:
        return {"text": text, **{str(place): number for place, number in enumerate(_rounded(vector))}}
    return {"text": text, "vector": _rounded(vector)}


def _lines(texts: Sequence[str], vectors: Floats, handle: TextIO) -> None:
    for text, vector in zip(texts, vectors.tolist(), strict=True):
        line = _row(text, vector, is_table=False)
        print(json_line(line) if handle is sys.stdout else json.dumps(line, ensure_ascii=False), file=handle)


def _rounded(vector: list[float]) -> list[float]:
    """Seven figures: all that a float32 holds."""
    return [float(f"{number:.7g}") for number in vector]
