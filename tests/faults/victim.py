"""A corpus, settings and a mishap in; a pretraining run in a process of its own, and what it left, out.

Nothing in the product knows of this file: mishaps are planted from outside, in a forked copy of a process that has
imported everything already, so that an attempt costs a second and not four. `python victim.py SCENE FOLDER` plays a
scene of scenes.py; `python victim.py stage` plays those that its standard input names, each in a fork of its own;
`python victim.py run ARGUMENTS…` is `filbert ARGUMENTS…` with the mishap that MISHAP in the environment tells, for
torchrun.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch._dynamo  # imported by the first optimiser; here before the fork

from filbert.cli import main as cli
from filbert.cli import pretrain  # noqa: F401  imported before the fork
from filbert.core.protocols import Term
from filbert.run.pretrain import Corpus, vocabulary
from filbert.tasks.mlm_nsp import items as mlm_nsp
from filbert.train import checkpoint, journal, loop, optim
from filbert.train.feed import Fed, Feed
from filbert.train.step import Stepper

STEPS = 40
SETTINGS: dict[str, object] = {
    "model.width": 32, "model.layers": 2, "model.heads": 2, "model.inner": 64, "model.max_length": 64,
    "task.max_length": 48, "train.steps": STEPS, "train.batch_tokens": 256, "train.checkpoint_every": 7,
    "train.evaluate_every": 10, "train.learning_rate": 3e-3, "machine.workers": 0, "machine.threads": 1,
}  # fmt: skip
LIMIT_S = 240.0  # of one process: for a machine that is busy with other things
Mishap = Callable[[], None]


# What is trained ------------------------------------------------------------------------------------------------------


def corpus(folder: Path, seed: int = 18, documents: int = 320) -> Path:
    """A small text of made-up words, the same for the same seed; some of its documents are held back."""
    draw = random.Random(seed)
    words = ["".join(draw.choice("abcdefghijklmnop") for _ in range(draw.randint(2, 7))) for _ in range(150)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"corpus-{seed}.txt"
    sentences = (
        [" ".join(draw.choices(words, k=draw.randint(3, 8))) + "." for _ in range(draw.randint(1, 4))]
        for _ in range(documents)
    )
    if not path.exists():
        path.write_text("\n\n".join("\n".join(each) for each in sentences) + "\n", encoding="utf-8")
    return path


def arguments(folder: Path, out: Path, *more: str, **settings: object) -> list[str]:
    """The words after `filbert`; a setting's dot is written as two underscores. The shards are shared in the folder."""
    texts = corpus(folder)
    if not (folder / "vocab" / "vocab.txt").exists():
        vocabulary(Corpus(sources=(str(texts),)), 300, folder)
    chosen = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
    said = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    places = {"--vocab": folder / "vocab", "--shards": folder / "shards"}
    usual = [str(word) for name, place in places.items() if name not in more for word in (name, place)]
    return ["pretrain", str(texts), "--out", str(out), "--preset", "tiny", *usual, *said, *more]


# Processes ------------------------------------------------------------------------------------------------------------


def forked(words: Sequence[str], mishap: Mishap | None = None, **environment: str) -> int:
    """A new process that runs `filbert words`; its number. What it says is added to OUT/said.txt."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
        os.environ.update(environment)
        folder = Path(words[words.index("--out") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        if environment.get("RANK", "0") == "0" and "--resume" not in words:
            (folder / "words.json").write_text(json.dumps(list(words)), encoding="utf-8")  # for `first_step`
        said = os.open(folder / f"said{environment.get('RANK', '')}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.fsync = nothing
        faulthandler.dump_traceback_later(LIMIT_S / 2)
        if mishap is not None:
            mishap()
        code = entered(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def entered(words: Sequence[str]) -> int:
    """Runs the command here; its exit code."""
    sys.argv = ["filbert", *words]
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 99  # a traceback is a bug of ours
    return 0


def nothing(handle: int) -> None:
    """In place of fsync: a killed process loses nothing that the system has."""


def ended(child: int, limit_s: float = LIMIT_S) -> int:
    """The exit code of a process, negative for a signal; one that takes longer is killed, and that is an error."""
    last = time.monotonic() + limit_s
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > last:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise TimeoutError(f"the process was still running after {limit_s} s")
        time.sleep(0.005)


def is_over(child: int) -> bool:
    """Whether a process has ended; it is still there for `ended`."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill(child: int) -> None:
    """SIGKILL to a child that was not yet waited for."""
    os.kill(child, signal.SIGKILL)


