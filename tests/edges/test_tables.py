"""Labelled tables and JSON as people have them come in; what they hold goes out, or one sentence that names it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.doctor.diagnosis import examine, rendered
from filbert.doctor.mending import mended
from filbert.forms.datasets import examples, label_table, near_duplicates
from filbert.forms.headers import NO, PERHAPS, SURE, looks
from filbert.tasks.answer.reading import Answer
from filbert.text.streams import CorpusReport
from kit import files
from kit.files import lines, write

QUICK = ["--epochs", "1", "--set", "machine.threads=1", "--set", "task.max_length=32"]


def read(path: Path, task: str = "classify", **options: Any) -> tuple[list[tuple[tuple[str, ...], Any]], list[str]]:
    """Texts and gold of each example, and what the reader says of the file."""
    found, said = files.read(path, task, **options)
    return [(example.texts, example.gold) for example in found], said


def golds(path: Path, task: str = "classify", **options: Any) -> list[Any]:
    return [gold for _, gold in read(path, task, **options)[0]]


def told(*paths: Path, **options: Any) -> list[str]:
    return [line.replace(f"{paths[0].parent}/", "") for line in rendered(examine(paths, **options))]


@pytest.fixture(scope="module")
def trained(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of classify on eight rows."""
    from filbert.run.finetune import finetune
    from filbert.train import listeners

    folder = tmp_path_factory.mktemp("trained")
    path = write(folder / "a.csv", "text,label\n" + "".join(f"第{n}条,{'好差'[n % 2]}评\n" for n in range(8)))
    settings = ["machine.threads=1", "task.max_length=32"]
    finetune("classify", path, tiny_folder, folder / "run", epochs=1, settings=settings, listener=listeners.Silent())
    return folder / "run"


# -- B6: what the right choice is, once for a file ---------------------------------------------------------------

OPTIONS = "context,question,option0,option1,option2,label\n"


def test_B6_numbers_that_are_also_texts_are_read_in_one_way_for_the_file(tmp_path: Path) -> None:
    texts = write(tmp_path / "a.csv", OPTIONS + "文,几？,1,2,3,2\n文,几？,5,7,9,7\n")
    assert golds(texts, "choose") == [1, 1]  # 7 is no number of an option, so all are texts
    numbers = write(tmp_path / "b.csv", OPTIONS + "文,几？,1,2,3,2\n文,谁？,甲,乙,丙,0\n")
    assert golds(numbers, "choose") == [2, 0]  # 0 is no text, so all are numbers
    letters = write(tmp_path / "c.csv", OPTIONS + "文,几？,1,2,3,B\n文,谁？,甲,乙,丙,c\n")
    assert golds(letters, "choose") == [1, 2]


def test_B6_what_can_be_read_in_two_ways_throughout_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", OPTIONS + "文,几？,0,1,2,1\n文,几？,1,2,0,1\n")
    with pytest.raises(InputError, match=r"line 2: every answer can be read as the text .* at line 3 these are two"):
        read(path, "choose")
    same = write(tmp_path / "b.csv", OPTIONS + "文,几？,0,1,2,1\n文,几？,0,1,2,2\n")
    assert golds(same, "choose") == [1, 2]  # both ways say the same


def test_B6_one_that_is_written_otherwise_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", OPTIONS + "文,谁？,甲,乙,丙,0\n文,谁？,甲,乙,丙,1\n文,谁？,甲,乙,丙,丙\n")
    with pytest.raises(
        InputError, match=r"line 4: the answer '丙' can only be the text .* but at line 2 it is the num"
    ):
        read(path, "choose")
    same = lines(
        tmp_path / "b.jsonl",
        {"context": "文", "options": ["1", "2"], "label": "2"},
        {"context": "文", "options": ["甲", "乙"], "label": "乙"},
    )
    assert golds(same, "choose") == [1, 1]
    entries = [[["文"], [{"question": "几？", "choice": ["1", "2", "3"], "answer": each}], "1"] for each in ("2", "3")]
    assert golds(write(tmp_path / "c.json", json.dumps(entries)), "choose") == [1, 2]


