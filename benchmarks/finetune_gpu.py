"""Labelled sets in; what the built-in model scores on them, beside `transformers` Trainer with the same weights, out.

    python benchmarks/finetune_gpu.py --sets ocnli,weibo --seeds 0,1,2 --out FILE.json    scores of ours and the peer
    python benchmarks/finetune_gpu.py --speed thucnews,afqmc,cluener --out FILE.json      rows per second, in turns
    python benchmarks/finetune_gpu.py --baselines thucnews,ocnli --out FILE.json          what counting scores
    python benchmarks/finetune_gpu.py --table FILE.json FILE.json …                       the table of docs/results.md

Each score of ours is one `filbert finetune` with the recipe's defaults (and what `--set` adds), kept at its best epoch
by dev data; the peer gets the same weights, tokens, rates, hidden words and passes (benchmarks/finetune_peer.py).
FILE.json is written anew after every run, so that one that is cut short loses nothing. `--rows` makes it a trial.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import numpy as np
import torch

from filbert.core import registry
from filbert.folder.folder import load
from filbert.forms import splits
from filbert.forms.datasets import examples
from filbert.forms.sources import label_names
from filbert.metrics import baselines
from filbert.metrics.numbers import spearman
from filbert.pack.batches import batches
from filbert.run.evaluate import evaluate
from filbert.run.finetune import finetune
from filbert.run.new_models import Start
from filbert.run.options import RunOptions
from filbert.run.recipe import Training, fine_recipe
from filbert.tasks import view
from filbert.tasks.relation.view import with_between
from filbert.tasks.tag import measure as tags
from filbert.text.tokenizer import Tokenizer
from filbert.train import listeners, loop
from finetune_peer import CLASSES, trained
from finetune_sets import SETS, SHARED, Set

CUDA = torch.cuda.is_available()


def options() -> argparse.Namespace:
    """The command line."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--sets", default="", help=f"with commas, of: {', '.join(SETS)}")
    words.add_argument("--speed", default="", help="sets whose speed is measured, with commas")
    words.add_argument("--baselines", default="", help="sets of which only TF-IDF and a linear model are asked")
    words.add_argument("--table", nargs="*", type=Path, help="files that earlier runs wrote: prints them as a table")
    words.add_argument("--data", type=Path, default=SHARED, help="where the sets lie")
    words.add_argument("--model", default="builtin")
    words.add_argument("--seeds", default="0,1,2")
    words.add_argument("--who", default="ours,peer")
    words.add_argument("--epochs", type=float)
    words.add_argument("--rows", type=int, help="only so many of each file: a trial")
    words.add_argument("--set", dest="settings", action="append", default=[])
    words.add_argument("--steps", type=int, default=160, help="of each turn of --speed")
    words.add_argument("--ways", default="recorded,eager", help="how ours takes its steps in --speed")
    words.add_argument("--turns", type=int, default=3, help="of each contender of --speed")
    words.add_argument("--out", type=Path)
    return words.parse_args()


class Data:
    """A set's examples, read once."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        self.name, self.about = name, SETS[name]
        pairs = (part.split("=") for part in self.about.columns.split(",") if part)
        self.columns = dict(pairs)
        self.parts = {part: self._read(paths, given) for part, paths in self.about.files(given.data).items()}
        share = splits.share(self.about.dev[0])
        if share is not None:
            self.parts["train"], self.parts["dev"] = splits.split(self.parts["train"], share)

    def _read(self, paths: tuple[str, ...], given: argparse.Namespace) -> list[Any]:
        files = [path for path in paths if not path.endswith("%")]
        found = [list(examples(path, self.about.task, self.columns or None))[: given.rows] for path in files]
        return [example for part in found for example in part]


class Quiet(listeners.Silent):
    """Hears when each look at the device was, and what dev data said."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}
        self.held: list[dict[str, Any]] = []

    def step(self, entry: Mapping[str, Any]) -> None:
        """The device has done that step: its numbers were read."""
        self.times[int(entry["step"])] = time.perf_counter()

    def evaluation(self, entry: Mapping[str, Any]) -> None:
        """Dev data were asked."""
        self.held.append(dict(entry))


def finetuned(
    data: Data, seed: int, given: argparse.Namespace, folder: Path, **more: Any
) -> tuple[Any, dict[str, Any]]:
    """One run of ours, and its recipe."""
    settings = [*data.about.settings, *given.settings, *more.pop("settings", [])]
    done = finetune(
        data.about.task, data.parts["train"], given.model, folder, settings=settings, seed=seed, quiet=True,
        epochs=given.epochs, **more,
    )  # fmt: skip
    return done, json.loads((folder / "recipe.json").read_text())


