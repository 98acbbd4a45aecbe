"""Lines over steps or layers in; a chart with axes, grid, legend and marks, light and dark, as SVG out.

Each line has its own colour; one whose points are marked has its own dashes and marks too, so that lines can be told
apart without colour. Dark colours are classes: a page with `html.DRAWING_STYLE` shows them where the screen is dark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from filbert.draw import html
from filbert.draw.svg import INK, SOFT, element, label, number, width_of

Point = tuple[float, float | None]
GRID, AXIS = "#e1e5ea", "#8c959f"
PLACES = 400  # across a drawing; a longer line is drawn by its least and greatest value in each
HOVERS = 80  # strips that show the values under the pointer, and points of a line that are marked at most
EDGE, FOOT, HEAD = 62, 40, 30  # px of the numbers at the left, of those below, and of a heading
SIDE, INSET = 28, 8  # px at the right; between the axis' ends and the first and last of named places
MOST_NAMES = 16  # below the axis
LEGEND_ROW, FIRST_ROW = 17, 22


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: its name and (x, y) points in order of x; a y of None leaves a gap."""

    name: str
    points: Sequence[Point]
    faint: bool = False  # the raw numbers behind a smoothed line
    marked: bool = False  # few points, each of them drawn
    band: Sequence[tuple[float, float]] = ()  # around each point
    spread: Sequence[Sequence[float]] = ()  # at each point, the single values that it is the mean of


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines and how they are shown."""

    title: str
    lines: Sequence[Line]
    x_name: str
    x_labels: Sequence[str] = ()  # names of the places 0, 1, …; without them x are numbers
    levels: Sequence[tuple[str, float]] = ()  # named lines across
    events: Sequence[tuple[float, str]] = ()  # marks on the axis, with what happened there
    size: tuple[float, float] = (520, 280)
    percent: bool = False
    from_zero: bool = False
    has_heading: bool = False
    has_hovers: bool = True  # strips that show the values under the pointer: for screens


def svg(chart: Chart) -> str:
    """The chart as a drawing of a page; empty where no line has a point."""
    if not _lines(chart):
        return ""
    width, height = chart.size
    return element(
        "svg", group(chart), viewBox=f"0 0 {number(width)} {number(height)}", role="img", aria_label=chart.title,
        font_family=html.FONTS,
    )  # fmt: skip


def group(chart: Chart, at: tuple[float, float] = (0, 0)) -> str:
    """The chart as a part of another drawing, its upper left corner at that place."""
    lines = _lines(chart)
    top = HEAD if chart.has_heading else 8
    legend, legend_height = _legend(lines, chart.size[0] - EDGE)
    frame = _frame(chart, lines, top + legend_height)
    parts = [label(chart.title, 0, 14, size=13, font_weight=600, class_="ink")] if chart.has_heading else []
    parts += [element("g", legend, transform=f"translate({EDGE} {top})")] if legend else []
    parts += [*_grid(chart, frame), *_levels(chart, frame)]
    parts += [_drawn(frame, line, index, not chart.has_hovers) for index, line in enumerate(lines)]
    parts += [_event(chart, frame, x, text) for x, text in chart.events]
    parts += _hovers(chart, frame, lines) if chart.has_hovers else []
    place = f"translate({number(at[0])} {number(at[1])})" if any(at) else None
    return element("g", "".join(parts), transform=place)


def _lines(chart: Chart) -> list[Line]:
    return [line for line in chart.lines if any(y is not None for _, y in line.points)]


# Places ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where values fall on the drawing."""

    left: float
    top: float
    right: float
    bottom: float
    xs: tuple[float, float]
    ys: tuple[float, float]
    inset: float = 0.0

    def x(self, value: float) -> float:
        low, high = self.xs
        wide = self.right - self.left - 2 * self.inset
        return round(self.left + self.inset + (value - low) / (high - low) * wide, 1)

    def y(self, value: float) -> float:
        low, high = self.ys
        part = min(max((value - low) / (high - low), 0.0), 1.0)  # beyond the frame: at its edge
        return round(self.bottom - part * (self.bottom - self.top), 1)


def _frame(chart: Chart, lines: Sequence[Line], top: float) -> _Frame:
    width, height = chart.size
    bottom, ys = height - FOOT, _value_range(chart, lines)
    if not chart.x_labels:
        return _Frame(EDGE, top, width - SIDE, bottom, _along(lines), ys)
    return _Frame(EDGE, top, width - INSET, bottom, (0.0, max(1.0, len(chart.x_labels) - 1.0)), ys, INSET)


def _along(lines: Sequence[Line]) -> tuple[float, float]:
    xs = [x for line in lines for x, y in line.points if y is not None]
    first, last = min(xs), max(xs)
    if first < last * 0.3:
        return 0.0, last
    return (first - 1, last + 1) if first == last else (first, last)


