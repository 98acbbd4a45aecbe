"""What files, folders and objects hold is read whole and once: nothing moves, falls out or takes another's place."""

from __future__ import annotations

import enum
import json
import lzma
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from filbert.core.errors import InputError
from filbert.core.records import Example, Span
from filbert.core.registry import files
from filbert.corpus import overlap
from filbert.doctor import mending
from filbert.doctor.diagnosis import examine
from filbert.forms import brat, datasets, label_sets, objects, sources
from filbert.tasks.answer.reading import Answer
from filbert.tasks.relation.reading import Relation
from filbert.text import corpus
from filbert.text.streams import CorpusReport, Reading
from kit.files import write


def lines(path: Path, *rows: Any) -> Path:
    """JSON as other tools write it, in ASCII alone."""
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def read(path: Path, task: str = "classify") -> tuple[list[Example], list[str]]:
    """The examples, and what reading them met."""
    reading = Reading()
    return list(datasets.examples(path, task, reading=reading)), reading.report.remarks()


def rows(data: Any, task: str = "classify") -> tuple[list[Example], list[str]]:
    """The same of what Python holds."""
    reading = Reading()
    return list(objects.examples(objects.kept(data), files(task), {}, reading)), reading.report.remarks()


def labels(found: tuple[list[Example], list[str]]) -> list[tuple[str, Any]]:
    return [(example.texts[0], example.gold) for example in found[0]]


# -- compressed files ----------------------------------------------------------------------------------------------


def test_a_later_stream_of_an_xz_file_is_not_passed_over(tmp_path: Path) -> None:
    """lzma takes a damaged second stream for what follows the end; 2 of 4 rows were learnt, without a word."""
    one, two = (lzma.compress(part) for part in (b"text\tlabel\na\tx\nb\ty\n", b"c\tx\nd\ty\n"))
    path = tmp_path / "a.tsv.xz"
    for padded in (one + two, one + b"\0" * 8 + two + b"\0" * 4):
        path.write_bytes(padded)
        assert labels(read(path)) == [("a", "x"), ("b", "y"), ("c", "x"), ("d", "y")]
    for damaged in (b"\1" + two[1:], b"something else"):
        path.write_bytes(one + damaged)
        with pytest.raises(InputError, match=r"a\.tsv\.xz: is damaged: its compressed data breaks after 19 bytes"):
            read(path)
    path.write_bytes(one + two[:9])
    with pytest.raises(InputError, match=r"a\.tsv\.xz: is cut short: its compressed data ends after 19 bytes"):
        read(path)


@pytest.mark.slow
def test_a_large_xz_file_is_read_in_blocks(tmp_path: Path) -> None:
    text = "".join(f"{number} {'x' * 90}\n" for number in range(12_000))
    path = tmp_path / "a.txt.xz"
    path.write_bytes(lzma.compress(text.encode()))
    assert [example.texts[0] for example in read(path)[0]] == text.splitlines()


# -- offsets and NULs ----------------------------------------------------------------------------------------------


def test_a_NUL_that_is_removed_moves_the_offsets_behind_it(tmp_path: Path) -> None:
    """Spans lay a character too far to the right for each NUL before them, without a word."""
    text = "a\0b met \0Bob"
    path = lines(tmp_path / "a.jsonl", {"text": text, "entities": [[0, 3, "ORG"], [9, 12, "PER"]]})
    found = read(path, "tag")[0][0]
    assert found.texts == ("ab met Bob",)
    assert found.gold == (Span(0, 2, "ORG"), Span(7, 10, "PER"))
    path = lines(tmp_path / "b.jsonl", {"text": text, "head": [0, 3], "tail": {"start": 9, "end": 12}, "relation": "x"})
    assert read(path, "relation")[0][0].gold == Relation(Span(0, 2, "head"), Span(7, 10, "tail"), "x")
    for mark in ({"entities": [[1, 2, "ORG"]]}, {"head": [1, 2], "tail": [9, 12], "relation": "x"}):
        with pytest.raises(InputError, match="holds nothing but NULs"):
            read(lines(tmp_path / "c.jsonl", {"text": text} | mark), "tag" if "entities" in mark else "relation")


