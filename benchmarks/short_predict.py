"""Two checkouts in; what one `predict` of one short text costs in each, and when all is bound beforehand, out.

.venv/bin/python benchmarks/short_predict.py ../old/src                    this checkout beside another
.venv/bin/python benchmarks/short_predict.py ../old/src ../other/src       that one instead of this
.venv/bin/python benchmarks/short_predict.py ../old/src --runtime onnx --rounds 21
.venv/bin/python benchmarks/short_predict.py ../old/src --preset tiny      a model that costs next to nothing itself

Each checkout works in a process of its own, with its `src` first on the path, on one thread of the CPU, in turn. A
round is `--calls` calls of `model.predict([text])`; its cost is CPU seconds of a call. "first / this" is the first
checkout's cost divided by that of this row, round by round: above 1, this row is cheaper.

`bound` is the same with the task and its config taken before the loop (`model.reading()`), where a checkout can do it;
"this / its bound" is then what it costs to look them up with every call. The model is the built-in one, fine-tuned for
`classify` by the first checkout on a dozen rows: the other must be able to read its folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import timing

HERE = Path(__file__).resolve().parent
TEXT = "The team won the last match of the season."
ROWS = {"sport": TEXT, "money": "The bank raised its rates again today."}
RUNTIMES = ("torch", "onnx")


class Worker:
    """A process of a checkout that answers one text again and again, as a line of its input asks for it."""

    def __init__(self, source: Path, folder: Path, runtime: str) -> None:
        words = [sys.executable, str(HERE / "short_predict.py"), "--worker", str(folder), runtime]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=_environment(source)
        )

    def cost(self, way: str, calls: int) -> float | None:
        """CPU seconds of a call; None where the checkout cannot bind."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([way, calls]) + "\n")
        answer: float | None = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def _environment(source: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def work(folder: str, runtime: str) -> None:
    """The worker: a line names the way and the number of calls; the answer is what a call cost."""
    import filbert as fb

    if runtime == "torch":
        import torch

        torch.set_num_threads(1)
    model = fb.load(folder, device="cpu", runtime=runtime)
    bound = model.reading() if hasattr(model, "reading") else None
    for line in sys.stdin:
        way, calls = json.loads(line)
        asked = model if way == "predict" else bound
        if asked is None:
            print("null", flush=True)
            continue
        begin = time.process_time()
        for _ in range(calls):
            asked.predict([TEXT])
        print(json.dumps((time.process_time() - begin) / calls), flush=True)


def made(source: Path, home: Path, runtime: str, preset: str | None) -> Path:
    """The model folder, fine-tuned (and exported for onnxruntime) by that checkout."""
    lines = [f"{text}\t{label}" for _ in range(6) for label, text in ROWS.items()]
    (home / "rows.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    begin = [sys.executable, "-m", "filbert"]
    start = ["--arch", "bert", "--preset", preset] if preset else ["--model", "builtin"]
    train = ["finetune", "classify", *start, "--train", "rows.tsv", "--out", "run", "--epochs", "1"]
    settings = ["--set", "machine.threads=1", "--set", "machine.device=cpu"]
    commands = [[*begin, *train, *settings]]
    if runtime == "onnx":
        commands.append([*begin, "export", "run/model", "--out", "shipped"])
    for command in commands:
        subprocess.run(command, check=True, cwd=home, env=_environment(source), stdout=subprocess.DEVNULL)
    return home / ("shipped" if runtime == "onnx" else "run/model")


def measured(sources: list[Path], folder: Path, given: argparse.Namespace) -> list[list[str]]:
    """A row for each checkout and way: milliseconds of a call, the first checkout's cost beside it, and its `bound`."""
    workers = [Worker(source, folder, given.runtime) for source in sources]
    contenders = [(worker, way) for worker in workers for way in ("predict", "bound")]
    costs: dict[int, list[float]] = {place: [] for place in range(len(contenders))}
    for turn in range(-1, given.rounds):  # the first round warms up and is not counted
        for name in timing.rotated([*map(str, costs)], turn + 1):
            worker, way = contenders[int(name)]
            cost = worker.cost(way, given.calls)
            if cost is not None and turn >= 0:
                costs[int(name)].append(cost)
    for worker in workers:
        worker.close()
    rows = []
    for place, (worker, way) in enumerate(contenders):
        if own := costs[place]:
            source, bound = sources[workers.index(worker)], costs[place | 1]
            beside = timing.ratios(own, costs[place & 1]).text() if costs[place & 1] else "-"
            again = timing.ratios(bound, own).text() if bound else "-"
            rows.append(
                [f"{source.parent.name}, {way}", timing.spread([1e3 * each for each in own]).text(3), beside, again]
            )
    return rows


def main() -> None:
    """Races, and prints the table."""
    if sys.argv[1:2] == ["--worker"]:
        work(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path, help="the src folder of a checkout, which makes the model")
    parser.add_argument("second", type=Path, nargs="?", default=HERE.parent / "src", help="another's; this checkout's")
    parser.add_argument("--runtime", choices=RUNTIMES, default="torch")
    parser.add_argument("--preset", help="a new BERT of this size instead of the built-in model")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=100)
    given = parser.parse_args()
    sources = [given.first.resolve(), given.second.resolve()]
    with tempfile.TemporaryDirectory() as home:
        rows = measured(sources, made(sources[0], Path(home), given.runtime, given.preset), given)
    print(json.dumps(timing.machine(), ensure_ascii=False))
    print(timing.table(["checkout", "ms a call", "first / this", "this / its bound"], rows))


if __name__ == "__main__":
    main()
