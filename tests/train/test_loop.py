"""The loop: every item of an epoch once, the same run for the same seed, and no bad number in the weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from filbert.core.errors import FilbertError, InputError
from filbert.core.protocols import Batch, Item, Term
from filbert.core.records import Encoding
from filbert.models import bert
from filbert.pack.batches import OneByOne
from filbert.train import listeners, loop, machine
from filbert.train.distributed import Ranks
from filbert.train.feed import Feed


class Recall(OneByOne):
    """A task that asks a model to recall each token from its own vector; at some steps the loss is no number."""

    def __init__(self, size: int = 12, bad: tuple[int, ...] = (), number: float = math.nan) -> None:
        self.size, self.bad, self.number, self.asked = size, bad, number, 0

    def __len__(self) -> int:
        return self.size

    def item(self, index: int, epoch: int) -> Item:
        ids = np.arange(index, index + 3 + index % 4, dtype=np.int32) % 30
        zeros = np.zeros_like(ids)
        return Item((Encoding(ids, zeros, zeros, zeros, zeros),), {"gold": ids, "index": np.array([index])})

    def counts(self, batch: Batch) -> Mapping[str, int]:
        return {"recall_loss": int(batch.packed.boundaries[-1])}

    def loss(self, model: bert.Bert, batch: Batch) -> Mapping[str, Term]:
        self.asked += 1
        ids = batch.packed.ids
        scores = model.word_scores(model(batch.packed))
        loss = torch.nn.functional.cross_entropy(scores, ids, reduction="sum")
        right = (scores.detach().argmax(-1) == ids).sum()
        loss = loss * self.number if self.asked in self.bad else loss
        return {"recall_loss": Term(loss, len(ids)), "accuracy": Term(right, len(ids))}


def tiny(dropout: float = 0.1) -> bert.Bert:
    torch.manual_seed(0)
    config = bert.Config(vocab_size=30, width=16, layers=1, heads=2, inner=32, max_length=16, dropout=dropout)
    return bert.Bert(config, ("mlm",))


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_same(one: Mapping[str, torch.Tensor], two: Mapping[str, torch.Tensor]) -> None:
    assert [name for name in one if not torch.equal(one[name], two[name])] == []


@pytest.mark.parametrize("parts", [1, 3])
def test_an_epoch_visits_each_item_once_in_its_own_order(parts: int) -> None:
    here = machine.chosen(machine.Config(device="cpu"))
    feed = Feed(Recall(), 3, 20, here, Ranks(), (0, 0), parts)
    orders: dict[int, list[int]] = {0: [], 1: []}
    for fed in feed:
        if fed.epoch > 1:
            break
        assert sum(part.packed.num_tokens for part in fed.parts) <= 20
        seen = [int(index) for part in fed.parts for index in part.targets["index"]]
        assert sorted(seen) == sorted(fed.examples.tolist())
        orders[fed.epoch] += fed.examples.tolist()
    for epoch in (0, 1):
        assert Counter(orders[epoch]) == Counter(range(12))
    assert orders[0] != orders[1]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights() -> None:
    """Whatever torch's own generator was at; another seed is another run."""

    def trained(seed: int, ambient: int) -> tuple[list[float], dict[str, torch.Tensor]]:
        losses: list[float] = []
        model = tiny()
        torch.manual_seed(ambient)
        config = loop.Config(steps=30, batch_tokens=24, learning_rate=5e-3, seed=seed)
        loop.fit(model, Recall(), config, lambda entry: losses.append(entry["loss"]))
        return losses, weights(model)

    (one, first), (two, second), (other, _) = trained(0, 1), trained(0, 2), trained(1, 1)
    assert one == two != other
    assert_same(first, second)
    assert one[-1] < one[0] * 0.8