def test_true_is_no_offset(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", {"text": "abc", "entities": [{"start": True, "end": 3, "label": "X"}]})
    with pytest.raises(InputError, match="with two whole numbers"):
        read(path, "tag")


@pytest.mark.parametrize(
    ("start", "end", "units"), [(4, 6, "UTF-16 units, of which 😀 has two"), (10, 16, "bytes")], ids=["utf16", "bytes"]
)
def test_places_that_count_otherwise_are_told_as_such(start: int, end: int, units: str, tmp_path: Path) -> None:
    row = {"text": "😀他在北京", "entities": [{"start": start, "end": end, "label": "LOC", "text": "北京"}]}
    with pytest.raises(InputError, match=f"Its places seem to count {units}; they must count characters"):
        read(lines(tmp_path / "a.jsonl", row), "tag")


def test_places_that_nothing_shows_to_be_right_are_told(tmp_path: Path) -> None:
    told = (
        "1 texts have marks whose words are not given behind characters that are two in UTF-16 (😀); places were taken "
        "to count them once."
    )
    bare, said = [3, 5, "LOC"], {"start": 3, "end": 5, "label": "LOC", "text": "北京"}
    for mark, remarks in ((bare, [told]), (said, [])):
        row = {"text": "😀他在北京", "entities": [mark]}
        assert read(lines(tmp_path / "a.jsonl", row, {"text": "他", "entities": [[0, 1, "X"]]}), "tag")[1] == remarks
    for tail, remarks in (([3, 5], [told]), ({"pos": [3, 5], "name": "北京"}, []), ("北京", [])):
        row = {"text": "😀他在北京", "head": "他", "tail": tail, "relation": "x"}
        assert read(lines(tmp_path / "b.jsonl", row), "relation")[1] == remarks


# -- JSON ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_field_that_stands_twice_is_named(name: str, tmp_path: Path) -> None:
    """Only the last was read, as Python does; in a header of a table it was refused."""
    row = '{"text": "a", "label": "x", "text": "b"}'
    path = write(tmp_path / name, f"{row}\n" if name == "a.jsonl" else f"[{row}]")
    with pytest.raises(InputError, match=r"the field 'text' stands twice in one object; rename or remove one\.$"):
        read(path)


def test_all_of_a_field_that_stands_twice_is_kept_out_of_a_corpus(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "one", "text": "two"}\n')
    assert sorted(overlap.strings(path)) == ["one", "two"]


def test_what_stands_beside_data_is_told(tmp_path: Path) -> None:
    held = {"version": "1", "data": [{"text": "a", "label": "x"}], "test": [{"text": "b", "label": "y"}], "more": []}
    found, told = read(write(tmp_path / "a.json", json.dumps(held)))
    assert [example.gold for example in found] == ["x"]
    assert "of the JSON object only data is read; test beside it passed over." in told


@pytest.mark.parametrize("indent", [None, 2])
def test_rows_under_another_name_are_refused_with_the_way_out(indent: int | None, tmp_path: Path) -> None:
    held = {"train": [{"text": "a", "label": "x"}], "dev": []}
    path = write(tmp_path / "a.json", json.dumps(held, indent=indent))
    with pytest.raises(InputError, match="is one JSON object with 'train', 'dev'; write its rows as JSON lines"):
        read(path)


def test_json_lines_that_are_all_broken_name_the_first(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": "x"},\n{"text": "b", "label": "y"},\n')
    with pytest.raises(InputError, match=r"a\.jsonl line 1: is not a JSON object \(Extra data"):
        read(path)


def asked(context: Any = "ab cd", qas: str = "qas", paragraphs: str = "paragraphs", **more: Any) -> dict[str, Any]:
    question = {"id": "q1", "question": "what", "answers": [{"text": "cd", "answer_start": 3}], **more}
    return {"title": "t", paragraphs: [{"context": context, qas: [question]}]}


@pytest.mark.parametrize(
    ("article", "why"),
    [
        (asked(paragraphs="paragraph"), "an object with title, paragraph has no list of paragraphs"),
        (asked(qas="qa"), "an object with context, qa has no list of qas"),
        (asked(context=["ab", "cd"]), r"the context is \['ab', 'cd'\], but must be text"),
        (asked(question=3), "question q1: the question is 3, but must be text"),
        (asked(is_impossible="perhaps"), "question q1: is_impossible is 'perhaps', but must be true or false"),
    ],
)
def test_squad_of_another_form_is_named(article: dict[str, Any], why: str, tmp_path: Path) -> None:
    """Articles fell out without a word, and a list was learnt as the text "['ab', 'cd']"."""
    path = write(tmp_path / "a.json", json.dumps({"data": [asked(), article]}))
    with pytest.raises(InputError, match=why):
        read(path, "answer")


@pytest.mark.parametrize("said", [True, 1, "1", "True", "yes"])
def test_squad_says_in_many_ways_that_there_is_no_answer(said: object, tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", json.dumps({"data": [asked(is_impossible=said), asked(is_impossible=0)]}))
    assert [example.gold for example in read(path, "answer")[0]] == [(), (Answer("cd", 3),)]


def test_squad_of_no_answer_needs_no_empty_list(tmp_path: Path) -> None:
    article = asked(is_impossible=True)
    del article["paragraphs"][0]["qas"][0]["answers"]
    assert read(write(tmp_path / "a.json", json.dumps({"data": [article]})), "answer")[0][0].gold == ()


def test_choices_are_of_texts(tmp_path: Path) -> None:
    def entry(line: object, question: object) -> str:
        return json.dumps([[[line], [{"question": question, "choice": ["a", "b"], "answer": "a"}], "1"]])

    assert read(write(tmp_path / "a.json", entry("x", None)), "choose")[0][0].texts == ("x", "", "a", "b")
    for text in (entry(3, "q"), entry("x", 3)):
        with pytest.raises(InputError, match=r"each a text|but must be text"):
            read(write(tmp_path / "a.json", text), "choose")


# -- tables --------------------------------------------------------------------------------------------------------


def test_excels_hint_and_bars_are_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "sep=;\ntext;label\na;x\nb;y\n")
    for reads in (lambda: read(path), lambda: list(corpus.documents(path, "text"))):
        with pytest.raises(InputError, match="line 1: 'sep=;' is a hint for Excel and no row; remove the line"):
            reads()
    with pytest.raises(InputError, match=r"'text\|label' parts its columns by \|, which is not read"):
        read(write(tmp_path / "b.csv", "text|label\na|x\nb|y\n"))


def test_the_advice_for_tabs_is_of_tabs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a tab is missing, or a line end"):
        read(write(tmp_path / "a.tsv", "text\tlabel\na\tx\nb\n"))


def test_a_column_without_a_name_is_told_as_such(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.csv", ",text,label\n0,a,x\n1,b,y\n"))[1] == [
        "column without a name is passed over."
    ]


@pytest.mark.slow
def test_parquet_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table([["a"], ["x"], ["y"]], names=["text", "label", "label"])
    parquet.write_table(table, tmp_path / "a.parquet")
    for reads in (lambda: read(tmp_path / "a.parquet"), lambda: rows(table)):
        with pytest.raises(InputError, match="the column 'label' stands twice; rename one"):
            reads()


def test_a_header_that_comes_again_is_no_row(tmp_path: Path) -> None:
    """As `cat a.csv b.csv` makes it: the text "text" was learnt with the label "label"."""
    for name, text in (
        ("a.csv", "text, label\na,x\ntext,label\nb,y\n"),
        ("a.tsv", "text\tlabel\na\tx\ntext\tlabel\nb\ty\n"),
    ):
        found = read(write(tmp_path / name, text))
        assert labels(found) == [("a", "x"), ("b", "y")]
        assert found[1] == ["1 rows repeat the header, as where files were put together, and were passed over."]
    assert labels(read(write(tmp_path / "b.csv", "text\na\ntext\n"))) == [("a", None), ("text", None)]


def test_options_in_columns_of_letters_have_a_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "context,option_a,option_b,answer\np,x,y,A\nq,x,y,B\n")
    assert [example.gold for example in read(path, "choose")[0]] == [0, 1]


def test_fasttext_with_commas_between_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "__label__a,__label__b one\n__label__b , two\n")
    assert labels(read(path)) == [("one", ("a", "b")), ("two", ("b",))]


