"""Every route and every field of its request: a changed value changes the answer, is refused, or is said to be taken.

The fields are those of /openapi.json: one that stands there and not here, or here and not there, fails.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from filbert.folder.folder import save
from filbert.models import bert
from filbert.text.tokenizer import Tokenizer
from kit.folders import READ, task_file
from kit.models import noisy
from kit.served import Server, serving

torch = pytest.importorskip("torch")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow

# name: parts, labels, task.json
MODELS: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Any] | None]] = {
    "news": (("labels",), ("体育", "财经", "科技"), {"task": "classify"}),
    "cities": (("tokens", "crf"), ("O", "B-城", "I-城"), {"task": "tag", "decoder": "crf", "scheme": "bio"}),
    "near": (("labels",), ("no", "yes"), {"task": "pair"}),
    "short": ((), (), {"task": "embed", "widths": "32,16"}),
    "words": (("mlm", "pooler"), (), None),
    "choices": (("choice",), (), {"task": "choose"}),
}


class Changed(NamedTuple):
    """A field is given this value: the answer is another."""

    value: Any


class Refused(NamedTuple):
    """A field is given this value: it is refused in a sentence that names the field."""

    value: Any


class Taken(NamedTuple):
    """A field is given this value: the answer is the same, and the description says that it is accepted."""

    value: Any


class Case(NamedTuple):
    """A body, and what becomes of each of its fields; by dots what is inside another."""

    model: str
    body: dict[str, Any]
    fields: dict[str, Changed | Refused | Taken]
    pipeline: str = ""


CUT = {"truncate": Taken(True), "truncation_direction": Taken("Left"), "prompt_name": Refused("query")}
INNER_CUT = {f"parameters.{name}": each for name, each in CUT.items()}
OPTIONS = {"options.wait_for_model": Taken(True), "options.use_cache": Taken(False)}
OF_VECTORS: dict[str, Changed | Refused | Taken] = {
    "normalize": Changed(False), "dimensions": Changed(16), "encoding_format": Refused("base64"),
}  # fmt: skip
PREDICT = [
    Case("news", {"texts": ["火车"]}, {"texts": Changed(["船在水上"])}),
    Case("news", {"text": "火车"}, {"text": Changed("船在水上")}),
    Case("news", {"inputs": "火车"}, {"inputs": Changed("船在水上"), "raw_scores": Changed(True), **CUT}),
]
EMBED = [Case("short", {"inputs": "火车"}, {"inputs": Changed("船"), **OF_VECTORS, **CUT})]
RERANK = [
    Case("near", {"query": "火车", "texts": ["船", "云"]},
         {"query": Changed("水"), "texts": Changed(["船"]), "raw_scores": Changed(True), "return_text": Changed(True),
          **CUT}),
]  # fmt: skip
COMPARED = {"inputs": {"source_sentence": "火车", "sentences": ["船", "云"]}}
SIMILARITY = [
    Case("short", COMPARED,
         {"inputs": Changed({"source_sentence": "水", "sentences": ["云"]}), "inputs.source_sentence": Changed("水"),
          "inputs.sentences": Changed(["水", "云"]), "parameters": Refused([]), **INNER_CUT}),
]  # fmt: skip
HUB = [
    Case("news", {"inputs": "火车"},
         {"inputs": Changed("船在水上"), "parameters": Refused(7), "parameters.top_k": Changed(1),
          "parameters.function_to_apply": Refused("sigmoid"), "options": Refused([]), **OPTIONS},
         "text-classification"),
    Case("cities", {"inputs": "火车到北京"},
         {"parameters.aggregation_strategy": Taken("first"), "parameters.stride": Taken(3),
          "parameters.ignore_labels": Changed(["城"])}, "token-classification"),
    Case("words", {"inputs": "火[MASK]"}, {"parameters.top_k": Changed(2), "parameters.targets": Refused(["车"])},
         "fill-mask"),
    Case("short", {"inputs": "火车"},
         OF_VECTORS | CUT | {"normalize": Changed(True)}, "feature-extraction"),
    Case("short", COMPARED, {**SIMILARITY[0].fields, **OPTIONS}, "sentence-similarity"),
]  # fmt: skip
CASES: dict[str, list[Case]] = {
    "/predict": PREDICT, "/models/{name}/predict": PREDICT, "/embed": EMBED, "/models/{name}/embed": EMBED,
    "/rerank": RERANK, "/models/{name}/rerank": RERANK, "/similarity": SIMILARITY,
    "/models/{name}/similarity": SIMILARITY, "/": HUB, "/models/{name}": HUB,
    "/models/{name}/pipeline/{pipeline}": HUB,
    "/v1/embeddings": [
        Case("short", {"input": "火车"},
             {"input": Changed("船"), "encoding_format": Changed("base64"), "dimensions": Changed(16),
              "user": Taken("someone")}),
    ],
    "/v1/rerank": [
        Case("near", {"query": "火车", "documents": [{"text": "船"}, {"text": "云"}]},
             {"query": Changed("水"), "documents": Changed(["船"]), "documents.text": Changed("水"),
              "top_n": Changed(1), "return_documents": Changed(False)}),
    ],
    "/look": [
        Case("news", {"texts": ["火车进站"]},
             {"texts": Changed(["船"]), "layers": Changed([1]), "explain": Changed({}),
              "explain.method": Changed("gradient-x-input"), "explain.target": Changed("财经")}),
    ],
}  # fmt: skip
OPEN = ("documents",)  # whose description says which of its fields are read
NAMED = Refused("nowhere")  # a model, in every body: there is none, or the path names another
VALUES = (None, True, False, 0, -1, 1e400, 10**400, "", "x", [], {}, [[]], [None], [{}], {"a": {}}, "\x00")


@pytest.fixture(scope="module")
def server(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Small models of several tasks."""
    place, tokenizer = tmp_path_factory.mktemp("fields"), Tokenizer.load(tiny_folder)
    for name, (parts, labels, said) in MODELS.items():
        torch.manual_seed(0)
        config = bert.Config(vocab_size=tokenizer.vocab_size, width=32, layers=2, heads=2, inner=64, max_length=64)
        model = bert.Bert(config, parts, max(2, len(labels))).eval()
        noisy(model, 0.3)
        files = task_file(None if said is None else {**READ, **said})
        save(place / name, model, tokenizer, labels=labels, files=files)
    with serving(*(place / name for name in MODELS), torch=True) as found:
        yield found


