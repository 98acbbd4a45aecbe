"""Clients that nobody here wrote: openai, huggingface_hub and schemathesis ask a real server of four models."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import filbert as fb
from filbert.folder.folder import save
from filbert.ship import onnx
from filbert.text.tokenizer import Tokenizer
from kit.folders import READ, task_file
from kit.models import small_bert
from kit.served import Server, serving

for needed in ("fastapi", "uvicorn", "onnxruntime"):
    pytest.importorskip(needed)
TEXTS = ["火车进站了", "船在水上", "the train leaves", "火车" * 90]
CITIES = ("O", "B-城", "I-城")
# name: parts, labels, task.json
MODELS: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Any] | None]] = {
    "news": (("labels",), ("体育", "财经", "科技"), {"task": "classify"}),
    "cities": (("tokens", "crf"), CITIES, {"task": "tag", "decoder": "crf", "scheme": "bio"}),
    "near": (("labels",), ("no", "yes"), {"task": "pair"}),
    "short": ((), (), {"task": "embed", "widths": "32,16"}),
    "base": (("mlm", "pooler"), (), None),
}


@pytest.fixture(scope="module")
def folders(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small models of several tasks, exported."""
    place, tokenizer = tmp_path_factory.mktemp("clients"), Tokenizer.load(tiny_folder)
    found = {}
    for name, (parts, labels, said) in MODELS.items():
        model = small_bert(tokenizer, parts, max(2, len(labels)), noise=0.3)
        files = task_file(None if said is None else {**READ, **said})
        save(place / "torch" / name, model, tokenizer, labels=labels, files=files)
        found[name] = onnx.export(place / "torch" / name, place / name)
    return found


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[Server]:
    with serving(*folders.values()) as found:
        yield found


def address(server: Server, path: str = "") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def loaded(folders: dict[str, Path], name: str) -> fb.Model:
    return fb.load(folders[name], runtime="onnx")


