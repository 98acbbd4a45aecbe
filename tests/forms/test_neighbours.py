"""Copies and near copies: planted ones are found, others are not, and every rule is held against its definition."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from filbert.builtin.texts import sample
from filbert.forms.datasets import examples
from filbert.forms.near import Match, Neighbours, letters, pairs


def widened(text: str) -> str:
    """In full-width forms."""
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else "\u3000" if c == " " else c for c in text)


def swapped(text: str, draw: random.Random) -> str:
    """Two words, or two pairs of Chinese characters, in each other's place."""
    parts = re.split(r"(\s+)", text)
    words = [at for at in range(0, len(parts), 2) if parts[at]]
    if len(words) >= 4:
        one, two = draw.sample(words, 2)
        parts[one], parts[two] = parts[two], parts[one]
        return "".join(parts)
    one = draw.randrange(len(text) - 4)
    two = draw.randrange(one + 2, len(text) - 1)
    return text[:one] + text[two : two + 2] + text[one + 2 : two] + text[one : one + 2] + text[two + 2 :]


def at_random(change: Callable[[str, int, random.Random], str]) -> Callable[[str, random.Random], str]:
    return lambda text, draw: change(text, draw.randrange(len(text)), draw)


PLANTED: dict[str, Callable[[str, random.Random], str]] = {
    "changed": at_random(lambda text, at, draw: text[:at] + draw.choice("的一是不了abc") + text[at + 1 :]),
    "added": at_random(lambda text, at, draw: text[:at] + draw.choice("的一是在xyz") + text[at:]),
    "removed": at_random(lambda text, at, draw: text[:at] + text[at + 1 :]),
    "punctuation": lambda text, draw: re.sub(r"[，。！？、,.!?]", lambda _: draw.choice([" ", "；", "…"]), text) + "!!",
    "width": lambda text, draw: widened(text),
    "swapped": swapped,
}


