"""The numbers of each step of a run in; RUN/log.jsonl, TensorBoard events and a progress line out.

A line of log.jsonl is one JSON object with a "step": a step ("loss", "rate", …), a measurement ("held") or an event
("event", "message"). A number that is none (NaN, infinity) is written as null.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import re
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from filbert.core.errors import InputError
from filbert.core.files import regular_file, write_text
from filbert.tasks.task import Json
from filbert.train.listeners import Entry

if TYPE_CHECKING:
    from filbert.nn.encoder import Encoder

LOG = "log.jsonl"
SMOOTHING = 0.98  # of the loss that is shown
SPEED_ENTRIES = 20  # tokens/s are taken over so many of the last entries
QUIET_LINES = 50  # away from a terminal a run shows so many lines, one for each 2 % …
QUIET_WAIT_S = 30.0  # … and one more wherever nothing was shown for so long
MOVING_WAIT_S = 0.1  # on a terminal the line is drawn at most so often

# Dense bfloat16 products per second by the maker's data sheets (float16 where the chip has no bfloat16), by a word of
# the device's name. Times two for "sparse" is marketing.
PEAK_FLOPS = {
    "B200": 2250e12, "GB200": 2250e12, "H200": 989e12, "GH200": 989e12, "H100": 989e12, "H800": 989e12,
    "H100 PCIe": 756e12, "H100 NVL": 835e12, "H20": 148e12, "A100": 312e12, "A800": 312e12, "A40": 150e12,
    "A30": 165e12, "A10": 125e12, "A10G": 70e12, "L40S": 362e12, "L40": 181e12, "L20": 119.5e12, "L4": 121e12,
    "RTX 6000 Ada": 364e12, "RTX A6000": 155e12, "RTX 5090": 209e12, "RTX 4090": 165e12, "RTX 4080": 97e12,
    "RTX 3090": 71e12, "V100": 125e12, "T4": 65e12, "MI300X": 1307e12, "MI250X": 383e12,
}  # fmt: skip


def flops_per_token(model: Encoder, mean_length: float, mask_prob: float) -> float:
    """Of a training step: 6 for each weight of a matrix a token meets, 12·L·D·length of attention, and the head."""
    config: Any = model.config  # a bert's
    inside = sum(p.numel() for name, p in model.named_parameters() if name.startswith("layers.") and p.ndim == 2)
    head = mask_prob * (config.embedding_width * (config.width + config.vocab_size))
    return float(6 * (inside + head) + 12 * config.layers * config.width * mean_length)


def peak_flops(device_name: str) -> float:
    """What the device of that name could do at best, in products and sums per second; 0 where it is not known."""
    fitting = [key for key in PEAK_FLOPS if re.search(rf"\b{re.escape(key)}\b", device_name)]
    if not fitting or "Laptop" in device_name:
        return 0.0
    return PEAK_FLOPS[max(fitting, key=len)]


class Journal:
    """Writes and shows a run. On resume, lines past the resumed step are dropped and a torn last line is mended.

    `steps` 0 means that nobody knows how many there will be, as in a run by the clock. `flops_per_token` and
    `peak_flops` together give the MFU: the share of the device's best speed that the model's own arithmetic reached.
    """

    def __init__(
        self,
        folder: Path,
        *,
        steps: int,
        resumed: int = 0,
        quiet: bool = False,
        flops_per_token: float = 0.0,
        peak_flops: float = 0.0,
        stream: TextIO | None = None,
    ) -> None:
        self.steps, self.last = steps, resumed
        self.share_of_peak = flops_per_token / peak_flops if peak_flops else 0.0  # at one token per second
        self.average, self.pace = _Average(), _Pace()
        self.screen = _Screen(stream or sys.stderr, quiet)
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / LOG
        for entry in _mended(self.path, resumed):
            self.average.add(entry.get("loss"))
        self.handle: TextIO | None = _appending(self.path)
        self.board = _board(folder / "tensorboard", resumed)

    def step(self, entry: Entry) -> None:
        """One step: "step" (from 1), "epoch", "loss", "rate", "tokens", "seconds" and the task's numbers.

        "tokens" are those of this step; "seconds" is the run's clock at its end, which never goes back. The task's
        numbers stand beside these or under "numbers". "left_s" is what a run by the clock still has. Steps come in
        order, one at a time or many at once when the loop has read them from the device.
        """
        line: dict[str, Any] = _jsonable(entry)
        line = {**line.pop("numbers", {}), **line}
        if line["step"] <= self.last:
            self._rewind(line["step"] - 1)
        self.last = line["step"]
        line["loss_ema"] = self.average.add(line.get("loss"))
        speed = self.pace.add(self.last, line.get("seconds"), line.get("tokens"))
        if speed:
            line["tokens_s"] = speed
            if self.share_of_peak:
                line["mfu"] = speed * self.share_of_peak
        self._write(line)
        left_s = line.get("left_s")
        if left_s is None and self.steps:
            left_s = self.pace.seconds_for(self.steps - self.last)
        done = self.last / self.steps if self.steps else _part(line.get("seconds"), left_s)
        self.screen.progress(lambda: self._shown(line, left_s), done)

    def evaluation(self, entry: Entry) -> None:
        """A measurement on texts kept back: "step" and "held", a mapping of numbers."""
        line = {"step": self.last, **_jsonable(entry)}
        self._write(line)
        numbers = "  ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in line.get("held", {}).items())
        self.screen.line(f"step {line['step']:,}: held out: {numbers}")

    def event(self, kind: str, message: str, **more: Any) -> None:
        """Something that a reader of the log should know: a skipped step, a halved batch, a resumed run."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._write(_jsonable({"step": self.last, "event": kind, "message": message, "at": at, **more}))
        self.screen.line(f"{kind}: {message}")

    def close(self) -> None:
        """Ends the moving line and the files. May be called twice."""
        self.screen.end()
        if self.board is not None:
            self.board.close()
        if self.handle is not None:
            with contextlib.suppress(OSError):
                self.handle.close()
        self.handle = self.board = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rewind(self, step: int) -> None:
        """Drops later lines: the newest checkpoint was damaged, and the run resumed an older one. Events are kept."""
        if self.handle is None:
            return
        self.handle.close()
        self.average = _Average()
        for entry in _mended(self.path, step, with_events=True):
            self.average.add(entry.get("loss"))
        self.handle = _appending(self.path)

    def _write(self, line: Json) -> None:
        if self.handle is not None:
            try:
                self.handle.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
            except OSError as error:  # a full disk must not end a run of days; its checkpoints will say the same
                with contextlib.suppress(OSError):
                    self.handle.close()
                self.handle = None
                self.screen.line(
                    f"{self.path}: could not be written ({error.strerror}); the run goes on without a log."
                )
        if self.board is not None:
            for name, value in {**line, **line.get("held", {})}.items():
                if isinstance(value, int | float) and name != "step":
                    self.board.add_scalar(("held/" if "held" in line else "train/") + name, value, line["step"])

    def _shown(self, line: Entry, left_s: float | None) -> str:
        """The line of progress."""
        words = [f"step {self.last:,}" + (f"/{self.steps:,}" if self.steps else "")]
        if line["loss_ema"] is not None:
            words.append(f"loss {line['loss_ema']:.3f}")
        if line.get("mlm_accuracy") is not None:
            words.append(f"masked words right {line['mlm_accuracy']:.1%}")
        if "tokens_s" in line:
            words.append(f"{line['tokens_s']:,.0f} tokens/s")
        if "mfu" in line:
            words.append(f"MFU {line['mfu']:.0%}")
        if left_s is not None:
            words.append(f"{duration(left_s)} left")
        return "  ".join(words)


