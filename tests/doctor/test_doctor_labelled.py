"""Labelled files of every task with planted faults come in; the doctor names each by line, and counts tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from filbert.core.registry import files
from filbert.doctor.checks import Measure, loose_key
from filbert.doctor.diagnosis import examine, rendered
from filbert.text.characters import is_blank
from filbert.text.tokenizer import Tokenizer
from kit.files import lines as rows
from kit.files import write


def told(*paths: Path, **options: Any) -> list[str]:
    return [line.replace(f"{paths[0].parent}/", "") for line in rendered(examine(paths, **options))]


def faults(*paths: Path, **options: Any) -> list[str]:
    return [line for line in told(*paths, **options) if ": note: " not in line]


def notes(*paths: Path, **options: Any) -> str:
    return "\n".join(line for line in told(*paths, **options) if ": note: " in line)


HEALTHY = "text,label\n" + "".join(
    f"第{n}条很{'好' if n % 2 else '坏'},{'pos' if n % 2 else 'neg'}\n" for n in range(20)
)


# -- texts -------------------------------------------------------------------------------------------------------


def test_blank_is_what_a_model_reads_nothing_of() -> None:
    assert all(map(is_blank, ["", " \u3000\t", "\x07\x1b", "\u200b\u200d", "\ufeff"]))
    assert not any(map(is_blank, ["字", "!", "😀", "\ue000", "a\x07"]))


def test_texts_of_white_space_or_control_characters_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", HEALTHY + "\u3000,pos\n\u200b\u200b,neg\n")
    assert faults(path) == [
        "a.csv:22: warning: the text is empty; skipped; remove the row (--fix does).",
        "a.csv:23: warning: the text is empty, or only white space and control characters; remove the row.",
    ]


def test_one_empty_text_of_two_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "".join(f"甲{n}\t乙{n}\n" for n in range(12)) + "甲\t \n")
    assert faults(path, task="pair") == [
        "a.tsv:13: warning: text 2 of 2 is empty, or only white space and control characters; remove the row."
    ]


def test_leaks_are_found_through_case_width_space_and_signs(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", HEALTHY + "ＡＢＣ 你好！,pos\n")
    test = write(tmp_path / "test.csv", HEALTHY.replace("第", "条") + "abc 你 好。,pos\n!!!,pos\n？？,neg\n")
    assert faults(train, test) == [
        "test.csv:22: warning: the same text but for case, width, white space or punctuation stands in another file, "
        "at train.csv:22: leakage if one tests the other; remove it from the training file (--fix does)."
    ]
    assert loose_key(["!!!"]) == 0
    assert loose_key(["ＡＢＣ 你好！"]) == loose_key(["abc你好"]) != loose_key(["abc你坏"])


def test_near_copies_are_found_across_files(tmp_path: Path) -> None:
    text = "这家酒店的位置非常好，房间也很干净，服务员的态度特别热情，下次还会再来住的"
    train = write(tmp_path / "train.csv", HEALTHY + f"{text},pos\n".replace("，", "。"))
    test = write(tmp_path / "test.csv", HEALTHY.replace("第", "条") + f"{text[:-1]}哦,neg\n".replace("，", "。"))
    assert faults(train, test) == [
        "test.csv:22: warning: nearly the same text stands in another file, at train.csv:22: leakage if one tests the "
        "other; compare them."
    ]
    relation = "甲公司和乙公司在北京签订了一份为期五年的合作协议并举行了仪式"
    rows = "".join(f"甲公司\t乙公司\t{'ab'[n % 2]}\t第{n}天甲公司和乙公司见面\n" for n in range(6))
    first = write(tmp_path / "a.txt", f"{rows}甲公司\t乙公司\ta\t{relation}\n")
    second = write(tmp_path / "b.txt", f"乙公司\t北京\tb\t{relation}\n乙公司\t甲公司\ta\t{relation}了\n" * 5)
    assert not [line for line in faults(first, second) if "in another file" in line]  # the mentions differ


def test_leaks_between_dev_and_test_are_not_the_training_files(tmp_path: Path) -> None:
    names = ("train", "dev", "test")
    paths = [write(tmp_path / f"{name}.csv", HEALTHY.replace("第", name)) for name in names]
    paths[1].write_text(paths[1].read_text() + "同一条,pos\n")
    paths[2].write_text(paths[2].read_text() + "同一条,pos\n")
    assert faults(*paths) == [
        "test.csv:22: warning: the same text stands in another file, at dev.csv:22: leakage if one tests the other; "
        "remove one of the two."
    ]


# -- labels ------------------------------------------------------------------------------------------------------


def test_an_unknown_label_is_named_where_it_first_stands(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", HEALTHY)
    dev = write(tmp_path / "dev.csv", "text,label\n一,pos\n" + "".join(f"新{n},postive\n" for n in range(5)))
    assert (
        "dev.csv:3: error: the label 'postive' (5 times, first here) is not one of the 2 in train.csv; "
        in (faults(train, dev)[0])
    )
    assert faults(train, dev)[0].endswith("Did you mean 'pos'?")


def test_one_label_and_imbalance(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"文{n},pos\n" for n in range(9)))
    assert faults(path) == ["a.csv: warning: every example has the label 'pos'; at least two are needed to learn from."]
    many = "".join(f"文{n},{'abc'[n % 3]}\n" for n in range(1800)) + "".join(f"稀{n},rare\n" for n in range(5))
    uneven = write(tmp_path / "b.csv", f"text,label\n{many}")
    assert faults(uneven) == []
    assert "the label 'a' stands 120 times as often as 'rare'" in notes(uneven)


def test_labels_with_white_space_are_told_even_if_all_have_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"文{n},{'ab'[n % 2]} \n" for n in range(12)))
    assert [line.partition(" warning: ")[2] for line in faults(path)][:2] == [
        "the label 'a ' has white space around it; remove it (--fix does).",
        "the label 'b ' has white space around it; remove it (--fix does).",
    ]


def test_several_labels_are_counted_one_by_one(tmp_path: Path) -> None:
    good = [{"text": f"文{n}", "label": ["体育", "财经"][: 1 + n % 2]} for n in range(12)]
    path = rows(
        tmp_path / "a.jsonl", *good, {"text": "文1", "label": ["财经", "体育"]}, {"text": "文2", "label": ["财经"]}
    )
    assert faults(path, task="classify") == [
        "a.jsonl:13: warning: the same text and label at a.jsonl:2; keep one of the two (--fix does).",
        "a.jsonl:14: warning: labelled '财经', but the same text is '体育' at a.jsonl:3; keep the one that is right.",
    ]
    assert "2 labels: 体育 (13), 财经 (8)." in notes(path, task="classify")


def test_minus_one_may_mean_that_there_is_no_label(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"文{n},{n % 3 - 1}\n" for n in range(18)))
    assert faults(path) == [
        "a.csv:2: warning: the label -1 (6 times, first here) often stands for no label; if it does, remove these "
        "rows, for it is learnt as any other."
    ]


def test_numbers_are_numbers_and_nan_is_none(tmp_path: Path) -> None:
    good = "".join(f"甲{n}\t乙{n}\t{n % 11 / 2}\n" for n in range(60))
    path = write(tmp_path / "a.tsv", good + "丙\t丁\tnan\n戊\t己\tfour\n")
    assert sorted(faults(path, task="pair", columns={"first": 1, "second": 2, "label": 3})) == [
        "a.tsv:61: error: the label 'nan' (1 time, first here) is no number, as the others are; "
        "correct it or remove the row.",
        "a.tsv:62: error: the label 'four' (1 time, first here) is no number, as the others are; "
        "correct it or remove the row.",
    ]
    told_of = notes(write(tmp_path / "b.tsv", good), task="pair", columns={"first": 1, "second": 2, "label": 3})
    assert "the labels are numbers from 0 to 5, 2.38" in told_of
    assert faults(write(tmp_path / "c.tsv", good.replace(".5", "").replace(".0", "")), task="pair") == []


def test_nan_in_json_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "一", "label": 0.5}\n{"text": "二", "label": NaN}\n')
    assert "a.jsonl:2: error: the label is nan, which is no number; correct it or remove it." in faults(path)


# -- spans, answers, choices, relations, ids ---------------------------------------------------------------------


def test_spans(tmp_path: Path) -> None:
    good = [{"text": f"{n}在北京", "entities": [{"start": 2, "end": 4, "label": "LOC"}]} for n in range(6)]
    text = "王在 北京 大学读书"
    path = rows(
        tmp_path / "a.jsonl",
        *good,
        {"text": text, "entities": [{"start": 2, "end": 5, "label": "LOC"}]},
        {"text": "李" + text, "entities": [{"start": 4, "end": 4, "label": "LOC"}]},
        {"text": "赵" + text, "entities": [[4, 6, "LOC"], [5, 9, "LOC"]]},
        {"text": "钱" + text, "entities": [[4, 9, "LOC"], [4, 6, "LOC"], [7, 9, "LOC"]]},
        {"text": "孙" + text, "entities": "LOC"},
    )
    assert faults(path) == [
        "a.jsonl:8: error: the entity LOC at 4:4 is empty; its end must be above its start.",
        "a.jsonl:11: error: the entities are 'LOC', but must be a list of {start, end, label}.",
        "a.jsonl:7: warning: the entity LOC 2:5 has white space at its edge; leave it out (--fix does).",
        "a.jsonl:9: warning: the entity LOC 5:9 crosses LOC 4:6: correct one of them.",
        "a.jsonl:10: warning: the entity LOC 4:6 stands within LOC 4:9: tags can say only one of them.",
        "a.jsonl:10: warning: the entity LOC 7:9 stands within LOC 4:9: tags can say only one of them.",
    ]


def test_tags_that_change_end_or_begin_wrongly(tmp_path: Path) -> None:
    good = "".join(f"{char} B-LOC\n{char} E-LOC\n好 O\n王 S-PER\n\n" for char in "甲乙丙丁戊己")
    path = write(tmp_path / "a.txt", good + "北 B-LOC\n京 I-PER\n市 O\n\n南 E-LOC\n京 O\n\n东 B-LOC\n京 O\n")
    assert faults(path) == [
        "a.txt:31: warning: B-LOC is not followed by the end of its entity, as elsewhere in the file; write E- or S-.",
        "a.txt:32: warning: I-PER goes on with an entity that has not begun; begin it with B- (--fix does).",
        "a.txt:32: warning: I-PER is not followed by the end of its entity, as elsewhere in the file; write E- or S-.",
        "a.txt:35: warning: E-LOC goes on with an entity that has not begun; begin it with B- (--fix does).",
        "a.txt:38: warning: B-LOC is not followed by the end of its entity, as elsewhere in the file; write E- or S-.",
    ]


def test_the_same_text_marked_otherwise_is_a_contradiction(tmp_path: Path) -> None:
    good = [{"text": f"{n}在北京", "entities": [[2, 4, "LOC"]]} for n in range(6)]
    path = rows(tmp_path / "a.jsonl", *good, {"text": "0在北京", "entities": []}, good[1])
    assert faults(path) == [
        "a.jsonl:7: warning: marked otherwise than at a.jsonl:1; keep the one that is right.",
        "a.jsonl:8: warning: the same text and label at a.jsonl:2; keep one of the two (--fix does).",
    ]


def test_a_tag_file_without_entities_is_an_error(tmp_path: Path) -> None:
    path = rows(tmp_path / "a.jsonl", *({"text": f"文{n}", "entities": []} for n in range(6)))
    assert faults(path) == [
        "a.jsonl: error: no example has an entity; are they in another column, or written another way?"
    ]


def test_answers_and_their_ids(tmp_path: Path) -> None:
    asked = [
        {"id": name, "question": f"{number}？", "answers": [{"text": "豆子", "answer_start": start}]}
        for number, (name, start) in enumerate([("A", 0), ("B", 0), ("A", 0), ("C", 3), ("D", 0)])
    ]
    asked[4]["answers"] = []
    path = write(tmp_path / "a.json", json.dumps({"data": [{"paragraphs": [{"context": "豆子泡一夜", "qas": asked}]}]}))
    assert faults(path) == [
        "a.json: warning: question C: the answer '豆子' does not stand at 3; the nearest place is 0; "
        "correct answer_start (--fix does if safe).",
        "a.json: warning: the id 'A' stands twice; give each its own.",
    ]
    assert "1 questions have no answer." in notes(path)


def test_ids_of_rows_are_named_by_line_and_repeated_columns_are_no_ids(tmp_path: Path) -> None:
    lines = "".join(f"{n},文{n},{n % 2}\n" for n in range(12))
    assert faults(write(tmp_path / "a.csv", f"id,text,label\n{lines}3,又,1\n")) == [
        "a.csv:14: warning: the id '3' stands at line 5 too; give each its own."
    ]
    same = "".join(f"7,文{n},{n % 2}\n" for n in range(12))
    assert faults(write(tmp_path / "b.csv", f"id,text,label\n{same}")) == []


def test_choices(tmp_path: Path) -> None:
    good = [{"context": f"文{n}", "question": "几？", "options": ["一", "二"], "label": n % 2} for n in range(5)]
    path = rows(
        tmp_path / "a.jsonl",
        *good,
        {"context": "六", "question": "几？", "options": ["一"], "label": 0},
        {"context": "七", "question": "几？", "options": ["一", "二"], "label": 5},
        {"context": "八", "question": "几？", "options": ["一", "二", "二"], "label": 0},
        {"context": "九", "question": "", "options": ["一", "二"], "label": 0},
        {"context": "", "question": "几？", "options": ["一", "二"], "label": 0},
    )
    found = faults(path)
    assert [line.split(" ")[0] for line in found] == ["a.jsonl:6:", "a.jsonl:7:", "a.jsonl:8:", "a.jsonl:10:"]
    assert "needs two options or more" in found[0]
    assert "is not exactly one of the 2 choices" in found[1]
    assert "the choice '二' stands twice; write each once." in found[2]
    assert "text 1 of 4 is empty" in found[3]


def test_relations_whose_mention_is_missing(tmp_path: Path) -> None:
    good = "".join(f"甲\t乙{n}\t{'ab'[n % 2]}\t甲和乙{n}在一起\n" for n in range(12))
    found = faults(write(tmp_path / "a.txt", good + "丙\t乙1\ta\t甲和乙1在此\n"))
    assert found == ["a.txt:13: error: '丙' does not stand in the text '甲和乙1在此', so it cannot be the head."]


def test_embed_reads_texts_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text\n一二\n三四\n一二\n")
    assert faults(path, task="embed") == ["a.csv:4: warning: the same text at a.csv:2; keep one of the two."]


# -- tokens ------------------------------------------------------------------------------------------------------


def test_what_is_read_together_is_counted_together() -> None:
    assert files("classify").num_tokens([5]) == [7]
    assert files("pair").num_tokens([5, 6]) == files("answer").num_tokens([5, 6]) == [14]
    assert files("choose").num_tokens([5, 2, 1, 4, 3]) == [14]
    assert files("embed").num_tokens([5, 6]) == [7, 8]


def test_lengths_are_counted_in_the_models_tokens(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = [f"第{n}条" + "今天天气很好" * n for n in range(1, 21)]
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"{t},{n % 2}\n" for n, t in enumerate(texts)))
    sizes = [len(tokenizer.encode(text)) for text in texts]
    num_long = sum(size > 64 for size in sizes)
    assert 0 < num_long < 20
    found = notes(path, measure=Measure(tokenizer, {"classify": 64}))
    assert f"longest {max(sizes)}; the window has 64: {num_long} ({5 * num_long}.0 %) are longer" in found
    assert f"33-64: {sum(32 < size <= 64 for size in sizes)}" in found


def test_the_estimate_is_near_the_count(shared: Path) -> None:
    tokenizer = Tokenizer.load(shared / "data/vocab/bert-base-chinese-vocab.txt")
    texts = [
        "微软将SideWinder游戏外设品牌淡出，2019年",
        "One more pseudo generalization and I'm giving up.",
        "今天天气很好。我们去公园走走吧！",
    ]
    for text, count in zip(texts, Measure().counts(texts), strict=True):
        assert 0.6 < count / (len(tokenizer.encode(text)) - 2) < 1.4


def test_the_command_counts_with_a_model(filbert: Callable[..., Any], tiny_folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", HEALTHY)
    ran = filbert("doctor", path, "--model", tiny_folder, "--json")
    note = next(each["message"] for each in json.loads(ran.out)["findings"] if each["message"].startswith("tokens"))
    assert "the window has 64: all fit" in note  # the folder's, which is less than the task's
    assert "estimated" not in note
    assert filbert("doctor", path, "--model", tmp_path / "none").code == 2


def test_json_lists_all_and_text_lists_some(filbert: Callable[..., Any], tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", HEALTHY + "broken\n" * 50)
    ran = filbert("doctor", path)
    assert (ran.code, ran.out.count(": error: has 1 cells")) == (2, 20)
    assert "30 more like" in ran.out
    assert json.loads(filbert("doctor", path, "--json").out)["errors"] == 50


@pytest.mark.shared
def test_real_files_have_lines_and_kinds(shared: Path) -> None:
    found = examine(shared / "data/re_chinese_nre/SanWen/valid.txt.xz", most=None)
    assert all(finding.line for finding in found if finding.severity == "warning")
    assert {finding.kind for finding in found if finding.severity == "warning"} >= {
        "the same text has another label elsewhere",
        "the same text stands twice",
    }
