"""`evaluate`, and the end of `finetune`: what they print, what they leave, and where the training data come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import filbert as fb
from filbert.core.records import Example
from filbert.judge import report as honest
from filbert.run.evaluate import evaluate
from filbert.run.finetune import finetune
from kit.files import columns as file_of

pytest.importorskip("sklearn")
pytestmark = pytest.mark.usefixtures("one_thread")
Ran = Callable[..., tuple[int, str, str]]
SETTINGS = ("--set", "machine.threads=1", "--set", "train.learning_rate=5e-3", "--epochs", "3")


def rows(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Chinese texts that only their characters tell apart, no two alike."""
    random = np.random.default_rng(seed)
    words = {"sea": list("海船水湖河波"), "train": list("火车站铁路票")}
    return [
        ("".join(random.choice(words[label], 5)) + "".join(random.choice(list("今天我们在城里看见老人说话"), 9)), label)
        for label in ("sea", "train") * (count // 2)
    ]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    train = rows(60)
    parts = {"train": train, "dev": rows(60, 1), "test": [*rows(60, 2), train[4], (train[7][0] + "！", train[7][1])]}
    return {name: file_of(tmp_path / f"{name}.tsv", data) for name, data in parts.items()}


def finetuned(filbert: Ran, files: dict[str, Path], start: Path, out: Path, *more: str | Path) -> tuple[str, str]:
    given = ("--train", files["train"], "--dev", files["dev"], "--model", start, "--out", out)
    code, told, err = filbert("finetune", "classify", *given, *SETTINGS, *more)
    assert code == 0, err
    return told, err


@pytest.mark.slow
def test_finetune_ends_with_an_honest_report(
    tiny_folder: Path, tmp_path: Path, filbert: Ran, files: dict[str, Path]
) -> None:
    told, _ = finetuned(filbert, files, tiny_folder, tmp_path / "run", "--test", files["test"])
    lines = told.splitlines()
    assert any(line.startswith(("dev: accuracy 0.", "dev: accuracy 1.")) for line in lines)
    assert any(line.startswith("test: accuracy") for line in lines)
    assert any("than TF-IDF" in line for line in lines)
    assert any(
        "2 rows (3.2%) repeat the training data: 1 to the letter, 1 nearly; without them" in line for line in lines
    )
    report = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert list(report) == ["format", "task", "model", "evaluations", "train"]
    assert list(report["evaluations"]) == ["dev", "test"]
    for each in report["evaluations"].values():
        assert {"accuracy", "intervals", "labels", "confusion", "sentences"} <= set(each)
        assert {"baselines", "calibration", "leaks", "errors", "mistakes"} <= set(each)
    dev, test = (report["evaluations"][name]["calibration"] for name in ("dev", "test"))
    assert (dev["measured"], test["measured"]) == ("on the other half", "on these data")
    about = json.loads((tmp_path / "run" / "model" / "task.json").read_text())
    assert about["temperature"] == dev["temperature"] == test["temperature"]
    assert report["train"]["num_examples"] == 60
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for heading in ("Evaluation: dev", "Evaluation: test", "Training data", "Curves", "Recipe"):
        assert heading in page
    leak = report["evaluations"]["test"]["leaks"]["examples"][0]
    assert (Path(leak["file"]).name, leak["line"], Path(leak["other_file"]).name, leak["other_line"]) == (
        "test.tsv", 61, "train.tsv", 5,
    )  # fmt: skip


@pytest.mark.slow
def test_evaluate_finds_the_training_data_again(
    tiny_folder: Path, tmp_path: Path, filbert: Ran, files: dict[str, Path]
) -> None:
    told, _ = finetuned(filbert, files, tiny_folder, tmp_path / "run", "--json")
    assert json.loads(told)["dev"]["accuracy"] == json.loads(told)["held"]["accuracy"]
    code, out, err = filbert("evaluate", tmp_path / "run", "--data", files["test"], "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    assert all(isinstance(found[name], float) for name in found["intervals"])
    assert found["baselines"]["tfidf"]["accuracy"] > 0.8
    assert found["leaks"]["num"] == 2
    alone = tmp_path / "elsewhere"
    (tmp_path / "run" / "model").rename(alone)  # a folder that no run is around
    code, out, _ = filbert("evaluate", alone, "--data", files["test"], "--json")
    assert "--train" in json.loads(out)["leaks"]["missing"]
    assert "tfidf" not in json.loads(out)["baselines"]
    code, out, _ = filbert("evaluate", alone, "--data", files["test"], "--train", files["train"], "--json")
    assert json.loads(out)["baselines"]["tfidf"] == found["baselines"]["tfidf"]
    assert json.loads(out)["leaks"]["num"] == 2
    alone.rename(tmp_path / "run" / "model")
    files["train"].write_text("其他\tsea\n" * 3, encoding="utf-8")  # no longer what it was: not the training data
    code, out, _ = filbert("evaluate", tmp_path / "run", "--data", files["test"], "--json")
    assert "--train" in json.loads(out)["leaks"]["missing"]


@pytest.mark.slow
def test_evaluate_tells_people_and_writes_a_report(
    tiny_folder: Path, tmp_path: Path, filbert: Ran, files: dict[str, Path]
) -> None:
    finetuned(filbert, files, tiny_folder, tmp_path / "run")
    code, out, err = filbert("evaluate", tmp_path / "run", "-d", files["test"], "--out", tmp_path / "new" / "report")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("accuracy 0.") or lines[0].startswith("accuracy 1.")
    assert any(line.startswith("majority 0.5") for line in lines)
    assert any(line.startswith("tfidf    ") for line in lines)
    assert "report.html tells more" in lines[-1]
    assert any(line.startswith("- ") and "than TF-IDF" in line for line in lines)
    assert any(line.startswith("label") for line in lines)
    assert "Worst mistakes" in (tmp_path / "new" / "report" / "report.html").read_text() or "accuracy 1.0" in out
    report = json.loads((tmp_path / "new" / "report" / "report.json").read_text())
    assert list(report["evaluations"]) == ["data"]
    assert "train" not in report


@pytest.mark.slow
def test_data_kept_back_are_no_training_data(
    tiny_folder: Path, tmp_path: Path, filbert: Ran, files: dict[str, Path]
) -> None:
    given = ("--train", files["train"], "--dev", "30%", "--model", tiny_folder, "--out", tmp_path / "run")
    code, _, err = filbert("finetune", "classify", *given, *SETTINGS)
    assert code == 0, err
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["evaluations"]["dev"]["leaks"]["num"] == 0
    kept = 60 - report["train"]["num_examples"]
    assert 5 < kept < 30
    told = evaluate(tmp_path / "run", files["train"], threads=1)
    assert told["leaks"]["exact"] == 60 - kept  # the others were kept back again


def test_a_file_without_labels_is_refused_before_training(
    tiny_folder: Path, tmp_path: Path, filbert: Ran, files: dict[str, Path]
) -> None:
    bare = tmp_path / "bare.txt"
    bare.write_text("海上的船\n火车站\n", encoding="utf-8")
    given = ("--train", files["train"], "--model", tiny_folder, "--out", tmp_path / "run")
    for option in ("--dev", "--test"):
        code, out, err = filbert("finetune", "classify", *given, option, bare)
        assert (code, out) == (2, "")
        assert "bare.txt: has no labels" in err
    assert not (tmp_path / "run" / "model").exists()


def test_test_data_alone_are_measured_once(tiny_folder: Path, tmp_path: Path, files: dict[str, Path]) -> None:
    done = finetune("classify", files["train"], tiny_folder, tmp_path / "run", test=files["test"], epochs=1,
                        settings=["machine.threads=1"], quiet=True)  # fmt: skip
    assert done.best == {}
    assert list(done.report["evaluations"]) == ["test"]
    assert done.report["evaluations"]["test"]["calibration"]["measured"] == "on the other half"  # nothing fitted one
    assert json.loads((tmp_path / "run" / "model" / "task.json").read_text())["temperature"] == 1.0


def test_an_interrupt_in_the_evaluation_costs_no_model(
    tiny_folder: Path, tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(honest, "report", stopped)
    with pytest.raises(KeyboardInterrupt):
        finetune("classify", files["train"], tiny_folder, tmp_path / "run", dev=files["dev"], epochs=1,
                     settings=["machine.threads=1"], quiet=True)  # fmt: skip
    assert (tmp_path / "run" / "report.html").exists()
    assert fb.load(tmp_path / "run").predict(["海上的船"])[0].label in ("sea", "train")
    monkeypatch.undo()
    assert evaluate(tmp_path / "run", files["dev"], threads=1)["baselines"]["tfidf"]["accuracy"] > 0.8


@pytest.mark.slow
def test_examples_from_memory_are_remembered_by_nobody(tiny_folder: Path, tmp_path: Path) -> None:
    data = [Example((text,), label, place) for place, (text, label) in enumerate(rows(20))]
    done = finetune("classify", data, tiny_folder, tmp_path, dev=data[:6], settings=["machine.threads=1"], quiet=True)
    assert done.report["evaluations"]["dev"]["leaks"]["exact"] == 6
    assert "data" not in json.loads((tmp_path / "recipe.json").read_text())
    assert "missing" in evaluate(tmp_path, data, threads=1)["leaks"]
