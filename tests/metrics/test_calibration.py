"""Calibration: errors against their definitions, temperatures that are known, and none that its own data measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.metrics import calibration
from filbert.run.evaluate import evaluate
from filbert.run.finetune import finetune

Rows = Any


def drawn(temperature: float, count: int = 20_000, num_labels: int = 4, seed: int = 0) -> tuple[Rows, Rows]:
    """Scores, and answers that come about as the scores divided by the temperature say."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(count, num_labels)) * 3
    edges = calibration.shares(scores, temperature).cumsum(axis=1)
    return scores, (random.random((count, 1)) > edges[:, :-1]).sum(axis=1)


def test_bins_are_those_of_the_definition() -> None:
    sure = np.array([0.05, 0.10, 0.101, 0.5, 0.95, 1.0])
    right = np.array([0, 1, 0, 1, 1, 0])
    found = calibration.binned(sure, right, num_bins=10)
    assert found.counts.tolist() == [2, 1, 1, 2]  # (0, 0.1] holds 0.1 itself
    np.testing.assert_allclose(found.confidence, [0.075, 0.101, 0.5, 0.975])
    np.testing.assert_allclose(found.accuracy, [0.5, 0, 1, 0.5])
    assert found.error == pytest.approx((2 * 0.425 + 0.101 + 0.5 + 2 * 0.475) / 6)
    alike = calibration.binned(sure, right, num_bins=3, adaptive=True)
    assert alike.counts.tolist() == [2, 2, 2]
    assert alike.error == pytest.approx((abs(0.15 - 1) + abs(0.601 - 1) + abs(1.95 - 1)) / 6)


def test_brier_and_loss_agree_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores, gold = drawn(1.0, 500)
    shares = calibration.shares(scores)
    assert calibration.log_loss(shares, gold) == pytest.approx(metrics.log_loss(gold, shares))
    once = np.eye(4)[gold]
    assert calibration.brier(shares, gold) == pytest.approx(((shares - once) ** 2).sum(1).mean())


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_a_known_temperature_is_found(temperature: float) -> None:
    scores, gold = drawn(temperature)
    found = calibration.temperature(scores, gold)
    assert found == pytest.approx(temperature, rel=0.03)

    def loss(at: float) -> float:
        return calibration.log_loss(calibration.shares(scores, at), gold)

    assert loss(found) <= min(loss(found * 1.02), loss(found / 1.02))
    told = calibration.summary(scores, gold)
    assert told["temperature"] == found
    assert told["after"]["ece"] < 0.02
    if temperature != 1.0:
        assert told["before"]["ece"] > 3 * told["after"]["ece"]


def test_the_error_after_is_measured_on_other_data() -> None:
    scores, gold = drawn(1.0, 60)
    halves = calibration.crossfitted(scores, gold)
    assert halves[0] == pytest.approx(calibration.temperature(scores[1::2], gold[1::2]))
    assert halves[1] == pytest.approx(calibration.temperature(scores[::2], gold[::2]))
    told = calibration.summary(scores, gold)
    expected = calibration.binned(
        calibration.shares(scores, halves).max(1), calibration.shares(scores, halves).argmax(1) == gold
    )
    assert told["after"]["ece"] == pytest.approx(expected.error)
    assert calibration.summary(scores, gold, 2.0)["temperature"] == 2.0


def test_odd_data_are_borne() -> None:
    certain = np.eye(3)[[0, 1, 2, 0]] * 9
    assert 1 < calibration.temperature(certain, [0, 1, 2, 0]) < 5  # always right, but four times only: not certain
    assert calibration.temperature(certain, [1, 2, 0, 1]) == pytest.approx(20, rel=0.01)  # always wrong: the hottest
    assert calibration.temperature(np.zeros((0, 3)), []) == 1.0
    assert np.isfinite(calibration.temperature(np.zeros((5, 3)), [0] * 5))  # nothing to tell apart
    assert calibration.summary(np.zeros((0, 3)), [])["before"]["ece"] == 0.0
    rows = [np.array([1.0, 2.0]), np.array([0.0, 3.0, 1.0]), np.array([5.0, 1.0])]
    padded = calibration.stacked(rows)
    assert padded.shape == (3, 3)
    np.testing.assert_allclose(calibration.shares(padded)[0], [*calibration.shares([rows[0]])[0], 0])
    assert np.isfinite(calibration.temperature(padded, [1, 2, 0]))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_dev_data_fit_the_temperature_that_the_folder_keeps(tiny_folder: Path, tmp_path: Path) -> None:
    words = ["海船水", "火车站", "云风雨"]
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list(words[place % 3]), 4)) for place in range(60)]
    golds = [f"l{(place + (place % 5 == 0)) % 3}" for place in range(60)]  # every fifth is wrong
    data = [Example((text,), gold, place) for place, (text, gold) in enumerate(zip(texts, golds, strict=True))]
    given: dict[str, Any] = {"settings": ["machine.threads=1", "train.learning_rate=0.01"], "epochs": 8, "quiet": True}
    finetune("classify", data, tiny_folder, tmp_path, dev=data, **given)
    told = evaluate(tmp_path, data[:30], threads=1)
    heat = told["calibration"]["temperature"]
    assert heat != 1.0
    path = tmp_path / "model" / "task.json"
    warm = fb.load(tmp_path).predict(texts[:9])
    assert path.read_text().count(f'"temperature": {heat}') == 1
    path.write_text(path.read_text().replace(str(heat), "1.0"))
    (tmp_path / "model" / "manifest.json").unlink()
    cold = fb.load(tmp_path).predict(texts[:9])
    assert [said.label for said in cold] == [said.label for said in warm]
    for one, two in zip(cold, warm, strict=True):
        logs = np.log([one.scores[name] for name in ("l0", "l1", "l2")])
        shares = [two.scores[name] for name in ("l0", "l1", "l2")]
        np.testing.assert_allclose(shares, calibration.shares([logs], heat)[0], rtol=1e-6)
    assert evaluate(tmp_path, data[:30], threads=1)["accuracy"] == told["accuracy"]


@pytest.mark.usefixtures("one_thread")
def test_a_temperature_that_was_set_stays(tiny_folder: Path, tmp_path: Path) -> None:
    data = [Example((text,), label, place) for place, (text, label) in enumerate([("海", "a"), ("火", "b")] * 6)]
    settings = ["machine.threads=1", "task.temperature=3.5", "train.steps=2"]
    finetune("classify", data, tiny_folder, tmp_path, dev=data, settings=settings, quiet=True)
    assert '"temperature": 3.5' in (tmp_path / "model" / "task.json").read_text()
    with pytest.raises(InputError, match=r"task\.temperature is 0"):
        finetune("classify", data, tiny_folder, tmp_path / "x", settings=["task.temperature=0"])
