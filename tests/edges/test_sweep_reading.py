"""Reading, swept: for every format and task a file with one thing of every kind that its reader may pass over.

`doctor`, `finetune`, `evaluate` and `predict` must count each, in the same words. A new kind of thing is a new row:
of ROWS where it is a row of a table, of LINES where it is of a format.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from filbert.core.errors import InputError
from filbert.core.records import Example, Span
from filbert.forms import sources
from filbert.forms.spec import task_names
from filbert.run.finetune import finetune
from filbert.tasks.answer.reading import Answer
from filbert.tasks.relation.reading import Relation
from filbert.train import listeners

pytestmark = pytest.mark.usefixtures("one_thread")
Ran = Callable[..., tuple[int, str, str]]

CAUSE, PART = "Cause(e1,e2)", "Part(e1,e2)"


@dataclass(frozen=True)
class Row:
    """A row of a table, and what the report must say of it; `nested` rows fit JSON and Parquet alone."""

    cells: dict[str, Any]
    counted: str = ""  # the sentence after its number; empty where the row is used as it is
    nested: bool = False


MARKED = ({"start": 0, "end": 1, "label": "PER"}, {"start": 2, "end": 3, "label": "LOC"})
EMPTY = "labelled rows with an empty text were skipped"
ROWS: dict[str, list[Row]] = {
    "classify": [
        *(Row({"text": f"今天第{n}天", "label": "ab"[n % 2]}) for n in range(6)),
        Row({"text": "", "label": "a"}, EMPTY),
        Row({"text": "  ", "label": "b"}, EMPTY),
    ],
    "pair": [
        *(Row({"first": f"第{n}天", "second": "很好", "label": ("entailment", "neutral")[n % 2]}) for n in range(6)),
        Row({"first": "他们", "second": "很好", "label": "-"}, "rows with the label '-' were left out"),
        Row({"first": "她们", "second": "", "label": "neutral"}, EMPTY),
    ],
    "embed": [
        *(Row({"sentence1": f"第{n}天", "sentence2": f"很好{n % 3}", "label": str(n % 2)}) for n in range(6)),
        Row({"sentence1": "", "sentence2": "很好", "label": "1"}, EMPTY),
    ],
    "translate": [
        *(Row({"source": f"第{n}天", "target": f"day {n}"}) for n in range(6)),
        Row({"source": "", "target": "nothing"}, "pairs with an empty side were skipped"),
        Row({"source": "没有", "target": " "}, "pairs with an empty side were skipped"),
    ],
    "relation": [
        *(Row({"head": "王", "tail": "李", "relation": (CAUSE, PART)[n % 2], "text": f"王和李{n}"}) for n in range(6)),
        Row(
            {"head": "王", "tail": "李", "relation": PART, "text": "王和李和王"},
            "rows have a mention that stands several times in the text; the first place was taken",
        ),
    ],
    "answer": [
        *(Row({"question": f"谁{n}？", "context": f"王在{n}。", "answers": "王"}) for n in range(6)),
        Row(
            {"question": "谁来？", "context": "他在。", "answers": "李"},
            "answers do not stand in their context; they count in evaluation but not in training",
        ),
        Row(
            {"question": "哪？", "context": "他在家。", "answers": {"text": ["家"], "answer_start": [0]}},
            "answers did not stand at answer_start and were moved to the nearest place where they do",
            nested=True,
        ),
        Row(
            {"question": "何？", "context": "他在家。", "answers": {"text": ["", "家"], "answer_start": [-1, 2]}},
            "answers are empty and were passed over",
            nested=True,
        ),
    ],
    "choose": [
        *(
            Row({"context": f"王在{n}。", "question": "谁？", "ending0": "王", "ending1": "李", "label": "0"})
            for n in range(6)
        ),
        Row(
            {"context": "王来。", "question": "谁？", "ending0": "王", "ending1": "王", "label": "0"},
            "questions have their answer twice among the choices; the first was taken",
        ),
    ],
    "tag": [
        *(Row({"text": f"王在京{n}", "entities": [*MARKED]}, nested=True) for n in range(6)),
        Row(
            {"text": "李在京", "entities": [MARKED[0], MARKED[0]]},
            "entities stand twice; each was taken once",
            nested=True,
        ),
    ],
}

COMMENTS = "comment lines (#) were passed over"
BEGUN = "entities go on (I-, M-, E-) without having begun; each was begun there"
SQUAD = {
    "data": [{"title": "x", "paragraphs": [{"context": "王在家。", "qas": [
        *({"id": str(n), "question": f"谁{n}？", "answers": [{"text": "王", "answer_start": 0}]} for n in range(4)),
        {"id": "5", "question": " ", "answers": [{"text": "王", "answer_start": 0}]},
        {"id": "6", "question": "哪？", "answers": [{"text": "家", "answer_start": 0}]},
        {"id": "7", "question": "哪儿？", "answers": [{"text": "城", "answer_start": 0}]},
        {"id": "8", "question": "何？", "is_impossible": True, "answers": [{"text": "家", "answer_start": 2}]},
        {"id": "9", "question": "何处？", "answers": [{"text": "", "answer_start": -1}]},
    ]}]}]
}  # fmt: skip
CHOICES = [
    *([[f"王在{n}。"], [{"question": "谁？", "choice": ["王", "李"], "answer": "王"}], str(n)] for n in range(4)),
    [["王来。"], [{"question": "谁？", "choice": ["王", "王"], "answer": "王"}], "9"],
]


@dataclass(frozen=True)
class Form:
    """A format that is of one task: the name of a file, what it holds, and all that the report must say of it."""

    task: str
    name: str
    text: str
    told: tuple[str, ...]


LINES: dict[str, Form] = {
    "conll": Form(
        "tag", "a.conll",
        "-DOCSTART- -X- O\n\n# id 1\n王 N B-PER\n在 V O\n京 N B-LOC\n\n" + "李 N I-PER\n在 V O\n京\0 N B-LOC\n\n" * 2,
        (
            "words are in column 1 and tags in column 3; column 2 is passed over.", f"1 {COMMENTS}.", f"2 {BEGUN}.",
            "1 lines that begin a document (-DOCSTART-) were passed over.", "2 NUL characters were removed.",
        ),
    ),
    "indexed": Form(
        "tag", "a.tsv", "#\thttp://a.b\t[2009]\n" + "1\t王\tB-PER\tO\n2\t在\tO\tO\n3\t京\tB-LOC\tB-LOC\n\n" * 3,
        (
            "words are in column 2 and tags in column 3; column 1, which counts the words, is passed over.",
            "tags stand in several layers: those of column 3 are taken, and column 4 passed over.", f"1 {COMMENTS}.",
        ),
    ),
    "numbered": Form(
        "tag", "a.train", "王0\tB-PER\n在0\tO\n北0\tB-LOC\n京1\tI-LOC\n\n" * 3,
        ("characters are numbered within words (科0 技1); the numbers are left out.",),
    ),
    "units": Form(
        "tag", "a.units", "# sent_id = 1\n王 x PER\n京 x LOC\n李 x PER\n\n" + "王 x PER\n京 x LOC\n\n" * 3,
        ("words are in column 1 and tags in column 3; column 2 is passed over.", f"1 {COMMENTS}."),
    ),
    "inside": Form(
        "tag", "a.inside", "# sent_id = 1\n王 PER\n在 O\n北 LOC\n京 LOC\n\n" + "王 PER\n在 O\n京 LOC\n\n" * 3,
        ("neighbours with one label are taken for one span, since no prefix tells where one begins.",
         f"1 {COMMENTS}."),
    ),
    "conllu": Form(
        "tag", "a.conllu",
        "# sent_id = 1\n1\t王\t_\tPER" + "\t_" * 6 + "\n1.1\t是\t_\tLOC" + "\t_" * 6 + "\n2\t京\t_\tLOC" + "\t_" * 6
        + "\n\n" + ("1\t李\t_\tPER" + "\t_" * 6 + "\n\n") * 3,
        (
            "words are in column 2 and labels in column 4; lemmas, other labels and syntax are passed over.",
            f"1 {COMMENTS}.", "1 words that are understood and not written (8.1) were passed over.",
        ),
    ),
    "slashed": Form(
        "tag", "a.slashed", "19980101-01-001-001/m  王/PER  京/LOC\n\n[北/LOC  京/LOC]nt  李/PER\n王/PER  京/LOC\n",
        (
            "1 lines begin with their place in the newspaper, which is left out.",
            "1 blank documents or rows were skipped.",
            "1 brackets around names of several words were left out; their words have their own labels.",
        ),
    ),
    "marked": Form(
        "relation", "a.marked",
        f'1\t"<e1>王</e1>和<e2>李</e2>"\n{CAUSE}\nComment: none\n\n2\t"<e1>王</e1>与<e2>李</e2>"\n{PART}\nmore\n\n',
        ("1 comments on sentences were passed over.",
         "1 lines that are neither a sentence nor its relation were passed over."),
    ),
    "masked": Form(
        "relation", "a.masked", f"{CAUSE} 王$李$#和#\n{PART} 王$李$王与李\n\n{PART} 赵$李$他与李\n",
        ("1 blank documents or rows were skipped.",
         "1 rows were left out, for a name does not stand in the text, nor as many #."),
    ),
    "squad": Form(
        "answer", "a.json", json.dumps(SQUAD, ensure_ascii=False),
        (
            "1 questions were skipped, for they or their contexts are empty.",
            "1 answers did not stand at answer_start and were moved to the nearest place where they do.",
            "1 answers do not stand in their context; they count in evaluation but not in training.",
            "1 questions are said to have no answer and have some, which were passed over.",
            "1 answers are empty and were passed over.",
        ),
    ),
    "choices": Form(
        "choose", "a.json", json.dumps(CHOICES, ensure_ascii=False),
        ("1 questions have their answer twice among the choices; the first was taken.",),
    ),
    "parallel": Form(
        "translate", "a.zh,a.en", "".join(f"第{n}天\tday {n}\n" for n in range(5)) + "\t\n没有\t\n",
        ("1 blank documents or rows were skipped.", "1 pairs with an empty side were skipped."),
    ),
}  # fmt: skip
TABLES = ("csv", "tsv", "semicolon", "bare", "jsonl", "array", "parquet")
NESTED = ("jsonl", "array", "parquet")


def table(task: str, kind: str, folder: Path) -> tuple[str, list[str]] | None:
    """The file with every row that fits the kind, and what must be told of it; None where the task fits it not."""
    rows = [row for row in ROWS[task] if kind in NESTED or not row.nested]
    if kind == "parquet" and any(row.nested for row in rows):
        rows = [row for row in rows if row.nested]  # a column of Parquet has one type
    columns = list(rows[0].cells) if rows else []
    if not rows or (kind == "bare" and (task, len(columns)) not in BARE):
        return None
    told = [f"{count} {what}." for what, count in Counter(row.counted for row in rows if row.counted).items()]
    cells = [dict(row.cells) for row in rows]
    first = next((name for name in ("text", "context") if name in columns), columns[0])
    cells[0][first] += "\0"
    told.append("1 NUL characters were removed.")
    if kind != "bare":
        cells = [{**row, "date": "x"} for row in cells]
        told.append("column date is passed over.")
    path = folder / f"a.{ {'semicolon': 'csv', 'bare': 'csv', 'array': 'json'}.get(kind, kind) }"
    if kind == "jsonl":
        path.write_text("\n".join([*(json.dumps(row, ensure_ascii=False) for row in cells), "", " ", ""]))
    elif kind == "array":
        path.write_text(json.dumps(cells, ensure_ascii=False))
    elif kind == "parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(cells), path)
    else:
        handle = io.StringIO()
        delimiter = {"tsv": "\t", "semicolon": ";"}.get(kind, ",")
        writer = csv.DictWriter(handle, list(cells[0]), delimiter=delimiter, lineterminator="\n")
        if kind != "bare":
            writer.writeheader()
        writer.writerows(cells)
        path.write_text(handle.getvalue() + "\n\n")
    if kind not in ("array", "parquet"):
        told.append("2 blank documents or rows were skipped.")
    return str(path), told


BARE = {("classify", 2), ("pair", 3), ("embed", 3), ("relation", 4), ("translate", 2)}


def lined(name: str, folder: Path) -> str:
    form = LINES[name]
    if name == "parallel":
        both = list(zip(*(line.split("\t") for line in form.text.splitlines()), strict=True))
        for path, lines in zip(("a.zh", "a.en"), both, strict=True):
            (folder / path).write_text("".join(f"{line}\n" for line in lines))
        return f"{folder / 'a.zh'},{folder / 'a.en'}"
    (folder / form.name).write_text(form.text, encoding="utf-8")
    return str(folder / form.name)


def fits(kind: str, task: str) -> bool:
    if kind in LINES:
        return LINES[kind].task == task
    return any(kind in NESTED or not row.nested for row in ROWS[task]) and (
        kind != "bare" or (task, len(ROWS[task][0].cells)) in BARE
    )


PAIRS = [(kind, task) for kind in (*TABLES, *LINES) for task in task_names()]
FITTING = [pair for pair in PAIRS if fits(*pair)]


# -- the commands ------------------------------------------------------------------------------------------------------

GOLD: dict[str, list[Example]] = {
    "classify": [Example((f"今天{n}",), "ab"[n % 2]) for n in range(6)],
    "pair": [Example((f"今天{n}", "很好"), ("entailment", "neutral")[n % 2]) for n in range(6)],
    "embed": [Example((f"今天{n}", "很好"), str(n % 2)) for n in range(6)],
    "translate": [Example((f"今天{n}",), f"day {n}") for n in range(6)],
    "relation": [
        Example((f"王和李{n}",), Relation(Span(0, 1, "head"), Span(2, 3, "tail"), (CAUSE, PART)[n % 2]))
        for n in range(6)
    ],
    "answer": [Example((f"谁{n}？", "王在家。"), (Answer("王", 0),)) for n in range(6)],
    "choose": [Example((f"王在{n}。", "谁？", "王", "李"), 0) for n in range(6)],
    "tag": [Example((f"王在京{n}",), (Span(0, 1, "PER"), Span(2, 3, "LOC"))) for n in range(6)],
}


class Heard(listeners.Silent):
    """Keeps what a run of fine-tuning tells, and ends it before its first step is done."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def event(self, kind: str, message: str, **_: Any) -> None:
        self.notes += [message] if kind == "note" else []

    def step(self, entry: Any) -> None:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def models(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A model for a task, trained for one step when it is first asked for."""
    made: dict[str, Path] = {}

    def model(task: str) -> Path:
        if task not in made:
            out = tmp_path_factory.mktemp(task) / "run"
            settings = ["machine.threads=1", "train.steps=1"]
            finetune(task, GOLD[task], tiny_folder, out, listener=listeners.Silent(), settings=settings)
            made[task] = out
        return made[task]

    return model


def notes(err: str, path: str = "") -> set[str]:
    """What a command said of the file on standard error."""
    start = f"note: {path}: " if path else "note: "
    return {line.removeprefix(start) for line in err.splitlines() if line.startswith(start)}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "task"), FITTING)
def test_all_commands_count_what_is_passed_over(
    kind: str, task: str, tiny_folder: Path, tmp_path: Path, filbert: Ran, models: Callable[[str], Path]
) -> None:
    if kind in LINES:
        path, told = lined(kind, tmp_path), set(LINES[kind].told)
    else:
        found = table(task, kind, tmp_path)
        assert found is not None
        path, told = found[0], set(found[1])
    heard = Heard()
    with pytest.raises(KeyboardInterrupt):
        finetune(task, path, tiny_folder, tmp_path / "run", listener=heard, settings=["machine.threads=1"])
    assert {note.removeprefix(f"{path}: ") for note in heard.notes if note.startswith(path)} == told
    code, out, err = filbert("evaluate", models(task), "--data", path, "--json")
    assert code == 0, err
    assert notes(err, path) == told
    assert set(json.loads(out)["reading"]["data"]) == {f"{path}: {note}" for note in told}
    code, out, err = filbert("predict", models(task), "--data", path)
    assert code == 0, err
    assert notes(err) == told
    if kind != "parallel":  # the doctor reads one file at a time
        code, out, err = filbert("doctor", path, "--task", task)
        lines = {
            line.split(": ", 2)[2] for line in out.splitlines() if line.startswith((path + ": note", path + ": w"))
        }
        assert told <= lines


@pytest.mark.parametrize(("kind", "task"), [pair for pair in PAIRS if pair not in FITTING])
def test_a_format_that_does_not_fit_is_refused_in_a_sentence(kind: str, task: str, tmp_path: Path) -> None:
    """Never read as something else: a task's reader takes a format, or says which task it is for."""
    if kind in LINES:
        path = lined(kind, tmp_path)
    else:
        other = next(name for name in ("classify", "tag") if fits(kind, name))
        path = str((table(other, kind, tmp_path) or ("", []))[0])
    with pytest.raises(InputError, match=re.escape(path.split(",")[0] if kind == "parallel" else path)):
        labelled(task, path)


def labelled(task: str, path: str) -> list[Example]:
    """What fine-tuning would learn from."""
    data = sources.read(task, path)
    sources.check_labelled(path, data, needs_gold=True)
    return data
