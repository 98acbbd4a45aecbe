"""What annotation tools and hubs export comes in as they write it; texts and labels go out, what is left is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filbert.core.errors import InputError
from filbert.core.records import Span
from filbert.doctor.diagnosis import examine, rendered
from filbert.doctor.mending import mended
from filbert.forms.datasets import examples
from filbert.tasks.relation.reading import Relation
from filbert.text.streams import Reading
from kit import files
from kit.files import lines, write

QUICK = ["--epochs", "1", "--set", "machine.threads=1", "--set", "task.max_length=32"]


def read(path: Path, task: str = "classify", **options: Any) -> tuple[list[tuple[str, Any]], list[str]]:
    """The first text and the gold of each example, and what the reader says of the file."""
    found, said = files.read(path, task, **options)
    return [(example.texts[0], example.gold) for example in found], said


def told(path: Path, **options: Any) -> str:
    return "\n".join(rendered(examine(path, **options)))


# -- B10: Prodigy ------------------------------------------------------------------------------------------------


def prodigy(text: str, answer: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "_input_hash": hash(text) % 1000, "_task_hash": 7, "answer": answer, **more}


def test_B10_rejected_and_ignored_rows_are_left_out_and_told(tmp_path: Path) -> None:
    rows = [
        prodigy(f"第{n}条", answer, label="体育") for n, answer in enumerate(("accept", "reject", "ignore", "accept"))
    ]
    for path in (lines(tmp_path / "a.jsonl", *rows), write(tmp_path / "b.json", json.dumps(rows))):
        found, said = read(path)
        assert found == [("第0条", "体育"), ("第3条", "体育")]
        assert said[0].endswith("the export of Prodigy, for classify with text from text, label from label.")
        assert said[1:] == [
            '1 rows were left out, for the annotator rejected them ("answer": "reject").',
            '1 rows were left out, for the annotator passed over them ("answer": "ignore").',
        ]
        assert "the annotator answered 'reject'; left out." in told(path)


def test_B10_spans_and_choices(tmp_path: Path) -> None:
    spans = [{"start": 1, "end": 3, "label": "LOC", "token_start": 1, "token_end": 1}]
    tokens = [{"text": "在", "start": 0, "end": 1, "id": 0}]
    path = lines(
        tmp_path / "a.jsonl",
        prodigy("在北京", "accept", spans=spans, tokens=tokens),
        prodigy("在上海", "reject", spans=spans, tokens=tokens),
    )
    assert read(path, "tag")[0] == [("在北京", (Span(1, 3, "LOC"),))]
    assert ", for tag with text from text, entities from spans." in told(path)
    options = [{"id": "体育", "text": "体育新闻"}, {"id": "财经", "text": "财经新闻"}]
    path = lines(
        tmp_path / "b.jsonl",
        prodigy("一", "accept", options=options, accept=["体育"]),
        prodigy("二", "ignore", options=options, accept=[]),
        prodigy("三", "accept", options=options, accept=["财经"]),
    )
    assert read(path)[0] == [("一", ("体育",)), ("三", ("财经",))]
    assert ", for classify with text from text, label from label." in told(path)


def test_B10_an_answer_that_is_none_is_named_and_other_answers_are_let_be(tmp_path: Path) -> None:
    rows = [prodigy(f"第{n}条", "accept", label="ab"[n % 2]) for n in range(250)]
    path = lines(tmp_path / "a.jsonl", *rows, prodigy("又", "maybe", label="a"))
    with pytest.raises(
        InputError, match="line 251: the answer is 'maybe', but Prodigy's are accept, reject and ignore"
    ):
        read(path)
    asked = {"question": "接受吗？", "context": "他说 reject 了", "answer": "reject"}
    assert len(read(lines(tmp_path / "b.jsonl", asked), "answer")[0]) == 1


# -- B11, B20: doccano -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_B11_a_list_of_one_label_in_every_row_is_one_label_each(
    filbert: Callable[..., Any], tiny_folder: Path, tmp_path: Path
) -> None:
    rows = [{"id": n, "text": f"第{n}条", "label": [("好评", "差评")[n % 2]], "Comments": []} for n in range(8)]
    path = lines(tmp_path / "a.jsonl", *rows)
    words = ["finetune", "classify", "--train", path, "--model", tiny_folder]
    ran = filbert(*words, "-o", tmp_path / "one", *QUICK)
    assert ran.code == 0, ran.err
    said = json.loads(filbert("predict", tmp_path / "one", "--text", "第1条").out)
    assert said["label"] in ("好评", "差评")
    assert "several" not in (tmp_path / "one/model/config.json").read_text(encoding="utf-8")
    measured = json.loads(filbert("evaluate", tmp_path / "one", "--data", path, "--json").out)
    assert measured["labels"].keys() == {"好评", "差评"}
    ran = filbert(*words, "-o", tmp_path / "asked", *QUICK, "--set", "task.several=true")
    assert ran.code == 0, ran.err
    assert "labels" in json.loads(filbert("predict", tmp_path / "asked", "--text", "第1条").out)
    both = lines(tmp_path / "b.jsonl", rows[0], rows[1] | {"label": ["好评", "差评"]})
    ran = filbert("evaluate", tmp_path / "one", "--data", both)
    assert ran.code == 2
    assert "line 2: has 2 labels, but the model gives each text one" in ran.err


def test_B11_one_row_with_several_is_enough(tmp_path: Path) -> None:
    from filbert.tasks.classify import spec as classify_spec

    rows = [{"text": f"第{n}条", "label": ["好评"]} for n in range(4)]
    one = list(examples(lines(tmp_path / "a.jsonl", *rows), "classify"))
    assert not classify_spec.fitted(classify_spec.Config(), one).several
    for labels in (["好评", "差评"], []):
        several = list(examples(lines(tmp_path / "b.jsonl", *rows, {"text": "又", "label": labels}), "classify"))
        assert classify_spec.fitted(classify_spec.Config(), several).several


def test_B20_doccano(tmp_path: Path) -> None:
    sequence = lines(tmp_path / "a.jsonl", {"id": 1, "data": "在北京", "label": [[1, 3, "LOC"]]})
    assert read(sequence, "tag")[0] == [("在北京", (Span(1, 3, "LOC"),))]
    entities = [
        {"id": 11, "label": "PER", "start_offset": 0, "end_offset": 1},
        {"id": 12, "label": "LOC", "start_offset": 2, "end_offset": 4},
    ]
    relations = [{"id": 1, "from_id": 11, "to_id": 12, "type": "lives"}]
    row = {"id": 1, "text": "王在北京", "entities": entities, "relations": relations, "Comments": []}
    path = lines(tmp_path / "b.jsonl", row, row | {"id": 2, "text": "李在上海", "relations": []})
    found, said = read(path, "tag")
    assert found[0] == ("王在北京", (Span(0, 1, "PER"), Span(2, 4, "LOC")))
    assert said == [
        "columns id, Comments are passed over.",
        "1 relations between entities were passed over, which tag does not learn; see relation.",
    ]
    found, said = read(path, "relation")
    assert found == [("王在北京", Relation(Span(0, 1, "head"), Span(2, 4, "tail"), "lives"))]
    assert said[1:] == ["1 texts were left out, for no relation is marked in them."]
    broken = lines(tmp_path / "c.jsonl", row | {"relations": [{"from_id": 11, "to_id": 99, "type": "x"}]})
    with pytest.raises(InputError, match=r"line 1: the relation .* is not between two entities"):
        read(broken, "relation")


# -- B20: Label Studio -------------------------------------------------------------------------------------------


def choice(*names: str, control: str = "sentiment") -> dict[str, Any]:
    return {"type": "choices", "from_name": control, "to_name": "text", "value": {"choices": list(names)}}


def labelled(start: int, end: int, label: str, text: str, name: str) -> dict[str, Any]:
    value = {"start": start, "end": end, "text": text, "labels": [label]}
    return {"type": "labels", "id": name, "from_name": "ner", "to_name": "text", "value": value}


def task(text: str, *results: dict[str, Any], **more: Any) -> dict[str, Any]:
    done = {"id": 5, "completed_by": 1, "was_cancelled": False, "result": list(results), **more}
    return {"id": 1, "data": {"review_body": text}, "annotations": [done], "predictions": [], "file_upload": "a.csv"}


def test_B20_label_studio_full_export_of_choices(tmp_path: Path) -> None:
    rows = [
        task("好吃", choice("pos")),
        task("难吃", choice("neg")),
        task("一般", choice("pos"), was_cancelled=True),
        task("很好", choice("pos")) | {"annotations": []},
    ]
    rows[1]["annotations"].append({"result": [choice("pos")]})
    path = write(tmp_path / "a.json", json.dumps(rows))
    found, said = read(path)
    assert found == [("好吃", ("pos",)), ("难吃", ("neg",))]
    assert said == [
        "read as a JSON array of objects, the export of Label Studio, for classify with text from text, "
        "label from label.",
        "1 tasks have several annotations; the first was taken.",
        "1 tasks were left out, for their annotators skipped them.",
        "1 tasks were left out, for nobody annotated them.",
    ]
    assert ", for classify with text from text, label from label." in told(path)
    nested = {"text": "data.review_body", "label": "annotations.0.result.0.value.choices.0"}
    assert read(path, columns=nested)[0] == [("好吃", "pos"), ("难吃", "neg")]


def test_B20_label_studio_full_export_of_spans_and_relations(tmp_path: Path) -> None:
    joined = {"type": "relation", "from_id": "a", "to_id": "b", "direction": "right", "labels": ["lives"]}
    spans = labelled(0, 1, "PER", "王", "a"), labelled(2, 4, "LOC", "北京", "b")
    other = {"type": "rectanglelabels", "from_name": "box", "value": {"x": 1}}
    path = write(tmp_path / "a.json", json.dumps([task("王在北京", *spans, joined, other), task("无")]))
    found, said = read(path, "tag")
    assert found == [("王在北京", (Span(0, 1, "PER"), Span(2, 4, "LOC"))), ("无", ())]
    assert said[1:] == [
        "1 results of Label Studio's kind 'rectanglelabels' were passed over, for no task learns from them.",
        "1 relations between entities were passed over, which tag does not learn; see relation.",
    ]
    assert read(path, "relation")[0] == [("王在北京", Relation(Span(0, 1, "head"), Span(2, 4, "tail"), "lives"))]
    wrong = write(tmp_path / "b.json", json.dumps([task("王在北京", labelled(0, 2, "PER", "王", "a"))]))
    with pytest.raises(InputError, match="the entity PER at 0:2 is '王在', but is said to be '王'"):
        read(wrong, "tag")


def test_what_label_studio_has_beside_is_told(tmp_path: Path) -> None:
    """Choices beside entities and further fields fell out without a word; the name of the text is no such field."""
    results = [
        {"type": "choices", "from_name": "mood", "value": {"choices": ["good"]}},
        {"type": "labels", "from_name": "l", "value": {"labels": ["LOC"], "start": 2, "end": 4, "text": "北京"}},
    ]
    task = {"id": 1, "data": {"content": "他在北京"}, "annotations": [{"result": results}]}
    assert "column mood is passed over." in read(write(tmp_path / "a.json", json.dumps([task])), "tag")[1]
    task = {"data": {"content": "他在北京", "url": "u"}, "annotations": [{"result": results[:1]}]}
    told = read(write(tmp_path / "a.json", json.dumps([task])), "classify")[1]
    assert [sentence for sentence in told if "passed over" in sentence] == ["column url is passed over."]


def test_B20_label_studio_with_two_controls_asks_which(tmp_path: Path) -> None:
    rows = [
        task("好吃", choice("pos"), choice("食物", control="topic")),
        task("难吃", choice("neg"), choice("食物", control="topic")),
    ]
    path = write(tmp_path / "a.json", json.dumps(rows))
    assert [gold for _, gold in read(path, columns={"text": "text", "label": "topic"})[0]] == [("食物",), ("食物",)]
    assert [gold for _, gold in read(path)[0]] == [("pos",), ("neg",)]  # sentiment is a known name


def test_B20_label_studio_minimal_export(tmp_path: Path) -> None:
    own = {"annotator": 1, "annotation_id": 5, "created_at": "2026", "updated_at": "2026", "lead_time": 3.2}
    texts = [
        {"id": n, "text": text, "sentiment": label, **own}
        for n, (text, label) in enumerate((("好", "pos"), ("坏", "neg")))
    ]
    assert read(write(tmp_path / "a.json", json.dumps(texts)))[0] == [("好", "pos"), ("坏", "neg")]
    several = [row | {"sentiment": {"choices": ["pos", "neg"]}} for row in texts]
    assert read(write(tmp_path / "b.json", json.dumps(several)))[0][0] == ("好", ("pos", "neg"))
    spans = [{"start": 1, "end": 3, "text": "北京", "labels": ["LOC"]}]
    rows = [{"id": 1, "text": "在北京", "label": spans, **own}, {"id": 2, "text": "无", **own}]
    path = write(tmp_path / "c.json", json.dumps(rows))
    assert read(path, "tag")[0] == [("在北京", (Span(1, 3, "LOC"),)), ("无", None)]
    assert ", for tag with text from text, entities from entities." in told(path)


# -- B20: brat, fastText ----------------------------------------------------------------------------------------


ANN = (
    "T1\tPER 0 1\t王\nT2\tLOC 2 4\t北京\nR1\tlives Arg1:T1 Arg2:T2\nT3\tLOC 7 9\t上海\n"
    "A1\tNegation T3\n#1\tAnnotatorNotes T3\tsure?\nT4\tPER 5 6;8 9\t李 海\n"
)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_B20_brat(end: str, tmp_path: Path) -> None:
    folder = tmp_path / "brat"
    folder.mkdir()
    moved = ANN if end == "\n" else ANN.replace("7 9", "8 10").replace("5 6;8 9", "6 7;9 10")
    write(folder / "a.txt", f"王在北京{end}李在上海{end}{end}没有{end}")
    write(folder / "a.ann", moved)
    write(folder / "b.txt", "没有标注\n")
    expected = [("王在北京", (Span(0, 1, "PER"), Span(2, 4, "LOC"))), ("李在上海", (Span(2, 4, "LOC"),)), ("没有", ())]
    passed = [
        "1 attributes of brat were passed over, for no task learns from them.",
        "1 notes of brat were passed over, for no task learns from them.",
        "1 entities in several pieces were left out, for tags can say only whole stretches.",
        "1 relations between entities were passed over, which tag does not learn; see relation.",
    ]
    for path in (folder / "a.ann", folder / "a.txt"):
        found, said = read(path, "tag")
        assert found == expected
        assert said == [
            "read as brat: texts (.txt) with their annotations (.ann) beside them, a row for each line, for tag with "
            "text from text, entities from entities.",
            *passed,
        ]
    found, said = read(folder, "tag")
    assert found == expected
    assert "1 texts of the folder were left out, for no .ann file stands beside them." in said
    assert read(folder / "a.txt", "relation")[0][0][1] == Relation(Span(0, 1, "head"), Span(2, 4, "tail"), "lives")
    assert ", for tag with text from text" in told(folder / "a.txt")
    with pytest.raises(InputError, match="of which no repaired copies are made"):
        mended(folder / "a.txt", tmp_path / "out")


def test_B20_brat_entities_over_line_ends_and_faults(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "one\ntwo New\nYork three\nfour\n")
    write(tmp_path / "a.ann", "T1\tLOC 8 16\tNew York\n")
    assert read(tmp_path / "a.ann", "tag")[0] == [
        ("one", ()),
        ("two New\nYork three", (Span(4, 12, "LOC"),)),
        ("four", ()),
    ]
    write(tmp_path / "a.ann", "T1\tLOC 0 3\ttwo\n")
    with pytest.raises(InputError, match=r"a\.ann line 1: the entity T1 at 0:3 is 'one', but is said to be 'two'"):
        read(tmp_path / "a.txt", "tag")
    write(tmp_path / "a.ann", "LOC 0 3\n")
    with pytest.raises(InputError, match=r"a\.ann line 1: 'LOC 0 3' is not an annotation as brat writes it"):
        read(tmp_path / "a.txt", "tag")
    write(tmp_path / "b.ann", "T1\tLOC 0 3\ttwo\n")
    with pytest.raises(InputError, match=r"has no text beside it; brat needs b\.txt there"):
        read(tmp_path / "b.ann", "tag")


@pytest.mark.usefixtures("one_thread")
def test_B20_fasttext(filbert: Callable[..., Any], tiny_folder: Path, tmp_path: Path) -> None:
    text = "".join(f"__label__{'ab'[n % 2]} 第 {n} 条\n" for n in range(8))
    path = write(tmp_path / "a.txt", text)
    assert read(path) == ([(f"第 {n} 条", ("ab"[n % 2],)) for n in range(8)], [])
    assert ", for classify with text from text, label from label." in told(path)
    ran = filbert("finetune", "classify", "--train", path, "--model", tiny_folder, "-o", tmp_path / "run", *QUICK)
    assert (ran.code, "/model: 2 labels," in ran.out) == (0, True)
    several = write(tmp_path / "b.csv", "__label__a __label__b , 好\n__label__b , 坏 __label__c\n")
    assert read(several)[0] == [("好", ("a", "b")), ("坏", ("b", "c"))]
    with pytest.raises(InputError, match="line 9: has no label; write __label__NAME before the text"):
        read(write(tmp_path / "c.txt", text + "又一条\n"))


# -- B19, B20: tokens with tags -----------------------------------------------------------------------------------

TOKENS = {"tokens": ["EU", "rejects", "New", "York"], "ner_tags": ["B-ORG", "O", "B-LOC", "I-LOC"]}
FOUND = ("EU rejects New York", (Span(0, 2, "ORG"), Span(11, 19, "LOC")))
NAMES = ["O", "B-ORG", "B-LOC", "I-LOC"]


def test_B19_tokens_and_ner_tags(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", TOKENS, {"tokens": ["北", "京"], "ner_tags": ["B-LOC", "I-LOC"]})
    assert read(path, "tag") == ([FOUND, ("北京", (Span(0, 2, "LOC"),))], [])
    assert ", for tag with tokens from tokens, tags from ner_tags." in told(path)
    renamed = lines(tmp_path / "b.jsonl", {"w": TOKENS["tokens"], "t": TOKENS["ner_tags"]})
    assert read(renamed, "tag", columns={"tokens": "w", "ner_tags": "t"})[0] == [FOUND]
    plain = lines(tmp_path / "c.jsonl", {"tokens": ["他", "来", "了"], "upos": ["PRON", "VERB", "PART"]})
    assert len(read(plain, "tag")[0][0][1]) == 3
    with pytest.raises(InputError, match="line 1: has 2 tokens, but 1 of tags"):
        read(lines(tmp_path / "d.jsonl", {"tokens": ["他", "来"], "ner_tags": ["O"]}), "tag")
    with pytest.raises(InputError, match="the field 'tokens' must be a list of texts"):
        read(lines(tmp_path / "e.jsonl", {"tokens": "他 来", "ner_tags": ["O", "O"]}), "tag")


def test_B20_numbers_of_tags_have_the_names_that_the_file_keeps(tmp_path: Path) -> None:
    row = TOKENS | {"ner_tags": [NAMES.index(tag) for tag in TOKENS["ner_tags"]]}
    features = {"ner_tags": {"feature": {"names": NAMES, "_type": "ClassLabel"}, "_type": "Sequence"}}
    table = pa.table({name: [value] for name, value in row.items()})
    held = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(held, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", "tag")[0] == [FOUND]
    bare = lines(tmp_path / "a.jsonl", row)
    found, said = read(bare, "tag")
    assert found == [(FOUND[0], (Span(0, 2, "1"), Span(11, 14, "2"), Span(15, 19, "3")))]
    assert said == ["the tags in 'ner_tags' are numbers without names: each is a label as it stands, 0 is none."]
    (tmp_path / "named").mkdir()
    write(tmp_path / "named/dataset_info.json", json.dumps({"features": features}))
    assert read(lines(tmp_path / "named/a.jsonl", row), "tag")[0] == [FOUND]


# -- B20: nested fields, workbooks --------------------------------------------------------------------------------


def test_B20_nested_fields(tmp_path: Path) -> None:
    row = {"translation": {"de": "ein Haus", "en": "a house"}, "meta": {"tags": ["x", "y"]}}
    path = lines(tmp_path / "a.jsonl", row)
    assert read(path, "translate", columns={"source": "translation.de", "target": "translation.en"})[0] == [
        ("ein Haus", "a house")
    ]
    assert read(path, columns={"text": "translation.de", "label": "meta.tags.1"})[0] == [("ein Haus", "y")]
    with pytest.raises(InputError, match=r"line 1: the field 'translation\.fr' is missing"):
        read(path, columns={"text": "translation.fr", "label": "meta.tags.1"})
    with pytest.raises(InputError, match=r"the column is 'metta\.tags', but must be one of: translation, meta"):
        read(path, columns={"text": "translation.de", "label": "metta.tags"})


@pytest.mark.parametrize("name", ["a.xlsx", "a.xls", "a.ods"])
def test_B20_workbooks_are_refused_with_the_way_out(
    name: str, filbert: Callable[..., Any], tiny_folder: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / name, b"PK\x03\x04" + bytes(40))
    for words in (
        ["doctor", path],
        ["finetune", "classify", "--train", path, "--model", tiny_folder, "-o", tmp_path / "r"],
    ):
        ran = filbert(*words)
        assert ran.code == 2
        assert "is a workbook" in ran.out + ran.err
        assert "CSV UTF-8" in ran.out + ran.err


def test_B20_numbers_of_labels_have_the_names_that_parquet_holds(tmp_path: Path) -> None:
    features = {"text": {"dtype": "string"}, "label": {"names": ["差", "好"], "_type": "ClassLabel"}}
    table = pa.table({"text": ["难吃", "好吃", "可口"], "label": [0, 1, 1]})
    held = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(held, tmp_path / "a.parquet")
    reading = Reading()
    found = list(examples(tmp_path / "a.parquet", "classify", reading=reading))
    assert [example.gold for example in found] == ["差", "好", "好"]
    assert any("named as the file says: 0 is 差" in remark for remark in reading.report.remarks())
    pq.write_table(table, tmp_path / "b.parquet")  # nothing says what they are called
    assert [example.gold for example in examples(tmp_path / "b.parquet", "classify")] == ["0", "1", "1"]
