"""filbert write: a model that was pretrained to say the next word and a beginning in, the text written on out."""

from __future__ import annotations

from dataclasses import dataclass

import click

from filbert.cli.shared import json_option, refuse_options, result, typed


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    way: str
    temperature: float
    top_k: int
    top_p: float
    no_repeat: int
    seed: int


@click.command("write")
@click.argument("model")
@click.option("--text", "-t", multiple=True, required=True, help="How it begins; may be repeated.")
@click.option("--tokens", default=64, show_default=True, type=click.IntRange(1), help="Written at most.")
@click.option("--way", type=click.Choice(["sample", "greedy", "beam"]), default="sample", show_default=True)
@click.option("--temperature", default=1.0, show_default=True, help="Of sample: below 1 it dares less.")
@click.option("--top-k", default=0, help="Of sample: only the likeliest k words.  [default: all]")
@click.option("--top-p", default=1.0, show_default=True, help="Of sample: only the likeliest that have this share.")
@click.option("--no-repeat", default=0, help="No so many tokens in a row come twice.  [default: any may]")
@click.option("--seed", default=0, show_default=True, help="Of what is drawn.")
@json_option
@typed(Options)
def command(model: str, text: tuple[str, ...], tokens: int, as_json: bool, options: Options) -> None:
    """Write texts on by a model of `filbert pretrain --arch gpt` (or nnlm); MODEL is a model folder or a run."""
    if options.way != "sample":
        refuse_options(("temperature", "top_k", "top_p", "seed"), f"is of --way sample; {options.way} draws nothing")
    from filbert.engine.continuation import Writing, continuations
    from filbert.folder.folder import load
    from filbert.text.tokenizer import Tokenizer

    loaded = load(model)
    how = Writing(
        way=options.way, max_new=tokens, no_repeat=options.no_repeat, temperature=options.temperature,
        top_k=options.top_k, top_p=options.top_p, seed=options.seed,
    )  # fmt: skip
    generated = continuations(loaded.model, Tokenizer.load(loaded.folder), text, how)
    if as_json:
        result(
            {"texts": [{"text": beginning, "written": whole} for beginning, whole in zip(text, generated, strict=True)]}
        )
        return
    for whole in generated:
        click.echo(whole)
