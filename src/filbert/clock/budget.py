"""A run by the clock: a number of seconds in; size, batch and schedule for this machine, and a forecast, out.

The schedule follows the clock, not the steps: a machine that slows down takes fewer steps and still ends on time with
its rate at zero. What follows the last step (evaluation, checkpoints, model, report) is timed while the run goes on,
and training ends that much earlier.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from filbert.clock import forecast as forecasts
from filbert.clock.forecast import Forecast
from filbert.clock.rules import Rules
from filbert.core import registry
from filbert.core.errors import FilbertError, InputError
from filbert.core.files import json_object, json_text, write_text
from filbert.core.protocols import Objective
from filbert.core.records import Array
from filbert.corpus.shards import Shards
from filbert.models import bert
from filbert.pack.stretches import Text
from filbert.tasks.task import AnyTask, Json
from filbert.text.tokenizer import Tokenizer
from filbert.train import machine, optim
from filbert.train.checkpoint import Store
from filbert.train.distributed import Ranks
from filbert.train.feed import Feed
from filbert.train.journal import duration
from filbert.train.listeners import Entry, Listener
from filbert.train.machine import Machine
from filbert.train.step import Stepper

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")  # a recipe (run.recipe)
PLAN = "budget.json"
UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
PROBES = {"cpu": (("tiny", 512), ("mini", 512)), "cuda": (("fill", 32_768), ("base", 32_768))}  # and their batches
COMPILED = 1.18  # a compiled step against the same without (experiments/2026-11-16-gpu-packed-training.md)
COMPILE_S = 45.0  # until a compiled step is ready
FASTER = 1.4  # all threads must be so much faster than half of them to be taken
LARGER = 0.1  # FLOP/s beyond the larger probe grow with this power of the FLOPs of a token …
MOST_LARGER = 1.25  # … up to this factor
FORWARD = 3.0  # an evaluation is so many times faster than training
TRAINING = 0.9  # of the time left goes into steps; the rest into evaluations, checkpoints and the last acts
SAVED_BYTES_S = 150e6  # before the first checkpoint was timed
IMPORT_S = 3.0  # that importing torch takes where nobody else is at work
EXIT = 0.35  # of the time that importing torch took, it takes to leave it again
LINE_S = 4e-4  # of the report for each step of the log
MARGIN = 0.004  # of the time, kept for what nobody foresaw
READ_BYTES_S = 2e6  # of corpus that one core prepares in a second: vocabulary and shards
PREPARED = 0.15  # of the time for that
TINY_TOKENS_S = 12_000  # that the smallest preset sees in a second on one core at best
BYTES = 3  # of text for a token


def seconds(text: str) -> float:
    """How many seconds "90s", "25m", "1.5h" or "1h30m" are."""
    parts = re.findall(r"([0-9]*\.?[0-9]+)\s*([smhd])", text.strip().lower())
    if not parts or re.sub(r"([0-9]*\.?[0-9]+)\s*([smhd])", "", text.strip().lower()).strip():
        raise InputError(f"--budget {text}: must be a time such as 90s, 25m, 2h or 1h30m.")
    total = sum(float(number) * UNITS[unit] for number, unit in parts)
    if not total > 0:
        raise InputError(f"--budget {text}: must be longer than nothing.")
    return total


def most_bytes(seconds: float, on_gpu: bool, imported_s: float = IMPORT_S) -> int:
    """How much of a corpus a run of that time should read.

    What it can prepare in a part of that time, and no more than twice what the smallest model could see; less where
    importing torch already took longer than it should: others use this machine too.
    """
    cores, slow = _num_cores(), min(max(1.0, imported_s / IMPORT_S), 4.0)
    preparable = PREPARED * seconds * cores * READ_BYTES_S
    visible = math.inf if on_gpu else 2 * BYTES * seconds * cores * TINY_TOKENS_S
    return max(2**20, int(min(preparable, visible) / slow))


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# The clock -----------------------------------------------------------------------------------------------------------


class Clock:
    """The time of a run: from its first step to its end, less what its last acts need.

    began_at: when the command began, by time.monotonic. done: the part of the training that an earlier process did.
    So many calls as the choice says to settle pass before time counts: compiling happens under the first steps.
    """

    def __init__(self, began_at: float, seconds: float, choice: Choice, done: float = 0.0) -> None:
        self.began_at, self.seconds, self.choice, self.done = began_at, seconds, choice, min(max(done, 0.0), 1.0)
        self.acts = Acts(*choice.guesses)
        self.started, self.calls, self.reached = time.monotonic(), 0, self.done

    @property
    def end(self) -> float:
        """When training must end."""
        return self.began_at + self.seconds * (1 - MARGIN) - self.acts.reserve()

    def progress(self) -> float:
        """From 0 when training began to 1 when it should end; never back."""
        now, end = time.monotonic(), self.end
        self.calls += 1
        if self.calls <= self.choice.settle:
            self.started = now
        part = (now - self.started) / (end - self.started) if end > self.started else 1.0
        if now >= end:
            part = 1.0
        self.reached = max(self.reached, self.done + (1 - self.done) * min(1.0, part))
        return self.reached

    def left(self) -> float:
        """Seconds until training ends."""
        return max(0.0, self.end - time.monotonic())


class Times:
    """How long something takes: a guess until it was timed, then the mean of the last few times."""

    def __init__(self, guess: float = 0.0, last: int = 3) -> None:
        self.guess = guess
        self.taken: deque[float] = deque(maxlen=last)

    def mean(self) -> float:
        """Seconds."""
        return sum(self.taken) / len(self.taken) if self.taken else self.guess


class Acts:
    """How long what follows the last step will take, by what such acts took so far in this run."""

    def __init__(self, evaluation_s: float = 0.0, save_s: float = 0.0) -> None:
        self.evaluations, self.saves, self.steps = Times(evaluation_s), Times(save_s), Times(last=20)
        self.num_steps, self.exit_s = 0, 1.0

    def reserve(self) -> float:
        """Seconds: one evaluation, two checkpoints (best and last), the model, the report, leaving, half a step."""
        again = 1.1 * (self.evaluations.mean() + 3 * self.saves.mean())
        return again + LINE_S * self.num_steps + self.exit_s + self.steps.mean() / 2


class Timing:
    """A listener that times a run for its clock, and passes everything on."""

    def __init__(self, listener: Listener, clock: Clock) -> None:
        self.listener, self.clock, self.before = listener, clock, time.monotonic()

    def _taken(self) -> float:
        before, self.before = self.before, time.monotonic()
        return self.before - before

    def step(self, entry: Entry) -> None:
        """A step was done."""
        self.clock.acts.steps.taken.append(self._taken())
        self.clock.acts.num_steps = int(entry["step"])
        self.listener.step({**entry, "left_s": self.clock.left()})

    def evaluation(self, entry: Entry) -> None:
        """The held-out items were measured: the loop does so right after it reported a step."""
        self.clock.acts.evaluations.taken.append(self._taken())
        self.listener.evaluation(entry)

    def event(self, kind: str, message: str, **more: Any) -> None:
        """Something out of the ordinary."""
        self.listener.event(kind, message, **more)


class TimedStore(Store):
    """Checkpoints whose saving is timed."""

    def __init__(self, folder: Path, keep: int, acts: Acts) -> None:
        super().__init__(folder, keep)
        self.acts = acts

    def save(self, step: int, tensors: Mapping[str, Array], state: Mapping[str, object], *, best: bool = False) -> Path:
        """As a store does."""
        before = time.monotonic()
        place = super().save(step, tensors, state, best=best)
        self.acts.saves.taken.append(time.monotonic() - before)
        return place


# The choice ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a run of that time should be on this machine, why, and what will come of it."""

    model: bert.Config
    task: Mapping[str, Any]  # fields that are not as they would be without a clock
    train: Mapping[str, Any]
    machine: Mapping[str, Any]
    forecast: Forecast
    held_tokens: int
    guesses: tuple[float, float]  # seconds of an evaluation and of a checkpoint
    settle: int
    line: str  # the choice in words
    facts: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return dataclasses.asdict(self)

    @classmethod
    def read(cls, fields: Json) -> Choice:
        """From what `plain` returned."""
        made = {"model": bert.Config(**fields["model"]), "forecast": Forecast(**fields["forecast"])}
        return cls(**{**fields, **made, "guesses": tuple(fields["guesses"])})


