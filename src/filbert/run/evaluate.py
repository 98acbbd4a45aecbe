"""Evaluation: a fine-tuned folder and labelled data in; metrics, baselines, calibration and leaks out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.core import keywords
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.core.settings import Settings, worded
from filbert.engine.reader import bound, trained_on
from filbert.folder.folder import load
from filbert.folder.manifest import model_folder
from filbert.forms import objects, sources
from filbert.forms.sources import Columns, ReadOptions
from filbert.judge import page
from filbert.judge import report as evaluation_report
from filbert.run.folders import RECIPE
from filbert.run.recipe import SCORED_TOKENS
from filbert.run.run import folder_of
from filbert.tasks.task import AnyItems
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer
from filbert.train import machine
from filbert.train.scores import scored

if TYPE_CHECKING:
    from filbert.engine.model import Model


@keywords.checked("an argument of evaluate")
def evaluate(
    model: Path | str | Model,
    data: sources.Source,
    *,
    train: sources.Source | None = None,
    out: Path | str | None = None,
    columns: Columns | None = None,
    encoding: str | None = None,
    batch_tokens: int | None = None,
    task: str | None = None,
    settings: Settings = (),
    device: str = "auto",
    precision: str = "auto",
    threads: int = 0,
) -> dict[str, Any]:
    """The evaluation report of a fine-tuned folder on labelled data: metrics at the top; see judge.report.

    train: what it learnt from; else what its run folder remembers. out: folder for the report. columns, encoding: else
    those of the training data, as the folder remembers them, where the file has such columns. task: of a published
    folder, which does not say. settings: fields of the task, as `task.field=value`. What reading the data met is told,
    and stands in the report.
    """
    folder, data = folder_of(model), objects.kept(data)
    train = objects.kept(train, "train") if train is not None else None
    loaded = load(folder)
    for note in loaded.notes:
        sys.stderr.write(f"note: {note}\n")
    reader = bound(loaded, Tokenizer.load(loaded.folder), task, worded(settings or ()))
    name = reader.spec.name
    options = ReadOptions(columns=columns, encoding=encoding, trained_on=trained_on(loaded.folder))
    sources_of = {"data": data}
    if train is not None and not (isinstance(train, list | tuple) and not train):
        sources_of["train"] = train
    readings = {part: Reading() for part in sources_of}
    read = {part: sources.read(name, source, options, readings[part]) for part, source in sources_of.items()}
    learnt = read["train"] if "train" in read else _recalled(name, folder)
    met = {part: sources.tell(source, readings[part]) for part, source in sources_of.items()}
    met = {part: sentences for part, sentences in met.items() if sentences}
    here, size = machine.Config(device=device, precision=precision, threads=threads), batch_tokens or SCORED_TOKENS

    def answers(items: AnyItems) -> list[Any]:
        return scored(loaded.model, items, size, here)

    items = reader.primed([example.texts[0] for example in read["data"]], answers).items(read["data"])
    if not len(items) or items.has_unknown:
        why = " ".join(["", *readings["data"].report.remarks()])
        called = sources.called(data, "the data")
        raise InputError(f"{called}: has no labels, so there is nothing to compare with.{why}")
    measured = {"data": evaluation_report.Measured(items, read["data"], answers(items))}
    report = evaluation_report.report(name, measured, learnt, str(folder), judges_train=False, reading=met)
    if out:
        evaluation_report.write(out, report)
        page.write(out, f"{folder}: {name}", report)
    return {**report["evaluations"]["data"], **({"reading": met} if met else {})}


def _recalled(task: str, model: Path | str) -> list[Example] | None:
    """The training data that the model's run folder remembers, if they are still there."""

    def read(files: list[Path], columns: Columns | None, encoding: str | None) -> list[Example]:
        return sources.read(task, files, ReadOptions(columns=columns, encoding=encoding))

    return evaluation_report.recalled(model_folder(model).parent / RECIPE, read)
