"""filbert chat: a chat model and a user's lines in, its answers out."""

from __future__ import annotations

import sys

import click

from filbert.cli.shared import device_option, encoding_option, json_option, refuse_options, say, typed
from filbert.cli.translate import Options, answer_all, writer

TURNS = 6  # that an answer is written to; what was said before them is forgotten


@click.command("chat")
@click.argument("model")
@click.option("--text", "-t", multiple=True, help="Say this and nothing else; may be repeated, each by itself.")
@click.option("--data", "-d", multiple=True, help="File or folder of texts to answer, each by itself; may be repeated.")
@click.option("--out", "-o", help="File to write answers to: a line for each text, or .jsonl, .csv, .tsv.")
@click.option("--resume", is_flag=True, help="Go on where OUT ends.")
@click.option("--set", "settings", multiple=True, help="A field of the task, e.g. task.temperature=0.8.")
@device_option
@encoding_option
@json_option
@typed(Options)
def command(model: str, options: Options) -> None:
    """Talk with a model of `filbert finetune chat`, line by line; an empty line ends it."""
    if options.text or options.data:
        answer_all("chat", model, options)
        return
    refuse_options(
        ("out", "resume", "encoding", "as_json"), "is for --text or --data; without them one talks, line by line"
    )
    loaded, turns = writer("chat", model, options), list[str]()
    shown = sys.stdin.isatty()
    while True:
        click.echo("> ", nl=False, err=True) if shown else None
        line = sys.stdin.readline()
        if not line.strip():
            return
        turns.append(" ".join(line.split()))
        prediction = loaded.predict(["\n".join(turns[-TURNS:])], task="chat")[0]
        answer = prediction.text or ""
        if not answer and prediction.scores.get("unknown") == 1.0:
            say("note: not one character of it is in the model's vocabulary, so nothing is answered.")
        turns.append(answer)
        click.echo(answer)
