"""Relations: marks where the offsets say, vectors of the two start marks, far mentions; readers and the commands."""

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
from filbert.core.errors import InputError
from filbert.core.records import Example, Span
from filbert.folder import folder as folders
from filbert.forms.datasets import examples, label_table
from filbert.metrics import labels as label_metrics
from filbert.metrics.intervals import wilson
from filbert.models import bert
from filbert.nn.torch_ops import TorchHost
from filbert.run.finetune import finetune
from filbert.tasks.relation import items as relation
from filbert.tasks.relation import measure as metrics
from filbert.tasks.relation import spec as relation_spec
from filbert.tasks.relation.reading import Relation
from filbert.text.streams import Reading
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop, machine
from filbert.train.step import on_device
from kit.models import small_bert

LABELS = ("after", "before", "none")
NAMES = ("医生", "公园", "火车", "天气")
FILL = "我们坐火车去公园，今天天气很好。"
SEMEVAL = "re_semeval2010_task8/SemEval2010_task8_all_data"

pytestmark = pytest.mark.usefixtures("one_thread")


def made(count: int = 8, before: int = 0, between: int = 0) -> list[Example]:
    """The head stands before the tail or after it, or a full stop stands between them, and there is no relation."""
    found = []
    for index in range(count):
        one, two = NAMES[index % 4], NAMES[(index + 1 + index // 4 % 3) % 4]
        middle = "。" if index % 3 == 2 else "和"
        text = FILL * before + f"《{one}》{FILL * between}{middle}《{two}》很好"
        first = len(FILL) * before + 1
        places = [(first, first + len(one)), (len(text) - len(two) - 3, len(text) - 3)]
        label = "none" if index % 3 == 2 else ("before", "after")[index % 2]
        head, tail = places[:: 1 if index % 2 == 0 else -1]
        gold = Relation(Span(*head, "head"), Span(*tail, "tail"), label)
        found.append(Example((text,), gold, index, "re.jsonl", index + 1))
    return found


def task_of(tokenizer: Tokenizer, given: list[Example], **fields: Any) -> relation.Items:
    return relation.Items(given, LABELS, tokenizer, relation_spec.Config(**{"max_length": 64, **fields}))


def model_for(task: relation.Items, tokenizer: Tokenizer, noise: float = 0.1) -> bert.Bert:
    return small_bert(tokenizer, task.parts, len(task.labels), noise=noise)


def raw(task: relation.Items, model: bert.Bert, indices: list[int]) -> Any:
    with torch.inference_mode():
        return task.raw(TorchHost(model), on_device(task.batch(np.array(indices)), "cpu"))


def shown(task: relation.Items, index: int = 0) -> list[str]:
    """The windows of one text as strings of tokens, marks as brackets."""
    packed = task.batch(np.array([index])).packed
    names = dict(zip(task.config.marks.split(), "[]{}", strict=True))
    rows = np.split(packed.ids, packed.boundaries[1:-1])
    return ["".join(names.get(t := task.tokenizer.token_of(int(i)), t) for i in row[1:-1]) for row in rows]


# Marks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "tail", "wanted"),
    [
        ((0, 2), (3, 5), "[我们]坐{火车}去"),
        ((3, 5), (0, 2), "{我们}坐[火车]去"),
        ((0, 2), (2, 3), "[我们]{坐}火车去"),
        ((2, 3), (0, 2), "{我们}[坐]火车去"),
        ((0, 5), (0, 2), "[{我们}坐火车]去"),
        ((0, 2), (0, 5), "{[我们]坐火车}去"),
        ((3, 5), (0, 5), "{我们坐[火车]}去"),
        ((0, 3), (2, 5), "[我们{坐]火车}去"),
        ((0, 2), (0, 2), "[{我们}]坐火车去"),
        ((5, 6), (3, 5), "我们坐{火车}[去]"),
    ],
)
def test_marks_stand_where_the_offsets_say_and_nest(
    tokenizer: Tokenizer, head: tuple[int, int], tail: tuple[int, int], wanted: str
) -> None:
    gold = Relation(Span(*head), Span(*tail), "none")
    task = task_of(tokenizer, [Example(("我们坐火车去",), gold)])
    assert shown(task) == [wanted]
    batch = task.batch(np.array([0]))
    assert batch.packed.ids[batch.targets["mark_rows"][0]].tolist() == task.mark_ids[::2].tolist()
    assert task.remarks() == []


def test_a_mention_without_tokens_or_inside_one_is_marked_and_counted(tokenizer: Tokenizer) -> None:
    space = Example(("我们 坐火车",), Relation(Span(2, 3), Span(0, 2), None))
    assert shown(task := task_of(tokenizer, [space])) == ["{我们}[]坐火车"]
    assert "hold nothing" in task.remarks()[0]
    both = Example(("我们\t坐火车",), Relation(Span(2, 3), Span(2, 3), None))
    assert shown(task_of(tokenizer, [both])) == ["我们[{}]坐火车"]
    word = max((t for t in tokenizer.vocabulary if t.isascii() and t.isalpha()), key=len)
    part = Example((f"我们 {word} 坐",), Relation(Span(4, 5), Span(0, 2), None))
    assert shown(task := task_of(tokenizer, [part])) == [f"{{我们}}[{word}]坐"]
    assert "inside a token" in task.remarks()[0]


def test_text_that_holds_a_mark_changes_nothing_about_the_places(tokenizer: Tokenizer) -> None:
    text = "，我们。坐今火车😀"
    gold = Relation(Span(1, 3), Span(6, 8), None)
    task = task_of(tokenizer, [Example((text,), gold)], marks="， 。 今 气")
    batch = task.batch(np.array([0]))
    assert batch.targets["mark_rows"].tolist() == [[2, 9]]  # after [CLS] and the comma; behind both marks of the head
    assert batch.packed.ids[[1, 2]].tolist() == [task.mark_ids[0]] * 2


def test_marks_are_reserved_tokens_else_rare_signs_else_the_last(tokenizer: Tokenizer, shared: Path) -> None:
    for name, wanted in (("chinese", "[unused1] [unused2] [unused3] [unused4]"),
                         ("uncased", "[unused0] [unused1] [unused2] [unused3]")):  # fmt: skip
        words = (shared / f"data/vocab/bert-base-{name}-vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
        assert relation_spec.marks_of(Tokenizer(words)) == wanted
        assert not set(wanted.split()) & set(Tokenizer(words).encode(f"{wanted} 我").tokens)  # no text makes them
    bare = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e", "#"]
    assert relation_spec.marks_of(Tokenizer(bare)) == "# e d c"
    assert len(set(relation_spec.marks_of(tokenizer).split())) == 4


def test_hidden_words_are_never_marks(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(8), mask_prob=0.9)
    packed = on_device(task.batch(np.arange(8)), "cpu").packed
    hidden = task.read(TorchHost(model_for(task, tokenizer).train()), packed).ids
    marks = torch.isin(packed.ids, torch.from_numpy(task.mark_ids))
    assert torch.equal(hidden[marks], packed.ids[marks])
    assert (hidden == tokenizer.mask_id).float().mean() > 0.5


# The contract ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "between"), [(0, 0), (6, 0), (4, 6)])
def test_packed_equals_one_by_one_and_the_definition(tokenizer: Tokenizer, before: int, between: int) -> None:
    given = made(9, before, between)
    task = task_of(tokenizer, given)
    assert len(task.cuts.first) == (18 if between else 9)
    model = model_for(task, tokenizer)
    together = np.array(raw(task, model, list(range(9))))
    filled = on_device(task.batch(np.arange(9), budget=2_048), "cpu")
    with torch.inference_mode():
        np.testing.assert_allclose(task.raw(TorchHost(model), filled), together, atol=1e-5)
    head = model.heads["relation"]
    for index, example in enumerate(given):
        alone = task_of(tokenizer, [example])
        np.testing.assert_allclose(raw(alone, model, [0])[0], together[index], atol=1e-5)
        batch = on_device(alone.batch(np.array([0])), "cpu")
        edges = batch.packed.boundaries.tolist()
        assert max(batch.packed.lengths) <= 64
        with torch.inference_mode():
            hidden = model(batch.packed)
            vectors = hidden[torch.isin(batch.packed.ids, torch.from_numpy(task.mark_ids[:1]))]
            tails = hidden[torch.isin(batch.packed.ids, torch.from_numpy(task.mark_ids[2:3]))]
            if len(edges) == 2:
                torch.testing.assert_close(
                    torch.from_numpy(together[index]), head(torch.cat((vectors[0], tails[0]))), atol=1e-5, rtol=0
                )
        rows = batch.targets["mark_rows"][0].tolist()
        assert [int(batch.packed.ids[row]) for row in rows] == task.mark_ids[::2].tolist()
        if between:  # each from the window around it
            assert edges[0] <= rows[0] < edges[1] <= rows[1] < edges[2]


def test_the_window_has_both_mentions_in_its_middle_and_coverage_is_said(tokenizer: Tokenizer) -> None:
    text = FILL * 5 + "医生和公园" + FILL * 5
    at = text.index("医生")
    near = Example((text,), Relation(Span(at, at + 2), Span(at + 3, at + 5), "none"))
    task = task_of(tokenizer, [near, *made(1)], max_length=32)
    (window, *_) = shown(task)
    before, _, behind = window.partition("[医生]和{公园}")
    assert abs(len(before) - len(behind)) <= 1
    said = task.predictions([np.zeros(3), np.zeros(3)])
    assert said[0].coverage == pytest.approx(30 / (len(tokenizer.pieces([text]).ids) + 4))
    assert said[1].coverage == 1
    assert "only what stands around" in task.remarks()[0]
    long = Example((text,), Relation(Span(0, len(text)), Span(at, at + 2), "none"))  # a mention of the whole text
    assert len(shown(task_of(tokenizer, [long], max_length=32))) == 2
    assert len(shown(task_of(tokenizer, [long], max_length=128))) == 1


@pytest.mark.slow
def test_eight_examples_are_learnt_and_late_mentions_are_read(tokenizer: Tokenizer) -> None:
    given = made(8) * 3 + made(6, 36)
    assert len(tokenizer.encode(given[-1].texts[0][: given[-1].gold.head.start]).ids) > 512
    task = task_of(tokenizer, given)
    model = model_for(task, tokenizer, 0.0)
    steps = loop.Config(steps=150, learning_rate=3e-3, batch_tokens=1_024)
    loop.fit(model, task, steps, lambda line: None, machine=machine.Config(threads=1))
    found = raw(task, model.eval(), list(range(len(given))))
    told = task.evaluated(found)
    assert told["micro_f1"] == told["accuracy"] == 1
    assert [p.label for p in task.predictions(found)] == [e.gold.label for e in given]


def test_gold_against_itself_is_perfect(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, made(9))
    told = task.evaluated(np.eye(3)[task.gold] * 50)
    assert (told["accuracy"], told["f1"], told["micro_f1"], told["num_examples"]) == (1, 1, 1, 9)
    assert told["none"] == "none"
    assert told["intervals"]["micro_f1"] == pytest.approx(wilson(told["num_examples"], told["num_examples"]))
    assert set(told["labels"]) == set(LABELS)
    always = task.evaluated(np.tile([0.0, 0.0, 9.0], (9, 1)))
    assert (always["accuracy"], always["micro_f1"], always["micro_recall"]) == (pytest.approx(1 / 3), 0, 0)


def test_the_loss_is_the_cross_entropy_and_f1_leaves_none_out(tokenizer: Tokenizer) -> None:
    task = task_of(tokenizer, [*made(9), Example(("我们坐火车",), Relation(Span(0, 2), Span(3, 5)))])
    assert task.has_unknown
    assert task.watched == "relation_f1"
    model = model_for(task, tokenizer)
    batch = task.batch(np.arange(10))
    assert task.counts(batch) == {"label_loss": 9}
    terms = task.loss(model, on_device(batch, "cpu"))
    scores = torch.from_numpy(np.array(raw(task, model, list(range(9))))).double()
    wanted = -scores.log_softmax(-1)[torch.arange(9), torch.from_numpy(task.gold[:9])].sum()
    assert terms["label_loss"].total.item() == pytest.approx(wanted.item(), rel=1e-4)
    table = label_metrics.confusion(task.gold[:9], scores.argmax(-1).numpy(), 3)
    f1 = terms["relation_f1"].total.item() / max(1, int(terms["relation_f1"].count))
    assert f1 == pytest.approx(metrics.summary(table, 2)["micro_f1"])
    plain = relation.Items(made(2), ("after", "before"), tokenizer, relation_spec.Config(max_length=64))
    assert plain.watched == "accuracy"


def test_micro_f1_is_that_of_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    for none in (None, 0, 3):
        for _ in range(10):
            gold, said = random.integers(0, 5, (2, 60))
            told = metrics.summary(label_metrics.confusion(gold, said, 5), none)
            kept = [label for label in range(5) if label != none]
            wanted = sklearn.precision_recall_fscore_support(gold, said, labels=kept, average="micro", zero_division=0)
            assert [told[f"micro_{name}"] for name in ("precision", "recall", "f1")] == pytest.approx(wanted[:3])
            low, high = told["intervals"]["micro_f1"]
            assert low <= told["micro_f1"] <= high
    assert metrics.summary(label_metrics.confusion([], [], 3), 0)["micro_f1"] == 0


@pytest.mark.slow
def test_saved_and_loaded_it_says_the_same(tokenizer: Tokenizer, tiny_folder: Path, tmp_path: Path) -> None:
    more: dict[str, Any] = {"settings": ["machine.threads=1", "task.max_length=48"], "quiet": True}
    done = finetune("relation", made(12), tiny_folder, tmp_path / "r", dev=made(6), epochs=2, **more)
    kept = json.loads((tmp_path / "r" / "model" / "task.json").read_text(encoding="utf-8"))
    assert kept.pop("temperature") > 0  # fitted on the dev data
    assert kept == {"task": "relation", "max_length": 48, "none": "none", "marks": relation_spec.marks_of(tokenizer)}
    assert "relation_f1" in done.best
    model = fb.load(tmp_path / "r")
    for name, value in done.module.state_dict().items():
        assert torch.equal(value, model.backbone.state_dict()[name]), name
    example = made(1)[0]
    text, gold = example.texts[0], example.gold
    by_place, by_words = model.predict(
        [(text, (gold.head.start, gold.head.end), (gold.tail.start, gold.tail.end)), (text, "医生", "公园")]
    )
    assert by_place == by_words
    assert [text[span.start : span.end] for span in by_place.spans] == ["医生", "公园"]
    assert sum(by_place.scores.values()) == pytest.approx(1)
    assert model.predict([]) == []
    for wrong in ("医生", ("医生",), ("医生", "公园"), (1, "医生", "公园")):
        with pytest.raises(InputError, match=r"text 0 is .* must be \(text, head, tail\)"):
            model.predict([wrong])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"text 1: '北京' does not stand in the text"):
        model.predict([(text, "医生", "公园"), (text, "医生", "北京")])
    with pytest.raises(InputError, match=r"text 0: the tail at 3:99 leaves the text"):
        model.predict([(text, "医生", (3, 99))])
    changed = json.loads((tmp_path / "r/model/task.json").read_text(encoding="utf-8")) | {"marks": "没有 [x] [y] [z]"}
    (tmp_path / "r/model/task.json").write_text(json.dumps(changed), encoding="utf-8")
    (tmp_path / "r/model/manifest.json").unlink()
    with pytest.raises(InputError, match="is no token of the vocabulary"):
        fb.load(tmp_path / "r").predict([(text, "医生", "公园")])


@pytest.mark.slow
def test_killed_and_resumed_it_has_the_same_weights(cut_short: Callable[..., tuple[bytes, bytes]]) -> None:
    settings = ["train.batch_tokens=128", "train.checkpoint_every=2", "task.max_length=32", "task.mask_prob=0.2"]
    whole, cut = cut_short("relation", made(16, 1), [*settings, "model.dropout=0.1"])
    assert whole == cut


# Files ----------------------------------------------------------------------------------------------------------------


def golds(path: Path, text: str | None = None) -> list[tuple[str, str, str, str | None]]:
    if text is not None:
        path.write_text(text, encoding="utf-8")
    found = []
    for example in examples(path, "relation"):
        whole, gold = example.texts[0], example.gold
        head, tail = (whole[span.start : span.end] for span in (gold.head, gold.tail))
        found.append((whole, head, tail, gold.label))
    return found


def test_rows_say_where_mentions_stand_in_several_ways(tmp_path: Path) -> None:
    text = "他说他的助手去了公园"
    ways = [
        ({"start": 2, "end": 3}, [3, 6]), ({"start": 2, "end": 3, "text": "他"}, {"pos": [3, 6], "name": "的助手"}),
        ("他", "的助手"), ({"text": "他"}, {"name": "的助手"}),
    ]  # fmt: skip
    rows = [{"text": text, "head": head, "tail": tail, "label": "rel"} for head, tail in ways]
    path = tmp_path / "a.jsonl"
    found = golds(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    assert found == [(text, "他", "的助手", "rel")] * 4
    assert [example.gold.head.start for example in examples(path, "relation")] == [2, 2, 0, 0]
    reading = Reading()
    assert len(list(examples(path, "relation", reading=reading))) == 4
    assert reading.report.remarks() == [
        "2 rows have a mention that stands several times in the text; the first place was taken."
    ]
    assert golds(tmp_path / "b.tsv", "他\t公园\t他去公园\n公园\t他\t他去公园\n") == [
        ("他去公园", "他", "公园", None), ("他去公园", "公园", "他", None)
    ]  # fmt: skip
    empty = golds(tmp_path / "c.csv", "head,tail,relation,text\n他,公园,,他去公园\n")
    assert empty == [("他去公园", "他", "公园", None)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"head": "她", "tail": "公园"}, r"a\.jsonl line 2: '她' does not stand in the text '他去公园', .* the head"),
        ({"head": "", "tail": "公园"}, r"line 2: '' does not stand"),
        ({"head": [0, 9], "tail": "公园"}, r"line 2: the head at 0:9 leaves the text, which has 4 characters"),
        ({"head": [0, 1], "tail": [3, 3]}, r"line 2: the tail at 3:3 leaves the text"),
        ({"head": [0, 1, 2], "tail": "公园"}, r"line 2: the head is \[0, 1, 2\], but must be"),
        ({"head": [True, 1], "tail": "公园"}, r"line 2: the head is \[True, 1\], but must be"),
        ({"head": None, "tail": "公园"}, r"line 2: the head is None, but must be"),
        ({"head": 3, "tail": "公园"}, r"line 2: the head is 3, but must be"),
        ({"head": {"start": 0}, "tail": "公园"}, r"line 2: the head is \{'start': 0\}, but must be"),
        ({"head": {"pos": 5}, "tail": "公园"}, r"line 2: the head is \{'pos': 5\}, but must be"),
        (
            {"head": "他", "tail": {"start": 2, "end": 3, "text": "公园"}},
            r"line 2: the tail at 2:3 is '公', but is said to be '公园'\. Its end seems",
        ),
    ],
)
def test_wrong_mentions_are_named_with_file_and_line(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    path = tmp_path / "a.jsonl"
    good = {"text": "他去公园", "head": "他", "tail": "公园", "label": "x"}
    path.write_text("".join(json.dumps(each) + "\n" for each in (good, {**good, **row})), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        list(examples(path, "relation"))


def test_semeval_files_are_read_as_they_lie(tmp_path: Path) -> None:
    lines = [
        '1\t"The <e2>child</e2> is in the <e1>cradle</e1>."', "Component-Whole(e2,e1)", "Comment: a cradle?", "",
        "2\tThe <e1>old <e2>ship</e2></e1> sails.", "Other", "Comment:", "", "",
    ]  # fmt: skip
    found = golds(tmp_path / "a.TXT", "\r\n".join(lines))
    assert found == [
        ("The child is in the cradle.", "cradle", "child", "Component-Whole(e2,e1)"),
        ("The old ship sails.", "old ship", "ship", "Other"),
    ]
    assert [example.line for example in examples(tmp_path / "a.TXT", "relation")] == [1, 5]
    assert [label for *_, label in golds(tmp_path / "b.txt", lines[0] + "\n" + lines[4] + "\n")] == [None, None]
    with pytest.raises(InputError, match=r"line 5: must hold <e1>…</e1> and <e2>…</e2>, each once"):
        golds(tmp_path / "c.txt", "\n".join([*lines[:4], "2\tThe <e1>ship</e1> sails.", "Other"]))
    with pytest.raises(InputError, match="which is data for relation, not for classify"):
        list(examples(tmp_path / "a.TXT", "classify"))


def test_masked_names_are_found_by_their_length(tmp_path: Path) -> None:
    lines = [
        "0 戴东原$李源澄$与###论###书",
        "5 卫庄$鬼谷子$都是###的徒弟，##与人",
        "1 甲$乙二$没有名字",
        "3 程永$程永$即##。",
    ]
    found = golds(tmp_path / "a.txt", "\n".join(lines) + "\n")
    assert [(head, tail, label) for _, head, tail, label in found] == [
        ("###", "###", "0"), ("##", "###", "5"), ("##", "##", "3"),
    ]  # fmt: skip
    reading = Reading()
    spans = [example.gold for example in examples(tmp_path / "a.txt", "relation", reading=reading)]
    assert (spans[0].head.start, spans[0].tail.start) == (1, 5)
    assert reading.report.remarks() == ["1 rows were left out, for a name does not stand in the text, nor as many #."]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "num_examples", "num_labels"),
    [
        ("re_chinese_nre/FinRE/valid.txt.xz", 1_489, 42),
        ("re_people_relation/test.txt.xz", 769, 14),
        (f"{SEMEVAL}/SemEval2010_task8_testing_keys/TEST_FILE_FULL.TXT.xz", 2_717, 19),
    ],
)  # fmt: skip
def test_real_files(shared: Path, tokenizer: Tokenizer, name: str, num_examples: int, num_labels: int) -> None:
    given = list(examples(shared / "data" / name, "relation"))
    labels = label_table(given).check().labels
    assert (len(given), len(labels)) == (num_examples, num_labels)
    task = relation.Items(given, labels, tokenizer, relation_spec.Config(max_length=64))
    batch = task.batch(np.arange(len(given)))
    assert (batch.packed.ids[batch.targets["mark_rows"]] == task.mark_ids[::2]).all()
    assert task.config.none == ("" if labels[0] == "0" else "Other" if "Other" in labels else "unknown")


