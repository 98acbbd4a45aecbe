"""Rows E5–E8 and E15 of the table of defects: intervals, tests, verdicts, and reports of many labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from filbert.metrics import intervals, label_sets, labels, paired, vectors
from filbert.tasks.answer import measure as answers
from filbert.tasks.choose import measure as choices
from filbert.tasks.relation import measure as relations
from filbert.tasks.tag import measure as tags
from filbert.tasks.translate import measure as generation

pytestmark = pytest.mark.filterwarnings("error")

# E5: many labels ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_E5_a_table_of_many_labels_holds_what_is_filled() -> None:
    random = np.random.Generator(np.random.PCG64(0))
    gold = random.integers(0, 4_000, 3_000)
    said = np.where(random.random(3_000) < 0.5, gold, random.integers(0, 4_000, 3_000))
    table = labels.confusion(gold, said, 4_000)
    told = labels.summary(table, [str(label) for label in range(4_000)])
    assert sum(count for *_, count in told["confusion"]["cells"]) == 3_000
    assert len(json.dumps(told["confusion"])) < 60_000
    assert told["accuracy"] == (gold == said).mean()
    few = labels.confusion(gold % 40, said % 40, 40)
    assert np.array_equal(few.as_json(), few.dense())
    assert few.dense().sum() == 3_000
    sparse, dense = (
        labels.intervals(labels.Confusion(few.rows, few.columns, few.counts, many)) for many in (40, 4_000)
    )
    assert sparse == dense


def test_E5_macro_f1_is_drawn_as_before() -> None:
    gold, said = np.array([0, 0, 1, 2, 2, 2, 5]), np.array([0, 1, 1, 2, 5, 2, 2])
    table = labels.confusion(gold, said, 7)
    drawn = np.array([[2, 0, 0, 3, 0, 1, 1], [1, 1, 1, 1, 1, 1, 1]])[:, : len(table.counts)]
    right, called, there = labels._drawn(table, drawn)
    for row, counts in enumerate(drawn):
        matrix = np.zeros((7, 7), dtype=int)
        matrix[table.rows, table.columns] = counts
        occurring = np.unique(np.concatenate((table.rows, table.columns)))
        assert np.array_equal(right[row], np.diag(matrix)[occurring])
        assert np.array_equal(called[row], matrix.sum(0)[occurring])
        assert np.array_equal(there[row], matrix.sum(1)[occurring])


def test_E5_the_likeliest_labels_are_written_and_it_is_told(tmp_path: Path, filbert: Any, tokenizer: Any) -> None:
    pytest.importorskip("torch")
    import torch

    from filbert.folder.folder import save
    from filbert.models import bert

    torch.manual_seed(0)
    config = bert.Config(vocab_size=tokenizer.vocab_size, width=32, layers=1, heads=2, inner=32, max_length=32)
    names = [f"label {number}" for number in range(400)]
    task = json.dumps({"task": "classify", "max_length": 32, "overlap": 8, "pool": "mean", "several": 0.0})
    model = bert.Bert(config, ("labels",), len(names)).eval()
    save(tmp_path / "model", model, tokenizer, labels=names, files={"task.json": task})
    done = filbert("predict", tmp_path / "model", "--text", "今天天气很好。")
    assert done.code == 0, done.err
    few = json.loads(done.out)["scores"]
    assert len(few) == 20
    assert "of 400 labels the 20 likeliest" in done.err
    every = json.loads(filbert("predict", tmp_path / "model", "--text", "今天天气很好。", "--top", "400").out)["scores"]
    assert len(every) == 400
    assert list(every.items())[:20] == list(few.items())


@pytest.mark.slow
def test_E5_a_report_of_many_labels_is_small(tmp_path: Path, tokenizer: Any) -> None:
    pytest.importorskip("torch")
    from filbert.core.records import Example
    from filbert.judge import page
    from filbert.judge import report as honest
    from filbert.tasks.classify import items as classify
    from filbert.tasks.classify import spec as classify_spec

    random = np.random.Generator(np.random.PCG64(0))
    names = [f"label {number}" for number in range(2_000)]
    gold = random.integers(0, 2_000, 300)
    examples = [Example((f"第{number}天",), gold=names[label]) for number, label in enumerate(gold.tolist())]
    task = classify.Items(examples, names, tokenizer, classify_spec.Config(max_length=32))
    raw = list(random.normal(size=(300, 2_000)).astype(np.float32))
    told = honest.report("classify", {"dev": honest.Measured(task, examples, raw)})
    assert honest.write(tmp_path, told).stat().st_size < 1_000_000
    assert "label 1" in page.write(tmp_path, "many", told).read_text(encoding="utf-8")


# E7: intervals that know small numbers --------------------------------------------------------------------------------


def test_E7_four_of_four_are_not_certain() -> None:
    low, high = intervals.wilson(4, 4)
    assert (round(low, 2), high) == (0.51, 1.0)
    assert intervals.wilson(0, 4) == pytest.approx((0.0, 1 - low))
    told = labels.summary(labels.confusion([0, 1, 0, 1], [0, 1, 0, 1], 2), ["no", "yes"])
    assert told["intervals"]["accuracy"] == pytest.approx([0.51, 1.0], abs=0.001)
    assert told["intervals"]["f1"] == pytest.approx([0.51, 1.0], abs=0.001)


def test_E7_it_is_the_score_interval_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for right, total in ((4, 4), (0, 7), (30, 41), (999, 1_000)):
        wanted = stats.binomtest(right, total).proportion_ci(method="wilson")
        assert intervals.wilson(right, total) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


def test_E7_no_share_of_few_perfect_answers_is_from_1_to_1() -> None:
    entities = [[(0, 1, "A")], [(0, 2, "B")], [(1, 2, "A")]]
    spans = tags.intervals(tags.table(entities, entities), tags.token_counts([["O"]] * 3, [["O"]] * 3))
    sets = label_sets.intervals(np.eye(3, dtype=bool), np.eye(3, dtype=bool))
    found = [
        *spans.values(), *sets.values(),
        *answers.intervals(answers.scores(["a", "b"], [["a"], ["b"]])).values(),
        *choices.summary([1, 1], [0, 1], [3, 3])["intervals"].values(),
        *relations.summary(labels.confusion([0, 1], [0, 1], 2), None)["intervals"].values(),
        *vectors.preferred(np.eye(3), np.eye(3), -np.eye(3))["intervals"].values(),
        *vectors.retrieval(np.eye(3), np.eye(3), np.arange(3))["intervals"].values(),
        *generation.rouge_summary(["很 好"], ["很 好"])["intervals"].values(),
    ]  # fmt: skip
    assert all(low < 0.8 and high == 1.0 for low, high in found)


# E8: one test, one measure, one verdict -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 20, 300])
def test_E8_interval_p_and_verdict_agree(size: int) -> None:
    random = np.random.Generator(np.random.PCG64(size))
    seen = set()
    for turn in range(40):
        two = random.random(size) < 0.6
        one = np.where(random.random(size) < 0.05 * (turn % 10), True, two)
        one = np.where(random.random(size) < 0.05, ~one, one)
        for apart in (
            paired.accuracy(one, two),
            paired.compared(one[:, None], two[:, None], lambda sums: sums[:, 0] / size, "share"),
        ):
            assert apart.low <= apart.value <= apart.high
            assert (apart.p < 0.05) == (apart.low > 0 or apart.high < 0) == apart.is_certain
            assert ("no better" in apart.sentence("it")) != apart.is_certain
            seen.add(apart.is_certain)
    assert seen == ({True, False} if size > 4 else {False})


def test_E8_a_difference_of_nothing_is_not_known_to_be_nothing() -> None:
    right = [True] * 4
    apart = paired.accuracy(right, right)
    assert (apart.value, apart.p) == (0.0, 1.0)
    assert apart.low < -0.3
    assert apart.high > 0.3


def test_E8_every_sentence_is_of_the_measure_at_the_head(tokenizer: Any) -> None:
    pytest.importorskip("torch")
    from filbert.core.records import Example, Span
    from filbert.judge import report as honest
    from filbert.tasks.tag import decode as decoding
    from filbert.tasks.tag import spec as tag_spec

    examples = [Example((f"张三去北京{number}",), gold=(Span(0, 2, "PER"), Span(3, 5, "LOC"))) for number in range(6)]
    task = tag_spec.items(examples, decoding.tag_set(["LOC", "PER"], "bio"), tokenizer, tag_spec.Config(max_length=32))
    raw = [np.zeros((len(own.starts), len(task.labels)), dtype=np.float32) for own in task.pieces]
    told = honest.report("tag", {"dev": honest.Measured(task, examples, raw)}, examples)["evaluations"]["dev"]
    apart = told["baselines"]["dictionary"]["difference"]
    assert told["measure"] == apart["measure"] == "f1"
    assert "of f1" in told["sentences"][0]
    assert told["measure"] in told["intervals"]


# E15: a comparison says where intervals overlap -----------------------------------------------------------------------


def test_E15_overlapping_intervals_are_named() -> None:
    pytest.importorskip("torch")
    from filbert.run import compare

    def row(name: str, low: float, high: float) -> dict[str, Any]:
        return {"model": name, "measure": "accuracy", "intervals": {"accuracy": [low, high]}}

    rows = [row("gpt", 0.5, 0.7), row("bert", 0.65, 0.9), row("han", 0.95, 1.0)]
    (said,) = compare.overlaps(rows)
    assert "gpt and bert." in said
    assert "han" not in said
    assert compare.overlaps(rows[1:]) == ["No two intervals overlap."]
    assert compare.overlaps(rows[:1]) == []


# E6: a verdict rests on enough ----------------------------------------------------------------------------------------


def test_E6_enough_is_held_back_for_a_verdict(tmp_path: Path, tokenizer: Any) -> None:
    from filbert.corpus import shards as sharding

    corpus = tmp_path / "text.txt"
    corpus.write_text("\n\n".join(f"第{i}天" + "今天天气很好。" * (1 + i % 90) for i in range(400)), encoding="utf-8")
    whole = sharding.build([str(corpus)], tokenizer, tmp_path / "few", sharding.Options(words=False), workers=1)
    wish = sharding.Options(words=False, held_tokens=4_000)
    more = sharding.build([str(corpus)], tokenizer, tmp_path / "more", wish, workers=1)
    assert 4_000 <= more.held.num_tokens <= 0.05 * more.num_tokens
    assert whole.held.num_tokens < 4_000
    assert more.num_tokens == whole.num_tokens
    most = sharding.Options(words=False, held_tokens=10**6)
    assert sharding.build([str(corpus)], tokenizer, tmp_path / "most", most, workers=1).held.num_tokens <= (
        0.05 * more.num_tokens
    )


def test_E6_the_verdict_says_its_interval_or_is_none() -> None:
    from filbert.clock.forecast import Forecast

    told = Forecast(loss=4.0, low=3.8, high=4.2, accuracy=0.3, entropy=7.0, weights=10**6, unique=10**6)
    assert (
        told.verdict(4.1, 0.02) == "forecast 4.00, came to 4.10 (95 %: 4.06 to 4.14): 2% off, within the likely range."
    )
    assert "outside" in told.verdict(4.5, 0.02)
    assert "no verdict: an edge" in told.verdict(4.22, 0.05)
    assert "no verdict: so little was held back" in told.verdict(5.0, 0.3)
    assert "no verdict: too little was held back" in told.verdict(5.0)


def test_E6_the_error_of_a_mean_is_that_of_its_batches() -> None:
    pytest.importorskip("torch")
    from filbert.train import loop

    random = np.random.Generator(np.random.PCG64(0))
    counts = random.integers(20, 40, 64).astype(float)
    totals = counts * 5 + random.normal(size=64) * np.sqrt(counts) * 3
    sums = {"a_loss": totals.sum(), "a_loss#": counts.sum(), "a_loss#one": 64.0, "a_loss#tt": (totals**2).sum(),
            "a_loss#tn": (totals * counts).sum(), "a_loss#nn": (counts**2).sum()}  # fmt: skip
    mean = totals.sum() / counts.sum()
    found = loop._errors(sums, {"a_loss": mean})["a_loss"]
    assert found == pytest.approx(3 / np.sqrt(counts.sum()), rel=0.2)
    assert loop._errors({**sums, "a_loss#one": 4.0}, {"a_loss": mean}) == {}


@pytest.mark.slow
def test_E6_it_is_told_that_nothing_is_measured(tmp_path: Path, filbert: Any) -> None:
    pytest.importorskip("torch")
    corpus = tmp_path / "text.txt"
    texts = [f"第{number}天今天天气很好，我们去公园。" * 9 for number in range(9)]
    corpus.write_text("\n\n".join(texts), encoding="utf-8")
    steps = ("--set", "train.steps=1", "--set", "train.batch_tokens=256", "--set", "machine.threads=1")
    done = filbert("pretrain", corpus, "--out", tmp_path / "out", "--vocab-size", "60", "--preset", "tiny", *steps)
    assert done.code == 0, done.err
    assert "nothing is measured: 0 of 9 documents" in done.err
    assert "Nothing was measured" in done.out
