"""Fine-tuning: labelled data and a model folder in, a run folder with a model for the task and its report out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from filbert.builtin import model as builtin
from filbert.core import names
from filbert.core.errors import InputError, did_you_mean, one_of
from filbert.core.files import json_text, named, write_text
from filbert.core.records import Example
from filbert.core.registry import member, naming
from filbert.core.settings import parsed, worded
from filbert.core.version import VERSION
from filbert.engine.reader import DATA, TASK, begun
from filbert.folder import sentence_transformers
from filbert.folder.folder import Loaded, load, save
from filbert.forms import objects, sources, splits
from filbert.forms.sources import ReadOptions
from filbert.judge import page
from filbert.judge import report as honest
from filbert.nn import lora
from filbert.pack.batches import batches
from filbert.run import cards, new_models
from filbert.run.folders import (
    CHECKPOINTS,
    LOG,
    MODEL,
    RECIPE,
    Finished,
    check_home,
    digest,
    folder_of,
    recipe_fields,
    resumed_at,
    unbegun,
)
from filbert.ship import verify
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer
from filbert.train import idle, journal, listeners, loop, machine, report, tune
from filbert.train.checkpoint import Store, locked
from filbert.train.distributed import Ranks, is_restarted, joined
from filbert.train.scores import scored, scored_apart

if TYPE_CHECKING:
    from filbert.engine.model import Model

RATES = ((256, 1e-3), (512, 3e-4), (768, 1e-4))  # of models narrower than that; small ones need, and bear, larger steps
WIDE_RATE = 5e-5
# A model that was pretrained without dropout does not bear it later: hidden words take its place. And its vectors lie
# so close together that a fresh head wants far larger steps than they bear (experiments/2026-11-16-second-model.md).
BARE_RATE, BARE_HEAD, BARE_MASKS = 1e-4, 50.0, 0.15
# It learns more from Muon, at five times the rate (experiments/2026-11-16-defaults.md). Muon's products cost the same
# whatever a step reads: on a CPU as much as reading 1,600 tokens, so a step must have some more.
MUON_TIMES, MUON_HEAD, MUON_TOKENS = 5.0, 40.0, 4_096
# A student that was made of such a model has its teacher's head, and more to mend: larger steps for all, and smaller
# ones for the head (4 of 8 layers with a third of each feed-forward, 1,500 headlines, 120 steps, one seed: 76.7 % of
# 1,000 others right instead of 75.3 %; the teacher 77.2 %).
STUDENT_TIMES, STUDENT_HEAD = 5.0, 5.0
PER_EPOCH, FINE_TOKENS = 50, (512, 8_192)  # steps that an epoch has where they are within these tokens
EPOCHS, FEWEST, MOST_EPOCHS = 3, 240, 20  # passes over the data; more of them where there would be fewer steps …
SEEN, MOST_SEEN = 30_000, 10  # … or fewer examples to see, up to that many passes
# What else `finetune` takes by name; anything else is a misspelling, which would pass unheard.
MORE = ("test", "epochs", "seed", "columns", "encoding", "scratch", "force", "quiet", "told", "arch", "preset", "vocab")
WRITTEN, MOST_WRITTEN = 1_000_000, 40  # pairs that a new decoder sees, up to that many passes
WRITES_ON = 5e-4  # rate of a writer whose encoder is trained: 1e-3 spoils it (experiments/2026-11-16-writing.md)


@dataclass(frozen=True, kw_only=True)
class FineRecipe:
    """Everything that fixes a fine-tuning run but its data."""

    start: str  # the folder whose weights it begins with; "" where they are random
    model: Any
    task: Any
    train: loop.Config
    machine: machine.Config
    tune: tune.Config = field(default_factory=tune.Config)
    epochs: float = EPOCHS  # passes over the data; train.steps follows from it unless it is set
    model_name: str = "bert"
    task_name: str = "classify"
    given: tuple[str, ...] = ()  # fields of the task that the user set: dev data do not change them
    added: int = 0  # changed copies of texts that are learnt from as well (tune.augment)
    teacher: str = ""  # the folder that it is distilled from (run.distill), and how
    distil: Any = None


@dataclass(frozen=True)
class Finetuned(Finished):
    """A fine-tuned model, its labels, and what the best evaluation said (empty without dev data)."""

    labels: tuple[str, ...]
    best: Mapping[str, float]
    watched: str  # which number of `best` said so
    report: Mapping[str, Any] = field(default_factory=dict)  # what report.json holds; empty where nothing was measured


def finetune(
    task: str,
    train: sources.Source,
    model: Path | str | Model | None = None,
    out: Path | str | None = None,
    *,
    dev: sources.Source | float | None = None,
    settings: Sequence[str] | Mapping[str, Any] = (),
    resume: bool = False,
    **more: Any,
) -> Finetuned:
    """Trains a model's encoder and a fresh head for a task on labelled data, and leaves a run folder.

    task: a file of tasks that can be fine-tuned, e.g. "classify". train: a file, several, or rows: a list of (text,
    label), of dicts or of Examples, a DataFrame, a Dataset, a generator of rows. model: a folder, a run, "builtin", or
    what `fb.load` gave; without one, the built-in model. settings: any field of the recipe,
    {"train.learning_rate": 1e-4} or ["train.learning_rate=1e-4"].

    The best state on dev data is what is kept; without dev data, the last. "10%" or 0.1 as dev keeps such a share of
    the training data back (forms.splits). more: `test` (measured once, at the end), `epochs`, `seed`, `columns`,
    `encoding`, `scratch` (random weights), `force`, `quiet`, and `told`, a function or a listener (train.listeners), or
    several, that hear of every step as well. `arch` names the file of models that a new model is of, `preset` its size,
    `vocab` its vocabulary.
    """
    known = naming("tasks", "KEPT")
    if task not in known:
        raise one_of("task", task, known)
    settings, more = _renamed(settings, more)
    more = checked({**more, "resume": resume})
    resume = more.pop("resume")
    out = named(out, "out", "the path of the run folder to write")
    train = objects.kept(train, "train")
    if splits.share(more.get("test")) is not None:
        raise InputError(f"test is {more['test']!r}, but a share of the training data can be kept back as dev alone.")
    if more.get("test") is not None:
        more["test"] = objects.kept(more["test"], "test")
    listeners.several(more.get("told"))  # refused now rather than when all is read
    started, remark = _started(model, more)
    more = {**more, "scratch": (model is None and bool(more.get("arch"))) or more.get("scratch"), "remark": remark}
    if member("tasks", task).HEAD == "writer":
        started = new_models.writing(started)
    return tuned(task, train, started, out, dev=dev, settings=settings, resume=resume, **more)


def checked(more: Mapping[str, Any]) -> dict[str, Any]:
    """What else is named, each of the type that it must have: a word would pass for true, and a share for a seed."""
    found = dict(more)
    for name in ("scratch", "force", "quiet", "resume"):
        if not isinstance(found.get(name), bool | None):
            raise InputError(f"{name} is {found[name]!r:.60}, but must be True or False.")
    for name, kind, wanted in (("seed", int | np.integer, "a whole number"), ("epochs", Real, "a number")):
        value = found.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise InputError(f"{name} is {value!r:.60}, but must be {wanted}.")
    if found.get("seed") is not None:
        found["seed"] = int(found["seed"])
    ReadOptions.given(found)
    return found


def _renamed(
    settings: Sequence[str] | Mapping[str, Any], more: Mapping[str, Any]
) -> tuple[Sequence[str], dict[str, Any]]:
    """The settings as words, and what else is named; names of other libraries become settings, others are refused."""
    words, found = worded(settings), dict(more)
    for name in sorted(set(more) - set(MORE)):
        if name in names.SETTINGS:
            if any(word.partition("=")[0].strip() == names.SETTINGS[name] for word in words):
                raise InputError(
                    f"finetune has {name} and the setting {names.SETTINGS[name]}, which are one; give one."
                )
            words.append(f"{names.SETTINGS[name]}={found.pop(name)}")
        elif names.ARGUMENTS.get(name) in MORE and names.ARGUMENTS[name] not in more:
            found[names.ARGUMENTS[name]] = found.pop(name)
        else:
            called = f"it is called {names.ARGUMENTS[name]}." if name in names.ARGUMENTS else names.ADVICE.get(name)
            hint = called or f"see settings.{did_you_mean(name, MORE)}"
            raise InputError(f"finetune has no argument {name!r}; {hint}")
    return words, found


def _started(model: Path | str | Model | None, more: Mapping[str, Any]) -> tuple[Loaded, str]:
    """What the run begins with, and a sentence where that is the built-in model because nothing was named."""
    new = [name for name in ("arch", "preset", "vocab") if more.get(name)]
    if model is not None and new:
        raise InputError(f"{new[0]} is of a new model, but model names one that is there; give one of the two.")
    if model is None and new and "arch" not in new:
        raise InputError(f"{new[0]} is of a new model; say of which kind: give its arch as well.")
    if new:
        return new_models.started(more["arch"], more.get("preset"), more.get("vocab"), more.get("seed") or 0), ""
    remark = "" if model is not None else "begins with the built-in model, since no model was named."
    return load(folder_of(builtin.NAME if model is None else model)), remark


def tuned(
    task: str,
    train: sources.Source,
    started: Loaded,
    out: Path | str,
    *,
    dev: sources.Source | float | None,
    settings: Sequence[str],
    resume: bool,
    **more: Any,
) -> Finetuned:
    """As `finetune`, from a model that is there; more: also `lesson`, by which it learns from a teacher as well."""
    check_home(out := Path(out))
    tokenizer, lesson = Tokenizer.load(started.folder), more.get("lesson")
    readings = {"train": Reading()}
    learnt = sources.read(task, train, more, readings["train"])
    needs_gold = lesson is None and getattr(member("tasks", task), "NEEDS_GOLD", True)
    sources.check_labelled(train, learnt, needs_gold, readings["train"])
    part, remarks = splits.share(dev), [more["remark"]] if more.get("remark") else []
    learnt, dev = _kept_back(learnt, dev, part, remarks)
    learnt = lesson.filled(learnt) if lesson is not None else learnt
    recipe, items = _fine_recipe(task, (train, learnt, tokenizer), started, settings, more)
    places: dict[str, Any] = {"dev": dev, "test": more.get("test")}
    readings |= {name: Reading() for name, own in places.items() if own is not None}
    asked = {
        name: _asked(task, own, (items, recipe.task), more, readings[name])
        for name, own in places.items()
        if own is not None
    }
    held = asked["dev"][0] if dev is not None else None
    named_as = {"train": train, **{name: own for name, own in places.items() if own is not None}}
    met = {name: sources.met(named_as[name], reading) for name, reading in readings.items()}
    met = {name: sentences for name, sentences in met.items() if sentences}
    more = {
        **more,
        "remembered": honest.remembered(sources.files(train), part, more),
        "met": met,
        "remarks": remarks,
        "settings": settings,
    }
    with contextlib.ExitStack() as stack:
        with joined(recipe.machine.device) as ranks:
            if ranks.is_first:
                stack.enter_context(locked(out))
            ranks.wait()
            fine = _Fine(recipe, started, tokenizer, (items, held), out, ranks)
            done = fine.run(resume or is_restarted(), more)
        if not ranks.is_first:
            return done
        verify.write(out / MODEL, asked["dev"][1] if "dev" in asked else learnt)
        if asked:
            done = dataclasses.replace(done, report=fine.judged(asked, learnt, done.best, lesson))
        own = {name: each for name, (_, each) in asked.items()}
        cards.of_task(out / MODEL, cards.Learnt(
            task=items, examples=learnt, given={"train": train, **places}, asked=own, share=part, report=done.report,
            base=recipe.start, teacher=recipe.teacher, fixed=recipe.given,
        ))  # fmt: skip
        return done


def _kept_back(
    learnt: list[Example], dev: sources.Source | float | None, part: float | None, remarks: list[str]
) -> tuple[list[Example], Any]:
    """What is learnt from, and the dev data: those that were given, or a share of the rows, of which a remark tells."""
    if part is None:
        return learnt, None if dev is None else objects.kept(dev, "dev")
    left, held = splits.split(learnt, part)
    remarks.append(
        f"dev: {len(held):,} of {len(learnt):,} rows are kept back ({part:.3g} of them), chosen by their text."
    )
    return left, held


class _Fine:
    """A fine-tuning run, from its first weights to the saved folder."""

    def __init__(
        self, recipe: FineRecipe, started: Loaded, tokenizer: Tokenizer, tasks: tuple[Any, Any], out: Path, ranks: Ranks
    ) -> None:
        self.recipe, self.tokenizer, self.out, self.ranks = recipe, tokenizer, out, ranks
        self.task, self.held = tasks
        self.fits = False  # whether dev data fixed something of the task
        self.store = Store(out / CHECKPOINTS, recipe.machine.keep)
        torch.manual_seed(recipe.train.seed)
        name, labels = recipe.model_name, len(self.task.labels)
        self.model = new_models.model_of(name, recipe.model, self.task.parts, tokenizer, labels)
        if recipe.start:
            own = self.model.state_dict()
            kept = {name: value for name, value in started.model.state_dict().items() if _is_kept(name, value, own)}
            if not recipe.teacher:  # what is fine-tuned gets a new head; a student may begin with its teacher's
                kept = {name: value for name, value in kept.items() if not name.startswith("heads.")}
            self.model.load_state_dict(kept, strict=False)
        if recipe.teacher:
            self.task.adapt(self.model)
        self.notes = started.notes  # of the folder that it begins with
        self.tuned = tune.prepare(self.model, recipe.tune, recipe.added)
        self.watched = tune.watched(recipe.tune, self.task, self.held, self.model)

    def run(self, resume: bool, more: Mapping[str, Any]) -> Finetuned:
        recipe, out, ranks = self.recipe, self.out, self.ranks
        identity, force = self._identity(more), bool(more.get("force"))
        ranks.agree("the data, the vocabulary or the recipe", json.dumps(identity))
        resumed = resumed_at(self.store, out, resume, {} if force else identity) if ranks.is_first else 0
        told = self._journal(resumed, bool(more.get("quiet")))
        heard = listeners.Several(told, *(listeners.several(more.get("told")) if ranks.is_first else ()))
        if ranks.is_first:
            kept = {**dataclasses.asdict(recipe), **more["remembered"], "filbert": VERSION}
            write_text(out / RECIPE, json_text(kept))
        course = loop.Course(
            held=self.held, watched=self.watched, machine=recipe.machine, ranks=ranks, store=self.store,
            resume=resume, identity=identity, force=force, told=heard, tuning=recipe.tune,
        )  # fmt: skip
        self.read = more["met"]
        of_data = (remark for remarks in self.read.values() for remark in remarks)
        of_task: list[str] = getattr(self.task, "remarks", list)()
        for remark in (*more["remarks"], *self.notes, *of_data, *of_task, *self.tuned.values()):
            heard.event("note", remark)
        if resume and not resumed:
            heard.event("note", unbegun(out))
        best: dict[str, float] = {}
        try:
            training = loop.Training(self.model, self.task, recipe.train, course)
            for remark in idle.remarks(more["settings"], recipe, training, more.get("epochs")):
                heard.event("note", remark)
            outcome = training.run()
            if ranks.is_first:
                self.model = training.stepper.model.cpu()
                best = self._best_restored(outcome)
                lora.merge(self.model)
                if recipe.teacher:
                    self.task.release(self.model)
                given, before = sources.ReadOptions.given(more), more.get("trained_on")
                self._save(outcome, best, before if before and not given.told() else given, heard)
            ranks.wait()
        finally:
            if isinstance(told, journal.Journal):
                told.close()
                self._report(best)
        return Finetuned(out, self.model, self.tokenizer, outcome, self.task.labels, best, self.watched)

    def _best_restored(self, outcome: loop.Outcome) -> dict[str, float]:
        """Puts the best weights into the model; what their evaluation said."""
        if self.held is None:
            return {}
        found = self.store.best()
        if found is None:
            return dict(outcome.held)
        weights = {n.removeprefix("model/"): t for n, t in found.tensors().items() if n.startswith("model/")}
        self.model.load_state_dict(weights)
        return dict(found.state["held"])

    def _save(
        self, outcome: loop.Outcome, best: Mapping[str, float], options: sources.ReadOptions, told: loop.Told
    ) -> None:
        task, recipe = self.recipe.task, self.recipe
        if self.held is not None and hasattr(self.held, "calibrated"):
            self.raw = scored_apart(self.model, self.held, 16_384, recipe.machine)
            fit = self.held.calibrated(self.raw, recipe.given)
            self.fits, self.held.config, task = fit.config != task, fit.config, fit.config
            if fit.note:
                told.event("note", fit.note)
        module = member("tasks", recipe.task_name)
        said = {name: getattr(task, name) for name in module.KEPT}
        about = {"task": recipe.task_name, **{name: value for name, value in said.items() if value is not None}}
        came = f"`{Path(recipe.start).resolve().name}`" if recipe.start else "random weights"
        came = "the built-in model" if builtin.is_there() and Path(recipe.start) == builtin.folder() else came
        read = "pairs of texts" if self.task.num_texts == 2 else "texts"
        num_read = len(self.task) - recipe.added
        how = "fine-tuned by filbert from"
        if recipe.teacher:
            how = f"distilled by filbert from `{Path(recipe.teacher).resolve().name}`, begun with"
        card = (
            f"{module.called(self.task.labels)}, {how} {came} on {num_read:,} {read} for "
            f"{outcome.state.step:,} steps (seed {recipe.train.seed})."
        )
        card = " ".join([card, *(f"{name.capitalize()}: {told}" for name, told in self.tuned.items())])
        if best:
            card += f" On {len(self.held):,} others: {self.watched} {best[self.watched]:.4f}."
        problem = module.problem(task) if hasattr(module, "problem") else None
        save(
            self.out / MODEL, self.model, self.tokenizer, labels=self.task.labels, card=card,
            files={TASK: json_text(about), **({DATA: json_text(options.told())} if options.told() else {})},
            fields={"problem_type": problem} if problem else None,
        )  # fmt: skip

    def _identity(self, more: Mapping[str, Any]) -> dict[str, str]:
        """What must not change within a run, each by its own name; what the user says of the data comes first."""
        recipe, task, names = self.recipe, self.task, list(self.task.labels)
        first = [value.contiguous().view(torch.uint8).numpy().data for value in self.model.state_dict().values()]
        data = {name: json.dumps(more.get(name), ensure_ascii=False) for name in ("columns", "encoding")}
        data |= {"rows": f"{len(task):,}", "labels": ", ".join(names) if len(names) <= 10 else digest(names)}
        return {
            **{f"data.{name}": value for name, value in data.items()},
            "data": digest(names, *(np.ascontiguousarray(part).data for part in task.arrays())),
            "vocabulary": digest(list(self.tokenizer.vocabulary)),
            "task.name": recipe.task_name,
            **recipe_fields({name: getattr(recipe, name) for name in ("task", "model", "train", "tune")}),
            "weights to begin with": digest([], *first),
            **(task.identity() if recipe.teacher else {}),
        }

    def _journal(self, resumed: int, quiet: bool) -> journal.Journal | loop.Deaf:
        if not self.ranks.is_first:
            return loop.Deaf()
        return journal.Journal(self.out, steps=self.recipe.train.steps, resumed=resumed, quiet=quiet)

    def judged(
        self,
        asked: Mapping[str, tuple[Any, Sequence[Example]]],
        learnt: Sequence[Example],
        best: Mapping[str, float],
        lesson: Any = None,
    ) -> dict[str, Any]:
        """An evaluation that does not flatter, as report.json and in report.html; the model is saved by now."""
        measured = {}
        for name, (task, own) in asked.items():
            task.config = self.held.config if self.held is not None else task.config
            raw = self.raw if name == "dev" else scored_apart(self.model, task, 16_384, self.recipe.machine)
            measured[name] = honest.Measured(task, own, raw, fits=name == "dev" and self.fits)
        known = learnt if lesson is None else lesson.labelled(learnt) or None  # what a baseline can learn from
        told = honest.report(self.recipe.task_name, measured, known, str(self.out), reading=self.read)
        more = lesson.compared(self.model, measured, told, self.recipe.machine) if lesson is not None else []
        honest.write(self.out, told)
        self._report(best, [*more, *page.sections(told)])
        return told

    def _report(self, best: Mapping[str, float], more: Sequence[str] = ()) -> None:
        recipe = self.recipe
        facts = {"texts": f"{len(self.task):,}", "labels": ", ".join(self.task.labels[:20]), **self.tuned}
        if best:
            facts |= {"best step": f"{best['step']:,}", f"best {self.watched}": f"{best[self.watched]:.4f}"}
        title = f"{self.out.name}: {recipe.task_name}"
        notes = [remark for remarks in self.read.values() for remark in remarks]
        report.write(self.out, title, dataclasses.asdict(recipe), journal.entries(self.out / LOG), facts, notes, more)


def _is_kept(name: str, value: torch.Tensor, own: Mapping[str, torch.Tensor]) -> bool:
    """Whether a weight of the model that a run begins with has a place in the run's own."""
    return name in own and (own[name].shape == value.shape or not name.startswith("heads."))


