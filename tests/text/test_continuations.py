"""Word pieces put together: where people write spaces and where they do not."""

from __future__ import annotations

import pytest

from filbert.text.joining import joined
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import SPECIALS

CASES = [
    "今天天气很好。",
    "他说：“你好！”——然后走了……",
    "圆周率是3.14，12:30见，共1,000元。",
    "我们用bert和gpt训练了2倍长的文本。",
    "中文、english words和数字42混在一起。",
    "the playing cats don't stop; it's 50% off!",
    'she asked: "why not?" and (after a while) "yes, please."',
    "a well-known co-op, and/or 1990-2000...",
    "it costs $5 or £3.50 at no. 7.",
    "东京は日本の首都です。",
    "한국어 문장은 띄어쓰기가 있다.",
]


def test_texts_come_back_as_they_were() -> None:
    """Through a tokenizer that cuts words into single letters, and one that knows whole words."""
    letters = sorted({char for text in CASES for char in text if not char.isspace()})
    words = sorted({word for text in CASES for word in text.replace(",", " ").split() if word.isalpha()})
    for known in ([], words):
        tokens = [*SPECIALS, *dict.fromkeys([*letters, *(f"##{letter}" for letter in letters), *known])]
        tokenizer = Tokenizer(tokens, strip_accents=False)
        for text in CASES:
            found = tokenizer.tokens(tokenizer.encode(text))
            assert found[0] == "[CLS]"
            assert "[UNK]" not in found
            assert joined(found) == text


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ("[CLS] 你 好 [SEP] [PAD]", "你好"),
        ("[UNK] 好 [MASK]", "[UNK]好"),
        ("##ing on", "ing on"),
        ("a ##", "a ##"),
        ("' well ' he said", "'well' he said"),
        ("it ’ s", "it’s"),
        ("say “ yes ” now", "say “yes” now"),
        ("", ""),
    ],
)
def test_odd_tokens(tokens: str, text: str) -> None:
    assert joined(tokens.split()) == text


@pytest.mark.parametrize(
    ("given", "tokens", "more"),
    [
        ("今天", "天 气", "天气"),
        ("I was play", "##ing chess .", "ing chess."),
        ("I was", "playing", " playing"),
        ("I was ", "playing", "playing"),
        ("用", "gp ##u", "gpu"),
        ("3", ". 14", ".14"),
        ("I don'", "t know", "t know"),
        ('He said: "yes', '" and left', '" and left'),
        ("nothing more", "", ""),
        ("", "##ing", "ing"),
    ],
)
def test_what_follows_a_text_as_it_was_given(given: str, tokens: str, more: str) -> None:
    assert joined(tokens.split(), after=given) == more
