"""One CPU thread in; real tokens per CPU-second of pretraining, ours beside `transformers` in turn, out.

    python benchmarks/pretrain_cpu.py [--out FILE.json] [--rounds 5] [--steps 6] [--quick]

A BERT of 4 layers and width 256, vocabulary 21,128, masked words and next sentences, lengths up to 128, about as many
tokens in a step for everybody. Building and masking the batches is in all figures. The Trainer needs `accelerate`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import dataclasses
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from filbert.models import bert
from filbert.train import machine as machines
from filbert.train import optim
from filbert.train.distributed import Ranks
from filbert.train.feed import Feed
from filbert.train.step import Stepper
from pretraining import VOCAB, Pairs, lengths
from pretraining_peers import masking, rows_for, their_model
from timing import spread

ROWS, BUDGET = 32, 2_048  # a padded batch; a packed one of as many real tokens
TARGET = 3.5


class Theirs:
    """A loop of one's own around BertForPreTraining, with transformers' collator."""

    def __init__(self, shape: bert.Config) -> None:
        self.model = their_model(shape).train()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), 1e-4, fused=True)
        sizes = lengths("to128", 64 * ROWS, 5)
        self.rows, self.collate = rows_for(sizes, shape.vocab_size), masking(shape.vocab_size)
        self.order = itertools.cycle(range(64))

    def __call__(self, steps: int) -> float:
        """Real tokens per CPU-second."""
        begun, tokens = time.process_time(), 0
        for at in itertools.islice(self.order, steps):
            batch = self.collate(self.rows[at * ROWS : (at + 1) * ROWS])
            self.model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            tokens += int(batch["attention_mask"].sum())
        return tokens / (time.process_time() - begun)


class Ours:
    """Stepper and Feed, as `train` runs them."""

    def __init__(self, shape: bert.Config) -> None:
        torch.manual_seed(0)
        self.task, self.number = Pairs("to128", 40_000), 0
        machine = machines.chosen(machines.Config(device="cpu", threads=1))
        self.stepper = Stepper(
            bert.Bert(shape, self.task.parts), self.task, optim.Settings("adamw", 1e-4, 0.01), machine, Ranks(), 0
        )
        self.feed = iter(Feed(self.task, 0, BUDGET, machine, Ranks(), (0, 0), 1))
        next(self.feed)  # the plan is made once for an epoch

    def __call__(self, steps: int) -> float:
        """Real tokens per CPU-second."""
        begun, tokens = time.process_time(), 0
        for fed in itertools.islice(self.feed, steps):
            part = fed.parts[0]
            outcome = self.stepper.step([part], self.task.counts(part), self.number, 1e-4, 1.0)
            tokens += int(part.packed.boundaries[len(part.starts)])
            self.number += 1
        assert not outcome.numbers[-1], "a step was skipped"
        return tokens / (time.process_time() - begun)


def main() -> None:
    """Rounds in turn, then medians and ratios."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--out", type=Path)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--steps", type=int, default=6, help="in a round, for each contender")
    words.add_argument("--quick", action="store_true", help="a tiny model, to try the script")
    given = words.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    steps = 2 if given.quick else given.steps
    shape = bert.Config(vocab_size=VOCAB, width=256, layers=4, heads=4, inner=1_024, max_length=128)
    if given.quick:
        shape = dataclasses.replace(shape, width=32, layers=1, heads=1, inner=32)
    bare = dataclasses.replace(shape, dropout=0.0)

    def trainer(count: int) -> float:
        return trainer(shape, 2 + count, 0, ROWS, "to128", time.process_time)["tokens_per_s"]

    makers: dict[str, Callable[[], Callable[[int], float]]] = {
        "transformers Trainer": lambda: trainer,
        "transformers loop": lambda: Theirs(shape),
        "filbert": lambda: Ours(shape),
        "filbert, no dropout": lambda: Ours(bare),
    }
    found: dict[str, Any] = {"torch": torch.__version__, "samples": {}, "errors": {}}
    racers: dict[str, Callable[[int], float]] = {}
    for name, make in makers.items():
        try:
            racers[name] = make()
            racers[name](1)
        except Exception as error:
            racers.pop(name, None)
            found["errors"][name] = f"{type(error).__name__}: {str(error)[:300]}"
    for _ in range(1 if given.quick else given.rounds):
        for name, racer in racers.items():
            found["samples"].setdefault(name, []).append(racer(steps))
        if given.out:
            given.out.write_text(json.dumps(found, indent=1))
    for name, values in found["samples"].items():
        line = f"{name:24} {spread(values).text(0):>24} tokens per CPU-second"
        if peers := found["samples"].get("transformers Trainer"):
            ratio = spread([ours / theirs for ours, theirs in zip(values, peers, strict=True)])
            line += f"   {ratio.text(2)} × the Trainer"
            if name == "filbert":
                line += f"   (target {TARGET}: {'met' if ratio.median >= TARGET else 'not met'})"
        print(line)
    for name, error in found["errors"].items():
        print(f"{name:24} {error}")


if __name__ == "__main__":
    main()
