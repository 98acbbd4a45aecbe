"""Requests as `huggingface_hub`'s InferenceClient sends them in, answers as it reads them out, a pipeline at a time.

A client is made with the address of a model, `InferenceClient("http://host:8000/models/news")`, and posts
{"inputs": …, "parameters": {…}} there; `…/models/news/pipeline/feature-extraction` asks for one pipeline by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from filbert.core.errors import one_of
from filbert.core.records import Prediction
from filbert.engine.blanks import Blank
from filbert.serve import bodies
from filbert.serve.answers import Build, Candidate, Entity, Label
from filbert.serve.bodies import Context, parse
from filbert.serve.limits import Refused, fields_of
from filbert.serve.protocols import tei
from filbert.serve.queue import Promised
from filbert.serve.shelf import MASK, Answered, Served, cut

Fields = Mapping[str, object]
T = TypeVar("T")
OF_VECTORS = frozenset(bodies.Vectors.model_fields) - {"inputs", "model"}
TOP = 5  # candidates of a blank


class Wait(Protocol):
    """Puts a question into a queue, and waits for its answer."""

    async def __call__(self, ask: Callable[[], Promised[T]]) -> T:
        """The answer."""


async def feature_extraction(served: Served, fields: Fields, wait: Wait) -> Build:
    """A vector for each text."""
    body = parse(bodies.FeatureExtraction, fields, Context(served.limits, served.model.widths[0]))
    width = tei.width(body.dimensions, served)
    vectors = await wait(lambda: served.vectors(body.inputs))
    return lambda: list(cut(vectors, width, body.normalize))


async def sentence_similarity(served: Served, fields: Fields, wait: Wait) -> Build:
    """The cosine of each sentence to the first."""
    body = parse(bodies.SentenceSimilarity, fields, Context(served.limits)).inputs
    vectors = await wait(lambda: served.vectors([body.source_sentence, *body.sentences]))
    return lambda: tei.cosines(cut(vectors, None, True))


async def text_classification(served: Served, fields: Fields, wait: Wait) -> Build:
    """For each text its labels and their probabilities, the best first."""
    parameters = parse(bodies.Classification, fields).parameters or bodies.ClassificationParameters()
    texts = _texts(served, fields)
    answered = await wait(lambda: served.predicted(list(texts)))

    def build() -> list[list[Label]]:
        labels = [tei.ranked_labels(prediction)[: parameters.top_k] for _, prediction in answered]
        applied = _applied(answered[0][1])
        if parameters.function_to_apply not in (None, applied):
            raise Refused(422, f"function_to_apply: {served.name} was trained with {applied}; leave it out.")
        return labels

    return build


def _applied(prediction: Prediction) -> str:
    """The function that made scores of the logits."""
    return "sigmoid" if prediction.labels is not None else "none" if prediction.label is None else "softmax"


async def token_classification(served: Served, fields: Fields, wait: Wait) -> Build:
    """The entities of a text; for a list of texts, of each."""
    parameters = parse(bodies.TokenClassification, fields).parameters or bodies.TokenParameters()
    left_out = frozenset(parameters.ignore_labels or ())
    if not served.wire.has_entities:
        raise Refused(422, f"{served.name} does not tag texts; it was fine-tuned for {served.task or 'nothing'}.")
    texts = _texts(served, fields)
    answered = await wait(lambda: served.predicted(list(texts)))

    def build() -> list[Entity] | list[list[Entity]]:
        every = [_entities(each, left_out) for each in answered]
        return every[0] if isinstance(fields.get("inputs"), str) else every

    return build


def _entities(answered: Answered, left_out: frozenset[str]) -> list[Entity]:
    example, prediction = answered
    return [
        {"entity_group": span.label, "score": float(span.score),
         "word": example.texts[0][span.start : span.end], "start": span.start, "end": span.end}
        for span in prediction.spans if span.label not in left_out
    ]  # fmt: skip


async def fill_mask(served: Served, fields: Fields, wait: Wait) -> Build:
    """What could stand at the [MASK] of a text; a list for each where it has several, or where there are several."""
    parameters = parse(bodies.FillMask, fields).parameters or bodies.FillParameters()
    texts = _texts(served, fields)
    top = TOP if parameters.top_k is None else parameters.top_k
    blanks_of_texts = await wait(lambda: served.fills(texts, top))

    def build() -> object:
        pairs = zip(texts, blanks_of_texts, strict=True)
        every = [[_candidates(served, text, blank) for blank in blanks] for text, blanks in pairs]
        each = [blanks[0] if len(blanks) == 1 else blanks for blanks in every]
        return each[0] if isinstance(fields.get("inputs"), str) else each

    return build


def _candidates(served: Served, text: str, blank: Blank) -> list[Candidate]:
    return [
        {"score": each.score, "token": served.model.tokenizer.id_of(each.token), "token_str": each.text,
         "sequence": text[: blank.start] + each.text + text[blank.end :]}
        for each in blank.candidates
    ]  # fmt: skip


def _texts(served: Served, fields: Fields) -> list[str]:
    return parse(bodies.Texts, fields, Context(served.limits)).inputs


PIPELINES: Mapping[str, Callable[[Served, Fields, Wait], Awaitable[Build]]] = {
    "feature-extraction": feature_extraction,
    "sentence-similarity": sentence_similarity,
    "text-classification": text_classification,
    "token-classification": token_classification,
    "fill-mask": fill_mask,
}


async def answer(served: Served, pipeline: str | None, fields: Fields, wait: Wait) -> Build:
    """What makes a pipeline's answer; without one, of that which the model was made for."""
    if fields.get("parameters") is not None:
        fields_of(fields["parameters"], bodies.HUB_FORM, "parameters")
    if pipeline is not None and pipeline not in PIPELINES:
        raise Refused(404, str(one_of("the pipeline", pipeline[:40], PIPELINES)))
    name = pipeline or usual(served, fields)
    if name != "feature-extraction" and (others := sorted(n for n in OF_VECTORS if fields.get(n) is not None)):
        raise Refused(422, f"the field {others[0]} is not read for {name}; it is for feature-extraction.")
    return await PIPELINES[name](served, fields, wait)


def usual(served: Served, fields: Fields) -> str:
    """The pipeline of a model that is named by none: by its task, else blanks where there are any, else vectors."""
    inputs = fields.get("inputs")
    if isinstance(inputs, dict):
        return "sentence-similarity"
    if (of_task := served.wire.pipeline) is not None:
        return of_task
    texts = inputs if isinstance(inputs, list) else [inputs]
    has_blanks = any(isinstance(text, str) and MASK in text for text in texts)
    return "fill-mask" if has_blanks and served.model.engine.fills else "feature-extraction"
