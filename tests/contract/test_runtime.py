"""What an exported folder says without torch is what it says with it: every task, decoder, layout and pool."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.records import Prediction
from filbert.engine.model import Model, load
from filbert.folder import runtime
from filbert.folder.folder import save
from filbert.folder.manifest import seal
from filbert.models import bert
from filbert.nn.attention import tensors
from filbert.nn.crf import CRF
from filbert.nn.crf_walk import marginals
from filbert.nn.ops import erf
from filbert.nn.reach import REACH
from filbert.pack.lay import pack
from filbert.ship import encoder, int8, onnx
from filbert.tasks.tag.decode import allowed
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import encode_windows
from kit.folders import task_file
from kit.models import small_bert

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TEXTS = ["今天下雨，我们在家看书。", "", "苹果公司在北京发布了新手机。" * 12, "a", "他打了一个电话给上海的朋友"]
PAIRS = [(text, other) for text, other in zip(TEXTS, TEXTS[::-1], strict=True)]
TAGS = ("O", "B-城", "I-城", "B-人", "I-人")
FIVE = ("体育", "财经", "科技", "娱乐", "教育")
BLANKS = '{"好": "好", "不": "不"}'
# name, parts, labels, task.json, what is asked
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Any], list[Any]]] = {
    "classify": (("labels",), FIVE, {"task": "classify", "pool": "mean", "temperature": 1.7}, TEXTS),
    "classify cls": (("pooler", "labels"), FIVE, {"task": "classify", "pool": "cls"}, TEXTS),
    "classify several": (("labels",), FIVE, {"task": "classify", "several": 0.4}, TEXTS),
    "pair": (("labels",), FIVE, {"task": "pair"}, PAIRS),
    "tag softmax": (("tokens",), TAGS, {"task": "tag", "decoder": "softmax", "scheme": "bio"}, TEXTS),
    "tag crf": (("tokens", "crf"), TAGS, {"task": "tag", "decoder": "crf", "scheme": "bio"}, TEXTS),
    "tag span": (("pointer",), ("城", "人"), {"task": "tag", "decoder": "span", "scheme": "bio"}, TEXTS),
    "relation": (("relation",), FIVE, {"task": "relation"}, [(TEXTS[2], (0, 4), (5, 7)), (TEXTS[4], "上海", "朋友")]),
    "answer": (("span",), (), {"task": "answer"}, [("谁发布了手机？", TEXTS[2]), ("天气", TEXTS[0]), ("谁", "")]),
    "choose": (("choice",), (), {"task": "choose"}, [(TEXTS[2], "哪里？", ["北京", "上海"]), ("", "谁", ["甲", "乙"])]),
    "embed": ((), (), {"task": "embed"}, PAIRS),
    "blank": (("mlm",), ("好", "不"), {"task": "blank", "template": "这[MASK]。{text}", "words": BLANKS}, TEXTS),
}  # fmt: skip


@pytest.fixture(scope="module")
def vocabulary(tiny_folder: Path) -> Tokenizer:
    return Tokenizer.load(tiny_folder)


def exported(folder: Path, case: str, tokenizer: Tokenizer, **shape: Any) -> Path:
    """The folder of a small model for that case, with all that a run without torch needs."""
    parts, labels, said, _ = CASES[case]
    said = {"max_length": 64, **({} if case == "relation" else {"overlap": 16}), **said}
    model = small_bert(tokenizer, parts, max(2, len(labels)), noise=0.3, **shape)
    save(folder / "torch", model, tokenizer, labels=labels, files=task_file(said))
    return onnx.export(folder / "torch", folder / "onnx")


def both(folder: Path) -> tuple[Model, Model]:
    return load(folder, runtime="torch", device="cpu"), load(folder, runtime="onnx")


def assert_same(one: Prediction, two: Prediction) -> None:
    assert (one.label, one.labels, one.coverage) == (two.label, two.labels, two.coverage)
    assert list(one.scores) == list(two.scores)
    assert np.allclose(list(one.scores.values()), list(two.scores.values()), atol=1e-5)
    places = [[(span.start, span.end, span.label) for span in each.spans] for each in (one, two)]
    assert places[0] == places[1]
    assert np.allclose([s.score for s in one.spans], [s.score for s in two.spans], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_task_says_the_same_without_torch(case: str, vocabulary: Tokenizer, tmp_path: Path) -> None:
    with_it, without = both(exported(tmp_path, case, vocabulary))
    asked, task = CASES[case][3], CASES[case][2]["task"]
    said = [model.predict(asked, task=task) for model in (with_it, without)]
    for one, two in zip(*said, strict=True):
        assert_same(one, two)
    alone = [without.predict([each], task=task)[0] for each in asked]
    for one, two in zip(said[1], alone, strict=True):  # packed as one by one
        assert_same(one, two)
    if any(each.spans for each in said[0]) or task in ("answer", "embed"):
        return
    assert len({tuple(each.scores.values()) for each in said[0]}) > 1 or task == "tag"  # texts differ in what is said


LAYOUTS: dict[str, dict[str, Any]] = {
    "classic": {},
    "sinusoidal": {"positions": "sinusoidal", "feedforward": "relu"},
    "tanh": {"feedforward": "gelu-tanh"},
    "rotary": {"positions": "rotary", "norm": "pre", "segments": 0, "eps": 1e-5},
    "modern": {
        "positions": "rotary-local", "norm": "pre", "feedforward": "geglu", "segments": 0, "eps": 1e-5, "layers": 4,
        "max_length": 256,
    },
    "pruned": {"heads": (4, 3, 0, 1), "layers": 3},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_vectors(layout: str, vocabulary: Tokenizer, tmp_path: Path) -> None:
    model = small_bert(vocabulary, ("mlm", "pooler"), **LAYOUTS[layout])
    save(tmp_path / "torch", model, vocabulary)
    folder = onnx.export(tmp_path / "torch", tmp_path / "onnx")
    with_it, without = both(folder)
    length = model.config.max_length
    read = [*TEXTS, TEXTS[4]]  # one twice, so that a run has several sequences in every layout
    windows = [w for text in read for w in encode_windows(vocabulary, text, max_length=length, overlap=16)]
    packed, _ = pack(windows)
    with torch.inference_mode():
        wanted = with_it.backbone(tensors(packed)).numpy()
    assert np.abs(without.engine.vectors(packed) - wanted).max() < 1e-5
    some = np.array([3, 0, 7])
    assert np.abs(without.engine.vectors(packed, some) - wanted[some]).max() < 1e-5
    firsts = np.asarray(packed.boundaries)[:-1]
    for asked in ("first", firsts):  # folded into one question for each sequence, and not
        assert np.abs(without.engine.vectors(packed, asked) - wanted[firsts]).max() < 1e-5
    for pool in ("mean", "cls", "pooled"):
        assert np.abs(with_it.embed(TEXTS, pool=pool) - without.embed(TEXTS, pool=pool)).max() < 1e-5
    filled = [found.fill("今天[MASK]气很[MASK]") for found in (with_it, without)]
    for one, two in zip(*filled, strict=True):
        assert [c.token for c in one.candidates] == [c.token for c in two.candidates]
        assert np.allclose([c.score for c in one.candidates], [c.score for c in two.candidates], atol=1e-5)


@pytest.mark.slow
def test_the_folder_holds_every_number_once_and_still_loads_everywhere(vocabulary: Tokenizer, tmp_path: Path) -> None:
    folder = exported(tmp_path, "classify", vocabulary)
    assert (folder / runtime.ENCODER).stat().st_size < 20_000 < (folder / "model.safetensors").stat().st_size
    assert (folder / "model.safetensors").read_bytes() == (tmp_path / "torch/model.safetensors").read_bytes()
    from transformers import AutoModelForSequenceClassification

    assert AutoModelForSequenceClassification.from_pretrained(folder).config.num_labels == len(FIVE)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_weights_are_read_as_they_lie(dtype: str, vocabulary: Tokenizer, tmp_path: Path) -> None:
    model = small_bert(vocabulary, ("mlm",)).to(getattr(torch, dtype))
    save(tmp_path / "torch", model, vocabulary)
    with_it, without = both(onnx.export(tmp_path / "torch", tmp_path / "onnx"))
    assert np.abs(with_it.embed(TEXTS) - without.embed(TEXTS)).max() < 1e-5


@pytest.mark.slow
def test_torch_is_not_imported(vocabulary: Tokenizer, tmp_path: Path) -> None:
    folder = exported(tmp_path, "tag crf", vocabulary)
    code = (
        "import sys, builtins; sys.modules['torch'] = None\n"
        "import filbert as fb\n"
        f"model = fb.load({str(folder)!r}, runtime='onnx')\n"
        "print(model.predict(['今天下雨，我们在家看书。'])[0].coverage, model.embed(['好']).shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1.0 (1, 32)\n"), done.stderr


@pytest.mark.slow
def test_with_torch_its_compiler_is_not_loaded(vocabulary: Tokenizer, tmp_path: Path) -> None:
    """It is half of the time to a first answer, and inference compiles nothing."""
    save(tmp_path / "torch", small_bert(vocabulary, ("mlm",)), vocabulary)
    code = (
        "import sys\n"
        "import filbert as fb\n"
        f"shape = fb.load({str(tmp_path / 'torch')!r}, runtime='torch', device='cpu').embed(['好']).shape\n"
        "print(shape, 'torch' in sys.modules, 'torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "(1, 32) True False\n"), done.stderr


def test_what_needs_torch_says_so(vocabulary: Tokenizer, tmp_path: Path) -> None:
    folder = exported(tmp_path, "classify", vocabulary)
    with pytest.raises(InputError, match="needs torch"):
        _ = load(folder, runtime="onnx").backbone
    with pytest.raises(InputError, match=r"has no runtime\.json"):
        load(tmp_path / "torch", runtime="onnx")
    with pytest.raises(InputError, match="runtime"):
        load(folder, runtime="tensorflow")
    with pytest.raises(InputError, match=r"has no model\.int8\.onnx"):
        load(folder, dtype="int8")
    (folder / runtime.ENCODER).write_bytes(b"broken")
    with pytest.raises(InputError, match=r"model\.onnx"):
        load(folder, runtime="onnx")


def test_other_families_are_refused(vocabulary: Tokenizer, tmp_path: Path) -> None:
    from filbert.models import gpt

    shape = replace(gpt.PRESETS["tiny"], vocab_size=vocabulary.vocab_size, width=32, inner=64)
    save(tmp_path / "gpt", gpt.Gpt(shape, ("lm",)), vocabulary)
    with pytest.raises(InputError, match="only bert's goes to ONNX"):
        onnx.export(tmp_path / "gpt", tmp_path / "out")


@pytest.mark.slow
def test_marginals_are_those_of_the_crf() -> None:
    legal, random = allowed(TAGS, "bio"), np.random.default_rng(0)
    crf = CRF(len(TAGS), legal)
    with torch.no_grad():
        for weight in crf.parameters():
            weight.normal_()
    scores = random.normal(size=(40, len(TAGS))).astype(np.float32) * 3
    bounds = np.array([0, 7, 7, 8, 29, 40])
    weights = tuple(getattr(crf, name).detach().numpy() for name in ("begin", "transitions", "end"))
    found = marginals(scores, bounds, weights, legal)  # type: ignore[arg-type]
    leaf = torch.as_tensor(scores).requires_grad_()
    (wanted,) = torch.autograd.grad(crf.log_partition(leaf, bounds).sum(), leaf)  # as learning has them
    assert np.abs(found - wanted.numpy()).max() < 1e-6


def test_erf() -> None:
    import math

    places = np.concatenate((np.linspace(-7, 7, 4001), [0, 1e-9, 2.5, -2.5]))
    assert np.abs(erf(places) - [math.erf(x) for x in places]).max() < 1e-13


def test_configs_are_of_bert() -> None:
    """The graph reads `heads_in`, `head_width` and the constants of models.bert: a renamed one must fail here."""
    assert bert.reach(bert.PRESETS["modern"], 1) == REACH


@pytest.mark.slow
@pytest.mark.parametrize("case", ["classify", "tag crf", "answer", "embed"])
def test_eight_bits_say_nearly_the_same(case: str, vocabulary: Tokenizer, tmp_path: Path) -> None:
    exported(tmp_path, case, vocabulary, width=128, inner=256, heads=4)
    folder = onnx.export(tmp_path / "torch", tmp_path / "small", int8=True)
    exact, small = load(folder, runtime="onnx"), load(folder, dtype="int8")
    assert (folder / runtime.SMALL_WEIGHTS).stat().st_size < 0.4 * 4 * sum(
        p.numel() for n, p in load(folder, device="cpu").backbone.named_parameters() if n.startswith("layers.")
    )
    asked = CASES[case][3]
    said = [model.predict(asked, task=CASES[case][2]["task"]) for model in (exact, small)]
    assert [len(each) for each in said] == [len(asked)] * 2
    one, two = (model.embed(TEXTS, normalize=True) for model in (exact, small))
    assert (one * two).sum(axis=1).min() > 0.98


@pytest.mark.parametrize("kind", ["normal", "alike", "odd", "none"])
def test_products_of_eight_bits_are_never_cut(kind: str) -> None:
    """CPUs without VNNI cut the sum of two neighbouring products at 2^15: no weights may come near it."""
    import onnxruntime

    random = np.random.default_rng(5)
    shapes = {"normal": (64, 384), "alike": (64, 384), "odd": (3, 17), "none": (4, 1)}
    weight = random.normal(size=shapes[kind]).astype(np.float32)
    if kind == "alike":  # all of one size: the most that neighbours can be together
        weight = np.sign(random.integers(0, 2, (64, 1)) - 0.5) * random.uniform(0.996, 1, (64, 384))
    rounded, scale = int8.levels(weight.astype(np.float32))
    wide = rounded.astype(np.int64)
    even = wide[:, : wide.shape[1] // 2 * 2]
    assert np.abs(wide).max() <= 127
    assert np.abs(even.reshape(len(wide), -1, 2).sum(axis=2)).max(initial=0) <= 128
    assert np.abs(wide * scale[:, None] - weight).max() <= 1.51 * scale.max()
    rows = np.concatenate([np.full((2, wide.shape[1]), 255), random.integers(0, 256, (30, wide.shape[1]))])
    graph = encoder.Graph()
    found = graph.op("MatMulInteger", "rows", "weight", graph.constant(0, np.uint8), graph.constant(0, np.int8))
    helper, proto = graph.onnx.helper, graph.onnx.TensorProto
    given = [helper.make_tensor_value_info(name, kind, None) for name, kind in (("rows", 2), ("weight", 3))]
    out = helper.make_tensor_value_info(found, proto.INT32, None)
    made = helper.make_graph(graph.nodes, "product", given, [out], list(graph.initializers.values()))
    opset = [helper.make_opsetid("", encoder.OPSET)]
    model = helper.make_model(made, opset_imports=opset, ir_version=encoder.IR)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    product = session.run(None, {"rows": rows.astype(np.uint8), "weight": np.ascontiguousarray(rounded.T)})[0]
    assert np.array_equal(product, rows @ wide.T)


def test_a_folder_of_the_first_export_takes_the_graph_that_is_right_everywhere(
    vocabulary: Tokenizer, tmp_path: Path
) -> None:
    exported(tmp_path, "classify", vocabulary)
    folder = onnx.export(tmp_path / "torch", tmp_path / "small", int8=True)
    told = load(folder, dtype="int8").embed(["今天"])
    (folder / runtime.SMALL_ENCODER).rename(folder / runtime.FORMER_ENCODER)
    (folder / runtime.SMALL_ENCODER).write_bytes(b"of CPUs with VNNI")
    seal(folder)
    assert np.array_equal(load(folder, dtype="int8").embed(["今天"]), told)


@pytest.mark.slow
def test_real_vectors_keep_their_neighbours_in_eight_bits(minilm: Path, tmp_path: Path) -> None:
    folder = onnx.export(minilm, tmp_path / "small", int8=True)
    subjects = ("a cat", "two dogs", "the train", "my sister", "an old man", "this city", "the new phone", "her boss")
    acts = ("sleeps on the sofa", "was late again", "costs too much", "likes cold rain", "has no name", "is in Berlin")
    texts = [f"{subject} {act}" for subject in subjects for act in acts]
    one, two = (load(folder, **how).embed(texts, normalize=True) for how in ({"runtime": "onnx"}, {"dtype": "int8"}))
    assert np.median((one * two).sum(axis=1)) >= 0.995
    nearest = []
    for vectors in (one, two):
        near = vectors @ vectors.T
        np.fill_diagonal(near, -1)
        nearest.append(near.argmax(axis=1))
    assert (nearest[0] == nearest[1]).mean() >= 0.9
