"""GloVe: counts against a plain count, the loss against the published formula, and that it learns."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.records import Encoding, Packed
from filbert.corpus import cooccurrence as counting
from filbert.models import glove
from filbert.nn.attention import tensors
from filbert.pack.lay import collate, pack
from filbert.tasks.cooccurrence import items as cooccurrence
from filbert.tasks.cooccurrence import spec as cooccurrence_spec
from filbert.train import loop, machine
from filbert.train.step import on_device

VOCAB = 12


@dataclass(frozen=True)
class Row:
    """A shard in memory."""

    ids: npt.NDArray[np.uint16]
    documents: npt.NDArray[np.int64]

    @property
    def words(self) -> npt.NDArray[np.uint8]:
        return np.ones(len(self.ids), np.uint8)

    @property
    def sentences(self) -> npt.NDArray[np.int64]:
        return self.documents

    @property
    def num_tokens(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Words:
    """Ids that are words, but for the first, which is special."""

    vocab_size: int = VOCAB
    special_ids: tuple[int, ...] = (0,)


def text_of(*sizes: int, seed: int = 0, vocab: int = VOCAB) -> Row:
    ids = np.random.default_rng(seed).integers(0, vocab, sum(sizes)).astype(np.uint16)
    return Row(ids, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def plain_counts(shards: list[Row], window: int, left_out: tuple[int, ...], vocab: int = VOCAB) -> list[list[Fraction]]:
    """The table of all pairs, word by word, in fractions: 1/d for each word d places to the left or right."""
    table = [[Fraction(0)] * vocab for _ in range(vocab)]
    for shard in shards:
        for begin, end in zip(shard.documents[:-1], shard.documents[1:], strict=True):
            ids = [int(i) for i in shard.ids[begin:end] if i not in left_out]
            for at, word in enumerate(ids):
                for near in range(max(0, at - window), min(len(ids), at + window + 1)):
                    if near != at:
                        table[word][ids[near]] += Fraction(1, abs(near - at))
    return table


# Counting -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 3, 20])
@pytest.mark.parametrize("left_out", [(), (0, 5)])
@pytest.mark.parametrize("most", [10**6, 20])
def test_counts_are_those_of_a_plain_count(
    monkeypatch: pytest.MonkeyPatch, window: int, left_out: tuple[int, ...], most: int
) -> None:
    """To the last part, however small the slabs are and however often sorted runs go to files."""
    monkeypatch.setattr(counting, "SLAB", 37)
    monkeypatch.setattr(counting, "MERGED", 7)
    shards = [text_of(90, 1, 3, 60), text_of(45, seed=1)]
    found = counting.entries(shards, VOCAB, window, left_out, most=most)
    first, second, counts = found.at(np.arange(len(found)))
    table = plain_counts(shards, window, left_out)
    want = {(i, j): table[i][j] for i in range(VOCAB) for j in range(i, VOCAB) if table[i][j]}
    parts = [Fraction(int(part), found.unit) for part in found.parts]
    assert dict(zip(zip(first.tolist(), second.tolist(), strict=True), parts, strict=True)) == want
    assert (np.diff(found.keys) > 0).all()
    assert counts.tolist() == [float(part) for part in parts]
    assert all(table[i][j] == table[j][i] for i, j in want)  # which is why one of the two is kept


def test_runs_in_files_are_merged_to_the_same_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A larger vocabulary, many runs; nothing is left in the folder."""
    shards = [text_of(5_000, seed=seed, vocab=3_000) for seed in range(3)]
    whole = counting.entries(shards, 3_000, 5)
    monkeypatch.setattr(counting, "SLAB", 500)
    monkeypatch.setattr(counting, "MERGED", 1_000)
    made = []
    written = counting._in_files
    monkeypatch.setattr(counting, "_in_files", lambda *given: made.append(1) or written(*given))
    found = counting.entries(shards, 3_000, 5, most=6_000, folder=tmp_path)
    assert len(made) > 5
    assert np.array_equal(whole.keys, found.keys)
    assert np.array_equal(whole.parts, found.parts)
    assert not list(tmp_path.iterdir())
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.parts, found.parts)


