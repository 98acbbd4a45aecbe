"""The hall: a recipe and data in, a run folder with its model, recipe, log, checkpoints and report out."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from filbert.artefact.folder import Loaded, load, save
from filbert.core.errors import InputError
from filbert.core.files import json_text, write_text
from filbert.core.registry import member
from filbert.core.version import VERSION
from filbert.data import shards as sharding
from filbert.data.overlap import Fingerprints
from filbert.models import bert
from filbert.tasks import mlm_nsp
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import train as train_vocabulary
from filbert.train import journal, loop, machine, report
from filbert.train.checkpoint import Store, locked
from filbert.train.distributed import Ranks, is_restarted, joined

MODEL, CHECKPOINTS, SHARDS, VOCAB, RECIPE, LOG = "model", "checkpoints", "shards", "vocab", "recipe.json", "log.jsonl"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that fixes a pretraining run but its texts; members are named through the registry."""

    model: bert.Config
    task: mlm_nsp.Config = field(default_factory=mlm_nsp.Config)
    train: loop.Config = field(default_factory=loop.Config)
    machine: machine.Config = field(default_factory=machine.Config)
    model_name: str = "bert"
    task_name: str = "mlm_nsp"


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Where the texts lie, how they are read, and what they may not hold."""

    sources: tuple[str, ...]
    reading: sharding.Options = field(default_factory=sharding.Options)
    without: tuple[str, ...] = ()  # data whose text may not be learnt from: documents that share text with it are left out
    folder: Path | None = None  # of the shards; in the run folder where nothing is said
    workers: int = 0  # that prepare it; 0 is one for each core


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that ended: its folder, the model, and how it went."""

    folder: Path
    model: bert.Bert
    tokenizer: Tokenizer
    outcome: loop.Outcome


