"""The one loop: a model and a task in, a trained model and its log out.

Order, masks and batches are functions of (seed, epoch, example), dropout of (seed, step, rank): a run that was killed
and resumed at the same number of ranks takes the very same steps as one that was not.
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import FrameType
from typing import Any, Protocol

import numpy as np
import torch

from filbert.core.errors import FilbertError, InputError, one_of
from filbert.core.protocols import Task
from filbert.nn.encoder import Encoder
from filbert.pack.batches import Places
from filbert.train import machine as machines
from filbert.train import optim, tune
from filbert.train.checkpoint import Checkpoint, Store
from filbert.train.distributed import Ranks
from filbert.train.feed import Fed, Feed, first_line, is_dead_worker
from filbert.train.listeners import Entry, Listener, Silent
from filbert.train.machine import Machine
from filbert.train.step import LossModule, OutOfMemoryError, Stepper, on_device

READ_EVERY = 20  # steps between two looks at what a GPU did: a look makes the host wait
MOST_SKIPPED = 3  # steps in a row without a finite gradient
SPREAD_BATCHES, LEAST_BATCHES = 32, 8  # of an evaluation with a standard error, and the fewest that give one
ECHO_S = 1.0  # within which a second signal is the first one again
SHOWN = 8  # examples named where a batch is


@dataclass(frozen=True, kw_only=True)
class Config:
    """How long and how fast to train."""

    steps: int = 1_000
    batch_tokens: int = 4_096
    learning_rate: float = 1e-3
    head_rate: float = 1.0  # times the rate of the rest, for a task's head
    schedule: str = "linear"
    warmup: float = 0.1
    optimiser: str = "adamw"
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    checkpoint_every: int = 1_000
    evaluate_every: int = 1_000
    patience: int = 0  # evaluations without a better one before the run stops early; 0 never stops

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "checkpoint_every", "evaluate_every"):
            if type(getattr(self, name)) is not int or not 1 <= getattr(self, name) < 2**31:
                raise InputError(
                    f"train.{name} is {getattr(self, name)!r}, but must be a whole number from 1 and below 2^31."
                )
        if type(self.seed) is not int or abs(self.seed) >= 2**63:
            raise InputError(f"the seed is {self.seed!r}, but must be a whole number between -2^63 and 2^63.")
        for name, least, most in (("learning_rate", 0, 1), ("head_rate", 0, 1e4), ("clip", 0, math.inf)):
            if not least < getattr(self, name) < most:
                raise InputError(
                    f"train.{name} is {getattr(self, name)!r}, but must be above {least} and below {most:g}."
                )
        for name, most in (("warmup", 1), ("weight_decay", 1)):
            if not 0 <= getattr(self, name) < most:
                raise InputError(f"train.{name} is {getattr(self, name)!r}, but must be from 0 up to {most}.")
        if type(self.patience) is not int or self.patience < 0:
            raise InputError(f"train.patience is {self.patience!r}, but must be a whole number of 0 or more.")
        if self.schedule not in optim.SCHEDULES:
            raise one_of("train.schedule", self.schedule, optim.SCHEDULES)
        if self.optimiser not in optim.OPTIMISERS:
            raise one_of("train.optimiser", self.optimiser, optim.OPTIMISERS)


class Clock(Protocol):
    """A run's time: how far it has come by the clock instead of by steps."""

    def progress(self) -> float:
        """From 0 at the start to 1 when the run should end."""
        ...


class StoppedError(FilbertError):
    """A signal ended the run after its work was saved."""

    def __init__(self, number: int, step: int, saved: bool) -> None:
        name = signal.Signals(number).name
        where = f"step {step:,} is saved; go on with --resume" if saved else "nothing was saved"
        super().__init__(f"stopped by {name}: {where}.")
        self.exit_code = 128 + number


