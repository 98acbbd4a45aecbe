"""A fine-tuned model folder and labelled data in, one without its least important attention heads out.

The maps of a head that is taken away are taken away with it: its rows of queries, keys and values, its columns of the
output. What is left gives the same as the whole model with these heads masked out, and costs less. A layer may lose
all. Such a folder is one of ours: `transformers` has no layers with fewer heads than the others, and cannot read it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from filbert.core import keywords
from filbert.core.errors import InputError
from filbert.core.files import json_text
from filbert.core.records import Floats
from filbert.engine.model import Model, load
from filbert.engine.reader import DATA, TASK
from filbert.folder import folder as folders
from filbert.folder import meta, read_transformers
from filbert.folder.manifest import seal
from filbert.forms import sources
from filbert.models import bert
from filbert.see import head_importance as worth
from filbert.see.head_importance import Shown
from filbert.ship.shrink import chosen, shrunk

Heads = Collection[tuple[int, int]]  # (layer, head), each from 0


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was taken away, and what it did."""

    heads: tuple[tuple[int, int], ...]  # (layer, head) of those that are gone
    left: tuple[int, ...]  # in each layer
    importance: Floats  # [layers, heads] before
    loss: tuple[float, float]  # before and after, on the data
    parameters: tuple[int, int]  # before and after


@keywords.checked()
def prune(
    path: Path | str,
    data: sources.Source,
    out: Path | str,
    *,
    heads: float | int = 0.5,
    method: str = "gradient",
    most: int = worth.MOST,
    columns: sources.Columns | None = None,
    encoding: str | None = None,
    device: str | None = None,
    shown: Shown = iter,
) -> Pruned:
    """Writes a folder without the heads that matter least; heads: a share of all (0.5), or how many.

    method: "gradient" or "ablation" (see.head_importance.importance). most: examples that the loss is taken of.
    columns, encoding: of the files. shown: wraps what is gone through, for a progress bar.
    """
    model = load(path, device=device)
    _check(model, out)
    count = wanted(heads, sum(model.config.heads_in(index) for index in range(model.config.layers)))
    task = worth.labelled(model, data, sources.ReadOptions(columns=columns, encoding=encoding))
    importance = worth.task_importance(model, task, method=method, most=most, shown=shown)
    gone = least(importance, model.config, count, by_layer=method == "gradient")
    before = worth.loss(model, task, most)
    smaller = without(model.backbone, gone)
    _save(out, smaller.cpu(), model, _card(model, gone, method, len(task)))
    after = worth.loss(load(out, device=device), task, most)
    left = tuple(smaller.config.heads_in(index) for index in range(smaller.config.layers))
    sizes = [sum(weight.numel() for weight in each.parameters()) for each in (model.backbone, smaller)]
    return Pruned(gone, left, importance, (before, after), (sizes[0], sizes[1]))


@dataclass(frozen=True, slots=True)
class Fewer:
    """The layers and the weights that a model keeps."""

    layers: tuple[int, ...]
    parameters: tuple[int, int]  # before and after


def fewer_layers(path: Path | str, out: Path | str, layers: int | str | None = None, inner: int | None = None) -> Fewer:
    """Writes a folder with some of the layers, or narrower feed-forwards.

    layers: how many, evenly spread, or which, from 0 (ship.shrink). Such a model must learn anew: `filbert distill`.
    """
    model = load(path, device="cpu")
    _check(model, out)
    smaller = shrunk(model.backbone, layers, inner)
    left = chosen(layers, model.config.layers)
    name, of = model.folder.resolve().name, f"{len(left)} of its {model.config.layers} layers"
    card = f"`{name}` with {of} ({', '.join(map(str, left))}) and feed-forwards of {smaller.config.inner}. "
    _save(out, smaller, model, card + "Distil it from the whole model to win back what that cost.")
    sizes = [sum(weight.numel() for weight in each.parameters()) for each in (model.backbone, smaller)]
    return Fewer(left, (sizes[0], sizes[1]))


def wanted(heads: float | int, count: int) -> int:
    """How many of so many heads a share or a number means; at least one."""
    is_share = isinstance(heads, float)
    if isinstance(heads, bool) or not isinstance(heads, int | float) or not 0 < heads <= (1 if is_share else count):
        raise InputError(
            f"heads is {heads!r}, but must be a share above 0 and up to 1.0, or a whole number from 1 to {count}: so "
            "many are taken away."
        )
    return max(1, round(heads * count)) if is_share else int(heads)


