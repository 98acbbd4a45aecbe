"""How a text travels: real runs traced by `sys.setprofile`; numbers printed, drawings as SVG beside this file.

python docs/figures/travels.py             counts the four walks, and draws three of them
python docs/figures/travels.py OTHER/src   counts them in another checkout, for comparison; draws nothing

The walks, all of a classifier that the built-in model becomes in three steps on 32 short texts:

- a training step: from the end of one step to the end of the next, so with the batch that is read for it
- an answer: `model.predict([text])`, the second time
- an answer over HTTP: the third request to `filbert serve`, in all threads of the server; not drawn
- an explanation: `model.explain(text)`, the second time

What is counted: functions of filbert (without lambdas, comprehensions and functions within functions), files that they
stand in, and changes of file from each function to the next, in the order in which they are first entered.

What is drawn of a walk, the same rule for all: a call that goes into another file than its caller's, of a function that
has at least LONG lines of code or enters at least MANY others; private functions belong to their callers, `core` is
left out, and each function is drawn once, where it is first entered. A constructor has the name of its class.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
OURS = HERE.parents[1] / "src"
LONG, MANY = 10, 6
TEXT = "他踢进了一个球"
ROWS = (
    ("球队昨晚赢了比赛", "sport"),
    ("医生建议多喝水", "health"),
    ("这场球赛很精彩", "sport"),
    ("感冒了要多休息", "health"),
)
SETTINGS = ("train.steps=3", "machine.threads=1", "machine.workers=0", "machine.device=cpu")
TITLES = {"step": "A training step", "answer": "An answer", "explanation": "An explanation"}
CAPTIONS = {
    "": (TITLES, "the loop"),
    "-zh": ({"step": "一步训练", "answer": "一次回答", "explanation": "一次解释"}, "循环"),
}
STEP = ("train/step.py", "Stepper.step")
FLOORS = (
    "cli", "serve", "run", "ship", "judge", "engine", "train", "explain", "folder", "models", "tasks", "forms",
    "pack", "nn", "text", "metrics", "draw",
)  # fmt: skip


@dataclass
class Call:
    """A function that was entered, and what it entered."""

    file: str
    name: str
    lines: int = 0
    inner: list[Call] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Neither a lambda nor a comprehension nor a function within another."""
        return "<" not in self.name

    @property
    def is_drawn(self) -> bool:
        """Long, or with much below it; and neither private nor in core."""
        last = self.name.rpartition(".")[2]
        is_private = last.startswith("_") and not last.startswith("__")
        matters = self.lines >= LONG or len(self.functions) > MANY
        return matters and self.is_whole and not is_private and not self.file.startswith("core/")

    def all(self) -> Iterator[Call]:
        """This call and those within it, in their order."""
        yield self
        for each in self.inner:
            yield from each.all()

    @property
    def functions(self) -> set[tuple[str, str]]:
        """What it enters, itself too."""
        return {(call.file, call.name) for call in self.all() if call.is_whole}


@dataclass(frozen=True)
class Row:
    """A line of a drawing."""

    depth: int
    file: str
    name: str
    caller: int  # its line; -1: the walk itself


# Walks ----------------------------------------------------------------------------------------------------------------


class Trace:
    """The calls of filbert's functions while it is on."""

    def __init__(self, house: str) -> None:
        self.house, self.stack = house, [Call("", "")]

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """What `sys.setprofile` calls."""
        path = frame.f_code.co_filename or ""
        if not path.startswith(self.house):
            return
        if event == "call":
            code = frame.f_code
            lines = len({line for _, _, line in code.co_lines() if line is not None}) - 1  # without that of `def`
            call = Call(path[len(self.house) :], code.co_qualname, lines)
            self.stack[-1].inner.append(call)
            self.stack.append(call)
        elif event == "return" and len(self.stack) > 1:
            self.stack.pop()

    def of(self, work: Any) -> tuple[Call, Any]:
        """The calls of some work, and what it gave."""
        self.stack = [Call("", "")]
        root = self.stack[0]
        sys.setprofile(self)
        try:
            result = work()
        finally:
            sys.setprofile(None)
        return root, result


def turns(root: Call) -> list[tuple[Call, int]]:
    """Where steps are taken: the call that holds all of them, and the place in it of each call with a step."""
    for call in root.all():
        steps = [
            (call, place) for place, each in enumerate(call.inner) if any((c.file, c.name) == STEP for c in each.all())
        ]
        if len(steps) > 1:
            return steps
    raise SystemExit("the run took no second step")


