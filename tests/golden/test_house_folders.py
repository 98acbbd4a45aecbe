"""Model folders that commit 5d8100d made, and what the command line said of them then: house/NAME and house/NAME.json.

They were made before the house was rebuilt and are not to be made anew while it is: a folder that was saved then must
answer now as it did. Afterwards FILBERT_REWRITE=1 makes both anew (and -n 0: one process after the other).

Words, places and structure are compared exactly, numbers within 2e-4: sums of float32 depend on how wide a CPU's
vectors are, by some 1e-6 of a score, and explanations and temperatures enlarge that; verify.CLOSE, which every folder
is held to on any machine, is of the same size. In eight bits a rounding that falls the other way moves more.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import house_data as data
import house_doors as doors
import pytest

HOUSE = Path(__file__).with_name("house")
CLOSE, CLOSE_INT8 = 2e-4, 0.05
# Shares of random draws that come out higher, of 80 of them or more: one may be a tie, and fall either way.
DRAWN, CLOSE_DRAWN = ("p", "lift_p", "order_p"), 0.015
# What is made of ranks jumps where two of these few rows are all but equal, and a sum over other threads swaps them.
RANKED, CLOSE_RANKED = ("spearman",), 0.02
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
REWRITES = bool(os.environ.get("FILBERT_REWRITE"))
BASE = "pretrained"
SHAPE = {"width": 16, "layers": 2, "heads": 2, "inner": 32, "max_length": 64, "dropout": 0.0}
FEW = {"train.steps": 150, "train.learning_rate": 5e-3, "train.batch_tokens": 512, "train.optimiser": "adamw"}
WINDOWS = {"task.max_length": 48, "task.overlap": 12, "task.mask_prob": 0.0}
NUM_TRAIN, NUM_ASKED = 88, 30
PLACES = (0, 5, 6, 8, 12, 15, 20, 27)  # of the rows that are asked about: of several windows, and an empty one
EXPLAINED = (0, 5, 15)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
Filbert = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A folder: its task, the rows that it learns from and is asked about, and how it is made."""

    task: str
    rows: Callable[[int], list[data.Row]]
    settings: dict[str, Any] = field(default_factory=dict)
    explains: bool = True
    embeds: bool = True


CASES = {
    "classify": Case("classify", data.labelled, WINDOWS),
    "several": Case("classify", data.many_labelled, {**WINDOWS, "task.pool": "cls"}),
    "number": Case("pair", data.numbered_pairs, {**WINDOWS, "task.pool": "cls"}),
    "tag_crf": Case("tag", data.spanned, {**WINDOWS, "task.decoder": "crf"}),
    "tag_span": Case("tag", data.spanned, {**WINDOWS, "task.decoder": "span", "task.longest": 8}),
    "relation": Case("relation", data.related, {"task.max_length": 48, "task.mask_prob": 0.0}),
    "answer": Case("answer", data.questions, {"task.max_length": 48, "task.overlap": 12}),
    "choose": Case("choose", data.choices, {**WINDOWS, "task.pool": "cls"}),
    "embed": Case("embed", lambda count: data.compared("labels", count), {"task.max_length": 48, "task.overlap": 12}),
    "translate": Case(
        "translate",
        data.written,
        {"task.max_length": 48, "task.mask_prob": 0.0, "task.beam": 2, "task.max_new": 12},
        explains=False,
    ),
}


# Making ---------------------------------------------------------------------------------------------------------------


def lines(path: Path, task: str, rows: list[data.Row], *, gold: bool = True) -> Path:
    """A file of a line of JSON for each row; with gold, only rows that have one."""
    kept = [(texts, answer) for texts, answer in rows if answer is not None or not gold]
    if not gold:
        kept = [(texts, (*answer[:2], None) if task == "relation" else None) for texts, answer in kept]
    made = [json.dumps(data.record(task, *row), ensure_ascii=False) for row in kept]
    path.write_text("".join(f"{line}\n" for line in made), encoding="utf-8")
    return path


def learnt(rows: list[data.Row]) -> list[data.Row]:
    """Those that can be learnt from: with a gold, and some text."""
    return [row for row in rows if row[1] is not None and all(row[0][: 1 + (len(row[0]) == 2)])]


