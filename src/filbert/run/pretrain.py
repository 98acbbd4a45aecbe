"""Pretraining: a corpus and a recipe in, a run folder with its model, recipe, log, checkpoints and report out."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from filbert.clock import budget
from filbert.clock.forecast import Forecast
from filbert.core import keywords, registry
from filbert.core.errors import InputError
from filbert.core.files import json_object, json_text, write_text
from filbert.core.settings import Settings, worded
from filbert.corpus import shards as sharding
from filbert.corpus.overlap import Fingerprints
from filbert.folder.folder import save
from filbert.nn.encoder import Encoder, Shape
from filbert.pack.stretches import Text
from filbert.run import cards, new_models
from filbert.run.folders import (
    CHECKPOINTS,
    LOG,
    MODEL,
    SHARDS,
    VOCAB,
    check_home,
    digest,
    is_first,
    recipe_fields,
    resumed_at,
)
from filbert.run.options import RunOptions
from filbert.run.recipe import Recipe, masked_words
from filbert.run.run import Finished, Note, Plan, Run, together
from filbert.ship import verify
from filbert.tasks.task import AnyTask, Items, Json, longest_of
from filbert.teach.teacher import NO_TEACHER, Teacher
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import train as train_vocabulary
from filbert.train import journal, loop, machine, report
from filbert.train.checkpoint import Store, locked
from filbert.train.distributed import Ranks, ends_with_parent, is_restarted
from filbert.train.listeners import Listener, Listeners

LOOKED_AT = 64  # items that are built at a time, to see whether a corpus teaches anything
MADE_OF = "made_of.json"  # beside a vocabulary that was trained for a run: what it was trained on


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Where the texts lie, how they are read, and what they may not hold."""

    sources: tuple[str, ...]
    reading: sharding.Options = field(default_factory=sharding.Options)
    without: tuple[
        str, ...
    ] = ()  # data whose text may not be learnt from: documents that share text with it are left out
    folder: Path | None = None  # of the shards; in the run folder where nothing is said
    workers: int = 0  # that prepare it; 0 is one for each core

    @cached_property
    def excluded(self) -> Fingerprints | None:
        """What `without` holds; read once."""
        return Fingerprints.read(self.without) if self.without else None


def prepared(corpus: Corpus, tokenizer: Tokenizer, out: Path) -> sharding.Shards:
    """The corpus as shards: those that are there, or new ones. Of several ranks one prepares and the others wait."""
    ends_with_parent()
    folder = corpus.folder or out / SHARDS
    # Locked by now: a second run, of another corpus, would make other shards under the first.
    with locked(out) if is_first() else contextlib.nullcontext():
        return sharding.build(
            corpus.sources, tokenizer, folder, corpus.reading, workers=corpus.workers, exclude=corpus.excluded
        )


def vocabulary(
    corpus: Corpus, size: int, out: Path, note: Callable[[str], None] = lambda note: None, force: bool = False
) -> Tokenizer:
    """A vocabulary trained on the corpus, or the one that was trained on this very corpus before.

    One that lies in `out` and is of anything else is made anew, of which `note` is given a sentence. A run that has
    come so far that it has checkpoints keeps its own: whether it may go on with this corpus its checkpoint says, and
    another size is refused unless forced.
    """
    from filbert.text.corpus import CorpusReport, files

    folder, report = out / VOCAB, CorpusReport()
    paths = files(list(corpus.sources), report)
    if "-" in paths:
        raise InputError(
            "standard input can be read once, but is needed twice, for the vocabulary and for the shards; give the "
            "corpus as a file, or --vocab."
        )
    made_of = _made_of(paths, corpus.reading, size)
    with locked(out) if is_first() else contextlib.nullcontext(), _turn(folder):
        before = _before(folder)
        if before != made_of and not _keeps(out, before, size, force):
            if (folder / "vocab.txt").exists():
                note(f"{folder}: lies there from another corpus, size or options, and is made anew.")
            texts = sharding.texts(paths, corpus.reading, report)
            (folder / MADE_OF).unlink(missing_ok=True)
            Tokenizer(train_vocabulary(texts, size).tokens).save(folder)
            write_text(folder / MADE_OF, json_text(made_of))  # last: without it, what lies there is half done
        return Tokenizer.load(folder)