def ours(data: Data, seed: int, given: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    """Dev and test of the best epoch, how long it took, and the recipe for the peer."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        done, recipe = finetuned(data, seed, given, Path(folder) / "run", dev=data.parts["dev"], listener=Quiet())
        took = time.perf_counter() - begun
        found: dict[str, Any] = {"seconds": took, "steps": done.outcome.state.step, "watched": dict(done.best)}
        for part in ("dev", "test"):
            if data.parts[part]:
                scores = evaluate(Path(folder) / "run", data.parts[part])
                found[part] = scores[data.about.measure]
                found[f"{part}_all"] = {n: v for n, v in scores.items() if isinstance(v, float)}
    return found, recipe


def recipe_of(data: Data, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """What a run of ours would do, without one."""
    started = load(given.model)
    tokenizer, options = Tokenizer.load(started.folder), RunOptions(seed=seed, epochs=given.epochs)
    about = Training(source=data.about.train[0], examples=data.parts["train"], tokenizer=tokenizer)
    settings = [*data.about.settings, *given.settings]
    return asdict(fine_recipe(data.about.task, about, Start(loaded=started), settings, options).recipe)


def tasks(data: Data, recipe: dict[str, Any], labels: Any, tokenizer: Tokenizer) -> tuple[Any, Any, Any]:
    """Train, dev and test as the recipe's task."""
    spec = registry.task(recipe["task_name"])
    config = spec.config(**recipe["task"])
    made = [spec.items(part, labels, tokenizer, config) if part else None for part in data.parts.values()]
    return made[0], made[1], made[2]


def as_recipe(recipe: dict[str, Any]) -> Any:
    """What the peer reads of it."""
    spec = registry.task(recipe["task_name"])
    return SimpleNamespace(
        task_name=recipe["task_name"], task=spec.config(**recipe["task"]), train=loop.Config(**recipe["train"]),
        epochs=recipe["epochs"],
    )  # fmt: skip


def labels_of(data: Data, recipe: dict[str, Any]) -> Any:
    """The head's outputs by name, as training finds them."""
    spec = registry.task(recipe["task_name"])
    named = spec.labels(spec.config(**recipe["task"]), data.parts["train"])
    return label_names("", data.parts["train"]) if named is None else named


def scores(given: argparse.Namespace) -> dict[str, Any]:
    """Every set with every seed."""
    found: dict[str, Any] = {}
    start = load(given.model).folder
    for name in given.sets.split(","):
        data = Data(name, given)
        entry = found.setdefault(name, {"sizes": {part: len(rows) for part, rows in data.parts.items()}})
        for seed in map(int, given.seeds.split(",")):
            try:
                if "ours" in given.who:
                    told, recipe = ours(data, seed, given)
                    entry.setdefault("ours", []).append({"seed": seed, **told})
                else:
                    recipe = recipe_of(data, seed, given)
                entry["recipe"] = recipe
                if "peer" in given.who and data.about.task in CLASSES:
                    trio = tasks(data, recipe, labels_of(data, recipe), Tokenizer.load(start))
                    entry.setdefault("peer", []).append(
                        {"seed": seed, **trained(as_recipe(recipe), trio, start, data.about.measure)}
                    )
            except Exception as error:  # one that fails is told, and the next goes on
                entry.setdefault("failed", []).append(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}")
            _write(given, found)
            print(f"{name} {seed}: {_line(entry)}", flush=True)
    return found


def _line(entry: dict[str, Any]) -> str:
    def last(who: str) -> str:
        row = entry[who][-1] if entry.get(who) else {}
        shown = {part: round(100 * row[part], 2) for part in ("dev", "test") if row.get(part) is not None}
        return f"{who} {shown} {row.get('seconds', row.get('seconds_per_epoch', 0)):.1f} s"

    return "; ".join(last(who) for who in ("ours", "peer")) + "; ".join(["", *entry.get("failed", [])[-1:]])


def speed(given: argparse.Namespace) -> dict[str, Any]:
    """Rows per second of training steps alone, ours recorded (the default) and eager beside the peer, in turns."""
    found: dict[str, Any] = {"device": torch.cuda.get_device_name() if CUDA else "cpu"}
    start = load(given.model).folder
    for name in given.speed.split(","):
        data = Data(name, given)
        entry: dict[str, Any] = found.setdefault(name, {"recorded": [], "eager": [], "peer": []})
        for turn in range(given.turns):
            for way in given.ways.split(",") if CUDA else ("eager",):
                made = [f"train.steps={given.steps}", f"machine.compiled={'off' if way == 'eager' else way}"]
                heard = Quiet()
                with tempfile.TemporaryDirectory() as folder:
                    _, recipe = finetuned(data, turn, given, Path(folder) / "run", listener=heard, settings=made)
                trio = tasks(data, recipe, labels_of(data, recipe), Tokenizer.load(start))
                usual = as_recipe(recipe)
                per_epoch = len(batches(trio[0].lengths, 0, 0, usual.train.batch_tokens))
                entry[way].append(_steps_per_s(heard.times) * len(trio[0]) / per_epoch)
            usual.epochs = given.steps / per_epoch
            told = trained(usual, (trio[0], None, None), start, data.about.measure, given.steps)
            entry["peer"].append(len(data.parts["train"]) / told["seconds_per_epoch"])
            _write(given, found)
        for way in ("recorded", "eager"):
            if entry[way]:
                ratios = [a / b for a, b in zip(entry[way], entry["peer"], strict=True)]
                entry[f"{way} ratio"] = [statistics.median(ratios), min(ratios), max(ratios)]
        _write(given, found)
        print(name, json.dumps(entry), flush=True)
    return found


def _steps_per_s(times: dict[int, float]) -> float:
    """Between the look after a quarter of the steps and the last one."""
    looks = sorted(set(times.values()))
    at = {when: max(step for step, seen in times.items() if seen <= when) for when in looks}
    last = looks[-1]
    first = next(when for when in looks if at[when] >= at[last] / 4)
    return (at[last] - at[first]) / (last - first)


def baseline(given: argparse.Namespace) -> dict[str, Any]:
    """Baselines of `evaluate` (TF-IDF and a linear model; for tags a dictionary), and the commonest label; no seed."""
    found: dict[str, Any] = {}
    for name in given.baselines.split(","):
        data = Data(name, given)
        learnt, asked = data.parts["train"], data.parts["test"] or data.parts["dev"]
        counted = with_between if data.about.task == "relation" else (lambda example: example.texts)
        rows = [[counted(example) for example in part] for part in (learnt, asked)]
        is_pair = view.is_pair(rows[0])
        if data.about.task == "tag":
            names = baselines.Dictionary([e.texts[0] for e in learnt], [e.gold for e in learnt])
            found_spans = tags.table([e.gold for e in asked], [names(e.texts[0]) for e in asked])
            right, called, there = (
                float(part.sum()) for part in (found_spans.right, found_spans.called, found_spans.there)
            )
            told = {"tfidf": 2 * right / (called + there)}
        elif data.about.measure == "spearman":
            said = baselines.numbers(rows[0], [float(e.gold) for e in learnt], is_pair).values(rows[1])
            told = {"tfidf": spearman([float(e.gold) for e in asked], said)}
        else:
            gold = [[getattr(example.gold, "label", example.gold) for example in part] for part in (learnt, asked)]
            names = sorted(set(gold[0]))
            places = np.array([names.index(label) for label in gold[0]])
            shares = baselines.labels(rows[0], places, len(names), is_pair).shares(rows[1])
            commonest = names[int(np.bincount(places).argmax())]
            told = {
                "tfidf": float(
                    np.mean([names[at] == right for at, right in zip(shares.argmax(1), gold[1], strict=True)])
                ),
                "commonest": float(np.mean([commonest == right for right in gold[1]])),
            }
        found[name] = {"sizes": {part: len(rows) for part, rows in data.parts.items()}, **told}
        _write(given, found)
        print(name, told, flush=True)
    return found


def _write(given: argparse.Namespace, found: dict[str, Any]) -> None:
    if given.out:
        given.out.write_text(json.dumps(found, indent=1, default=str))


def table(paths: list[Path]) -> str:
    """The rows of docs/results.md; files may hold some seeds, or one of the two contenders."""
    found: dict[str, Any] = {}
    for path in paths:
        for name, entry in json.loads(path.read_text()).items():
            known = found.setdefault(name, {"ours": [], "peer": []})
            known |= {key: value for key, value in entry.items() if key not in ("ours", "peer")}
            for who in ("ours", "peer"):
                known[who] += entry.get(who, [])
    lines = [
        "| set | task | learnt from | measured on | filbert | Trainer | counting | published |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, about in SETS.items():
        if name in found and found[name].get("ours"):
            lines.append(_row(name, about, found[name]))
    return "\n".join(lines)


def _row(name: str, about: Set, entry: dict[str, Any]) -> str:
    part = "test" if about.test else "dev"

    def mean(who: str) -> str:
        values = [100 * row[part] for row in entry.get(who, []) if row.get(part) is not None]
        if not values:
            return "–"
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.2f}{spread}"

    simple = f"{100 * entry['tfidf']:.2f}" if "tfidf" in entry else "–"
    size = f"{entry['sizes'][part]:,} {part if about.test or not about.dev[0].endswith('%') else 'kept back'}"
    return (
        f"| {name} | {about.task}, {about.measure} | {entry['sizes']['train']:,} | {size} | {mean('ours')} | "
        f"{mean('peer')} | {simple} | {about.published or '–'} |"
    )


def main() -> None:
    """What was asked for."""
    given = options()
    if given.table:
        print(table(given.table))
        return
    if not CUDA:
        torch.set_num_threads(1)
    if given.sets:
        scores(given)
    if given.speed:
        speed(given)
    if given.baselines:
        baseline(given)


if __name__ == "__main__":
    main()
