"""What commands read and write at the edges: rows F1–F5, F8, I3 and I7–I9 of the list of defects of November 2026."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import filbert as fb
from filbert.cli import asking
from filbert.core import files
from filbert.core.errors import InputError
from filbert.core.records import Example, Prediction
from filbert.engine import answers
from filbert.engine.answers import answered
from filbert.engine.results import Results, Table, form_of
from filbert.folder import folder as folders
from filbert.models import transformer
from filbert.run.finetune import finetune
from filbert.tasks.task import Asked
from filbert.text.tokenizer import Tokenizer
from kit.folders import examples_of, task_file

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = [("the train leaves the station", "rail"), ("a ship on the water", "sea"), ("clouds and the wind", "sky")]
Command = Callable[..., Any]


@pytest.fixture(scope="module")
def model(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small classifier."""
    examples = examples_of(ROWS * 4)
    out = tmp_path_factory.mktemp("commands") / "run"
    words = ["machine.threads=1", "task.max_length=16", "task.overlap=4", "train.steps=2"]
    finetune("classify", examples, tiny_folder, out, settings=words, quiet=True)
    return out


def writer(out: Path, tiny_folder: Path, task: str = "translate", **shape: int) -> Path:
    """An encoder-decoder that nobody has taught."""
    tokenizer = Tokenizer.load(tiny_folder)
    config = {"width": 16, "layers": 1, "heads": 2, "inner": 32, "max_length": 32, "writer_layers": 1, **shape}
    found = transformer.Transformer(transformer.Config(vocab_size=tokenizer.vocab_size, **config), ("writer",)).eval()
    said = {"task": task, "max_length": 32, "beam": 1, "max_new": 2, "max_ratio": 0.0}
    return folders.save(out, found, tokenizer, files=task_file(said))


