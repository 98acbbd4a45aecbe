"""Draws by counter: even, independent of each other, and the same whoever asks, in whatever shape."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.core.random import generator, keys, permutation, uniforms

NUM = 400


def table(seed: int = 0, purpose: str = "mask", epoch: int = 0) -> np.ndarray:
    """Draws of NUM neighbouring examples at NUM neighbouring counters."""
    return uniforms(keys(seed, purpose, epoch, np.arange(NUM))[:, None], np.arange(NUM)[None, :])


@pytest.mark.parametrize("bits", [0, 8, 20])
def test_draws_are_even(bits: int) -> None:
    """In 256 boxes by their first bits, and by later ones: chi-square, refused once in 100,000 times."""
    draws = table()
    assert draws.min() >= 0
    assert draws.max() < 1
    seen = np.bincount(((draws.ravel() * 2**bits % 1) * 256).astype(int), minlength=256)
    expected = NUM * NUM / 256
    assert ((seen - expected) ** 2 / expected).sum() < 360


def test_neighbours_are_strangers() -> None:
    """No correlation between counters, examples, epochs, seeds or purposes that lie side by side."""
    draws = table() - 0.5
    pairs = {
        "counters": (draws[:, :-1], draws[:, 1:]),
        "counters apart": (draws[:, :-7], draws[:, 7:]),
        "examples": (draws[:-1], draws[1:]),
        "diagonal": (draws[:-1, 1:], draws[1:, :-1]),
        "epochs": (draws, table(epoch=1) - 0.5),
        "seeds": (draws, table(seed=1) - 0.5),
        "purposes": (draws, table(purpose="stretches") - 0.5),
        "streams": (draws, uniforms(keys(0, "mask", 0, np.arange(NUM))[:, None], np.arange(NUM) + 2**40) - 0.5),
    }
    for name, (one, two) in pairs.items():
        correlation = float((one * two).mean() * 12)
        assert abs(correlation) < 4 / one.size**0.5, (name, correlation)
        squares = float(((one**2 - 1 / 12) * (two**2 - 1 / 12)).mean() * 180)
        assert abs(squares) < 4 / one.size**0.5, (name, squares)


def test_no_draw_comes_twice() -> None:
    assert len(np.unique(table())) == NUM * NUM


def test_shape_order_and_type_change_nothing() -> None:
    draws = table()
    examples = np.array([399, 0, 17])
    own = keys(0, "mask", 0, examples)
    counters = np.array([3, 3, 250])
    wanted = draws[examples, counters]
    for kind in (np.int64, np.int32, np.uint16, np.uint64):
        assert np.array_equal(uniforms(own, counters.astype(kind)), wanted)
    assert [float(uniforms(own[i : i + 1], int(counters[i]))[0]) for i in range(3)] == wanted.tolist()
    assert np.array_equal(keys(0, "mask", 0, examples.astype(np.int32)), own)


def test_these_draws_never_change() -> None:
    """Fixed for good: other numbers would be another run for everybody who resumes."""
    assert uniforms(keys(7, "mask", 2, np.arange(2)), np.array([0, 5])).tolist() == [
        0.10987272178258545,
        0.9595000721757335,
    ]
    assert permutation(6, 7, 2).tolist() == [4, 2, 0, 1, 5, 3]
    assert generator(7, "mask", 2, 10_433).integers(1_000, size=3).tolist() == [848, 361, 628]
