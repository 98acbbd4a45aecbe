"""Labelled sets in; what small students keep of the built-in model's scores, and how much faster they read, out.

    python benchmarks/distil_gpu.py --sets thucnews,chnsenticorp --budget 1200 --out FILE.json     on a GPU
    python benchmarks/distil_gpu.py --rows 200 --teacher-steps 20 --steps 20 --out FILE.json       a trial, on a CPU
    python benchmarks/distil_gpu.py --speed --out FILE.json                                        only the speeds

The teacher is one `filbert finetune` of the built-in model (8 layers × 384) with its defaults. Each student is made of
its layers (`filbert prune`'s ways) and learns from it by one `filbert distill`. Dev data choose the state, test data
are asked once; of a set without test data the dev data are these, and some of its training data choose. The target: a
4-layer student keeps 97 % of the teacher's score at three times its speed on a CPU, in seconds of CPU for the same
texts read in turn, from strings to answers. FILE.json is written anew after every run; what does not fit into --budget
(seconds) is left out and named.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import torch

import filbert as fb
from filbert.core.files import json_text, write_text
from filbert.core.records import Example
from filbert.folder.folder import load, save
from filbert.forms import splits
from filbert.run.distill import Wish, distill
from filbert.run.finetune import finetune
from filbert.see import head_importance as worth
from filbert.ship.prune import least, without
from filbert.ship.shrink import shrunk
from filbert.text.tokenizer import Tokenizer
from finetune_gpu import Data
from finetune_sets import SETS, SHARED

KEPT, FASTER = 0.97, 3.0
# name: layers, numbers inside a feed-forward, heads of six that are left in all layers together, weight of relations
STUDENTS: dict[str, tuple[int, int, int, float]] = {
    "4 layers": (4, 1_536, 24, 0.0),
    "4 layers, inner 512": (4, 512, 24, 0.0),
    "4 layers, inner 512, relations": (4, 512, 24, 1.0),
    "4 layers, inner 512, 16 heads": (4, 512, 16, 0.0),
}
TURNS, TEXTS = 5, 256
HELD = 0.05  # of the training data, where a set has no test data


def options() -> argparse.Namespace:
    """The command line."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--sets", default="thucnews,chnsenticorp", help=f"with commas, of: {', '.join(SETS)}")
    words.add_argument("--students", default="", help=f"with semicolons, of: {'; '.join(STUDENTS)}; all without")
    words.add_argument("--data", type=Path, default=SHARED, help="where the sets lie")
    words.add_argument("--model", default="builtin")
    words.add_argument("--seeds", default="0")
    words.add_argument("--epochs", type=float, help="of a student")
    words.add_argument("--rows", type=int, help="only so many of each file: a trial")
    words.add_argument("--steps", type=int, help="of a student: a trial")
    words.add_argument("--teacher-steps", type=int, help="a trial")
    words.add_argument("--set", dest="settings", action="append", default=[], help="of students")
    words.add_argument("--budget", type=float, default=1_500.0, help="seconds after which no run is begun")
    words.add_argument("--speed", action="store_true", help="only how fast the shapes are")
    words.add_argument("--out", type=Path, required=True)
    return words.parse_args()


def student(name: str, teacher: Path, data: list[Example], folder: Path) -> Path:
    """The student as it begins: some of the teacher's layers, inner numbers and heads, with its head."""
    layers, inner, heads, _ = STUDENTS[name]
    found = load(teacher)
    small = shrunk(found.model, layers, inner)
    files = {"task.json": (found.folder / "task.json").read_text()} if (found.folder / "task.json").exists() else {}
    tokenizer = Tokenizer.load(found.folder)
    made = save(folder, small, tokenizer, labels=found.labels, files=files)
    gone = layers * small.config.all_heads - heads
    if gone <= 0:
        return made
    model = fb.load(made)
    task = worth.labelled(model, data)
    importance = worth.task_importance(model, task, method="gradient", most=worth.MOST, shown=iter)
    small = without(model.backbone, least(importance, small.config, gone, by_layer=True)).cpu()
    return save(folder.with_name(folder.name + "-heads"), small, tokenizer, labels=found.labels, files=files)


def faster(teacher: Path, small: Path, texts: list[Any]) -> dict[str, Any]:
    """Seconds of CPU that both take to answer the same texts, in turn, from strings to answers; one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    models = [fb.load(path, device="cpu") for path in (teacher, small)]
    took: list[list[float]] = [[], []]
    for turn in range(TURNS + 1):
        for side, model in enumerate(models):
            begun = time.process_time()
            model.predict(texts)
            if turn:
                took[side].append(time.process_time() - begun)
    torch.set_num_threads(threads)
    ratios = [theirs / own for theirs, own in zip(*took, strict=True)]
    return {"ratio": statistics.median(ratios), "ratios": ratios, "seconds": [min(each) for each in took]}


def texts_of(data: Data) -> list[Any]:
    """Some of the test's, as `predict` takes them."""
    asked = (data.parts["test"] or data.parts["dev"])[:TEXTS]
    return [each.texts if len(each.texts) > 1 else each.texts[0] for each in asked]