@pytest.fixture(scope="module")
def translator(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that translates, badly."""
    return writer(tmp_path_factory.mktemp("writer") / "mt", tiny_folder)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def dictionaries(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# F1 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["translate", "summarize", "chat"])
def test_F1_what_cannot_be_read_stops_no_file(task: str, tiny_folder: Path, tmp_path: Path, filbert: Command) -> None:
    folder = writer(tmp_path / "model", tiny_folder, task)
    data, out = tmp_path / "t.txt", tmp_path / "o.jsonl"
    data.write_text("the wind\n🙃\n\n \u200b\na ship\n", encoding="utf-8")
    ran = filbert(task, folder, "--data", data, "--out", out)
    assert ran.code == 0, ran.err
    found = lines_of(out)
    assert [each["line"] for each in found] == [1, 2, 3, 4, 5]
    assert [each["written"] for each in found[1:4]] == ["", "", ""]
    assert found[0]["written"]
    assert f"{data} line 2: not one character of it is in the model's vocabulary, so nothing is written" in ran.err
    assert f"{data} line 3: the text is empty, so nothing is written" in ran.err
    plain = filbert(task, folder, "--data", data)
    assert [bool(line) for line in plain.out.split("\n")] == [True, False, False, False, True, False]


def test_F1_predict_answers_and_tells(model: Path, tmp_path: Path, filbert: Command) -> None:
    data = tmp_path / "t.txt"
    data.write_text("a ship\n\n\u200b\u200d\n" + "\n" * 9, encoding="utf-8")
    ran = filbert("predict", model, "--data", data)
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 12
    assert f"{data} line 2: the text is empty, so the answer is what the model says of nothing" in ran.err
    assert f"{data} line 3: no character of it is one that is read" in ran.err
    assert "of 10 texts in all: the text is empty" in ran.err
    assert ran.err.count("the text is empty") == asking.NAMED + 1


def test_F1_a_text_that_is_refused_is_named_by_file_and_line() -> None:
    class Refuses:
        def predict(self, texts: Sequence[Asked], *, task: str | None = None) -> list[Prediction]:
            if "bad" in texts:
                raise InputError(f"example {list(texts).index('bad')}: is bad.")
            return [Prediction("a", {"a": 1.0}) for _ in texts]

    given = [Example((text,), id=n, source="t.txt", line=n + 1) for n, text in enumerate(["x", "y", "bad", "z"])]
    got: list[str] = []

    def collected() -> None:
        for some in answered(Refuses(), given):
            got.extend(example.texts[0] for example, _ in some)

    with pytest.raises(InputError, match=r"^t\.txt line 3: is bad\.$"):
        collected()
    assert got == ["x", "y"]


# F2 -------------------------------------------------------------------------------------------------------------------


def test_F2_the_suffix_says_the_form(model: Path, tmp_path: Path, filbert: Command) -> None:
    data = tmp_path / "t.jsonl"
    texts = ["a ship", 'the "wind", and\nthe train', "tab\there", "今天"]
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for name in ("o.jsonl", "o.csv", "o.TSV"):
        ran = filbert("predict", model, "--data", data, "--out", tmp_path / name)
        assert ran.code == 0, ran.err
    rows = dictionaries(tmp_path / "o.csv")
    lines = lines_of(tmp_path / "o.jsonl")
    assert [row["text"] for row in rows] == [line["text"] for line in lines] == texts
    assert [row["label"] for row in rows] == [line["label"] for line in lines]
    assert [float(row["score"]) for row in rows] == [line["score"] for line in lines]
    assert [json.loads(row["scores"]) for row in rows] == [line["scores"] for line in lines]
    table = [line.split("\t") for line in (tmp_path / "o.TSV").read_text(encoding="utf-8").splitlines()]
    assert len(table) == 5
    assert {len(row) for row in table} == {len(table[0])}
    assert table[3][table[0].index("text")] == "tab here"
    assert "2 cells had tabs or line ends, which TSV cannot hold" in ran.err


@pytest.mark.parametrize("name", ["o.xlsx", "o.json", "o.parquet", "o.jsonl.gz"])
def test_F2_other_suffixes_are_refused_before_the_model_is_read(name: str, tmp_path: Path, filbert: Command) -> None:
    commands = [("predict", "-t", "x"), ("embed", "-t", "x"), ("explain", "-t", "x"), ("explain", "-d", "x")]
    commands += [("translate", "-t", "x"), ("summarize", "-t", "x"), ("chat", "-t", "x")]
    for command, *words in commands:
        ran = filbert(command, tmp_path / "no-such-model", *words, "--out", tmp_path / name)
        assert ran.code == 2
        assert f"{tmp_path / name}: " in ran.err
        assert "the suffix says how results are written" in ran.err


def test_F2_embed_writes_tables(tiny_folder: Path, tmp_path: Path, filbert: Command) -> None:
    words = ("embed", tiny_folder, "-t", "a, b", "-t", "c", "--out")
    assert filbert(*words, tmp_path / "v.csv").code == 0
    assert filbert(*words, tmp_path / "v.npy").code == 0
    with (tmp_path / "v.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["text", *map(str, range(32))]
    assert [row[0] for row in rows[1:]] == ["a, b", "c"]
    given = np.array([[float(number) for number in row[1:]] for row in rows[1:]])
    np.testing.assert_allclose(given, np.load(tmp_path / "v.npy"), rtol=1e-5)
    asked = filbert("embed", tiny_folder, "-t", "a", "--search", "a", "--out", tmp_path / "s.npy")
    assert asked.code == 2


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_F2_a_table_is_gone_on_with(form: str, tmp_path: Path) -> None:
    texts = ["a", 'two "lines",\nof it', "tab\there", "d"]
    given = [Example((text,), line=n + 1) for n, text in enumerate(texts)]
    path = tmp_path / f"o.{form}"

    def records(examples: Iterator[Example]) -> list[dict[str, Any]]:
        return [{"line": each.line, "text": each.texts[0], "label": "x"} for each in examples]

    with Results(path) as results:
        results.write(records(iter(given)))
    whole = path.read_bytes()
    for count in (1, 2, 3):
        path.unlink()
        with Results(path) as results:
            results.write(records(iter(given[:count])))
        with path.open("ab") as file:
            file.write(b'4,"to')  # as a crash leaves it
        with Results(path, resume=True) as results:
            assert (results.count, results.torn) == (count, True)
            results.write(records(results.rest(given)))
        assert path.read_bytes() == whole
    with Results(path, resume=True) as results, pytest.raises(InputError, match="not of this data"):
        list(results.rest([*given[:3], Example(("other",), line=4)]))
    path.write_text("somebody's notes")
    with pytest.raises(InputError, match="is not a result that predict wrote"):
        Results(path, resume=True)
    assert path.read_text() == "somebody's notes"


def test_F2_a_field_that_has_no_column_is_named() -> None:
    table = Table("csv", later=("b",))
    assert table.text([{"a": 1}, {"a": 2, "b": [1]}]) == "a,b\n1,\n2,[1]\n"
    with pytest.raises(InputError, match="the field 'c' has no column"):
        table.text([{"a": 1, "c": 2}])
    assert form_of("out.de", otherwise="lines") == form_of("out", otherwise="lines") == "lines"
    assert form_of("out") == "jsonl"


# F3 and F8 ------------------------------------------------------------------------------------------------------------


class Slow:
    """Answers, as if each text took so many seconds, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, each_s: float) -> None:
        self.now, self.each_s = 0.0, each_s
        self.sizes: list[int] = []
        monkeypatch.setattr(answers.time, "perf_counter", lambda: self.now)

    def predict(self, texts: Sequence[Asked], *, task: str | None = None) -> list[Prediction]:
        self.sizes.append(len(texts))
        self.now += len(texts) * self.each_s
        return [Prediction("a", {"a": 1.0}) for _ in texts]


