"""Labels by filling a blank: the template whole around every window, words of any length, priors; and the commands."""

from __future__ import annotations

import itertools
import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.protocols import Item
from filbert.core.records import Encoding, Example
from filbert.engine.answers import peeked
from filbert.folder import folder as folders
from filbert.models import bert
from filbert.nn.torch_ops import TorchHost
from filbert.pack.lay import collate
from filbert.run.finetune import finetune
from filbert.tasks.blank import items as blank
from filbert.tasks.blank import spec as blank_spec
from filbert.text.tokenizer import Tokenizer
from filbert.text.windows import windows
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.models import small_bert

TEMPLATE = "今天很[MASK]，{text}我们。"
WORDS = "good=好|天气,bad=火车站"  # one, two and three tokens
LABELS = ("good", "bad")
FILL = "我们坐火车去公园，今天天气很好。"


pytestmark = pytest.mark.usefixtures("one_thread")


def made(count: int = 8, before: int = 0) -> list[Example]:
    """What a text ends with says its label."""
    ends = {"good": ("公园", "船"), "bad": ("云", "风")}
    return [
        Example((FILL * before + FILL[: index % 5] + ends[label][index // 2 % 2],), label, index, "few.tsv", index + 1)
        for index, label in ((index, LABELS[index % 2]) for index in range(count))
    ]


def task_of(tokenizer: Tokenizer, examples: list[Example], **fields: Any) -> blank.Items:
    config = blank_spec.Config(**{"template": TEMPLATE, "words": WORDS, "max_length": 32, "overlap": 6, **fields})
    return blank.Items(examples, blank_spec.label_names(config, examples) or LABELS, tokenizer, config)


def model_for(tokenizer: Tokenizer, noise: float = 0.1) -> bert.Bert:
    return small_bert(tokenizer, ("mlm",), noise=noise)


def scores(task: blank.Items, model: bert.Bert, indices: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return task.scores(TorchHost(model), on_device(task.batch(np.array(indices)), "cpu"))


def by_hand(tokenizer: Tokenizer, model: bert.Bert, text: str, word: str, max_length: int = 32) -> float:
    """The mean log-probability of a word's tokens in the blank of TEMPLATE, window by window, without any packing."""
    ids = tokenizer.pieces([word])[0].ids
    before, after = (tokenizer.pieces([part])[0].ids.tolist() for part in ("今天很", "，"))
    last = tokenizer.pieces(["我们。"])[0].ids.tolist()
    tokens = tokenizer.pieces([text])[0].ids.tolist()
    longest = len(before) + 3 + len(after) + len(last) + 2  # three: the longest of WORDS
    total = weight = 0.0
    room = max_length - longest
    for window in windows(len(tokens), room, min(6, room // 2)):
        inside = [*before, *[tokenizer.mask_id] * len(ids), *after, *tokens[window.start : window.end], *last]
        row = [tokenizer.cls_id, *inside, tokenizer.sep_id]
        one = np.array(row, dtype=np.int32)
        zeros = np.zeros_like(one)
        packed = on_device(collate([Item((Encoding(one, zeros, zeros, zeros, zeros),), {})]), "cpu").packed
        with torch.inference_mode():
            logs = model.word_scores(model(packed)).log_softmax(-1)
        first = 1 + len(before)
        share = float(np.mean([logs[first + place, token].item() for place, token in enumerate(ids)]))
        owned = max(1, window.own_end - window.own_start)
        total, weight = total + owned * share, weight + owned
    return total / weight


@pytest.mark.parametrize("before", [0, 5])
def test_scores_are_those_by_hand_and_packing_changes_nothing(tokenizer: Tokenizer, before: int) -> None:
    examples = [*made(6, before), Example(("",)), Example(("🙂[MASK] {text}",))]
    task = task_of(tokenizer, examples)
    kinds = len(task.words.lengths)
    assert kinds == 3
    assert (len(task.cuts.first) > kinds * len(task)) == (before > 0)
    assert task.window_tokens.max() <= 32
    model = model_for(tokenizer)
    together = scores(task, model, list(range(8)))
    alone = torch.cat([scores(task, model, [index]) for index in range(8)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    filled = task.batch(np.arange(8), budget=4_096)
    with torch.inference_mode():
        torch.testing.assert_close(task.scores(TorchHost(model), on_device(filled, "cpu")), alone, atol=1e-5, rtol=0)
        by_items = collate([task.item(index, 0) for index in range(8)])
        torch.testing.assert_close(task.scores(TorchHost(model), on_device(by_items, "cpu")), alone, atol=1e-5, rtol=0)
    for index in (0, 3, 6, 7):
        good, fine, bad = (by_hand(tokenizer, model, examples[index].texts[0], w) for w in ("好", "天气", "火车站"))
        assert alone[index].tolist() == pytest.approx([(good + fine) / 2, bad], abs=1e-4)


def test_blanks_lie_where_the_template_has_them_and_nowhere_else(tokenizer: Tokenizer) -> None:
    example = Example(("[MASK]{text}[MASK]",))
    for template in ("{text}很[MASK]。", "很[MASK][MASK] [MASK]：{text}", "[MASK]{text}"):
        task = task_of(tokenizer, [example, *made(3, 4)], template=template)
        batch = task.batch(np.arange(4))
        blanks = np.flatnonzero(batch.packed.ids == tokenizer.mask_id)
        assert sorted(batch.targets["blank_rows"].ravel().tolist()) == blanks.tolist()
        before, after = blank_spec.frame(template, 1)
        assert (before + after).count("[MASK]") == 1


def test_every_window_has_the_whole_template_and_every_token_is_read(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(3, 6), words="good=好,bad=云")
    batch = task.batch(np.arange(3))
    edges = batch.packed.boundaries.tolist()
    before, after = (tokenizer.pieces([part], specials=True)[0].ids.tolist() for part in blank_spec.frame(TEMPLATE, 1))
    for start, end in itertools.pairwise(edges):
        row = batch.packed.ids[start:end].tolist()
        assert row[1 : 1 + len(before)] == before
        assert row[-1 - len(after) : -1] == after
    owned = task.cuts.first[:, 2:]
    read = np.concatenate([task.ids[start:end] for start, end in owned])
    assert read.tolist() == tokenizer.pieces([e.texts[0] for e in made(3, 6)]).ids.tolist()


def test_what_comes_late_in_a_text_changes_its_scores(tokenizer: Tokenizer) -> None:
    long = FILL * 40
    examples = [Example((long + "公园",)), Example((long + "云",))]
    task = task_of(tokenizer, examples)
    assert len(tokenizer.pieces([long])[0].ids) > 512
    assert len(task.cuts.first) > 20
    one, two = scores(task, model_for(tokenizer, 0.3), [0, 1])
    assert (one - two).abs().max() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("words", [WORDS, "good=好,bad=云"])
def test_eight_examples_are_learnt(tokenizer: Tokenizer, words: str) -> None:
    config = {"words": words, "consistency": 0.5, "mask_prob": 0.05, "offsets": "-3,-5"}
    task = task_of(tokenizer, made(8), **config)
    model = model_for(tokenizer)
    steps = loop.Config(steps=120, learning_rate=3e-3, batch_tokens=4_096)
    loop.fit(model, task, steps, lambda line: None, machine=machine.Config(threads=1))
    assert scores(task, model.eval(), list(range(8))).argmax(-1).tolist() == task.gold.tolist()


def test_gold_against_itself_is_perfect(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(10), offsets="-1,3")
    told = task.evaluated(list(np.eye(2)[task.gold] * 20 + [-1, 3]))
    assert (told["accuracy"], told["f1"]) == (1, 1)


@pytest.mark.slow
def test_a_prior_is_taken_from_the_scores(tokenizer: Tokenizer) -> None:
    model, examples = model_for(tokenizer), made(40)
    asked = [e.texts[0] for e in examples]

    def answers(task: blank.Items) -> list[Any]:
        with torch.inference_mode():
            return list(task.raw(TorchHost(model), on_device(task.batch(np.arange(len(task))), "cpu")))

    def offsets(prior: str, texts: list[str]) -> list[float]:
        config = replace(task_of(tokenizer, []).config, prior=prior)
        return list(blank_spec.numbers(blank_spec.primed(config, LABELS, tokenizer, texts, answers).offsets))

    empty = np.array(answers(task_of(tokenizer, [Example(("",))])))[0]
    own = np.array(answers(task_of(tokenizer, examples)))
    assert offsets("none", asked) == []
    assert offsets("empty", asked) == pytest.approx(empty.tolist(), abs=0.006)
    weighed = (own.sum(0) + blank_spec.EMPTY * empty) / (40 + blank_spec.EMPTY)
    assert offsets("data", asked) == pytest.approx(weighed.tolist(), abs=0.006)
    assert offsets("data", []) == offsets("empty", [])
    assert len(set(map(tuple, (offsets("data", asked * 60), offsets("data", asked * 61))))) == 1  # spread through all
    task = task_of(tokenizer, examples, offsets="-2.5,1")
    shifted = np.array([p.scores["good"] for p in task.predictions(own)])
    apart = own[:, 0] + 2.5 - (own[:, 1] - 1)
    np.testing.assert_allclose(shifted, 1 / (1 + np.exp(-apart)), atol=1e-6)
    with torch.inference_mode():
        learnt = task.scores(TorchHost(model), on_device(task.batch(np.arange(40)), "cpu")).numpy()
    np.testing.assert_allclose(learnt, own - [-2.5, 1], atol=1e-5)


@pytest.mark.slow
def test_killed_and_resumed_is_the_same(cut_short: Callable[..., tuple[bytes, bytes]]) -> None:
    one, two = cut_short("blank", made(24), [
        f"task.template={TEMPLATE}", f"task.words={WORDS}", "task.max_length=32", "train.batch_tokens=128",
        "train.checkpoint_every=2",
    ])  # fmt: skip
    assert one == two


@pytest.mark.slow
def test_the_commands(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    data = tmp_path / "few.tsv"
    data.write_text("text\tlabel\n" + "".join(f"{e.texts[0]}\t{e.gold}\n" for e in made(24)), encoding="utf-8")
    asked = ["--set", f"task.template={TEMPLATE}", "--set", f"task.words={WORDS}"]
    out = tmp_path / "run"
    settings = ["--set", "machine.threads=1", "--set", "train.batch_tokens=256", "--epochs", "2", *asked]
    code, said, err = filbert(
        "finetune", "blank", "--train", data, "--dev", data, "--model", tiny_folder, "--out", out, *settings
    )
    assert code == 0, err
    assert "2 labels" in said
    kept = json.loads((out / "model" / "task.json").read_text(encoding="utf-8"))
    assert (kept["template"], kept["words"], kept["prior"]) == (TEMPLATE, WORDS, "data")
    assert len(blank_spec.numbers(kept["offsets"])) == 2
    code, told, err = filbert("evaluate", out, "--data", data, "--json")
    assert code == 0, err
    code, said, _ = filbert("predict", out, "--data", data, "--json")
    found = json.loads(said)["predictions"]
    assert np.mean([f["label"] == f["gold"] for f in found]) == pytest.approx(json.loads(told)["accuracy"])
    model = fb.load(out)
    assert (model.task(), model.labels) == ("blank", list(LABELS))
    again = folders.save(tmp_path / "again", model.backbone, model.tokenizer, labels=model.labels)
    assert (again / "model.safetensors").read_bytes() == (out / "model" / "model.safetensors").read_bytes()

    # Without any training, the same words: by both commands and in Python.
    code, told, err = filbert("evaluate", tiny_folder, "--task", "blank", "--data", data, "--json", *asked)
    assert code == 0, err
    code, said, err = filbert("predict", tiny_folder, "--task", "blank", "--data", data, "--json", *asked)
    assert code == 0, err
    found = json.loads(said)["predictions"]
    assert np.mean([f["label"] == f["gold"] for f in found]) == pytest.approx(json.loads(told)["accuracy"])
    words = {"good": ["好", "天气"], "bad": "火车站"}
    said = fb.load(tiny_folder).classify([e.texts[0] for e in made(24)], words, template=TEMPLATE)
    assert [p.label for p in said] == [f["label"] for f in found]
    assert [p.scores["good"] for p in said] == pytest.approx([f["scores"]["good"] for f in found], abs=1e-5)
    assert fb.load(tiny_folder).classify([], words, template=TEMPLATE) == []
    # The prior is measured again from the file's own beginning, so a resumed file ends as one in one go.
    assert filbert("predict", tiny_folder, "--task", "blank", "-d", data, "-o", tmp_path / "whole", *asked)[0] == 0
    whole = (tmp_path / "whole").read_text(encoding="utf-8").split("\n")
    (tmp_path / "part").write_text("\n".join(whole[:7]) + "\n", encoding="utf-8")
    code, _, err = filbert(
        "predict", tiny_folder, "--task", "blank", "-d", data, "-o", tmp_path / "part", "--resume", *asked
    )
    assert code == 0, err
    assert (tmp_path / "part").read_text(encoding="utf-8").split("\n") == whole


def test_transformers_reads_the_folder(tiny_folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    settings = [f"task.template={TEMPLATE}", "task.words=good=好,bad=云", "machine.threads=1"]
    finetune("blank", made(8), tiny_folder, tmp_path / "r", epochs=1, settings=settings, quiet=True)
    model = fb.load(tmp_path / "r")
    theirs = transformers.BertForMaskedLM.from_pretrained(tmp_path / "r" / "model").eval()
    words = transformers.BertTokenizerFast.from_pretrained(tmp_path / "r" / "model")
    text = made(8)[3].texts[0]
    given = words(TEMPLATE.replace("{text}", text), return_tensors="pt")
    with torch.inference_mode():
        logs = theirs(**given).logits[0].log_softmax(-1)[(given.input_ids[0] == words.mask_token_id).nonzero()[0, 0]]
    kept = json.loads((tmp_path / "r" / "model" / "task.json").read_text(encoding="utf-8"))
    wanted = logs[words.convert_tokens_to_ids(["好", "云"])].numpy() - blank_spec.numbers(kept["offsets"])
    said = model.predict([text])[0]
    assert said.scores["good"] == pytest.approx(1 / (1 + np.exp(wanted[1] - wanted[0])), abs=1e-5)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"template": "很好：{text}"}, r"\[MASK\] in one place"),
        ({"template": "[MASK]很[MASK]：{text}"}, r"\[MASK\] in one place"),
        ({"template": "今天很[MASK]。"}, r"\{text\} once"),
        ({"template": "{text}{text}[MASK]"}, r"\{text\} once"),
        ({"template": ""}, "needs a template"),
        ({"words": "good=好,bad="}, "must be labels, each once, with their words"),
        ({"words": "good=好|,bad=云"}, "must be labels, each once"),
        ({"words": '{"good": 3}'}, "must be labels, each once"),
        ({"words": '{"good": "好"'}, "must be labels, each once"),
        ({"words": "good=好,bad=云,good=风"}, "must be labels, each once"),
        ({"words": "good=好,bad=好"}, "the same words"),
        ({"words": "good=好"}, "two or more are needed"),
        ({"words": "good=好,bad=龘"}, "'龘' of the label 'bad' is not in the vocabulary"),
        ({"words": "good=好,bad=🙂"}, "is not in the vocabulary"),
        ({"prior": "dats"}, "Did you mean 'data'"),
        ({"offsets": "1,x"}, "numbers with commas"),
        ({"offsets": "1,2,3"}, "not one number for each of these 2 labels"),
        ({"max_length": 16, "template": FILL + "[MASK]{text}"}, "the template leaves 0 tokens"),
        ({"max_length": 9}, "whole number of 16 or more"),
        ({"overlap": -1}, "whole number of 0 or more"),
        ({"mask_prob": 1.0}, "from 0 up to 1"),
        ({"consistency": -1.0}, "from 0 to 100"),
    ],
)
def test_what_cannot_be_asked_is_named(tokenizer: Tokenizer, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as told:
        task_of(tokenizer, made(2), **fields)
    assert "\n" not in str(told.value)


def test_a_model_that_fills_no_blanks_is_refused(
    tokenizer: Tokenizer, tmp_path: Path, filbert: Callable[..., Any]
) -> None:
    model = bert.Bert(model_for(tokenizer).config, ("pooler",))
    folders.save(tmp_path / "bare", model, tokenizer)
    settings = [f"task.template={TEMPLATE}", f"task.words={WORDS}", "task.prior=none"]
    with pytest.raises(InputError, match="no masked-language-model head"):
        finetune("blank", made(8), tmp_path / "bare", tmp_path / "r", settings=settings, quiet=True)
    code, _, err = filbert("predict", tmp_path / "bare", "--task", "blank", "--text", "好", "--set", settings[0])
    assert code == 2
    assert "has no head for blank" in err


def test_labels_are_their_own_words_where_none_are_given(tokenizer: Tokenizer) -> None:
    config = blank_spec.Config(template=TEMPLATE)
    assert blank_spec.label_names(config, []) is None
    task = blank.Items([], ("天气", "公园"), tokenizer, config)
    assert task.words.lengths == [2]
    assert task.words.tokens.tolist() == tokenizer.pieces(["天气公园"]).ids.tolist()
    with pytest.raises(InputError, match="labels are numbers"):
        blank.Items([], ("0", "1"), tokenizer, config)
    with pytest.raises(InputError, match="no word for the label 'so'"):
        blank.Items([], ("good", "so"), tokenizer, replace(config, words="good=好"))
    assert blank_spec.spoken('{"a=b,c": ["好", "云"]}') == {"a=b,c": ("好", "云")}
    assert blank_spec.spoken("好, 云 = 云 | 风") == {"好": ("好",), "云": ("云", "风")}


def test_a_look_ahead_loses_nothing_where_reading_fails() -> None:
    def rows() -> Any:
        yield from made(3)
        raise InputError("few.tsv line 4: broken.")

    assert [example.id for example in peeked(rows(), 2)[0]] == [0, 1]
    for count in (2, 3, 9):
        reader = peeked(rows(), count)[1]
        assert [example.id for example in itertools.islice(reader, 3)] == [0, 1, 2]
        with pytest.raises(InputError, match="line 4"):
            next(reader)


@pytest.mark.slow
def test_real_headlines_without_examples(shared: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    with lzma.open(shared / "data" / "thucnews" / "dev.txt.xz", "rt", encoding="utf-8") as file:
        rows = [line for line in file if line.rstrip()[-2:] in ("\t1", "\t3", "\t7")][::23]
    (tmp_path / "some.tsv").write_text("".join(rows), encoding="utf-8")
    code, told, err = filbert(
        "evaluate", "builtin", "--task", "blank", "--data", tmp_path / "some.tsv", "--json",
        "--set", "task.template=这是一条[MASK]新闻：{text}",
        "--set", "task.words=1=房产|楼盘|房价,3=教育|学校|高考,7=体育|比赛|足球",
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(told)
    assert found["num_examples"] > 100
    assert found["accuracy"] > found["majority_accuracy"] + 0.25