class Entered:
    """The functions of filbert that are first entered while it is on, by any thread, in this order."""

    def __init__(self, house: str) -> None:
        self.house, self.is_on = house, False
        self.functions: dict[tuple[str, str], None] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """What `threading.setprofile` calls."""
        path = frame.f_code.co_filename or ""
        if self.is_on and event == "call" and path.startswith(self.house):
            name = frame.f_code.co_qualname
            if "<" not in name:
                self.functions.setdefault((path[len(self.house) :], name))


def asked(port: int) -> None:
    """One request for an answer, whose answer is read."""
    body = json.dumps({"texts": [TEXT]}).encode()
    head = (
        "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(head.encode() + body)  # in one piece, so that the walk is the same each time
        while link.recv(1 << 16):
            pass


def over_http(house: str, folder: Path) -> list[tuple[str, str]]:
    """The functions that the third request to a server of this process enters."""
    from filbert.cli.main import main as command

    entered = Entered(house)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]

    def client() -> None:
        for _ in range(240):
            try:
                asked(port)
                break
            except OSError:
                time.sleep(0.25)
        asked(port)
        time.sleep(0.5)  # what a server does after it has answered is no part of the next request
        entered.is_on = True
        asked(port)
        time.sleep(0.3)
        entered.is_on = False
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=client).start()  # before profiles are set: the client is none of filbert
    threading.setprofile(entered)
    sys.setprofile(entered)
    sys.argv = ["filbert", "serve", str(folder), "--port", str(port)]
    try:
        command()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(entered.functions)


def walks(src: Path) -> tuple[dict[str, Call], list[tuple[str, str]]]:
    """The calls of each walk in a checkout, and the functions of an answer over HTTP."""
    sys.path.insert(0, str(src))
    import filbert as fb

    trace = Trace(f"{src}/filbert/")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "rows.csv")
        table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS * 8), encoding="utf-8")
        root, run = trace.of(
            lambda: fb.finetune(
                "classify", str(table), "builtin", Path(folder, "run"), settings=list(SETTINGS), quiet=True
            )
        )
        (loop, first), (_, second), *_ = turns(root)
        step = Call(loop.file, loop.name, loop.lines, loop.inner[first + 1 : second + 1])
        run.model.predict([TEXT])
        run.model.explain(TEXT)  # what is imported once is no part of the walk
        answer, _ = trace.of(lambda: run.model.predict([TEXT]))
        explanation, _ = trace.of(lambda: run.model.explain(TEXT))
        served = over_http(trace.house, Path(folder, "run"))
    return {"step": step, "alone": loop.inner[second], "answer": answer, "explanation": explanation}, served


def entered(walk: Call) -> list[tuple[str, str]]:
    """The functions of a walk, as they are first entered."""
    return list(dict.fromkeys((call.file, call.name) for call in walk.all() if call.is_whole and call.file))


def counted(entered: list[tuple[str, str]]) -> tuple[int, int, int]:
    """How many functions and files a walk enters, and how often the file changes."""
    files = [file for file, _ in entered]
    return len(entered), len(set(files)), sum(one != other for one, other in itertools.pairwise(files))


# What is drawn --------------------------------------------------------------------------------------------------------


def entries(call: Call, file: str) -> Iterator[Call]:
    """The next calls below that go into another file, and are drawn."""
    for each in call.inner:
        if each.file != file and each.is_drawn:
            yield each
        else:
            yield from entries(each, file)


def rows(walk: Call) -> list[Row]:
    """The lines of a drawing, from the first to the last."""
    made: list[Row] = [Row(0, walk.file, "", -1)] if walk.file else []
    drawn: set[tuple[str, str]] = set()

    def draw(call: Call, depth: int, caller: int) -> None:
        for each in entries(call, call.file):
            if (each.file, each.name) in drawn:
                continue
            drawn.add((each.file, each.name))
            made.append(Row(depth, each.file, called(each.name), caller))
            draw(each, depth + 1, len(made) - 1)

    draw(walk, len(made), len(made) - 1)
    return made


def called(name: str) -> str:
    """A function as it is written where it is called: a constructor by its class."""
    owner, _, last = name.rpartition(".")
    return owner if last in ("__init__", "__iter__", "__post_init__") else name


