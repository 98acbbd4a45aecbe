"""Files with faults that can be repaired come in; the copies have none of them, and are the same bytes elsewhere."""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from filbert.core.errors import InputError
from filbert.doctor.diagnosis import examine
from filbert.doctor.mending import LIST, cell, mended, records
from filbert.forms.datasets import examples
from filbert.forms.json_places import edited, parsed, removals, rewritten
from filbert.forms.spec import task_names
from filbert.tasks.answer.files import safe_place
from filbert.text.streams import Reading, whole_lines
from filbert.text.tables import cells
from kit.files import write


def repaired(tmp_path: Path, *paths: Path, **options: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """The texts of the copies, and the list of repairs."""
    done = mended(paths, tmp_path / "out", **options)
    texts = [Path(file).read_bytes().decode() for file in done.files]
    listed = [json.loads(line) for line in (tmp_path / "out" / LIST).read_text(encoding="utf-8").splitlines()]
    assert sum(done.counts.values()) == len(listed)
    return texts, listed


def left(tmp_path: Path, *names: str, **options: Any) -> list[tuple[int, str]]:
    """What the doctor still has to say of the copies."""
    found = examine([tmp_path / "out" / name for name in names], **options)
    return [(finding.line, finding.message) for finding in found if finding.severity != "note"]


GOOD = "".join(f"第{n}条,{'pos' if n % 2 else 'neg'}\n" for n in range(12))


# -- tables ------------------------------------------------------------------------------------------------------


def test_a_table_keeps_every_byte_that_needs_no_repair(tmp_path: Path) -> None:
    kept = 'text,label\n"quoted, with ""marks""\nand two lines",pos\nplain "inner" marks,neg\n\n"",\n' + GOOD
    path = write(tmp_path / "a.csv", f'{kept}两边, pos \n又一,"  neg"\n第0条,neg\n  ,pos\n第1条,neg\nragged\n')
    (text,), listed = repaired(tmp_path, path)
    assert text == f'{kept}两边,pos\n又一,"neg"\n第1条,neg\nragged\n'
    assert [(each["line"], each["what"], each["before"], each["after"]) for each in listed] == [
        (19, "white space around the label removed", " pos ", "pos"),
        (20, "white space around the label removed", '"  neg"', '"neg"'),
        (21, "removed, for the same text and label stand before", "第0条,neg", None),
        (22, "removed, for a text is empty", "  ,pos", None),
    ]
    assert path.read_text(encoding="utf-8") != text  # the source stands as it was


def test_the_copy_of_a_healthy_file_is_the_file(tmp_path: Path) -> None:
    for name, data in {
        "a.csv": f"text,label\n{GOOD}",
        "b.jsonl": '{"text": "一", "label": "a" }\n\n{"label":"b","text":"\\u4e8c"}',
        "c.txt": "今 B-LOC\n天 O\n\n\n好 O\n",
        "d.json": '[ {"text": "一", "label": 1},\n  {"text": "二", "label": 2} ]\n',
    }.items():
        path = write(tmp_path / name, data)
        done = mended(path, tmp_path / f"out {name}")
        assert Path(done.files[0]).read_bytes() == path.read_bytes()
        assert not done.counts


def test_marks_nuls_and_line_ends(tmp_path: Path) -> None:
    raw = b'\xef\xbb\xbftext,label\r\na\0b,1\r\n"c\r\nd",2\re,1\n'
    (text,), listed = repaired(tmp_path, write(tmp_path / "a.csv", raw))
    assert text == 'text,label\nab,1\n"c\nd",2\ne,1\n'
    assert [(each["what"], each["before"]) for each in listed] == [
        ("byte order mark removed", "U+FEFF"),
        ("NUL characters removed", "1 NUL"),
        ("line ends made LF", "3 CRLF, 1 CR"),
    ]
    again = mended(tmp_path / "out/a.csv", tmp_path / "again")
    assert not again.counts


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_last_line_ends_as_it_did(end: str, tmp_path: Path) -> None:
    (text,), _ = repaired(tmp_path, write(tmp_path / "a.tsv", f"一\tx\n二\ty {end}"))
    assert text == f"一\tx\n二\ty{end}"


def test_other_encodings_and_compressions(tmp_path: Path) -> None:
    table = f"text,label\n{GOOD}两边, pos\n"
    gb = write(tmp_path / "a.csv.gz", gzip.compress(table.encode("gb18030")))
    done = mended(gb, tmp_path / "gb", encoding="gb18030")
    assert done.files == [str(tmp_path / "gb/a.csv")]
    assert Path(done.files[0]).read_bytes() == table.replace(", pos", ",pos").encode("gb18030")
    wide = write(tmp_path / "b.csv.xz", lzma.compress(table.encode("utf-16")))
    done = mended(wide, tmp_path / "wide", encoding="utf-16")
    assert Path(done.files[0]).read_bytes() == table.replace(", pos", ",pos").encode("utf-16")


def test_records_are_the_rows_that_the_reader_finds(tmp_path: Path) -> None:
    chance = random.Random(0)
    for number in range(300):
        text = "".join(chance.choice('ab,";\n\t 字') for _ in range(chance.randrange(1, 40)))
        path = write(tmp_path / f"{number}.csv", text)
        for delimiter in (",", "\t", ";"):
            reading = Reading(fault=lambda *_: None)
            found = list(records(whole_lines(str(path), reading), delimiter))
            assert "\n".join(record for _, record, _ in found) == text.removesuffix("\n")
            mine = [
                (line, [cell(record[slice(*place)], delimiter == "\t") for place in places])
                for line, record, places in found
                if places is not None
            ]
            assert mine == list(cells(str(path), reading, delimiter))


# -- JSON --------------------------------------------------------------------------------------------------------


def test_places_of_json_values() -> None:
    chance = random.Random(0)

    def value(depth: int) -> Any:
        kind = chance.randrange(7 if depth < 4 else 5)
        if kind == 5:
            return [value(depth + 1) for _ in range(chance.randrange(4))]
        if kind == 6:
            return {f"键{n}\n": value(depth + 1) for n in range(chance.randrange(4))}
        return [None, True, -1.5e3, '引"\\\n\u0007号', 7][kind]

    for number in range(200):
        made = value(0)
        text = json.dumps(made, ensure_ascii=bool(number % 2), indent=number % 3 or None)
        node = parsed(text)
        assert (node.value, text[node.start : node.end]) == (made, text)
        for inner in (*node.items, *node.fields.values()):
            assert json.loads(text[inner.start : inner.end]) == inner.value
        if node.items:
            gone = {place for place in range(len(node.items)) if chance.random() < 0.5}
            kept = [item for place, item in enumerate(made) if place not in gone]
            assert json.loads(edited(text, removals(node.items, gone))) == kept
    node = parsed('{"a": "\\u4e2d", "b": "中"}')
    assert rewritten('{"a": "\\u4e2d", "b": "中"}', node.fields["a"], "国")[2] == '"\\u56fd"'
    assert rewritten('{"a": "\\u4e2d", "b": "中"}', node.fields["b"], "国")[2] == '"国"'


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        '{"text": "一",   "label": " a "}',
        '{"label": "b", "text": "二"}',
        '{"text": "一", "label": "a"}',
        '{"text": " ", "label": "a"}',
        "not json",
        '{"text": "三", "label": "\\u4e2d "}',
        '{"text": "四", "la',
    ]
    (text,), listed = repaired(tmp_path, write(tmp_path / "a.jsonl", "\n".join(lines)), task="classify")
    assert text == "\n".join(
        ['{"text": "一",   "label": "a"}', lines[1], "not json", '{"text": "三", "label": "\\u4e2d"}']
    )
    assert [(each["line"], each["what"]) for each in listed] == [
        (1, "white space around the label removed"),
        (3, "removed, for the same text and label stand before"),
        (4, "removed, for a text is empty"),
        (6, "white space around the label removed"),
        (7, "unfinished last line removed"),
    ]