def test_nothing_to_count_and_wrong_windows_are_named() -> None:
    with pytest.raises(InputError, match=r"the window is 21, but must be a whole number from 1 to 20"):
        counting.entries([text_of(4)], VOCAB, 21)
    with pytest.raises(InputError, match=r"task.window is 21"):
        cooccurrence_spec.Config(window=21)
    with pytest.raises(InputError, match=r"task.x_max is 0"):
        cooccurrence_spec.Config(x_max=0)
    with pytest.raises(InputError, match=r"no two words of this corpus stand near each other"):
        cooccurrence.Items([text_of(1, 1, 1)], Words(), cooccurrence_spec.Config())


# The objective --------------------------------------------------------------------------------------------------------


def model_of(width: int = 5, vocab: int = VOCAB) -> glove.GloVe:
    torch.manual_seed(0)
    model = glove.GloVe(glove.Config(vocab_size=vocab, width=width), ("biases",))
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.7)
    return model


def test_the_loss_is_the_published_formula() -> None:
    """J = Σ_ij f(X_ij)·(w_i·c_j + b_i + b'_j - log X_ij)² over the table of all pairs, and its gradients (eq. 8, 9)."""
    shards = [text_of(60, 80)]
    task = cooccurrence.Items(shards, Words(), cooccurrence_spec.Config(window=4, x_max=3.0, alpha=0.6))
    model = model_of()
    batch = on_device(task.batch(task.plan(0)), "cpu")
    term = task.loss(model, batch)["count_loss"]
    term.total.backward()
    assert model.biases is not None
    x = np.array(plain_counts(shards, 4, (0,)), dtype=float)
    f = np.where(x > 0, np.minimum(1, (x / 3.0) ** 0.6), 0)
    w, c = (
        table.weight.detach().numpy().astype(float) for table in (model.embeddings.words, model.embeddings.contexts)
    )
    b, b_context = (bias.detach().numpy().astype(float) for bias in (model.biases.words, model.biases.contexts))
    error = w @ c.T + b[:, None] + b_context - np.log(np.where(x > 0, x, 1))
    assert float(term.total.detach()) == pytest.approx((f * error**2).sum(), rel=1e-5)
    assert float(term.count) == pytest.approx(f.sum(), rel=1e-5)
    assert task.counts(batch)["count_loss"] == pytest.approx(f.sum(), rel=1e-5)
    slopes = 2 * f * error
    for got, want in (
        (model.embeddings.words.weight, slopes @ c),
        (model.embeddings.contexts.weight, slopes.T @ w),
        (model.biases.words, slopes.sum(1)),
        (model.biases.contexts, slopes.sum(0)),
    ):
        np.testing.assert_allclose(got.grad, want, rtol=1e-3, atol=1e-4)


