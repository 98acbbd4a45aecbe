"""Probes: features as a plain forward has them, planted properties where they lie, honest controls, clear refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example, Span
from filbert.core.registry import members
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.run import new_models
from filbert.see import probe
from filbert.see.hidden import every_layer
from filbert.see.probe import fitted, probed, untrained
from filbert.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
SIGNS = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动"


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Any:
    return fb.load(tiny_folder, device="cpu")


def signs(count: int, tokenizer: Tokenizer) -> list[str]:
    """Characters that are tokens of their own."""
    known = set(tokenizer.vocabulary)
    found = [token for token in dict.fromkeys(SIGNS + "".join(tokenizer.vocabulary)) if token in known]
    return [token for token in found if "\u4e00" <= token <= "\u9fff"][:count]


def words(model: Any, count: int = 90, kinds: int = 20) -> list[Example]:
    """Texts of ten signs each, every sign a word; its label hangs on nothing but the sign: a or b, by turns."""
    letters, random = signs(kinds, model.tokenizer), np.random.default_rng(0)
    found = []
    for index in range(count):
        text = "".join(random.choice(letters, size=10))
        spans = tuple(Span(at, at + 1, "ab"[letters.index(sign) % 2]) for at, sign in enumerate(text))
        found.append(Example((text,), spans, index))
    return found


def texts(model: Any, count: int = 120) -> list[Example]:
    """Texts that have one of two signs somewhere, and the label of that sign."""
    letters, random = signs(40, model.tokenizer), np.random.default_rng(1)
    found = []
    for index in range(count):
        own = list(random.choice(letters[2:], size=6))
        own.insert(int(random.integers(7)), letters[index % 2])
        found.append(Example(("".join(own),), "yes" if index % 2 else "no", index))
    return found


# Features -------------------------------------------------------------------------------------------------------------


def test_features_equal_a_plain_forward(model: Any) -> None:
    """Every layer of a text by hand; the last one of long texts, read in windows, as `embed` has it."""
    examples = texts(model, 24)
    examples[3] = replace(examples[3], texts=(examples[3].texts[0] * 30,))  # 210 tokens where a window has 64
    units, layers = probe._read(model, examples, "classify")
    assert [layer.shape for layer in layers] == [(24, 32)] * 3
    assert units.kind == "text"
    packed = tensors(pack([model.tokenizer.encode(examples[0].texts[0])])[0])
    with torch.inference_mode():
        x_TD = model.backbone.embeddings(packed)
        for index in range(3):
            np.testing.assert_allclose(layers[index][0], x_TD.mean(0).numpy(), atol=1e-5)
            x_TD = model.backbone.layers[index](x_TD, packed, None, None) if index < 2 else x_TD
    learnt = [example.texts[0] for index, example in enumerate(examples) if index != 3]
    np.testing.assert_allclose(np.delete(layers[-1], 3, axis=0), model.embed(learnt, pool="mean"), atol=1e-5)


def test_windows_of_a_long_text_are_read_as_the_task_reads_them(model: Any) -> None:
    from filbert.tasks.classify import items as classify
    from filbert.tasks.classify import spec as classify_spec

    examples = [replace(example, texts=(example.texts[0] * 30,)) for example in texts(model, 20)]
    _, layers = probe._read(model, examples, "classify")
    task = classify.Items(examples, ("no", "yes"), model.tokenizer, classify_spec.Config(max_length=64))
    assert len(task.cuts.first) > len(examples)

    class Plain(torch.nn.Module):
        """The encoder itself, whose head says what it is given."""

        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.config = model.backbone, model.config
            self.heads = torch.nn.ModuleDict({"labels": torch.nn.Linear(32, 32, bias=False)})
            torch.nn.init.eye_(self.heads["labels"].weight)

        def forward(self, packed: Any, rows: Any = None) -> Any:
            return self.backbone(packed, rows)

    from filbert.engine.backend_torch import Engine

    np.testing.assert_allclose(layers[-1], np.stack(Engine(Plain()).answers(task)), atol=1e-5)


def test_a_words_vector_is_the_mean_of_its_tokens(model: Any) -> None:
    """Where every word has a label, words are the units; spans of some tokens are probed token by token."""
    text = "".join(signs(8, model.tokenizer))
    cut = (Span(0, 3, "n"), Span(3, 5, "v"), Span(5, 8, "n"))
    units, layers = probe._read(model, [Example((text,), cut, index) for index in range(20)], "tag")
    assert units.kind == "word"
    assert units.names == ("n", "v")
    assert units.gold_N[:3].tolist() == [0, 1, 0]
    packed = tensors(pack([model.tokenizer.encode(text)])[0])
    with torch.inference_mode():
        rows = model.backbone(packed).numpy()
    np.testing.assert_allclose(layers[-1][1], rows[4:6].mean(0), atol=1e-5)
    some, vectors = probe._read(model, [Example((text,), cut[:1], index) for index in range(20)], "tag")
    assert some.kind == "token"
    assert [some.names[gold] for gold in some.gold_N[:5]] == ["B-n", "I-n", "I-n", "O", "O"]
    np.testing.assert_allclose(vectors[-1][:8], rows[1:9], atol=1e-5)


@pytest.mark.parametrize("name", members("models"))
def test_every_encoder_of_the_family_gives_its_layers(name: str, tokenizer: Tokenizer) -> None:
    """First the embeddings, last what the encoder itself gives; nothing listens to it afterwards."""
    torch.manual_seed(0)
    encoder = new_models.model_of(name, new_models.config_of(name, "tiny", tokenizer), (), tokenizer).eval()
    packed = tensors(pack([tokenizer.encode("今天天气很好，我们去公园。"), tokenizer.encode("好")])[0])
    with torch.inference_mode(), every_layer(encoder) as hidden:
        all_TX, plain_TD = hidden(packed), encoder(packed)
        parts = all_TX.split(hidden.widths, dim=-1)
        given_TD = encoder.mix(parts) if name == "elmo" else parts[-1]  # ELMo gives a mix of its layers
    assert len(parts) == len(getattr(encoder, "layers", ())) + 1
    torch.testing.assert_close(given_TD, plain_TD)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in encoder.modules())


def test_another_threads_use_is_not_kept(model: Any) -> None:
    packed = tensors(pack([model.tokenizer.encode("今天天气很好")])[0])
    failed: list[BaseException] = []

    def work() -> None:
        try:
            model.backbone(packed)
        except BaseException as error:
            failed.append(error)

    with torch.inference_mode(), every_layer(model.backbone) as hidden:
        other = threading.Thread(target=work)
        other.start()
        other.join()
        assert hidden(packed).shape[-1] == 3 * 32
    assert not failed


# Probes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_property_of_the_word_alone_is_found_at_layer_0(model: Any) -> None:
    """Of words by their sign, and of texts by a sign in them; the commonest label knows neither."""
    found = probed(model, words(model), "tag")
    assert found.unit == "word"
    assert found.layers[0].accuracy > 0.95
    assert found.by_type is not None
    assert found.by_type > 0.95
    assert found.majority < 0.65
    assert found.layers[0].low <= found.layers[0].accuracy <= found.layers[0].high
    assert probed(model, texts(model, 400)).layers[0].accuracy > 0.85


def test_random_weights_show_no_rising_curve(model: Any) -> None:
    found = probed(untrained(model, seed=3), words(model), "tag")
    assert found.lead is None or not found.lead.is_certain
    assert max(layer.accuracy for layer in found.layers[1:]) <= found.layers[0].accuracy + 0.03


@pytest.mark.slow
def test_the_control_task_is_learnt_by_heart_and_no_further(model: Any) -> None:
    """A word that was learnt has its random label; of words that were not, chance alone is right."""
    every = words(model, 60, kinds=1_000)  # so many kinds that some stand in few texts
    found = probed(model, every, "tag")
    first = found.layers[0]
    assert first.control_unseen is not None
    assert abs(first.control_unseen - 0.5) < 0.15
    seen = probed(model, words(model), "tag").layers[0]
    assert seen.control_unseen is None
    assert seen.control > 0.95
    assert abs(seen.selectivity - (seen.accuracy - seen.control)) < 1e-9
    alone = probed(model, texts(model, 400)).layers[0]  # texts do not come again
    assert abs(alone.control - 0.5) < 0.15
    assert alone.control_fit > alone.control


def test_pairs_are_read_as_pairs(model: Any) -> None:
    letters, random = signs(40, model.tokenizer), np.random.default_rng(2)
    pairs = []
    for index in range(200):
        first, second = ("".join(random.choice(letters[2:], size=4)) for _ in range(2))
        pairs.append(Example((first, second + letters[index % 2]), "yn"[index % 2], index))
    found = probed(model, pairs, "pair")
    assert found.task == "pair"
    assert found.layers[0].accuracy > 0.8


@pytest.mark.slow
def test_the_seed_fixes_everything(model: Any) -> None:
    examples = texts(model, 80)
    one, same, other = (probed(model, examples, limit=60, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.as_dict() != other.as_dict()
    assert sum(one.num_texts) == 60


def test_the_regression_is_the_usual_one() -> None:
    """The same loss and the same answers as scikit-learn's, whose C is 1 / (N · strength)."""
    linear = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(0)
    x, gold = random.normal(size=(300, 12)).astype(np.float32) * np.linspace(0.2, 3, 12, dtype=np.float32), None
    gold = (x @ random.normal(size=(12, 3)) + random.normal(size=(300, 3))).argmax(1)
    weight = fitted(torch.from_numpy(x), torch.from_numpy(gold), 3, 0.01)
    theirs = linear.LogisticRegression(C=1 / (300 * 0.01), max_iter=2_000, tol=1e-8).fit(x, gold)

    def loss(w_DL: Any, b_L: Any) -> float:
        scores = torch.as_tensor(x @ w_DL + b_L)
        return float(F.cross_entropy(scores, torch.from_numpy(gold))) + 0.005 * float((w_DL**2).sum())

    ours = loss(weight[:-1].numpy(), weight[-1].numpy())
    assert abs(ours - loss(theirs.coef_.T.astype(np.float32), theirs.intercept_)) < 1e-4 * ours


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda found: [], "the data: has no examples, so there is nothing to probe."),
        (lambda found: found[:7], "the data: has only 7 labelled texts, but a probe needs 20 or more."),
        (lambda found: [replace(each, gold=None) for each in found], "has no labels"),
        (lambda found: [replace(each, gold="yes") for each in found], "has only the label 'yes'"),
        (lambda found: [replace(each, gold=("yes", "no")) for each in found], "several labels"),
        (lambda found: [replace(each, gold=str(each.id)) for each in found], "80 labels among 80 texts"),
    ],
)
def test_what_cannot_be_probed_is_refused_in_a_sentence(
    model: Any, change: Callable[[list[Example]], list[Example]], sentence: str
) -> None:
    with pytest.raises(InputError) as refused:
        probed(model, change(texts(model, 80)))
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")