def test_entities_lose_the_white_space_at_their_edges(tmp_path: Path) -> None:
    rows = [
        {"text": "在 北京 住", "entities": [{"start": 1, "end": 5, "label": "LOC "}]},
        {"text": "在 上海 住", "entities": [{"start": 1, "end": 4, "label": "LOC", "text": " 上海"}]},
        {"text": "在 天津 住", "entities": [[1, 5, "LOC"], [0, 9, "LOC"]]},
        {"text": "在 北京 住", "entities": [{"label": "LOC", "start": 2, "end": 4}]},
        {"text": "在 重庆 住", "entities": [{"start": 1, "end": 2, "label": "LOC"}]},
    ]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    (text,), _ = repaired(tmp_path, path)
    found = [json.loads(line) for line in text.splitlines()]
    assert found[0]["entities"] == [{"start": 2, "end": 4, "label": "LOC"}]
    assert found[1]["entities"] == [{"start": 2, "end": 4, "label": "LOC", "text": "上海"}]
    assert found[2]["entities"] == [[2, 4, "LOC"], [0, 9, "LOC"]]  # the one that leaves the text is left and told
    assert (
        found[3]["entities"] == rows[4]["entities"]
    )  # the fourth row says what the first did, the fifth holds a space
    assert len(found) == 4
    assert [line for line, message in left(tmp_path, "a.jsonl") if "leaves the text" in message] == [3]


