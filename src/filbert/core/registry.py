"""The folder is the registry: a room's files in, its members' names, docs and modules out.

Dropping `models/deberta.py` in makes `deberta` a model; nothing else is edited. Names and first sentences are
read without importing the member, so that `--help` never imports torch.
"""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from filbert.core.errors import one_of

if TYPE_CHECKING:
    from filbert.forms.spec import FileSpec

ROOMS = ("models", "tasks")
HOUSE = Path(__file__).resolve().parent.parent


@cache  # asked for with every answer; files do not come and go while it runs
def members(room: str) -> tuple[str, ...]:
    """The names in a room, sorted: every file that is not private."""
    files = (path.stem for path in (HOUSE / room).glob("*.py") if not path.stem.startswith("_"))
    return tuple(sorted([*files, *(path.parent.name for path in (HOUSE / room).glob("*/items.py"))]))


def _file(room: str, name: str) -> Path:
    """Where a member's code begins: its file, or the `items` of its folder."""
    single = HOUSE / room / f"{name}.py"
    return single if single.exists() else HOUSE / room / name / "items.py"


def naming(room: str, name: str) -> tuple[str, ...]:
    """The members that give this name a value, read without importing them: HEAD, say, makes a task fine-tunable."""
    return tuple(each for each in members(room) if name in _given(room, each))


@cache  # a model asks for it whenever it is asked, and a file does not change while it runs
def _given(room: str, member: str) -> set[str]:
    tree = ast.parse(_file(room, member).read_text(encoding="utf-8"))
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    taken = [name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names]  # from another
    return {target.id for target in targets if isinstance(target, ast.Name)} | {name.name for name in taken}


def member(room: str, name: str) -> ModuleType:
    """The module of that name, imported now."""
    names = members(room)
    if name not in names:
        raise one_of(f"the {room.removesuffix('s')} name", name, names)
    return importlib.import_module(".".join(("filbert", *_file(room, name).relative_to(HOUSE).with_suffix("").parts)))


@cache  # files do not come and go while it runs
def file_tasks() -> tuple[str, ...]:
    """The tasks that say what their labelled files look like, sorted: those whose folder has a `files.py`."""
    return tuple(sorted(path.parent.name for path in (HOUSE / "tasks").glob("*/files.py")))


def files(task: str) -> FileSpec:
    """What the labelled files of a task look like, imported now: FILES of the `files.py` in its folder."""
    if task not in file_tasks():
        raise one_of("the task name", task, file_tasks())
    spec: FileSpec = importlib.import_module(f"filbert.tasks.{task}.files").FILES
    return spec


def sentence(room: str, name: str) -> str:
    """The first line of a member's docstring, read without importing it."""
    tree = ast.parse(_file(room, name).read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]
