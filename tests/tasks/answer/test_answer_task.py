"""Questions and passages: read as published, in windows where they are long; answers are slices of the passage."""

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
from filbert.models import bert
from filbert.nn.torch_ops import TorchHost
from filbert.run.finetune import finetune
from filbert.tasks.answer import items as answer
from filbert.tasks.answer import spec as answer_spec
from filbert.tasks.answer.reading import Answer
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import encode_windows
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.models import small_bert

NAMES = ("今天", "天气", "公园", "高铁", "旅行", "比赛", "医生", "火车")
FILL = "我们坐火车去公园，今天天气很好。"


pytestmark = pytest.mark.usefixtures("one_thread")


def made(count: int = 8, before: int = 1, none_every: int = 0) -> list[Example]:
    """The answer stands in brackets behind the number that is asked for; every so often there is none."""
    found = []
    for index in range(count):
        number, word = "一二三四五六七八"[index % 8], NAMES[index % 8]
        text = FILL * before + f"第{number}个是《{word}》。" + FILL
        gold = (Answer(word, text.index("《") + 1),)
        if none_every and index % none_every == 0:
            text, gold = FILL * (before + 1), ()  # type: ignore[assignment]
        found.append(Example((f"第{number}个是什么？", text), gold, index, "q.json", index + 1))
    return found


def task_of(tokenizer: Tokenizer, examples: list[Example], **fields: Any) -> answer.Items:
    return answer.Items(examples, (), tokenizer, answer_spec.Config(**{"max_length": 64, "overlap": 16, **fields}))


def model_for(tokenizer: Tokenizer, noise: float = 0.1) -> bert.Bert:
    return small_bert(tokenizer, ("span",), noise=noise)


def raw(task: answer.Items, model: bert.Bert, indices: list[int]) -> Any:
    with torch.inference_mode():
        return task.raw(TorchHost(model), on_device(task.batch(np.array(indices)), "cpu"))


