"""Requests as clients of text-embeddings-inference send them in, answers in the shapes that they read out.

Its protocol: https://huggingface.co/docs/text-embeddings-inference. `truncate` allows a server to cut a text that is
too long; nothing is cut here, since long texts are read whole, so it is accepted and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from filbert.core.records import Floats, Prediction
from filbert.core.version import VERSION
from filbert.serve.limits import Limits, Refused, check_something, fields_of, flag, some_texts, strings, whole, word
from filbert.serve.models import Said, Served

PREDICT_FORM = '{"inputs": "…"}, a pair {"inputs": ["…", "…"]}, or several {"inputs": [["…"], ["…"]]}'
LEAST = 1e-30  # a probability whose logarithm is still a number


class Embed(NamedTuple):
    """What /embed asks for."""

    texts: list[str]
    normalize: bool
    width: int | None


def embed_asked(given: Any, served: Served) -> Embed:
    """{"inputs": "…" or ["…"], "normalize": true, "dimensions": 128}."""
    body = fields_of(given, '{"inputs": ["…", "…"]}')
    check_cutting(body)
    if word(body, "encoding_format") not in (None, "float"):
        raise Refused(422, "encoding_format must be float here; /v1/embeddings also has base64.")
    width = whole(body, "dimensions", None, served.model.widths[0])
    return Embed(
        strings(body.get("inputs"), "inputs", served.limits), flag(body, "normalize", True), known(width, served)
    )


def known(width: int | None, served: Served) -> int | None:
    """A number of dimensions that the model was trained for; others are refused with those that it has."""
    if width is not None and width not in served.model.widths:
        listed = ", ".join(map(str, served.model.widths))
        raise Refused(422, f"{served.name} has vectors of {listed} dimensions, but {width} are asked for.")
    return width


def embedded(vectors: Floats) -> list[Floats]:
    """A list of vectors, also for one text."""
    return list(vectors)


class Predict(NamedTuple):
    """What /predict asks for: one text or pair, or several."""

    texts: list[Any]
    is_single: bool
    raw: bool


def predict_asked(given: Any, limits: Limits) -> Predict:
    """{"inputs": "…"}, a pair ["…", "…"], or several: [["…"], ["…", "…"]]."""
    body = fields_of(given, PREDICT_FORM)
    check_cutting(body)
    inputs, raw = body.get("inputs"), flag(body, "raw_scores", False)
    if inputs == []:
        raise Refused(422, "inputs is empty; send a text.")
    if isinstance(inputs, str | list):
        check_something(inputs if isinstance(inputs, list) else [inputs], "inputs")
    if isinstance(inputs, str):
        return Predict([inputs], True, raw)
    if not isinstance(inputs, list):
        raise Refused(422, f"inputs must be {PREDICT_FORM}.")
    if isinstance(inputs[0], str):
        if len(inputs) > 2 or not all(isinstance(text, str) for text in inputs):
            raise Refused(422, f"inputs must be {PREDICT_FORM}.")
        return Predict([_one_or_two(inputs)], True, raw)
    some_texts(inputs, "inputs", limits)
    return Predict([_one_or_two(each) for each in inputs], False, raw)


def _one_or_two(given: Any) -> Any:
    if not isinstance(given, list) or not 1 <= len(given) <= 2 or not all(isinstance(text, str) for text in given):
        raise Refused(422, f"inputs must be {PREDICT_FORM}.")
    return given[0] if len(given) == 1 else list(given)


def predicted(asked: Predict, said: Sequence[Said]) -> Any:
    """[{"label": …, "score": …}, …], the best first; a list of them where several were asked."""
    found = [labelled(own, asked.raw) for _, own in said]
    return found[0] if asked.is_single else found


def labelled(said: Prediction, raw: bool = False) -> list[dict[str, Any]]:
    """Every label with its probability, or with what that is made from, up to a constant; the best first."""
    if not said.scores or said.spans or said.text is not None:
        raise Refused(422, 'this model does not label texts; ask it as {"texts": ["…"]}.')

    def score(share: float) -> float:
        if not raw or not 0 <= share <= 1:
            return share
        share = min(max(share, LEAST), 1.0)
        return math.log(share) - (math.log(max(1 - share, LEAST)) if said.labels is not None else 0.0)

    ranked = sorted(said.scores.items(), key=lambda each: -each[1])
    return [{"label": label, "score": score(float(share))} for label, share in ranked]


class Rerank(NamedTuple):
    """What /rerank asks for."""

    query: str
    texts: list[str]
    raw: bool
    return_text: bool


def rerank_asked(given: Any, limits: Limits) -> Rerank:
    """{"query": "…", "texts": ["…", "…"], "raw_scores": false, "return_text": false}."""
    body = fields_of(given, '{"query": "…", "texts": ["…", "…"]}')
    check_cutting(body)
    query = word(body, "query")
    if not query:
        raise Refused(422, "query must be a text that is not empty.")
    if not isinstance(body.get("texts"), list):
        raise Refused(422, 'texts must be a list: {"query": "…", "texts": ["…", "…"]}.')
    texts = strings(body["texts"], "texts", limits)
    return Rerank(query, texts, flag(body, "raw_scores", False), flag(body, "return_text", False))


def check_head(served: Served) -> None:
    """Refuses to rank by vectors where a published folder has a head that may be meant for pairs: it does not say."""
    if served.task == "classify" and not served.is_told:
        raise Refused(
            422,
            f"{served.name} has a head, and its folder does not say whether it reads pairs: serve it with --task pair "
            "to rank by it, or ask /similarity for the cosines of its vectors.",
        )


def pair_scores(served: Served, said: Sequence[Said], raw: bool) -> list[float]:
    """How well each pair fits: a number, raw or squeezed between 0 and 1, or the share of the second label of two."""
    labels = list(served.model.labels)
    out = []
    for _, own in said:
        if own.label is None and own.labels is None:
            value = float(next(iter(own.scores.values())))
            out.append(value if raw else 1 / (1 + math.exp(-max(-700.0, min(700.0, value)))))
            continue
        if len(labels) != 2:
            raise Refused(
                422, f"{served.name} has {len(labels)} labels, but texts are ranked by one of two, or by a number."
            )
        share = float(own.scores[labels[1]])
        out.append(math.log(max(share, LEAST)) - math.log(max(1 - share, LEAST)) if raw else share)
    return out


def reranked(asked: Rerank, scores: Sequence[float]) -> list[dict[str, Any]]:
    """[{"index": …, "score": …}, …], the best first."""
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    texts = [{"text": text} if asked.return_text else {} for text in asked.texts]
    return [{"index": index, "score": float(scores[index]), **texts[index]} for index in order]


def similarity_asked(given: Any, limits: Limits) -> tuple[str, list[str]]:
    """{"inputs": {"source_sentence": "…", "sentences": ["…"]}}."""
    form = '{"inputs": {"source_sentence": "…", "sentences": ["…"]}}'
    inputs = fields_of(fields_of(given, form).get("inputs"), form)
    source = word(inputs, "source_sentence")
    if not source or not isinstance(inputs.get("sentences"), list):
        raise Refused(422, f"the body must be {form}.")
    return source, strings(inputs["sentences"], "sentences", limits)


def cosines(unit_vectors: Floats) -> list[float]:
    """How near the others are to the first."""
    return [float(value) for value in np.asarray(unit_vectors[1:] @ unit_vectors[0])]


def info(served: Served) -> dict[str, Any]:
    """What GET /info says of the model."""
    labels = {str(index): label for index, label in enumerate(served.model.labels)}
    label_form = {"id2label": labels, "label2id": {label: int(index) for index, label in labels.items()}}
    kind: dict[str, Any] = {"embedding": {"pooling": served.model.pool}}
    if labels:
        kind = {"reranker" if served.task == "pair" else "classifier": label_form}
    return {
        "model_id": served.name, "model_sha": None, "model_dtype": "float32", "model_type": kind,
        "max_concurrent_requests": served.limits.waiting, "max_input_length": served.limits.tokens,
        "max_batch_tokens": served.budget,
        "max_client_batch_size": served.limits.texts, "auto_truncate": False, "version": VERSION,
    }  # fmt: skip


def check_cutting(body: Mapping[str, Any]) -> None:
    """Refuses fields about cutting texts that mean nothing; what they may be changes nothing, since nothing is cut."""
    flag(body, "truncate", False)
    if word(body, "truncation_direction") not in (None, "Right", "Left", "right", "left"):
        raise Refused(422, "truncation_direction must be Right or Left.")
    if word(body, "prompt_name") is not None:
        raise Refused(422, "prompt_name is not taken here; write what is to stand before the text into it.")
