"""The types of bodies and answers in; what /openapi.json says of each route, and a check of fields' names, out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, cast

from pydantic import JsonValue, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from filbert.core.errors import did_you_mean
from filbert.serve import answers, bodies
from filbert.serve.limits import Refused

Schema = dict[str, JsonValue]
Examples = Mapping[str, Mapping[str, object]]


class Post(NamedTuple):
    """What a route takes, examples of it, and what it gives."""

    body: object
    examples: Examples
    answer: object


PREDICT = Post(
    bodies.OwnTexts | bodies.OwnText | bodies.Predict,
    {"texts": {"texts": ["火车进站了", "the train leaves"]}, "pairs": {"texts": [["第一句", "第二句"]]},
     "text-embeddings-inference": {"inputs": "火车进站了", "raw_scores": False}},
    answers.Predictions | list[answers.Label] | list[list[answers.Label]],
)  # fmt: skip
EMBED = Post(bodies.Vectors, {"texts": {"inputs": ["火车进站了", "船在水上"], "normalize": True}}, list[answers.Vector])
RERANK = Post(
    bodies.Rerank,
    {"texts": {"query": "火车几点开？", "texts": ["火车八点开", "船在水上"], "return_text": True}},
    list[answers.Ranked],
)
SIMILARITY = Post(
    bodies.Similarity,
    {"sentences": {"inputs": {"source_sentence": "火车进站了", "sentences": ["火车来了", "船在水上"]}}}, list[float],
)  # fmt: skip
PIPELINE = Post(bodies.Pipeline, {"text": {"inputs": "火车进站了", "parameters": {}}}, object)
POSTS: Mapping[str, Post] = {
    "/predict": PREDICT, "/embed": EMBED, "/rerank": RERANK, "/similarity": SIMILARITY,
    "/v1/embeddings": Post(
        bodies.Embeddings, {"text": {"input": "火车进站了", "model": "news", "encoding_format": "float"}},
        answers.EmbeddingList,
    ),
    "/v1/rerank": Post(
        bodies.RerankDocuments,
        {"documents": {"query": "火车几点开？", "documents": ["火车八点开", "船在水上"], "top_n": 1}},
        answers.RankedDocuments,
    ),
    "/look": Post(
        bodies.Look, {"text": {"texts": ["火车进站了"], "layers": [0], "explain": None}}, dict[str, object]
    ),
    "/models/{name}": PIPELINE, "/models/{name}/pipeline/{pipeline}": PIPELINE, "/": PIPELINE,
    "/models/{name}/predict": PREDICT, "/models/{name}/embed": EMBED, "/models/{name}/rerank": RERANK,
    "/models/{name}/similarity": SIMILARITY,
}  # fmt: skip
GETS: Mapping[str, object] = {
    "/health": answers.Health, "/live": answers.Status, "/ready": answers.Status, "/models": answers.Models,
    "/models/{name}": answers.About, "/v1/models": answers.OpenAIModels, "/v1/models/{name}": answers.OpenAIModel,
    "/info": answers.Info,
}  # fmt: skip
PATH_PARTS = {
    "name": "A model, as /models lists them.",
    "pipeline": "feature-extraction, text-classification and others; see docs/serving.md.",
}
WHY = {
    400: "The body is not JSON, or the request's framing is not plain.", 401: "A key is needed.",
    404: "There is no such model, or no such pipeline.", 408: "The request took too long to come.",
    415: "The body's Content-Encoding is not known.", 421: "The server is not asked by that name.",
    413: "The body has more bytes, or the list more texts, than are allowed.",
    422: "The body is JSON, but not what this route or model reads.", 429: "Too much waits; see Retry-After.",
    503: "The model is being loaded, or a process of the server has died.", 504: "No answer within the time allowed.",
}  # fmt: skip
OF_POST = (400, 401, 404, 408, 413, 415, 421, 422, 429, 503, 504)
OF_GET = (401, 404, 421, 422, 503)


def route(path: str, method: str) -> dict[str, object]:
    """The keywords of a FastAPI route: what it takes and gives, and every status that it can answer with."""
    is_post = method == "POST"
    gives = schema(POSTS[path].answer if is_post else GETS.get(path, object))
    responses: dict[int | str, Schema] = {200: {"description": "The answer.", "content": _json(gives)}}
    parts = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "description": why}}
        for name, why in PATH_PARTS.items()
        if f"{{{name}}}" in path
    ]
    more: dict[str, object] = {"parameters": parts} if parts else {}
    if is_post:
        examples = {name.replace(" ", "_"): {"value": value} for name, value in POSTS[path].examples.items()}
        content = {"application/json": {"schema": schema(POSTS[path].body), "examples": examples}}
        more["requestBody"] = {"required": True, "content": content}
    return {"responses": responses | refusals(path, *(OF_POST if is_post else OF_GET)), "openapi_extra": more}


def refusals(path: str, *statuses: int) -> dict[int | str, Schema]:
    """What each of these statuses says at that path."""
    error = schema(answers.OpenAIRefusal if path.startswith("/v1/") else answers.Refusal)
    return {status: {"description": WHY[status], "content": _json(error)} for status in statuses}


def _json(of_body: Schema) -> Schema:
    return {"application/json": {"schema": of_body}}


# Schemas --------------------------------------------------------------------------------------------------------------


class _Untitled(GenerateJsonSchema):
    """Without titles, and without a default of null, which every field has that may be left out."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


