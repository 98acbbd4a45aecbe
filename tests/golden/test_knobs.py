"""Every knob there is: a new one shows in the diff of knobs.txt. Rewrite it with FILBERT_REWRITE=1."""

from __future__ import annotations

import dataclasses
import importlib
import os
from pathlib import Path

import click

from filbert.cli.main import filbert
from filbert.core.registry import ROOMS, corpus_task, members, model, task, tasks

GOLDEN = Path(__file__).with_name("knobs.txt")


def knobs() -> list[str]:
    lines = []
    records = {"models": model, "tasks": lambda name: task(name) if name in tasks() else corpus_task(name)}
    places = {f"{room}.{name}": records[room](name).config for room in ROOMS for name in members(room)}
    others = ("train.loop", "train.tune", "train.machine", "teach.teacher")
    places |= {name: importlib.import_module(f"filbert.{name}").Config for name in others}
    for place, config in places.items():
        lines += [f"{place}.{f.name} = {f.default!r}" for f in dataclasses.fields(config)]
    context = click.Context(filbert)
    for name in filbert.list_commands(context):
        command = filbert.get_command(context, name)
        assert command is not None
        for option in command.params:
            shown = "/".join([*option.opts, *option.secondary_opts])
            lines.append(f"filbert {name} {shown} = {option.to_info_dict().get('default')!r}")
    return lines


def test_the_knobs_are_these() -> None:
    if os.environ.get("FILBERT_REWRITE"):
        GOLDEN.write_text("\n".join(knobs()) + "\n", encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8").split("\n")[:-1] == knobs()
