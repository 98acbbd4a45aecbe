"""Answers from any scores: decoding equals trying all pairs, thresholds all thresholds, metrics their definitions."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filbert.tasks.answer import decode as answers
from filbert.tasks.answer import measure as metrics
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocab import SPECIALS
from filbert.text.windows import WindowEncoding, encode_windows

# Hangul falls apart into letters, so that one character is several tokens; the family is one grapheme of five.
LETTERS = "ab你好한e\u0301👨\u200d👩 .A1"
CUT = Tokenizer([*SPECIALS, *"abe你好👨👩.1", "ᄒ", "##ᅡ", "##ᆫ", "##a", "##b", "##1", "ab"])
NUMBERS = st.integers(-3, 3).map(float) | st.floats(-9, 9, width=32) | st.just(-np.inf)


def brute(
    windows: Sequence[WindowEncoding], starts: list[np.ndarray], ends: list[np.ndarray], longest: int
) -> list[tuple[float, int, int]]:
    """(-score, start, end) of every stretch, best first, by looking at all pairs of tokens."""
    best: dict[tuple[int, int], float] = {}
    for window, begin, end in zip(windows, starts, ends, strict=True):
        for i in range(len(window)):
            for j in range(i, min(i + longest, len(window))):
                if window.parts[i] == window.parts[j] == 1 and window.starts[i] < window.ends[j]:
                    key = (int(window.starts[i]), int(window.ends[j]))
                    best[key] = max(best.get(key, -np.inf), float(begin[i]) + float(end[j]))
    return sorted((-score, *key) for key, score in best.items() if score > -np.inf)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_decoding_is_trying_all_pairs(data: st.DataObject) -> None:
    question, passage = data.draw(st.text("ab你 ", max_size=5)), data.draw(st.text(LETTERS, max_size=30))
    windows = encode_windows(CUT, question, passage, data.draw(st.integers(7, 40)), data.draw(st.integers(0, 9)))
    tied = data.draw(st.booleans())
    number = st.integers(0, 1).map(float) if tied else NUMBERS
    scores = [
        [np.array(data.draw(st.lists(number, min_size=len(w), max_size=len(w))), dtype=np.float32) for w in windows]
        for _ in range(2)
    ]
    num, longest = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    found = answers.candidates(windows, *scores, num, longest)
    right = brute(windows, *scores, longest)[:num]
    assert list(zip((-found.scores).tolist(), found.starts.tolist(), found.ends.tolist(), strict=True)) == right
    assert found.null == min(float(start[0]) + float(end[0]) for start, end in zip(*scores, strict=True))
    assert all(passage[start:end].strip() for start, end in zip(found.starts, found.ends, strict=True))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_gold_to_tokens_and_back(data: st.DataObject) -> None:
    """Every stretch: the windows that hold it are just those whose tokens cover it, and decoding gives it back."""
    question, passage = data.draw(st.text("ab你 ", max_size=20)), data.draw(st.text(LETTERS, min_size=1, max_size=40))
    windows = encode_windows(CUT, question, passage, data.draw(st.integers(7, 40)), data.draw(st.integers(0, 9)))
    start = data.draw(st.integers(0, len(passage) - 1))
    end = data.draw(st.integers(start + 1, len(passage)))
    whole = CUT.pieces([passage])[0]
    touched = np.flatnonzero((whole.ends > start) & (whole.starts < end))
    found = answers.target(passage, windows, passage[start:end], start)
    if not touched.size:
        assert found.kind == "no token"
        return
    first, last = touched[0], touched[-1]
    wanted = whole.ids[first : last + 1].tolist()
    for index, left, right in found.rows:
        assert windows[index].ids[left : right + 1].tolist() == wanted
        assert (windows[index].parts[left : right + 1] == 1).all()
        assert (int(windows[index].starts[left]), int(windows[index].ends[right])) == (found.start, found.end)
    cover = [
        {(int(s), int(e)) for s, e, part in zip(w.starts, w.ends, w.parts, strict=True) if part == 1} for w in windows
    ]
    needed = {(int(whole.starts[at]), int(whole.ends[at])) for at in touched}
    if len({int(at) for at in whole.starts}) == len(whole.starts):
        assert sorted(row[0] for row in found.rows) == [at for at, held in enumerate(cover) if needed <= held]
    if not found.rows:
        assert found.kind == "no window"
        assert found.fault
        return
    assert (found.kind == "exact") == ((found.start, found.end) == (start, end))
    scores = [[np.zeros(len(w)) for w in windows] for _ in range(2)]
    index, left, right = found.rows[0]
    scores[0][index][left] = scores[1][index][right] = 5.0
    decoded = answers.candidates(windows, *scores, longest=50)
    assert (decoded.starts[0], decoded.ends[0]) == (found.start, found.end)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf]) | st.floats(-5, 5),
            st.sampled_from([0.0, 0.5, 1.0]),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_the_threshold_is_the_best_of_all(rows: list[tuple[float, float, bool]]) -> None:
    margins, answered, empty = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))

    def mean(threshold: float) -> float:
        return float(np.where(margins > threshold, empty, answered).mean())

    finite = [margin for margin in margins.tolist() if np.isfinite(margin)]
    all_means = [mean(threshold) for threshold in [-1e9, *finite]]
    threshold, score = answers.fitted_threshold(margins, answered, empty)
    assert np.isfinite(threshold)
    assert score == pytest.approx(max(all_means), abs=1e-12)
    assert mean(threshold) == pytest.approx(score, abs=1e-12)


# -- metrics -----------------------------------------------------------------------------------------------------

ENGLISH = st.lists(
    st.sampled_from(
        [
            "a",
            "an",
            "the",
            "The",
            "A.",
            "a-n",
            "cat",
            "Cat's",
            " ",
            "\t",
            "\u00a0",
            "…",
            "，",
            "“x”",
            "!",
            "",
            "U.S.",
            "theatre",
        ]
    ),
    max_size=6,
).map(" ".join) | st.text("athe n.,!-’，\u00a0\u3000Éß", max_size=8)
CHINESE = st.text("北京大学ab1 .,-，。《》’‘…（(·Ａ%\u9fff한", max_size=10)


def plain_squad(text: str) -> str:
    """SQuAD's normal form, by hand: no expressions, one character at a time."""
    kept = "".join(char for char in text.lower() if char not in string.punctuation)
    words, word = [], ""
    for char in [*kept, " "]:  # an article is a whole run of letters, digits and underscores
        if char.isalnum() or char == "_":
            word += char
        else:
            words.append(" " if word in ("a", "an", "the") else word)
            words.append(char)
            word = ""
    return " ".join("".join(words).split())


