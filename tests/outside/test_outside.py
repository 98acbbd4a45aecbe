"""A task and a model that other packages bring: installed, and then used by the ordinary commands."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.served import Server

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GOOD, BAD = ("好吃", "喜欢", "推荐", "满意"), ("难吃", "失望", "很差", "后悔")
FEW = ("--set", "train.steps=12", "--set", "machine.threads=1", "--set", "task.max_length=64")
COMMANDS = """
import io, json, sys, contextlib
from filbert.cli.main import main
for words in json.loads(sys.stdin.read()):
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["filbert", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    sys.__stdout__.write(json.dumps([words[0], code, out.getvalue(), err.getvalue()]) + "\\n")
"""
Asked = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with both examples installed into it."""
    folder = tmp_path_factory.mktemp("site")
    copies = tmp_path_factory.mktemp("copies")
    for name in ("own-task", "own-model"):
        (copies / name).mkdir()
        for file in (*(EXAMPLES / name).glob("*.py"), EXAMPLES / name / "pyproject.toml"):
            shutil.copy(file, copies / name)  # pip leaves a build folder beside them
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        subprocess.run([*pip, "--target", str(folder), str(copies / name)], check=True, capture_output=True)
    return folder


@pytest.fixture
def asked(site: Path, tmp_path: Path) -> Asked:
    """Commands in one process that has the packages: what each prints, by its name; all must end well."""

    def run(*commands: tuple[str, ...]) -> dict[str, str]:
        environment = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
        ran = subprocess.run(
            [sys.executable, "-c", COMMANDS], input=json.dumps(commands), capture_output=True, text=True,
            env=environment, cwd=tmp_path, timeout=300, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        results = [json.loads(line) for line in ran.stdout.splitlines()]
        assert [result for result in results if result[1]] == []
        return {name: out for name, _, out, _ in results}

    return run


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Texts with a rating from 1 to 5."""
    drawn = random.Random(0)
    lines = []
    for _ in range(60):
        stars = drawn.randint(0, 4)
        words = drawn.choices(GOOD, k=stars) + drawn.choices(BAD, k=4 - stars)
        lines.append(json.dumps({"text": "，".join(words) + "。", "label": str(stars + 1)}, ensure_ascii=False))
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "rows.jsonl"


def used(asked: Asked, trained: tuple[str, ...], site: Path, tmp_path: Path) -> dict[str, str]:
    """Trains, and then asks everything that a user would: evaluate, predict, explain, export, verify, serve."""
    text = "好吃，喜欢，难吃，满意。"
    outputs = asked(
        trained,
        ("evaluate", "run", "--data", "rows.jsonl", "--json"),
        ("predict", "run", "--text", text),
        ("explain", "run", "--text", text, "--json"),
        ("export", "run", "--out", "shipped"),
        ("verify", "shipped", "--json"),
        ("doctor", "rows.jsonl"),
    )
    explained = json.loads(outputs["explain"])
    assert "好吃" in json.dumps(explained, ensure_ascii=False)
    assert {each["runtime"] for each in json.loads(outputs["verify"])["runtimes"]} >= {"torch", "onnx"}
    predicted = json.loads(outputs["predict"].splitlines()[0])
    server = Server(tmp_path / "shipped", PYTHONPATH=str(site))  # which cannot import torch
    try:
        answer = server.asked("/predict", {"texts": [text]}).json
    finally:
        server.ended()
    served: dict[str, Any] = answer["predictions"][0]
    assert served["label"] == predicted["label"]
    assert served["score"] == pytest.approx(predicted["score"], abs=1e-4)
    return outputs


def test_a_task_from_outside(asked: Asked, rows: Path, site: Path, tmp_path: Path, tiny_folder: Path) -> None:
    trained = ("finetune", "rate", "--train", "rows.jsonl", "--dev", "20%", "--model", str(tiny_folder), "--out", "run")
    outputs = used(asked, (*trained, *FEW), site, tmp_path)
    report = json.loads(outputs["evaluate"])
    assert 0 <= report["accuracy"] <= 1
    assert report["intervals"]["accuracy"][0] <= report["accuracy"]
    assert "A model that rates texts from 1 to 5" in (tmp_path / "run/model/README.md").read_text(encoding="utf-8")


def test_a_model_from_outside(asked: Asked, rows: Path, site: Path, tmp_path: Path, tiny_folder: Path) -> None:
    new = ("--arch", "nearby", "--preset", "small", "--vocab", str(tiny_folder))
    trained = ("finetune", "classify", "--train", "rows.jsonl", "--dev", "20%", *new, "--out", "run")
    used(asked, (*trained, *FEW), site, tmp_path)
    assert json.loads((tmp_path / "run/model/config.json").read_text())["model_type"] == "filbert-nearby"


def test_a_folder_whose_task_is_not_installed_says_so(
    asked: Asked, rows: Path, tmp_path: Path, tiny_folder: Path, filbert: Any
) -> None:
    trained = ("finetune", "rate", "--train", "rows.jsonl", "--model", str(tiny_folder), "--out", "run", *FEW)
    asked(trained)
    ran = filbert("predict", tmp_path / "run", "--text", "好吃。")
    assert ran.code == 2
    assert "rate" in ran.err
    assert "install" in ran.err


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    info = tmp_path / "other-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[filbert.tasks]\nclassify = other:SPEC\n")
    program = "from filbert.core.registry import members; members('tasks')"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert "the package other brings the task 'classify', but there is one of that name already" in ran.stderr


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import nothing_of_that_name", "it cannot be imported (No module named 'nothing_of_that_name')"),
        ("SPEC = 7", "mine:SPEC is no TaskSpec or CorpusSpec of that name; see docs/own-task.md"),
        ("from filbert.tasks.classify.spec import SPEC", "mine:SPEC is no TaskSpec or CorpusSpec of that name"),
    ],
)
def test_a_broken_package_is_named(tmp_path: Path, source: str, sentence: str) -> None:
    (tmp_path / "mine.py").write_text(source + "\n")
    info = tmp_path / "mine-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[filbert.tasks]\nmine = mine:SPEC\n")
    program = "from filbert.core import registry; registry.task('mine')"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert "the package mine brings the task 'mine', but " + sentence in ran.stderr


@pytest.mark.parametrize("name", ["own-task/filbert_rate.py", "own-model/filbert_nearby.py"])
def test_the_examples_are_short_and_stand_in_the_documents(name: str) -> None:
    source = (EXAMPLES / name).read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
    page = name.partition("/")[0]
    for folder in (EXAMPLES.parent / "docs", EXAMPLES.parent / "docs/zh"):
        assert source.strip() in (folder / f"{page}.md").read_text(encoding="utf-8"), (folder, page)


SAMPLE = """
ROWS = ["好吃", "难吃", "很好", "很差", "喜欢", "失望", "Good", "Bad"]
SAMPLE = dict(
    rows=tuple({"text": f"{text}。", "label": str(1 + at % 2 * 2)} for at, text in enumerate(ROWS)),
    settings={"max_length": 32, "pool": "mean"},
    perfect={"accuracy": 1.0},
    fault={"text": "还行。", "label": " 1 "},
    repair="white space around the label removed",
    repaired={"text": "还行。", "label": "1"},
)
"""


@pytest.mark.parametrize("sample", ["", SAMPLE], ids=["no sample", "a sample"])
def test_the_contract_is_asked_of_a_task_from_outside(sample: str, site: Path, tmp_path: Path) -> None:
    """Of one that offers a sample; another is passed over with its reason."""
    shutil.copytree(site, tmp_path / "site")
    with (tmp_path / "site/filbert_rate.py").open("a", encoding="utf-8") as file:
        file.write(sample)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-rs", "tests/contract/test_tasks.py", "-k", "rate"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=EXAMPLES.parent, check=False)
    assert ran.returncode == 0, ran.stdout
    assert (" skipped" in ran.stdout) == (not sample)
    assert ("rate offers no SAMPLE" in ran.stdout) == (not sample)
