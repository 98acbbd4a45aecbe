"""Nothing in; what each route takes and gives, as JSON schemas with examples for the OpenAPI document, out."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string", "minLength": 1}
STRING: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
WORD: Schema = {"type": ["string", "null"]}
FLAG: Schema = {"type": ["boolean", "null"]}
VECTOR: Schema = {"type": "array", "items": NUMBER}


def listed(items: Schema, least: int = 0, most: int | None = None) -> Schema:
    """A list of these."""
    return {"type": "array", "items": items, "minItems": least, **({} if most is None else {"maxItems": most})}


def thing(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """An object with these fields."""
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def either(*schemas: Schema) -> Schema:
    """One of several."""
    return {"anyOf": [own for schema in schemas for own in schema.get("anyOf", [schema])]}


MANY = {**listed(TEXT, 1), "description": "As many as the server allows; 413 says how many."}
NAME: Schema = {"type": ["string", "null"], "description": "Which model, where the server has several."}
TEXT_OR_MORE = either(TEXT, listed({}, 1))
LABELS = listed(thing(("label", "score"), label=STRING, score=NUMBER))
NOTHING: Schema = {"type": "null", "description": "Not taken; null counts as left out."}
CUTTING: dict[str, Schema] = {
    "truncate": {**FLAG, "description": "Accepted; long texts are read whole in any case."},
    "truncation_direction": {
        "enum": ["Right", "Left", "right", "left", None], "description": "Accepted; nothing is cut."
    },
    "prompt_name": NOTHING,
}  # fmt: skip
INPUTS = either(TEXT, MANY)
PREDICT_INPUTS = either(TEXT, listed(TEXT, 1, 2), listed(listed(TEXT, 1, 2), 1))
COMPARED = thing(("source_sentence", "sentences"), source_sentence=TEXT, sentences=MANY)
PARAMETERS: Schema = {"type": ["object", "null"], "properties": CUTTING}
DOCUMENT: Schema = {
    **thing(("text",), text=TEXT), "additionalProperties": True, "description": "Of its fields text alone is read."
}  # fmt: skip
SIMILARITY = thing(("inputs",), inputs=COMPARED, parameters=PARAMETERS, model=NAME)
EMBED = thing(
    ("inputs",), inputs=INPUTS, normalize=FLAG, model=NAME,
    dimensions={"type": ["integer", "null"], "minimum": 1, "description": "One of the model's widths; see /models."},
    encoding_format={"enum": ["float", None]}, **CUTTING,
)  # fmt: skip
PREDICTIONS = thing(("model", "predictions"), model=STRING, predictions=listed({"type": "object"}))
OWN_PREDICT = either(
    thing(("texts",), texts=listed(TEXT_OR_MORE, 1), model=NAME), thing(("text",), text=TEXT_OR_MORE, model=NAME)
)
TEI_PREDICT = thing(("inputs",), inputs=PREDICT_INPUTS, raw_scores=FLAG, model=NAME, **CUTTING)
HUB_PARAMETERS: dict[str, Schema] = {
    "top_k": {"type": ["integer", "null"], "minimum": 1},
    "function_to_apply": {
        "enum": ["softmax", "sigmoid", "none", None], "description": "That which the model was trained with, or null."
    },
    "aggregation_strategy": {
        "enum": ["simple", "first", "average", "max", None],
        "description": "Accepted; entities are told whole, as the model's own decoder finds them.",
    },
    "stride": {"type": ["integer", "null"], "minimum": 1, "description": "Accepted; long texts are read whole."},
    "ignore_labels": {"type": ["array", "null"], "items": STRING}, "targets": NOTHING, **CUTTING,
}  # fmt: skip
OPTIONS: Schema = {
    "type": ["object", "null"],
    "properties": {
        "wait_for_model": {**FLAG, "description": "Accepted; a model that is being loaded answers 503 in any case."},
        "use_cache": {**FLAG, "description": "Accepted; nothing is cached."},
    },
}
HUB = thing(
    ("inputs",), inputs=either(TEXT, MANY, COMPARED), parameters={**PARAMETERS, "properties": HUB_PARAMETERS},
    options=OPTIONS, **{name: own for name, own in EMBED["properties"].items() if name != "inputs"},
)  # fmt: skip
ERROR = thing(("error", "error_type"), error=STRING, error_type=STRING, request_id=STRING)
OPENAI_ERROR = thing(
    ("error",),
    request_id=STRING,
    error=thing(("message", "type", "code"), message=STRING, type=STRING, code=WHOLE, param={"type": "null"}),
)
ABOUT = thing(
    ("name", "task", "labels", "width", "widths", "max_length"), name=STRING, task={"type": ["string", "null"]},
    labels=listed(STRING), width=WHOLE, widths=listed(WHOLE), max_length=WHOLE, fills_blanks={"type": "boolean"},
    runtime=STRING, waiting=WHOLE,
)  # fmt: skip
OPENAI_EMBEDDINGS = thing(
    ("object", "data", "model", "usage"), object={"const": "list"}, model=STRING,
    data=listed(thing(("object", "index", "embedding"), object={"const": "embedding"}, index=WHOLE,
                      embedding=either(VECTOR, STRING))),
    usage=thing(("prompt_tokens", "total_tokens"), prompt_tokens=WHOLE, total_tokens=WHOLE),
)  # fmt: skip
OPENAI_MODEL = thing(
    ("id", "object", "created", "owned_by"), id=STRING, object={"const": "model"}, created=WHOLE, owned_by=STRING
)
OPENAI_MODELS = thing(
    ("object", "data"), object={"const": "list"},
    data=listed(OPENAI_MODEL),
)  # fmt: skip
RESULT = thing(
    ("index", "relevance_score"), index=WHOLE, relevance_score=NUMBER, document=thing(("text",), text=STRING)
)

# route: (what it takes, examples of it, what it gives)
BODIES: dict[str, tuple[Schema, dict[str, Any], Schema]] = {
    "/predict": (
        either(OWN_PREDICT, TEI_PREDICT),
        {"texts": {"texts": ["火车进站了", "the train leaves"]}, "pairs": {"texts": [["第一句", "第二句"]]},
         "text-embeddings-inference": {"inputs": "火车进站了", "raw_scores": False}},
        either(PREDICTIONS, LABELS, listed(LABELS)),
    ),
    "/embed": (EMBED, {"texts": {"inputs": ["火车进站了", "船在水上"], "normalize": True}}, listed(VECTOR)),
    "/rerank": (
        thing(("query", "texts"), query=TEXT, texts=MANY, raw_scores=FLAG, return_text=FLAG, model=NAME, **CUTTING),
        {"texts": {"query": "火车几点开？", "texts": ["火车八点开", "船在水上"], "return_text": True}},
        listed(thing(("index", "score"), index=WHOLE, score=NUMBER, text=STRING)),
    ),
    "/similarity": (
        SIMILARITY,
        {"sentences": {"inputs": {"source_sentence": "火车进站了", "sentences": ["火车来了", "船在水上"]}}}, VECTOR,
    ),
    "/v1/embeddings": (
        thing(("input",), input=INPUTS, model=NAME, encoding_format={"enum": ["float", "base64", None]},
              dimensions={"type": ["integer", "null"], "minimum": 1},
              user={"type": ["string", "null"], "description": "Accepted; nothing depends on it."}),
        {"text": {"input": "火车进站了", "model": "news", "encoding_format": "float"}}, OPENAI_EMBEDDINGS,
    ),
    "/v1/rerank": (
        thing(("query", "documents"), query=TEXT, documents=listed(either(TEXT, DOCUMENT), 1),
              model=NAME, top_n={"type": ["integer", "null"], "minimum": 1}, return_documents=FLAG),
        {"documents": {"query": "火车几点开？", "documents": ["火车八点开", "船在水上"], "top_n": 1}},
        thing(("model", "results", "usage"), model=STRING, results=listed(RESULT), usage={"type": "object"}),
    ),
    "/look": (
        thing(("texts",), texts=listed(STRING, 1, 2), model=NAME, layers={"type": ["array", "null"], "items": WHOLE},
              explain={"type": ["object", "null"], "properties": {"method": WORD, "target": WORD}}),
        {"text": {"texts": ["火车进站了"], "layers": [0], "explain": None}}, {"type": "object"},
    ),
    "/models/{name}": (HUB, {"text": {"inputs": "火车进站了", "parameters": {}}}, {}),
}  # fmt: skip
for _one in ("/predict", "/embed", "/rerank", "/similarity"):
    BODIES["/models/{name}" + _one] = BODIES[_one]
BODIES["/models/{name}/pipeline/{pipeline}"] = BODIES["/models/{name}"]
BODIES["/"] = BODIES["/models/{name}"]
GIVEN: dict[str, Schema] = {
    "/health": thing(("status", "models", "version"), status=STRING, models=listed({"type": "object"}), version=STRING),
    "/live": thing(("status",), status=STRING), "/ready": thing(("status",), status=STRING),
    "/models": thing(("models",), models=listed(ABOUT)), "/models/{name}": ABOUT, "/v1/models": OPENAI_MODELS,
    "/v1/models/{name}": OPENAI_MODEL,
    "/info": thing(("model_id", "model_type", "max_input_length"), model_id=STRING, model_type={"type": "object"}),
}  # fmt: skip
PARTS: dict[str, Schema] = {
    "name": {**TEXT, "description": "A model, as /models lists them."},
    "pipeline": {**TEXT, "description": "feature-extraction, text-classification and others; see docs/serving.md."},
}
WHY = {
    400: "The body is not JSON, or the request's framing is not plain.", 401: "A key is needed.",
    404: "There is no such model, or no such pipeline.", 408: "The request took too long to come.",
    415: "The body's Content-Encoding is not known.", 421: "The server is not asked by that name.",
    413: "The body has more bytes, or the list more texts, than are allowed.",
    422: "The body is JSON, but not what this route or model reads.", 429: "Too much waits; see Retry-After.",
    503: "The model is being loaded, or a process of the server has died.", 504: "No answer within the time allowed.",
}  # fmt: skip


def strange(given: Any, schema: Schema) -> tuple[str, list[str]] | None:
    """A field that no part of this schema names, and those that it could be; None: all are known.

    Of several forms those count whose required fields are there.
    """
    forms = [form for form in schema.get("anyOf", [schema]) if isinstance(form, dict)]
    if isinstance(given, list):
        parts = [form["items"] for form in forms if "items" in form]
        return next(
            filter(None, (strange(own, part) for part in parts for own in given if isinstance(own, dict))), None
        )
    forms = [form for form in forms if "properties" in form]
    if not isinstance(given, dict) or not forms:
        return None
    fit = [form for form in forms if set(form.get("required", ())) <= set(given)] or forms
    known = {name: own for form in fit for name, own in form["properties"].items()}
    is_open = any(form.get("additionalProperties") for form in fit)
    for name, value in given.items():
        if name not in known and not is_open:
            return name, list(known)
        if name in known and (found := strange(value, known[name])):
            return found
    return None


def routed(path: str, method: str) -> dict[str, Any]:
    """The keywords of a FastAPI route: what it takes and gives, and every status that it can answer with."""
    takes, examples, gives = BODIES[path] if method == "POST" else ({}, {}, GIVEN.get(path, {}))
    statuses = (
        (400, 401, 404, 408, 413, 415, 421, 422, 429, 503, 504) if method == "POST" else (401, 404, 421, 422, 503)
    )
    told = {200: {"description": "The answer.", "content": _json(gives)}} | refusals(path, *statuses)
    parts = [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in PARTS.items()
        if f"{{{name}}}" in path
    ]
    more: dict[str, Any] = {"parameters": parts} if parts else {}
    if method != "POST":
        return {"responses": told, "openapi_extra": more}
    shown = {name.replace(" ", "_"): {"value": value} for name, value in examples.items()}
    body = {"required": True, "content": {"application/json": {"schema": takes, "examples": shown}}}
    return {"responses": told, "openapi_extra": {**more, "requestBody": body}}


def refusals(path: str, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """What each of these statuses says at that path."""
    error = OPENAI_ERROR if path.startswith("/v1/") else ERROR
    return {status: {"description": WHY[status], "content": _json(error)} for status in statuses}


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
