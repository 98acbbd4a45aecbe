"""`filbert pretrain --budget` as a stranger runs it: it ends on time, and says how far its forecast was off."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from filbert.cli.pretrain import process_start
from filbert.clock.budget import PLAN

LATE = 2.0  # times the budget: how late a machine may make a run by stalling; the clock itself is tested in test_budget


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 documents of a small grammar."""
    random = np.random.Generator(np.random.PCG64(5))
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "lnrst"]
    documents = []
    for _ in range(600):
        topic = random.permutation(len(words))[:30]
        sentences = [" ".join(words[i] for i in random.choice(topic, 9)) + "." for _ in range(12)]
        documents.append("\n".join(sentences))
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def budget() -> float:
    """Seconds enough for a run on this machine as it is now: a multiple of what it takes to import torch."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch._dynamo, filbert.run"], check=True)
    return round(min(max(20.0, 6 * (time.monotonic() - begun)), 120.0))


def started(corpus: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "filbert", "pretrain", str(corpus), "--out", str(out), "--vocab-size", "500"]
    return subprocess.Popen(
        [*words, "--set", "machine.device=cpu", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip


def log(out: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines() if line.endswith("}")
    ]


def rises_once_and_falls(rates: list[float]) -> bool:
    """One warm-up, then down."""
    top = rates.index(max(rates))
    return rates[:top] == sorted(rates[:top]) and rates[top:] == sorted(rates[top:], reverse=True)


@pytest.mark.slow
def test_a_run_by_the_clock_ends_on_time(corpus: Path, tmp_path: Path, budget: float) -> None:
    begun = time.monotonic()
    process = started(corpus, tmp_path / "run", "--budget", f"{budget}s", "--json")
    out, err = process.communicate(timeout=5 * budget)
    took = time.monotonic() - begun
    assert process.returncode == 0, err
    assert 0.85 * budget <= took <= LATE * budget
    told = json.loads(out)
    lines = log(tmp_path / "run")
    steps = [line for line in lines if "loss" in line and "event" not in line]
    rates = [line["rate"] for line in steps]
    assert rises_once_and_falls(rates)
    assert rates[-1] < 0.25 * max(rates)  # the schedule came to its end
    assert steps[-1]["left_s"] < 0.1 * budget
    assert {"chosen", "forecast", "outcome"} <= {line.get("event") for line in lines}
    assert sum("held" in line for line in lines) >= 2
    assert told["steps"] == steps[-1]["step"]
    assert told["forecast"]["low"] < told["forecast"]["high"]
    outcome = next(line["message"] for line in lines if line.get("event") == "outcome")
    assert f"came to {told['held']['mlm_loss']:.2f}" in outcome
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert outcome in page
    assert re.search(r"chosen: \w+ \(\d+ × \d+\): at about", err)
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_killed_run_goes_on_in_the_time_that_is_left(corpus: Path, tmp_path: Path, budget: float) -> None:
    out = tmp_path / "run"
    process = started(corpus, out, "--budget", f"{budget}s")
    until = time.monotonic() + 5 * budget
    whole = "checkpoints/step-????????/manifest.json"
    while not list(out.glob(whole)) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = json.loads((out / PLAN).read_text(encoding="utf-8"))
    process = started(corpus, out, "--resume")  # the budget is the run's own
    _, err = process.communicate(timeout=5 * budget)
    assert process.returncode == 0, err
    lines = log(out)
    steps = [line for line in lines if "loss" in line and "event" not in line]
    rates = [line["rate"] for line in steps]
    resumed = next(line["step"] for line in lines if line.get("event") == "resumed")
    assert [line["step"] for line in steps] == list(range(1, len(steps) + 1))
    assert rises_once_and_falls(rates)
    assert rates[-1] < 0.25 * max(rates)
    spent = before["before_s"] + steps[resumed - 1]["seconds"]
    assert steps[resumed]["left_s"] <= budget - spent
    assert steps[-1]["left_s"] < 0.1 * budget


@pytest.mark.slow
def test_a_budget_too_short_is_refused_in_a_sentence(corpus: Path, tmp_path: Path) -> None:
    process = started(corpus, tmp_path / "run", "--budget", "1s")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "left for training" in err
    assert "Traceback" not in err


def test_budget_and_steps_both_say_when_to_end(corpus: Path, tmp_path: Path) -> None:
    process = started(corpus, tmp_path / "run", "--budget", "1m", "--set", "train.steps=5")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "give one" in err


def test_the_process_start_is_before_now() -> None:
    started_at = process_start()
    assert 0 <= time.monotonic() - started_at < 60


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_whole_group_saves_first(corpus: Path, tmp_path: Path, number: int, code: int) -> None:
    """Ctrl-C and `timeout` reach the loader workers too: they leave it to the run, which still needs their batches."""
    out = tmp_path / "run"
    process = started(corpus, out, "--preset", "tiny", "--set", "train.steps=100000", "--set", "machine.workers=2")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not ((out / "log.jsonl").exists() and len(log(out)) > 3):
        time.sleep(0.1)
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=180)
    assert process.returncode == code, said
    assert "is saved; go on with --resume." in said
    assert (out / "checkpoints" / f"step-{log(out)[-1]['step']:08d}").is_dir()