Fields = Mapping[str, Mapping[str, Any]]  # fields of the recipe that the user fixed: {"train": {…}, …}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What of a run the user has fixed."""

    fields: Fields = field(default_factory=dict)
    preset: str | None = None  # a size
    shape: bert.Config | None = None  # of a model that is trained further


@dataclass(frozen=True, kw_only=True)
class Size:
    """One size that a run could have, and what it would come to."""

    name: str
    model: bert.Config
    speed: float  # tokens a second
    tokens: float  # that it would see
    forecast: Forecast


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a choice is made for: the time, the text and the machine."""

    left_s: float  # of the budget, for training
    seconds: float  # all of it
    unique: int  # tokens of the text
    document: float  # tokens of one, on average
    here: Machine


def choose(seconds: float, shards: Shards, tokenizer: Tokenizer, limits: Limits, rules: Rules) -> Choice:
    """Measures this machine for a moment and takes the size with the lowest forecast loss.

    seconds: all that is left of the budget.
    """
    before = time.monotonic()
    fields = limits.fields
    world, local, local_world = (int(os.environ.get(name, default)) for name, default in
                                 (("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")))  # fmt: skip
    here = machine.chosen(machine.Config(**fields.get("machine", {})), local, local_world)
    spec = registry.taught_by(Objective.MASKED_WORDS)
    task = spec.config(**fields.get("task", {}))
    texts, fixed = spec.items(shards.train.shards, tokenizer, task), "threads" in fields.get("machine", {})
    pace = measured(texts, tokenizer, here, max(3.0, 0.02 * seconds), fixed)
    left = seconds - (time.monotonic() - before) - (COMPILE_S if here.compiled else 0.0)
    if left < max(2.0, 0.05 * seconds):
        raise InputError(
            f"--budget: only {duration(max(0.0, left))} of it are left for training; give more time, or the same again "
            "in the same --out, where the vocabulary and the shards now lie ready."
        )
    gain = world * (COMPILED if here.compiled else 1.0)
    entropy = forecasts.entropy(shards.train.shards, tokenizer.vocab_size)
    unique = max(1, shards.train.num_tokens)
    sizes = []
    for name, model in candidates(limits, tokenizer.vocab_size, rules).items():
        per_token = forecasts.flops(model, task)
        speed = gain * pace.flops_s(per_token) / per_token
        tokens = TRAINING * left * speed
        steps = tokens / _batch(fields, tokens, here, rules)
        forecast = forecasts.forecast(entropy, model, (tokens, steps), unique)
        sizes.append(Size(name=name, model=model, speed=speed, tokens=tokens, forecast=forecast))
    best = min(sizes, key=lambda size: size.forecast.loss)
    conditions = Conditions(left_s=left, seconds=seconds, unique=unique, document=_mean_document(shards), here=here)
    return _choice(best, conditions, fields, rules)


def candidates(limits: Limits, vocab_size: int, rules: Rules) -> dict[str, bert.Config]:
    """The sizes that the user's wishes leave, by name."""
    if limits.shape is not None:
        return {"the given model": limits.shape}
    names = (limits.preset,) if limits.preset else rules.ladder
    wished = limits.fields.get("model", {})
    return {name: replace(bert.SPEC.preset(name, vocab_size), **wished) for name in names}


