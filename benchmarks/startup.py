"""Process start to first vector: comes in a model folder, goes out wall, CPU and memory per contender, and verdicts.

The answer is there when its line is; what a process takes to end after that is told for itself.

.venv/bin/python benchmarks/startup.py                   seven interleaved rounds, a fresh interpreter per run
.venv/bin/python benchmarks/startup.py --skip filbert --rounds 1
.venv/bin/python benchmarks/startup.py --ours DIR        adds filbert on a folder of its own, run without torch
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import timing
from peers import Setup, export_onnx, minilm_folder
from worker import prepared

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-3
QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}
SHARE = 0.40  # ../shared/ANCHORS.md: at most this share of transformers' time
HELP_S, TORCH_FREE_S = 0.3, 1.0


@dataclass(frozen=True, kw_only=True)
class Program:
    """A command line, what it is compared with, and its targets."""

    name: str
    command: list[str]
    peers: tuple[str, ...] = ()  # we must take at most SHARE of these
    at_most_s: float | None = None
    prints_vector: bool = True


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one process cost, and what it said."""

    wall_s: float  # until its first line; where it says nothing, until its end
    end_s: float  # until its end
    cpu_s: float
    peak_mb: float
    code: int
    output: str


def programs(folder: Path, graph: Path, ours: Path | None, scratch: Path) -> list[Program]:
    """Everything that can be started."""
    binaries = Path(sys.executable).parent
    data = scratch / "text.txt"
    data.write_text("hello world\n")
    peers = ("pipeline", "automodel")

    def answer(function: str, where: Path = folder) -> list[str]:
        return [sys.executable, str(HERE / "first_answer.py"), function, str(where), str(graph)]

    embed = [str(binaries / "filbert"), "embed", str(folder), "--data", str(data), "--out", str(scratch / "out.jsonl")]
    found = [
        Program(name="filbert", command=answer("filbert"), peers=peers),
        Program(name="filbert embed", command=embed, peers=peers, prints_vector=False),
        Program(name="pipeline", command=answer("transformers_pipeline")),
        Program(name="automodel", command=answer("transformers_model")),
        Program(name="bare torch", command=answer("bare_torch")),
        Program(name="onnxruntime", command=answer("onnxruntime")),
        Program(name="python", command=[sys.executable, "-c", "pass"], prints_vector=False),
        Program(
            name="filbert --help",
            command=[str(binaries / "filbert"), "--help"],
            peers=("transformers --help",),
            at_most_s=HELP_S,
            prints_vector=False,
        ),
        Program(name="transformers --help", command=[str(binaries / "transformers"), "--help"], prints_vector=False),
    ]
    if ours:
        found.insert(1, Program(name="filbert, no torch", command=answer("filbert_onnx", ours), at_most_s=TORCH_FREE_S))
    return found


def started(command: list[str]) -> Run:
    """One fresh process, its whole tree of children counted."""
    with tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, env=os.environ | QUIET)
        assert process.stdout is not None
        first = process.stdout.readline()
        wall_s = time.perf_counter() - begin
        said = (first + process.stdout.read()).decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        end_s = time.perf_counter() - begin
        process.stdout.close()
        process.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        output = err.read().decode(errors="replace") if process.returncode else said
    cpu_s, peak_mb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    return Run(wall_s=wall_s, end_s=end_s, cpu_s=cpu_s, peak_mb=peak_mb, code=process.returncode, output=output)


def working(found: list[Program]) -> tuple[list[Program], dict[str, str]]:
    """One unmeasured round: warms the page cache, drops what fails and what answers differently."""
    kept: list[Program] = []
    left_out: dict[str, str] = {}
    vectors: dict[str, list[float]] = {}
    for program in found:
        print(f"trying {program.name}", file=sys.stderr, flush=True)
        try:
            run = started(program.command)
        except OSError as error:
            left_out[program.name] = str(error)
            continue
        if run.code:
            left_out[program.name] = f"exit {run.code}: {(run.output.strip().splitlines() or ['no output'])[-1]}"
            continue
        kept.append(program)
        if program.prints_vector:
            vectors[program.name] = json.loads(run.output.strip().splitlines()[-1])
    truth = vectors.get("pipeline") or vectors.get("automodel")
    for name, vector in vectors.items():
        off = max(abs(a - b) for a, b in zip(vector, truth, strict=True)) if truth else 0.0
        if not off <= TOLERANCE:
            left_out[name] = f"WRONG: differs from transformers by {off:.2g}, allowed {TOLERANCE}"
    return [program for program in kept if program.name not in left_out], left_out


