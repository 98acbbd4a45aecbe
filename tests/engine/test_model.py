"""embed and fill: every text is read whole, order and company change nothing, offsets slice the user's own text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.engine.backend_torch import Engine
from filbert.engine.blanks import filled
from filbert.folder import folder as folders
from filbert.folder import sentence_transformers
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.text.windows import encode_windows

TEXTS = ["今天天气很好", "", "The train leaves at seven.", "我们坐高铁去北京，then we walk!", "好" * 50, "a b c " * 9]
LONG = "春天来了，河边的柳树发了芽。The river is calm today. " * 60


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> fb.Model:
    return fb.load(tiny_folder, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["mean", "cls", "pooled"])
def test_company_and_order_change_nothing(model: fb.Model, pool: str) -> None:
    texts = [*TEXTS, LONG]
    together = model.embed(texts, pool=pool)
    assert together.shape == (len(texts), 32)
    assert together.dtype == np.float32
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(model.embed([text], pool=pool)[0], vector, atol=1e-5)
    np.testing.assert_allclose(model.embed(texts[::-1], pool=pool)[::-1], together, atol=1e-5)


def test_a_short_text_is_the_plain_model(model: fb.Model) -> None:
    encoding = model.tokenizer.encode(TEXTS[0])
    with torch.inference_mode():
        hidden = model.backbone(tensors(pack([encoding])[0]))
    np.testing.assert_allclose(model.embed([TEXTS[0]], pool="mean")[0], hidden.mean(0), atol=1e-5)
    np.testing.assert_allclose(model.embed([TEXTS[0]], pool="cls")[0], hidden[0], atol=1e-5)


@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_nothing_of_a_long_text_is_cut(model: fb.Model, pool: str) -> None:
    """A change anywhere, the very end included, changes the vector."""
    whole = model.embed([LONG], pool=pool)[0]
    for place in (0, len(LONG) // 2, len(LONG) - 3):
        changed = LONG[:place] + "鱼" + LONG[place + 1 :]
        assert np.abs(model.embed([changed], pool=pool)[0] - whole).max() > 1e-4


def test_a_long_mean_is_the_mean_of_what_each_window_owns(model: fb.Model) -> None:
    windows = encode_windows(model.tokenizer, LONG, max_length=64, overlap=128)
    total, count = np.zeros(32), 0
    with torch.inference_mode():
        weights, means = [], []
        for window in windows:
            hidden = model.backbone(tensors(pack([window])[0])).numpy()
            kept = window.owned | (window.parts < 0)
            means.append(hidden[kept].mean(0))
            weights.append(window.owned.sum())
    total, count = np.average(means, axis=0, weights=weights), sum(weights)
    assert count == windows[0].num_tokens
    np.testing.assert_allclose(model.embed([LONG], pool="mean")[0], total, atol=1e-5)


def test_workers_give_what_one_gives(model: fb.Model) -> None:
    engine = Engine(model.backbone, budget=64)
    sequences = [model.tokenizer.encode(text[:90]) for text in TEXTS for _ in range(6)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = engine.first(sequences)
        torch.set_num_threads(2)
        np.testing.assert_allclose(engine.first(sequences), alone, atol=1e-6)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_workers_failure_is_raised(model: fb.Model) -> None:
    engine = Engine(model.backbone, budget=32)
    bad = model.tokenizer.encode("好")
    bad.ids[1] = 10**6
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(IndexError):
            engine.first([*(model.tokenizer.encode("好" * 30) for _ in range(6)), bad])
    finally:
        torch.set_num_threads(before)


def test_normalised_vectors_have_length_one(model: fb.Model) -> None:
    np.testing.assert_allclose(np.linalg.norm(model.embed(TEXTS, normalize=True), axis=1), 1.0, atol=1e-5)


def test_no_texts_no_vectors(model: fb.Model) -> None:
    assert model.embed([]).shape == (0, 32)


def test_fill_ranks_and_slices(model: fb.Model) -> None:
    text = "今天[MASK]气很好，去[MASK]园。"
    blanks = model.fill(text, top=7)
    assert [text[b.start : b.end] for b in blanks] == ["[MASK]", "[MASK]"]
    for blank in blanks:
        scores = [c.score for c in blank.candidates]
        assert len(scores) == 7
        assert scores == sorted(scores, reverse=True)
        assert 0 < sum(scores) <= 1
        assert not any(c.token.startswith("[") for c in blank.candidates)
    assert filled(text, blanks) == f"今天{blanks[0].candidates[0].text}气很好，去{blanks[1].candidates[0].text}园。"


def test_fill_finds_a_blank_at_the_end_of_a_long_text(model: fb.Model) -> None:
    text = LONG + "今天天[MASK]很好"
    (blank,) = model.fill(text)
    assert text[blank.start : blank.end] == "[MASK]"
    assert len(blank.candidates) == 5


def test_fill_agrees_with_transformers(tiny_folder: Path, model: fb.Model) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertForMaskedLM.from_pretrained(tiny_folder).eval()
    encoding = model.tokenizer.encode("今天[MASK]气很好", specials=True)
    with torch.inference_mode():
        scores = theirs(input_ids=torch.tensor(encoding.ids)[None].long()).logits[0]
    place = encoding.ids.tolist().index(model.tokenizer.mask_id)
    shares = scores[place].softmax(-1)
    (blank,) = model.fill("今天[MASK]气很好", top=3)
    for candidate in blank.candidates:
        assert candidate.score == pytest.approx(float(shares[model.tokenizer.id_of(candidate.token)]), abs=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fill("没有空"), r"no \[MASK\]"),
        (lambda m: m.fill("[MASK]", top=0), "top is 0"),
        (lambda m: m.embed("one string"), "list of strings"),
        (lambda m: m.embed(["a", 3]), "text 1 is of type int"),
        (lambda m: m.embed(["a"], pool="max"), "mean, cls, pooled"),
    ],
)
def test_refusals_say_what_to_do(model: fb.Model, call: object, message: str) -> None:
    with pytest.raises(fb.InputError, match=message):
        call(model)  # type: ignore[operator]


def test_a_model_without_heads_says_so(minilm: Path, tmp_path: Path) -> None:
    model = fb.load(minilm, device="cpu")
    with pytest.raises(fb.InputError, match="cannot fill"):
        model.fill("a [MASK]")
    assert sentence_transformers.read(minilm, 384).pool == "mean"


def test_an_imported_folder_keeps_its_pooling(tiny_folder: Path, tmp_path: Path) -> None:
    import shutil

    source = tmp_path / "source"
    shutil.copytree(tiny_folder, source)
    (source / "manifest.json").unlink()  # of what filbert saved, a module's file that was added is refused
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 32, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}'
    )
    folders.import_folder(source, tmp_path / "ours")
    text = [TEXTS[0]]
    before, after = fb.load(source, device="cpu"), fb.load(tmp_path / "ours", device="cpu")
    np.testing.assert_array_equal(after.embed(text), before.embed(text, pool="cls"))
    np.testing.assert_array_equal(after.embed(text), before.embed(text))


def test_a_tokenizer_of_another_model_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    import shutil

    mixed = tmp_path / "mixed"
    shutil.copytree(tiny_folder, mixed)
    (mixed / "manifest.json").unlink()
    (mixed / "tokenizer.json").unlink()
    with (mixed / "vocab.txt").open("a", encoding="utf-8") as handle:
        handle.write("one-more\n")
    with pytest.raises(fb.InputError, match="not of one folder"):
        fb.load(mixed)