@dataclass(slots=True)
class State:
    """Where a run is; all of it stands in every checkpoint."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # the next one
    parts: int = 1
    tokens: int = 0
    skipped: int = 0
    in_a_row: int = 0
    best: float | None = None
    since_best: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    state: State
    held: Mapping[str, float]  # the last evaluation
    stopped_early: bool
    spread: Mapping[str, float] = field(default_factory=dict)  # standard errors of it, in a run by the clock


@dataclass(kw_only=True)
class Course:
    """What a run may have beside the model and the task: evaluation, checkpoints, machine, listener."""

    held: Task | None = None  # evaluated now and then, never learnt from
    watched: str = "loss"  # the number of an evaluation that says which is best; accuracies are best high, losses low
    machine: machines.Config = field(default_factory=machines.Config)
    ranks: Ranks = field(default_factory=Ranks)
    store: Store | None = None
    resume: bool = False
    identity: Mapping[str, str] = field(default_factory=dict)  # what must be the same for a run to go on …
    force: bool = False  # … unless this is set
    listener: Listener = field(default_factory=Silent)
    clock: Clock | None = None
    tuning: tune.Config = field(default_factory=tune.Config)  # which weights learn, and when


def fit(
    model: Encoder,
    task: Task,
    config: Config,
    on_step: Callable[[Entry], object] | None = None,
    machine: machines.Config | None = None,
    tuning: tune.Config | None = None,
) -> Outcome:
    """Trains a model by itself, without a run folder; `on_step` is called with every step ({"step", "loss", …})."""
    listener = Silent() if on_step is None else _Steps(on_step)
    course = Course(machine=machine or machines.Config(), tuning=tuning or tune.Config(), listener=listener)
    return Training(model, task, config, course).run()


class _Steps(Silent):
    def __init__(self, callback: Callable[[Entry], object]) -> None:
        self.callback = callback

    def step(self, entry: Entry) -> None:
        self.callback(entry)


class Training:
    """A run: what it has, and the steps it takes."""

    def __init__(self, model: Encoder, task: Task, config: Config, course: Course) -> None:
        self.task, self.config, self.course = task, config, course
        self.ranks, self.listener = course.ranks, course.listener
        if course.tuning.method == "gradual" and (self.ranks.world > 1 or course.clock is not None):
            raise InputError("tune.method=gradual is for a run by steps in one process; take full, frozen or lora.")
        machine = machines.chosen(course.machine, self.ranks.local, self.ranks.local_world)
        self.machine: Machine = machine if model.steady else machines.unsteady(machine)
        self.state = State(parts=self.machine.parts)
        decay = course.tuning.layer_decay
        settings = optim.Settings(config.optimiser, config.learning_rate, config.weight_decay, config.head_rate, decay)
        self.stepper = Stepper(model, task, settings, self.machine, self.ranks, config.seed)
        layers = tune.num_layers(name for name, _ in self.stepper.model.named_parameters())
        self.depths = [tune.depth(name, layers) for name in self.stepper.learning]
        self._thaw(0)
        self.pending: list[tuple[dict[str, Any], Any]] = []
        self.last_held: dict[str, float] = {}
        self.spread: dict[str, float] = {}
        self.started_at = time.perf_counter()

    # The course of a run ----------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Trains to the end and leaves the model in eval mode."""
        if self.course.store is not None and self.ranks.is_first:
            self.course.store.check_writable()
        if self.course.resume:
            self._restore()
        self.started_at = time.perf_counter() - self.state.seconds
        with _signals(launched=self.ranks.world > 1) as caught:
            early = self._steps(caught)
        self._read()
        if self.config.evaluate_every <= self.state.step or self.course.clock is not None or early:
            self._evaluate_unless_done()
        self._save()
        self.stepper.finish()
        return Outcome(self.state, self.last_held, early, self.spread)

    def _steps(self, caught: list[int]) -> bool:
        """True where it stopped early."""
        try:
            return self._stepped(caught)
        except RuntimeError as error:  # torch raises for a dead worker wherever the program happens to be
            if not is_dead_worker(error):
                raise
            raise FilbertError(f"a loader worker died ({first_line(error)}); resume the run.") from None

    def _stepped(self, caught: list[int]) -> bool:
        while not self._is_over() and not self._is_late():
            feed = iter(self._feed())
            try:
                for fed in feed:
                    self._one(fed)
                    over = self._is_over()
                    if not over:
                        self._after()
                    if self._is_stopped(caught):  # only now: what was due at this step is in what is saved
                        self._stop(caught)
                    if over or self._is_late():
                        break
            except OutOfMemoryError as error:
                self._halve(error)
            finally:
                feed.close()  # type: ignore[attr-defined]
        return self._is_late()

    def _feed(self) -> Feed:
        place = (self.state.epoch, self.state.batch)
        c = self.config
        return Feed(self.task, c.seed, c.batch_tokens, self.machine, self.ranks, place, self.state.parts)

    def _is_over(self) -> bool:
        if self.course.clock is not None and self.state.step:
            return self._agreed(self.course.clock.progress() >= 1)
        return self.state.step >= self.config.steps

    def _is_late(self) -> bool:
        """Whether nothing better has come for long enough; a run that is resumed after that does not go on."""
        return self.config.patience > 0 and self.state.since_best >= self.config.patience

    def _agreed(self, flag: bool) -> bool:
        """One rank's yes is everybody's: clocks and signals are not the same everywhere."""
        return self.ranks.totals({"flag": float(flag)})["flag"] > 0

    def _rate(self) -> float:
        c = self.config
        if self.course.clock is not None:
            progress = self.ranks.totals({"progress": self.course.clock.progress()})["progress"] / self.ranks.world
            return c.learning_rate * optim.share_at(c.schedule, min(1.0, progress), c.warmup)
        return c.learning_rate * optim.share(c.schedule, self.state.step, c.steps, c.warmup)

    def _thaw(self, step: int) -> None:
        self.stepper.thaw(tune.lowest(self.course.tuning.method, self.depths, step, self.config.steps))

    def _one(self, fed: Fed) -> None:
        if self.course.tuning.method == "gradual":  # by all others the same weights learn at every step
            self._thaw(self.state.step)
        rate = self._rate()
        mine: dict[str, float] = {"tokens": 0.0}
        for part in fed.parts:
            mine["tokens"] += int(part.packed.boundaries[len(part.starts)]) * fed.weight
            for name, count in self.task.counts(part).items():
                mine[name] = mine.get(name, 0.0) + count * fed.weight
        counts = self.ranks.totals(mine)
        outcome = self.stepper.step(fed.parts, counts, self.state.step, rate, self.config.clip, fed.weight)
        state = self.state
        state.step += 1
        state.tokens += int(counts["tokens"])
        state.epoch, state.batch = (fed.epoch + 1, 0) if fed.last else (fed.epoch, fed.batch + 1)
        entry = {
            "step": state.step, "epoch": fed.epoch, "batch": fed.batch, "rate": rate, "tokens": int(counts["tokens"]),
            "examples": fed.examples[: SHOWN + 1],
        }  # fmt: skip
        self.pending.append((entry, outcome))
        if not self.machine.is_cuda or len(self.pending) >= READ_EVERY:
            self._read()

    def _after(self) -> None:
        """What is due between steps."""
        state, c = self.state, self.config
        if self.course.held is not None and state.step % c.evaluate_every == 0:
            self._read()
            self._evaluate()
            if self._is_late():
                self.listener.event("early", f"stopped early: no better evaluation in the last {c.patience}.")
                return
        if state.step % c.checkpoint_every == 0:
            self._save()

    # What the steps saw -----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Reads the outcomes of pending steps from the device, and passes them to the listener."""
        if not self.pending:
            return
        columns = torch.stack([outcome.numbers.double() for _, outcome in self.pending]).cpu().tolist()
        elapsed = time.perf_counter() - self.started_at
        before, count = self.state.seconds, len(self.pending)
        self.state.seconds = elapsed
        waiting, self.pending = self.pending, []
        for at, ((entry, outcome), numbers) in enumerate(zip(waiting, columns, strict=True)):
            *values, norm, skipped = numbers
            means = {
                name: total / number if number else 0.0
                for name, total, number in zip(outcome.names, values[::2], values[1::2], strict=True)
            }
            examples = entry.pop("examples")
            entry["loss"] = sum(value for name, value in means.items() if name.endswith("_loss"))
            entry["seconds"] = before + (elapsed - before) * (at + 1) / count
            self.listener.step({**entry, **means, "norm": norm})
            if skipped:
                self._count_skip(entry, norm, examples)
            else:
                self.state.in_a_row = 0

    def _count_skip(self, entry: Entry, norm: float, examples: Places) -> None:
        state = self.state
        state.skipped += 1
        state.in_a_row += 1
        named = ", ".join(str(int(example)) for example in examples[:SHOWN]) + (", …" if len(examples) > SHOWN else "")
        where = f"step {entry['step']} (epoch {entry['epoch']}, batch {entry['batch']}: examples {named})"
        what = f"the loss is {entry['loss']:.4g} and the gradient's norm {norm:.4g}"
        self.listener.event("skipped", f"{where} was skipped: {what}.", step=entry["step"])
        if state.in_a_row >= MOST_SKIPPED:
            raise FilbertError(
                f"{MOST_SKIPPED} steps in a row had no finite gradient, the last at {where}; the weights are as they "
                "were before. Try a smaller train.learning_rate, or look at those examples."
            )

    def _evaluate_unless_done(self) -> None:
        if self.course.held is not None and self.last_held.get("step") != self.state.step:
            self._evaluate()

    def _evaluate(self) -> None:
        """Measures the held-out items; the best state so far is saved at once."""
        assert self.course.held is not None
        here = (self.machine, self.ranks)
        config, spread = self.config, self.spread if self.course.clock is not None else None
        if spread is not None:  # in so many batches that it shows how far their mean can be believed
            share = int(np.sum(self.course.held.plan(0).lengths)) // SPREAD_BATCHES
            least = _longest(self.course.held) * self.ranks.world * self.state.parts
            config = replace(config, batch_tokens=min(config.batch_tokens, max(least, share)))
        held = evaluate(self.stepper.measured, self.course.held, config, *here, self.state.parts, spread)
        self.last_held = {**held, "step": self.state.step}
        self.listener.evaluation({"step": self.state.step, "held": held})
        number = held[self.course.watched] * (1 if self.course.watched.endswith("loss") else -1)
        is_better = math.isfinite(number) and (self.state.best is None or number < self.state.best)
        self.state.since_best = 0 if is_better else self.state.since_best + 1
        if is_better:
            self.state.best = number
            self._save(best=True)

    # What is kept -----------------------------------------------------------------------------------------------------

    def _save(self, best: bool = False) -> None:
        self._read()
        tensors = self.stepper.tensors() if self.course.store is not None else {}
        if self.course.store is not None and self.ranks.is_first:
            about = {"state": _fields(self.state), "world": self.ranks.world, "sharding": self.machine.sharding,
                     "identity": dict(self.course.identity),
                     "threads": torch.get_num_threads(), "held": _finite(self.last_held)}  # fmt: skip
            self.course.store.save(self.state.step, tensors, about, best=best)
        self.ranks.wait()

    def _restore(self) -> None:
        assert self.course.store is not None
        if self.ranks.is_first:
            checkpoint = self.course.store.newest()  # sets damaged ones aside
            for note in self.course.store.notes:
                self.listener.event("damaged", note)
        self.ranks.wait()
        checkpoint = self.course.store.newest()
        self.ranks.agree("the newest checkpoint", checkpoint.sha256 if checkpoint is not None else "")
        if checkpoint is None:
            return
        if self.course.force and (changed := _changed(checkpoint, self.course.identity)):
            self.listener.event("changed", f"goes on by force with another {changed}.")
        elif not self.course.force:
            check_identity(checkpoint, self.course.identity)
        self.state = State(**checkpoint.state["state"])
        self._thaw(max(0, self.state.step - 1))  # what had learnt by then has a state
        self.stepper.restore(checkpoint.tensors())
        self.last_held = dict(checkpoint.state["held"])
        self.listener.event("resumed", f"goes on after step {self.state.step:,}.", step=self.state.step)
        here = {"world": self.ranks.world, "threads": torch.get_num_threads(), "sharding": self.machine.sharding}
        for what, now in here.items():
            if checkpoint.state[what] != now:
                message = (
                    f"{what} is {now} and was {checkpoint.state[what]}: the order of examples is the same, but "
                    "roundings are not, so the weights will not be bit for bit those of an uninterrupted run."
                )
                self.listener.event("changed", message)

    # What goes wrong --------------------------------------------------------------------------------------------------

    def _is_stopped(self, caught: list[int]) -> bool:
        return self._agreed(bool(caught)) if self.ranks.world > 1 else bool(caught)

    def _stop(self, caught: list[int]) -> None:
        self._save()
        raise StoppedError(caught[0] if caught else signal.SIGTERM, self.state.step, self.course.store is not None)

    def _halve(self, error: OutOfMemoryError) -> None:
        """Twice the parts, each half as large; the same step is then taken again."""
        state = self.state
        tokens, longest = self.config.batch_tokens // (state.parts * self.ranks.world), _longest(self.task)
        if self.ranks.world > 1 or tokens // 2 < max(longest, 1):
            raise FilbertError(
                f"out of memory at step {state.step + 1} with {tokens:,} tokens at a time and texts of up to "
                f"{longest} tokens ({error}); give a smaller train.batch_tokens or task.max_length, or a smaller model."
            )
        state.parts *= 2
        self.listener.event(
            "memory", f"out of memory: a step's {self.config.batch_tokens:,} tokens now go in {state.parts} parts."
        )


