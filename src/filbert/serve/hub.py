"""Requests as `huggingface_hub`'s InferenceClient sends them in, answers as it reads them out, a pipeline at a time.

A client is made with the address of a model, `InferenceClient("http://host:8000/models/news")`, and posts
{"inputs": …, "parameters": {…}} there; `…/models/news/pipeline/feature-extraction` asks for one pipeline by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from filbert.core.errors import one_of
from filbert.core.records import Prediction
from filbert.engine.blanks import Blank
from filbert.serve import tei
from filbert.serve.batcher import Promised
from filbert.serve.limits import Refused, fields_of, flag, strings, whole, word
from filbert.serve.models import Served, cut
from filbert.serve.schemas import CUTTING, EMBED, OPTIONS

Ask = Callable[[], Promised]
Wait = Callable[[Ask], Awaitable[Any]]  # asks a queue, and waits for what it promised
Build = Callable[[], Any]  # makes an answer, which may take a while
FORM = '{"inputs": "…", "parameters": {}}'
OF_VECTORS = frozenset(EMBED["properties"]) - {"inputs", "model"}
TOP, MOST_TOP = 5, 1_000
STRATEGIES = ("simple", "first", "average", "max")  # all of which tell whole entities


async def feature_extraction(served: Served, body: dict[str, Any], wait: Wait) -> Build:
    """A vector for each text."""
    _parameters(body, set())
    asked = tei.embed_asked({"normalize": False, **{k: v for k, v in body.items() if v is not None}}, served)
    vectors = await wait(lambda: served.vectors(asked.texts))
    return lambda: tei.embedded(cut(vectors, asked.width, asked.normalize))


async def sentence_similarity(served: Served, body: dict[str, Any], wait: Wait) -> Build:
    """The cosine of each sentence to the first."""
    tei.check_cutting(_parameters(body, set(CUTTING)))
    source, others = tei.similarity_asked(body, served.limits)
    vectors = await wait(lambda: served.vectors([source, *others]))
    return lambda: tei.cosines(cut(vectors, None, True))


async def text_classification(served: Served, body: dict[str, Any], wait: Wait) -> Build:
    """For each text its labels and their probabilities, the best first."""
    given = _parameters(body, {"function_to_apply", "top_k"})
    wanted = word(given, "function_to_apply")
    top = whole(given, "top_k", None, MOST_TOP)
    texts = strings(body.get("inputs"), "inputs", served.limits)
    said = await wait(lambda: served.predicted(texts))

    def built() -> Any:
        found = [tei.labelled(own)[:top] for _, own in said]
        applied = _applied(said[0][1])
        if wanted not in (None, applied):
            raise Refused(422, f"function_to_apply: {served.name} was trained with {applied}; leave it out.")
        return found

    return built


def _applied(said: Prediction) -> str:
    """What made the scores of a model's output."""
    return "sigmoid" if said.labels is not None else "none" if said.label is None else "softmax"


async def token_classification(served: Served, body: dict[str, Any], wait: Wait) -> Build:
    """The entities of a text; for a list of texts, of each."""
    given = _parameters(body, {"aggregation_strategy", "ignore_labels", "stride"})
    if word(given, "aggregation_strategy") not in (None, *STRATEGIES):
        raise Refused(
            422, f"aggregation_strategy must be one of: {', '.join(STRATEGIES)}; entities are told whole, not by token."
        )
    whole(given, "stride", None, 1 << 20)
    ignored = given.get("ignore_labels")
    if not isinstance(ignored, list | None) or not all(isinstance(label, str) for label in ignored or ()):
        raise Refused(422, "ignore_labels must be a list of labels.")
    left_out = frozenset(ignored or ())
    if served.task != "tag":
        raise Refused(422, f"{served.name} does not tag texts; it was fine-tuned for {served.task or 'nothing'}.")
    texts = strings(body.get("inputs"), "inputs", served.limits)
    said = await wait(lambda: served.predicted(texts))

    def built() -> Any:
        found = [
            [
                {"entity_group": span.label, "score": float(span.score),
                 "word": example.texts[0][span.start : span.end], "start": span.start, "end": span.end}
                for span in own.spans if span.label not in left_out
            ]
            for example, own in said
        ]  # fmt: skip
        return found[0] if isinstance(body.get("inputs"), str) else found

    return built


async def fill_mask(served: Served, body: dict[str, Any], wait: Wait) -> Build:
    """What could stand at the [MASK] of a text; a list for each where it has several, or where there are several."""
    given = _parameters(body, {"top_k", "targets"})
    if given.get("targets") is not None:
        raise Refused(422, "targets: only the likeliest words are told, not those of a list; ask for more with top_k.")
    top = whole(given, "top_k", TOP, MOST_TOP)
    texts = strings(body.get("inputs"), "inputs", served.limits)
    found = await wait(lambda: served.fills(texts, top or TOP))

    def built() -> Any:
        pairs = zip(texts, found, strict=True)
        told = [[_candidates(served, text, blank) for blank in blanks] for text, blanks in pairs]
        each = [blanks[0] if len(blanks) == 1 else blanks for blanks in told]
        return each[0] if isinstance(body.get("inputs"), str) else each

    return built


def _candidates(served: Served, text: str, blank: Blank) -> list[dict[str, Any]]:
    return [
        {"score": own.score, "token": served.model.tokenizer.id_of(own.token), "token_str": own.text,
         "sequence": text[: blank.start] + own.text + text[blank.end :]}
        for own in blank.candidates
    ]  # fmt: skip


PIPELINES: Mapping[str, Callable[[Served, dict[str, Any], Wait], Awaitable[Build]]] = {
    "feature-extraction": feature_extraction,
    "sentence-similarity": sentence_similarity,
    "text-classification": text_classification,
    "token-classification": token_classification,
    "fill-mask": fill_mask,
}


async def answer(served: Served, pipeline: str | None, given: Any, wait: Wait) -> Build:
    """What makes a pipeline's answer; without one, of that which the model was made for."""
    body = fields_of(given, FORM)
    if body.get("parameters") is not None:
        fields_of(body["parameters"], FORM, "parameters")
    if pipeline is not None and pipeline not in PIPELINES:
        raise Refused(404, str(one_of("the pipeline", pipeline[:40], PIPELINES)))
    name = pipeline or usual(served, body)
    if name != "feature-extraction" and (other := sorted(n for n in OF_VECTORS if body.get(n) is not None)):
        raise Refused(422, f"the field {other[0]} is not read for {name}; it is for feature-extraction.")
    options = {} if body.get("options") is None else fields_of(body["options"], FORM, "options")
    for option in OPTIONS["properties"]:
        flag(options, option, False)
    return await PIPELINES[name](served, body, wait)


def usual(served: Served, body: Mapping[str, Any]) -> str:
    """The pipeline of a model that is named by none: by its task, else blanks where there are any, else vectors."""
    if isinstance(body.get("inputs"), dict):
        return "sentence-similarity"
    if served.task not in (None, "embed"):
        return "token-classification" if served.task == "tag" else "text-classification"
    inputs = body.get("inputs")
    texts = inputs if isinstance(inputs, list) else [inputs]
    has_blanks = any(isinstance(text, str) and "[MASK]" in text for text in texts)
    return "fill-mask" if has_blanks and served.model.engine.fills else "feature-extraction"


def _parameters(body: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    given: dict[str, Any] = body.get("parameters") or {}
    if strange := sorted(set(given) - known):
        there = f"there are: {', '.join(sorted(known))}" if known else "there are none for this pipeline"
        raise Refused(422, f"parameters: {strange[0][:40]!a} is not known; {there}.")
    return given
