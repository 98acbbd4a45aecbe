"""Does filbert serve stand up to a load: requests from a second process in, a verdict for each promise out.

30 minutes' worth of requests in 3 (`load`), four times as many clients as may wait (`overload`), SIGTERM in the middle
(`stop`), SIGKILL of one of two workers (`kill`), and ten minutes at a low rate (`soak`, only when asked for). Mixed
lengths; 5 % of the requests of `load` and `soak` are malformed. The exit status is 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving_servers import OURS, Running, asked, children, clients, is_up, model_folders, resident_bytes, seen, served
from timing import machine
from workloads import workloads

BAD_SHARE = 0.05
PARTS = 4  # of a load, after each of which the memory is looked at
GROWTH = 0.05  # of the memory, after the warm-up
P99_S = 2.0  # with 16 clients at full speed
REFUSAL_S = 0.1  # in which a client that cannot be served must know it
LATER = 1.5  # times the lateness before: what is still the same
QUEUE = 64
FLOOR_S = 7  # more than filbert.serve.process.TRIM_S
NORMAL_S = 1_800.0  # 30 minutes
MALFORMED = ("400", "422")
Judged = list[tuple[str, bool, str]]  # the promise, whether it was kept, what was seen


def load(given: argparse.Namespace, texts: list[str]) -> Judged:
    """Mixed lengths, 5 % malformed, as fast as 16 clients can: statuses, lateness, memory."""
    with served([given.contender]) as up:
        return _held(up[given.contender], given, texts, given.seconds, pause_s=0.0)


def soak(given: argparse.Namespace, texts: list[str]) -> Judged:
    """The same for longer and at a low rate."""
    with served([given.contender]) as up:
        return _held(up[given.contender], given, texts, given.soak_seconds, pause_s=2.0)


def _held(server: Running, given: argparse.Namespace, texts: list[str], seconds: float, pause_s: float) -> Judged:
    asked(server, 16, texts, given.warm, bad_share=BAD_SHARE, pause_s=pause_s)
    held, parts = [floor_bytes(server.pid)], []
    for _ in range(PARTS):
        parts.append(asked(server, 16, texts, seconds / PARTS, bad_share=BAD_SHARE, pause_s=pause_s))
        held.append(floor_bytes(server.pid))
    statuses: Counter[str] = sum((Counter(part["statuses"]) for part in parts), Counter())
    total, late = statuses.total(), [part["p99"] for part in parts]
    bad = sum(statuses[own] for own in MALFORMED)
    growth = max(held[1:]) / held[0] - 1
    worth = f"{total:,} requests in {seconds:g} s, as many as in 30 minutes at {total / NORMAL_S:.1f} a second"
    memory = ", ".join(f"{own / 1e6:.0f}" for own in held)
    return [
        ("only 200, and 400 or 422 for what is malformed", set(statuses) <= {"200", *MALFORMED}, f"{dict(statuses)}"),
        ("5 % was malformed", abs(bad / total - BAD_SHARE) < 0.01, f"{bad / total:.1%} of {worth}"),
        (f"p99 at most {P99_S:g} s", max(late) <= P99_S, ", ".join(f"{own * 1e3:.0f}" for own in late) + " ms"),
        (f"memory grows by at most {GROWTH:.0%}", growth <= GROWTH, f"{growth:+.1%}; {memory} MB"),
    ]


def floor_bytes(process: int) -> int:
    """The least memory that it holds in the seconds after a load, in which freed memory goes back at least once.

    At any one moment torch's process holds up to a third more, freed and not yet given back; what leaks is in both.
    """
    found = []
    for _ in range(FLOOR_S * 5):
        found.append(resident_bytes(process))
        time.sleep(0.2)
    return min(found)


def overload(given: argparse.Namespace, texts: list[str]) -> Judged:
    """Four times as many clients as may wait: only 200 and 429, told when to come again, and quick again afterwards."""
    with served([given.contender], "--queue", str(QUEUE)) as up:
        server = up[given.contender]
        before = asked(server, 8, texts, given.short)
        during = asked(server, 4 * QUEUE, texts, given.short)
        after = asked(server, 8, texts, given.short)
    refused = during["refused_p99"] or 0.0
    late = f"p99 at 8 clients {before['p99'] * 1e3:.0f} ms before, {after['p99'] * 1e3:.0f} ms after"
    return [
        ("only 200 and 429", set(during["statuses"]) == {"200", "429"}, f"{during['statuses']}"),
        ("every 429 has Retry-After", during["without_retry_after"] == 0, f"{during['without_retry_after']} have none"),
        (f"99 % of the 429 within {REFUSAL_S:g} s", refused <= REFUSAL_S, f"{refused * 1e3:.0f} ms"),
        ("it recovers", set(after["statuses"]) == {"200"} and after["p99"] <= LATER * before["p99"], late),
    ]


def stop(given: argparse.Namespace, texts: list[str]) -> Judged:
    """SIGTERM in the middle: whatever was asked before it is answered."""
    with served([given.contender]) as up:
        server = up[given.contender]
        asking = clients(server, 32, texts, given.short, records=True)
        time.sleep(given.short / 2 + 1)
        told = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(90)
        ended = time.monotonic()
        records = seen(asking, given.short)["records"]
    before = Counter(status for begun, end, status in records if begun < told < end)
    after = Counter(status for begun, _, status in records if begun >= told)
    new = Counter(status for begun, _, status in records if begun >= ended)
    return [
        ("all in flight at SIGTERM get 200", set(before) == {"200"}, f"{dict(before)}; those after it: {dict(after)}"),
        ("afterwards it is gone", set(new) == {"refused"}, f"{dict(new)}"),
        ("it ends well", code == 0, f"exit status {code} after {ended - told:.1f} s"),
    ]


def kill(given: argparse.Namespace, texts: list[str]) -> Judged:
    """SIGKILL of one of two workers: the other answers meanwhile, and soon there are two again."""
    with served([given.contender], "--workers", "2") as up:
        server = up[given.contender]
        asking = clients(server, 16, texts, 2 * given.short, records=True)
        time.sleep(given.short / 2 + 1)
        killed, told = children(server.pid)[0], time.monotonic()
        os.kill(killed, signal.SIGKILL)
        time.sleep(0.5)
        is_back = is_up(server)
        back_s = time.monotonic() - told
        records = seen(asking, 2 * given.short)["records"]
        found = children(server.pid)
    lost = [begun for begun, _, status in records if not status.isdigit()]
    others = Counter(status for _, _, status in records if status.isdigit())
    return [
        ("no answer but 200", set(others) == {"200"}, f"{dict(others)}"),
        ("lost: at most what the killed one was at", len(lost) <= 16 and all(own <= told + 0.1 for own in lost),
         f"{len(lost)} of 16 clients had to ask again"),
        ("two workers again", is_back and len(found) == 2 and killed not in found, f"after {back_s:.1f} s"),
    ]  # fmt: skip


RUNS: dict[str, Callable[[argparse.Namespace, list[str]], Judged]] = {
    "load": load, "overload": overload, "stop": stop, "kill": kill, "soak": soak,
}  # fmt: skip


def main() -> None:
    """Runs what is asked for, says of each promise whether it was kept, and ends with 1 where one was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", nargs="+", default=["load", "overload", "stop", "kill"], choices=list(RUNS))
    parser.add_argument("--contender", default="filbert-onnx", choices=list(OURS))
    parser.add_argument("--seconds", type=float, default=180.0, help="of the load")
    parser.add_argument("--soak-seconds", type=float, default=600.0, help="of the soak")
    parser.add_argument("--short", type=float, default=10.0, help="of every other measurement")
    parser.add_argument("--warm", type=float, default=40.0, help="seconds before memory is looked at")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end with it
    texts = workloads(model_folders()[0])["mixed"].texts
    print(f"{machine()}\n{given.contender}")
    found: dict[str, Any] = {}
    for name in given.runs:
        try:
            found[name] = RUNS[name](given, texts)
        except (OSError, subprocess.SubprocessError, KeyError) as error:
            found[name] = [("it runs", False, repr(error))]
        for what, is_kept, seen_ in found[name]:
            print(f"{'PASS' if is_kept else 'MISS'}  {name}: {what}: {seen_}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    sys.exit(0 if all(is_kept for judged in found.values() for _, is_kept, _ in judged) else 1)


if __name__ == "__main__":
    main()
