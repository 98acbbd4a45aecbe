"""Certificates: a planted word passes, a randomised model and a made-up explanation do not, by exact error rates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.builtin.texts import sample
from filbert.core.records import Example
from filbert.engine.model import Model
from filbert.explain import certificate
from filbert.explain.attribution import METHODS, Attribution
from filbert.explain.explanation import read
from filbert.explain.perturbation import Perturbation
from filbert.folder.folder import save
from filbert.models import bert
from filbert.run.finetune import finetune
from filbert.text.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
PLANTED = {"体育": ("足球", "教练", "球门", "跑步"), "财经": ("银行", "市场", "买卖", "价钱")}
SIGNS = {sign for words in PLANTED.values() for word in words for sign in word}
LENGTH = 46  # characters around the planted word: some 30 words
RANDOMISED = 4


class Planted(NamedTuple):
    text: str
    label: str
    at: int
    word: str


def planted(count: int, seed: int) -> list[Planted]:
    """Stretches of the built-in Chinese texts with one word put in, which alone says the label."""
    lines = [line for each in sample() if each.language == "zh" for line in each.sentences if not SIGNS & {*line}]
    random, found = np.random.default_rng(seed), []
    for _ in range(count):
        text = ""
        while len(text) < LENGTH:
            text += lines[random.integers(len(lines))]
        label = list(PLANTED)[random.integers(2)]
        word, at = PLANTED[label][random.integers(4)], int(random.integers(LENGTH + 1))
        found.append(Planted(text[:at] + word + text[at:LENGTH], label, at, word))
    return found


@pytest.fixture(scope="module")
def learnt(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a tiny model that learnt the planted words."""
    tokenizer, out = Tokenizer.load(tiny_folder), tmp_path_factory.mktemp("planted")
    torch.manual_seed(0)
    shape: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "inner": 64, "max_length": 64, "dropout": 0.0}
    save(out / "fresh", bert.Bert(bert.Config(vocab_size=tokenizer.vocab_size, **shape), ("mlm",)), tokenizer)
    data = [Example((each.text,), each.label, index) for index, each in enumerate(planted(1_600, seed=0))]
    words = ["machine.threads=1", "train.learning_rate=3e-3", "task.max_length=64", "task.mask_prob=0.1"]
    more = [*words, "train.batch_tokens=2048"]
    finetune("classify", data, out / "fresh", out / "run", settings=more, epochs=4, quiet=True)
    return out / "run"


@pytest.fixture(scope="module")
def held_out() -> list[Planted]:
    return planted(80, seed=1)


def randomised(folder: Path, seed: int) -> Model:
    """The same head on an encoder of the same shape with the weights that a new one begins with."""
    model = fb.load(folder, device="cpu")
    torch.manual_seed(seed)
    fresh = bert.Bert(model.config, ("labels",)).state_dict()
    state = {name: weight for name, weight in fresh.items() if not name.startswith("heads.")}
    missing, unexpected = model.backbone.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.startswith("heads.") for name in missing)
    return model


def is_first(found: Any, each: Planted) -> bool:
    word, score = found.ranked()[0]
    return score > 0 and word.start < each.at + len(each.word) and word.end > each.at


@pytest.mark.slow
def test_a_planted_word_is_first_and_the_certificate_passes(learnt: Path, held_out: Sequence[Planted]) -> None:
    model = fb.load(learnt, device="cpu")
    said = model.predict([each.text for each in held_out])
    assert np.mean([one.label == each.label for one, each in zip(said, held_out, strict=True)]) >= 0.95
    tested = held_out[:40]
    found = [model.explain(each.text) for each in tested]
    assert np.mean([is_first(one, each) for one, each in zip(found, tested, strict=True)]) >= 0.95
    tests = [one.certificate for one in found if one.certificate is not None]
    assert len(tests) == len(tested)
    assert np.mean([one.verdict == "faithful" for one in tests]) >= 0.95
    assert max(float(one.numbers["completeness_gap"]) for one in tests) < 0.01  # type: ignore[arg-type]
    passed = [one for one in tests if one.verdict == "faithful"]
    assert all("Faithful" in one.sentence_en and "可信" in one.sentence_zh for one in passed)
    occluded = [model.explain(each.text, method="occlusion", certificate=False) for each in held_out]
    assert np.mean([is_first(one, each) for one, each in zip(occluded, held_out, strict=True)]) >= 0.95


@pytest.mark.slow
def test_a_planted_word_in_the_last_of_three_windows_is_found(learnt: Path) -> None:
    model, found = fb.load(learnt, device="cpu"), []
    for before, each in zip(planted(30, seed=5)[::3], planted(10, seed=6), strict=True):
        filler = before.text.replace(before.word, "")
        start = len(filler * 3)
        told = model.explain(filler * 3 + each.text, target=each.label, certificate=False)
        assert len(read(model, filler * 3 + each.text).layout.lengths) >= 3
        found.append(is_first(told, each._replace(at=start + each.at)))
    assert np.mean(found) >= 0.9


@pytest.mark.slow
def test_on_a_randomised_model_it_is_no_better_than_random(learnt: Path, held_out: Sequence[Planted]) -> None:
    verdicts = []
    for seed in range(RANDOMISED):
        model = randomised(learnt, 100 + seed)
        for each in held_out[seed * 15 : seed * 15 + 15]:
            tested = model.explain(each.text).certificate
            assert tested is not None
            verdicts.append(tested.verdict)
            if tested.verdict == "random":
                assert "No better than random" in tested.sentence_en
                assert "不比随机更好" in tested.sentence_zh
    assert np.mean([verdict == "random" for verdict in verdicts]) >= 0.95


