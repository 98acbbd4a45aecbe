"""What was written against what is right: ROUGE by hand and by its definition, BLEU and chrF by sacrebleu itself."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from filbert.core.errors import InputError
from filbert.metrics.intervals import wilson
from filbert.tasks.translate import measure as generation

CHINESE = ["今天天气很好。", "我们坐火车去公园。", "她在医院工作，已经三年了。"]
ENGLISH = ["The cat sat on the mat.", "A man is riding a horse.", "Two dogs play in the snow."]
ADVERSARIAL = [  # (said, right)
    (["", "", ""], ENGLISH),  # nothing was written
    (ENGLISH, ["", "", ""]),  # nothing is right
    (["", ""], ["", ""]),
    (["the the the the the the the"] * 2, ["the cat is on the mat", "there is a cat on the mat"]),  # Papineni's own
    (["好好好好好好好"], ["今天天气很好。"]),
    ([" \t", "\u3000"], ["  ", "好"]),
    (["a . b , c !"] * 120, ["a. b, c!"] * 120),  # sacrebleu warns of such from 100 on
    (["🙂 ok", "ＡＢＣ１２３"], ["🙂 ok", "abc123"]),
]


def drawn(seed: int, words: Sequence[str], count: int = 40) -> tuple[list[str], list[str]]:
    chance = random.Random(seed)
    texts = ["".join(chance.choices(words, k=chance.randrange(12))) for _ in range(2 * count)]
    return texts[:count], texts[count:]


def longest_by_definition(one: Sequence[str], two: Sequence[str]) -> int:
    table = [[0] * (len(two) + 1) for _ in range(len(one) + 1)]
    for i, j in itertools.product(range(len(one)), range(len(two))):
        same = one[i] == two[j]
        table[i + 1][j + 1] = table[i][j] + 1 if same else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def test_rouge_by_hand() -> None:
    # "police killed the gunman" and "police kill the gunman" (Lin 2004, §3): 3 of 4 words, 1 of 3 pairs of words.
    found = generation.rouge(["police kill the gunman", "the gunman kill police"], ["police killed the gunman"] * 2)
    np.testing.assert_allclose(found["rouge_1"], [3 / 4, 3 / 4])
    np.testing.assert_allclose(found["rouge_2"], [1 / 3, 1 / 3])
    np.testing.assert_allclose(found["rouge_l"], [3 / 4, 2 / 4])
    # 今天天气好 has 5 characters, 今天天气很好。 has 6 and a sign that does not count; 4 pairs of 5 and 6 - 1.
    found = generation.rouge(["今天天气好"], ["今天天气很好。"])
    np.testing.assert_allclose([found[name][0] for name in generation.ROUGES], [10 / 11, 2 * 3 / 9, 10 / 11])
    # A word that is said too often counts only as often as it is right.
    np.testing.assert_allclose(generation.rouge(["the the the the"], ["the cat"])["rouge_1"], [2 / 6])


def test_tokens_are_words_or_characters() -> None:
    assert generation.tokens("Don't: GPT-2's café_1 ＡＢ！") == ["don", "t", "gpt", "2", "s", "café", "1", "ab"]
    assert generation.tokens("我用GPT写𠮷さん。") == ["我", "用", "gpt", "写", "𠮷", "さ", "ん"]
    assert generation.tokens("。！？ …") == []


def test_what_has_nothing_to_count_is_right_only_if_it_is_the_same() -> None:
    found = generation.rouge(["好", "好", "", "", "好"], ["好", "坏", "", "好", "。"])
    assert found["rouge_2"].tolist() == [1, 0, 1, 0, 0]
    assert found["rouge_l"].tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_subsequence_is_the_definition(seed: int) -> None:
    for one, two in zip(*drawn(seed, "今天天气好"), strict=True):
        assert generation.longest_shared(one, two) == longest_by_definition(one, two)


def test_the_longest_subsequence_of_long_texts() -> None:
    one, two = "ab" * 300, "bac" * 150  # beyond one machine word
    assert generation.longest_shared(one, two) == longest_by_definition(one, two)


def test_rouge_is_that_of_rouge_score_on_english() -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rouge1", "rouge2", "rougeL"])
    said, right = drawn(1, ["the ", "cat ", "sat, ", "on ", "Mat. ", "2 ", "don't "])
    found = generation.rouge(said, right)
    for at, (one, two) in enumerate(zip(said, right, strict=True)):
        if len(generation.tokens(one)) > 1 and len(generation.tokens(two)) > 1:
            theirs = [score.fmeasure for score in scorer.score(two, one).values()]
            np.testing.assert_allclose([found[name][at] for name in generation.ROUGES], theirs)


def test_rouge_of_a_corpus_has_intervals_and_a_lead() -> None:
    said, right = drawn(3, "今天天气好吗我们", 60)
    told = generation.rouge_summary(said, right, lead=right)
    assert list(told["intervals"]) == list(generation.ROUGES)
    for name in generation.ROUGES:
        low, high = told["intervals"][name]
        assert 0 <= low < told[name] < high <= 1
        assert told[f"lead_{name}"] == 1
        # The mean of N texts spreads by their deviation / √N, and 95 % of a normal is within 1.96 of it.
        spread = generation.rouge(said, right)[name].std() / np.sqrt(60)
        assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    assert told["lead_difference"]["value"] == pytest.approx(told["rouge_l"] - 1)
    assert told["lead_difference"]["high"] < 0
    perfect = generation.rouge_summary(CHINESE, CHINESE)
    assert [perfect[name] for name in generation.ROUGES] == [1, 1, 1]
    assert perfect["intervals"]["rouge_l"] == pytest.approx(wilson(len(CHINESE), len(CHINESE)))
    assert generation.rouge_summary([], [])["intervals"]["rouge_l"] == [0, 0]


def test_the_script_says_how_bleu_cuts() -> None:
    assert generation.tokenizer_for(CHINESE) == "zh"
    assert generation.tokenizer_for(ENGLISH) == "13a"
    assert generation.tokenizer_for([*CHINESE, *ENGLISH]) == "zh"
    assert generation.tokenizer_for([*CHINESE[:1], *ENGLISH]) == "13a"
    assert generation.tokenizer_for(["", "123", "…"]) == "13a"


def test_gold_is_perfect() -> None:
    pytest.importorskip("sacrebleu")
    for texts, kind in ((CHINESE, "zh"), (ENGLISH, "13a")):
        told = generation.bleu_summary(texts, texts)
        assert told["bleu"] == pytest.approx(100)
        assert told["chrf"] == pytest.approx(100)
        assert told["intervals"]["bleu"] == pytest.approx([100 * edge for edge in wilson(len(texts), len(texts))])
        assert told["tokenize"] == kind
        assert f"tok:{kind}" in told["signatures"]["bleu"]
        assert generation.exact(texts, texts) == 1


@pytest.mark.parametrize("said_right", [*ADVERSARIAL, drawn(5, "今天天气好。"), drawn(6, ["the ", "cat ", "sat. "])])
def test_bleu_and_chrf_are_sacrebleus(
    said_right: tuple[list[str], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    said, right = said_right
    told = generation.bleu_summary(said, right)
    assert not caplog.records
    kind = generation.tokenizer_for(right)
    assert told["bleu"] == sacrebleu.corpus_bleu(said, [right], tokenize=kind, force=True).score
    assert told["chrf"] == sacrebleu.corpus_chrf(said, [right]).score
    for name in ("bleu", "chrf"):
        low, high = told["intervals"][name]
        assert 0 <= low <= high <= 100 + 1e-9


@pytest.mark.slow
def test_the_interval_is_the_bootstrap_of_the_texts() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    said, right = drawn(7, ["the ", "cat ", "sat ", "on "], 30)
    low, high = generation.bleu_summary(said, right)["intervals"]["bleu"]
    chance = np.random.default_rng(0)
    scores = []
    for _ in range(400):  # by hand: whole corpora of texts that are drawn, scored by sacrebleu's public name
        rows = chance.integers(30, size=30)
        scores.append(sacrebleu.corpus_bleu([said[i] for i in rows], [[right[i] for i in rows]]).score)
    spread = float(np.std(scores))
    assert low == pytest.approx(np.quantile(scores, 0.025), abs=0.5 * spread)
    assert high == pytest.approx(np.quantile(scores, 0.975), abs=0.5 * spread)


def test_without_sacrebleu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sacrebleu"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Hidden(), *sys.meta_path])
    told = generation.bleu_summary(CHINESE, CHINESE)
    assert "bleu" not in told
    assert told["missing"].endswith("pip install 'filbert[metrics]'")


class _Hidden:
    """An importer that knows that sacrebleu is not there."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == "sacrebleu":
            raise ModuleNotFoundError(f"No module named {name!r}", name="sacrebleu")


def test_each_text_needs_a_right_one() -> None:
    for measure in (generation.rouge, generation.bleu_summary, generation.exact):
        with pytest.raises(InputError, match="there are 1 texts and 2 right ones"):
            measure(["a"], ["a", "b"])  # type: ignore[operator]
