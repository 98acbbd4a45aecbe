"""The commands as a stranger runs them: results on stdout, notes on stderr, one sentence and the right code."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest


def test_help_is_quick_and_imports_no_torch() -> None:
    code = (
        "import sys, time; from filbert.cli.main import main; sys.argv = ['filbert', '--help']\n"
        "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # benchmarks/startup.py measures it properly; this finds a heavy import
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3
    for name in ("demo", "doctor", "vocab", "fill", "embed", "import"):
        assert f"\n  {name} " in ran.stdout


@pytest.mark.parametrize("command", ["demo", "doctor", "vocab", "fill", "embed", "import"])
def test_every_command_has_help_and_json(filbert: object, command: str) -> None:
    ran = filbert(command, "--help")  # type: ignore[operator]
    assert ran.code == 0
    assert "--json" in ran.out


def test_a_wrong_command_guesses(filbert: object) -> None:
    ran = filbert("fil", "x")  # type: ignore[operator]
    assert ran.code == 2
    assert "Did you mean 'fill'?" in ran.err


def test_fill(filbert: object, tiny_folder: Path) -> None:
    ran = filbert("fill", "今天[MASK]气很好", "--model", tiny_folder, "--json")  # type: ignore[operator]
    told = json.loads(ran.out)
    assert ran.code == 0
    assert told["blanks"][0]["start"] == 2
    assert len(told["blanks"][0]["candidates"]) == 5
    plain = filbert("fill", "今天[MASK]气很好", "--model", tiny_folder, "--top", "2")  # type: ignore[operator]
    assert plain.out.strip().split("\n")[-1] == told["filled"]


def test_embed_to_every_kind_of_output(filbert: object, tiny_folder: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("今天天气很好\n\nA long text. " + "word " * 500 + "\n\n第三\n", encoding="utf-8")
    to_npy = filbert("embed", tiny_folder, "--data", texts, "--out", tmp_path / "v.npy", "--json")  # type: ignore[operator]
    assert json.loads(to_npy.out)["texts"] == 3
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.shape == (3, 32)
    assert filbert("embed", tiny_folder, "--data", texts, "--out", tmp_path / "v.jsonl").code == 0  # type: ignore[operator]
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text(encoding="utf-8").split("\n") if line]
    np.testing.assert_allclose([line["vector"] for line in lines], vectors, rtol=1e-5)
    assert lines[0]["text"] == "今天天气很好"
    shown = filbert("embed", tiny_folder, "--text", "第三", "--json")  # type: ignore[operator]
    told = json.loads(shown.out)
    np.testing.assert_allclose(told["vectors"], vectors[2:], rtol=1e-4, atol=1e-6)
    assert told["coverage"] == 1.0


def test_embed_refuses_before_it_works(filbert: object, tiny_folder: Path, tmp_path: Path) -> None:
    ran = filbert("embed", tiny_folder, "--text", "x", "--out", tmp_path / "no" / "v.npy")  # type: ignore[operator]
    assert (ran.code, "folder does not exist" in ran.err) == (2, True)
    assert filbert("embed", tiny_folder).code == 2  # type: ignore[operator]
    gone = filbert("embed", tmp_path / "nothing", "--text", "x")  # type: ignore[operator]
    assert (gone.code, gone.err.count("\n")) == (2, 1)


def test_vocab_then_load(filbert: object, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("我们坐高铁去北京。\n\nwalking walked walks talking talked talks\n" * 3, encoding="utf-8")
    ran = filbert("vocab", corpus, "--size", "60", "--out", tmp_path / "v", "--json")  # type: ignore[operator]
    told = json.loads(ran.out)
    assert told["tokens"] <= 60
    from filbert.text.tokenizer import Tokenizer

    assert Tokenizer.load(tmp_path / "v").vocab_size == told["tokens"]
    assert len((tmp_path / "v" / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")) == told["tokens"]


def test_vocab_tells_of_what_it_skipped(filbert: object, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes("好的\x00好的\n\n \n\n好\n".encode())
    ran = filbert("vocab", corpus, "--out", tmp_path / "v")  # type: ignore[operator]
    assert ran.code == 0
    assert "NUL" in ran.err


@pytest.mark.slow
def test_import(filbert: object, minilm: Path, tmp_path: Path) -> None:
    ran = filbert("import", minilm, "--out", tmp_path / "m", "--json")  # type: ignore[operator]
    told = json.loads(ran.out)
    assert (told["kind"], told["parts"]) == ("bert", ["pooler"])
    again = filbert("import", minilm, "--out", tmp_path)  # type: ignore[operator]
    assert again.code == 2


def test_doctor_finds_and_exits_with_2(filbert: object, tmp_path: Path) -> None:
    good = tmp_path / "good.tsv"
    good.write_text("".join(f"第{i}条新闻\t{i % 2}\n" for i in range(20)), encoding="utf-8")
    assert filbert("doctor", good).code == 0  # type: ignore[operator]
    bad = tmp_path / "bad.csv"
    bad.write_text("text,label\n好,a\n坏,b,c\n", encoding="utf-8")
    ran = filbert("doctor", bad, "--json")  # type: ignore[operator]
    told = json.loads(ran.out)
    assert ran.code == 2
    assert any(f["line"] == 3 and f["severity"] == "error" for f in told["findings"])


@pytest.mark.slow
def test_demo_tells_the_truth(filbert: object, tmp_path: Path) -> None:
    ran = filbert("demo", "--out", tmp_path / "run", "--steps", "60", "--json")  # type: ignore[operator]
    told = json.loads(ran.out)
    assert ran.code == 0
    assert told["last_loss"] > 0
    assert told["held_out"]["after"]["mlm_loss"] < told["held_out"]["before"]["mlm_loss"] - 0.5
    log = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").strip().split("\n")
    assert [json.loads(line)["step"] for line in log] == list(range(1, 61))
    assert json.loads((tmp_path / "run" / "recipe.json").read_text(encoding="utf-8"))["model_name"] == "bert"
    again = filbert("demo", "--out", tmp_path / "again", "--steps", "60", "--json")  # type: ignore[operator]
    assert json.loads(again.out)["last_loss"] == told["last_loss"]
    assert filbert("fill", "我[MASK]", "--model", tmp_path / "run").code == 0  # type: ignore[operator]


@pytest.mark.slow
def test_interrupted_demo_keeps_its_work(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "filbert", "demo", "--out", str(tmp_path / "run"), "--steps", "100000"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    log = tmp_path / "run" / "log.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (log.exists() and log.stat().st_size > 0):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    from filbert.train.checkpoint import Store

    kept = Store(tmp_path / "run" / "checkpoints").newest()
    assert kept is not None
    assert kept.step == len(log.read_text(encoding="utf-8").strip().split("\n"))
