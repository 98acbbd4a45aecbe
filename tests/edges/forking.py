"""Commands of filbert, each in a process of its own that has already imported everything, with a fault of the system.

A server without threads, started once, forks them: a test worker has threads, and what has threads must not fork. It
reads a scene as a line of JSON and writes what came of it as another. Faults are real ones: a limit on the size of
files, rights that are given up, closed streams, SIGKILL and SIGSTOP when the first file is about to be finished.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Fault = Callable[[], None]
PATIENCE_S = 200.0  # a process that takes longer hangs


class Ended(NamedTuple):
    """How a process ended, and what it printed."""

    code: int  # negative: the signal
    out: str
    err: str


class Child:
    """A command that is under way."""

    def __init__(self, words: tuple[str, ...], fault: Fault) -> None:
        pipes = [os.pipe(), os.pipe()]
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _run(words, fault, [write for _, write in pipes])
        self.status, self.is_over = 0, False
        self.said: dict[int, bytes] = {}
        for read, write in pipes:
            os.close(write)
            self.said[read] = b""
        self.ends = list(self.said)

    def stopped(self) -> bool:
        """Waits until it stands still (True) or has ended; little enough is printed before that a pipe holds it."""
        _, self.status = os.waitpid(self.pid, os.WUNTRACED)
        self.is_over = not os.WIFSTOPPED(self.status)
        return not self.is_over

    def ended(self) -> Ended:
        """Waits for its end, and reads what it prints meanwhile; one that hangs is killed, and fails the test."""
        waiting = set(self.ends)
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], PATIENCE_S)
            if not ready:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"hung; so far: {self.said}")
            for handle in ready:
                data = os.read(handle, 65536)
                self.said[handle] += data
                if not data:
                    waiting.discard(handle)
                    os.close(handle)
        status = self.status if self.is_over else os.waitpid(self.pid, 0)[1]
        out, err = (self.said[handle].decode("utf-8", "replace") for handle in self.ends)
        return Ended(os.waitstatus_to_exitcode(status), out, err)


def _run(words: tuple[str, ...], fault: Fault, ends: list[int]) -> None:
    """In the child: the command, with its own streams; never returns."""
    code = 70
    try:
        for number, end in enumerate(ends, 1):
            os.dup2(end, number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.argv = ["filbert", *words]
        from filbert.cli.main import main

        fault()
        try:
            main()
        except SystemExit as error:
            code = int(error.code or 0)
        sys.stderr.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        code = 71
    finally:
        os._exit(code)


# The server -----------------------------------------------------------------------------------------------------------


class Server:
    """The process that forks; what a test asks for."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "COLUMNS": "200"}
        for name in ("WORLD_SIZE", "RANK"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def close(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _asked(self, **view_model: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(view_model) + "\n")
        self.process.stdin.flush()
        told = json.loads(self.process.stdout.readline())
        assert "hung" not in told, told
        return told

    def ran(self, *words: str | Path, fault: str = "none", number: int = 0) -> Ended:
        """The command, to its end."""
        return Ended(*self._asked(words=[str(word) for word in words], fault=fault, number=number))

    def two(self, *words: str | Path, only: bool = False) -> tuple[Ended | None, Ended]:
        """The command twice at once: (the second, None where the first never came to write; the first).

        only: the second is what matters, and the first is interrupted then.
        """
        told = self._asked(words=[str(word) for word in words], two=True, number=0, only=only)
        return (Ended(*told[0]) if told[0] else None), Ended(*told[1])


def _serve() -> None:
    import torch
    import torch._dynamo  # what the first optimiser imports

    from filbert.doctor import diagnosis, mending  # noqa: F401
    from filbert.run import compare, distill, finetune, pretrain  # noqa: F401
    from filbert.ship import (
        onnx,  # noqa: F401
        prune,  # noqa: F401
    )

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # else each child would copy the pages of all these objects, only to look at them
    for line in sys.stdin:
        try:
            told: Any = _played(json.loads(line))
        except AssertionError as error:
            told = {"hung": str(error)}
        print(json.dumps(told), flush=True)
    os._exit(0)


def _played(view_model: dict[str, Any]) -> Any:
    words = tuple(view_model["words"])
    if not view_model.get("two"):
        return Child(words, FAULTS[view_model["fault"]](view_model["number"])).ended()
    first, second = Child(words, signalled(signal.SIGSTOP, view_model["number"])), None
    try:
        if first.stopped():
            second = Child(words, lambda: None).ended()
    finally:
        if not first.is_over:
            os.kill(first.pid, signal.SIGINT if view_model["only"] else signal.SIGCONT)
            os.kill(first.pid, signal.SIGCONT)
    return second, first.ended()


# Faults ---------------------------------------------------------------------------------------------------------------


def full_disk(size: int = 0) -> Fault:
    """No file may have more bytes than these."""

    def fault() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return fault


def no_rights() -> None:
    """Gives up root's right to write where it may not, so that a folder's mode counts for root too."""
    if os.geteuid():
        return

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    class Data(ctypes.Structure):
        _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))

    if ctypes.CDLL(None, use_errno=True).capset(ctypes.byref(Header(0x20080522, 0)), (Data * 2)()):
        raise OSError(ctypes.get_errno(), "capset")


def onto(path: str) -> Fault:
    """Standard output goes there."""

    def fault() -> None:
        handle = os.open(path, os.O_WRONLY)
        os.dup2(handle, 1)
        os.close(handle)

    return fault


def closed() -> None:
    """Standard output is closed, as `>&-` does."""
    os.close(1)
    sys.stdout = None  # type: ignore[assignment]


def reader_gone() -> None:
    """Nobody reads standard output any more."""
    read, write = os.pipe()
    os.dup2(write, 1)
    os.close(read)
    os.close(write)


def signalled(number: int, after: int = 0) -> Fault:
    """The process gets the signal when a file is about to be put on the disk whole, after so many others."""

    def fault() -> None:
        real, count = os.fsync, [0]

        def fsync(handle: int) -> None:
            count[0] += 1
            if count[0] == after + 1:
                os.kill(os.getpid(), number)
            real(handle)

        os.fsync = fsync

    return fault


FAULTS: dict[str, Callable[[int], Fault]] = {
    "none": lambda _: lambda: None,
    "full disk": full_disk,
    "no rights": lambda _: no_rights,
    "full output": lambda _: onto("/dev/full"),
    "closed output": lambda _: closed,
    "reader gone": lambda _: reader_gone,
    "killed": lambda after: signalled(signal.SIGKILL, after),
    "interrupted": lambda after: signalled(signal.SIGINT, after),
}
if __name__ == "__main__":
    _serve()
