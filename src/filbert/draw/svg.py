"""Shapes and labels in; SVG for papers out: exact sizes, a white ground, text that stays text.

Where a label is longer than its room it is cut by rule, and the drawing's caption says so. Widths of text are told by a
table, since nothing here knows the reader's fonts; it errs on the wide side.
"""

from __future__ import annotations

import base64
import math
import struct
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from filbert.draw import html as page

# For Arabic and Hebrew: some programs look into the first font of a list alone, and then take any that has the letter.
LEFTWARD_FONTS = "'Segoe UI', Arial, 'DejaVu Sans', 'Noto Sans Arabic', 'Noto Sans Hebrew', sans-serif"
# Around text from right to left: some programs do not heed the attribute `direction`, all heed these signs.
ISOLATE, RELEASE = "\u2067", "\u2069"
INK, SOFT, RULE, PAPER = "#1c2127", "#57606a", "#d5dae0", "#ffffff"
FOR, AGAINST = page.LIGHT[0], page.LIGHT[1]  # Okabe and Ito's blue and vermilion
DEEP = "#08306b"  # what the darkest cell of a matrix is
SIZE, LINE = 12.0, 1.45  # of text in px, and of its lines in sizes
MARGIN = 14.0
# Widths of letters in sizes, a little above those of common fonts.
WIDTHS = {char: width for width, chars in (
    (0.27, "ijl'|`"), (0.33, " .,:;!()[]{}/\\ftrI-\""), (0.54, "ckszvxyJ?*^"), (0.74, "ABCDEGHKNOPQRSUVXYw&"),
    (0.96, "mMW%@…—"),
) for char in chars}  # fmt: skip
OTHER = 0.6
CUT = "…"


def number(value: float) -> str:
    """As attributes have it: two digits at most, none without need."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


def element(name: str, inner: str = "", **attributes: object) -> str:
    """A tag: `fill_opacity=0.5` becomes fill-opacity="0.5"; what is None is left out; `inner` is markup."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(value) if isinstance(value, float) else page.text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{pairs}>{inner}</{name}>" if inner else f"<{name}{pairs}/>"


def width_of(text: str, size: float = SIZE) -> float:
    """About how wide a text is, in px."""
    total = 0.0
    for char in text:
        if unicodedata.category(char) in ("Mn", "Me", "Cf"):
            continue
        total += 1.0 if unicodedata.east_asian_width(char) in "WF" else WIDTHS.get(char, OTHER)
    return total * size


def shortened(text: str, room: float, size: float = SIZE) -> str:
    """The text, or as much of it as the room has place for, with … behind."""
    if width_of(text, size) <= room:
        return text
    kept = ""
    for char in text:
        if width_of(kept + char + CUT, size) > room:
            break
        kept += char
    return kept + CUT


def is_leftward(text: str) -> bool:
    """Whether a text is written from right to left: most of its letters that have a direction have that one."""
    kinds = [unicodedata.bidirectional(char) for char in text]
    return sum(kind in ("R", "AL") for kind in kinds) > sum(kind == "L" for kind in kinds)


def label(
    text: str, x: float, y: float, *, size: float = SIZE, anchor: str | None = None, turned: float = 0, **more: object
) -> str:
    """A text at a place, y its base line; anchor is start, middle or end; turned by so many degrees."""
    turn = f"rotate({number(turned)} {number(x)} {number(y)})" if turned else None
    attributes = {"fill": INK, "text_anchor": anchor, "transform": turn, **more}
    if is_leftward(text):
        text, attributes["font_family"] = f"{ISOLATE}{text}{RELEASE}", LEFTWARD_FONTS
    return element("text", page.text(text), x=x, y=y, font_size=size, **attributes)


