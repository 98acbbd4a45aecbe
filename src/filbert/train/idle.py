"""The fields that a user set and a recipe in; sentences on those that change nothing in this run, and why, out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from filbert.train import machine, tune
from filbert.train.loop import Training

Why = Iterator[tuple[str, str]]  # fields, by section and name, and why they change nothing


class Distils(Protocol):
    """What a student learns from its teacher (teach.teacher)."""

    @property
    def soft(self) -> float:
        """Weight of what the teacher's head says."""
        ...

    @property
    def relations(self) -> float:
        """Weight of how tokens relate in one layer."""
        ...


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What of a recipe decides which fields change something."""

    task_name: str
    of_task: Mapping[str, str]  # fields of the task that change nothing, and why
    machine: machine.Config
    tune: tune.Config | None = None
    distil: Distils | None = None


def remarks(settings: Iterable[str], recipe: Chosen, training: Training, epochs: float | None = None) -> list[str]:
    """One sentence for each field of `section.field=value` that changes nothing, and for epochs beside steps.

    training: the run. epochs: those that were asked for.
    """
    fields = dict.fromkeys(word.partition("=")[0].strip() for word in settings)
    idle = {f"task.{name}": why for name, why in recipe.of_task.items()}
    idle |= dict((*_of_learning(recipe, training), *_of_machine(recipe.machine, training)))
    if epochs is not None and "train.steps" in fields:
        fields, idle = {"epochs": None, **fields}, {**idle, "epochs": "beside train.steps"}
    return [f"{name} is set, but changes nothing {idle[name]}." for name in fields if name in idle]


def _of_learning(recipe: Chosen, training: Training) -> Why:
    tune, distil = recipe.tune, recipe.distil
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


def _of_machine(config: machine.Config, training: Training) -> Why:
    here = training.machine
    if not here.workers:
        yield "machine.timeout_s", "while no processes build batches (machine.workers)"
    if training.ranks.world == 1:
        yield "machine.sharding", "in a run of one process"
    if config.compiled == "recorded" and not here.recorded:
        yield "machine.compiled", "here; a step is recorded on CUDA in bfloat16 alone"