def bag_f1(one: Sequence[str], other: Sequence[str]) -> float:
    if not one or not other:
        return float(len(one) == len(other))
    left, same = list(other), 0
    for item in one:
        if item in left:
            left.remove(item)
            same += 1
    if not same:
        return 0.0
    precision, recall = same / len(one), same / len(other)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(predicted=ENGLISH, gold=st.lists(ENGLISH, max_size=3))
def test_squad_by_hand(predicted: str, gold: list[str]) -> None:
    accepted = [text for text in gold if plain_squad(text)] or [""]
    found = metrics.scores([predicted], [gold], "squad")
    assert found.exact[0] == max(plain_squad(predicted) == plain_squad(text) for text in accepted)
    right = max(bag_f1(plain_squad(predicted).split(), plain_squad(text).split()) for text in accepted)
    assert found.f1[0] == pytest.approx(right, abs=1e-12)
    assert bool(found.answerable[0]) == bool(gold)


class Asked:
    """A question as the script wants it."""

    def __init__(self, name: str, gold: list[str]) -> None:
        self.qas_id, self.answers = name, [{"text": text} for text in gold]


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(
        st.tuples(ENGLISH, st.lists(ENGLISH, max_size=3), st.sampled_from([0.0, 0.3, 1.0])), min_size=1, max_size=5
    )
)
def test_squad_is_the_script(rows: list[tuple[str, list[str], float]]) -> None:
    script = pytest.importorskip(
        "transformers.data.metrics.squad_metrics", reason="transformers 5 has no squad_metrics; 4 has"
    )
    examples = [Asked(str(at), gold) for at, (_, gold, _) in enumerate(rows)]
    predicted = {str(at): text for at, (text, _, _) in enumerate(rows)}
    found = metrics.scores([row[0] for row in rows], [row[1] for row in rows])
    told: dict[str, Any] = script.squad_evaluate(examples, predicted)
    mine = metrics.means(found)
    names = {"exact": "exact", "f1": "f1"}
    if found.answerable.any() and not found.answerable.all():
        names |= {
            f"{mine}_{name}": f"{its}_{name}"
            for mine, its in (("answerable", "HasAns"), ("unanswerable", "NoAns"))
            for name in ("exact", "f1")
        }
    for name, its in names.items():
        assert 100 * mine[name] == pytest.approx(told[its], abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.floats(-5, 5), ENGLISH, st.lists(ENGLISH.filter(plain_squad), max_size=2)),
        min_size=1,
        max_size=8,
        unique_by=lambda row: row[0],  # the script moves questions of one margin one by one
    )
)
def test_the_best_threshold_is_the_scripts(rows: list[tuple[float, str, list[str]]]) -> None:
    script = pytest.importorskip(
        "transformers.data.metrics.squad_metrics", reason="transformers 5 has no squad_metrics; 4 has"
    )
    margins, predicted, gold = zip(*rows, strict=True)
    found = metrics.scores(predicted, gold)
    names = [str(at) for at in range(len(rows))]
    for own in (found.exact, found.f1):
        # The script takes any text but "" for a wrong answer where there is none, even "the".
        answered = np.where(found.answerable, own, [text == "" for text in predicted])
        columns = [dict(zip(names, column, strict=True)) for column in (predicted, answered, margins, found.answerable)]
        best, _ = script.find_best_thresh(*columns)
        assert 100 * answers.fitted_threshold(margins, answered, ~found.answerable)[1] == pytest.approx(best, abs=1e-9)


