"""Metrics of labels against scikit-learn, and the bootstrap against one that draws the examples themselves."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.metrics import bootstrap
from filbert.metrics import labels as metrics
from filbert.metrics.intervals import wilson


def made(num_labels: int = 5, size: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    gold = random.integers(0, num_labels, size)
    predicted = np.where(random.random(size) < 0.7, gold, random.integers(0, num_labels, size))
    return gold, predicted


@pytest.mark.parametrize("absent", [False, True])
def test_the_numbers_are_those_of_scikit_learn(absent: bool) -> None:
    learn = pytest.importorskip("sklearn.metrics")
    gold, predicted = made()
    if absent:  # label 4 is neither there nor predicted
        gold, predicted = np.minimum(gold, 3), np.minimum(predicted, 3)
    table = metrics.confusion(gold, predicted, 5)
    assert np.array_equal(table.dense(), learn.confusion_matrix(gold, predicted, labels=range(5)))
    assert metrics.accuracy(table) == pytest.approx(learn.accuracy_score(gold, predicted))
    assert metrics.macro_f1(table) == pytest.approx(learn.f1_score(gold, predicted, average="macro"))
    each = metrics.per_label(table)
    told = learn.precision_recall_fscore_support(gold, predicted, labels=range(5), zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "support"), told, strict=True):
        assert each[name] == pytest.approx(values)


def test_gold_against_itself_is_perfect() -> None:
    gold, _ = made()
    table = metrics.confusion(gold, gold, 5)
    assert metrics.accuracy(table) == metrics.macro_f1(table) == 1.0
    assert metrics.intervals(table) == dict.fromkeys(("accuracy", "f1"), wilson(400, 400))


def test_the_bootstrap_is_that_of_drawn_examples() -> None:
    gold, predicted = made(size=300)
    random = np.random.default_rng(1)
    drawn = []
    for _ in range(3_000):
        chosen = random.integers(0, len(gold), len(gold))
        table = metrics.confusion(gold[chosen], predicted[chosen], 5)
        drawn.append((metrics.accuracy(table), metrics.macro_f1(table)))
    wanted = np.quantile(np.array(drawn), [0.025, 0.975], axis=0)
    table = metrics.confusion(gold, predicted, 5)
    found = metrics.intervals(table, resamples=3_000)
    assert found["accuracy"] == pytest.approx(tuple(wanted[:, 0]), abs=0.006)
    assert found["f1"] == pytest.approx(tuple(wanted[:, 1]), abs=0.006)
    assert found == metrics.intervals(table, resamples=3_000)
    assert found != metrics.intervals(table, resamples=3_000, seed=1)


def test_many_labels_are_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    table = metrics.confusion(*made(num_labels=40, size=2_000), 40)
    whole = metrics.intervals(table, resamples=200)
    monkeypatch.setattr(bootstrap, "CHUNK_CELLS", 1)
    assert metrics.intervals(table, resamples=200) == whole


def test_majority_and_an_empty_table() -> None:
    assert metrics.majority(metrics.confusion([0, 0, 1], [1, 1, 1], 2)) == pytest.approx(2 / 3)
    empty = metrics.confusion([], [], 3)
    assert metrics.accuracy(empty) == metrics.macro_f1(empty) == metrics.majority(empty) == 0.0
    assert metrics.intervals(empty)["f1"] == (0.0, 0.0)


def test_the_summary_has_numbers_at_its_top() -> None:
    told = metrics.summary(metrics.confusion([0, 1, 1], [0, 1, 0], 2), ["no", "yes"])
    assert all(isinstance(told[name], float) for name in ("accuracy", "f1", "majority_accuracy"))
    assert set(told["intervals"]) == {"accuracy", "f1"}
    assert told["labels"]["yes"]["recall"] == 0.5
    assert told["confusion"] == [[1, 0], [1, 1]]


def test_tfidf_learns_what_is_plain() -> None:
    pytest.importorskip("sklearn")
    texts = ["股票上涨", "股市大跌", "球队夺冠", "球员受伤"] * 3
    said = metrics.tfidf(texts, [0, 0, 1, 1] * 3, ["股票大跌", "球队受伤"])
    assert said.tolist() == [0, 1]
