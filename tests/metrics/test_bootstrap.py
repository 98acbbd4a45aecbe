"""The bootstrap, and intervals of every measure that were published: the same draws give the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from filbert.metrics import bootstrap, label_sets, labels, numbers, paired, vectors
from filbert.metrics.intervals import wilson
from filbert.tasks.answer import measure as answers
from filbert.tasks.relation import measure as relations
from filbert.tasks.tag import measure as tags
from filbert.tasks.translate import measure as generation

PUBLISHED = {
    "labels": {
        "accuracy": (0.6478756061385241, 0.8043154495327476),
        "f1": (0.6329094036496369, 0.7826579873264712),
    },
    "label_sets": {
        "micro_f1": (0.8922031732712918, 0.9455782312925171),
        "macro_f1": (0.890036582989488, 0.9454660359454861),
        "accuracy": (0.6338015621189832, 0.8137618126176642),
    },
    "tags": {
        "precision": (0.2540498529617701, 0.38625580987459435),
        "recall": (0.25804854679016287, 0.3802083333333333),
        "f1": (0.26042471042471044, 0.37666348986310866),
        "macro_precision": (0.25218295877316455, 0.38143633062205107),
        "macro_recall": (0.26403214487530846, 0.39265413382776704),
        "macro_f1": (0.2600246448639377, 0.3778195664848208),
        "accuracy": (0.5333333333333333, 0.6296759259259259),
    },
    "answers": {
        "exact": (0.2, 0.5),
        "f1": (0.7931249999999996, 0.8727272727272725),
    },
    "relations": {
        "micro_f1": (0.7076886792452831, 0.8461538461538461),
    },
    "numbers": {
        "pearson": (0.4345435174346802, 0.6851959741452115),
        "spearman": (0.37499977964908615, 0.6877953579631475),
        "mse": (0.9489791638856812, 1.7400236473334179),
    },
    "retrieval": {
        "recall@1": (0.32, 0.6),
        "recall@10": (0.9, 1.0),
        "mrr": (0.5520033549783551, 0.7441906926406926),
    },
    "agreement": {
        "spearman": (0.5083671409020825, 0.7783391783630667),
        "pearson": (0.5406785753389557, 0.8116234189210354),
    },
    "rouge": {
        "rouge_1": (0.9272727272727271, 0.9568181818181817),
        "rouge_2": (0.7638194444444444, 0.8583333333333334),
        "rouge_l": (0.9272727272727271, 0.9568181818181817),
    },
    "paired": {
        "accuracy": (0.0538995751586039, 0.3142857142857143),
        "share": (0.057142857141857156, 0.31428571428671426),
    },
}


def measured() -> dict[str, Any]:
    """The intervals of small sets of data that are always the same."""
    random = np.random.default_rng(10)
    gold, guessed = random.integers(0, 5, 120), random.integers(0, 5, 120)
    predicted = np.where(random.random(120) < 0.7, gold, guessed)
    table = labels.confusion(gold, predicted, 5)
    flags = random.random((90, 4))
    right_S3, called_S3, there_S3 = (random.integers(0, 3, (60, 3)) for _ in range(3))
    counts = tags.Table(("A", "B", "C"), np.minimum(right_S3, np.minimum(called_S3, there_S3)), called_S3, there_S3)
    units = np.stack((random.integers(3, 9, 60), np.full(60, 9)), axis=1)
    texts = ["".join(map(chr, random.integers(0x4E00, 0x4E08, 6))) for _ in range(40)]
    others = [text[:4] + text[-1:] if place % 3 else text for place, text in enumerate(texts)]
    told = answers.scores(others, [[text] for text in texts], "cmrc")
    values, noise = random.normal(size=80), random.normal(size=80)
    first, second = random.normal(size=(2, 50, 6))
    one, two = random.random(70) < 0.8, random.random(70) < 0.6
    halves = np.stack((one, np.ones(70)), axis=1), np.stack((two, np.ones(70)), axis=1)
    differences = paired.accuracy(one, two), paired.compared(*halves, lambda sums: sums[:, 0] / sums[:, 1], "share")
    return {
        "labels": labels.intervals(table),
        "label_sets": label_sets.intervals(flags > 0.6, flags > 0.7 - random.random((90, 4)) * 0.3),
        "tags": tags.intervals(counts, units),
        "answers": answers.intervals(told),
        "relations": relations.summary(table, 0)["intervals"],
        "numbers": numbers.summary(values, values + noise)["intervals"],
        "retrieval": vectors.retrieval(first, first + second, np.arange(50))["intervals"],
        "agreement": vectors.agreement(values, values - noise)["intervals"],
        "rouge": generation.rouge_summary(others, texts)["intervals"],
        "paired": {each.measure: (each.low, each.high) for each in differences},
    }


def test_published_intervals_stay_the_same_to_the_last_digit() -> None:
    for task, intervals in measured().items():
        assert set(intervals) == set(PUBLISHED[task])
        for name, pair in intervals.items():
            assert list(pair) == pytest.approx(PUBLISHED[task][name], rel=1e-13), (task, name)


def test_chunks_change_no_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, values = np.array([7, 1, 4]), np.array([0.0, 0.25, 1.0])
    examples = np.repeat(values, counts)

    def both() -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:
        by_counts = bootstrap.of_counts(counts, lambda drawn: {"mean": drawn @ values / 12})
        return by_counts, bootstrap.of_places(12, lambda places: {"mean": examples[places].mean(axis=1)})

    whole = both()
    monkeypatch.setattr(bootstrap, "CHUNK_CELLS", 1)
    assert both() == whole
    for interval in whole:  # the mean is 0.354, and its standard error 0.13
        assert interval["mean"] == pytest.approx((0.1, 0.62), abs=0.06)


def test_levels_seeds_and_purposes_are_told_apart() -> None:
    def interval(**options: Any) -> tuple[float, float]:
        return bootstrap.of_counts([30, 70], lambda drawn: {"share": drawn[:, 0] / 100}, **options)["share"]

    assert interval() == interval(seed=0)
    assert len({interval(seed=seed, resamples=50) for seed in range(4)}) > 1
    assert interval(purpose="paired bootstrap", resamples=7) != interval(resamples=7)
    assert interval(level=0.5)[0] > interval()[0]
    assert interval() == pytest.approx(wilson(30, 100), abs=0.03)


def test_of_nothing_nothing_is_drawn() -> None:
    assert bootstrap.of_counts([0, 0], lambda drawn: {"sum": drawn.sum(axis=1)})["sum"] == (0.0, 0.0)
    assert bootstrap.of_places(0, lambda places: {"size": places.sum(axis=1)})["size"] == (0.0, 0.0)