# From files to answers ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.shared
def test_the_commands(shared: Path, tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    with lzma.open(shared / "data/re_chinese_nre/SanWen/train.txt.xz", "rt", encoding="utf-8") as file:
        lines = [next(file) for _ in range(300)]
    train, dev, asked = tmp_path / "train.txt", tmp_path / "dev.txt", tmp_path / "asked.tsv"
    train.write_text("".join(lines), encoding="utf-8")
    dev.write_text("".join(lines[:60]), encoding="utf-8")
    columns = [line.rstrip("\n").split("\t") for line in lines[:40]]
    asked.write_text("".join(f"{head}\t{tail}\t{text}\n" for head, tail, _, text in columns), encoding="utf-8")
    settings = ["--set", "machine.threads=1", "--epochs", "1"]
    out = tmp_path / "run"
    words = ("finetune", "relation", "--train", train, "--dev", dev, "--model", tiny_folder, "--out", out, *settings)
    code, told, err = filbert(*words)
    assert code == 0, err
    assert "relation_f1" in told
    code, told, err = filbert("evaluate", out, "--data", dev, "--json")
    assert code == 0, err
    measured = json.loads(told)
    assert (measured["num_examples"], measured["none"]) == (60, "unknown")
    assert set(measured["intervals"]) == {"accuracy", "f1", "micro_f1"}
    code, told, err = filbert("evaluate", out, "--data", dev)
    assert code == 0, err
    results = tmp_path / "said.jsonl"
    code, _, err = filbert("predict", out, "--data", asked, "--out", results, "--top", "2")
    assert code == 0, err
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [(r["head"]["text"], r["tail"]["text"], r["text"]) for r in rows] == [(c[0], c[1], c[3]) for c in columns]
    for row in rows:
        assert row["text"][row["head"]["start"] : row["head"]["end"]] == row["head"]["text"]
        assert len(row["scores"]) == 2
        assert row["score"] == row["scores"][row["label"]]
        assert row["coverage"] == 1
    code, said, err = filbert("predict", out, "--data", dev, "--json")
    found = json.loads(said)["predictions"]
    assert np.mean([f["label"] == f["gold"] for f in found]) == pytest.approx(measured["accuracy"])
    whole = results.read_text(encoding="utf-8").splitlines(keepends=True)
    results.write_text("".join(whole[:7]), encoding="utf-8")
    code, _, err = filbert("predict", out, "--data", asked, "--out", results, "--top", "2", "--resume")
    assert code == 0, err
    again = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [row["label"] for row in again] == [row["label"] for row in rows]
    code, _, err = filbert("predict", out, "--text", "他去公园")
    assert code == 2
    assert "this model reads relations; on the command line, give them as --data" in err


def test_what_cannot_be_learnt_is_named(tiny_folder: Path, tmp_path: Path, filbert: Callable[..., Any]) -> None:
    rows = [{"text": e.texts[0], "head": [e.gold.head.start, e.gold.head.end], "tail": [e.gold.tail.start,
             e.gold.tail.end], "relation": e.gold.label} for e in made(6)]  # fmt: skip
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"

    def refused(given: list[dict[str, Any]], held: list[dict[str, Any]], *more: str) -> str:
        for path, each in ((train, given), (dev, held)):
            path.write_text("".join(json.dumps(row) + "\n" for row in each), encoding="utf-8")
        words = ("--train", train, "--dev", dev, "--model", tiny_folder, "--out", tmp_path / "x")
        code, _, err = filbert("finetune", "relation", *words, *more)
        assert code == 2
        return str(err)

    unknown = refused(rows, [rows[0], {**rows[1], "relation": "beside"}])
    assert "dev.jsonl line 2: the label 'beside' is not one of the 3" in unknown
    assert "train.jsonl line 2: has no relation" in refused([rows[0], {**rows[1], "relation": None}], rows)
    assert "dev.jsonl: has no labels" in refused(rows, [{**row, "relation": None} for row in rows])
    assert "has only the label" in refused(rows[::6] * 3, rows)
    assert "task.none is 'nothing', but must be one of" in refused(rows, rows, "--set", "task.none=nothing")
    assert "must be four different tokens" in refused(rows, rows, "--set", "task.marks=# #")
    with pytest.raises(InputError, match=r"example 0: has no two mentions"):
        finetune("relation", [Example(("我们",), "none")] * 2, tiny_folder, tmp_path / "y")
    for fields in ({"max_length": 8}, {"mask_prob": 1.0}, {"label_smoothing": -1.0}, {"marks": "a b c"}):
        with pytest.raises(InputError, match=next(iter(fields))):
            relation_spec.Config(**fields)  # type: ignore[arg-type]


def test_a_folder_is_passed_over_by_transformers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    task = task_of(tokenizer, made(3))
    folders.save(tmp_path / "m", model_for(task, tokenizer), tokenizer, labels=LABELS)
    theirs = transformers.BertModel.from_pretrained(tmp_path / "m", add_pooling_layer=False)
    assert theirs.config.num_labels == 3
    with pytest.raises(InputError, match="has no head for a task"):  # without task.json the marks are not known
        fb.load(tmp_path / "m").predict([("我们坐火车", "我们", "火车")])
