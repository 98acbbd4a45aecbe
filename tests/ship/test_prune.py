"""Pruned models: equal to masking those heads out, smaller, faster; they save, load, answer and learn as any other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example, Packed
from filbert.explain import map_sums
from filbert.folder.folder import load, save
from filbert.models import bert
from filbert.nn import lora, maps
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.run.finetune import finetune
from filbert.see import head_importance
from filbert.ship import prune
from filbert.text.tokenizer import Tokenizer
from filbert.train import optim
from kit.folders import task_file
from kit.models import small_bert

pytestmark = pytest.mark.usefixtures("one_thread")
GONE = {(0, 1), (1, 0), (1, 1), (1, 2), (1, 3), (2, 3)}  # all of the second layer
LAYOUTS: dict[str, dict[str, Any]] = {
    "classic": {},
    "sinusoidal": {"positions": "sinusoidal"},
    "modern": {"positions": "rotary-local", "norm": "pre", "feedforward": "geglu", "segments": 0, "eps": 1e-5},
}
ROWS = ["很好\t好", "真不错\t好", "我喜欢\t好", "太差了\t坏", "不好\t坏", "讨厌\t坏", "今天天气很好\t好", "他很坏\t坏"]


def made(tokenizer: Tokenizer, layout: str = "classic", parts: tuple[str, ...] = ("labels",)) -> bert.Bert:
    shape = {"width": 48, "layers": 3, "heads": 4, "inner": 64, "max_length": 256}
    return small_bert(tokenizer, parts, noise=0.2, **{**shape, **LAYOUTS[layout]})


@pytest.fixture
def fine(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A folder that classifies."""
    about = {"task": "classify", "max_length": 64, "pool": "mean"}
    return save(tmp_path / "fine", made(tokenizer), tokenizer, labels=["坏", "好"], files=task_file(about))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.tsv"
    path.write_text("text\tlabel\n" + "\n".join(ROWS) + "\n", encoding="utf-8")
    return path


def texts(tokenizer: Tokenizer) -> Packed:
    some = ["今天天气很好，我们去公园。", "好", "the train leaves " * 30, "他不去", "她不来"]
    return tensors(pack([tokenizer.encode(text) for text in some])[0])


def masks(model: bert.Bert, gone: Any) -> dict[maps.Site, torch.Tensor]:
    found = {site: torch.ones(site.attention.heads) for site in maps.sites(model)}
    for layer, head in gone:
        found[maps.sites(model)[layer]][head] = 0
    return found


