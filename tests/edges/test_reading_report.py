"""What reading met reaches whoever asked: at the start of a command, in its log and in its report; and what a model
remembers of how its training data were read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import filbert as fb
from filbert.core.errors import InputError
from filbert.core.records import Example
from filbert.engine.reader import DATA, trained_on
from filbert.forms import sources
from filbert.forms.datasets import examples
from filbert.run.finetune import finetune
from filbert.see import head_importance
from filbert.ship import export
from filbert.text.streams import Reading
from filbert.train import listeners
from kit.files import write

pytestmark = pytest.mark.usefixtures("one_thread")
Ran = Callable[..., tuple[int, str, str]]
FEW = ("--set", "machine.threads=1", "--set", "train.steps=2")
EMPTY = "1 labelled rows with an empty text were skipped."
LEFT = "2 rows with the label '-' were left out."


def told(err: str) -> list[str]:
    return [line.removeprefix("note: ") for line in err.splitlines() if line.startswith("note: ")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Training, dev and test data, each with something else that is passed over."""
    folder = tmp_path_factory.mktemp("data")
    rows = [(f"第{n}天", ("sea", "land")[n % 2]) for n in range(12)]
    lines = "".join(f"{text},{label}\n" for text, label in rows)
    return {
        "train": write(folder / "train.csv", f"text,label\n{lines} ,sea\n"),
        "dev": write(folder / "dev.csv", "text,label,id\n" + "".join(f"新{text},{label},7\n" for text, label in rows)),
        "test": write(
            folder / "test.csv", "text,label\n" + "".join(f"旧{text},{label}\n" for text, label in rows) + "\n"
        ),
    }


@pytest.fixture(scope="module")
def trained(files: dict[str, Path], tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    finetune("classify", files["train"], tiny_folder, out, settings=FEW[1::2], quiet=True, dev="30%")
    return out


# -- B5: told, logged, reported ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_B5_finetune_tells_logs_and_reports_train_dev_and_test(
    files: dict[str, Path], tiny_folder: Path, tmp_path: Path, filbert: Ran
) -> None:
    given = [word for name, path in files.items() for word in (f"--{name}", path)]
    code, _, err = filbert("finetune", "classify", *given, "--model", tiny_folder, "--out", tmp_path / "run", *FEW)
    assert code == 0, err
    wanted = {
        "train": [f"{files['train']}: {EMPTY}"],
        "dev": [f"{files['dev']}: column id is passed over."],
        "test": [f"{files['test']}: 1 blank documents or rows were skipped."],
    }
    everything = [sentence for sentences in wanted.values() for sentence in sentences]
    assert told(err)[:3] == everything
    assert err.index(everything[-1]) < err.index("step 1")  # at the start
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["message"] for line in log if line.get("event") == "note"][:3] == everything
    assert json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))["reading"] == wanted
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert all(page.count(sentence.replace("'", "&#x27;")) >= 1 for sentence in everything)


@pytest.mark.slow
def test_B5_evaluate_tells_and_reports(files: dict[str, Path], trained: Path, tmp_path: Path, filbert: Ran) -> None:
    code, out, err = filbert("evaluate", trained, "--data", files["test"], "--train", files["train"], "--json", "--out",
                             tmp_path / "report")  # fmt: skip
    assert code == 0, err
    wanted = {
        "data": [f"{files['test']}: 1 blank documents or rows were skipped."],
        "train": [f"{files['train']}: {EMPTY}"],
    }
    assert json.loads(out)["reading"] == wanted
    assert told(err) == [*wanted["data"], *wanted["train"]]
    assert json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))["reading"] == wanted
    assert wanted["train"][0] in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_B5_predict_words_it_alike(files: dict[str, Path], trained: Path, filbert: Ran) -> None:
    code, out, err = filbert("predict", trained, "--data", files["train"])
    assert code == 0
    assert EMPTY in told(err)
    assert len(out.splitlines()) == 12


