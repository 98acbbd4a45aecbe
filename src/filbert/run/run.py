"""A model, a task's items and a recipe in; a trained model in a run folder, with its log and checkpoints, out.

What every run does, whatever it is for: ranks, the lock, resuming, what may not change meanwhile, the journal, the
checkpoints, the loop, the best state. What it is for says its `Product`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from filbert.clock import budget
from filbert.core import registry
from filbert.core.files import json_text, named, write_text
from filbert.core.version import VERSION
from filbert.nn import lora
from filbert.nn.encoder import Encoder
from filbert.run.folders import CHECKPOINTS, MODEL, RECIPE, resumed_at, unbegun
from filbert.run.options import RunOptions
from filbert.run.recipe import FineRecipe, Recipe
from filbert.tasks.task import AnyTask
from filbert.teach.teacher import NO_TEACHER, Teacher
from filbert.text.tokenizer import Tokenizer
from filbert.train import idle, journal, listeners, loop, tune
from filbert.train.checkpoint import Store, locked
from filbert.train.distributed import Ranks, is_restarted, joined
from filbert.train.listeners import Listener, Silent

if TYPE_CHECKING:
    from filbert.engine.model import Model


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that ended: its folder, what it trained, and how it went."""

    folder: Path
    module: Encoder
    tokenizer: Tokenizer
    outcome: loop.Outcome
    best: Mapping[str, float] = field(default_factory=dict)  # the best evaluation, where that state was kept

    @cached_property
    def model(self) -> Model:
        """What it left, as `fb.load` gives it: `predict`, `embed`, `explain`, …"""
        from filbert.engine.model import load

        return load(self.folder / MODEL)


def folder_of(model: object) -> Path | str:
    """Where a model lies that was named by its folder, or that `fb.load` or a run gave."""
    from filbert.engine.model import Model

    if isinstance(model, Model | Finished):
        return model.folder
    return named(model, "the model", 'a folder, a run, what `load` gave, or "builtin"')


@dataclass(frozen=True, kw_only=True)
class Note:
    """An event that a run begins with."""

    message: str
    kind: str = "note"
    fields: Mapping[str, Any] = field(default_factory=dict)


