"""Tags: every token answered for by one window, spans in the text's own characters, and the commands on them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example, Span
from filbert.folder import folder as folders
from filbert.models import bert
from filbert.nn.torch_ops import TorchHost
from filbert.tasks.tag import decode
from filbert.tasks.tag import items as tag
from filbert.tasks.tag import spec as tag_spec
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import encode_windows
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.models import small_bert
from kit.windows import by_owner

FILL = "我们坐火车去公园，今天天气很好。"
NAMES = {"PER": ("医生", "我们"), "LOC": ("公园", "火车站")}


pytestmark = pytest.mark.usefixtures("one_thread")


def made(count: int = 8, before: int = 0) -> list[Example]:
    """A name in one kind of brackets is a person, in another a place."""
    found = []
    for index in range(count):
        text, spans = FILL * before, []
        for kind, name in (("PER", NAMES["PER"][index % 2]), ("LOC", NAMES["LOC"][index // 2 % 2])):
            left, right = "《》" if kind == "PER" else "（）"
            text += "今天" + left
            spans.append(Span(len(text), len(text) + len(name), kind))
            text += name + right
        found.append(Example((text + "很好。",), tuple(spans), index, "ner.jsonl", index + 1))
    return found


def task_of(tokenizer: Tokenizer, examples: list[Example], **fields: Any) -> tag.Items:
    config = tag_spec.Config(**{"max_length": 32, "overlap": 8, **fields})
    return tag_spec.items(examples, tag_spec.label_names(config, made(8)), tokenizer, config)


def model_for(task: tag.Items, tokenizer: Tokenizer, noise: float = 0.1) -> bert.Bert:
    return small_bert(tokenizer, ("tokens",), len(task.labels), noise=noise)


def raw(task: tag.Items, model: bert.Bert, indices: list[int]) -> Any:
    with torch.inference_mode():
        return task.raw(TorchHost(model), on_device(task.batch(np.array(indices)), "cpu"))


@pytest.mark.parametrize("before", [0, 6])
def test_packed_equals_one_by_one_and_the_one_rule(tokenizer: Tokenizer, before: int) -> None:
    examples = [*made(6, before), Example(("",), ()), Example((FILL,), None)]
    task = task_of(tokenizer, examples)
    assert (len(task.cuts.first) > 8) == (before > 0)
    model = model_for(task, tokenizer)
    together = raw(task, model, list(range(8)))
    for index, example in enumerate(examples):
        windows = encode_windows(tokenizer, example.texts[0], max_length=32, overlap=8)
        alone = [raw(task_of(tokenizer, [example]), model, [0])[0]]
        np.testing.assert_allclose(together[index], alone[0], atol=1e-5)
        hidden = []
        for window in windows:
            packed = task_of(tokenizer, [example]).batch(np.array([0])).packed
            edges = packed.boundaries.tolist()
            rows = [packed.ids[begin:end].tolist() for begin, end in itertools.pairwise(edges)]
            at = [place for place, row in enumerate(rows) if row == window.ids.tolist()]
            assert at
            batch = on_device(task_of(tokenizer, [example]).batch(np.array([0])), "cpu")
            with torch.inference_mode():
                scores = task.scores(TorchHost(model), batch).numpy()
            hidden.append(scores[packed.boundaries[at[0]] : packed.boundaries[at[0] + 1]])
        np.testing.assert_allclose(together[index], by_owner(windows, hidden), atol=1e-5)


def test_every_token_is_learnt_once_with_its_own_tag(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(6, 5))
    batch = task.batch(np.arange(6), budget=2_048)
    known = batch.targets["tags"] != tag.NOTHING
    assert known.sum() == len(task.ids) == task.counts(batch)["tag_loss"]
    assert sorted(batch.packed.ids[known].tolist()) == sorted(task.ids.tolist())
    names = [task.labels[place] for place in task.gold[: task.pieces.boundaries[1]]]
    spans = decode.spans(decode.entities(names, "bio"), task.pieces[0].starts, task.pieces[0].ends)
    assert [(s.start, s.end, s.label) for s in spans] == [(s.start, s.end, s.label) for s in made(6, 5)[0].gold]
    model = model_for(task, tokenizer)
    terms = task.loss(model, on_device(batch, "cpu"))
    scores = np.concatenate(raw(task, model, list(range(6))))
    shares = torch.from_numpy(scores).double().log_softmax(-1)[torch.arange(len(scores)), torch.from_numpy(task.gold)]
    assert terms["tag_loss"].total.item() == pytest.approx(-shares.sum().item(), rel=1e-4)
    said = scores.argmax(-1)
    assert terms["tag_accuracy"].total.item() == (said == task.gold).sum()
    right = ((said == task.gold) & (task.gold != 0)).sum()
    assert terms["tag_f1"].total.item() == 2 * right
    assert int(terms["tag_f1"].count) == (said != 0).sum() + (task.gold != 0).sum()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_examples_are_learnt_and_a_late_name_is_found(tokenizer: Tokenizer, scheme: str) -> None:
    examples = made(8) * 4 + made(4, 35)
    task = task_of(tokenizer, examples, scheme=scheme)
    assert len(tokenizer.encode(examples[-1].texts[0][: examples[-1].gold[0].start]).ids) > 512
    model = model_for(task, tokenizer, 0.0)
    steps = loop.Config(steps=250, learning_rate=3e-3, batch_tokens=1_024)
    loop.fit(model, task, steps, lambda line: None, machine=machine.Config(threads=1))
    found = raw(task, model.eval(), list(range(len(examples))))
    told = task.evaluated(found)
    assert told["f1"] > 0.95
    last = task.predictions(found)[-1]
    assert {(s.start, s.end, s.label) for s in last.spans} >= {(s.start, s.end, s.label) for s in examples[-1].gold}
    for span in last.spans:
        assert 0 < span.score <= 1


def test_gold_against_itself_is_perfect(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(10, 3), scheme="bioes")
    perfect = [
        np.eye(len(task.labels))[task.gold[a:b]] * 20
        for a, b in zip(task.pieces.boundaries[:-1], task.pieces.boundaries[1:], strict=True)
    ]
    told = task.evaluated(perfect)
    assert (told["f1"], told["macro_f1"], told["num_entities"]) == (1, 1, 20)


def test_what_is_not_learnt_as_it_stands_is_counted_and_unknown_kinds_are_named(tokenizer: Tokenizer) -> None:
    text = "我们 坐火车去公园"
    spans = (Span(0, 3, "PER"), Span(4, 8, "LOC"), Span(4, 6, "LOC"))
    task = task_of(tokenizer, [Example((text,), spans)])
    assert task.changed["loose"] == 1
    assert task.changed["overlapping"] == 1
    assert [remark.split()[0] for remark in task.remarks()] == ["1", "1"]
    with pytest.raises(InputError, match=r"x\.jsonl line 3: the kind of a span is 'PRE'.*Did you mean 'PER'"):
        task_of(tokenizer, [Example((text,), (Span(0, 2, "PRE"),), 0, "x.jsonl", 3)])
    with pytest.raises(InputError, match="holds no spans"):
        tag_spec.label_names(tag_spec.Config(), [Example((text,), ())])
    for fields in (
        {"max_length": 3},
        {"overlap": -1},
        {"scheme": "iob"},
        {"mask_prob": 1.0},
        {"label_smoothing": -1.0},
    ):
        with pytest.raises(InputError, match=next(iter(fields))):
            tag_spec.Config(**fields)


def test_a_published_folder_is_read_as_transformers_reads_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    task = task_of(tokenizer, made(4), max_length=64)
    model = model_for(task, tokenizer)
    folders.save(tmp_path / "m", model, tokenizer, labels=task.labels)
    theirs = transformers.BertForTokenClassification.from_pretrained(tmp_path / "m").eval()
    for index, example in enumerate(made(4)):
        (window,) = encode_windows(tokenizer, example.texts[0], max_length=64)
        with torch.inference_mode():
            wanted = theirs(torch.from_numpy(window.ids)[None].long()).logits[0, 1:-1].numpy()
        np.testing.assert_allclose(raw(task, model, [index])[0], wanted, atol=1e-5)
    ended = task_of(tokenizer, made(4), scheme="bioes")
    folders.save(tmp_path / "e", model_for(ended, tokenizer), tokenizer, labels=ended.labels)
    assert len(fb.load(tmp_path / "e").predict([FILL])) == 1  # the tags say that it is bioes
    folders.save(tmp_path / "o", model, tokenizer, labels=[f"B-{n}" for n in range(len(task.labels))])
    assert len(fb.load(tmp_path / "o").predict([FILL])) == 1  # without O every token begins a span
    loaded = fb.load(tmp_path / "m")
    assert loaded.task() == "tag"
    assert len(loaded.predict([FILL * 40, ""])) == 2


@pytest.mark.slow
def test_the_commands(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., tuple[int, str, str]]) -> None:
    conll = tmp_path / "train.txt"
    lines = []
    for example in made(16):
        tags = ["O"] * len(example.texts[0])
        for span in example.gold:
            tags[span.start : span.end] = [f"B-{span.label}", *[f"I-{span.label}"] * (span.end - span.start - 1)]
        lines += [f"{char} {name}" for char, name in zip(example.texts[0], tags, strict=True)] + [""]
    conll.write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "run"
    settings = ["--set", "machine.threads=1", "--set", "train.batch_tokens=256", "--set", "train.learning_rate=3e-3"]
    code, told, err = filbert("finetune", "tag", "--train", conll, "--dev", conll, "--model", tiny_folder, "--out", out,
                          *settings, "--epochs", "12")  # fmt: skip
    assert code == 0, err
    assert "tag_f1" in told
    code, told, err = filbert("evaluate", out, "--data", conll, "--json")
    assert code == 0, err
    measured = json.loads(told)
    assert measured["num_entities"] == 32
    code, told, _ = filbert("evaluate", out, "--data", conll)
    assert "32 spans in 16 texts" in told
    code, said, err = filbert("predict", out, "--text", "今天《医生》很好", "--text", "")
    assert code == 0, err
    rows = [json.loads(line) for line in said.splitlines()]
    assert [row["text"] for row in rows] == ["今天《医生》很好", ""]
    assert rows[1]["entities"] == []
    for entity in rows[0]["entities"]:
        assert rows[0]["text"][entity["start"] : entity["end"]] == entity["text"]
    if measured["f1"] == 1:
        assert [(e["text"], e["label"]) for e in rows[0]["entities"]] == [("医生", "PER")]


@pytest.mark.slow
def test_killed_and_resumed_it_has_the_same_weights(cut_short: Callable[..., tuple[bytes, bytes]]) -> None:
    settings = ["train.batch_tokens=128", "train.checkpoint_every=2", "task.max_length=32", "task.overlap=8",
                "task.mask_prob=0.1", "model.dropout=0.1"]  # fmt: skip
    whole, cut = cut_short("tag", made(16, 1), settings)
    assert whole == cut
