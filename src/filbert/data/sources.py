"""Labelled data as a user names them, files or examples, in; checked examples out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.core.registry import member
from filbert.data import label_sets
from filbert.data.datasets import examples, label_table

Source = str | Path | Sequence[Example | str | Path]  # a file of labelled data, several, or examples


def read(task: str, source: Source, more: Mapping[str, Any]) -> list[Example]:
    """The examples of all of it, as the task's data; more: `columns` and `encoding` of files."""
    if not isinstance(source, str | Path):
        parts = ([part] if isinstance(part, Example) else read(task, part, more) for part in source)
        return [example for part in parts for example in part]
    kind = getattr(member("tasks", task), "DATA", task)
    return list(examples(source, kind, more.get("columns"), more.get("encoding") or "utf-8"))


def check_labelled(source: Source, data: Sequence[Example], needs_gold: bool) -> None:
    """Refuses data that nothing can be learnt from."""
    if not data:
        raise InputError(f"{called(source)}: has no examples, so there is nothing to learn.")
    if needs_gold and any(example.gold is None for example in data):
        raise InputError(f"{called(source)}: has no labels; give a file with a text and a label in each row.")


def called(source: Source, otherwise: str = "the training data") -> str:
    """What an error calls it: its files, or something else where there are none."""
    names = [source] if isinstance(source, str | Path) else [part for part in source if not isinstance(part, Example)]
    return ", ".join(map(str, names)) or otherwise


def label_names(source: Source, data: Sequence[Example], is_named: bool = True) -> tuple[str, ...]:
    """The labels to learn, in a fixed order; is_named: whether the user said which column they stand in."""
    table = label_table(data).check()
    labels = table.labels
    single = label_sets.singles(table.counts)
    if single and not is_named and 2 * len(labels) > len(data) and files(source):
        raise InputError(
            f"{called(source)}: {single}; are the columns swapped? If they are not, say so: --columns text=…,label=…."
        )
    if len(labels) < 2:
        raise InputError(f"{called(source)}: has only the label {labels[0]!r}, but two or more are needed.")
    return labels


def files(source: Source) -> list[Path]:
    """The files that it came from; none where some of it came from no file."""
    parts = [source] if isinstance(source, str | Path) else list(source)
    return [Path(part) for part in parts if not isinstance(part, Example)] if not _has_examples(parts) else []


def _has_examples(parts: Sequence[Any]) -> bool:
    return any(isinstance(part, Example) for part in parts)
