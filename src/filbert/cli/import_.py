"""filbert import: a transformers folder in, a filbert model folder out."""

from __future__ import annotations

import click

from filbert.cli.shared import json_option, result, say


@click.command("import")
@click.argument("source", metavar="HF_DIR")
@click.option("--out", "-o", required=True, help="Folder to write.")
@json_option
def command(source: str, out: str, as_json: bool) -> None:
    """Check a transformers folder and write it as a filbert model folder, bit for bit.

    Kinds: bert, distilbert, electra, ernie, modernbert, gpt2. Of a pytorch_model.bin the tensors alone are read; no
    code of it is run.
    """
    from filbert.ship.export import imported

    read = imported(source, out)
    about = read.described
    for note in about.notes:
        say(f"note: {note}")
    shape = f"{about.config.layers} layers × {about.config.width}, vocabulary {about.config.vocab_size:,}"
    if as_json:
        summary = {
            "out": out,
            "kind": about.kind,
            "parts": list(read.parts),
            "labels": read.labels,
            "notes": about.notes,
        }
        result(summary)
    else:
        heads = ", ".join(read.parts) or "none"
        click.echo(f"{out}: {about.kind}, {shape}; heads: {heads}")