@pytest.mark.slow
def test_the_error_rate_on_randomised_models_is_what_it_says(learnt: Path, held_out: Sequence[Planted]) -> None:
    """Of exchangeable texts the p-values are uniform: so many are below KNOWN_P and not more, whatever the model."""
    chances = []
    for seed in range(8):
        model = randomised(learnt, 200 + seed)
        for place, each in enumerate(held_out[seed::2][:30]):
            target = None if place % 2 else each.label
            subject = Perturbation(model.engine, read(model, each.text), target)
            chances.append(certificate.measured_lift(subject, seed=place).p)
    sigma = np.sqrt(0.03 * 0.97 / len(chances))
    assert np.mean(np.array(chances) <= certificate.LIFT_P) <= 0.03 + 3 * sigma
    assert abs(np.mean(chances) - 0.5) < 0.15  # neither test is empty: p moves over the whole range


@pytest.mark.slow
def test_a_made_up_explanation_of_a_good_model_is_random(learnt: Path, held_out: Sequence[Planted]) -> None:
    model, random, verdicts = fb.load(learnt, device="cpu"), np.random.default_rng(0), []
    for each in held_out[:30]:
        subject = Perturbation(model.engine, read(model, each.text))
        order = certificate.ordered(subject, random.normal(size=len(subject.words)))
        assert certificate.measured_lift(subject).p <= certificate.LIFT_P  # what is wrong is the explanation alone
        verdicts.append("random" if order.p > certificate.WEAK_P else "weak" if order.p > 0.05 else "faithful")
    assert verdicts.count("faithful") <= 4  # 5 % of 30 and two sigma
    assert verdicts.count("random") >= 18  # 80 % less two sigma


class Sum:
    """F is a sum of what its words are worth."""

    def __init__(self, worth: Sequence[float]) -> None:
        self.worth, self.words, self.size = np.array(worth, dtype=np.float64), range(len(worth)), len(worth)

    def values(self, kept_NW: Any) -> Any:
        return np.asarray(kept_NW) @ self.worth

    def along(self, shares_N: Any) -> Any:
        shares = np.asarray(shares_N)
        return shares * self.worth.sum(), np.repeat(self.worth[None], len(shares), axis=0)


def test_comprehensiveness_and_sufficiency_by_hand() -> None:
    worth = np.array([8.0, 4.0, 2.0, 1.0, 0.5])
    found = certificate.ordered(Sum(worth), worth, orders=200)
    # Sizes 1, 2, 3 and 4: 20 %, 50 % (rounded to even) and 80 % of five words, and what is left of them.
    missing, left = [7.5, 3.5, 1.5, 0.5], [0.5, 1.5, 3.5, 7.5]
    assert found.sufficiency == pytest.approx(np.mean(missing))
    assert found.comprehensiveness == pytest.approx(worth.sum() - np.mean(left))
    assert found.p == pytest.approx(1 / 60, abs=0.02)  # 1 / 120 orders, and the order itself counts
    worst = certificate.ordered(Sum(worth), -worth, orders=200)
    assert worst.p == 1
    assert worst.comprehensiveness == pytest.approx(found.sufficiency)
    low, high = found.random_comprehensiveness
    assert low < worth.sum() / 2 < high  # a random order falls by half on average


def test_few_words_are_never_sure_and_one_has_no_order() -> None:
    found = certificate.ordered(Sum([3.0, 1.0]), np.array([3.0, 1.0]), orders=40)
    assert found.p > certificate.WEAK_P  # every second order is the same
    verdict, english, chinese = certificate._verdict(certificate.Lift(3.0, (0.0, 1.0), 0.01), None, 0.0, 1)
    assert verdict == "weak"
    assert "one word" in english
    assert "一个词" in chinese


def test_numbers_that_do_not_sum_up_are_weak_at_best() -> None:
    lift, order = certificate.Lift(3.0, (0.0, 1.0), 0.01), certificate.ordered(Sum(range(9)), np.arange(9.0))
    assert certificate._verdict(lift, order, 0.0, 9)[0] == "faithful"
    verdict, english, chinese = certificate._verdict(lift, order, 0.2, 9)
    assert verdict == "weak"
    assert "20%" in english
    assert "20%" in chinese


@pytest.mark.slow
def test_a_text_too_long_for_the_budget_says_so(learnt: Path, held_out: Sequence[Planted]) -> None:
    model = fb.load(learnt, device="cpu")
    subject = Perturbation(model.engine, read(model, held_out[0].text))
    found = METHODS["gradient-x-input"](subject)
    tested = certificate.certified(subject, "gradient-x-input", found, budget=1_000)
    assert tested.verdict == "weak"
    assert "budget=" in tested.sentence_en
    assert "order_p" not in tested.numbers
    assert tested.as_view()["numbers"]["completeness_gap"] > 0


@pytest.mark.slow
def test_the_same_seed_gives_the_same_certificate(learnt: Path, held_out: Sequence[Planted]) -> None:
    model = fb.load(learnt, device="cpu")
    one, two = (model.explain(held_out[0].text, seed=3).certificate for _ in range(2))
    assert one == two
    subject = Perturbation(model.engine, read(model, held_out[0].text))
    again = certificate.certified(subject, "occlusion", METHODS["occlusion"](subject, 10**6), budget=10**6)
    assert {"same_over_baselines", "agreement_with_integrated_gradients"} <= {*again.numbers}
    sampled = certificate.certified(subject, "sampling", METHODS["sampling"](subject, 10**5), budget=10**5)
    assert float(sampled.numbers["same_over_seeds"]) > 0.3  # type: ignore[arg-type]
    assert isinstance(METHODS["occlusion"](subject, 10**6), Attribution)
