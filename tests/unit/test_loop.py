"""The loop: every item of an epoch once, the same run for the same seed, the published schedule and decay."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from filbert.core.errors import FilbertError, InputError
from filbert.core.protocols import Batch, Item
from filbert.core.records import Encoding
from filbert.models import bert
from filbert.train import loop, optim


class Recall:
    """A task that asks a model to recall each token from its own vector."""

    def __init__(self, size: int = 12, bad: bool = False) -> None:
        self.size, self.bad = size, bad

    def __len__(self) -> int:
        return self.size

    def item(self, index: int, epoch: int) -> Item:
        ids = np.arange(index, index + 3 + index % 4, dtype=np.int32) % 30
        zeros = np.zeros_like(ids)
        return Item((Encoding(ids, zeros, zeros, zeros, zeros),), {"gold": ids, "index": np.array([index])})

    def loss(self, model: bert.Bert, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        packed = batch.packed
        loss = torch.nn.functional.cross_entropy(model.word_scores(model(packed)), packed.ids)
        return (loss * float("nan") if self.bad else loss), {"loss": float(loss.detach())}


def tiny() -> bert.Bert:
    torch.manual_seed(0)
    return bert.Bert(bert.Config(vocab_size=30, width=16, layers=1, heads=2, inner=32, max_length=16), ("mlm",))


def test_an_epoch_visits_each_item_once_in_its_own_order() -> None:
    config = loop.Config(batch_tokens=20, seed=3)
    orders: dict[int, list[int]] = {0: [], 1: []}
    for epoch, items in loop.batches(Recall(), config):
        if epoch > 1:
            break
        assert sum(len(s) for item in items for s in item.sequences) <= 20
        orders[epoch] += [int(item.targets["index"][0]) for item in items]
    # A batch may straddle two epochs; together they hold every item twice.
    assert set(Counter(orders[0] + orders[1]).values()) <= {1, 2}
    assert orders[0][:10] != orders[1][:10]


def test_the_same_seed_gives_the_same_weights() -> None:
    def trained() -> tuple[list[float], torch.Tensor]:
        losses: list[float] = []
        model = tiny()
        torch.manual_seed(1)
        loop.fit(
            model, Recall(), loop.Config(steps=30, batch_tokens=24, learning_rate=5e-3), lambda s: losses.append(s.loss)
        )
        return losses, model.embeddings.words.weight.detach()

    (one, first), (two, second) = trained(), trained()
    assert one == two
    assert torch.equal(first, second)
    assert one[-1] < one[0] * 0.8


def test_told_can_end_it() -> None:
    steps: list[int] = []
    loop.fit(tiny(), Recall(), loop.Config(steps=50), lambda s: bool(steps.append(s.step)) or s.step < 3)
    assert steps == [1, 2, 3]


def test_a_loss_that_is_no_number_never_reaches_the_weights() -> None:
    model = tiny()
    before = model.embeddings.words.weight.detach().clone()
    with pytest.raises(FilbertError, match="step 1"):
        loop.fit(model, Recall(bad=True), loop.Config(steps=5), lambda s: None)
    assert torch.equal(before, model.embeddings.words.weight)


def test_the_rate_rises_then_falls_to_zero() -> None:
    rates = [optim.rate(step, 100, 0.1) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1.0
    assert rates[100] == 0.0
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))


def test_norms_and_biases_do_not_decay() -> None:
    groups = optim.adamw(tiny(), 1e-3).param_groups
    assert all(p.ndim > 1 for p in groups[0]["params"])
    assert all(p.ndim == 1 for p in groups[1]["params"])
    assert (groups[0]["weight_decay"], groups[1]["weight_decay"]) == (0.01, 0.0)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": 1.5}, {"batch_tokens": -1}, {"learning_rate": 0.0}])
def test_a_wrong_field_is_named(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        loop.Config(**wrong)
