"""filbert fill: a text with [MASK] in, the words that a model would put there out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import click

from filbert.cli.shared import ModelOptions, json_option, load_model, model_options, result, say, table, typed


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """What was given on the command line, beside what `command` names."""


@click.command("fill")
@click.argument("text")
@click.option(
    "--model", default="builtin", show_default=True, help="Model folder, run folder, or a transformers BERT folder."
)
@click.option("--top", default=5, show_default=True, type=click.IntRange(1), help="How many candidates to show.")
@model_options
@json_option
@typed(Options)
def command(text: str, model: str, top: int, as_json: bool, options: Options) -> None:
    """Fill in the blanks: filbert fill "今天[MASK]气很好"."""
    from filbert.engine.blanks import filled

    loaded = load_model(model, options)
    for note in loaded.notes:
        say(f"note: {note}")
    blanks = loaded.fill(text, top=top)
    if as_json:
        result({"text": text, "filled": filled(text, blanks), "blanks": [dataclasses.asdict(b) for b in blanks]})
        return
    for number, blank in enumerate(blanks, 1):
        if len(blanks) > 1:
            click.echo(f"[MASK] {number}, character {blank.start}")
        click.echo(table([(c.text, f"{c.score:.3f}", c.token if c.token != c.text else "") for c in blank.candidates]))
    click.echo(filled(text, blanks))
