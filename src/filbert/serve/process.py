"""A plan and a listening socket in; one process that loads the models, answers until a signal stops it, and ends.

It listens before the models are there, so that whoever watches over it can ask; until then it says 503.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from filbert.core.errors import FilbertError, InputError, needed
from filbert.serve.guard import ANY, Access
from filbert.serve.limits import Limits
from filbert.serve.logs import Log
from filbert.serve.metrics import LOADING, READY, Tally
from filbert.serve.shelf import Served, Shelf

KEEP_ALIVE_S = 30  # that a connection may idle between two requests
GRACE_S = 4.5  # beyond the deadline, after which a process that was told to stop ends, wherever its threads are
TRIM_S = 5.0  # between two times that memory which nobody uses goes back to the system
SWITCH_S = 1e-3  # how long Python lets a busy thread keep others waiting: refusals must be quick
_NAME = re.compile(r"[\w.-]{1,100}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is served, how, and to whom."""

    models: tuple[tuple[str, str], ...]  # (name, folder)
    task: str | None = None
    device: str | None = None
    runtime: str | None = None
    dtype: str = "float32"
    limits: Limits = dataclasses.field(default_factory=Limits)
    keys: tuple[str, ...] = ()  # hashes
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = (ANY,)  # names by which clients may ask
    drain_s: float = 0.0  # between SIGTERM and the moment when no connection is taken any more
    log: str = "errors"

    def __post_init__(self) -> None:
        names = [name for name, _ in self.models]
        for name in names:
            if not _NAME.fullmatch(name) or name in (".", ".."):
                raise InputError(f"{name[:60]!r} cannot be a model's name: take letters, digits, '.', '_' and '-'.")
        if not 0 <= self.drain_s <= 3_600:
            raise InputError(f"drain is {self.drain_s!r}, but must be from 0 to 3,600 seconds.")
        if len(set(names)) < len(names):
            raise InputError(f"two models are called {max(names, key=names.count)!r}; name them: one=DIR two=DIR.")

    def as_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(line: str) -> Plan:
        """What `as_json` wrote."""
        fields: dict[str, Any] = json.loads(line)
        fields["models"] = tuple((name, path) for name, path in fields["models"])
        fields |= {name: tuple(fields[name]) for name in ("keys", "origins", "hosts")}
        return Plan(**{**fields, "limits": Limits(**fields["limits"])})


class Shared(socket.socket):
    """A listening socket of several processes, which takes one connection at a time: the next is for another process.

    asyncio would take as many as there are, so that all clients that come together would ask one process.
    """

    has_taken = False

    def accept(self) -> tuple[socket.socket, Any]:
        """One connection; then, once, that there is none."""
        if self.has_taken:
            self.has_taken = False
            raise BlockingIOError
        accepted = super().accept()
        self.has_taken = True
        return accepted


def run(plan: Plan, listening: socket.socket, tally: Tally, on_ready: Callable[[Shelf], object] | None = None) -> None:
    """Answers until SIGTERM or SIGINT; then what was accepted is answered, and it ends."""
    uvicorn = needed("uvicorn", "serve")
    needed("fastapi", "serve")  # which brings pydantic
    from filbert.serve.asgi import application
    from filbert.serve.connection import Connection
    from filbert.serve.shutdown import Server

    _allow_files()
    sys.setswitchinterval(SWITCH_S)
    names, limits = [name for name, _ in plan.models], plan.limits
    shelf, log = Shelf(names, limits), Log(plan.log, tally.worker)
    app = application(shelf, limits, access=Access(plan.keys, plan.origins, plan.hosts), tally=tally, log=log)
    on_refusal = functools.partial(_unrouted, tally, log)
    config = uvicorn.Config(
        app, http=functools.partial(Connection, patience_s=limits.patience_s, on_refusal=on_refusal), ws="none",
        log_config=None, log_level="critical", access_log=False, lifespan="on", server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=limits.deadline_s,
        backlog=2_048, proxy_headers=False,
        loop="asyncio" if isinstance(listening, Shared) else "auto",  # uvloop takes connections in its own way
    )  # fmt: skip
    server = Server(config, tally, log, drain_s=plan.drain_s, latest_s=limits.deadline_s + GRACE_S)
    failed: list[BaseException] = []

    def load() -> None:
        try:
            for name, path in plan.models:
                shelf.loaded[name] = loaded(plan, name, path, tally)
            if not server.is_stopping:
                tally.set_state(READY)
            if on_ready is not None:
                on_ready(shelf)
            else:
                log.event("ready", models=shelf.names)
        except BaseException as error:
            failed.append(error)
            server.should_exit = True

    tally.set_state(LOADING)
    for number in ends():
        # From here on, not only once uvicorn handles it, so that none in between is lost. uvicorn raises it
        # again when it is done: the end is an end, not a death.
        signal.signal(number, server.handle_exit)
    loading = threading.Thread(target=load, name="filbert-load", daemon=True)
    loading.start()
    threading.Thread(target=_trim, name="filbert-trim", daemon=True).start()
    server.run(sockets=[listening])
    if failed:
        raise failed[0]
    log.event("stopped")
    if loading.is_alive() or not shelf.has_ended:
        # A library that is at work in a thread when Python ends aborts the process.
        sys.stderr.flush()
        os._exit(0)


def ends() -> list[signal.Signals]:
    """The signals that tell a server to end; a terminal that closes does, unless it was started to stay (nohup)."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # Windows has none
        numbers.append(signal.SIGHUP)
    return numbers


def loaded(plan: Plan, name: str, path: str, tally: Tally) -> Served:
    """One model of the plan."""
    from filbert.engine.model import load

    model = load(path, device=plan.device, dtype=plan.dtype, runtime=plan.runtime)
    if not model.engine.has_torch:
        model.engine.keep()
    return Served(name, model, plan.task, plan.limits, tally.of_model(name))


def _unrouted(tally: Tally, log: Log, status: int) -> None:
    """An answer that no route gave."""
    tally.answered("other", status, 0.0)
    log.request("other", "other", status, 0.0)


def _trim() -> None:
    """Gives freed memory back, for ever.

    Every pack has another size, so what torch frees between the pieces that oneDNN remembers is rarely of use again:
    glibc would hold it, and a process that uses no more than before would grow by the hour.
    """
    try:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    except (OSError, TypeError):  # a Python without shared libraries; Windows, which needs a name
        return
    if trim is None:
        return
    trim.argtypes = [ctypes.c_size_t]
    while True:
        time.sleep(TRIM_S)
        trim(0)


def _allow_files() -> None:
    """As many open connections as the system allows this process."""
    if os.name != "posix":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _watch(stream: IO[str]) -> None:
    """Ends this process when its parent has: its end of the pipe closes, however it died."""

    def wait() -> None:
        stream.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="filbert-parent", daemon=True).start()


def main() -> None:
    """A worker: its plan comes on standard input, which stays open as long as its parent lives."""
    worker, workers, listening, memory = map(int, sys.argv[1:])
    plan = Plan.from_json(sys.stdin.readline())
    _watch(sys.stdin)
    tally = Tally([name for name, _ in plan.models], workers, worker, memory)
    try:
        run(plan, Shared(fileno=listening), tally)
    except FilbertError as error:
        sys.stderr.write(f"filbert: {error}\n")
        sys.stderr.flush()
        os._exit(error.exit_code)


if __name__ == "__main__":
    main()
