"""A scene's name and an empty folder in; an exception where a promise is broken, or facts for the test, out.

Each scene is a function here; a test runs it with `played`, as a process of its own that forks and never trains itself.
"""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import victim as v

from filbert.run import pretrain

SCENES: dict[str, Callable[..., Any]] = {}


def scene(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the function a scene under its own name."""
    SCENES[function.__name__] = function
    return function


def play(name: str, folder: Path) -> None:
    """Runs it; its facts go to standard output. `name(3, 4)` gives it numbers."""
    import rank_scenes  # noqa: F401  adds its own

    name, _, inside = name.rstrip(")").partition("(")
    facts = SCENES[name](folder, *json.loads(f"[{inside}]"))
    sys.stdout.write(json.dumps(facts) + "\n")


def whole(folder: Path, name: str = "whole", mishap: v.Mishap | None = None, *more: str, **settings: object) -> Path:
    """A run that nothing interrupts."""
    out = folder / name
    code = v.ended(v.forked(v.arguments(folder, out, *more, **settings), mishap))
    assert code == 0, (code, v.said(out))
    return out


# Identity -------------------------------------------------------------------------------------------------------------


def struck(child: int, out: Path, draw: random.Random) -> int:
    """Kills a run at some moment after a random step; its exit code."""
    step, last = draw.randrange(v.STEPS), time.monotonic() + v.LIMIT_S
    log = out / "log.jsonl"
    while time.monotonic() < last and not v.is_over(child):
        if log.exists() and log.read_text().count('"loss"') >= step:
            break
        time.sleep(0.003)
    time.sleep(draw.uniform(0, 0.05))
    v.kill(child)
    return v.ended(child)


@scene
def kills(folder: Path, workers: int, attempts: int, seed: int) -> dict[str, Any]:
    """One process, killed at random calls or after a random time, sometimes twice, and resumed."""
    draw = random.Random(seed)
    reference = whole(folder, "whole", v.telling(folder / "calls"), machine__workers=workers)
    calls = int((folder / "calls").read_text())
    points = []
    for attempt in range(attempts):
        out = folder / f"attempt-{attempt}"
        words = v.arguments(folder, out, machine__workers=workers)
        for again in range(draw.choice((1, 1, 2))):
            if attempt % 2:
                number = draw.randrange(calls // (again + 1))
                code = v.ended(v.forked(words, v.killed_at(number)))
                points.append(f"call {number}: {code}")
            else:
                code = struck(v.forked(words), out, draw)
                points.append(f"time: {code}")
            assert code in (-9, 0), v.said(out)
            words = v.arguments(folder, out, "--resume", machine__workers=workers)
        code = v.ended(v.forked(words))
        assert code == 0, (points, v.said(out))
        v.same(reference, out)
    time.sleep(0.2)
    assert not v.left(), "a killed run's loader workers are still there"
    return {"points": points, "calls": calls}


@scene
def ranks_killed(
    folder: Path, world: int, workers: int, attempts: int, seed: int, sharding: str = "copy"
) -> dict[str, Any]:
    """Several gloo ranks, one of them killed at a random call; all start again, as torchrun has it."""
    draw = random.Random(seed)
    settings = {"machine__sharding": sharding, "machine__workers": workers, "train__steps": 30}
    reference = folder / "whole"
    words = v.arguments(folder, reference, **settings)
    codes = v.together(v.ranks(words, world, {rank: v.telling(folder / f"calls{rank}") for rank in range(world)}))
    assert codes == [0] * world, v.said(reference, "0") + v.said(reference, "1")
    points = []
    for attempt in range(attempts):
        out, victim = folder / f"attempt-{attempt}", draw.randrange(world)
        words = v.arguments(folder, out, **settings)
        # How often a rank looks for another differs by a call or two from run to run: the very last are left alone.
        number = draw.randrange(int((folder / f"calls{victim}").read_text()) * 9 // 10)
        codes = v.together(v.ranks(words, world, {victim: v.killed_at(number)}))
        points.append(f"rank {victim} call {number}: {codes}")
        assert codes[victim] == -9, points
        # The others either meet the silence (1), are told by a signal between steps (143), or were not yet training.
        assert {codes[rank] for rank in range(world) if rank != victim} <= {0, 1, 143, -15}, (points, v.said(out, "0"))
        assert v.together(v.ranks(words, world, restart=1)) == [0] * world, v.said(out, "0")
        v.same(reference, out)
    return {"points": points}


@scene
def workers(folder: Path) -> None:
    """0, 1 and 4 loader workers give the same run."""
    none = whole(folder, "workers-0")
    for number in (1, 4):
        v.same(none, whole(folder, f"workers-{number}", None, machine__workers=number))


@scene
def fresh(folder: Path) -> None:
    """The command itself, in new processes: killed at some moment, resumed."""
    reference, out = whole(folder), folder / "fresh"
    words = v.arguments(folder, out)
    command = [sys.executable, "-m", "filbert", *words]
    with (folder / "said").open("w") as said:
        child = subprocess.Popen(command, stdout=said, stderr=said)
        log = out / "log.jsonl"
        while child.poll() is None and not (log.exists() and log.read_text().count('"loss"') > 16):
            time.sleep(0.005)
        child.kill()
        assert child.wait() == -9, (folder / "said").read_text()
        assert subprocess.run([*command, "--resume"], stdout=said, stderr=said, check=False).returncode == 0
    v.same(reference, out)


TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3")


def torchrun(words: Sequence[str], said: Path, **mishaps: list[object]) -> subprocess.Popen[bytes]:
    """Two ranks under torchrun; a mishap is for "all" or for rank_r_s, rank r after s restarts."""
    planted = {name.replace("rank_", "").replace("_", "/"): value for name, value in mishaps.items()}
    environment = os.environ | {"MISHAP": json.dumps(planted), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    command = [sys.executable, "-m", *TORCHRUN, str(Path(v.__file__)), "run", *words]
    with said.open("ab") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)


@scene
def rank_killed(folder: Path) -> dict[str, Any]:
    """One rank of two under torchrun dies in a step, and another one after the restart; the run finishes by itself."""
    reference, out, said = folder / "whole", folder / "out", folder / "said"
    assert v.together(v.ranks(v.arguments(folder, reference), 2)) == [0, 0]
    words = v.arguments(folder, out)
    child = torchrun(words, said, rank_1_0=["killed_in_step", 17], rank_0_1=["killed_in_step", 31])
    assert child.wait(timeout=120) == 0, said.read_text()
    v.same(reference, out)
    return {
        "resumed": [line["step"] for line in v.journal.entries(out / "log.jsonl") if line.get("event") == "resumed"]
    }


@scene
def launcher_killed(folder: Path) -> dict[str, Any]:
    """The launcher of two ranks dies: the ranks save and go."""
    out, said = folder / "out", folder / "said"
    child = torchrun(v.arguments(folder, out, train__steps=100_000), said, all=["slow", 0.05])
    while not (out / "log.jsonl").exists():
        assert child.poll() is None, said.read_text()
        time.sleep(0.05)
    time.sleep(0.5)
    ranks = [int(line) for line in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
    child.kill()
    child.wait()
    with v.timed() as taken:
        last = time.monotonic() + 30
        while any(is_training(rank) for rank in ranks) and time.monotonic() < last:
            time.sleep(0.05)
    for rank in filter(is_training, ranks):
        os.kill(rank, signal.SIGKILL)
    return {"ranks": len(ranks), "seconds": taken[0], "saved": steps_saved(out), "said": said.read_text()[-600:]}


def is_training(process: int) -> bool:
    """Whether it is there and no mere entry that nobody has asked for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# Faults ---------------------------------------------------------------------------------------------------------------


def stopped(folder: Path, name: str, step: int, *more: str, **settings: object) -> Path:
    """A run that was told to end after that step, and saved."""
    out = folder / name
    code = v.ended(v.forked(v.arguments(folder, out, *more, **settings), v.at_step(step, v.signalled(signal.SIGTERM))))
    assert code == 143, v.said(out)
    return out


def resumed(folder: Path, out: Path, mishap: v.Mishap | None = None, *more: str, **settings: object) -> int:
    """Goes on with a run; its exit code."""
    return v.ended(v.forked(v.arguments(folder, out, "--resume", *more, **settings), mishap))


def steps_saved(out: Path) -> list[str]:
    """The checkpoints' folders."""
    return sorted(path.name for path in (out / "checkpoints").iterdir() if not path.name.startswith("."))


@scene
def signals(folder: Path) -> dict[str, Any]:
    """SIGTERM and SIGINT: the work is saved, the exit code tells, and the run goes on exactly."""
    reference = whole(folder)
    told = {}
    for number, step, code in ((signal.SIGTERM, 10, 143), (signal.SIGINT, 13, 130), (signal.SIGTERM, v.STEPS, 143)):
        out = folder / f"signal-{number}-{step}"
        mishap = v.at_step(step, v.signalled(number))
        assert v.ended(v.forked(v.arguments(folder, out), mishap)) == code, v.said(out)
        assert steps_saved(out)[-1] == f"step-{step:08d}"
        told[f"{number} {step}"] = v.said(out).splitlines()[-1]
        assert resumed(folder, out) == 0, v.said(out)
        v.same(reference, out)
    return told


@scene
def signal_to_one_rank(folder: Path) -> None:
    """One of two ranks is told to end: both do, after one save."""
    reference, out = folder / "whole", folder / "out"
    assert v.together(v.ranks(v.arguments(folder, reference), 2)) == [0, 0]
    words = v.arguments(folder, out)
    mishap = v.at_step(12, v.signalled(signal.SIGTERM))
    assert v.together(v.ranks(words, 2, {1: mishap})) == [143, 143], v.said(out, "0") + v.said(out, "1")
    assert steps_saved(out)[-1] == "step-00000012"
    assert v.together(v.ranks([*words, "--resume"], 2)) == [0, 0], v.said(out, "0")
    v.same(reference, out)


@scene
def not_numbers(folder: Path, kind: str) -> dict[str, Any]:
    """A loss or a gradient that is no number: the step is skipped and told, three in a row end the run."""
    plant = v.poisoned if kind == "loss" else v.infinite_gradient
    out = whole(folder, "skips", plant([5, 8, 9]))
    assert v.state(out)["skipped"] == 3
    assert v.state(out)["step"] == v.STEPS
    assert all(torch.isfinite(tensor).all() for tensor in v.weights(out).values())
    told = v.events(out, "skipped")
    # A skipped step leaves everything as it was: 4 steps done, so the moments have counted v.STEPS - 3 of them.
    counts = {float(tensor) for name, tensor in v.weights(out).items() if name.startswith("optimiser/step/")}
    assert counts == {v.STEPS - 3.0}
    last = folder / "stops"
    before = stopped(folder, "stops", 14)
    kept = v.weights(before)
    code = resumed(folder, last, plant([15, 16, 17]))
    assert code == 1, v.said(last)
    assert steps_saved(last)[-1] == "step-00000014"
    assert all(torch.equal(tensor, kept[name]) for name, tensor in v.weights(last).items())
    ends = v.said(last).splitlines()[-1]
    assert resumed(folder, last) == 0, v.said(last)
    v.same(whole(folder), last)
    return {"skipped": told, "ends": ends}


@scene
def worker_killed(folder: Path) -> dict[str, Any]:
    """A loader worker dies."""
    out, mark = folder / "out", folder / "mark"

    def die() -> None:
        mark.write_text(str(time.time()))
        v.suicide()

    code = v.ended(v.forked(v.arguments(folder, out, machine__workers=2), v.in_worker(9, die)))
    took = time.time() - float(mark.read_text())
    assert resumed(folder, out) == 0, v.said(out)
    v.same(whole(folder), out)
    return {"code": code, "seconds": took, "said": v.said(out).split("\nnote:")[0].splitlines()[-1]}


@scene
def worker_hangs(folder: Path) -> dict[str, Any]:
    """A loader worker stands still."""
    out = folder / "out"
    words = v.arguments(folder, out, machine__workers=2, machine__timeout_s=2)
    code = v.ended(v.forked(words, v.in_worker(9, lambda: time.sleep(300))))
    return {"code": code, "said": v.said(out).splitlines()[-1]}


@scene
def memory(folder: Path) -> dict[str, Any]:
    """The device has too little memory for a step, and then for any part of one."""
    halved = whole(folder, "halved", v.cramped(150))
    v.same(whole(folder, "parts", None, machine__parts=2), halved)
    exact = {"model__dropout": 0.0, "train__learning_rate": 1e-3}
    apart = v.apart(whole(folder, "free", None, **exact), whole(folder, "less", v.cramped(150), **exact))
    out = stopped(folder, "hopeless", 14)
    code = resumed(folder, out, v.cramped(20))
    ends = v.said(out).splitlines()[-1]
    assert steps_saved(out)[-1] == "step-00000014"
    assert resumed(folder, out) == 0
    return {"told": v.events(halved, "memory"), "apart": apart, "code": code, "ends": ends}


@scene
def real_memory(folder: Path) -> dict[str, Any]:
    """The system itself has no more memory to give."""

    def limited() -> None:
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            return
        sizes = Path("/proc/self/statm").read_text().split()
        limit = int(sizes[0]) * resource.getpagesize() + 240 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    settings = {"model__inner": 4096, "train__batch_tokens": 8192, "train__steps": 4}

    def free() -> None:  # the allocator's heap is in pieces by now: that this limit holds on is not what is asked
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    mishap = v.both(v.at_step(2, limited, "_backward"), v.at_step(3, free, "_backward"))
    out = whole(folder, "out", mishap, **settings)
    return {"told": v.events(out, "memory"), "parts": v.state(out)["parts"]}


@scene
def epoch_end(folder: Path, workers: int) -> dict[str, Any]:
    """Killed just after, and just before, the last step of an epoch: no item is left out or seen twice."""
    settings = {"machine__workers": workers, "train__steps": 80}
    reference = whole(folder, "whole", v.recording(folder / "whole.jsonl"), **settings)
    lines = [json.loads(line) for line in (folder / "whole.jsonl").read_text().splitlines()]
    length = sum(line["epoch"] == 0 for line in lines)
    assert length < 60
    for late in (0, 1):
        out, record = folder / f"out-{late}", folder / f"{late}.jsonl"
        words = v.arguments(folder, out, train__checkpoint_every=length, **settings)
        mishap = v.both(v.recording(record), v.at_step(length + late, v.suicide))
        assert v.ended(v.forked(words, mishap)) == -9
        assert v.ended(v.forked([*words, "--resume"], v.recording(record))) == 0, v.said(out)
        v.same(reference, out)
        taken = {line["step"]: line for line in map(json.loads, record.read_text().splitlines())}
        assert list(taken.values()) == lines
    seen = [example for line in lines if line["epoch"] == 0 for example in line["examples"]]
    assert sorted(seen) == list(range(len(seen)))
    return {"steps of an epoch": length, "items": len(seen)}


@scene
def changes(folder: Path) -> dict[str, Any]:
    """What a run was made with is another when it should go on."""
    out = stopped(folder, "out", 14)
    files = {name: (out / name).read_bytes() for name in ("recipe.json", "log.jsonl")}
    refused = {}
    other = folder / "other"
    v.arguments(other, out)
    pretrain.vocabulary(pretrain.Corpus(sources=(str(v.corpus(other)),)), 290, other / "smaller")
    ways: dict[str, tuple[list[str], dict[str, object]]] = {
        "rate": ([], {"train__learning_rate": 1e-4}), "width": ([], {"model__width": 64}),
        "vocabulary": (["--vocab", str(other / "smaller" / "vocab"), "--shards", str(other / "shards-1")], {}),
        "masking": (["--masking", "token", "--shards", str(other / "shards-2")], {}),
    }  # fmt: skip
    for name, (words, settings) in ways.items():
        code = resumed(folder, out, None, *words, **settings)
        refused[name] = (code, v.said(out).splitlines()[-1])
    words = v.arguments(folder, out, "--resume", "--shards", str(other / "shards-3"))
    words[1] = str(v.corpus(other, seed=5))
    refused["corpus"] = (v.ended(v.forked(words)), v.said(out).splitlines()[-1])
    refused["not resumed"] = (v.ended(v.forked(v.arguments(folder, out))), v.said(out).splitlines()[-1])
    assert files == {name: (out / name).read_bytes() for name in files}, "a refusal changed the run"
    changed = {"train__learning_rate": 1e-4}
    code = v.ended(v.forked(v.arguments(folder, out, "--resume", "--force", **changed), v.at_step(25, v.suicide)))
    assert code == -9, v.said(out)
    assert resumed(folder, out, None, **changed) == 0, v.said(out)  # what was forced once is what it is made with
    refused["moved"] = [resumed_elsewhere(folder), ""]
    return refused


def resumed_elsewhere(folder: Path) -> int:
    """The same texts under another name are the same corpus."""
    out = stopped(folder, "moved", 5)
    words = v.arguments(folder, out, "--resume", "--shards", str(folder / "shards-4"))
    copy = folder / "copy.txt"
    shutil.copy(words[1], copy)
    words[1] = str(copy)
    return v.ended(v.forked(words))


@scene
def second_run(folder: Path) -> dict[str, Any]:
    """A second run in the same folder, of the same texts and of others."""
    out = folder / "out"
    first = v.forked(v.arguments(folder, out), v.slow(0.15))
    while not (out / "log.jsonl").exists():
        time.sleep(0.02)
    told = []
    for words in (v.arguments(folder, out), v.arguments(folder, out, "--resume"), v.arguments(folder / "b", out)):
        words[words.index("--shards") + 1] = str(out / "shards")
        code = v.ended(v.forked(words))
        lines = [line for line in v.said(out).splitlines() if not line.startswith("step ")]  # the first one's
        told.append((code, lines[-1]))
    assert v.ended(first) == 0
    v.same(whole(folder), out)
    return {"told": told, "holder": first}


@scene
def damage(folder: Path) -> dict[str, Any]:
    """The newest checkpoint is torn, truncated or has one bit flipped; then all are."""
    reference = whole(folder)
    told = {}

    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-100])

    def flip(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 4
        path.write_bytes(raw)

    ways: dict[str, tuple[str, Callable[[Path], None]]] = {
        "truncated": ("tensors.safetensors", cut), "flipped": ("tensors.safetensors", flip),
        "state": ("state.json", flip), "torn": ("manifest.json", Path.unlink),
    }  # fmt: skip
    for name, (file, harm) in ways.items():
        out = stopped(folder, name, 23)
        harm(out / "checkpoints" / "step-00000023" / file)
        assert resumed(folder, out) == 0, v.said(out)
        v.same(reference, out)
        told[name] = v.events(out, "damaged")
        assert "step-00000023.damaged-1" in steps_saved(out)
    out = stopped(folder, "all", 16)
    log = (out / "log.jsonl").read_bytes()
    for name in steps_saved(out):
        flip(out / "checkpoints" / name / "tensors.safetensors")
    told["all"] = [resumed(folder, out), v.said(out).splitlines()[-1]]
    assert (out / "log.jsonl").read_bytes() == log
    return told


@scene
def no_room(folder: Path) -> dict[str, Any]:
    """The disk is full at the second save; and an output that cannot be written at all."""
    out = folder / "full"

    def full() -> None:
        real, count = os.write, iter(range(10**9))

        def write(handle: int, data: Any) -> int:
            if next(count) > 12:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(handle, data)

        os.write = write

    code = v.ended(v.forked(v.arguments(folder, out), v.at_step(9, full)))
    told = [code, v.said(out).splitlines()[-1], steps_saved(out)]
    assert resumed(folder, out) == 0, v.said(out)
    v.same(whole(folder), out)
    locked = folder / "locked"

    def read_only() -> None:
        real = os.mkdir

        def mkdir(path: Any, *more: Any, **named: Any) -> None:
            if "checkpoints" in str(path):
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            real(path, *more, **named)

        os.mkdir = mkdir

    code = v.ended(v.forked(v.arguments(folder, locked), read_only))
    return {"full": told, "locked": [code, v.said(locked).splitlines()[-1], "step 1/" in v.said(locked)]}


@scene
def early(folder: Path) -> dict[str, Any]:
    """A run that stopped early, and was killed before its model was saved, does not train on when it is resumed."""

    def worse() -> None:
        asked = iter(range(10**9))
        v.loop.evaluate = lambda *_: {"loss": 1.0 + next(asked), "mlm_loss": 1.0}  # type: ignore[assignment]

    settings = {"train__patience": 1}
    reference = whole(folder, "whole", worse, **settings)
    out = folder / "out"

    def unsaved() -> None:
        pretrain.save = lambda *_, **__: v.suicide()

    assert v.ended(v.forked(v.arguments(folder, out, **settings), v.both(worse, unsaved))) == -9
    assert resumed(folder, out, worse, **settings) == 0, v.said(out)
    v.same(reference, out)
    return {"step": v.state(out)["step"], "told": v.events(out, "early")}
