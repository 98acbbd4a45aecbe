"""Runs that commit 5d8100d began and that were stopped half-way: the code of today goes on with them.

house/run_NAME is such a run as it lay on disk, and house/runs.json has the losses of the same run in one go. They were
made before the house was rebuilt and are not to be made anew while it is: checkpoints of then must be read now, what a
run checks (its data, vocabulary, recipe and first weights) must be found unchanged, and the steps must be the same.
Afterwards FILBERT_REWRITE=1 makes them anew (with -n 0).

Losses are compared within 1e-3 of themselves: sums of float32 hang on how wide a CPU's vectors are, and steps enlarge
what differs. For the same reason nothing in these runs is drawn by torch but the head that a fine-tuned model begins
with: where a CPU draws other last bits of it, the run must say that and nothing else, and goes on with force.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import house_data as data
import house_doors as doors
import pytest

import filbert as fb

HOUSE = Path(__file__).with_name("house")
GOLDEN = HOUSE / "runs.json"
STEPS, SAVED, STOPPED = 10, 4, 6
SHAPE = {"width": 16, "layers": 2, "heads": 2, "inner": 32, "max_length": 64, "dropout": 0.0}
PACE = {"steps": STEPS, "checkpoint_every": SAVED, "learning_rate": 5e-4, "batch_tokens": 512}
REST = list(range(SAVED + 1, STEPS + 1))

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def pretraining(out: Path, **how: Any) -> None:
    """Of a fresh BERT, in the current folder; how: listener, resume."""
    Path("corpus.txt").write_text(data.corpus(120), encoding="utf-8")
    fields = {"model": SHAPE, "task": {"max_length": 48}, "train": PACE}
    doors.pretrain(Path("corpus.txt"), data.tokens(), out, fields, **how)


def finetuning(task: str, rows: list[data.Row], fields: dict[str, Any], out: Path, **how: Any) -> None:
    """Of the pretrained folder of the house, with dev data; how: listener, resume, force."""
    rows = [row for row in rows if row[1] is not None and row[0][0]]
    for name, part in (("train", rows[:88]), ("dev", rows[88:])):
        lines = (json.dumps(data.record(task, *row), ensure_ascii=False) for row in part)
        Path(f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if not Path("pretrained").exists():
        shutil.copytree(HOUSE / "pretrained", "pretrained")
    settings = {f"train.{name}": value for name, value in {**PACE, "evaluate_every": 3}.items()}
    settings |= {"task.max_length": 48, "task.mask_prob": 0.0, **fields}
    doors.finetune(task, Path("train.jsonl"), Path("pretrained"), out, settings, dev=Path("dev.jsonl"), **how)


RUNS: dict[str, Callable[..., None]] = {
    "pretrain": pretraining,
    "classify": lambda out, **how: finetuning("classify", data.labelled(118), {"task.pool": "cls"}, out, **how),
    "tag": lambda out, **how: finetuning("tag", data.spanned(118), {"task.decoder": "crf"}, out, **how),
}


def made(name: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The run in one go, whose losses are kept, and once more, stopped behind a checkpoint, whose folder is kept."""
    (folder / "making").mkdir()
    patch.chdir(folder / "making")
    whole = doors.Losses()
    RUNS[name](Path("whole"), listener=whole)
    with pytest.raises(KeyboardInterrupt):
        RUNS[name](Path("cut"), listener=doors.Losses(STOPPED))
    shutil.rmtree(HOUSE / f"run_{name}", ignore_errors=True)
    # The corpus is prepared anew: a run goes on where the same texts come out of it, wherever they lay.
    leave = shutil.ignore_patterns(".*", "shards", "report.html", "*.svg")
    shutil.copytree("cut", HOUSE / f"run_{name}", ignore=leave)
    recipe = HOUSE / f"run_{name}" / "recipe.json"  # which remembers where the data lay on the machine that made it
    recipe.write_text(recipe.read_text(encoding="utf-8").replace(f"{Path.cwd()}/", ""), encoding="utf-8")
    known = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    known[name] = {str(step): round(loss, 9) for step, loss in sorted(whole.losses.items())}
    GOLDEN.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")


def gone_on(name: str) -> dict[int, float]:
    """The losses of the rest of a run that lies in the folder `run`."""
    listener = doors.Losses()
    try:
        RUNS[name](Path("run"), listener=listener, resume=True)
    except fb.InputError as error:
        others = "another (data|vocabulary|model|task|train|tune|corpus)"
        if not re.search("another weights to begin with", str(error)) or re.search(others, str(error)):
            raise
        RUNS[name](Path("run"), listener=listener, resume=True, force=True)
    return listener.losses


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_before_goes_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("FILBERT_REWRITE"):
        made(name, tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(HOUSE / f"run_{name}", "run")
    known = {int(step): loss for step, loss in json.loads(GOLDEN.read_text(encoding="utf-8"))[name].items()}
    losses = gone_on(name)
    assert list(losses) == REST
    assert losses == pytest.approx({step: known[step] for step in REST}, rel=1e-3, abs=1e-5)
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()
    assert fb.load("run").embed(["今天天气很好。"]).shape == (1, SHAPE["width"])


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_before_is_not_begun_again_by_accident(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(HOUSE / f"run_{name}", "run")
    with pytest.raises(fb.InputError, match=rf"run: holds a run that came to step {SAVED}; go on with --resume"):
        RUNS[name](Path("run"))