# -- labels --------------------------------------------------------------------------------------------------------


def test_lists_as_python_writes_them_are_refused(tmp_path: Path) -> None:
    """pandas' to_csv writes them so; each was a label, or was cut at its comma: "['x'" and "'y']"."""
    for cell in ("\"['x', 'y']\"", '"[""it\'s"", \'x\']"'):
        with pytest.raises(InputError, match=r"is a list as Python writes it; write it as JSON"):
            read(write(tmp_path / "a.csv", f"text,label\na,{cell}\n"))
    for cell, label in (('"[""x""]"', '["x"]'), ("[pos]", "[pos]"), ("[1]", "[1]")):
        assert labels(read(write(tmp_path / "a.csv", f"text,label\na,{cell}\n"))) == [("a", label)]


def test_blanks_are_no_label_to_learn(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.tsv", "text\tlabel\na\t \nb\tx\nc\ty\n"))[0]
    with pytest.raises(InputError, match="the label of 1 rows is ' '; name it, or remove the rows"):
        sources.label_names("a.tsv", found)


def test_no_number_within_a_list_is_no_label(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1: the label is nan, which is no number"):
        read(write(tmp_path / "a.jsonl", '{"text": "a", "label": [NaN]}\n'))


@pytest.mark.parametrize("label", ["p\ud83d", "p\0"], ids=["surrogate", "NUL"])
@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("classify", {"text": "ab", "label": "{}"}),
        ("classify", {"text": "ab", "label": ["x", "{}"]}),
        ("tag", {"text": "ab", "entities": [[0, 1, "{}"]]}),
        ("tag", {"tokens": ["a", "b"], "ner_tags": ["O", "B-{}"]}),
        ("relation", {"text": "ab", "head": [0, 1], "tail": [1, 2], "relation": "{}"}),
    ],
)
def test_labels_that_no_file_can_hold_are_refused(label: str, task: str, row: dict[str, Any], tmp_path: Path) -> None:
    """They were learnt, and when the model was written at the end there was a traceback instead."""
    given = json.loads(json.dumps(row).replace("{}", json.dumps(label)[1:-1]))
    for reads in (lambda: read(lines(tmp_path / "a.jsonl", given), task), lambda: rows([given], task)):
        with pytest.raises(InputError, match=r"(line 1|row 0): the label .* holds a NUL, or half a surrogate pair"):
            reads()