HAN_MARKS = set("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")


def by_hand_cmrc(predicted: str, accepted: str) -> tuple[float, float]:
    """CMRC 2018's rule for texts of Han characters and words of plain letters, digits, commas and so on."""

    def segments(text: str) -> list[str]:
        result, word = [], ""
        for char in [*(char for char in text.lower().strip() if char not in HAN_MARKS), "一"]:
            if "\u4e00" <= char <= "\u9fa5":
                result += [*metrics._words(word), char]  # words have a test of their own
                word = ""
            else:
                word += char
        return result[:-1]

    def plain(text: str) -> str:
        return "".join(char for char in text.lower().strip() if char not in HAN_MARKS)

    one, other = segments(predicted), segments(accepted)
    if not one or not other:
        return float(plain(predicted) == plain(accepted)), float(len(one) == len(other))
    longest = 0
    for i in range(len(one)):
        for j in range(i + 1, len(one) + 1):
            for k in range(len(other)):
                if one[i:j] == other[k : k + j - i]:
                    longest = max(longest, j - i)
    if not longest:
        return float(plain(predicted) == plain(accepted)), 0.0
    precision, recall = longest / len(one), longest / len(other)
    return float(plain(predicted) == plain(accepted)), 2 * precision * recall / (precision + recall)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(predicted=CHINESE, accepted=CHINESE)
def test_cmrc_by_hand(predicted: str, accepted: str) -> None:
    rule = metrics.rule_named("cmrc")
    exact, f1 = by_hand_cmrc(predicted, accepted)
    assert metrics.exact_match(predicted, accepted, rule) == exact
    assert metrics.f1(predicted, accepted, rule) == pytest.approx(f1, abs=1e-12)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(predicted=CHINESE, gold=st.lists(CHINESE, max_size=3))
def test_cjrc_by_hand(predicted: str, gold: list[str]) -> None:
    def letters(text: str) -> list[str]:
        return [char for char in text.lower() if char.isalpha() or char.isdigit()]

    each = gold or [""]
    rounds = [each[:at] + each[at + 1 :] for at in range(len(each))] if len(each) > 1 else [each]
    exact = np.mean([max(letters(predicted) == letters(text) for text in kept) for kept in rounds])
    f1 = np.mean([max(bag_f1(letters(predicted), letters(text)) for text in kept) for kept in rounds])
    found = metrics.scores([predicted], [gold], "cjrc")
    assert (found.exact[0], found.f1[0]) == pytest.approx((exact, f1), abs=1e-12)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(predicted=CHINESE | ENGLISH, accepted=CHINESE | ENGLISH)
def test_drcd_by_hand(predicted: str, accepted: str) -> None:
    one, other = (
        plain_squad("".join(char for char in text if char not in "《》？，。、；：")) for text in (predicted, accepted)
    )
    rule = metrics.rule_named("drcd")
    assert metrics.exact_match(predicted, accepted, rule) == float(one == other)
    assert metrics.f1(predicted, accepted, rule) == pytest.approx(bag_f1(one, other), abs=1e-12)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(gold=st.lists(CHINESE | ENGLISH, max_size=3), name=st.sampled_from(["squad", "cmrc", "drcd"]), data=st.data())
def test_gold_against_itself_is_perfect(gold: list[str], name: str, data: st.DataObject) -> None:
    kept = [text for text in gold if metrics.rule_named(name).normalised(text)]
    found = metrics.scores([data.draw(st.sampled_from(kept or [""]))], [gold], name)
    assert (found.exact[0], found.f1[0]) == (1.0, 1.0)


@settings(max_examples=300, deadline=None)
@given(text=st.text("ab5 .,%$()!'\"#", max_size=12))
def test_foreign_words_lose_and_invent_nothing(text: str) -> None:
    bare = str.maketrans("", "", "'\"` ")  # quotes are written anew
    assert "".join(metrics._words(text)).translate(bare) == text.translate(bare)
