"""A model in; whether a server of it can be stopped, slowed down or filled by its clients: a table and a verdict out.

From a second process: its capacity (`capacity`); minutes at half of that with 5 % malformed requests (`soak`); three
times the capacity in requests of 1, 8 and 100 texts (`overload`); and three attacks (`attack`): blanks whose answer
would have a gigabyte, looks that would take hours and a SIGTERM among them, clients that do not read. Requests are sent
when they are due, whether or not earlier ones were answered. The exit status is 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from serving_clients import BAD, answered, request
from serving_servers import Running, cpu_seconds, free_port, is_up, resident_bytes
from timing import machine, table

LENGTHS = (4, 12, 30, 60, 120, 250, 500)  # characters of a text
CHINESE = "今天的天气很好我们一起去公园里看花吧晚上再回家吃饭然后读一本书"
ENGLISH = "the weather is fine today and we will walk to the park to see the flowers before dinner "
BAD_SHARE = 0.05
SIZES = (1, 8, 100)  # texts of a request
CLIENTS = {1: 16, 8: 8, 100: 4}  # that measure the capacity, by the texts of a request
BACK_OFF_S = 0.2  # of these, after a 429
MOST_OPEN = 900  # connections at once; more would ask the client's system, not the server
PATIENT_S = 90.0  # that a client waits for an answer
GROWTH, SHARE, FLOOR_S = 0.05, 0.7, 7.0
DEADLINE_S = 60.0  # the server's own
ALLOWED = {"200", "400", "422"}

Judged = list[tuple[str, bool, str]]  # the promise, whether it was kept, what was seen


class Load(NamedTuple):
    """What is sent: texts of a request, requests a second (0: closed loops), for how long."""

    together: int
    rate: float
    seconds: float
    bad_share: float = 0.0
    path: str = "/embed"


class Seen(NamedTuple):
    """What came of it."""

    statuses: Counter[str]
    answered_texts: int  # answered within the time
    without_retry_after: int
    late_s: float  # the 99th percentile of 200s
    sent: int


def texts(number: int, seed: int) -> list[str]:
    """Mixed lengths, in Chinese and English."""
    rng, found = random.Random(seed), []
    for _ in range(number):
        source, begin = rng.choice((CHINESE, ENGLISH)), rng.randrange(20)
        found.append((source * 20)[begin : begin + rng.choice(LENGTHS)])
    return found


# Clients, in a process of their own -----------------------------------------------------------------------------------


class Clients:
    """Connections that are used again, and what was seen on them."""

    def __init__(self, port: int, load: Load) -> None:
        self.port, self.load, self.end = port, load, time.monotonic() + load.seconds
        self.free: list[Any] = []
        self.statuses: Counter[str] = Counter()
        self.late: list[float] = []
        self.texts = self.without = self.sent = 0

    def body(self, number: int) -> tuple[bytes, bool]:
        """A request's body, and whether it is malformed."""
        share = self.load.bad_share
        if share and number % round(1 / share) == 0:
            return BAD[number // round(1 / share) % len(BAD)], True
        return json.dumps({"inputs": texts(self.load.together, number)}, ensure_ascii=False).encode(), False

    async def one(self, number: int) -> str:
        """One request; its status."""
        body, _ = self.body(number)
        begun = time.monotonic()
        link = None
        try:
            link = self.idle() or await asyncio.open_connection("127.0.0.1", self.port)
            link[1].write(request(self.load.path, body))
            status, is_told, is_last = await asyncio.wait_for(answered(link[0]), PATIENT_S)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.statuses[f"lost {type(error).__name__}"] += 1
            if link is not None:
                link[1].close()
            return "lost"
        now = time.monotonic()
        self.statuses[str(status)] += 1
        self.without += status == 429 and not is_told
        if status == 200:
            self.late.append(now - begun)
            self.texts += self.load.together if now <= self.end else 0
        if is_last:
            link[1].close()
        else:
            self.free.append(link)
        return str(status)

    def idle(self) -> Any:
        """A connection that is free; one that the server has closed, since nothing was asked on it, is forgotten."""
        while self.free:
            link = self.free.pop()
            if not link[0].at_eof():
                return link
            link[1].close()
        return None

    async def loop(self, first: int) -> None:
        """One after another until the time is over."""
        number = first
        while time.monotonic() < self.end:
            if await self.one(number) != "200":
                await asyncio.sleep(BACK_OFF_S)
            number += CLIENTS[self.load.together]
            self.sent += 1

    async def run(self) -> dict[str, Any]:
        """All of them."""
        if not self.load.rate:
            await asyncio.gather(*(self.loop(number) for number in range(1, CLIENTS[self.load.together] + 1)))
        else:
            open_, begun = set[asyncio.Task[str]](), time.monotonic()
            while (now := time.monotonic()) < self.end:
                due = begun + self.sent / self.load.rate
                if due > now:
                    await asyncio.sleep(due - now)
                    continue
                self.sent += 1
                if len(open_) >= MOST_OPEN:
                    self.statuses["not sent"] += 1  # so many are open already
                    await asyncio.sleep(0)
                    continue
                task = asyncio.ensure_future(self.one(self.sent))
                open_.add(task)
                task.add_done_callback(open_.discard)
            await asyncio.gather(*open_)
        for _, writer in self.free:
            writer.close()
        late = sorted(self.late)
        return {
            "statuses": self.statuses, "answered_texts": self.texts, "without_retry_after": self.without,
            "late_s": late[int(len(late) * 0.99)] if late else 0.0, "sent": self.sent,
        }  # fmt: skip


def begun(server: Running, load: Load) -> subprocess.Popen[str]:
    """Clients at work in a process of their own."""
    words = [sys.executable, __file__, "--clients", json.dumps([server.port, *load])]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> Seen:
    """What they saw."""
    out, _ = process.communicate()
    found = json.loads(out)
    return Seen(Counter(found.pop("statuses")), **found)


# A server -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(given: argparse.Namespace, *more: str) -> Any:
    """A server of the model, which has ended well when this has."""
    port = free_port()
    words = [sys.executable, "-m", "filbert", "serve", given.model, "--name", "bench", "--port", str(port), *more]
    process = subprocess.Popen([*words, *given.options], stderr=subprocess.DEVNULL)
    try:
        if not is_up(Running(port, process)):
            raise OSError("the server did not start")
        yield Running(port, process)
    finally:
        if process.poll() is None:
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(90)
        if process.poll() is None:
            process.kill()
            process.wait()


def posted(port: int, path: str, body: Any, timeout_s: float = PATIENT_S) -> tuple[int, float, int]:
    """The status of one request, how long it took, and the bytes of its answer."""
    import http.client

    begun = time.monotonic()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)) as link:
        link.request("POST", path, json.dumps(body).encode())
        answer = link.getresponse()
        return answer.status, time.monotonic() - begun, len(answer.read())


