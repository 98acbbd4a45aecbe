"""What people type at filbert (rows F of the defects, of the surface): understood, or told in the right words."""

from __future__ import annotations

import inspect
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

import filbert as fb
from filbert.cli.main import filbert as house
from filbert.cli.main import main
from filbert.core import names
from filbert.forms import splits

Filbert = Callable[..., Any]
ROWS = [
    ("球队赢了比赛", "sport"),
    ("医生建议多喝水", "health"),
    ("球赛很精彩", "sport"),
    ("感冒了要休息", "health"),
] * 5
FAST = ("--set", "train.steps=1", "--set", "train.batch_tokens=256", "--set", "machine.threads=1")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.tsv"
    lines = [f"{text}{number}\t{label}" for number, (text, label) in enumerate(ROWS)]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    return path


# F6 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["translate", "summarize", "chat"])
def test_F6_the_advice_names_the_task_that_was_asked_for(command: str, filbert: Filbert, tiny_folder: Path) -> None:
    ran = filbert(command, tiny_folder, "-t", "今天天气很好")
    assert ran.code == 2
    assert f"filbert finetune {command} --model" in ran.err


# F7 -------------------------------------------------------------------------------------------------------------------


def recipe(run: Path) -> dict[str, Any]:
    return json.loads((run / "recipe.json").read_text(encoding="utf-8"))


