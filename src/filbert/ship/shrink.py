"""A BERT in; one of fewer layers or narrower feed-forwards, with the weights that are kept, out.

What is left out is chosen without data: layers spread evenly, and of a feed-forward's inner numbers those that can add
least, by the product of the lengths of their weights in and out (after Li et al. 2017, "Pruning filters"). Such a model
says something else than the whole one until it is trained again: `filbert distill` does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from filbert.core.errors import InputError
from filbert.folder import meta, read_transformers
from filbert.models import bert
from filbert.nn.encoder import Encoder


def spread(count: int, total: int) -> tuple[int, ...]:
    """So many layers of a model's total, evenly spread, the first and the last among them."""
    if not 1 <= count <= total:
        raise InputError(f"layers is {count}, but this model has {total}: take from 1 to {total} of them.")
    return (total - 1,) if count == 1 else tuple(round(at * (total - 1) / (count - 1)) for at in range(count))


def chosen(layers: int | str | Sequence[int] | None, total: int) -> tuple[int, ...]:
    """The layers that are meant by a number, by "0,2,5" or by a list, each from 0; all by None."""
    if layers is None:
        return tuple(range(total))
    if isinstance(layers, str):
        words = [word.strip() for word in layers.split(",")]
        if not all(word.isascii() and word.isdigit() for word in words):
            raise InputError(f"layers is {layers!r}, but must be a number, or layers with commas, each from 0: 0,2,5.")
        layers = int(words[0]) if len(words) == 1 else [int(word) for word in words]
    wished: Any = layers
    if isinstance(wished, bool) or not isinstance(wished, int | np.integer | Iterable):
        raise InputError(f"layers is {wished!r:.60}, but must be a number of layers, or a list of some, from 0.")
    if isinstance(wished, int | np.integer):
        return spread(int(wished), total)
    listed = list(wished)
    is_valid = all(isinstance(layer, int | np.integer) and 0 <= layer < total for layer in listed)
    if not listed or not is_valid or listed != sorted(set(listed)):
        raise InputError(
            f"layers is {','.join(map(str, listed))}, but must name some of the layers 0 to {total - 1}, in order."
        )
    return tuple(map(int, listed))


def shrunk(model: Encoder, layers: int | str | Sequence[int] | None = None, inner: int | None = None) -> bert.Bert:
    """The model with these layers alone, and feed-forwards of `inner` numbers; its weights are copies."""
    if not isinstance(model, bert.Bert):
        raise InputError(f"this is a {type(model).__name__.lower()}, but only layers of a bert can be taken away.")
    config = model.config
    kept = chosen(layers, config.layers)
    size = config.inner if inner is None else inner
    if type(size) is not int or not 1 <= size <= config.inner:
        raise InputError(f"inner is {size!r}, but must be a whole number from 1 to this model's {config.inner:,}.")
    heads = config.heads
    if isinstance(heads, tuple):
        heads = (config.all_heads, *(config.heads_in(layer) for layer in kept))
    shape = replace(config, layers=len(kept), heads=heads, inner=size)
    state = {name: value.clone() for name, value in model.state_dict().items() if not name.startswith("layers.")}
    for at, layer in enumerate(kept):
        layer_state = {name: value.clone() for name, value in model.layers[layer].state_dict().items()}
        if size < config.inner:
            _narrowed(layer_state, size)
        state |= {f"layers.{at}.{name}": value for name, value in layer_state.items()}
    outputs: list[Any] = [model.heads[part].out_features for part in read_transformers.NAMED if part in model.heads]
    smaller = meta.made(shape, model.parts, outputs[0] if outputs else 2)
    _mend_first_norm(state, smaller)
    smaller.load_state_dict(state, strict=True, assign=True)
    assert isinstance(smaller, bert.Bert)
    return smaller.to(next(model.parameters()).device).train(model.training)


def _narrowed(state: dict[str, Tensor], size: int) -> None:
    """Leaves a feed-forward the inner numbers that can add most, in their order."""
    up, down = state["feed.up.weight"], state["feed.down.weight"]
    times = len(up) // down.shape[1]  # two for a gated one: value and gate, one half after the other
    inward = up.view(times, -1, up.shape[1]).norm(dim=-1).prod(0)
    best = (inward * down.norm(dim=0)).topk(size).indices.sort().values
    rows = torch.cat([best + half * down.shape[1] for half in range(times)])
    state["feed.up.weight"], state["feed.down.weight"] = up[rows].clone(), down[:, best].clone()
    if "feed.up.bias" in state:
        state["feed.up.bias"] = state["feed.up.bias"][rows].clone()


def _mend_first_norm(state: dict[str, Tensor], smaller: nn.Module) -> None:
    """Of a pre-norm stack the first layer has no norm before its attention: one that came from higher up loses it."""
    wanted = smaller.state_dict().keys()
    for name in [name for name in state if name not in wanted]:
        if name != "layers.0.attention_norm.weight":
            raise InputError(f"{name} has no place in the smaller model.")
        del state[name]
