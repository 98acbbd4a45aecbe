"""A run as a page: its recipe, log and facts in; report.html, one file with charts, without network or script, out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from filbert.core.files import write_text
from filbert.draw import charts
from filbert.draw import html as page
from filbert.draw.charts import Chart, Line
from filbert.train.journal import duration
from filbert.train.listeners import Entry

MOST_EVENTS, MOST_MEASUREMENTS = 100, 20
WIDE = 600  # px of a chart from which it has a row of its own


# The page ------------------------------------------------------------------------------------------------------------


def write(
    folder: Path,
    title: str,
    recipe: Mapping[str, object],
    log: Sequence[Entry],
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
    recipe: Mapping[str, object],
    log: Sequence[Entry],
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


def _summary(steps: Sequence[Entry], held: Sequence[Entry], events: Sequence[Entry]) -> str:
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
    cards += [("tokens read", charts.compact(tokens)), ("time", duration(seconds))]
    if seconds > 0:
        cards.append(("tokens/s on average", charts.compact(tokens / seconds)))
    skipped = sum(line["event"] == "skipped" for line in events)
    cards += [("steps skipped", f"{skipped:,}")] if skipped else []
    return page.cards(cards)


def _seconds(steps: Sequence[Entry]) -> float:
    """How long the steps took in all, also where a resumed run's clock began anew."""
    total = before = 0.0
    for line in steps:
        now = line.get("seconds") or before
        anew = now < before / 2
        total += now if anew else max(0.0, now - before)
        before = now if anew else max(now, before)
    return total


def _curves(steps: Sequence[Entry], held: Sequence[Entry], events: Sequence[Entry]) -> str:
    """All curves for which the log has numbers."""

    def series(key: str) -> list[tuple[float, float | None]]:
        return [(line["step"], line.get(key)) for line in steps if key in line]

    def held_lines(ending: str) -> list[Line]:
        names = dict.fromkeys(name for line in held for name in line["held"] if name.endswith(ending))
        return [
            Line(_words(name), [(line["step"], line["held"].get(name)) for line in held], marked=True) for name in names
        ]

    marks = [(line["step"], f"{line['event']}: {line.get('message', '')}") for line in events[:MOST_EVENTS]]
    every = [
        Chart(title="Training loss", lines=loss_lines(steps), x_name="step", events=marks, size=(1040, 320)),
        Chart(title="Held-out loss", lines=held_lines("loss"), x_name="step"),
        Chart(title="Held-out accuracy", lines=held_lines("accuracy"), x_name="step", percent=True),
        Chart(title="Learning rate", lines=[Line("learning rate", series("rate"))], x_name="step", from_zero=True),
        Chart(title="Speed, tokens/s", lines=[Line("tokens/s", series("tokens_s"))], x_name="step", from_zero=True),
    ]
    figures = [
        f'<figure class="{"wide" if chart.size[0] > WIDE else ""}"><h3>{page.text(chart.title)}</h3>{drawn}</figure>'
        for chart in every if (drawn := charts.svg(chart))
    ]  # fmt: skip
    return f'<div class="curves">{"".join(figures)}</div>' if figures else ""


def _measurements(held: Sequence[Entry]) -> str:
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
    rows = ""
    for line in chosen:
        cells = [f"{line['step']:,}", *(page.text(_value(name, line["held"].get(name))) for name in names)]
        rows += "<tr>" + "".join(f'<td class="number">{cell}</td>' for cell in cells) + "</tr>"
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>{note}'


def _events(events: Sequence[Entry]) -> str:
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


def _flat(recipe: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every field of the recipe as "model.width" and its value."""
    for name, value in recipe.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            yield f"{prefix}{name}", shown


# Drawings ------------------------------------------------------------------------------------------------------------


def loss_lines(log: Sequence[Entry]) -> list[Line]:
    """The curves of the training loss in a log: each step, and smoothed."""
    steps = [line for line in log if "loss" in line]
    raw = Line("each step", [(line["step"], line["loss"]) for line in steps], faint=True)
    return [raw, Line("smoothed", [(line["step"], line.get("loss_ema")) for line in steps])]


# Words ---------------------------------------------------------------------------------------------------------------


def _value(name: str, value: object) -> str:
    if isinstance(value, int | float):
        return charts.shown(value, percent=name.endswith("accuracy"))
    return "–" if value is None else str(value)


def _words(name: str) -> str:
    """A number's name for people: "mlm_accuracy" is "masked words right"."""
    names = {
        "mlm_loss": "masked words, loss",
        "mlm_accuracy": "masked words right",
        "nsp_loss": "next sentence, loss",
        "nsp_accuracy": "next sentence right",
        "num_masked": "masked words",
    }
    return names.get(name, name.replace("_", " "))
