"""What files say of a text that has several labels in, its labels apart out; and what balances rare and frequent ones.

A JSON list is a list. In a cell the labels stand between bars, semicolons, enumeration commas or commas, whichever of
these the data have first, or as a JSON list; [] says that there are none.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from filbert.core.errors import InputError

SEPARATORS = ("|", "｜", ";", "；", "、", ",", "，")

MOST_LABELS = 20  # whole numbers of more values than these are taken for numbers, not for names
ENOUGH_ROWS = 10  # from which on labels that mostly stand once are odd

_PYTHONS = re.compile(r"""\s*\[\s*['"].*['"]\s*\]\s*""", re.DOTALL)

Labels = tuple[str, ...]
Gold = str | Iterable[object] | None  # what a file says of a text: a cell, or a list; None: nothing


def parted(golds: Sequence[Gold]) -> list[Labels | None]:
    """The labels of every text of a dataset; None where they are not known."""
    separator = _separator(golds)[0]
    return [_parts(gold, separator) for gold in golds]


def uncut(golds: Sequence[Gold]) -> str:
    """What to know of labels in cells that are cut at one sign and hold another that cuts; nothing where none does."""
    separator, cells = _separator(golds)
    others = [each for each in SEPARATORS if each != separator]
    left = {part.strip() for cell in cells if separator for part in cell.split(separator)}
    left = {part for part in left if any(each in part for each in others)}
    if not left:
        return ""
    return f"labels are cut at {separator!r} only: {len(left):,} hold another such sign, as {min(left)!r} does."


def _separator(golds: Sequence[Gold]) -> tuple[str | None, list[str]]:
    """What stands between the labels of a cell, and all such cells."""
    cells = [gold for gold in golds if isinstance(gold, str) and _listed(gold) is None]
    return next((each for each in SEPARATORS if any(each in cell for cell in cells)), None), cells


def apart(gold: Gold, labels: Collection[str]) -> Labels | None:
    """The labels of one text by the labels that there are: a cell is cut only where that gives known ones."""
    if not isinstance(gold, str) or _listed(gold) is not None:
        return _parts(gold, None)
    if gold.strip() in labels:
        return (gold.strip(),)
    present = [each for each in SEPARATORS if each in gold]
    tried = [_parts(gold, separator) or () for separator in present]
    return next((parts for parts in tried if all(label in labels for label in parts)), tried[0] if tried else (gold,))


def _parts(gold: Gold, separator: str | None) -> Labels | None:
    if gold is None:
        return None
    parts: Iterable[object] | None = _listed(gold) if isinstance(gold, str) else list(gold)
    if parts is None:
        parts = str(gold).split(separator) if separator else [gold]
    return tuple(dict.fromkeys(label for label in (str(each).strip() for each in parts) if label))


def _listed(cell: str) -> list[Any] | None:
    """The JSON list that a cell holds, if it does."""
    if not cell.strip().startswith("["):
        return None
    try:
        value = json.loads(cell)
    except ValueError:
        return None
    return value if isinstance(value, list) else None


def is_pythons(cell: str) -> bool:
    """Whether a cell holds a list of texts as str() writes it, ['a', 'b'], and not as JSON."""
    return _PYTHONS.fullmatch(cell) is not None and _listed(cell) is None


def singles(counts: Mapping[str, int]) -> str:
    """What is odd about labels of which more than half stand once, in rows enough; nothing where that is not so."""
    num_rows, num_single = sum(counts.values()), sum(count == 1 for count in counts.values())
    if num_rows < ENOUGH_ROWS or 2 * num_single <= len(counts) or numbers(counts) is not None:
        return ""
    return f"{num_single:,} of the {len(counts):,} labels stand only once in {num_rows:,} rows"


def numbers(counts: Mapping[str, int]) -> dict[str, float] | None:
    """Each label as a number, NaN for one that is none; None where labels are names, as 0 and 1 may be."""
    values = {}
    for label in counts:
        try:
            values[label] = float(label)
        except ValueError:
            values[label] = math.nan
    finite = [value for value in values.values() if math.isfinite(value)]
    is_measured = any(value % 1 for value in finite) or len(finite) > MOST_LABELS
    num_finite = sum(count for label, count in counts.items() if math.isfinite(values[label]))
    return values if is_measured and num_finite >= 0.9 * sum(counts.values()) else None


def number_range(counts: Mapping[str, int], values: Mapping[str, float]) -> str:
    """A sentence on numbers that stand as labels: the least, the greatest, and their mean."""
    fine = {label: value for label, value in values.items() if math.isfinite(value)}
    mean = sum(value * counts[label] for label, value in fine.items()) / sum(counts[label] for label in fine)
    low, high = min(fine.values()), max(fine.values())
    return f"the labels are numbers from {low:g} to {high:g}, {mean:.3g} on average"


def are_measured(values: Mapping[str, float]) -> bool:
    """Whether numbers are surely no names: three of them or more, and some with a fraction."""
    return len(values) > 2 and any(value % 1 for value in values.values() if math.isfinite(value))


def only(gold: object) -> Any:
    """The one label of a text whose list has one; else the gold as it is."""
    return gold[0] if isinstance(gold, tuple) and len(gold) == 1 else gold


def balance(counts: Mapping[str, int], num_texts: int, several: bool) -> dict[str, float]:
    """Weights with which every label counts the same in all.

    One label each: n / (L · count), as scikit-learn has it. Several: texts without it by texts with it, each label.
    """
    if several:
        return {label: round(max(num_texts - count, 1) / count, 6) for label, count in counts.items()}
    return {label: round(num_texts / (len(counts) * count), 6) for label, count in counts.items()}


def weights(words: str) -> dict[str, float]:
    """{"spam": 2.0} from spam=2, or from a JSON object where a label has a comma or an equals sign in it."""
    try:
        pairs = [word.rpartition("=") for word in words.split(",")]
        by_label = json.loads(words) if words.startswith("{") else {name.strip(): float(x) for name, _, x in pairs}
        weights = {name: float(weight) for name, weight in by_label.items()}
    except (ValueError, TypeError):
        weights = {"": -1.0}
    if not all(name and 0 <= weight < float("inf") for name, weight in weights.items()):
        raise InputError(
            f"task.class_weights is {words[:80]!r}, but must be balanced, or labels with numbers of 0 or more, such as "
            'spam=2,ham=0.5 or {"spam": 2}.'
        )
    return weights
