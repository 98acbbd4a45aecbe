"""A model folder and options in; a real `filbert serve` on 127.0.0.1, asked over sockets, out."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# The command with torch out of reach: what an installation without it would run.
NO_TORCH = "import sys; sys.modules['torch'] = None; from filbert.cli.main import main; main()"
SLOW = {"texts": ["火车进站了" * 12] * 900}  # for a tiny model, long enough that others wait behind it


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.raw)


class Server:
    """`filbert serve` as its own process, its standard error in a file."""

    def __init__(
        self, *words: str | Path, wait: bool = True, torch: bool = False, program: str | None = None, **env: str
    ) -> None:
        self.port = free_port()
        start = ["-c", program or NO_TORCH] if program or not torch else ["-m", "filbert"]
        command = [sys.executable, *start, "serve", *map(str, words), "--port", str(self.port)]
        log, path = tempfile.mkstemp(prefix="filbert-serve-")
        self._log, self._said = Path(path), ""
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | env
        self.process = subprocess.Popen(command, stderr=log, env=environment)
        os.close(log)
        if wait:
            self.until_ready()

    def until_ready(self, limit_s: float = 60) -> None:
        """Waits for /ready."""
        until(lambda: self.process.poll() is not None or self.tried("/ready") == 200, limit_s)
        assert self.process.poll() is None, self.said()

    def tried(self, path: str) -> int:
        """The status of a GET; 0 where nobody answers."""
        try:
            return self.asked(path).status
        except (OSError, http.client.HTTPException):
            return 0

    def said(self) -> str:
        """Its standard error so far."""
        if self._log.exists():
            self._said = self._log.read_text(encoding="utf-8")
        return self._said

    def asked(self, path: str, body: Any = None, *, method: str | None = None, **headers: str) -> Answer:
        """One request; a body that is not bytes is sent as JSON."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as link:
            link.request(method or ("GET" if body is None else "POST"), path, raw, named)
            found = link.getresponse()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())

    def connected(self, sent: bytes = b"") -> socket.socket:
        """A plain connection on which these bytes have been sent."""
        link = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        link.sendall(sent)
        return link

    def told(self, sent: bytes) -> bytes:
        """All that comes back until the server closes the connection."""
        with self.connected(sent) as link:
            return received(link)

    def metric(self, name: str, **labels: str) -> float:
        """A number of /metrics, summed over the labels that are not named."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        lines = self.asked("/metrics").raw.decode().splitlines()
        found = [line for line in lines if re.match(rf"{name}(\{{| )", line)]
        return sum(float(line.split()[-1]) for line in found if wanted <= set(re.findall(r'\w+="[^"]*"', line)))

    def children(self) -> list[int]:
        """Its processes."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in found.split()]

    def ended(self, number: int | None = signal.SIGTERM, limit_s: float = 30) -> int:
        """How it ended, by this signal."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(limit_s)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.said()
            self._log.unlink(missing_ok=True)


@contextlib.contextmanager
def serving(*words: str | Path, **options: Any) -> Iterator[Server]:
    """A server that ends well when the test does."""
    server = Server(*words, **options)
    try:
        yield server
    finally:
        code = server.ended()
    assert code == 0, server.said()


def request_bytes(path: str, body: bytes, *headers: str) -> bytes:
    """A POST as it goes over the wire."""
    head = [f"POST {path} HTTP/1.1", "Host: localhost", *headers]
    if not any(header.lower().startswith(("content-length", "transfer-encoding")) for header in headers):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + body


def received(link: socket.socket) -> bytes:
    """Everything until the other side closes."""
    found = bytearray()
    with contextlib.suppress(ConnectionError):
        while chunk := link.recv(65_536):
            found += chunk
    return bytes(found)


def until(true: Any, limit_s: float = 20) -> None:
    """Waits until something is so."""
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, "it did not come to be so"
        time.sleep(0.02)


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not fetched does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