def test_answers_are_cleaned_as_their_passages_are(tmp_path: Path) -> None:
    row = {"question": "q", "context": "ab c\0d", "answers": {"text": ["c\0d"], "answer_start": [3]}}
    assert read(lines(tmp_path / "a.jsonl", row), "answer")[0][0].gold == (Answer("cd", 3),)


def test_a_decimal_comma_is_no_name(tmp_path: Path) -> None:
    """40 pairs with 0,0 to 4,9 became a classifier of 10 labels, without a word."""
    path = write(tmp_path / "a.csv", "sentence1;sentence2;score\na;b;4,5\nc;d;0,5\n")
    for task in ("pair", "embed"):
        with pytest.raises(InputError, match="line 2: the label '4,5' has a decimal comma; write it with a point"):
            read(path, task)


def test_numbers_of_options_that_are_never_0_are_told(tmp_path: Path) -> None:
    def told(answers: list[int]) -> list[str]:
        rows = ({"context": "p", "question": "q", "options": ["a", "b", "c", "d"], "answer": own} for own in answers)
        return read(lines(tmp_path / "a.jsonl", *rows), "choose")[1]

    assert told([1, 2, 3, 1] * 3) == [
        "no answer is 0, and numbers count from 0: if these count from 1, take 1 away from each."
    ]
    assert told([1, 2, 3, 0] * 3) == told([1, 2, 3]) == []


def test_cells_that_are_cut_at_one_sign_only_are_told() -> None:
    assert label_sets.parted(["a|b", "c;d"]) == [("a", "b"), ("c;d",)]
    assert label_sets.uncut(["a|b", "c;d"]) == "labels are cut at '|' only: 1 hold another such sign, as 'c;d' does."
    for golds in (["a|b", "c"], ["a;b"], [("a;b",), ("c",)], ['["a;b"]', "c"], []):
        assert label_sets.uncut(golds) == ""


