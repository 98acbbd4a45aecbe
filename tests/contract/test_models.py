"""Every model that the registry finds keeps what an encoder promises: shapes, packing, folders, heads, and learning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.records import Encoding, Example, Packed
from filbert.core.registry import members
from filbert.folder import meta
from filbert.folder.folder import load, save
from filbert.nn.attention import tensors
from filbert.nn.encoder import Encoder
from filbert.nn.heads import every
from filbert.pack.lay import pack
from filbert.run import new_models
from filbert.run.evaluate import evaluate
from filbert.run.finetune import finetune
from filbert.text.tokenizer import Tokenizer
from kit.models import noisy

MODELS = members("models")
LABELS = {"good": "很好喜欢", "bad": "不好讨厌"}
pytestmark = pytest.mark.usefixtures("one_thread")


def made(name: str, tokenizer: Tokenizer, parts: tuple[str, ...] = ()) -> Encoder:
    """A tiny one with weights that are not as they begin, in use."""
    torch.manual_seed(0)
    model = new_models.model_of(name, new_models.config_of(name, "tiny", tokenizer), parts, tokenizer)
    return noisy(model, 0.05).eval()


def sequences(tokenizer: Tokenizer) -> list[Encoding]:
    """Chinese and other texts, one of them a single token."""
    texts = ["今天天气很好，我们去公园。明天呢？", "好", "filbert fills blanks.", "医生说明天不用去医院！", "天"]
    found = [tokenizer.encode(text) for text in texts]
    one = found[0]
    return [*found, Encoding(*(part[:1] for part in (one.ids, one.segments, one.parts, one.starts, one.ends)))]


def packed_of(encodings: list[Encoding]) -> tuple[Packed, np.ndarray]:
    """A pack on the CPU, and where each sequence begins."""
    packed, starts = pack(encodings)
    return tensors(packed), starts


@pytest.mark.parametrize("name", MODELS)
def test_a_pack_reads_each_sequence_as_if_it_were_alone(name: str, tokenizer: Tokenizer) -> None:
    """All tokens, the first ones, and chosen rows, within 1e-5."""
    model, given = made(name, tokenizer), sequences(tokenizer)
    packed, starts = packed_of(given)
    with torch.inference_mode():
        whole, first = model(packed), model(packed, "first")
        rows = torch.tensor([int(starts[2]) + 1, int(starts[0])])
        some = model(packed, rows)
        assert whole.shape == (len(packed.ids), model.width)
        torch.testing.assert_close(some, whole[rows], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(first, whole[packed.boundaries[:-1].long()], atol=1e-5, rtol=1e-5)
        for start, own in zip(starts.tolist(), given, strict=True):
            alone = model(packed_of([own])[0])
            torch.testing.assert_close(whole[start : start + len(own)], alone, atol=1e-5, rtol=1e-5)
    assert whole.isfinite().all()
    assert whole.std() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_gives_back_the_same_bits(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Weights, shape and parts."""
    model = made(name, tokenizer, ("labels",))
    save(tmp_path / "model", model, tokenizer, labels=["a", "b"])
    found = load(tmp_path / "model", verify=True)
    assert found.family == name
    assert found.config == model.config
    assert found.labels == ["a", "b"]
    assert found.model.parts == model.parts
    want, got = model.state_dict(), found.model.state_dict()
    assert want.keys() == got.keys()
    assert all(torch.equal(want[key], got[key]) for key in want)
    packed = packed_of(sequences(tokenizer))[0]
    with torch.inference_mode():
        assert torch.equal(found.model(packed), model(packed))


@pytest.mark.parametrize("name", MODELS)
def test_half_precision_says_nearly_the_same(name: str, tokenizer: Tokenizer) -> None:
    """In bfloat16, by the direction of the vectors."""
    model, packed = made(name, tokenizer), packed_of(sequences(tokenizer))[0]
    with torch.inference_mode():
        whole = model(packed)
        half = model.to(torch.bfloat16)(packed).float()
    assert torch.cosine_similarity(whole.flatten(), half.flatten(), dim=0) > 0.99


