"""Predictions: the model's own scores in the order of the texts, and a file of them that no interruption loses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example, Prediction
from filbert.engine import answers
from filbert.engine.answers import answered
from filbert.engine.results import Results
from filbert.run.evaluate import evaluate
from filbert.run.finetune import finetune
from filbert.tasks.task import Asked
from kit.folders import examples_of

ROWS = [("the train leaves the station", "rail"), ("a ship on the water", "sea"), ("clouds and the wind", "sky")]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier."""
    data = examples_of(ROWS * 4)
    out = tmp_path_factory.mktemp("predict") / "run"
    words = ["machine.threads=1", "task.max_length=16", "task.overlap=4", "train.learning_rate=1e-3"]
    finetune("classify", data, tiny_folder, out, settings=words, epochs=5, quiet=True)
    return out


def texts(count: int) -> list[str]:
    random = np.random.default_rng(0)
    words = " ".join(text for text, _ in ROWS).split()
    return [" ".join(random.choice(words, random.integers(0, 40))) for _ in range(count)]


@pytest.fixture
def ran(filbert: Callable[..., Any]) -> Callable[..., Any]:
    """`filbert predict` with these words."""
    return partial(filbert, "predict")


def lines_of(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_predictions_are_the_scores_of_evaluation_in_order(folder: Path, tmp_path: Path) -> None:
    asked = texts(40)
    model = fb.load(folder)
    said = model.predict(asked)
    one_by_one = [model.predict([text])[0] for text in asked]
    for together, alone in zip(said, one_by_one, strict=True):
        assert together.label == alone.label == max(together.scores, key=lambda name: together.scores[name])
        assert sum(together.scores.values()) == pytest.approx(1)
        for name, share in together.scores.items():
            assert share == pytest.approx(alone.scores[name], abs=1e-5)
        assert together.coverage == 1.0
    gold = [Example((text,), "sea") for text in asked]
    told = evaluate(folder, gold, threads=1)
    assert told["accuracy"] == pytest.approx(np.mean([p.label == "sea" for p in said]))
    assert model.predict([]) == []


def test_a_model_without_labels_says_so(tiny_folder: Path) -> None:
    with pytest.raises(InputError, match="no head for a task"):
        fb.load(tiny_folder).predict(["x"])


def test_the_command_on_texts_tables_and_lines(folder: Path, tmp_path: Path, ran: Callable[..., Any]) -> None:
    given = ran(folder, "--text", "a ship", "--text", "")
    assert given.code == 0
    assert [line["text"] for line in lines_of(given.out)] == ["a ship", ""]
    (tmp_path / "t.txt").write_text("a ship\n\n今天天气很好\n", encoding="utf-8")
    plain = ran(folder, "--data", tmp_path / "t.txt", "--top", "1")
    assert [(line["line"], line["text"]) for line in lines_of(plain.out)] == [
        (1, "a ship"),
        (2, ""),
        (3, "今天天气很好"),
    ]
    assert [len(line["scores"]) for line in lines_of(plain.out)] == [1, 1, 1]
    (tmp_path / "t.csv").write_text("id,text,label\n7,a ship,unheard of\n", encoding="utf-8")
    table = ran(folder, "--data", tmp_path / "t.csv", "--json")
    found = json.loads(table.out)
    assert found["texts"] == 1
    assert found["predictions"][0]["gold"] == "unheard of"
    (tmp_path / "empty.txt").write_text("")
    nothing = ran(folder, "--data", tmp_path / "empty.txt", "--out", tmp_path / "none.jsonl")
    assert nothing.code == 2
    assert "is empty" in nothing.err
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--text", "x", "--data", "y"], "give the texts once"),
        ([], "give the texts once"),
        (["--text", "x", "--resume"], "give its --out"),
        (["--text", "x", "--out", "nowhere/out.jsonl"], "make it first"),
        (["--data", "missing.txt"], "missing.txt"),
    ],
)
def test_wrong_usage_is_named(folder: Path, ran: Callable[..., Any], words: list[str], message: str) -> None:
    ended = ran(folder, *words)
    assert ended.code == 2
    assert message in ended.err


