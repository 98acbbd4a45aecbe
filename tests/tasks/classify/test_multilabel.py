"""Several labels for a text: files that say so, the loss of torch, metrics of scikit-learn, folders of transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.folder import folder as folders
from filbert.forms import label_sets
from filbert.forms.datasets import examples, label_table
from filbert.metrics import label_sets as metrics
from filbert.models import bert
from filbert.nn.torch_ops import TorchHost
from filbert.pack.lay import collate
from filbert.run.finetune import finetune
from filbert.tasks.classify import items as classify
from filbert.tasks.classify import spec as classify_spec
from filbert.tasks.classify.decode import chances, set_predictions
from filbert.tasks.pair import spec as pair_spec
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.models import small_bert

pytestmark = pytest.mark.usefixtures("one_thread")

LABELS = ("体育", "财经, 股市", "音乐")
SIGNS = {"体育": "球", "财经, 股市": "钱", "音乐": "歌"}
ONE = machine.Config(threads=1)
THREADS = "machine.threads=1"


def made(count: int = 8, long: bool = False) -> list[Example]:
    """A text has the labels whose characters stand in it; some have none."""
    random = np.random.default_rng(0)
    found = []
    for index in range(count):
        gold = tuple(label for place, label in enumerate(LABELS) if index >> place & 1)
        rest = list(random.choice(list("今天的人在这里看"), 4 * (6 if long and index % 2 else 1)))
        text = "".join(random.permutation([*rest, *(SIGNS[label] for label in gold)]))
        found.append(Example((text,), gold, index, "train.jsonl", index + 1))
    return found


def task_of(tokenizer: Tokenizer, data: list[Example], **more: Any) -> classify.Items:
    config = classify_spec.fitted(classify_spec.Config(**{"max_length": 16, "overlap": 4, **more}), data)
    names = classify_spec.label_names(config, data)
    assert names is not None
    return classify.Items(data, names, tokenizer, config)


def model_for(task: classify.Items, tokenizer: Tokenizer, dropout: float = 0.0) -> bert.Bert:
    return small_bert(tokenizer, task.parts, len(task.labels), noise=0, dropout=dropout)


def scores(task: classify.Items, model: bert.Bert, indices: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return task.scores(TorchHost(model), on_device(task.batch(np.array(indices)), "cpu"))


def file_of(path: Path, data: list[Example]) -> Path:
    rows = ({"text": e.texts[0], "labels": list(e.gold)} for e in data)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


# What files say -------------------------------------------------------------------------------------------------------


def test_lists_in_a_file_are_several_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "甲", "labels": ["a, b", "c", "c"]}\n{"text": "乙", "labels": []}\n'
                    '{"text": "丙", "labels": [1, true]}\n', encoding="utf-8")  # fmt: skip
    found = list(examples(path, "classify"))
    assert [e.gold for e in found] == [("a, b", "c"), (), ("1", "true")]
    assert label_table(found).counts == {"a, b": 1, "c": 1, "1": 1, "true": 1}
    for wrong in ('["a", null]', '[""]', '[["a"]]', '{"a": 1}'):
        path.write_text(f'{{"text": "甲", "labels": {wrong}}}\n', encoding="utf-8")
        with pytest.raises(InputError, match=r"line 1: the label is .*a list of such"):
            list(examples(path, "classify"))
    path.write_text('{"text": "甲", "labels": ["a"]}\n{"text": "乙", "labels": "a"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 2: the label 'a' is text, but line 1 has a list; write all alike"):
        list(examples(path, "classify"))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["a|b", "c", "[]"], [("a", "b"), ("c",), ()]),
        (["a, x|b", "c"], [("a, x", "b"), ("c",)]),  # the bar comes first: a comma is then part of a name
        (["体育、音乐", "财经"], [("体育", "音乐"), ("财经",)]),
        (["a; b ;a", "c"], [("a", "b"), ("c",)]),
        (['["a, x", "b"]', "c"], [("a, x", "b"), ("c",)]),
        (["[a", "b"], [("[a",), ("b",)]),
        ([("a",), None, ["b", "c"]], [("a",), None, ("b", "c")]),
    ],
)
def test_cells_are_cut_where_the_data_say(cells: list[Any], expected: list[Any]) -> None:
    assert label_sets.parted(cells) == expected


def test_a_cell_is_cut_by_the_labels_that_are_known() -> None:
    known = {"a, x", "b", "c"}
    assert label_sets.apart("a, x", known) == ("a, x",)
    assert label_sets.apart("b,c", known) == ("b", "c")
    assert label_sets.apart("a, x|b", known) == ("a, x", "b")
    assert label_sets.apart("b|d", known) == ("b", "d")  # an unknown one is named by whoever asks
    assert label_sets.apart("[]", known) == ()
    assert label_sets.apart(None, known) is None


# The task -------------------------------------------------------------------------------------------------------------


def test_lists_alone_say_that_there_are_several(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made())
    assert task.config.several == 0.5
    assert task.labels == LABELS
    assert task.watched == "f1"
    assert task.gold.tolist() == [[float(i >> place & 1) for place in range(3)] for i in range(8)]
    assert not task.has_unknown
    asked = classify.Items([Example(("好",))], LABELS, tokenizer, task.config)
    assert asked.has_unknown
    assert not asked.teaches
    assert classify_spec.Config(several=True).several == 0.5
    assert classify_spec.Config(several=False).several == 0.0


@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_packed_equals_one_by_one(tokenizer: Tokenizer, pool: str) -> None:
    task = task_of(tokenizer, made(12, long=True), pool=pool)
    assert len(task.cuts.first) > len(task)
    model = model_for(task, tokenizer)
    together = scores(task, model, list(range(12)))
    alone = torch.cat([scores(task, model, [index]) for index in range(12)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    collated = on_device(collate([task.item(index, 0) for index in range(12)]), "cpu")
    torch.testing.assert_close(task.scores(TorchHost(model), collated).detach(), together, atol=1e-5, rtol=0)
    assert collated.targets["label"].tolist() == task.gold.tolist()


@torch.no_grad()
def test_the_loss_is_torchs(tokenizer: Tokenizer) -> None:
    data = [*made(8), Example(("不知道",), None, 8)]
    weights = '{"体育": 2.5, "财经, 股市": 0.5}'
    task = task_of(tokenizer, data, label_smoothing=0.1, class_weights=weights)
    model = model_for(task, tokenizer)
    batch = on_device(task.batch(np.arange(9)), "cpu")
    given, gold = scores(task, model, list(range(8))), torch.as_tensor(task.gold[:8])
    plain = task.loss(model, batch)["label_loss"]
    assert float(plain.total / plain.count) == pytest.approx(float(F.binary_cross_entropy_with_logits(given, gold)))
    model.train()
    smooth, pos = gold * 0.9 + 0.05, torch.tensor([2.5, 0.5, 1.0])
    wanted = F.binary_cross_entropy_with_logits(given, smooth, pos_weight=pos)
    term = task.loss(model, batch)["label_loss"]
    assert float(term.total / term.count) == pytest.approx(float(wanted), rel=1e-5)
    assert task.counts(task.batch(np.arange(9))) == {"label_loss": 24}
    parts = [task.loss(model, on_device(task.batch(np.arange(a, b)), "cpu")) for a, b in ((0, 3), (3, 9))]
    assert sum(float(part["label_loss"].total) for part in parts) == pytest.approx(float(term.total), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"consistency": 0.5, "label_smoothing": 0.05, "class_weights": "balanced"}])
def test_eight_examples_are_learnt(tokenizer: Tokenizer, more: dict[str, Any]) -> None:
    task = task_of(tokenizer, made(long=True), **more)
    model = model_for(task, tokenizer, dropout=0.1 if more else 0.0)
    seen: list[Any] = []
    loop.fit(model, task, loop.Config(steps=80, learning_rate=5e-3, batch_tokens=4096), seen.append, machine=ONE)
    said = task.predictions(list(scores(task, model, list(range(8))).numpy()))
    assert [set(each.labels or ()) for each in said] == [set(e.gold) for e in made()]
    assert [each.label for each in said] == [None] * 8
    assert seen[-1]["f1"] > 0.9 > seen[0]["f1"]
    assert ("consistency_loss" in seen[-1]) is bool(more)


def test_the_terms_are_the_metrics(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(8))
    model = model_for(task, tokenizer)
    with torch.no_grad():
        model.heads["labels"].weight.normal_(std=2)
    held = loop.evaluate(model, task, loop.Config(batch_tokens=64), machine.chosen(ONE), loop.Ranks())
    told = task.evaluated(list(scores(task, model, list(range(8))).numpy()))
    assert held["f1"] == pytest.approx(told["micro_f1"])
    assert held["accuracy"] == pytest.approx(told["accuracy"])
    assert held["label_loss"] == pytest.approx(told["loss"], rel=1e-4)


def test_a_label_that_is_not_known_is_named_with_its_line(tokenizer: Tokenizer) -> None:
    config = classify_spec.Config(several=True)
    with pytest.raises(InputError, match=r"dev\.tsv line 17: one of the labels is '体'.*Did you mean '体育'"):
        classify.Items([Example(("x",), "体|音乐", 0, "dev.tsv", 17)], LABELS, tokenizer, config)
    for wrong in (-0.1, 1.0, 7):
        with pytest.raises(InputError, match=r"task\.several"):
            classify_spec.Config(several=wrong)


# The measures ---------------------------------------------------------------------------------------------------------


def random_sets(size: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    gold = random.random((size, 5)) < [0.5, 0.3, 0.1, 0.02, 0.0]
    return gold, np.clip(0.5 * gold + random.normal(0.25, 0.25, gold.shape), 0, 1)


@pytest.mark.parametrize("least", [0.3, 0.5, 0.99])
def test_the_numbers_are_those_of_scikit_learn(least: float) -> None:
    learn = pytest.importorskip("sklearn.metrics")
    gold, shares = random_sets()
    said = shares >= least
    told = metrics.summary(gold, shares, least, list("abcde"))
    more = {"zero_division": 0}
    assert told["micro_f1"] == pytest.approx(learn.f1_score(gold, said, average="micro", **more))
    assert told["macro_f1"] == pytest.approx(learn.f1_score(gold, said, average="macro", **more))
    assert told["accuracy"] == pytest.approx(learn.accuracy_score(gold, said))
    each = learn.precision_recall_fscore_support(gold, said, **more)
    for name, values in zip(("precision", "recall", "f1", "support"), each, strict=True):
        assert [told["labels"][label][name] for label in "abcde"] == pytest.approx(values.tolist(), abs=1e-6)
    for name, (low, high) in told["intervals"].items():
        assert low <= told[name] <= high


def test_the_bootstrap_is_that_of_drawn_texts() -> None:
    gold, shares = random_sets(200)
    said = shares >= 0.5
    found = metrics.intervals(gold, said, resamples=2_000)
    random = np.random.default_rng(1)
    drawn = []
    for _ in range(1_000):
        rows = random.integers(0, 200, 200)
        one, two = gold[rows], said[rows]
        counted = metrics.measures((one & two).sum(0), two.sum(0), one.sum(0))
        drawn.append((float(counted["micro_f1"]), float(counted["macro_f1"]), float((one == two).all(1).mean())))
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    assert list(found) == ["micro_f1", "macro_f1", "accuracy"]
    np.testing.assert_allclose(np.array(list(found.values())), np.stack((low, high), axis=1), atol=0.02)


def test_gold_against_gold_is_perfect(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(8))
    told = task.evaluated(list((task.gold * 2 - 1) * 50))
    assert (told["micro_f1"], told["macro_f1"], told["accuracy"]) == (1, 1, 1)
    assert told["loss"] == pytest.approx(0, abs=1e-6)
    assert told["majority_accuracy"] == 1 / 8
    assert metrics.summary(np.zeros((0, 3)), np.zeros((0, 3)), 0.5, LABELS)["num_examples"] == 0


def test_the_threshold_is_the_best_there_is() -> None:
    for seed in range(5):
        gold, shares = random_sets(40, seed)

        def f1(least: float, gold: np.ndarray = gold, shares: np.ndarray = shares) -> float:
            said = shares >= least
            return float(metrics.measures((gold & said).sum(0), said.sum(0), gold.sum(0))["micro_f1"])

        found = metrics.best_threshold(gold, shares, 0.5)
        assert f1(found) == pytest.approx(max(f1(least) for least in (*np.unique(shares), 1.1)))
    sure = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert metrics.best_threshold(sure > 0.5, sure, 0.5) == 0.5  # no better one: it stays
    assert metrics.best_threshold(np.zeros((3, 2)), np.full((3, 2), 0.2), 0.5) == 0.5
    assert metrics.best_threshold(sure > 0.15, sure, 0.5) == pytest.approx(0.15)


def test_dev_data_move_the_threshold_unless_it_was_set(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(60))
    low = list((task.gold * 2 - 1) - 2.0)  # all below one half
    fitted = task.calibrated(low).config
    assert 0.1 < fitted.several < 0.27
    again = classify.Items(made(60), LABELS, tokenizer, fitted)
    assert again.evaluated(low)["micro_f1"] == 1
    assert task.calibrated(low, ("several",)).config is task.config
    assert task_of(tokenizer, made(8)).calibrated(low[:8]).config.several == 0.5


def test_predictions_are_likely_ones_first() -> None:
    given = np.array([[3.0, -9.0, 0.5], [-800.0, -2.0, 800.0], [-1.0, -1.0, -1.0]])
    said = set_predictions(given, LABELS, 0.5)
    assert [each.labels for each in said] == [("体育", "音乐"), ("音乐",), ()]
    assert list(said[0].scores) == ["体育", "音乐", "财经, 股市"]
    np.testing.assert_allclose(chances(given), 1 / (1 + np.exp(-given.clip(-700, 700))), atol=1e-12)


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    train, dev = file_of(tmp_path / "train.jsonl", made(40)), file_of(tmp_path / "dev.jsonl", made(16))
    settings = ["--set", THREADS, "--set", "train.learning_rate=5e-3", "--epochs", "12", "--set", "task.pool=cls"]
    out = tmp_path / "run"
    ran = filbert("finetune", "classify", "--train", train, "--dev", dev, "--model", tiny_folder, "--out", out,
                  *settings, "--json")  # fmt: skip
    assert ran.code == 0, ran.err
    held = json.loads(ran.out)["held"]
    assert held["f1"] > 0.6
    kept = json.loads((out / "model" / "task.json").read_text())
    assert 0 < kept["several"] < 1
    ran = filbert("evaluate", out, "--data", dev, "--json")
    told = json.loads(ran.out)
    assert told["micro_f1"] >= held["f1"] - 1e-6  # the threshold was fitted to these
    assert told["threshold"] == kept["several"]
    assert list(told["labels"]) == list(LABELS)
    ran = filbert("evaluate", out, "--data", dev)
    assert ran.out.startswith("micro_f1")
    ran = filbert("predict", out, "--data", dev, "--json", "--top", "2")
    found = json.loads(ran.out)["predictions"]
    assert [f["gold"] for f in found] == [list(e.gold) for e in made(16)]
    assert np.mean([set(f["labels"]) == set(f["gold"]) for f in found]) == pytest.approx(told["accuracy"])
    assert all(len(f["scores"]) == 2 for f in found)
    assert all(f["scores"].get(label, 0) >= kept["several"] for f in found for label in f["labels"][:2])
    ran = filbert("predict", out, "--text", "今天天气很好")
    assert "labels" in json.loads(ran.out)


@pytest.mark.slow
def test_a_table_with_several_labels_in_a_cell(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    data = tmp_path / "train.tsv"
    lines = (f"{e.texts[0]}\t{'|'.join(e.gold) or '[]'}\n" for e in made(16))
    data.write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
    settings = ["--set", THREADS, "--set", "task.several=true", "--set", "train.steps=2"]
    ran = filbert("finetune", "classify", "--train", data, "--dev", data, "--model", tiny_folder,
                  "--out", tmp_path / "r", *settings)  # fmt: skip
    assert ran.code == 0, ran.err
    assert folders.load(tmp_path / "r").labels == list(LABELS)
    assert json.loads(filbert("evaluate", tmp_path / "r", "--data", data, "--json").out)["num_examples"] == 16


@pytest.mark.slow
def test_killed_and_resumed(cut_short: Callable[..., tuple[bytes, bytes]]) -> None:
    whole, cut = cut_short("classify", made(24), ["train.batch_tokens=64", "train.checkpoint_every=2"])
    assert whole == cut


def test_save_and_load_is_bit_equal(tiny_folder: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    done = finetune("classify", made(16), tiny_folder, tmp_path, settings=[THREADS, "train.steps=3"], quiet=True)
    task = task_of(tokenizer, made(16), max_length=64)
    again = folders.load(tmp_path)
    assert again.labels == list(LABELS)
    assert torch.equal(scores(task, again.model, list(range(16))), scores(task, done.module.eval(), list(range(16))))


@pytest.mark.slow
def test_transformers_takes_it_for_what_it_is(tiny_folder: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """And its folders are read as they were meant: without a task.json, by problem_type."""
    transformers = pytest.importorskip("transformers")
    settings = [THREADS, "train.steps=20", "train.learning_rate=5e-3", "task.pool=cls"]
    finetune("classify", made(16), tiny_folder, tmp_path / "run", settings=settings, quiet=True)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    assert theirs.config.problem_type == "multi_label_classification"
    theirs.save_pretrained(tmp_path / "published")
    tokenizer.save(tmp_path / "published")
    model = fb.load(tmp_path / "published")
    said = model.predict([e.texts[0] for e in made(16)])
    for example, each in zip(made(16), said, strict=True):
        ids = torch.as_tensor(tokenizer.encode(example.texts[0]).ids)[None].long()
        with torch.inference_mode():
            wanted = theirs(ids).logits[0].sigmoid()
        np.testing.assert_allclose([each.scores[label] for label in LABELS], wanted, atol=1e-5)
        assert set(each.labels or ()) == {label for label, share in zip(LABELS, wanted, strict=True) if share >= 0.5}


def test_pairs_may_have_several_labels_too(tiny_folder: Path, tmp_path: Path) -> None:
    data = [Example((e.texts[0], "关于什么"), e.gold, e.id) for e in made(16)]
    finetune("pair", data, tiny_folder, tmp_path, settings=[THREADS, "train.steps=3"], quiet=True)
    model = fb.load(tmp_path)
    said = model.predict([(data[0].texts[0], data[0].texts[1])])
    assert said[0].labels is not None
    assert "labels" in pair_spec.record(data[0], said[0], None)
    with pytest.raises(InputError, match="is for labels"):
        pair_spec.Config(answer="number", several=True)


def test_texts_without_any_label_teach_nothing(tiny_folder: Path, tmp_path: Path) -> None:
    data = [Example(("甲",), (), 0), Example(("乙",), (), 1)]
    with pytest.raises(InputError, match="no text of the training data has a label"):
        finetune("classify", data, tiny_folder, tmp_path)