def _choice(size: Size, conditions: Conditions, fields: Fields, rules: Rules) -> Choice:
    name, model, speed, tokens = size.name, size.model, size.speed, size.tokens
    seconds, unique, here = conditions.seconds, conditions.unique, conditions.here
    batch = _batch(fields, tokens, here, rules)
    steps = max(1, int(tokens / batch))
    if name in bert.PRESETS and "dropout" not in fields.get("model", {}) and model.norm == "post":
        model = replace(model, dropout=rules.dropout if tokens >= rules.passes * unique else 0.0)
    every = max(1, steps // rules.evaluations)
    train = {"steps": steps, "batch_tokens": batch, "learning_rate": rules.peak_rate(model.width, batch),
             "schedule": rules.schedule, "warmup": rules.warmup, "weight_decay": rules.weight_decay,
             "evaluate_every": every,
             "checkpoint_every": max(every, int(rules.checkpoint_s * steps / max(conditions.left_s, 1)))}  # fmt: skip
    is_long = tokens >= rules.long_tokens and conditions.document >= rules.long_documents
    length = min(model.max_length, rules.long_length if is_long else rules.length)
    fixed = {**train, **fields.get("train", {})}
    held = int(min(max(rules.held_part * seconds * speed * FORWARD, rules.held_tokens[0]), rules.held_tokens[1]))
    saved = 12 * sum(math.prod(shape) for shape in bert.shapes(model).values()) / SAVED_BYTES_S
    where = (
        here.name
        if here.is_cuda
        else f"{torch.get_num_threads()} CPU thread{'s' if torch.get_num_threads() > 1 else ''}"
    )
    line = (
        f"{name} ({model.layers} × {model.width}): at about {_round(speed)} tokens/s on {where} it will see about "
        f"{_round(tokens)} tokens ({_round(tokens / unique)} passes over the text), in some {_round(steps)} steps of "
        f"{fixed['batch_tokens']:,}, at a rate of {fixed['learning_rate']:g} at most."
    )
    facts = {"budget": duration(seconds), "size": f"{name}, {model.layers} × {model.width}",
             "speed measured": f"{speed:,.0f} tokens/s", "tokens expected": f"{tokens:,.0f}",
             "forecast": str(size.forecast)}  # fmt: skip
    return Choice(
        model=model, task={"max_length": length}, train=train,
        machine={} if here.is_cuda else {"threads": torch.get_num_threads()}, forecast=size.forecast, held_tokens=held,
        guesses=(held / speed / FORWARD, saved), settle=5 if here.compiled else 1, line=line, facts=facts,
    )  # fmt: skip


def _batch(fields: Fields, tokens: float, here: Machine, rules: Rules) -> int:
    return int(
        fields.get("train", {}).get("batch_tokens") or rules.batch_tokens(tokens, "cuda" if here.is_cuda else "cpu")
    )


def _mean_document(shards: Shards) -> float:
    return float(shards.train.num_tokens / max(1, shards.train.num_documents))


def _round(number: float) -> str:
    """Two digits: 4,200; 5.1M; 1.2G."""
    if number < 1:
        return f"{number:.2g}"
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.2g}{unit}" if number < 100 * size else f"{number / size:,.0f}{unit}"
    digits = max(0, len(str(int(number))) - 2)
    return f"{int(round(number, -digits)):,}"


