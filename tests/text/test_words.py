"""Texts and segmenters come in; words must concatenate to the text, and spans must slice it."""

from __future__ import annotations

import sys

import pytest

from filbert.core.errors import InputError
from filbert.core.protocols import Segmenter
from filbert.text import words
from filbert.text.words import segmenter, word_spans

TEXT = "今天天气很好， let's go 3.14%!\n\u3000再见"


@pytest.mark.parametrize("name", ["auto", "jieba", "whitespace", "character"])
def test_words_concatenate_to_the_text(name: str) -> None:
    cut = segmenter(name)
    assert isinstance(cut, Segmenter)
    assert "".join(cut(TEXT)) == TEXT
    assert "".join(TEXT[start:end] for start, end in word_spans(TEXT, cut)) == "".join(TEXT.split())


def test_what_each_segmenter_makes() -> None:
    assert segmenter("jieba")("我来到北京清华大学") == ["我", "来到", "北京", "清华大学"]
    assert segmenter("whitespace")("a  b, c") == ["a", "  ", "b,", " ", "c"]
    assert segmenter("character")("a b") == ["a", " ", "b"]
    assert segmenter()("Don't stop, naïve cafe\u0301!") == [
        *("Don", "'", "t", " ", "stop", ",", " ", "naïve", " ", "cafe\u0301", "!")
    ]


def test_auto_without_rjieba_takes_ideographs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words.importlib.util, "find_spec", lambda _: None)
    cut = segmenter()
    assert cut.name == "auto (characters)"  # type: ignore[attr-defined]
    assert cut("用GPT-4，好") == ["用", "GPT", "-", "4", "，", "好"]
    with pytest.raises(InputError, match=r"pip install 'filbert\[zh\]'"):
        segmenter("jieba")


def test_jieba_stands_in_for_rjieba(monkeypatch: pytest.MonkeyPatch) -> None:
    find = words.importlib.util.find_spec
    monkeypatch.setattr(words.importlib.util, "find_spec", lambda name: None if name == "rjieba" else find(name))
    cut = segmenter("jieba")
    assert cut.name == "jieba (jieba)"  # type: ignore[attr-defined]


def test_lone_surrogates_do_not_break_rjieba() -> None:
    text = "今天\ud800天气"
    assert "".join(segmenter("jieba")(text)) == text


def halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def test_the_users_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(segmenter(halves)("今天天气")) == ["今天", "天气"]
    monkeypatch.setitem(sys.modules, "halving", sys.modules[__name__])
    assert list(segmenter("halving:halves")("今天天气")) == ["今天", "天气"]
    assert word_spans(" a b ", segmenter(halves)) == [(1, 2), (3, 4)]


def test_a_function_that_changes_the_text_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="the segmenter split must return words that concatenate to the text"):
        segmenter(str.split)("a b")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jeiba", "the segmenter is 'jeiba', but must be one of: auto, jieba.*Did you mean 'jieba'"),
        ("no.such.module:cut", "cannot be imported"),
        ("sys:nothing", "cannot be imported"),
        ("sys:version", "is not a function"),
    ],
)
def test_unknown_segmenters_are_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        segmenter(name)
