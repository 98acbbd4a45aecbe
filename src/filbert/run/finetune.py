"""Fine-tuning: labelled data and a model folder in, a run folder with a model for the task and its report out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from filbert.builtin import model as builtin
from filbert.core import keywords, registry
from filbert.core.errors import InputError, one_of
from filbert.core.files import json_text, named
from filbert.core.records import Example
from filbert.core.settings import Settings, worded
from filbert.engine.reader import DATA, TASK
from filbert.folder.folder import load, save
from filbert.forms import objects, sources, splits
from filbert.forms.sources import Columns, ReadOptions
from filbert.judge import page
from filbert.judge import report as evaluation_report
from filbert.nn.encoder import Encoder
from filbert.run import beside, cards, new_models
from filbert.run.folders import LOG, MODEL, check_home, digest, recipe_fields
from filbert.run.new_models import NewModel, Start
from filbert.run.options import RunOptions, check_flags
from filbert.run.recipe import SCORED_TOKENS, FineRecipe, Prepared, Training, fine_recipe
from filbert.run.run import Finished, Note, Plan, Run, folder_of, together
from filbert.ship import verify
from filbert.tasks.task import AnyItems, Trait
from filbert.teach.teacher import NO_TEACHER, Teacher
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer
from filbert.train import journal, loop, report, tune
from filbert.train.distributed import Ranks
from filbert.train.listeners import Listener, Listeners
from filbert.train.scores import scored_apart

if TYPE_CHECKING:
    from filbert.engine.model import Model


@dataclass(frozen=True, kw_only=True)
class Finetuned(Finished):
    """A fine-tuned model, its labels, and what the best evaluation said (empty without dev data)."""

    labels: tuple[str, ...] = ()
    watched: str = ""  # which number of `best` said so
    report: Mapping[str, Any] = field(default_factory=dict)  # what report.json holds; empty where nothing was measured


@keywords.checked(transformers_names=True)
def finetune(
    task: str,
    train: sources.Source,
    model: Path | str | Model | None = None,
    out: Path | str | None = None,
    *,
    dev: sources.Source | float | None = None,
    test: sources.Source | None = None,
    settings: Settings = (),
    epochs: float | None = None,
    seed: int | None = None,
    columns: Columns | None = None,
    encoding: str | None = None,
    arch: str | None = None,
    preset: str | None = None,
    vocab: Path | str | None = None,
    scratch: bool = False,
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    listener: Listeners = None,
) -> Finetuned:
    """Trains a model's encoder and a fresh head for a task on labelled data, and leaves a run folder.

    task: a file of tasks that can be fine-tuned, e.g. "classify". train: a file, several, or rows: a list of (text,
    label), of dicts or of Examples, a DataFrame, a Dataset, a generator of rows. model: a folder, a run, "builtin", or
    what `fb.load` gave; without one, the built-in model. settings: any field of the recipe,
    {"train.learning_rate": 1e-4} or ["train.learning_rate=1e-4"]. columns: which column is what, {"text": "review"}.

    The best state on dev data is what is kept; without dev data, the last. "10%" or 0.1 as dev keeps such a share of
    the training data back (forms.splits). test: measured once, at the end. arch: the file of models that a new model is
    of, preset its size, vocab its vocabulary; scratch: random weights for a model that is there. resume: from the last
    checkpoint in `out`, with force even if something changed. listener: a function or an object (train.listeners), or
    several, that follow every step as well.
    """
    able = registry.tasks(only_learnt=True)
    if task not in able:
        raise one_of("task", task, able)
    words = worded(settings)
    check_flags({"scratch": scratch})
    options = RunOptions(seed=seed, epochs=epochs, resume=resume, force=force, quiet=quiet, listener=listener)
    read_as = ReadOptions(columns=columns, encoding=encoding)
    folder = named(out, "out", "the path of the run folder to write")
    train = objects.kept(train, "train")
    if splits.share(test) is not None:
        raise InputError(f"test is {test!r}, but a share of the training data can be kept back as dev alone.")
    data = Data(train=train, dev=dev, test=None if test is None else objects.kept(test, "test"), read_as=read_as)
    start = _start(model, NewModel(arch=arch, preset=preset, vocab=vocab), bool(scratch), options.seed or 0)
    if Trait.WRITES in registry.task(task).traits:
        start = dataclasses.replace(start, loaded=new_models.writing(start.loaded))
    return tuned(task, data, start, folder, words, options)


def _start(model: Path | str | Model | None, new: NewModel, scratch: bool, seed: int) -> Start:
    """What the run begins with: a model that is there, a new one, or the built-in one because nothing was named."""
    if model is not None and new.named:
        raise InputError(f"{new.named[0]} is of a new model, but model names one that is there; give one of the two.")
    if new.named and not new.arch:
        raise InputError(f"{new.named[0]} is of a new model; say of which kind: give its arch as well.")
    if new.arch:
        return Start(loaded=new_models.started(new, seed), is_random=True)
    remark = "" if model is not None else "begins with the built-in model, since no model was named."
    return Start(loaded=load(folder_of(builtin.NAME if model is None else model)), is_random=scratch, remark=remark)


# The data -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Data:
    """What a run learns from and is measured on, as the user named it."""

    train: sources.Source
    dev: sources.Source | float | None = None  # or the share of the training data that is kept back
    test: sources.Source | None = None
    read_as: ReadOptions = sources.AS_EACH_SAYS


@dataclass(frozen=True, kw_only=True)
class Part:
    """Dev or test data, as they were read."""

    items: AnyItems  # as the task
    examples: Sequence[Example]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The training data, and dev data where a share of them is kept back."""

    examples: list[Example]
    dev: Any  # the rows that are kept back, or what the user named; None where there are none
    share: float | None = None
    remarks: tuple[str, ...] = ()


