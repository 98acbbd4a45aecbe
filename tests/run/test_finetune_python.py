"""`fb.finetune`: what the command does, from Python: files or examples, a loaded model, settings, and what it gives."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import filbert as fb
from filbert.core.records import Example

TOPICS = {"sport": ("球队赢了比赛", "球赛很精彩"), "health": ("医生建议多喝水", "感冒了要休息")}
FEW = {"train.steps": 30, "train.learning_rate": 3e-3, "train.batch_tokens": 256, "machine.threads": 1}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file of two columns."""
    path = tmp_path / "train.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        said = [(text, name) for name, texts in TOPICS.items() for text in texts]
        csv.writer(file).writerows([("text", "label"), *said * 4])
    return path


@pytest.mark.slow
def test_a_file_and_a_loaded_model_become_a_run(rows: Path, tiny_folder: Path, tmp_path: Path) -> None:
    model = fb.load(tiny_folder)
    run = fb.finetune(
        "classify", train=str(rows), dev=str(rows), model=model, out=tmp_path / "run", settings=FEW, quiet=True
    )
    assert (run.folder, run.labels) == (tmp_path / "run", ("health", "sport"))
    assert run.model is run.model  # loaded once
    texts = [texts[0] for texts in TOPICS.values()]
    found = run.model.predict(texts)
    assert [one.coverage for one in found] == [1.0, 1.0]
    assert [one.scores for one in found] == [one.scores for one in fb.load(run.folder).predict(texts)]
    assert 0 <= run.report["evaluations"]["dev"]["accuracy"] <= 1
    assert (run.folder / "report.html").exists()


@pytest.mark.slow
def test_examples_do_as_well(tiny_folder: Path, tmp_path: Path) -> None:
    given = [Example((text,), name) for name, texts in TOPICS.items() for text in texts]
    run = fb.finetune("classify", given, tiny_folder, tmp_path / "run", settings=["train.steps=2"], quiet=True)
    assert run.outcome.state.step == 2
    assert run.report == {}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"task": "clasify"}, "clasify.*Did you mean 'classify'"),
        ({"task": "mlm_nsp"}, "task is 'mlm_nsp', but"),
        ({"model": None, "preset": "tiny"}, "preset is of a new model; .* give its arch"),
        ({"arch": "han"}, "arch is of a new model, but model names one"),
        ({"epoch": 3}, "no argument 'epoch'.*Did you mean 'epochs'"),
        ({"settings": {"train.step": 3}}, "train has no field 'step'"),
        ({"train": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(
    wrong: dict[str, object], told: str, rows: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    given = {"task": "classify", "train": str(rows), "model": tiny_folder, "out": tmp_path / "run", **wrong}
    with pytest.raises(fb.InputError, match=told):
        fb.finetune(**given)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