# The arithmetic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [None, "first", torch.tensor([7, 0, 3])])
def test_equal_to_masking_the_heads_out(tokenizer: Tokenizer, layout: str, rows: Any) -> None:
    """Every way to ask for rows."""
    model, packed = made(tokenizer, layout), texts(tokenizer)
    smaller = prune.without(model, GONE)
    with torch.no_grad():
        with maps.masked(masks(model, GONE)):
            wanted = model(packed, rows)
        torch.testing.assert_close(smaller(packed, rows), wanted, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(smaller(packed), model(packed), atol=1e-2)


def test_the_weights_are_gone(tokenizer: Tokenizer) -> None:
    model = made(tokenizer)
    smaller = prune.without(model, GONE)
    assert smaller.config.heads == (4, 3, 0, 3)
    assert [tuple(block.attention.qkv.weight.shape) for block in (smaller.layers[0], smaller.layers[2])] == [
        (108, 48)
    ] * 2
    assert tuple(smaller.layers[0].attention.out.weight.shape) == (48, 36)
    assert [name for name in smaller.state_dict() if "layers.1.attention." in name] == ["layers.1.attention.out.bias"]
    each = 12 * (3 * 48 + 3 + 48)  # maps and biases of a head of width 12
    fewer = sum(w.numel() for w in model.parameters()) - sum(w.numel() for w in smaller.parameters())
    assert fewer == len(GONE) * each
    assert {name: tuple(w.shape) for name, w in smaller.state_dict().items()} == bert.shapes(
        smaller.config, smaller.parts
    )


def test_twice_is_as_once(tokenizer: Tokenizer) -> None:
    model, packed = made(tokenizer), texts(tokenizer)
    twice = prune.without(prune.without(model, {(0, 1), (2, 0)}), {(0, 2), (2, 0)})  # heads count anew
    once = prune.without(model, {(0, 1), (0, 3), (2, 0), (2, 1)})
    assert twice.config == once.config
    assert torch.equal(twice(packed), once(packed))


def test_every_head_may_go(tokenizer: Tokenizer) -> None:
    model = made(tokenizer, parts=("pooler", "mlm"))
    nothing = prune.without(model, {(layer, head) for layer in range(3) for head in range(4)})
    packed = texts(tokenizer)
    with torch.no_grad(), maps.masked(masks(model, [(layer, head) for layer in range(3) for head in range(4)])):
        torch.testing.assert_close(nothing(packed), model(packed), atol=1e-5, rtol=1e-5)
    with pytest.raises(InputError, match="no head 0 in a layer 1"):
        prune.without(nothing, {(1, 0)})


@pytest.mark.slow
def test_a_smaller_model_is_faster(tokenizer: Tokenizer) -> None:
    """Most heads gone, at 512 tokens, where attention is half of the work: the best of several rounds, side by side."""
    torch.manual_seed(0)
    shape = {"width": 128, "layers": 3, "heads": 8, "inner": 128, "max_length": 512}
    model = bert.Bert(bert.Config(vocab_size=tokenizer.vocab_size, **shape)).eval()
    smaller = prune.without(model, {(layer, head) for layer in range(3) for head in range(7)})
    packed = tensors(pack([tokenizer.encode("天" * 510)] * 2)[0])
    best = {"whole": 9e9, "pruned": 9e9}
    with torch.inference_mode():
        for _ in range(7):
            for name, own in (("whole", model), ("pruned", smaller)):
                start = time.process_time()
                own(packed)
                best[name] = min(best[name], time.process_time() - start)
    assert best["pruned"] < 0.75 * best["whole"]


# Folders --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_folder_gives_back_the_same_bits(tokenizer: Tokenizer, tmp_path: Path, layout: str) -> None:
    smaller = prune.without(made(tokenizer, layout, ("pooler", "mlm", "labels")), GONE)
    save(tmp_path / "m", smaller, tokenizer, labels=["a", "b"])
    found = load(tmp_path / "m", verify=True)
    assert (found.kind, found.config) == ("filbert-bert", smaller.config)
    assert all(torch.equal(found.model.state_dict()[name], own) for name, own in smaller.state_dict().items())
    packed = texts(tokenizer)
    with torch.no_grad():
        assert torch.equal(found.model(packed), smaller(packed))


@pytest.mark.parametrize(
    "wrong", [[4, 3, 0], [4, 3, 0, 5], [4, 3, -1, 3], [], [4, 3, 0, "3"], [4, 3, 0, True], [5, 3, 0, 3], [4] * 2_000]
)
def test_a_config_that_cannot_be_is_refused(tokenizer: Tokenizer, tmp_path: Path, wrong: list[Any]) -> None:
    save(tmp_path / "m", prune.without(made(tokenizer), GONE), tokenizer, labels=["a", "b"])
    (tmp_path / "m" / "manifest.json").unlink()
    about = json.loads((tmp_path / "m" / "config.json").read_text("utf-8"))
    about["filbert"]["config"]["heads"] = wrong
    (tmp_path / "m" / "config.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(InputError, match="heads"):
        load(tmp_path / "m")


@pytest.mark.parametrize("method", ["gradient", "ablation"])
def test_the_least_important_heads_go(fine: Path, data: Path, tmp_path: Path, method: str) -> None:
    """The folder says what it was, answers as the masked model does, and knows its task."""
    done = prune.prune(fine, data, tmp_path / "out", heads=5, method=method)
    model = fb.load(fine, device="cpu")
    np.testing.assert_allclose(
        done.importance, head_importance.importance(model, data, method=method), rtol=1e-4, atol=1e-7
    )
    scores = done.importance.astype(float)
    if method == "gradient":
        scores = scores / np.linalg.norm(scores, axis=1, keepdims=True)
    order = sorted((scores[place], place) for place in np.ndindex(3, 4))
    assert sorted(done.heads) == sorted(place for _, place in order[:5])
    assert done.left == tuple(4 - sum(layer == index for layer, _ in done.heads) for index in range(3))
    smaller = fb.load(tmp_path / "out", device="cpu")
    assert smaller.task() == "classify"
    with maps.masked(masks(model.backbone, done.heads)):
        wanted = model.predict(["今天天气很好", "太差了"])
        masked_loss = head_importance.loss(model, head_importance.labelled(model, data))
    for said, other in zip(smaller.predict(["今天天气很好", "太差了"]), wanted, strict=True):
        assert said.scores == pytest.approx(other.scores, abs=1e-5)
    whole_loss = head_importance.loss(model, head_importance.labelled(model, data))
    assert done.loss == pytest.approx((whole_loss, masked_loss), abs=1e-5)
    assert done.parameters[1] < done.parameters[0]
    assert "transformers cannot read this folder" in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_what_a_pruned_model_attends_to(fine: Path, data: Path, tmp_path: Path) -> None:
    """Heads that are left keep their maps; those that a layer does not have are zeros, and rollout passes over them."""
    whole = fb.load(fine, device="cpu")
    smaller = prune.without(whole.backbone, {(0, 1), (1, 0), (1, 1), (1, 2), (1, 3)})
    save(tmp_path / "m", smaller, whole.tokenizer, labels=["坏", "好"])
    model = fb.load(tmp_path / "m", device="cpu")
    seen, before = model.attention("今天天气很好").map, whole.attention("今天天气很好").map
    np.testing.assert_allclose(seen.values[0, :3], before.values[0, [0, 2, 3]], atol=1e-6)
    assert not seen.values[0, 3].any()
    assert not seen.values[1].any()
    assert seen.values[2].sum(-1) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(map_sums.rollout(seen).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(map_sums.rollout(seen)[1], map_sums.rollout(seen)[0], atol=1e-6)
    assert model.attention("今天天气很好", layers=[0]).map.values.shape[:2] == (1, 3)
    assert map_sums.entropy(seen)[1].tolist() == [0, 0, 0, 0]


@pytest.mark.slow
def test_a_pruned_model_learns_on(fine: Path, data: Path, tmp_path: Path) -> None:
    """Fine-tuned from its folder it keeps its shape, and its loss falls."""
    prune.prune(fine, data, tmp_path / "out", heads=0.75)
    start = fb.load(tmp_path / "out", device="cpu")
    assert 0 in start.config.heads[1:] or min(start.config.heads[1:]) < 4
    settings = ["machine.threads=1", "train.learning_rate=0.003", "train.batch_tokens=64", "train.steps=30"]
    finetune("classify", data, tmp_path / "out", tmp_path / "run", settings=settings, quiet=True, epochs=4)
    after = fb.load(tmp_path / "run", device="cpu")
    assert after.config.heads == start.config.heads
    losses = [head_importance.loss(model, head_importance.labelled(model, data)) for model in (start, after)]
    assert losses[1] < 0.7 * losses[0]


@pytest.mark.parametrize("name", optim.OPTIMISERS)
@pytest.mark.parametrize("adapted", [False, True])
def test_every_way_to_learn_bears_a_layer_without_heads(tokenizer: Tokenizer, name: str, adapted: bool) -> None:
    model = prune.without(made(tokenizer), GONE).train()
    if adapted:
        lora.adapt(model, 4, 8)
    for weight in model.parameters():
        if not adapted:
            weight.requires_grad_(True)
    steps = optim.optimiser(model, name, 1e-2, 0.01)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model(texts(tokenizer)).square().sum().backward()
    steps.step()
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert "layers.0.attention.qkv.down" in changed if adapted else "layers.1.attention.out.bias" in changed
    lora.merge(model)
    assert model(texts(tokenizer)).isfinite().all()


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command(filbert: Callable[..., Any], fine: Path, data: Path, tmp_path: Path) -> None:
    ran = filbert(
        "prune", fine, "--data", data, "--heads", "0.5", "--out", tmp_path / "half", "--json", "--device", "cpu"
    )
    assert ran.code == 0
    told = json.loads(ran.out)
    assert len(told["heads"]) == 6
    assert sum(told["left"]) == 6
    assert np.shape(told["importance"]) == (3, 4)
    said = filbert("prune", fine, "-d", data, "--heads", "2", "-o", tmp_path / "two", "--method", "ablation")
    assert said.code == 0
    assert "2 heads fewer" in said.out
    answered = filbert("predict", tmp_path / "half", "--text", "今天天气很好", "--json")
    assert answered.code == 0


@pytest.mark.parametrize(
    ("heads_asked", "said"),
    [("0", "must be a share"), ("13", "from 1 to 12"), ("1.5", "must be a share"), ("-1", "must be a share"),
     ("half", "must be a share"), ("nan", "must be a share")],
)  # fmt: skip
def test_a_number_of_heads_that_cannot_be(
    filbert: Callable[..., Any], fine: Path, data: Path, tmp_path: Path, heads_asked: str, said: str
) -> None:
    ran = filbert("prune", fine, "--data", data, "--heads", heads_asked, "--out", tmp_path / "out")
    assert ran.code == 2
    assert said in ran.err
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_pruned(tiny_folder: Path, fine: Path, data: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="fine-tuned for nothing"):
        prune.prune(tiny_folder, data, tmp_path / "out")
    with pytest.raises(InputError, match="has no labels"):
        prune.prune(fine, [Example(("好",))], tmp_path / "out")
    from filbert.models import gpt

    shape = {"width": 32, "layers": 1, "heads": 2, "inner": 32, "max_length": 32}
    other = gpt.Gpt(gpt.Config(vocab_size=tokenizer.vocab_size, **shape), ("labels",))
    save(tmp_path / "gpt", other, tokenizer, labels=["坏", "好"])
    with pytest.raises(InputError, match="only the heads of a bert"):
        prune.prune(tmp_path / "gpt", data, tmp_path / "out")