def test_F7_names_of_other_libraries_are_understood(
    filbert: Filbert, table: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    ran = filbert(
        "finetune", "classify", "--train-file", table, "--model_name_or_path", tiny_folder, "--output_dir",
        tmp_path / "run", "--lr", "0.0003", "--weight-decay=0.02", "--max_seq_length", "32", "--num_train_epochs", "1",
        "--random-state", "7", *FAST,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    told = recipe(tmp_path / "run")
    assert (told["train"]["learning_rate"], told["train"]["weight_decay"]) == (0.0003, 0.02)
    assert (told["task"]["max_length"], told["epochs"], told["train"]["seed"]) == (32, 1.0, 7)


@pytest.mark.parametrize("option", ["--batch-size", "--per_device_train_batch_size", "--batch-size=8"])
def test_F7_a_batch_is_told_in_tokens(option: str, filbert: Filbert, table: Path, tmp_path: Path) -> None:
    ran = filbert("finetune", "classify", "--train", table, "--out", tmp_path / "run", option, "8")
    assert ran.code == 2
    assert "train.batch_tokens" in ran.err


@pytest.mark.parametrize("command", ["finetune", "pretrain", "distill", "compare"])
def test_F7_what_is_missing_is_told_of_every_training_command(command: str, filbert: Filbert) -> None:
    ran = filbert(command, "--gradient-accumulation-steps", "2")
    assert ran.code == 2
    assert "no option --gradient-accumulation-steps: a batch that does not fit" in ran.err
    assert "needs a value; it is --set train.learning_rate=" in filbert(command, "--lr").err


def test_F7_every_synonym_is_of_a_field_or_an_argument_that_is_there() -> None:
    from filbert.core.settings import parsed
    from filbert.tasks.classify import spec as classify_spec
    from filbert.train import loop

    sections = {"train": loop.Config, "task": classify_spec.Config}
    for field in set(names.SETTINGS.values()):
        assert parsed([f"{field}={0.5 if 'rate' in field or 'decay' in field else 1}"], sections)
    options = {name for each in house.get_command(click.Context(house), "finetune").params for name in each.opts}
    for argument in set(names.ARGUMENTS.values()):
        assert argument in inspect.signature(fb.finetune).parameters
        assert f"--{argument}" in options


def test_F7_python_understands_the_same_names(tiny_folder: Path, tmp_path: Path) -> None:
    given = {"settings": {"train.steps": 1, "machine.threads": 1}, "quiet": True}
    fb.finetune("classify", ROWS, tiny_folder, tmp_path / "run", lr=3e-4, num_train_epochs=2, random_state=3, **given)
    told = recipe(tmp_path / "run")
    assert (told["train"]["learning_rate"], told["epochs"], told["train"]["seed"]) == (3e-4, 2, 3)
    for wrong, right in ({"batch_size": 8}, "batch_tokens"), ({"output_dir": "x"}, "called out"), ({"lrr": 1}, "'lrr'"):
        with pytest.raises(fb.InputError, match=right):
            fb.finetune("classify", ROWS, tiny_folder, tmp_path / "other", **given, **wrong)


@pytest.mark.parametrize("share", ["0.2", ".2", "20%", "20 %", "２０％".translate({0xFF12: "2", 0xFF10: "0"}), 0.2])
def test_F7_a_share_may_be_written_as_people_do(share: Any) -> None:
    assert splits.share(share) == pytest.approx(0.2)


@pytest.mark.parametrize("share", [0, 1, 1.5, 20, -0.1, True, float("nan"), "0%", "100%"])
def test_F7_a_share_that_cannot_be_kept_back_is_refused(share: Any) -> None:
    with pytest.raises(fb.InputError, match="cannot be kept back"):
        splits.share(share)


def test_F7_a_file_is_no_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("0.2").touch()
    assert splits.share("0.2") is None
    assert splits.share("dev.csv") is None
    assert splits.share(None) is None


def test_F7_a_share_for_dev_is_kept_back_and_said(
    filbert: Filbert, table: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    words = ("finetune", "classify", "--train", table, "--model", tiny_folder, *FAST)
    ran = filbert(*words, "--dev", "0.3", "--out", tmp_path / "run")
    assert ran.code == 0, ran.err
    assert "of 20 rows are kept back (0.3 of them), chosen by their text" in ran.err
    assert "as dev alone" in filbert(*words, "--test", "0.2", "--out", tmp_path / "other").err


# F9 -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, bytes, bytes]]:
    """A command where the terminal writes in some encoding: how it ended, and the bytes on both streams."""

    def run(encoding: str, *words: str | Path) -> tuple[int, bytes, bytes]:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        monkeypatch.setattr(sys, "argv", ["filbert", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        monkeypatch.undo()
        out, err = (stream.buffer.getvalue() for stream in streams)
        assert b"Traceback" not in err
        return int(ended.value.code or 0), out, err

    return run


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "latin-1", "utf-8"])
def test_F9_any_terminal_is_written_to(encoding: str, in_terminal: Callable[..., Any], tiny_folder: Path) -> None:
    text = "今天[MASK]气😀é"
    code, out, _ = in_terminal(encoding, "fill", text, "--model", tiny_folder)
    assert code == 0
    assert out.strip()
    code, out, _ = in_terminal(encoding, "fill", text, "--model", tiny_folder, "--json")
    assert (code, json.loads(out.decode(encoding))["text"]) == (0, text)  # JSON loses nothing
    assert (text[:2].encode() in out) is (encoding == "utf-8")  # and is escaped only where it must be
    code, out, _ = in_terminal(encoding, "embed", tiny_folder, "-t", text)
    assert (code, json.loads(out.decode(encoding))["text"]) == (0, text)
    code, _, err = in_terminal(encoding, "fill", text, "--model", "没有")
    assert (code, err[:9]) == (2, b"filbert: ")


def test_F9_a_lone_surrogate_is_written_as_its_number(in_terminal: Callable[..., Any]) -> None:
    code, _, err = in_terminal("utf-8", "fill", "[MASK]", "--model", "\udcff")
    assert (code, b"\\udcff" in err) == (2, True)


@pytest.mark.parametrize("encoding", ["ascii", "gbk"])
def test_F9_the_process_itself_ends_in_one_sentence(encoding: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    ran = subprocess.run([sys.executable, "-m", "filbert", "😀没有"], env=env, capture_output=True, check=False)
    assert ran.returncode == 2
    assert b"there is no command" in ran.stderr
    assert b"Traceback" not in ran.stderr


# F12 ------------------------------------------------------------------------------------------------------------------


def test_F12_every_command_takes_json() -> None:
    context = click.Context(house)
    for name in house.list_commands(context):
        options = {option for each in house.get_command(context, name).params for option in each.opts}
        assert "--json" in options, name


@pytest.mark.slow
def test_F12_serve_tells_where_it_listens_as_json(tiny_folder: Path) -> None:
    words = [sys.executable, "-m", "filbert", "serve", f"tiny={tiny_folder}", "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as served:
        try:
            told = json.loads(served.stdout.readline())
        finally:
            served.terminate()
            rest = served.communicate(timeout=120)[0]
    assert told["url"].startswith("http://127.0.0.1:")
    assert told["models"] == {"tiny": str(tiny_folder)}
    assert rest == b""


@pytest.mark.slow
def test_F12_the_built_in_model_is_verified_by_golden_cases(filbert: Filbert) -> None:
    ran = filbert("verify", "builtin", "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["holds"]) == (0, True)
    assert all(each["num_cases"] > 10 for each in told["runtimes"])


# F13 ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_F13_the_built_in_model_is_the_default_and_said(filbert: Filbert, table: Path, tmp_path: Path) -> None:
    ran = filbert("finetune", "classify", "--train", table, "--out", tmp_path / "run", "--json", *FAST)
    assert ran.code == 0, ran.err
    assert "begins with the built-in model, since no model was named" in ran.err
    assert json.loads(ran.out)["model"] == "builtin"
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "the built-in model" in card
    both = filbert("finetune", "classify", "--train", table, "--out", tmp_path / "b", "--model", "x", "--arch", "han")
    assert both.code == 2
    assert "give one of --model" in both.err