def _made_of(paths: list[str], reading: sharding.Options, size: int) -> dict[str, Any]:
    """All that a vocabulary depends on, as JSON holds it."""
    how = {name: vars(reading)[name] for name in ("field", "encoding", "errors", "unit", "most_bytes")}
    return {"format": 1, "corpus": sharding.corpus_identity(paths), "size": size, "reading": how}


def _before(folder: Path) -> dict[str, Any] | None:
    """What the vocabulary in the folder was made of; None where there is none, or no record of that."""
    is_whole = (folder / "vocab.txt").exists() and (folder / MADE_OF).exists()
    return json_object(folder / MADE_OF) if is_whole else None


def _keeps(out: Path, before: Json | None, size: int, force: bool) -> bool:
    """Whether a run in `out` has begun with the vocabulary that lies there; its weights fit no other."""
    if not (out / VOCAB / "vocab.txt").exists() or not any((out / CHECKPOINTS).glob("step-*")):
        return False
    if before is not None and before["size"] != size and not force:
        raise InputError(
            f"{out / VOCAB}: the run in {out} began with --vocab-size {before['size']:,}, not {size:,}; resume with "
            "what it was made with, choose another --out, or take --force to go on with the vocabulary that it has."
        )
    return True


def check_length(task: object, model: Shape) -> None:
    """Refuses a config of a task that reads more at a time than the model of that config can."""
    if (longest := longest_of(task)) > model.max_length:
        raise InputError(f"task.max_length is {longest}, but the model reads only {model.max_length} tokens.")


def check_unbegun(out: Path, resume: bool) -> None:
    """Refuses a folder that holds a run already, before a vocabulary or shards are made in it."""
    check_home(out)
    if not (resume or is_restarted()):
        resumed_at(Store(out / CHECKPOINTS), out, False)


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One process at a time; the next finds what the first has made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@keywords.checked()
def pretrain(
    shards: sharding.Shards,
    tokenizer: Tokenizer,
    recipe: Recipe,
    out: Path | str,
    *,
    start: Encoder | None = None,
    base: Path | str | None = None,
    settings: Settings = (),
    teacher: Teacher = NO_TEACHER,
    clock: budget.Clock | None = None,
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    listener: Listeners = None,
) -> Finished:
    """Trains a model on the shards, fresh or on from `start`, and leaves a run folder.

    base: the folder that `start` is of. settings: the words that the user set fields of the recipe by. teacher: of a
    recipe that has one. clock: of a run by the clock. listener: a function
    or an object (train.listeners), or several, that follow every step as well.
    """
    out = Path(out)
    options = RunOptions(resume=resume, force=force, quiet=quiet, listener=listener)
    check_length(recipe.task, recipe.model)
    with contextlib.ExitStack() as lock, together(out, recipe.machine.device, lock) as ranks:
        tasks = _tasks(shards, tokenizer, recipe, clock, teacher)
        torch.manual_seed(recipe.train.seed)
        model = (
            _grown(start, recipe, tasks.items, tokenizer)
            if start is not None
            else _fresh(recipe, tasks.items, tokenizer)
        )
        teacher.adapt(model, *tasks.all)
        flops = _flops(recipe, model, ranks)
        plan = Plan(
            recipe=recipe, out=out, tokenizer=tokenizer, identity=_identity(recipe, tokenizer, shards),
            agreed="the corpus, the vocabulary or the recipe", notes=_notes(shards, recipe, tasks.held, clock),
            settings=worded(settings), flops_per_token=flops.per_token, peak_flops=flops.peak, clock=clock,
        )  # fmt: skip
        product = Pretrained(recipe, out, tokenizer, shards, tasks.held, clock)
        product.base = str(base or "")
        return Run(plan, product, options, ranks).go(model, tasks.items, tasks.held, teacher)