def test_parts_of_a_step_change_only_roundings() -> None:
    """Four micro-batches sum to the same means and move the weights the same way."""
    found = []
    for parts in (1, 4):
        entries: list[Mapping[str, Any]] = []
        model = tiny(dropout=0.0)
        config = loop.Config(steps=5, batch_tokens=40, learning_rate=1e-3)
        loop.fit(model, Recall(), config, entries.append, machine=machine.Config(device="cpu", parts=parts))
        found.append((entries, weights(model)))
    (one, first), (four, second) = found
    for a, b in zip(one, four, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-6)
        assert (a["tokens"], a["accuracy"]) == (b["tokens"], b["accuracy"])
    for name in first:
        torch.testing.assert_close(first[name], second[name], atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_what_is_told_of_each_step() -> None:
    entries: list[Mapping[str, Any]] = []
    model = tiny()
    config = loop.Config(steps=20, batch_tokens=30, learning_rate=2e-3, warmup=0.25)
    outcome = loop.fit(model, Recall(), config, entries.append)
    assert [entry["step"] for entry in entries] == list(range(1, 21))
    assert all(entry["loss"] == entry["recall_loss"] and 0 <= entry["accuracy"] <= 1 for entry in entries)
    assert all(0 < entry["tokens"] <= 30 and entry["norm"] > 0 for entry in entries)
    rates = [entry["rate"] for entry in entries]
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[-1] < 0.2 * max(rates) <= 0.2 * 2e-3
    assert outcome.state.step == 20
    assert outcome.state.tokens == sum(entry["tokens"] for entry in entries)
    assert not model.training


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_loss_that_is_no_number_never_reaches_the_weights(number: float) -> None:
    """Three such steps in a row end the run and name the examples; the weights are those from before."""
    told = Heard()
    model = tiny()
    before = weights(model)
    config = loop.Config(steps=9, batch_tokens=20)
    with pytest.raises(FilbertError, match=r"3 steps in a row .* step 3 \(epoch 0, batch 2: examples \d+"):
        loop.Training(model, Recall(bad=tuple(range(1, 9)), number=number), config, loop.Course(listener=told)).run()
    assert_same(before, weights(model))
    assert [kind for kind, _ in told.events] == ["skipped"] * 3


def test_a_single_bad_step_is_skipped_and_the_run_goes_on() -> None:
    """Two in a row, twice: neither ends the run, and no weight is ever anything but a number."""
    told = Heard()
    model = tiny()
    outcome = loop.Training(
        model, Recall(bad=(2, 3, 5, 6)), loop.Config(steps=8, batch_tokens=20), loop.Course(listener=told)
    ).run()
    assert (outcome.state.skipped, outcome.state.in_a_row) == (4, 0)
    assert [message.split(" (")[0] for _, message in told.events] == [f"step {n}" for n in (2, 3, 5, 6)]
    assert all(torch.isfinite(value).all() for value in weights(model).values())
    assert len(told.steps) == 8


class Heard(listeners.Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[Mapping[str, Any]] = []
        self.evaluations: list[Mapping[str, Any]] = []
        self.events: list[tuple[str, str]] = []

    def step(self, entry: Mapping[str, Any]) -> None:
        self.steps.append(entry)

    def evaluation(self, entry: Mapping[str, Any]) -> None:
        self.evaluations.append(entry)

    def event(self, kind: str, message: str, **more: Any) -> None:
        self.events.append((kind, message))


@pytest.mark.slow
def test_held_out_items_are_asked_and_change_nothing() -> None:
    """The same weights with and without; the last evaluation is the outcome's."""
    config = loop.Config(steps=12, batch_tokens=24, learning_rate=5e-3, evaluate_every=5)
    told = Heard()
    plain, watched = tiny(), tiny()
    loop.fit(plain, Recall(), config)
    course = loop.Course(held=Recall(5), listener=told)
    outcome = loop.Training(watched, Recall(), config, course).run()
    assert_same(weights(plain), weights(watched))
    assert [entry["step"] for entry in told.evaluations] == [5, 10, 12]
    assert outcome.held["loss"] == told.evaluations[-1]["held"]["loss"] < told.evaluations[0]["held"]["loss"]


def test_patience_ends_a_run_that_gets_no_better() -> None:
    told = Heard()
    config = loop.Config(steps=100, batch_tokens=24, learning_rate=1e-9, evaluate_every=2, patience=3)
    course = loop.Course(held=Recall(5), watched="accuracy", listener=told)
    outcome = loop.Training(tiny(), Recall(), config, course).run()
    assert outcome.stopped_early
    assert outcome.state.step == 8  # the first evaluation is the best, and three more are no better
    assert [kind for kind, _ in told.events] == ["early"]


def test_a_task_without_items_is_refused() -> None:
    with pytest.raises(FilbertError, match="nothing to train on"):
        loop.fit(tiny(), Recall(0), loop.Config(steps=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": 1.5},
        {"batch_tokens": -1},
        {"learning_rate": 0.0},
        {"clip": 0.0},
        {"warmup": 1.0},
        {"patience": -1},
        {"schedule": "liner"},
        {"optimiser": "adam"},
    ],
)
def test_a_wrong_field_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"train.{next(iter(wrong))}"):
        loop.Config(**wrong)