@pytest.mark.parametrize(("each_s", "most_s"), [(0.025, 6.0), (2.0, 100.0), (1e-5, 1.0)])
def test_F3_results_come_soon_and_then_often(monkeypatch: pytest.MonkeyPatch, each_s: float, most_s: float) -> None:
    slow = Slow(monkeypatch, each_s)
    given = [Example(("some words of a text",), line=n + 1) for n in range(5_000)]
    found = [example.line for some in answered(slow, iter(given)) for example, _ in some]
    assert found == list(range(1, 5_001))
    assert slow.sizes[0] <= 40
    assert max(slow.sizes) * each_s <= most_s
    if each_s < 1e-4:  # a fast model is fed as before
        assert max(slow.sizes) == answers.CHUNK


@pytest.mark.parametrize("after", [0, 1])
def test_F3_what_an_interrupt_names_is_there(
    after: int, model: Path, tmp_path: Path, filbert: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "CHUNK", 7)
    data, out = tmp_path / "t.txt", tmp_path / "o.jsonl"
    data.write_text("".join(f"ship {n}\n" for n in range(30)))
    real, seen = fb.Model.predict, [0]

    def breaks(self: fb.Model, texts: Sequence[Asked], *, task: str | None = None) -> list[Prediction]:
        seen[0] += 1
        if seen[0] > after:
            raise KeyboardInterrupt
        return real(self, texts)

    monkeypatch.setattr(fb.Model, "predict", breaks)
    ran = filbert("predict", model, "--data", data, "--out", out)
    assert ran.code == 130
    assert out.exists() == bool(after)
    assert ("holds 7 results" in ran.err) == bool(after)
    assert ("was not begun" in ran.err) != bool(after)
    if after:
        assert len(lines_of(out)) == 7


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "csv"])
def test_F3_translate_goes_on_too(
    suffix: str, translator: Path, tmp_path: Path, filbert: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "CHUNK", 4)
    data = tmp_path / "t.txt"
    data.write_text("".join(f"ship {n}\n" for n in range(10)))
    whole, cut = tmp_path / f"whole.{suffix}", tmp_path / f"cut.{suffix}"
    assert filbert("translate", translator, "--data", data, "--out", whole).code == 0
    kept = whole.read_bytes().splitlines(keepends=True)
    cut.write_bytes(b"".join(kept[: 4 + (suffix == "csv")]))
    assert "is there already" in filbert("translate", translator, "--data", data, "--out", cut).err
    ran = filbert("translate", translator, "--data", data, "--out", cut, "--resume")
    assert ran.code == 0, ran.err
    assert "4 results are there already" in ran.err
    assert cut.read_bytes() == whole.read_bytes()


def test_F3_a_long_text_tells_how_far_it_is(model: Path) -> None:
    loaded, heard = fb.load(model), list[float]()
    loaded.engine.on_progress = heard.append
    loaded.predict(["the wind and the ship " * 400])
    assert len(heard) >= loaded.config.layers
    assert heard == sorted(heard)
    assert 0 < heard[0] < heard[-1] <= 1