# The machine ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Speed:
    """What was measured: (FLOPs of a token, FLOP/s) of a smaller and a larger model, and with how many threads."""

    marks: tuple[tuple[float, float], ...]
    threads: int

    def flops_s(self, per_token: float) -> float:
        """FLOP/s to expect of a model of that many FLOPs for each token: small ones are less efficient."""
        (small, slow), (large, fast) = self.marks[0], self.marks[-1]
        if per_token <= small or large == small:
            return slow
        if per_token <= large:
            part = math.log(per_token / small) / math.log(large / small)
            return float(slow ** (1 - part) * fast**part)
        return float(fast * min(MOST_LARGER, (per_token / large) ** LARGER))


def measured(task: AnyTask, tokenizer: Tokenizer, here: Machine, limit_s: float, fixed: bool) -> Speed:
    """Takes real steps of two small models for a moment, and forgets them.

    On a CPU that others use too, threads wait for each other: with half of them the same step may take a tenth of the
    time. So both numbers are tried, unless the user has `fixed` it, and all are taken only where they gain much: others
    may come later.
    """
    before, (smaller, larger) = time.monotonic(), PROBES["cuda" if here.is_cuda else "cpu"]
    most = torch.get_num_threads()
    counts = [most] if fixed or here.is_cuda or most == 1 else [most, most // 2]
    share_s = limit_s / (len(counts) + 2)
    tried: dict[int, tuple[float, float]] = {}
    for threads in counts:
        torch.set_num_threads(threads)
        tried[threads] = _probed(smaller, task, tokenizer, here, share_s)
    few = counts[-1]
    best = most if most in tried and tried[most][1] >= FASTER * tried[few][1] else few
    torch.set_num_threads(best)
    late = time.monotonic() > before + 3 * limit_s  # on a machine so slow that the little that is known must do
    return Speed((tried[best], tried[best] if late else _probed(larger, task, tokenizer, here, 2 * share_s)), best)


def _probed(
    probe: tuple[str, int], task: AnyTask, tokenizer: Tokenizer, here: Machine, limit_s: float
) -> tuple[float, float]:
    """(FLOPs of a token, FLOP/s)."""
    name, tokens = probe
    until, here = math.inf, machine.one_by_one(here)
    model = bert.Bert(bert.SPEC.preset(name, tokenizer.vocab_size), task.parts)
    stepper = Stepper(model, task, optim.Settings("adamw", 1e-5, 0.01), here, Ranks(), 0)
    seen, taken = 0, 0.0
    for number, fed in enumerate(Feed(task, 0, max(tokens, task.longest), here, Ranks(), (0, 0), 1)):
        before = time.monotonic()
        counts = {name: float(count) for name, count in task.counts(fed.parts[0]).items()}
        stepper.step(fed.parts, counts, number, 1e-5, 1.0).numbers.cpu()
        if not number:  # slower than all others: it imports, allocates, warms up
            until = time.monotonic() + limit_s
            continue
        taken += time.monotonic() - before
        seen += int(fed.parts[0].packed.boundaries[-1])
        if (number >= 2 and time.monotonic() > until) or number >= 60:
            break
    per_token = forecasts.flops(model.config, task.config)
    return per_token, per_token * seen / max(taken, 1e-9)


# Held-out texts ------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Sample:
    """Some documents of some shards, as a shard."""

    ids: Any
    words: Any
    documents: Any
    sentences: Any
    num_tokens: int


def sample(shards: Sequence[Text], tokens: int) -> list[Text]:
    """Documents from all over, cut at the end of a sentence where they are long, of about so many tokens together."""
    if sum(shard.num_tokens for shard in shards) <= tokens:
        return list(shards)
    places = [(at, index) for at, shard in enumerate(shards) for index in range(len(shard.documents) - 1)]
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(places))
    most = max(512, tokens // 16)
    ids, words, documents, sentences = [], [], [0], [np.zeros(0, dtype=np.int64)]
    for place in order:
        shard, index = shards[places[place][0]], places[place][1]
        begin, end = int(shard.documents[index]), int(shard.documents[index + 1])
        edges = np.asarray(shard.sentences)
        inside = edges[np.searchsorted(edges, begin) : np.searchsorted(edges, end) + 1]
        fitting = inside[(inside > begin) & (inside <= begin + most)]
        end = int(fitting[-1]) if len(fitting) else end
        sentences.append(inside[inside < end] - begin + documents[-1])
        ids.append(np.asarray(shard.ids[begin:end]))
        words.append(np.asarray(shard.words[begin:end]))
        documents.append(documents[-1] + end - begin)
        if documents[-1] >= tokens and len(ids) >= 2:
            break
    edges = np.concatenate([*sentences, documents[-1:]]).astype(np.int64)
    return [Sample(np.concatenate(ids), np.concatenate(words), np.array(documents), edges, documents[-1])]


# What is kept of it --------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Plan:
    """budget.json: the choice, so that a killed run resumes with it, and several ranks have the same."""

    seconds: float
    most_bytes: int
    launch: str = ""
    before_s: float = 0.0  # that passed in all processes of this run before they trained
    choice: Choice | None = None

    def write(self, out: Path) -> None:
        """Whole or not at all."""
        fields = {**dataclasses.asdict(self), "choice": self.choice.plain() if self.choice else None}
        write_text(out / PLAN, json_text(fields))

    @classmethod
    def read(cls, out: Path) -> Plan | None:
        """None where there is none; one that is damaged is refused by name."""
        if not (out / PLAN).exists():
            return None
        fields = json_object(out / PLAN)
        try:
            choice = Choice.read(fields.pop("choice")) if fields.get("choice") else fields.pop("choice")
            return cls(**fields, choice=choice)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{out / PLAN}: is not a plan of filbert's ({error}); take another --out.") from None


def launch() -> str:
    """What all ranks that were started together have in common, and no ranks of another time."""
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    is_one_machine = os.environ.get("WORLD_SIZE") == os.environ.get("LOCAL_WORLD_SIZE")
    return "|".join([*(os.environ.get(name, "") for name in names), str(os.getppid()) if is_one_machine else ""])


def resumed(plan: Plan, began_at: float, checkpoints: Path) -> Clock:
    """The clock of a resumed run: the time up to its last checkpoint is spent, work after it is lost."""
    assert plan.choice is not None
    trained = trained_s(checkpoints)
    clock = Clock(began_at, plan.seconds - plan.before_s - trained, plan.choice)
    whole = plan.seconds * (1 - MARGIN) - plan.before_s - clock.acts.reserve()
    clock.done = clock.reached = min(1.0, trained / max(whole, trained, 1e-9))
    if os.environ.get("RANK", "0") == "0":
        before_s = plan.before_s + time.monotonic() - began_at
        replace(plan, before_s=before_s, launch=launch()).write(checkpoints.parent)
    return clock


def trained_s(checkpoints: Path) -> float:
    """How long the run had trained at its last checkpoint; 0 where there is none."""
    checkpoint = Store(checkpoints).newest() if checkpoints.exists() else None
    return float(checkpoint.state["state"]["seconds"]) if checkpoint is not None else 0.0


def awaited(out: Path, limit_s: float = 600.0) -> Plan:
    """The plan that the first rank makes."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        plan = Plan.read(out)
        if plan is not None and plan.choice is not None and plan.launch == launch():
            return plan
        time.sleep(0.05)
    raise FilbertError(f"{out / PLAN}: rank 0 wrote no plan in {duration(limit_s)}; look at what it says.")
