"""Summaries by a writer that copies: the loss is its definition, packed or not; folders old and new; students."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert import load as loaded
from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.protocols import Batch
from filbert.core.records import Example
from filbert.folder.folder import load, save
from filbert.models import seq2seq, transformer
from filbert.nn.copying import log_chances
from filbert.nn.torch_ops import TorchHost
from filbert.pack.lay import bins
from filbert.run.finetune import finetune
from filbert.tasks.summarize import items as summarize
from filbert.tasks.summarize import spec as summarize_spec
from filbert.tasks.translate import items as translate
from filbert.text.tokenizer import Tokenizer
from filbert.train.step import on_device
from kit.models import gradients, noisy

pytestmark = pytest.mark.usefixtures("one_thread")
PAIRS = [
    ("今天天气很好。我们去公园。", "去公园。"),
    ("她是一个医生。", "医生。"),
    ("火车十点到。", "火车到。"),
    ("他们在学校读书。", "读书。"),
    ("今天天气很好。" * 9, "天气好。"),  # longer than a window
]
SHAPES: dict[str, Any] = {
    "transformer": lambda size: transformer.Config(
        vocab_size=size, width=32, layers=1, writer_layers=2, heads=2, inner=48, max_length=48, dropout=0.0
    ),
    "seq2seq": lambda size: seq2seq.Config(
        vocab_size=size, width=32, embedding=32, layers=1, max_length=48, dropout=0.0
    ),
}
PARTS = ("writer", "copier")


def model_of(tokenizer: Tokenizer, kind: str, parts: tuple[str, ...] = PARTS) -> Any:
    torch.manual_seed(0)
    model = registry.model(kind).model(SHAPES[kind](tokenizer.vocab_size), parts, 2)
    return noisy(model, 0.1).eval()


def task_of(tokenizer: Tokenizer, pairs: Any = PAIRS, **fields: Any) -> summarize.Items:
    examples = [Example((one,), two, at, "pairs.tsv", at + 1) for at, (one, two) in enumerate(pairs)]
    return summarize.Items(examples, (), tokenizer, summarize_spec.Config(**{"max_length": 48, **fields}))


def batch_of(task: Any, items: Any, budget: int | None = None) -> Batch:
    return on_device(task.batch(np.asarray(items), budget), "cpu")


def logs_alone(task: Any, model: Any, item: int) -> tuple[torch.Tensor, list[int]]:
    """[its target's tokens, V] in float64 of one pair by itself, and what comes next."""
    batch = batch_of(task, [item])
    memory, source = task.memory(model, batch)
    read = translate.into(batch), memory, source, torch.tensor([0])
    x_UD = model.decoded(*read)
    logs_UV = log_chances(model.word_scores(x_UD).float(), model.copies(x_UD, *read))
    return logs_UV.double(), batch.targets["into_next"].tolist()


@pytest.mark.parametrize("kind", SHAPES)
def test_the_loss_is_the_definition_and_packing_changes_nothing(tokenizer: Tokenizer, kind: str) -> None:
    """Every pair by itself against all in one pack, also one that is filled up; and so is what is right."""
    task, model, total, right = task_of(tokenizer), model_of(tokenizer, kind), 0.0, 0
    with torch.no_grad():
        for item in range(len(PAIRS)):
            logs, following = logs_alone(task, model, item)
            total -= sum(float(logs[at, word]) for at, word in enumerate(following))
            right += sum(int(logs[at].argmax()) == word for at, word in enumerate(following))
        for budget in (None, 400):
            terms = task.loss(model, batch_of(task, np.arange(len(PAIRS)), budget))
            assert float(terms["written_loss"].total) == pytest.approx(total, rel=1e-5)
            assert int(terms["token_accuracy"].total) == right


@pytest.mark.parametrize("kind", SHAPES)
def test_written_words_are_smoothed_and_chunks_change_nothing(
    tokenizer: Tokenizer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, model = task_of(tokenizer, label_smoothing=0.2, mask_prob=0.0), model_of(tokenizer, kind)
    batch = batch_of(task, np.arange(len(PAIRS)))

    smooth, whole = gradients(task, model, batch)
    with torch.no_grad():
        plain = float(task.loss(model.eval(), batch)["written_loss"].total)
        memory, source = task.memory(model, batch)
        x_UD = model.decoded(translate.into(batch), memory, source, batch.targets["into_owners_host"])
        uniform = -float(model.word_scores(x_UD).log_softmax(1).mean(1).sum())
    assert smooth == pytest.approx(0.8 * plain + 0.2 * uniform, rel=1e-5)
    monkeypatch.setattr(translate, "CELLS", 5 * tokenizer.vocab_size)
    again, parts = gradients(task, model, batch)
    assert again == pytest.approx(smooth, rel=1e-5)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_a_hidden_word_can_still_be_copied(tokenizer: Tokenizer) -> None:
    """[MASK] is what the encoder reads; what is copied is the word itself, of long sources too."""
    task, model = task_of(tokenizer, mask_prob=0.9), model_of(tokenizer, "transformer").train()
    torch.manual_seed(0)
    _, source = task.memory(model, batch_of(task, np.arange(len(PAIRS))))
    assert tokenizer.mask_id not in source.ids.tolist()


@pytest.mark.parametrize("kind", SHAPES)
def test_what_is_written_does_not_hang_on_what_stands_beside(tokenizer: Tokenizer, kind: str) -> None:
    model = model_of(tokenizer, kind)
    for fields in ({"beam": 3}, {"beam": 1}, {"temperature": 0.7, "top_k": 50, "seed": 3}):
        task = task_of(tokenizer, max_new=6, **fields)
        with torch.inference_mode():
            alone = [task.raw(TorchHost(model), batch_of(task, [item]))[0] for item in range(len(PAIRS))]
            for budget in (10_000, 60):
                for group in bins(task.lengths, budget):
                    together = task.raw(TorchHost(model), batch_of(task, group))
                    for place, one in zip(group, together, strict=True):
                        assert one[0][0] == alone[place][0][0]
                        assert one[0][1] == pytest.approx(alone[place][0][1], abs=1e-4)


def test_what_a_student_is_taught_is_the_whole_chance(tokenizer: Tokenizer) -> None:
    task, model = task_of(tokenizer), model_of(tokenizer, "transformer")
    with torch.no_grad():
        said = task.decisions(model, batch_of(task, [0]))
        assert said.head is None
        torch.testing.assert_close(said.scores.double(), logs_alone(task, model, 0)[0], atol=1e-5, rtol=1e-5)


def learn(out: Path, model: Any, **more: Any) -> Any:
    examples = [Example(pair[:1], pair[1], at) for at, pair in enumerate(PAIRS * 3)]
    settings = ["train.steps=2", "machine.threads=1"]
    return finetune("summarize", examples, model, out, settings=settings, quiet=True, **more)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHAPES)
def test_a_new_writer_copies_and_its_folder_too(tiny_folder: Path, tmp_path: Path, kind: str) -> None:
    """Saved and loaded it writes the same; taught further it begins with the copier that it has."""
    done = learn(tmp_path / "one", None, arch=kind, preset="tiny", vocab=tiny_folder)
    folder = load(tmp_path / "one" / "model")
    assert folder.model.parts == done.module.parts == PARTS
    for name, value in done.module.state_dict().items():
        assert torch.equal(folder.model.state_dict()[name], value)
    further = learn(tmp_path / "two", tmp_path / "one")
    begun = done.module.copier.q.weight
    assert 0 < float((further.module.copier.q.weight - begun).detach().abs().max()) < 0.1
    (said,) = loaded(tmp_path / "two").predict(["今天天气很好。"])
    assert said.coverage == 1
    with pytest.raises(InputError, match=r"writes texts .summarize., and explain asks for a label"):
        loaded(tmp_path / "two").explain("今天天气很好。")


@pytest.mark.slow
def test_a_folder_without_a_copier_writes_as_before_and_can_be_taught_one(tiny_folder: Path, tmp_path: Path) -> None:
    """As folders of earlier versions are."""
    tokenizer = Tokenizer.load(tiny_folder)
    model = model_of(tokenizer, "transformer", ("writer",))
    task = '{"task": "summarize", "max_length": 48, "beam": 2, "max_new": 5}'
    save(tmp_path / "old", model, tokenizer, files={"task.json": task})
    old = load(tmp_path / "old")
    assert old.model.parts == ("writer",)
    (said,) = loaded(tmp_path / "old").predict(["今天天气很好。"])
    plain = task_of(tokenizer, [("今天天气很好。", None)], beam=2, max_new=5)
    with torch.inference_mode():
        (wanted,) = plain.predictions(plain.raw(TorchHost(model), batch_of(plain, [0])))
    assert said.text == wanted.text
    taught = learn(tmp_path / "new", tmp_path / "old")
    assert taught.module.parts == PARTS
    kept = replace(taught.module.config, dropout=model.config.dropout)
    assert kept == model.config
