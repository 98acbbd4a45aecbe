"""Windows of texts and pairs, and what becomes of answers when windows are merged."""

from __future__ import annotations

import numpy as np
import pytest

from filbert.core.errors import InputError
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import SPECIALS
from filbert.text.windows import (
    Window,
    coverage,
    encode_windows,
    windows,
)
from kit.windows import by_owner, slices

CUT = Tokenizer([*SPECIALS, *"0123456789?"])


def digits(count: int) -> str:
    return " ".join(str(index % 10) for index in range(count))


def test_what_fits_is_one_window() -> None:
    assert windows(10, 10, 4) == [Window(0, 10, 0, 10)]
    assert windows(0, 10, 4) == [Window(0, 0, 0, 0)]


def test_even_windows_with_the_overlap_asked_for() -> None:
    assert windows(11, 10, 4) == [Window(0, 8, 0, 6), Window(4, 11, 6, 11)]
    assert windows(20, 10, 0) == [Window(0, 10, 0, 10), Window(10, 20, 10, 20)]


@pytest.mark.parametrize(("room", "overlap"), [(0, 0), (5, 5), (5, -1)])
def test_impossible_windows_are_refused(room: int, overlap: int) -> None:
    with pytest.raises(InputError, match="overlap"):
        windows(10, room, overlap)
    with pytest.raises(InputError, match="max_length is 2"):
        encode_windows(CUT, "1", max_length=2)


def test_a_long_text() -> None:
    text = digits(50)
    parts = encode_windows(CUT, text, max_length=22, overlap=8)
    assert all(len(part) <= 22 for part in parts)
    assert all(part.tokens[0] == "[CLS]" and part.tokens[-1] == "[SEP]" for part in parts)
    assert coverage(parts) == 1.0
    assert slices(parts, text) == text.split()
    assert coverage(encode_windows(CUT, text, max_length=22, overlap=8, max_windows=1)) < 1.0


def test_an_empty_text_is_read_whole() -> None:
    parts = encode_windows(CUT, "", max_length=16)
    assert [part.tokens for part in parts] == [["[CLS]", "[SEP]"]]
    assert coverage(parts) == 1.0


@pytest.mark.parametrize(("first", "second"), [(3, 60), (60, 3), (60, 70), (70, 200), (5, 5), (0, 60), (27, 0)])
def test_pairs_are_read_whole_whichever_is_long(first: int, second: int) -> None:
    texts = digits(first), digits(second)
    parts = encode_windows(CUT, *texts, max_length=30, overlap=6)
    assert all(len(part) <= 30 for part in parts)
    assert coverage(parts) == 1.0
    for part, text in enumerate(texts):
        assert slices(parts, text, part) == text.split()


def test_the_question_stays_beside_every_stretch() -> None:
    parts = encode_windows(CUT, "9 ?", digits(60), max_length=30, overlap=6)
    assert len(parts) == 3
    assert all(part.tokens[:4] == ["[CLS]", "9", "?", "[SEP]"] for part in parts)
    assert [int((part.owned & (part.parts == 0)).sum()) for part in parts] == [2, 0, 0]


def test_token_rows_come_from_their_owner() -> None:
    parts = encode_windows(CUT, digits(30), max_length=22, overlap=4)
    values = [np.full((len(part), 2), index) for index, part in enumerate(parts)]
    assert by_owner(parts, values)[:, 0].tolist() == [0] * int(parts[0].owned.sum()) + [1] * int(parts[1].owned.sum())