def test_the_pack_changes_nothing() -> None:
    """Together, collated from items, one by one, or in a row of constant size."""
    task = cooccurrence.Items([text_of(400)], Words(vocab_size=VOCAB), cooccurrence_spec.Config(window=6))
    model, indices = model_of(), list(range(len(task)))
    plan = task.plan(0)
    assert len(indices) > 2
    assert plan.lengths.sum() == 2 * len(task.entries)
    with torch.inference_mode():
        packs = [[task.batch(plan)], [collate([task.item(i, 0) for i in indices])]]
        packs += [[task.batch(plan.orders(np.array([i]))) for i in reversed(indices)], [task.batch(plan, 256)]]
        sums = [[task.loss(model, on_device(b, "cpu"))["count_loss"] for b in batches] for batches in packs]
    totals, counts = ([sum(float(getattr(t, n)) for t in terms) for terms in sums] for n in ("total", "count"))
    assert totals == pytest.approx([totals[0]] * 4, rel=1e-5)
    assert counts == pytest.approx([counts[0]] * 4, rel=1e-5)
    assert [sum(task.counts(b)["count_loss"] for b in batches) for batches in packs] == pytest.approx(counts)
    assert packs[3][0].packed.num_tokens == 256


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 1_000, 7_919])
def test_an_epoch_meets_every_entry_once_in_an_order_of_its_own(size: int) -> None:
    task = cooccurrence.Items([text_of(400)], Words(), cooccurrence_spec.Config(window=1))
    plans = [cooccurrence.Plan(epoch, np.arange(-(-size // cooccurrence.ITEM)), size) for epoch in range(3)]
    orders = [task.places(plan) for plan in plans]
    assert all(np.array_equal(np.sort(order), np.arange(size)) for order in orders)
    if size > 100:
        assert not np.array_equal(orders[0], orders[1])
        item = task.places(plans[0].orders(np.array([1])))
        assert np.array_equal(item, orders[0][cooccurrence.ITEM : 2 * cooccurrence.ITEM])
        assert np.bincount(item * 4 // size, minlength=4).min() > 3  # from all over the table


# The model ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_vector_is_the_sum_of_both_tables(dtype: torch.dtype) -> None:
    model = model_of().to(dtype).eval()
    arrays = [np.array(row, dtype=np.int32) for row in ([5], [7, 8, 5], [])]
    packed: Packed = tensors(pack([Encoding(a, a * 0, a * 0, a * 0, a * 0) for a in arrays])[0])
    tables = model.embeddings.words.weight + model.embeddings.contexts.weight
    got = model(packed)
    assert torch.equal(got, tables[packed.ids.long()])
    assert torch.equal(model(packed, torch.tensor([3, 0])), got[[3, 0]])
    empty = tensors(pack([])[0])
    assert model(empty).shape == (0, 5)


def test_parts_and_fields_are_checked() -> None:
    bare = glove.GloVe(glove.SPEC.preset("small", VOCAB))
    assert bare.biases is None
    with pytest.raises(InputError, match=r"this model has no biases"):
        bare.log_counts(torch.tensor([1]), torch.tensor([2]))
    with pytest.raises(InputError, match=r"glove config: vocab_size is 0"):
        glove.Config(vocab_size=0)
    with pytest.raises(InputError, match=r"the glove preset is 'smal'.*Did you mean 'small'"):
        glove.SPEC.preset("smal", 9)


def test_it_fits_the_counts_by_the_one_loop(one_thread: None) -> None:
    """Words that stand in the same places end near each other: the first six ids stand among each other only."""
    random = np.random.default_rng(0)
    sizes = [20] * 60
    ids = np.concatenate([random.integers(1, 7, 20) + 6 * (at % 2) for at in range(60)]).astype(np.uint16)
    text = Row(ids, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    words = Words(vocab_size=13)
    task = cooccurrence.Items([text], words, cooccurrence_spec.Config(window=5))
    torch.manual_seed(0)
    model = glove.GloVe(glove.Config(vocab_size=13, width=8), task.parts)
    losses: list[float] = []
    course = loop.Config(steps=150, batch_tokens=64, learning_rate=0.03)
    here = machine.Config(device="cpu", threads=1)
    loop.fit(model, task, course, lambda entry: losses.append(entry["loss"]), machine=here)
    assert np.mean(losses[-5:]) < 0.05 * np.mean(losses[:5])
    vectors = model.embeddings.words.weight.detach() + model.embeddings.contexts.weight.detach()
    cosines = torch.nn.functional.normalize(vectors[1:], dim=1)
    cosines = cosines @ cosines.T
    alike = torch.block_diag(torch.ones(6, 6), torch.ones(6, 6)).bool() & ~torch.eye(12, dtype=torch.bool)
    assert cosines[alike].mean() > cosines[~alike & ~torch.eye(12, dtype=torch.bool)].mean() + 0.2