@dataclass(slots=True)
class Sheet:
    """A drawing as it grows: its parts, how far they reach, and what the caption says."""

    title: str
    parts: list[str] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0
    notes: list[str] = field(default_factory=list)

    def add(self, *parts: str) -> None:
        """More of it."""
        self.parts.extend(parts)

    def reach(self, x: float, y: float) -> None:
        """Makes room up to that place."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def note(self, sentence: str) -> None:
        """What the caption says besides; each sentence once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def svg(self, width_mm: float | None = None) -> str:
        """The drawing as a file; with a width in millimetres, scaled to it."""
        wide = max(self.width + MARGIN, 260.0)
        lines = [line for note in (self.title, *self.notes) for line in wrapped(note, wide - 2 * MARGIN, 10.5)]
        top = self.height + MARGIN + 6
        high = top + 15 * len(lines) + MARGIN / 2
        caption = [label(line, MARGIN, top + 15 * at + 8, size=10.5, fill=SOFT, class_="ink")
                   for at, line in enumerate(lines)]  # fmt: skip
        size = (wide, high) if width_mm is None else (f"{number(width_mm)}mm", f"{number(width_mm * high / wide)}mm")
        ground = element("rect", class_="paper", width=wide, height=high, fill=PAPER)
        names = element("title", page.text(self.title)) + element("desc", page.text(" ".join(self.notes)))
        return element(
            "svg", names + ground + "".join(self.parts) + "".join(caption), xmlns="http://www.w3.org/2000/svg",
            width=size[0], height=size[1], viewBox=f"0 0 {number(wide)} {number(high)}", role="img",
            font_family=page.FONTS,
        ) + "\n"  # fmt: skip


def wrapped(text: str, room: float, size: float) -> list[str]:
    """The text in lines of that width: broken at spaces, or anywhere where it has none."""
    lines, line = [], ""
    for word in _breakable(text):
        if line and width_of(line + word.rstrip(), size) > room:
            lines.append(line.rstrip())
            line = ""
        line += word
    return [*lines, line.rstrip()] if line.strip() else lines


def _breakable(text: str) -> list[str]:
    """Words with the space behind them; wide characters, and pieces of very long words, one by one."""
    pieces: list[str] = []
    word = ""
    for char in text:
        word += char
        if char == " " or len(word) >= 24 or unicodedata.east_asian_width(char) in "WF":
            pieces.append(word)
            word = ""
    return [*pieces, word] if word else pieces


# Matrices -------------------------------------------------------------------------------------------------------------


def shade(weight: float) -> float:
    """How dark a weight is drawn, from 0 to 1: its square root, so that small ones, which are most, can be seen."""
    return math.sqrt(min(max(weight, 0.0), 1.0))


def points(values: npt.NDArray[np.floating], x: float, y: float, size: tuple[float, float], least: int = 1) -> str:
    """A matrix of weights as one picture inside the drawing, each cell at least so many points wide and high.

    The cells are whole points in a lossless picture, so that no program that draws it blurs them.
    """
    codes = np.rint(np.sqrt(np.clip(values, 0, 1)) * 255).astype(np.uint8).repeat(least, 0).repeat(least, 1)
    deep = np.array([int(DEEP[at : at + 2], 16) for at in (1, 3, 5)])
    palette = np.rint(255 + (deep - 255) * (np.arange(256)[:, None] / 255)).astype(np.uint8)
    raw = np.concatenate((np.zeros((len(codes), 1), np.uint8), codes), axis=1).tobytes()  # filter 0 before each row
    head = struct.pack(">IIBBBBB", codes.shape[1], codes.shape[0], 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    file = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return element(
        "image", x=x, y=y, width=size[0], height=size[1], preserveAspectRatio="none",
        style="image-rendering:pixelated", href="data:image/png;base64," + base64.b64encode(file).decode(),
    )  # fmt: skip


def scale_of_weights(x: float, y: float) -> str:
    """A strip that says which shade is which weight."""
    steps, wide = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0), 26.0
    parts = [label("weight", x, y + 10, size=10.5, fill=SOFT)]
    for at, weight in enumerate(steps):
        left = x + 48 + at * wide
        parts.append(
            element("rect", x=left, y=y, width=wide, height=12, fill=DEEP, fill_opacity=shade(weight), stroke=RULE)
            + label(f"{weight:g}", left + wide / 2, y + 24, size=9.5, anchor="middle", fill=SOFT)
        )
    return "".join(parts)


# Bars ----------------------------------------------------------------------------------------------------------------


def bars(values: Sequence[tuple[str, float]], x: float, y: float) -> tuple[str, tuple[float, float]]:
    """Names with their shares as bars, one under another, and how far they reach to the right and down."""
    room, long = max((width_of(name) for name, _ in values), default=0.0), 260.0  # of the names, and of a share of 1
    parts = []
    for index, (name, value) in enumerate(values):
        top, end = y + index * 22, x + room + 8 + long * min(max(value, 0.0), 1.0)
        parts += [label(name, x + room, top + 14, anchor="end"),
                  element("rect", x=x + room + 8, y=top + 3, width=end - x - room - 8, height=14, fill=FOR),
                  label(f"{value:.1%}", end + 6, top + 14, size=11, fill=SOFT)]  # fmt: skip
    return "".join(parts), (x + room + long + 60, y + 22 * len(values))
