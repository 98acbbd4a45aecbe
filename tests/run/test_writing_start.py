"""A BERT that is taught to write: its encoder is a transformer's, its decoder new; what cannot be taught is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.folder.folder import load, save
from filbert.models import gpt
from filbert.run import new_models
from filbert.run.finetune import finetune
from filbert.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
PAIRS = [("今天天气很好。我们去公园。", "去公园。"), ("她是医生。", "医生。"), ("火车十点到。", "十点到。")]


@pytest.mark.slow
def test_the_encoder_of_a_bert_begins_a_transformer(tiny_folder: Path, tmp_path: Path) -> None:
    """The same vectors, and after some steps a folder that writes."""
    bert, made = load(tiny_folder), new_models.writing(load(tiny_folder))
    own = made.model.state_dict()
    assert made.family == "transformer"
    assert all(torch.equal(value, bert.model.state_dict()[name]) for name, value in own.items())
    assert new_models.writing(made) is made
    examples = [Example(pair[:1], pair[1], at) for at, pair in enumerate(PAIRS * 4)]
    settings = ["train.steps=2", "machine.threads=1"]
    done = finetune("summarize", examples, tiny_folder, tmp_path / "run", settings=settings, quiet=True)
    assert done.module.writer is not None
    assert load(tmp_path / "run").config == done.module.config
    assert rate_of(tmp_path / "run") == 5e-4  # at 1e-3 a trained encoder is spoilt
    more = {"arch": "transformer", "preset": "tiny", "vocab": tiny_folder}
    finetune("summarize", examples, None, tmp_path / "new", settings=settings, quiet=True, **more)
    assert rate_of(tmp_path / "new") == 1e-3
    finetune("summarize", examples, tmp_path / "run", tmp_path / "further", settings=settings, quiet=True)
    assert rate_of(tmp_path / "further") == 5e-4


def rate_of(folder: Path) -> float:
    """What a run learnt at."""
    return float(json.loads((folder / "recipe.json").read_text())["train"]["learning_rate"])


def test_what_cannot_be_taught_to_write_is_told(tiny_folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tiny_folder)
    save(tmp_path / "gpt", gpt.Gpt(gpt.SPEC.preset("tiny", tokenizer.vocab_size)), tokenizer)
    with pytest.raises(InputError, match="a gpt of this layout cannot be taught to write from another text"):
        finetune("chat", [Example(("好",), "好", 0)], tmp_path / "gpt", tmp_path / "run")