class Slow:
    """Answers, until it is to break."""

    def __init__(self, breaks_at: int = 10**9) -> None:
        self.seen, self.breaks_at = 0, breaks_at

    def predict(self, texts: Sequence[Asked], *, task: str | None = None) -> list[Prediction]:
        self.seen += len(texts)
        if self.seen > self.breaks_at:
            raise KeyboardInterrupt
        return [Prediction("a", {"a": 1.0}) for _ in texts]


def test_a_reader_that_breaks_loses_nothing_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "CHUNK", 10)

    def broken() -> Iterator[Example]:
        for number in range(95):
            yield Example((str(number),), line=number + 1)
        raise InputError("line 96 is broken")

    got: list[str] = []

    def collected() -> None:
        for chunk in answered(Slow(), broken()):
            got.extend(example.texts[0] for example, _ in chunk)

    with pytest.raises(InputError, match="line 96"):
        collected()
    assert got == [str(number) for number in range(95)]


def test_only_a_chunk_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "CHUNK", 10)
    monkeypatch.setattr(answers, "CHUNK_CHARS", 100)
    read = []

    def reader() -> Iterator[Example]:
        for number in range(1_000):
            read.append(number)
            yield Example(("x" * (60 if number >= 500 else 1),))

    done = 0
    for chunk in answered(Slow(), reader()):
        done += len(chunk)
        assert len(read) == done
        assert len(chunk) == (10 if done <= 500 else 2)
    assert done == 1_000


def test_an_interrupted_file_is_gone_on_with(
    folder: Path, tmp_path: Path, ran: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "CHUNK", 7)
    (tmp_path / "t.txt").write_text("\n".join(f"ship {n}" for n in range(50)) + "\n")
    words = (folder, "--data", tmp_path / "t.txt", "--out")
    assert ran(*words, tmp_path / "whole.jsonl").code == 0
    real, seen = fb.Model.predict, [0]

    def breaks(self: fb.Model, texts: Sequence[Asked], *, task: str | None = None) -> list[Prediction]:
        seen[0] += 1
        if seen[0] == 4:
            raise KeyboardInterrupt
        return real(self, texts)

    monkeypatch.setattr(fb.Model, "predict", breaks)
    stopped = ran(*words, tmp_path / "cut.jsonl")
    assert stopped.code == 130
    assert "holds 21 results" in stopped.err
    again = ran(*words, tmp_path / "cut.jsonl")
    assert again.code == 2
    assert "--resume" in again.err
    with (tmp_path / "cut.jsonl").open("a") as file:
        file.write('{"line": 22, "te')  # as a crash leaves it
    resumed = ran(*words, tmp_path / "cut.jsonl", "--resume")
    assert resumed.code == 0
    assert "was not finished" in resumed.err
    assert (tmp_path / "cut.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()
    (tmp_path / "t.txt").write_text("other\n" * 60)
    other = ran(*words, tmp_path / "cut.jsonl", "--resume")
    assert other.code == 2
    assert "not of this data" in other.err
    (tmp_path / "t.txt").write_text("ship 0\n")
    assert "not of this data" in ran(*words, tmp_path / "cut.jsonl", "--resume").err
    assert (tmp_path / "cut.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()


def test_a_file_of_something_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("my notes\n")
    with pytest.raises(InputError, match="not a result that predict wrote"):
        Results(path, resume=True)
    assert path.read_text() == "my notes\n"


@pytest.mark.slow
def test_killed_and_resumed_it_is_the_same_file(folder: Path, tmp_path: Path) -> None:
    rows = 12_000
    (tmp_path / "t.txt").write_text("\n".join(f"ship {n} on the water" for n in range(rows)) + "\n")
    command = [sys.executable, "-m", "filbert", "predict", str(folder), "--data", str(tmp_path / "t.txt")]
    out = tmp_path / "out.jsonl"
    first = subprocess.Popen([*command, "--out", str(out)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (out.exists() and out.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = out.read_bytes()
    subprocess.run([*command, "--out", str(out), "--resume"], check=True, stderr=subprocess.DEVNULL)
    lines = out.read_text().splitlines()
    assert kept
    assert out.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    assert [json.loads(line)["line"] for line in lines] == list(range(1, rows + 1))