def _learnt(task: str, data: Data, teacher: Teacher, reading: Reading) -> Rows:
    """The training data, of which what is kept back is taken away."""
    examples = sources.read(task, data.train, data.read_as, reading)
    needs_gold = not teacher.is_there and Trait.NEEDS_NO_GOLD not in registry.task(task).traits
    sources.check_labelled(data.train, examples, needs_gold, reading)
    share = splits.share(data.dev)
    if share is None:
        dev = None if data.dev is None else objects.kept(data.dev, "dev")
        return Rows(examples=teacher.filled(examples), dev=dev)
    left, held = splits.split(examples, share)
    remark = f"dev: {len(held):,} of {len(examples):,} rows are kept back ({share:.3g} of them), chosen by their text."
    return Rows(examples=teacher.filled(left), dev=held, share=share, remarks=(remark,))


def _part(task: str, source: sources.Source, read_as: ReadOptions, prepared: Prepared, reading: Reading) -> Part:
    """Data to measure the model on."""
    examples, learnt = sources.read(task, source, read_as, reading), prepared.data
    items = registry.task(task).items(examples, learnt.labels, learnt.tokenizer, prepared.recipe.task)
    if not examples or items.has_unknown:
        why = " ".join(["", *reading.report.remarks()])
        name = sources.called(source, "the data")
        raise InputError(f"{name}: has no labels, so it cannot say how good a model is.{why}")
    return Part(items=items, examples=examples)


# The run --------------------------------------------------------------------------------------------------------------


def tuned(
    task: str,
    data: Data,
    start: Start,
    out: Path,
    settings: Sequence[str],
    options: RunOptions,
    teacher: Teacher = NO_TEACHER,
) -> Finetuned:
    """As `finetune`, from a model that is there; with a teacher it learns from that as well."""
    check_home(out)
    tokenizer, reading = Tokenizer.load(start.loaded.folder), Reading()
    learnt = _learnt(task, data, teacher, reading)
    training = Training(
        source=data.train, examples=learnt.examples, tokenizer=tokenizer, are_columns_named=bool(data.read_as.columns)
    )
    prepared = fine_recipe(task, training, start, settings, options, teacher)
    named_as: dict[str, Any] = {"dev": learnt.dev, "test": data.test}
    named_as = {name: source for name, source in named_as.items() if source is not None}
    readings = {"train": reading, **{name: Reading() for name in named_as}}
    parts = {name: _part(task, each, data.read_as, prepared, readings[name]) for name, each in named_as.items()}
    met = {name: sources.met({"train": data.train, **named_as}[name], each) for name, each in readings.items()}
    product = Tuned(prepared, out, tokenizer, {name: each for name, each in met.items() if each}, data.read_as)
    remarks = (*([start.remark] if start.remark else ()), *learnt.remarks)
    with contextlib.ExitStack() as lock:
        with together(out, prepared.recipe.machine.device, lock) as ranks:
            product.begin(start, parts.get("dev"), teacher)
            plan = product.plan(data, learnt, settings, remarks, start.loaded.notes)
            done = _run(plan, product, options, ranks, teacher)
        if not ranks.is_first:
            return done
        verify.write(out / MODEL, parts["dev"].examples if "dev" in parts else learnt.examples)
        if parts:
            done = dataclasses.replace(done, report=product.judged(parts, learnt.examples, done.best, teacher))
        user_sources = {"train": data.train, "dev": learnt.dev, "test": data.test}
        cards.of_task(out / MODEL, cards.Learnt(
            task=prepared.data, examples=learnt.examples, named_sources=user_sources,
            held={name: each.examples for name, each in parts.items()}, share=learnt.share, report=done.report,
            base=prepared.recipe.start, teacher=teacher.folder, fixed=prepared.recipe.given,
        ))  # fmt: skip
        return done