# openai ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def openai(server: Server) -> Iterator[Any]:
    module = pytest.importorskip("openai")
    with module.OpenAI(base_url=address(server, "/v1"), api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("form", ["float", "base64", None])
def test_openai_embeddings_are_the_models_own(openai: Any, folders: dict[str, Path], form: str | None) -> None:
    more = {} if form is None else {"encoding_format": form}
    found = openai.embeddings.create(model="short", input=TEXTS, **more)
    wanted = loaded(folders, "short").embed(TEXTS, normalize=True)
    vectors = [own.embedding for own in found.data]
    if form == "base64":
        import base64

        vectors = [np.frombuffer(base64.b64decode(own), dtype="<f4") for own in vectors]
    np.testing.assert_allclose(np.array(vectors), wanted, atol=1e-5)
    assert [own.index for own in found.data] == list(range(len(TEXTS)))
    assert found.usage.prompt_tokens == found.usage.total_tokens > 180
    one = openai.embeddings.create(model="short", input=TEXTS[0])
    np.testing.assert_allclose(one.data[0].embedding, wanted[0], atol=1e-5)
    assert one.usage.prompt_tokens == len(loaded(folders, "short").tokenizer.encode(TEXTS[0]).ids)


@pytest.mark.slow
def test_openai_dimensions_are_those_the_model_learnt(openai: Any, folders: dict[str, Path]) -> None:
    found = openai.embeddings.create(model="short", input=TEXTS, dimensions=16)
    wanted = loaded(folders, "short").embed(TEXTS, normalize=True, width=16)
    np.testing.assert_allclose([own.embedding for own in found.data], wanted, atol=1e-5)
    module = sys.modules["openai"]
    with pytest.raises(module.UnprocessableEntityError, match="has vectors of 32, 16 dimensions, but 8 are asked for"):
        openai.embeddings.create(model="short", input="火", dimensions=8)


def test_openai_lists_models_and_is_told_what_is_wrong(openai: Any) -> None:
    module = sys.modules["openai"]
    assert [model.id for model in openai.models.list()] == list(MODELS)
    with pytest.raises(module.NotFoundError, match="there is no model of that name"):
        openai.embeddings.create(model="text-embedding-3-small", input="火")
    for tokens in ([1, 2, 3], [[1, 2], [3]]):
        with pytest.raises(
            module.UnprocessableEntityError, match="is of tokens, which only their own vocabulary reads"
        ):
            openai.embeddings.create(model="short", input=tokens)


# huggingface_hub ------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(server: Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # nothing but 127.0.0.1 is asked
    return lambda path: module.InferenceClient(address(server, path), token="none")


@pytest.mark.parametrize("path", ["/models/base/pipeline/feature-extraction", "/models/base"])
def test_hub_feature_extraction(hub: Any, folders: dict[str, Path], path: str) -> None:
    wanted = loaded(folders, "base").embed(TEXTS[:1], normalize=True)
    np.testing.assert_allclose(hub(path).feature_extraction(TEXTS[0], normalize=True), wanted, atol=1e-5)
    plain = loaded(folders, "base").embed(TEXTS[:1], normalize=False)
    np.testing.assert_allclose(hub(path).feature_extraction(TEXTS[0]), plain, atol=1e-4)


def test_hub_sentence_similarity(hub: Any, folders: dict[str, Path]) -> None:
    found = hub("/models/base").sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    vectors = loaded(folders, "base").embed(TEXTS, normalize=True)
    np.testing.assert_allclose(found, vectors @ vectors[0], atol=1e-5)


def test_hub_text_classification(hub: Any, folders: dict[str, Path]) -> None:
    said = loaded(folders, "news").predict([TEXTS[3]])[0]
    found = hub("/models/news").text_classification(TEXTS[3])
    assert [own.label for own in found] == list(said.scores)
    assert [own.score for own in found] == pytest.approx(list(said.scores.values()), abs=1e-5)
    assert len(hub("/models/news").text_classification(TEXTS[3], top_k=2)) == 2


def test_hub_token_classification(hub: Any, folders: dict[str, Path]) -> None:
    spans = loaded(folders, "cities").predict([TEXTS[3]])[0].spans
    found = hub("/models/cities").token_classification(TEXTS[3])
    assert spans, "the random tagger should find something"
    assert [(own.start, own.end, own.entity_group) for own in found] == [(s.start, s.end, s.label) for s in spans]
    assert all(own.word == TEXTS[3][own.start : own.end] for own in found)
    assert hub("/models/cities").token_classification(TEXTS[3], ignore_labels=["城"]) == []


def test_hub_fill_mask(hub: Any, folders: dict[str, Path]) -> None:
    text, model = "火[MASK]进站了", loaded(folders, "base")
    found = hub("/models/base").fill_mask(text, top_k=3)
    wanted = model.fill(text, top=3)[0].candidates
    assert [own.token_str for own in found] == [own.text for own in wanted]
    assert [own.score for own in found] == pytest.approx([own.score for own in wanted], abs=1e-5)
    assert found[0].sequence == f"火{wanted[0].text}进站了"
    assert model.tokenizer.token_of(found[0].token) == wanted[0].token


# text-embeddings-inference --------------------------------------------------------------------------------------------


def test_tei_embed_and_predict_have_its_shapes(server: Server, folders: dict[str, Path]) -> None:
    wanted = loaded(folders, "base").embed(TEXTS, normalize=True)
    for given, rows in ((TEXTS, wanted), (TEXTS[0], wanted[:1])):
        found = server.asked("/embed", {"inputs": given, "truncate": True, "model": "base"}).json
        np.testing.assert_allclose(found, rows, atol=1e-5)
    path = "/models/news/predict"
    single = server.asked(path, {"inputs": TEXTS[0]}).json
    several = server.asked(path, {"inputs": [[TEXTS[0]], [TEXTS[1]]]}).json
    assert set(single[0]) == {"label", "score"}
    assert [own["label"] for own in several[0]] == [own["label"] for own in single]
    assert sum(own["score"] for own in single) == pytest.approx(1, abs=1e-5)
    raw = server.asked(path, {"inputs": TEXTS[0], "raw_scores": True}).json
    assert np.exp([own["score"] for own in raw]) == pytest.approx([own["score"] for own in single], abs=1e-5)
    pair = server.asked("/models/near/predict", {"inputs": ["火车", "船"]}).json
    assert {own["label"] for own in pair} == {"no", "yes"}
    refused = server.asked(path, {"inputs": ["火车", "船"]})
    assert (refused.status, refused.json["error_type"]) == (422, "validation")


@pytest.mark.parametrize("model", ["near", "base"])
def test_tei_rerank_by_pairs_or_by_vectors(server: Server, folders: dict[str, Path], model: str) -> None:
    own = loaded(folders, model)
    if model == "near":
        wanted = [said.scores["yes"] for said in own.predict([("火车", text) for text in TEXTS])]
    else:
        vectors = own.embed(["火车", *TEXTS], normalize=True)
        wanted = list(vectors[1:] @ vectors[0])
    asked = {"query": "火车", "texts": TEXTS, "model": model}
    found = server.asked("/rerank", asked).json
    assert [rank["index"] for rank in found] == list(np.argsort(-np.array(wanted), kind="stable"))
    assert [rank["score"] for rank in found] == pytest.approx(sorted(wanted, reverse=True), abs=1e-5)
    told = server.asked("/rerank", {**asked, "return_text": True, "raw_scores": True}).json
    assert [TEXTS[rank["index"]] for rank in told] == [rank["text"] for rank in told]
    assert [rank["index"] for rank in told] == [rank["index"] for rank in found]


@pytest.mark.slow
def test_info_and_models(server: Server) -> None:
    assert server.asked("/info").json["model_type"]["classifier"]["id2label"] == {"0": "体育", "1": "财经", "2": "科技"}
    about = {model["name"]: model for model in server.asked("/models").json["models"]}
    assert list(about) == list(MODELS)
    assert (about["short"]["widths"], about["near"]["task"], about["base"]["fills_blanks"]) == ([32, 16], "pair", True)
    unnamed = server.asked("/predict", {"texts": ["a"]})
    assert unnamed.status == 422
    assert "news, cities, near, short, base" in unnamed.json["error"]


# schemathesis ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_schemathesis_finds_no_unexpected_status(folders: dict[str, Path]) -> None:
    """What it invents within the document and against it; what a model cannot answer is no error of the document."""
    pytest.importorskip("schemathesis")
    with serving(folders["news"]) as server:
        words = ["run", address(server, "/openapi.json"), "--max-examples", "3",
                 "--phases", "examples,coverage,fuzzing",
                 "--exclude-checks", "positive_data_acceptance", "--generation-database", "none", "--no-color",
                 "--seed", "1"]  # fmt: skip
        program = Path(sys.executable).with_name("schemathesis")
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stdout
        assert int(re.findall(r"(\d+) generated", done.stdout)[0]) > 100
        assert server.metric("filbert_requests_total", status="500") == 0
