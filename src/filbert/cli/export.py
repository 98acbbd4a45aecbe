"""filbert export: a model folder in; one that runs without torch, by onnxruntime, or one for transformers, out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from filbert.cli.shared import data_encoding_option, json_option, read_options, refuse_options, result, say, typed


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    dev: tuple[str, ...]
    columns: str | None
    encoding: str | None


@click.command("export")
@click.argument("model")
@click.option("--out", "-o", required=True, help="Folder to write.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["onnx", "transformers"]),
    default="onnx",
    show_default=True,
    help="What it is for: onnxruntime (and torch), or transformers.",
)
@click.option("--int8", is_flag=True, help="In eight bits as well: faster, a quarter of the size, nearly as good.")
@click.option("--dev", multiple=True, help="Data on which the cost of --int8 is measured: labelled, or texts in lines.")
@click.option("--columns", metavar="ROLE=NAME,…", help="Of --dev: which column is what, e.g. text=review,label=2.")
@data_encoding_option
@json_option
@typed(Options)
def command(model: str, out: str, form: str, int8: bool, as_json: bool, options: Options) -> None:
    """Write a model folder again, ready to ship; MODEL is a model folder, a run or `builtin`.

    As onnx it runs with torch or without it, and gives the same answers: `filbert verify` compares them. What --int8
    costs is measured and written into the card.
    """
    dev = options.dev if len(options.dev) > 1 else next(iter(options.dev), None)
    if dev is not None and not int8:
        raise click.UsageError("--dev measures what --int8 costs: give both, or neither.")
    if dev is None:
        refuse_options(("columns", "encoding"), "says how the files of --dev are read; give those too")
    if form == "transformers":
        if int8:
            raise click.UsageError("--int8 is of onnx; transformers reads the folder in float32.")
        _for_transformers(model, out, as_json)
        return
    from filbert.ship import cost, export

    how = read_options(options.columns, options.encoding)
    folder, stated = export.export(model, out, int8=int8, dev=dev, options=how)
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    if as_json:
        result({"out": str(folder), "format": form, **({"int8": stated} if stated else {}), "files": sizes})
        return
    weights = sum(size for name, size in sizes.items() if name.endswith(".safetensors") and "int8" not in name) / 2**20
    graph = sizes["model.onnx"] / 1024
    say(f"{folder}: a graph of {graph:.0f} KB over {weights:.1f} MB of weights.")
    for sentence in cost.sentences(stated) if stated else ():
        say(f"int8: {sentence}")
    say(f"Compare its runtimes: filbert verify {Path(out)}")


def _for_transformers(model: str, out: str, as_json: bool) -> None:
    from filbert.folder import write_transformers

    folder, loads, remarks = write_transformers.export(model, out)
    if as_json:
        result({"out": str(folder), "format": "transformers", "class": loads, "remarks": remarks})
        return
    say(f"{folder}: transformers.{loads}.from_pretrained loads it.")
    for remark in remarks:
        say(f"note: {remark}")