def test_tags_with_an_underscore_and_a_dash(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "EU B-ORG\nmet O\nBob B_PER-1\nLee I_PER-1\n")
    assert read(path, "tag")[0][0].gold == (Span(0, 2, "ORG"), Span(7, 14, "PER-1"))


@pytest.mark.parametrize("tag", ["b-per", "PER-B", "b_PER"])
def test_tags_with_edges_are_never_bare_labels(tag: str, tmp_path: Path) -> None:
    """Where one in five was written otherwise the file was read as one of bare labels: B-LOC and I-LOC were two."""
    inside = tag.replace("b", "i", 1) if tag[0] == "b" else "PER-I"
    words = [("Ann", tag), ("Lee", inside), ("is", "O"), ("in", "O"), ("New", "B-LOC"), ("York", "I-LOC")]
    text = "".join(f"{word}\t{own}\n" for word, own in words) + "\n"
    with pytest.raises(InputError, match=f"line 1: the tag '{tag}' is not O or a label with B-"):
        read(write(tmp_path / "a.txt", text * 3), "tag")
    row = {"tokens": [word for word, _ in words], "ner_tags": [own for _, own in words]}
    with pytest.raises(InputError, match=f"line 1: the tag '{tag}' is not O or a label with B-"):
        read(lines(tmp_path / "a.jsonl", row), "tag")


# -- Python --------------------------------------------------------------------------------------------------------


def test_rejected_rows_of_prodigy_are_left_out_in_python_too() -> None:
    """Of a file they were; of the same rows in a list each was learnt as accepted."""
    given = [{"text": "a", "label": "x", "answer": "reject"}, {"text": "b", "label": "y", "answer": "accept"}]
    found = rows(given)
    assert labels(found) == [("b", "y")]
    assert '1 rows were left out, for the annotator rejected them ("answer": "reject").' in found[1]


def test_rows_that_are_all_rejected_are_told_as_such(tmp_path: Path) -> None:
    """The file had no columns then: "no column for the text of classify among ;"."""
    path = lines(tmp_path / "a.jsonl", {"text": "a", "label": "x", "answer": "reject"})
    assert labels(read(path)) == []
    assert any("the annotator rejected them" in sentence for sentence in read(path)[1])


def test_other_rows_are_named_as_python_counts_them() -> None:
    given = [("c", "q", ["a", "b"], "a"), ("c", "q", ["a", "b"], 1), ("c", "q", ["a", "b"], "b")]
    with pytest.raises(InputError, match=r"^the data row 1: the answer 1 can only be .*, but at row 0 it is the text"):
        rows(given, "choose")


def test_exports_and_nested_fields_are_read_in_python_too() -> None:
    result = {"type": "choices", "from_name": "s", "value": {"choices": ["x"]}}
    found = rows([{"id": 1, "data": {"text": "a"}, "annotations": [{"result": [result]}]}])
    assert labels(found) == [("a", ("x",))]
    reading = Reading()
    columns = {"text": "data.text", "label": "label"}
    nested = objects.examples([{"data": {"text": "a"}, "label": "x"}], files("classify"), columns, reading)
    assert [(example.texts, example.gold) for example in nested] == [(("a",), "x")]


def test_a_structured_array_has_names() -> None:
    """They were passed over, so that ("label", "text") was learnt the wrong way round."""
    given = np.array([("x", "a"), ("y", "b")], dtype=[("label", "U5"), ("text", "U5")])
    assert labels(rows(given)) == labels(rows(given.view(np.recarray))) == [("a", "x"), ("b", "y")]


def test_names_that_are_one_as_text_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    for given in (pandas.DataFrame([["a", "x"]], columns=[0, "0"]), {0: ["a"], "0": ["x"]}):
        with pytest.raises(InputError, match="the column '0' stands twice"):
            rows(given)


def test_numpys_strings_and_enums_of_strings_are_texts() -> None:
    class Mood(str, enum.Enum):  # noqa: UP042
        GOOD = "good"

    assert labels(rows([("a", np.str_("x")), ("b", "y"), ("c", Mood.GOOD)])) == [("a", "x"), ("b", "y"), ("c", "good")]


