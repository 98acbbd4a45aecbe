"""Random texts of all of Unicode against a plain statement of the reference; offsets that slice the text as given."""

from __future__ import annotations

import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import SPECIALS

pytestmark = pytest.mark.slow

IDEOGRAPHS = [
    *[(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)],
    *[(0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)],
]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHXYZ0123456789àéüßıσςαωжщקعกअ\u1100\u1161\u11a8\u1112ー"
POOLS = [
    "abcdeABCDE  ",
    "ΣσςΑ'.İi\u0307ǅẞﬁ½",
    "今天气豈\uf900\ufa0e\U0002f800\U00020000\u3400\U0002b900\u3007",
    "한국어ᄒ\u1161\u11abかカ",
    "\u0301\u0327\u0323\u0345\u0300\u302e\u302f\U0001d165\U0001d16d\u094d\u0e31\u20dd\ufe0f\u1b44\u16ff0",
    "≠≮≯`\u1fef\u037e\u2329\u00b4~|^$+<=>¥€«»。、「」…—",
    "\0\t\n\r\x0b\x1c\x1f\x7f\x85\xa0\xad\u1680\u180e\u2000\u200b\u200d\u200e\u2028\u2029\u202e\u2060\u3000\ufeff\ufffd",
    "\ue000\uf8ff\U000f0000\U0010fffd\u0378\U000e0080\uffff\U000e0001",
    "\ud800\udfff",
]


def reference(text: str, vocabulary: dict[str, int], lowercase: bool, limit: int = 200) -> list[str]:
    """The published algorithm, told plainly and slowly; lone surrogates are taken for U+FFFD."""
    cleaned = ""
    for char in text:
        kind = unicodedata.category(char)
        if char in "\0\ufffd" or kind == "Cs" or (kind in ("Cc", "Cf") and char not in "\t\n\r"):
            continue
        cleaned += " " if char in "\t\n\r" or kind == "Zs" else char
    spaced = "".join(f" {c} " if any(low <= ord(c) <= high for low, high in IDEOGRAPHS) else c for c in cleaned)
    result = []
    for token in spaced.split():
        if lowercase:
            marks = unicodedata.normalize("NFD", token.lower())
            token = "".join(char for char in marks if unicodedata.category(char) != "Mn")
        for word in split_at_punctuation(token).split():
            result += wordpiece(word, vocabulary, limit)
    return result


def split_at_punctuation(token: str) -> str:
    def is_punctuation(char: str) -> bool:
        code = ord(char)
        ascii_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
        return ascii_symbol or unicodedata.category(char)[0] == "P"

    return "".join(f" {char} " if is_punctuation(char) else char for char in token)


def wordpiece(word: str, vocabulary: dict[str, int], limit: int) -> list[str]:
    if len(word) > limit:
        return ["[UNK]"]
    pieces, rest = [], word
    while rest:
        prefix = "##" if pieces else ""
        size = next((n for n in range(len(rest), 0, -1) if prefix + rest[:n] in vocabulary), 0)
        if not size:
            return ["[UNK]"]
        pieces.append(prefix + rest[:size])
        rest = rest[size:]
    return pieces


def made_vocabulary(seed: int) -> list[str]:
    """Letters of many scripts and random strings of them, plain and with ##, so that greedy matching has work."""
    draw = random.Random(seed)
    letters = sorted({*LETTERS, *"".join(POOLS[:6]), *"\u302e\u302f\U0001d165\ue000\u0378"} - set(" \n\r\ud800\udfff"))
    longer = ["".join(draw.choices("abcdeαςσ\u1100\u1161", k=draw.randint(2, 4))) for _ in range(300)]
    names = [*letters, *longer]
    later = ["##" + name for name in names if draw.random() < 0.9]
    return list(dict.fromkeys([*SPECIALS, *names, *later]))


