"""filbert attend: a model and a text in; a page, a picture or numbers of who attended to whom out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from filbert.cli.shared import device_option, json_option, refuse_options, result, say, table, typed

if TYPE_CHECKING:
    from filbert.tasks.task import Json

PICTURES = ("head", "matrix", "grid", "layers", "attribution", "blanks", "prediction")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    pair: str | None
    beside: str | None
    layers: str | None
    heads: str | None
    picture: str | None
    method: str | None
    task: str | None
    device: str
    as_json: bool


@click.command("attend")
@click.argument("model")
@click.option("--text", "-t", multiple=True, required=True, help="The text; given twice, two stand side by side.")
@click.option("--pair", "-p", help="A second text that is read with it; of an encoder-decoder, what it is to write.")
@click.option("--beside", metavar="MODEL", help="Another model, which is shown beside the first.")
@click.option("--layers", metavar="N,…", help="Whose attention, from 0; all without it.")
@click.option("--heads", metavar="N,…", help="Whose attention, from 0; all without it.")
@click.option("--out", "-o", help="A page (.html) or, with --picture, a picture (.svg, .png).")
@click.option("--picture", type=click.Choice(PICTURES), help="What to draw; --layers and --heads name one of each.")
@click.option("--explain", "method", help="Explain what the model says too, e.g. by integrated-gradients.")
@click.option("--task", help="classify or pair, for a published folder, which does not say; else the folder's own.")
@device_option
@json_option
@typed(Options)
def command(model: str, text: tuple[str, ...], out: str | None, options: Options) -> None:
    """Show which word a model looks at, in every layer and head; MODEL is a folder, a run or `builtin`.

    The page opens offline by double click. Without --out, how far and how widely each head looks is printed.
    """
    from pathlib import Path

    from filbert import load
    from filbert.core.errors import InputError
    from filbert.engine.results import check_place
    from filbert.explain import explanation
    from filbert.see import view_model

    if len(text) > 2 or (len(text) == 2 and options.beside):
        raise click.UsageError("two views fit side by side: give two --text, or --beside a model, or neither.")
    if not all(text):
        raise InputError("the text is empty, so there is nothing to attend to; give at least one character.")
    if out:
        check_place(out)
    if bool(options.picture) != bool(out and not out.endswith((".html", ".htm"))):
        raise click.UsageError("a picture needs --picture and --out FILE.svg or .png; a page --out FILE.html.")
    if out and not out.lower().endswith((".html", ".htm", ".svg", ".png")):
        raise click.UsageError(f"--out {out}: the suffix says what is written: .html, or with --picture .svg or .png.")
    _check_used(options, out)
    folders = [model] * len(text) if not options.beside else [model, options.beside]
    loaded = {name: load(name, device=options.device) for name in dict.fromkeys(folders)}
    reasons = [(None, explanation.wanted({"method": options.method}))] if options.method else []
    layers, heads = _numbers("--layers", options.layers), _numbers("--heads", options.heads)
    views = []
    for name, shown in zip(folders, text * len(folders) if options.beside else text, strict=False):
        request = shown if options.pair is None else (shown, options.pair)
        views.append(
            view_model.view(loaded[name], request, reasons=reasons, task=options.task, layers=layers, heads=heads)
        )
    for note in dict.fromkeys(note for each in loaded.values() for note in each.notes):
        say(f"note: {note}")
    if out and options.picture:
        _draw(views, options, options.picture, out)
    elif out:
        from filbert.core.files import write_text
        from filbert.draw import book

        write_text(out, book.saved(view_model.joined(views)))
        say(f"{out}: {Path(out).stat().st_size / 2**20:.1f} MB; open it in a browser, no network is needed.")
    _tell(views, options.as_json, out)


def _check_used(options: Options, out: str | None) -> None:
    """Refuses what the form that is written has no place for."""
    picture = options.picture
    if picture in ("attribution", "blanks", "prediction"):
        refuse_options(("layers", "heads"), f"is of attention, which the picture {picture} does not show")
    if picture not in (None, "attribution") or not (out or options.as_json):
        refuse_options(["method"], "is shown by a page, by --json and by --picture attribution")


def _draw(views: list[Json], options: Options, picture: str, out: str) -> None:
    from filbert.draw import pictures

    if len(views) > 1:
        raise click.UsageError("a picture shows one view: give one --text and no --beside.")
    window = views[0]["windows"][0] if views[0]["windows"] else {"attention": []}
    maps = window["attention"][0] if window["attention"] else {"layers": [0], "heads": [0], "kind": "self"}
    chosen: dict[str, Any] = {"layer": maps["layers"][0], "head": maps["heads"][0], "kind": maps["kind"]}
    named = [name for name, value in (("layers", options.layers), ("heads", options.heads)) if "," in (value or "")]
    if named and picture in ("head", "matrix"):
        say(f"note: --picture {picture} shows one of --{' and --'.join(named)}: "
            f"head {chosen['head']} of layer {chosen['layer']}.")  # fmt: skip
    pictures.draw(views[0], picture, out, pictures.Choices(**chosen))
    say(f"{out}: written.")


def _numbers(option: str, value: str | None) -> list[int] | None:
    if value is None:
        return None
    try:
        return [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"'{value}' must be numbers with commas between, e.g. 0,3.", param_hint=option
        ) from None


def _tell(views: list[Json], as_json: bool, out: str | None) -> None:
    """How widely and how far each head looks: as JSON, or as a table of the first window."""
    summaries = [
        {key: view[key] for key in ("model", "texts", "coverage", "prediction", "explanations", "blanks")}
        | {"windows": [{key: one[key] for key in ("tokens", "words", "heads")} for one in view["windows"]]}
        for view in views
    ]
    if as_json:
        result({"views": summaries, **({"out": out} if out else {})})
        return
    for view in [] if out else views:
        for window in view["windows"][:1]:
            maps = window["attention"][0]
            rows = [["layer", "head", "entropy", "distance"]]
            for place, layer in enumerate(maps["layers"]):
                for at, head in enumerate(maps["heads"]):
                    far = window["heads"]["distance"]
                    numbers = [window["heads"]["entropy"][place][at], far[place][at] if far else None]
                    shown = ["" if number is None else f"{number:.2f}" for number in numbers]
                    rows.append([str(layer), str(head), *shown])
            click.echo(table(rows))
        if len(view["windows"]) > 1:
            say(f"note: the first of {len(view['windows'])} windows; --out PAGE.html or --json has all.")