def _asked(
    task: str, source: sources.Source, made: tuple[Any, Any], more: Mapping[str, Any], reading: Reading
) -> tuple[Any, list[Example]]:
    """Data to measure the model on, as its task and as they are. made: the training data's task, and how it reads."""
    own = sources.read(task, source, more, reading)
    found = member("tasks", task).Task(own, made[0].labels, made[0].tokenizer, made[1])
    if not own or found.has_unknown:
        why = " ".join(["", *reading.report.remarks()])
        name = sources.called(source, "the data")
        raise InputError(f"{name}: has no labels, so it cannot say how good a model is.{why}")
    return found, own


def _fine_recipe(
    task: str, data: tuple[Any, Any, Tokenizer], started: Loaded, settings: Sequence[str], more: Mapping[str, Any]
) -> tuple[FineRecipe, Any]:
    """The recipe, and the training data as its task: how long an epoch is hangs on how texts are read."""
    module, lesson = member("tasks", task), more.get("lesson")
    sections = {"model": type(started.config), "task": module.Config, "train": loop.Config, "machine": machine.Config,
                "tune": tune.Config, **(lesson.sections if lesson else {})}  # fmt: skip
    given: dict[str, dict[str, Any]] = {name: {} for name in sections} | parsed(settings, sections)
    fixed = [name for name in given["model"] if name != "dropout"]
    if fixed:
        raise InputError(f"model.{fixed[0]} is fixed by the folder that the run begins with; only dropout can be set.")
    shape = dataclasses.replace(started.config, **given["model"])
    bare = shape.dropout == 0 and getattr(shape, "norm", "") == "post" and not more.get("scratch")
    usual = {"max_length": min(module.Config().max_length, shape.max_length), "mask_prob": BARE_MASKS if bare else 0.0}
    usual |= _pool(module, started, lesson is None and given["tune"].get("method") != "frozen")
    usual = usual if lesson is None else lesson.reading_as(usual, started.model)
    config = module.Config(**{**usual, **given["task"]})
    if config.max_length > shape.max_length:
        raise InputError(
            f"task.max_length is {config.max_length}, but the model reads at most {shape.max_length} tokens."
        )
    source, learnt, tokenizer = data
    asked = given, bool(more.get("columns"))
    labels, config = (lesson.labels, config) if lesson else _labels(task, config, data, started, asked)
    machined = "off" if lesson and lesson.looks_inside(given["distil"]) else "recorded"
    tuning, here = tune.Config(**given["tune"]), machine.Config(**{"compiled": machined, **given["machine"]})
    seed = _seed(given["train"], more.get("seed"))
    added = tune.copies(task, learnt, tuning, tokenizer, started.model, machine.found(here), seed)
    items = module.Task([*learnt, *added], labels, tokenizer, config)
    config = items.config  # with what its labels and the vocabulary fix
    items = lesson.wrapped(items, learnt, given["distil"]) if lesson else items
    if not items.teaches:
        why = " ".join(getattr(items, "remarks", list)())
        raise InputError(f"{sources.called(source)}: there is nothing to learn from it. {why}".rstrip())
    rate = next((rate for width, rate in RATES if shape.width < width), WIDE_RATE)
    rate = getattr(member("models", started.family), "RATE", rate)
    rate = min(rate, WRITES_ON) if module.HEAD == "writer" and not more.get("scratch") else rate
    least, most = FINE_TOKENS
    size = int(np.clip(items.lengths.sum() // PER_EPOCH, least, most))
    size = given["train"].get("batch_tokens", size)
    pace = _bare_pace(rate, size, given["train"], tuning) if bare else tune.paced(tuning.method, rate, 1.0, bare)
    if bare and lesson and tuning.method == "full" and given["train"].get("optimiser", "adamw") == "adamw":
        pace = {"learning_rate": STUDENT_TIMES * min(rate, BARE_RATE), "head_rate": STUDENT_HEAD}
    train = {**pace, "batch_tokens": size, **given["train"], "seed": seed}
    first = loop.Config(**train)
    per_epoch = len(batches(np.asarray(items.plan(0).lengths), first.seed, 0, first.batch_tokens))
    is_new = module.HEAD == "writer" and "writer" not in getattr(started.model, "parts", ())
    wished = more.get("epochs")
    epochs = float(_passes(len(items), per_epoch, is_new) if wished is None else wished)
    if not 0 < epochs <= 10_000:
        raise InputError(f"epochs is {epochs:g}, but must be above 0 and at most 10,000.")
    train = {"steps": max(1, round(epochs * per_epoch)), "evaluate_every": per_epoch, **train}
    train["evaluate_every"] = min(train["evaluate_every"], train["steps"])  # dev data are asked once at least
    return FineRecipe(
        start="" if more.get("scratch") else str(started.folder), model=shape, task=config, train=loop.Config(**train),
        machine=here, tune=tuning, epochs=epochs, given=_fixed(given["task"]), task_name=task,
        added=len(added), model_name=started.family,
        **({"teacher": str(lesson.folder), "distil": items.distil} if lesson else {}),
    ), items  # fmt: skip


def _seed(train: Mapping[str, Any], seed: int | None) -> int:
    """The run's, which may be given in one of two places."""
    found: int = train.get("seed", seed or 0)
    if seed not in (None, 0, found):
        raise InputError(f"seed is {seed} and train.seed {found}; give one.")
    return found


def _fixed(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that the user gave a value; true or false for `several` only says whether."""
    return tuple(name for name, value in given.items() if type(value) is not bool)


def _pool(module: Any, started: Loaded, learns: bool) -> dict[str, Any]:
    """How a text is summed up, where not by the mean: as the model does, or as the task wishes of a first token.

    learns: whether the encoder does; a new pooler over vectors that cannot change is no help.
    """
    if started.model.sums_up and hasattr(module.Config(), "pool"):
        return {"pool": "own"}
    if not module.HEAD and hasattr(module.Config(), "pool"):  # vectors are learnt on from what the folder's maker chose
        told = sentence_transformers.read(started.folder, started.config.width).pool
        return {"pool": told} if told else {}
    own, reads_all = getattr(module, "POOL", None), getattr(member("models", started.family), "FIRST_READS_ALL", False)
    return {"pool": own} if own and reads_all and learns else {}


def _passes(rows: int, per_epoch: int, is_new_writer: bool) -> int:
    """Over so many rows, in so many steps each; a decoder that is new knows nothing of the language before."""
    if is_new_writer:
        return max(EPOCHS, min(-(-WRITTEN // rows), MOST_WRITTEN))
    seen = min(-(-SEEN // rows), MOST_SEEN)
    return min(max(EPOCHS, seen, -(-FEWEST // per_epoch)), MOST_EPOCHS)


def _labels(
    task: str,
    config: Any,
    data: tuple[Any, Any, Tokenizer],
    started: Loaded,
    asked: tuple[Mapping[str, Mapping[str, Any]], bool],
) -> tuple[Any, Any]:
    """The head's outputs, and the config with what the training data fix, and the model that a run begins with.

    asked: the fields that the user set, by section, and whether the columns were named.
    """
    module, (source, learnt, tokenizer), (given, is_named) = member("tasks", task), data, asked
    if hasattr(module, "fitted"):
        before, config = config, module.fitted(config, learnt)
        if "several" in given["task"] and not before.several and config.several:
            raise InputError(
                f"{sources.called(source)}: texts have several labels, but task.several is false; leave it out, or "
                "give each text one label."
            )
    labels = module.label_names(config, learnt) if hasattr(module, "label_names") else None
    if labels is None:
        labels = sources.label_names(source, learnt, is_named)
    how = tokenizer, lambda asked: scored(deepcopy(started.model), asked, 16_384, **given["machine"])
    return begun(labels, (task, config), [example.texts[0] for example in learnt], how)


def _bare_pace(rate: float, size: int, given: Mapping[str, Any], tuning: tune.Config) -> dict[str, Any]:
    """The optimiser and its rates for a model that was pretrained without dropout."""
    rate, whole = min(rate, BARE_RATE), tuning.method in ("full", "gradual")
    chosen = given.get("optimiser", "muon" if whole and isinstance(size, int) and size >= MUON_TOKENS else "adamw")
    if chosen == "muon":
        return {"optimiser": chosen, "learning_rate": MUON_TIMES * rate, "head_rate": MUON_HEAD}
    return {"optimiser": chosen, **tune.paced(tuning.method, rate, BARE_HEAD, True)}