def test_B6_an_empty_option_in_the_middle_does_not_move_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", OPTIONS + "文,谁？,甲,,丙,C\n")
    with pytest.raises(InputError, match="line 2: an option is empty, but one after it is not"):
        read(path, "choose")
    assert golds(write(tmp_path / "b.csv", OPTIONS + "文,谁？,甲,乙,,1\n"), "choose") == [1]


# -- B7: where an answer begins ----------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [6, 6.0, "6", "6.0"])
def test_B7_answer_start_may_be_written_as_text_or_with_a_fraction(start: object, tmp_path: Path) -> None:
    asked = {"question": "多久？", "context": "豆子泡一夜，一夜。"}
    row = asked | {"answers": {"text": ["一夜"], "answer_start": [start]}}
    assert golds(lines(tmp_path / "a.jsonl", row), "answer") == [(Answer("一夜", 6),)]
    flat = asked | {"answer": "一夜", "answer_start": start}
    assert golds(lines(tmp_path / "b.jsonl", flat), "answer") == [(Answer("一夜", 6),)]
    cells = f"question,context,answer,answer_start\n多久？,豆子泡一夜，一夜。,一夜,{start}\n"
    assert golds(write(tmp_path / "c.csv", cells), "answer") == [(Answer("一夜", 6),)]
    squad = {"data": [{"paragraphs": [{"context": asked["context"], "qas": [
        {"id": "Q", "question": "多久？", "answers": [{"text": "一夜", "answer_start": start}]}]}]}]}  # fmt: skip
    assert golds(write(tmp_path / "d.json", json.dumps(squad)), "answer") == [(Answer("一夜", 6),)]


@pytest.mark.parametrize("start", ["sechs", 6.5, True, [6, 7], {"at": 6}])
def test_B7_what_is_no_place_is_named(start: object, tmp_path: Path) -> None:
    row = {"question": "多久？", "context": "豆子泡一夜，一夜。", "answers": [{"text": "一夜", "answer_start": start}]}
    with pytest.raises(InputError, match=r"a\.jsonl line 1: .*answer_start"):
        read(lines(tmp_path / "a.jsonl", row), "answer")


def test_B7_answers_without_a_place_or_without_a_text_are_told(tmp_path: Path) -> None:
    asked = {"question": "多久？", "context": "豆子泡一夜，一夜。"}
    found, said = read(lines(tmp_path / "a.jsonl", asked | {"answers": "一夜"}), "answer")
    assert (found[0][1], said) == (
        (Answer("一夜", 3),),
        ["1 answers have no answer_start and stand several times in their context; the first place was taken."],
    )
    with pytest.raises(InputError, match="has 2 answers, but 1 of answer_start; each answer needs its own"):
        read(lines(tmp_path / "b.jsonl", asked | {"answers": {"text": ["豆", "一夜"], "answer_start": [0]}}), "answer")
    for wrong in (7, [{"answer": "一夜"}], {"text": [None], "answer_start": [1]}):
        with pytest.raises(InputError, match=r"the answers are .*, but must be text, or"):
            read(lines(tmp_path / "c.jsonl", asked | {"answers": wrong}), "answer")


# -- B8: the columns of all rows ---------------------------------------------------------------------------------


def test_B8_a_label_that_first_shows_in_a_later_row_is_not_passed_over(tmp_path: Path) -> None:
    first, second = {"sentence1": "一", "sentence2": "二"}, {"sentence1": "三", "sentence2": "四", "label": 0}
    for path in (lines(tmp_path / "a.jsonl", first, second), write(tmp_path / "b.json", json.dumps([first, second]))):
        with pytest.raises(InputError, match="has a label, but rows before it have none"):
            read(path, "embed")
    texts = [{"text": "一"}, {"text": "二", "label": "a"}]
    with pytest.raises(InputError, match="line 2: has a label, but rows before it have none"):
        read(lines(tmp_path / "c.jsonl", *texts))


