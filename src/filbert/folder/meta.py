"""A model's shape in, a module of that shape without any numbers out: what a folder's weights are fitted to.

Parameters are meta tensors, without memory. Only tables that a model computes have memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from filbert.core.registry import model_of
from filbert.nn.encoder import Encoder, Shape


class _MetaParameters(TorchFunctionMode):
    """Within it, parameters are meta tensors that are not initialised; computed tables stay what they are."""

    def __torch_function__(
        self,
        func: Callable[..., Tensor],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func is torch.empty:
            return torch.empty(*args, **{**kwargs, "device": "meta"})  # type: ignore[call-overload]
        first = args[0] if args else kwargs.get("tensor")
        fills = func.__name__.endswith("_") and not func.__name__.startswith("_")
        return first if fills and isinstance(first, Tensor) and first.is_meta else func(*args, **kwargs)


def family(config: Shape) -> str:
    """The file of models that has such a config."""
    return model_of(config).name


def made(config: Shape, parts: tuple[str, ...], labels: int) -> Encoder:
    """The model with parameters that have a shape and no memory."""
    with _MetaParameters():
        return model_of(config).model(config, parts, labels)


def shapes(config: Shape, parts: tuple[str, ...], labels: int) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of its state_dict; a file of models may give them without a module (`shapes`)."""
    shapes_of = model_of(config).shapes
    if shapes_of is not None:
        return dict(shapes_of(config, parts, labels))
    return {name: tuple(value.shape) for name, value in made(config, parts, labels).state_dict().items()}
