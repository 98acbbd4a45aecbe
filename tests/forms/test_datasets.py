"""Labelled files of every form come in; the examples must be what they hold, and ambiguity must be refused."""

from __future__ import annotations

import io
import json
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filbert.core.errors import InputError
from filbert.core.records import Example, Span
from filbert.forms.datasets import examples, label_table, near_duplicates
from filbert.tasks.answer.reading import Answer
from filbert.tasks.relation.reading import Relation
from filbert.tasks.tag.words import joined
from filbert.text.streams import CorpusReport, Reading
from kit.files import write


def pairs(path: Path, task: str = "classify", **options: Any) -> list[tuple[tuple[str, ...], Any]]:
    return [(example.texts, example.gold) for example in examples(path, task, **options)]


def counted(path: Path, task: str) -> tuple[list[Example], dict[str, int]]:
    report = CorpusReport()
    return list(examples(path, task, reading=Reading(report=report))), dict(report.others)


# -- classify ----------------------------------------------------------------------------------------------------


def test_two_columns_without_a_header_are_read_as_they_lie(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", '体验2D巅峰\t8\n"60年"铁树, 开花\t5\n')
    assert pairs(path) == [(("体验2D巅峰",), "8"), (('"60年"铁树, 开花',), "5")]
    assert [(example.id, example.line, example.source) for example in examples(path, "classify")] == [
        (0, 1, str(path)),
        (1, 2, str(path)),
    ]


@pytest.mark.parametrize("header", ["text,label", "label,text", "label,review", "id,sentence,label", "Category,Title"])
def test_headers_are_told_from_known_names(header: str, tmp_path: Path) -> None:
    names = header.lower().split(",")
    row = ",".join({"label": "pos", "category": "pos", "id": "7"}.get(name, "good") for name in names)
    assert pairs(write(tmp_path / "a.csv", f"{header}\n{row}\n")) == [(("good",), "pos")]


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "stars,body,when\n5,good,now\n")
    assert pairs(path, columns={"text": "body", "label": "stars"}) == [(("good",), "5")]
    with pytest.raises(InputError, match=r"line 1: is it a header\? 'body' is a known column name"):
        pairs(path)
    with pytest.raises(InputError, match="a role in columns for classify is 'first', but must be one of: text, label"):
        pairs(path, columns={"first": "body"})


def test_columns_can_be_numbered(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "0\t上课, 时\t108\n1\t商赢\t104\n")  # a .csv with tabs, as TNEWS is
    assert pairs(path, columns={"text": 2, "label": 3}) == [(("上课, 时",), "108"), (("商赢",), "104")]
    with pytest.raises(InputError, match=r"has 3 columns and no header \(1: '0', 2: '上课, 时', 3: '108'\)"):
        pairs(path)
    with pytest.raises(InputError, match="the column is '4', but must be one of: 1, 2, 3"):
        pairs(path, columns={"text": 4})


def test_a_label_that_comes_first_is_refused_not_guessed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "".join(f"{'ham' if n % 2 else 'spam'}\tmessage {n}\n" for n in range(10)))
    with pytest.raises(
        InputError, match="the last column, but in 10 rows that has 10 different values and column 1 has 2"
    ):
        pairs(path)
    assert pairs(path, columns={"label": 1, "text": 2})[0] == (("message 0",), "spam")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("title,content,label", "which column is the text, content or title"),
        ("text,category,target", "which column is the label, category or target"),
        ("sentence1,sentence2,label", "has two texts, sentence1 and sentence2; that is data for pair"),
        ("review,stars", "is it a header\\? 'review' is a known column name, 'stars' is not"),
        ("id,label", "no column for the text of classify among id, label"),
    ],
)
def test_ambiguous_headers_are_refused(header: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"{header}\n{','.join('x' for _ in header.split(','))}\n")
    with pytest.raises(InputError, match=message):
        pairs(path)


def test_json_lines_arrays_and_parquet(tmp_path: Path) -> None:
    rows = [{"text": "好", "label": 1, "extra": None}, {"text": "坏", "label": 0, "extra": [1]}]
    expected = [(("好",), "1"), (("坏",), "0")]
    assert pairs(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))) == expected
    assert pairs(write(tmp_path / "b.json", json.dumps(rows, indent=1))) == expected
    pq.write_table(pa.table({"text": ["好", "坏"], "label": [1, 0]}), tmp_path / "c.parquet")
    assert pairs(tmp_path / "c.parquet") == expected
    assert pairs(write(tmp_path / "d.jsonl.xz", lzma.compress("\n".join(map(json.dumps, rows)).encode()))) == expected