def examples() -> list[Example]:
    """Texts whose label one word decides."""
    fill = ["今天", "我们", "这个地方", "昨天晚上", "老师说"]
    texts = [
        (f"{fill[i % 5]}{words[i // 5 % 2 * 2 :][:2]}。", label) for i in range(20) for label, words in LABELS.items()
    ]
    return [Example((text,), label, index) for index, (text, label) in enumerate(texts)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_it_learns_a_task(name: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """From nothing, on labels alone; the folder answers as the run did."""
    tokenizer.save(tmp_path / "vocab")
    done = finetune(
        "classify", examples(), None, tmp_path / "run", dev=examples(), arch=name, preset="tiny", epochs=25, quiet=True,
        vocab=tmp_path / "vocab", settings=["train.learning_rate=5e-3", "machine.threads=1", "train.batch_tokens=128"],
    )  # fmt: skip
    assert done.best["accuracy"] == 1.0
    assert evaluate(tmp_path / "run", examples())["accuracy"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_frozen_encoder_stays_as_it_is(name: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Only what stands above it learns."""
    model = made(name, tokenizer)
    save(tmp_path / "start", model, tokenizer)
    finetune(
        "classify", examples(), tmp_path / "start", tmp_path / "run", epochs=1, quiet=True,
        settings=["tune.method=frozen", "machine.threads=1", "train.batch_tokens=128"],
    )  # fmt: skip
    got, want = load(tmp_path / "run").model.state_dict(), model.state_dict()
    inside = [key for key in want if key.startswith(("embeddings.", "layers.", "final_norm."))]
    assert inside
    assert all(torch.equal(got[key], want[key]) for key in inside)


@pytest.mark.parametrize("name", MODELS)
def test_its_file_says_what_pretrains_it(name: str) -> None:
    """A task that is there, or nothing where labels alone train it."""
    record = registry.model(name)
    assert record.objective is None or registry.taught_by(record.objective).name in members("tasks")
    assert {"tiny", "small"} <= record.presets.keys()


@pytest.mark.parametrize("name", MODELS)
def test_it_says_what_it_can_do(name: str) -> None:
    """What a run asks a model for by its class: a text summed up its own way, tokens told by how they are spelt."""
    model = registry.model(name).model
    assert model.sums_up == (model.summary is not Encoder.summary)
    assert model.spells == (model.spell is not Encoder.spell)


WIDE = 512  # from which on a module takes more than a moment to build
PRESETS = [
    pytest.param(name, preset, marks=[pytest.mark.slow] if config.width >= WIDE else [])
    for name in MODELS
    for preset, config in registry.model(name).presets.items()
]


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_a_preset_has_the_shapes_that_are_told_of_it(name: str, preset: str) -> None:
    """With all parts that it can have, each in its place and of the size that its record says; nothing is allocated."""
    spec = registry.model(name)
    config = spec.preset(preset, 1_234)
    assert config.vocab_size == 1_234
    assert spec.config(**vars(config)) == config
    parts = ("pooler", *spec.own_parts, *every())
    model = meta.made(config, parts, 3)
    assert model.parts == parts
    assert model.width == config.width
    real = {tensor: tuple(value.shape) for tensor, value in model.state_dict().items()}
    assert meta.shapes(config, parts, 3) == real
    for part, head in every().items():
        sizes = {tensor: tuple(size) for tensor, size in head.shapes(config.width, 3).items()}
        assert {tensor: tuple(weight.shape) for tensor, weight in model.heads[part].named_parameters()} == sizes


def test_a_preset_that_is_not_there_is_guessed() -> None:
    for name in MODELS:
        with pytest.raises(InputError, match="Did you mean 'tiny'"):
            registry.model(name).preset("tiney", 100)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_gets_a_gradient(name: str, tokenizer: Tokenizer) -> None:
    """All of the encoder by its vectors, or by its own way to sum a text up; each head by what it makes of them."""
    model, packed = made(name, tokenizer, ("pooler", *every())), packed_of(sequences(tokenizer))[0]
    vectors = model(packed)
    total = (vectors * torch.randn_like(vectors)).sum() + model.pooled(vectors).square().sum()
    if model.sums_up:
        total = total + model.summary(packed).square().sum()
    total = total + sum(weight.square().sum() for weight in model.heads.parameters())
    total.backward()
    encoder = ("embeddings.", "layers.", "final_norm.", "pooler.", "heads.")
    weights = {each: weight for each, weight in model.named_parameters() if each.startswith(encoder)}
    assert {each for each in weights if each.startswith("embeddings.")}
    assert [each for each, weight in weights.items() if weight.grad is None or not weight.grad.any()] == []


@pytest.mark.parametrize("name", MODELS)
def test_a_part_that_it_does_not_have_is_refused(name: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="Did you mean 'labels'"):
        made(name, tokenizer, ("label",))
    plain, packed = made(name, tokenizer), packed_of(sequences(tokenizer))[0]
    with pytest.raises(InputError, match="no pooler"):
        plain.pooled(plain(packed, "first"))
    if not plain.fills and not registry.model(name).writes:
        with pytest.raises(InputError, match="so it cannot"):
            plain.word_scores(plain(packed, "first"))
    if not plain.sums_up:
        with pytest.raises(InputError, match="no such way to sum a text up"):
            plain.summary(packed)
