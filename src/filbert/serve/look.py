"""A request for a look inside a model in; what the page shows of a text, or why nobody may look, out."""

from __future__ import annotations

from typing import Any, NamedTuple

from filbert.serve.limits import Refused
from filbert.serve.models import Served

LIMIT = 20_000  # characters that the page is shown
CELL_BYTES, TOKEN_BYTES = 2 / 3, 100  # of an answer, about: a weight, packed and in base64; a token
OVERLAP = 4  # windows share about a quarter of their tokens
NO_TORCH, OFF = "no_torch", "off"  # why nobody may look, as the page knows it (page/words.js)
WHY = {
    NO_TORCH: "this server runs the model without torch, which a look inside needs; serve the folder with "
    "--runtime torch.",
    OFF: "this server was started with --no-look, so nobody may look inside its models.",
}


class Look(NamedTuple):
    """What a look is to show."""

    texts: list[str]
    layers: list[int]
    reasons: list[tuple[str | None, dict[str, str]]]


def asked(given: dict[str, Any]) -> Look:
    """{"texts": ["…"], "layers": [0], "explain": {"method": "…", "target": "…"}}."""
    texts = given.get("texts")
    if not isinstance(texts, list) or not 1 <= len(texts) <= 2 or not all(isinstance(text, str) for text in texts):
        raise Refused(422, 'the body must be an object with one text or two: {"texts": ["…"]}.')
    if sum(map(len, texts)) > LIMIT:
        raise Refused(413, f"a text of more than {LIMIT:,} characters cannot be looked at in a page.")
    layers = given.get("layers")
    layers = [0] if layers is None else layers
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
        raise Refused(422, "layers must be a list of whole numbers from 0.")
    return Look(texts, list(dict.fromkeys(layers)), _reasons(given.get("explain")))


def _reasons(given: Any) -> list[tuple[str | None, dict[str, str]]]:
    if given is None:
        return []
    if not isinstance(given, dict) or not all(isinstance(given.get(n), str | None) for n in ("method", "target")):
        raise Refused(422, 'explain must be an object: {"method": "integrated-gradients", "target": "a label"}.')
    method, target = given.get("method"), given.get("target")
    return [(target, {} if method is None else {"method": method})]


def view(served: Served, look: Look) -> dict[str, Any]:
    """What `scene.view` shows; it needs torch, and may end by a stop (core.stopping)."""
    from filbert.explain import explanation
    from filbert.see import view_model

    _check_room(served, look, view_model.MOST_CELLS)
    reasons = [(target, explanation.wanted(fields)) for target, fields in look.reasons]
    texts = look.texts[0] if len(look.texts) == 1 else tuple(look.texts)
    return view_model.view(served.model, texts, layers=look.layers, task=served.asked_task, reasons=reasons)


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
    return windows * read**2 * len(look.layers) * int(getattr(config, "heads", 1)), windows * read


def num_bytes(served: Served, look: Look) -> int:
    """About how many bytes what is shown will have; Refused where an answer may not have so many."""
    cells, tokens = _sizes(served, look)
    found = int(cells * CELL_BYTES) + tokens * TOKEN_BYTES + sum(map(len, look.texts))
    if found > served.limits.answer_bytes:
        raise Refused(413, f"the answer would have about {found:,} bytes, more than {served.limits.answer_bytes:,}; "
                      "look at fewer layers, or at a shorter text.")  # fmt: skip
    return found


def closed(served: Served) -> str | None:
    """Why nobody may look inside this model; None: whoever asks may."""
    if not served.limits.look_s:
        return OFF
    return None if served.has_torch else NO_TORCH


def check_open(served: Served) -> None:
    """Refuses, where nobody may look."""
    why = closed(served)
    if why is not None:
        raise Refused(422 if why == NO_TORCH else 403, WHY[why])


def methods(served: Served) -> list[str]:
    """How what it says can be explained."""
    if closed(served) or not (served.task is not None or served.model.engine.fills):
        return []
    from filbert.explain.attribution import METHODS

    return list(METHODS)
