"""A run as a page: its recipe, log and facts in; report.html, one file with drawn curves and no network or script, out.

Each line has its own colour and its own dashes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from filbert.core.files import write_text
from filbert.draw import html as page
from filbert.train.journal import duration

PLACES = 400  # across a drawing; a longer series is drawn by its least and greatest in each
HOVERS = 80  # strips that tell the values under the pointer
MOST_EVENTS, MOST_MEASUREMENTS = 100, 20


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: its name and (x, y) points in order of x; None leaves a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]
    faint: bool = False  # the raw numbers behind a smoothed curve
    dots: bool = False  # few points, each of them marked


# The page ------------------------------------------------------------------------------------------------------------


def write(
    folder: Path,
    title: str,
    recipe: Mapping[str, Any],
    log: Sequence[Mapping[str, Any]],
    facts: Mapping[str, str],
    notes: Sequence[str],
    more: Sequence[str] = (),
) -> Path:
    """Writes report.html into the folder, whole or not at all; `more` are sections from elsewhere."""
    path = folder / "report.html"
    write_text(path, html(title, recipe, log, facts, notes, more))
    return path


def html(
    title: str,
    recipe: Mapping[str, Any],
    log: Sequence[Mapping[str, Any]],
    facts: Mapping[str, str],
    notes: Sequence[str],
    more: Sequence[str] = (),
) -> str:
    """The page of a run: summary, `more`, curves, facts, measurements, events, notes (as the corpus report), recipe."""
    steps = [line for line in log if "loss" in line and "event" not in line]
    held = [line for line in log if isinstance(line.get("held"), Mapping)]
    events = [line for line in log if "event" in line]
    parts = [
        f"<header><h1>{page.text(title)}</h1>{_summary(steps, held, events)}</header>",
        page.section("Curves", _curves(steps, held, events)),
        page.section("Facts", page.pairs(facts)),
        page.section("Held out", _measurements(held)),
        page.section("Events", _events(events)),
        page.section(
            "Notes", "<ul>" + "".join(f"<li>{page.text(note)}</li>" for note in notes) + "</ul>" if notes else ""
        ),
        page.section("Recipe", page.pairs(dict(_flat(recipe)))),
    ]
    return page.whole(title, [*parts[:1], *more, *parts[1:]])


def _summary(
    steps: Sequence[Mapping[str, Any]], held: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> str:
    """The few numbers that a reader looks for first."""
    if not steps:
        return '<p class="soft">The log holds no step yet.</p>'
    cards = [("steps", f"{steps[-1]['step']:,}")]
    smooth = [line["loss_ema"] for line in steps if line.get("loss_ema") is not None]
    if smooth:
        cards.append(("training loss at the end, smoothed", f"{smooth[-1]:.3f}"))
    for name, value in (held[-1]["held"] if held else {}).items():
        if name.endswith(("_accuracy", "_loss")) and value is not None:
            shown = f"{value:.1%}" if name.endswith("_accuracy") else f"{value:.3f}"
            cards.append((f"held out: {_words(name)}", shown))
    tokens, seconds = sum(line.get("tokens") or 0 for line in steps), _seconds(steps)
    cards += [("tokens read", _compact(tokens)), ("time", duration(seconds))]
    if seconds > 0:
        cards.append(("tokens/s on average", _compact(tokens / seconds)))
    skipped = sum(line["event"] == "skipped" for line in events)
    cards += [("steps skipped", f"{skipped:,}")] if skipped else []
    return page.cards(cards)


def _seconds(steps: Sequence[Mapping[str, Any]]) -> float:
    """How long the steps took in all, also where a resumed run's clock began anew."""
    total = before = 0.0
    for line in steps:
        now = line.get("seconds") or before
        anew = now < before / 2
        total += now if anew else max(0.0, now - before)
        before = now if anew else max(now, before)
    return total


