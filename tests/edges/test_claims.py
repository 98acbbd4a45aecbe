"""What README and docs say of the pages and of the install is so."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

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
