"""What files say of a text that has several labels in, its labels apart out; and what balances rare and frequent ones.

A JSON list is a list. In a cell the labels stand between bars, semicolons, enumeration commas or commas, whichever of
these the data have first, or as a JSON list; [] says that there are none.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from filbert.core.errors import InputError

SEPARATORS = ("|", "｜", ";", "；", "、", ",", "，")

Labels = tuple[str, ...]


def parted(golds: Sequence[Any]) -> list[Labels | None]:
    """The labels of every text of a dataset; None where they are not known."""
    cells = [gold for gold in golds if isinstance(gold, str) and _listed(gold) is None]
    separator = next((each for each in SEPARATORS if any(each in cell for cell in cells)), None)
    return [_parts(gold, separator) for gold in golds]


def apart(gold: Any, known: Collection[str]) -> Labels | None:
    """The labels of one text by the labels that there are: a cell is cut only where that gives known ones."""
    if not isinstance(gold, str) or _listed(gold) is not None:
        return _parts(gold, None)
    if gold.strip() in known:
        return (gold.strip(),)
    present = [each for each in SEPARATORS if each in gold]
    tried = [_parts(gold, separator) or () for separator in present]
    return next((parts for parts in tried if all(label in known for label in parts)), tried[0] if tried else (gold,))


def _parts(gold: Any, separator: str | None) -> Labels | None:
    if gold is None:
        return None
    listed = _listed(gold) if isinstance(gold, str) else list(gold)
    if listed is None:
        listed = gold.split(separator) if separator else [gold]
    return tuple(dict.fromkeys(label for label in (str(each).strip() for each in listed) if label))


def _listed(cell: str) -> list[Any] | None:
    """The JSON list that a cell holds, if it does."""
    if not cell.strip().startswith("["):
        return None
    try:
        found = json.loads(cell)
    except ValueError:
        return None
    return found if isinstance(found, list) else None


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
        said = json.loads(words) if words.startswith("{") else {name.strip(): float(x) for name, _, x in pairs}
        found = {name: float(weight) for name, weight in said.items()}
    except (ValueError, TypeError):
        found = {"": -1.0}
    if not all(name and 0 <= weight < float("inf") for name, weight in found.items()):
        raise InputError(
            f"task.class_weights is {words[:80]!r}, but must be balanced, or labels with numbers of 0 or more, such as "
            'spam=2,ham=0.5 or {"spam": 2}.'
        )
    return found
