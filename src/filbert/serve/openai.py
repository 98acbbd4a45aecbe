"""Requests as clients of OpenAI's embeddings send them in, answers in the shapes that they read out."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from filbert.core.records import Floats
from filbert.serve.limits import Limits, Refused, fields_of, strings, whole, word
from filbert.serve.models import Served

FORMATS = ("float", "base64")
MOST_WIDTH = 1 << 20


class Asked(NamedTuple):
    """What /v1/embeddings asks for."""

    texts: list[str]
    model: str | None
    format: str
    width: int | None


def asked(given: Any, limits: Limits) -> Asked:
    """{"input": "…" or ["…"], "model": "…", "encoding_format": "float", "dimensions": 128}."""
    body = fields_of(given, '{"input": "…", "model": "…"}')
    if "input" not in body:
        raise Refused(422, 'the body must have an input: {"input": "…", "model": "…"}.')
    wanted = word(body, "encoding_format")
    wanted = FORMATS[0] if wanted is None else wanted
    if wanted not in FORMATS:
        raise Refused(422, f"encoding_format must be one of: {', '.join(FORMATS)}.")
    word(body, "user")
    width = whole(body, "dimensions", None, MOST_WIDTH)
    return Asked(strings(body["input"], "input", limits), word(body, "model"), wanted, width)


def answer(asked: Asked, served: Served, unit_vectors: Floats) -> dict[str, Any]:
    """The list of embeddings, and how many tokens were read for it."""
    tokens = served.num_tokens(asked.texts)
    data = [
        {"object": "embedding", "index": index, "embedding": _written(row, asked.format)}
        for index, row in enumerate(unit_vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": served.name, "usage": usage}


def _written(row: Floats, form: str) -> Any:
    if form == "base64":
        return base64.b64encode(np.ascontiguousarray(row, dtype="<f4").tobytes()).decode("ascii")
    return row


def models(names: Sequence[str], created: int) -> dict[str, Any]:
    """What GET /v1/models says."""
    return {"object": "list", "data": [model(name, created) for name in names]}


def model(name: str, created: int) -> dict[str, Any]:
    """What GET /v1/models/NAME says."""
    return {"id": name, "object": "model", "created": created, "owned_by": "filbert"}
