"""CPU batch encoding against the peers: comes in a model shape, goes out a table of seconds, ratios and verdicts.

.venv/bin/python benchmarks/inference.py                         MiniLM, one thread, five rounds
.venv/bin/python benchmarks/inference.py --start 5               and five rounds from process start to first answer
.venv/bin/python benchmarks/inference.py --threads 2             both cores: the ratios are of wall seconds
.venv/bin/python benchmarks/inference.py --shape base --json out.json
.venv/bin/python benchmarks/inference.py --skip filbert --rounds 1 --scale 0.1      a smoke run of the peers
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import startup
import timing
import workloads as loads
from peers import CONTENDERS, Setup, base_folder, export_filbert, minilm_folder
from worker import REFERENCE, Broken, Worker, prepared, set_environment

OURS = ("filbert", "filbert-onnx", "filbert-int8")  # with torch; without it; without it and in eight bits
TOLERANCE = 1e-3
LOWEST_COSINE = 0.9  # an eight-bit answer below it is wrong, not rounded
# ../shared/ANCHORS.md, "CPU targets": at least so many times less CPU than the peer in the same run.
_PEERS = [name for name in CONTENDERS if name not in OURS]
_ROUNDED = [name for name in _PEERS if CONTENDERS[name].rounded]
TARGETS: dict[str, dict[str, float]] = {
    "mixed": {"pipeline-32": 5.0, "sdpa": 1.3, "onnxruntime": 1.2, "onnxruntime-fused": 1.2, "ctranslate2": 1.15}
    | dict.fromkeys(_ROUNDED, 1.15),
    "arrival": dict.fromkeys(set(_PEERS) - {"pipeline-1"}, 4.5),
    "one": {"onnxruntime": 1 / 1.1, "onnxruntime-fused": 1 / 1.1},
}
QUALITY = {"cosine": 0.995, "neighbour": 0.95}


def judge(workload: str, peer: str) -> str:
    """Which of ours a target holds for: eight bits against eight bits, one text by the runtime without torch."""
    if CONTENDERS[peer].rounded:
        return "filbert-int8"
    return "filbert-onnx" if workload == "one" else "filbert"


class Race:
    """The workers of one run, the batch sizes they chose and the samples they gave."""

    def __init__(self, args: argparse.Namespace, setup: Setup) -> None:
        self.args = args
        made = loads.workloads(setup.folder, seed=args.seed, scale=args.scale, median=args.median)
        self.workloads = {name: made[name] for name in args.workloads if name in made}
        self.folder = setup.folder
        self.workers: dict[str, Worker] = {}
        self.broken: dict[str, str] = {}
        self.wrong: set[str] = set()
        self.batches: dict[tuple[str, str], int] = {}
        self.differences: dict[str, dict[str, float]] = {}
        self.quality: dict[str, dict[str, dict[str, float]]] = {}
        self.samples: dict[str, dict[str, list[timing.Sample]]] = {name: {} for name in self.workloads}
        for name in args.contenders:
            self._start(name, setup)

    def _start(self, name: str, setup: Setup) -> None:
        _say(f"building {name}")
        try:
            prepared(name, setup)
            self.workers[name] = Worker(name, setup)
        except Broken as error:
            self.broken[name] = str(error)
            _say(f"  left out: {error}")

    def close(self) -> None:
        """Ends every worker."""
        for worker in self.workers.values():
            worker.close()

    def runners(self, workload: str) -> list[str]:
        """Who takes part in a workload."""
        return [name for name in self.workers if workload not in CONTENDERS[name].skips]

    def batch(self, workload: str, name: str) -> int:
        """The batch size a contender uses for a workload."""
        if self.workloads[workload].one_padded_batch:
            return loads.ARRIVAL_BATCH
        return self.batches.get((workload, name), loads.ARRIVAL_BATCH)

    def check(self, setup: Setup) -> None:
        """Drops every contender that disagrees with `transformers` on any text: a wrong fast answer cannot win."""
        _say("checking that all agree with transformers")
        truth_worker = Worker(REFERENCE, setup)
        for workload in self.workloads.values():
            truth = truth_worker.vectors(workload, 1)
            for name in self.runners(workload.name):
                self._compare(name, workload, truth)
        truth_worker.close()

    def _compare(self, name: str, workload: loads.Workload, truth: np.ndarray) -> None:
        try:
            found = self.workers[name].vectors(workload, self.batch(workload.name, name))
            if found.shape != truth.shape:
                raise Broken(f"{name}: {workload.name}: shape {found.shape}, not {truth.shape}")
            off = float(np.abs(found - truth).max())
            self.differences.setdefault(name, {})[workload.name] = off
            if CONTENDERS[name].rounded:
                near = likeness(found, truth)["cosine"]
                if not near >= LOWEST_COSINE:
                    raise Broken(f"{name}: {workload.name}: median cosine {near:.3f}, allowed {LOWEST_COSINE}")
            elif not off <= TOLERANCE:  # NaN is wrong too
                worst = int(np.abs(found - truth).max(1).argmax())
                raise Broken(f"{name}: {workload.name}: differs by {off:.2g} on text {worst}, allowed {TOLERANCE}")
        except Broken as error:
            self.broken[name] = str(error)
            self.wrong.add(name)
            self.workers.pop(name).close()
            _say(f"  WRONG, left out: {error}")

    def judge_rounded(self, setup: Setup) -> None:
        """Mean vectors of short texts in eight bits beside those of `transformers`: their cosine and neighbours."""
        names = [name for name in self.workers if CONTENDERS[name].rounded]
        if not names:
            return
        _say("comparing what eight bits give")
        mean = replace(setup, pool="mean")
        sets = loads.neighbour_texts(self.workloads)
        for name in (REFERENCE, *names):
            worker = Worker(name, mean)
            found = {each: worker.vectors(load, loads.ARRIVAL_BATCH) for each, load in sets.items()}
            worker.close()
            if name == REFERENCE:
                truth = found
            else:
                self.quality[name] = {each: likeness(found[each], truth[each]) for each in sets}

    def sweep(self) -> None:
        """Finds each contender's best batch size for each workload: the least CPU (one thread) or wall (more)."""
        for workload in self.workloads.values():
            for name in self.runners(workload.name):
                self.batches[workload.name, name] = self._best_batch(workload, name)

    def _best_batch(self, workload: loads.Workload, name: str) -> int:
        sizes = CONTENDERS[name].batches
        if not sizes or workload.one_padded_batch or workload.per_call:
            return loads.ARRIVAL_BATCH
        if self.args.batch:
            return self.args.batch
        same_lengths = self.batches.get(("mixed", name))
        if workload.name == "arrival-split" and same_lengths:
            return same_lengths
        _say(f"choosing {name}'s batch size for {workload.name}")
        costs = {size: self._least(workload, name, size) for size in sizes}
        return min(costs, key=costs.__getitem__)

    def _least(self, workload: loads.Workload, name: str, size: int) -> float:
        passes = [self.workers[name].sample(workload, size) for _ in range(self.args.sweep_passes)]
        return min(_cost(sample, self.args.threads) for sample in passes)

    def run(self) -> None:
        """Every round runs every contender once on every workload, in a rotated order."""
        for turn in range(self.args.rounds):
            for workload in self.workloads.values():
                _say(f"round {turn + 1} of {self.args.rounds}: {workload.name}")
                for name in timing.rotated(self.runners(workload.name), turn):
                    sample = self.workers[name].sample(workload, self.batch(workload.name, name))
                    self.samples[workload.name].setdefault(name, []).append(sample)

    def comparison(self, workload: str, name: str) -> dict[str, Any]:
        """One line of the table as numbers."""
        samples = self.samples[workload][name]
        line: dict[str, Any] = {
            "cpu_s": asdict(timing.spread([sample.cpu_s for sample in samples])),
            "wall_s": asdict(timing.spread([sample.wall_s for sample in samples])),
            "batch": self.batch(workload, name) if CONTENDERS[name].batches else None,
            "max_difference": self.differences.get(name, {}).get(workload),
            "samples": timing.samples_as_json(samples),
        }
        line["ratios"] = {}
        for mine in OURS:
            own, threads = self.samples[workload].get(mine), self.args.threads
            if own and name != mine:
                found = timing.ratios([_cost(s, threads) for s in own], [_cost(s, threads) for s in samples])
                line["ratios"][mine] = asdict(found)
        by = judge(workload, name)
        if name not in OURS and by in line["ratios"] and (target := self._target(workload, name)):
            verdict = timing.verdict(line["ratios"][by]["median"], target)
            line |= {"target": target, "by": by, "verdict": verdict}
        return line

    def _target(self, workload: str, name: str) -> float | None:
        if self.args.shape != "minilm" or self.args.threads != 1:  # the targets were set for this case alone
            return None
        if self.args.batch or self.args.scale < 1:  # a smoke run: peers not at their best, or too few texts
            return None
        return TARGETS.get(workload, {}).get(name)

    def results(self) -> dict[str, Any]:
        """Everything, for --json."""
        fields = ("shape", "pool", "threads", "rounds", "seed", "scale", "median", "batch")
        return {
            "machine": timing.machine(),
            "settings": {name: getattr(self.args, name) for name in fields},
            "clock": "cpu_s" if self.args.threads == 1 else "wall_s",
            "lengths": {name: loads.histogram(load.texts, self.folder) for name, load in self.workloads.items()},
            "left_out": self.broken,
            "quality": self.quality,
            "workloads": {
                workload: {name: self.comparison(workload, name) for name in CONTENDERS if name in found}
                for workload, found in self.samples.items()
            },
        }


