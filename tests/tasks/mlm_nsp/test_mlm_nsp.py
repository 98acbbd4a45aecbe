"""The pretraining task over real shards: what it asks, that its losses are sums, and that it can be learnt."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.protocols import Batch, Term
from filbert.corpus.shards import Shard
from filbert.models import bert
from filbert.pack.stretches import NOTHING, OBJECTIVES, RANDOM
from filbert.tasks.mlm_nsp import items as mlm_nsp
from filbert.tasks.mlm_nsp import spec as mlm_nsp_spec
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.corpora import built_in, shards_of, tokenizer_of


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return built_in(2)


@pytest.fixture(scope="module")
def tokenizer(texts: list[str]) -> Tokenizer:
    return tokenizer_of(texts, 3_000)


@pytest.fixture(scope="module")
def shards(texts: list[str], tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> list[Shard]:
    made = shards_of(texts, tokenizer, tmp_path_factory.mktemp("mlm_nsp"), shard_tokens=4_000)
    assert len(made) > 2
    return made


@pytest.fixture(scope="module")
def task(shards: list[Shard], tokenizer: Tokenizer) -> mlm_nsp.Items:
    return mlm_nsp.Items(shards, tokenizer, mlm_nsp_spec.Config(max_length=64, seed=5))


def model(tokenizer: Tokenizer) -> bert.Bert:
    torch.manual_seed(0)
    config = bert.Config(vocab_size=tokenizer.vocab_size, width=32, layers=2, heads=2, inner=64, dropout=0.0)
    return bert.Bert(config, ("pooler", "mlm", "nsp")).eval()


def batch_of(task: mlm_nsp.Items, indices: list[int], budget: int | None = None, epoch: int = 0) -> Batch:
    return on_device(task.batch(task.plan(epoch).orders(np.array(indices)), budget), "cpu")


def totals(terms: dict[str, Term]) -> dict[str, tuple[float, int]]:
    return {name: (float(term.total), int(term.count)) for name, term in terms.items()}


def test_an_epoch_holds_every_token_of_every_shard(task: mlm_nsp.Items, shards: list[Shard]) -> None:
    items = task.plan(0).items
    own = (items.first_end - items.first).sum() + (items.second_end - items.second)[items.labels != RANDOM].sum()
    assert own == sum(shard.num_tokens for shard in shards)
    assert len(task) == len(items.first)
    assert task.plan(0).lengths.max() <= 64


def test_an_item_reads_as_it_should(task: mlm_nsp.Items, tokenizer: Tokenizer) -> None:
    item = task.item(17, 3)
    (sequence,) = item.sequences
    special = (sequence.ids == tokenizer.cls_id) | (sequence.ids == tokenizer.sep_id)
    assert np.array_equal(sequence.parts < 0, special)
    assert np.flatnonzero(sequence.ids == tokenizer.sep_id).tolist()[-1] == len(sequence) - 1
    middle = int(np.flatnonzero(sequence.ids == tokenizer.sep_id)[0])
    assert np.array_equal(sequence.segments, np.arange(len(sequence)) > middle)
    assert item.targets["pair_labels"].tolist() == [task.plan(3).items.labels[17]]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_sums_are_those_counted_and_the_pack_changes_nothing(
    shards: list[Shard], tokenizer: Tokenizer, objective: str
) -> None:
    """Together, one by one or in a row of constant size: the same sums over the same number of answers."""
    task = mlm_nsp.Items(shards, tokenizer, mlm_nsp_spec.Config(objective=objective, max_length=64))
    network = model(tokenizer)
    indices = [3, 40, 7, 100, 31, 5]
    with torch.inference_mode():
        batch = batch_of(task, indices)
        together = totals(task.loss(network, batch))
        counts = dict(task.counts(batch))
        alone = [totals(task.loss(network, batch_of(task, [index]))) for index in indices]
        filled_batch = batch_of(task, indices, budget=512)
        filled = totals(task.loss(network, filled_batch))
    assert counts == {name: count for name, (_, count) in together.items() if name.endswith("_loss")}
    assert counts == dict(task.counts(filled_batch))
    assert set(counts) == ({"mlm_loss"} if objective == "mlm" else {"mlm_loss", "nsp_loss"})
    assert counts["mlm_loss"] == len(batch.targets["mask_ids"]) > 20
    for name, (total, count) in together.items():
        assert sum(each[name][1] for each in alone) == count == filled[name][1]
        assert sum(each[name][0] for each in alone) / count == pytest.approx(total / count, rel=1e-6, abs=1e-6)
        assert filled[name][0] / count == pytest.approx(total / count, rel=1e-6, abs=1e-6)


def test_a_lone_sentence_has_no_order_to_be_asked_for(tokenizer: Tokenizer, tmp_path: Path) -> None:
    made = shards_of(["只有一句话。", "另外一句话。"], tokenizer, tmp_path)
    task = mlm_nsp.Items(made, tokenizer, mlm_nsp_spec.Config(objective="mlm+sop", max_length=32))
    batch = batch_of(task, [0, 1])
    assert batch.targets["pair_labels"].tolist() == [NOTHING, NOTHING]
    assert task.counts(batch)["nsp_loss"] == 0
    terms = task.loss(model(tokenizer), batch)
    assert float(terms["nsp_loss"].total.detach()) == 0


@pytest.mark.slow
def test_eight_items_overfit(task: mlm_nsp.Items, tokenizer: Tokenizer) -> None:
    network = model(tokenizer)
    batch = batch_of(task, list(range(8)))
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for step in range(80):
        terms = task.loss(network, batch)
        loss = sum(term.total / term.count for name, term in terms.items() if name.endswith("_loss"))
        optimiser.zero_grad()
        loss.backward()
        if step == 0:
            assert not [name for name, p in network.named_parameters() if p.grad is None]
        optimiser.step()
    assert all(int(terms[name].total) == int(terms[name].count) for name in ("mlm_accuracy", "nsp_accuracy"))


def test_orders_and_task_travel_to_other_processes(task: mlm_nsp.Items) -> None:
    orders = task.plan(2).orders(np.array([4, 9, 1]))
    there, sent = pickle.loads(pickle.dumps((task, orders)))
    one, two = task.batch(orders), there.batch(sent)
    assert np.array_equal(one.packed.ids, two.packed.ids)
    assert np.array_equal(one.targets["mask_rows"], two.targets["mask_rows"])
    assert len(pickle.dumps(orders)) < 2_000  # places, not tokens


def test_a_large_corpus_goes_in_rounds(
    shards: list[Shard], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each epoch is one round; all shards come in turn, and the next time with other masks."""
    monkeypatch.setattr(mlm_nsp, "ROUND_TOKENS", 6_000)
    task = mlm_nsp.Items(shards, tokenizer, mlm_nsp_spec.Config(max_length=64))
    num_rounds = len(task.rounds)
    assert num_rounds > 1
    assert sorted(str(s.path) for dealt in task.rounds for s in dealt) == sorted(str(s.path) for s in shards)
    first = task.item(0, 0)
    for epoch in range(2 * num_rounds):
        items = task.plan(epoch).items
        own = (items.first_end - items.first).sum() + (items.second_end - items.second)[items.labels != RANDOM].sum()
        assert own == sum(shard.num_tokens for shard in task.rounds[epoch % num_rounds])
    assert not np.array_equal(task.item(0, num_rounds).sequences[0].ids, first.sequences[0].ids)
    assert np.array_equal(task.item(0, 0).sequences[0].ids, first.sequences[0].ids)


