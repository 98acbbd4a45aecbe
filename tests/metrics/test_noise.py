"""Label errors: planted ones are flagged, most of them first; and the models that judge never saw the label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from filbert.core.records import Span
from filbert.forms.datasets import examples, label_table
from filbert.metrics import baselines, noise
from filbert.tasks.classify.items import golds

pytest.importorskip("sklearn")
TOPICS = ("股票基金银行上涨", "球队比赛进球冠军", "电影演员导演票房")


def made(count: int, seed: int = 0) -> tuple[list[tuple[str, ...]], Any]:
    """Texts of three topics that share many words, and their labels."""
    random = np.random.default_rng(seed)
    gold = random.integers(0, 3, count)
    rows = [("".join(random.choice(list(TOPICS[topic] * 2 + "今天我们的新消息是"), 14)),) for topic in gold]
    return rows, gold


def flipped(gold: Any, num_labels: int, seed: int = 0) -> tuple[Any, Any]:
    """The labels with one in twenty wrong, and which are."""
    random = np.random.default_rng(seed)
    wrong = np.zeros(len(gold), dtype=bool)
    wrong[random.choice(len(gold), len(gold) // 20, replace=False)] = True
    return np.where(wrong, (gold + random.integers(1, num_labels, len(gold))) % num_labels, gold), wrong


def recalls(rows: list[tuple[str, ...]], gold: Any, num_labels: int) -> tuple[float, float, float]:
    """Planted errors that are flagged, flagged rows for each planted one, and those among twice as many as planted."""
    given, wrong = flipped(gold, num_labels)
    seen = baselines.unseen(rows, given, num_labels)
    found = noise.suspects(noise.agreed(seen.shares), given[seen.rows])
    hits, planted = wrong[seen.rows][found.rows], wrong[seen.rows].sum()
    return hits.sum() / planted, len(hits) / planted, hits[: 2 * planted].sum() / planted


@pytest.mark.slow
def test_planted_errors_are_flagged() -> None:
    recall, flagged, early = recalls(*made(1_200), 3)
    assert recall >= 0.95
    assert flagged < 4
    assert early >= 0.9


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "least"),
    [("thucnews/train_90k.txt.xz", 12_000, 0.85), ("sentiment_chnsenticorp/train.tsv.xz", 9_600, 0.8)],
)
def test_planted_errors_in_real_data_are_flagged(shared: Path, name: str, count: int, least: float) -> None:
    data = list(examples(shared / "data" / name, "classify"))[:count]
    labels = label_table(data).labels
    recall, flagged, early = recalls([example.texts for example in data], golds(data, labels), len(labels))
    assert recall >= 0.9
    assert flagged < 5  # a fifth of what is flagged was planted; the data's own errors and hard cases are the rest
    assert early >= least


def test_suspects_are_ranked_by_their_margin() -> None:
    shares = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.52, 0.48], [0.1, 0.9]])
    found = noise.suspects(shares, [0, 0, 0, 0, 1])
    assert found.rows.tolist() == [1, 2, 3]  # of the last two, one is nearly as likely; the other is right
    assert found.instead.tolist() == [1, 1, 1]
    np.testing.assert_allclose(found.margins, [-0.6, -0.2, 0.04])
    assert found.estimated == 0  # 0.9 is usual for label 1, and 0.8 is less
    assert noise.suspects(np.array([[0.1, 0.9], [0.05, 0.95], [0.9, 0.1]]), [1, 0, 0]).estimated == 1
    assert len(noise.suspects(np.zeros((0, 2)), []).rows) == 0


def test_views_agree_by_their_geometric_mean() -> None:
    one, two = np.array([[0.8, 0.2]]), np.array([[0.5, 0.5]])
    np.testing.assert_allclose(noise.agreed([one, two]), [[2 / 3, 1 / 3]])
    assert noise.agreed([np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])])[0, 0] == pytest.approx(0.5)


def test_naive_bayes_leaves_each_row_out() -> None:
    rows, gold = made(40)
    rows += [("独此一句无人相似",)]  # its words stand nowhere else: nothing is known of it but how frequent labels are
    gold = np.append(gold, 2)
    features = baselines.Features(rows)
    whole = baselines.naive_bayes(features.counted, gold, 3)
    for place in (0, 7, 40):
        other = gold.copy()
        other[place] = (gold[place] + 1) % 3
        again = baselines.naive_bayes(features.counted, other, 3)
        np.testing.assert_allclose(whole[place], again[place])  # whatever its own label


@pytest.mark.slow
def test_the_regression_learns_pairs_and_numbers() -> None:
    rows, _ = made(300)
    texts = [row[0] for row in rows]
    random = np.random.default_rng(1)
    same = random.integers(0, 2, 300)
    pairs = [(text, text[2:] + "啊" if alike else texts[int(other)]) for text, alike, other in
             zip(texts, same, random.integers(0, 300, 300), strict=True)]  # fmt: skip
    learnt = baselines.labels(pairs[:200], same[:200], 2, is_pair=True)
    assert (learnt.shares(pairs[200:]).argmax(1) == same[200:]).mean() > 0.95
    values = baselines.numbers(pairs[:200], same[:200] * 3.0, is_pair=True).values(pairs[200:])
    assert np.corrcoef(values, same[200:])[0, 1] > 0.9
    assert (learnt.num_rows, learnt.num_of) == (200, 200)
    lone = baselines.labels(rows[:5], np.zeros(5, dtype=np.int64), 3)  # one label only
    np.testing.assert_allclose(lone.shares(rows[:2]), [[1, 0, 0]] * 2)


def test_features_of_words_and_characters() -> None:
    assert baselines.is_chinese(["今天天气", "very fine"])
    assert not baselines.is_chinese(["very fine", "naïve café"])
    assert not baselines.is_chinese([])
    counted = baselines.counts(["abab", "", "ab\ud800😀"], chinese=True)
    assert counted.sum(axis=1).ravel().tolist()[0] == [4 + 3 + 2, 0, 4 + 3 + 2]
    words = baselines.counts(["Good, good day", "day"], chinese=False)
    assert words.sum(axis=1).ravel().tolist()[0] == [4 + 3, 1]
    assert words[0].max() == 2  # case is folded
    assert words[0].multiply(words[1]).nnz == 1
    rows = [("the old ship sails far away",), ("a train stops here today",)] * 10
    learnt = baselines.labels(rows, np.array([0, 1] * 10), 2)
    assert learnt.shares([("ship far",), ("train today",), ("",)]).argmax(1).tolist()[:2] == [0, 1]


def test_the_likest_text_is_found() -> None:
    asked = ["灯塔是哪一年建成的？", "谁住在山里？", "无"]
    offered = [["猫在睡觉。", "灯塔在1900年建成。"], ["老人住在山里。", "船来了。"], []]
    assert baselines.closest(asked, offered) == [1, 0, -1]


def test_a_dictionary_finds_the_longest_and_drops_what_is_rarely_marked() -> None:
    texts = ["李雷去北京大学", "北京很大", "the Art of War by Art Smith", "art is long and art is old"]
    spans = [
        [Span(0, 2, "PER"), Span(3, 7, "ORG")], [Span(0, 2, "LOC")], [Span(18, 27, "PER")], [Span(0, 3, "X")],
    ]  # fmt: skip
    dictionary = baselines.Dictionary(texts, spans)
    assert dictionary("北京大学在北京，李雷也在") == (Span(0, 4, "ORG"), Span(5, 7, "LOC"), Span(8, 10, "PER"))
    assert dictionary("Art Smith") == (Span(0, 9, "PER"),)
    assert dictionary("Smart Smiths") == ()
    assert "art" in dictionary.labels  # one of two is marked
    assert dictionary("artful") == ()
    assert baselines.Dictionary(["水水水"], [[Span(0, 1, "X")]])("水") == ()
    assert baselines.Dictionary([], [])("水") == ()


@pytest.mark.slow
def test_large_data_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, gold = made(1_500)
    monkeypatch.setattr(baselines, "LOOKED", 100)
    monkeypatch.setattr(baselines, "EFFORT", 3 * 14 * 3 * 500)
    monkeypatch.setattr(baselines, "FOLDED_EFFORT", 3 * 14 * 3 * 300)
    learnt = baselines.labels(rows, gold, 3)
    assert (learnt.num_rows, learnt.num_of) == (500, 1_500)
    assert (learnt.shares(rows).argmax(1) == gold).mean() > 0.8
    seen = baselines.unseen(rows, gold, 3)
    assert len(seen.rows) == len(seen.shares[0]) == 300