def _curves(
    steps: Sequence[Mapping[str, Any]], held: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> str:
    """All curves for which the log has numbers."""

    def series(key: str) -> list[tuple[float, float | None]]:
        return [(line["step"], line.get(key)) for line in steps if key in line]

    def held_lines(ending: str) -> list[Line]:
        names = dict.fromkeys(name for line in held for name in line["held"] if name.endswith(ending))
        return [
            Line(_words(name), [(line["step"], line["held"].get(name)) for line in held], dots=True) for name in names
        ]

    marks = [(line["step"], f"{line['event']}: {line.get('message', '')}") for line in events]
    charts = [
        ("Training loss", svg(loss_lines(steps), "Training loss", marks=marks, size=(1040, 320)), "wide"),
        ("Held-out loss", svg(held_lines("loss"), "Held-out loss"), ""),
        ("Held-out accuracy", svg(held_lines("accuracy"), "Held-out accuracy", percent=True), ""),
        ("Learning rate", svg([Line("learning rate", series("rate"))], "Learning rate", from_zero=True), ""),
        ("Speed, tokens/s", svg([Line("tokens/s", series("tokens_s"))], "Speed, tokens/s", from_zero=True), ""),
    ]
    figures = [
        f'<figure class="{kind}"><h3>{page.text(name)}</h3>{drawn}</figure>' for name, drawn, kind in charts if drawn
    ]
    return f'<div class="curves">{"".join(figures)}</div>' if figures else ""


def _measurements(held: Sequence[Mapping[str, Any]]) -> str:
    """A table of what was measured on texts kept back; of many measurements some, the first and last among them."""
    if not held:
        return ""
    chosen, note = list(held), ""
    if len(held) > MOST_MEASUREMENTS:
        places = {round(i * (len(held) - 1) / (MOST_MEASUREMENTS - 1)) for i in range(MOST_MEASUREMENTS)}
        chosen = [held[place] for place in sorted(places)]
        note = f'<p class="soft">{len(chosen)} of {len(held):,} measurements; log.jsonl has all.</p>'
    names = list(dict.fromkeys(name for line in held for name in line["held"]))
    head = "".join(f'<th class="number">{page.text(_words(name))}</th>' for name in ["step", *names])
    rows = "".join(
        "<tr>"
        + f'<td class="number">{line["step"]:,}</td>'
        + "".join(f'<td class="number">{page.text(_value(name, line["held"].get(name)))}</td>' for name in names)
        + "</tr>"
        for line in chosen
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>{note}'


def _events(events: Sequence[Mapping[str, Any]]) -> str:
    if not events:
        return '<p class="soft">None: no step was skipped, and the run was not interrupted.</p>'
    rows = "".join(
        f'<tr><td class="number">{line["step"]:,}</td><td>{page.text(line["event"])}</td>'
        f"<td>{page.text(line.get('message', ''))}</td></tr>"
        for line in events[:MOST_EVENTS]
    )
    more = len(events) - MOST_EVENTS
    note = f'<p class="soft">And {more:,} more, in log.jsonl.</p>' if more > 0 else ""
    head = '<tr><th class="number">step</th><th>what</th><th></th></tr>'
    return f'<div class="scroll"><table>{head}{rows}</table></div>{note}'


def _flat(recipe: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every field of the recipe as "model.width" and its value."""
    for name, value in recipe.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            yield f"{prefix}{name}", shown


# Drawings ------------------------------------------------------------------------------------------------------------


def loss_lines(log: Sequence[Mapping[str, Any]]) -> list[Line]:
    """The curves of the training loss in a log: each step, and smoothed."""
    steps = [line for line in log if "loss" in line]
    raw = Line("each step", [(line["step"], line["loss"]) for line in steps], faint=True)
    return [raw, Line("smoothed", [(line["step"], line.get("loss_ema")) for line in steps])]


def svg(
    lines: Sequence[Line],
    title: str,
    *,
    marks: Sequence[tuple[float, str]] = (),
    size: tuple[int, int] = (520, 280),
    percent: bool = False,
    from_zero: bool = False,
    alone: bool = False,
) -> str:
    """The curves over their steps as a drawing; empty where there is nothing to draw. `alone`: a file of its own."""
    lines = [line for line in lines if any(y is not None for _, y in line.points)]
    if not lines:
        return ""
    frame = _framed(lines, size, percent, from_zero, alone)
    inner = [_grid(frame), *(_curve(frame, line, i) for i, line in enumerate(lines))]
    inner += [_mark(frame, x, text) for x, text in marks[:MOST_EVENTS]]
    inner += [_legend(frame, lines) if len(lines) > 1 else "", _hovers(frame, lines)]
    width, height = size
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{page.text(title)}"'
    if not alone:
        return f'{head} font-family="{page.FONTS}">{"".join(inner)}</svg>'
    above = f'<text class="ink" x="{frame.left}" y="22" font-size="15" fill="#1c2127">{page.text(title)}</text>'
    return (
        f'{head} xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="{page.FONTS}">'
        f"<title>{page.text(title)}</title><style>{page.DRAWING_STYLE}</style>"
        f'<rect class="paper" width="{width}" height="{height}" fill="#ffffff"/>{above}{"".join(inner)}</svg>\n'
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where values fall on the drawing."""

    left: int
    top: int
    right: int
    bottom: int
    xs: tuple[float, float]
    ys: tuple[float, float]
    percent: bool

    def x(self, value: float) -> float:
        low, high = self.xs
        return round(self.left + (value - low) / (high - low) * (self.right - self.left), 1)

    def y(self, value: float) -> float:
        low, high = self.ys
        part = min(max((value - low) / (high - low), 0.0), 1.0)  # beyond the frame: at its edge
        return round(self.bottom - part * (self.bottom - self.top), 1)


def _framed(lines: Sequence[Line], size: tuple[int, int], percent: bool, from_zero: bool, alone: bool) -> _Frame:
    xs = [x for line in lines for x, y in line.points if y is not None]
    # Raw numbers may jump far; the frame holds all smoothed values and all but a hundredth of the raw ones at each end.
    ys: list[float] = []
    for line in lines:
        values = sorted(y for _, y in line.points if y is not None)
        cut = len(values) // 100 if line.faint else 0
        ys += [values[cut], values[-1 - cut]]
    low, high = min(ys), max(ys)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = (0.0 if from_zero and low >= 0 else low - room), high + room
    if percent:
        low, high = max(low, 0.0), min(high, 1.0)
    first, last = min(xs), max(xs)
    if first < last * 0.3:
        first = 0
    elif first == last:
        first, last = first - 1, last + 1
    top = (34 if alone else 8) + (22 if len(lines) > 1 else 0)
    return _Frame(62, top, size[0] - 28, size[1] - 40, (first, last), (low, high), percent)


def _grid(frame: _Frame) -> str:
    """Lines across, with their numbers, and the steps below."""
    found: list[str] = []
    across = ticks(*frame.ys, 5)
    for value, shown in zip(across, labels(across, frame.percent), strict=True):
        y = frame.y(value)
        found.append(
            f'<path class="grid" d="M{frame.left} {y}H{frame.right}" stroke="#e1e5ea" fill="none"/>'
            f'<text class="ink" x="{frame.left - 8}" y="{y + 4}" font-size="12" text-anchor="end" fill="#57606a">'
            f"{shown}</text>"
        )
    along = [value for value in ticks(*frame.xs, 8 if frame.right > 700 else 5) if value == int(value)]
    for value, shown in zip(along, labels(along), strict=True):
        x = frame.x(value)
        found.append(
            f'<path class="axis" d="M{x} {frame.bottom}v5" stroke="#8c959f" fill="none"/>'
            f'<text class="ink" x="{x}" y="{frame.bottom + 19}" font-size="12" text-anchor="middle" fill="#57606a">'
            f"{shown}</text>"
        )
    middle = (frame.left + frame.right) / 2
    return (
        "".join(found)
        + f'<path class="axis" d="M{frame.left} {frame.bottom}H{frame.right}" stroke="#8c959f" fill="none"/>'
        + f'<text class="ink" x="{middle}" y="{frame.bottom + 36}" font-size="12" text-anchor="middle" fill="#57606a">'
        "step</text>"
    )


def _curve(frame: _Frame, line: Line, place: int) -> str:
    at = place % len(page.LIGHT)
    path, pen = [], "M"
    for x, y in _thinned(line.points):
        if y is None:
            pen = "M"
            continue
        path.append(f"{pen}{frame.x(x)} {frame.y(y)}")
        pen = "L"
    drawn = f'<path class="c{at}" d="{"".join(path)}" fill="none" stroke="{page.LIGHT[at]}" {_pen(line, at)}/>'
    if line.dots:
        drawn += "".join(
            f'<circle class="f{at}" cx="{frame.x(x)}" cy="{frame.y(y)}" r="3" fill="{page.LIGHT[at]}"/>'
            for x, y in line.points
            if y is not None and len(line.points) <= HOVERS
        )
    return drawn


def _pen(line: Line, at: int) -> str:
    if line.faint:
        return 'stroke-width="1" stroke-opacity="0.45" stroke-linejoin="round"'
    dash = f' stroke-dasharray="{page.DASHES[at]}"' if page.DASHES[at] and line.dots else ""
    return f'stroke-width="2" stroke-linejoin="round"{dash}'


def _thinned(points: Sequence[tuple[float, float | None]]) -> Iterable[tuple[float, float | None]]:
    """Of a long series the least and the greatest in each of `PLACES` stretches, in their order; gaps stay."""
    if len(points) <= 2 * PLACES:
        return points
    found: list[tuple[float, float | None]] = []
    for place in range(PLACES):
        stretch = points[place * len(points) // PLACES : (place + 1) * len(points) // PLACES]
        values = [(y, x) for x, y in stretch if y is not None]
        if values:
            low, high = min(values), max(values)
            found += [(x, y) for x, y in sorted({(low[1], low[0]), (high[1], high[0])})]
        else:
            found.append((stretch[0][0], None))
    return found


def _mark(frame: _Frame, x: float, text: str) -> str:
    """An event: a small triangle on the axis that tells its story when pointed at."""
    if not frame.xs[0] <= x <= frame.xs[1]:
        return ""
    at = f"M{frame.x(x)} {frame.bottom - 9}l5 9h-10z"
    return f'<path class="f1" d="{at}" fill="{page.LIGHT[1]}"><title>step {x:,.0f}: {page.text(text)}</title></path>'


def _legend(frame: _Frame, lines: Sequence[Line]) -> str:
    found, x, y = [], float(frame.left), frame.top - 12
    for i, line in enumerate(lines):
        at = i % len(page.LIGHT)
        found.append(
            f'<path class="c{at}" d="M{x:.0f} {y - 4}h26" fill="none" stroke="{page.LIGHT[at]}" {_pen(line, at)}/>'
            f'<text class="ink" x="{x + 32:.0f}" y="{y}" font-size="12" fill="#57606a">{page.text(line.name)}</text>'
        )
        x += 50 + sum(12.5 if ord(char) > 0x2E80 else 6.8 for char in line.name)
    return "".join(found)


def _hovers(frame: _Frame, lines: Sequence[Line]) -> str:
    """Strips that cannot be seen, each with the values at its middle."""
    known = [[(x, y) for x, y in line.points if y is not None] for line in lines]
    longest = max(known, key=len)
    count = min(HOVERS, len(longest))
    chosen = [longest[round(i * (len(longest) - 1) / max(1, count - 1))][0] for i in range(count)]
    places = [frame.x(x) for x in chosen]
    edges = [frame.left, *((a + b) / 2 for a, b in pairwise(places)), frame.right]
    by_step = [dict(points) for points in known]
    strips: list[str] = []
    for x, (begin, end) in zip(chosen, pairwise(edges), strict=True):
        told = [f"{line.name} {_value('', values[x], frame.percent)}"
                for line, values in zip(lines, by_step, strict=True) if x in values]  # fmt: skip
        strips.append(
            f'<rect x="{begin:.1f}" y="{frame.top}" width="{max(0.0, end - begin):.1f}" '
            f'height="{frame.bottom - frame.top - 10}" fill="#000" fill-opacity="0">'
            f"<title>{page.text(f'step {x:,.0f}: ' + ', '.join(told))}</title></rect>"
        )
    return "".join(strips)


# Numbers and words ---------------------------------------------------------------------------------------------------


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
        return [_value("", value, percent) for value in values]
    step, top = min(b - a for a, b in pairwise(values)), max(abs(v) for v in values)
    if percent:
        return [f"{value:.{max(0, -math.floor(math.log10(step * 100) + 1e-9))}%}" for value in values]
    if top >= 100_000:
        return [_compact(value) for value in values]
    if top < 0.001:
        return [re.sub(r"e-0*", "e-", f"{value:.2g}") for value in values]
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{value:,.{digits}f}" if value else "0" for value in values]


def _compact(value: float) -> str:
    """1,234; 123k; 1.23M; 4.5B; 1.2T."""
    if value < 10_000:
        return f"{value:,.0f}"
    size, letter = next(each for each in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")) if value >= each[0])
    return f"{value / size:.3g}".replace("1e+03", "1000") + letter


def _value(name: str, value: object, percent: bool = False) -> str:
    if value is None:
        return "–"
    if isinstance(value, int | float) and (percent or name.endswith("accuracy")):
        return f"{value:.1%}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _words(name: str) -> str:
    """A number's name for people: "mlm_accuracy" is "masked words right"."""
    known = {
        "mlm_loss": "masked words, loss",
        "mlm_accuracy": "masked words right",
        "nsp_loss": "next sentence, loss",
        "nsp_accuracy": "next sentence right",
        "num_masked": "masked words",
    }
    return known.get(name, name.replace("_", " "))
