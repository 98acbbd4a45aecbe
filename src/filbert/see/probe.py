"""What each layer knows: a model and labelled examples in; how well a linear probe reads the labels off each layer out.

Legend: N units (texts, words or tokens), D width of a layer, L labels, K layers.

A probe is a multinomial logistic regression on vectors that stay as they are (Alain and Bengio 2017). High accuracy
may be the probe's own doing, so every layer has a *control task* too (Hewitt and Liang 2019, §2): the same probe on
labels that were dealt out at random, one for each type of word. What it learns there it learnt by heart. Selectivity is
the accuracy less the control's. Whole texts hardly come again, so that of texts no control can be learnt: there it
shows where chance lies, and how much the probe can learn by heart (`control_fit`).

The regression is fitted by L-BFGS in torch, which a model needs anyway: full batches, from zero, on a convex loss, so
that the same seed gives the same numbers, without another package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from filbert.core import registry
from filbert.core.errors import InputError, one_of
from filbert.core.files import write_text
from filbert.core.random import generator
from filbert.core.records import Example, Floats
from filbert.draw import charts, html, pictures
from filbert.draw.svg import MARGIN, Sheet
from filbert.engine.backend_torch import Engine
from filbert.forms.splits import split
from filbert.metrics import labels as label_metrics
from filbert.metrics import paired
from filbert.see.hidden import every_layer
from filbert.tasks.probing import Columns, Probing
from filbert.tasks.task import Trait

if TYPE_CHECKING:
    from filbert.engine.model import Model

Places = npt.NDArray[np.int64]
ENDINGS = (".html", ".svg", ".png")
KEPT_BACK = 0.2  # of the texts: what the probes are measured on
FEWEST = 20  # labelled texts below which no curve means anything
MOST_UNITS = 10_000  # what a probe reads in a minute; more texts are left out, by chance
CHUNK_CHARS = 20_000  # of texts whose every token is held, in all layers, at a time
STRENGTHS = (1.0, 0.1, 0.01, 0.001)  # of the penalty ½·s·|W|² that are tried
TRIED = 2_000  # units by which a layer's strength is chosen
STEPS = 200  # of L-BFGS at most
FLAT = 1e-6  # a number that varies by less says nothing
CLOSE = 1e-4  # the largest slope at which a fit is done; the loss is then within a thousandth of its least


@dataclass(frozen=True, slots=True)
class Layer:
    """What a probe of one layer scores on texts that it did not learn from; intervals are of 95 %, over texts."""

    layer: int  # 0: the embeddings
    accuracy: float
    low: float
    high: float
    f1: float  # the mean over labels
    control: float  # accuracy on labels dealt out at random
    control_fit: float  # the same on what it learnt from: how much a probe can learn by heart
    control_unseen: float | None  # the same of types that it did not learn from; None where there are none
    selectivity: float
    selectivity_low: float
    selectivity_high: float
    strength: float  # of the penalty


@dataclass(frozen=True, slots=True)
class Probe:
    """The curve, and what it is to be compared with."""

    model: str
    task: str
    unit: str  # text, word or token
    labels: tuple[str, ...]
    layers: tuple[Layer, ...]
    majority: float  # accuracy of always saying the commonest label
    by_type: float | None  # accuracy of the commonest label of each word, without its context; None for texts
    num_texts: tuple[int, int]  # learnt from, measured on
    num_units: tuple[int, int]
    lead: paired.Difference | None  # of the best layer over the embeddings; None where these are best
    seed: int
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Layer:
        """The layer with the highest accuracy; the lowest of equals."""
        return max(self.layers, key=lambda each: each.accuracy)

    def as_dict(self) -> dict[str, Any]:
        """As an object for machines."""
        return {**asdict(self), "best": self.best.layer}

    def sentences(self) -> list[str]:
        """What the curve says, in words."""
        best, first = self.best, self.layers[0]
        lines = [f"layer {best.layer} knows most: {best.accuracy:.1%} of {self.num_units[1]:,} {self.unit}s right"]
        if self.lead is not None:
            lines.append(
                f"layer {best.layer} is {self.lead.sentence('the embeddings')}; it was chosen on the same texts"
            )
        chosen = max(self.layers, key=lambda each: each.selectivity)
        if self.unit != "text":
            lines.append(
                f"layer {chosen.layer} is the most selective: {chosen.selectivity * 100:+.1f} points above labels that "
                "were dealt out at random to words"
            )
        if first.low <= self.majority:
            lines.append("the embeddings alone know no more than the commonest label")
        if best.low <= self.majority:
            lines.append("no layer knows more than the commonest label")
        return lines


@dataclass(frozen=True, slots=True)
class Units:
    """What is probed: the text that each stands in, its label, its type (the same number for the same word)."""

    text_N: Places
    gold_N: Places
    type_N: Places
    names: tuple[str, ...]  # of the labels
    kind: str  # text, word or token


def probed(
    model: Model, examples: Sequence[Example], task: str | None = None, *, limit: int | None = None, seed: int = 0
) -> Probe:
    """The probe of every layer of a loaded model on labelled examples of a task; without one, of texts with labels.

    limit: so many of the texts, drawn by chance. A fifth of them, told by the text alone, is what is measured.
    """
    task = task or registry.tasks_with(Trait.USUAL)[0]
    probing = _kind(task)
    if limit is not None and (type(limit) is not int or limit < FEWEST):
        raise InputError(f"limit is {limit!r}, but must be a whole number of at least {FEWEST}.")
    chosen, notes = _chosen(_checked(examples), probing, limit, seed)
    units, vectors = _read(model, chosen, task)
    kept_back = {id(example) for example in split(chosen, KEPT_BACK)[1]}
    held_out = np.array([id(example) in kept_back for example in chosen])[units.text_N]
    control_N = _dealt(units, held_out, seed)
    layers, right = [], []
    for index, x_ND in enumerate(vectors):
        layer, is_right = _measured(index, torch.from_numpy(x_ND), units, control_N, held_out, seed)
        layers.append(layer)
        right.append(is_right)
    majority, by_type = _baselines(units, held_out)
    best = int(np.argmax([layer.accuracy for layer in layers]))
    lead = _apart(right[best], right[0], units.text_N[held_out], seed) if best else None
    return Probe(
        model=str(model.folder), task=task, unit=units.kind, labels=units.names, layers=tuple(layers),
        majority=majority, by_type=by_type, num_texts=(len(chosen) - len(kept_back), len(kept_back)),
        num_units=(int((~held_out).sum()), int(held_out.sum())), lead=lead, seed=seed, notes=tuple(notes),
    )  # fmt: skip


def untrained(model: Model, seed: int = 0) -> Model:
    """The same model with weights as they begin: what its architecture alone, and its tokens, give a probe."""
    old = model.backbone
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(old)(old.config, ())
    if fresh.spells:
        fresh.spell(model.tokenizer.vocabulary)
    engine = Engine(fresh, model.engine.device, model.engine.budget)
    return type(model)(replace(model._loaded, model=fresh), model.tokenizer, engine)


# What is probed -------------------------------------------------------------------------------------------------------


def _checked(examples: Sequence[Example]) -> list[Example]:
    """The examples, if there is something to be learnt from them."""
    listed = list(examples)
    called = (listed[0].source if listed else "") or "the data"
    if not listed:
        raise InputError(f"{called}: has no examples, so there is nothing to probe.")
    if any(example.gold is None for example in listed):
        raise InputError(f"{called}: has no labels; a probe needs a label for each text.")
    if len(listed) < FEWEST:
        raise InputError(f"{called}: has only {len(listed)} labelled texts, but a probe needs {FEWEST} or more.")
    return listed


def _chosen(
    examples: list[Example], probing: type[Probing], limit: int | None, seed: int
) -> tuple[list[Example], list[str]]:
    """The texts that are read, in their order: all, or as many as are wanted and as a probe can use, by chance."""
    order = generator(seed, "probe texts").permutation(len(examples))
    kept, size = [], 0
    for place in order[:limit].tolist():
        size += probing.size(examples[place])
        if size > MOST_UNITS:
            break
        kept.append(place)
    left = min(limit or len(examples), len(examples)) - len(kept)
    notes = [f"{left:,} texts more were not read: a probe of {MOST_UNITS:,} units is enough"] if left else []
    return [examples[place] for place in sorted(kept)], notes


def _kind(task: str) -> type[Probing]:
    """What is probed of examples of a task."""
    able = {name: spec.probe for name in registry.tasks() if (spec := registry.task(name)).probe is not None}
    if (kind := able.get(task)) is None:
        raise one_of("the task of a probe", task, able)
    return kind()


def _read(model: Model, examples: list[Example], task: str) -> tuple[Units, list[Floats]]:
    """The units of the examples, and of every layer their vectors [N, D]."""
    spec, kind = registry.task(task), _kind(task)
    config = spec.config(max_length=min(spec.config().max_length, model.config.max_length))
    probing, config = kind(config, examples), spec.fit(config, examples)
    parts: list[Columns] = []
    with every_layer(model.backbone) as hidden:
        engine = Engine(hidden, model.engine.device, model.engine.budget)
        for first, chunk in _chunks(examples):
            items = spec.items(chunk, probing.names, model.tokenizer, config)
            columns = probing.columns(items, engine.answers(items))
            parts.append(columns._replace(item_N=columns.item_N + first))
    text_N, gold_N, types, vectors = (np.concatenate(column) for column in zip(*parts, strict=True))
    type_N = np.unique(types, return_inverse=True)[1]
    units = Units(text_N, gold_N, type_N, probing.labels, probing.unit)
    edges = np.cumsum(hidden.widths)[:-1]
    return units, [np.ascontiguousarray(part) for part in np.split(vectors, edges, axis=1)]


def _chunks(examples: Sequence[Example]) -> Iterator[tuple[int, list[Example]]]:
    """The first place and the examples of each stretch of about so many characters."""
    begin, size = 0, 0
    for place, example in enumerate(examples):
        size += sum(map(len, example.texts))
        if size > CHUNK_CHARS or place == len(examples) - 1:
            yield begin, list(examples[begin : place + 1])
            begin, size = place + 1, 0


def _dealt(units: Units, held_out: npt.NDArray[np.bool_], seed: int) -> Places:
    """[N] a label for each unit that hangs on its type alone, as frequent as the true ones (Hewitt and Liang §2.1)."""
    counts = np.bincount(units.gold_N[~held_out], minlength=len(units.names))
    drawn = generator(seed, "control task").choice(
        len(counts), size=int(units.type_N.max()) + 1, p=counts / counts.sum()
    )
    return np.asarray(drawn, dtype=np.int64)[units.type_N]


# Probes ---------------------------------------------------------------------------------------------------------------


def _measured(
    index: int, x_ND: Tensor, units: Units, control_N: Places, held_out: npt.NDArray[np.bool_], seed: int
) -> tuple[Layer, npt.NDArray[np.bool_]]:
    """The numbers of one layer, and which of the units asked were right."""
    num_labels, learnt = len(units.names), torch.from_numpy(~held_out)
    x_ND = _turned(x_ND, learnt)
    gold, control = torch.from_numpy(units.gold_N), torch.from_numpy(control_N)
    strength = _strength(x_ND[learnt], gold[learnt], num_labels, seed)
    predicted, drawn = (
        _linear(x_ND, fitted(x_ND[learnt], each[learnt], num_labels, strength)).argmax(-1).numpy()
        for each in (gold, control)
    )
    right, recalled = (predicted == units.gold_N)[held_out], drawn == control_N
    text_N = units.text_N[held_out]
    counts = _counts(right, text_N)
    accuracy, (low, high) = label_metrics.grouped_accuracy(counts, seed)
    table = label_metrics.confusion(units.gold_N[held_out], predicted[held_out], num_labels)
    apart = _apart(right, recalled[held_out], text_N, seed)
    unseen = ~np.isin(units.type_N[held_out], units.type_N[~held_out])
    return Layer(
        layer=index, accuracy=accuracy, low=low, high=high, f1=label_metrics.macro_f1(table),
        control=float(recalled[held_out].mean()), control_fit=float(recalled[~held_out].mean()),
        control_unseen=float(recalled[held_out][unseen].mean()) if unseen.any() else None,
        selectivity=apart.value, selectivity_low=apart.low, selectivity_high=apart.high, strength=strength,
    ), right  # fmt: skip


def _turned(x_ND: Tensor, learnt_N: Tensor) -> Tensor:
    """The vectors with mean 0 and spread 1 in each number, then turned so that no two numbers hang together.

    A turn changes no linear probe and no |W|, only how fast it is found.
    """
    mean, spread = x_ND[learnt_N].mean(0), x_ND[learnt_N].std(0)
    x_ND = (x_ND - mean) / torch.where(spread > FLAT, spread, 1.0)
    axes_DD: Tensor = torch.linalg.eigh(x_ND[learnt_N].T @ x_ND[learnt_N])[1]
    return x_ND @ axes_DD


def _counts(right: npt.NDArray[np.bool_], text_N: Places) -> npt.NDArray[np.int64]:
    """[texts, 2] right units and units of each text: those of one text are right or wrong together."""
    place = np.unique(text_N, return_inverse=True)[1]
    return np.stack((np.bincount(place, weights=right), np.bincount(place)), axis=1).astype(np.int64)


def _apart(one: npt.NDArray[np.bool_], two: npt.NDArray[np.bool_], text_N: Places, seed: int) -> paired.Difference:
    """The first's accuracy less the second's, over texts."""
    one_N2, two_N2 = (_counts(right, text_N) for right in (one, two))
    return paired.compared(one_N2, two_N2, lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1), "accuracy", seed)


def _baselines(units: Units, held_out: npt.NDArray[np.bool_]) -> tuple[float, float | None]:
    """What the commonest label scores and, of words, the commonest label of each; of unknown ones that of all."""
    gold, types = units.gold_N, units.type_N
    commonest = int(np.bincount(gold[~held_out]).argmax())
    majority = float((gold[held_out] == commonest).mean())
    if units.kind == "text":
        return majority, None
    counts = np.zeros((int(types.max()) + 1, len(units.names)))
    counts[:, commonest] = 0.5
    np.add.at(counts, (types[~held_out], gold[~held_out]), 1)
    return majority, float((counts.argmax(axis=1)[types[held_out]] == gold[held_out]).mean())


def fitted(x_ND: Tensor, gold_N: Tensor, num_labels: int, strength: float) -> Tensor:
    """[D+1, L] the weights, and the biases as their last row: least mean cross-entropy + ½·strength·|W|².

    The search is over W / scale. The loss bends by about var/L + strength along a column of x, so in these units it
    bends alike everywhere, if the columns do not hang together: L-BFGS is then done in a few steps.
    """
    scale_D1 = (x_ND.var(0) / num_labels + strength).rsqrt()[:, None]
    scale = torch.cat((scale_D1, torch.full((1, 1), num_labels**0.5)))
    unit = torch.zeros(x_ND.shape[1] + 1, num_labels, requires_grad=True)
    search = torch.optim.LBFGS(
        [unit], max_iter=STEPS, history_size=10, tolerance_grad=CLOSE, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        search.zero_grad()
        weight = unit * scale
        value = F.cross_entropy(_linear(x_ND, weight), gold_N) + 0.5 * strength * weight[:-1].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.inference_mode(False), torch.enable_grad():
        search.step(loss)  # type: ignore[no-untyped-call]
    return (unit * scale).detach()


def _linear(x_ND: Tensor, weight: Tensor) -> Tensor:
    return torch.addmm(weight[-1], x_ND, weight[:-1])


def _strength(x_ND: Tensor, gold_N: Tensor, num_labels: int, seed: int) -> float:
    """The penalty that is best on a fifth of some units, learnt from the others: a probe must not be a weak one."""
    chosen = torch.from_numpy(generator(seed, "probe strength").permutation(len(gold_N))[:TRIED])
    held_out, learnt = chosen[: len(chosen) // 5], chosen[len(chosen) // 5 :]
    scores = []
    for strength in STRENGTHS:
        weight = fitted(x_ND[learnt], gold_N[learnt], num_labels, strength)
        scores.append(float(-F.cross_entropy(_linear(x_ND[held_out], weight), gold_N[held_out])))
    return STRENGTHS[int(np.argmax(scores))]


# The page -------------------------------------------------------------------------------------------------------------

HEAD = ("layer", "accuracy", "95 %", "macro F1", "control", "selectivity", "95 %")


def cells(layer: Layer) -> tuple[str, ...]:
    """A row of the table, as `HEAD` has it."""
    return (
        str(layer.layer), f"{layer.accuracy:.4f}", f"{layer.low:.4f} to {layer.high:.4f}", f"{layer.f1:.4f}",
        f"{layer.control:.4f}", f"{layer.selectivity:+.4f}",
        f"{layer.selectivity_low:+.4f} to {layer.selectivity_high:+.4f}",
    )  # fmt: skip


def curve(probe: Probe, other: Probe | None = None, size: tuple[float, float] = (620, 360)) -> str:
    """The accuracy of each layer with its interval, and its control's, as a drawing; `other`: an untrained model's."""
    control = [(float(each.layer), each.control) for each in probe.layers]
    lines = [_line("probe", probe), charts.Line("control task", control, marked=True)]
    if other is not None:
        lines.append(_line("untrained weights", other))
    levels = [("commonest label", probe.majority)]
    if probe.by_type is not None:
        levels.append((f"commonest label of each {probe.unit}", probe.by_type))
    sheet = Sheet(f"{probe.model} · {probe.task}: what each layer knows")
    chart = charts.Chart(
        title=f"{probe.unit}s whose label a linear probe reads off a layer", lines=lines, x_name="layer",
        x_labels=[str(each.layer) for each in probe.layers], levels=levels, size=size, percent=True, has_heading=True,
        has_hovers=False,
    )  # fmt: skip
    sheet.add(charts.group(chart, (MARGIN, MARGIN)))
    sheet.reach(MARGIN + size[0], MARGIN + size[1])
    sheet.note("Layer 0 are the embeddings. Bands: 95 % by resampling texts.")
    return sheet.svg()


def _line(name: str, probe: Probe) -> charts.Line:
    """The accuracy of each layer, in its interval."""
    points = [(float(each.layer), each.accuracy) for each in probe.layers]
    return charts.Line(name, points, marked=True, band=[(each.low, each.high) for each in probe.layers])


def page(probe: Probe, other: Probe | None = None) -> str:
    """The curve, the table and what they say, as one file of HTML without script or network."""
    best, (learnt, measured) = probe.best, probe.num_texts
    cards = [(f"accuracy of layer {best.layer}, the best", f"{best.accuracy:.1%}"),
             ("the commonest label", f"{probe.majority:.1%}"), ("labels", f"{len(probe.labels):,}"),
             (f"{probe.unit}s learnt from", f"{probe.num_units[0]:,}"),
             (f"{probe.unit}s asked", f"{probe.num_units[1]:,}")]  # fmt: skip
    lines = [*probe.sentences(), *probe.notes]
    points = "".join(f"<li>{html.text(line[:1].upper() + line[1:])}.</li>" for line in lines)
    rows = [cells(layer) for layer in probe.layers]
    about = (
        f"A logistic regression for each layer learnt from {learnt:,} texts and was asked about {measured:,} others. "
        "The control task has labels that were dealt out at random, one for each "
        + (
            "text, so that nobody can know those of other texts."
            if probe.unit == "text"
            else f"{probe.unit} by its name."
        )
    )
    parts = [
        f"<header><h1>{html.text(f'{probe.model}: what each layer knows')}</h1>{html.cards(cards)}</header>",
        html.section("Curve", f'<div style="max-width:680px">{curve(probe, other)}</div>'),
        html.section("In words", f"<ul>{points}</ul><p class=soft>{html.text(about)}</p>"),
        html.section("Layers", html.table(HEAD, rows, range(1, len(HEAD)))),
        html.section("Untrained weights", html.table(HEAD, [cells(each) for each in other.layers], range(1, len(HEAD)))
                     if other else ""),
    ]  # fmt: skip
    return html.whole(f"{probe.model}: what each layer knows", parts)


def write(path: Path | str, probe: Probe, other: Probe | None = None) -> None:
    """Writes the page (.html), or the curve alone (.svg, .png), by the ending of the path."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise one_of(f"{path}: its ending", ending, ENDINGS)
    if ending == ".png":
        pictures.png(curve(probe, other), path)
    else:
        write_text(path, page(probe, other) if ending == ".html" else curve(probe, other))
