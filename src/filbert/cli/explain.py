"""filbert explain: a model and texts in, how much each word moved what it says, and how far to believe that, out."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from filbert.cli.shared import (
    data_encoding_option,
    errors_option,
    json_option,
    options_set,
    read_options,
    refuse_for_texts,
    result,
    say,
    table,
    typed,
    usual_task,
)

if TYPE_CHECKING:
    from pathlib import Path

    from filbert.core.records import Example
    from filbert.engine.model import Model
    from filbert.explain.explanation import Explanation
    from filbert.tasks.question import Target
    from filbert.tasks.task import Asked

METHODS = ("integrated-gradients", "gradient-x-input", "occlusion", "sampling", "attention-rollout")
LINES = {".jsonl": "jsonl", ".ndjson": "jsonl"}
BAR = 16  # signs of the longest bar
SHOWN = 80  # words that are printed at most: the strongest


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was given on the command line, beside what `command` names."""

    pair: str | None
    target: str | None
    at: str | None
    method: str
    baseline: str
    certificate: bool
    budget: int
    resume: bool
    columns: str | None
    task: str | None
    seed: int
    errors: str
    encoding: str | None
    as_json: bool


@click.command("explain")
@click.argument("model")
@click.option("--text", "-t", help="The text to explain; of a pretrained model, with [MASK] in it.")
@click.option("--pair", "-p", help="The second text, of a model that reads pairs: the passage beside a question.")
@click.option(
    "--data", "-d", multiple=True,
    help="File or folder of texts instead: every row is explained, one JSON object a line. May be repeated.",
)  # fmt: skip
@click.option("--target", metavar="LABEL", help="What to explain: a label, an entity, an answer, an option, a word.")
@click.option("--at", metavar="START:END", help="The place of the entity, answer or [MASK] that is meant.")
@click.option("--method", type=click.Choice(METHODS), default=METHODS[0], show_default=True)
@click.option("--baseline", type=click.Choice(["mask", "pad", "zero", "delete"]), default="mask", show_default=True)
@click.option("--certificate/--no-certificate", default=True, help="Test the explanation (the default), or do not.")
@click.option("--budget", type=click.IntRange(1), default=120_000, show_default=True, help="Tokens to read at most.")
@click.option("--out", "-o", help="File to write: a page (.html) of one text, else JSONL.")
@click.option("--resume", is_flag=True, help="With --data: go on where OUT ends.")
@click.option("--columns", metavar="ROLE=NAME,…", help="Which column is what, e.g. text=review.")
@click.option("--task", help="classify or pair, for a published folder; fill for a word at a [MASK].")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random orders and words.")
@errors_option
@data_encoding_option
@json_option
@typed(Options)
def command(model: str, text: str | None, data: tuple[str, ...], out: str | None, options: Options) -> None:
    """Explain what a model says of a text by its words, and test the explanation.

    Numbers are log-odds: above 0 a word speaks for the target, below against it. MODEL is a model folder or a run.
    """
    from pathlib import Path

    from filbert import load
    from filbert.core.errors import InputError
    from filbert.engine.results import check_place, form_of

    if (not data) == (text is None):
        raise InputError("give the text once: either --text TEXT or --data FILE.")
    if data and options.pair is not None:
        raise InputError("--pair stands beside --text; a file of --data has both texts.")
    if data and out and Path(out).suffix == ".html":
        raise InputError("--out with --data is a file of JSON lines, one for each row; a page is of one --text.")
    refuse_for_texts([text] if text is not None else [], ("columns", "encoding", "errors"))
    if options.resume and (not data or not out):
        raise click.UsageError("--resume goes on with a file of --data: give its --out.")
    if out:
        form_of(out, LINES if data else {".html": "page", ".htm": "page", **LINES})
        check_place(out)
    loaded = load(model)
    for note in (*loaded.notes, *_unused(options)):
        say(f"note: {note}")
    if text is None:
        _rows(loaded, data, out, options)
        return
    started = time.perf_counter()
    request = text if options.pair is None else (text, options.pair)
    explanation = _explainer(loaded, options)(request)
    if out:
        _write(explanation, Path(out))
    if options.as_json:
        seconds = {"seconds": round(time.perf_counter() - started, 3)}
        result({**explanation.as_view(), **({"out": out} if out else {}), **seconds})
    elif not out:
        _print(explanation)
    elif explanation.certificate is not None:
        say(explanation.certificate.sentence_en)


def _unused(options: Options) -> list[str]:
    """What was given and changes nothing, since the method reads one way alone and nothing is tested."""
    method = options.method
    idle = [("budget", ("occlusion", "sampling")), ("seed", ("sampling",))]
    names = [name for name, methods in idle if method not in methods and not options.certificate]
    return [f"{option} changes nothing of {method} without a certificate." for option in options_set(names)]


