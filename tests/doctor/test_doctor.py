"""Files with planted faults come in; the doctor must find each, name its line, and find nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from filbert.core.errors import InputError
from filbert.doctor.diagnosis import MAX_OF_A_KIND, Finding, examine, rendered
from kit.files import write


def told(*paths: Path, **options: Any) -> list[str]:
    """The findings as text, with the folder left out."""
    return [line.replace(f"{paths[0].parent}/", "") for line in rendered(examine(paths, **options))]


def faults(*paths: Path, **options: Any) -> list[str]:
    return [line for line in told(*paths, **options) if ": note: " not in line]


def table(rows: dict[str, str]) -> str:
    return "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows.items())


HEALTHY = {f"text {number}": "pos" if number % 2 else "neg" for number in range(20)}


def test_findings_render_as_one_line_each() -> None:
    findings = [Finding("error", "train.csv", 17, "label 'sprot'."), Finding("note", "a.txt", 0, "fine.")]
    assert rendered(findings) == ["train.csv:17: error: label 'sprot'.", "a.txt: note: fine."]


def test_a_healthy_table_has_notes_only(tmp_path: Path) -> None:
    assert told(write(tmp_path / "a.csv", table(HEALTHY))) == [
        "a.csv: note: read as comma-separated with the header text, label, for classify with text from text, "
        "label from label.",
        "a.csv: note: 20 examples; characters: half up to 6, 95 % up to 7, longest 7; 0 % Chinese.",
        "a.csv: note: tokens, estimated (--model counts them): 1-16: 20; longest 4; the window has 512: all fit.",
        "a.csv: note: 2 labels: neg (10), pos (10).",
    ]


def test_a_healthy_corpus_has_notes_only(tmp_path: Path) -> None:
    assert told(write(tmp_path / "a.txt", "今天很好。我们走吧。\n\n他来了。她也来了。\n")) == [
        "a.txt: note: read as plain text with blank lines between documents, for a corpus.",
        "a.txt: note: 2 documents; characters: half up to 9, 95 % up to 10, longest 10; 79 % Chinese.",
    ]


# -- labelled files ----------------------------------------------------------------------------------------------


def test_duplicates_conflicts_and_leakage_name_both_places(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", table(HEALTHY) + "text 3,pos\ntext 4,pos\n")
    test = write(
        tmp_path / "test.csv",
        table({f"new {number}": "pos" if number % 2 else "neg" for number in range(10)}) + "text 5,pos\n",
    )
    assert faults(train, test) == [
        "train.csv:22: warning: the same text and label at train.csv:5; keep one of the two (--fix does).",
        "train.csv:23: warning: labelled 'pos', but the same text is 'neg' at train.csv:6; keep the one that is right.",
        "test.csv:12: warning: the same text stands in another file, at train.csv:7: leakage if one tests the other; "
        "remove it from the training file (--fix does).",
    ]


def test_labels(tmp_path: Path) -> None:
    rows = {f"text {number}": "sport" for number in range(96)} | {"a": "sprot", "b": "news", "c": "News "}
    train = write(tmp_path / "train.csv", table(rows))
    test = write(tmp_path / "test.csv", table({f"t{number}": "sports" for number in range(6)} | {"u": "sport"}))
    assert faults(train, test) == [
        "train.csv:99: error: the labels 'news' (1) and 'News ' (1) differ only by case, width or white space; "
        "write them alike.",
        "train.csv: warning: the label 'sport' stands on 97 % of the examples: to say it always scores as much; "
        "look at F1 instead.",
        "train.csv:98: warning: the label 'sprot' stands only 1 time; correct it, or give it more examples. "
        "Did you mean 'sport'?",
        "train.csv:99: warning: the label 'news' stands only 1 time; correct it, or give it more examples.",
        "train.csv:100: warning: the label 'News ' has white space around it; remove it (--fix does).",
        "train.csv:100: warning: the label 'News ' stands only 1 time; correct it, or give it more examples.",
        "test.csv:2: error: the label 'sports' (6 times, first here) is not one of the 4 in train.csv; "
        "correct it or train with it. Did you mean 'sport'?",
        "test.csv:8: warning: the label 'sport' stands only 1 time; correct it, or give it more examples. "
        "Did you mean 'sports'?",
    ]


def test_odd_characters_and_empty_texts(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", table(HEALTHY | {"lo\ufffdst": "pos", "ma\ufeffrk": "pos", "be\x07ll": "pos", "": "pos"})
    )
    assert faults(path) == [
        "a.csv:22: warning: holds U+FFFD, the mark of a character that was lost earlier; "
        "take the text from its source.",
        "a.csv:23: warning: holds a byte order mark (U+FEFF) in the middle; remove it.",
        "a.csv:24: warning: holds the control character U+0007; remove it.",
        "a.csv:25: warning: the text is empty; skipped; remove the row (--fix does).",
    ]


def test_all_faults_are_collected_and_so_many_of_a_kind_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", table(HEALTHY) + "broken\n" * 150 + "one,two,three\n")
    found = faults(path)
    assert found[:MAX_OF_A_KIND] == [
        f"a.csv:{22 + number}: error: has 1 cells, but the header has 2: text, label; "
        "quote a cell that has a delimiter in it."
        for number in range(MAX_OF_A_KIND)
    ]
    assert found[MAX_OF_A_KIND] == (
        f"a.csv: error: {151 - MAX_OF_A_KIND} more like: has … cells, but the header has …: text, label; "
        "quote a cell that has a delimiter in it."
    )
    assert len(faults(path, most=None)) == 151


def test_entities(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "text": f"{number}在北京",
            "entities": [{"start": len(str(number)) + 1, "end": len(str(number)) + 3, "label": "LOC"}],
        }
        for number in range(5)
    ]
    rows += [
        {"text": "王在上海", "entities": [{"start": 2, "end": 9, "label": "LOC"}]},
        {"text": "李在上海", "entities": [{"start": 1, "end": 3, "label": "LOC", "text": "上海"}]},
        {
            "text": "在上海市",
            "entities": [{"start": 1, "end": 4, "label": "LOC"}, {"start": 1, "end": 3, "label": "LOC"}],
        },
    ]
    assert faults(write(tmp_path / "a.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in rows))) == [
        "a.jsonl:6: error: the entity LOC at 2:9 leaves the text, which has 4 characters; correct start and end.",
        "a.jsonl:7: error: the entity LOC at 1:3 is '在上', but is said to be '上海'.",
        "a.jsonl:8: warning: the entity LOC 1:3 stands within LOC 1:4: tags can say only one of them.",
    ]


def test_conll(tmp_path: Path) -> None:
    lines = "".join(f"{char} B-LOC\n{char} I-LOC\n好 O\n\n" for char in "甲乙丙丁戊己庚辛") + "北 I-LOC\n坏\n京 O\n"
    assert faults(write(tmp_path / "a.txt", lines)) == [
        "a.txt:34: error: '坏' is not a token and a tag with a space or tab between them.",
        "a.txt:33: warning: I-LOC goes on with an entity that has not begun; begin it with B- (--fix does).",
    ]


def test_answers_are_named_by_their_question(tmp_path: Path) -> None:
    asked = [
        {"id": "Q1", "question": "一？", "answers": [{"text": "夜", "answer_start": 0}]},
        {"id": "Q2", "question": "二？", "answers": [{"text": "无", "answer_start": 0}]},
        {"id": "Q3", "question": "", "answers": []},
        {"id": "Q4", "question": "四？", "answers": [{"text": "豆子", "answer_start": 0}]},
    ]
    path = write(tmp_path / "a.json", json.dumps({"data": [{"paragraphs": [{"context": "豆子泡一夜", "qas": asked}]}]}))
    assert faults(path) == [
        "a.json: warning: question Q1: the answer '夜' does not stand at 0; the nearest place is 4; "
        "correct answer_start (--fix does if safe).",
        "a.json: warning: question Q2: the answer '无' does not stand in the context; "
        "quote the context, or say that there is no answer.",
        "a.json: warning: question Q3: empty; skipped; remove it (--fix does).",
    ]


def test_relations_are_duplicates_only_with_the_same_mentions(tmp_path: Path) -> None:
    rows = "".join(
        f"甲\t乙{n}\trel\t甲和乙{n}在一起，丙{n}\n甲\t丙{n}\trel\t甲和乙{n}在一起，丙{n}\n" for n in range(5)
    )
    path = write(tmp_path / "a.txt", rows + "甲\t乙1\tother\t甲和乙1在一起，丙1\n")
    assert faults(path) == [
        "a.txt: warning: the label 'rel' stands on 91 % of the examples: to say it always scores as much; "
        "look at F1 instead.",
        "a.txt:11: warning: labelled 'other', but the same text is 'rel' at a.txt:3; keep the one that is right.",
        "a.txt:11: warning: the label 'other' stands only 1 time; correct it, or give it more examples.",
    ]


def test_what_cannot_be_told_is_an_error_with_advice(tmp_path: Path) -> None:
    three = write(tmp_path / "a.tsv", "".join(f"{number}\ttext {number}\t{number % 2}\n" for number in range(20)))
    assert faults(three) == [
        "a.tsv: error: has 3 columns and no header (1: '0', 2: 'text 0', 3: '0'); name the task and say which "
        "column is which: --columns text=NUMBER,label=NUMBER."
    ]
    assert faults(three, task="classify", columns={"text": 2, "label": 3}) == []
    assert faults(write(tmp_path / "b.jsonl", '{"alpha": 1}\n')) == [
        "b.jsonl: error: cannot tell what alpha are; name the task and the columns."
    ]
    with pytest.raises(InputError, match="the task is 'clasify'"):
        examine(three, task="clasify")


# -- corpora -----------------------------------------------------------------------------------------------------


def test_corpora(tmp_path: Path) -> None:
    first = write(
        tmp_path / "a.txt",
        b"\xef\xbb\xbfone. two. Three.\r\n\r\n\nA. B is. C.\n\nsame text. Here.\n\nsame text. Here.\na\0b",
    )
    second = write(tmp_path / "b.txt", "same text. Here.\n\n" + "字" * 150_000 + "。好。\n")
    found = told(first, second)
    assert "a.txt:1: note: begins with a byte order mark, which is left out." in found
    assert "a.txt: note: mixes line ends (2 CRLF, 6 LF); all are read alike." in found
    assert "a.txt: warning: 1 NUL characters were removed." in found
    assert "a.txt: note: 1 blank documents or rows were skipped." in found
    assert faults(second, first)[:1] == ["b.txt:3: warning: the line has 150,003 characters; is a line end missing?"]
    assert (
        "b.txt:1: warning: the same text stands in another file, at a.txt:6: leakage if one tests the other; "
        "remove one of the two." in found
    )


def test_documents_of_one_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "One sentence.\n\nAnother one.\n\nTwo. Of them.\n")
    assert faults(path) == ["a.txt: warning: 2 documents (67 %) have one sentence; next-sentence pairs need two."]


def test_a_corpus_without_blank_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "".join(f"Sentence number {number}.\n" for number in range(2000)))
    assert faults(path) == [
        "a.txt: warning: 2,000 lines in a row without a blank one are one document; if each is a text: --unit line."
    ]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"", "is empty or blank"),
        ("a.txt", "今天很好".encode("utf-16"), "is UTF-16, not UTF-8"),
        ("a.txt", "今天很好，我们走吧。".encode("gb18030"), "reads as GB18030"),
        ("a.txt.gz", b"plain", "is named .gz, but does not begin as such a file"),
        ("a.json", b'{"data": [', "is not valid JSON"),
        ("a.parquet", b"nothing", "is not a Parquet file"),
    ],
)
def test_unreadable_files_are_errors_not_exceptions(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    found = faults(write(tmp_path / name, data), write(tmp_path / "fine.txt", "One. Two. Three."))
    assert any(message in line and ": error: " in line for line in found)
    assert all(line.startswith(name) for line in found)


def test_standard_input_is_refused() -> None:
    assert [finding.severity for finding in examine("-")] == ["error"]


# -- real files --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.shared
def test_real_leakage_is_found(shared: Path) -> None:
    folder = shared / "data/sentiment_chnsenticorp"
    found = examine([folder / "train.tsv.xz", folder / "dev.tsv.xz"], most=None)
    leaks = [finding for finding in found if finding.message.startswith("the same text stands in another file")]
    assert len(leaks) == 338  # of the 1,200 texts of dev
    assert any("the same text but for case, width" in finding.message for finding in found)
    assert any("keep the one that is right" in finding.message for finding in found)


@pytest.mark.slow
@pytest.mark.shared
def test_real_characters_lost_are_found(shared: Path) -> None:
    found = examine(shared / "data/thucnews/dev.txt.xz", most=None)
    assert sum("U+FFFD" in finding.message for finding in found) > 30
    assert not [finding for finding in found if finding.severity == "error"]


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ner_weibo/weiboNER_2nd_conll.test.xz", "goes on with an entity that has not begun"),
        ("ner_cluener2020/train.json.xz", "company 16:20 stands within book 15:35"),
        ("mrc_cmrc2018/cmrc2018_trial.json.xz", "does not stand at 14; the nearest place is 13"),
        ("mrc_cjrc/dev_ground_truth.json.xz", "the answer 'YES' does not stand in the context"),
        ("pair_stsb_zh/sts-b-train.txt.xz", "but the same text is"),
        ("pair_bq/dev.csv.xz", "control character U+0008"),
        ("sentiment_waimai/waimai_10k.csv.xz", "but the same text is"),
        ("mc_c3/c3-d-train.json.xz", "is not exactly one of the 4 choices, but two"),
        ("ner_resume/train.char.bmes.xz", "M-ORG is not followed by the end of its entity"),
    ],
)
def test_real_faults_are_found(shared: Path, name: str, expected: str) -> None:
    assert any(expected in finding.message for finding in examine(shared / "data" / name))