class Pretrained:
    """What pretraining makes: a model that reads, its card and its page."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        tokenizer: Tokenizer,
        shards: sharding.Shards,
        held: AnyTask | None,
        clock: budget.Clock | None,
    ) -> None:
        self.recipe, self.out, self.tokenizer = recipe, out, tokenizer
        self.shards, self.held, self.clock = shards, held, clock
        self.base = ""  # the folder that it began with
        self.facts = dict(clock.choice.facts) if clock is not None else {}  # of the run, for its page

    def save(self, model: Encoder, outcome: loop.Outcome, best: Mapping[str, float], listener: Listener) -> None:
        """Writes the model's folder; before, what became of a forecast."""
        if self.clock is not None:
            self.facts["came to"] = _verdict(self.clock.choice.forecast, outcome, self.held)
            listener.event("outcome", self.facts["came to"])
        folder, shards = self.out / MODEL, self.shards
        save(folder, model, self.tokenizer, card=_card(self.recipe, shards, outcome))
        verify.write(folder)
        cards.of_reading(folder, shards, outcome.held, self.base, self.recipe.teacher)

    def report(self, best: Mapping[str, float], seconds: float) -> None:
        """The run's page, as far as it is known by now."""
        facts = {"seconds": f"{seconds:.0f}", **self.facts}
        lines, remarks = journal.entries(self.out / LOG), self.shards.report.remarks()
        report.write(self.out, f"{self.out.name}: pretraining", dataclasses.asdict(self.recipe), lines, facts, remarks)


def _notes(shards: sharding.Shards, recipe: Recipe, held: AnyTask | None, clock: budget.Clock | None) -> list[Note]:
    """Notes before the first step: what will not be measured, and what a budget chose."""
    notes = []
    if held is None and shards.meta["identity"]["options"]["held"]:
        notes.append(Note(message=_unmeasured(shards, recipe)))
    if clock is not None:
        forecast = clock.choice.forecast
        notes.append(Note(kind="chosen", message=clock.choice.line))
        notes.append(Note(kind="forecast", message=f"{forecast}.", fields=dataclasses.asdict(forecast)))
    return notes


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """What is learnt from, and what is only asked, if anything was kept back; with a teacher where there is one."""

    items: Items[Any]
    held: Items[Any] | None

    @property
    def all(self) -> list[Items[Any]]:
        """Both, or the one."""
        return [self.items] if self.held is None else [self.items, self.held]


def _tasks(
    shards: sharding.Shards, tokenizer: Tokenizer, recipe: Recipe, clock: budget.Clock | None, teacher: Teacher
) -> Tasks:
    spec = registry.corpus_task(recipe.task_name)
    task = spec.items(shards.train.shards, tokenizer, recipe.task)
    kept_back = shards.held.shards if clock is None else budget.sample(shards.held.shards, clock.choice.held_tokens)
    has_held = shards.held.num_documents >= spec.least_documents(recipe.task)
    held = spec.items(kept_back, tokenizer, recipe.task) if has_held else None
    if not _asks(task):
        raise InputError(
            f"the corpus has nothing that {recipe.model_name} could learn from: no text of it asks anything of "
            f"task {recipe.task_name} (a word needs another beside it); give a corpus of sentences."
        )
    held = teacher.wrapped(held, recipe.distil) if held is not None and _asks(held) else None
    return Tasks(items=teacher.wrapped(task, recipe.distil), held=held)


def _asks(task: AnyTask) -> bool:
    """Whether an epoch of a task asks anything at all; known as a rule after a few of its items."""
    plan = task.plan(0)
    for begin in range(0, len(plan.lengths), LOOKED_AT):
        batch = task.batch(plan.orders(np.arange(begin, min(begin + LOOKED_AT, len(plan.lengths)))))
        if any(task.counts(batch).values()):
            return True
    return False


def _fresh(recipe: Recipe, task: AnyTask, tokenizer: Tokenizer) -> Encoder:
    """A new model, initialised by what the task's data say, such as token frequencies."""
    model = new_models.model_of(recipe.model_name, recipe.model, task.parts, tokenizer)
    task.begin(model)
    return model