def test_F8_the_bar_counts_answers_with_a_total(
    model: Path, tmp_path: Path, filbert: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tqdm

    shown: list[tuple[int, int | None]] = []

    class Seen(tqdm.tqdm):  # type: ignore[type-arg]
        def update(self, n: float | None = 1) -> bool | None:
            moved = super().update(n)
            if n:
                shown.append((int(self.n), self.total))
            return moved

    monkeypatch.setattr(tqdm, "tqdm", Seen)
    monkeypatch.setattr(answers, "CHUNK", 4)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    (tmp_path / "a.csv").write_text('text\n"a\nship"\n\nwind\n' + "train\n" * 6)
    ran = filbert("predict", model, "--data", tmp_path / "a.csv", "--out", tmp_path / "o.jsonl")
    assert ran.code == 0, ran.err
    assert shown == [(4, 8), (8, 8)]


# F4 -------------------------------------------------------------------------------------------------------------------


def test_F4_several_files_and_folders_in_order(model: Path, translator: Path, tmp_path: Path, filbert: Command) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    (tmp_path / "a.txt").write_text("a ship\nthe wind\n")
    (folder / "c.txt").write_text("the water\n")
    (folder / "b.csv").write_text("text,label\nclouds,sky\n")
    (folder / "notes.pdf").write_text("no text")
    out = tmp_path / "o.csv"
    words = ("--data", tmp_path / "a.txt", "--data", folder)
    ran = filbert("predict", model, *words, "--out", out)
    assert ran.code == 0, ran.err
    rows = dictionaries(out)
    names = [str(tmp_path / "a.txt")] * 2 + [str(folder / "b.csv"), str(folder / "c.txt")]
    assert [(row["file"], row["line"], row["text"], row["gold"]) for row in rows] == [
        (names[0], "1", "a ship", ""), (names[1], "2", "the wind", ""), (names[2], "2", "clouds", "sky"),
        (names[3], "1", "the water", ""),
    ]  # fmt: skip
    told = json.loads(filbert("translate", translator, *words, "--json").out)
    assert [each["file"] for each in told["written"]] == names
    again = filbert("predict", model, *words, "--out", out, "--resume")
    assert again.code == 0
    assert "0 texts" in again.err
    one = filbert("predict", model, "--data", folder, "--out", tmp_path / "one.jsonl")
    assert one.code == 0
    assert "1 files in the folders were left alone" in one.err


def test_F4_one_process_does_it(model: Path, filbert: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(os, "_exit", sys.exit)
    second = filbert("predict", model, "--text", "x")
    assert (second.code, second.out, second.err) == (2, "", "")
    monkeypatch.setenv("RANK", "0")
    first = filbert("predict", model, "--text", "x")
    assert (first.code, first.out) == (2, "")
    assert "predict: 2 processes were started (WORLD_SIZE), and each would do all of the work" in first.err


# F5 -------------------------------------------------------------------------------------------------------------------


def test_F5_where_there_is_nothing_to_read_command_and_server_refuse(model: Path, filbert: Command) -> None:
    from filbert.serve.limits import Limits, Refused, some_texts

    for words in (["--text", ""], ["--text", " ", "--text", ""], ["--pair", "", ""]):
        code, _, err = filbert("predict", model, *words)
        assert (code, err.splitlines()[-1].partition("; ")[0]) == (
            2, "filbert: nothing stands in any text that was given",
        )  # fmt: skip
    for given in ([""], ["", " "], [["", ""]]):
        with pytest.raises(Refused, match="nothing stands in any text"):
            some_texts(given, "texts", Limits())


def test_F5_an_empty_text_among_others_is_answered_everywhere_alike(
    model: Path, translator: Path, tiny_folder: Path, filbert: Command
) -> None:
    from filbert.serve.limits import Limits, some_texts, strings

    said = fb.load(model).predict([""])[0]
    shown = json.loads(filbert("predict", model, "--text", "a", "--text", "").out.splitlines()[1])
    assert (shown["label"], shown["score"]) == (said.label, round(said.scores[str(said.label)], 6))
    assert some_texts(["a", "", ["", "b"]], "texts", Limits()) == ["a", "", ["", "b"]]
    assert strings(["", "a"], "input", Limits()) == ["", "a"]
    assert fb.load(translator).predict([""])[0] == Prediction(text="", scores={"score": 0.0})
    assert np.isfinite(fb.load(tiny_folder).embed([""])).all()


# I3, I7 and I8 --------------------------------------------------------------------------------------------------------


def test_I3_a_second_writer_is_refused_and_a_dead_one_is_not_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    with Results(path) as results:
        with pytest.raises(InputError, match="another process is writing it now"):
            Results(path)
        results.write([{"text": "a"}])
        with pytest.raises(InputError, match="another process is writing it now"):
            Results(path, resume=True)
    with pytest.raises(InputError, match="is there already"):
        Results(path)
    assert path.read_text() == '{"text": "a"}\n'
    with files.whole_file(tmp_path / "w.txt") as part:
        part.write_text("first")
        with pytest.raises(InputError, match="another process is writing it now"), files.whole_file(tmp_path / "w.txt"):
            pass
    assert (tmp_path / "w.txt").read_text() == "first"
    (tmp_path / "empty.jsonl").touch()  # of one that was killed before its first result
    with Results(tmp_path / "empty.jsonl") as results:
        results.write([{"text": "a"}])


KILLED = """
import os, signal, sys
from pathlib import Path
from filbert.core.files import whole_file
from filbert.text.tokenizer import Tokenizer
real = os.fsync
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "vocab":
    Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "A", "a"], lowercase=False).save(sys.argv[2])
else:
    with whole_file(sys.argv[2]) as part:
        part.write_text("half")
"""


def killed(what: str, path: Path) -> None:
    """A writer that SIGKILL ends before the first file is on the disk."""
    done = subprocess.run([sys.executable, "-c", KILLED, what, str(path)], check=False)
    assert done.returncode == -9


@pytest.mark.slow
def test_I7_a_vocabulary_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    killed("vocab", tmp_path / "v")
    assert not (tmp_path / "v").exists()
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    cased = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "A", "a"], lowercase=False)
    cased.save(tmp_path / "v")
    assert [path.name for path in tmp_path.iterdir()] == ["v"]
    assert not Tokenizer.load(tmp_path / "v").lowercase
    killed("vocab", tmp_path / "v")  # over an older one: that stays
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == [
        "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    ]  # fmt: skip
    assert not Tokenizer.load(tmp_path / "v").lowercase
    Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "b"]).save(tmp_path / "v")
    assert [path.name for path in tmp_path.iterdir()] == ["v"]
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "notes.md").write_text("mine")
    killed("vocab", mixed)
    assert [path.name for path in mixed.iterdir() if not path.name.startswith(".")] == ["notes.md"]
    cased.save(mixed)
    assert sorted(path.name for path in mixed.iterdir()) == [
        "notes.md", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    ]  # fmt: skip


