"""A model and labelled data in, what each attention head is worth for its task out.

Legend: L layers, H heads.

Importance is that of Michel et al. 2019, "Are sixteen heads really better than one?".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from filbert.core.errors import InputError, one_of
from filbert.core.records import Floats
from filbert.explain.protocols import Looks
from filbert.forms import sources
from filbert.nn import maps
from filbert.nn.attention import batch_tensors
from filbert.pack.lay import bins
from filbert.tasks.task import AnyItems
from filbert.text.streams import Reading

METHODS = ("gradient", "ablation")
MOST = 256  # examples that are asked, spread evenly over the data

Doubles = npt.NDArray[np.float64]
Shown = Callable[[Sequence[Any]], Iterable[Any]]  # things in, the same out: where progress can be shown


# What a head is worth -------------------------------------------------------------------------------------------------


def importance(
    model: Looks,
    data: sources.Source,
    *,
    method: str = METHODS[0],
    most: int = MOST,
    kind: str = "self",
    shown: Shown = iter,
    options: sources.ReadOptions = sources.AS_EACH_SAYS,
) -> Floats:
    """[L, H] what each head is worth for the model's own task, by labelled data; the more, the more it matters.

    gradient: the mean over examples of |∂loss/∂mask| of a mask that is 1 (Michel et al. 2019, eq. 2). ablation: by how
    much the mean loss grows without the head, which may be less than nothing. most: examples that are asked, spread
    evenly. options: how files are read. A head that a pruned layer does not have is worth 0.
    """
    return task_importance(model, labelled(model, data, options), method=method, most=most, kind=kind, shown=shown)


def labelled(model: Looks, data: sources.Source, options: sources.ReadOptions = sources.AS_EACH_SAYS) -> AnyItems:
    """Labelled data as the model's own task; what has no labels is refused."""
    if model.as_read is None:
        raise InputError(
            "this model was fine-tuned for nothing, so no loss can tell what its heads are worth; fine-tune it first."
        )
    reader = model.as_read
    met = Reading()
    examples = sources.read(reader.spec.name, data, replace(options, trained_on=model.trained_on), met)
    sources.tell(data, met)
    task = reader.items(examples)
    if not len(task) or task.has_unknown:
        raise InputError(f"{sources.called(data, 'the data')}: has no labels, so there is no loss to measure.")
    return task


def task_importance(
    model: Looks, task: AnyItems, *, method: str = METHODS[0], most: int = MOST, kind: str = "self", shown: Shown = iter
) -> Floats:
    """The same for data that are a task already."""
    if method not in METHODS:
        raise one_of("the method", method, METHODS)
    sites = [site for site in maps.sites(model.backbone) if site.kind == kind]
    if not sites:
        raise InputError(f"this model has no attention of the kind {kind!r}, so it has no heads to weigh.")
    result = np.zeros((len(sites), max(site.attention.heads for site in sites)), dtype=np.float32)
    way = _by_gradient if method == "gradient" else _by_ablation
    for row, row_worth in zip(result, way(model, task, sites, most, shown), strict=True):
        row[: len(row_worth)] = row_worth
    return result


def loss(model: Looks, task: AnyItems, most: int | None = None) -> float:
    """The mean loss of a task's items, or of so many of them, spread evenly."""
    made = task.plan(0)
    lengths, total, count = np.asarray(made.lengths), dict[str, float](), dict[str, float]()
    chosen = _spread(len(lengths), most)
    with torch.inference_mode():
        for group in bins(lengths[chosen].tolist(), model.engine.budget):
            batch = batch_tensors(task.batch(made.orders(chosen[group])), model.engine.device)
            for name, term in task.loss(model.backbone, batch).items():
                if name.endswith("_loss"):
                    total[name] = total.get(name, 0.0) + float(term.total)
                    count[name] = count.get(name, 0.0) + float(term.count)
    return sum(total[name] / max(count[name], 1e-30) for name in total)


def _by_gradient(model: Looks, task: AnyItems, sites: Sequence[maps.Site], most: int, shown: Shown) -> list[Doubles]:
    """One example at a time, since absolute values of single gradients are averaged."""
    made, sums = task.plan(0), [np.zeros(site.attention.heads) for site in sites]
    chosen = _spread(len(np.asarray(made.lengths)), most)
    masks = {
        site: torch.ones(site.attention.heads, device=model.engine.device, requires_grad=True)
        for site in sites
        if site.attention.heads
    }
    for index in shown(chosen.tolist()):
        batch = batch_tensors(task.batch(made.orders(np.array([index]))), model.engine.device)
        with torch.enable_grad(), maps.masked(masks):
            terms = {name: term for name, term in task.loss(model.backbone, batch).items() if name.endswith("_loss")}
            total = sum(term.total / max(float(term.count), 1e-30) for term in terms.values())
        gradients = torch.autograd.grad(total, list(masks.values()), allow_unused=True)
        for site, gradient in zip(masks, gradients, strict=True):
            if gradient is not None:
                sums[sites.index(site)] += gradient.abs().double().cpu().numpy()
    return [total_H / len(chosen) for total_H in sums]


def _by_ablation(model: Looks, task: AnyItems, sites: Sequence[maps.Site], most: int, shown: Shown) -> list[Doubles]:
    """Each head zeroed in turn."""
    whole, worth = loss(model, task, most), [np.zeros(site.attention.heads) for site in sites]
    places = [(layer, head) for layer, site in enumerate(sites) for head in range(site.attention.heads)]
    for layer, head in shown(places):
        mask = torch.ones(sites[layer].attention.heads, device=model.engine.device)
        mask[head] = 0
        with maps.masked({sites[layer]: mask}):
            worth[layer][head] = loss(model, task, most) - whole
    return worth


def _spread(count: int, most: int | None) -> npt.NDArray[np.int64]:
    """Places of at most so many things, evenly among all."""
    if most is not None and most < 1:
        raise InputError(f"most is {most}, but must be 1 or more.")
    if not count:
        raise InputError("no example can be learnt from, so there is no loss to measure.")
    return np.unique(np.linspace(0, count - 1, min(count, most or count)).round().astype(np.int64))