def test_unlabelled_files(tmp_path: Path) -> None:
    assert pairs(write(tmp_path / "a.txt", "一\n\n二\n")) == [(("一",), None), (("",), None), (("二",), None)]
    assert pairs(write(tmp_path / "b.csv", "text,label\na,\nb,\n")) == [(("a",), None), (("b",), None)]
    with pytest.raises(InputError, match="line 3: has no label, but rows before it have"):
        pairs(write(tmp_path / "c.csv", "text,label\na,1\nb,\n"))
    with pytest.raises(InputError, match="line 3: has a label, but rows before it have none"):
        pairs(write(tmp_path / "d.csv", "text,label\na,\nb,1\n"))


def test_labelled_rows_without_text_are_skipped_and_counted(tmp_path: Path) -> None:
    found, others = counted(write(tmp_path / "a.csv", "text,label\na,1\n  ,2\nb,1\n"), "classify")
    assert [(example.id, example.line) for example in found] == [(0, 2), (1, 4)]
    assert others == {"labelled rows with an empty text were skipped": 1}


def test_fields_of_the_wrong_type(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2: the field 'text' holds int, but must hold text"):
        pairs(write(tmp_path / "a.jsonl", '{"text": "a", "label": 1}\n{"text": 2, "label": 1}\n'))
    with pytest.raises(InputError, match=r"line 1: the label is \{'b': 1\}, but must be text or a number, or a list"):
        pairs(write(tmp_path / "b.jsonl", '{"text": "a", "label": {"b": 1}}\n'))
    assert pairs(write(tmp_path / "c.jsonl", '{"text": "a", "label": true}\n')) == [(("a",), "true")]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("好\t1\n坏\t0\n".encode())))
    found = list(examples("-", "classify"))
    assert [(example.texts[0], example.gold, example.source) for example in found] == [
        ("好", "1", "-"),
        ("坏", "0", "-"),
    ]


def test_other_encodings(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\n好,1\n".encode("gb18030"))
    assert pairs(path, encoding="gb18030") == [(("好",), "1")]
    with pytest.raises(InputError, match="is not UTF-8"):
        pairs(path)


def test_unknown_tasks_and_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the task is 'clasify'.*Did you mean 'classify'"):
        examples(tmp_path / "a.csv", "clasify")
    path = write(tmp_path / "a.txt", "当 O\n希 B-LOC\n望 I-LOC\n")
    with pytest.raises(InputError, match=r"is CoNLL: .*, which is data for tag, not for classify"):
        pairs(path)
    with pytest.raises(InputError, match=r"b\.csv line 2: needs two options or more"):
        pairs(write(tmp_path / "b.csv", "text,label\na,1\n"), "choose")
    with pytest.raises(InputError, match=r"does not begin with { or \[, so it is not JSON"):
        pairs(write(tmp_path / "c.json", "text\t1\n"))


# -- pair --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", ["sentence1,sentence2,label", "label,text_a,text_b", "q1,q2,label", "id,query,title,label"]
)
def test_pairs_with_a_header(header: str, tmp_path: Path) -> None:
    cells = {"label": "1", "id": "9"}
    texts = iter(["a", "b"])
    row = ",".join(cells.get(name) or next(texts) for name in header.split(","))
    assert pairs(write(tmp_path / "a.csv", f"{header}\n{row}\n"), "pair") == [(("a", "b"), "1")]


def test_pairs_without_a_header(tmp_path: Path) -> None:
    assert pairs(write(tmp_path / "a.txt", "蚂\t花\t0\n借\t呗\t1\n"), "pair") == [
        (("蚂", "花"), "0"),
        (("借", "呗"), "1"),
    ]
    assert pairs(write(tmp_path / "b.txt", "蚂\t花\n借\t呗\n"), "pair") == [(("蚂", "花"), None), (("借", "呗"), None)]


def test_the_label_dash_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{"sentence1": "a", "sentence2": "b", "label": label} for label in ("neutral", "-")]
    found, others = counted(write(tmp_path / "a.json", "\n".join(map(json.dumps, rows))), "pair")
    assert ([example.gold for example in found], others) == (["neutral"], {"rows with the label '-' were left out": 1})