class Product(Protocol):
    """What a kind of run (pretraining, fine-tuning) makes of a trained model."""

    def save(self, model: Encoder, outcome: loop.Outcome, best: Mapping[str, float], listener: Listener) -> None:
        """Writes the model's folder."""
        ...

    def report(self, best: Mapping[str, float], seconds: float) -> None:
        """Writes the run's page; also of a run that was cut short."""
        ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a kind of run decides: recipe, folder, identity, notes, the watched metric."""

    recipe: Recipe | FineRecipe
    out: Path
    tokenizer: Tokenizer
    identity: Mapping[str, str]  # what must not change within the run, each by its own name
    agreed: str  # what all ranks must have alike, in words
    notes: Sequence[Note] = ()
    settings: Sequence[str] = ()  # the words that the user set fields by
    remembered: Mapping[str, Any] = field(default_factory=dict)  # beside the recipe, in recipe.json
    watched: str = "loss"  # the number of an evaluation that says which is best
    keeps_best: bool = False  # else the last state is what the run leaves
    flops_per_token: float = 0.0  # of a step, where that is known, and of the machine
    peak_flops: float = 0.0
    clock: budget.Clock | None = None  # of a run by the clock


@contextlib.contextmanager
def together(out: Path, device: str, lock: contextlib.ExitStack) -> Iterator[Ranks]:
    """The ranks of a run, the first of which has locked its folder until `lock` is closed."""
    with joined(device) as ranks:
        if ranks.is_first:
            lock.enter_context(locked(out))
        ranks.wait()
        yield ranks


def _chosen(recipe: Recipe | FineRecipe) -> idle.Chosen:
    """What of a recipe decides which of its fields change something."""
    name, tuning = recipe.task_name, None
    if isinstance(recipe, FineRecipe):
        of_task, tuning = registry.task(name).idle(recipe.task), recipe.tune
    else:
        of_task = registry.corpus_task(name).idle(recipe.task)
    return idle.Chosen(task_name=name, of_task=of_task, machine=recipe.machine, tune=tuning, distil=recipe.distil)


class Run:
    """A run, from its first event to the saved folder."""

    def __init__(self, plan: Plan, product: Product, options: RunOptions, ranks: Ranks) -> None:
        self.plan, self.product, self.options, self.ranks = plan, product, options, ranks
        self.resume = bool(options.resume) or is_restarted()
        folder, keep = plan.out / CHECKPOINTS, plan.recipe.machine.keep
        self.store = Store(folder, keep) if plan.clock is None else budget.TimedStore(folder, keep, plan.clock.acts)

    def go(self, model: Encoder, items: AnyTask, held: AnyTask | None, teacher: Teacher = NO_TEACHER) -> Finished:
        """Trains the model on the items, measures it on the held ones, and leaves the run folder."""
        plan, ranks = self.plan, self.ranks
        identity = {**plan.identity, **teacher.identity(items)}
        ranks.agree(plan.agreed, json.dumps(identity))
        resumed = self._resumed(identity)
        log = self._journal(resumed)
        others = self.options.listeners if ranks.is_first else ()
        listener = listeners.Several(log, *others) if others else log
        if ranks.is_first:
            kept = {**dataclasses.asdict(plan.recipe), **plan.remembered, "filbert": VERSION}
            write_text(plan.out / RECIPE, json_text(kept))
        best: dict[str, float] = {}
        started = time.time()
        try:
            self._announce(listener, resumed)
            training = loop.Training(model, items, plan.recipe.train, self._course(held, identity, listener))
            for remark in idle.remarks(plan.settings, _chosen(plan.recipe), training, self.options.epochs):
                listener.event("note", remark)
            outcome = training.run()
            if ranks.is_first:
                model = training.stepper.model.cpu()
                best = self._best_restored(model, held, outcome)
                lora.merge(model)
                teacher.release(model)
                self.product.save(model, outcome, best, listener)
            ranks.wait()
        finally:
            if isinstance(log, journal.Journal):
                log.close()
                self.product.report(best, time.time() - started)
        return Finished(folder=plan.out, module=model, tokenizer=plan.tokenizer, outcome=outcome, best=best)

    def _resumed(self, identity: Mapping[str, str]) -> int:
        """The step to go on from, as the first rank knows it."""
        if not self.ranks.is_first:
            return 0
        return resumed_at(self.store, self.plan.out, self.resume, {} if self.options.force else identity)

    def _journal(self, resumed: int) -> journal.Journal | Silent:
        if not self.ranks.is_first:
            return Silent()
        plan = self.plan
        return journal.Journal(
            plan.out, steps=plan.recipe.train.steps if plan.clock is None else 0, resumed=resumed,
            quiet=bool(self.options.quiet), flops_per_token=plan.flops_per_token, peak_flops=plan.peak_flops,
        )  # fmt: skip

    def _announce(self, listener: Listener, resumed: int) -> None:
        """Passes the notes to the listener before the first step."""
        for note in self.plan.notes:
            listener.event(note.kind, note.message, **note.fields)
        if self.resume and not resumed:
            listener.event("note", unbegun(self.plan.out))

    def _course(self, held: AnyTask | None, identity: Mapping[str, str], listener: Listener) -> loop.Course:
        plan, clock = self.plan, self.plan.clock
        return loop.Course(
            held=held, watched=plan.watched, machine=plan.recipe.machine, ranks=self.ranks, store=self.store,
            resume=self.resume, identity=identity, force=bool(self.options.force),
            listener=listener if clock is None else budget.Timing(listener, clock), clock=clock,
            tuning=plan.recipe.tune if isinstance(plan.recipe, FineRecipe) else tune.Config(),
        )  # fmt: skip

    def _best_restored(self, model: Encoder, held: AnyTask | None, outcome: loop.Outcome) -> dict[str, float]:
        """Loads the best weights into the model, where the run keeps those; returns their evaluation."""
        if held is None or not self.plan.keeps_best:
            return {}
        checkpoint = self.store.best()
        if checkpoint is None:
            return dict(outcome.held)
        weights = {n.removeprefix("model/"): t for n, t in checkpoint.tensors().items() if n.startswith("model/")}
        model.load_state_dict(weights)
        return dict(checkpoint.state["held"])
