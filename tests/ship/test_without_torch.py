"""A virtual environment with what `filbert[runtime,serve]` asks for and nothing else: the same answers as with torch.

Its packages are links to those installed here, chosen by following what each one declares that it needs: so it is made
in a second, offline, and a package that is used but not declared is missing there.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
import venv
from collections.abc import Callable, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from filbert.engine.model import load
from filbert.ship import export
from filbert.text.tokenizer import Tokenizer
from kit import served
from kit.folders import classifier

pytest.importorskip("onnx")
requirements = pytest.importorskip("packaging.requirements")
ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["今天下雨，我们在家看书。", "苹果公司在北京发布了新手机。" * 12, "", "他打了一个电话给上海的朋友"]
LABELS = ("体育", "财经", "科技")
Asked = Callable[..., str]


def needed(lines: Sequence[str], extras: Sequence[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """The packages that these lines ask for where one of the extras is wished, and what those need in turn."""
    for line in lines:
        wish = requirements.Requirement(line)
        if wish.marker is not None and not any(wish.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            continue
        if wish.name.lower() not in found:
            own = found[wish.name.lower()] = distribution(wish.name)
            needed(own.requires or (), tuple(wish.extras), found)
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of that environment."""
    home = tmp_path_factory.mktemp("bare") / "venv"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    try:
        packages = needed([*project["dependencies"], *extras["runtime"], *extras["serve"]], (), {})
    except PackageNotFoundError as error:
        pytest.skip(f"not everything that the runtime needs is installed here: {error}")
    venv.create(home, with_pip=False, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    for package in packages.values():
        for top in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(package.locate_file(top))))
    (site / "filbert").symlink_to(ROOT / "src/filbert")
    return home / "bin/python"


@pytest.fixture(scope="module")
def model(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported classifier, in eight bits as well."""
    home, tokenizer = tmp_path_factory.mktemp("model"), Tokenizer.load(tiny_folder)
    classifier(home / "m", tokenizer, LABELS)
    return export.export(home / "m", home / "shipped", int8=True)[0]


@pytest.fixture(scope="module")
def filbert(bare: Path) -> Asked:
    """The command line there: words in, standard output out."""

    def asked(*words: str | Path) -> str:
        command = [str(bare), "-m", "filbert", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={"OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return asked


def test_torch_is_not_there(bare: Path) -> None:
    words = [str(bare), "-c", "import torch"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={})
    assert "No module named 'torch'" in done.stderr


@pytest.mark.slow
def test_predictions_are_the_same(model: Path, filbert: Asked) -> None:
    told = json.loads(filbert("predict", model, *(word for text in TEXTS for word in ("--text", text)), "--json"))
    wanted = load(model, runtime="torch", device="cpu").predict(TEXTS)
    assert [each["label"] for each in told["predictions"]] == [each.label for each in wanted]
    for one, two in zip(told["predictions"], wanted, strict=True):
        assert one["scores"] == pytest.approx(dict(two.scores), abs=1e-5)


@pytest.mark.slow
def test_vectors_are_the_same(model: Path, filbert: Asked) -> None:
    told = json.loads(filbert("embed", model, *(word for text in TEXTS for word in ("--text", text)), "--json"))
    wanted = load(model, runtime="torch", device="cpu").embed(TEXTS)
    assert np.abs(np.asarray(told["vectors"]) - wanted).max() < 1e-5


@pytest.mark.slow
def test_blanks_are_the_same(tiny_folder: Path, tmp_path: Path, filbert: Asked) -> None:
    folder = export.export(tiny_folder, tmp_path / "out")[0]
    told: Any = json.loads(filbert("fill", "今天天[MASK]很好。", "--model", folder, "--json"))
    wanted = load(folder, runtime="torch", device="cpu").fill("今天天[MASK]很好。")[0].candidates
    found = json.dumps(told, ensure_ascii=False)
    places = [found.index(f'"{each.token}"') for each in wanted]
    assert places == sorted(places)


@pytest.mark.slow
def test_the_built_in_model_needs_no_torch(filbert: Asked) -> None:
    blank = "中国的首都是北[MASK]。"
    told: Any = json.loads(filbert("fill", blank, "--json"))
    wanted = load("builtin", runtime="torch", device="cpu")
    found = json.dumps(told, ensure_ascii=False)
    places = [found.index(f'"{each.token}"') for each in wanted.fill(blank)[0].candidates]
    assert places == sorted(places)
    vectors = json.loads(filbert("embed", "builtin", "--text", TEXTS[0], "--json"))["vectors"]
    assert np.abs(np.asarray(vectors) - wanted.embed(TEXTS[:1])).max() < 1e-5


@pytest.mark.slow
def test_it_proves_itself(model: Path, filbert: Asked) -> None:
    told = json.loads(filbert("verify", model, "--json"))
    assert told["holds"]
    assert [each["runtime"] for each in told["runtimes"]] == ["onnx", "int8"]


@pytest.mark.slow
def test_it_serves(model: Path, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.sys, "executable", str(bare))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with served.serving(model, torch=True) as server:  # as it is: nothing hides torch but its absence
        texts = [text for text in TEXTS if text]
        told = server.asked("/predict", {"texts": texts})
        assert told.status == 200
        wanted = load(model, runtime="torch", device="cpu").predict(texts)
        assert [each["label"] for each in told.json["predictions"]] == [each.label for each in wanted]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("explain", "MODEL", "--text", "今天"), ("export", "MODEL", "--out", "x")])
def test_what_needs_torch_says_how_to_get_it(words: tuple[str, ...], model: Path, bare: Path) -> None:
    command = [str(bare), "-m", "filbert", *(word.replace("MODEL", str(model)) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    assert done.returncode == 2, done.stderr
    assert "filbert[train]" in done.stderr
    assert "Traceback" not in done.stderr