def is_first() -> bool:
    """Whether this process is the one that speaks: the only one, or rank 0 of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def loaded(path: Path | str) -> Loaded:
    """The model of a folder, a run, or the built-in one, as it is trained further."""
    return load(path)


def prepared(corpus: Corpus, tokenizer: Tokenizer, out: Path) -> sharding.Shards:
    """The corpus as shards: those that are there, or new ones. Of several ranks one prepares and the others wait."""
    folder = corpus.folder or out / SHARDS
    exclude = Fingerprints.read(corpus.without) if corpus.without else None
    with _turn(folder):
        return sharding.build(
            corpus.sources, tokenizer, folder, corpus.reading, workers=corpus.workers, exclude=exclude
        )


def vocabulary(corpus: Corpus, size: int, out: Path) -> Tokenizer:
    """A vocabulary trained on the corpus, or the one that was trained before for this run."""
    from filbert.text.corpus import documents

    folder, reading = out / VOCAB, corpus.reading
    with _turn(folder):
        if not (folder / "vocab.txt").exists():
            how = {name: getattr(reading, name) for name in ("field", "encoding", "errors", "unit")}
            texts = (document.text for document in documents(list(corpus.sources), **how))
            folder.mkdir(parents=True, exist_ok=True)
            Tokenizer(train_vocabulary(texts, size).tokens).save(folder)
        return Tokenizer.load(folder)


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One process at a time; the next finds what the first has made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def pretrain(
    shards: sharding.Shards,
    tokenizer: Tokenizer,
    recipe: Recipe,
    out: Path | str,
    *,
    start: bert.Bert | None = None,
    resume: bool = False,
    force: bool = False,
    **more: Any,
) -> Finished:
    """Trains a BERT on the shards, fresh or on from `start`, and leaves a run folder.

    more: `clock` and `facts` of a run by the clock, `quiet`, and `told` instead of the journal.
    """
    out = Path(out)
    resume = resume or is_restarted()
    with joined(recipe.machine.device) as ranks, contextlib.ExitStack() as stack:
        if ranks.is_first:
            stack.enter_context(locked(out))
        ranks.wait()
        return _pretrained(shards, tokenizer, recipe, out, start, (resume, force, ranks), more)


def _pretrained(
    shards: sharding.Shards,
    tokenizer: Tokenizer,
    recipe: Recipe,
    out: Path,
    start: bert.Bert | None,
    how: tuple[bool, bool, Ranks],
    more: Mapping[str, Any],
) -> Finished:
    resume, force, ranks = how
    module = member("tasks", recipe.task_name)
    task = module.Task(shards.train.shards, tokenizer, recipe.task)
    held = module.Task(shards.held.shards, tokenizer, recipe.task) if _has_held(shards, recipe.task) else None
    torch.manual_seed(recipe.train.seed)
    model = start if start is not None else member("models", recipe.model_name).Model(recipe.model, task.parts)
    _check_fit(model, task, recipe)
    store = Store(out / CHECKPOINTS, recipe.machine.keep)
    resumed = _resumed(store, out, resume) if ranks.is_first else 0
    told = more.get("told") or _journal(out, recipe, model, ranks, resumed, more)
    identity = {} if force else _identity(recipe, tokenizer, shards)
    ranks.agree("the corpus, the vocabulary or the recipe", json.dumps(identity))
    if ranks.is_first:
        write_text(out / RECIPE, json_text({**dataclasses.asdict(recipe), "filbert": VERSION}))
    course = loop.Course(
        held=held, machine=recipe.machine, ranks=ranks, store=store, resume=resume, identity=identity,
        told=told, clock=more.get("clock"),
    )  # fmt: skip
    begun = time.time()
    try:
        training = loop.Training(model, task, recipe.train, course)
        outcome = training.run()
        if ranks.is_first:
            model = training.stepper.model.cpu()  # type: ignore[assignment]
            save(out / MODEL, model, tokenizer, card=_card(recipe, shards, outcome))
        ranks.wait()
    finally:
        if ranks.is_first and isinstance(told, journal.Journal):
            told.close()
            facts = {"seconds": f"{time.time() - begun:.0f}", **more.get("facts", {})}
            log = journal.entries(out / LOG)
            report.write(out, f"{out.name}: pretraining", dataclasses.asdict(recipe), log, facts, shards.report.remarks())
    return Finished(out, model, tokenizer, outcome)


def _has_held(shards: sharding.Shards, task: mlm_nsp.Config) -> bool:
    return shards.held.num_documents >= (2 if task.objective == "mlm+nsp" else 1)


def _check_fit(model: Any, task: Any, recipe: Recipe) -> None:
    missing = [part for part in task.parts if part not in model.parts]
    if missing:
        raise InputError(f"task.objective={recipe.task.objective} needs a model with {', '.join(missing)}.")
    if recipe.task.max_length > model.config.max_length:
        raise InputError(
            f"task.max_length is {recipe.task.max_length}, but the model reads at most {model.config.max_length} tokens."
        )


def _resumed(store: Store, out: Path, resume: bool) -> int:
    """The step to go on from; a folder that holds a run already is not begun again by accident."""
    found = store.newest() if (out / CHECKPOINTS).exists() else None
    if found is not None and not resume:
        raise InputError(
            f"{out}: holds a run that came to step {found.step:,}; go on with --resume, or choose another --out."
        )
    return found.step if found is not None else 0


def _identity(recipe: Recipe, tokenizer: Tokenizer, shards: sharding.Shards) -> dict[str, str]:
    """What must not change within a run, each by its own name."""

    def digest(value: Any) -> str:
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]

    train = dataclasses.asdict(recipe.train)
    for name in ("checkpoint_every", "evaluate_every", "patience"):
        train.pop(name)
    return {
        "model": digest(dataclasses.asdict(recipe.model)),
        "task": digest(dataclasses.asdict(recipe.task)),
        "train": digest(train),
        "vocabulary": digest(list(tokenizer.vocabulary)),
        "corpus": digest([shards.num_tokens, shards.num_documents, shards.meta.get("identity")]),
    }


def _journal(
    out: Path, recipe: Recipe, model: Any, ranks: Ranks, resumed: int, more: Mapping[str, Any]
) -> journal.Journal | loop.Deaf:
    if not ranks.is_first:
        return loop.Deaf()
    chip = torch.cuda.get_device_name() if torch.cuda.is_available() and recipe.machine.device != "cpu" else ""
    length = recipe.task.max_length / 2
    return journal.Journal(
        out,
        steps=0 if more.get("clock") is not None else recipe.train.steps,
        resumed=resumed,
        quiet=bool(more.get("quiet")),
        flops_per_token=flops_per_token(model, length, recipe.task.mask_prob),
        peak_flops=journal.peak_flops(chip) * ranks.world if chip else 0.0,
    )


def flops_per_token(model: Any, mean_length: float, mask_prob: float) -> float:
    """Of a training step: 6 for each weight of a matrix a token meets, 12·L·D·length of attention, and the head."""
    config = model.config
    inside = sum(p.numel() for name, p in model.named_parameters() if name.startswith("layers.") and p.ndim == 2)
    head = mask_prob * (config.width**2 + config.vocab_size * config.width)
    return float(6 * (inside + head) + 12 * config.layers * config.width * mean_length)


def _card(recipe: Recipe, shards: sharding.Shards, outcome: loop.Outcome) -> str:
    held = ", ".join(f"{name} {value:.4f}" for name, value in outcome.held.items() if name != "step")
    return (
        f"A BERT of {recipe.model.layers} layers × {recipe.model.width}, pretrained by filbert on "
        f"{shards.num_documents:,} documents ({shards.num_tokens:,} tokens) with {recipe.task.objective}, masking "
        f"{recipe.task.masking} {recipe.task.mask_prob:.0%}, for {outcome.state.step:,} steps and "
        f"{outcome.state.tokens:,} tokens (seed {recipe.train.seed})."
        + (f" On documents kept back: {held}." if held else "")
    )


def measure(
    model: Any, shards: Sequence[Any], tokenizer: Tokenizer, config: mlm_nsp.Config, **wishes: Any
) -> dict[str, float]:
    """One pass over the texts with fixed masks: the same question every time it is asked."""
    here = machine.found(machine.Config(**wishes))
    task = mlm_nsp.Task(shards, tokenizer, config)
    return loop.evaluate(model.to(here.device), task, loop.Config(), here, Ranks())
