"""The labelled-data rows of the faults table (D19-D24), for every task and command: wrong files in, one sentence out.

Each refusal has exit code 2, names the file and the line, shows no traceback, and leaves nothing half-written.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from filbert.core.errors import InputError
from filbert.doctor.diagnosis import examine
from filbert.forms.datasets import examples, label_table
from kit.files import write

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = ["--epochs", "1", "--set", "machine.threads=1", "--set", "task.max_length=32"]


class Wrong(NamedTuple):
    """A file that must be refused: for which task, what it holds, where and what is wrong."""

    task: str
    name: str
    data: str | bytes
    message: str
    line: int = 0  # 0: the file as a whole, or one JSON value


def lines(*rows: Any) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows)


def squad(context: Any = "豆子泡一夜", **question: Any) -> str:
    asked = {"id": "Q1", "question": "多久？", "answers": [{"text": "一夜", "answer_start": 3}], **question}
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [asked]}]}]})


GOOD = {
    "classify": "".join(f"第{n}条,{'ab'[n % 2]}\n" for n in range(8)),
    "pair": "".join(f"甲{n}\t乙{n}\t{n % 2}\n" for n in range(8)),
    "relation": "".join(f"甲\t乙{n}\t{'ab'[n % 2]}\t甲和乙{n}\n" for n in range(8)),
    "tag": "".join("北 B-LOC\n京 I-LOC\n好 O\n\n" for _ in range(8)),
}
ENTITY = {"text": "在北京", "entities": [{"start": 1, "end": 3, "label": "LOC"}]}
ASKED = {"question": "多久？", "context": "豆子泡一夜", "answers": [{"text": "一夜", "answer_start": 3}]}
CHOICE = {"context": "文", "question": "几？", "options": ["一", "二"], "label": 0}
HEAD = "text,label\n"

WRONG = [
    # D20: tables
    Wrong("classify", "a.csv", f"{HEAD}{GOOD['classify']}短\n", "has 1 cells, but the header has 2", 10),
    Wrong("classify", "a.csv", f"{HEAD}{GOOD['classify']}长, 的,a\n", "has 3 cells", 10),
    Wrong("classify", "a.csv", f'{HEAD}{GOOD["classify"]}"开,a\n后,b\n', "is never closed", 10),
    Wrong("classify", "a.csv", f'{HEAD}{GOOD["classify"]}"开"口,a\n', "goes on after its closing quotation mark", 10),
    Wrong("classify", "a.csv", f"text,label,text\n{GOOD['classify']}", "'text' stands twice in the header", 1),
    Wrong("pair", "a.tsv", f"{GOOD['pair']}只有一个\n", "has 1 cells, but line 1 has 3", 9),
    Wrong("pair", "a.tsv", f"{GOOD['pair']}甲\t乙\t丙\t1\n", "has 4 cells, but line 1 has 3", 9),
    Wrong("pair", "a.csv", "sentence1,sentence2,label\n甲,乙\n", "has 2 cells, but the header has 3", 2),
    Wrong("relation", "a.txt", f"{GOOD['relation']}甲\t乙\n", "has 2 cells, but line 1 has 4", 9),
    # D21: JSON lines that end early or are none
    Wrong("classify", "a.jsonl", '{"text": "一", "label": 1}\n{"text": "二", "la', "ends in the middle", 2),
    Wrong("pair", "a.jsonl", '{"sentence1": "一", "sentence2": "二"}\n{"sentence1": ', "ends in the middle", 2),
    Wrong("tag", "a.jsonl", lines(ENTITY) + '{"text": "在', "ends in the middle", 2),
    Wrong("answer", "a.jsonl", lines(ASKED) + '{"question"', "ends in the middle", 2),
    Wrong("choose", "a.jsonl", lines(CHOICE) + '{"context": "文"', "ends in the middle", 2),
    Wrong("embed", "a.jsonl", '{"text": "一"}\n{"te', "ends in the middle", 2),
    Wrong("classify", "a.jsonl", '{"text": "一", "label": 1}\n["二"]\n{"text": "三", "label": 2}\n', "JSON array", 2),
    Wrong("answer", "a.json", '{"data": [{"paragraphs": [', "is not valid JSON", 1),
    # D22, D23: labels
    Wrong("classify", "a.jsonl", lines({"text": "一", "label": 1}, {"text": "二", "label": "1"}), "write all alike", 2),
    Wrong("pair", "a.csv", "sentence1,sentence2,label\n甲,乙,1\n丙,丁,\n", "has no label, but rows before it have", 3),
    Wrong("classify", "a.jsonl", lines({"text": "一", "label": {"a": 1}}), "but must be text or a number", 1),
    Wrong("classify", "a.jsonl", '{"text": "一", "label": 0.5}\n{"text": "二", "label": NaN}\n', "the label is nan", 2),
    Wrong("embed", "a.jsonl", '{"sentence1": "一", "sentence2": "二", "label": Infinity}\n', "the label is inf", 1),
    # texts
    Wrong("classify", "a.jsonl", lines({"text": "一", "label": 1}, {"text": None, "label": 1}), "is missing", 2),
    Wrong("classify", "a.jsonl", lines({"text": 7, "label": 1}), "holds int, but must hold text", 1),
    Wrong("pair", "a.jsonl", lines({"sentence1": "一", "sentence2": ["二"], "label": 1}), "holds list", 1),
    Wrong("tag", "a.jsonl", lines(ENTITY, {"entities": []}), "the field 'text' is missing or not text", 2),
    Wrong("answer", "a.jsonl", lines(ASKED, {**ASKED, "context": 5}), "'context' is missing or not text", 2),
    Wrong("embed", "a.jsonl", lines({"text": "一"}, {"text": {}}), "holds dict", 2),
    Wrong("classify", "a.jsonl", '{"text": "a\\ud800", "label": 1}\n', "half a surrogate pair", 1),
    Wrong("classify", "a.csv", HEAD.encode() + GOOD["classify"].encode() + b"\xff,a\n", "byte 0xff at offset", 10),
    Wrong("tag", "a.txt", GOOD["tag"].encode() + b"\xff O\n", "byte 0xff at offset", 33),
    # tags and spans
    Wrong("tag", "a.txt", f"{GOOD['tag']}坏\n", "is not a token and a tag", 33),
    Wrong("tag", "a.txt", f"{GOOD['tag']}坏 X-LOC\n", "the tag 'X-LOC' is not O or a label with B-", 33),
    Wrong("tag", "a.txt", f"{GOOD['tag']}坏 B-\n", "the tag 'B-' is not O", 33),
    Wrong("tag", "a.jsonl", lines(ENTITY, {**ENTITY, "entities": [[1, 9, "LOC"]]}), "leaves the text", 2),
    Wrong("tag", "a.jsonl", lines(ENTITY, {**ENTITY, "entities": [[-1, 2, "LOC"]]}), "leaves the text", 2),
    Wrong("tag", "a.jsonl", lines(ENTITY, {**ENTITY, "entities": [[1, 1, "LOC"]]}), "is empty", 2),
    Wrong("tag", "a.jsonl", lines(ENTITY, {**ENTITY, "entities": [[1, "3", "LOC"]]}), "two whole numbers", 2),
    Wrong("tag", "a.jsonl", lines(ENTITY, {**ENTITY, "entities": [[1, 3, ""]]}), "two whole numbers and a text", 2),
    Wrong("tag", "a.jsonl", lines(ENTITY, {**ENTITY, "entities": ["北京"]}), "is not {start, end, label}", 2),
    Wrong("tag", "a.jsonl", lines(ENTITY, {**ENTITY, "entities": "北京"}), "must be a list of {start, end, label}", 2),
    Wrong(
        "tag",
        "a.jsonl",
        lines(ENTITY, {**ENTITY, "entities": [{"start": 1, "end": 2, "label": "LOC", "text": "北京"}]}),
        "Its end seems to be that of the last character",
        2,
    ),
    # relations
    Wrong("relation", "a.txt", f"{GOOD['relation']}丙\t乙1\ta\t甲和乙1\n", "'丙' does not stand in the text", 9),
    Wrong("relation", "a.txt", f"{GOOD['relation']}\t乙1\ta\t甲和乙1\n", "does not stand in the text", 9),
    Wrong(
        "relation",
        "a.jsonl",
        lines({"text": "甲和乙", "head": [0, 1], "tail": [2, 9], "label": "a"}),
        "the tail at 2:9 leaves the text",
        1,
    ),
    # choices
    Wrong("choose", "a.jsonl", lines(CHOICE, {**CHOICE, "options": ["一"]}), "needs two options or more", 2),
    Wrong("choose", "a.jsonl", lines(CHOICE, {**CHOICE, "options": "一二"}), "needs two options or more", 2),
    Wrong("choose", "a.jsonl", lines(CHOICE, {**CHOICE, "label": 2}), "is not exactly one of the 2 choices", 2),
    Wrong("choose", "a.jsonl", lines(CHOICE, {**CHOICE, "label": -1}), "is not exactly one of the 2 choices", 2),
    Wrong("choose", "a.jsonl", lines(CHOICE, {**CHOICE, "label": "三"}), "is not exactly one of the 2 choices", 2),
    Wrong(
        "choose", "a.json", json.dumps([[["文"], [{"question": "几？", "choice": ["一"]}], "1"]]), "entry 1, question"
    ),
    Wrong("choose", "a.json", json.dumps([[["文"], ["几？"], "1"]]), "is not an object"),
    # what a file is
    Wrong("classify", "a.json", squad(), "is data for answer, not for classify"),
    Wrong("answer", "a.txt", GOOD["tag"], "is data for tag, not for answer"),
    Wrong("classify", "a.csv", "sentence1,sentence2,label\n甲,乙,1\n", "has two texts, sentence1 and sentence2"),
    Wrong("pair", "a.csv", "text,label\n甲,1\n", "no column for the first of pair"),
    Wrong("answer", "a.csv", "text,label\n甲,1\n", "no column for the question of answer"),
    Wrong("classify", "a.tsv", "".join(f"{n % 2}\t第{n}条\n" for n in range(9)), "the label is expected in the last"),
    Wrong("classify", "a.csv", "", "is empty or blank"),
    Wrong("tag", "a.txt", " \n\n", "is empty or blank"),
    Wrong("answer", "a.json", '{"data": [{"paragraphs": ["无"]}]}', "of a list of paragraphs is not an object"),
]
NAMED = [f"{wrong.task}-{wrong.name}-{wrong.message[:40]}" for wrong in WRONG]


def sentence(err: str) -> str:
    """The one sentence that a refusal is."""
    told = [line for line in err.splitlines() if line.startswith("filbert: ")]
    assert len(told) == 1, err
    return told[0]


def check(told: str, path: Path, wrong: Wrong) -> None:
    where = f"{path} line {wrong.line}: " if wrong.line else str(path)
    assert where in told
    assert wrong.message in told


def test_the_table_is_long_and_has_every_task() -> None:
    assert len(WRONG) >= 40
    assert {wrong.task for wrong in WRONG} == {"classify", "pair", "tag", "relation", "answer", "choose", "embed"}


@pytest.mark.parametrize("wrong", WRONG, ids=NAMED)
def test_readers_refuse_and_the_doctor_finds(wrong: Wrong, filbert: Callable[..., Any], tmp_path: Path) -> None:
    path = write(tmp_path / wrong.name, wrong.data)
    with pytest.raises(InputError) as refused:
        list(examples(path, wrong.task))
    check(str(refused.value), path, wrong)
    ran = filbert("doctor", path, "--task", wrong.task, "--json")
    assert ran.code == 2
    errors = [each for each in json.loads(ran.out)["findings"] if each["severity"] == "error"]
    assert any(wrong.message in each["message"] and each["line"] == wrong.line for each in errors)


TRAINED = ("classify", "pair", "tag", "answer")


@pytest.mark.parametrize(
    "wrong", [wrong for wrong in WRONG if wrong.task in TRAINED], ids=[n for n in NAMED if n.startswith(TRAINED)]
)
def test_finetune_refuses_and_writes_nothing(
    wrong: Wrong, filbert: Callable[..., Any], tiny_folder: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / wrong.name, wrong.data)
    ran = filbert("finetune", wrong.task, "--train", path, "--model", tiny_folder, "-o", tmp_path / "run")
    assert (ran.code, ran.out) == (2, "")
    check(sentence(ran.err), path, wrong)
    assert not (tmp_path / "run").exists()


# -- a model that knows its labels -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each task on a few rows."""
    from filbert.run.finetune import finetune

    folder = tmp_path_factory.mktemp("trained")
    data = {
        "classify": ("a.csv", HEAD + GOOD["classify"]),
        "pair": ("a.tsv", GOOD["pair"]),
        "tag": ("a.txt", GOOD["tag"]),
        "answer": ("a.jsonl", lines(*[ASKED] * 4)),
    }
    found = {}
    for task, (name, text) in data.items():
        path = write(folder / f"{task}-{name}", text)
        settings = ["machine.threads=1", "task.max_length=32"]
        finetune(task, path, tiny_folder, folder / task, epochs=1, settings=settings, quiet=True)
        found[task] = folder / task
    return found


