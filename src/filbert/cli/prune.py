"""filbert prune: a fine-tuned model folder and labelled data in, a smaller and faster one without some heads out."""

from __future__ import annotations

from dataclasses import dataclass

import click

from filbert.cli.shared import (
    data_encoding_option,
    device_option,
    json_option,
    progress,
    refuse_options,
    result,
    roles,
    typed,
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    layers: str | None
    inner: int | None
    method: str
    most: int
    device: str
    encoding: str | None


@click.command("prune")
@click.argument("model")
@click.option("--data", "-d", help="Labelled file that tells which heads matter: CSV, TSV, JSONL, …")
@click.option("--out", "-o", required=True, help="Folder to write.")
@click.option("--heads", default="0.5", show_default=True, help="To take away: a share of all, or a number.")
@click.option("--layers", help="Instead of heads: keep so many layers, evenly spread, or these, from 0: 0,2,5.")
@click.option("--inner", type=click.IntRange(1), help="Instead of heads: keep so many numbers of each feed-forward.")
@click.option("--method", type=click.Choice(["gradient", "ablation"]), default="gradient", show_default=True)
@click.option("--examples", "most", default=256, show_default=True, type=click.IntRange(1), help="Asked at most.")
@click.option("--columns", metavar="ROLE=NAME,…", help="Which column is what, e.g. text=review,label=2.")
@device_option
@data_encoding_option
@json_option
@typed(Options)
def command(
    model: str, data: str | None, out: str, heads: str, columns: str | None, as_json: bool, options: Options
) -> None:
    """Take away the attention heads that matter least, or layers; MODEL is a fine-tuned bert folder or a run.

    The weights of those heads are gone from the new folder, which is smaller and faster, and can be used and fine-tuned
    as any other. gradient asks how the loss hangs on each head, all at once; ablation leaves each out in turn.
    """
    from filbert.ship.prune import prune

    layers, inner = options.layers, options.inner
    if layers or inner:
        others = ("data", "heads", "method", "most", "columns", "device", "encoding")
        refuse_options(others, "is of heads; --layers and --inner take away without asking any data")
        _fewer_layers(model, out, layers, inner, as_json)
        return
    if data is None:
        raise click.UsageError("give --data, which tells the heads that matter, or --layers, or --inner.")
    done = prune(
        model, data, out, heads=_number(heads), method=options.method, most=options.most, columns=roles(columns),
        encoding=options.encoding, device=options.device,
        shown=lambda things: progress(things, len(things), "example", as_json),
    )  # fmt: skip
    if as_json:
        summary = {"out": out, "heads": [list(head) for head in done.heads], "left": list(done.left)}
        result({**summary, "importance": done.importance.tolist(), "loss": done.loss, "parameters": done.parameters})
        return
    click.echo(f"{out}: {len(done.heads)} heads fewer; left in each layer: {', '.join(map(str, done.left))}")
    click.echo(f"weights {done.parameters[0]:,} → {done.parameters[1]:,}")
    click.echo(f"loss {done.loss[0]:.4f} → {done.loss[1]:.4f} on {data}; fine-tune it to win back what that cost")


def _fewer_layers(model: str, out: str, layers: str | None, inner: int | None, as_json: bool) -> None:
    from filbert.ship.prune import fewer_layers

    fewer = fewer_layers(model, out, layers, inner)
    if as_json:
        result({"out": out, "layers": list(fewer.layers), "parameters": fewer.parameters})
        return
    before, after = fewer.parameters
    click.echo(f"{out}: layers {', '.join(map(str, fewer.layers))} are left; weights {before:,} → {after:,}")
    click.echo(f"win back what that cost: filbert distill {model} --student {out} --data …")


def _number(text: str) -> int | float:
    """0.5 is a share, 12 a number of heads."""
    try:
        return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' must be a share such as 0.5, or a number such as 12.", param_hint="--heads")  # noqa: B904
