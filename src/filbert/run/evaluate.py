"""Evaluation: a fine-tuned folder and labelled data in, how right it is, without flattery, out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.core.errors import InputError, one_of
from filbert.core.records import Example
from filbert.core.registry import member
from filbert.core.settings import worded
from filbert.engine.reader import begun, read_as, trained_on
from filbert.folder.folder import load
from filbert.folder.manifest import model_folder
from filbert.forms import objects, sources
from filbert.judge import page
from filbert.judge import report as honest
from filbert.run.folders import RECIPE, folder_of
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer
from filbert.train import machine
from filbert.train.scores import scored

if TYPE_CHECKING:
    from filbert.engine.model import Model


# What `evaluate` takes by name, beside the fields of machine.Config.
MORE = ("train", "out", "columns", "encoding", "batch_tokens", "task", "settings")


def evaluate(model: Path | str | Model, data: sources.Source, **more: Any) -> dict[str, Any]:
    """How right a fine-tuned folder is on labelled data, without flattery: metrics at the top; see judge.report.

    more: `train` (what it learnt from; else what its run folder remembers), `out` (folder for the report), `columns`,
    `encoding` (else those of the training data, as the folder remembers them, where the file has such columns),
    `batch_tokens`, `task` (of a published folder, which does not say), `settings` (fields of the task, as
    `task.field=value`), and the fields of machine.Config. What reading the data met is told, and stands in the report.
    """
    unknown = sorted(set(more) - {*MORE, *machine.Config.__dataclass_fields__})
    if unknown:
        raise one_of("an argument of evaluate", unknown[0], MORE)
    model, data = folder_of(model), objects.kept(data)
    more = {**more, **({"train": objects.kept(more["train"], "train")} if more.get("train") is not None else {})}
    found = load(model)
    for note in found.notes:
        sys.stderr.write(f"note: {note}\n")
    name, reading = read_as(found, more.get("task"), worded(more.get("settings") or ()))
    size, more = more.get("batch_tokens") or 16_384, {**more, "trained_on": trained_on(found.folder)}
    has_train = not (more.get("train") is None or (isinstance(more["train"], list | tuple) and not more["train"]))
    readings = {"data": Reading(), **({"train": Reading()} if has_train else {})}
    asked = sources.read(name, data, more, readings["data"])
    learnt = sources.read(name, more["train"], more, readings["train"]) if has_train else _recalled(name, model)
    met = {part: sources.tell({"data": data, **more}[part], each) for part, each in readings.items()}
    wishes = {name: value for name, value in more.items() if name in machine.Config.__dataclass_fields__}
    how = Tokenizer.load(found.folder), lambda task: scored(found.model, task, size, **wishes)
    labels, reading = begun(found.labels, (name, reading), [example.texts[0] for example in asked], how)
    task = member("tasks", name).Task(asked, labels, how[0], reading)
    if not len(task) or task.has_unknown:
        why = " ".join(["", *readings["data"].report.remarks()])
        name = sources.called(data, "the data")
        raise InputError(f"{name}: has no labels, so there is nothing to compare with.{why}")
    measured = {"data": honest.Measured(task, asked, how[1](task))}
    read = {part: sentences for part, sentences in met.items() if sentences}
    told = honest.report(name, measured, learnt, str(model), judges_train=False, reading=read)
    if more.get("out"):
        honest.write(more["out"], told)
        page.write(more["out"], f"{model}: {name}", told)
    return {**told["evaluations"]["data"], **({"reading": read} if read else {})}


def _recalled(task: str, model: Path | str) -> list[Example] | None:
    """The training data that the model's run folder remembers, if they are still there."""
    return honest.recalled(model_folder(model).parent / RECIPE, lambda files, **how: sources.read(task, files, how))
