"""Pairs of texts: read together as published, in windows where they are long, one decision; and the commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.folder import folder as folders
from filbert.metrics import numbers
from filbert.models import bert
from filbert.nn.torch_ops import TorchHost
from filbert.run.evaluate import evaluate
from filbert.run.finetune import finetune
from filbert.tasks.pair import items as pair
from filbert.tasks.pair import spec as pair_spec
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import encode_windows
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.models import small_bert

LABELS = ("other", "same")
WORDS = ["the", "train", "leaves", "a", "ship", "on", "water", "clouds", "and", "wind", "今", "天", "气", "很", "好"]


pytestmark = pytest.mark.usefixtures("one_thread")


def made(count: int = 8, longest: int = 10) -> list[Example]:
    """Two texts that begin alike, or not."""
    random = np.random.default_rng(1)
    found = []
    for index in range(count):
        first, second = (list(random.choice(WORDS, random.integers(0, longest))) for _ in range(2))
        same = index % 2
        begin = WORDS[index % 5], WORDS[(index if same else index + 2) % 5]
        texts = (" ".join([begin[0], *first]), " ".join([begin[1], *second]))
        found.append(Example(texts, LABELS[same], index, "pairs.tsv", index + 1))
    return found


def model_for(task: pair.Items, tokenizer: Tokenizer, dropout: float = 0.0) -> bert.Bert:
    return small_bert(tokenizer, task.parts, len(task.labels), dropout=dropout)


def scores(task: pair.Items, model: bert.Bert, indices: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return task.scores(TorchHost(model), on_device(task.batch(np.array(indices)), "cpu"))


@pytest.mark.parametrize("pool", ["mean", "cls"])
@pytest.mark.parametrize("longest", [3, 60])
def test_packed_equals_one_by_one(tokenizer: Tokenizer, pool: str, longest: int) -> None:
    task = pair.Items(made(12, longest), LABELS, tokenizer, pair_spec.Config(max_length=32, overlap=4, pool=pool))
    assert (len(task.cuts.first) > len(task)) == (longest > 3)
    model = model_for(task, tokenizer)
    alone = torch.cat([scores(task, model, [index]) for index in range(12)])
    torch.testing.assert_close(scores(task, model, list(range(12))), alone, atol=1e-5, rtol=0)
    filled = task.batch(np.arange(12), budget=4_096)
    with torch.inference_mode():
        torch.testing.assert_close(task.scores(TorchHost(model), on_device(filled, "cpu")), alone, atol=1e-5, rtol=0)


def test_windows_are_those_of_the_one_rule(tokenizer: Tokenizer) -> None:
    examples = [*made(12, 60), Example(("", ""), "same"), Example(("", "a ship " * 40), "same"),
                Example(("wind " * 40, ""), "same")]  # fmt: skip
    task = pair.Items(examples, LABELS, tokenizer, pair_spec.Config(max_length=24, overlap=6))
    model = model_for(task, tokenizer)
    head = model.heads["labels"]
    for index, example in enumerate(examples):
        wanted = encode_windows(tokenizer, *example.texts, max_length=24, overlap=6)
        batch = task.batch(np.array([index]))
        edges = batch.packed.boundaries
        ends = edges[np.searchsorted(edges, batch.starts, side="right")]
        rows = [slice(start, end) for start, end in zip(batch.starts, ends, strict=True)]
        assert [batch.packed.ids[row].tolist() for row in rows] == [w.ids.tolist() for w in wanted]
        assert [batch.packed.segments[row].tolist() for row in rows] == [w.segments.tolist() for w in wanted]
        with torch.inference_mode():
            hidden = model(on_device(batch, "cpu").packed).numpy()
        counted = [w.owned | (w.parts < 0) if len(wanted) > 1 else np.ones(len(w), bool) for w in wanted]
        means = np.stack([hidden[row][own].mean(0) for row, own in zip(rows, counted, strict=True)])
        weights = np.array([max(1, w.owned.sum()) for w in wanted], dtype=np.float64)
        vector = (means * (weights / weights.sum())[:, None]).sum(0)
        with torch.inference_mode():
            right = head(torch.from_numpy(vector).float())
        torch.testing.assert_close(scores(task, model, [index])[0], right, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_eight_examples_are_learnt(tokenizer: Tokenizer) -> None:
    config = pair_spec.Config(max_length=32, overlap=4, label_smoothing=0.05, consistency=0.5)
    task = pair.Items(made(8), LABELS, tokenizer, config)
    model = model_for(task, tokenizer, dropout=0.1)
    one = machine.Config(threads=1)
    loop.fit(model, task, loop.Config(steps=120, learning_rate=3e-3, batch_tokens=4096), lambda line: None, machine=one)
    assert scores(task, model, list(range(8))).argmax(-1).tolist() == task.gold.tolist()


def test_a_pair_is_read_as_transformers_reads_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    task = pair.Items(made(6), LABELS, tokenizer, pair_spec.Config(max_length=48, pool="cls"))
    model = model_for(task, tokenizer)
    folders.save(tmp_path / "m", model, tokenizer, labels=LABELS)
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "m").eval()
    words = transformers.BertTokenizerFast.from_pretrained(tmp_path / "m")
    examples = made(6)
    given = words([e.texts[0] for e in examples], [e.texts[1] for e in examples], return_tensors="pt", padding=True)
    with torch.inference_mode():
        wanted = theirs(**given).logits
    torch.testing.assert_close(scores(task, model, list(range(6))), wanted, atol=1e-5, rtol=0)
    said = fb.load(tmp_path / "m").predict([(e.texts[0], e.texts[1]) for e in examples], task="pair")
    assert [p.label for p in said] == [LABELS[place] for place in wanted.argmax(-1).tolist()]


@pytest.mark.slow
def test_the_commands(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., tuple[int, str, str]]) -> None:
    rows = [{"sentence1": e.texts[0], "sentence2": e.texts[1], "label": e.gold} for e in made(24)]
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    out = tmp_path / "run"
    settings = ["--set", "machine.threads=1", "--set", "train.batch_tokens=256", "--epochs", "2"]
    code, _, err = filbert(
        "finetune", "pair", "--train", data, "--dev", data, "--model", tiny_folder, "--out", out, *settings
    )
    assert code == 0, err
    assert "pairs of texts" in (out / "model" / "README.md").read_text()
    assert json.loads((out / "model" / "task.json").read_text())["task"] == "pair"
    code, told, _ = filbert("evaluate", out, "--data", data, "--json")
    assert code == 0
    assert json.loads(told)["num_examples"] == 24
    code, said, _ = filbert("predict", out, "--data", data, "--json")
    found: list[dict[str, Any]] = json.loads(said)["predictions"]
    assert [(f["text"], f["second"], f["gold"]) for f in found] == [tuple(row.values()) for row in rows]
    right = np.mean([f["label"] == f["gold"] for f in found])
    assert right == pytest.approx(json.loads(told)["accuracy"])
    code, said, _ = filbert("predict", out, "--pair", "a ship", "the ship")
    assert code == 0
    assert json.loads(said)["second"] == "the ship"
    code, _, err = filbert("predict", out, "--text", "alone")
    assert code == 2
    assert "this model reads pairs" in err
    code, _, err = filbert("predict", out, "--pair", "a", "b", "--task", "classify")
    assert code == 2
    assert "was fine-tuned for pair, not for classify" in err
    code, _, err = filbert("evaluate", out, "--data", data, "--task", "sing")
    assert code == 2
    assert "must be one of: answer" in err


def test_wrong_pairs_are_named(tiny_folder: Path, tmp_path: Path) -> None:
    finetune("pair", made(8), tiny_folder, tmp_path / "r", epochs=1, settings=["machine.threads=1"], quiet=True)
    model = fb.load(tmp_path / "r")
    assert model.task() == "pair"
    for wrong in (["one"], [("one",)], [("one", "two", "three")], [("one", 2)]):
        with pytest.raises(InputError, match=r"pair 0 is .* must be two strings"):
            model.predict(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one string"):
        model.predict("one")
    assert model.predict([]) == []


# Numbers --------------------------------------------------------------------------------------------------------------


def numbered(count: int = 12) -> list[Example]:
    """Pairs whose number is large where they begin alike."""
    found = []
    for index, example in enumerate(made(count)):
        gold = str(70 + index % 3 if example.gold == "same" else 30 - index % 3)
        found.append(Example(example.texts, gold, index, "pairs.tsv", index + 1))
    return found


@pytest.mark.slow
def test_numbers_are_learnt_and_given_in_their_own_unit(tokenizer: Tokenizer) -> None:
    config = pair_spec.fitted(pair_spec.Config(max_length=32, answer="number"), numbered())
    values = np.array([float(e.gold) for e in numbered()])
    assert (config.center, config.scale) == (pytest.approx(values.mean()), pytest.approx(values.std()))
    task = pair.Items(numbered(), pair_spec.VALUE, tokenizer, config)
    model = model_for(task, tokenizer)
    seen: list[Any] = []
    steps = loop.Config(steps=150, learning_rate=3e-3, batch_tokens=4096)
    loop.fit(model, task, steps, seen.append, machine=machine.Config(threads=1))
    assert seen[-1]["explained"] > 0.9 > seen[0]["explained"]
    said = scores(task, model.eval(), list(range(12))).numpy()
    told = task.evaluated(said)
    assert told["pearson"] > 0.95
    assert told["mse"] < 0.1 * told["mean_mse"]
    given = [p.scores["value"] for p in task.predictions(said)]
    np.testing.assert_allclose(given, values, atol=20)
    low, high = told["intervals"]["pearson"]
    assert low <= told["pearson"] <= high


def test_a_perfect_answer_is_perfect(tokenizer: Tokenizer) -> None:
    config = pair_spec.fitted(pair_spec.Config(answer="number"), numbered())
    task = pair.Items(numbered(), pair_spec.VALUE, tokenizer, config)
    told = task.evaluated(((task.gold - config.center) / config.scale)[:, None])
    assert told["pearson"] == pytest.approx(1)
    assert told["spearman"] == pytest.approx(1)
    assert told["mse"] == pytest.approx(0, abs=1e-6)


def test_what_is_no_number_is_named(tokenizer: Tokenizer, tiny_folder: Path, tmp_path: Path) -> None:
    wrong = [*numbered(4), Example(("a", "b"), "much", 4, "pairs.tsv", 17)]
    settings = ["task.answer=number", "machine.threads=1"]
    with pytest.raises(InputError, match=r"pairs\.tsv line 17: the label 'much' is no number"):
        finetune("pair", wrong, tiny_folder, tmp_path / "x", settings=settings)
    same = [Example(("a", "b"), "3", index) for index in range(4)]
    with pytest.raises(InputError, match="no two different numbers"):
        finetune("pair", same, tiny_folder, tmp_path / "x", settings=settings)
    for field in ("nan", "inf"):
        with pytest.raises(InputError, match="is no number"):
            pair_spec.number(Example(("a", "b"), field))
    with pytest.raises(InputError, match="is for labels"):
        pair_spec.Config(answer="number", label_smoothing=0.1)
    with pytest.raises(InputError, match=r"task\.answer"):
        pair_spec.Config(answer="numbr")


@pytest.mark.slow
def test_a_run_of_numbers_from_file_to_prediction(tiny_folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "sts.tsv"
    data.write_text("".join(f"{e.texts[0]}\t{e.texts[1]}\t{e.gold}\n" for e in numbered(30)), encoding="utf-8")
    settings = ["task.answer=number", "machine.threads=1", "train.learning_rate=1e-3"]
    columns = {"first": 1, "second": 2, "label": 3}
    done = finetune("pair", data, tiny_folder, tmp_path / "run", dev=data, settings=settings, epochs=6, quiet=True,
                        columns=columns)  # fmt: skip
    assert "explained" in done.best
    told = evaluate(tmp_path / "run", data, threads=1, columns=columns)
    said = fb.load(tmp_path / "run").predict([(e.texts[0], e.texts[1]) for e in numbered(30)])
    assert all(p.label is None for p in said)
    assert np.mean([(p.scores["value"] - float(e.gold)) ** 2 for p, e in zip(said, numbered(30), strict=True)]) == (
        pytest.approx(told["mse"], rel=1e-3)
    )
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoConfig.from_pretrained(tmp_path / "run" / "model")
    assert theirs.num_labels == 1


def test_correlations_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(3)
    for _ in range(20):
        one, two = random.integers(0, 6, 50), random.normal(size=50).round(1)
        two = two + one * random.normal()
        assert numbers.pearson(one, two) == pytest.approx(stats.pearsonr(one, two).statistic)
        assert numbers.spearman(one, two) == pytest.approx(stats.spearmanr(one, two).statistic)
    assert numbers.pearson([1, 1, 1], [1, 2, 3]) == 0
    assert numbers.summary([], [])["num_examples"] == 0
