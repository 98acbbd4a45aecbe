"""Trees of tests in; how many test functions, collected cases and asserts each has out, side by side.

    python tests/kit/count.py [COMMIT]

compares the commit, main by default, with the working tree. A commit is unpacked into a temporary folder.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import astuple, dataclass
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Count:
    """What a tree of tests holds."""

    functions: int
    cases: int
    asserts: int  # with `pytest.raises` and the assert_… of libraries, which are asserts by another name


def counted(tree: Path) -> Count:
    """Of the folder `tests` in this tree, whose cases are collected with the tree's own source."""
    functions = asserts = 0
    for path in sorted((tree / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            functions += is_test and path.name.startswith("test_")
            asserts += isinstance(node, ast.Assert)
            asserts += isinstance(node, ast.Call) and bool(re.match(r"assert_|raises$", _called(node)))
    return Count(functions, _collected(tree), asserts)


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _collected(tree: Path) -> int:
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "tests"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{tree}: {(done.stdout + done.stderr)[-2000:]}")
    return sum(int(count) for count in re.findall(r"^tests\S+: (\d+)$", done.stdout, re.MULTILINE))


def unpacked(commit: str, folder: Path) -> Path:
    """The files of a commit."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> None:
    """Prints a line for each tree."""
    commit = (sys.argv[1:] or ["main"])[0]
    print(f"{'':>12} {'functions':>10} {'cases':>10} {'asserts':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name, tree in ((commit, unpacked(commit, Path(folder))), ("here", ROOT)):
            print(f"{name:>12} " + " ".join(f"{number:>10,}" for number in astuple(counted(tree))))


if __name__ == "__main__":
    main()