def _explainer(loaded: Model, options: Options) -> Callable[[Asked], Explanation]:
    """`Model.explain` as the options say."""
    from filbert.core.errors import InputError

    target: Target = options.target
    if options.at is not None:
        match = re.fullmatch(r"(\d+):(\d+)", options.at)
        if match is None:
            raise InputError(f"--at is {options.at!r}, but must be START:END, such as 3:7.")
        start, end = int(match[1]), int(match[2])
        target = (start, end) if options.target is None else (start, end, options.target)
    return partial(
        loaded.explain, target=target, task=options.task, method=options.method, baseline=options.baseline,
        certificate=options.certificate, budget=options.budget, seed=options.seed,
    )  # fmt: skip


def _write(explanation: Explanation, path: Path) -> None:
    """The page, or the line of JSON."""
    import json

    from filbert.core.files import whole_file

    text = (
        explanation.to_html()
        if path.suffix.lower() in (".html", ".htm")
        else json.dumps(explanation.as_view(), ensure_ascii=False) + "\n"
    )
    with whole_file(path) as part:
        part.write_bytes(text.encode("utf-8", "replace"))


def _print(explanation: Explanation) -> None:
    """Each word with its number and a bar to the left or to the right, in the order of the text."""
    import numpy as np

    most = float(np.abs(explanation.scores).max())
    shown = np.sort(np.argsort(-np.abs(explanation.scores), kind="stable")[:SHOWN]).tolist()
    rows = []
    for place in shown:
        score = float(explanation.scores[place])
        length = round(BAR * abs(score) / most) if most > 0 else 0
        left, right = ("█" * length, "") if score < 0 else ("", "█" * length)
        word = re.sub(
            r"\s|[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", " ", explanation.words[place].text
        )
        rows.append((f"{score:+.3f}", f"{left:>{BAR}}│{right:<{BAR}}", word))
    value, without = f"{explanation.value:+.3f}", f"without words {explanation.baseline:+.3f}"
    click.echo(f"{explanation.target}  {value}, {without} ({explanation.method})")
    click.echo(table(rows))
    if len(shown) < len(explanation.words):
        say(f"note: the {SHOWN} strongest of {len(explanation.words):,} words; --json has all.")
    if explanation.coarse > 1:
        say(f"note: {explanation.coarse} words at a time share a number, since the text is long; raise --budget.")
    if explanation.certificate is not None:
        click.echo(explanation.certificate.sentence_en)
        if re.search("[\u4e00-\u9fff]", "".join(explanation.texts)):
            click.echo(explanation.certificate.sentence_zh)


def _rows(loaded: Model, data: tuple[str, ...], out: str | None, options: Options) -> None:
    """Every row of the files, each written as soon as it is explained; what cannot be explained says why."""
    from filbert.cli.asking import Bar, Texts
    from filbert.engine.results import Results
    from filbert.text.streams import Reading

    reading, explain = Reading(errors=options.errors), _explainer(loaded, options)
    how_read = read_options(options.columns, options.encoding, loaded.trained_on)
    kind = _kind(loaded, options.task)
    texts = Texts((), data, kind, how_read)
    started, count, failed = time.perf_counter(), 0, 0
    kept: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        results = stack.enter_context(Results(out, options.resume)) if out else None
        if results is not None and options.resume and not results.count:
            say(f"note: {out}: holds no result to go on from with --resume, so it is begun.")
        examples = texts.read(reading) if results is None else results.rest(texts.read(reading))
        bar = stack.enter_context(Bar(texts, reading, results.count if results else 0, quiet=results is None))
        for example in examples:
            row = {**texts.place(example), **_row(explain, kind, example)}
            count, failed = count + 1, failed + ("error" in row)
            if results is not None:
                results.write([row])
            elif options.as_json:
                kept.append(row)
            else:
                result(row)
            bar.add(1)
    for note in reading.report.remarks():
        say(f"note: {note}")
    seconds = round(time.perf_counter() - started, 3)
    if options.as_json:
        summary = {"texts": count, "failed": failed, "seconds": seconds}
        result({**summary, **({"out": out} if out else {"explanations": kept})})
        return
    say(f"{count:,} texts in {seconds:.1f} s" + (f"; {failed:,} of them say why they could not be." if failed else "."))


def _row(explain: Callable[[Asked], Explanation], kind: str, example: Example) -> dict[str, Any]:
    """One row as it is written: where it stood, its texts, and the explanation or why there is none."""
    from filbert.core import registry
    from filbert.core.errors import InputError

    place = {"line": example.line} if example.line else {}
    texts = dict(zip(("text", "second"), example.texts, strict=False))
    options = {"options": list(example.texts[2:])} if len(example.texts) > 2 else {}
    try:
        return {**place, **texts, **options, **explain(registry.task(kind).unasked(example)).as_view()}
    except InputError as error:
        return {**place, **texts, **options, "error": str(error)}


def _kind(loaded: Model, task: str | None) -> str:
    """What its files are read as."""
    from filbert.core.errors import InputError
    from filbert.explain.filling import FILL

    if task != FILL:
        try:
            task = loaded.task(task)
        except InputError:
            if not loaded.backbone.fills or task is not None:
                raise
            task = FILL  # a pretrained model: the texts have [MASK] in them
    return usual_task() if task == FILL else str(task)
