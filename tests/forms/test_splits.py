"""Keeping a share of the data back: by the text alone, groups together, both sides filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.forms.splits import share, split


def test_a_share_is_told_from_a_file() -> None:
    assert share("10%") == 0.1
    assert share(" 2.5 % ") == pytest.approx(0.025)
    assert share("dev.tsv") is None
    assert share(Path("10%")) is None
    assert share(None) is None
    for wrong in ("0%", "100%", "250%"):
        with pytest.raises(InputError, match="above 0% and below 100%"):
            share(wrong)


def test_the_text_alone_decides() -> None:
    rows = [Example((f"第{number}条新闻，说的是别的事。",), "0", number) for number in range(2_000)]
    learnt, held = split(rows, 0.1)
    assert len(learnt) + len(held) == len(rows)
    assert 150 < len(held) < 250  # 200 ± 3.7 standard deviations
    assert [e.id for e in held] == sorted(e.id for e in held)
    more = [Example(("新的一条",), "1", 9_000), *reversed(rows)]
    assert {e.texts for e in split(more, 0.1)[1]} - {("新的一条",)} == {e.texts for e in held}
    assert {e.id for e in held} < {e.id for e in split(rows, 0.2)[1]}


def test_questions_about_one_passage_stay_together() -> None:
    rows = [Example((f"问题{q}？", f"第{p}段文章，比任何一个问题都要长得多。")) for p in range(200) for q in range(5)]
    learnt, held = split(rows, 0.2)
    assert not {e.texts[1] for e in learnt} & {e.texts[1] for e in held}
    assert len(held) % 5 == 0


def test_a_side_without_examples_is_refused() -> None:
    with pytest.raises(InputError, match="both sides"):
        split([Example(("一",), "0"), Example(("一",), "1")], 0.5)


def test_a_label_of_one_row_is_learnt() -> None:
    """Kept back it could neither be learnt nor measured; numbers that all differ are no labels."""
    rows = [Example((f"第{number}条新闻",), "常见", number) for number in range(400)]
    rare = next(row for row in split(rows, 0.2)[1] if row.id > 9)
    rows[rare.id] = Example(rare.texts, "少见", rare.id)
    learnt, held = split(rows, 0.2)
    assert rows[rare.id] in learnt
    assert {row.gold for row in held} == {"常见"}
    numbers = [Example((f"第{number}条新闻",), str(number / 7), number) for number in range(400)]
    assert {row.id for row in split(numbers, 0.2)[1]} == {row.id for row in held} | {rare.id}