def entries(path: Path | str) -> list[dict[str, Any]]:
    """The lines of a log.jsonl; a last line that a crash tore is passed over, any other broken line is named."""
    lines, broken = _read(Path(path))
    if broken:
        raise InputError(
            f"{path} line {broken[0]}: is not a JSON object with a 'step'; the log was changed or damaged."
        )
    return lines


def duration(seconds: float) -> str:
    """A length of time for people: 41 s, 3 min 20 s, 2 h 05 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"


# The log -------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The lines that can be read, and the numbers of those that cannot, the last one aside."""
    lines, broken = list[dict[str, Any]](), list[int]()
    raw = regular_file(path).read_bytes().split(b"\n")
    while raw and not raw[-1].strip(b"\0 \r"):  # a file system may fill a torn end with zero bytes
        raw.pop()
    for number, each in enumerate(raw, 1):
        try:
            line = json.loads(each)
        except (ValueError, RecursionError):
            line = None
        if isinstance(line, dict) and type(line.get("step")) is int:
            lines.append(line)
        elif number < len(raw):
            broken.append(number)
    return lines, broken


def _appending(path: Path) -> TextIO:
    return path.open("a", encoding="utf-8", newline="\n", buffering=1)


def _mended(path: Path, resumed: int, with_events: bool = False) -> list[dict[str, Any]]:
    """The log's lines up to the resumed step, after the file was brought to hold just those."""
    if not path.exists():
        return []
    kept = [line for line in _read(path)[0] if line["step"] <= resumed or (with_events and "event" in line)]
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))
    return kept