def test_an_array_of_rows(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.json",
        '[\n {"text": "一", "label": "a"},\n {"text": "一", "label": "a "},\n {"text": "二", "label": " b"}\n]\n',
    )
    (text,), listed = repaired(tmp_path, path)
    assert text == '[\n {"text": "一", "label": "a"},\n {"text": "二", "label": "b"}\n]\n'
    assert sorted((each["line"], each["what"]) for each in listed) == [
        (2, "removed, for the same text and label stand before"),
        (4, "white space around the label removed"),
    ]


# -- CoNLL -------------------------------------------------------------------------------------------------------


def test_an_array_of_texts_alone_is_copied(tmp_path: Path) -> None:
    array = '[{"text": "one"}, {"text": "two"}, {"text": "two"}]\n'
    assert repaired(tmp_path, write(tmp_path / "a.json", array)) == ([array], [])


def test_tags_begin_and_the_spans_stay(tmp_path: Path) -> None:
    lines = "北\tI-LOC\n京\tI-LOC\n王\tB-PER\n府\tI-ORG\n\n东 E-LOC\n京 O\n坏\n\n好 O\n\n\n好 O\n\n天 O\n"
    path = write(tmp_path / "a.txt", lines)
    before = [example.gold for example in examples(path, "tag", reading=Reading(fault=lambda *_: None))]
    (text,), listed = repaired(tmp_path, path, task="tag")
    assert text == "北\tB-LOC\n京\tI-LOC\n王\tB-PER\n府\tB-ORG\n\n东 S-LOC\n京 O\n坏\n\n好 O\n\n\n天 O\n"
    after = [
        example.gold for example in examples(tmp_path / "out/a.txt", "tag", reading=Reading(fault=lambda *_: None))
    ]
    assert after == before[:3] + before[4:]
    assert [(each["line"], each["before"], each["after"]) for each in listed] == [
        (1, "I-LOC", "B-LOC"),
        (4, "I-ORG", "B-ORG"),
        (6, "E-LOC", "S-LOC"),
        (13, "好 O", None),
    ]


# -- answers and choices -----------------------------------------------------------------------------------------


def test_where_an_answer_surely_stands() -> None:
    assert safe_place("豆子泡一夜", "一夜", 3) is None  # it stands there
    assert safe_place("豆子泡一夜", "一夜", 0) == 3  # the only place
    assert safe_place("豆子泡豆子" + "水" * 50, "豆子", 4) == 3  # the nearest, and near
    assert safe_place("豆子泡豆子" + "水" * 50, "豆子", 40) is None  # two places, both far
    assert safe_place("夜水夜", "夜", 1) is None  # both as near
    assert safe_place("夜", "日", 0) is None
    assert safe_place("夜", "夜", True) is None


def test_squad(tmp_path: Path) -> None:
    def asked(name: str, question: str, *answers: tuple[str, int]) -> dict[str, Any]:
        return {"id": name, "question": question, "answers": [{"text": t, "answer_start": s} for t, s in answers]}

    questions = [
        asked("1", "一？", ("一夜", 0), ("豆子", 0)),
        asked("2", " ", ("一夜", 3)),
        asked("3", "三？", ("两夜", 3)),
        asked("4", "一？", ("一夜", 3), ("豆子", 0)),
        {**asked("5", "五？", ("一夜", 1)), "is_impossible": True},
    ]
    whole = {"version": 1, "data": [{"title": "豆", "paragraphs": [{"context": "豆子泡一夜", "qas": questions}]}]}
    path = write(tmp_path / "a.json", json.dumps(whole, ensure_ascii=False, indent=1))
    (text,), listed = repaired(tmp_path, path)
    questions[0]["answers"][0]["answer_start"] = 3
    whole["data"][0]["paragraphs"][0]["qas"] = [questions[0], questions[2], questions[4]]  # type: ignore[index]
    assert text == json.dumps(whole, ensure_ascii=False, indent=1)
    assert [each["what"] for each in listed] == [
        "answer_start corrected",
        "removed, for question or context is empty",
        "removed, for the same text and label stand before",
    ]
    assert path.read_text(encoding="utf-8").splitlines()[listed[0]["line"] - 1].strip() == '"answer_start": 0'
    assert [message for _, message in left(tmp_path, "a.json")] == [
        "question 3: the answer '两夜' does not stand in the context; "
        "quote the context, or say that there is no answer."
    ]