@pytest.mark.parametrize("before", [1, 12])
def test_packed_equals_one_by_one_and_the_one_rule(tokenizer: Tokenizer, before: int) -> None:
    examples = made(6, before)
    task = task_of(tokenizer, examples)
    assert (len(task.cuts.first) > 6) == (before > 1)
    model = model_for(tokenizer)
    together = raw(task, model, list(range(6)))
    for index, example in enumerate(examples):
        windows = encode_windows(tokenizer, *example.texts, max_length=64, overlap=16)
        (alone,) = raw(task, model, [index])
        assert [len(scores) for scores in alone] == [len(window) for window in windows]
        for one, other, window in zip(together[index], alone, windows, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
            inside = (window.parts == 1) | (np.arange(len(window)) == 0)
            assert (one[~inside] < -1e29).all()
            assert (one[inside] > -1e3).all()


def test_the_loss_is_the_definition(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, [*made(6, 8), *made(4, 1, none_every=2)])
    model = model_for(tokenizer)
    batch = task.batch(np.arange(10))
    terms = task.loss(model, on_device(batch, "cpu"))
    logs, right = [], []
    for index in range(10):
        for window, scores in enumerate(raw(task, model, [index])[0]):
            places = task.places[task.cuts.edges[index] + window]
            shares = torch.from_numpy(scores).double().log_softmax(0)
            logs.append(-sum(float(shares[place, side]) for side, place in enumerate(places)) / 2)
            right.append(all(scores[place, side] == scores[:, side].max() for side, place in enumerate(places)))
    assert terms["span_loss"].total.item() == pytest.approx(sum(logs), rel=1e-4)
    assert terms["span_accuracy"].total.item() == sum(right)
    assert task.counts(batch) == {"span_loss": len(logs)}
    filled = task.loss(model, on_device(task.batch(np.arange(10), budget=8_192), "cpu"))
    assert filled["span_loss"].total.item() == pytest.approx(sum(logs), rel=1e-4)


@pytest.mark.slow
def test_eight_examples_are_learnt_and_a_late_answer_is_found(tokenizer: Tokenizer) -> None:
    examples = made(8, 1) + made(8, 40)
    task = task_of(tokenizer, examples)
    late = examples[-1]
    assert len(tokenizer.encode(late.texts[1][: late.gold[0].start]).ids) > 512
    model = model_for(tokenizer, 0.0)
    steps = loop.Config(steps=200, learning_rate=3e-3, batch_tokens=4_096)
    loop.fit(model, task, steps, lambda line: None, machine=machine.Config(threads=1))
    said = task.predictions(raw(task, model.eval(), list(range(16))))
    told = task.evaluated(raw(task, model, list(range(16))))
    for prediction, example in zip(said, examples, strict=True):
        best = prediction.spans[0]
        assert prediction.label == example.texts[1][best.start : best.end]
        assert prediction.coverage == 1.0
    assert told["exact"] == np.mean([p.label == e.gold[0].text for p, e in zip(said, examples, strict=True)])
    assert told["exact"] > 0.8
    assert said[-1].label == late.gold[0].text


def test_gold_against_itself_is_perfect_and_none_has_its_threshold(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(60, 6, none_every=3))
    planted = []
    for index in range(60):
        windows = []
        for window, encoding in enumerate(task.windows(index)):
            scores = np.full((len(encoding), 2), -5.0)
            for side, place in enumerate(task.places[task.cuts.edges[index] + window]):
                scores[place, side] = 5.0
            windows.append(scores)
        planted.append(windows)
    config = task.calibrated(planted).config
    assert config.threshold is not None
    settled = answer.Items(made(60, 6, none_every=3), (), tokenizer, config)
    told = settled.evaluated(planted)
    assert (told["exact"], told["f1"], told["num_unanswerable"]) == (1, 1, 20)
    assert told["rule"] == "cmrc"
    assert task.evaluated(planted)["unanswerable_exact"] == 0  # without a threshold every question has an answer
    assert task_of(tokenizer, made(4)).calibrated(planted[:4]).config.threshold is None
    few = task_of(tokenizer, made(12, 6, none_every=3)).calibrated(planted[:12])
    assert few.config.threshold == 0.0
    assert "12 rows are too few" in few.note


def test_what_cannot_be_learnt_is_counted(tokenizer: Tokenizer) -> None:
    text = FILL * 30
    examples = [
        *made(2),
        Example(("什么？", text), (Answer(text[10:300], 10),)),  # longer than any window
        Example(("什么？", text), (Answer("是", -1),)),  # not a stretch of the passage
        Example(("什么？", text), None),
    ]
    task = task_of(tokenizer, examples)
    assert task.has_unknown
    assert task.kinds == {"exact": 2, "no window": 1, "not in the passage": 1}
    assert [remark.split()[0] for remark in task.remarks()] == ["1", "1"]
    assert (task.places[task.cuts.edges[2] :] == answer.UNKNOWN).all()
    wrong = [Example(("什么？", text), (Answer("高铁", 0),), 0, "q.json", 7)]
    with pytest.raises(InputError, match=r"q\.json line 7: the answer '高铁' does not stand at character 0"):
        task_of(tokenizer, wrong)
    for fields in ({"max_length": 3}, {"longest": 0}, {"mask_prob": 1.0}, {"rule": "squid"}, {"threshold": np.nan}):
        with pytest.raises(InputError, match=next(iter(fields))):
            answer_spec.Config(**fields)


def test_data_that_teach_nothing_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    nowhere = [Example(("什么？", FILL), (Answer("是", -1),))]
    with pytest.raises(InputError, match=r"nothing to learn from it\. 1 answers do not stand in their passage"):
        finetune("answer", nowhere, tiny_folder, tmp_path / "x", settings=["task.max_length=64"])
    assert not (tmp_path / "x" / "model").exists()


def test_a_published_folder_is_read_as_transformers_reads_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model, examples = model_for(tokenizer), made(4)
    folders.save(tmp_path / "m", model, tokenizer)
    theirs = transformers.BertForQuestionAnswering.from_pretrained(tmp_path / "m").eval()
    task = task_of(tokenizer, examples)
    for index, example in enumerate(examples):
        (window,) = encode_windows(tokenizer, *example.texts, max_length=64)
        with torch.inference_mode():
            ids, segments = (torch.from_numpy(row)[None].long() for row in (window.ids, window.segments))
            out = theirs(ids, token_type_ids=segments)
        wanted = np.stack([out.start_logits[0].numpy(), out.end_logits[0].numpy()], axis=1)
        inside = (window.parts == 1) | (np.arange(len(window)) == 0)
        np.testing.assert_allclose(raw(task, model, [index])[0][0][inside], wanted[inside], atol=1e-5)
    loaded = fb.load(tmp_path / "m")
    assert loaded.task() == "answer"
    said = loaded.predict([example.texts for example in examples])  # type: ignore[misc]
    assert all(p.label and p.label in e.texts[1] for p, e in zip(said, examples, strict=True))


@pytest.mark.slow
def test_the_commands(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., tuple[int, str, str]]) -> None:
    paragraphs = [
        {"context": e.texts[1], "qas": [{"id": str(e.id), "question": e.texts[0], "is_impossible": not e.gold,
         "answers": [{"text": a.text, "answer_start": a.start} for a in e.gold]}]}
        for e in made(12, 4, none_every=4)
    ]  # fmt: skip
    data = tmp_path / "q.json"
    data.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    out = tmp_path / "run"
    settings = ["--set", "machine.threads=1", "--set", "task.max_length=64", "--set", "task.overlap=16"]
    files = ["--train", data, "--dev", data, "--model", tiny_folder, "--out", out]
    code, told, err = filbert("finetune", "answer", *files, *settings, "--epochs", "2")
    assert code == 0, err
    assert "answers" in told
    about = json.loads((out / "model" / "task.json").read_text())
    assert about["task"] == "answer"
    assert "threshold" in about
    code, told, err = filbert("evaluate", out, "--data", data, "--json")
    assert code == 0, err
    measured = json.loads(told)
    assert (measured["num_examples"], measured["num_unanswerable"]) == (12, 3)
    code, told, err = filbert("evaluate", out, "--data", data)
    assert "12 questions, 3 without an answer" in told
    code, said, err = filbert("predict", out, "--data", data, "--json", "--top", "2")
    assert code == 0, err
    found = json.loads(said)["predictions"]
    assert len(found) == 12
    for row in found:
        assert len(row["candidates"]) <= 2
        assert row["answer"] == "" or row["answer"] == row["second"][row["start"] : row["end"]]
    code, said, _ = filbert("predict", out, "--pair", "第一个是什么？", FILL * 80 + "第一个是《今天》。")
    assert code == 0
    assert json.loads(said)["coverage"] == 1.0
    code, _, err = filbert("predict", out, "--text", "alone")
    assert code == 2


@pytest.mark.slow
def test_killed_and_resumed_it_has_the_same_weights(cut_short: Callable[..., tuple[bytes, bytes]]) -> None:
    settings = ["train.batch_tokens=256", "train.checkpoint_every=2", "task.max_length=64", "task.overlap=16",
                "task.mask_prob=0.1", "model.dropout=0.1"]  # fmt: skip
    whole, cut = cut_short("answer", made(16, 3), settings)
    assert whole == cut
