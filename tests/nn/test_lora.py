"""LoRA: a start that changes nothing, a base that stays, a merged folder that says the same, also in transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.folder import folder as folders
from filbert.models import bert
from filbert.nn import lora
from filbert.nn.attention import tensors
from filbert.pack.lay import pack
from filbert.run.finetune import finetune
from filbert.tasks.classify import items as classify
from filbert.tasks.classify import spec as classify_spec
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine
from filbert.train.checkpoint import Store
from filbert.train.scores import scored

pytestmark = pytest.mark.usefixtures("one_thread")

LABELS = ("好", "坏")
LORA = ["tune.method=lora", "machine.threads=1"]


def made(count: int = 8) -> list[Example]:
    random = np.random.default_rng(0)
    good, bad, rest = "好美喜欢", "坏差讨厌", list("今天的菜和服务我们都觉得")
    found = []
    for index in range(count):
        words = [*random.choice(rest, 5), str(random.choice(list(good if index % 2 else bad)))]
        found.append(
            Example(("".join(random.permutation(words)),), LABELS[1 - index % 2], index, "train.tsv", index + 1)
        )
    return found


def model(**shape: object) -> bert.Bert:
    torch.manual_seed(0)
    config = bert.Config(vocab_size=60, width=16, layers=3, heads=2, inner=24, max_length=32, **shape)  # type: ignore[arg-type]
    return bert.Bert(config, ("pooler", "labels"), 3).eval()


def stirred(module: bert.Bert) -> bert.Bert:
    """With adapters that have learnt something."""
    lora.adapt(module, 2, 4.0)
    with torch.no_grad():
        for adapted in (part for part in module.modules() if isinstance(part, lora.Adapted)):
            adapted.up.normal_(std=0.3)
    return module


SHAPES = [{}, {"norm": "pre", "positions": "rotary", "feedforward": "geglu"}]


@pytest.mark.parametrize("rows", [None, "first"])
@pytest.mark.parametrize("shape", SHAPES, ids=["post", "pre"])
def test_merged_says_the_same(shape: dict[str, object], rows: str | None, tokenizer: Tokenizer) -> None:
    """Also where a layer takes parts of a map by itself: rotary positions, and each sequence's first token alone."""
    sequences = [tokenizer.encode(text) for text in ("好", "今天的菜", "a b c d e f")]
    for sequence in sequences:
        sequence.ids[:] %= 60
    packed = tensors(pack(sequences)[0])
    plain = model(**shape)
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    with torch.inference_mode():
        first = plain(packed, rows)
        lora.adapt(plain, 2, 4.0)
        torch.testing.assert_close(plain(packed, rows), first)  # it begins with what the model says already
    adapted = stirred(model(**shape))
    with torch.inference_mode():
        said = adapted(packed, rows)
        assert not torch.allclose(said, first, atol=1e-2)
    assert adapted.layers[0].attention.qkv.down.shape == (6, 16)  # queries, keys and values have their own
    lora.merge(adapted)
    assert adapted.state_dict().keys() == before.keys()
    assert all(weight.requires_grad for weight in adapted.layers.parameters() if weight.ndim == 2)
    with torch.inference_mode():
        torch.testing.assert_close(adapted(packed, rows), said, atol=1e-5, rtol=0)
    lora.merge(adapted)  # nothing more to do


def test_a_rank_that_no_map_has_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tune\.rank is 33, but a map of this model has only rank 32"):
        finetune("classify", made(), tiny_folder, tmp_path, settings=[*LORA, "tune.rank=33"])


