"""A scene's name and an empty folder in; processes that kill themselves, fill disks and hold locks, and what was left.

test_checkpoint.py runs this as a process of its own: it forks, which a test worker with threads must not.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from filbert.core.errors import FilbertError, InputError
from filbert.train import checkpoint
from filbert.train.checkpoint import Store, locked

CALLS = ("write", "fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "ftruncate", "pwrite", "open")


def content(step: int, tag: int = 0) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    tensors = {"weights": torch.full((8, 4), step + tag / 8), "count": torch.tensor(step)}
    return tensors, {"step": step, "tag": tag}


def save(store: Store, step: int, tag: int = 0, best: bool = False) -> None:
    store.save(step, *content(step, tag), best=best)


def check(found: checkpoint.Checkpoint) -> tuple[int, int]:
    """The (step, tag) of a checkpoint whose tensors and state belong together."""
    step, tag = found.state["step"], found.state["tag"]
    tensors = found.tensors()
    assert step == found.step
    assert all(torch.equal(tensors[name], tensor) for name, tensor in content(step, tag)[0].items())
    return step, tag


def whole(store: Store) -> list[int]:
    """The steps whose checkpoints have every byte that was written."""
    return [check(checkpoint._examined(store.folder / f"step-{step:08d}", step))[0] for step in store._steps()]


def nothing(handle: int) -> None:
    """In place of fsync, where it would only cost time: a killed process loses nothing that the system has."""


def forked(action: Callable[[], object]) -> int:
    """Runs the action in a process of its own; its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(number: int, action: Callable[[], object]) -> bool:
    """Whether the action was still under way at its call of that number, and died there; a write is done by half."""
    counter = iter(range(1_000_000))

    def dying(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            if next(counter) == number:
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    def run() -> None:
        for name in CALLS:
            setattr(os, name, dying(name, getattr(os, name)))
        action()

    status = forked(run)
    assert status in (0, -signal.SIGKILL), status
    return status != 0


def each_kill(folder: Path, before: Callable[[Store], object], action: Callable[[Store], object]) -> Iterator[Store]:
    """A store for every point at which the action can be killed."""
    before(Store(folder / "before"))
    for number in range(1_000):
        place = folder / f"killed-{number}"
        shutil.copytree(folder / "before", place)
        died = killed_at(number, lambda place=place: action(Store(place)))
        yield Store(place)
        tidy = sorted(name for name in os.listdir(place) if name.startswith("."))
        assert tidy in ([], [".writing"]), tidy
        shutil.rmtree(place)
        if not died:
            return
    raise AssertionError("it never came to its end")


def kills(folder: Path) -> dict[str, int]:
    checkpoint.CHUNK_BYTES = 128  # several writes for each file
    os.fsync = nothing
    seen: dict[str, list[Any]] = {}

    def first(store: Store) -> None:
        store.folder.mkdir(parents=True)

    for store in each_kill(folder / "first", first, lambda store: save(store, 1000)):
        found = store.newest()
        seen.setdefault("first", []).append(check(found) if found else None)

    for store in each_kill(folder / "second", lambda store: save(store, 1000), lambda store: save(store, 2000)):
        seen.setdefault("second", []).append(check(store.newest()))

    def two(store: Store) -> None:
        save(store, 1000)
        save(store, 2000, best=True)

    for store in each_kill(folder / "again", two, lambda store: save(store, 2000, tag=1)):
        seen.setdefault("again", []).append(check(store.newest()))
        assert whole(store) == [2000, 1000]

    def three(store: Store) -> None:
        save(store, 500, best=True)
        save(store, 1000)
        save(store, 2000)

    for store in each_kill(folder / "pruned", three, lambda store: save(store, 3000, best=True)):
        seen.setdefault("pruned", []).append(check(store.newest()))
        assert len(whole(store)) >= 2
        assert store.best().step == (500 if seen["pruned"][-1][0] == 2000 else 3000)

    def torn(store: Store) -> None:
        three(store)
        (store.folder / "step-00002000" / "manifest.json").unlink()

    for store in each_kill(folder / "damaged", torn, lambda store: store.newest()):
        seen.setdefault("damaged", []).append(check(store.newest()))
        assert (store.folder / "step-00002000.damaged-1").is_dir()

    for store in each_kill(folder / "half", three, lambda store: save(store, 2000, tag=1)):
        place = store.folder.with_name("twice")
        replaced = any(name.endswith(".old") for name in os.listdir(store.folder))
        for number in range(100 * replaced):  # and again while what was left is tidied up
            shutil.copytree(store.folder, place)
            died = killed_at(number, lambda place=place: Store(place).newest())
            assert check(Store(place).newest()) in [(2000, 0), (2000, 1)]
            assert len(whole(Store(place))) >= 2
            seen.setdefault("twice", []).append(number)
            shutil.rmtree(place)
            if not died:
                break
        store.newest()

    assert seen["first"][0] is None
    assert seen["first"][-1] == (1000, 0)
    assert set(seen["second"]) == {(1000, 0), (2000, 0)}
    assert set(seen["again"]) == {(2000, 0), (2000, 1)}
    assert set(seen["pruned"]) == {(2000, 0), (3000, 0)}
    assert set(seen["damaged"]) == {(1000, 0)}
    return {name: len(points) for name, points in seen.items()}


def full(folder: Path) -> dict[str, str]:
    """A tmpfs of 256 kB that fills up and is then made read-only; needs the right to mount."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)], check=True)
    store = Store(folder / "run" / "checkpoints")
    store.check_writable()
    save(store, 1000)
    save(store, 2000)
    try:
        store.save(3000, {"large": torch.zeros(100_000)}, {})
    except FilbertError as error:
        told = str(error)
    names = sorted(os.listdir(store.folder))
    assert names == [".writing", "step-00001000", "step-00002000"], names
    assert check(store.newest())[0] == 2000
    save(store, 3000)  # a smaller one still fits
    with open(folder / "filler", "wb") as filler, contextlib.suppress(OSError):
        filler.write(bytes(2**20))
    try:
        Store(folder / "other").check_writable()
    except InputError as error:
        none_left = str(error)
    (folder / "filler").unlink()
    (store.folder / "step-00003000" / "state.json").write_text("{}")
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    refused = []
    for attempt in (store.check_writable, locked(folder / "run").__enter__):
        try:
            attempt()
        except InputError as error:
            refused.append(str(error))
    assert check(store.newest())[0] == 2000  # readers need no right to write
    return {"full": told, "none left": none_left, "read-only": refused[0], "lock": refused[1], "note": store.notes[-1]}


def limit(folder: Path) -> dict[str, str]:
    """A limit on the size of files, which any user can set."""
    store = Store(folder)
    save(store, 1000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    try:
        store.save(2000, {"large": torch.zeros(100_000)}, {})
    except FilbertError as error:
        told = str(error)
    assert sorted(os.listdir(folder)) == [".writing", "step-00001000"]
    assert check(store.newest())[0] == 1000
    return {"full": told}


def locks(folder: Path) -> dict[str, Any]:
    run = folder / "run"
    told: list[str] = []

    def refused() -> bool:
        try:
            with locked(run):
                return False
        except InputError as error:
            told.append(str(error))
            return True

    def refused_elsewhere() -> bool:
        return forked(lambda: os._exit(7 if refused() else 8)) == 7

    with locked(run):
        assert refused()  # the same process
        assert refused_elsewhere()  # a forked child, after the first attempt too
        assert forked(lambda: None) == 0
        assert refused_elsewhere()  # a child that ended took nothing with it
    assert not refused()

    def holding(with_worker: bool) -> tuple[int, int]:
        """(holder, its worker): the holder waits to be killed; the worker, forked under the lock, outlives it."""
        into, out = os.pipe()[::-1]
        holder = os.fork()
        if holder == 0:
            with locked(run):
                worker = os.fork() if with_worker else -1
                if worker != 0:
                    os.write(into, b"%10d" % worker)
                time.sleep(60)
                os._exit(0)
        return holder, int(os.read(out, 10))

    holder, _ = holding(with_worker=False)
    assert refused()
    assert f"process {holder} on {os.uname().nodename}, since 20" in told[-1], told
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert not refused()
    holder, worker = holding(with_worker=True)
    assert refused()
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    os.kill(worker, 0)  # the worker lives
    free = not refused()
    os.kill(worker, signal.SIGKILL)
    assert free
    return {"told": told[0], "times": len(told)}


def readers(folder: Path) -> dict[str, int]:
    """A run that saves, replaces and prunes as fast as it can, and a reader that always finds a whole checkpoint."""
    os.fsync = nothing
    store = Store(folder)
    save(store, 1, best=True)
    writer = os.fork()
    if writer == 0:
        for number in range(2, 100_000):
            save(store, number, best=number % 5 == 0)
            save(store, number, tag=number % 2)
    reader, num_found, num_lost, steps = Store(folder), 0, 0, set()
    last = time.monotonic() + 1.5
    while time.monotonic() < last:
        found = reader.best() if num_found % 3 == 0 else reader.newest()
        try:
            steps.add(check(found)[0] if found else 0)
            num_found += 1
        except FilbertError:  # pruned between the two calls: a reader asks again
            num_lost += 1
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    assert not [note for note in reader.notes if "damaged" in note or "skipped" in note], reader.notes
    assert check(reader.newest())[0] >= max(steps)
    return {"found": num_found, "lost": num_lost, "steps": len(steps)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    scene = {"kills": kills, "full": full, "limit": limit, "locks": locks, "readers": readers}[sys.argv[1]]
    print(json.dumps(scene(Path(sys.argv[2]))))
