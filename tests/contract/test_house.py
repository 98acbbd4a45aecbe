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
from filbert.nn.encoder import Encoder, ModelSpec
from filbert.tasks.task import CorpusSpec, Items, Labelled, TaskSpec

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


def record_of(name: str) -> TaskSpec[Any] | CorpusSpec[Any]:
    return task(name) if name in tasks() else corpus_task(name)


def whole(made: type) -> list[type]:
    """The class, or those that are made of it where it leaves something open."""
    return [each for kind in made.__subclasses__() for each in whole(kind)] if inspect.isabstract(made) else [made]


@pytest.mark.parametrize(("room", "name"), MEMBERS)
def test_a_member_has_what_its_room_promises(room: str, name: str) -> None:
    assert sentence(room, name)
    record = model(name) if room == "models" else record_of(name)
    assert record.name == name
    config = record.config
    assert dataclasses.is_dataclass(config)
    assert config.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(config))
    assert len(dataclasses.fields(config)) <= (16 if room == "models" else 12)
    if isinstance(record, ModelSpec):
        assert record.presets
        assert all(isinstance(preset, config) for preset in record.presets.values())
        assert issubclass(record.model, Encoder)
    else:
        made = importlib.import_module(f"filbert.tasks.{name}.items").Items
        assert issubclass(made, Labelled if record.reads_examples else Items)
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
