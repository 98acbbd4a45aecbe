"""filbert doctor: data files in, what is wrong with them out, by file and line, before any training."""

from __future__ import annotations

import dataclasses

import click

from filbert.cli.shared import encoding_option, json_option, result, roles, say


@click.command("doctor")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option("--task", help="corpus, classify, pair, tag, answer, …; told from each file where not given.")
@click.option("--columns", metavar="ROLE=NAME,…", help="Which column is what, e.g. text=review,label=2.")
@encoding_option
@json_option
def command(data: tuple[str, ...], task: str | None, columns: str | None, encoding: str, as_json: bool) -> None:
    """Examine corpora and labelled files: encodings, broken rows, duplicates, leakage, odd labels, spans that miss.

    Give the training file first: a text that stands in a later file too is leakage. Exits with 2 on any error.
    """
    from filbert.data.doctor import examine, rendered

    findings = examine(data, task=task, columns=roles(columns), encoding=encoding)
    counts = {severity: sum(f.severity == severity for f in findings) for severity in ("error", "warning", "note")}
    if as_json:
        result(
            {
                **{f"{name}s": count for name, count in counts.items()},
                "findings": [dataclasses.asdict(f) for f in findings],
            }
        )
    else:
        for line in rendered(findings):
            click.echo(line)
        say(", ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items()) + ".")
    if counts["error"]:
        click.get_current_context().exit(2)
