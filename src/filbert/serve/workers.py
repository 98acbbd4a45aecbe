"""A plan, a listening socket and a number in; so many processes that answer on it, kept alive until the end.

Each is a process of its own (torch and forks do not go together) that inherits the socket; the kernel gives each
connection to one that is free. One that dies is replaced; when the parent dies, however, all of them end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from filbert.core.errors import FilbertError, InputError
from filbert.serve.logs import Log
from filbert.serve.metrics import DOWN, Tally
from filbert.serve.process import GRACE_S, Plan, ends

TICK_S = 0.05
AGAIN_S = 0.2  # between two looks at processes that are to end
YOUNG_S = 30.0  # a process that dies younger than this, so many times in a row, will not live
MOST_DEATHS = 5


class FailedError(FilbertError):
    """A process that ends itself with a message, which its own standard error has shown."""

    def __init__(self, code: int) -> None:
        super().__init__("a worker could not begin; it said why above.")
        self.exit_code = code


class Supervisor:
    """The parent of the processes that answer."""

    def __init__(self, plan: Plan, listening: socket.socket, workers: int) -> None:
        if os.name != "posix":
            raise InputError(f"--workers is {workers}, but this system cannot share a socket so; leave it at 1.")
        self.plan, self.listening, self.log = plan, listening, Log(plan.log)
        self.tally = Tally([name for name, _ in plan.models], workers)
        self.children: list[Any] = [None] * workers
        self.started = [0.0] * workers
        self.deaths = [0] * workers  # of young ones in a row, in each place: one moment can end all of them
        self.is_stopping = self.is_hurried = False

    def run(self, on_ready: Callable[[], None]) -> None:
        """Until SIGTERM or SIGINT; then every process answers what it accepted, and ends."""
        for number in ends():
            signal.signal(number, self._on_signal)
        is_ready = False
        try:
            for worker in range(len(self.children)):
                self._start(worker)
            while not self.is_stopping:
                time.sleep(TICK_S)
                self._replace()
                if not is_ready and self.tally.are_ready():
                    is_ready = True
                    on_ready()
        finally:
            self._stop()

    def _on_signal(self, *_: object) -> None:
        self.is_hurried, self.is_stopping = self.is_stopping, True  # the second ends the draining

    def _start(self, worker: int) -> None:
        fds = (self.listening.fileno(), int(self.tally.fileno or 0))
        words = [sys.executable, "-m", "filbert.serve.process", str(worker), str(len(self.children)), *map(str, fds)]
        self.tally.set_state(DOWN, worker)
        # A group of its own: Ctrl-C reaches the parent, which passes it on once.
        child = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=fds, process_group=0)
        self.children[worker], self.started[worker] = child, time.monotonic()
        try:
            child.stdin.write((self.plan.as_json() + "\n").encode())  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            pass  # it died at once; the next tick sees that

    def _replace(self) -> None:
        """Puts a new process in the place of each that has died."""
        for worker, child in enumerate(self.children):
            code = child.poll()
            if code is None or self.is_stopping:
                continue
            self.tally.set_state(DOWN, worker)
            child.stdin.close()
            is_young = time.monotonic() - self.started[worker] < YOUNG_S
            self.deaths[worker] = self.deaths[worker] + 1 if is_young else 1
            self.log.event("worker died", number=worker, code=code)
            if code in (1, 2) or self.deaths[worker] > MOST_DEATHS:
                raise FailedError(code if code > 0 else 1)
            self._start(worker)

    def _stop(self) -> None:
        """Tells all, waits as long as an answer may take, and ends whoever is left."""
        self.listening.close()
        alive = [child for child in self.children if child is not None and child.poll() is None]
        for child in alive:
            child.terminate()
        until = time.monotonic() + self.plan.drain_s + self.plan.limits.deadline_s + GRACE_S
        for child in alive:
            while child.poll() is None and time.monotonic() < until:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(AGAIN_S)
                if self.is_hurried and child.poll() is None:  # again and again: two that come together count as one
                    for other in alive:
                        other.terminate()
            if child.poll() is None:
                child.kill()
                child.wait()
        for child in self.children:
            if child is not None and child.stdin is not None:
                child.stdin.close()
