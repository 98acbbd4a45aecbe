"""The fields that a user set and a recipe in; sentences on those that change nothing in this run, and why, out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from filbert.core.registry import member

Why = Iterator[tuple[str, str]]  # fields, by section and name, and why they change nothing


def remarks(settings: Iterable[str], recipe: Any, training: Any, epochs: float | None = None) -> list[str]:
    """One sentence for each field of `section.field=value` that changes nothing, and for epochs beside steps.

    training: the run (train.loop). epochs: those that were asked for.
    """
    given = dict.fromkeys(word.partition("=")[0].strip() for word in settings)
    found = dict((*_of_task(recipe), *_of_learning(recipe, training), *_of_machine(recipe.machine, training)))
    if epochs is not None and "train.steps" in given:
        given, found = {"epochs": None, **given}, {**found, "epochs": "beside train.steps"}
    return [f"{name} is set, but changes nothing {found[name]}." for name in given if name in found]


def _of_task(recipe: Any) -> Why:
    module = member("tasks", recipe.task_name)
    for name, why in getattr(module, "idle", lambda _: {})(recipe.task).items():
        yield f"task.{name}", why


def _of_learning(recipe: Any, training: Any) -> Why:
    tune, distil = getattr(recipe, "tune", None), recipe.distil
    if training.course.held is None:
        for name in ("evaluate_every", "patience"):
            yield f"train.{name}", "without data to measure on"
    if not any(name.startswith("heads.") for name, _ in training.stepper.model.named_parameters()):
        yield "train.head_rate", f"since {recipe.task_name} has no head of its own"
    if tune is not None and tune.method != "lora":
        for name in ("rank", "alpha"):
            yield f"tune.{name}", f"while tune.method is {tune.method}; it is of lora"
    if tune is not None and tune.method == "frozen":
        yield "tune.layer_decay", "while tune.method is frozen: no layer learns"
    if tune is not None and not tune.kinds:
        for name in ("augment_prob", "augment_copies"):
            yield f"tune.{name}", "while tune.augment names no way to change texts"
    if distil is not None and not distil.soft:
        yield "distil.temperature", "while distil.soft is 0"
    if distil is not None and not distil.relations:
        for name in ("pairs", "relation_heads", "teacher_layer", "student_layer"):
            yield f"distil.{name}", "while distil.relations is 0"


def _of_machine(config: Any, training: Any) -> Why:
    here = training.machine
    if not here.workers:
        yield "machine.timeout_s", "while no processes build batches (machine.workers)"
    if training.ranks.world == 1:
        yield "machine.sharding", "in a run of one process"
    if config.compiled == "recorded" and not here.recorded:
        yield "machine.compiled", "here; a step is recorded on CUDA in bfloat16 alone"