def evaluate(
    model: Encoder | LossModule,
    task: Task,
    config: Config,
    machine: Machine,
    ranks: Ranks,
    parts: int = 1,
    spread: dict[str, float] | None = None,
) -> dict[str, float]:
    """The means of all terms over one pass of the task, the same questions every time; `loss` is the sum of losses.

    spread: is given each mean's standard error, from how the batches differ, where there are enough of them.
    """
    whole = Feed(task, config.seed, config.batch_tokens, machines.one_by_one(machine), ranks, (0, 0), parts)
    sums: dict[str, float] = {}
    modes = [(module, module.training) for module in model.modules()]  # some may be frozen
    model.eval()
    loss_module = model if isinstance(model, LossModule) else LossModule(model, task)
    with torch.no_grad() if loss_module is model else torch.inference_mode():  # gathered weights are kept for steps
        for fed in iter(whole):
            for part in fed.parts:
                for name, (total, count) in loss_module(on_device(part, machine.device), task).items():
                    weighted, number = float(total) * fed.weight, float(count) * fed.weight
                    both = {"": weighted, "#": number}
                    if spread is not None:
                        both |= {
                            "#tt": weighted * weighted,
                            "#tn": weighted * number,
                            "#nn": number * number,
                            "#one": 1.0,
                        }
                    for kind, value in both.items():
                        sums[name + kind] = sums.get(name + kind, 0.0) + value
            if fed.last:
                break
    for module, was_training in modes:
        module.training = was_training
    sums = ranks.totals(dict(sorted(sums.items())))
    means = {name: total / max(1.0, sums[f"{name}#"]) for name, total in sums.items() if "#" not in name}
    if spread is not None:
        spread.clear()
        spread.update(_errors(sums, means))
    means["loss"] = sum(value for name, value in means.items() if name.endswith("_loss"))
    return {**means, **task.derived(means)}