@pytest.mark.slow
def test_B5_compare_tells_once_for_all_runs(
    files: dict[str, Path], tiny_folder: Path, tmp_path: Path, filbert: Ran
) -> None:
    code, _, err = filbert("compare", "--models", tiny_folder, "--train", files["train"], "--test", files["test"],
                           "--out", tmp_path / "all", *FEW)  # fmt: skip
    assert code == 0, err
    assert told(err) == [f"{files['train']}: {EMPTY}", f"{files['test']}: 1 blank documents or rows were skipped."]
    found = json.loads((tmp_path / "all" / "comparison.json").read_text(encoding="utf-8"))["reading"]
    assert list(found) == ["train", "test"]
    assert f"{files['train']}: {EMPTY}" in (tmp_path / "all" / "comparison.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["probe", "prune", "distill", "importance", "export"])
def test_B5_every_other_command_tells(
    command: str,
    files: dict[str, Path],
    trained: Path,
    tmp_path: Path,
    filbert: Ran,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, out = files["train"], tmp_path / "out"
    if command == "importance":
        head_importance.importance(fb.load(trained, device="cpu"), data, most=4)
        err = capsys.readouterr().err
    elif command == "export":
        pytest.importorskip("onnxruntime")
        export.export(trained, out, int8=True, dev=data)
        err = capsys.readouterr().err
    else:
        more = {
            "probe": ("probe", trained, "--data", data),
            "prune": ("prune", trained, "--data", data, "--out", out, "--heads", "1"),
            "distill": ("distill", trained, "--data", data, "--layers", "1", "--out", out, *FEW),
        }[command]
        code, _, err = filbert(*more)
        assert code in (0, 2), err  # probe asks for more rows than these, and says so after the notes
    assert told(err).count(f"{data}: {EMPTY}") == 1


def test_B5_a_refusal_says_what_was_passed_over(tiny_folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "first,second,label\n他,你,-\n" + "他,,neutral\n" * 3)
    with pytest.raises(InputError, match=r"has no examples, .* 3 labelled rows with an empty text were skipped"):
        finetune("pair", path, tiny_folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (["+", "-", "+", "-"], ["+", "-", "+", "-"]),
        (["-", "-", "+", "-"], ["-", "-", "+", "-"]),
        (["-", "neutral", "-", "entailment"], ["neutral", "entailment"]),
        (["-", "", ""], None),
        (["not_entailment", "-", "entailment"], ["not_entailment", "entailment"]),
        (["矛盾", "-", "蕴含"], ["矛盾", "蕴含"]),
        (["-", "-"], ["-", "-"]),
    ],
)
def test_B5_a_dash_is_a_label_but_beside_entailment(labels: list[str], kept: list[str] | None, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"第{n}天,{label}\n" for n, label in enumerate(labels)))
    reading = Reading()
    if kept is None:  # a class, so that all rows must have one
        with pytest.raises(InputError, match="has no label, but rows before it have"):
            list(examples(path, "classify"))
        return
    assert [example.gold for example in examples(path, "classify", reading=reading)] == kept
    missing = len(labels) - len(kept)
    assert reading.report.remarks() == ([f"{missing} rows with the label '-' were left out."] if missing else [])


def test_B5_fix_knows_a_dash_for_a_label(tmp_path: Path, filbert: Ran) -> None:
    """A labelled row without a text is removed, whatever its label."""
    path = write(
        tmp_path / "a.csv", "text,label\n很好,+\n很坏,-\n ,-\n" + "".join(f"第{n}天,{'+-'[n % 2]}\n" for n in range(9))
    )
    filbert("doctor", path, "--task", "classify", "--fix", tmp_path / "out")
    assert " ,-" not in (tmp_path / "out" / "a.csv").read_text(encoding="utf-8")


# -- B21: columns and encoding are remembered --------------------------------------------------------------------------


CLASSES = "".join(f"{n},第{n}天很{'好坏'[n % 2]},{'好坏'[n % 2]}评\n" for n in range(12))
ENCODED = "read as gb18030, as the model's training data were; --encoding says otherwise."
NAMED = "columns are those of the model's training data: text from 评论内容, label from 情感; --columns says otherwise."