def test_answers_in_rows(tmp_path: Path) -> None:
    row = {"question": "？", "context": "豆子泡一夜", "answers": {"text": ["一夜", "豆子"], "answer_start": [0, 0]}}
    (text,), _ = repaired(tmp_path, write(tmp_path / "a.jsonl", json.dumps(row, ensure_ascii=False)))
    assert json.loads(text)["answers"] == {"text": ["一夜", "豆子"], "answer_start": [3, 0]}


def test_choices(tmp_path: Path) -> None:
    first = {"question": "几？", "choice": ["一 ", "二"], "answer": "一"}
    second = {"question": "谁？", "choice": ["甲", "乙"], "answer": "丙"}
    whole = [[["文"], [first, second], "1"], [["文"], [first], "2"]]
    (text,), listed = repaired(tmp_path, write(tmp_path / "a.json", json.dumps(whole)))
    assert json.loads(text) == [[["文"], [{**first, "answer": "一 "}, second], "1"], [["文"], [], "2"]]
    assert len(listed) == 2


# -- several files -----------------------------------------------------------------------------------------------


def test_leaks_go_from_the_training_file_only(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", f"text,label\n{GOOD}泄漏一,pos\nＡＢ 漏！,neg\n矛盾,pos\n")
    test = write(tmp_path / "test.csv", "text,label\n泄漏一,pos\nab漏,neg\n矛盾,neg\n!!,pos\n")
    (first, second), listed = repaired(tmp_path, train, test)
    assert (first, second) == (f"text,label\n{GOOD}", test.read_text(encoding="utf-8"))
    assert {each["what"] for each in listed} == {f"removed, for it stands in {test} too"}
    assert [each["line"] for each in listed] == [14, 15, 16]
    assert not [message for _, message in left(tmp_path, "train.csv", "test.csv") if "leakage" in message]


def test_what_is_not_safe_is_left_and_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"text,label\n{GOOD}又,Pos \n第1条,neg\n坏\n空,\n")
    (text,), _ = repaired(tmp_path, path)
    assert text == path.read_text(encoding="utf-8").replace("Pos ", "Pos")
    found = "\n".join(message for _, message in left(tmp_path, "a.csv"))
    assert "the labels 'pos' (6) and 'Pos' (1) differ only by case" in found
    assert "labelled 'neg', but the same text is 'pos'" in found
    assert "has 1 cells" in found
    assert "has no label, but rows before it have" in found


# -- refusals ----------------------------------------------------------------------------------------------------