BROKEN = {
    "classify": Wrong("classify", "b.csv", f"{HEAD}一,a\n二\n", "has 1 cells", 3),
    "pair": Wrong("pair", "b.tsv", "甲\t乙\t1\n丙\t丁\t0\t0\n", "has 4 cells", 2),
    "tag": Wrong("tag", "b.txt", "北 B-LOC\n京 I-LOC\n坏\n好 O\n", "is not a token and a tag", 3),
    "answer": Wrong("answer", "b.jsonl", lines(ASKED) + '{"question"', "ends in the middle", 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("task", TRAINED)
def test_evaluate_and_predict_refuse_the_same(
    task: str, filbert: Callable[..., Any], trained: dict[str, Path], tmp_path: Path
) -> None:
    wrong = BROKEN[task]
    path = write(tmp_path / wrong.name, wrong.data)
    ran = filbert("evaluate", trained[task], "--data", path)
    assert (ran.code, ran.out) == (2, "")
    check(sentence(ran.err), path, wrong)
    ran = filbert("predict", trained[task], "--data", path, "--out", tmp_path / "said.jsonl")
    assert (ran.code, ran.out) == (2, "")
    check(sentence(ran.err), path, wrong)
    for file in tmp_path.glob("said.jsonl"):  # what came before the fault, if anything did: each result whole
        said = file.read_text(encoding="utf-8")
        assert said.endswith("\n")
        assert all(json.loads(line)["line"] < wrong.line for line in said.splitlines())


UNSEEN = {
    "classify": Wrong("classify", "c.csv", f"{HEAD}一,a\n二,c\n", "the label 'c' is not one of the 2", 3),
    "pair": Wrong("pair", "c.tsv", "甲\t乙\t1\n丙\t丁\t-1\n", "the label '-1' is not one of the 2", 2),
    "tag": Wrong("tag", "c.txt", "北 B-LOC\n京 I-LOC\n\n王 B-PER\n好 O\n", "PER", 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("task", UNSEEN)
def test_D23_a_label_unseen_in_training_is_refused(
    task: str, filbert: Callable[..., Any], trained: dict[str, Path], tiny_folder: Path, tmp_path: Path
) -> None:
    wrong = UNSEEN[task]
    path = write(tmp_path / wrong.name, wrong.data)
    ran = filbert("evaluate", trained[task], "--data", path)
    assert ran.code == 2
    check(sentence(ran.err), path, wrong)
    train = next(trained[task].parent.glob(f"{task}-a.*"))
    words = ["finetune", task, "--train", train, "--dev", path, "--model", tiny_folder, "-o", tmp_path / "run"]
    ran = filbert(*words, *QUICK)
    assert ran.code == 2
    check(sentence(ran.err), path, wrong)
    assert not (tmp_path / "run").exists()
    ran = filbert("doctor", train, path)
    assert ran.code == 2
    assert re.search(rf"{path}:{wrong.line}: error: the label .* is not one of the", ran.out)


def test_D23_numbers_are_names_so_gaps_and_signs_do_no_harm(
    filbert: Callable[..., Any], tiny_folder: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.csv", HEAD + "".join(f"第{n}条,{(-1, 1, 7)[n % 3]}\n" for n in range(9)))
    assert set(label_table(examples(path, "classify")).check().labels) == {"-1", "1", "7"}
    ran = filbert("finetune", "classify", "--train", path, "--model", tiny_folder, "-o", tmp_path / "run", *QUICK)
    assert ran.code == 0, ran.err
    said = filbert("predict", tmp_path / "run", "--text", "第1条")
    assert set(json.loads(said.out)["scores"]) == {"-1", "1", "7"}


@pytest.mark.parametrize("labels", [("pos", "Pos "), ("1", "01"), ("1", "1.0"), ("好", "好 ")])
def test_D22_labels_that_are_nearly_the_same(
    labels: tuple[str, str], filbert: Callable[..., Any], tiny_folder: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.csv", HEAD + "".join(f"第{n}条,{labels[n % 2]}\n" for n in range(8)))
    ran = filbert("finetune", "classify", "--train", path, "--model", tiny_folder, "-o", tmp_path / "run")
    assert ran.code == 2
    assert "differ only by case or white space; write them alike" in sentence(ran.err)
    assert not (tmp_path / "run").exists()
    ran = filbert("doctor", path)
    assert ran.code == 2
    assert re.search(r"a\.csv:[23]: error: the labels .* differ only by case", ran.out)


@pytest.mark.parametrize("word", ["NA", "null", "None", "NaN", "N/A"])
def test_D19_words_that_look_missing_are_learnt_and_answered(
    word: str, filbert: Callable[..., Any], tmp_path: Path
) -> None:
    path = write(
        tmp_path / "a.csv", HEAD + "".join(f"{word} {n},{(word, 'x')[n % 2]}\n" for n in range(10)) + f"{word},x\n"
    )
    found = list(examples(path, "classify"))
    assert [found[0].gold, found[-1].texts] == [word, (word,)]
    ran = filbert("doctor", path)
    assert ran.code == 0
    assert f"2 labels: x (6), {word} (5)." in ran.out


def test_numbers_that_are_none(filbert: Callable[..., Any], tiny_folder: Path, tmp_path: Path) -> None:
    for value in ("four", "nan", "inf"):
        path = write(
            tmp_path / f"{value}.tsv", "".join(f"甲{n}\t乙{n}\t{n / 2}\n" for n in range(8)) + f"甲\t乙\t{value}\n"
        )
        words = ["--columns", "first=1,second=2,label=3", "--set", "task.answer=number"]
        ran = filbert("finetune", "pair", "--train", path, "--model", tiny_folder, "-o", tmp_path / "run", *words)
        assert ran.code == 2
        assert f"{path} line 9: the label '{value}' is no number" in sentence(ran.err)
        assert not (tmp_path / "run").exists()


# -- D24 ---------------------------------------------------------------------------------------------------------


def odd_files(folder: Path) -> Iterator[Path]:
    os.mkfifo(folder / "pipe.csv")
    (folder / "folder.csv").mkdir()
    (folder / "loop.csv").symlink_to(folder / "loop.csv")
    (folder / "zero.csv").symlink_to("/dev/zero")
    yield from (folder / f"{name}.csv" for name in ("pipe", "folder", "loop", "zero", "none"))


def test_D24_what_is_no_file_is_refused_by_every_command(
    filbert: Callable[..., Any], tiny_folder: Path, trained: dict[str, Path], tmp_path: Path
) -> None:
    for path in odd_files(tmp_path):
        for words in (
            ["finetune", "classify", "--train", path, "--model", tiny_folder, "-o", tmp_path / "run"],
            ["evaluate", trained["classify"], "--data", path],
            ["predict", trained["classify"], "--data", path],
        ):
            begun = time.process_time()
            ran = filbert(*words)
            assert (ran.code, str(path) in sentence(ran.err)) == (2, True)
            assert time.process_time() - begun < 5  # of which the model takes most
        for words in (["doctor", path, "--task", "classify"], ["doctor", path, "--fix", tmp_path / "out"]):
            assert filbert(*words).code == 2
        begun = time.process_time()
        with contextlib.suppress(InputError):  # an empty folder holds nothing to examine
            assert [finding.severity for finding in examine(path, "classify")] == ["error"]
        assert time.process_time() - begun < 1
        assert not (tmp_path / "out").exists()
    assert not (tmp_path / "run").exists()
