"""A step: any number of runs in one process, each with graphs of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from filbert.core.records import Example
from filbert.models import bert
from filbert.tasks.classify.items import Items
from filbert.tasks.classify.spec import Config
from filbert.train import machine, optim
from filbert.train.distributed import Ranks
from filbert.train.step import Stepper
from kit import samples

EXAMPLES = [Example(("好天气" * count,), "ab"[count % 2]) for count in range(1, 13)]


@pytest.mark.slow
def test_a_process_trains_one_model_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile refuses a whole graph when it has made eight of one function (here: two); each run makes some.

    Graphs are traced as on a GPU; only their kernels are not built, which would take minutes here.
    """
    compiled = torch.compile

    def traced(module: torch.nn.Module, **options: Any) -> Any:
        return compiled(module, backend="eager", **options)

    monkeypatch.setattr(torch, "compile", traced)
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2)
    here = dataclasses.replace(machine.chosen(machine.Config(device="cpu")), compiled=True)
    tokenizer = samples.tokenizer()
    for run in range(4):
        config = bert.Config(
            vocab_size=tokenizer.vocab_size, width=8 + 8 * run, layers=1, heads=2, inner=32, max_length=256
        )
        items = Items(
            EXAMPLES, ["a", "b"], tokenizer, Config(pool="mean" if run % 2 else "cls", max_length=48 + 16 * run)
        )
        stepper = Stepper(
            bert.Bert(config, items.parts, 2), items, optim.Settings("adamw", 1e-3, 0.0), here, Ranks(), seed=0
        )
        batch = items.batch(np.arange(8), 1_024)
        outcome = stepper.step([batch], items.counts(batch), 0, 1e-3, 1.0)
        assert torch.isfinite(outcome.numbers).all()