def test_embed_takes_texts_pairs_and_triplets(tmp_path: Path) -> None:
    assert pairs(write(tmp_path / "a.csv", "text,label\na,1\n"), "embed") == [(("a",), None)]
    assert pairs(write(tmp_path / "b.csv", "s1,s2,label\na,b,1\n"), "embed") == [(("a", "b"), "1")]
    assert pairs(write(tmp_path / "d.csv", "sentence1,sentence2,score\na,b,3.5\n"), "embed") == [(("a", "b"), "3.5")]
    assert pairs(write(tmp_path / "e.csv", "anchor,positive,negative\na,b,c\n"), "embed") == [(("a", "b", "c"), None)]
    assert pairs(write(tmp_path / "f.txt", "蚂\t花\n借\t呗\n"), "embed") == [(("蚂", "花"), None), (("借", "呗"), None)]
    rated = write(tmp_path / "g.txt", "蚂\t花\t0\n借\t呗\t1\n")
    assert pairs(rated, "embed") == [(("蚂", "花"), "0"), (("借", "呗"), "1")]
    named = {"second": 1, "text": 2}
    assert [e.texts for e in examples(write(tmp_path / "h.txt", "b\ta\n"), "embed", named)] == [("a", "b")]
    assert pairs(write(tmp_path / "c.txt", "a\nb\n"), "embed") == [(("a",), None), (("b",), None)]


# -- tag ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tags",
    [
        ["O", "B-LOC", "I-LOC", "B-PER", "O"],
        ["O", "B-LOC", "E-LOC", "S-PER", "O"],
        ["O", "B-LOC", "L-LOC", "U-PER", "O"],
    ],
)
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_conll_schemes(tags: list[str], separator: str, tmp_path: Path) -> None:
    lines = "".join(f"{char}{separator}{tag}\n" for char, tag in zip("在北京王说", tags, strict=True))
    path = write(tmp_path / "a.txt", lines + "\n\n好 O\n".replace(" ", separator))
    assert pairs(path, "tag") == [(("在北京王说",), (Span(1, 3, "LOC"), Span(3, 4, "PER"))), (("好",), ())]
    assert [example.line for example in examples(path, "tag")] == [1, 8]


def test_bmes_with_a_middle(tmp_path: Path) -> None:
    path = write(tmp_path / "a.char.bmes", "高 B-NAME\n小 M-NAME\n勇 E-NAME\n： O\n")
    assert pairs(path, "tag") == [(("高小勇：",), (Span(0, 3, "NAME"),))]


def test_conll_of_numbered_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "a.train", "科0\tO\n技1\tO\n北0\tB-GPE.NAM\n京1\tI-GPE.NAM\n10\tO\n")
    assert pairs(path, "tag") == [(("科技北京1",), (Span(2, 4, "GPE.NAM"),))]


def test_conll_of_words_and_columns(tmp_path: Path) -> None:
    lines = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\nNew NNP B-NP B-LOC\nYork NNP I-NP I-LOC\n"
    assert pairs(write(tmp_path / "a.txt", lines), "tag") == [
        (("EU rejects New York",), (Span(0, 2, "ORG"), Span(11, 19, "LOC")))
    ]


def test_how_tokens_join() -> None:
    assert joined(["今天", "用", "GPT", "four", "吧"])[0] == "今天用GPT four吧"
    assert joined(["A", "P", "P", "好"])[0] == "APP好"
    assert joined(["He", "left", "."]) == ("He left .", [(0, 2), (3, 7), (8, 9)])


def test_an_entity_that_goes_on_without_beginning_is_counted(tmp_path: Path) -> None:
    found, others = counted(write(tmp_path / "a.txt", "北 I-LOC\n京 I-LOC\n王 B-PER\n说 I-LOC\n"), "tag")
    assert found[0].gold == (Span(0, 2, "LOC"), Span(2, 3, "PER"), Span(3, 4, "LOC"))
    assert list(others.values()) == [2]


def test_conll_faults(tmp_path: Path) -> None:
    lines = "".join(f"{char} O\n" for char in "一二三四五六七八九十" * 3) + "北 B-LOC\n"
    with pytest.raises(InputError, match="line 32: '坏' is not a token and a tag"):
        pairs(write(tmp_path / "a.txt", lines + "坏\n"), "tag")
    with pytest.raises(InputError, match="line 32: the tag 'LOC' is not O or a label with B-"):
        pairs(write(tmp_path / "b.txt", lines + "京 LOC\n"), "tag")


def test_tag_json(tmp_path: Path) -> None:
    rows = [
        {
            "text": "王在北京",
            "entities": [{"start": 2, "end": 4, "label": "LOC"}, {"start": 0, "end": 1, "type": "PER"}],
        },
        {"text": "王在北京", "entities": [[2, 4, "LOC"]]},
        {"text": "无", "entities": []},
        {"text": "未标"},
    ]
    assert pairs(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))), "tag") == [
        (("王在北京",), (Span(0, 1, "PER"), Span(2, 4, "LOC"))),
        (("王在北京",), (Span(2, 4, "LOC"),)),
        (("无",), ()),
        (("未标",), None),
    ]


