"""What every file, model and task of the house promises, checked on whatever the rooms hold."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

from filbert.core.errors import InputError
from filbert.core.registry import HOUSE, ROOMS, corpus_task, members, model, sentence, task, tasks
from filbert.tasks.task import CorpusSpec, Items, Labelled, TaskSpec

FILES = sorted(path for path in HOUSE.rglob("*.py") if path.name != "__init__.py")
MEMBERS = [(room, name) for room in ROOMS for name in members(room)]


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_a_file_is_short_and_opens_with_a_sentence(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert (ast.get_docstring(tree) or "").partition("\n")[0].endswith((".", ":")), "what comes in, what goes out?"
    assert text.count("\n") <= 600
    assert path.stem not in {"utils", "util", "helpers", "common", "base", "misc"}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} is long"
            arguments = node.args
            width = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
            assert width <= 8, f"{node.name} takes {width} arguments"


def test_rooms_begin_empty() -> None:
    """All but the house itself and its hall, which is used by one name and lists what stands in it."""
    for path in HOUSE.rglob("__init__.py"):
        assert path.parent in (HOUSE, HOUSE / "run") or not path.read_text(encoding="utf-8").strip(), path


def record_of(name: str) -> TaskSpec[Any] | CorpusSpec[Any]:
    return task(name) if name in tasks() else corpus_task(name)


def whole(made: type) -> list[type]:
    """The class, or those that are made of it where it leaves something open."""
    return [each for kind in made.__subclasses__() for each in whole(kind)] if inspect.isabstract(made) else [made]


@pytest.mark.parametrize(("room", "name"), MEMBERS)
def test_a_member_has_what_its_room_promises(room: str, name: str) -> None:
    assert sentence(room, name)
    config = model(name).Config if room == "models" else record_of(name).config
    assert dataclasses.is_dataclass(config)
    assert config.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(config))
    assert len(dataclasses.fields(config)) <= 12
    if room == "models":
        module = model(name)
        assert module.PRESETS
        assert all(isinstance(preset, config) for preset in module.PRESETS.values())
        assert callable(module.Model)
    else:
        assert record_of(name).name == name
        made = importlib.import_module(f"filbert.tasks.{name}.items").Items
        assert issubclass(made, Labelled if record_of(name).reads_examples else Items)
        kinds = whole(made)  # a tagger has one for each decoder
        assert kinds
        assert all({"__len__", "plan", "batch", "counts", "loss"} <= set(dir(kind)) for kind in kinds)


def test_an_unknown_member_is_guessed() -> None:
    with pytest.raises(InputError, match="Did you mean 'bert'"):
        model("brt")
    with pytest.raises(InputError, match="Did you mean 'classify'"):
        task("clasify")
    with pytest.raises(InputError, match="Did you mean 'mlm_nsp'"):
        corpus_task("mlm_nps")


def test_a_task_is_asked_for_by_what_it_learns_from() -> None:
    """Of the two kinds of record, the other is refused with the names of this one."""
    with pytest.raises(InputError, match=r"the task is 'mlm_nsp', but must be one of: .*classify"):
        task("mlm_nsp")
    with pytest.raises(InputError, match=r"the task is 'classify', but must be one of: .*mlm_nsp"):
        corpus_task("classify")