def _run(plan: Plan, product: Tuned, options: RunOptions, ranks: Ranks, teacher: Teacher) -> Finetuned:
    done = Run(plan, product, options, ranks).go(product.model, product.items, product.held, teacher)
    return Finetuned(
        folder=done.folder, module=done.module, tokenizer=done.tokenizer, outcome=done.outcome, best=done.best,
        labels=product.data.labels, watched=plan.watched,
    )  # fmt: skip


class Tuned:
    """What fine-tuning makes: a model for a task, its card and its report."""

    def __init__(
        self, prepared: Prepared, out: Path, tokenizer: Tokenizer, met: Mapping[str, list[str]], read_as: ReadOptions
    ) -> None:
        self.recipe: FineRecipe = prepared.recipe
        self.spec = registry.task(self.recipe.task_name)
        self.data, self.items, self.out, self.tokenizer = prepared.data, prepared.items, out, tokenizer
        self.met, self.read_as = met, read_as  # what reading the data met, and how they were read
        self.fits = False  # whether dev data fixed something of the task
        self.held: AnyItems | None = None
        self.model: Encoder
        self.watched = ""  # the number of an evaluation that says which state is best
        self.about: Mapping[str, str] = {}  # what is special about how it is tuned
        self.raw: list[Any] = []  # what the model says of the dev data

    def begin(self, start: Start, dev: Part | None, teacher: Teacher) -> None:
        """Makes the model as it is before the first step."""
        recipe = self.recipe
        self.held = None if dev is None else dev.items
        torch.manual_seed(recipe.train.seed)
        model = new_models.model_of(
            recipe.model_name, recipe.model, self.items.parts, self.tokenizer, len(self.data.labels)
        )
        if recipe.start:
            model.load_state_dict(_weights(start, model, teacher.is_there), strict=False)
        teacher.adapt(model, self.items)
        self.about = tune.prepare(model, recipe.tune, recipe.added)
        self.model, self.watched = model, tune.watched(recipe.tune, self.data, self.held, model)

    def plan(
        self, data: Data, learnt: Rows, settings: Sequence[str], remarks: Sequence[str], of_folder: Sequence[str]
    ) -> Plan:
        """How the model is trained."""
        of_data = [remark for some in self.met.values() for remark in some]
        notes = [*remarks, *of_folder, *of_data, *self.data.remarks(), *self.about.values()]
        read_as = {"columns": self.read_as.columns, "encoding": self.read_as.encoding}
        return Plan(
            recipe=self.recipe, out=self.out, tokenizer=self.tokenizer, identity=self._identity(),
            agreed="the data, the vocabulary or the recipe", notes=[Note(message=each) for each in notes],
            settings=settings, keeps_best=True,
            remembered=evaluation_report.remembered(sources.files(data.train), learnt.share, read_as),
            watched=self.watched,
        )  # fmt: skip

    def _identity(self) -> dict[str, str]:
        """What must not change within a run, each by its own name; what the user says of the data comes first."""
        recipe, items, names = self.recipe, self.data, list(self.data.labels)
        first = [value.contiguous().view(torch.uint8).numpy().data for value in self.model.state_dict().values()]
        read_as = {"columns": self.read_as.columns, "encoding": self.read_as.encoding}
        data = {name: json.dumps(value, ensure_ascii=False) for name, value in read_as.items()}
        data |= {"rows": f"{len(items):,}", "labels": ", ".join(names) if len(names) <= 10 else digest(names)}
        return {
            **{f"data.{name}": value for name, value in data.items()},
            "data": digest(names, *(np.ascontiguousarray(part).data for part in items.arrays())),
            "vocabulary": digest(list(self.tokenizer.vocabulary)),
            "task.name": recipe.task_name,
            **recipe_fields({"task": recipe.task, "model": recipe.model, "train": recipe.train, "tune": recipe.tune}),
            "weights to begin with": digest([], *first),
        }

    def save(self, model: Encoder, outcome: loop.Outcome, best: Mapping[str, float], listener: Listener) -> None:
        """Writes the model's folder; dev data fix what they can of the task first."""
        self.model, task, recipe = model, self.recipe.task, self.recipe
        if self.held is not None:
            self.raw = scored_apart(model, self.held, SCORED_TOKENS, recipe.machine)
            fit = self.held.calibrated(self.raw, recipe.given)
            self.fits, self.held.config, task = fit.config != task, fit.config, fit.config
            if fit.note:
                listener.event("note", fit.note)
        fields = {name: vars(task)[name] for name in self.spec.kept}
        about = {"task": recipe.task_name, **{name: value for name, value in fields.items() if value is not None}}
        problem = self.spec.problem(task)
        read_as = self.read_as.remembered()
        save(
            self.out / MODEL, model, self.tokenizer, labels=self.data.labels, card=self._card(outcome, best),
            files={TASK: json_text(about), **({DATA: json_text(read_as)} if read_as else {})},
            fields={"problem_type": problem} if problem else None,
        )  # fmt: skip

    def _card(self, outcome: loop.Outcome, best: Mapping[str, float]) -> str:
        recipe = self.recipe
        came = f"`{Path(recipe.start).resolve().name}`" if recipe.start else "random weights"
        came = "the built-in model" if builtin.is_there() and Path(recipe.start) == builtin.folder() else came
        read = "pairs of texts" if self.data.num_texts == 2 else "texts"
        how = "fine-tuned by filbert from"
        if recipe.teacher:
            how = f"distilled by filbert from `{Path(recipe.teacher).resolve().name}`, begun with"
        card = (
            f"{self.spec.card(self.data.labels)}, {how} {came} on "
            f"{len(self.data) - recipe.added:,} {read} for {outcome.state.step:,} steps (seed {recipe.train.seed})."
        )
        card = " ".join([card, *(f"{name.capitalize()}: {remark}" for name, remark in self.about.items())])
        if best and self.held is not None:
            card += f" On {len(self.held):,} others: {self.watched} {best[self.watched]:.4f}."
        return card

    def judged(
        self, parts: Mapping[str, Part], learnt: Sequence[Example], best: Mapping[str, float], teacher: Teacher
    ) -> dict[str, Any]:
        """The evaluation report, as report.json and in report.html; the model is saved by now."""
        measured = {}
        for name, part in parts.items():
            items = part.items
            items.config = self.held.config if self.held is not None else items.config
            raw = self.raw
            if name != "dev":
                raw = scored_apart(self.model, items, SCORED_TOKENS, self.recipe.machine)
            fits = name == "dev" and self.fits
            measured[name] = evaluation_report.Measured(items, part.examples, raw, fits=fits)
        learnable: Sequence[Example] | None = learnt  # what a baseline can learn from
        if teacher.is_there:
            learnable = teacher.labelled(learnt) or None
        result = evaluation_report.report(self.recipe.task_name, measured, learnable, str(self.out), reading=self.met)
        more = beside.compared(teacher, self.model, measured, result, self.recipe.machine)
        evaluation_report.write(self.out, result)
        self._page(best, [*more, *page.sections(result)])
        return result

    def report(self, best: Mapping[str, float], seconds: float) -> None:
        """The run's page, as far as it is known by now."""
        self._page(best)

    def _page(self, best: Mapping[str, float], sections: Sequence[str] = ()) -> None:
        recipe = self.recipe
        facts = {"texts": f"{len(self.data):,}", "labels": ", ".join(self.data.labels[:20]), **self.about}
        if best:
            facts |= {"best step": f"{best['step']:,}", f"best {self.watched}": f"{best[self.watched]:.4f}"}
        title = f"{self.out.name}: {recipe.task_name}"
        notes = [remark for remarks in self.met.values() for remark in remarks]
        lines = journal.entries(self.out / LOG)
        report.write(self.out, title, dataclasses.asdict(recipe), lines, facts, notes, sections)


def _weights(start: Start, model: Encoder, keeps_head: bool) -> dict[str, torch.Tensor]:
    """Those of the model that a run begins with which have a place in its own.

    What is fine-tuned gets a new head; a student may begin with its teacher's.
    """
    places = model.state_dict()
    fitting = {
        name: value
        for name, value in start.loaded.model.state_dict().items()
        if name in places and (places[name].shape == value.shape or not name.startswith("heads."))
    }
    return {name: value for name, value in fitting.items() if keeps_head or not name.startswith("heads.")}