def _value_range(chart: Chart, lines: Sequence[Line]) -> tuple[float, float]:
    # Raw numbers may jump far; the frame holds all smoothed values and all but a hundredth of the raw ones at each end.
    ys = [level for _, level in chart.levels]
    for line in lines:
        values = sorted(y for _, y in line.points if y is not None)
        cut = len(values) // 100 if line.faint else 0
        ys += [values[cut], values[-1 - cut]]
        ys += [edge for pair in line.band for edge in pair]
        ys += [value for values in line.spread for value in values]
    low, high = min(ys), max(ys)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = (0.0 if chart.from_zero and low >= 0 else low - room), high + room
    return (max(low, 0.0), min(high, 1.0)) if chart.percent else (low, high)


def _grid(chart: Chart, frame: _Frame) -> Iterator[str]:
    """Lines across with their numbers, and the steps or places below."""
    levels = ticks(*frame.ys, 5)
    for value, shown in zip(levels, labels(levels, chart.percent), strict=True):
        y = frame.y(value)
        yield element("path", class_="grid", d=_level(frame, y), stroke=GRID, fill="none")
        yield _word(shown, frame.left - 8, y + 4, "end")
    for value, shown in _names_along(chart, frame):
        x = frame.x(value)
        yield element("path", class_="axis", d=f"M{number(x)} {number(frame.bottom)}v5", stroke=AXIS, fill="none")
        yield _word(shown, x, frame.bottom + 19, "middle")
    yield element("path", class_="axis", d=_level(frame, frame.bottom), stroke=AXIS, fill="none")
    yield _word(chart.x_name, (frame.left + frame.right) / 2, frame.bottom + 36, "middle")


def _names_along(chart: Chart, frame: _Frame) -> list[tuple[float, str]]:
    if chart.x_labels:
        stride = -(-len(chart.x_labels) // MOST_NAMES)
        return [(float(place), chart.x_labels[place]) for place in range(0, len(chart.x_labels), stride)]
    values = [value for value in ticks(*frame.xs, 8 if frame.right > 700 else 5) if value == int(value)]
    return list(zip(values, labels(values), strict=True))


def _level(frame: _Frame, y: float) -> str:
    return f"M{number(frame.left)} {number(y)}H{number(frame.right)}"


def _word(text: str, x: float, y: float, anchor: str | None = None) -> str:
    return label(text, x, y, anchor=anchor, fill=SOFT, class_="ink")


# Lines ----------------------------------------------------------------------------------------------------------------


def _drawn(frame: _Frame, line: Line, index: int, has_titles: bool) -> str:
    """A line with its band, the values that it is the mean of, and its marks."""
    at = index % len(html.LIGHT)
    colour, form = html.LIGHT[at], f"f{at}"
    parts: list[str] = []
    if line.band:
        pairs = [
            (frame.x(x), frame.y(low), frame.y(high))
            for (x, _), (low, high) in zip(line.points, line.band, strict=True)
        ]
        edges = [(x, high) for x, _, high in pairs] + [(x, low) for x, low, _ in reversed(pairs)]
        outline = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in edges) + "Z"
        parts.append(element("path", class_=form, d=outline, fill=colour, fill_opacity=0.16, stroke="none"))
    for (x, _), values in zip(line.points, line.spread, strict=False):
        for value in values:
            parts.append(
                element("circle", class_=form, cx=frame.x(x), cy=frame.y(value), r=2.2, fill=colour, fill_opacity=0.35)
            )
    path, pen = list[str](), "M"
    for x, y in thinned(line.points):
        path += [] if y is None else [f"{pen}{number(frame.x(x))} {number(frame.y(y))}"]
        pen = "M" if y is None else "L"
    parts.append(_stroke(line, at, "".join(path)))
    if line.marked and len(line.points) <= HOVERS:
        for x, y in line.points:
            if y is not None:
                title = element("title", html.text(f"{line.name}: {y:.4g}")) if has_titles else ""
                parts.append(_mark(frame.x(x), frame.y(y), at, title))
    return "".join(parts)


def _stroke(line: Line, at: int, path: str) -> str:
    width, opacity = (1, 0.45) if line.faint else (2, None)
    dashes = (html.DASHES[at] or None) if line.marked else None
    return element(
        "path", class_=f"c{at}", d=path, fill="none", stroke=html.LIGHT[at], stroke_width=width,
        stroke_opacity=opacity, stroke_linejoin="round", stroke_dasharray=dashes,
    )  # fmt: skip


def _mark(x: float, y: float, at: int, title: str = "") -> str:
    """A disc, square, triangle or diamond, so that lines differ without colour."""
    colour, form = html.LIGHT[at], f"f{at}"
    if at == 0:
        return element("circle", title, class_=form, cx=x, cy=y, r=3.2, fill=colour)
    shapes = ("", "M-3 -3H3V3H-3Z", "M0 -4L3.8 3H-3.8Z", "M0 -4L4 0L0 4L-4 0Z")
    place = f"translate({number(x)} {number(y)})"
    return element("path", title, class_=form, d=shapes[at], transform=place, fill=colour)


def thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Of a long series the least and the greatest in each of `PLACES` stretches, in their order; gaps stay."""
    if len(points) <= 2 * PLACES:
        return points
    kept: list[Point] = []
    for place in range(PLACES):
        stretch = points[place * len(points) // PLACES : (place + 1) * len(points) // PLACES]
        values = [(y, x) for x, y in stretch if y is not None]
        if values:
            low, high = min(values), max(values)
            kept += [(x, y) for x, y in sorted({(low[1], low[0]), (high[1], high[0])})]
        else:
            kept.append((stretch[0][0], None))
    return kept


def _legend(lines: Sequence[Line], room: float) -> tuple[str, float]:
    """The names beside their lines, in as many rows as they need, and the height of these; nothing for one line."""
    if len(lines) < 2:
        return "", 0.0
    parts, x, y, height = [], 0.0, 10.0, float(FIRST_ROW)
    for index, line in enumerate(lines):
        at, needed = index % len(html.LIGHT), 50 + width_of(line.name)
        if x and x + needed > room:
            x, y, height = 0.0, y + LEGEND_ROW, height + LEGEND_ROW
        parts.append(_stroke(line, at, f"M{number(x)} {number(y - 4)}h26"))
        parts += [_mark(x + 13, y - 4, at)] if line.marked else []
        parts.append(_word(line.name, x + 32, y))
        x += needed
    return "".join(parts), height


# Levels, events and values under the pointer --------------------------------------------------------------------------


def _levels(chart: Chart, frame: _Frame) -> Iterator[str]:
    for name, value in chart.levels:
        y = frame.y(value)
        yield element("path", class_="axis", d=_level(frame, y), stroke=SOFT, fill="none", stroke_dasharray="2 4")
        yield label(name, frame.right, y - 4, size=10.5, anchor="end", fill=SOFT, class_="ink")


def _event(chart: Chart, frame: _Frame, x: float, text: str) -> str:
    """A small triangle on the axis that says what happened when pointed at."""
    if not frame.xs[0] <= x <= frame.xs[1]:
        return ""
    path = f"M{number(frame.x(x))} {number(frame.bottom - 9)}l5 9h-10z"
    title = element("title", html.text(f"{chart.x_name} {x:,.0f}: {text}"))
    return element("path", title, class_="f1", d=path, fill=html.LIGHT[1])


def _hovers(chart: Chart, frame: _Frame, lines: Sequence[Line]) -> Iterator[str]:
    """Strips that cannot be seen, each with the values at its middle."""
    series = [[(x, y) for x, y in line.points if y is not None] for line in lines]
    longest = max(series, key=len)
    count = min(HOVERS, len(longest))
    chosen = [longest[round(i * (len(longest) - 1) / max(1, count - 1))][0] for i in range(count)]
    places = [frame.x(x) for x in chosen]
    edges = [frame.left, *((a + b) / 2 for a, b in pairwise(places)), frame.right]
    by_x = [dict(points) for points in series]
    for x, (begin, end) in zip(chosen, pairwise(edges), strict=True):
        values = [
            f"{line.name} {shown(points[x], chart.percent)}"
            for line, points in zip(lines, by_x, strict=True) if x in points
        ]  # fmt: skip
        yield element(
            "rect", element("title", html.text(f"{chart.x_name} {x:,.0f}: {', '.join(values)}")),
            x=round(begin, 1), y=frame.top, width=round(max(0.0, end - begin), 1),
            height=frame.bottom - frame.top - 10, fill=INK, fill_opacity=0,
        )  # fmt: skip


# Numbers --------------------------------------------------------------------------------------------------------------


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most about `most` round numbers (1, 2 or 5 times a power of ten) from low to high."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    digits = 2 - math.floor(math.log10(step))
    return [round(i * step, digits) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def labels(values: Sequence[float], percent: bool = False) -> list[str]:
    """The numbers of one axis, all with the same digits."""
    if len(values) < 2:
        return [shown(value, percent) for value in values]
    step, top = min(b - a for a, b in pairwise(values)), max(abs(v) for v in values)
    if percent:
        digits = max(0, -math.floor(math.log10(step * 100) + 1e-9))
        return [f"{value:.{digits}%}" for value in values]
    if top >= 100_000:
        return list(map(compact, values))
    if top < 0.001:
        return [re.sub(r"e-0*", "e-", f"{value:.2g}") for value in values]
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{value:,.{digits}f}" if value else "0" for value in values]


def compact(value: float) -> str:
    """1,234; 123k; 1.23M; 4.5B; 1.2T."""
    if value < 10_000:
        return f"{value:,.0f}"
    size, letter = next(each for each in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")) if value >= each[0])
    return f"{value / size:.3g}".replace("1e+03", "1000") + letter


def shown(value: float, percent: bool = False) -> str:
    """A single number, for people."""
    if percent:
        return f"{value:.1%}"
    is_short = isinstance(value, float) and abs(value) < 10_000
    return f"{value:,.4g}" if is_short else f"{value:,.0f}"
