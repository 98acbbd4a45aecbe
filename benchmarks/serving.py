"""How many requests a second, and how late: filbert serve beside FastAPI + `transformers` and LitServe, in one run.

A classifier of the MiniLM shape, one text a request (or --together), mixed lengths, one server process each, loopback,
clients in a process of their own. All servers are up; one is asked at a time, in turn. On a machine that is shared, run
one round at a time with --json, and --join the files. serving_load.py asks filbert alone, and harder.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from serving_servers import CONTENDERS, OURS, PEERS, USUAL, Running, asked, model_folders, served
from timing import Spread, machine, rotated, spread, table, verdict
from workloads import workloads

OTHERS = 0.25  # cores that others may take during a measurement; else it is made again
TRIES = 3
TARGETS = {("rate", 64): ("requests/s at 64 clients", 4.0, False), ("p99", 8): ("p99 at 8 clients", 0.5, True)}
Samples = dict[str, list[dict[str, Any]]]  # "name clients": one for each round


def race(given: argparse.Namespace) -> Samples:
    """Every contender at every number of clients, in turn, several times."""
    texts = workloads(model_folders()[0])[given.workload].texts
    told = f"{given.workload}: {len(texts)} texts, {given.together} in a request"
    print(f"{machine()}\nload average {os.getloadavg()[0]:.1f}; {told}")
    found: Samples = defaultdict(list)
    with served(given.contenders) as up:
        for turn in range(given.turn, given.turn + given.rounds):
            for clients in given.clients:
                for name in rotated(list(up), turn):
                    found[f"{name} {clients}"].append(quiet(up[name], clients, texts, given))
    return found


def quiet(server: Running, clients: int, texts: list[str], given: argparse.Namespace) -> dict[str, Any]:
    """A measurement in which others took little of the machine; it is repeated for no other reason."""
    tries = []
    while len(tries) < TRIES and (not tries or tries[-1]["others"] > OTHERS):
        tries.append(asked(server, clients, texts, given.seconds, together=given.together))
    found = min(tries, key=lambda one: one["others"])
    del found["records"]
    return found


def joined(paths: list[Path]) -> Samples:
    """The rounds of several runs."""
    found: Samples = defaultdict(list)
    for path in paths:
        for key, samples in json.loads(path.read_text(encoding="utf-8")).items():
            found[key] += samples
    return found


def shown(found: Samples) -> str:
    """A row for each contender at each number of clients: medians, and the rounds' range of the rate and of p99."""
    rows = []
    for key in sorted(found, key=lambda key: (int(key.split()[1]), key)):
        name, clients = key.split()
        samples = found[key]
        one = {key: spread([sample[key] for sample in samples]) for key in ("rate", "per_cpu_s", "p50", "p99")}
        failed = sum(n for s in samples for status, n in s["statuses"].items() if status != "200")
        others = max(sample.get("others", 0.0) for sample in samples)
        rows.append([clients, name, one["rate"].text(1), f"{one['per_cpu_s'].median:.1f}",
                     f"{one['p50'].median * 1e3:.0f}", _ms(one["p99"]), str(failed), f"{others:.2f}"])  # fmt: skip
    return table(["clients", "server", "requests/s", "per CPU s", "p50 ms", "p99 ms", "failed", "others"], rows)


def _ms(seconds: Spread) -> str:
    return f"{seconds.median * 1e3:.0f} ({seconds.low * 1e3:.0f}-{seconds.high * 1e3:.0f})"


def judged(found: Samples) -> list[str]:
    """The ratios that have targets, round by round."""
    lines = []
    for peer in PEERS:
        for (key, clients), (what, target, at_most) in TARGETS.items():
            for ours in OURS:
                both = found.get(f"{ours} {clients}"), found.get(f"{peer} {clients}")
                if both[0] and both[1] and all(other["rate"] for other in both[1]):  # else it answered nothing in time
                    ratio = spread([own[key] / other[key] for own, other in zip(*both, strict=True)])
                    told = f"{verdict(ratio.median, target, at_most=at_most)}, target {target}"
                    lines.append(f"{ours} / {peer}, {what}: {ratio.text()} ({told})")
    return lines


def main() -> None:
    """Runs what is asked for and prints it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contenders", nargs="+", default=list(USUAL), choices=CONTENDERS)
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--together", type=int, default=1, help="texts in one request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn", type=int, default=0, help="number of the first round: who is asked first changes")
    parser.add_argument("--workload", default="mixed", choices=["mixed", "headlines", "headlines-zh"])
    parser.add_argument("--json", type=Path, help="where all samples go")
    parser.add_argument("--join", nargs="+", type=Path, help="files of --json to read, instead of measuring")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end with it
    found = joined(given.join) if given.join else race(given)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(shown(found))
    print("\n".join(judged(found)))


if __name__ == "__main__":
    main()