def _jsonable(value: object) -> Any:
    """The value as JSON has it: a float with all its digits, so that two runs can be compared bit for bit."""
    if isinstance(value, Mapping):
        return {str(name): _jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    if hasattr(value, "item"):  # a NumPy or torch scalar
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _board(folder: Path, resumed: int) -> Any:
    """A TensorBoard writer, where that package is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder), purge_step=resumed + 1 if resumed else None)
    except (ImportError, AttributeError, TypeError, OSError):  # installed, but not in order: the log has it all
        return None


# Numbers -------------------------------------------------------------------------------------------------------------


class _Average:
    """The mean of the recent past, each step weighing less than the next; corrected for its start at zero."""

    def __init__(self) -> None:
        self.sum, self.weight = 0.0, 0.0

    def add(self, value: object) -> float | None:
        if isinstance(value, int | float):
            self.sum = SMOOTHING * self.sum + (1 - SMOOTHING) * value
            self.weight = SMOOTHING * self.weight + (1 - SMOOTHING)
        return float(f"{self.sum / self.weight:.6g}") if self.weight else None


class _Pace:
    """How fast the run goes, over its last entries; entries that were read at one moment count as one."""

    def __init__(self) -> None:
        self.marks: deque[list[float]] = deque(maxlen=SPEED_ENTRIES + 1)  # seconds, tokens since the mark before, step

    def add(self, step: int, seconds: float | None, tokens: float | None) -> float | None:
        if seconds is None:
            return None
        if self.marks and seconds <= self.marks[-1][0]:
            self.marks[-1][1:] = [self.marks[-1][1] + (tokens or 0), step]
        else:
            self.marks.append([seconds, tokens or 0, step])
        span = self.marks[-1][0] - self.marks[0][0]
        return round(sum(mark[1] for mark in list(self.marks)[1:]) / span, 1) if span > 0 else None

    def seconds_for(self, steps: int) -> float | None:
        """How long so many steps will take at this pace."""
        if len(self.marks) < 2:
            return None
        first, last = self.marks[0], self.marks[-1]
        return steps * (last[0] - first[0]) / max(1, last[2] - first[2])


def _part(seconds: float | None, left_s: float | None) -> float:
    return seconds / (seconds + left_s) if seconds and left_s is not None else 0.0


def _short(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else "–" if value is None else str(value)


# The screen ----------------------------------------------------------------------------------------------------------


class _Screen:
    """One moving line on a terminal, plain lines now and then elsewhere."""

    def __init__(self, stream: TextIO, quiet: bool) -> None:
        self.stream, self.quiet, self.moving = stream, quiet, stream.isatty()
        self.width, self.drawn_at, self.drawn_part = 0, -math.inf, -1
        self.waiting: Callable[[], str] | None = None  # the newest progress, where it is not yet drawn

    def progress(self, text: Callable[[], str], done: float) -> None:
        """Draws it when it is time."""
        now, part = time.monotonic(), int(done * QUIET_LINES)
        waited = now - self.drawn_at
        due = waited >= MOVING_WAIT_S if self.moving else waited >= QUIET_WAIT_S or part > self.drawn_part
        self.waiting = text
        if due or done >= 1:
            self._draw()
            self.drawn_at, self.drawn_part = now, part

    def line(self, text: str) -> None:
        """A line that stays."""
        self._say(("\r" + " " * self.width + "\r" if self.width else "") + text + "\n")
        self.width = 0

    def end(self) -> None:
        """Draws what was not yet drawn, and leaves the cursor on a new line."""
        self._draw()
        if self.width:
            self._say("\n")
        self.width = 0

    def _draw(self) -> None:
        if self.waiting is None:
            return
        text, self.waiting = self.waiting(), None
        if self.moving:
            text = text[: max(20, shutil.get_terminal_size().columns - 1)]
            self._say("\r" + text.ljust(self.width))
            self.width = len(text)
        else:
            self._say(text + "\n")

    def _say(self, text: str) -> None:
        if not self.quiet:
            try:
                self.stream.write(text)
                self.stream.flush()
            except (OSError, ValueError):  # the terminal is gone; the run is not
                self.quiet = True
