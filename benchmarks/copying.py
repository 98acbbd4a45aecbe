"""A small Transformer in; how much longer it learns and writes where it may copy from its source, out.

    python benchmarks/copying.py [--sources 16] [--length 336] [--target 47] [--rounds 7]

The same sources and targets of random words, one thread, rounds in turn. A step is forward and backward; writing is
greedy and by a beam of 4, without the encoder.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from filbert.core.records import Example
from filbert.models import transformer
from filbert.nn import generation
from filbert.tasks.summarize import items as summarize
from filbert.tasks.summarize import spec as summarize_spec
from filbert.text.tokenizer import Tokenizer
from filbert.train.step import on_device
from timing import machine, ratios, rotated, spread

NUM_WORDS, SPECIALS = 12_000, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
KINDS = {"plain": ("writer",), "copier": ("writer", "copier")}


def works(given: argparse.Namespace) -> dict[str, dict[str, Callable[[], object]]]:
    """What is timed, for each kind of model."""
    tokenizer = Tokenizer([*SPECIALS, *(f"w{number}" for number in range(NUM_WORDS))])
    random = np.random.default_rng(0)
    words = random.integers(NUM_WORDS, size=(given.sources, given.length + given.target))
    texts = [[" ".join(f"w{n}" for n in part) for part in np.split(row, [given.length])] for row in words]
    pairs = [Example((source,), target, at) for at, (source, target) in enumerate(texts)]
    task = summarize.Items(pairs, (), tokenizer, summarize_spec.Config())
    batch = on_device(task.batch(np.arange(given.sources)), "cpu")
    rules = generation.Rules(end=tokenizer.sep_id, max_new=given.target, min_new=given.target)
    starts = torch.full((given.sources,), tokenizer.cls_id)
    found: dict[str, dict[str, Callable[[], object]]] = {"learning": {}, "greedy": {}, "beam of 4": {}}
    for name, parts in KINDS.items():
        torch.manual_seed(0)
        model = transformer.Transformer(transformer.SPEC.preset("small", tokenizer.vocab_size), parts)
        with torch.no_grad():
            memory, source = task.memory(model.eval(), batch)

        def learn(model: transformer.Transformer = model) -> None:
            task.loss(model.train(), batch)["written_loss"].total.backward()

        def write(width: int, model: transformer.Transformer = model, read: tuple = (memory, source)) -> None:
            with torch.inference_mode():
                state = model.eval().started(*read)
                generation.beam(model, starts, state, rules, width=width)

        found["learning"][name], found["greedy"][name] = learn, lambda write=write: write(1)
        found["beam of 4"][name] = lambda write=write: write(4)
    return found


def main() -> None:
    """Prints seconds and ratios."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"sources": 16, "length": 336, "target": 47, "rounds": 7}.items():
        words.add_argument(f"--{name}", type=int, default=value)
    given = words.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()['cpu']}; {vars(given)}")
    for what, both in works(given).items():
        seconds: dict[str, list[float]] = {name: [] for name in both}
        for turn in range(given.rounds + 1):
            for name in rotated(list(both), turn):
                begin = time.perf_counter()
                both[name]()
                if turn:  # the first one warms up
                    seconds[name].append(time.perf_counter() - begin)
        told = ", ".join(f"{name} {spread(values).text(3)} s" for name, values in seconds.items())
        print(f"{what}: {told}; {ratios(seconds['plain'], seconds['copier']).text()} times as long with a copier")


if __name__ == "__main__":
    main()