def made_text(draw: random.Random) -> str:
    parts = []
    for _ in range(draw.randint(0, 12)):
        if draw.random() < 0.15:
            parts.append(chr(draw.randrange(0x110000)))
        else:
            pool = draw.choice(POOLS)
            parts.append("".join(draw.choices(pool, k=draw.randint(1, 5))))
    if draw.random() < 0.01:
        parts.append(draw.choice("aé한\u0301") * draw.choice([60, 67, 199, 200, 201, 700]))
    return "".join(parts)


@pytest.mark.parametrize("lowercase", [True, False])
def test_5000_random_texts_equal_the_reference(lowercase: bool) -> None:
    draw = random.Random(20261116)
    texts = [made_text(draw) for _ in range(5000)]
    vocabulary = made_vocabulary(7)
    ids = {token: index for index, token in enumerate(vocabulary)}
    cut = Tokenizer(vocabulary, lowercase=lowercase)
    num_known = 0
    for text, tokens in zip(texts, cut.pieces(texts), strict=True):
        got = [vocabulary[index] for index in tokens.ids.tolist()]
        assert got == reference(text, ids, lowercase), ascii(text)
        num_known += sum(token != "[UNK]" for token in got)
    assert num_known > 20_000


def test_every_code_point_between_letters_equals_the_reference() -> None:
    """Each of Unicode's characters alone and inside a word; the ideographs and Hangul are sampled, being alike."""
    vocabulary = made_vocabulary(7)
    ids = {token: index for index, token in enumerate(vocabulary)}
    cut = Tokenizer(vocabulary)
    dull = {"Lo", "Cn", "Co", "Cs"}
    codes = [code for code in range(0x110000) if code % 97 == 0 or unicodedata.category(chr(code)) not in dull]
    texts = [f"a{chr(code)}b {chr(code)}" for code in codes]
    for text, tokens in zip(texts, cut.pieces(texts), strict=True):
        assert [vocabulary[index] for index in tokens.ids.tolist()] == reference(text, ids, True), ascii(text)


MOVABLE = {
    chr(code)
    for code in range(0x110000)
    if unicodedata.combining(chr(code)) and unicodedata.category(chr(code)) != "Mn"
}
ANY_TEXT = st.lists(
    st.one_of(
        st.sampled_from(POOLS).flatmap(lambda pool: st.text(alphabet=st.sampled_from(pool), max_size=6)),
        st.text(max_size=6),
    ),
    max_size=8,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(text=ANY_TEXT, lowercase=st.booleans())
def test_offsets_slice_the_text_as_given(text: str, lowercase: bool) -> None:
    vocabulary = made_vocabulary(7)
    cut = Tokenizer(vocabulary, lowercase=lowercase)
    ids, starts, ends = cut.pieces([text])[0]
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    assert (starts < ends).all()
    assert ends.size == 0 or ends.max() <= len(text)
    settled = cut.characters.settled(text)
    for index, start, end in zip(ids.tolist(), starts.tolist(), ends.tolist(), strict=True):
        token = vocabulary[index].removeprefix("##") or vocabulary[index]
        if token == "[UNK]":
            continue
        folded = cut.characters.folded(settled[start:end], 10**6)
        assert folded is not None
        # One character may become several, and canonical order may move some: then the slice holds a little more.
        shared_source = any(len(unicodedata.normalize("NFD", char.lower())) > 1 for char in text[start:end])
        if shared_source or not MOVABLE.isdisjoint(unicodedata.normalize("NFD", text)):
            assert set(token) <= set(folded.text)
        else:
            assert folded.text == token


@settings(max_examples=150, deadline=None)
@given(texts=st.lists(ANY_TEXT, max_size=6), limit=st.integers(1, 9))
def test_joining_texts_changes_nothing(texts: list[str], limit: int) -> None:
    cut = Tokenizer(made_vocabulary(7))
    together = cut.pieces(texts)
    limited = cut.pieces(texts, limit=limit)
    for text, tokens, few in zip(texts, together, limited, strict=True):
        alone = cut.pieces([text])[0]
        for mine, joined, cut_short in zip(alone, tokens, few, strict=True):
            assert mine.tolist() == joined.tolist()
            assert mine[:limit].tolist() == cut_short.tolist()
