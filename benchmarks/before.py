"""Another checkout of filbert in: how much more, or less, this one costs, encoding and serving, in one run; ratios out.

.venv/bin/python benchmarks/before.py ../old/src            five rounds of each, one thread, MiniLM
.venv/bin/python benchmarks/before.py ../old/src --only serve --clients 8 64

Each tree works in processes of its own, with its `src` first on the path; they take turns, and the ratio of a round is
this tree's CPU seconds divided by the other's: above 1, this one is dearer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import serving_servers as servers
import timing
import workloads as loads
from peers import minilm_folder

HERE = Path(__file__).resolve().parent
RUNTIMES = {"torch": ("torch", None), "onnx": ("onnx", None), "int8": ("onnx", "int8")}
WORKLOADS = ("headlines", "headlines-zh", "mixed", "arrival", "one")


class Tree:
    """A checkout: a process of it that encodes, as a line of JSON asks for it."""

    def __init__(self, source: Path) -> None:
        self.environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        self.home = tempfile.TemporaryDirectory()
        self.workers: dict[str, subprocess.Popen[str]] = {}

    def worker(self, runtime: str) -> subprocess.Popen[str]:
        """The process that encodes by that runtime; begun at the first call."""
        if runtime not in self.workers:
            words = [sys.executable, str(HERE / "before.py"), "--worker", runtime, self.home.name]
            self.workers[runtime] = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=self.environment
            )
        return self.workers[runtime]

    def cost(self, runtime: str, workload: str) -> float:
        """CPU seconds for the whole workload."""
        process = self.worker(runtime)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(workload) + "\n")
        return float(json.loads(process.stdout.readline()))

    def close(self) -> None:
        """Ends its processes."""
        for process in self.workers.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
        self.home.cleanup()


def encodes(runtime: str, home: str) -> None:
    """The worker: a line names a workload; the answer is what it cost. The first go of each is not counted."""
    import filbert as fb

    folder, (kind, dtype) = minilm_folder(), RUNTIMES[runtime]
    if kind == "onnx":
        exported = Path(home) / "model"
        if not exported.exists():
            command = [sys.executable, "-m", "filbert", "export", str(folder), "--out", str(exported), "--int8"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        folder = exported
    if kind == "torch":
        import torch

        torch.set_num_threads(1)
    model: Any = fb.load(str(folder), runtime=kind, **({"dtype": dtype} if dtype else {}))
    made, warm = loads.workloads(minilm_folder()), set[str]()
    for line in sys.stdin:
        calls = made[json.loads(line)].calls
        for _ in range(2 if line not in warm else 1):
            begun = time.process_time()
            for call in calls:
                model.embed(call, pool="cls")
            cost = time.process_time() - begun
        warm.add(line)
        print(json.dumps(cost), flush=True)


def encoding(ours: Tree, theirs: Tree, rounds: int) -> list[list[str]]:
    """A row for each runtime and workload."""
    rows = []
    for runtime in RUNTIMES:
        for workload in WORKLOADS:
            pairs = []
            for turn in range(rounds):
                order = (ours, theirs) if turn % 2 else (theirs, ours)
                cost = {tree: tree.cost(runtime, workload) for tree in order}
                pairs.append(cost[ours] / cost[theirs])
            rows.append([f"embed, {runtime}", workload, timing.spread(pairs).text()])
            print(*rows[-1], sep="  ", file=sys.stderr)
    return rows


def serving(source: Path, theirs: Path, given: argparse.Namespace) -> list[list[str]]:
    """A row for each runtime and number of clients: CPU seconds of a request, and the 99th percentile of its time."""
    texts = loads.workloads(minilm_folder())["mixed"].texts
    rows = []
    for runtime in given.runtimes:
        ratios: dict[str, list[float]] = {}
        with contextlib.ExitStack() as stack:
            up = {}
            for tree in (source, theirs):  # both read the folder that the first run has exported
                os.environ["PYTHONPATH"] = str(tree)
                up[tree] = stack.enter_context(servers.served([runtime]))[runtime]
            for turn in range(given.rounds):
                for clients in given.clients:
                    order = (source, theirs) if turn % 2 else (theirs, source)
                    seen = {tree: servers.asked(up[tree], clients, texts, given.seconds) for tree in order}
                    ratios.setdefault(f"{clients} clients, CPU of a request", []).append(
                        seen[theirs]["per_cpu_s"] / seen[source]["per_cpu_s"]
                    )
                    ratios.setdefault(f"{clients} clients, p99", []).append(seen[source]["p99"] / seen[theirs]["p99"])
        for what, values in ratios.items():
            rows.append([f"serve, {runtime}", what, timing.spread(values).text()])
            print(*rows[-1], sep="  ", file=sys.stderr)
    return rows


def main() -> None:
    """Compares, and prints the table."""
    if sys.argv[1:2] == ["--worker"]:
        encodes(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the src folder of the other checkout")
    parser.add_argument("--only", choices=("embed", "serve"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--runtimes", nargs="+", default=["filbert", "filbert-onnx"])
    given = parser.parse_args()
    source, theirs, rows = HERE.parent / "src", given.other.resolve(), []
    if given.only != "serve":
        trees = Tree(source), Tree(theirs)
        rows += encoding(*trees, given.rounds)
        for tree in trees:
            tree.close()
    if given.only != "embed":
        rows += serving(source, theirs, given)
    print(json.dumps(timing.machine(), ensure_ascii=False))
    print(timing.table(["what", "workload", "this tree / the other"], rows))


if __name__ == "__main__":
    main()