def test_unknown_tasks_and_limits_are_refused(model: Any) -> None:
    with pytest.raises(InputError, match="must be one of: classify, pair, tag"):
        probed(model, texts(model, 30), "embed")
    with pytest.raises(InputError, match="at least 20"):
        probed(model, texts(model, 30), limit=3)
    with pytest.raises(InputError, match="holds no spans"):
        probed(model, [replace(each, gold=()) for each in texts(model, 30)], "tag")


# The command ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_tells_draws_and_writes(
    model: Any, tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]
) -> None:
    data, page, curve = tmp_path / "data.tsv", tmp_path / "page.html", tmp_path / "curve.svg"
    lines = [f"{each.texts[0]}\t{each.gold}" for each in texts(model, 60)]
    data.write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    told = filbert("probe", tiny_folder, "-d", data, "--untrained", "-o", page)
    assert told.code == 0, told.err
    assert told.out.splitlines()[0].startswith("layer")
    assert "with untrained weights" in told.out
    assert f"{page} shows it." in told.out
    html = page.read_text(encoding="utf-8")
    assert "<svg" in html
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    told = filbert("probe", tiny_folder, "-d", data, "--json", "-o", curve, "--seed", "5")
    found = json.loads(told.out)
    assert [layer["layer"] for layer in found["layers"]] == [0, 1, 2]
    assert found["best"] == int(np.argmax([layer["accuracy"] for layer in found["layers"]]))
    assert ElementTree.parse(curve).getroot().tag.endswith("svg")
    told = filbert("probe", tiny_folder, "-d", data, "-o", tmp_path / "page.pdf")
    assert told.code == 2
    assert "page.pdf: give it the ending .html, .svg, .png" in told.err


def test_an_empty_file_is_refused(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    data = tmp_path / "data.tsv"
    data.write_text("text\tlabel\n", encoding="utf-8")
    told = filbert("probe", tiny_folder, "-d", data)
    assert told.code == 2
    assert len(told.err.strip().splitlines()) == 1
