"""Documents and their scores in; the answer that clients of Jina's, Cohere's and vLLM's rerankers read out."""

from __future__ import annotations

from collections.abc import Sequence

from filbert.serve.answers import RankedDocument, RankedDocuments
from filbert.serve.bodies import RerankDocuments
from filbert.serve.shelf import Served


def ranked(body: RerankDocuments, served: Served, scores: Sequence[float]) -> RankedDocuments:
    """The documents by how well they fit, the best first, and how many tokens were read for it."""
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[: body.top_n]
    results: list[RankedDocument] = []
    for index in order:
        result: RankedDocument = {"index": index, "relevance_score": float(scores[index])}
        if body.return_documents:
            result["document"] = {"text": body.documents[index]}
        results.append(result)
    tokens = served.num_tokens([body.query, *body.documents])
    return {"object": "list", "model": served.name, "results": results, "usage": {"total_tokens": tokens}}
