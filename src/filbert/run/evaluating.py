"""Evaluation: a fine-tuned folder and labelled data in, how right it is, without flattery, out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filbert.artefact.folder import load
from filbert.artefact.manifest import model_folder
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.core.registry import member
from filbert.data import sources
from filbert.infer import honest, page
from filbert.infer.predict import begun, read_as
from filbert.run.folders import RECIPE
from filbert.text.tokenizer import Tokenizer
from filbert.train import machine
from filbert.train.scores import scored


def evaluate(model: Path | str, data: sources.Source, **more: Any) -> dict[str, Any]:
    """How right a fine-tuned folder is on labelled data, without flattery: metrics at the top; see infer.honest.

    more: `train` (what it learnt from; else what its run folder remembers), `out` (folder for the report), `columns`,
    `encoding`, `batch_tokens`, `task` (of a published folder, which does not say), `settings` (fields of the task, as
    `task.field=value`), and the fields of machine.Config.
    """
    found = load(model)
    name, reading = read_as(found, more.get("task"), more.get("settings") or ())
    asked, size = sources.read(name, data, more), more.get("batch_tokens") or 16_384
    wishes = {name: value for name, value in more.items() if name in machine.Config.__dataclass_fields__}
    how = Tokenizer.load(found.folder), lambda task: scored(found.model, task, size, **wishes)
    labels, reading = begun(found.labels, (name, reading), [example.texts[0] for example in asked], how)
    task = member("tasks", name).Task(asked, labels, how[0], reading)
    if not len(task) or task.has_unknown:
        raise InputError(f"{data}: has no labels, so there is nothing to compare with.")
    learnt = sources.read(name, more["train"], more) if more.get("train") else _recalled(name, model)
    measured = {"data": honest.Measured(task, asked, how[1](task))}
    told = honest.report(name, measured, learnt, str(model), judges_train=False)
    if more.get("out"):
        honest.write(more["out"], told)
        page.write(more["out"], f"{model}: {name}", told)
    return told["evaluations"]["data"]  # type: ignore[no-any-return]


def _recalled(task: str, model: Path | str) -> list[Example] | None:
    """The training data that the model's run folder remembers, if they are still there."""
    return honest.recalled(model_folder(model).parent / RECIPE, lambda files, **how: sources.read(task, files, how))