@pytest.fixture(scope="module", autouse=True)
def house(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Makes the folders, where that is wished."""
    if REWRITES:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path_factory.mktemp("made"))  # so that no path of a machine is in what is made
            make()


def make() -> None:
    """All folders, in the current one, and copies of them in the house."""
    Path("corpus.txt").write_text(data.corpus(120), encoding="utf-8")
    fields = {
        "model": SHAPE,
        "task": {"max_length": 48, "mask_prob": 0.2},
        "train": {"steps": 200, "batch_tokens": 1_024, "learning_rate": 5e-3},
    }
    doors.pretrain(Path("corpus.txt"), data.tokens(), Path(BASE), fields)
    kept(Path(BASE) / "model", BASE)
    for name, case in CASES.items():
        rows = learnt(case.rows(NUM_TRAIN + NUM_ASKED))
        train = lines(Path("train.jsonl"), case.task, rows[:NUM_TRAIN])
        dev = lines(Path("dev.jsonl"), case.task, rows[NUM_TRAIN:])
        doors.finetune(case.task, train, Path(BASE), Path(name), {**FEW, **case.settings}, dev=dev)
        if name == "classify" and importlib.util.find_spec("onnxruntime"):
            doors.export(Path(name), Path(f"{name}-onnx"), dev)
            kept(Path(f"{name}-onnx"), name)
        else:
            kept(Path(name) / "model", name)


def kept(folder: Path, name: str) -> None:
    """Puts a model folder in the house."""
    shutil.rmtree(HOUSE / name, ignore_errors=True)
    shutil.copytree(folder, HOUSE / name, ignore=shutil.ignore_patterns(".lock"))


# Holding --------------------------------------------------------------------------------------------------------------


def hold(name: str, current: dict[str, Any]) -> None:
    """Compares what is said now with what was said then."""
    path = HOUSE / f"{name}.json"
    if REWRITES:
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        parts = (f"{json.dumps(part)}: {written(answer)}" for part, answer in sorted({**before, **current}.items()))
        path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    known = json.loads(path.read_text(encoding="utf-8"))
    for part, answer in current.items():
        compare(answer, known[part], f"{name} {part}", CLOSE_INT8 if part.endswith("int8") else CLOSE)


def written(answer: Any) -> str:
    """As JSON, in the order in which it was said, numbers with no more digits than are compared."""
    return json.dumps(
        json.loads(json.dumps(answer), parse_float=lambda digits: round(float(digits), 6)), ensure_ascii=False
    )


def compare(current: Any, known: Any, where: str, close: float) -> None:
    """Exactly, but for numbers with fractions; says where."""
    if isinstance(known, dict):
        assert list(current) == list(known), where
        for name in known:
            wider = CLOSE_DRAWN if name in DRAWN else CLOSE_RANKED if name in RANKED else 0.0
            one, other = current[name], known[name]
            if name == "mistakes":  # the surest first, where two may be as sure
                one, other = (sorted(rows, key=lambda row: int(row["line"])) for rows in (one, other))
            compare(one, other, f"{where} {name}", max(close, wider))
    elif isinstance(known, list):
        assert len(current) == len(known), where
        for at, (one, other) in enumerate(zip(current, known, strict=True)):
            compare(one, other, f"{where} {at}", close)
    elif isinstance(known, str) and "sentence" in where:  # which words and rounded numbers make
        assert NUMBER.sub("#", current) == NUMBER.sub("#", known), where
        numbers = ([float(number.replace(",", "")) for number in NUMBER.findall(text)] for text in (current, known))
        assert next(numbers) == pytest.approx(next(numbers), abs=0.1 + close), where
    elif isinstance(known, float):
        assert current == pytest.approx(known, abs=close, rel=0), where
    else:
        assert (type(current), current) == (type(known), known), where


@pytest.fixture
def workspace(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder `model` in the current one, and files of rows beside it: no path of a machine is said."""
    shutil.copytree(HOUSE / name, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    if name in CASES:
        case = CASES[name]
        rows = case.rows(NUM_ASKED)
        lines(tmp_path / "asked.jsonl", case.task, [rows[place] for place in PLACES], gold=False)
        lines(tmp_path / "explained.jsonl", case.task, [rows[place] for place in EXPLAINED], gold=False)
        rows_with_gold = learnt(case.rows(NUM_TRAIN + NUM_ASKED))
        lines(tmp_path / "train.jsonl", case.task, rows_with_gold[:NUM_TRAIN])
        lines(tmp_path / "dev.jsonl", case.task, rows_with_gold[NUM_TRAIN:])
    return tmp_path


def output(filbert: Filbert, *words: str) -> Any:
    """What a command says with --json, without its time."""
    ran = filbert(*words, "--json")
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    answer.pop("seconds", None)
    return answer


@pytest.mark.parametrize("name", CASES)
def test_predict(name: str, workspace: Path, filbert: Filbert) -> None:
    hold(name, {"predict": output(filbert, "predict", "model", "--data", "asked.jsonl")})


@pytest.mark.parametrize("name", CASES)
def test_evaluate(name: str, workspace: Path, filbert: Filbert) -> None:
    hold(name, {"evaluate": output(filbert, "evaluate", "model", "--data", "dev.jsonl", "--train", "train.jsonl")})


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.explains])
def test_explain(name: str, workspace: Path, filbert: Filbert) -> None:
    pytest.importorskip("rjieba", reason="which words are explained hangs on the segmenter")
    hold(name, {"explain": output(filbert, "explain", "model", "--data", "explained.jsonl")})


@pytest.mark.parametrize("name", [BASE, *CASES])
def test_embed_and_verify(name: str, workspace: Path, filbert: Filbert) -> None:
    texts = [word for place in PLACES for word in ("--text", data.texts()[place % len(data.SIZES)])]
    vectors = output(filbert, "embed", "model", *texts)
    hold(name, {"embed": vectors})
    assert filbert("verify", "model").code == 0


@pytest.mark.parametrize("name", [BASE])
def test_a_pretrained_folder_fills_and_explains(name: str, workspace: Path, filbert: Filbert) -> None:
    pytest.importorskip("rjieba", reason="which words are explained hangs on the segmenter")
    blank = "我们坐[MASK]车去公园，the [MASK] won the game."
    hold(
        name,
        {
            "fill": output(filbert, "fill", blank, "--model", "model"),
            "explain": output(filbert, "explain", "model", "--text", "今天[MASK]气很好。"),
            "predict": output(
                filbert, "predict", "model", "--pair", "医生说多喝水。", "drink water!", "--pair", "", "球队"
            ),
        },
    )


@pytest.mark.parametrize("name", ["classify"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_an_exported_folder_runs_without_torch(name: str, dtype: str, workspace: Path, filbert: Filbert) -> None:
    pytest.importorskip("onnxruntime", reason="the runtime without torch needs onnxruntime")
    how = ("--runtime", "onnx", "--dtype", dtype)
    predicted = output(filbert, "predict", "model", "--data", "asked.jsonl", *how)
    vectors = output(filbert, "embed", "model", "--text", data.text(1, 3), "--text", data.text(2, 12), *how)
    hold(name, {f"predict {dtype}": predicted, f"embed {dtype}": vectors})
