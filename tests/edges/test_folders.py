"""Other people's model folders: what their files say is done, refused in one sentence, or named (DEFECTS C1 to C9)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.folder import folder as folders
from filbert.folder import weights
from filbert.folder.write_transformers import export as for_transformers
from filbert.models import bert
from filbert.ship import export
from filbert.tasks.tag import spec as tag_spec
from filbert.text.tokenizer import Tokenizer

TEXTS = ["今天天气很好", "The train leaves at seven.", "我们坐高铁去北京"]
PREFIX = "sentence_transformers.models."
OLD = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
Arrays = npt.NDArray[Any]


def put(folder: Path, name: str, value: object) -> None:
    """Writes a JSON file of a folder."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


def theirs(source: Path, out: Path, modules: list[str], files: Mapping[str, object]) -> Path:
    """A folder as sentence-transformers writes it: modules by class and number, and further files."""
    shutil.copytree(source, out)
    (out / "manifest.json").unlink(missing_ok=True)
    listed = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": PREFIX + kind}
        for i, kind in enumerate(modules)
    ]
    put(out, "modules.json", listed)
    for name, value in files.items():
        put(out, name, value)
    return out


def pooled(model: fb.Model, text: str, way: str) -> Arrays:
    """A text's vector from all its tokens' vectors, by hand."""
    encoding = model.tokenizer.encode(text)
    rows = np.asarray(model.engine.rows(encoding, np.arange(len(encoding.ids))))
    return np.asarray({"cls": rows[0], "mean": rows.mean(0)}[way])


def oracle(folder: Path, **how: Any) -> Arrays:
    """What sentence-transformers makes of the texts, where it is installed."""
    theirs = pytest.importorskip("sentence_transformers")
    return np.asarray(theirs.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, **how))


@pytest.fixture(scope="module")
def tagged(tiny_folder: Path) -> Callable[..., Path]:
    """Makes a tiny model with a head for these labels."""

    def made(out: Path, part: str, labels: list[str], **fields: Any) -> Path:
        tokenizer = Tokenizer.load(tiny_folder)
        torch.manual_seed(1)
        config = bert.Config(vocab_size=tokenizer.vocab_size, width=32, layers=1, heads=2, inner=64, max_length=64)
        parts = (part, "pooler") if part == "labels" else (part,)
        model = bert.Bert(config, parts, len(labels)).eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim > 1:
                    weight.normal_(std=0.3)
        return folders.save(out, model, tokenizer, labels=labels, fields=fields)

    return made


# C1: the pooling that a folder says -----------------------------------------------------------------------------------

NEW = {"embedding_dimension": 32, "include_prompt": True}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["cls", "mean"])
@pytest.mark.parametrize("form", ["string", "list", "switches"])
def test_C1_both_forms_of_the_pooling_are_read_and_carried(
    form: str, way: str, tiny_folder: Path, tmp_path: Path
) -> None:
    switches = {f"pooling_mode_{name}": name.startswith(way + "_") and "sqrt" not in name for name in OLD}
    said = {"string": {"pooling_mode": way}, "list": {"pooling_mode": [way]}, "switches": switches}[form]
    source = theirs(
        tiny_folder, tmp_path / "st", ["Transformer", "Pooling"], {"1_Pooling/config.json": {**NEW, **said}}
    )
    model = fb.load(source, device="cpu")
    found = model.embed(TEXTS)
    np.testing.assert_allclose(found[0], pooled(model, TEXTS[0], way), atol=1e-5)
    folders.import_folder(source, tmp_path / "ours")
    folder, *_ = for_transformers(tmp_path / "ours", tmp_path / "back")
    shipped, _ = export.export(tmp_path / "ours", tmp_path / "onnx")
    for one in (tmp_path / "ours", folder):
        np.testing.assert_array_equal(fb.load(one, device="cpu").embed(TEXTS), found)
    np.testing.assert_allclose(fb.load(shipped, runtime="onnx").embed(TEXTS), found, atol=1e-4)