def likeness(found_XD: np.ndarray, truth_XD: np.ndarray) -> dict[str, float]:
    """The median cosine of vectors with the true ones, and the share whose nearest neighbour is the same text."""
    both = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (found_XD, truth_XD)]
    nearest = []
    for unit_XD in both:
        near_XX = unit_XD @ unit_XD.T
        np.fill_diagonal(near_XX, -np.inf)
        nearest.append(near_XX.argmax(axis=1))
    cosine = float(np.median((both[0] * both[1]).sum(axis=1)))
    return {"cosine": cosine, "neighbour": float((nearest[0] == nearest[1]).mean())}


def tables(results: dict[str, Any], made: dict[str, loads.Workload]) -> str:
    """The results as text."""
    settings, facts = results["settings"], results["machine"]
    parts = [
        f"{settings['shape']}, pool {settings['pool']}, threads {settings['threads']}, "
        f"{settings['rounds']} rounds; {facts['cpu']}, {facts['cores']} cores, {' '.join(facts['instructions'])}, "
        f"load {facts['load_average']:.2f}",
        f"times = peer / ours in {results['clock']}, median of the rounds' own ratios; (lowest-highest)",
    ]
    if settings["batch"] or (settings["shape"] == "minilm" and settings["scale"] < 1):
        parts.append("SMOKE RUN (--batch or --scale): no targets are judged; do not quote these ratios")
    for name, lines in results["workloads"].items():
        parts += ["", _title(made[name], results["lengths"][name]), _table(made[name], lines)]
    if results["quality"]:
        parts += [
            "",
            "EIGHT BITS: mean vectors of short texts against transformers in fp32",
            _quality(results["quality"]),
        ]
    parts += ["", *(f"left out: {reason}" for reason in results["left_out"].values())]
    return "\n".join(parts).rstrip()