def peak_bytes(pid: int) -> int:
    """The most memory that a process has held."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def floor_bytes(pid: int) -> int:
    """The least that it holds in some seconds, in which freed memory goes back at least once."""
    found, until = [], time.monotonic() + FLOOR_S
    while time.monotonic() < until:
        found.append(resident_bytes(pid))
        time.sleep(0.2)
    return min(found)


# What is measured -----------------------------------------------------------------------------------------------------


def capacity(given: argparse.Namespace, server: Running) -> dict[int, float]:
    """Texts a second in requests of each size, by clients that wait for their answers; and what it costs."""
    found, rows = {}, []
    for size in SIZES:
        ended(begun(server, Load(size, 0.0, max(2.0, given.short / 3))))  # warms up
        used = cpu_seconds(server.pid)
        seen = ended(begun(server, Load(size, 0.0, given.short)))
        used = cpu_seconds(server.pid) - used
        if not seen.answered_texts:
            print(f"no answer to {size} texts within {given.short:g} s: this machine is too busy; raise --short")
        found[size] = max(seen.answered_texts, size) / given.short
        rows.append([str(size), f"{found[size]:.0f}", f"{found[size] / size:.1f}", f"{seen.late_s * 1e3:.0f}",
                     f"{used / given.short:.1f}", str(dict(seen.statuses))])  # fmt: skip
    print(table(["texts in a request", "texts/s", "requests/s", "p99 ms", "cores", "statuses"], rows), flush=True)
    return found


def soak(given: argparse.Namespace, server: Running, able: dict[int, float]) -> Judged:
    """Half of the capacity, mixed lengths, 5 % malformed: statuses and memory."""
    rate = able[1] / 2
    ended(begun(server, Load(1, rate, given.warm, BAD_SHARE)))
    held, statuses, late = [floor_bytes(server.pid)], Counter[str](), []
    parts = max(1, round(given.minutes))
    for _ in range(parts):
        seen = ended(begun(server, Load(1, rate, given.minutes * 60 / parts, BAD_SHARE)))
        statuses += seen.statuses
        late.append(seen.late_s)
        held.append(floor_bytes(server.pid))
    bad = sum(statuses[own] for own in ("400", "422"))
    growth = max(held[1:]) / held[0] - 1
    memory = ", ".join(f"{own / 1e6:.0f}" for own in held)
    total = statuses.total()
    return [
        (f"{given.minutes:g} minutes at half: only 200, and 400 or 422 for what is malformed", set(statuses) <= ALLOWED,
         f"{dict(statuses)} at {rate:.0f}/s"),
        ("malformed: 5 %, each told so", abs(bad / max(1, total) - BAD_SHARE) < 0.01, f"{bad / max(1, total):.1%}"),
        (f"memory grows by at most {GROWTH:.0%}", growth <= GROWTH, f"{growth:+.1%}; {memory} MB"),
        ("p99", True, f"{max(late) * 1e3:.0f} ms"),
    ]  # fmt: skip


def overload(given: argparse.Namespace, server: Running, able: dict[int, float]) -> Judged:
    """Three times the capacity: only 200 and 429, and most of the capacity is answered meanwhile."""
    judged: Judged = []
    for size in SIZES:
        seen = ended(begun(server, Load(size, 3 * able[size] / size, given.over)))
        share = seen.answered_texts / given.over / able[size]
        told = f"{dict(seen.statuses)}; p99 of 200s {seen.late_s:.1f} s"
        judged += [
            (f"3 x capacity, {size} in a request: only 200 and 429", set(seen.statuses) <= {"200", "429", "not sent"},
             told),
            ("… every 429 has Retry-After", not seen.without_retry_after, f"{seen.without_retry_after} have none"),
            (f"… at least {SHARE:.0%} of the capacity is answered", share >= SHARE, f"{share:.0%}"),
        ]  # fmt: skip
    return judged


def attack(given: argparse.Namespace, server: Running, able: dict[int, float]) -> Judged:
    """Blanks, looks, and clients that do not read; then a SIGTERM among looks."""
    judged: Judged = []
    before = peak_bytes(server.pid)
    status, took, size = posted(server.port, "/", {"inputs": "[MASK]" * 400, "parameters": {"top_k": 1_000}})
    more = peak_bytes(server.pid) - before
    told = f"{status} after {took:.2f} s, {size:,} bytes; {more / 1e6:.0f} MB more at the peak"
    judged.append(("H1: blanks whose answer would have a gigabyte", status == 413 and more < 2e8, told))

    before = sum(_answers(server.port, "/embed", status) for status in ("499", "429"))
    begun_, stuck, left = time.monotonic(), [_unread(server.port) for _ in range(20)], 0.0
    while left < len(stuck) and time.monotonic() - begun_ < DEADLINE_S + 4 * given.patience:
        time.sleep(0.5)
        left = sum(_answers(server.port, "/embed", status) for status in ("499", "429")) - before
    took = time.monotonic() - begun_
    for link in stuck:
        link.close()
    promise = "H6: 20 clients that do not read are let go, or refused"
    judged.append((promise, left >= len(stuck), f"{left:.0f} after {took:.0f} s"))

    look = {"texts": [(CHINESE * 700)[:5_000]], "explain": {"method": "sampling"}}
    asking = [_asked_look(server.port, look) for _ in range(3)]
    time.sleep(1)
    answers = [posted(server.port, "/embed", {"inputs": "今天天气很好"}) for _ in range(10)]
    worst = max(took for _, took, _ in answers)
    judged.append(
        ("H2: three looks stop nobody", {status for status, _, _ in answers} == {200}, f"worst {worst:.2f} s")
    )
    begun_ = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    try:
        code: int | None = server.process.wait(DEADLINE_S + 5)
    except subprocess.TimeoutExpired:
        code = None
    took = time.monotonic() - begun_
    judged.append(
        ("H2: SIGTERM among them ends it within the deadline and 5 s", code is not None, f"{took:.1f} s, status {code}")
    )
    for link in asking:
        link.close()
    return judged


def _answers(port: int, path: str, status: str) -> float:
    """How many it has given at a path with that status."""
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = str(answer.read().decode()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if f'path="{path}",status="{status}"' in line)


def _unread(port: int) -> Any:
    """A connection that asked for an answer of some MB and does not read it."""
    import socket

    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    link.connect(("127.0.0.1", port))
    link.sendall(request("/embed", json.dumps({"inputs": ["云"] * 900}).encode()))
    return link


def _asked_look(port: int, look: dict[str, Any]) -> Any:
    import socket

    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(request("/look", json.dumps(look).encode()))
    return link


RUNS = {"soak": soak, "overload": overload, "attack": attack}


def main() -> None:
    """Runs what is asked for, says of each promise whether it was kept, and ends with 1 where one was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="builtin")
    parser.add_argument("--options", nargs="*", default=[], help="further options of the server, without dashes: a=b")
    parser.add_argument("--runs", nargs="+", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--minutes", type=float, default=10.0, help="of the soak")
    parser.add_argument("--warm", type=float, default=60.0, help="seconds before memory is looked at")
    parser.add_argument("--short", type=float, default=10.0, help="seconds of each measurement of the capacity")
    parser.add_argument("--over", type=float, default=20.0, help="seconds of each overload")
    parser.add_argument("--patience", type=float, default=10.0, help="the server's --patience")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--clients", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.clients:
        port, *load = json.loads(given.clients)
        json.dump(asyncio.run(Clients(port, Load(*load)).run()), sys.stdout)
        return
    given.options = [f"--{own}" for own in given.options]
    print(f"{machine()}\n{given.model}", flush=True)
    judged: Judged = []
    with served(given, "--patience", str(given.patience)) as server:
        able = capacity(given, server)
        for name in sorted(given.runs, key=list(RUNS).index):  # the attacks end with the server
            for promise in RUNS[name](given, server, able):
                judged.append(promise)
                print(f"{'PASS' if promise[1] else 'MISS'}  {promise[0]}: {promise[2]}", flush=True)
    rows = [["PASS" if is_kept else "MISS", what, seen] for what, is_kept, seen in judged]
    print(table(["", "promise", "seen"], rows))
    if given.json:
        given.json.write_text(json.dumps(judged, indent=1), encoding="utf-8")
    sys.exit(0 if all(is_kept for _, is_kept, _ in judged) else 1)


if __name__ == "__main__":
    main()
