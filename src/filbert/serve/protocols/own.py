"""Texts in; the records of `filbert predict`, or what the page shows of a text, or why nobody may look, out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from filbert.serve import bodies
from filbert.serve.answers import Predictions
from filbert.serve.limits import Refused
from filbert.serve.shelf import Answered, Served

CELL_BYTES, TOKEN_BYTES = 2 / 3, 100  # of an answer, about: a weight, packed and in base64; a token
OVERLAP = 4  # windows share about a quarter of their tokens
NO_TORCH, OFF = "no_torch", "off"  # why nobody may look, as the page knows it (page/words.js)
WHY = {
    NO_TORCH: "this server runs the model without torch, which a look inside needs; serve the folder with "
    "--runtime torch.",
    OFF: "this server was started with --no-look, so nobody may look inside its models.",
}


def predictions(served: Served, answered: Sequence[Answered]) -> Predictions:
    """A record for each text."""
    return {"model": served.name, "predictions": served.records(answered)}


class Look(NamedTuple):
    """What a look is to show."""

    texts: list[str]
    layers: list[int]
    reasons: list[tuple[str | None, dict[str, str]]]


def look_of(body: bodies.Look) -> Look:
    """What that body asks to see; each layer once."""
    layers = [0] if body.layers is None else body.layers
    explain = body.explain
    reasons = (
        [] if explain is None else [(explain.target, {} if explain.method is None else {"method": explain.method})]
    )
    return Look(body.texts, list(dict.fromkeys(layers)), reasons)


def view(served: Served, look: Look) -> dict[str, Any]:
    """What `scene.view` shows; it needs torch, and may end by a stop (core.stopping)."""
    from filbert.explain import explanation
    from filbert.see import view_model

    _check_room(served, look, view_model.MOST_CELLS)
    reasons = [(target, explanation.wanted(fields)) for target, fields in look.reasons]
    texts = look.texts[0] if len(look.texts) == 1 else tuple(look.texts)
    return view_model.view(served.model, texts, layers=look.layers, task=served.task_option, reasons=reasons)


def _check_room(served: Served, look: Look, most: int) -> None:
    """Refuses maps that no page could show, before they are made."""
    cells, _ = _sizes(served, look)
    if cells > most:
        raise Refused(413, f"a page of about {cells:,} weights would be too much (at most {most:,}); "
                      "look at fewer layers, or at a shorter text.")  # fmt: skip


def _sizes(served: Served, look: Look) -> tuple[int, int]:
    """About how many weights are shown, and how many tokens."""
    config = served.model.config
    tokens, window = served.num_tokens(look.texts), config.max_length
    windows, read = -(-tokens // (window - window // OVERLAP)), min(tokens, window)
    heads = vars(config).get("heads", 1)  # of a model without attention there is nothing to count
    most_heads = max(heads) if isinstance(heads, tuple) else heads  # of a pruned model each layer has its own number
    return windows * read**2 * len(look.layers) * int(most_heads), windows * read


def num_bytes(served: Served, look: Look) -> int:
    """About how many bytes what is shown will have; Refused where an answer may not have so many."""
    cells, tokens = _sizes(served, look)
    size = int(cells * CELL_BYTES) + tokens * TOKEN_BYTES + sum(map(len, look.texts))
    if size > served.limits.answer_bytes:
        raise Refused(413, f"the answer would have about {size:,} bytes, more than {served.limits.answer_bytes:,}; "
                      "look at fewer layers, or at a shorter text.")  # fmt: skip
    return size


def why_closed(served: Served) -> str | None:
    """Why nobody may look inside this model; None: whoever asks may."""
    if not served.limits.look_s:
        return OFF
    return None if served.has_torch else NO_TORCH


def check_open(served: Served) -> None:
    """Refuses, where nobody may look."""
    why = why_closed(served)
    if why is not None:
        raise Refused(422 if why == NO_TORCH else 403, WHY[why])


def methods(served: Served) -> list[str]:
    """How its predictions can be explained."""
    if why_closed(served) or not (served.task is not None or served.model.engine.fills):
        return []
    from filbert.explain.attribution import METHODS

    return list(METHODS)