def _verdict(forecast: Forecast, outcome: loop.Outcome, held: AnyTask | None) -> str:
    """How far a forecast was off, and on how much text that rests."""
    sentence = forecast.verdict(outcome.held.get("mlm_loss"), outcome.spread.get("mlm_loss"))
    if held is None:
        return sentence
    return f"{sentence} Measured on {sum(held.plan(0).lengths):,} tokens that were held back."


def _unmeasured(shards: sharding.Shards, recipe: Recipe) -> str:
    """The sentence that says that a run has no numbers of its own, and how it would."""
    return (
        f"nothing is measured: {shards.held.num_documents:,} of {shards.num_documents:,} documents were held back, too "
        f"few to ask {recipe.task_name} anything of; a corpus of more, or shorter, documents has some to spare (they "
        "end at a blank line: see --unit)."
    )


def _grown(model: Encoder, recipe: Recipe, task: AnyTask, tokenizer: Tokenizer) -> Encoder:
    """The model to go on from, with new heads where the task asks what it was never asked, and without a task's own."""
    kept = {part for part in model.parts if part not in model.heads}
    grown: Encoder = type(model)(recipe.model, tuple(kept | set(task.parts)))
    weights = {name: value for name, value in model.state_dict().items() if not name.startswith("heads.")}
    grown.load_state_dict(weights, strict=False)
    if grown.spells:
        grown.spell(tokenizer.vocabulary)
    return grown


def _identity(recipe: Recipe, tokenizer: Tokenizer, shards: sharding.Shards) -> dict[str, str]:
    """What must not change within a run, each by its own name."""

    return recipe_fields({"model": recipe.model, "task": recipe.task, "train": recipe.train}) | {
        "vocabulary": digest(list(tokenizer.vocabulary)),
        "corpus": digest([entry["sha256"] for entry in shards.meta["shards"]]),  # wherever its files lie
    }


@dataclass(frozen=True)
class Flops:
    """What a step costs for each token, and what the machine could do in a second; 0 where it is not known."""

    per_token: float = 0.0
    peak: float = 0.0


def _flops(recipe: Recipe, model: Encoder, ranks: Ranks) -> Flops:
    if recipe.model_name != "bert":  # of others the work for a token is not known
        return Flops()
    chip = torch.cuda.get_device_name() if torch.cuda.is_available() and recipe.machine.device != "cpu" else ""
    length = longest_of(recipe.task) / 2
    return Flops(
        journal.flops_per_token(model, length, recipe.task.mask_prob),
        journal.peak_flops(chip) * ranks.world if chip else 0.0,
    )


def _card(recipe: Recipe, shards: sharding.Shards, outcome: loop.Outcome) -> str:
    held = ", ".join(f"{name} {value:.4f}" for name, value in outcome.held.items() if name != "step")
    what, how = f"`{recipe.model_name}` with vectors of {recipe.model.width}", f"`{recipe.task_name}`"
    if recipe.model_name == "bert":
        what = f"BERT of {recipe.model.layers} layers × {recipe.model.width}"
        how = f"{recipe.task.objective}, masking {recipe.task.masking} {recipe.task.mask_prob:.0%}"
    came = f"distilled by filbert from `{Path(recipe.teacher).name}`" if recipe.teacher else "pretrained by filbert"
    return (
        f"A {what}, {came} on {shards.num_documents:,} documents ({shards.num_tokens:,} tokens) with "
        f"{how}, for {outcome.state.step:,} steps and {outcome.state.tokens:,} tokens (seed {recipe.train.seed})."
        + (f" On documents kept back: {held}." if held else "")
    )


def measure(
    model: Encoder,
    shards: Sequence[Text],
    tokenizer: Tokenizer,
    config: object,
    on: machine.Config | None = None,
) -> dict[str, float]:
    """One pass over the texts with fixed masks: the same question every time it is asked."""
    here = machine.chosen(on or machine.Config())
    task = masked_words().items(shards, tokenizer, config)
    return loop.evaluate(model.to(here.device), task, loop.Config(), here, Ranks())
