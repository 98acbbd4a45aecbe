"""Masks: whole words or none, 15 % and 80/10/10 on every language, and the same for a sequence in whatever pack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from corpora import LANGUAGES, Tokens, assert_as_expected, made_up, shard, shards, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.core.random import keys
from filbert.pack import masking
from filbert.pack.lay import collate
from filbert.pack.masking import KINDS, SPAN_PROB, SPAN_WORDS
from filbert.pack.stretches import OBJECTIVES
from filbert.tasks.mlm_nsp.items import Items
from filbert.tasks.mlm_nsp.spec import Config


@dataclass(frozen=True)
class Sequence:
    """An item as it should be before it is masked, worked out token by token, and what became of it."""

    gold: np.ndarray
    places: np.ndarray  # in the text; -1 for [CLS] and [SEP]
    words: np.ndarray  # the number of each token's word in the text
    shown: np.ndarray
    rows: np.ndarray
    asked: np.ndarray


def sequences(task: Items, text: Tokens, epoch: int) -> Iterator[Sequence]:
    """All of an epoch, from one batch."""
    plan = task.plan(epoch)
    batch = task.batch(plan.orders(np.arange(len(plan.lengths))))
    ids, numbers = text.ids.astype(np.int64), np.cumsum(text.words)
    special = tokenizer().cls_id, tokenizer().sep_id
    order = np.argsort(batch.targets["mask_rows"], kind="stable")
    rows, asked = batch.targets["mask_rows"][order], batch.targets["mask_ids"][order]
    items = plan.items
    for index, start in enumerate(batch.starts.tolist()):
        first = np.arange(items.first[index], items.first_end[index])
        second = np.arange(items.second[index], items.second_end[index])
        parts = [[-1], first, [-1]] if items.specials == 2 else [[-1], first, [-1], second, [-1]]
        places = np.concatenate(parts).astype(np.int64)
        gold = np.where(places < 0, special[1], ids[places])
        gold[0] = special[0]
        stop = start + len(places)
        low, high = np.searchsorted(rows, [start, stop])
        yield Sequence(
            gold, places, numbers[places], batch.packed.ids[start:stop], rows[low:high] - start, asked[low:high]
        )


def check(sequence: Sequence, kind: str) -> None:
    """What holds for every sequence by itself."""
    chosen = np.zeros(len(sequence.gold), dtype=bool)
    chosen[sequence.rows] = True
    assert len(np.unique(sequence.rows)) == len(sequence.rows)
    assert (sequence.places[sequence.rows] >= 0).all()  # never [CLS] or [SEP]
    assert np.array_equal(sequence.asked, sequence.gold[sequence.rows])
    assert np.array_equal(sequence.shown[~chosen], sequence.gold[~chosen])  # what is not asked for never changes
    new = sequence.shown[sequence.shown != sequence.gold]
    assert not np.isin(new, [i for i in tokenizer().special_ids if i != tokenizer().mask_id]).any()
    if kind in ("whole-word", "span"):
        ordinary = sequence.places >= 0
        words = sequence.words[ordinary]
        assert not np.isin(words[chosen[ordinary]], words[~chosen[ordinary]]).any()


def made(
    text: Tokens, kind: str = "whole-word", objective: str = "mlm+nsp", max_length: int = 64, seed: int = 0
) -> Items:
    return Items([text], tokenizer(), Config(objective=objective, masking=kind, max_length=max_length, seed=seed))


@pytest.mark.slow
@given(shards(), st.sampled_from(KINDS), st.sampled_from(OBJECTIVES), st.sampled_from([8, 24, 128]), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_every_promise_on_any_text(text: Tokens, kind: str, objective: str, max_length: int, seed: int) -> None:
    task = made(text, kind, objective, max_length, seed)
    for sequence in sequences(task, text, epoch=seed % 3):
        assert len(sequence.gold) <= max_length
        check(sequence, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_rates_on_real_text(language: str, kind: str) -> None:
    """15 ± 0.5 % are asked for; of these 80 % are [MASK], 10 % another token and 10 % stay, by a chi-square test."""
    text = shard(language)
    task = made(text, kind)
    asked = total = 0
    shown: list[np.ndarray] = []
    gold: list[np.ndarray] = []
    for epoch in range(4):
        for sequence in sequences(task, text, epoch):
            check(sequence, kind)
            asked, total = asked + len(sequence.rows), total + int((sequence.places >= 0).sum())
            shown.append(sequence.shown[sequence.rows])
            gold.append(sequence.asked)
    assert asked / total == pytest.approx(0.15, abs=0.005)
    now, before = np.concatenate(shown), np.concatenate(gold)
    masked, same = int((now == tokenizer().mask_id).sum()), int((now == before).sum())
    by_chance = 0.1 / len(task.ordinary)  # a random token may be the one that stood there
    shares = np.array([0.8, 0.1 - by_chance, 0.1 + by_chance])
    assert_as_expected(np.array([masked, asked - masked - same, same]), asked * shares)


@pytest.mark.slow
def test_random_tokens_are_of_the_whole_vocabulary_alike() -> None:
    text = shard("mixed")
    task = made(text)
    seen = np.zeros(tokenizer().vocab_size)
    for epoch in range(12):
        for s in sequences(task, text, epoch):
            shown = s.shown[s.rows]
            np.add.at(seen, shown[(shown != s.asked) & (shown != tokenizer().mask_id)], 1)
    assert seen[list(tokenizer().special_ids)].sum() == 0
    groups = np.array([part.sum() for part in np.array_split(seen[task.ordinary], 50)])
    sizes = np.array([len(part) for part in np.array_split(task.ordinary, 50)])
    assert groups.sum() > 2_000
    assert_as_expected(groups, groups.sum() * sizes / sizes.sum())


def test_every_place_is_asked_for_alike() -> None:
    """With words of one token, no place in a sequence is preferred, by a chi-square test."""
    text = made_up([30] * 400, sentence=40)
    text = replace(text, words=np.ones_like(text.words))
    for kind in ("whole-word", "span"):
        task = Items([text], tokenizer(), Config(objective="mlm", masking=kind, max_length=32, short_prob=0))
        seen = np.zeros(32)
        for epoch in range(5):
            for s in sequences(task, text, epoch):
                np.add.at(seen, s.rows, 1)
        seen = seen[1:31]
        if kind == "whole-word":
            assert_as_expected(seen, np.full(30, seen.sum() / 30))
        # Runs make the counts of neighbours hang together, so only the size of the differences is looked at.
        assert seen.min() > 0.7 * seen.mean()
        assert seen.sum() == pytest.approx(0.15 * 400 * 30 * 5, rel=0.02)


def test_runs_have_the_published_lengths() -> None:
    """A run ends after each word with a chance of 0.2 and every tenth word of a part at the latest."""
    size = 200_000
    ordinary = np.ones(size, dtype=bool)
    words = np.random.default_rng(0).random(size) < 0.6
    row = masking.Row(
        np.zeros(size, dtype=np.int64), np.arange(size), ordinary, words, keys(0, "mask", 0, np.arange(1))
    )
    begins = masking._begins(row, "span", np.arange(size))
    assert (words | ~begins)[1:].all()
    number = np.cumsum(words)[np.flatnonzero(begins)]
    sizes = np.diff(number)
    assert sizes.min() == 1
    assert sizes.max() == SPAN_WORDS
    # Of ten words one begins a run for certain, and nine do with that chance.
    mean = SPAN_WORDS / (1 + (SPAN_WORDS - 1) * SPAN_PROB)
    assert sizes.mean() == pytest.approx(mean, rel=0.02)


def test_both_is_half_of_each() -> None:
    """A sequence is masked by words or by tokens; the choice is the sequence's own."""
    text = shard("en")
    by = {kind: made(text, kind) for kind in ("both", "token", "whole-word")}
    found = {kind: [s.rows.tolist() for s in sequences(task, text, 0)] for kind, task in by.items()}
    columns = zip(found["both"], found["token"], found["whole-word"], strict=True)
    kinds = [(rows == tokens, rows == words) for rows, tokens, words in columns]
    assert all(token or word for token, word in kinds)
    only = [token for token, word in kinds if token != word]
    assert_as_expected(np.bincount(only), np.full(2, len(only) / 2))


