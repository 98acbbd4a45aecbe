"""`filbert pretrain`: raw text in, a pretrained BERT of one's own out, by the clock or by steps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from filbert.cli.shared import (
    CorpusOptions,
    Trains,
    check_force,
    corpus_options,
    json_option,
    refuse_options,
    result,
    say,
    typed,
)
from filbert.run import defaults

if TYPE_CHECKING:
    from filbert.clock.budget import Choice, Clock, Plan
    from filbert.corpus.shards import Shards
    from filbert.nn.encoder import Encoder
    from filbert.run.pretrain import Corpus
    from filbert.run.recipe import Fields, Recipe
    from filbert.run.run import Finished
    from filbert.text.tokenizer import Tokenizer

SECTIONS = ("model", "task", "train", "machine")
OLDEST_S = 60.0  # a process that is older began for something else


@dataclass(frozen=True, kw_only=True)
class Options(CorpusOptions):
    """What was given on the command line, beside what `command` names."""

    budget: str | None
    arch: str
    preset: str | None
    objective: str | None
    masking: str | None
    vocab: str | None
    vocab_size: int
    start: str | None
    without: tuple[str, ...]
    shards: str | None
    settings: tuple[str, ...]
    seed: int | None
    resume: bool
    force: bool


@click.command("pretrain", cls=Trains)
@click.argument("sources", metavar="CORPUS...", nargs=-1, required=True)
@click.option("-o", "--out", required=True, help="Run folder to write.")
@click.option(
    "--budget",
    help=f"Time for the whole run, e.g. 90s, 25m, 2h.  [default: {defaults.BUDGET} unless train.steps is set]",
)
@click.option("--arch", default="bert", show_default=True, help="Model: bert, gpt, elmo, nnlm, word2vec or glove.")
@click.option("--preset", help="Size, tiny to large, or modern.  [default: what the budget allows, else small]")
@click.option(
    "--objective", type=click.Choice(["mlm+nsp", "mlm+sop", "mlm"]), help="What is asked.  [default: mlm+nsp]"
)
@click.option(
    "--masking",
    type=click.Choice(["whole-word", "token", "span", "both"]),
    help="What is masked as one.  [default: whole-word]",
)
@click.option("--vocab", help="Folder or vocab.txt to use.  [default: one is trained on the corpus]")
@click.option("--vocab-size", type=click.IntRange(min=6), default=12_000, show_default=True, help="Of a trained one.")
@click.option("--model", "start", help="Folder of a model to train further, with its own vocabulary.")
@click.option("--without", multiple=True, help="Data whose text must not be learnt; may be given again.")
@click.option("--shards", help="Folder of the prepared corpus, to share between runs.  [default: OUT/shards]")
@click.option("--set", "settings", multiple=True, help="Any field of the recipe, e.g. train.steps=500.")
@click.option("--seed", type=int, help="Of everything random.  [default: 0]")
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint in OUT.")
@click.option("--force", is_flag=True, help="Resume even if the recipe, corpus or vocabulary changed.")
@corpus_options
@json_option
@typed(Options)
def command(sources: tuple[str, ...], out: str, as_json: bool, options: Options) -> None:
    """Pretrain a BERT on raw text.

    Beside one process: torchrun --nproc-per-node N -m filbert pretrain …
    """
    started = process_start()
    check_force(force=options.force, resume=options.resume)
    steps_set = any(word.split("=")[0].strip() == "train.steps" for word in options.settings)
    if options.budget and steps_set:
        raise click.UsageError("--budget and --set train.steps both say when to end; give one.")
    if options.arch != "bert":
        _check_other(options)
        steps_set = True  # only what BERT does in a given time is known
    _check_parts(options)
    from filbert.clock.budget import EXIT
    from filbert.run.folders import is_first
    from filbert.run.pretrain import check_unbegun, prepared, pretrain

    imported = time.monotonic()
    sections = _fields(options, by_clock=not steps_set)  # a wrong field is refused before the corpus is read …
    check_unbegun(Path(out), options.resume)  # … and a folder before anything is made in it
    plan = None if steps_set else _plan(Path(out), options, imported - started)
    inputs = _inputs(sources, Path(out), options, sections, plan.most_bytes if plan else 0)
    shards = prepared(inputs.corpus, inputs.tokenizer, Path(out))
    if is_first():
        for note in shards.report.remarks():
            say(f"note: {note}")
    clock = None
    if plan is not None:
        clock = _clock(plan, started, Path(out), _chooser(inputs, shards, options, sections))
        clock.acts.exit_s = EXIT * (imported - started)
    finished = pretrain(
        shards, inputs.tokenizer, _recipe(inputs, options, sections, clock), out, start=inputs.start,
        base=options.start, settings=options.settings, clock=clock, resume=options.resume, force=options.force,
    )  # fmt: skip
    if is_first():
        _report(finished, clock, as_json, started)


def _check_other(options: Options) -> None:
    """Refuses what only BERT has."""
    from filbert.core.errors import one_of
    from filbert.core.registry import members

    arch, others = options.arch, [name for name in members("models") if name != "bert"]
    if arch not in others:
        raise one_of("--arch", arch, ["bert", *others])
    of_bert = {"budget": options.budget, "objective": options.objective, "masking": options.masking}
    for name, value in of_bert.items():
        if value:
            raise click.UsageError(f"--{name} is for --arch bert; for {arch} give fields of its recipe with --set.")


def _check_parts(options: Options) -> None:
    """Refuses what a model to train further, or a vocabulary that is there, leaves nothing to."""
    if options.start:
        refuse_options(("preset", "vocab", "vocab_size"), "is of a new model; that of --model has its own")
    if options.vocab:
        refuse_options(["vocab_size"], "is of a vocabulary that is trained; --vocab names one that is there")
    for name, value in (("objective", options.objective), ("masking", options.masking)):
        if value and any(word.split("=")[0].strip() == f"task.{name}" for word in options.settings):
            raise click.UsageError(f"--{name} and --set task.{name} say the same; give one.")


def process_start() -> float:
    """When this process began, by time.monotonic: a budget is for the whole command, and importing torch takes seconds.

    Where the system does not tell, or the process is older than a command can be, it begins now.
    """
    now = time.monotonic()
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - age if 0 <= age < OLDEST_S else now


def _plan(out: Path, options: Options, imported_s: float) -> Plan:
    """The time for the run, and how much of the corpus it will read; a run that goes on keeps its own."""
    import torch

    from filbert.clock import budget as budgets
    from filbert.train.distributed import is_launched, is_restarted

    before = budgets.Plan.read(out) if options.resume or is_restarted() else None
    wished = options.budget
    if before is not None and before.choice is not None:
        return replace(before, seconds=budgets.seconds(wished) if wished else before.seconds)
    seconds = budgets.seconds(wished or defaults.BUDGET)
    on_gpu = torch.cuda.is_available() and "machine.device=cpu" not in options.settings
    how = () if is_launched() else (imported_s,)  # all ranks must read the same
    most = 0 if options.shards else budgets.most_bytes(seconds, on_gpu, *how)
    return budgets.Plan(seconds=seconds, most_bytes=most)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run reads, and the module that it continues, if any."""

    corpus: Corpus
    tokenizer: Tokenizer
    start: Encoder | None = None


