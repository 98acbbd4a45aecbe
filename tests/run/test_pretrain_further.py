"""Pretraining further: what the model has is kept, what the task asks anew gets a fresh head, its shape is fixed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from filbert.folder import folder as folders
from filbert.models import bert
from filbert.text.tokenizer import Tokenizer

QUICK = ["--set", "train.steps=1", "--set", "train.batch_tokens=256", "--set", "task.max_length=32",
         "--set", "machine.threads=1", "--set", "machine.device=cpu"]  # fmt: skip
TEXT = "\n\n".join(f"今天天气很好，我们坐第{n}班火车去公园。\nThe train {n} leaves at seven." for n in range(12))


@pytest.fixture
def start(tiny_folder: Path, tmp_path: Path) -> Path:
    """A model of masked words alone."""
    tokenizer = Tokenizer.load(tiny_folder)
    shape = {"width": 32, "layers": 1, "heads": 2, "inner": 64, "max_length": 64, "dropout": 0.1}
    torch.manual_seed(0)
    model = bert.Bert(bert.Config(vocab_size=tokenizer.vocab_size, **shape), ("mlm",))
    return folders.save(tmp_path / "start", model, tokenizer)


@pytest.fixture
def further(tmp_path: Path, filbert: Callable[..., Any]) -> Callable[..., Any]:
    """`filbert pretrain --model` on a few lines."""

    def run(start: Path, *words: str) -> Any:
        (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
        return filbert("pretrain", tmp_path / "text.txt", "--model", start, "--out", tmp_path / "run", *QUICK, *words)

    return run


def test_a_new_question_gets_a_new_head_and_the_rest_is_kept(
    start: Path, tmp_path: Path, further: Callable[..., Any]
) -> None:
    words = ["--objective", "mlm+nsp", "--set", "model.dropout=0", "--set", "train.learning_rate=1e-12"]
    assert further(start, *words).code == 0
    before, after = (folders.load(path) for path in (start, tmp_path / "run"))
    assert set(after.model.parts) == {"pooler", "mlm", "nsp"}
    assert after.config.dropout == 0
    kept = after.model.state_dict()
    for name, value in before.model.state_dict().items():
        torch.testing.assert_close(kept[name], value, atol=1e-6, rtol=0, msg=name)


def test_the_shape_is_fixed(start: Path, further: Callable[..., Any]) -> None:
    refused = further(start, "--set", "model.layers=2")
    assert refused.code == 2
    assert "only model.dropout can be given" in refused.err


def test_a_fine_tuned_model_loses_the_head_of_its_task(
    tiny_folder: Path, tmp_path: Path, further: Callable[..., Any]
) -> None:
    tokenizer = Tokenizer.load(tiny_folder)
    config = bert.Config(vocab_size=tokenizer.vocab_size, width=32, layers=1, heads=2, inner=64, max_length=64)
    model = bert.Bert(config, ("labels", "pooler"), 3)
    folder = folders.save(tmp_path / "start", model, tokenizer, labels=("a", "b", "c"))
    assert further(folder, "--objective", "mlm").code == 0
    after = folders.load(tmp_path / "run")
    assert "labels" not in after.model.parts
    assert "mlm" in after.model.parts
