"""Choices: any number of options, long passages in windows, a softmax over ragged sets; readers and the commands."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core import registry
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.folder import folder as folders
from filbert.forms.datasets import examples
from filbert.metrics.intervals import wilson
from filbert.models import bert
from filbert.nn.torch_ops import TorchHost
from filbert.run.finetune import finetune
from filbert.tasks.choose import items as choose
from filbert.tasks.choose import spec as choose_spec
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import encode_windows
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.models import noisy, small_bert

FILL = "我们坐火车去公园，今天天气很好。"
NAMES = ("医生", "公园", "火车", "天气", "我们")

pytestmark = pytest.mark.usefixtures("one_thread")


def made(count: int = 8, before: int = 0) -> list[Example]:
    """Two to four options of which the passage, at its end, says one."""
    found = []
    for index in range(count):
        options = [NAMES[(index + step) % 5] for step in range(2 + index % 3)]
        gold = index * 7 % len(options)
        text = FILL * before + f"好的是{options[gold]}"
        found.append(Example((text, "什么好？", *options), gold, index, "mc.jsonl", index + 1))
    return found


def task_of(tokenizer: Tokenizer, given: list[Example], **fields: Any) -> choose.Items:
    return choose.Items(given, (), tokenizer, choose_spec.Config(**{"max_length": 48, "overlap": 8, **fields}))


def model_for(task: choose.Items, tokenizer: Tokenizer, max_length: int = 64) -> bert.Bert:
    return small_bert(tokenizer, task.parts, 0, max_length=max_length)


def raw(task: choose.Items, model: bert.Bert, indices: list[int]) -> list[Any]:
    with torch.inference_mode():
        return list(task.raw(TorchHost(model), on_device(task.batch(np.array(indices)), "cpu")))


@pytest.mark.parametrize("pool", ["mean", "cls"])
@pytest.mark.parametrize("before", [0, 6])
def test_packed_equals_one_by_one_and_the_one_rule(tokenizer: Tokenizer, pool: str, before: int) -> None:
    given = [*made(7, before), Example(("", "", "医生", "😀"), None), Example((FILL, "", "", "天气", ""), 1)]
    task = task_of(tokenizer, given, pool=pool)
    assert (len(task.cuts.first) > task.options[-1]) == (before > 0)
    model = model_for(task, tokenizer)
    together = raw(task, model, list(range(9)))
    filled = on_device(task.batch(np.arange(9), budget=16_384), "cpu")
    with torch.inference_mode():
        for one, two in zip(together, task.raw(TorchHost(model), filled), strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5)
    assert task.lengths.tolist() == [int(task.batch(np.array([i])).packed.num_tokens) for i in range(9)]
    for index, example in enumerate(given):
        passage, question, *options = example.texts
        alone = task_of(tokenizer, [example], pool=pool)
        np.testing.assert_allclose(raw(alone, model, [0])[0], together[index], atol=1e-5)
        rows = alone.batch(np.array([0]))
        ids = [rows.packed.ids[start:].tolist() for start in rows.starts]
        segments = [rows.packed.segments[start:].tolist() for start in rows.starts]
        wanted = []
        for option in options:
            # The question is what is repeated, so it stands first for the rule and second for the model.
            windows = encode_windows(tokenizer, f"{question} {option}".strip(), passage, max_length=48, overlap=8)
            for window in windows:
                asked, read = (window.ids[window.parts == part].tolist() for part in (0, 1))
                wanted.append([tokenizer.cls_id, *read, tokenizer.sep_id, *asked, tokenizer.sep_id])
        assert [row[: len(want)] for row, want in zip(ids, wanted, strict=True)] == wanted
        for row, want in zip(segments, wanted, strict=True):
            middle = want.index(tokenizer.sep_id)
            assert row[: len(want)] == [0] * (middle + 1) + [1] * (len(want) - middle - 1)


def test_the_loss_is_a_softmax_over_each_questions_options(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, [*made(6), Example((FILL, "", "医生", "天气"), None)], label_smoothing=0.2)
    assert task.has_unknown
    model = model_for(task, tokenizer)
    batch = task.batch(np.arange(7))
    assert task.counts(batch) == {"label_loss": 6}
    scores = [torch.from_numpy(each).double() for each in raw(task, model, list(range(6)))]
    for training, smoothing in ((False, 0.0), (True, 0.2)):
        terms = task.loss(model.train(training), on_device(batch, "cpu"))
        wanted = sum(
            torch.nn.functional.cross_entropy(own[None], torch.tensor([gold]), label_smoothing=smoothing).item()
            for own, gold in zip(scores, task.gold[:6].tolist(), strict=True)
        )
        assert terms["label_loss"].total.item() == pytest.approx(wanted, rel=1e-4)
        assert int(terms["label_loss"].count) == 6
    right = sum(int(own.argmax()) == gold for own, gold in zip(scores, task.gold[:6].tolist(), strict=True))
    assert int(terms["accuracy"].total) == right
    terms["label_loss"].total.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_a_model_that_says_the_same_of_all_options_is_right_about_none(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(6))
    model = model_for(task, tokenizer)
    torch.nn.init.zeros_(model.heads["choice"].weight)
    assert int(task.loss(model, on_device(task.batch(np.arange(6)), "cpu"))["accuracy"].total) == 0


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_eight_questions_are_learnt(tokenizer: Tokenizer, pool: str) -> None:
    task = task_of(tokenizer, made(8), pool=pool)
    model = model_for(task, tokenizer)
    steps = loop.Config(steps=300, learning_rate=2e-3, batch_tokens=4_096)
    loop.fit(model, task, steps, lambda line: None, machine=machine.Config(threads=1))
    found = raw(task, model.eval(), list(range(8)))
    assert task.evaluated(found)["accuracy"] == 1
    assert [p.label for p in task.predictions(found)] == [e.texts[2 + e.gold] for e in made(8)]


@pytest.mark.slow
def test_a_fact_after_token_512_is_found(tokenizer: Tokenizer) -> None:
    def told(before: int) -> list[Example]:
        ways = [(options, gold) for options in (("医生", "公园"), ("公园", "医生")) for gold in (0, 1)]
        return [Example((f"{FILL * before}好的是{o[gold]}", "什么好？", *o), gold) for o, gold in ways]

    assert len(tokenizer.encode(FILL * 34).ids) > 512
    task = task_of(tokenizer, told(0) * 4 + told(34), max_length=256, overlap=16, pool="cls")
    model = model_for(task, tokenizer, max_length=256)
    steps = loop.Config(steps=80, learning_rate=5e-3, batch_tokens=8_192)
    loop.fit(model, task, steps, lambda line: None, machine=machine.Config(threads=1))
    said = task.predictions(raw(task, model.eval(), list(range(20))))
    assert [p.label for p in said] == [e.texts[2 + e.gold] for e in task.examples]
    assert all(p.coverage == 1 for p in said)


def test_gold_against_itself_is_perfect_and_baselines_need_no_reading(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(9))
    told = task.evaluated([np.eye(4)[gold][: 2 + i % 3] * 50 for i, gold in enumerate(task.gold)])
    assert (told["accuracy"], told["num_examples"], told["intervals"]["accuracy"]) == (1, 9, list(wilson(9, 9)))
    assert told["chance_accuracy"] == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)
    assert told["majority_accuracy"] == np.bincount(task.gold).max() / 9
    assert told["loss"] == pytest.approx(0, abs=1e-6)
    alike = task_of(tokenizer, [Example((FILL, "", "五块", "六块", "五块"), 0)])
    assert alike.evaluated([np.array([1.0, 0.0, 2.0])])["accuracy"] == 1  # the same words are the same answer


def test_a_published_folder_is_read_as_transformers_reads_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=64, **shape)
    torch.manual_seed(3)
    theirs = transformers.BertForMultipleChoice(config).eval()
    noisy(theirs, 0.1)
    theirs.save_pretrained(tmp_path / "m")
    tokenizer.save(tmp_path / "m")
    model = fb.load(tmp_path / "m")
    assert model.task() == "choose"
    words = transformers.BertTokenizerFast.from_pretrained(tmp_path / "m")
    said = model.predict([(e.texts[0], e.texts[1], e.texts[2:]) for e in made(6)])
    for example, found in zip(made(6), said, strict=True):
        passage, question, *options = example.texts
        given = words([passage] * len(options), [f"{question} {o}" for o in options], return_tensors="pt", padding=True)
        with torch.inference_mode():
            wanted = theirs(**{name: value[None] for name, value in given.items()}).logits[0].softmax(-1)
        np.testing.assert_allclose([found.scores[option] for option in options], wanted.numpy(), atol=1e-5)
        assert found.label == options[int(wanted.argmax())]
    for pool, name in (("cls", "BertForMultipleChoice"), ("mean", "BertModel")):
        task = task_of(tokenizer, made(3), pool=pool)
        own = model_for(task, tokenizer)
        folders.save(tmp_path / pool, own, tokenizer)
        assert transformers.AutoConfig.from_pretrained(tmp_path / pool).architectures == [name]
        again = folders.load(tmp_path / pool).model
        assert all(torch.equal(value, again.state_dict()[key]) for key, value in own.state_dict().items())
        found = fb.load(tmp_path / pool).predict([(FILL, "什么好？", ["天气", "医生"])])[0]
        asked = Example((FILL, "什么好？", "天气", "医生"))
        wanted = raw(task_of(tokenizer, [asked], pool=pool, max_length=64), own, [0])
        shares = torch.from_numpy(wanted[0]).softmax(-1).tolist()
        assert [found.scores["天气"], found.scores["医生"]] == pytest.approx(shares, abs=1e-5)


def test_saved_and_loaded_it_says_the_same(tiny_folder: Path, tmp_path: Path) -> None:
    more: dict[str, Any] = {"settings": ["machine.threads=1", "task.max_length=48"], "quiet": True}
    done = finetune("choose", made(12), tiny_folder, tmp_path / "r", dev=made(6), epochs=2, **more)
    assert (done.labels, done.watched) == ((), "accuracy")
    kept = json.loads((tmp_path / "r" / "model" / "task.json").read_text(encoding="utf-8"))
    assert kept.pop("temperature") > 0  # fitted on the dev data
    assert kept == {"task": "choose", "max_length": 48, "overlap": 128, "pool": "cls"}
    model = fb.load(tmp_path / "r")
    for name, value in done.module.state_dict().items():
        assert torch.equal(value, model.backbone.state_dict()[name]), name
    (said,) = model.predict([(FILL * 20, "什么好？", ["天气", "医生", "公园"])])
    assert said.label == max(said.scores, key=lambda option: said.scores[option])
    assert sum(said.scores.values()) == pytest.approx(1)
    assert said.coverage == 1
    assert model.predict([]) == []
    for wrong in ("天气", ("天气", "什么"), (FILL, "什么", "天气"), (FILL, 3, ["天气"]), (FILL, "", ["天气", 1])):
        with pytest.raises(InputError, match=r"question 0 is .* must be \(passage, question, \[option"):
            model.predict([wrong])  # type: ignore[list-item]
    with pytest.raises(InputError, match="example 1: has 1 options, but needs"):
        model.predict([(FILL, "", ["天气", "医生"]), (FILL, "", ["天气"])])


@pytest.mark.parametrize(
    ("family", "settings", "pool"),
    [("bert", [], "cls"), ("bert", ["tune.method=frozen"], "mean"), ("bert", ["task.pool=mean"], "mean"),
     ("gpt", [], "mean"), ("han", [], "own")],
)  # fmt: skip
def test_a_text_is_summed_up_by_the_first_token_where_that_reads_all(
    family: str, settings: list[str], pool: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """The first token of a GPT has read nothing but itself; a pooler that is new helps no encoder that stays."""
    spec = registry.model(family)
    model = spec.model(spec.preset("tiny", tokenizer.vocab_size), (), 2)
    folders.save(tmp_path / "start", model, tokenizer)
    more = {"settings": ["machine.threads=1", "train.steps=1", *settings], "quiet": True}
    finetune("choose", made(6), tmp_path / "start", tmp_path / "run", **more)
    assert json.loads((tmp_path / "run" / "recipe.json").read_text(encoding="utf-8"))["task"]["pool"] == pool


@pytest.mark.slow
def test_killed_and_resumed_it_has_the_same_weights(cut_short: Callable[..., tuple[bytes, bytes]]) -> None:
    settings = ["train.batch_tokens=128", "train.checkpoint_every=2", "task.max_length=32", "task.mask_prob=0.1"]
    whole, cut = cut_short("choose", made(12, 1), [*settings, "task.pool=cls", "model.dropout=0.1"])
    assert whole == cut


# Files ----------------------------------------------------------------------------------------------------------------


def rows_of(path: Path, rows: list[dict[str, Any]]) -> list[tuple[tuple[str, ...], Any, int]]:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return [(example.texts, example.gold, example.line) for example in examples(path, "choose")]


@pytest.mark.parametrize(
    ("answer", "gold"), [(1, 1), ("南方", 1), ("1", 1), ("B", 1), ("b", 1), ("A", 0), (None, None)]
)
def test_rows_name_the_answer_in_several_ways(tmp_path: Path, answer: Any, gold: int | None) -> None:
    row = {"passage": "去南方", "question": "去哪？", "choices": ["北方", "南方"], "answer": answer}
    assert rows_of(tmp_path / "a.jsonl", [row]) == [(("去南方", "去哪？", "北方", "南方"), gold, 1)]
    other = {"context": "去南方", "options": ["北方", "南方"], "label": answer}
    assert rows_of(tmp_path / "b.jsonl", [other]) == [(("去南方", "", "北方", "南方"), gold, 1)]


def test_options_may_be_columns_or_numbers(tmp_path: Path) -> None:
    path = tmp_path / "swag.csv"
    rows = ["sent1,sent2,ending0,ending1,ending2,label", "去,南方,吃,喝,,1", "去,北方,吃,喝,看,2", ""]
    path.write_text("\n".join(rows), encoding="utf-8")
    found = [(example.texts, example.gold, example.line) for example in examples(path, "choose")]
    assert found == [(("去", "南方", "吃", "喝"), 1, 2), (("去", "北方", "吃", "喝", "看"), 2, 3)]
    path = tmp_path / "plain.csv"
    path.write_text("context,ending0,ending1,label\n去,吃,喝,0\n", encoding="utf-8")
    assert [(e.texts, e.gold) for e in examples(path, "choose")] == [(("去", "", "吃", "喝"), 0)]
    digits = {"context": "三", "options": ["3", "1", "0"], "label": "1"}  # the text comes before the number
    assert [gold for _, gold, _ in rows_of(tmp_path / "a.jsonl", [digits, {**digits, "label": 0}])] == [1, 0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": 2}, r"a\.jsonl line 2: the answer 2 is not exactly one of the 2 choices; .* counted from 0"),
        ({"label": -1}, "line 2: the answer -1 is not"),
        ({"label": "西方"}, "line 2: the answer '西方' is not"),
        ({"label": "C"}, "line 2: the answer 'C' is not"),
        ({"label": True}, "line 2: the answer True is not"),
        ({"label": [1]}, r"line 2: the answer \[1\] is not"),
        ({"options": ["北方"]}, "line 2: needs two options or more"),
        ({"options": "北方"}, "line 2: needs two options or more"),
        ({"options": ["北方", 3]}, "line 2: needs two options or more"),
        ({"options": None}, "line 2: needs two options or more"),
        ({"context": None}, "line 2: the field 'context' is missing"),
    ],
)
def test_wrong_rows_are_named_with_file_and_line(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    good = {"context": "去南方", "options": ["北方", "南方"], "label": 1}
    with pytest.raises(InputError, match=message):
        rows_of(tmp_path / "a.jsonl", [good, {**good, **row}])


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "count", "mended"),
    [("mc_c3/c3-d-train", 5_856, 1), ("mc_c3/c3-m-dev", 1_991, 0), ("mc_dream/test", 2_041, 0)],
)
def test_real_files(shared: Path, tokenizer: Tokenizer, name: str, count: int, mended: int) -> None:
    reading = Reading()
    given = list(examples(shared / f"data/{name}.json.xz", "choose", reading=reading))
    assert len(given) == count
    assert sum(reading.report.others.values()) == mended
    task = task_of(tokenizer, given[:400], max_length=64, overlap=16)
    assert task.evaluated([np.zeros(n) for n in np.diff(task.options)])["accuracy"] > 0.15
    assert int(task.lengths.sum()) == int(task.batch(np.arange(400)).packed.num_tokens)


# From files to answers ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.shared
def test_the_commands(shared: Path, tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    with lzma.open(shared / "data/mc_c3/c3-d-dev.json.xz", "rt", encoding="utf-8") as file:
        entries = [entry for entry in json.load(file) if sum(map(len, entry[0])) < 50][:200]
    train, dev = tmp_path / "train.json", tmp_path / "dev.json"
    train.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    dev.write_text(json.dumps(entries[:20], ensure_ascii=False), encoding="utf-8")
    count = sum(len(entry[1]) for entry in entries[:20])
    out = tmp_path / "run"
    words = ("--train", train, "--dev", dev, "--model", tiny_folder, "--out", out, "--epochs", "1")
    code, told, err = filbert("finetune", "choose", *words, "--set", "machine.threads=1")
    assert code == 0, err
    assert "accuracy" in told
    code, told, err = filbert("evaluate", out, "--data", dev, "--json")
    assert code == 0, err
    measured = json.loads(told)
    assert measured["num_examples"] == count
    assert {"majority_accuracy", "chance_accuracy"} <= set(measured)
    code, told, err = filbert("evaluate", out, "--data", dev)
    assert code == 0, err
    results = tmp_path / "said.jsonl"
    code, _, err = filbert("predict", out, "--data", dev, "--out", results)
    assert code == 0, err
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [row["second"] for row in rows] == [asked["question"] for entry in entries[:20] for asked in entry[1]]
    for row in rows:
        assert row["options"][row["choice"]] == row["answer"]
        assert row["score"] == row["scores"][row["answer"]] == max(row["scores"].values())
        assert list(row["scores"]) == sorted(row["scores"], key=lambda option: -row["scores"][option])
    assert np.mean([row["choice"] == row["gold"] for row in rows]) == pytest.approx(measured["accuracy"])
    results.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows[:9]), encoding="utf-8")
    code, _, err = filbert("predict", out, "--data", dev, "--out", results, "--resume")
    assert code == 0, err
    assert len(results.read_text(encoding="utf-8").splitlines()) == count
    code, _, err = filbert("predict", out, "--text", "去哪？")
    assert code == 2
    assert "this model chooses among options; on the command line, give them as --data" in err


def test_what_cannot_be_learnt_is_named(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mc\.jsonl line 7: has 1 options, but needs"):
        finetune("choose", [Example((FILL, "", "天气"), 0, 0, "mc.jsonl", 7)], tiny_folder, tmp_path / "x")
    for gold in (2, -1, "天气", True):
        with pytest.raises(InputError, match=r"example 0: the answer is .* number from 0 to 1"):
            finetune("choose", [Example((FILL, "", "天气", "医生"), gold)], tiny_folder, tmp_path / "x")
    with pytest.raises(InputError, match="has no labels"):
        finetune("choose", [Example((FILL, "", "天气", "医生"))], tiny_folder, tmp_path / "x")
    for fields in ({"max_length": 3}, {"overlap": -1}, {"pool": "max"}, {"mask_prob": 1.0}, {"label_smoothing": -1.0}):
        with pytest.raises(InputError, match=next(iter(fields))):
            choose_spec.Config(**fields)  # type: ignore[arg-type]