@pytest.fixture(scope="module")
def described(server: Server) -> dict[str, Any]:
    """The schema of what each route takes."""
    paths = server.asked("/openapi.json").json["paths"]
    posts = {path: said["post"] for path, said in paths.items() if "post" in said}
    return {path: said["requestBody"]["content"]["application/json"]["schema"] for path, said in posts.items()}


def fields(schema: Any) -> dict[str, str]:
    """Each field that a schema names, by dots, and what is said of it."""
    found: dict[str, str] = {}
    for form in schema.get("anyOf", [schema]):
        if "items" in form:
            found |= fields(form["items"])
        for name, own in form.get("properties", {}).items():
            found[name] = json.dumps(own)
            found |= {f"{name}.{inner}": said for inner, said in fields(own).items()}
    return found


def changed(body: Any, name: str, value: Any) -> Any:
    """The body with another value there."""
    found = copy.deepcopy(body)
    first, _, rest = name.partition(".")
    if isinstance(found, list):
        return [changed(own, name, value) for own in found]
    found[first] = changed(found.get(first) or {}, rest, value) if rest else value
    return found


def places(case: Case, path: str) -> tuple[str, dict[str, Any]]:
    """The path with its names, and the body with the model's where the path has none."""
    body = case.body if "{name}" in path else {**case.body, "model": case.model}
    return path.replace("{name}", case.model).replace("{pipeline}", case.pipeline), body


