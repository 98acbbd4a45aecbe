"""What README and docs say of the pages and of the install is so."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OTHER_NAMES = {"scikit-learn": "sklearn", "resvg-py": "resvg_py"}  # where the package is imported by another name


def menu() -> list[str]:
    """The pages of the documentation's menu, as paths below `docs`."""
    found = re.findall(r":\s+(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) > 30
    return found


def linked(page: str) -> set[str]:
    """The pages that this one links, as paths below `docs`."""
    path = ROOT / "docs" / page
    links = re.findall(r"\]\(([^)\s#]+\.md)", path.read_text(encoding="utf-8"))
    return {(path.parent / link).resolve().relative_to(ROOT / "docs").as_posix() for link in links}


@pytest.mark.parametrize(("front", "inside"), [("index.md", ""), ("zh/index.md", "zh/")])
def test_G1_every_page_of_the_menu_is_linked_from_the_front_page(front: str, inside: str) -> None:
    """Chapters from their contents, which the front page links."""
    pages = [page for page in menu() if page.startswith("zh/") == bool(inside)]
    reached = {front} | linked(front) | linked(f"{inside}story/index.md")
    assert not [page for page in pages if page not in reached]
    assert f"{inside}story/index.md" in linked(front)


def test_G1_every_page_is_in_the_menu() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages == set(menu())


@pytest.mark.parametrize("front", ["index.md", "zh/index.md"])
def test_G1_a_front_page_says_nothing_of_what_is_to_come(front: str) -> None:
    text = (ROOT / "docs" / front).read_text(encoding="utf-8")
    assert not re.search(r"come next|does not exist yet|还没有|接下来要做", text)


@pytest.mark.slow
def test_G2_every_extra_is_used() -> None:
    """What an extra installs is imported somewhere in the package, or named there for `needed`."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = {re.split(r"[<>=\[]", each)[0] for wanted in extras.values() for each in wanted} - {"filbert"}
    imported = set[str]()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                imported.add(node.value.partition(".")[0])
    assert not {name for name in names if OTHER_NAMES.get(name, name) not in imported}


# What is said of folders ----------------------------------------------------------------------------------------------

BOTH = [("README.md", "docs/folders.md"), ("README.zh.md", "docs/zh/shipping.md")]


def paragraphs(*pages: str) -> list[str]:
    """Every paragraph, row and item of these pages."""
    return [line for page in pages for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.strip()]


def test_C5_a_published_modernbert_is_said_to_be_refused() -> None:
    """Wherever folders of that name are told of, and nowhere that they are read."""
    pages = ["README.md", "README.zh.md", "CHANGELOG.md", "docs/folders.md", "docs/commands.md", "docs/zh/shipping.md"]
    found = [line for line in paragraphs(*pages) if "modernbert" in line.lower()]
    assert found
    assert all("refused" in line for line in found)


@pytest.mark.parametrize("pages", BOTH)
def test_C8_the_head_that_transformers_has_no_class_for_is_told_where_folders_are_promised(
    pages: tuple[str, str],
) -> None:
    for page in pages:
        assert any("task.pool=cls" in line and "transformers" in line for line in paragraphs(page)), page


@pytest.mark.slow
def test_C8_a_mean_pooled_classifier_does_not_leave_with_a_random_head(
    tiny_folder: Path, tmp_path: Path, filbert: Any
) -> None:
    """The default classifier is refused by name; one that reads [CLS] leaves, and says the same over there."""
    rows = "".join(f"{text}\t{label}\n" for text, label in [("火车进站了", "铁路"), ("船在水上", "海洋")] * 8)
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    for pool, code in (("mean", 2), ("cls", 0)):
        run = tmp_path / pool
        words = ("--set", f"task.pool={pool}", "--set", "train.steps=2", "--set", "machine.threads=1")
        made = filbert("finetune", "classify", "--train", tmp_path / "train.tsv", "--model", tiny_folder, "--out", run,
                       *words)  # fmt: skip
        assert made.code == 0, made.err
        left = filbert("export", run, "--format", "transformers", "--out", tmp_path / f"{pool}-out")
        assert left.code == code, left.err
        assert pool == "cls" or "task.pool=cls" in left.err


@pytest.mark.parametrize("pages", BOTH)
def test_C9_where_loading_in_transformers_is_shown_so_is_the_precision(pages: tuple[str, str]) -> None:
    for page in pages:
        assert any('dtype="float32"' in line for line in paragraphs(page)), page


@pytest.mark.slow
def test_C9_that_precision_is_what_transformers_then_computes_in() -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    folder = ROOT / "src/filbert/builtin/model"
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, dtype="float32")
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


# What is said of the house and of the install -------------------------------------------------------------------------


def test_G3_the_pages_do_not_say_that_nothing_outside_knows_a_task() -> None:
    """It is not so yet; where the design tells of it, the names that stand elsewhere are told too."""
    text = "\n".join(paragraphs("docs/design.md", "CONTRIBUTING.md"))
    assert "nothing else lists it" not in text
    assert "know nothing else of it" not in text
    assert "`nn/heads.py`" in text


@pytest.mark.parametrize(
    ("page", "words"),
    [("README.md", ("2.7 to 3.2 GB", "WSL 2", "CPU build")), ("README.zh.md", ("2.7", "3.2 GB", "WSL 2", "CPU"))],
)
def test_G4_size_windows_and_a_cpu_torch_are_told(page: str, words: tuple[str, ...]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert all(word in text for word in words)
    assert "pip install torch --index-url" in text


# The suite ------------------------------------------------------------------------------------------------------------


def test_A1_no_test_bounds_a_single_weight_of_runs_that_sum_in_another_order() -> None:
    """Whose rounding hangs on the CPU: such runs are compared by the way that training went (victim.apart)."""
    for name in ("test_ranks.py", "test_training_faults.py"):
        text = (ROOT / "tests/faults" / name).read_text(encoding="utf-8")
        assert not re.search(r"< \d+e-6", text), name
        assert "apart" in text


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/pretraining.md", "docs/zh/pretraining.md"])
def test_A1_the_pages_promise_the_same(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not re.search(r"within 1e-6 without dropout|相差不到 1e-6", text)
    assert re.search(r"less than 1e-4 of the way|万分之一", text)