def least(importance: Floats, config: bert.Config, count: int, *, by_layer: bool) -> tuple[tuple[int, int], ...]:
    """The (layer, head) of so many heads that matter least, in the order of the model.

    by_layer: scores are first divided by their layer's length, as gradients of different layers are not of one scale
    (Michel et al. 2019, §4.1, after Molchanov et al. 2017).
    """
    scores = np.asarray(importance, dtype=np.float64)
    if by_layer:
        scores = scores / np.maximum(np.linalg.norm(scores, axis=1, keepdims=True), 1e-30)
    places = [(layer, head) for layer in range(config.layers) for head in range(config.heads_in(layer))]
    return tuple(sorted(sorted(places, key=lambda place: (scores[place], place))[:count]))


def without(model: bert.Bert, gone: Heads) -> bert.Bert:
    """The model without these heads, on its device; its other weights are shared with it."""
    config = model.config
    for layer, head in gone:
        if not 0 <= layer < config.layers or not 0 <= head < config.heads_in(layer):
            raise InputError(f"this model has no head {head} in a layer {layer}; both count from 0.")
    kept = [
        [head for head in range(config.heads_in(layer)) if (layer, head) not in gone] for layer in range(config.layers)
    ]
    shape = replace(config, heads=(config.all_heads, *map(len, kept)))
    state = model.state_dict()
    for layer, heads in enumerate(kept):
        _cut(state, f"layers.{layer}.attention.", config.heads_in(layer), heads)
    outputs: list[Any] = [model.heads[part].out_features for part in read_transformers.NAMED if part in model.heads]
    smaller = meta.made(shape, model.parts, outputs[0] if outputs else 2)
    smaller.load_state_dict(state, strict=True, assign=True)
    assert isinstance(smaller, bert.Bert)
    return smaller.to(next(model.parameters()).device).train(model.training)


def _cut(state: dict[str, torch.Tensor], at: str, count: int, kept: Sequence[int]) -> None:
    """Takes the other heads' rows and columns out of an attention's maps; without any only the output's bias stays."""
    if len(kept) == count:
        return
    if not kept:
        for name in ("qkv.weight", "qkv.bias", "out.weight"):
            state.pop(at + name, None)
        return
    for name in ("qkv.weight", "qkv.bias"):
        if at + name in state:
            whole = state[at + name]
            by_head = whole.view(3, count, -1, *whole.shape[1:])  # queries, keys and values, head by head
            state[at + name] = by_head[:, list(kept)].flatten(0, 2)
    whole = state[at + "out.weight"]
    state[at + "out.weight"] = whole.view(len(whole), count, -1)[:, list(kept)].flatten(1)


def _save(out: Path | str, smaller: bert.Bert, model: Model, card: str) -> None:
    """The folder, with what the first one said of how texts are read."""
    task = model.folder / TASK
    files = {TASK: task.read_text("utf-8")} if task.exists() else {}
    files |= {DATA: json_text(read_as)} if (read_as := model.trained_on.as_json()) else {}
    problem = folders.read(model.folder).described.problem_type
    fields = {"problem_type": problem} if problem else None
    with folders.whole_folder(out) as part:
        folders.save(part, smaller, model.tokenizer, labels=model.labels, card=card, files=files, fields=fields)
        folders.carry(model.folder, model.vectors_as, part)
        seal(part)


def _check(model: Model, out: Path | str) -> None:
    if Path(out).resolve() == model.folder.resolve():
        raise InputError(f"{out}: is the model itself, of which nothing would be left; choose another --out.")
    if not isinstance(model.backbone, bert.Bert):
        raise InputError(
            f"{model.folder}: is a {type(model.backbone).__name__.lower()}, but only the heads of a bert can be pruned."
        )


def _card(model: Model, gone: Heads, method: str, count: int) -> str:
    total = sum(model.config.heads_in(index) for index in range(model.config.layers))
    return (
        f"`{model.folder.resolve().name}` without {len(gone)} of its {total} attention heads: those that mattered "
        f"least by {method} on {count:,} examples (Michel et al. 2019). Fine-tune it to win back what that cost. "
        "transformers cannot read this folder, since it has no layers with fewer heads than others; filbert can."
    )
