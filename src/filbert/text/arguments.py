"""The argument that should hold texts in (a list, a generator, an array, a column); a list of texts or pairs out.

What is not a list of texts is refused by its name: a string would be read letter by letter, and a table or a dict by
the names of its columns.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

from filbert.core.errors import InputError

SHOWN = 40  # characters of a value that an error shows


@runtime_checkable
class Lazy(Protocol):
    """A frame that is not computed yet, as polars and Spark have them."""

    def collect(self) -> object:
        """Its rows."""
        ...


@runtime_checkable
class Frame(Protocol):
    """A table of pandas or polars: going through it gives the names of its columns, not its rows."""

    columns: Iterable[object]


@runtime_checkable
class Dataset(Protocol):
    """A table of `datasets` or pyarrow."""

    column_names: Iterable[object] | None


@runtime_checkable
class Row(Protocol):
    """A row of an array."""

    def tolist(self) -> object:
        """Its values."""
        ...


def called(value: object) -> str:
    """The type of a value as an error names it: "a dict", "an int", "None"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' or name.startswith('nd') else 'a'} {name}"


def check(values: object, verb: str = "predict", each: str = "text") -> None:
    """Refuses by name whatever is not one text after another. verb: the call that is advised; each: what one is."""
    call = f"{verb}([{'(first, second)' if each == 'pair' else each}])"
    if isinstance(values, str):
        what = "pairs" if each == "pair" else "strings"
        raise InputError(f"{each}s is one string, but a list of {what} is needed: write {call}.")
    if isinstance(values, Lazy):
        raise InputError(f"{verb} was given {called(values)}, which is not computed yet: call its collect() first.")
    if isinstance(values, Mapping | Frame | Dataset):
        names = ", ".join(map(str, list(_columns(values))[:5]))
        raise InputError(f'{verb} was given {called(values)} with {names}; name the texts in it: {verb}(data["…"]).')
    if isinstance(values, set | frozenset):
        raise InputError(f"{verb} was given {called(values)}, which has no order; give a list.")
    if isinstance(values, bytes | bytearray | memoryview | PurePath | io.IOBase) or not isinstance(values, Iterable):
        raise InputError(f"{verb} was given {called(values)}, but takes a list of {each}s: write {call}.")


def listed(values: object, verb: str = "predict", each: str = "text") -> list[Any]:
    """All of an iterable, gone through once; whatever is not one text after another is refused by name."""
    check(values, verb, each)
    assert isinstance(values, Iterable), "check refuses what is not"
    try:
        return list(values)
    except TypeError as error:  # an array without a dimension says only now that it holds one thing
        raise InputError(f"{verb} was given {called(values)}, but takes a list of {each}s ({error}).") from None


def _columns(table: Mapping[object, object] | Frame | Dataset) -> Iterable[object]:
    if isinstance(table, Dataset):
        return table.column_names or ()
    return table if isinstance(table, Mapping) else table.columns


def texts(values: object, verb: str = "predict") -> list[str]:
    """The texts, each a string; numbers, missing values and tuples among them are refused with their place."""
    items = listed(values, verb)
    for index, text in enumerate(items):
        if not isinstance(text, str):
            kind = "None" if text is None else f"of type {type(text).__name__}"
            raise InputError(f"text {index} is {kind}, but must be a string{_way_out(text)}.")
    return list(map(str, items))  # those of NumPy become plain ones


def _way_out(text: object) -> str:
    if isinstance(text, bytes | bytearray):
        return ": decode it first"
    if isinstance(text, float) and text != text:
        return ": a missing value; leave it out, or write '' for it"
    if isinstance(text, tuple | list | Mapping):
        return ": this reads single texts"
    return ""


def pairs(values: object, verb: str = "predict") -> list[tuple[str, str]]:
    """The pairs, each two strings in order, or as pipelines of transformers take them: {"text": …, "text_pair": …}."""
    items = listed(values, verb, "pair")
    return [_pair(index, pair) for index, pair in enumerate(items)]


def _pair(index: int, pair: object) -> tuple[str, str]:
    both = pair
    if isinstance(pair, Mapping) and set(pair) == {"text", "text_pair"}:
        both = (pair["text"], pair["text_pair"])
    elif isinstance(pair, Row):
        both = pair.tolist()
    if not isinstance(both, tuple | list) or len(both) != 2 or not all(isinstance(text, str) for text in both):
        raise InputError(
            f"pair {index} is {str(pair)[:SHOWN]!r}, but must be two strings: this model reads pairs; "
            "`embed` gives single texts their vectors."
        )
    return str(both[0]), str(both[1])


def one(text: object, verb: str) -> str:
    """The one text; anything else is refused by name."""
    if not isinstance(text, str):
        raise InputError(f"{verb} was given {called(text)}, but takes one text: write {verb}(text).")
    return str(text)