@pytest.mark.slow
@pytest.mark.parametrize(("optimiser", "rate"), [("adamw", 0.02), ("bert-adamw", 0.005), ("muon", 0.05)])
def test_eight_examples_are_learnt_and_the_base_stays(
    optimiser: str, rate: float, tiny_folder: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    settings = [*LORA, f"train.learning_rate={rate}", f"train.optimiser={optimiser}", "train.steps=40", "task.pool=cls"]
    done = finetune("classify", made(), tiny_folder, tmp_path, settings=settings, quiet=True)
    start = folders.load(tiny_folder).model.state_dict()
    newest = Store(tmp_path / "checkpoints", 2).newest()
    assert newest is not None
    kept = newest.tensors()
    base = {name: value for name, value in kept.items() if name.startswith(("model/layers", "model/embeddings"))}
    assert sum("base.weight" in name for name in base) == 8
    for name, value in base.items():
        if not name.endswith((".down", ".up")):
            assert torch.equal(value, start[name.removeprefix("model/").replace(".base.", ".")]), name
    moved = {name.rpartition("/")[2] for name in kept if name.startswith("optimiser/")}
    assert all(name.startswith(("heads.", "pooler.")) or name.endswith((".down", ".up")) for name in moved)
    said = fb.load(tmp_path).predict([example.texts[0] for example in made()])
    assert [each.label for each in said] == [example.gold for example in made()]
    assert not any(isinstance(part, lora.Adapted) for part in done.module.modules())


@pytest.mark.slow
def test_the_folder_is_an_ordinary_one(tiny_folder: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    settings = [*LORA, "train.learning_rate=0.02", "train.steps=30", "task.pool=cls"]
    done = finetune("classify", made(), tiny_folder, tmp_path, settings=settings, quiet=True)
    found = Store(tmp_path / "checkpoints", 2).newest()
    assert found is not None
    adapted = bert.Bert(done.module.config, ("pooler", "labels"), 2)
    lora.adapt(adapted, 8, 16.0)
    weights = {n.removeprefix("model/"): t for n, t in found.tensors().items() if n.startswith("model/")}
    adapted.load_state_dict(weights)
    task = classify.Items(made(), LABELS, tokenizer, classify_spec.Config(max_length=64, pool="cls"))
    wanted = np.stack(scored(adapted, task, 4096, machine.Config(threads=1)))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    ours = folders.load(tmp_path)
    np.testing.assert_allclose(np.stack(scored(ours.model, task, 4096, machine.Config(threads=1))), wanted, atol=1e-5)
    for index in range(8):
        ids = torch.as_tensor(task.item(index, 0).sequences[0].ids)[None].long()
        with torch.inference_mode():
            np.testing.assert_allclose(theirs(ids).logits[0].numpy(), wanted[index], atol=1e-5)
    layer = 8 * (3 * 32 + 96) + 8 * (32 + 32) + 2 * 8 * (32 + 64)  # queries, keys, values; out; up and down
    learning = 2 * layer + 32 * 33 + 2 * 33
    total = sum(weight.numel() for weight in done.module.parameters())
    told = f"lora; {learning:,} weights learn, of a model of {total:,}."
    assert told in (tmp_path / "model" / "README.md").read_text()
    assert told in (tmp_path / "report.html").read_text()
    assert told in (tmp_path / "log.jsonl").read_text()


@pytest.mark.slow
def test_killed_and_resumed(cut_short: Callable[..., tuple[bytes, bytes]]) -> None:
    whole, cut = cut_short("classify", made(24), [*LORA, "train.batch_tokens=64", "train.checkpoint_every=2"])
    assert whole == cut


def test_in_half_precision_the_base_stays_as_well(tokenizer: Tokenizer) -> None:
    """The copy that computes has its own frozen maps; the factors' own sums are float32."""
    from filbert.train import tune

    task = classify.Items(made(), LABELS, tokenizer, classify_spec.Config(max_length=32))
    shape = {"width": 32, "layers": 2, "heads": 2, "inner": 64, "max_length": 64, "dropout": 0.0}
    module = bert.Bert(bert.Config(vocab_size=tokenizer.vocab_size, **shape), task.parts, 2)
    tune.prepare(module, tune.Config(method="lora"))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    seen: list[float] = []
    loop.fit(module, task, loop.Config(steps=30, learning_rate=0.02), lambda line: seen.append(line["loss"]),
             machine=machine.Config(threads=1, precision="bfloat16"), tuning=tune.Config(method="lora"))  # fmt: skip
    assert seen[-1] < seen[0] / 2
    for name, value in module.state_dict().items():
        learns = name.endswith((".down", ".up")) or name.startswith("heads.")
        assert torch.equal(value, before[name]) is not learns, name
        assert value.dtype == torch.float32