def _inputs(sources: tuple[str, ...], out: Path, options: Options, sections: Fields, most_bytes: int) -> Inputs:
    """The corpus, the tokenizer and the model to start from, if any."""
    from filbert.corpus.shards import Options as ReadOptions
    from filbert.folder.folder import load
    from filbert.run.pretrain import Corpus, check_length, vocabulary
    from filbert.run.recipe import masked_words
    from filbert.text.tokenizer import Tokenizer

    words = (options.masking or "whole-word") != "token"
    reading = ReadOptions(
        words=words, most_bytes=most_bytes, held_tokens=defaults.HELD_TOKENS, field=options.field,
        encoding=options.encoding, errors=options.errors, unit=options.unit,
    )  # fmt: skip
    folder = Path(options.shards) if options.shards else None
    corpus = Corpus(sources=sources, reading=reading, without=options.without, folder=folder)
    _ = corpus.excluded  # a file that is not there is refused now
    if options.start:
        start = load(options.start)
        if start.family != options.arch:
            raise click.UsageError(f"--model {options.start} is of {start.family}: give --arch {start.family}.")
        if options.arch == "bert":
            check_length(masked_words().config(**sections.get("task", {})), start.config)
        return Inputs(corpus=corpus, tokenizer=Tokenizer.load(start.folder), start=start.model)
    if options.vocab:
        return Inputs(corpus=corpus, tokenizer=Tokenizer.load(options.vocab))
    made = vocabulary(corpus, options.vocab_size, out, _note, options.force)
    return Inputs(corpus=corpus, tokenizer=made)


def _note(sentence: str) -> None:
    say(f"note: {sentence}")


def _chooser(inputs: Inputs, shards: Shards, options: Options, sections: Fields) -> Callable[[float], Choice]:
    """What chooses a run of so many seconds."""
    from filbert.clock import budget as budgets
    from filbert.models.bert import Bert

    shape = inputs.start.config if isinstance(inputs.start, Bert) else None
    limits = budgets.Limits(preset=options.preset, shape=shape, fields=sections)
    return lambda left: budgets.choose(left, shards, inputs.tokenizer, limits, defaults.CLOCK)


