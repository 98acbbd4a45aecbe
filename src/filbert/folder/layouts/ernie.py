"""ERNIE's folders (Sun et al. 2020, as transformers has it): model_type ernie. A BERT with one vector more a token.

The vector is that of a kind of task, of which every text has the first. A folder without it (`use_task_id` false) is a
BERT in all but names, and is written as one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.core.errors import InputError
from filbert.core.files import Json
from filbert.folder.fields import short
from filbert.folder.layouts import bert
from filbert.folder.layouts.layout import Names

if TYPE_CHECKING:
    from filbert.models.bert import Config


def encoder(config: Config) -> Names:
    """Of an `ErnieModel`."""
    yield from bert.encoder(config)
    if config.task_types:
        yield "embeddings.task_types.weight", ("embeddings.task_type_embeddings.weight",)


def fields(config: Config) -> dict[str, Any]:
    """What follows from the shape."""
    return {**bert.fields(config), "use_task_id": True}


def check(path: Path, fields: Json, shape: dict[str, Any]) -> None:
    """Without kinds of tasks there is no table of them."""
    has_types = fields.get("use_task_id", False)
    if not isinstance(has_types, bool):
        raise InputError(f"{path}: use_task_id is {short(has_types)!r}, but must be true or false.")
    if not has_types:
        shape["task_types"] = 0


LAYOUT = replace(
    bert.LAYOUT,
    kind="ernie",
    classes={name.replace("Bert", "Ernie"): parts for name, parts in bert.LAYOUT.classes.items()},
    prefix="ernie.",
    shape={name: value for name, value in bert.LAYOUT.shape.items() if name != "task_types"},
    usual={**bert.LAYOUT.usual, "task_types": 3},
    numbers={**bert.LAYOUT.numbers, "task_type_vocab_size": "task_types"},
    fields=fields,
    check=check,
    also=("use_task_id",),
    encoder=encoder,
)