def _title(workload: loads.Workload, lengths: dict[str, Any]) -> str:
    buckets = ", ".join(f"{edges}: {num}" for edges, num in lengths["buckets"].items() if num)
    return (
        f"{workload.name.upper()}: {lengths['num_texts']} texts, {workload.note}; tokens mean {lengths['mean']}, "
        f"median {lengths['median']}, {lengths['min']}-{lengths['max']} ({buckets})"
    )


def _table(workload: loads.Workload, lines: dict[str, Any]) -> str:
    unit, factor, digits = ("ms", 1e3, 1) if workload.per_call else ("s", 1.0, 2)

    def cell(values: dict[str, float]) -> str:
        return timing.Spread(**{key: value * factor for key, value in values.items()}).text(digits)

    ours = [name for name in OURS if name in lines]
    rows = []
    for name, line in lines.items():
        ratios = [timing.Spread(**line["ratios"][by]).text() if by in line["ratios"] else "-" for by in ours]
        target = f"{line['by']} >= {line['target']:.2f}" if line.get("target") else "-"
        batch = str(line["batch"] or "-")
        rows.append([name, batch, cell(line["cpu_s"]), cell(line["wall_s"]), *ratios, target, line.get("verdict", "")])
    times = [f"times {by}" for by in ours]
    return timing.table(["contender", "batch", f"CPU {unit}", f"wall {unit}", *times, "target", ""], rows)


