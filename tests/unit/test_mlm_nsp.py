"""Masks and pairs keep the published frequencies, whole words stay whole, and every draw is a function of its keys."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from filbert.builtin.texts import sample
from filbert.core.errors import InputError
from filbert.core.random import generator
from filbert.data.packing import collate
from filbert.models import bert
from filbert.tasks import mlm_nsp
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import train
from filbert.train import loop


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [("" if d.language == "zh" else " ").join(d.sentences) for d in sample()]


@pytest.fixture(scope="module")
def tokenizer(texts: list[str]) -> Tokenizer:
    return Tokenizer(train(texts, size=3_000).tokens)


@pytest.fixture(scope="module")
def task(texts: list[str], tokenizer: Tokenizer) -> mlm_nsp.Task:
    return mlm_nsp.Task(texts, tokenizer, mlm_nsp.Config(max_length=64, seed=5))


def test_rates_and_the_rest_unchanged(task: mlm_nsp.Task, tokenizer: Tokenizer) -> None:
    """15 ± 0.5 % are asked for; of these 80/10/10; a token that is not asked for never changes."""
    asked = total = masked = same = 0
    for epoch in range(3):
        for index in range(len(task)):
            item = task.item(index, epoch)
            (sequence,) = item.sequences
            rows, gold = item.targets["mask_rows"], item.targets["mask_ids"]
            shown = sequence.ids[rows]
            asked, total = asked + len(rows), total + int((sequence.parts >= 0).sum())
            masked, same = masked + int((shown == tokenizer.mask_id).sum()), same + int((shown == gold).sum())
            others = np.delete(sequence.ids, rows)
            assert tokenizer.mask_id not in others
            assert (sequence.parts[rows] >= 0).all()
            assert len(sequence) <= 64
    assert asked / total == pytest.approx(0.15, abs=0.005)
    assert masked / asked == pytest.approx(0.8, abs=0.015)
    assert same / asked == pytest.approx(0.1, abs=0.015)


def test_words_are_masked_whole() -> None:
    words = np.array([-1, 0, 0, 0, 1, 2, 2, -1, 3, 3, 4, 4, 4, 5, -1], dtype=np.int32)
    seen = set()
    for example in range(300):
        rows = mlm_nsp.chosen(words, 0.3, generator(0, "test", 0, example))
        for word in set(words[rows].tolist()):
            assert set(np.flatnonzero(words == word)) <= set(rows.tolist())
            seen.add(word)
        assert (words[rows] >= 0).all()
    assert seen == {0, 1, 2, 3, 4, 5}


def test_chinese_words_are_the_segmenters(tokenizer: Tokenizer) -> None:
    (sentence,) = mlm_nsp._sentences("我们喜欢北京", tokenizer, lambda text: ["我们", "喜欢", "北京"])
    assert sentence.words.tolist() == [0, 0, 1, 1, 2, 2]


def test_half_of_the_pairs_are_neighbours(task: mlm_nsp.Task) -> None:
    two = [i for i, s in enumerate(task.stretches) if s.last - s.first > 1]
    follows = [bool(task.item(i, epoch).targets["follows"][0]) for i in two for epoch in range(4)]
    assert np.mean(follows) == pytest.approx(0.5, abs=0.04)


def test_a_document_of_one_sentence_is_never_followed(tokenizer: Tokenizer) -> None:
    task = mlm_nsp.Task(["只有一句话。", "另外一句话。", "第三句话。"], tokenizer, mlm_nsp.Config(max_length=32))
    assert len(task) == 3
    items = [task.item(index, epoch) for index in range(3) for epoch in range(20)]
    assert not any(item.targets["follows"][0] for item in items)


def test_every_sentence_is_in_exactly_one_stretch(task: mlm_nsp.Task) -> None:
    covered = [(s.document, i) for s in task.stretches for i in range(s.first, s.last)]
    wanted = [(d, i) for d, document in enumerate(task.documents) for i in range(len(document))]
    assert sorted(covered) == wanted


def test_an_item_is_a_function_of_its_keys(texts: list[str], tokenizer: Tokenizer, task: mlm_nsp.Task) -> None:
    again = mlm_nsp.Task(texts, tokenizer, mlm_nsp.Config(max_length=64, seed=5))
    one, two = task.item(17, 3), again.item(17, 3)
    np.testing.assert_array_equal(one.sequences[0].ids, two.sequences[0].ids)
    np.testing.assert_array_equal(one.targets["mask_rows"], two.targets["mask_rows"])
    other = task.item(17, 4)
    assert not np.array_equal(one.targets["mask_rows"], other.targets["mask_rows"]) or len(one.sequences[0]) != len(
        other.sequences[0]
    )


def test_one_document_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="two documents or more"):
        mlm_nsp.Task(["只有一篇。第二句。"], tokenizer, mlm_nsp.Config())


def test_eight_items_overfit(task: mlm_nsp.Task, tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    config = bert.Config(vocab_size=tokenizer.vocab_size, width=64, layers=2, heads=2, inner=128, dropout=0.0)
    model = bert.Bert(config, ("pooler", "mlm", "nsp"))
    batch = loop.on_device(collate([task.item(i, 0) for i in range(8)]), "cpu")
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(120):
        loss, numbers = task.loss(model, batch)
        optimiser.zero_grad()
        loss.backward()
        if step == 0:
            missing = [name for name, p in model.named_parameters() if p.grad is None]
            assert not missing
        optimiser.step()
    assert numbers["mlm_accuracy"] == 1.0
    assert numbers["nsp_accuracy"] == 1.0


def test_the_loss_is_the_plain_sum_and_packing_changes_nothing(task: mlm_nsp.Task, tokenizer: Tokenizer) -> None:
    """Together in a pack or one by one: the same loss (weighed by how many words each asks for)."""
    torch.manual_seed(0)
    config = bert.Config(vocab_size=tokenizer.vocab_size, width=64, layers=2, heads=2, inner=128, dropout=0.0)
    model = bert.Bert(config, ("pooler", "mlm", "nsp")).eval()
    items = [task.item(i, 0) for i in range(6)]
    loss, numbers = task.loss(model, loop.on_device(collate(items), "cpu"))
    assert float(loss.detach()) == pytest.approx(numbers["mlm_loss"] + numbers["nsp_loss"], abs=1e-6)
    alone = [task.loss(model, loop.on_device(collate([item]), "cpu"))[1] for item in items]
    sizes = [len(item.targets["mask_ids"]) for item in items]
    assert np.average([n["mlm_loss"] for n in alone], weights=sizes) == pytest.approx(numbers["mlm_loss"], abs=1e-5)
    assert np.mean([n["nsp_loss"] for n in alone]) == pytest.approx(numbers["nsp_loss"], abs=1e-5)
