"""filbert vocab: a corpus in, a folder with vocab.txt and tokenizer.json out."""

from __future__ import annotations

from typing import Any

import click

from filbert.cli.shared import corpus, corpus_options, json_option, progress, result, say


@click.command("vocab")
@click.argument("sources", nargs=-1, required=True, metavar="CORPUS...")
@click.option("--size", default=12_000, show_default=True, type=click.IntRange(6), help="Tokens at most.")
@click.option("--out", "-o", required=True, help="Folder to write vocab.txt and tokenizer.json to.")
@click.option("--lowercase/--cased", default=True, show_default=True, help="Whether A and a are one.")
@click.option("--min-count", default=2, show_default=True, type=click.IntRange(1), help="Rarer pieces are left out.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes that count words.")
@corpus_options
@json_option
def command(sources: tuple[str, ...], size: int, out: str, as_json: bool, **options: Any) -> None:
    """Train a WordPiece vocabulary. The same texts give the same file, in any order and with any number of workers."""
    from pathlib import Path

    from filbert.text.tokenizer import Tokenizer
    from filbert.text.vocab import train

    lowercase, min_count, workers = (options.pop(name) for name in ("lowercase", "min_count", "workers"))
    texts = (document.text for document in corpus(sources, options))
    report = train(progress(texts, unit=" documents"), size, lowercase=lowercase, min_count=min_count, workers=workers)
    Path(out).mkdir(parents=True, exist_ok=True)
    Tokenizer(report.tokens, lowercase=lowercase).save(out)
    dropped = {name: count for name, count in report.counts.items() if count}
    if as_json:
        result({"tokens": len(report.tokens), "asked": size, "dropped": dropped, "out": out})
        return
    for name, count in dropped.items():
        say(f"note: {name}: {count:,}")
    click.echo(f"{out}: {len(report.tokens):,} tokens in vocab.txt and tokenizer.json")
