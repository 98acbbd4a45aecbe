"""A run by the clock: times, the clock's arithmetic, what is chosen and forecast, and what is kept of it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from filbert.builtin.texts import sample as sample_texts  # noqa: E402
from filbert.clock import budget, forecast  # noqa: E402
from filbert.core.errors import InputError  # noqa: E402
from filbert.corpus import shards as sharding  # noqa: E402
from filbert.models import bert  # noqa: E402
from filbert.run.defaults import CLOCK  # noqa: E402
from filbert.run.recipe import Recipe  # noqa: E402
from filbert.text.corpus import CorpusReport  # noqa: E402
from filbert.text.tokenizer import Tokenizer  # noqa: E402
from filbert.text.vocab import train  # noqa: E402
from filbert.train import listeners, loop, optim  # noqa: E402


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("25m", 1_500), ("2h", 7_200), ("1h30m", 5_400), ("1.5h", 5_400), (" 1H 5 s ", 3_605), (".5m", 30)],
)
def test_times(text: str, expected: float) -> None:
    assert budget.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "25", "m", "25x", "-5m", "0s", "5m!", "1h and 5m", "nan", "inf s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--budget"):
        budget.seconds(text)


# The clock -----------------------------------------------------------------------------------------------------------


FORECAST = forecast.Forecast(loss=4.0, low=3.6, high=4.4, accuracy=0.3, entropy=7.0, weights=1, unique=1)


def choice(**fields: Any) -> budget.Choice:
    made = {"model": bert.Config(), "task": {}, "train": {}, "machine": {}, "forecast": FORECAST, "held_tokens": 100,
            "guesses": (0.0, 0.0), "settle": 1, "line": "tiny."}  # fmt: skip
    return budget.Choice(**{**made, **fields})


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set."""
    time = [0.0]
    monkeypatch.setattr(budget.time, "monotonic", lambda: time[0])
    return time


def clock_of(seconds: float, **more: Any) -> budget.Clock:
    clock = budget.Clock(0.0, seconds, more.pop("choice", choice()), **more)
    clock.acts.exit_s = 0.0
    return clock


def test_the_clock_counts_from_the_first_step_to_the_last_acts(now: list[float]) -> None:
    clock = clock_of(100)
    now[0] = 20.0
    assert clock.progress() == 0  # vocabulary and shards took 20 s
    end = 100 * (1 - budget.MARGIN)
    now[0] = (20 + end) / 2
    assert clock.progress() == pytest.approx(0.5)
    clock.acts.evaluations.taken.append(4.0)
    clock.acts.saves.taken.append(1.0)
    assert clock.end == pytest.approx(end - 1.1 * 7)
    assert clock.progress() > 0.5
    now[0] = clock.end
    assert clock.progress() == 1
    assert clock.left() == 0


def test_the_clock_never_goes_back(now: list[float]) -> None:
    clock = clock_of(100, choice=choice(guesses=(30.0, 0.0)))
    clock.progress()
    now[0] = 40.0
    before = clock.progress()
    clock.acts.evaluations.taken.append(0.1)  # far less than was guessed
    assert clock.progress() == before
    now[0] = 90.0
    assert before < clock.progress() < 1


def test_compiling_is_no_progress(now: list[float]) -> None:
    clock = clock_of(100, choice=choice(settle=5))
    for at in (0.0, 30.0, 40.0, 41.0, 42.0):
        now[0] = at
        assert clock.progress() == 0
    now[0] = 43.0
    assert 0 < clock.progress() < 0.03
    now[0] = 200.0
    assert clock_of(100, choice=choice(settle=5)).progress() == 1  # there was no time but for that


def test_a_run_that_goes_on_goes_on_in_its_schedule(now: list[float]) -> None:
    clock = clock_of(60, done=0.4)
    assert clock.progress() == 0.4
    now[0] = 30.0
    assert clock.progress() == pytest.approx(0.7, abs=0.01)
    now[0] = 60.0
    assert clock.progress() == 1