@pytest.mark.parametrize("path", list(CASES))
def test_every_field_is_used_refused_or_said_to_be_taken(server: Server, described: dict[str, Any], path: str) -> None:
    known, seen = fields(described[path]), set()
    for case in CASES[path]:
        where, body = places(case, path)
        plain = server.asked(where, body)
        assert plain.status == 200, plain.raw
        for name, each in {"model": NAMED, **case.fields}.items():
            seen.add(name)
            found = server.asked(where, changed(body, name, each.value))
            if isinstance(each, Refused):
                assert found.status in (404, 422), (name, found.raw)
                assert name.rpartition(".")[2].split("_")[0] in json.dumps(found.json, ensure_ascii=False), found.raw
                continue
            assert found.status == 200, (name, found.raw)
            assert (found.raw == plain.raw) == isinstance(each, Taken), (name, found.raw)
            assert not isinstance(each, Taken) or "Accepted" in known[name], name
    assert seen == set(known)


def test_every_route_that_takes_a_body_is_here(described: dict[str, Any]) -> None:
    assert set(described) == set(CASES)


@pytest.mark.parametrize("path", list(CASES))
def test_a_field_that_nobody_reads_is_refused(server: Server, path: str) -> None:
    for case in CASES[path]:
        where, body = places(case, path)
        inside = {name.rpartition(".")[0] for name in case.fields if "." in name}
        for name in ("wholly_new", *(f"{outer}.wholly_new" for outer in sorted(inside))):
            found = server.asked(where, changed(body, name, 1))
            if name.partition(".")[0] in OPEN:
                assert found.status == 200
                continue
            assert found.status == 422, (name, found.raw)
            assert "wholly_new" in json.dumps(found.json)
        assert server.asked(where + "?model=words", body).status == 422
        twice = json.dumps(body)[:-1] + f', "{next(iter(body))}": "x"}}'
        said = server.asked(where, twice.encode())
        assert (said.status, "twice in one object" in json.dumps(said.json)) == (422, True)


def test_a_field_of_another_form_or_pipeline_is_refused(server: Server) -> None:
    for path, body in (
        ("/models/news/predict", {"texts": ["火"], "raw_scores": True}),
        ("/models/news/predict", {"texts": ["火"], "top": 3}),
        ("/models/news", {"inputs": "火", "normalize": True}),
        ("/models/short", {"inputs": "火", "parameters": {"normalize": True}}),
        ("/models/short", {**COMPARED, "normalize": True}),
        ("/models/cities", {"inputs": "火", "parameters": {"aggregation_strategy": "none"}}),
        ("/models/cities", {"inputs": "火", "parameters": {"top_k": 3}}),
        ("/v1/rerank", {"model": "near", "query": "a", "documents": ["b"], "max_chunks_per_doc": 3}),
        ("/look", {"model": "news", "texts": ["火"], "explain": {"method": "occlusion", "seed": 3}}),
        ("/look", {"model": "news", "texts": ["火"], "layers": 0}),
        ("/look", {"model": "news", "texts": ["火"], "explain": {"method": ""}}),
        ("/v1/embeddings", {"model": "short", "input": "火", "encoding_format": ""}),
    ):  # fmt: skip
        found = server.asked(path, body)
        assert found.status == 422, (body, found.raw)
    for texts in (["[MASK]", "火"], ["火", "[MASK]"]):  # blanks are filled, wherever they stand
        assert "has no [MASK]" in server.asked("/models/words", {"inputs": texts}).json["error"]
    assert server.asked("/info?model=news").json["model_id"] == "news"
    assert server.asked("/info?name=news").status == 422
    assert server.asked("/ready?from=somewhere").status == 200


@pytest.mark.parametrize("path", list(CASES))
def test_no_value_of_any_field_is_a_mistake_of_ours(server: Server, path: str) -> None:
    for case in CASES[path]:
        where, body = places(case, path)
        for name in case.fields:
            for value in VALUES:
                found = server.asked(where, changed(body, name, value))
                assert found.status in (200, 400, 404, 422), (name, value, found.raw)
    assert server.metric("filbert_requests_total", status="500") == 0
