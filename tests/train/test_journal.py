"""The journal and the report: every line valid JSON, logs mended on resume, numbers and pages that can be trusted."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import types
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from filbert.core.errors import InputError
from filbert.draw import charts
from filbert.train import journal, report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def entry(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "epoch": 0, "loss": 4.0 / step, "rate": 1e-3, "tokens": 100, "seconds": step * 0.5, **more}


def written(folder: Path, steps: int = 10, **more: Any) -> list[dict[str, Any]]:
    with journal.Journal(folder, steps=steps, stream=io.StringIO(), **more) as told:
        for step in range(1, steps + 1):
            told.step(entry(step))
    return journal.entries(folder / journal.LOG)


# log.jsonl -----------------------------------------------------------------------------------------------------------


def test_a_line_per_step_with_what_the_loop_gave_and_what_the_journal_adds(tmp_path: Path) -> None:
    lines = written(tmp_path / "run", flops_per_token=1e9, peak_flops=1e12)
    assert [line["step"] for line in lines] == list(range(1, 11))
    assert {"epoch", "loss", "rate", "tokens", "seconds", "loss_ema", "tokens_s", "mfu"} == lines[-1].keys() - {"step"}
    assert lines[0]["loss_ema"] == pytest.approx(4.0)  # corrected for the start
    raw = weight = 0.0
    for line in lines:
        raw, weight = 0.98 * raw + 0.02 * line["loss"], 0.98 * weight + 0.02
        assert line["loss_ema"] == pytest.approx(raw / weight, rel=1e-5)
    assert lines[-1]["tokens_s"] == pytest.approx(200)
    assert lines[-1]["mfu"] == pytest.approx(0.2)


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    with journal.Journal(tmp_path, steps=4, stream=io.StringIO()) as told:
        told.step(entry(1))
        told.step(entry(2) | {"loss": math.nan, "numbers": {"norm": math.inf, "mlm_accuracy": np.float32(0.1)}})
        told.step(entry(3) | {"loss": np.float32(0.1)})
        told.evaluation({"step": 3, "held": {"mlm_loss": math.nan, "mlm_accuracy": 0.5}})
        told.event("skipped", "第 2 步：梯度不是数", ratio=-math.inf, at_steps=(1, 2))
    text = (tmp_path / journal.LOG).read_text(encoding="utf-8")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert (lines[1]["loss"], lines[1]["norm"]) == (None, None)
    assert np.float32(lines[1]["mlm_accuracy"]) == np.float32(0.1)  # nine digits hold a float32
    assert lines[1]["loss_ema"] == lines[0]["loss_ema"]  # passed over
    assert lines[3]["held"] == {"mlm_loss": None, "mlm_accuracy": 0.5}
    assert lines[4] | {"at": ""} == {
        "step": 3, "event": "skipped", "message": "第 2 步：梯度不是数", "at": "", "ratio": None, "at_steps": [1, 2],
    }  # fmt: skip
    assert "第 2 步" in text


def test_resuming_drops_what_came_after_and_goes_on_with_the_same_average(tmp_path: Path) -> None:
    straight = written(tmp_path / "straight")
    written(tmp_path / "run")
    with (tmp_path / "run" / journal.LOG).open("a", encoding="utf-8") as handle:
        handle.write('{"step": 11, "loss": 0.3, "mes')  # the machine stopped here
    with journal.Journal(tmp_path / "run", steps=10, resumed=6, stream=io.StringIO()) as told:
        told.event("resumed", "from step 6")
        for step in range(7, 11):
            told.step(entry(step))
    lines = journal.entries(tmp_path / "run" / journal.LOG)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10]
    assert lines[6]["event"] == "resumed"
    assert [line["loss_ema"] for line in lines if "loss" in line] == [line["loss_ema"] for line in straight]


def test_a_run_that_goes_on_from_an_older_step_than_it_said_has_each_step_once(tmp_path: Path) -> None:
    straight = written(tmp_path / "straight")
    written(tmp_path / "run")
    with journal.Journal(tmp_path / "run", steps=10, resumed=8, stream=io.StringIO()) as told:
        told.event("damaged", "the checkpoint of step 8 is damaged")
        told.event("resumed", "goes on after step 5", step=5)
        for step in range(6, 11):
            told.step(entry(step))
    lines = journal.entries(tmp_path / "run" / journal.LOG)
    assert [line["event"] for line in lines if "event" in line] == ["damaged", "resumed"]
    steps = [line for line in lines if "event" not in line]
    assert [(line["step"], line["loss_ema"]) for line in steps] == [(s["step"], s["loss_ema"]) for s in straight]


def test_a_run_from_the_start_begins_a_new_log(tmp_path: Path) -> None:
    written(tmp_path)
    assert len(written(tmp_path, 3)) == 3


@pytest.mark.parametrize(
    "tail", [b'{"step": 3, "lo', b'{"step": 3, "message": "\xe4\xb8', b"\0\0\0\0", b"{", b"17", b"\n\n", b""]
)
def test_a_torn_last_line_is_passed_over(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n' + tail)
    assert journal.entries(path) == [{"step": 1}, {"step": 2}]


def test_a_broken_line_inside_is_named_and_a_resume_passes_over_it(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\nnonsense\n{"step": 2}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"log\.jsonl line 2"):
        journal.entries(path)
    journal.Journal(tmp_path, steps=5, resumed=2, stream=io.StringIO()).close()
    assert journal.entries(path) == [{"step": 1}, {"step": 2}]
    with pytest.raises(InputError, match="no such file"):
        journal.entries(tmp_path / "absent")


def test_a_full_disk_does_not_end_the_run(tmp_path: Path) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    stream = io.StringIO()
    with journal.Journal(tmp_path, steps=3, stream=stream) as told:
        assert told.handle is not None
        told.handle.close()
        told.handle = Full()
        for step in (1, 2, 3):
            told.step(entry(step))
    assert stream.getvalue().count("No space left on device") == 1


# Progress ------------------------------------------------------------------------------------------------------------


def test_away_from_a_terminal_a_run_shows_some_fifty_lines(tmp_path: Path) -> None:
    stream = io.StringIO()
    with journal.Journal(tmp_path, steps=5_000, stream=stream, flops_per_token=1e9, peak_flops=1e12) as told:
        for step in range(1, 5_001):
            told.step(entry(step, mlm_accuracy=0.4123))
    lines = stream.getvalue().splitlines()
    assert 45 <= len(lines) <= 55
    assert lines[-1] == "step 5,000/5,000  loss 0.001  masked words right 41.2%  200 tokens/s  MFU 20%  0 s left"
    assert "\r" not in stream.getvalue()


def test_a_slow_run_shows_a_line_at_least_every_half_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(journal.time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    with journal.Journal(tmp_path, steps=1_000_000, stream=stream) as told:
        for step in range(1, 101):
            clock[0] += 10.0
            told.step(entry(step, seconds=clock[0]))
    assert 33 <= len(stream.getvalue().splitlines()) <= 36
    assert "115 d" in stream.getvalue()


def test_on_a_terminal_one_line_moves(tmp_path: Path) -> None:
    stream = Terminal()
    with journal.Journal(tmp_path, steps=100, stream=stream) as told:
        for step in range(1, 101):
            told.step(entry(step))
            if step == 50:
                told.evaluation({"step": 50, "held": {"mlm_loss": 2.34567, "mlm_accuracy": 0.5}})
    text = stream.getvalue()
    assert text.count("\n") == 2
    assert "step 50: held out: mlm loss 2.346  mlm accuracy 0.5\n" in text
    assert re.search(r"\rstep 100/100  loss [\d.]+  200 tokens/s  0 s left\s*\n$", text)


def test_quiet_and_gone_terminals_show_nothing(tmp_path: Path) -> None:
    stream = Terminal()
    with journal.Journal(tmp_path / "a", steps=2, quiet=True, stream=stream) as told:
        told.step(entry(1))
        told.event("skipped", "a step")
    assert stream.getvalue() == ""
    with journal.Journal(tmp_path / "b", steps=2, stream=stream) as told:
        stream.close()
        told.screen.line("nobody reads this")
        told.step(entry(1))
    assert len(journal.entries(tmp_path / "b" / journal.LOG)) == 1


def test_steps_read_all_at_once_give_a_speed_too(tmp_path: Path) -> None:
    stream = io.StringIO()
    with journal.Journal(tmp_path, steps=0, stream=stream) as told:
        for group in range(3):
            for step in range(40):
                told.step(entry(group * 40 + step + 1, seconds=10.0 * (group + 1), left_s=70 - 10 * group))
    last = journal.entries(tmp_path / journal.LOG)[-1]
    assert last["tokens_s"] == pytest.approx(400)
    assert "step 120  loss" in stream.getvalue()
    assert "50 s left" in stream.getvalue()


def test_durations_and_peaks_are_for_people() -> None:
    assert [journal.duration(s) for s in (0.4, 41, 200, 7_500, 273_600)] == [
        "0 s", "41 s", "3 min 20 s", "2 h 05 min", "3 d 4 h",
    ]  # fmt: skip
    names = {
        "NVIDIA H200": 989e12, "NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H100 PCIe": 756e12, "NVIDIA A10": 125e12,
        "NVIDIA A100-SXM4-80GB": 312e12, "NVIDIA L4": 121e12, "NVIDIA L40S": 362e12, "Tesla T4": 65e12,
        "NVIDIA GeForce RTX 4090": 165e12, "NVIDIA RTX A1000": 0, "Tesla V100-SXM2-16GB": 125e12, "cpu": 0,
        "NVIDIA GeForce RTX 4090 Laptop GPU": 0,
    }  # fmt: skip
    assert {name: journal.peak_flops(name) for name in names} == names


def test_tensorboard_is_fed_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told_of: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int | None) -> None:
            assert (folder, purge_step) == (str(tmp_path / "tensorboard"), 4)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            told_of.append((name, value, step))

        def close(self) -> None:
            told_of.append(("closed", 0, 0))

    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    monkeypatch.setattr(journal.importlib.util, "find_spec", lambda name: object())
    with journal.Journal(tmp_path, steps=9, resumed=3, stream=io.StringIO()) as told:
        told.step(entry(4, loss=math.nan, mlm_accuracy=0.5))
        told.evaluation({"step": 4, "held": {"mlm_loss": 2.0}})
    names = {name for name, _, _ in told_of}
    assert {"train/rate", "train/mlm_accuracy", "held/mlm_loss", "closed"} <= names
    assert not names & {"train/loss", "train/step", "held/step"}


# The report ----------------------------------------------------------------------------------------------------------


class Balanced(HTMLParser):
    """Notes every tag, and that each is closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("href", "src")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page(title: str = "run", log: list[dict[str, Any]] | None = None, **more: Any) -> tuple[str, Balanced]:
    given: dict[str, Any] = {"recipe": {}, "facts": {}, "notes": []} | more
    text = report.html(title, given["recipe"], log or [], given["facts"], given["notes"])
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert not parser.open
    assert "script" not in parser.seen
    assert "http://" not in text
    assert "https://" not in text
    for drawn in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawn)
    return text, parser


