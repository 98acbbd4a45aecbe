"""A model and a text in; a view model out: plain data that the page and the pictures show (docs/design.md).

A view holds tokens, words and attention of every window, what the model says of the text, candidates for its blanks,
and explanations. A page shows one view, or two side by side (`joined`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from filbert.core.errors import InputError
from filbert.core.records import Floats
from filbert.draw import book
from filbert.explain import explanation, map_sums
from filbert.explain.attention_maps import AUTO, Maps, Segments, Token
from filbert.explain.attention_maps import Selection as Some
from filbert.nn import maps
from filbert.tasks.question import Target
from filbert.tasks.task import Asked, Json
from filbert.text.characters import is_cjk

if TYPE_CHECKING:
    from filbert.engine.model import Model

FORMAT = 1
MASK = "[MASK]"
CANDIDATES = 8  # of a blank
MOST_CELLS = 60_000_000  # weights of one view: 512 tokens, 12 layers, 12 heads and half as much again
Explain = tuple[Target, explanation.Config]  # the target, and how


def joined(views: Sequence[Json], title: str = "", language: str | None = None) -> dict[str, Any]:
    """One view, or two side by side, as the page takes them; the language is that of the first text."""
    first = "".join(views[0]["texts"]) if views else ""
    language = language or ("zh" if any(map(is_cjk, first)) else None)
    return {"format": FORMAT, "title": title or first[:60], "language": language, "views": list(views)}


def view(
    model: Model,
    text: Asked,
    *,
    layers: Some = None,
    heads: Some = None,
    reasons: Iterable[Explain] = (),
    task: str | None = None,
    segments: Segments = AUTO,
) -> dict[str, Any]:
    """What a model does with a text, a pair, or whatever `predict` takes: attention, what it says, and why.

    layers, heads: whose attention, all without; an empty list: none's. reasons: what is to be explained, and how.
    """
    texts = _texts(text)
    name = _task(model, task)
    windows, coverage, texts = _windows(model, texts, (layers, heads), segments)
    prediction = None if name is None or not model.reader(task).spec.part else _prediction(model, text, task)
    explanations = [model.explain(text, target=target, task=task, **asdict(how)) for target, how in reasons]
    return {
        "model": called(model), "architecture": type(model.backbone).__name__.lower(), "task": name,
        "labels": list(model.labels), "texts": list(texts), "windows": windows, "coverage": coverage,
        "depth": depth(model), "prediction": prediction, "explanations": [each.as_view() for each in explanations],
        "blanks": _blanks(model, texts[0]),
    }  # fmt: skip


def called(model: Model) -> str:
    """The name of a model: its folder's, or its run's."""
    folder = model.folder
    return str(folder.parent.name if folder.name == "model" else folder.name)


def depth(model: Model) -> int:
    """How many layers of attention a model has, so that a page can ask for one after another."""
    return max((site.layer + 1 for site in maps.sites(model.backbone)), default=0)


def _texts(text: Asked) -> tuple[str, ...]:
    """The one or two texts that are read side by side, of whatever a task takes."""
    texts = (text,) if isinstance(text, str) else tuple(part for part in text if isinstance(part, str))[:2]
    if not texts:
        raise InputError("there is no text to look at; give one.")
    if not isinstance(text, str) and len(text) == 3 and not isinstance(text[1], str):
        return texts[:1]  # a text and two places in it
    return texts


def _task(model: Model, task: str | None) -> str | None:
    """What it was fine-tuned for; None: for nothing."""
    try:
        return str(model.task(task))
    except InputError:
        if task is not None:
            raise
        return None


def _windows(
    model: Model, texts: tuple[str, ...], some: tuple[Some, Some], segments: Segments
) -> tuple[list[dict[str, Any]], float, tuple[str, ...]]:
    layers, heads_ = some
    nothing = (not isinstance(layers, int) and layers is not None and not len(layers)) or not any(texts)
    if nothing:
        return [], 1.0, texts
    seen = model.attention(texts, layers=layers, heads=heads_, segments=segments)
    cells = sum(each.values.size for each in seen.windows)
    if cells > MOST_CELLS:
        raise InputError(
            f"a page of {cells:,} weights would be too much for a browser (at most {MOST_CELLS:,}); name some layers "
            "or heads, or give a shorter text."
        )
    numbers = sorted({each.window for each in seen.windows})
    return (
        [_window([each for each in seen.windows if each.window == one]) for one in numbers],
        seen.coverage,
        seen.texts,
    )


def _window(kinds: Sequence[Maps]) -> dict[str, Any]:
    """All attention of one window; its tokens are those that the first kind asks or, of a HAN, answers with."""
    main = kinds[0]
    tokens = main.rows if main.columns is main.rows else main.columns
    words = main.row_words if main.columns is main.rows else main.column_words
    return {
        "tokens": [asdict(token) for token in tokens],
        "words": [asdict(word) for word in words],
        "attention": [_attention(each, tokens) for each in kinds],
        "heads": _measures(main),
    }


def _attention(seen: Maps, window_tokens: Sequence[Token]) -> dict[str, Any]:
    """One kind's maps; rows and columns are listed where they are not the window's own tokens."""
    shown: dict[str, Any] = {"kind": seen.kind, "layers": list(seen.layers), "heads": list(seen.heads)}
    sides = {"rows": (seen.rows, "row_words", seen.row_words),
             "columns": (seen.columns, "column_words", seen.column_words)}  # fmt: skip
    for side, (tokens, name, words) in sides.items():
        shown[side] = None if tokens is window_tokens else [asdict(token) for token in tokens]
        if tokens is not window_tokens:
            shown[name] = [asdict(word) for word in words]
    return {**shown, "values": book.packed(seen.values)}


def _measures(seen: Maps) -> dict[str, Any] | None:
    if seen.columns is not seen.rows:
        return {"entropy": _table(map_sums.entropy(seen)), "distance": None, "importance": None}
    return {
        "entropy": _table(map_sums.entropy(seen)),
        "distance": _table(map_sums.distance(seen)),
        "importance": None,
    }


def _table(values: Floats) -> list[list[float]]:
    return [[round(float(value), 4) for value in row] for row in values]


def _prediction(model: Model, text: Asked, task: str | None) -> dict[str, Any]:
    """The record of `filbert predict`, without the texts."""
    reader = model.reader(task)
    prediction = model.predict([text], task=task)[0]
    record = reader.record(reader.examples([text])[0], prediction)
    return {key: value for key, value in record.items() if key not in ("line", "second", "coverage")} | (
        {} if prediction.text is not None else {"text": None}
    )


def _blanks(model: Model, text: str) -> list[dict[str, Any]]:
    if MASK not in text or not model.engine.fills:
        return []
    blanks = model.fill(text, top=CANDIDATES)
    return [
        {"start": blank.start, "end": blank.end,
         "candidates": [{"token": each.token, "score": round(each.score, 6)} for each in blank.candidates]}
        for blank in blanks
    ]  # fmt: skip
