"""filbert probe: a model and labelled data in, what each of its layers knows out: a table, a curve, a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from filbert.cli.shared import (
    ProbedTask,
    UsualTask,
    encoding_option,
    json_option,
    read_options,
    result,
    say,
    table,
    typed,
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    limit: int
    untrained: bool
    columns: str | None
    seed: int
    encoding: str


@click.command("probe")
@click.argument("model")
@click.option("--data", "-d", required=True, help="Labelled file: CSV, TSV, JSONL, Parquet, tagged; .gz .xz .zst.")
@click.option("--task", cls=UsualTask, type=ProbedTask(), show_default=True)
@click.option("--limit", type=click.IntRange(20), default=2_000, show_default=True, help="Texts read, drawn by chance.")
@click.option("--untrained", is_flag=True, help="Probe fresh weights of the same shape beside it.")
@click.option("--out", "-o", help="Where to: a page (.html) or the curve alone (.svg, .png).")
@click.option("--columns", metavar="ROLE=NAME,…", help="Which column is what, e.g. text=review,label=2.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of everything random.")
@encoding_option
@json_option
@typed(Options)
def command(model: str, data: str, task: str, out: str | None, as_json: bool, options: Options) -> None:
    """Tell what each layer of a model knows.

    A linear probe for each layer reads the labels off its vectors, which stay as they are; a control task with random
    labels says how much of it the probe itself has done. MODEL is a folder, a run, or `builtin`.
    """
    from dataclasses import replace
    from pathlib import Path

    from filbert import load
    from filbert.core.errors import InputError
    from filbert.engine.results import check_place
    from filbert.forms import sources
    from filbert.see import probe
    from filbert.text.streams import Reading

    if out and Path(out).suffix.lower() not in probe.ENDINGS:
        raise InputError(f"{out}: give it the ending {', '.join(probe.ENDINGS)}, which says what to write.")
    if out:
        check_place(out)
    loaded = load(model)
    for note in loaded.notes:
        say(f"note: {note}")
    how = read_options(options.columns, options.encoding)
    reading = Reading()
    examples = sources.read(task, data, how, reading)
    sources.tell(data, reading)
    wishes: dict[str, Any] = {"limit": options.limit, "seed": options.seed}
    probed = replace(probe.probed(loaded, examples, task, **wishes), model=model)
    fresh = probe.untrained(loaded, options.seed) if options.untrained else None
    other = None if fresh is None else probe.probed(fresh, examples, task, **wishes)
    if out:
        probe.write(out, probed, other)
    if as_json:
        result({**probed.as_dict(), "untrained": other and other.as_dict()["layers"]})
        return
    click.echo(table([probe.HEAD, *map(probe.cells, probed.layers)]))
    if other is not None:
        click.echo("with untrained weights")
        click.echo(table([probe.HEAD, *map(probe.cells, other.layers)]))
    click.echo(f"commonest label {probed.majority:.4f}")
    if probed.by_type is not None:
        click.echo(f"commonest label of each {probed.unit} {probed.by_type:.4f}")
    for sentence in (*probed.sentences(), *probed.notes):
        click.echo(f"- {sentence}")
    if out:
        click.echo(f"{out} shows it.")
