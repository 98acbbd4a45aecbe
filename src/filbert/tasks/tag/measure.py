"""Right and predicted entities of each sentence in, precision, recall, F1 and their intervals out.

Legend: S sentences, C entity types, R resamples.

An entity is right if its start, end and type are all right, whether these count units or characters; entities may lie
within each other. The numbers are seqeval's: which entities broken tags draw says tasks.tag.decode.entities.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, one_of
from filbert.core.records import Span, Wholes
from filbert.metrics import bootstrap
from filbert.metrics.intervals import widened

Entity = tuple[int, int, str] | Span
Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """How many entities of each type each sentence has: right ones, predicted ones and gold ones."""

    types: tuple[str, ...]
    right: Counts  # [S, C]
    called: Counts  # [S, C] predicted, right or wrong
    there: Counts  # [S, C] in the gold data


def table(gold: Sequence[Iterable[Entity]], predicted: Sequence[Iterable[Entity]], types: Sequence[str] = ()) -> Table:
    """The counts of each sentence; without `types`, they are those that occur, in alphabetical order."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(gold)} sentences have gold entities, but {len(predicted)} predicted ones.")
    sides = [[set(map(_key, sentence)) for sentence in side] for side in (gold, predicted)]
    seen = sorted({name for sentence in (*sides[0], *sides[1]) for _, _, name in sentence})
    names = tuple(types) or tuple(seen)
    place = {name: index for index, name in enumerate(names)}
    for name in seen:
        if name not in place:
            raise one_of("an entity's type", name, names)
    there, called, right = (np.zeros((len(gold), len(names)), dtype=np.int64) for _ in range(3))
    for row, (in_gold, in_predicted) in enumerate(zip(*sides, strict=True)):
        groups = ((there, in_gold), (called, in_predicted), (right, in_gold & in_predicted))
        for counts, group in groups:
            for _, _, name in group:
                counts[row, place[name]] += 1
    return Table(names, right, called, there)


def _key(item: Entity) -> tuple[int, int, str]:
    """What must be right; a span's score is not."""
    return (item.start, item.end, item.label) if isinstance(item, Span) else (int(item[0]), int(item[1]), item[2])


def per_type(counts: Table) -> dict[str, Numbers]:
    """{"precision", "recall", "f1", "support"}, each [C]; 0 where there is nothing to divide by."""
    right, called, there = (part.sum(axis=0) for part in (counts.right, counts.called, counts.there))
    return {**_ratios(right, called, there), "support": there.astype(np.float64)}


def scores(counts: Table) -> dict[str, float]:
    """Precision, recall and F1 of all entities (micro), and `macro_` the means over the types that occur."""
    totals = (part.sum(axis=0)[None] for part in (counts.right, counts.called, counts.there))
    return {name: float(values[0]) for name, values in _scores(*totals).items()}


def _scores(right_RC: Wholes, called_RC: Wholes, there_RC: Wholes) -> dict[str, Numbers]:
    """The same for many totals at once, each [R]."""
    micro = _ratios(*(part.sum(axis=1) for part in (right_RC, called_RC, there_RC)))
    num_types = np.maximum(((called_RC + there_RC) > 0).sum(axis=1), 1)
    each = _ratios(right_RC, called_RC, there_RC)
    return {**micro, **{f"macro_{name}": values.sum(axis=1) / num_types for name, values in each.items()}}


def _ratios(right: Wholes, called: Wholes, there: Wholes) -> dict[str, Numbers]:
    return {
        "precision": right / np.maximum(called, 1),
        "recall": right / np.maximum(there, 1),
        "f1": 2 * right / np.maximum(called + there, 1),
    }


def token_counts(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Counts:
    """[S, 2] how many units of each sentence have the right tag, and how many units it has."""
    if [len(row) for row in gold] != [len(row) for row in predicted]:
        raise InputError("gold and predicted tags differ in number: every unit of every sentence needs both.")
    rows = [(sum(map(str.__eq__, right, tags)), len(right)) for right, tags in zip(gold, predicted, strict=True)]
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def accuracy(tokens: Counts) -> float:
    """The share of units that have the right tag."""
    return float(tokens[:, 0].sum() / max(1, int(tokens[:, 1].sum())))


def intervals(
    counts: Table,
    tokens: Counts | None = None,
    level: float = 0.95,
    resamples: int = bootstrap.RESAMPLES,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """The percentile bootstrap of every score, and of the accuracy of `tokens`, over the sentences (Efron 1979).

    Sentences with equal counts are one kind. Entities of one sentence are drawn together, for they are right or wrong
    together. Where all resamples are alike, the interval is that of a share of the sentences.
    """
    num_sentences, num_types = counts.right.shape
    extra = np.zeros((num_sentences, 2), dtype=np.int64) if tokens is None else tokens
    whole = np.concatenate((counts.right, counts.called, counts.there, extra), axis=1)
    values = scores(counts) | ({"accuracy": accuracy(tokens)} if tokens is not None else {})
    if not num_sentences:
        return dict.fromkeys(values, (0.0, 0.0))
    kinds, many = np.unique(whole, axis=0, return_counts=True)

    def drawn_scores(drawn_RU: Counts) -> dict[str, Numbers]:
        sums = drawn_RU.astype(float) @ kinds
        right, called, there, units = np.split(sums, np.arange(1, 4) * num_types, axis=1)
        of_units = {} if tokens is None else {"accuracy": units[:, 0] / np.maximum(units[:, 1], 1)}
        return _scores(right, called, there) | of_units

    drawn = bootstrap.of_counts(many, drawn_scores, seed=seed, level=level, resamples=resamples)
    return {name: widened(pair, values[name], num_sentences) for name, pair in drawn.items()}


def summary(counts: Table, tokens: Counts | None = None, seed: int = 0) -> dict[str, Any]:
    """All of it as one object for people and machines: metrics at the top, "intervals" and "types"."""
    columns = per_type(counts)
    each = {
        name: {column: round(float(values[place]), 6) for column, values in columns.items()}
        for place, name in enumerate(counts.types)
    }
    return {
        **scores(counts),
        **({} if tokens is None else {"accuracy": accuracy(tokens)}),
        "num_sentences": len(counts.right),
        "num_entities": int(counts.there.sum()),
        "intervals": {name: list(pair) for name, pair in intervals(counts, tokens, seed=seed).items()},
        "types": each,
    }
