"""filbert verify: a model folder in, whether it is whole and says what it said when it was made, out."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from filbert.cli.shared import json_option, result, say, table


@click.command("verify")
@click.argument("model", metavar="DIR")
@json_option
def command(model: str, as_json: bool) -> None:
    """Check a model folder: every file's hash, and its golden cases in each runtime that is here.

    Exits with 1 where torch or onnxruntime says something else than when the folder was made.
    """
    from filbert.infer.verify import verified

    found = verified(model)
    holds = all(each.holds and not each.missing for each in found)
    if as_json:
        result({"folder": model, "holds": holds, "runtimes": [asdict(each) for each in found]})
    else:
        rows = [["runtime", "cases", "largest difference", "changed decisions"]]
        for each in found:
            told = [f"{each.num_cases}", f"{each.difference:.1e}", f"{len(each.changed)}"]
            rows.append([each.runtime, *(["–", "–", "–"] if each.missing else told)])
        click.echo(table(rows))
        for each in found:
            for sentence in (*([each.missing] if each.missing else []), *each.changed[:5]):
                say(f"{each.runtime}: {sentence}")
        if not any(each.num_cases for each in found):
            say("note: the folder has no golden cases, so only its files were compared.")
    if not holds:
        sys.exit(1)