def test_I8_the_next_run_removes_what_no_process_owns(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    killed("file", path)
    (tmp_path / ".a.txt.0123abcd.part").write_text("of an older version")
    (tmp_path / ".b.txt.0123abcd.part").write_text("another file's")
    (tmp_path / ".a.txt.part").write_text("not ours")
    assert len(list(tmp_path.iterdir())) == 4
    files.write_text(path, "whole")
    assert sorted(each.name for each in tmp_path.iterdir()) == [".a.txt.part", ".b.txt.0123abcd.part", "a.txt"]
    assert path.read_text() == "whole"


def test_I8_a_folder_that_was_moved_aside_is_put_back(tmp_path: Path) -> None:
    path = tmp_path / "model"
    (tmp_path / ".model.0123abcd.part").mkdir()
    (tmp_path / ".model.0123abcd.old").mkdir()
    (tmp_path / ".model.0123abcd.old" / "kept").write_text("x")
    with pytest.raises(RuntimeError), files.whole_folder(path, lambda _: True, "a thing"):
        raise RuntimeError
    assert [each.name for each in tmp_path.iterdir()] == ["model"]
    assert (path / "kept").read_text() == "x"


# I9 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["1,2", " 2 ", "abc", "-1"])
def test_I9_OMP_NUM_THREADS(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from filbert.engine.backend_onnx import _cores
    from filbert.train.machine import _environment_threads

    monkeypatch.setenv("OMP_NUM_THREADS", said)
    if said in ("abc", "-1"):
        with pytest.raises(InputError, match=r"^OMP_NUM_THREADS is '(abc|-1)', but must be a whole number"):
            _cores()
        assert _environment_threads() == 0
    else:
        assert _cores() == _environment_threads() == int(said.split(",")[0])


def test_I9_what_nobody_foresaw_is_one_sentence(
    tmp_path: Path, filbert: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.txt").write_text("a\n")

    def refuses(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "config.json"))

    monkeypatch.setattr(fb, "load", refuses)
    ran = filbert("embed", "builtin", "--text", "x")
    assert ran.code == 1
    assert ran.err == (
        f"filbert: {tmp_path}/config.json: could not be read or written (Permission denied); "
        "look at who may read and write it.\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_I9_an_output_that_takes_nothing(unbuffered: str) -> None:
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    for words, end, code in (
        ("--help", "> /dev/full", 1), ("--help", ">&-", 1), ("--help", "| true", 0), ("vocab --help", "> /dev/full", 1),
    ):  # fmt: skip
        shell = f"{sys.executable} -m filbert {words} {end}"
        done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == code
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        assert done.stderr.count("filbert: standard output: could not be written") == code
