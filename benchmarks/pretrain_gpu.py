"""One CUDA device in; how fast BERT-base pretrains there, ours beside `transformers` in the same run, out.

    python benchmarks/pretrain_gpu.py [--out FILE.json] [--only JOB,JOB] [--seconds 240] [--profile FILE] [--quick]

Ours is the real thing: `train.step.Stepper` on the machine that `train.machine` finds, fed by the task's own batches
over made-up documents. Theirs: `BertForPreTraining` in a compiled loop with padded batches of 128, and the Trainer
with eight loader workers. Masked words (15 %) and next sentences, AdamW, clipping, bf16. Lengths: "mixed" is
log-normal, mean about 190, cap 512; "512" is full. Only real tokens count, never padding.

MFU is against 990 TFLOP/s, counting 6 × matrix parameters × tokens + 12·L·D·Σlength² + the head on masked tokens;
"done" counts only what our last layer really works for (the asked rows). Each contender is measured right after it is
ready, and then again in rounds that take turns, before the first of `trainer` and `feed`. One that
fails is recorded and passed over.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from filbert.core.protocols import Batch
from filbert.models import bert
from filbert.nn import attention
from filbert.nn.kernels import short_attention
from filbert.tasks.mlm_nsp import items as mlm_nsp
from filbert.train import machine as machines
from filbert.train import optim
from filbert.train.distributed import Ranks
from filbert.train.feed import Feed
from filbert.train.step import Stepper
from pretraining import (
    BUILTIN_VOCAB,
    CUDA,
    ROWS,
    VOCAB,
    Done,
    Pairs,
    builtin_task,
    measured,
    rates,
    sync,
    work_of,
)
from pretraining_peers import Loop, trainer

# Contenders -----------------------------------------------------------------------------------------------------------


class Filbert:
    """Ours: one Stepper, batches of several cases ready on the host."""

    def __init__(self, shape: bert.Config, kernel: str, budget: int, tasks: dict[str, mlm_nsp.Items]) -> None:
        self.shape, self.kernel, self.budget, self.tasks, self.number = shape, kernel, budget, tasks, 0
        self.machine = machines.chosen(machines.Config(**({} if CUDA else {"threads": 1})))
        self.losses: list[Any] = []
        self._choose()
        torch.manual_seed(0)
        task = next(iter(tasks.values()))
        model = bert.Bert(shape, task.parts)
        self.stepper = Stepper(model, task, optim.Settings("adamw", 1e-4, 0.01), self.machine, Ranks(), 0)
        self.ready = {case: self._batches(task, 4) for case, task in tasks.items()}

    def _choose(self) -> None:
        if CUDA:
            attention.use(self.kernel)

    def _batches(self, task: mlm_nsp.Items, count: int) -> list[Batch]:
        alone = dataclasses.replace(self.machine, workers=0)
        feed = iter(Feed(task, 0, self.budget, alone, Ranks(), (0, 0), 1))
        return [next(feed).parts[0] for _ in range(count)]

    def one(self, batch: Batch, task: mlm_nsp.Items) -> Done:
        """One step."""
        counts = task.counts(batch)
        outcome = self.stepper.step([batch], counts, self.number, 1e-4, 1.0)
        self.losses.append((outcome, counts))
        self.losses = self.losses[:1] + self.losses[1:][-1:]
        self.number += 1
        sizes = np.diff(np.asarray(batch.packed.boundaries[: len(batch.starts) + 1]))
        return work_of(self.shape, sizes, counts["mlm_loss"], "nsp_loss" in counts)

    def steps(self, case: str, count: int) -> Done:
        """Some steps on the ready batches, in turn."""
        self._choose()
        task, done = self.tasks[case], Done()
        for at in range(count):
            done += self.one(self.ready[case][at % 4], task)
        return done

    def checked(self) -> dict[str, Any]:
        """Losses of the first and the last step; a step that was skipped or is not finite is an error."""
        found = []
        for outcome, _ in self.losses:
            numbers = outcome.numbers.double().cpu().tolist()
            at = 2 * outcome.names.index("mlm_loss")
            found.append(numbers[at] / max(1.0, numbers[at + 1]))
            if not math.isfinite(found[-1]) or numbers[-1]:
                raise AssertionError(
                    f"step skipped or not finite: {dict(zip(outcome.names, numbers[::2], strict=False))}"
                )
        return {"loss_first": found[0], "loss_last": found[-1]}

    def fed(self, case: str, count: int, workers: int) -> dict[str, Any]:
        """The real feed and the step, by the clock on the wall; then the same number of steps on one batch."""
        self._choose()
        task = self.tasks[case]
        busy = dataclasses.replace(self.machine, workers=workers)
        feed = iter(Feed(task, 1, self.budget, busy, Ranks(), (0, 0), 1))
        warm = 8 if CUDA else 1
        done, started = Done(), 0.0
        try:
            for at, fed in enumerate(feed):
                if at == warm:
                    sync()
                    done, started = Done(), time.perf_counter()
                done += self.one(fed.parts[0], task)
                if at + 1 == warm + count:
                    break
            sync()
            with_feed = rates(done, time.perf_counter() - started)
        finally:
            feed.close()
        sync()
        done, started = Done(), time.perf_counter()
        for _ in range(count):
            done += self.one(self.ready[case][0], task)
        sync()
        alone = rates(done, time.perf_counter() - started)
        lost = 1 - with_feed["tokens_per_s"] / alone["tokens_per_s"]
        return {"with_feed": with_feed, "one_batch": alone, "lost": lost, "within_3_percent": lost <= 0.03}


# The run --------------------------------------------------------------------------------------------------------------


class Run:
    """Everything that is measured, and where it is told."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.begun = given, time.perf_counter()
        self.small = given.quick or not CUDA
        self.found: dict[str, Any] = {
            "device": torch.cuda.get_device_name() if CUDA else "cpu",
            "torch": torch.__version__,
            "blocks": [short_attention.FORWARD, short_attention.BACKWARD_QUERIES, short_attention.BACKWARD_KEYS],
            "jobs": {},
        }
        self.ready: dict[str, Any] = {}
        self.turned = False
        shape = bert.PRESETS["tiny" if self.small else "base"]
        self.shape = dataclasses.replace(shape, vocab_size=VOCAB, dropout=0.1)
        big = 2_048 if self.small else 131_072
        self.budgets = {"65k": 1_024 if self.small else 65_536, "131k": big, "262k": 2 * big}
        self.tasks = {case: Pairs(case, 80 * big // mean) for case, mean in (("mixed", 185), ("512", 512))}

    def tell(self, name: str, value: Any) -> None:
        """Keeps it at once."""
        self.found["jobs"][name] = value
        self.found["took_s"] = time.perf_counter() - self.begun
        if self.given.out:
            self.given.out.write_text(json.dumps(self.found, indent=1, default=str))

    @property
    def left(self) -> float:
        """Seconds."""
        return self.given.seconds - (time.perf_counter() - self.begun)

    def best(self) -> str:
        """The kernel that was faster so far, of those that are right; untried, the one that a run takes."""
        seen = {
            kernel: self.found["jobs"].get(f"{kernel}-131k", {}).get("mixed", {}).get("tokens_per_s", 0.0)
            for kernel in ("flash", "triton")
        }
        return max(seen, key=seen.__getitem__) if any(seen.values()) else attention.fastest() if CUDA else "flash"

    def prepared(self, name: str, make: Callable[[], Any], cases: tuple[str, ...]) -> None:
        """Makes a contender, warms it up and measures it once."""
        started, graphs = time.perf_counter(), num_graphs()
        contender = make()
        for case in cases:
            contender.steps(case, 2)
        sync()
        entry: dict[str, Any] = {"warm_s": time.perf_counter() - started, "graphs": num_graphs() - graphs}
        for case in cases:
            entry[case] = measured(lambda case=case: contender.steps(case, 2 if self.small else 6))
        entry |= contender.checked()
        if CUDA:
            entry["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
            torch.cuda.reset_peak_memory_stats()
        self.ready[name] = contender, cases, {case: [] for case in cases}
        self.tell(name, entry)

    def job(self, name: str) -> None:
        """One job by its name."""
        words = name.split("-")
        if words[0] in ("flash", "triton"):
            budget = self.budgets[words[1]]
            self.prepared(name, lambda: Filbert(self.dropping(words), words[0], budget, self.tasks), ("mixed", "512"))
        elif words[0] == "loop":
            make = lambda: Loop(self.dropping(words), "eager" not in words, "nomask" not in words)  # noqa: E731
            self.prepared(name, make, ("512",) if "nomask" in words else ("mixed", "512"))
        elif words[0] == "trainer":
            self.tell(name, {"mixed": trainer(self.dropping(words), *((4, 1, 4) if self.small else (40, 8, ROWS)))})
        elif name == "feed":
            own = [ready for ready in self.ready if ready.startswith(f"{self.best()}-131k")]
            kernel = own[0] if own else f"{self.best()}-131k"
            if not own:
                self.job(kernel)
            count, workers = (3, 1) if self.small else (60, 8)
            self.tell(name, {"kernel": kernel, **self.ready[kernel][0].fed("mixed", count, workers)})
        elif words[0] == "builtin":
            self.prepared(name, lambda: self.builtin(float(words[1])), ("plan",))
        else:
            raise ValueError(f"no such job: {name}")

    def dropping(self, words: list[str]) -> bert.Config:
        """BERT-base with its dropout, or without where the job's name says d0; ours and theirs alike."""
        return dataclasses.replace(self.shape, dropout=0.0 if "d0" in words else 0.1)

    def builtin(self, dropout: float) -> Filbert:
        """The built-in model's shape."""
        shape = bert.Config(
            vocab_size=BUILTIN_VOCAB, width=384, layers=8, heads=6, inner=1_536, max_length=256, dropout=dropout
        )
        if self.small:
            shape = dataclasses.replace(shape, width=64, layers=2, heads=1, inner=128)
        budget = self.budgets["131k"]
        return Filbert(shape, self.best(), budget, {"plan": builtin_task(8 * budget)})

    def rounds(self) -> None:
        """All that are ready, in turn, while time lasts; once."""
        if self.turned:
            return
        self.turned = bool(self.ready)
        turn = 0
        while turn < (1 if self.small else 6) and self.ready:
            for name, (contender, cases, samples) in self.ready.items():
                for case in cases:
                    if self.left < 0:
                        self.found["rounds"] = turn
                        return
                    samples[case].append(measured(lambda c=contender, case=case: c.steps(case, 1 if self.small else 3)))
                    self.found["jobs"][name][f"{case} in rounds"] = {
                        key: round(statistics.median(s[key] for s in samples[case]), 4)
                        for key in ("tokens_per_s", "mfu", "mfu_done")
                    } | {"all": [round(s["tokens_per_s"]) for s in samples[case]]}
            turn += 1
            self.found["rounds"] = turn
            self.tell("rounds", turn)

    def profile(self, path: Path) -> None:
        """The 25 dearest kernels of our step, mixed and full, as text."""
        from torch.profiler import ProfilerActivity, profile

        name = next((n for n in (f"{self.best()}-131k", *self.ready) if n in self.ready), None)
        if name is None:
            return
        contender, cases, _ = self.ready[name]
        texts = []
        for case in cases:
            kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if CUDA else [])]
            with profile(activities=kinds) as seen:
                contender.steps(case, 2)
                sync()
            order = "self_cuda_time_total" if CUDA else "self_cpu_time_total"
            table_text = seen.key_averages().table(sort_by=order, row_limit=25, max_name_column_width=90)
            texts.append(f"{name}, {case}, two steps\n{table_text}")
        path.write_text("\n\n".join(texts))


def num_graphs() -> int:
    """Graphs that were compiled so far."""
    return int(torch._dynamo.utils.counters["stats"].get("unique_graphs", 0))


JOBS = (
    "flash-131k",
    "triton-131k",
    "loop",
    "trainer",
    "feed",
    "builtin-0.1",
    "triton-131k-d0",
    "builtin-0.0",
    "triton-65k",
    "loop-eager",
    "flash-65k",
    "flash-131k-d0",
    "triton-65k-d0",
    "flash-65k-d0",
    "loop-nomask",
    "triton-262k-d0",
    "loop-d0",
    "trainer-d0",
)


ALONE = ("trainer", "feed", "trainer-d0")  # measured once, after the rounds of those that were made before


def table(found: dict[str, Any]) -> None:
    """What was found, in lines."""
    print(f"{found['device']}, torch {found['torch']}, {found.get('took_s', 0):.0f} s, rounds {found.get('rounds', 0)}")
    for name, entry in found["jobs"].items():
        if isinstance(entry, dict) and name != "feed":
            for case, got in entry.items():
                if isinstance(got, dict) and "mfu" in got:
                    more = " ".join(
                        f"{key} {entry[key]:.3g}" for key in ("warm_s", "graphs", "peak_gb") if key in entry
                    )
                    print(
                        f"{name:16} {case:16} {got['tokens_per_s'] / 1e3:9.1f}k tok/s  MFU {got['mfu']:6.1%}  "
                        f"done {got['mfu_done']:6.1%}  {'' if 'rounds' in case else more}"
                    )
        elif name == "feed" and "lost" in entry:
            print(
                f"feed             {entry['with_feed']['tokens_per_s'] / 1e3:.1f}k with workers, "
                f"{entry['one_batch']['tokens_per_s'] / 1e3:.1f}k on one batch: {entry['lost']:.1%} lost"
            )
        elif name != "rounds":
            print(f"{name:16} {entry if isinstance(entry, str) else json.dumps(entry, default=str)[:300]}")


def main() -> None:
    """Every job in order of importance, then rounds."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--out", type=Path)
    words.add_argument("--only", default=",".join(JOBS), help="jobs, with commas, in the order to do them")
    words.add_argument("--seconds", type=float, default=240.0, help="after which no new job begins")
    words.add_argument("--profile", type=Path, help="writes a table of kernels there")
    words.add_argument("--blocks", type=Path, help="what attention_kernels.py --out wrote: takes its best block sizes")
    words.add_argument("--torch-random", action="store_true", help="dropout by torch's own kernel, not Inductor's")
    words.add_argument("--quick", action="store_true", help="tiny sizes, to try the script")
    given = words.parse_args()
    if given.torch_random:
        importlib.import_module("torch._inductor.config").fallback_random = True  # type: ignore[attr-defined]
    if given.blocks and given.blocks.exists():
        for name in ("FORWARD", "BACKWARD_QUERIES", "BACKWARD_KEYS"):
            best = json.loads(given.blocks.read_text()).get("sweep", {}).get(f"{name} best")
            setattr(short_attention, name, tuple(best or getattr(short_attention, name)))
    if unknown := set(given.only.split(",")) - set(JOBS):
        words.error(f"no such job: {', '.join(sorted(unknown))}; there are {', '.join(JOBS)}")
    warnings.filterwarnings("ignore")
    if not CUDA:
        torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 64  # all contenders share one forward's code
    torch._dynamo.config.accumulated_recompile_limit = 256
    run = Run(given)
    for name in given.only.split(","):
        # The last quarter is for the rounds, unless there is but one job.
        if run.left < (0.25 * given.seconds if run.ready else 0):
            run.tell(name, "skipped: out of time")
            continue
        try:
            if name in ALONE:
                run.rounds()
            run.job(name)
        except Exception as error:
            run.tell(name, f"{type(error).__name__}: {str(error)[:600]}")
            if CUDA:
                torch.cuda.empty_cache()
        print(f"[{time.perf_counter() - run.begun:.0f} s] {name}", file=sys.stderr, flush=True)
    if given.profile:
        try:
            run.profile(given.profile)
        except Exception as error:
            run.tell("profile", f"{type(error).__name__}: {str(error)[:300]}")
    try:
        run.rounds()
    except Exception as error:
        run.tell("rounds", f"{type(error).__name__}: {str(error)[:600]}")
    run.tell("end", {"seconds": time.perf_counter() - run.begun})
    table(run.found)


if __name__ == "__main__":
    main()
