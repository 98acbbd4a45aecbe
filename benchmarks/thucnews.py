"""What pretraining is worth on headlines: a model folder and labelled headlines in, dev accuracy of several seeds out.

    .venv/bin/python benchmarks/thucnews.py --model runs/zh --seeds 0,1,2 --scratch --epochs 4 --out thucnews.json
    PYTHONPATH=src python benchmarks/thucnews.py --model DIR --train train_90k.txt.xz --dev dev.txt.xz --out FILE.json

Each seed is one `filbert finetune classify`, kept at its best epoch by dev accuracy; the last epoch's is printed beside
it, since choosing the best on the data that is reported flatters a little. `--scratch` does the same from random
weights of the same shape; a linear classifier on character 1- to 3-grams is the baseline. FILE.json is written anew
after every run, so that a run that is cut short loses nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from filbert.core.errors import FilbertError, MissingExtra
from filbert.core.files import json_text, write_text
from filbert.forms.datasets import examples, label_table
from filbert.metrics import labels as metrics
from filbert.run.finetune import finetune
from filbert.tasks.classify.items import golds
from filbert.train import journal

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "thucnews"


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", help="pretrained folder or run; without one, the baseline alone")
    parser.add_argument("--train", default=str(SHARED / "train_90k.txt.xz"))
    parser.add_argument("--dev", default=str(SHARED / "dev.txt.xz"))
    parser.add_argument("--seeds", default="0,1,2", help="one run for each")
    parser.add_argument("--scratch", action="store_true", help="also from random weights of the same shape")
    parser.add_argument("--only-scratch", action="store_true", help="nothing but that")
    parser.add_argument("--no-baseline", action="store_true", help="without TF-IDF")
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--scratch-epochs", type=float, help="of runs from random weights; default: the same")
    parser.add_argument("--rows", type=int, help="only so many rows of each file: a trial")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="e.g. train.learning_rate=1e-4")
    parser.add_argument("--out", required=True, help="JSON file")
    return parser.parse_args()


def finetuned(kind: str, seed: int, data: tuple[Any, Any], given: argparse.Namespace) -> dict[str, Any]:
    """One run: its best and last dev accuracy, and the accuracy after each epoch."""
    begun = time.perf_counter()
    scratch = kind == "scratch"
    epochs = (given.scratch_epochs if scratch else None) or given.epochs
    with tempfile.TemporaryDirectory() as folder:
        done = finetune(
            "classify", data[0], given.model, Path(folder) / "run", dev=data[1], settings=given.settings, seed=seed,
            epochs=epochs, scratch=scratch, quiet=True,
        )  # fmt: skip
        log = journal.entries(Path(folder) / "run" / "log.jsonl")
    return {
        "kind": kind,
        "seed": seed,
        "accuracy": done.best["accuracy"],
        "last_accuracy": done.outcome.held["accuracy"],
        "held": [{"step": line["step"], **line["held"]} for line in log if "held" in line],
        "steps": done.outcome.state.step,
        "tokens": done.outcome.state.tokens,
        "skipped": done.outcome.state.skipped,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def baseline(data: tuple[Any, Any]) -> dict[str, Any]:
    """TF-IDF of character n-grams and a linear classifier."""
    begun = time.perf_counter()
    labels = label_table(data[0]).labels
    (texts, gold), (asked, right) = ([[e.texts[0] for e in part], golds(part, labels)] for part in data)
    table = metrics.confusion(right, metrics.tfidf(texts, gold, asked), len(labels))
    return {
        "kind": "tfidf",
        "accuracy": metrics.accuracy(table),
        "interval": list(metrics.intervals(table)["accuracy"]),
        "majority": metrics.majority(table),
        "seconds": round(time.perf_counter() - begun, 1),
    }


def told(result: dict[str, Any]) -> str:
    """One line of it."""
    seed = f" seed {result['seed']}" if "seed" in result else ""
    last = f"  (last epoch {result['last_accuracy']:.4f})" if "last_accuracy" in result else ""
    return f"{result['kind']}{seed}: {result['accuracy']:.4f}{last}  {result['seconds']:.0f} s"


def means(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and spread over seeds, of the best and of the last epoch."""
    found: dict[str, Any] = {}
    for kind in dict.fromkeys(r["kind"] for r in results if "seed" in r):
        for name in ("accuracy", "last_accuracy"):
            values = [r[name] for r in results if r["kind"] == kind]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            found[f"{kind}_{name}"] = {"mean": float(np.mean(values)), "stdev": spread, "seeds": values}
    return found


def main() -> None:
    """Runs all, and says each result as it comes."""
    given = options()
    data = tuple(list(examples(path, "classify"))[: given.rows] for path in (given.train, given.dev))
    print(f"{len(data[0]):,} texts to learn from, {len(data[1]):,} to ask", flush=True)
    kinds = ["scratch"] if given.only_scratch else ["pretrained"] + ["scratch"] * given.scratch
    seeds = given.seeds.split(",") if given.model else []
    jobs: list[tuple[str, int]] = [(kind, int(seed)) for kind in kinds for seed in seeds]
    results: list[dict[str, Any]] = []

    def note(result: dict[str, Any]) -> None:
        results.append(result)
        print(told(result), flush=True)
        write_text(given.out, json_text({"given": vars(given), "means": means(results), "results": results}))

    for kind, seed in jobs:
        note(finetuned(kind, seed, data, given))
    if not given.no_baseline:
        try:
            note(baseline(data))
        except MissingExtra as error:
            print(f"no baseline: {error}", flush=True)
    for name, value in means(results).items():
        print(f"{name}: mean {value['mean']:.4f} ± {value['stdev']:.4f} over {len(value['seeds'])} seeds")


if __name__ == "__main__":
    try:
        main()
    except FilbertError as error:
        raise SystemExit(f"thucnews: {error}") from None