def long_log(steps: int = 3_000) -> list[dict[str, Any]]:
    log: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        loss = None if step % 500 == 7 else 2 + 8 / step
        log.append(entry(step, loss=loss, loss_ema=2.1 + 8 / step, tokens_s=200.0))
        if step % 50 == 0:
            log.append({"step": step, "held": {"mlm_loss": 2 + 1 / step, "mlm_accuracy": 0.4, "nsp_accuracy": None}})
        if step % 500 == 7:
            log.append({"step": step, "event": "skipped", "message": "梯度不是数"})
    return log


def test_a_report_has_its_parts_and_stays_small(tmp_path: Path) -> None:
    recipe = {"model": {"kind": "bert", "width": 768}, "train": {"betas": [0.9, 0.98], "corpus": "中文维基"}}
    text, parser = page(
        "中文模型", long_log(), recipe=recipe, facts={"device": "NVIDIA H200"}, notes=["3 lines dropped"]
    )
    assert parser.seen.count("svg") == 5
    words = " ".join(parser.words)
    for said in (
        "中文模型",
        "梯度不是数",
        "NVIDIA H200",
        "3 lines dropped",
        "model.width",
        "768",
        "[0.9, 0.98]",
        "中文维基",
    ):
        assert said in words
    assert "masked words right" in words
    assert "40.0%" in words
    assert "20 of 60 measurements" in words
    assert len(text) < 200_000
    assert "@media print" in text
    assert "prefers-color-scheme: dark" in text
    path = report.write(tmp_path, "中文模型", recipe, long_log(), {"device": "NVIDIA H200"}, ["3 lines dropped"])
    assert path.name == "report.html"
    assert path.read_text(encoding="utf-8") == text