@pytest.mark.slow
def test_C1_sentence_transformers_reads_what_is_written(tiny_folder: Path, tmp_path: Path) -> None:
    """The folder that only had 1_Pooling gets its list of modules, so that theirs reads the same."""
    source = tmp_path / "source"
    shutil.copytree(tiny_folder, source)
    (source / "manifest.json").unlink()
    put(source, "1_Pooling/config.json", {"word_embedding_dimension": 32, "pooling_mode_cls_token": True})
    folders.import_folder(source, tmp_path / "ours")
    found = fb.load(tmp_path / "ours", device="cpu").embed(TEXTS)
    np.testing.assert_array_equal(found, fb.load(source, device="cpu").embed(TEXTS))
    np.testing.assert_allclose(oracle(tmp_path / "ours"), found, atol=1e-4)


@pytest.mark.slow
def test_C1_a_model_fine_tuned_for_vectors_gives_them_in_sentence_transformers(
    tiny_folder: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = folders.load(tiny_folder).model
    said = json.dumps({"task": "embed", "max_length": 64, "overlap": 16, "pool": "cls"})
    folders.save(tmp_path / "m", model, tokenizer, files={"task.json": said})
    folder, *_ = for_transformers(tmp_path / "m", tmp_path / "out")
    found = fb.load(tmp_path / "m", device="cpu").embed(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(oracle(folder), found, atol=1e-4)
    np.testing.assert_array_equal(fb.load(folder, device="cpu").embed(TEXTS), found)


# C2: the other modules ------------------------------------------------------------------------------------------------


def dense(
    folder: Path, inputs: int, outputs: int, activation: str = "activation.Tanh", seed: int = 0
) -> dict[str, Any]:
    """A Dense module's numbers and config."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    weight = random.normal(size=(outputs, inputs)).astype(np.float32) / 5
    bias = random.normal(size=outputs).astype(np.float32)
    told = {"linear.weight": weight, "linear.bias": bias}
    weights.write(
        folder / "model.safetensors",
        {name: ("F32", own.shape, own.reshape(-1).view(np.uint8)) for name, own in told.items()},
    )
    put(folder, "config.json", {"in_features": inputs, "out_features": outputs, "bias": True,
                                "activation_function": f"torch.nn.modules.{activation}"})  # fmt: skip
    return told


def test_C2_dense_and_normalize_are_followed(tiny_folder: Path, tmp_path: Path) -> None:
    files = {"1_Pooling/config.json": {**NEW, "pooling_mode": "cls"}, "3_Normalize/config.json": {}}
    source = theirs(tiny_folder, tmp_path / "st", ["Transformer", "Pooling", "Dense", "Normalize"], files)
    told = dense(source / "2_Dense", 32, 8)
    model = fb.load(source, device="cpu")
    found = model.embed(TEXTS)
    assert found.shape == (3, 8)
    assert model.widths == (8,)
    byhand = np.tanh(pooled(model, TEXTS[0], "cls") @ told["linear.weight"].T + told["linear.bias"])
    np.testing.assert_allclose(found[0], byhand / np.linalg.norm(byhand), atol=1e-5)
    np.testing.assert_allclose(oracle(source), found, atol=1e-4)
    folders.import_folder(source, tmp_path / "ours")
    np.testing.assert_array_equal(fb.load(tmp_path / "ours", device="cpu").embed(TEXTS), found)
    assert model.embed([]).shape == (0, 8)
    assert model.embed(TEXTS, pool="mean").shape == (3, 32)  # another pooling is the model's own vector
    with pytest.raises(InputError, match="from 1 to 8"):
        model.embed(TEXTS, width=9)
    with pytest.raises(InputError, match="does more to a vector than to pool it"):
        model.predict([("a", "b")], task="embed")


@pytest.mark.parametrize(
    ("name", "function"), [("linear.Identity", lambda x: x), ("activation.ReLU", lambda x: x * (x > 0))]
)
def test_C2_activations_of_dense(name: str, function: Any, tiny_folder: Path, tmp_path: Path) -> None:
    files = {"1_Pooling/config.json": {"pooling_mode": "mean"}}
    source = theirs(tiny_folder, tmp_path / "st", ["Transformer", "Pooling", "Dense"], files)
    told = dense(source / "2_Dense", 32, 4, name)
    model = fb.load(source, device="cpu")
    byhand = function(pooled(model, TEXTS[0], "mean") @ told["linear.weight"].T + told["linear.bias"])
    np.testing.assert_allclose(model.embed(TEXTS)[0], byhand, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"activation_function": "my.own.Code"}, "activation_function"),
        ({"in_features": 31}, "32 come in"),
        ({"out_features": 10**9}, "out_features"),
        ({"module_input_name": "token_embeddings"}, "module_input_name"),
        ({"residual": True}, "has residual"),
        ({"bias": False}, "other tensors"),
    ],
)
def test_C2_a_dense_that_is_not_computed_is_refused(
    change: dict[str, Any], words: str, tiny_folder: Path, tmp_path: Path
) -> None:
    files = {"1_Pooling/config.json": {"pooling_mode": "mean"}}
    source = theirs(tiny_folder, tmp_path / "st", ["Transformer", "Pooling", "Dense"], files)
    dense(source / "2_Dense", 32, 8)
    said = json.loads((source / "2_Dense/config.json").read_text())
    put(source, "2_Dense/config.json", {**said, **change})
    with pytest.raises(InputError, match=words):
        fb.load(source, device="cpu")


@pytest.mark.parametrize(
    ("modules", "said", "words"),
    [
        (["Transformer", "Pooling"], {"pooling_mode": "max"}, "pooling_mode is max"),
        (["Transformer", "Pooling"], {"pooling_mode": "lasttoken"}, "pooling_mode is lasttoken"),
        (["Transformer", "Pooling"], {"pooling_mode": ["cls", "mean"]}, "pooling_mode is cls and mean"),
        (["Transformer", "Pooling"], {"pooling_mode_max_tokens": True}, "pooling_mode is max_tokens"),
        (["Transformer", "Pooling", "LayerNorm"], {"pooling_mode": "mean"}, "module 2 is LayerNorm"),
        (["Transformer", "WeightedLayerPooling", "Pooling"], {"pooling_mode": "mean"}, "WeightedLayerPooling"),
        (["MLMTransformer", "SpladePooling"], {}, "MLMTransformer"),
    ],
)
def test_C2_what_is_not_computed_is_named_and_refused(
    modules: list[str], said: dict[str, Any], words: str, tiny_folder: Path, tmp_path: Path
) -> None:
    """The encoder still loads and fills blanks; only a vector in its maker's way is refused."""
    place = modules.index("Pooling") if "Pooling" in modules else 9
    source = theirs(tiny_folder, tmp_path / "st", modules, {f"{place}_Pooling/config.json": said})
    model = fb.load(source, device="cpu")
    assert any(words in note for note in model.notes)
    with pytest.raises(InputError, match=words):
        model.embed(TEXTS)
    assert model.embed(TEXTS, pool="mean").shape == (3, 32)
    assert model.fill("今天[MASK]气")
    assert any(words in note for note in folders.import_folder(source, tmp_path / "ours").described.notes)


@pytest.mark.parametrize("kind", ["my_code.Pooling", "sentence_transformers_evil.Pooling"])
def test_C2_modules_that_name_code_are_refused(kind: str, tiny_folder: Path, tmp_path: Path) -> None:
    source = theirs(tiny_folder, tmp_path / "st", ["Transformer"], {})
    put(source, "modules.json", [{"path": "", "type": PREFIX + "Transformer"}, {"path": "1_Pooling", "type": kind}])
    with pytest.raises(InputError, match="never runs code"):
        fb.load(source, device="cpu")


@pytest.mark.parametrize(
    ("entry", "told"),
    [({"path": "", "type": PREFIX + "Router"}, "module 0 is Router"),
     ({"path": "0_Transformer", "type": PREFIX + "Transformer"}, "module 0 lies in '0_Transformer'")],
)  # fmt: skip
def test_C2_a_folder_whose_encoder_lies_elsewhere_is_refused_by_name(
    entry: dict[str, str], told: str, tiny_folder: Path, tmp_path: Path
) -> None:
    source = theirs(tiny_folder, tmp_path / "source", [], {"modules.json": [entry]})
    (source / "config.json").rename(source / "elsewhere.json")
    with pytest.raises(InputError, match=f"modules.json: {told}"):
        fb.load(source)


def test_C2_prompts_are_put_before_texts(tiny_folder: Path, tmp_path: Path) -> None:
    said = {"prompts": {"query": "问：", "document": ""}, "default_prompt_name": None}
    files = {"1_Pooling/config.json": {**NEW, "pooling_mode": "mean"}, "config_sentence_transformers.json": said}
    source = theirs(tiny_folder, tmp_path / "st", ["Transformer", "Pooling"], files)
    plain = fb.load(source, device="cpu")
    assert any("query" in note for note in plain.notes)
    asked = plain.embed(["问：" + text for text in TEXTS])
    assert not np.allclose(plain.embed(TEXTS), asked)
    np.testing.assert_array_equal(plain.embed(TEXTS, prompt="query"), asked)
    with pytest.raises(InputError, match="prompt is 'passage'"):
        plain.embed(TEXTS, prompt="passage")
    put(source, "config_sentence_transformers.json", {**said, "default_prompt_name": "query"})
    np.testing.assert_array_equal(fb.load(source, device="cpu").embed(TEXTS), asked)
    np.testing.assert_allclose(oracle(source), asked, atol=1e-4)
    put(source, "1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False})
    with pytest.raises(InputError, match="is not pooled"):
        fb.load(source, device="cpu").embed(TEXTS)


def test_C2_max_seq_length_is_the_window_and_the_text_is_read_whole(tiny_folder: Path, tmp_path: Path) -> None:
    files = {"1_Pooling/config.json": {"pooling_mode": "cls"}, "sentence_bert_config.json": {"max_seq_length": 16}}
    source = theirs(tiny_folder, tmp_path / "st", ["Transformer", "Pooling"], files)
    model = fb.load(source, device="cpu")
    short, long = "春天来了", "春天来了，河边的柳树发了芽。" * 2
    np.testing.assert_allclose(model.embed([short])[0], pooled(model, short, "cls"), atol=1e-5)
    assert len(model._windows([long], model._window, 128)[0]) > 1
    whole = model.embed([long])
    assert not np.allclose(whole, model.embed([long[:12]]), atol=1e-3)  # what theirs cuts away counts
    put(source, "sentence_bert_config.json", {"max_seq_length": "16"})
    with pytest.raises(InputError, match="max_seq_length"):
        fb.load(source, device="cpu")
    (source / "sentence_bert_config.json").unlink()
    said = json.loads((source / "tokenizer_config.json").read_text())
    put(source, "tokenizer_config.json", {**said, "model_max_length": 16})  # where sentence-transformers 6 keeps it
    np.testing.assert_array_equal(fb.load(source, device="cpu").embed([long]), whole)


@pytest.mark.slow
def test_C2_the_real_one_has_vectors_of_length_1(minilm: Path) -> None:
    found = fb.load(minilm, device="cpu").embed(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(oracle(minilm), found, atol=1e-4)


# C3: one output is a number -------------------------------------------------------------------------------------------


def test_C3_a_head_with_one_output_gives_pairs_a_number(tagged: Callable[..., Path], tmp_path: Path) -> None:
    folder = tagged(tmp_path / "cross", "labels", ["LABEL_0"])
    (folder / "manifest.json").unlink()
    model = fb.load(folder, device="cpu")
    assert model.task() == "pair"
    values = [one.scores["value"] for one in model.predict([("今天", text) for text in TEXTS])]
    assert len({round(value, 6) for value in values}) == 3
    transformers = pytest.importorskip("transformers")
    named = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    read = transformers.AutoTokenizer.from_pretrained(folder)(["今天"] * 3, TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        np.testing.assert_allclose(named(**read).logits[:, 0].numpy(), values, atol=1e-4)
    with pytest.raises(InputError, match="must be two strings"):
        model.predict(["今天"])
    with pytest.raises(InputError, match="one output"):
        model.predict(["今天"], task="classify")


def test_C3_several_numbers_at_once_are_refused(tagged: Callable[..., Path], tmp_path: Path) -> None:
    folder = tagged(tmp_path / "two", "labels", ["a", "b"], problem_type="regression")
    with pytest.raises(InputError, match="2 numbers at once"):
        fb.load(folder, device="cpu").predict([("a", "b")], task="pair")


def test_C3_one_label_of_several_is_a_label(tagged: Callable[..., Path], tmp_path: Path) -> None:
    folder = tagged(tmp_path / "one", "labels", ["toxic"], problem_type="multi_label_classification")
    said = fb.load(folder, device="cpu").predict(["今天"])[0]
    assert 0 < said.scores["toxic"] < 1


@pytest.mark.slow
def test_C3_rerank_uses_the_head(tagged: Callable[..., Path], tmp_path: Path) -> None:
    """And where a head does not say whether it reads pairs, nothing is ranked without it."""
    pytest.importorskip("fastapi")
    from kit.served import serving

    cross, two = tagged(tmp_path / "cross", "labels", ["LABEL_0"]), tagged(tmp_path / "two", "labels", ["no", "yes"])
    values = [one.scores["value"] for one in fb.load(cross, device="cpu").predict([("今天", text) for text in TEXTS])]
    with serving(f"cross={cross}", f"two={two}", torch=True) as server:
        asked = {"model": "cross", "query": "今天", "texts": TEXTS}
        told = {own["index"]: own["score"] for own in server.asked("/rerank", asked).json}
        raw = {own["index"]: own["score"] for own in server.asked("/rerank", {**asked, "raw_scores": True}).json}
        refused = server.asked("/rerank", {**asked, "model": "two"})
    for place, value in enumerate(values):
        assert raw[place] == pytest.approx(value, abs=1e-3)
        assert told[place] == pytest.approx(1 / (1 + np.exp(-value)), abs=1e-3)
    assert refused.status == 422
    assert "--task pair" in json.dumps(refused.json, ensure_ascii=False)


# C4: import reads the whole before it writes --------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["bpe", "size", "labels", "mixed"])
def test_C4_import_writes_nothing_that_cannot_be_read(
    what: str, tagged: Callable[..., Path], tmp_path: Path, filbert: Callable[..., Any]
) -> None:
    labels = {"labels": ["O", "X-PER"], "mixed": ["O", "B-PER", "U-PER"]}.get(what, ["O", "B-PER", "I-PER"])
    source = tagged(tmp_path / "source", "tokens", labels)
    (source / "manifest.json").unlink()
    if what == "bpe":
        said = json.loads((source / "tokenizer.json").read_text())
        put(source, "tokenizer.json", {**said, "model": {**said["model"], "type": "BPE"}})
    elif what == "size":
        with (source / "vocab.txt").open("a", encoding="utf-8") as lines:
            lines.write("one-more\n")
        (source / "tokenizer.json").unlink()
    ran = filbert("import", source, "--out", tmp_path / "ours")
    if what == "labels":  # without a scheme each label is what it says (C7)
        assert ran.code == 0
        assert fb.load(tmp_path / "ours", device="cpu").predict(["今天天气"])
    else:
        assert ran.code == 2
        assert not (tmp_path / "ours").exists()
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


# C6: pickles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["BertForSequenceClassification", "BertForTokenClassification", "BertModel"])
def test_C6_the_way_out_of_a_pickle_keeps_heads_and_vocabulary(name: str, tmp_path: Path) -> None:
    put(tmp_path / "m", "config.json", {"model_type": "bert", "architectures": [name]})
    (tmp_path / "m/model.bin").write_bytes(b"\x80\x02.")
    with pytest.raises(InputError, match=f"from transformers import {name} as M, AutoTokenizer as T") as caught:
        weights.read_folder(tmp_path / "m")
    assert "T.from_pretrained('IN').save_pretrained('OUT')" in str(caught.value)


def test_C6_a_name_that_is_none_stands_in_no_command(tmp_path: Path) -> None:
    put(tmp_path / "m", "config.json", {"model_type": "bert", "architectures": ["x; import os"]})
    (tmp_path / "m/model.bin").write_bytes(b"\x80\x02.")
    with pytest.raises(InputError, match="import AutoModel as M"):
        weights.read_folder(tmp_path / "m")


# C7: taggers without O ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [["B-NN", "I-NN", "B-VV", "I-VV"], ["NN", "VV", "PU"], ["B", "I"], ["O", "PER", "LOC"], ["S-NN", "B-NN", "E-NN"]],
)
@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_C7_a_tagger_of_any_labels_answers(
    labels: list[str], runtime: str, tagged: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tagged(tmp_path / "pos", "tokens", labels)
    if runtime == "onnx":
        folder, _ = export.export(folder, tmp_path / "onnx")
    said = fb.load(folder, runtime=runtime).predict(["今天天气很好", "", "The trains"])
    kinds = {label.partition("-")[2] or label for label in labels} | {"_"}
    assert {span.label for one in said for span in one.spans} <= kinds
    if "O" not in labels:  # every word has a label
        assert sum(span.end - span.start for span in said[0].spans) == 6


def test_C7_labels_without_prefixes_stand_for_words(tagged: Callable[..., Path], tmp_path: Path) -> None:
    """Without O each word is a unit with the label of its first piece; a run of tokens is one where there is an O."""
    text = "今天 trains"
    folder = tagged(tmp_path / "pos", "tokens", ["NN", "VV", "PU"])
    model = fb.load(folder, device="cpu")
    spans = model.predict([text])[0].spans
    assert [(span.start, span.end) for span in spans] == [(0, 1), (1, 2), (3, 9)]
    encoding = model.tokenizer.encode(text)
    rows = model.engine.rows(encoding, np.arange(len(encoding.ids)))
    with torch.inference_mode():
        best = model.backbone.heads["tokens"](rows).argmax(-1).tolist()
    assert [span.label for span in spans] == [model.labels[best[place]] for place in (1, 2, 3)]


def test_C7_such_a_tagger_is_measured_too(tagged: Callable[..., Path], tmp_path: Path) -> None:
    from filbert.core.records import Example, Span

    model = fb.load(tagged(tmp_path / "ner", "tokens", ["O", "PER"]), device="cpu")
    text = "今天 trains"
    spans = model.predict([text])[0].spans
    gold = tuple(Span(span.start, span.end, span.label) for span in spans) or (Span(0, 2, "PER"),)
    task = tag_spec.items([Example((text,), gold)], ["O", "PER"], model.tokenizer, model.reads([text]).config)
    assert {int(place) for place in task.gold} <= {0, 1}
    told = task.evaluated(model.engine.answers(task))
    assert told["f1"] == (1.0 if spans else 0.0)


def test_C1_vectors_are_learnt_on_from_the_folders_own_pooling(tiny_folder: Path, tmp_path: Path) -> None:
    """And what was passed over in the folder is told where the run begins."""
    from filbert.core.records import Example
    from filbert.run.finetune import finetune
    from filbert.train.listeners import Silent

    class Notes(Silent):
        said: list[str] = []  # noqa: RUF012

        def event(self, kind: str, text: str, **more: Any) -> None:
            self.said.append(text)

    source = theirs(
        tiny_folder, tmp_path / "st", ["Transformer", "Pooling"], {"1_Pooling/config.json": {"pooling_mode": "cls"}}
    )
    put(source, "config.json", {**json.loads((source / "config.json").read_text()), "rope_theta": 3})
    rows = [Example(pair) for pair in [("今天天气", "天气很好"), ("火车", "高铁"), ("公园", "散步")]]
    finetune("embed", rows, source, tmp_path / "run", epochs=1, listener=Notes(), settings=["machine.threads=1"])
    said = json.loads((tmp_path / "run/model/task.json").read_text())
    assert said["pool"] == "cls"
    assert any("rope_theta" in text for text in Notes.said)