def _quality(found: dict[str, dict[str, dict[str, float]]]) -> str:
    rows = [
        [name, each, f"{like['cosine']:.4f}", f"{like['neighbour']:.1%}", _verdicts(like) if name in OURS else ""]
        for name, sets in found.items()
        for each, like in sets.items()
    ]
    return timing.table(["contender", "texts", "median cosine", "same neighbour", ""], rows)


def _verdicts(like: dict[str, float]) -> str:
    return " ".join(timing.verdict(like[name], least) for name, least in QUALITY.items())


def _cost(sample: timing.Sample, threads: int) -> float:
    """CPU seconds on one thread; with more, spinning threads make CPU seconds meaningless, so wall seconds."""
    return sample.cpu_s if threads == 1 else sample.wall_s


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("minilm", "base"), default="minilm")
    parser.add_argument("--pool", choices=("cls", "mean"), default="cls")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workloads", type=_names, default=list(loads.DEFAULT))
    parser.add_argument("--only", type=_names, default=[], help=f"contenders, of {', '.join(CONTENDERS)}")
    parser.add_argument("--skip", type=_names, default=[], help="contenders to leave out")
    parser.add_argument("--compile", action="store_true", help="add torch.compile (minutes to build)")
    parser.add_argument("--batch", type=int, help="one batch size for all, instead of each peer's best")
    parser.add_argument("--sweep-passes", type=int, default=2)
    parser.add_argument("--scale", type=float, help="share of the texts; 1 for minilm, 0.27 (32 mixed texts) for base")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--median", type=int, default=90, help="median length of the mixed texts in tokens")
    parser.add_argument("--start", type=int, default=0, help="rounds from process start to first answer")
    parser.add_argument("--ours", type=Path, help="a folder that filbert exported, instead of one made here")
    parser.add_argument("--cache", type=Path, default=Path(__file__).resolve().parent / ".cache")
    parser.add_argument("--json", type=Path, help="write everything, every sample included")
    args = parser.parse_args(argv)
    args.contenders = [name for name in args.only or CONTENDERS if name not in args.skip]
    if not args.compile and "compile" not in args.only:
        args.contenders = [name for name in args.contenders if name != "compile"]
    args.scale = args.scale or (1.0 if args.shape == "minilm" else 0.27)
    known = {"contender": (args.contenders, CONTENDERS), "workload": (args.workloads, loads.NAMES)}
    for kind, (given, allowed) in known.items():
        for name in given:
            if name not in allowed:
                parser.error(f"{kind} {name!r} is not one of {', '.join(allowed)}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the race; 1 where a contender answered wrongly or ours did not run."""
    args = _arguments(argv)
    set_environment(args.threads)
    args.cache.mkdir(parents=True, exist_ok=True)
    folder = minilm_folder() if args.shape == "minilm" else base_folder(args.cache)
    setup = Setup(folder=folder, cache=args.cache, pool=args.pool, threads=args.threads, ours=args.ours)
    race = Race(args, setup)
    try:
        race.sweep()
        race.check(setup)
        race.judge_rounded(setup)
        race.run()
    finally:
        race.close()
    results = race.results()
    print(tables(results, race.workloads), flush=True)
    if args.start:
        prepared("filbert-onnx", setup)
        results["start"] = startup.race(setup, args.start, args.ours or export_filbert(setup) / "model")
        print(f"\nPROCESS START TO FIRST ANSWER\n{startup.tables(results['start'])}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if race.wrong or set(OURS) & set(race.broken) else 0


if __name__ == "__main__":
    sys.exit(main())