@pytest.fixture(scope="module")
def reviews(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A GBK table with Chinese names, and the run that learnt from it."""
    folder = tmp_path_factory.mktemp("gbk")
    path = write(folder / "train.csv", f"序号,评论内容,情感\n{CLASSES}", "gb18030")
    columns = {"text": "评论内容", "label": "情感"}
    finetune("classify", path, tiny_folder, folder / "run", columns=columns, encoding="gb18030", quiet=True,
                 settings=FEW[1::2])  # fmt: skip
    return path, folder / "run"


def test_B21_the_model_folder_remembers(reviews: tuple[Path, Path]) -> None:
    _, out = reviews
    said = {"columns": {"text": "评论内容", "label": "情感"}, "encoding": "gb18030"}
    assert json.loads((out / "model" / DATA).read_text(encoding="utf-8")) == said
    assert trained_on(out / "model").as_json() == said
    recipe = json.loads((out / "recipe.json").read_text(encoding="utf-8"))["data"]
    assert (recipe["columns"], recipe["encoding"]) == (said["columns"], said["encoding"])


@pytest.mark.slow
@pytest.mark.parametrize("command", ["evaluate", "predict", "explain"])
def test_B21_commands_read_as_the_training_data_were(command: str, reviews: tuple[Path, Path], filbert: Ran) -> None:
    path, out = reviews
    more = ("--budget", "2000") if command == "explain" else ()
    code, told_out, err = filbert(command, out, "--data", path, *more)
    assert code == 0, err
    notes = [note.removeprefix(f"{path}: ") for note in told(err)]
    assert {ENCODED, NAMED, "column 序号 is passed over."} <= set(notes)
    assert command == "evaluate" or json.loads(told_out.splitlines()[0])["text"] == "第0天很好"


def test_B21_export_and_what_it_wrote(reviews: tuple[Path, Path], tmp_path: Path, filbert: Ran) -> None:
    pytest.importorskip("onnxruntime")
    path, out = reviews
    code, _, err = filbert("export", out, "--out", tmp_path / "shipped", "--int8", "--dev", path)
    assert code == 0, err
    assert f"{path}: {NAMED}" in told(err)
    code, _, err = filbert("predict", tmp_path / "shipped", "--data", path)
    assert code == 0, err
    assert NAMED in told(err)


def test_B21_a_student_and_a_pruned_model_remember_too(
    reviews: tuple[Path, Path], tmp_path: Path, filbert: Ran
) -> None:
    path, out = reviews
    code, _, err = filbert("distill", out, "--data", path, "--layers", "1", "--out", tmp_path / "student", *FEW)
    assert code == 0, err
    assert f"{path}: {NAMED}" in told(err)
    filbert("prune", out, "--layers", "1", "--out", tmp_path / "pruned")
    for folder in (tmp_path / "student" / "model", tmp_path / "pruned"):
        assert trained_on(folder).as_json() == trained_on(out / "model").as_json()


def test_B21_an_explicit_option_wins(reviews: tuple[Path, Path], tmp_path: Path, filbert: Ran) -> None:
    _, out = reviews
    other = write(tmp_path / "a.csv", f"序号,评论内容,情感,text,label\n{CLASSES.replace('评', '评,另外,好评')}")
    code, told_out, err = filbert("predict", out, "--data", other, "--columns", "text=text", "--encoding", "utf-8")
    assert code == 0, err
    assert json.loads(told_out.splitlines()[0])["text"] == "另外"
    assert not any(note in told(err) for note in (NAMED, ENCODED))


def test_B21_a_file_of_other_columns_is_read_as_it_is(reviews: tuple[Path, Path], tmp_path: Path, filbert: Ran) -> None:
    _, out = reviews
    for text, notes in (
        ("text,label\n好,好评\n坏,坏评\n", []),
        ("评论内容,日期\n好,1\n坏,2\n", [NAMED.replace(", label from 情感", ""), "column 日期 is passed over."]),
        ("好\n坏\n", []),
    ):
        path = write(tmp_path / "a.csv", text)
        code, told_out, err = filbert("predict", out, "--data", path)
        assert code == 0, err
        assert [json.loads(line)["text"] for line in told_out.splitlines()] == ["好", "坏"]
        assert told(err) == notes


@pytest.mark.slow
def test_B21_numbers_are_of_files_without_a_header(tiny_folder: Path, tmp_path: Path, filbert: Ran) -> None:
    bare = write(tmp_path / "bare.csv", CLASSES)
    finetune("classify", bare, tiny_folder, tmp_path / "run", columns={"text": 2, "label": 3}, quiet=True,
                 settings=FEW[1::2])  # fmt: skip
    named = write(tmp_path / "named.csv", "label,text,id\n好评,好,1\n坏评,坏,2\n")
    code, out, err = filbert("predict", tmp_path / "run", "--data", named)
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["好", "坏"], err
    code, out, err = filbert("evaluate", tmp_path / "run", "--data", bare)
    assert code == 0, err
    assert f"{bare}: columns are those of the model's training data: text from 2, label from 3; --columns says " in err


def test_B21_utf16_is_known_again(tmp_path: Path) -> None:
    known = sources.ReadOptions(trained_on=sources.ReadOptions(encoding="utf-16-le"))
    path = write(tmp_path / "a.csv", "text,label\n" + "fine,a\nbad,b\n" * 9, "utf-16-le")
    assert sources.read("classify", path, known, reading := Reading())[0].texts == ("fine",)
    assert "read as utf-16-le" in reading.report.remarks()[0]
    path = write(tmp_path / "b.csv", "text,label\nfine,a\nbad,b\n")
    assert sources.read("classify", path, known, reading := Reading())[0].texts == ("fine",)
    assert reading.report.remarks() == []


def test_B21_a_changed_file_of_the_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path / DATA, '{"columns": ["text"]}')
    with pytest.raises(InputError, match="must hold columns"):
        trained_on(tmp_path)


# -- F10: predict reads what its model was trained on ------------------------------------------------------------------


@pytest.mark.slow
def test_F10_predict_reads_triplets(tiny_folder: Path, tmp_path: Path, filbert: Ran) -> None:
    path = write(
        tmp_path / "triplets.csv",
        "anchor,positive,negative\n" + "".join(f"第{n}天,第{n}日,很坏{n}\n" for n in range(8)),
    )
    finetune("embed", path, tiny_folder, tmp_path / "run", listener=listeners.Silent(), settings=FEW[1::2])
    code, _, err = filbert("predict", tmp_path / "run", "--data", path, "--out", tmp_path / "a.jsonl")
    assert code == 0, err
    model = fb.load(tmp_path / "run", device="cpu")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 8
    one, two, three = model.embed(["第3天", "第3日", "很坏3"])
    assert (rows[3]["text"], rows[3]["second"], rows[3]["negative"]) == ("第3天", "第3日", "很坏3")
    assert rows[3]["similarity"] == pytest.approx(float(one @ two), abs=1e-4)
    assert rows[3]["negative_similarity"] == pytest.approx(float(one @ three), abs=1e-4)
    kept = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_text("".join(kept[:5]), encoding="utf-8")
    code, _, err = filbert("predict", tmp_path / "run", "--data", path, "--out", tmp_path / "a.jsonl", "--resume")
    assert code == 0, err
    assert (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines(keepends=True) == kept
    said = model.predict([("第3天", "第3日", "很坏3")])
    assert set(said[0].scores) == {"similarity", "negative_similarity"}


def test_F10_pairs_and_triplets_are_asked_apart(tiny_folder: Path, tmp_path: Path) -> None:
    data = [Example((f"第{n}天", f"第{n}日")) for n in range(8)]
    finetune("embed", data, tiny_folder, tmp_path / "run", listener=listeners.Silent(), settings=FEW[1::2])
    model = fb.load(tmp_path / "run", device="cpu")
    wrong: list[Any] = [("a", "b"), ("a", "b", "c")]
    with pytest.raises(InputError, match="pair 1 has 3 texts, but those before it have 2"):
        model.predict(wrong)
    with pytest.raises(InputError, match=r"pair 0 is 'alone', .*`embed` gives single texts their vectors"):
        model.predict(["alone"])
