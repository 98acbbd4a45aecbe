"""Fits the law of `filbert.clock.forecast`: run folders and tables of results in; constants and how well they fit out.

    python benchmarks/forecast.py RUN... [--points points.jsonl]

A run folder is one that `filbert pretrain --budget` left. A line of a table is one run that ended decayed:
{"weights": N, "tokens": D, "steps": S, "unique": U, "entropy": H, "vocab_size": V, "loss": masked loss,
"accuracy": …, "trust": 1}.
With few runs most constants cannot be told apart, so each is held near its prior: what LAW says now, or --prior.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from filbert.clock import forecast
from filbert.core.files import json_object
from filbert.train.journal import entries

FITTED = ("floor", "size", "size_power", "data", "data_power")  # each of them positive: fitted by its logarithm
STIFF = {"floor": 0.15, "size": 0.7, "size_power": 0.15, "data": 0.7, "data_power": 0.25}  # how far it may easily go
NOISE = 0.02  # of a measured loss


def of_run(folder: Path) -> dict[str, Any]:
    """The point that a run folder gives."""
    log = entries(folder / "log.jsonl")
    told = next(line for line in log if line.get("event") == "forecast")
    held = [line["held"] for line in log if "held" in line][-1]
    steps = [line for line in log if "loss" in line and "event" not in line]
    tokens, model = sum(line.get("tokens", 0) for line in steps), json_object(folder / "recipe.json")["model"]
    basis = {name: told[name] for name in ("entropy", "weights", "unique")}
    basis |= {"name": folder.name, "vocab_size": model["vocab_size"], "tokens": tokens, "steps": len(steps)}
    return {**basis, "loss": held["mlm_loss"], "accuracy": held["mlm_accuracy"]}


def fitted(points: list[dict[str, Any]], prior: forecast.Law) -> forecast.Law:
    """The law nearest to the points and the prior."""

    def law(logs: np.ndarray) -> forecast.Law:
        return dataclasses.replace(prior, **dict(zip(FITTED, np.exp(logs).tolist(), strict=True)))

    def misses(logs: np.ndarray) -> np.ndarray:
        made = law(logs)
        off = [
            math.log(expected(point, made) / point["loss"]) / NOISE * math.sqrt(point.get("trust", 1.0))
            for point in points
        ]
        held = [(at - math.log(getattr(prior, name))) / STIFF[name] for at, name in zip(logs, FITTED, strict=True)]
        return np.array([*off, *held])

    start = np.log([getattr(prior, name) for name in FITTED])
    return law(least_squares(misses, start).x)


def expected(point: dict[str, Any], law: forecast.Law) -> float:
    """The loss that the law gives for this point's run."""
    start = forecast.unlearnt(point["entropy"], point["vocab_size"], point["steps"], law)
    return point["entropy"] * (forecast.share(point["weights"], point["tokens"], point["unique"], law) + start)


def accuracy(points: list[dict[str, Any]]) -> tuple[float, float, float]:
    """right = first + second · (1 - share of H)^third; the first, right by frequency alone, stays as it is."""
    first = forecast.LAW.accuracy[0]
    pairs = [(1 - p["loss"] / p["entropy"], p["accuracy"] - first) for p in points if p.get("accuracy")]
    pairs = [(x, y) for x, y in pairs if x > 0.02 and y > 0.01]
    if len(pairs) < 2:
        return forecast.LAW.accuracy
    third, second = np.polyfit(np.log([x for x, _ in pairs]), np.log([y for _, y in pairs]), 1)
    return first, round(float(np.exp(second)), 3), round(float(third), 3)


def main() -> None:
    """Prints the constants, and each run beside what they give."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--points", type=Path, action="append", default=[])
    parser.add_argument("--prior", type=json.loads, default={}, help='e.g. {"floor": 0.2}')
    words = parser.parse_args()
    points = [of_run(run) for run in words.runs]
    points += [json.loads(line) for table in words.points for line in table.read_text().splitlines() if line.strip()]
    prior = dataclasses.replace(forecast.LAW, **words.prior)
    law = dataclasses.replace(fitted(points, prior), accuracy=accuracy(points))
    print(
        {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in dataclasses.asdict(law).items()
        }
    )
    for point in points:
        now, then = expected(point, law), expected(point, forecast.LAW)
        share = forecast.accuracy(point["loss"] / point["entropy"], law)
        print(
            f"{point.get('name', ''):12} N {point['weights'] / 1e6:6.2f}M  D {point['tokens'] / 1e6:7.2f}M  "
            f"loss {point['loss']:.3f}  fit {now:.3f} ({now / point['loss'] - 1:+.1%})  before {then:.3f}  "
            f"right {point.get('accuracy') or float('nan'):.3f}  by the loss {share:.3f}"
        )


if __name__ == "__main__":
    main()