def left() -> list[int]:
    """Processes besides this one that are in its session, as all that a scene forks are, zombies apart."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            status, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            number = int(path.parent.name)
            if int(session) == os.getsid(0) and number != os.getpid() and status != "Z":
                found.append(number)
    return found


def ranks(words: Sequence[str], world: int, mishaps: Mapping[int, Mishap] | None = None, restart: int = 0) -> list[int]:
    """The processes of so many ranks, as torchrun would start them."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    shared = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": str(port), "TORCHELASTIC_RESTART_COUNT": str(restart)}  # fmt: skip
    return [
        forked(words, (mishaps or {}).get(rank), RANK=str(rank), LOCAL_RANK=str(rank), **shared)
        for rank in range(world)
    ]


def together(children: Sequence[int], limit_s: float = LIMIT_S) -> list[int]:
    """The exit codes of ranks; when one has failed the others are told to end, as torchrun does."""
    last, codes = time.monotonic() + limit_s, dict[int, int]()
    while len(codes) < len(children):
        for child in children:
            if child not in codes and is_over(child):
                codes[child] = ended(child)
                if codes[child] and all(code == 0 for other, code in codes.items() if other != child):
                    for other in children:
                        if other not in codes:
                            os.kill(other, signal.SIGTERM)
        if time.monotonic() > last:
            for child in children:
                if child not in codes:
                    kill(child)
                    ended(child)
            raise TimeoutError(f"ranks were still running after {limit_s} s: {codes}")
        time.sleep(0.005)
    return [codes[child] for child in children]


def said(out: Path, rank: str = "") -> str:
    """All that the command told on both streams."""
    return (out / f"said{rank}.txt").read_text(encoding="utf-8")


# What came out --------------------------------------------------------------------------------------------------------


def losses(out: Path) -> dict[int, tuple[str, ...]]:
    """Every number of every step that learning depends on, as exact hexadecimal floats."""
    names = ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "norm", "rate", "tokens", "epoch", "batch")
    lines = [line for line in journal.entries(out / "log.jsonl") if "loss" in line]
    found = {line["step"]: tuple("none" if line[n] is None else float(line[n]).hex() for n in names) for line in lines}
    assert list(found) == list(range(1, len(found) + 1)), "a step is missing from the log, or stands in it twice"
    assert len(lines) == len(found)
    return found


def measured(out: Path) -> list[tuple[int, dict[str, str]]]:
    """Every evaluation, in the same way."""
    lines = [line for line in journal.entries(out / "log.jsonl") if "held" in line]
    return [(line["step"], {name: float(value).hex() for name, value in line["held"].items()}) for line in lines]


def events(out: Path, kind: str) -> list[str]:
    """What was told of that kind."""
    return [line["message"] for line in journal.entries(out / "log.jsonl") if line.get("event") == kind]


def weights(out: Path) -> dict[str, torch.Tensor]:
    """The tensors of the newest checkpoint."""
    found = checkpoint.Store(out / "checkpoints").newest()
    assert found is not None
    return found.tensors()


def state(out: Path) -> dict[str, Any]:
    """Where the newest checkpoint is, without the time it took."""
    found = checkpoint.Store(out / "checkpoints").newest()
    assert found is not None
    return {name: value for name, value in found.state["state"].items() if name != "seconds"}


def same(one: Path, two: Path) -> None:
    """Two runs that ended alike: every loss by its bits, every evaluation, weight and moment, the model folder."""
    assert losses(one) == losses(two)
    assert measured(one) == measured(two)
    assert state(one) == state(two)
    first, second = weights(one), weights(two)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor.view(-1).view(torch.uint8), second[name].view(-1).view(torch.uint8)), name
    files = [(each / "model" / "model.safetensors").read_bytes() for each in (one, two)]
    assert files[0] == files[1]


def apart(one: Path, two: Path, only: str = "model/") -> float:
    """How far apart two runs' weights are, as a share of how far training has moved them since its first step.

    Two orders of summing the same numbers differ by their roundings, which hang on the CPU and its libraries, and Adam
    makes a single weight's rounding as large as a step where its gradient is near eps. So no bound on the largest
    difference of one weight holds on every machine; the length of all differences, beside the way that training went,
    is some millionths for another order of sums, and some hundredths if one rank's part of one step is left out.
    """
    first, second, begun = weights(one), weights(two), weights(first_step(one))
    assert first.keys() == second.keys()
    names = [name for name in first if name.startswith(only) and not name.startswith("optimiser/step/")]
    return length(first, second, names) / length(first, begun, names)


