"""Members by name: models and tasks, ours and those that other packages bring, by their names in, records out.

A member of ours stands in its place and is found: `tasks/NAME/spec.py` holds SPEC, `tasks/NAME/files.py` FILES,
`models/NAME.py` SPEC. A member from outside is named by its package under the entry points `filbert.tasks` and
`filbert.models`, each of which is such a record. Names and first sentences are read without importing a member, so
that `--help` never imports torch.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from filbert.core.errors import InputError, one_of

if TYPE_CHECKING:
    from filbert.core.protocols import Objective
    from filbert.forms.spec import FileSpec
    from filbert.nn.encoder import ModelSpec
    from filbert.tasks.task import CorpusSpec, TaskSpec, Trait

Room = Literal["models", "tasks"]
ROOMS: tuple[Room, ...] = ("models", "tasks")
HOUSE = Path(__file__).resolve().parent.parent


@cache  # asked for with every answer; files and packages do not come and go while it runs
def members(room: Room) -> tuple[str, ...]:
    """The names in a room, sorted."""
    return tuple(sorted({*_ours(room), *_outside(room)}))


@cache
def _ours(room: Room) -> Mapping[str, Path]:
    """The files that members of ours begin with."""
    files = {path.stem: path for path in (HOUSE / room).glob("*.py")} if room == "models" else {}
    return {name: path for name, path in files.items() if name != "__init__"} | {
        path.parent.name: path for path in (HOUSE / room).glob("*/spec.py")
    }


@cache
def _outside(room: Room) -> Mapping[str, importlib.metadata.EntryPoint]:
    """What other packages bring; a name of ours, or one that two packages bring, is refused."""
    points: dict[str, importlib.metadata.EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=f"filbert.{room}"):
        if point.name in _ours(room) or (point.name in points and points[point.name].value != point.value):
            raise InputError(
                f"the package {point.dist.name if point.dist else point.value} brings the {room.removesuffix('s')} "
                f"{point.name!r}, but there is one of that name already; rename it or uninstall the package."
            )
        points[point.name] = point
    return points


def _checked(room: Room, name: str) -> None:
    if name not in members(room):
        raise one_of(f"the {room.removesuffix('s')} name", name, members(room))


@cache
def _spec(room: Room, name: str) -> Any:
    """The record of a member, imported now."""
    _checked(room, name)
    if name in _outside(room):
        return _brought(room, _outside(room)[name])
    parts = _ours(room)[name].relative_to(HOUSE).with_suffix("").parts
    return importlib.import_module(".".join(("filbert", *parts))).SPEC


def _brought(room: Room, point: importlib.metadata.EntryPoint) -> Any:
    """The record that a package brings; whatever goes wrong in that package is told with its name."""
    what = f"the package {point.dist.name if point.dist else point.value} brings the {room[:-1]} {point.name!r}"
    try:
        spec = point.load()
    except Exception as error:
        raise InputError(f"{what}, but it cannot be imported ({error}); repair it, or uninstall it.") from error
    kind = importlib.import_module("filbert.nn.encoder" if room == "models" else "filbert.tasks.task")
    records = (kind.ModelSpec,) if room == "models" else (kind.TaskSpec, kind.CorpusSpec)
    if not isinstance(spec, records) or spec.name != point.name:
        wanted = " or ".join(record.__name__ for record in records)
        raise InputError(f"{what}, but {point.value} is no {wanted} of that name; see docs/own-{room[:-1]}.md.")
    return spec


def task(name: str) -> TaskSpec[Any]:
    """The record of a task of examples: one that learns from them or predicts for them."""
    spec = _spec("tasks", name)
    if not spec.reads_examples:
        raise one_of("the task", name, tasks())
    return spec  # type: ignore[no-any-return]


def corpus_task(name: str) -> CorpusSpec[Any]:
    """The record of a task that learns from plain text."""
    spec = _spec("tasks", name)
    if spec.reads_examples:
        raise one_of("the task", name, [each for each in members("tasks") if each not in tasks()])
    return spec  # type: ignore[no-any-return]


@cache
def tasks(*, only_learnt: bool = False) -> tuple[str, ...]:
    """The tasks of examples, sorted; or only those that can be fine-tuned."""
    specs = {name: _spec("tasks", name) for name in members("tasks")}
    return tuple(n for n, s in specs.items() if s.reads_examples and (s.can_learn or not only_learnt))


def is_task(name: object) -> bool:
    """Whether that is the name of a task that is asked about examples; no other is imported for it."""
    return isinstance(name, str) and name in members("tasks") and bool(_spec("tasks", name).reads_examples)


def tasks_with(trait: Trait) -> tuple[str, ...]:
    """The tasks of examples that have this trait, sorted."""
    return tuple(name for name in tasks() if trait in task(name).traits)


def outside_tasks() -> tuple[str, ...]:
    """The tasks that other packages bring."""
    return tuple(_outside("tasks"))


def files(task_name: str) -> FileSpec:
    """What labelled files of a task look like."""
    return task(task_name).files()


def model(name: str) -> ModelSpec[Any]:
    """The record of a model."""
    return _spec("models", name)  # type: ignore[no-any-return]


def model_of(config: object) -> ModelSpec[Any]:
    """The record of the model that has such a config."""
    room, _, name = type(config).__module__.rpartition(".")
    if room == "filbert.models":
        return model(name)
    for other in _outside("models"):
        if type(config) is model(other).config:
            return model(other)
    raise InputError(f"{type(config).__qualname__} is the config of no model that is installed.")


def taught_by(objective: Objective) -> CorpusSpec[Any]:
    """The task by which a model learns this from plain text."""
    specs = (_spec("tasks", name) for name in members("tasks"))
    return next(spec for spec in specs if not spec.reads_examples and spec.objective is objective)


@cache
def sentence(room: Room, name: str) -> str:
    """The first line of a member's docstring, read without importing it; of one from outside its record's."""
    _checked(room, name)
    if name in _outside(room):
        return str(_spec(room, name).__doc__ or "").partition("\n")[0]
    path = _ours(room)[name]
    source = path.with_name("items.py") if path.name == "spec.py" else path
    return (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").partition("\n")[0]
