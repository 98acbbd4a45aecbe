"""Examples and a share in, those to learn from and those kept back out: told by the text alone, so always the same.

Examples that share their longest text (questions about one passage, copies of one row) stay on one side, or the one
side would know the other. Which side it is hangs on the text only: rows added later move no other row. But a label that
would stand among those kept back alone is learnt: nothing could be said of it otherwise.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from numbers import Real

from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.forms.gold import labels_of

SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*[%％]")
FRACTION = re.compile(r"0?\.\d+")


def share(value: object) -> float | None:
    """0.1 for "10%", "0.1" and 0.1; None for anything that is no share, such as a file; other numbers are refused."""
    if isinstance(value, str):
        word = value.strip()
        match = SHARE.fullmatch(word)
        if match is None and (FRACTION.fullmatch(word) is None or os.path.exists(value)):
            return None
        part, shown = (float(match[1]) / 100 if match else float(word)), word
    elif isinstance(value, Real):
        part, shown = float(value), repr(value)  # True is 1, which is no share either
    else:
        return None
    if not 0 < part < 1:
        raise InputError(
            f"a share of {shown} cannot be kept back; give one above 0% and below 100%, such as 10% or 0.1."
        )
    return part


def split(examples: Sequence[Example], part: float) -> tuple[list[Example], list[Example]]:
    """Those to learn from, and about that part of all, kept back; both in the order they came."""
    keys = [max(example.texts, key=len) for example in examples]
    learnt = {key for key in keys if _draw(key) >= part}
    labels = [{*labels_of(example.gold)} for example in examples]
    learnt_labels = {label for key, names in zip(keys, labels, strict=True) if key in learnt for label in names}
    if len(set().union(learnt_labels, *labels)) <= len(examples) / 2:  # else they are numbers, each another
        for key, names in zip(keys, labels, strict=True):
            if not names <= learnt_labels:
                learnt.add(key)
                learnt_labels |= names
    sides: tuple[list[Example], list[Example]] = ([], [])
    for key, example in zip(keys, examples, strict=True):
        sides[key not in learnt].append(example)
    if not all(sides):
        raise InputError(
            f"of {len(examples):,} examples no {part:.3g} part can be kept back such that both sides have some; "
            "give a file of others instead."
        )
    return sides


def _draw(text: str) -> float:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, person=b"split").digest()
    return int.from_bytes(digest, "little") / 2**64