def found(texts: list[str], kind: str, count: int = 200) -> tuple[float, int]:
    """The share of planted copies of some texts that is found, and how many other texts are taken for one."""
    draw = random.Random(0)
    texts = sorted({text for text in texts if 10 <= len(text) <= 200})
    draw.shuffle(texts)
    known, others = texts[: len(texts) // 2], texts[len(texts) // 2 :][:count]
    planted = [PLANTED[kind](text, draw) for text in draw.sample(known, min(count, len(known)))]
    leaks = Neighbours([(text,) for text in planted + others], [(text,) for text in known]).leaks()
    rows = {match.row for match in leaks}
    return sum(row < len(planted) for row in rows) / len(planted), sum(row >= len(planted) for row in rows)


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("language", ["zh", "en"])
def test_planted_copies_of_the_built_in_texts_are_found(language: str, kind: str) -> None:
    share, wrong = found([sentence for document in sample(language) for sentence in document.sentences], kind)
    assert share >= 0.99
    assert wrong == 0


@pytest.mark.shared
@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("name", ["thucnews/dev.txt.xz", "sentiment_chnsenticorp/dev.tsv.xz"])
def test_planted_copies_of_real_data_are_found(shared: Path, name: str, kind: str) -> None:
    texts = [example.texts[0] for example in examples(shared / "data" / name, "classify")]
    share, wrong = found(texts[:4_000], kind)
    assert share >= 0.98
    assert wrong <= 4  # there are a few near ones in them


def jaccard(one: str, two: str, size: int) -> float:
    sets = [{text[at : at + size] for at in range(len(text) - size + 1)} for text in (one, two)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_overlaps_are_those_of_the_definition() -> None:
    draw = random.Random(3)
    texts = ["".join(draw.choice("甲乙丙丁") for _ in range(draw.randrange(40, 60))) for _ in range(30)]
    for text in texts[:20]:  # some are near others, by a little more or less
        for _ in range(3):
            at = draw.randrange(len(text) - 8)
            texts.append(
                text[:at] + "".join(draw.choice("甲乙丙丁戊己") for _ in range(draw.randrange(1, 9))) + text[at + 3 :]
            )
    texts = list(dict.fromkeys(texts))
    wanted = {
        (one, two)
        for one in range(len(texts))
        for two in range(one + 1, len(texts))
        if jaccard(texts[one], texts[two], 3) >= 0.8 or sorted(texts[one]) == sorted(texts[two])
    }
    assert len(wanted) > 5
    assert {tuple(pair) for pair in pairs(texts).tolist()} == wanted


def test_short_texts_differ_by_one_edit() -> None:
    base = "今天天气很好我们去公园"
    near = ["今天天气很好我们去公里", "今天天气好我们去公园", "今天天气真很好我们去公园", "天今天气很好我们去公园"]
    far = ["今天天气很差他们去公园", "昨天下雨我在家里看书呢"]
    rows = [(text,) for text in near + far]
    assert [match.row for match in Neighbours(rows, [(base,)]).leaks()] == [0, 1, 2, 3]
    assert Neighbours([("味道很好",)], [("味道不好",)]).leaks() == []  # so short a text says too little
    assert Neighbours([("味道很好！",)], [("味道很好",)]).leaks() == [Match(0, 1, "near")]


def test_every_text_of_an_example_must_be_near() -> None:
    passage = "海边的城市有很多灯塔，夜里它们为船只指路，白天则是孩子们玩耍的地方。"
    known = [("灯塔有什么用呢？", passage), ("孩子们白天在哪里？", passage)]
    asked = [
        ("灯塔有什么用呢", passage.replace("。", "！")),
        ("灯塔建于哪一年？", passage),  # another question on the same passage is no leak
        ("孩子们白天在哪里？", "完全不同的一段话，说的是山里的雪和冬天的火车站。"),
        ("孩子们白天在哪里？", passage),
    ]
    assert Neighbours(asked, known).leaks() == [Match(0, 4, "near"), Match(3, 5, "exact")]


def test_rows_repeat_earlier_ones() -> None:
    rows = [("一句很普通的话在这里",), ("另一句完全不同的话语",), ("一句很普通的话在那里",), ("另一句完全不同的话语",)]
    assert Neighbours([], rows).repeats() == [Match(2, 0, "near"), Match(3, 1, "exact")]
    assert Neighbours([("x",)], rows).repeats() == [Match(2, 0, "near"), Match(3, 1, "exact")]


def test_odd_texts_are_borne() -> None:
    assert letters("Ｈello， 世界！") == "hello世界"
    assert letters("😀！") == "😀!"
    odd = ["", "   ", "😀", "😡", "\ud800", "！！", "a" * 10_000, "啊" * 10_000, "\u200b"]
    neighbours = Neighbours([(text,) for text in odd], [(text,) for text in odd])
    assert [(match.row, match.other - len(odd), match.kind) for match in neighbours.leaks()] == [
        (row, row, "exact") for row in range(len(odd))
    ]
    assert Neighbours([], []).leaks() == []
    assert Neighbours([("海",)], []).leaks() == []
    assert [match.kind for match in Neighbours([("好😀",)], [("好😡",)]).leaks()] == ["near"]


@pytest.mark.slow
def test_many_copies_cost_little_and_are_all_found() -> None:
    text = "今天天气很好我们去公园看花"
    known = [(f"{text}{place:03d}",) for place in range(900)]  # each near hundreds of others
    leaks = Neighbours([(f"{text}{place:03d}",) for place in range(900, 950)], known).leaks()
    assert len(leaks) == 50


@pytest.mark.slow
def test_too_many_letters_are_sampled_and_counted() -> None:
    base = "今天天气很好我们去公园看花"
    known = [(f"{place:05d}号：{base}{place * 7919 % 100_000:05d}",) for place in range(2_000)]
    neighbours = Neighbours([("00007号，" + base + "55433",), ("别的话题与此全然无关",)], known, most_letters=10_000)
    assert 100 < neighbours.num_compared < 2_000
    assert neighbours.leaks()[0].kind == "near"  # the same letters are found among all rows
    assert Neighbours([], known).num_compared == 2_000