class Bench:
    """All sets and students, as far as the budget reaches."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.begun = given, time.monotonic()
        chip = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        self.found: dict[str, Any] = {"machine": chip, "torch": torch.__version__, "runs": [], "left_out": []}
        self.names = [name.strip() for name in given.students.split(";") if name.strip()] or list(STUDENTS)

    def write(self) -> None:
        """What is known so far."""
        self.found["seconds"] = round(time.monotonic() - self.begun, 1)
        write_text(self.given.out, json_text(self.found))

    def is_late(self, what: str) -> bool:
        """Whether the budget is spent; what is not begun for it is named."""
        late = time.monotonic() - self.begun > self.given.budget
        if late:
            self.found["left_out"].append(what)
            self.write()
        return late

    def all(self) -> None:
        """Every set with every seed."""
        for name in self.given.sets.split(","):
            data = Data(name, self.given)
            if not data.parts["test"]:
                data.parts["test"] = data.parts["dev"]
                data.parts["train"], data.parts["dev"] = splits.split(data.parts["train"], HELD)
            for seed in map(int, self.given.seeds.split(",")):
                if not self.is_late(f"{name} {seed}"):
                    with tempfile.TemporaryDirectory() as folder:
                        self.one(data, seed, Path(folder))

    def one(self, data: Data, seed: int, folder: Path) -> None:
        """A teacher and its students."""
        given, begun, teacher = self.given, time.monotonic(), folder / "teacher"
        steps = [f"train.steps={given.teacher_steps}"] if given.teacher_steps else []
        parts = data.parts
        finetune(
            data.about.task, parts["train"], given.model, teacher, dev=parts["dev"], seed=seed, quiet=True,
            settings=[*data.about.settings, *steps],
        )  # fmt: skip
        told = {"set": data.name, "seed": seed, "teacher_seconds": round(time.monotonic() - begun, 1)}
        print(json.dumps(told), flush=True)
        for name in self.names:
            if self.is_late(f"{data.name} {seed} {name}"):
                continue
            try:
                row = {**told, "student": name, **self.distilled(name, data, (teacher, folder), seed)}
            except Exception as error:  # one that fails is told, and the next goes on
                row = {**told, "student": name, "failed": f"{type(error).__name__}: {str(error)[:300]}"}
            self.found["runs"].append(row)
            self.write()
            print(json.dumps(row, ensure_ascii=False), flush=True)

    def distilled(self, name: str, data: Data, places: tuple[Path, Path], seed: int) -> dict[str, Any]:
        """One student: what it keeps, and how fast it is."""
        given, (teacher, folder), parts, begun = self.given, places, data.parts, time.monotonic()
        out = folder / f"run-{self.names.index(name)}"
        small = student(name, teacher, parts["train"], folder / f"small-{self.names.index(name)}")
        inside, steps = STUDENTS[name][3], [f"train.steps={given.steps}"] if given.steps else []
        done = distill(
            teacher, parts["train"], out, Wish(student=small), dev=parts["dev"], test=parts["test"] or None,
            seed=seed, epochs=given.epochs, quiet=True,
            settings=[f"distil.relations={inside}", *steps, *given.settings],
        )  # fmt: skip
        told = done.report["distilled"]
        row = told["evaluations"].get("test") or told["evaluations"]["dev"]
        speed = faster(teacher, out, texts_of(data))
        reached = row["kept"] >= KEPT and speed["ratio"] >= FASTER
        return {"seconds": round(time.monotonic() - begun, 1), "steps": done.outcome.state.step, "scores": row,
                "parameters": told["parameters"], "faster": speed, "reached": reached}  # fmt: skip

    def speeds(self) -> None:
        """How fast each shape is, before anything is learnt: its head says something else, but takes as long."""
        data = Data(self.given.sets.split(",")[0], self.given)
        with tempfile.TemporaryDirectory() as folder:
            teacher = Path(folder) / "teacher"
            finetune("classify", parts_of(data), self.given.model, teacher, settings=["train.steps=1"], quiet=True)
            for at, name in enumerate(self.names):
                small = student(name, teacher, parts_of(data), Path(folder) / f"small-{at}")
                self.found["runs"].append({"student": name, "faster": faster(teacher, small, texts_of(data))})
                self.write()
                print(json.dumps(self.found["runs"][-1]), flush=True)


def parts_of(data: Data) -> list[Example]:
    """Some rows to learn a head from."""
    return list(data.parts["train"][:200])


if __name__ == "__main__":
    bench = Bench(options())
    bench.speeds() if bench.given.speed else bench.all()
