"""Every task that learns from plain text, with every model that it teaches, keeps what its record promises."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from filbert.core import registry
from filbert.core.protocols import Batch, Term
from filbert.corpus.shards import Shard
from filbert.nn.encoder import Encoder
from filbert.run import new_models
from filbert.tasks.task import Items
from filbert.text.tokenizer import Tokenizer
from filbert.train.step import on_device
from kit import corpora

NAMES = [name for name in registry.members("tasks") if name not in registry.tasks()]
TAUGHT = [
    (registry.taught_by(spec.objective).name, spec.name)
    for spec in map(registry.model, registry.members("models"))
    if spec.objective is not None
]
AnyItems = Items[object]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return corpora.tokenizer_of(corpora.built_in(4), 1_000)


@pytest.fixture(scope="module")
def shards(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> list[Shard]:
    """Eight documents."""
    return corpora.shards_of(corpora.built_in()[:8], tokenizer, tmp_path_factory.mktemp("shards"))


def items_of(name: str, shards: list[Shard], tokenizer: Tokenizer) -> AnyItems:
    spec = registry.corpus_task(name)
    fields = {"max_length": 32} if "max_length" in {*vars(spec.config())} else {}
    items: AnyItems = spec.items(shards, tokenizer, spec.config(seed=3, **fields))
    return items


def model_of(name: str, items: AnyItems, tokenizer: Tokenizer) -> Encoder:
    torch.manual_seed(0)
    model = new_models.model_of(name, new_models.config_of(name, "tiny", tokenizer), items.parts, tokenizer)
    items.begin(model)
    return model.eval()


def batch_of(items: AnyItems, which: npt.NDArray[np.int64], budget: int | None = None, epoch: int = 0) -> Batch:
    return on_device(items.batch(items.plan(epoch).orders(which), budget), "cpu")


def totals(terms: Mapping[str, Term]) -> dict[str, float]:
    return {name: float(term.total) for name, term in terms.items()}


def test_every_task_teaches_a_model() -> None:
    assert {task for task, _ in TAUGHT} == {*NAMES}
    assert all(registry.corpus_task(name).least_documents(registry.corpus_task(name).config()) >= 1 for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_epoch_is_the_same_whoever_asks(name: str, shards: list[Shard], tokenizer: Tokenizer) -> None:
    """Plans and batches follow from the seed, the epoch and the numbers of the items."""
    one, two = (items_of(name, shards, tokenizer) for _ in range(2))
    two.plan(1)
    lengths = np.asarray(one.plan(0).lengths)
    assert len(lengths) == len(one) > 0
    assert np.array_equal(lengths, two.plan(0).lengths)
    which = np.arange(min(8, len(one)))[::-1].copy()
    first, second = batch_of(one, which), batch_of(two, which)
    assert torch.equal(first.packed.ids, second.packed.ids)
    assert 0 < len(first.packed.ids) <= lengths[which].sum()  # frequent words may be left out
    assert first.targets.keys() == second.targets.keys()
    assert all(torch.equal(first.targets[each], second.targets[each]) for each in first.targets)


@pytest.mark.parametrize(("task", "name"), TAUGHT)
def test_packed_is_as_one_by_one(task: str, name: str, shards: list[Shard], tokenizer: Tokenizer) -> None:
    """Losses are sums over things that are counted before any work; what fills a pack up counts for nothing."""
    items = items_of(task, shards, tokenizer)
    model, which = model_of(name, items, tokenizer), np.arange(min(6, len(items)))
    batch = batch_of(items, which)
    with torch.inference_mode():
        together = items.loss(model, batch)
        filled = items.loss(model, batch_of(items, which, 2_048))
        alone = [totals(items.loss(model, batch_of(items, which[[place]]))) for place in which]
    losses = {each: float(term.count) for each, term in together.items() if each.endswith("_loss")}
    assert losses
    assert losses.items() <= {each: float(count) for each, count in items.counts(batch).items()}.items()
    assert totals(filled) == pytest.approx(totals(together), rel=1e-4)
    assert totals(together) == pytest.approx({each: sum(one[each] for one in alone) for each in together}, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "name"), TAUGHT)
def test_a_batch_is_learnt(task: str, name: str, shards: list[Shard], tokenizer: Tokenizer) -> None:
    """By steps against the signs of its gradients, every loss of it falls; every part that it asks for has some."""
    items = items_of(task, shards, tokenizer)
    model, batch = model_of(name, items, tokenizer), batch_of(items, np.arange(min(4, len(items))))
    rate = 2e-3 if model.stack else 2e-2
    means = list[float]()
    for _ in range(25):
        terms = {each: term for each, term in items.loss(model, batch).items() if each.endswith("_loss")}
        loss = torch.stack([term.total / term.count for term in terms.values()]).sum()
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.grad is not None:
                    weight.sub_(rate * weight.grad.sign())
        means.append(loss.item())
    assert np.isfinite(means).all()
    assert means[-1] < 0.8 * means[0]
    assert all(weight.grad is not None for part in items.parts for weight in parameters(model, part))
    derived = items.derived({each: term.total.item() / float(term.count) for each, term in terms.items()})
    assert all(np.isfinite(value) for value in derived.values())


def parameters(model: torch.nn.Module, part: str) -> list[torch.nn.Parameter]:
    """Those of a part of it."""
    return [weight for name, weight in model.named_parameters() if name.startswith(f"{part}.")]


def test_shards_hold_the_documents(shards: list[Shard], tmp_path: Path) -> None:
    assert sum(len(shard.documents) - 1 for shard in shards) == 8