@pytest.mark.slow
@given(
    shards(),
    st.sampled_from(KINDS),
    st.sampled_from(OBJECTIVES),
    st.randoms(use_true_random=False),
    st.booleans(),
    st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_a_sequence_has_its_masks_in_whatever_pack(
    text: Tokens, kind: str, objective: str, random: object, with_budget: bool, epoch: int
) -> None:
    task = made(text, kind, objective, 32)
    plan = task.plan(epoch)
    indices = list(range(len(plan.lengths)))
    random.shuffle(indices)  # type: ignore[attr-defined]
    indices = indices[: 1 + random.randrange(len(indices))]  # type: ignore[attr-defined]
    budget = int(plan.lengths[indices].sum()) + 50 if with_budget else None
    batch = task.batch(plan.orders(np.array(indices)), budget)
    rows, asked = batch.targets["mask_rows"], batch.targets["mask_ids"]
    known = asked >= 0
    rows, asked = rows[known], asked[known]
    again = made(text, kind, objective, 32)  # another process
    items = []
    for place, index in enumerate(indices):
        item = again.item(index, epoch)
        items.append(item)
        (alone,) = item.sequences
        start = int(batch.starts[place])
        for name in ("ids", "segments"):
            assert np.array_equal(getattr(batch.packed, name)[start : start + len(alone)], getattr(alone, name))
        assert np.array_equal(batch.packed.positions[start : start + len(alone)], np.arange(len(alone)))
        here = (rows >= start) & (rows < start + len(alone))
        assert np.array_equal(rows[here] - start, item.targets["mask_rows"])
        assert np.array_equal(asked[here], item.targets["mask_ids"])
        if objective != "mlm":
            assert batch.targets["pair_labels"][place] == item.targets["pair_labels"][0]
    joined = collate(items)
    assert np.array_equal(joined.packed.ids, batch.packed.ids[: joined.packed.num_tokens])
    assert sorted(joined.targets["mask_rows"].tolist()) == sorted(rows.tolist())


def test_a_mask_is_a_function_of_seed_epoch_and_example() -> None:
    text = made_up([30] * 50, sentence=40)
    config = Config(objective="mlm", max_length=64, short_prob=0)

    def rows(seed: int, epoch: int) -> list[list[int]]:
        task = Items([text], tokenizer(), replace(config, seed=seed))
        return [s.rows.tolist() for s in sequences(task, text, epoch)]

    assert rows(1, 2) == rows(1, 2)
    for other in ((1, 3), (2, 2)):
        assert np.mean([a == b for a, b in zip(rows(1, 2), rows(*other), strict=True)]) < 0.1


def test_arrays_have_one_size_for_one_budget() -> None:
    text = shard("zh")
    task = made(text)
    plan = task.plan(0)
    shapes = set()
    for part in np.array_split(np.arange(len(plan.lengths)), 30):
        batch = task.batch(plan.orders(part), 4_096)
        packed = batch.packed
        shapes.add(tuple(len(x) for x in (packed.ids, packed.positions, packed.segments, *batch.targets.values())[:5]))
        assert packed.max_len == 64 >= max(packed.lengths)
        assert packed.boundaries[-1] == sum(packed.lengths) == 4_096
        assert packed.positions.max() < 64
        rest = int(plan.lengths[part].sum())
        assert (packed.ids[rest:] == 0).all()
        filling = batch.targets["mask_ids"] < 0
        assert (batch.targets["mask_rows"][filling] == 0).all()
    assert len(shapes) == 1
