"""What a model answered in; the answers that clients of text-embeddings-inference read out.

Its protocol: https://huggingface.co/docs/text-embeddings-inference. `truncate` allows a server to cut a text that is
too long; nothing is cut here, since long texts are read whole, so it is accepted and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from filbert.core.records import Floats, Prediction
from filbert.core.version import VERSION
from filbert.serve.answers import Info, Label, Ranked
from filbert.serve.bodies import Rerank
from filbert.serve.limits import Refused
from filbert.serve.shelf import Answered, Served

LEAST = 1e-30  # a probability whose logarithm is still a number


def width(dimensions: int | None, served: Served) -> int | None:
    """A number of dimensions that the model was trained for; others are refused with those that it has."""
    if dimensions is not None and dimensions not in served.model.widths:
        listed = ", ".join(map(str, served.model.widths))
        raise Refused(422, f"{served.name} has vectors of {listed} dimensions, but {dimensions} are asked for.")
    return dimensions


def labels(answered: Sequence[Answered], is_single: bool, raw: bool) -> list[Label] | list[list[Label]]:
    """Labels and scores, the best first; a list of them for each text where several were asked."""
    every = [ranked_labels(prediction, raw) for _, prediction in answered]
    return every[0] if is_single else every


def ranked_labels(prediction: Prediction, raw: bool = False) -> list[Label]:
    """Every label with its probability, or with what that is made from, up to a constant; the best first."""
    if not prediction.scores or prediction.spans or prediction.text is not None:
        raise Refused(422, 'this model does not label texts; ask it as {"texts": ["…"]}.')

    def score(share: float) -> float:
        if not raw or not 0 <= share <= 1:
            return share
        share = min(max(share, LEAST), 1.0)
        return math.log(share) - (math.log(max(1 - share, LEAST)) if prediction.labels is not None else 0.0)

    ranked = sorted(prediction.scores.items(), key=lambda each: -each[1])
    return [{"label": label, "score": score(float(share))} for label, share in ranked]


def check_ranks(served: Served) -> None:
    """Refuses to rank by vectors where a published folder has a head that may be meant for pairs: it does not say."""
    if served.wire.may_rank and not served.has_task_file:
        raise Refused(
            422,
            f"{served.name} has a head, and its folder does not say whether it reads pairs: serve it with --task pair "
            "to rank by it, or ask /similarity for the cosines of its vectors.",
        )


def pair_scores(served: Served, answered: Sequence[Answered], raw: bool) -> list[float]:
    """How well each pair fits: a number, raw or squeezed between 0 and 1, or the share of the second label of two."""
    names = list(served.model.labels)
    scores = []
    for _, prediction in answered:
        if prediction.label is None and prediction.labels is None:
            value = float(next(iter(prediction.scores.values())))
            scores.append(value if raw else 1 / (1 + math.exp(-max(-700.0, min(700.0, value)))))
            continue
        if len(names) != 2:
            raise Refused(
                422, f"{served.name} has {len(names)} labels, but texts are ranked by one of two, or by a number."
            )
        share = float(prediction.scores[names[1]])
        scores.append(math.log(max(share, LEAST)) - math.log(max(1 - share, LEAST)) if raw else share)
    return scores


def ranked(body: Rerank, scores: Sequence[float]) -> list[Ranked]:
    """The texts by how well they fit, the best first."""
    results: list[Ranked] = []
    for index in sorted(range(len(scores)), key=lambda index: (-scores[index], index)):
        result: Ranked = {"index": index, "score": float(scores[index])}
        if body.return_text:
            result["text"] = body.texts[index]
        results.append(result)
    return results


def cosines(unit_vectors: Floats) -> list[float]:
    """How near the others are to the first."""
    return [float(value) for value in np.asarray(unit_vectors[1:] @ unit_vectors[0])]


def info(served: Served) -> Info:
    """The answer of GET /info."""
    names = {str(index): label for index, label in enumerate(served.model.labels)}
    of_labels = {"id2label": names, "label2id": {label: int(index) for index, label in names.items()}}
    kind: dict[str, object] = {"embedding": {"pooling": served.model.pool}}
    if names:
        kind = {"reranker" if served.wire.ranks else "classifier": of_labels}
    return {
        "model_id": served.name, "model_sha": None, "model_dtype": "float32", "model_type": kind,
        "max_concurrent_requests": served.limits.waiting, "max_input_length": served.limits.tokens,
        "max_batch_tokens": served.budget,
        "max_client_batch_size": served.limits.texts, "auto_truncate": False, "version": VERSION,
    }  # fmt: skip
