"""Requests to /v1/rerank in, as clients of Jina's, Cohere's and vLLM's rerankers send them; their answers out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from filbert.serve.limits import Limits, Refused, fields_of, flag, strings, whole, word
from filbert.serve.models import Served

FORM = '{"query": "…", "documents": ["…", "…"]}'
MOST_TOP = 1 << 20


class Asked(NamedTuple):
    """What /v1/rerank asks for."""

    query: str
    texts: list[str]
    top: int | None
    return_text: bool


def asked(given: Any, limits: Limits) -> Asked:
    """{"query": "…", "documents": ["…", {"text": "…"}], "top_n": 3, "return_documents": true, "model": "…"}."""
    body = fields_of(given, FORM)
    query, documents = word(body, "query"), body.get("documents")
    if not query:
        raise Refused(422, "query must be a text that is not empty.")
    if not isinstance(documents, list):
        raise Refused(422, f"documents must be a list: {FORM}.")
    texts = [each.get("text") if isinstance(each, dict) else each for each in documents]
    top = whole(body, "top_n", None, MOST_TOP)
    return Asked(query, strings(texts, "documents", limits), top, flag(body, "return_documents", True))


def answer(asked: Asked, served: Served, scores: Sequence[float]) -> dict[str, Any]:
    """The documents by how well they fit, the best first, and how many tokens were read for it."""
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[: asked.top]
    texts = [{"document": {"text": text}} if asked.return_text else {} for text in asked.texts]
    results = [{"index": index, "relevance_score": float(scores[index]), **texts[index]} for index in order]
    tokens = served.num_tokens([asked.query, *asked.texts])
    return {"object": "list", "model": served.name, "results": results, "usage": {"total_tokens": tokens}}
