"""Windows of any size: everything is read, everything has one owner, and the owner sees it best."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import SPECIALS
from filbert.text.windows import Window, coverage, encode_windows, windows
from kit.windows import by_owner

CUT = Tokenizer([*SPECIALS, *"abc"])


def distance(window: Window, token: int, num_tokens: int) -> float:
    """How far a token stands from the nearer cut of a window; the ends of the text are not cuts."""
    left = token - window.start if window.start else float("inf")
    right = window.end - 1 - token if window.end < num_tokens else float("inf")
    return min(left, right)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(num_tokens=st.integers(0, 400), room=st.integers(1, 80), data=st.data())
def test_windows_cover_and_own(num_tokens: int, room: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, room - 1))
    result = windows(num_tokens, room, overlap)
    assert result[0].start == 0
    assert result[-1].end == num_tokens
    lengths = [window.end - window.start for window in result]
    assert max(lengths) <= room
    assert max(lengths) - min(lengths) <= 1
    assert [token for window in result for token in range(window.own_start, window.own_end)] == list(range(num_tokens))
    for before, after in pairwise(result):
        assert before.end - after.start == overlap
    for window in result:
        assert window.start <= window.own_start <= window.own_end <= window.end
        for token in range(window.own_start, window.own_end):
            others = [distance(w, token, num_tokens) for w in result if w.start <= token < w.end]
            assert distance(window, token, num_tokens) == max(others)


@settings(max_examples=150, deadline=None)
@given(
    first=st.text("abc ", max_size=150),
    second=st.none() | st.text("abc ", max_size=150),
    max_length=st.integers(5, 60),
    overlap=st.integers(0, 70),
)
def test_merging_gives_back_the_text(first: str, second: str | None, max_length: int, overlap: int) -> None:
    parts = encode_windows(CUT, first, second, max_length, overlap)
    assert coverage(parts) == 1.0
    assert max(len(part) for part in parts) <= max_length
    whole = CUT.encode(first, second)
    for part in (0, 1):
        mine = whole.parts == part
        for column in ("starts", "ends", "ids"):
            rows = [getattr(window, column) for window in parts]
            assert np.array_equal(by_owner(parts, rows, part), getattr(whole, column)[mine])
