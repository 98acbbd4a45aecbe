"""The model that ships: whole, small, nobody's machine in it, and it knows some Chinese and English."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import filbert as fb
from filbert.builtin import model as builtin
from filbert.cli.main import filbert
from filbert.core.settings import stated
from filbert.folder import folder as folders
from filbert.folder import weights
from filbert.ship import onnx

MOST_BYTES = 40_000_000
FILES = {
    "README.md", "config.json", "golden.jsonl", "log.jsonl", "loss.svg", "manifest.json", "model.onnx",
    "model.safetensors", "recipe.json", "runtime.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
}  # fmt: skip
A_PATH = re.compile(r"(?<![\w.<])(?:~|/(?:home|root|tmp|work|mnt|opt|var|srv|data|Users|usr)|[A-Za-z]:\\+\w)/?\w")
A_HOST = re.compile(r"\w+://(?!www\.w3\.org/2000/svg)|\blocalhost\b|\b\d{1,3}(?:\.\d{1,3}){3}\b")
BLANKS = [  # the word that is meant, and the right one of the first three
    ("中国的首都是北[MASK]。", "京"),
    ("火[MASK]站就在前面。", "车"),
    ("这部电[MASK]由他导演，票房很好。", "影"),
    ("她是一名著名的女演[MASK]。", "员"),
    ("今天天[MASK]很好，我们去公园散步。", "气"),
    ("他每天早上六[MASK]起床跑步。", "点"),
    ("The train leaves at seven in [MASK] morning.", "the"),
    ("He graduated from the [MASK] of Oxford.", "university"),
    ("The president lives in the White [MASK].", "house"),
    ("The United [MASK] of America.", "states"),
    ("He was born [MASK] 1950.", "in"),
]
PAIRS = {  # neighbours are about one thing
    "zh": (
        "火车票可以在车站买到。", "高铁列车每天从北京开往上海。",
        "医生建议病人多喝水、早点休息。", "这家医院治疗心脏疾病很有名。",
        "球队在昨晚的决赛中获胜。", "他在世界杯上踢进两球。",
        "皇帝派将军率兵攻打敌国。", "朝廷任命他为大臣，镇守边疆。",
        "这张专辑收录了十首歌曲。", "乐队的新单曲登上了排行榜。",
    ),
    "en": (
        "The team won the final match last night.", "He scored two goals in the cup game.",
        "The king was crowned after his father died.", "The queen ruled the empire for forty years.",
        "The album was released with ten songs.", "The band recorded its music in a studio.",
        "The river flows south into a large lake.", "The mountain is covered with snow and forest.",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Iterator[fb.Model]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield fb.load("builtin", device="cpu")
    torch.set_num_threads(threads)


def read(name: str) -> str:
    return (builtin.folder() / name).read_text(encoding="utf-8")


# The folder -----------------------------------------------------------------------------------------------------------


def test_the_folder_is_whole_and_small() -> None:
    paths = list(builtin.folder().iterdir())
    assert {path.name for path in paths} == FILES
    assert sum(path.stat().st_size for path in paths) <= MOST_BYTES


def test_every_file_is_the_one_that_was_saved() -> None:
    files = json.loads(read("manifest.json"))["files"]
    assert set(files) == FILES - {"manifest.json"}
    for name, told in files.items():
        raw = (builtin.folder() / name).read_bytes()
        assert (len(raw), hashlib.sha256(raw).hexdigest()) == (told["bytes"], told["sha256"]), name


def test_no_file_names_a_machine() -> None:
    assert A_PATH.search('"start": "/home/someone/x"')
    assert A_HOST.search("see https://example.org")
    for name in FILES - {"model.safetensors"}:
        text = (builtin.folder() / name).read_text(encoding="utf-8", errors="replace")  # a graph is not only text
        assert not A_PATH.search(text), (name, A_PATH.search(text))
        assert not A_HOST.search(text), (name, A_HOST.search(text))


def test_the_graph_is_the_one_that_is_written_today(tmp_path: Path) -> None:
    """Else `builtin` without torch would go on by an old one."""
    pytest.importorskip("onnx")
    shutil.copytree(builtin.folder(), tmp_path / "model")
    onnx.add(tmp_path / "model")
    for name in ("model.onnx", "runtime.json"):
        assert (tmp_path / "model" / name).read_bytes() == (builtin.folder() / name).read_bytes(), name


def test_the_weights_are_halves_and_finite() -> None:
    stored = weights.read(builtin.folder() / "model.safetensors")
    assert {one.dtype for one in stored.values()} == {"F16"}
    assert all(np.isfinite(one.array().astype(np.float32)).all() for one in stored.values())


def test_it_loads_without_complaint(model: fb.Model) -> None:
    assert folders.load("builtin", verify=True).notes == []
    assert model.notes == []
    assert model.tokenizer.vocab_size == model.config.vocab_size


def test_the_recipe_is_the_models(model: fb.Model) -> None:
    recipe = json.loads(read("recipe.json"))
    assert recipe["model"] == stated(model.config)
    assert recipe["task"]["max_length"] == model.config.max_length
    log = [json.loads(line) for line in read("log.jsonl").splitlines()]
    steps = [line["step"] for line in log if "loss" in line]
    assert (steps[0], steps[-1]) == (1, recipe["train"]["steps"])
    assert steps == sorted(set(steps))
    measured = [line["step"] for line in log if "held" in line]
    assert measured == list(range(4_000, 16_001, recipe["train"]["evaluate_every"]))
    assert [line["event"] for line in log if "event" in line] == ["resumed"]


def test_the_card_says_what_is_so(model: fb.Model) -> None:
    english, chinese = read("README.md").rsplit("\n---\n\n# ", 1)
    count = sum(weight.numel() for weight in model.backbone.parameters())
    for part in (english, chinese):
        assert f"{count:,}" in part
        assert f"{model.config.vocab_size:,}" in part
    rows = ["\n".join(re.findall(r"^\|.*", part, re.MULTILINE)) for part in (english, chinese)]
    numbers = [re.findall(r"\d+[.,]\d+", row) for row in rows]
    assert len(numbers[0]) > 20
    assert numbers[0] == numbers[1]  # neither language knows more


def test_a_copy_without_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(builtin.folder() / "config.json", tmp_path)  # the weights are what archives leave out
    monkeypatch.setattr(builtin, "_path", lambda: tmp_path)
    assert not builtin.is_there()
    ran = CliRunner().invoke(filbert, ["fill", "火[MASK]站"])
    assert isinstance(ran.exception, fb.InputError)
    assert "without the built-in model" in str(ran.exception)


# What it knows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "word"), BLANKS)
def test_it_fills_blanks(model: fb.Model, text: str, word: str) -> None:
    assert word in [candidate.text for candidate in model.fill(text, top=3)[0].candidates]


def test_fill_needs_no_model_named() -> None:
    ran = CliRunner().invoke(filbert, ["fill", "火[MASK]站就在前面。", "--json"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["filled"] == "火车站就在前面。"


@pytest.mark.parametrize("language", sorted(PAIRS))
def test_texts_about_one_thing_are_nearest(model: fb.Model, language: str) -> None:
    vectors = model.embed(PAIRS[language])
    vectors -= vectors.mean(0)  # as the card advises
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = vectors @ vectors.T
    np.fill_diagonal(near, -1)
    partners = np.arange(len(near)) ^ 1
    assert near.argmax(1).tolist() == partners.tolist()
    near_partner = near[np.arange(len(near)), partners]
    near[np.arange(len(near)), partners] = -1
    assert (near_partner - near.max(1)).min() > 0.2


@pytest.mark.slow
def test_long_texts_are_read_to_the_end(model: fb.Model) -> None:
    body = PAIRS["zh"][0] * 60
    assert len(model.tokenizer.encode(body).ids) > model.config.max_length
    plain, other = model.embed([body, body + PAIRS["zh"][6] * 6])
    assert np.isfinite(plain).all()
    assert np.abs(plain - other).max() > 0.01


@pytest.mark.slow
def test_transformers_gives_the_same_scores(model: fb.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    theirs, told = transformers.BertForMaskedLM.from_pretrained(
        builtin.folder(), dtype=torch.float32, output_loading_info=True
    )
    assert not any(told[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(builtin.folder())
    for text in ("火[MASK]站就在前面，他早上六[MASK]出发。", "She went [MASK] the market to buy fish."):
        blanks = model.fill(text, top=model.config.vocab_size)
        batch = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            chances = theirs.eval()(**batch).logits[0].softmax(-1)
        asked = chances[batch["input_ids"][0] == tokenizer.mask_token_id]
        assert len(asked) == len(blanks) == text.count("[MASK]")
        for blank, right in zip(blanks, asked, strict=True):
            tokens, found = zip(*((c.token, c.score) for c in blank.candidates), strict=True)
            assert len(tokens) == model.config.vocab_size - len(tokenizer.all_special_ids)
            expected = right[tokenizer.convert_tokens_to_ids(list(tokens))]
            # In logarithms the whole vocabulary counts, not the few tokens that have all the probability.
            np.testing.assert_allclose(np.log(found), expected.log().numpy(), rtol=0, atol=1e-3)
