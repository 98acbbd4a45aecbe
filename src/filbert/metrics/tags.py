"""Right and predicted entities of each sentence in, precision, recall, F1 and their intervals out.

Legend: S sentences, C entity types, R resamples.

An entity is right if its start, end and type are all right, whether these count units or characters; entities may lie
within each other. The numbers are seqeval's: which entities broken tags draw is told by tasks.tag.decode.entities.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from filbert.core.errors import InputError, one_of
from filbert.core.random import generator
from filbert.core.records import Span
from filbert.metrics.intervals import widened

Entity = tuple[int, int, str] | Span
Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
RESAMPLES = 1_000
CHUNK_CELLS = 2**22  # numbers of resampled sentences that are held at a time


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
    sides = [[{_key(item) for item in sentence} for sentence in side] for side in (gold, predicted)]
    seen = sorted({name for side in sides for sentence in side for _, _, name in sentence})
    names = tuple(types) or tuple(seen)
    place = {name: index for index, name in enumerate(names)}
    for name in seen:
        if name not in place:
            raise one_of("an entity's type", name, names)
    there, called, right = (np.zeros((len(gold), len(names)), dtype=np.int64) for _ in range(3))
    for row, (wanted, said) in enumerate(zip(*sides, strict=True)):
        for counts, group in ((there, wanted), (called, said), (right, wanted & said)):
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
    told = _scores(*(part.sum(axis=0)[None] for part in (counts.right, counts.called, counts.there)))
    return {name: float(values[0]) for name, values in told.items()}


def _scores(right_RC: npt.NDArray[Any], called_RC: npt.NDArray[Any], there_RC: npt.NDArray[Any]) -> dict[str, Numbers]:
    """The same for many totals at once, each [R]."""
    micro = _ratios(*(part.sum(axis=1) for part in (right_RC, called_RC, there_RC)))
    num_types = np.maximum(((called_RC + there_RC) > 0).sum(axis=1), 1)
    each = _ratios(right_RC, called_RC, there_RC)
    return {**micro, **{f"macro_{name}": values.sum(axis=1) / num_types for name, values in each.items()}}


def _ratios(right: npt.NDArray[Any], called: npt.NDArray[Any], there: npt.NDArray[Any]) -> dict[str, Numbers]:
    return {
        "precision": right / np.maximum(called, 1),
        "recall": right / np.maximum(there, 1),
        "f1": 2 * right / np.maximum(called + there, 1),
    }


def token_counts(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Counts:
    """[S, 2] how many units of each sentence have the right tag, and how many units it has."""
    if [len(row) for row in gold] != [len(row) for row in predicted]:
        raise InputError("gold and predicted tags differ in number: every unit of every sentence needs both.")
    rows = [(sum(map(str.__eq__, wanted, said)), len(wanted)) for wanted, said in zip(gold, predicted, strict=True)]
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def accuracy(tokens: Counts) -> float:
    """The share of units that have the right tag."""
    return float(tokens[:, 0].sum() / max(1, int(tokens[:, 1].sum())))


def intervals(
    counts: Table, tokens: Counts | None = None, share: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """The percentile bootstrap of every score, and of the accuracy of `tokens`, over the sentences (Efron 1979).

    Sentences with equal counts are one kind: drawing sentences with replacement is drawing how many there are of each
    kind from a multinomial. Entities of one sentence are drawn together, for they are right or wrong together. Where
    all resamples are alike, the interval is that of a share of the sentences.
    """
    num_sentences, num_types = counts.right.shape
    extra = np.zeros((num_sentences, 2), dtype=np.int64) if tokens is None else tokens
    whole = np.concatenate((counts.right, counts.called, counts.there, extra), axis=1)
    kinds, many = np.unique(whole, axis=0, return_counts=True)
    random = generator(seed, "bootstrap")
    size = max(1, CHUNK_CELLS // max(1, len(kinds)))
    found: dict[str, list[Numbers]] = {}
    for begin in range(0, resamples if num_sentences else 0, size):
        weights = many / num_sentences
        drawn = random.multinomial(num_sentences, weights / weights.sum(), size=min(size, resamples - begin))
        right, called, there, units = np.split(drawn.astype(float) @ kinds, np.arange(1, 4) * num_types, axis=1)
        for name, values in _scores(right, called, there).items():
            found.setdefault(name, []).append(values)
        if tokens is not None:
            found.setdefault("accuracy", []).append(units[:, 0] / np.maximum(units[:, 1], 1))
    if not found:
        names = [*scores(counts), *(["accuracy"] if tokens is not None else [])]
        return dict.fromkeys(names, (0.0, 0.0))
    edges = ((1 - share) / 2, (1 + share) / 2)
    cut = {name: np.quantile(np.concatenate(values), edges) for name, values in found.items()}
    told = scores(counts) | ({"accuracy": accuracy(tokens)} if tokens is not None else {})
    return {name: widened(pair.tolist(), told[name], num_sentences) for name, pair in cut.items()}


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