def length(one: Mapping[str, torch.Tensor], two: Mapping[str, torch.Tensor], names: Sequence[str]) -> float:
    """The Euclidean length of the difference of all these tensors together."""
    return sum(float((one[n].double() - two[n].double()).square().sum()) for n in names) ** 0.5


def first_step(out: Path) -> Path:
    """A run with the recipe of that one which ends after its first step; made once."""
    begun = out.with_name(f"{out.name}-first-step")
    if not begun.exists():
        words = json.loads((out / "words.json").read_text(encoding="utf-8"))
        words[words.index("--out") + 1] = str(begun)
        code = ended(forked([*words, "--set", "train.steps=1"]))
        assert code == 0, said(begun)
    return begun


# Mishaps --------------------------------------------------------------------------------------------------------------

PLACES: tuple[tuple[Any, str], ...] = (  # where a counted kill may strike, besides between any two of them
    (Stepper, "_backward"), (optim, "clip"), (optim.AdamW, "step"), (Stepper, "_moved"), (journal.Journal, "_write"),
    (loop, "evaluate"), (os, "write"), (os, "fsync"), (os, "rename"), (os, "mkdir"), (os, "unlink"),
)  # fmt: skip


def counted(struck: Callable[[str, int], bool]) -> Mishap:
    """Asks before each call of those places whether this is the one, and dies there; a write is done by half."""

    def plant() -> None:
        counter = iter(range(10**9))

        def around(owner: Any, name: str) -> None:
            real = getattr(owner, name)

            def call(*args: Any, **kwargs: Any) -> Any:
                if struck(name, next(counter)):
                    if name == "write":
                        real(args[0], args[1][: len(args[1]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)

            setattr(owner, name, call)

        for owner, name in PLACES:
            around(owner, name)

    return plant


def killed_at(number: int) -> Mishap:
    """Dies at the call of that number."""
    return counted(lambda name, at: at == number)


def telling(path: Path) -> Mishap:
    """Counts the places and writes how many there were, after each."""

    def told(name: str, at: int) -> bool:
        path.write_text(str(at + 1))
        return False

    return counted(told)


def at_step(number: int, act: Callable[[], None], within: str = "_moved") -> Mishap:
    """Does something in the middle of the step of that number (from 1), the first time that it comes."""

    def plant() -> None:
        stepping, inner, now = Stepper.step, getattr(Stepper, within), [0]

        def step(self: Stepper, parts: Any, counts: Any, at: int, *more: Any) -> Any:
            now[0] = at + 1
            return stepping(self, parts, counts, at, *more)

        def inside(self: Stepper, *args: Any, **kwargs: Any) -> Any:
            if now[0] == number:
                now[0] = 0
                act()
            return inner(self, *args, **kwargs)

        Stepper.step = step  # type: ignore[method-assign]
        setattr(Stepper, within, inside)

    return plant


def suicide() -> None:
    """SIGKILL to oneself."""
    os.kill(os.getpid(), signal.SIGKILL)


def signalled(number: int) -> Callable[[], None]:
    """A signal to oneself."""
    return lambda: os.kill(os.getpid(), number)


def recording(path: Path) -> Mishap:
    """Writes the items of every step that is taken: {"step", "epoch", "batch", "examples"}."""

    def plant() -> None:
        real = loop.Training._one

        def one(self: loop.Training, fed: Fed) -> None:
            real(self, fed)
            line = {"step": self.state.step, "epoch": fed.epoch, "batch": fed.batch,
                    "examples": [int(each) for each in fed.examples]}  # fmt: skip
            with path.open("a") as handle:
                handle.write(json.dumps(line) + "\n")

        loop.Training._one = one  # type: ignore[method-assign]

    return plant


def both(*mishaps: Mishap) -> Mishap:
    """Several at once."""

    def plant() -> None:
        for mishap in mishaps:
            mishap()

    return plant


def poisoned(steps: Sequence[int], value: float = float("nan")) -> Mishap:
    """The loss of these steps (from 1) is multiplied by a number that is none."""

    def plant() -> None:
        real, stepping, now = mlm_nsp.Items.loss, Stepper.step, [0]

        def step(self: Stepper, parts: Any, counts: Any, at: int, *more: Any) -> Any:
            now[0] = at + 1
            return stepping(self, parts, counts, at, *more)

        def loss(self: mlm_nsp.Items, model: Any, batch: Any) -> Mapping[str, Term]:
            terms = dict(real(self, model, batch))
            if now[0] in steps and torch.is_grad_enabled():
                term = terms["mlm_loss"]
                terms["mlm_loss"] = Term(term.total * value, term.count)
            return terms

        Stepper.step = step  # type: ignore[method-assign]
        mlm_nsp.Items.loss = loss  # type: ignore[method-assign]

    return plant


def infinite_gradient(steps: Sequence[int]) -> Mishap:
    """One number of one gradient is infinite in these steps, while the loss is as it should be."""

    def plant() -> None:
        stepping, real, now = Stepper.step, optim.clip, [0]

        def step(self: Stepper, parts: Any, counts: Any, at: int, *more: Any) -> Any:
            now[0] = at + 1
            return stepping(self, parts, counts, at, *more)

        def clip(parameters: Any, most: float) -> Any:
            if now[0] in steps:
                parameters[0].grad.view(-1)[3] = float("inf")
            return real(parameters, most)

        Stepper.step = step  # type: ignore[method-assign]
        optim.clip = clip

    return plant


def cramped(most: int) -> Mishap:
    """A device that has room for no more than so many tokens at a time."""

    def plant() -> None:
        real = mlm_nsp.Items.loss

        def loss(self: mlm_nsp.Items, model: Any, batch: Any) -> Mapping[str, Term]:
            if len(batch.packed.ids) > most and torch.is_grad_enabled():
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {len(batch.packed.ids)} things.")
            return real(self, model, batch)

        mlm_nsp.Items.loss = loss  # type: ignore[method-assign]

    return plant


def in_worker(batch: int, act: Callable[[], None]) -> Mishap:
    """Does something in the loader worker that builds that batch of epoch 0."""

    def plant() -> None:
        from filbert.train import feed

        real = feed._Builder.__getitem__

        def item(self: Any, order: Any) -> Fed:
            if (order.epoch, order.batch) == (0, batch):
                act()
            return real(self, order)

        feed._Builder.__getitem__ = item  # type: ignore[method-assign]

    return plant


def slow(seconds: float) -> Mishap:
    """Every step takes so much longer."""

    def plant() -> None:
        real = Feed.__iter__

        def fed(self: Feed) -> Iterator[Fed]:
            for each in real(self):
                time.sleep(seconds)
                yield each

        Feed.__iter__ = fed  # type: ignore[method-assign]

    return plant


@contextmanager
def timed() -> Iterator[list[float]]:
    """How long a block took."""
    taken: list[float] = []
    begun = time.monotonic()
    yield taken
    taken.append(time.monotonic() - begun)


NAMED: dict[str, Callable[..., Mishap]] = {
    "killed_in_step": lambda number: at_step(number, suicide), "slow": slow,
}  # fmt: skip


def under_torchrun() -> int:
    """`filbert` with the mishap of this rank and this generation, if MISHAP has one: {"rank/restart": [name, …]}."""
    told = json.loads(os.environ.get("MISHAP", "{}"))
    mine = told.get(f"{os.environ['RANK']}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}") or told.get("all")
    if mine:
        NAMED[mine[0]](*mine[1:])()
    os.fsync = nothing
    return entered(sys.argv[2:])


def stage() -> None:
    """Plays the scenes that the lines of standard input name, {"scene", "folder"}, one after the other.

    Each is a fork of this process, which has imported everything and has no threads, and the first of a session of its
    own. What it says is in FOLDER/facts and FOLDER/errors. Answers are lines: its number, then its exit code.
    """
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            alone(asked["scene"], Path(asked["folder"]))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def alone(scene: str, folder: Path) -> NoReturn:
    """One scene in this process, which ends with it."""
    code = 1
    try:
        os.setsid()
        for stream, name in ((1, "facts"), (2, "errors")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), stream)
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  for as long as the process lives
        scenes.play(scene, folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        sys.exit(under_torchrun())
    sys.modules["victim"] = sys.modules["__main__"]  # scenes import it by this name
    sys.path.insert(0, str(Path(__file__).parent))
    import scenes

    if sys.argv[1] == "stage":
        stage()
    else:
        scenes.play(sys.argv[1], Path(sys.argv[2]))