def raced(runners: list[Program], rounds: int) -> dict[str, list[Run]]:
    """Every round starts every program once, in a rotated order."""
    by_name = {program.name: program for program in runners}
    runs: dict[str, list[Run]] = {name: [] for name in by_name}
    for turn in range(rounds):
        print(f"round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
        for name in timing.rotated(list(by_name), turn):
            runs[name].append(started(by_name[name].command))
    return runs


def results(runners: list[Program], runs: dict[str, list[Run]], left_out: dict[str, str]) -> dict[str, Any]:
    """Everything, for --json."""
    lines: dict[str, Any] = {}
    for program in runners:
        mine = runs[program.name]
        fields = ("wall_s", "end_s", "cpu_s", "peak_mb")
        line: dict[str, Any] = {key: asdict(timing.spread([getattr(run, key) for run in mine])) for key in fields}
        line["failed_runs"] = sum(run.code != 0 for run in mine)
        line["targets"] = _targets(program, runs)
        line["samples"] = [{key: getattr(run, key) for key in fields} for run in mine]
        lines[program.name] = line
    return {"machine": timing.machine(), "left_out": left_out, "programs": lines}


def _targets(program: Program, runs: dict[str, list[Run]]) -> list[dict[str, Any]]:
    mine, made = runs[program.name], []
    for peer in program.peers:
        if peer in runs:
            share = {key: _share(mine, runs[peer], key) for key in ("wall_s", "end_s", "cpu_s", "peak_mb")}
            target = SHARE if program.at_most_s is None else None  # --help has a target in seconds instead
            verdict = timing.verdict(share["wall_s"].median, target, at_most=True)
            shares = {key: asdict(value) for key, value in share.items()}
            made.append({"against": peer, "share": shares, "target": target, "verdict": verdict})
    if program.at_most_s is not None:
        wall = timing.spread([run.wall_s for run in mine])
        verdict = timing.verdict(wall.median, program.at_most_s, at_most=True)
        made.append({"against": "the clock", "seconds": asdict(wall), "target": program.at_most_s, "verdict": verdict})
    return made


def _share(mine: list[Run], theirs: list[Run], key: str) -> timing.Spread:
    return timing.ratios([getattr(run, key) for run in theirs], [getattr(run, key) for run in mine])


def tables(found: dict[str, Any]) -> str:
    """The results as text: first the costs, then the comparisons."""
    costs = [
        [
            name,
            timing.Spread(**line["wall_s"]).text(),
            timing.Spread(**line["end_s"]).text(),
            timing.Spread(**line["cpu_s"]).text(),
            timing.Spread(**line["peak_mb"]).text(0),
        ]
        for name, line in found["programs"].items()
    ]
    verdicts = [_verdict_row(name, target) for name, line in found["programs"].items() for target in line["targets"]]
    facts = found["machine"]
    parts = [f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_average']:.2f}; median (lowest-highest)", ""]
    parts.append(timing.table(["process", "first answer s", "end s", "CPU s", "peak MB"], costs))
    if verdicts:
        header = ["ours / theirs", "against", "first answer", "end", "CPU", "peak MB", "target", ""]
        parts += ["", timing.table(header, verdicts)]
    parts += ["", *(f"left out: {name}: {reason}" for name, reason in found["left_out"].items())]
    return "\n".join(parts).rstrip()


def _verdict_row(name: str, target: dict[str, Any]) -> list[str]:
    if "seconds" in target:
        seconds = timing.Spread(**target["seconds"]).text()
        return [name, "the clock", f"{seconds} s", "-", "-", "-", f"<= {target['target']} s", target["verdict"]]
    shares = [timing.Spread(**target["share"][key]).text() for key in ("wall_s", "end_s", "cpu_s", "peak_mb")]
    limit = f"<= {target['target']:.2f}" if target["target"] else "-"
    return [name, target["against"], *shares, limit, target["verdict"]]


def race(
    setup: Setup, rounds: int, ours: Path | None = None, only: Sequence[str] = (), skip: Sequence[str] = ()
) -> Any:
    """Every program that works, started again and again by turns: all that was measured."""
    prepared("onnxruntime", setup)
    with tempfile.TemporaryDirectory() as scratch:
        wanted = programs(setup.folder, export_onnx(setup) / "plain.onnx", ours, Path(scratch))
        wanted = [p for p in wanted if (not only or p.name in only) and p.name not in skip]
        if "filbert" in skip:
            wanted = [program for program in wanted if not program.name.startswith("filbert")]
        runners, left_out = working(wanted)
        return results(runners, raced(runners, rounds), left_out)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the race; 1 where a program failed or answered wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="programs, comma-separated")
    parser.add_argument("--skip", default="", help="programs to leave out; 'filbert' leaves out all of ours")
    parser.add_argument("--folder", type=Path, help="a BERT folder; MiniLM unless given")
    parser.add_argument("--ours", type=Path, help="a folder that filbert runs without torch: its ONNX export")
    parser.add_argument("--cache", type=Path, default=HERE / ".cache")
    parser.add_argument("--json", type=Path, help="write everything, every sample included")
    args = parser.parse_args(argv)
    setup = Setup(folder=args.folder or minilm_folder(), cache=args.cache)
    only, skip = args.only.split(",") if args.only else [], args.skip.split(",")
    found = race(setup, args.rounds, args.ours, only, skip)
    print(tables(found))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if found["left_out"] else 0


if __name__ == "__main__":
    sys.exit(main())
