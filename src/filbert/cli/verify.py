"""filbert verify: a model folder in; whether it is whole and still gives its golden answers, out."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from filbert.cli.shared import (
    data_encoding_option,
    json_option,
    read_options,
    refuse_options,
    result,
    say,
    table,
    typed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from filbert.ship.verify import Replayed


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    expect: str | None
    dev: tuple[str, ...]
    columns: str | None
    encoding: str | None


@click.command("verify")
@click.argument("model", metavar="DIR")
@click.option("--expect", metavar="FINGERPRINT", help="What the folder's maker told you; another one is an error.")
@click.option("--dev", multiple=True, help="Data on which int8 is held to the loss that its card states.")
@click.option("--columns", metavar="ROLE=NAME,…", help="Of --dev: which column is what, e.g. text=review,label=2.")
@data_encoding_option
@json_option
@typed(Options)
def command(model: str, as_json: bool, options: Options) -> None:
    """Check a model folder: every file's hash, and its golden cases in each runtime that is here.

    The fingerprint is the SHA-256 of the manifest, which has that of every other file: compare it with what the maker
    of the folder told you elsewhere, or give it with --expect. Without that, hashes only show accidents.

    Exits with 1 where torch or onnxruntime says something else than when the folder was made, or where int8 is further
    off than the folder states.
    """
    from filbert.folder.manifest import fingerprint, model_folder
    from filbert.ship.verify import verified

    if not options.dev:
        refuse_options(("columns", "encoding"), "says how the files of --dev are read; give those too")
    replays = verified(model, options.expect)
    actual = fingerprint(model_folder(model))
    broken, measured = _held(model, options) if options.dev else ([], {})
    holds = all(each.holds and not each.missing for each in replays) and not broken
    if as_json:
        more = {"int8": measured, "broken": broken} if options.dev else {}
        result(
            {
                "folder": model,
                "fingerprint": actual,
                "holds": holds,
                "runtimes": [asdict(each) for each in replays],
                **more,
            }
        )
    else:
        click.echo(table(_rows(replays)))
        for each in replays:
            for sentence in (*([each.missing] if each.missing else []), *each.changed[:5]):
                say(f"{each.runtime}: {sentence}")
            if each.most is None:
                say(f"note: the folder does not state what {each.runtime} costs, so it only had to run.")
        for sentence in broken:
            say(sentence)
        click.echo(f"fingerprint: {actual or 'none'}")
        if actual is None:
            say("note: the folder has no manifest.json, so nothing tells what its files should be.")
        if not any(each.num_cases for each in replays):
            say("note: the folder has no golden cases, so only its files were compared.")
    if not holds:
        sys.exit(1)


def _rows(replays: Sequence[Replayed]) -> list[list[str]]:
    rows = [["runtime", "cases", "largest difference", "changed decisions", "allowed"]]
    for each in replays:
        cells = [f"{each.num_cases}", f"{each.difference:.1e}", f"{len(each.changed)}"]
        allowed = "any" if each.most is None else f"{each.most[1]:.1e}, {each.most[0]}"
        rows.append([each.runtime, *(["–"] * 4 if each.missing else [*cells, allowed])])
    return rows


def _held(model: str, options: Options) -> tuple[list[str], dict[str, Any]]:
    """What int8 costs on these data, and what of the folder's promise that breaks."""
    from filbert.core.errors import InputError
    from filbert.folder.manifest import model_folder, stated
    from filbert.folder.runtime import SMALL_ENCODER
    from filbert.ship import cost

    folder, files = model_folder(model), options.dev
    promised = stated(folder, cost.INT8)
    if not promised or not (folder / SMALL_ENCODER).exists():
        raise InputError(f"{folder}: states no cost of int8 to be held to; export it with --int8.")
    how = read_options(options.columns, options.encoding)
    now = cost.measured(folder, files[0] if len(files) == 1 else files, how)
    return cost.kept(promised, now), now