@cache
def schema(of_type: object) -> Schema:
    """The JSON schema of a type, whole in itself: it refers to no other."""
    referring = TypeAdapter(cast(type[object], of_type)).json_schema(schema_generator=_Untitled)
    definitions = cast(Mapping[str, JsonValue], referring.pop("$defs", {}))
    return cast(Schema, _whole(referring, definitions))


def _whole(part: JsonValue, definitions: Mapping[str, JsonValue]) -> JsonValue:
    if isinstance(part, list):
        return [_whole(each, definitions) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        name = str(part["$ref"]).removeprefix("#/$defs/")
        rest = {key: value for key, value in part.items() if key != "$ref"}
        return _whole({**cast(Schema, definitions[name]), **rest}, definitions)
    return {
        key: _whole(value, definitions) for key, value in part.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None)
    }  # fmt: skip


# Names ----------------------------------------------------------------------------------------------------------------


def check_names(fields: Mapping[str, object], path: str) -> None:
    """Refuses a field that nobody reads: what a client asked for by it would be missing without a word."""
    unread = _unread(fields, schema(POSTS[path].body))
    if unread is not None:
        name, names = unread[0][:40], sorted(unread[1])
        raise Refused(
            422, f"the field {name!a} is not read here; there are: {', '.join(names)}.{did_you_mean(name, names)}"
        )


def _unread(value: object, of_value: Schema) -> tuple[str, list[str]] | None:
    """A name that no part of this schema has, and those that it could be; None: all are read.

    Of several forms those count whose required fields are there.
    """
    forms = [cast(Schema, form) for form in cast(list[JsonValue], of_value.get("anyOf", [of_value]))]
    if isinstance(value, list):
        items = [cast(Schema, form["items"]) for form in forms if "items" in form]
        inner = (_unread(each, item) for item in items for each in value if isinstance(each, dict))
        return next(filter(None, inner), None)
    forms = [form for form in forms if "properties" in form]
    if not isinstance(value, dict) or not forms:
        return None
    fit = [form for form in forms if set(cast(list[str], form.get("required", []))) <= set(value)] or forms
    parts = {name: cast(Schema, part) for form in fit for name, part in cast(Schema, form["properties"]).items()}
    is_open = any(form.get("additionalProperties") for form in fit)
    for name, inner_value in value.items():
        if name not in parts and not is_open:
            return str(name), list(parts)
        if name in parts and (unread := _unread(inner_value, parts[name])):
            return unread
    return None
