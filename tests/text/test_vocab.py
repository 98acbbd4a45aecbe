"""Training a vocabulary: what is learnt, what is left out, and that nothing but the text decides."""

from __future__ import annotations

import pytest

from filbert.core.errors import InputError
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import SPECIALS, train

TEXT = ["low low low low low lower lower newest newest newest newest newest newest widest widest widest"]


def test_joins_the_most_frequent_neighbours() -> None:
    report = train(TEXT, size=60)
    assert report.tokens[:5] == SPECIALS
    # By hand: es and st occur 9 times and e-s comes first by its letters, then est; ##ow and lo occur 7 times.
    pieces = [token for token in report.tokens if len(token.removeprefix("##")) > 1 and token not in SPECIALS]
    assert pieces[:4] == ["##es", "##est", "##ow", "low"]
    assert "newest" in report.tokens
    assert report.num_words == 16
    assert report.num_distinct == 4


def test_min_count_bounds_pieces() -> None:
    assert not any(len(token.removeprefix("##")) > 1 for token in train(["ab cd"], size=60).tokens[5:])
    assert {"ab", "cd"} <= set(train(["ab cd"], size=60, min_count=1).tokens)


def test_ideographs_and_punctuation_stand_alone() -> None:
    report = train(["今天今天今天，今天！"] * 5, size=60)
    assert set(report.tokens[5:]) == set("今天，！")


def test_text_is_folded_as_the_tokenizer_folds_it() -> None:
    report = train(["École ÉCOLE e\u0301cole"] * 3, size=60)
    assert "ecole" in report.tokens
    assert "École" in train(["École"] * 3, size=60, lowercase=False).tokens


def test_what_was_trained_covers_its_text() -> None:
    text = "Straße 今天 weather, 한국어 ΑΣ Σ ≠ ½"
    tokenizer = Tokenizer(train([text] * 2, size=200).tokens)
    assert tokenizer.unk_id not in tokenizer.encode(text).ids


def test_long_words_are_counted_and_left_out() -> None:
    report = train(["x" * 201 + " y y", "ab " * 3], size=60)
    assert report.num_long_words == 1
    assert not any("x" in token for token in report.tokens[5:])


def test_rare_characters_make_room() -> None:
    report = train(["aaaa bbbb cccc"] * 9 + ["z"], size=11)
    assert len(report.tokens) <= 11
    assert report.num_dropped_characters == 1
    assert report.num_dropped_words == 1
    assert report.counts["num_dropped_words"] == 1
    # Of equally frequent characters those with the lower code point stay.
    assert set(train(["d c b a"], size=8, max_alphabet=3).tokens[5:]) == set("abc")


def test_no_piece_twice() -> None:
    """Two ways of joining may spell the same piece; it is numbered once."""
    report = train(["abc abd xbc abc bc abcabc aab baa abab"] * 4, size=100)
    assert len(set(report.tokens)) == len(report.tokens)


@pytest.mark.parametrize(("size", "min_count", "workers"), [(5, 2, 1), (100, 0, 1), (100, 2, 0)])
def test_impossible_settings_are_refused(size: int, min_count: int, workers: int) -> None:
    with pytest.raises(InputError, match="must be at least"):
        train(TEXT, size=size, min_count=min_count, workers=workers)