def test_cluener(tmp_path: Path) -> None:
    row = {"text": "叶老桂在浙商银行", "label": {"name": {"叶老桂": [[0, 2]]}, "company": {"浙商银行": [[4, 7]]}}}
    assert (
        pairs(write(tmp_path / "a.json", json.dumps(row) + "\n" + json.dumps(row)), "tag")
        == [(("叶老桂在浙商银行",), (Span(0, 3, "name"), Span(4, 8, "company")))] * 2
    )


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ({"start": 2, "end": 5, "label": "LOC"}, "the entity LOC at 2:5 leaves the text, which has 4 characters"),
        ({"start": -1, "end": 2, "label": "LOC"}, "the entity LOC at -1:2 leaves the text"),
        ({"start": 2, "end": 2, "label": "LOC"}, "the entity LOC at 2:2 is empty"),
        ({"start": 1, "end": 3, "label": "LOC", "text": "北京"}, "at 1:3 is '在北', but is said to be '北京'"),
        ({"start": 2, "end": 3, "label": "LOC", "text": "北京"}, "Its end seems to be that of the last character"),
        ({"start": "2", "end": 4, "label": "LOC"}, "with two whole numbers and a text"),
        ({"start": 2, "end": 4}, "with two whole numbers and a text"),
        ("北京", "the entity '北京' is not {start, end, label}"),
    ],
)
def test_tag_json_faults(entity: object, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", json.dumps({"text": "王在北京", "entities": [entity]}))
    with pytest.raises(InputError, match=f"a.jsonl line 1: .*{message}"):
        pairs(path, "tag")


# -- relation, answer, choose ------------------------------------------------------------------------------------


def test_relations(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.txt",
        "上航\t东方航空\tunknown\t东方航空传将与上航合并\n\n他\t他的助手\tSocial\t请他解惑，恰见他的助手\n",
    )
    first, second = (gold for _, gold in pairs(path, "relation"))
    assert first == Relation(Span(7, 9, "head"), Span(0, 4, "tail"), "unknown")
    assert second == Relation(Span(1, 2, "head"), Span(7, 11, "tail"), "Social")
    with pytest.raises(InputError, match="line 1: '上海' does not stand in the text"):
        pairs(write(tmp_path / "b.txt", "上海\t东方航空\tunknown\t东方航空传将与上航合并\n"), "relation")


def squad(*answers: dict[str, Any], **more: Any) -> str:
    asked = {"id": "Q1", "question": "泡多久？", "answers": list(answers), **more}
    return json.dumps({"data": [{"paragraphs": [{"context": "豆子泡一夜，一夜。", "qas": [asked]}]}]})


def test_squad(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", squad({"text": "一夜", "answer_start": 6}, {"text": "一夜", "answer_start": 6}))
    assert pairs(path, "answer") == [(("泡多久？", "豆子泡一夜，一夜。"), (Answer("一夜", 6),))]
    assert pairs(write(tmp_path / "b.json", squad()), "answer")[0][1] == ()
    assert (
        pairs(write(tmp_path / "c.json", squad({"text": "x", "answer_start": 0}, is_impossible="true")), "answer")[0][1]
        == ()
    )


def test_answers_that_do_not_stand_where_they_say(tmp_path: Path) -> None:
    moved, others = counted(write(tmp_path / "a.json", squad({"text": "一夜", "answer_start": 7})), "answer")
    assert moved[0].gold == (Answer("一夜", 6),)
    assert list(others.values()) == [1]
    absent, others = counted(write(tmp_path / "b.json", squad({"text": "YES", "answer_start": -1})), "answer")
    assert absent[0].gold == (Answer("YES", -1),)
    assert list(others.values()) == [1]


def test_answer_rows(tmp_path: Path) -> None:
    rows = [
        {"question": "q", "context": "abc", "answers": {"text": ["b"], "answer_start": [1]}},
        {"question": "q", "context": "abc", "answers": [{"text": "c", "answer_start": 2}]},
        {"question": "q", "context": "abc", "answers": "a"},
        {"question": "q", "context": "abc"},
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert [gold for _, gold in pairs(path, "answer")] == [
        (Answer("b", 1),),
        (Answer("c", 2),),
        (Answer("a", 0),),
        None,
    ]


@pytest.mark.parametrize(
    "value", [{"data": [1]}, {"data": [{"paragraphs": ["x"]}]}, {"data": [{"paragraphs": [{"qas": [3]}]}]}]
)
def test_strange_squad_files_are_faults_not_bugs(value: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not an object"):
        pairs(write(tmp_path / "a.json", json.dumps(value)), "answer")


def test_a_truncated_json_file_has_a_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.json line 1: is not valid JSON .*was it cut short"):
        pairs(write(tmp_path / "a.json", squad()[:-5]), "answer")


def test_choices(tmp_path: Path) -> None:
    entry = [
        ["男：去哪？", "女：南方。"],
        [{"question": "去哪？", "choice": ["北方", "南方"], "answer": "南方"}],
        "1-1",
    ]
    path = write(tmp_path / "a.json", json.dumps([entry]))
    assert pairs(path, "choose") == [(("男：去哪？\n女：南方。", "去哪？", "北方", "南方"), 1)]
    entry[1][0]["answer"] = "西方"  # type: ignore[index]
    with pytest.raises(
        InputError, match="entry 1, question '去哪？': the answer '西方' is not exactly one of the 2 choices"
    ):
        pairs(write(tmp_path / "b.json", json.dumps([entry])), "choose")


# -- labels ------------------------------------------------------------------------------------------------------


def test_label_tables_are_sorted() -> None:
    assert label_table([Example(("a",), gold) for gold in ("10", "9", "1")]).labels == ("1", "9", "10")
    table = label_table([Example(("a",), gold) for gold in ("b", "a", "b", None)])
    assert (table.labels, table.counts, table.near_duplicates) == (("a", "b"), {"a": 1, "b": 2}, ())
    assert table.check() is table
    tagged = label_table([Example(("abc",), (Span(0, 1, "X"), Span(1, 2, "Y"))), Example(("a",), ())])
    assert tagged.labels == ("X", "Y")


def test_near_duplicates() -> None:
    assert near_duplicates(["pos", "POS", "neg"]) == (("pos", "POS"),)
    assert near_duplicates(["a b", "a_b", "ａ ｂ"]) == (("a b", "a_b", "ａ ｂ"),)
    assert near_duplicates(["1", "01", "10"]) == (("1", "01"),)
    assert near_duplicates(["体育", "财经"]) == ()


# -- real files --------------------------------------------------------------------------------------------------

REAL = [
    ("thucnews/dev.txt.xz", "classify", 10_000, 10),
    ("sentiment_waimai/waimai_10k.csv.xz", "classify", 11_987, 2),
    ("sentiment_chnsenticorp/dev.tsv.xz", "classify", 1_200, 2),
    ("en_sst2/dev.tsv.xz", "classify", 872, 2),
    ("pair_lcqmc/dev.txt.xz", "pair", 8_802, 2),
    ("pair_bq/dev.csv.xz", "pair", 10_000, 2),
    ("pair_ocnli/train.3k.json.xz", "pair", 2_994, 3),  # six of 3,000 have the label -
    ("pair_pawsx_zh/dev_2k.tsv.xz", "pair", 2_000, 2),
    ("en_mrpc/msr_paraphrase_test.txt.xz", "pair", 1_725, 2),
    ("ner_cluener2020/train.json.xz", "tag", 10_748, 10),
    ("ner_msra/test.txt.xz", "tag", 4_631, 3),
    ("ner_resume/dev.char.bmes.xz", "tag", 463, 8),
    ("ner_weibo/weiboNER_2nd_conll.dev.xz", "tag", 270, 8),
    ("mrc_cmrc2018/cmrc2018_trial.json.xz", "answer", 1_000, 0),  # two of 1,002 questions are empty
    ("mrc_drcd/DRCD_dev.json.xz", "answer", 3_524, 0),
    ("mc_c3/c3-d-dev.json.xz", "choose", 1_825, 0),
    ("mc_dream/dev.json.xz", "choose", 2_040, 0),
    ("re_chinese_nre/SanWen/valid.txt.xz", "relation", 1_793, 10),
]


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(("name", "task", "num_examples", "num_labels"), REAL)
def test_real_files(shared: Path, name: str, task: str, num_examples: int, num_labels: int) -> None:
    found = list(examples(shared / "data" / name, task))
    assert len(found) == num_examples
    assert len(label_table(found).labels) == num_labels
    assert [example.id for example in found] == list(range(num_examples))
    for example in found:
        if task == "tag":
            assert all(0 <= span.start < span.end <= len(example.texts[0]) for span in example.gold)
        elif task == "answer":
            assert all(
                answer.start < 0 or example.texts[1].startswith(answer.text, answer.start) for answer in example.gold
            )
