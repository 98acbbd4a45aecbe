"""Vectors and names of models in; the answers that clients of OpenAI's embeddings read out."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np

from filbert.core.records import Floats
from filbert.serve.answers import Embedding, EmbeddingList, OpenAIModel, OpenAIModels
from filbert.serve.bodies import Embeddings
from filbert.serve.shelf import Served


def embeddings(body: Embeddings, served: Served, unit_vectors: Floats) -> EmbeddingList:
    """The list of embeddings, and how many tokens were read for it."""
    tokens = served.num_tokens(body.input)
    data: list[Embedding] = [
        {"object": "embedding", "index": index, "embedding": _base64(row) if body.encoding_format == "base64" else row}
        for index, row in enumerate(unit_vectors)
    ]
    return {
        "object": "list", "data": data, "model": served.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }  # fmt: skip


def _base64(row: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(row, dtype="<f4").tobytes()).decode("ascii")


def models(names: Sequence[str], created: int) -> OpenAIModels:
    """The answer of GET /v1/models."""
    return {"object": "list", "data": [model(name, created) for name in names]}


def model(name: str, created: int) -> OpenAIModel:
    """The answer of GET /v1/models/NAME."""
    return {"id": name, "object": "model", "created": created, "owned_by": "filbert"}