def test_what_is_no_label_is_refused_whatever_it_is() -> None:
    pandas = pytest.importorskip("pandas")
    deep: Any = "x"
    for _ in range(10_000):
        deep = [deep]
    for given in (pandas.DataFrame({"text": ["a"], "label": ["x"]}).groupby("label"), [("a", deep)]):
        with pytest.raises(InputError, match=r"must be text or a number|in too many levels"):
            rows(given)


def test_names_of_numbers_are_not_taken_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = {"features": {"ner_tags": {"feature": {"names": ["O", "B-LOC"]}}}}
    write(tmp_path / "dataset_info.json", json.dumps(info))
    monkeypatch.chdir(tmp_path)
    assert rows([{"tokens": ["a", "b"], "ner_tags": [1, 0]}], "tag")[0][0].gold == (Span(0, 1, "1"),)


# -- folders -------------------------------------------------------------------------------------------------------


def test_links_to_folders_are_told(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "two")
    inside = tmp_path / "inside"
    inside.mkdir()
    write(inside / "a.txt", "one")
    (inside / "other").symlink_to(tmp_path)
    report = CorpusReport()
    assert [document.text for document in corpus.documents(inside, report=report)] == ["one"]
    told = "1 links to folders were not followed; name these folders themselves."
    assert told in report.remarks()
    assert [(found.file, found.message) for found in examine(inside)][-1] == (str(inside), told)
    assert mending.mended(inside, tmp_path / "mended").remarks == [told]
    with pytest.raises(InputError, match="other: is a link to a folder, which is not followed; name that folder too"):
        list(overlap.strings(inside))
    shutil.rmtree(tmp_path / "mended")
    assert sorted(overlap.strings([inside, tmp_path])) == ["one", "one", "two"]
    write(inside / "a.ann", "T1\tX 0 3\tone\n")
    reading = Reading()
    assert [row["text"] for _, row in brat.brat_rows(str(inside), reading)] == ["one"]
    assert told in reading.report.remarks()


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.txt", "one")
    (tmp_path / "closed").mkdir()
    listed = os.scandir

    def denied(path: str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(InputError, match=r"closed: cannot be read \(Permission denied\)"):
        corpus.files(tmp_path)


def test_json_is_kept_out_of_a_corpus_whatever_the_file_is_called(tmp_path: Path) -> None:
    """Escaped characters were not seen as what they stand for, so that nothing of it was kept out."""
    path = lines(tmp_path / "cmrc_dev.txt", {"text": "北京"}, {"text": "上海"})
    assert "\\u" in path.read_text(encoding="utf-8")
    assert list(overlap.strings(path)) == ["北京", "上海"]


def test_json_lines_are_no_plain_text(tmp_path: Path) -> None:
    """As WikiExtractor writes them, without a suffix: marks and names of fields were learnt as text."""
    path = lines(tmp_path / "wiki_00", {"id": "1", "text": "one"}, {"id": "2", "text": "two"})
    with pytest.raises(InputError, match=r"wiki_00: holds JSON lines, whose marks .*; give it the suffix \.jsonl\."):
        list(corpus.documents(path))
    for text in ("{}\n", "{ one }\ntwo\n", '{"a": 1}\nand more\n'):
        assert list(corpus.documents(write(tmp_path / "a.txt", text)))


def test_lists_of_tokens_are_kept_out_of_a_corpus_as_texts(tmp_path: Path) -> None:
    """Each token was looked for by itself, so that no text of such a file was kept out, and nothing said so."""
    text = "第一个故事讲了一只狐狸和一只乌鸦的很长很长的对话内容。"
    path = lines(tmp_path / "a.jsonl", {"tokens": list(text), "ner_tags": ["O"] * len(text)})
    assert overlap.Fingerprints.read(path)([text, "另外一个故事讲的是别的事情，和它没有关系，也不一样。"]) == [
        True,
        False,
    ]
    with pytest.raises(InputError, match=r"b\.csv: no text in it is long enough to be known by"):
        overlap.Fingerprints.read(write(tmp_path / "b.csv", "text,label\n好,x\n"))
