"""filbert vocab: a corpus in, a folder with vocab.txt and tokenizer.json out."""

from __future__ import annotations

from dataclasses import dataclass

import click

from filbert.cli.shared import CorpusOptions, corpus, corpus_options, json_option, progress, result, say, typed


@dataclass(frozen=True, kw_only=True)
class Options(CorpusOptions):
    """What was given on the command line, beside what `command` names."""

    lowercase: bool
    min_count: int
    workers: int


@click.command("vocab")
@click.argument("sources", nargs=-1, required=True, metavar="CORPUS...")
@click.option("--size", default=12_000, show_default=True, type=click.IntRange(6), help="Tokens at most.")
@click.option("--out", "-o", required=True, help="Folder to write vocab.txt and tokenizer.json to.")
@click.option("--lowercase/--cased", default=True, show_default=True, help="Whether A and a are one.")
@click.option("--min-count", default=2, show_default=True, type=click.IntRange(1), help="Rarer pieces are left out.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes that count words.")
@corpus_options
@json_option
@typed(Options)
def command(sources: tuple[str, ...], size: int, out: str, as_json: bool, options: Options) -> None:
    """Train a WordPiece vocabulary. The same texts give the same file, in any order and with any number of workers."""
    from filbert.text.tokenizer import Tokenizer
    from filbert.text.vocab import train

    lowercase, min_count, workers = options.lowercase, options.min_count, options.workers
    texts = (document.text for document in corpus(sources, options))
    report = train(progress(texts, unit=" documents"), size, lowercase=lowercase, min_count=min_count, workers=workers)
    Tokenizer(report.tokens, lowercase=lowercase).save(out)
    if as_json:
        result({"tokens": len(report.tokens), "asked": size, **report.counts, "out": out})
        return
    if report.num_long_words:
        say(f"note: {report.num_long_words:,} words were too long to learn from; they will be [UNK].")
    if report.num_dropped_characters:
        left = f"{report.num_dropped_characters:,} rare characters did not fit; "
        say(f"note: {left}{report.num_dropped_words:,} words with them will be [UNK]. A larger --size keeps them.")
    if len(report.tokens) < size:
        say(f"note: the corpus has no more pieces that occur {min_count} times, so {size:,} was not reached.")
    read = f"from {report.num_words:,} words, {report.num_distinct:,} of them distinct"
    click.echo(f"{out}: {len(report.tokens):,} tokens in vocab.txt and tokenizer.json, {read}")