def test_nothing_in_a_report_is_markup_but_ours() -> None:
    evil = "</title><script>alert(1)</script>&\"'\x00\ud800<b>"
    log = [
        entry(1) | {"loss_ema": 4.0},
        entry(2) | {"loss_ema": 3.0},
        {"step": 2, "held": {f"{evil}_loss": 1.0, f"{evil}_accuracy": 0.5, "other": evil}},
        {"step": 2, "event": evil, "message": evil},
    ]
    text, parser = page(evil, log, recipe={evil: {evil: [evil]}}, facts={evil: evil}, notes=[evil])
    assert "<script" not in text
    assert "b" not in parser.seen[parser.seen.index("section") :]
    text.encode("utf-8")


@pytest.mark.parametrize(
    "log",
    [
        [],
        [entry(1)],
        [entry(1, loss=None)],
        [{"step": 1, "event": "resumed", "message": "x"}],
        [{"step": 1, "held": {}}],
        [{"step": 5, "held": {"mlm_accuracy": 1.0}}],
        [
            {"step": 1, "loss": 0.0, "loss_ema": 0.0, "rate": 0.0},
            {"step": 2, "loss": 0.0, "loss_ema": 0.0, "rate": 0.0},
        ],
        [entry(step, loss=1e30 * step, loss_ema=1e30) for step in range(1, 4)],
        [entry(step, rate=1e-12 * step) for step in range(10**9, 10**9 + 3)],
    ],
)
def test_any_log_makes_a_page(log: list[dict[str, Any]]) -> None:
    text, _ = page(log=log)
    assert not re.search(r"\bnan\b|\binf\b", text)