def test_B8_a_label_that_shows_far_behind_the_head_is_refused(tmp_path: Path) -> None:
    rows = [{"sentence1": f"一{n}", "sentence2": f"二{n}"} for n in range(300)]
    path = lines(tmp_path / "a.jsonl", *rows, rows[0] | {"label": 0})
    with pytest.raises(InputError, match=r"line 301: brings the column 'label', .* --columns text=.*label=label"):
        read(path, "embed")
    assert len(read(lines(tmp_path / "b.jsonl", *rows, rows[0] | {"note": "x"}), "embed")[0]) == 301
    named = {"text": "sentence1", "second": "sentence2", "label": "label"}
    with pytest.raises(InputError, match="line 301: has a label, but rows before it have none"):
        read(path, "embed", columns=named)


def test_B8_pairs_whose_likeness_stands_in_an_unknown_column_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "sentence1,sentence2,likeness\n一,二,0\n三,四,1\n")
    _, said = read(path, "embed", columns={"text": "sentence1", "second": "sentence2"})
    assert said == [
        "column likeness is passed over.",
        "no column is read as a label or number, so every pair is taken for alike; if one says how alike they are: "
        "--columns …,label=likeness.",
    ]


# -- B9: signs and grades ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels", [("-1.0", "1.0"), ("-0.5", "0.5"), ("A", "A-"), ("B+", "B"), ("1-2", "12"), ("10", "1.0"), ("+1", "-1")]
)
def test_B9_signs_and_grades_are_different_labels(labels: tuple[str, str]) -> None:
    assert near_duplicates(labels) == ()
    assert label_table([Example(("a",), label) for label in labels]).check().labels


@pytest.mark.parametrize(
    "labels", [("pos", "Pos "), ("体育", "体育 "), ("Ａ", "a"), ("New  York", "new york"), ("-1", "-01")]
)
def test_B9_case_width_and_white_space_are_not(labels: tuple[str, str]) -> None:
    assert near_duplicates(labels) == (labels,)


