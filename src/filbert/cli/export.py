"""filbert export: a model folder in; one that also runs without torch, by onnxruntime, out."""

from __future__ import annotations

from pathlib import Path

import click

from filbert.cli.shared import json_option, result, say


@click.command("export")
@click.argument("model")
@click.option("--out", "-o", required=True, help="Folder to write.")
@click.option("--format", "form", type=click.Choice(["onnx"]), default="onnx", show_default=True, help="What to add.")
@click.option("--int8", is_flag=True, help="In eight bits as well: faster, a quarter of the size, nearly as good.")
@json_option
def command(model: str, out: str, form: str, int8: bool, as_json: bool) -> None:
    """Write a model folder again with its encoder as ONNX; MODEL is a model folder, a run or `builtin`.

    The new folder runs with torch or without it, and gives the same answers: `filbert verify` compares them.
    """
    from filbert.artefact import onnx
    from filbert.infer import verify

    folder = onnx.export(model, out, int8)
    if not (folder / verify.GOLDEN).exists():
        verify.write(folder)
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    if as_json:
        result({"out": str(folder), "format": form, "files": sizes})
        return
    graph, weights = sizes["model.onnx"] / 1024, sizes["model.safetensors"] / 2**20
    say(f"{folder}: a graph of {graph:.0f} KB over {weights:.1f} MB of weights.")
    say(f"Compare its runtimes: filbert verify {Path(out)}")
