"""An epoch's stretches hold every token once, are cut between sentences and words, and pair what they say they pair."""

from __future__ import annotations

import time
from dataclasses import fields

import numpy as np
import pytest
from corpora import LANGUAGES, Tokens, assert_as_expected, made_up, shard, shards, tokens
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.pack.stretches import FOLLOWS, LEAST, NOTHING, OBJECTIVES, RANDOM, Round, Stretches, stretches


def documents_of(text: Round, places: np.ndarray) -> np.ndarray:
    return np.searchsorted(text.documents, places, side="right") - 1


def own(plan: Stretches, objective: str) -> tuple[np.ndarray, np.ndarray]:
    """Where what each item reads of its own document begins and ends."""
    alone = (plan.labels == RANDOM) if objective == "mlm+nsp" else plan.second == plan.second_end
    start = np.where(alone, plan.first, np.minimum(plan.first, plan.second))
    return start, np.where(alone, plan.first_end, np.maximum(plan.first_end, plan.second_end))


def same(one: Stretches, two: Stretches) -> bool:
    return all(np.array_equal(getattr(one, f.name), getattr(two, f.name)) for f in fields(Stretches))


def between(edges: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """How many edges lie strictly between."""
    return np.searchsorted(edges, stop, side="left") - np.searchsorted(edges, start, side="right")


def check(text: Round, plan: Stretches, objective: str, max_length: int) -> None:
    """All that a plan promises."""
    room = max_length - plan.specials
    start, stop = own(plan, objective)
    seen = np.zeros(int(text.bases[-1]) + 1, dtype=np.int64)
    np.add.at(seen, start, 1)
    np.add.at(seen, stop, -1)
    assert (np.cumsum(seen)[:-1] == 1).all()  # every token once
    assert (plan.first < plan.first_end).all()
    assert (plan.lengths <= max_length).all()
    for a, b in ((start, stop), (plan.first, plan.first_end), (plan.second, plan.second_end)):
        some = b > a
        assert np.array_equal(documents_of(text, a[some]), documents_of(text, b[some] - 1))
    # A stretch ends inside a sentence only where that sentence's rest is longer than the room, and then between words.
    inside = ~np.isin(stop, text.sentences)
    rest = text.sentences[np.searchsorted(text.sentences, start, side="right")] - start
    least = room - 2 * ((plan.labels == RANDOM) & (objective == "mlm+nsp"))
    assert (rest[inside] > least[inside]).all()
    words = np.flatnonzero(text.gathered("words", np.arange(text.bases[-1])))
    assert (np.isin(stop, words) | ~inside | (between(words, start, stop) == 0)).all()
    check_pairs(text, plan, objective, words)
    assert np.array_equal(plan.examples, np.arange(len(plan.first)))


def check_pairs(text: Round, plan: Stretches, objective: str, words: np.ndarray) -> None:
    start, stop = own(plan, objective)
    follows, other, none = (plan.labels == label for label in (FOLLOWS, RANDOM, NOTHING))
    assert (follows | other | none).all()
    assert np.array_equal(plan.second[follows], plan.first_end[follows])
    assert ((plan.second_end > plan.second) == ~none).all()
    if objective == "mlm":
        assert none.all()
    elif objective == "mlm+sop":
        assert np.array_equal(plan.first[other], plan.second_end[other])
        assert np.isin(np.maximum(plan.first, plan.second)[~none], text.sentences).all()
        assert (between(text.sentences, start[none], stop[none]) == 0).all()
    else:
        assert not none.any()
        firsts, seconds = documents_of(text, plan.first[other]), documents_of(text, plan.second[other])
        assert (firsts != seconds).all()
        # Both kinds of second parts begin where a word does, so that no ## piece gives the answer away.
        assert np.isin(plan.second[other], text.sentences).all()
        assert np.isin(plan.second[follows], words).all()
        cut_inside = follows & ~np.isin(plan.second, text.sentences)
        assert (between(text.sentences, start[cut_inside], stop[cut_inside]) == 0).all()
        true = set(zip(plan.first_end[follows].tolist(), plan.second[follows].tolist(), strict=True))
        assert not true & set(zip(plan.first_end[other].tolist(), plan.second[other].tolist(), strict=True))


@pytest.mark.slow
@given(
    shards(),
    st.sampled_from(OBJECTIVES),
    st.sampled_from([8, 9, 16, 64, 512]),
    st.sampled_from([0.0, 0.1, 0.9]),
    st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_every_promise_on_any_text(text: Tokens, objective: str, max_length: int, short: float, seed: int) -> None:
    whole = Round([text])
    for epoch in range(2):
        check(whole, stretches(whole, objective, max_length, short, seed, epoch), objective, max_length)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("max_length", [8, 64, 128])
def test_every_promise_on_real_text(language: str, objective: str, max_length: int) -> None:
    whole = Round([shard(language)])
    check(whole, stretches(whole, objective, max_length, 0.1, 3, 0), objective, max_length)


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    "sizes", [[1, 1], [1, 100_000], [20_000, 3, 1], [2] * 500, [9] * 100], ids=lambda sizes: str(sizes[:3])
)
def test_extreme_documents(sizes: list[int], objective: str) -> None:
    for max_length in (8, 512) if sum(sizes) < 100_000 else (128,):
        whole = Round([made_up(sizes)])
        check(whole, stretches(whole, objective, max_length, 0.1, 0, 0), objective, max_length)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_plan_is_a_function_of_its_keys(objective: str) -> None:
    whole = Round([shard("mixed")])

    def plan(seed: int, epoch: int) -> Stretches:
        return stretches(whole, objective, 64, 0.1, seed, epoch)

    assert same(plan(1, 2), plan(1, 2))
    cuts = {key: set(own(plan(*key), objective)[1].tolist()) for key in ((1, 2), (1, 3), (2, 2))}
    for other in ((1, 3), (2, 2)):
        assert len(cuts[1, 2] - cuts[other]) > 0.1 * len(cuts[1, 2])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_how_documents_lie_in_shards_changes_nothing(objective: str) -> None:
    text = shard("zh")
    num_documents = len(text.documents) - 1
    pieces = []
    for a, b in ((0, 1), (1, 50), (50, num_documents)):
        low, high = text.documents[a], text.documents[b]
        sentences = text.sentences[(text.sentences >= low) & (text.sentences <= high)] - low
        pieces.append(Tokens(text.ids[low:high], text.words[low:high], text.documents[a : b + 1] - low, sentences))
    one, several = Round([text]), Round(pieces)
    assert same(stretches(one, objective, 64, 0.1, 0, 1), stretches(several, objective, 64, 0.1, 0, 1))
    places = np.random.default_rng(0).integers(0, text.num_tokens, size=5_000)
    for name in ("ids", "words"):
        assert np.array_equal(one.gathered(name, places), several.gathered(name, places))


def test_without_short_ones_a_document_that_fits_is_one_stretch() -> None:
    whole = Round([made_up([60, 3, 1, 125, 126], sentence=4)])
    plan = stretches(whole, "mlm", 128, 0.0, 0, 0)
    assert np.array_equal(np.sort(plan.first), whole.documents[:-1])


def test_short_ones_are_as_many_as_asked_for() -> None:
    """Sentences of one token: lengths from a whole sentence and LEAST to the room, and a tenth of them short."""
    whole = Round([made_up([5_000] * 40, sentence=1)])
    plan = stretches(whole, "mlm", 66, 0.1, 0, 0)
    inner = ~np.isin(plan.first, whole.documents) & ~np.isin(plan.first_end, whole.documents)
    sizes = plan.lengths[inner] - 2
    assert sizes.min() == LEAST + 1
    assert sizes.max() == 64
    # A short one may be as long as the room by chance, once in 61.
    assert np.mean(sizes < 64) == pytest.approx(0.1 * 60 / 61, abs=0.015)


def test_half_of_the_pairs_follow() -> None:
    """Next sentences on each language, and sentence order; by a chi-square test."""
    for language in LANGUAGES:
        whole = Round([shard(language)])
        for objective in ("mlm+nsp", "mlm+sop"):
            labels = np.concatenate([stretches(whole, objective, 64, 0.1, 5, epoch).labels for epoch in range(6)])
            seen = np.bincount(labels[labels != NOTHING])
            assert seen.sum() > 1_500
            assert_as_expected(seen, np.full(2, seen.sum() / 2))


def test_no_false_pair_reads_like_a_true_one() -> None:
    """Not by their places only: over ten epochs, no pair of texts is called both true and random."""
    for language in LANGUAGES:
        text = shard(language)
        whole = Round([text])
        found: dict[int, set[tuple[bytes, bytes]]] = {FOLLOWS: set(), RANDOM: set()}
        for epoch in range(10):
            plan = stretches(whole, "mlm+nsp", 64, 0.1, 0, epoch)
            columns = (plan.first, plan.first_end, plan.second, plan.second_end, plan.labels)
            for a, b, c, d, label in zip(*(column.tolist() for column in columns), strict=True):
                found[label].add((text.ids[a:b].tobytes(), text.ids[c:d].tobytes()))
        assert min(map(len, found.values())) > 1_000
        assert not found[FOLLOWS] & found[RANDOM]


@pytest.mark.slow
def test_random_parts_come_from_all_documents_alike() -> None:
    """Every other document is as likely as any, by a chi-square test over those that are not the item's own."""
    text = made_up([40] * 20, sentence=3)
    whole = Round([text])
    seen = np.zeros((20, 20))
    for epoch in range(200):
        plan = stretches(whole, "mlm+nsp", 32, 0.1, 0, epoch)
        other = plan.labels == RANDOM
        np.add.at(seen, (documents_of(whole, plan.first[other]), documents_of(whole, plan.second[other])), 1)
    assert (np.diag(seen) == 0).all()
    apart = seen[~np.eye(20, dtype=bool)].reshape(20, 19)
    expected = np.repeat(apart.sum(1, keepdims=True) / 19, 19, axis=1)
    assert_as_expected(apart.ravel(), expected.ravel())


def test_documents_of_one_sentence() -> None:
    """As in a corpus of titles: true pairs come about too, and a single word is only ever beside another document."""
    titles = tokens(
        [text.split("。")[0] for text in ("今天天气很好我们去公园吧", "经济增长放缓了", "好", "Hello world")]
    )
    assert len(titles.documents) == len(titles.sentences)
    whole = Round([titles])
    labels = np.zeros((4, 2), dtype=int)
    for epoch in range(100):
        plan = stretches(whole, "mlm+nsp", 32, 0.1, 0, epoch)
        check(whole, plan, "mlm+nsp", 32)
        np.add.at(labels, (documents_of(whole, plan.first), plan.labels), 1)
        assert (stretches(whole, "mlm+sop", 32, 0.1, 0, epoch).labels == NOTHING).all()
    assert labels[2, FOLLOWS] == 0
    assert (labels[[0, 1, 3], FOLLOWS] > 30).all()
    assert (labels[[0, 1, 3], RANDOM] > 30).all()


def test_one_endless_sentence() -> None:
    """Cut between words all the same, at other places in every epoch."""
    whole = Round([made_up([5, 5_000], sentence=10_000)])
    ends = []
    for epoch in range(2):
        plan = stretches(whole, "mlm+nsp", 64, 0.1, 0, epoch)
        check(whole, plan, "mlm+nsp", 64)
        ends.append(set(plan.first_end.tolist()))
    assert len(ends[0] & ends[1]) < 0.5 * len(ends[0])


@pytest.mark.slow
def test_a_very_long_document_is_cut_in_step() -> None:
    """Three million tokens without a document's end: the plan takes the time of one section, and keeps its promises."""
    whole = Round([made_up([100, 3_000_000, 100])])
    begun = time.process_time()
    plan = stretches(whole, "mlm+nsp", 128, 0.1, 0, 0)
    assert time.process_time() - begun < 3  # 0.1 s; one by one it was 7 s
    check(whole, plan, "mlm+nsp", 128)