def _recipe(inputs: Inputs, options: Options, sections: Fields, clock: Clock | None) -> Recipe:
    """The recipe that the options ask for, by the clock where there is one."""
    from filbert.core.settings import changed
    from filbert.models import bert
    from filbert.run.recipe import Recipe, recipe_of

    preset, tokenizer = options.preset, inputs.tokenizer
    shape = inputs.start.config if inputs.start is not None else None
    if options.arch != "bert":
        return recipe_of(options.arch, preset, tokenizer, sections, shape)
    usual = bert.SPEC.preset(preset or defaults.PRESET, tokenizer.vocab_size)
    recipe = Recipe(model=shape if shape is not None else usual)
    if clock is not None:
        recipe = recipe.by_clock(clock.choice)
    return replace(recipe, **{name: changed(vars(recipe)[name], sections.get(name, {})) for name in SECTIONS})


def _fields(options: Options, *, by_clock: bool) -> dict[str, dict[str, Any]]:
    """The fields of the recipe that the command line fixes, by section."""
    from filbert.core.registry import model
    from filbert.core.settings import parsed
    from filbert.run.recipe import learnt_by
    from filbert.train import loop, machine

    spec, learns = model(options.arch), learnt_by(options.arch)
    configs = (spec.config, learns.config, loop.Config, machine.Config)
    sections = parsed(options.settings, dict(zip(SECTIONS, configs, strict=True)))
    for name, value in (("objective", options.objective), ("masking", options.masking)):
        if value:
            sections.setdefault("task", {})[name] = value
    if options.seed is not None:
        for section in ("task", "train"):
            if sections.get(section, {}).get("seed", options.seed) != options.seed:
                raise click.UsageError(f"--seed and --set {section}.seed say different things; give one.")
        for section in ("task", "train"):
            if section == "task" and "seed" not in {field.name for field in fields(learns.config)}:
                continue
            sections.setdefault(section, {}).setdefault("seed", options.seed)
    _check(sections, options, by_clock)
    return sections


def _check(sections: Fields, options: Options, by_clock: bool) -> None:
    """Refuses what no recipe can have, by making each of its parts once."""
    from filbert.clock import budget
    from filbert.core.registry import model
    from filbert.run.pretrain import check_length
    from filbert.run.recipe import learnt_by
    from filbert.train import loop, machine

    spec, learns = model(options.arch), learnt_by(options.arch)
    loop.Config(**{**dict[str, Any](spec.train), **sections.get("train", {})})
    machine.device_of(machine.Config(**sections.get("machine", {})))
    task = learns.config(**{**spec.task, **sections.get("task", {})})
    if options.start:
        if set(sections.get("model", {})) - {"dropout"}:
            raise click.UsageError("--model fixes the model's shape: of --set model.… only model.dropout can be given.")
        return
    size, preset = options.vocab_size, options.preset
    if by_clock and not preset:
        shapes = list(budget.candidates(budget.Limits(fields=sections), size, defaults.CLOCK).values())
    else:
        shapes = [replace(spec.preset(preset or defaults.PRESET, size), **sections.get("model", {}))]
    for shape in shapes:
        check_length(task, shape)


def _clock(plan: Plan, started: float, out: Path, chosen: Callable[[float], Choice]) -> Clock:
    """The clock of a new run, for which one rank chooses, or of a resumed one in the time that it has left."""
    from filbert.clock import budget as budgets
    from filbert.run.folders import CHECKPOINTS, is_first

    if plan.choice is not None:
        return budgets.resumed(plan, started, out / CHECKPOINTS)
    if not is_first():
        plan = budgets.awaited(out)
        assert plan.choice is not None
        return budgets.Clock(started, plan.seconds, plan.choice)
    choice = chosen(plan.seconds - (time.monotonic() - started))
    plan = replace(plan, choice=choice, before_s=time.monotonic() - started, launch=budgets.launch())
    if not budgets.trained_s(out / CHECKPOINTS):  # else there is a run, which this one may not begin anew
        plan.write(out)
    return budgets.Clock(started, plan.seconds, choice)


def _report(finished: Finished, clock: Clock | None, as_json: bool, started: float) -> None:
    """Prints the result."""
    state, held = finished.outcome.state, finished.outcome.held
    took = time.monotonic() - started
    if as_json:
        measured = {name: value for name, value in held.items() if name != "step"}
        forecast = {"forecast": asdict(clock.choice.forecast)} if clock else {}
        result({"out": str(finished.folder), "steps": state.step, "tokens": state.tokens, "skipped": state.skipped,
                "seconds": round(took, 1), "held": measured, **forecast})  # fmt: skip
        return
    numbers = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in held.items() if name != "step")
    numbers = numbers or "Nothing was measured: too little was held back."
    click.echo(f"{finished.folder}/model: {state.step:,} steps, {state.tokens:,} tokens in {took:.0f} s. {numbers}")