def test_the_journal_feeds_the_report(tmp_path: Path) -> None:
    log = written(tmp_path, 40)
    _, parser = page(log=log)
    assert parser.seen.count("svg") == 3  # loss, rate, speed; nothing was measured
    chart = charts.Chart(title="Loss", lines=report.loss_lines(log), x_name="step", has_heading=True)
    root = ElementTree.fromstring(charts.svg(chart))
    assert root.tag == "svg"
    assert root.get("viewBox") == "0 0 520 280"
    assert {"Loss", "each step", "smoothed", "step"} <= {each.text for each in root.iter("text")}
    assert charts.svg(charts.Chart(title="nothing", lines=[], x_name="step")) == ""


def test_ticks_are_round_and_lie_inside() -> None:
    assert charts.ticks(0, 10_000, 5) == [0, 2_000, 4_000, 6_000, 8_000, 10_000]
    assert charts.labels(charts.ticks(1.93, 2.31, 5)) == ["2.0", "2.1", "2.2", "2.3"]
    assert charts.labels(charts.ticks(0.0, 1.0, 5), percent=True) == ["0%", "20%", "40%", "60%", "80%", "100%"]
    assert charts.labels(charts.ticks(0.0, 4e-4, 4)) == ["0", "0.0001", "0.0002", "0.0003", "0.0004"]
    assert charts.labels(charts.ticks(0.0, 4e-5, 4)) == ["0", "1e-5", "2e-5", "3e-5", "4e-5"]
    assert charts.labels(charts.ticks(0.0, 1.2e6, 4)) == ["0", "500k", "1M"]
    for low, high in ((0.1, 0.30001), (-5.0, 5.0), (1e-14, 3e-14), (0.0, 123456.0), (0.0, 1e30)):
        found = charts.ticks(low, high, 5)
        assert 2 <= len(found) <= 7
        assert all(low * 0.999 <= value <= high * 1.001 or low < 0 for value in found)


def test_a_long_series_keeps_its_peaks_and_gaps() -> None:
    points: list[tuple[float, float | None]] = [(float(i), 1.0) for i in range(10_000)]
    points[1_234] = (1_234.0, 99.0)
    points[5_000:5_100] = [(float(i), None) for i in range(5_000, 5_100)]
    thin = list(charts.thinned(points))
    assert len(thin) <= 2 * charts.PLACES
    assert (1_234.0, 99.0) in thin
    assert any(y is None for _, y in thin)
    assert [x for x, _ in thin] == sorted(x for x, _ in thin)
