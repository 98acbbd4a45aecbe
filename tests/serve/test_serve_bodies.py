"""Bodies of requests: whatever a field holds is read, or refused in a sentence; and every route describes its own."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import pytest

pytest.importorskip("fastapi")

from pydantic import ValidationError

from filbert.core import registry
from filbert.serve import bodies, openapi
from filbert.serve.bodies import Body, Context, parse
from filbert.serve.limits import Limits, Refused
from filbert.serve.metrics import PATHS
from filbert.tasks.wire import Wire

DESCRIBED = (bodies.Body, bodies.Document, bodies.OwnText, bodies.Pipeline)  # and parsed as other bodies
BODIES = [
    each for _, each in inspect.getmembers(bodies, inspect.isclass) if issubclass(each, Body) and each not in DESCRIBED
]
VALUES = (None, True, 0, -1, 3, 1.5, "", "x", [], {}, [""], ["a"], ["a", 3], [[]], [["a"], "b"], [{}], {"a": {}}, 1e400)


def refused(body: type[Body], **fields: Any) -> tuple[int, str]:
    with pytest.raises(Refused) as error:
        parse(body, fields)
    return error.value.status, str(error.value)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_whatever_a_field_holds_is_read_or_refused_in_a_sentence(body: type[Body]) -> None:
    needed = {name: "a" for name, info in body.model_fields.items() if info.is_required()}
    for name in body.model_fields:
        for value in VALUES:
            with contextlib.suppress(Refused):
                parse(body, {**needed, name: value})
                continue
            sentence = refused(body, **{**needed, name: value})[1]
            assert sentence[-1] in ".}"
            assert "does not fit" not in sentence
            assert "pydantic" not in sentence


def test_the_first_wrong_field_is_named() -> None:
    assert refused(bodies.Vectors, inputs=3, normalize=3) == (
        422, 'inputs must be a list with one text or more: {"inputs": ["…", "…"]}.'
    )  # fmt: skip
    assert refused(bodies.Vectors, inputs=3, truncate=3) == (422, "truncate must be true or false.")
    assert refused(bodies.Vectors, inputs="a", encoding_format=3) == (422, "encoding_format must be a string.")
    assert "/v1/embeddings also has base64" in refused(bodies.Vectors, inputs="a", encoding_format="base64")[1]
    assert refused(bodies.Vectors, inputs="a", normalize=1) == (422, "normalize must be true or false.")
    assert refused(bodies.Vectors) == refused(bodies.Vectors, inputs=None)
    assert refused(bodies.Embeddings, user=3)[1].startswith("the body must have an input")
    assert refused(bodies.Embeddings, input=None)[1].startswith("input must be a list")
    assert refused(bodies.Classification, parameters={"zz": 1, "b": 2, "top_k": 0})[1] == (
        "parameters: 'b' is not known; there are: function_to_apply, top_k."
    )
    assert refused(bodies.FeatureExtraction, inputs="a", parameters={"x": 1})[1] == (
        "parameters: 'x' is not known; there are none for this pipeline."
    )


def test_numbers_and_texts_have_their_limits() -> None:
    few = Context(Limits(texts=2), most_dimensions=8)
    with pytest.raises(Refused) as error:
        parse(bodies.Vectors, {"inputs": ["a", "b", "c"]}, few)
    assert (error.value.status, str(error.value)[:27]) == (413, "3 texts are more than 2; se")
    with pytest.raises(Refused, match="dimensions must be a whole number from 1 to 8"):
        parse(bodies.Vectors, {"inputs": "a", "dimensions": 9}, few)
    assert parse(bodies.Vectors, {"inputs": "a", "dimensions": 8, "normalize": None}, few).normalize
    assert not parse(bodies.FeatureExtraction, {"inputs": "a"}).normalize
    assert refused(bodies.RerankDocuments, query="a", documents=["b"], top_n=0)[1] == (
        "top_n must be a whole number from 1 to 1,048,576."
    )


def test_one_text_a_pair_and_several_are_told_apart() -> None:
    for inputs, texts, is_single in (
        ("a", ["a"], True), (["a"], ["a"], True), (["a", "b"], [["a", "b"]], True),
        ([["a"], ["b", "c"]], ["a", ["b", "c"]], False),
    ):  # fmt: skip
        body = parse(bodies.Predict, {"inputs": inputs})
        assert (body.texts, body.is_single) == (texts, is_single)
    assert parse(bodies.RerankDocuments, {"query": "a", "documents": ["b", {"text": "c", "id": 3}]}).documents == [
        "b",
        "c",
    ]


def test_of_a_long_list_of_wrong_things_one_is_looked_at() -> None:
    """Else a small body would make a million errors."""
    many = [None] * 1_000
    for body, fields in (
        (bodies.Look, {"texts": ["a"], "layers": many}),
        (bodies.Look, {"texts": many}),
        (bodies.TokenClassification, {"parameters": {"ignore_labels": many}}),
        (bodies.Vectors, {"inputs": many}),
        (bodies.Predict, {"inputs": [many]}),
    ):
        with pytest.raises(ValidationError) as error:
            body.model_validate(fields, context=Context())
        assert error.value.error_count() == 1


def test_every_route_is_described_without_reference_to_another_place() -> None:
    assert set(openapi.POSTS) | set(openapi.GETS) <= set(PATHS)
    for path in openapi.POSTS:
        assert "$" not in str(openapi.schema(openapi.POSTS[path].body))
        assert openapi.route(path, "POST")["responses"]
        for example in openapi.POSTS[path].examples.values():
            openapi.check_names(example, path)
    with pytest.raises(Refused, match=r"the field 'querry' is not read here; there are: .*Did you mean 'query'"):
        openapi.check_names({"querry": 1}, "/rerank")


def test_a_task_that_nobody_knows_is_spoken_like_any_other() -> None:
    assert Wire().pipeline == "text-classification"
    assert Wire().beside("question", ["text"]) == [("text", "question")]
    assert registry.task("choose").wire.beside("text", ["question", ["a", "b"]]) == [
        ("text", "question", "a"),
        ("text", "question", "b"),
    ]
    assert [name for name in registry.tasks() if registry.task(name).wire.ranks] == ["pair"]
