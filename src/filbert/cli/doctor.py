"""filbert doctor: data files in, what is wrong with them out, by file and line, before any training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from filbert.cli.shared import encoding_option, json_option, result, roles, say, typed

if TYPE_CHECKING:
    from filbert.doctor.checks import Measure
    from filbert.tasks.task import Json


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    task: str | None
    model: str | None
    fix: str | None
    encoding: str


@click.command("doctor")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option("--task", help="corpus, classify, pair, tag, answer, …; told from each file where not given.")
@click.option("--columns", metavar="ROLE=NAME,…", help="Which column is what, e.g. text=review,label=2.")
@click.option("--model", help="Folder or run whose tokens are counted; or builtin.  [default: an estimate]")
@click.option("--fix", metavar="OUT", help="Folder to write repaired copies to; what is told is what is left in them.")
@encoding_option
@json_option
@typed(Options)
def command(data: tuple[str, ...], columns: str | None, as_json: bool, options: Options) -> None:
    """Examine corpora and labelled files: broken rows, odd labels, spans and answers that miss, duplicates, leakage.

    Give the training file first: a text that stands in a later file too is leakage. Exits with 2 on any error.
    """
    from filbert.doctor.diagnosis import MAX_OF_A_KIND, examine, rendered

    task, named, encoding = options.task, roles(columns), options.encoding
    measure = _measure(options.model)
    fixes = None
    if options.fix:
        from filbert.doctor.mending import LIST, mended

        done = mended(data, options.fix, task=task, columns=named, encoding=encoding)
        for remark in done.remarks:
            say(f"note: {remark}")
        data = tuple(done.files)
        fixes = {"list": f"{options.fix}/{LIST}", "files": done.files, "counts": _by_file(done.counts)}
    most = None if as_json else MAX_OF_A_KIND
    findings = examine(data, measure=measure, most=most, task=task, columns=named, encoding=encoding)
    counts = {severity: sum(f.severity == severity for f in findings) for severity in ("error", "warning", "note")}
    if as_json:
        summary = {f"{name}s": count for name, count in counts.items()} | ({"fixes": fixes} if fixes else {})
        result({**summary, "findings": [dataclasses.asdict(f) for f in findings]})
    else:
        for line in rendered(findings):
            click.echo(line)
        if fixes:
            _tell_fixes(fixes)
        say(", ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items()) + ".")
    if counts["error"]:
        click.get_current_context().exit(2)


def _measure(model: str | None) -> Measure:
    """What texts are measured with: each task's own window, and the model's tokenizer if one is named."""
    from filbert.core import registry
    from filbert.doctor.checks import Measure
    from filbert.forms.spec import task_names

    learnt = [task for task in registry.tasks(only_learnt=True) if task in task_names()]
    windows = {task: registry.task(task).config().max_length for task in learnt}
    if model is None:
        return Measure(windows=windows)
    from filbert.folder.config import described
    from filbert.folder.manifest import model_folder
    from filbert.text.tokenizer import Tokenizer

    folder = model_folder(model)
    most = described(folder).config.max_length
    windows = {task: min(window, most) for task, window in windows.items()}
    return Measure(Tokenizer.load(folder), windows, most)


def _by_file(counts: dict[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    by_file: dict[str, dict[str, int]] = {}
    for (file, what), count in counts.items():
        by_file.setdefault(file, {})[what] = count
    return by_file


def _tell_fixes(fixes: Json) -> None:
    for file, counts in fixes["counts"].items():
        for what, count in counts.items():
            say(f"{file}: {what}: {count:,}")
    say(f"{fixes['list']}: all {sum(sum(counts.values()) for counts in fixes['counts'].values()):,} repairs.")