def test_no_round_has_a_single_document(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pairs could have no part from elsewhere: two huge documents are one round, however large."""
    made = shards_of(["很长的一篇。" * 300, "另一篇也长。" * 300], tokenizer, tmp_path, shard_tokens=100)
    assert [len(shard.documents) - 1 for shard in made] == [1, 1]
    monkeypatch.setattr(mlm_nsp, "ROUND_TOKENS", 1_000)
    task = mlm_nsp.Items(made, tokenizer, mlm_nsp_spec.Config(max_length=64))
    assert len(task.rounds) == 1
    assert (task.plan(0).items.labels == RANDOM).any()


def test_one_document_is_refused_where_pairs_need_two(tokenizer: Tokenizer, tmp_path: Path) -> None:
    made = shards_of(["只有一篇。第二句。"], tokenizer, tmp_path)
    config = mlm_nsp_spec.Config(max_length=8)
    with pytest.raises(InputError, match="needs 2 documents or more, but the corpus has 1"):
        mlm_nsp.Items(made, tokenizer, config)
    for objective in ("mlm", "mlm+sop"):
        assert len(mlm_nsp.Items(made, tokenizer, replace(config, objective=objective))) >= 1
    with pytest.raises(InputError, match="has 0"):
        mlm_nsp.Items([], tokenizer, replace(config, objective="mlm"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"objective": "nsp"},
        {"masking": "words"},
        {"max_length": 7},
        {"max_length": 8.0},
        {"mask_prob": 1.0},
        {"short_prob": -0.1},
    ],
)
def test_a_wrong_field_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"task.{next(iter(wrong))}"):
        mlm_nsp_spec.Config(**wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_tokens_stay_apart_in_a_deep_stack(shards: list[Shard], tokenizer: Tokenizer) -> None:
    """Eight post-norm layers at a high rate: with the published start all tokens become one vector in 40 steps."""
    task = mlm_nsp.Items(shards, tokenizer, mlm_nsp_spec.Config(objective="mlm", max_length=64))
    torch.manual_seed(0)
    shape = {"width": 64, "layers": 8, "heads": 2, "inner": 256, "max_length": 64, "dropout": 0.0}
    deep = bert.Bert(bert.Config(vocab_size=tokenizer.vocab_size, **shape), task.parts)
    task.begin(deep)
    assert float(deep.mlm.bias.detach().exp().sum()) == pytest.approx(1, abs=1e-4)  # frequencies
    settings = loop.Config(steps=40, batch_tokens=512, learning_rate=2e-3)
    loop.fit(deep, task, settings, machine=machine.Config(threads=1))
    batch = on_device(task.batch(task.plan(1).orders(np.arange(8))), "cpu")
    with torch.inference_mode():
        vectors = deep(batch.packed)
    assert float(vectors.std(0).mean() / vectors.std()) > 0.5
