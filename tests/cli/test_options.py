"""Each command's options and the record that it gets: every one of them has a field, of the type that click makes."""

from __future__ import annotations

import importlib
import inspect
import typing
from pathlib import Path

import click
import pytest

import filbert.cli
from filbert.cli.main import NOT_COMMANDS

FOLDER = Path(next(iter(filbert.cli.__path__)))
COMMANDS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_COMMANDS)


def made(parameter: click.Parameter) -> object:
    """The type of what click gives for it."""
    kinds = {click.IntRange: int, click.FloatRange: float, type(click.INT): int, type(click.FLOAT): float}
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    one: type = bool if is_flag else next((kinds[k] for k in type(parameter.type).__mro__ if k in kinds), str)
    if parameter.multiple or parameter.nargs == -1:
        return tuple[tuple[one, one], ...] if parameter.nargs == 2 else tuple[one, ...]  # type: ignore[valid-type]
    context = click.Context(click.Command("any"))
    is_there = is_flag or parameter.required or isinstance(parameter.get_default(context), str | int | float)
    return one if is_there else one | None


@pytest.mark.parametrize("stem", COMMANDS)
def test_every_option_is_a_field_of_its_type(stem: str) -> None:
    command = importlib.import_module(f"filbert.cli.{stem}").command
    declared = typing.get_type_hints(inspect.unwrap(command.callback))
    declared.pop("return")
    if record := declared.pop("options", None):
        declared |= typing.get_type_hints(record)
    options = {each.name: made(each) for each in command.params}
    # where another command's option has no default and this one's has, the record that they share says `| None`
    known = {name: kind | None if declared.get(name) == (kind | None) else kind for name, kind in options.items()}
    assert declared == known