class Told(listeners.Silent):
    def __init__(self) -> None:
        self.steps: list[Any] = []

    def step(self, entry: Any) -> None:
        self.steps.append(entry)


def test_the_ear_times_what_comes_again(now: list[float]) -> None:
    clock, told = clock_of(100), Told()
    ear = budget.Timing(told, clock)
    now[0] = 0.5
    ear.step({"step": 1})
    now[0] = 3.0
    ear.evaluation({"step": 1, "held": {}})
    assert list(clock.acts.steps.taken) == [0.5]
    assert list(clock.acts.evaluations.taken) == [2.5]
    assert told.steps[0]["left_s"] == pytest.approx(
        clock.began_at + 100 * (1 - budget.MARGIN) - 0.5 - 0.25 - budget.LINE_S
    )


# The choice ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[sharding.Shards, Tokenizer]:
    folder = tmp_path_factory.mktemp("budget")
    corpus = folder / "corpus.txt"
    corpus.write_text("\n\n".join("\n".join(d.sentences) for d in sample_texts()), encoding="utf-8")
    tokenizer = Tokenizer(train((" ".join(d.sentences) for d in sample_texts()), 1_000).tokens)
    options = sharding.Options(words=False, held=0.1)
    return sharding.build(corpus, tokenizer, folder / "shards", options, workers=1), tokenizer


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 50 GFLOP/s, without measuring."""
    speed = budget.Speed(((3e6, 3e10), (2e7, 5e10)), 1)
    monkeypatch.setattr(budget, "measured", lambda *_: speed)


CPU = {"machine": {"device": "cpu"}}


def test_more_time_never_makes_a_smaller_or_worse_model(
    text: tuple[sharding.Shards, Tokenizer], quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [budget.choose(seconds, *text, budget.Limits(fields=CPU), CLOCK) for seconds in (30, 300, 3_000, 300_000)]
    weights = [forecast.weights(one.model) for one in found]
    losses = [one.forecast.loss for one in found]
    assert weights == sorted(weights)
    assert losses == sorted(losses, reverse=True)
    assert found[-1].model.dropout == 0.1  # so many passes over so little text
    monkeypatch.setitem(vars(text[0].train), "num_tokens", 10**12)
    assert budget.choose(30, *text, budget.Limits(fields=CPU), CLOCK).model.dropout == 0
    batches = [one.train["batch_tokens"] for one in found]
    assert set(batches) <= {512, 1_024, 2_048, 4_096, 8_192}


def test_what_the_user_gave_stands(text: tuple[sharding.Shards, Tokenizer], quick: None) -> None:
    given = {**CPU, "train": {"batch_tokens": 512}, "model": {"layers": 3}, "task": {"max_length": 64}}
    found = budget.choose(300, *text, budget.Limits(preset="mini", fields=given), CLOCK)
    assert (found.model.layers, found.model.width) == (3, 256)
    assert found.train["batch_tokens"] == 512
    assert "mini (3 × 256)" in found.line
    shape = dataclasses.replace(bert.SPEC.preset("tiny", text[1].vocab_size), max_length=32, dropout=0.3)
    further = budget.choose(300, *text, budget.Limits(shape=shape, fields=CPU), CLOCK)
    assert further.model == shape
    assert further.task["max_length"] == 32
    recipe = Recipe(model=bert.Config()).by_clock(further)
    assert (recipe.model, recipe.task.max_length, recipe.machine.threads) == (shape, 32, torch.get_num_threads())


def test_no_time_is_left(text: tuple[sharding.Shards, Tokenizer], quick: None) -> None:
    with pytest.raises(InputError, match="left for training"):
        budget.choose(1, *text, budget.Limits(fields=CPU), CLOCK)


@pytest.mark.slow
def test_the_machine_is_measured_by_real_steps(text: tuple[sharding.Shards, Tokenizer]) -> None:
    threads = torch.get_num_threads()
    try:
        found = budget.choose(60, *text, budget.Limits(fields={"machine": {"device": "cpu", "threads": 1}}), CLOCK)
    finally:
        torch.set_num_threads(threads)
    assert found.machine == {"threads": 1}
    assert 0 < found.forecast.low < found.forecast.loss < found.forecast.high < 10
    assert found.held_tokens >= CLOCK.held_tokens[0]
    assert "forecast" in found.facts
    loop.Config(**found.train)


def test_a_larger_batch_for_more_tokens() -> None:
    assert [CLOCK.batch_tokens(n, "cpu") for n in (1e5, 1e6, 8e6, 1e9)] == [512, 512, 1_024, 8_192]
    assert [CLOCK.batch_tokens(n, "cuda") for n in (1e6, 1e8, 1e9, 1e11)] == [8_192, 16_384, 65_536, 131_072]


def test_a_wide_model_and_a_small_batch_learn_slowly() -> None:
    assert [CLOCK.peak_rate(width, 512) for width in (128, 256, 512)] == [1e-3, 5e-4, 2.5e-4]
    assert [CLOCK.peak_rate(width, 65_536) for width in (384, 512, 768, 1_024)] == [1.5e-3, 1e-3, 5e-4, 3e-4]


def test_speed_between_and_beyond_the_probes() -> None:
    speed = budget.Speed(((1e6, 10.0), (1e8, 40.0)), 1)
    assert [speed.flops_s(f) for f in (1e5, 1e6, 1e8)] == pytest.approx([10, 10, 40])
    assert speed.flops_s(1e7) == pytest.approx(20)
    assert 40 < speed.flops_s(2e8) < speed.flops_s(1e12) == 40 * budget.MOST_LARGER


# The forecast --------------------------------------------------------------------------------------------------------


def test_the_law_falls_with_size_and_text() -> None:
    runs = (("tiny", 1e5), ("tiny", 1e7), ("fill", 1e7), ("fill", 1e9))
    losses = [forecast.forecast(7.0, bert.SPEC.preset(size, 12_000), (d, d / 1_024), 10**12).loss for size, d in runs]
    assert losses == sorted(losses, reverse=True)
    tiny = bert.SPEC.preset("tiny", 12_000)
    assert forecast.forecast(7.0, tiny, (1e3, 500), 10**12).loss == pytest.approx(7.0, rel=0.05)  # frequencies alone
    assert forecast.forecast(7.0, tiny, (1e3, 0), 10**12).loss == pytest.approx(math.log(12_000), rel=0.02)  # nothing


def test_what_is_read_again_is_worth_less() -> None:
    assert forecast.worth(5e6, 1e7) == 5e6
    assert 3.7e6 < forecast.worth(4e6, 1e6) < 4e6  # four passes are almost as good as new text
    assert forecast.worth(1e12, 1e6) == pytest.approx(16.4e6)


def test_accuracy_rises_as_the_loss_falls() -> None:
    shares = [forecast.accuracy(part) for part in (1.0, 0.8, 0.5, 0.3)]
    assert shares == sorted(shares)
    assert shares[0] <= 0.1
    assert shares[-1] <= 0.8


def test_entropy_of_frequencies() -> None:
    even = budget.Sample(np.arange(8).repeat(3), None, None, None, 24)
    assert forecast.entropy([even], 10) == pytest.approx(math.log(8))


def test_the_verdict() -> None:
    assert FORECAST.verdict(4.2, 0.01) == (
        "forecast 4.00, came to 4.20 (95 %: 4.18 to 4.22): 5% off, within the likely range."
    )
    assert "outside" in FORECAST.verdict(2.0, 0.01)
    assert "too few documents" in FORECAST.verdict(None)


# What is read and kept -----------------------------------------------------------------------------------------------


def test_a_sample_of_the_held_documents(text: tuple[sharding.Shards, Tokenizer]) -> None:
    whole = text[0].train.shards
    assert budget.sample(whole, 10**9) == whole
    (part,) = budget.sample(whole, 1_000)
    assert 900 <= part.num_tokens <= 2_000
    assert part.num_tokens == len(part.ids) == len(part.words) == part.documents[-1] == part.sentences[-1]
    assert set(part.documents.tolist()) <= set(part.sentences.tolist())
    assert (np.diff(part.sentences) > 0).all()
    assert len(part.documents) > 2
    stream = "|".join(map(str, whole[0].ids.tolist()))
    for begin, end in zip(part.documents[:-1], part.documents[1:], strict=True):
        assert "|".join(map(str, part.ids[begin:end].tolist())) in stream


def test_how_much_is_read() -> None:
    minutes = [budget.most_bytes(60 * n, on_gpu=False) for n in (0.1, 1, 10)]
    assert minutes[0] == 2**20
    assert minutes[2] == pytest.approx(10 * minutes[1])
    assert budget.most_bytes(600, True) > minutes[2] > budget.most_bytes(600, False, imported_s=20.0) >= minutes[2] // 4


def test_only_part_of_a_large_corpus_is_read(tmp_path: Path) -> None:
    for name, times in (("a.txt", 300), ("b.txt", 100)):
        lines = (f"document {name} {number} of this corpus" for number in range(times))
        (tmp_path / name).write_text("\n\n".join(lines), encoding="utf-8")
    (tmp_path / "c.txt").write_text("\n", encoding="utf-8")
    found, report = sorted(map(str, tmp_path.iterdir())), CorpusReport()
    texts = list(sharding.texts(found, sharding.Options(most_bytes=4_000), report))
    share = [sum(name in each for each in texts) for name in ("a.txt", "b.txt")]
    assert 3_900 <= sum(map(len, texts)) <= 4_200
    assert 2.5 < share[0] / share[1] < 3.5
    assert report.num_documents == len(texts)
    assert "2 files were read only in part: 0 MB in all." in report.remarks()
    assert len(list(sharding.texts(found, sharding.Options(), CorpusReport()))) == 400


def test_the_plan_comes_back(tmp_path: Path) -> None:
    made = choice(train={"steps": 5}, guesses=(1.0, 2.0), facts={"a": "b"})
    plan = budget.Plan(seconds=300, most_bytes=5, choice=made, before_s=12.5, launch=budget.launch())
    assert budget.Plan.read(tmp_path) is None
    plan.write(tmp_path)
    assert budget.Plan.read(tmp_path) == plan
    assert budget.awaited(tmp_path) == plan
    (tmp_path / budget.PLAN).write_text('{"seconds": 3}', encoding="utf-8")
    with pytest.raises(InputError, match="not a plan"):
        budget.Plan.read(tmp_path)


def test_a_resumed_run_has_only_the_time_that_is_left(tmp_path: Path, now: list[float]) -> None:
    plan = budget.Plan(seconds=300, most_bytes=5, choice=choice(), before_s=30.0)
    store = budget.TimedStore(tmp_path / "checkpoints", 2, budget.Acts())
    store.save(7, {"model/x": torch.zeros(3)}, {"state": {"seconds": 120.0}})
    now[0] = 1_000.0
    clock = budget.resumed(plan, 994.0, tmp_path / "checkpoints")  # 6 s of imports and reading
    assert clock.seconds == pytest.approx(300 - 30 - 120)
    assert clock.progress() == pytest.approx(120 / 270, abs=0.02)
    assert clock.end - 994 == pytest.approx(150, abs=3)
    again = budget.Plan.read(tmp_path)
    assert again is not None
    assert again.before_s == 36
    share = optim.share_at("linear", clock.progress(), 0.1)
    assert share == pytest.approx((1 - 120 / 270) / 0.9, abs=0.02)