# -- B12: bytes that do not decode -------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [
    "1,2024-01-02,这家店的味道很好吃,好评\n2,2024-01-03,等了很久才上菜,差评\n",
    "编号,日期,内容,打分\n1,2024-01-02,这家店的味道很好吃,好评\n",
    "这家店的味道很好吃,好评\n等了很久才上菜,差评\n",
])  # fmt: skip
def test_B12_the_encoding_is_named_by_every_command(
    rows: str, filbert: Callable[..., Any], tiny_folder: Path, trained: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.csv", rows.encode("gb18030"))
    for words in (
        ["doctor", path],
        ["doctor", path, "--task", "classify"],
        ["finetune", "classify", "--train", path, "--model", tiny_folder, "-o", tmp_path / "run"],
        ["evaluate", trained, "--data", path],
        ["predict", trained, "--data", path],
    ):
        ran = filbert(*words)
        assert ran.code == 2
        assert "GB18030; use --encoding gb18030" in ran.out + ran.err
        assert str(path) in ran.out + ran.err
        assert "offset" in ran.out + ran.err


# -- B13: headers ------------------------------------------------------------------------------------------------

REVIEWS = "".join(
    f"{n},2024-01-{n:02d},第{n}次来吃了，味道还是老样子,{'好评差评'[n % 2 * 2 :][:2]}\n" for n in range(1, 13)
)
HEADED = f"序号,日期,评论内容,情感倾向值\n{REVIEWS}"


def test_B13_a_header_in_any_language_is_recognised_and_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", HEADED)
    with pytest.raises(InputError, match="no column for the first of pair among 序号, 日期, 评论内容, 情感倾向值"):
        read(path, "pair")
    found, said = read(path, columns={"text": "评论内容", "label": "情感倾向值"})
    assert (len(found), found[0]) == (12, (("第1次来吃了，味道还是老样子",), "差评"))
    assert said == ["columns 序号, 日期 are passed over."]
    spanish = "comentario;sentimiento\n" + "".join(
        f"fue la visita número {n};{'sí' if n % 2 else 'no'}\n" for n in range(6)
    )
    found, said = read(write(tmp_path / "b.csv", spanish), columns={"text": 1, "label": 2})
    assert len(found) == 6
    assert said[0].startswith("read as semicolon-separated; its first line is taken for the header: comentario, senti")


def test_B13_known_names_need_no_help(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"序号,日期,评论内容,情感\n{REVIEWS}")
    found, said = read(path)
    assert (len(found), found[0][1], said) == (12, "差评", ["columns 序号, 日期 are passed over."])


def test_B13_a_misspelt_column_names_the_real_ones_and_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", HEADED)
    with pytest.raises(InputError) as refused:
        read(path, columns={"text": "评论", "label": "情感倾向值"})
    wanted = "the column is '评论', but must be one of: 序号, 日期, 评论内容, 情感倾向值. Did you mean '评论内容'?"
    assert str(refused.value) == f"{path}: {wanted}"
    rows = lines(tmp_path / "b.jsonl", {"review_text": "好", "stars": 5})
    with pytest.raises(InputError, match=r"must be one of: review_text, stars\. Did you mean 'review_text'"):
        read(rows, columns={"text": "review_txt", "label": "stars"})


@pytest.mark.parametrize(("header", "width"), [("text,label", 2), ("序号,日期,评论内容,情感倾向值", 4)])
def test_B13_numbers_never_make_a_header_a_row(header: str, width: int, tmp_path: Path) -> None:
    rows = "".join(f"这是第{n}条比较长的评论,{'ab'[n % 2]}\n" for n in range(8)) if width == 2 else REVIEWS
    path = write(tmp_path / "a.csv", f"{header}\n{rows}")
    found, said = read(path, columns={"text": width - 1, "label": width})
    assert len(found) == rows.count("\n")
    assert all(text not in header for (text,), _ in found)
    assert said[-1].startswith("read as comma-separated; its first line is taken for the header: ")
    assert f"a.csv: note: {said[-1]}" in told(path, task="classify", columns={"text": width - 1, "label": width})


@pytest.mark.parametrize(("columns", "rows"), [
    ({"text": 1, "label": 2}, "a,1\nb,0\nc,2\n"), ({"label": 1, "text": 2}, "1,a\n0,b\n2,c\n"),
    ({"text": 2, "label": 1}, "1,a\n0,b\n2,c\n"),
])  # fmt: skip
def test_B13_a_number_in_the_first_row_is_no_name_of_a_column(
    columns: dict[str, str | int], rows: str, tmp_path: Path
) -> None:
    """The label 1 was taken for the name "1" of a column, the row for a header, and labels were learnt as texts."""
    path = write(tmp_path / "a.csv", rows)
    found = [(example.texts[0], example.gold) for example in examples(path, "classify", columns)]
    assert found == [("a", "1"), ("b", "0"), ("c", "2")]


@pytest.mark.parametrize("header", ["0,1", "1,2", "7,8"])
def test_B13_numbers_that_name_columns_are_a_header(header: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"{header}\na,x\nb,y\n")
    text, label = header.split(",")
    found = [(example.texts[0], example.gold) for example in examples(path, "classify", {"text": text, "label": label})]
    assert found == [("a", "x"), ("b", "y")]


def test_B13_files_without_a_header_are_read_as_they_lie(tmp_path: Path) -> None:
    titles = write(tmp_path / "a.txt", "".join(f"词汇阅读是关键 第{n}篇\t{n % 10}\n" for n in range(40)))
    assert len(read(titles)[0]) == 40
    words = write(tmp_path / "b.tsv", "".join(f"很好吃的第{n}家店\t{'pos' if n % 2 else 'neg'}\n" for n in range(40)))
    assert (len(read(words)[0]), read(words)[1]) == (40, [])
    few = write(tmp_path / "c.tsv", "好\tpos\n坏\tneg\n")
    assert read(few)[0] == [(("好",), "pos"), (("坏",), "neg")]
    alike = write(tmp_path / "d.tsv", "".join(f"左{n}\t右{n}\n" for n in range(20)))
    assert len(read(alike, "pair")[0]) == 20


def test_B13_a_first_row_that_could_be_both_is_refused_until_it_is_said(tmp_path: Path) -> None:
    rows = "".join(f"店{n}\t{'pos' if n % 2 else 'neg'}\n" for n in range(30))
    path = write(tmp_path / "a.tsv", f"甲家\tmixed\n{rows}")
    with pytest.raises(InputError, match=r"line 1: is it a header\? 甲家, mixed"):
        read(path)
    found, said = read(path, columns={"text": 1, "label": 2})
    assert (found[0], len(found)) == ((("甲家",), "mixed"), 31)
    assert "(its first line, 甲家, mixed, is read as the others are)" in said[0]
    assert len(read(path, columns={"text": "甲家", "label": "mixed"})[0]) == 30


def test_B13_what_speaks_for_a_header() -> None:
    below = [(f"第{n}条评论说味道不错", "ab"[n % 2]) for n in range(12)]
    assert looks(("评论", "情感"), below) == SURE
    assert looks(("评论", "a"), below) == NO  # it comes again
    assert looks(("味道不错。", "c"), below) == NO  # a sentence
    assert looks(("评论", "3"), below) == NO
    assert looks(("名", "N/A"), [("甲", "1"), ("乙", "2"), ("丙", "3")]) == NO  # a number is missing
    assert looks(("姓", "值"), [("甲", "1"), ("乙", "2"), ("丙", "3")]) == SURE
    assert looks(("店名甲乙丙丁戊己", "c"), below) == PERHAPS
    assert looks(("用户评论",), [(f"第{n}条评论说味道不错",) for n in range(12)]) == SURE
    assert looks(("味道不错",), [(f"第{n}条评论说味道不错",) for n in range(12)]) == NO


def test_B13_a_corpus_tells_which_line_was_its_header(filbert: Callable[..., Any], tmp_path: Path) -> None:
    from filbert.text.corpus import documents

    path = write(tmp_path / "a.csv", "第一条没有表头\n第二条\n第三条\n")
    report = CorpusReport()
    assert len(list(documents(path, report=report))) == 2
    assert report.remarks() == [f"{path}: its first line is taken for the header, and no text: 第一条没有表头."]
    named = CorpusReport()
    assert len(list(documents(write(tmp_path / "b.csv", "text\n一\n二\n"), report=named))) == 2
    assert named.remarks() == []


# -- B14: labels that stand once ---------------------------------------------------------------------------------


def swapped(path: Path, header: str = "label,text\n") -> Path:
    rows = "".join(f"这是第{max(n, 1)}条,{'ab'[n % 2]}\n" for n in range(40))
    return write(path, header + rows)


def test_B14_swapped_columns_are_refused_and_told(
    filbert: Callable[..., Any], tiny_folder: Path, tmp_path: Path
) -> None:
    path = swapped(tmp_path / "a.csv")
    words = ["finetune", "classify", "--train", path, "--model", tiny_folder, "-o", tmp_path / "run"]
    ran = filbert(*words)
    assert ran.code == 2
    wanted = f"{path}: 38 of the 39 labels stand only once in 40 rows; are the columns swapped?"
    assert wanted in ran.err
    assert "--columns text=…,label=…" in ran.err
    assert not (tmp_path / "run").exists()
    assert any("38 of the 39 labels stand only once in 40 rows" in line for line in told(path))
    _, said = read(path, columns={"text": "text", "label": "label"})
    assert said[0].startswith("38 of the 39 labels stand only once in 40 rows; are the columns swapped?")


def test_B14_few_rows_rare_labels_and_numbers_are_no_sign_of_it(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.csv", "text,label\n一,a\n二,b\n三,c\n四,d\n"))[1] == []
    rare = "text,label\n" + "".join(f"第{n}条,{'abcd'[max(0, n - 16)]}\n" for n in range(18))
    assert read(write(tmp_path / "b.csv", rare))[1] == []
    rated = "sentence1,sentence2,score\n" + "".join(f"甲{n},乙{n},{n / 7:.2f}\n" for n in range(20))
    assert read(write(tmp_path / "c.csv", rated), "pair")[1] == []


# -- B15, B17: cells and lines as a spreadsheet has them -----------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_B15_spaces_after_a_delimiter_are_none_of_the_cell(delimiter: str, tmp_path: Path) -> None:
    cut = delimiter
    rows = f'text{cut} label\n好吃{cut} pos\n"说{cut} 不"{cut} "neg"\n他说 "好"{cut} "pos"\n坏{cut} neg\n'
    path = write(tmp_path / "a.csv", rows)
    assert read(path)[0] == [
        (("好吃",), "pos"),
        ((f"说{cut} 不",), "neg"),
        (('他说 "好"',), "pos"),
        (("坏",), "neg"),
    ]
    assert label_table(examples(path, "classify")).check().labels == ("neg", "pos")


def test_B15_quotation_marks_within_a_text_stay(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'label,text\n1, "60年"铁树开花\n0, 他说 "好\n')
    assert read(path)[0] == [((' "60年"铁树开花',), "1"), (('他说 "好',), "0")]


def test_B15_mended_copies_read_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text, label\n好吃, "pos"\n"说, 不", neg\n好吃, "pos"\n')
    done = mended(path, tmp_path / "out")
    assert read(Path(done.files[0]))[0] == [(("好吃",), "pos"), (("说, 不",), "neg")]


def test_B17_blank_lines_are_counted_alike_with_and_without_a_header(tmp_path: Path) -> None:
    rows = "好,a\n\n   \n,\n坏,b\n \t \n"
    for name, header in (("a.csv", "text,label\n"), ("b.csv", "")):
        path = write(tmp_path / name, header + rows)
        found, said = read(path)
        assert [gold for _, gold in found] == ["a", "b"]
        assert said == ["4 blank documents or rows were skipped."]
        assert [line for line in told(path, task="classify") if "error" in line] == []
    tabs = write(tmp_path / "c.tsv", "好\ta\n  \n\t\n坏\tb\n")
    assert read(tabs)[1] == ["2 blank documents or rows were skipped."]


def test_B17_a_header_after_blank_lines_is_the_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "  \n,\ntext,label\n好,a\n坏,b\n")
    assert golds(path) == ["a", "b"]


# -- B18: what finetune reads, the doctor reads ------------------------------------------------------------------


def test_B18_columns_say_the_task(tmp_path: Path) -> None:
    three = write(tmp_path / "a.tsv", "".join(f"{n}\t第{n}条\t{n % 2}\n" for n in range(20)))
    found = told(three, columns={"text": 2, "label": 3})
    assert found[0] == (
        "a.tsv: note: read as tab-separated without a header, 3 columns, for classify with text from column 2, "
        "label from column 3."
    )
    pairs = write(tmp_path / "b.csv", "甲,乙,值\n" + "".join(f"左边{n},右边{n},{n % 2}\n" for n in range(9)))
    assert ", for pair with first from 甲, second from 乙, label from 值." in "\n".join(
        told(pairs, columns={"sentence1": "甲", "sentence2": "乙", "label": "值"})
    )


def test_B18_a_list_of_labels_is_for_classify_and_of_spans_for_tag(tmp_path: Path) -> None:
    several = lines(
        tmp_path / "a.jsonl", *[{"text": f"第{n}条", "label": ["体育", "财经"][: n % 2 + 1]} for n in range(22)]
    )
    found = told(several)
    assert ", for classify with text from text, label from label." in found[0]
    assert not [line for line in found if "error" in line]
    spans = lines(tmp_path / "b.jsonl", {"text": "无", "label": []}, {"text": "在北京", "label": [[1, 3, "LOC"]]})
    assert ", for tag with text from text, entities from label." in "\n".join(told(spans))


def test_B18_no_advice_of_options_that_the_doctor_lacks(filbert: Callable[..., Any], tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", "alpha,beta\n" + "".join(f"这是第{n}条比较长的话,另一句比较长的话{n}\n" for n in range(9))
    )
    ran = filbert("doctor", path, "--task", "corpus")
    assert "--field" not in ran.out + ran.err
    assert "--columns text=NAME" in ran.out
    ran = filbert("doctor", path, "--task", "corpus", "--columns", "text=beta")
    assert (ran.code, "9 documents" in ran.out) == (0, True)
    ran = filbert("doctor", path, "--columns", "text=beta")
    assert (ran.code, "9 documents" in ran.out) == (0, True)
    assert filbert("doctor", path, "--columns", "colour=beta").code == 2


# -- B19: names of the field ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("sentence1", "sentence2"), ("text_a", "text_b"), ("premise", "hypothesis")])
def test_B19_the_fields_own_names_are_roles(names: tuple[str, str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "甲,乙,值\n一,二,0\n三,四,1\n")
    columns = {names[0]: "甲", names[1]: "乙", "label": "值"}
    assert read(path, "pair", columns=columns)[0] == [(("一", "二"), "0"), (("三", "四"), "1")]
    assert read(path, "embed", columns=columns)[0] == [(("一", "二"), "0"), (("三", "四"), "1")]
    with pytest.raises(InputError, match="columns name the first of pair twice"):
        read(path, "pair", columns={"first": "甲", names[0]: "乙", names[1]: "值"})


def test_B19_text_pair_and_score(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,text_pair,label\n一,二,0\n三,四,1\n")
    assert read(path, "pair")[0] == [(("一", "二"), "0"), (("三", "四"), "1")]
    rated = write(tmp_path / "b.csv", "sentence1,sentence2,score\n一,二,0.5\n三,四,1.5\n")
    assert golds(rated, "pair") == ["0.5", "1.5"]
    assert golds(write(tmp_path / "c.csv", "text,score\n一,2\n三,4\n")) == ["2", "4"]
    with pytest.raises(InputError, match="a role in columns for pair is 'colour'"):
        read(path, "pair", columns={"colour": "text"})


# -- B22: numbers of pairs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rated(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty pairs with numbers from 0 to 5."""
    folder = tmp_path_factory.mktemp("rated")
    rows = "".join(f"甲{n}去看书\t乙{n}去看书\t{n % 26 / 5:.1f}\n" for n in range(30))
    return write(folder / "a.tsv", f"sentence1\tsentence2\tscore\n{rows}")


@pytest.mark.usefixtures("one_thread")
def test_B22_fractions_are_learnt_as_a_number_and_told(
    filbert: Callable[..., Any], rated: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    ran = filbert("finetune", "pair", "--train", rated, "--model", tiny_folder, "-o", tmp_path / "run", *QUICK)
    assert ran.code == 0, ran.err
    assert "/model: a number," in ran.out
    words = "the labels are numbers from 0 to 5, 2.21 on average"
    assert words in ran.err
    assert any(words in line for line in told(rated))
    assert json.loads((tmp_path / "run/model/task.json").read_text(encoding="utf-8"))["answer"] == "number"
    said = json.loads(filbert("predict", tmp_path / "run", "--pair", "甲", "乙").out)
    assert set(said) >= {"value"}


@pytest.mark.usefixtures("one_thread")
def test_B22_names_are_learnt_where_they_are_asked_for(
    filbert: Callable[..., Any], rated: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    words = ["finetune", "pair", "--train", rated, "--model", tiny_folder, "-o", tmp_path / "run", *QUICK]
    ran = filbert(*words, "--set", "task.answer=label", "--columns", "first=sentence1,second=sentence2,label=score")
    assert ran.code == 0, ran.err
    assert "/model: 26 labels," in ran.out
    assert "26 names are learnt; for one number --set task.answer=number" in ran.err


# -- standard input and files by what they hold --------------------------------------------------------------------


def test_json_is_recognised_whatever_the_file_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"text": "好", "label": "a"}, {"text": "坏", "label": "b"}]
    path = lines(tmp_path / "a.txt", *rows)
    assert golds(path) == ["a", "b"]
    assert golds(write(tmp_path / "b.txt", json.dumps(rows, indent=1))) == ["a", "b"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert [example.gold for example in examples("-", "classify")] == ["a", "b"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n")))
    with pytest.raises(InputError, match=r"^-: "):
        list(examples("-", "answer"))


def test_json_of_other_forms_is_read_or_refused_by_what_it_holds(tmp_path: Path) -> None:
    rows = [{"text": "好", "label": "a"}, {"text": "坏", "label": "b"}]
    held = write(tmp_path / "a.json", json.dumps({"version": 1, "data": rows}))
    assert golds(held) == ["a", "b"]
    with pytest.raises(InputError, match="of which no repaired copies are made"):
        mended(held, tmp_path / "out")
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    with pytest.raises(InputError, match="is one JSON object with 'rows'; write its rows as JSON lines"):
        read(write(tmp_path / "b.json", json.dumps({"rows": rows}, indent=1)))
    with pytest.raises(InputError, match="is JSON of no known form"):
        read(write(tmp_path / "c.json", json.dumps([["好", "a"], ["坏", "b"]])))