# Drawing --------------------------------------------------------------------------------------------------------------

LIGHT = {"paper": "#ffffff", "ink": "#1c2127", "soft": "#57606a", "rule": "#d5dae0", "way": "#0072b2", "dot": "#d55e00"}
DARK = {"paper": "#14181c", "ink": "#e6e9ec", "soft": "#9aa4ad", "rule": "#333b43", "way": "#56b4e9", "dot": "#e69f00"}
SHADES = {"light": LIGHT, "dark": DARK}
FONT = "ui-sans-serif, 'Segoe UI', 'DejaVu Sans', 'Noto Sans CJK SC', sans-serif"
WIDTH, HEAD, LINE, LEFT, RIGHT = 980, 58, 26, 26, 250


def drawing(name: str, walk: Call, language: str, colours: dict[str, str]) -> str:
    """A walk as SVG: a column for each room, floors from the left, a line for each call, from the top."""
    lines = rows(walk)
    rooms = [room for room in FLOORS if any(room == row.file.partition("/")[0] for row in lines)]
    gap = (WIDTH - LEFT - RIGHT) / max(1, len(rooms) - 1)
    column = {room: LEFT + gap * place for place, room in enumerate(rooms)}
    height = HEAD + LINE * len(lines) + 14
    titles, loop = CAPTIONS[language]
    caption = titles[name]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="{FONT}" role="img">',
        f"<title>{caption}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="{colours["paper"]}"/>',
        f'<text x="{LEFT - 8}" y="20" font-size="14" font-weight="600" fill="{colours["ink"]}">{caption}</text>',
    ]
    for room, x in column.items():
        parts.append(f'<line x1="{x:.0f}" y1="{HEAD - 8}" x2="{x:.0f}" y2="{height - 8}" stroke="{colours["rule"]}"/>')
        parts.append(
            f'<text x="{x:.0f}" y="{HEAD - 14}" font-size="12" text-anchor="middle" '
            f'fill="{colours["soft"]}">{room}</text>'
        )
    places = [(column[row.file.partition("/")[0]], HEAD + LINE * (at + 0.5)) for at, row in enumerate(lines)]
    for row, (x, y) in zip(lines, places, strict=True):
        if row.caller >= 0:
            from_x, from_y = places[row.caller]
            parts.append(
                f'<path d="M{from_x:.0f} {from_y:.0f} C{from_x:.0f} {y:.0f} {from_x:.0f} {y:.0f} {x:.0f} {y:.0f}" '
                f'fill="none" stroke="{colours["way"]}" stroke-width="1.2" opacity="0.55"/>'
            )
    for row, (x, y) in zip(lines, places, strict=True):
        stem = row.file.partition("/")[2].removesuffix(".py")
        label = f'<tspan font-weight="600" fill="{colours["ink"]}">{row.name or loop}</tspan>'
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{colours["dot"]}"/>')
        parts.append(
            f'<text x="{x + 9:.0f}" y="{y + 4:.0f}" font-size="12" fill="{colours["soft"]}" '
            f'stroke="{colours["paper"]}" stroke-width="4" stroke-linejoin="round" '
            f'paint-order="stroke">{label} {stem}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Counts, and draws where it is this checkout."""
    if len(sys.argv) > 1 and sys.argv[1] == "--child":
        src = Path(sys.argv[2])
        found, served = walks(src)
        numbers = {name: counted(entered(walk)) for name, walk in found.items()} | {"http": counted(served)}
        sys.stdout.write("\n" + json.dumps(numbers) + "\n")
        if src == OURS:
            for name, language, (shade, colours) in itertools.product(TITLES, CAPTIONS, SHADES.items()):
                path = HERE / f"{name}{language}-{shade}.svg"
                path.write_text(drawing(name, found[name], language, colours), encoding="utf-8")
        return
    src = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else OURS
    # In a process of its own: this one may have another filbert installed.
    child = [sys.executable, str(Path(__file__).resolve()), "--child", str(src)]
    environment = os.environ | {"PYTHONPATH": str(src), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    names = TITLES | {"alone": "  the step without its batch", "http": "An answer over HTTP"}
    lines = [str(src), f"{'walk':30}{'functions':>10}{'files':>7}{'changes of file':>17}"]
    for name, (functions, files, changes) in json.loads(done.stdout.splitlines()[-1]).items():
        lines.append(f"{names[name]:30}{functions:>10}{files:>7}{changes:>17}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