def test_nothing_is_written_over_or_half_written(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"text,label\n{GOOD}")
    with pytest.raises(InputError, match=r"is where .*a\.csv lies; name another folder"):
        mended(path, tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="name another folder"):
        mended(path, tmp_path / "link")
    with pytest.raises(InputError, match=r"a\.csv: is a file, but repaired copies need a folder"):
        mended(path, path)
    (tmp_path / "out").mkdir()
    held = write(tmp_path / "out/a.csv", "mine")
    with pytest.raises(InputError, match="is there already"):
        mended(path, tmp_path / "out")
    assert held.read_text() == "mine"
    (tmp_path / "other").mkdir()
    twin = write(tmp_path / "other/a.csv", f"text,label\n{GOOD}")
    with pytest.raises(InputError, match=r"would be written there; mend apart"):
        mended([path, twin], tmp_path / "new")
    bad = write(tmp_path / "b.csv", b"text,label\n" + GOOD.encode() + b"\xff\xfe,pos\n")
    with pytest.raises(InputError, match=r"b\.csv line 14: byte 0xff"):
        mended([path, bad], tmp_path / "new")
    with pytest.raises(InputError, match="standard input cannot be read twice"):
        mended("-", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_command(filbert: Callable[..., Any], tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"text,label\n{GOOD}第0条,neg\n两边, pos\n")
    ran = filbert("doctor", path, "--fix", tmp_path / "out")
    assert ran.code == 0
    assert "white space around the label removed: 1" in ran.err
    assert f"{tmp_path}/out/fixes.jsonl: all 2 repairs." in ran.err
    assert "warning" not in ran.out
    again = filbert("doctor", path, "--fix", tmp_path / "out")
    assert (again.code, again.out) == (2, "")
    told = json.loads(filbert("doctor", path, "--fix", tmp_path / "two", "--json").out)
    assert told["fixes"]["counts"] == {
        str(path): {
            "removed, for the same text and label stand before": 1,
            "white space around the label removed": 1,
        }
    }
    assert (told["errors"], told["warnings"]) == (0, 0)


FIXED = ("the same text and label at", "has not begun", "does not stand at", "empty; skipped", "white space a")


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    "names",
    [
        ("sentiment_chnsenticorp/dev.tsv.xz", "sentiment_chnsenticorp/test.tsv.xz"),
        ("ner_weibo/weiboNER_2nd_conll.train.xz", "ner_weibo/weiboNER_2nd_conll.test.xz"),
        ("ner_resume/dev.char.bmes.xz", "ner_resume/test.char.bmes.xz"),
        ("mrc_cmrc2018/cmrc2018_trial.json.xz",),
        ("re_chinese_nre/SanWen/test.txt.xz", "re_chinese_nre/SanWen/valid.txt.xz"),
        ("re_people_relation/train.txt.xz", "re_people_relation/test.txt.xz"),
        ("pair_ocnli/train.10k.json.xz", "pair_ocnli/train.3k.json.xz"),
        ("mc_c3/c3-d-dev.json.xz",),
    ],
)
def test_real_files_lose_their_faults_and_keep_their_lines(
    shared: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    sources = [shared / "data" / name for name in names]
    done = mended(sources, tmp_path / "out")
    found = [finding.message for finding in examine(done.files, most=None) if finding.severity != "note"]
    assert not [message for message in found if "(--fix does)" in message or any(kind in message for kind in FIXED)]
    changed = {"answer_start corrected", "entity begun where it went on"}
    for source, file in zip(sources, done.files, strict=True):
        before = lzma.decompress(source.read_bytes()).decode("utf-8-sig").replace("\r\n", "\n").split("\n")
        lines = set(before)
        new = [line for line in Path(file).read_text(encoding="utf-8").split("\n") if line not in lines]
        num_changed = sum(
            count for (name, what), count in done.counts.items() if what in changed and name == str(source)
        )
        assert len(new) <= num_changed + len(done.counts)  # a comma may go with a question


@pytest.mark.slow
def test_whatever_json_holds_there_is_a_copy_or_a_sentence(tmp_path: Path) -> None:
    chance = random.Random(0)
    names = "text label entities question context answers head tail sentence1 sentence2 start end choice answer options"
    leaves = ["北京", "在 北京", "", " a ", "x\0y", "\ud800", 0, 1, -1, 2, 10**30, None, True, 1.5, float("nan")]

    def value(depth: int = 0) -> Any:
        kind = chance.randrange(5)
        if depth > 3 or kind < 3:
            return chance.choice(leaves)
        if kind == 3:
            return [value(depth + 1) for _ in range(chance.randrange(4))]
        return {chance.choice(names.split()): value(depth + 1) for _ in range(chance.randrange(5))}

    shapes: list[Callable[[], Any]] = [
        value,
        lambda: {"data": [{"paragraphs": [{"context": value(), "qas": [{"question": value(), "answers": value()}]}]}]},
        lambda: {"text": "在 北京", "entities": value(), "label": value()},
        lambda: {"question": "？", "context": "在 北京", "answers": value()},
        lambda: [[value(), [{"question": "?", "choice": value(), "answer": value()}], "id"]],
        lambda: [{"text": "在", "label": value()}, value()],
    ]
    num_copied = 0
    for number in range(600):
        made = chance.choice(shapes)
        lines = "\n".join(json.dumps(made()) for _ in range(chance.choice([1, 1, 3])))
        path = write(tmp_path / f"{number}.json{chance.choice(['', 'l'])}", lines)
        with contextlib.suppress(InputError):  # anything else is a bug
            mended([path], tmp_path / f"out {number}", chance.choice([None, *task_names()]))
            num_copied += 1
    assert num_copied > 50