def _errors(sums: Mapping[str, float], means: Mapping[str, float]) -> dict[str, float]:
    """The standard error of each mean, a ratio of two sums over batches (Cochran 1977, §6.4)."""
    errors = {}
    for name, mean in means.items():
        products, num_batches, count = ([sums[f"{name}#{kind}"] for kind in ("tt", "tn", "nn")], sums[f"{name}#one"],
                                        sums[f"{name}#"])  # fmt: skip
        if num_batches >= LEAST_BATCHES and count:
            apart = max(0.0, products[0] - 2 * mean * products[1] + mean * mean * products[2])
            errors[name] = math.sqrt(apart * num_batches / (num_batches - 1)) / count
    return errors


def check_identity(checkpoint: Checkpoint, identity: Mapping[str, str]) -> None:
    """Refuses to go on from a checkpoint with anything that would make it another run."""
    if changed := _changed(checkpoint, identity):
        raise InputError(
            f"{checkpoint.path}: was made with another {changed}; resume with what it was made with, choose another "
            "--out, or take --force to go on regardless."
        )


def _changed(checkpoint: Checkpoint, identity: Mapping[str, str]) -> str:
    """The names of identity fields that changed, with old and new values."""
    before: dict[str, str] = checkpoint.state["identity"]
    names = [name for name, value in identity.items() if before.get(name) != value]
    named = (f"{name} ({before.get(name)}, now {identity[name]})" if "." in name else name for name in names)
    return " and another ".join(named)


def _longest(task: Task) -> int:
    return task.longest or 1


def _finite(numbers: Mapping[str, float]) -> dict[str, float]:
    """Those that are numbers: JSON has no others."""
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _fields(state: State) -> dict[str, Any]:
    return asdict(state)


@contextlib.contextmanager
def _signals(launched: bool) -> Iterator[list[int]]:
    """SIGINT and SIGTERM are noted, to be obeyed between steps; a second one, after a while, ends the process at once.

    A launcher passes on what a terminal has sent to all already, so that two may come at almost one moment; and when
    the first of its ranks has ended it sends SIGTERM to the others, which must not disturb what they still have to say.
    """
    caught: list[int] = []
    first = math.inf

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if time.monotonic() > first + ECHO_S:
            raise KeyboardInterrupt
        first = min(first, time.monotonic())
        caught.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {number: signal.signal(number, note) for number in numbers}
    except ValueError:  # not the main thread: signals are the caller's
        yield caught
        return
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if launched and caught and number == signal.SIGTERM else handler)
