"""The losses of a run's first 20 steps: what moves them shows in loss_curve.json. Rewrite it with FILBERT_REWRITE=1."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from filbert.corpus import shards
from filbert.models import bert
from filbert.tasks.mlm_nsp import items as mlm_nsp
from filbert.tasks.mlm_nsp import spec as mlm_nsp_spec
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine

GOLDEN = Path(__file__).with_name("loss_curve.json")
LETTERS = "abcdefghijklmnop"


def curve(folder: Path) -> list[float]:
    """20 steps of BERT's two questions on made-up words, which follow from their number alone."""
    words = ["".join(LETTERS[(n * n + 7 * n * i + 3 * i) % 16] for i in range(2 + n % 5)) for n in range(60)]
    texts = [" ".join(words[(d * 31 + i * (d % 7 + 1)) % 60] for i in range(6 + d % 9)) + "." for d in range(240)]
    path = folder / "corpus.txt"
    path.write_text("\n\n".join("\n".join(texts[at : at + 3]) for at in range(0, 240, 3)) + "\n")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer([*special, ".", *LETTERS, *(f"##{letter}" for letter in LETTERS)])
    texts_ = shards.build(path, tokenizer, folder / "shards", shards.Options(words=False), workers=1)
    task = mlm_nsp.Items(texts_.train.shards, tokenizer, mlm_nsp_spec.Config(max_length=48))
    torch.manual_seed(0)
    shape = bert.Config(
        vocab_size=tokenizer.vocab_size, width=32, layers=2, heads=2, inner=64, max_length=48, dropout=0.0
    )
    config = loop.Config(steps=20, batch_tokens=512, learning_rate=3e-3)
    losses: list[float] = []
    here = machine.Config(device="cpu", threads=1, workers=0)
    loop.fit(bert.Bert(shape, task.parts), task, config, lambda step: losses.append(step["loss"]), machine=here)
    return losses


def test_the_first_20_losses_are_these(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        losses = curve(tmp_path)
    finally:
        torch.set_num_threads(threads)
    if os.environ.get("FILBERT_REWRITE"):
        GOLDEN.write_text(json.dumps(losses, indent=1) + "\n", encoding="utf-8")
    assert losses == pytest.approx(json.loads(GOLDEN.read_text(encoding="utf-8")), rel=1e-4)
    assert losses[-1] < losses[0]
