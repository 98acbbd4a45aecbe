"""A model and the inputs of its attentions in; attention maps out: the probabilities that fused kernels do not keep.

Legend: T tokens in the pack, D width, H heads, K head width, Q tokens of a sequence that ask, S tokens that answer.

Fused kernels stay on. Within `kept`, hooks keep the inputs of the requested layers, one [T, D] each; from these
softmax(q·k / √K) is computed anew (`weights`), a head at a time, so that memory is taken for the requested maps and
hardly more. Outside of it there are no hooks. A hook acts only in the thread that set it: others may use the same model
meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from filbert.core.records import Packed
from filbert.nn.decoder_attention import CausalAttention, CrossAttention
from filbert.nn.layers import Angles, Block, PostNorm, SelfAttention
from filbert.nn.positions import turned

Hook = Callable[[nn.Module, tuple[Any, ...]], Any]


@dataclass(frozen=True, slots=True)
class Site:
    """An attention of a model, and the module whose call shows what it gets."""

    kind: str  # self: tokens of one text | written: a writer's tokens and those before | cross: a writer's, its source
    layer: int
    attention: SelfAttention | CrossAttention
    called: nn.Module


@dataclass(frozen=True, slots=True)
class Kept:
    """What an attention got: all that its probabilities hang on, besides its weights."""

    x_TD: Tensor  # as the attention sees it
    packed: Packed
    angles: Angles = None
    memory_TD: Tensor | None = None  # of cross-attention: the sources' vectors …
    source: Packed | None = None  # … and their pack; source b is that of target b


class _Enough(Exception):
    """Ends a run whose last requested input has been kept."""


def sites(model: nn.Module) -> tuple[Site, ...]:
    """Every attention of a model in the order in which they run; none for a model that attends to nothing."""
    attentions = []
    for index, block in enumerate(_layers(model)):
        if isinstance(block, Block):  # a post-norm block calls `read` of its attention and not the attention itself
            called = block if isinstance(block, PostNorm) else block.attention
            attentions.append(Site("self", index, block.attention, called))
    decoder = dict(model.named_children()).get("writer")
    for index, block in enumerate(_layers(decoder)):
        parts = dict(block.named_children())
        attention, cross = parts.get("attention"), parts.get("cross")
        if isinstance(attention, SelfAttention) and isinstance(cross, CrossAttention):
            attentions.append(Site("written", index, attention, attention))
            attentions.append(Site("cross", index, cross, cross))
    return tuple(attentions)


def _layers(model: nn.Module | None) -> list[nn.Module]:
    """The layers of a stack; none of a model without one."""
    layers = dict(model.named_children()).get("layers") if model is not None else None
    return list(layers) if isinstance(layers, nn.ModuleList) else []


@contextlib.contextmanager
def kept(wanted: Sequence[Site], *, alone: bool = False) -> Iterator[dict[Site, Kept]]:
    """Within it, whatever this thread runs leaves the inputs of these attentions in the dictionary.

    alone: nothing but them is needed, so a run ends, and the block with it, as soon as all are there: the layers after
    the last requested one are not run.
    """
    inputs: dict[Site, Kept] = {}

    def keeping(site: Site) -> Hook:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            inputs[site] = _input(site, args)
            if alone and len(inputs) == len(wanted):
                raise _Enough

        return hook

    with _hooked([(site.called, keeping(site)) for site in wanted]), contextlib.suppress(_Enough):
        yield inputs


@contextlib.contextmanager
def masked(masks: Mapping[Site, Tensor]) -> Iterator[None]:
    """Within it, what each head of an attention read is multiplied by its number in [H]: by 0 it is as if not there.

    Gradients reach the masks: that of a one says how the loss hangs on its head (Michel et al. 2019, §4.1).
    """

    def scaling(site: Site, mask_H: Tensor) -> Hook:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
            (read,) = args
            return ((read.unflatten(-1, (len(mask_H), -1)) * mask_H[:, None].to(read.dtype)).flatten(-2),)

        return hook

    with _hooked([(site.attention.out, scaling(site, mask)) for site, mask in masks.items() if site.attention.heads]):
        yield


@torch.no_grad()
def weights(
    site: Site, got: Kept, sequence: int = 0, heads: Sequence[int] | None = None, out: Tensor | None = None
) -> Tensor:
    """[H, Q, S] of one sequence of the pack, in float32; every row of it sums to 1.

    heads: some only; one that the attention does not have, pruned as it is, gets zeros. out: where to write it.
    """
    rows, attention = _rows(got.packed, sequence), site.attention
    heads = range(attention.heads) if heads is None else heads
    columns = rows if got.source is None else _rows(got.source, sequence)
    size = len(heads), rows.stop - rows.start, columns.stop - columns.start
    out = torch.empty(size, device=got.x_TD.device) if out is None else out
    if not attention.heads:
        return out.zero_()
    q_QHK, k_SHK = (x.float() for x in _asking(attention, got, rows, columns))
    hidden_QS = _hidden(attention, size[1], got.x_TD.device)
    scale, scores_QS = q_QHK.shape[-1] ** -0.5, torch.empty(size[1:], device=got.x_TD.device)
    for place, head in enumerate(heads):
        if head >= attention.heads:
            out[place].zero_()
            continue
        torch.mm(q_QHK[:, head] * scale, k_SHK[:, head].T, out=scores_QS)
        if hidden_QS is not None:
            scores_QS.masked_fill_(hidden_QS, float("-inf"))
        if out.device == scores_QS.device:
            torch.softmax(scores_QS, -1, out=out[place])
        else:
            out[place].copy_(scores_QS.softmax(-1))
    return out


def _input(site: Site, args: tuple[Any, ...]) -> Kept:
    """The arguments of a call by name; a block and an attention have the same ones, but for cross-attention."""
    if site.kind == "cross":
        x_UD, memory_TD, target, source = args
        return Kept(x_UD, target, None, memory_TD, source)
    x_TD, packed, *more = args
    return Kept(x_TD, packed, more[0] if more else None)


@contextlib.contextmanager
def _hooked(pairs: Sequence[tuple[nn.Module, Hook]]) -> Iterator[None]:
    """Within it, these hooks run before the calls that this thread makes of their modules."""
    thread = threading.get_ident()

    def only_here(hook: Hook) -> Hook:
        return lambda module, args: hook(module, args) if threading.get_ident() == thread else None

    handles = [module.register_forward_pre_hook(only_here(hook)) for module, hook in pairs]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _rows(packed: Packed, sequence: int) -> slice:
    start = sum(packed.lengths[:sequence])
    return slice(start, start + packed.lengths[sequence])


def _asking(attention: SelfAttention | CrossAttention, got: Kept, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
    """Queries [Q, H, K] and keys [S, H, K] of a sequence."""
    x_QD = got.x_TD[rows]
    if isinstance(attention, CrossAttention):
        assert got.memory_TD is not None
        return attention.q(x_QD).view(len(x_QD), attention.heads, -1), attention.memory(got.memory_TD[columns])[0]
    q_QHK, k_SHK = attention.projected(x_QD, 0, 2)
    if got.angles is not None:
        angles = got.angles[0][rows], got.angles[1][rows]
        q_QHK, k_SHK = turned(q_QHK, angles), turned(k_SHK, angles)
    return q_QHK, k_SHK


def _hidden(attention: SelfAttention | CrossAttention, length: int, device: torch.device) -> Tensor | None:
    """[Q, S] what a token may not see: what comes after it, or what is out of its reach; None: it sees all."""
    reach = attention.reach if isinstance(attention, SelfAttention) else 0
    if isinstance(attention, CausalAttention):
        return torch.ones(length, length, dtype=torch.bool, device=device).triu_(1)
    if not reach or length <= reach + 1:
        return None
    place = torch.arange(length, device=device)
    return (place[:, None] - place).abs() > reach
