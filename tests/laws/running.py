"""A `src/filbert` tree in; what its own processes do when they answer (modules, lookups, files) out.

Each measure runs in a process of its own, with that tree on its path. The model is the built-in one, fine-tuned for
`classify` on a dozen rows by the tree's own command line, so that it works whatever the rooms are called.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TEXTS = {"sport": "The team won the last match of the season.", "money": "The bank raised its rates again today."}

ANSWER = """
import json, sys
import filbert
model = filbert.load(sys.argv[1], runtime="onnx")
said = model.predict(["The team won again."])
assert said[0].label in ("sport", "money") and said[0].scores
print(json.dumps(sorted(name for name in sys.modules if name.split(".")[0] in ("filbert", "torch"))))
"""

# Caches hide calls from profilers, so the registry's functions are replaced wherever they were imported.
SECOND = """
import functools, inspect, json, os, sys
import filbert
from filbert.core import registry

folder, text = os.path.realpath(sys.argv[1]), ["The team won again."]
model = filbert.load(folder, runtime=sys.argv[2])
model.predict(text)
seen = {"opens": [], "stats": [], "calls": []}
listening = False

def hook(event, given):
    if listening and event in ("open", "os.listdir", "os.scandir") and str(given[0]).startswith(folder):
        seen["opens"].append(os.path.basename(str(given[0])))

def counted(name, function):
    @functools.wraps(function)
    def call(*given, **more):
        seen["calls"].append(name)
        return function(*given, **more)
    return call

def watched(path, *given, **more):
    if listening and str(path).startswith(folder):
        seen["stats"].append(os.path.basename(str(path)))
    return stat(path, *given, **more)

public = {name: each for name, each in vars(registry).items() if callable(each) and not inspect.isclass(each)
          and getattr(each, "__module__", "") == "filbert.core.registry"}
for module in [each for name, each in sys.modules.items() if name.startswith("filbert.") and each is not registry]:
    for name, value in list(vars(module).items()):
        if any(value is each for each in public.values()):
            setattr(module, name, counted(value.__name__, value))
stat, os.stat = os.stat, watched
sys.addaudithook(hook)
seen["calls"].clear()
listening = True
model.predict(text)
listening = False
print(json.dumps(seen))
"""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a loaded model looks up for its second text, though it was known after the first."""

    opens: list[str]  # files of its folder that are opened, and folders that are listed
    stats: list[str]  # files that are asked for
    calls: list[str]  # functions of core.registry


def _run(tree: Path, *words: str | Path) -> str:
    own = {"PYTHONPATH": str(tree.parent), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, env=os.environ | own, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{words[:4]} with {tree}: {done.stderr[-2000:]}")
    return done.stdout


def finetuned(tree: Path, home: Path) -> Path:
    """The model folder of a classifier that the tree has made in `home`."""
    lines = [f"{text}\t{label}" for _ in range(6) for label, text in TEXTS.items()]
    (home / "rows.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    quick = ("--epochs", "1", "--set", "machine.threads=1", "--set", "machine.device=cpu")
    _run(
        tree,
        "-m",
        "filbert",
        "finetune",
        "classify",
        "--model",
        "builtin",
        "--train",
        home / "rows.tsv",
        "--out",
        home / "run",
        *quick,
    )
    return home / "run" / "model"


def exported(tree: Path, home: Path) -> Path:
    """The same for onnxruntime."""
    _run(tree, "-m", "filbert", "export", finetuned(tree, home), "--out", home / "shipped")
    return home / "shipped"


def modules(tree: Path, folder: Path) -> list[str]:
    """The modules and rooms in filbert that a process has imported when it has loaded a folder and answered once."""
    names: list[str] = json.loads(_run(tree, "-c", ANSWER, folder))
    if "torch" in names:
        raise RuntimeError(f"{tree}: an answer without torch has imported it.")
    return [name for name in names if name != "filbert" and name.startswith("filbert.")]


def looked_up(tree: Path, folder: Path, runtime: str) -> Looked:
    """What a second `predict` of one text looks up in the folder and in the registry."""
    return Looked(**json.loads(_run(tree, "-c", SECOND, folder, runtime)))


def rows(tree: Path) -> Iterator[tuple[str, str, str]]:
    """What, measured, promised."""
    with tempfile.TemporaryDirectory() as home:
        folder = exported(tree, Path(home))
        yield "modules of an answer without torch", str(len(modules(tree, folder))), "< 35"
        for runtime in ("torch", "onnx"):
            seen = looked_up(tree, folder, runtime)
            counts = f"{len(seen.opens)} opens, {len(seen.stats)} stats, {len(seen.calls)} registry calls"
            yield f"a second predict, {runtime}", counts, "0"
