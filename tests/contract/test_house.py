"""What every file, model and task of the house promises, checked on whatever the rooms hold."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from filbert.core.errors import InputError
from filbert.core.registry import HOUSE, ROOMS, member, members, sentence

FILES = sorted(path for path in HOUSE.rglob("*.py") if path.name != "__init__.py")
# Public verbs spell every option with its type, so that editors and mypy see it; inside, options travel as records.
VERBS = {
    "run/finetune:finetune", "run/pretrain:pretrain", "run/distill:distill", "run/distill:distill_general",
    "run/evaluate:evaluate", "ship/prune:prune", "engine/model:explain",
}  # fmt: skip
TYPED = ("run", "teach", "clock", "see")  # rooms where no function takes **more
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
            place = f"{path.relative_to(HOUSE).with_suffix('')}:{node.name}"
            assert width <= 8 or place in VERBS, f"{node.name} takes {width} arguments"
            assert arguments.kwarg is None or path.parent.name not in TYPED or node.name == "event", node.name


def test_rooms_begin_empty() -> None:
    """All but the house itself: modules are imported from where they are."""
    for path in HOUSE.rglob("__init__.py"):
        assert path.parent == HOUSE or not path.read_text(encoding="utf-8").strip(), path


@pytest.mark.parametrize(("room", "name"), MEMBERS)
def test_a_member_has_what_its_room_promises(room: str, name: str) -> None:
    module = member(room, name)
    assert sentence(room, name)
    config = module.Config
    assert dataclasses.is_dataclass(config)
    assert config.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(config))
    assert len(dataclasses.fields(config)) <= 12
    if room == "models":
        assert module.PRESETS
        assert all(isinstance(preset, config) for preset in module.PRESETS.values())
        assert callable(module.Model)
    else:
        assert {"__len__", "item", "loss"} <= set(dir(module.Task))


def test_an_unknown_member_is_guessed() -> None:
    with pytest.raises(InputError, match="Did you mean 'bert'"):
        member("models", "brt")
