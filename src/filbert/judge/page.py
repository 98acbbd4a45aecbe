"""An evaluation report in; its sections of a page, or a page of its own, with tables and drawings, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from filbert.core.files import write_text
from filbert.draw import html as page
from filbert.tasks.task import Json, Report

PAGE = "report.html"
ROWS, MOST_LABELS, WIDEST = 40, 60, 20  # of a list, of the table of labels, and labels of a confusion matrix
SIDE, EDGE, MARGIN = 300, 52, 20  # of a drawing, in pixels
SMALL = 0.0001  # a p below it is not told apart
CALLED = {
    "majority": "majority",
    "tfidf": "TF-IDF",
    "dictionary": "dictionary",
    "lead": "first sentence",
    "copy": "copy",
}


def write(folder: Path | str, title: str, report: Report) -> Path:
    """Writes the report's page into the folder, which is made if need be."""
    path = Path(folder) / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    notes = [sentence for sentences in report.get("reading", {}).values() for sentence in sentences]
    parts = [*sections(report), page.section("Notes", page.bullets(notes))]
    write_text(path, page.whole(title, [f"<header><h1>{page.text(title)}</h1></header>", *parts]))
    return path


def sections(report: Report) -> list[str]:
    """One for each set of data that was measured, and one for the training data."""
    parts = [page.section(f"Evaluation: {name}", _evaluation(each)) for name, each in report["evaluations"].items()]
    if "train" in report:
        parts.append(page.section("Training data", _train(report["train"])))
    return parts


def _evaluation(evaluation: Report) -> str:
    each = evaluation.get("labels") or evaluation.get("types") or {}
    parts = [
        page.cards(
            [(_with_interval(name, pair), f"{evaluation[name]:.4f}") for name, pair in evaluation["intervals"].items()]
        ),
        _sentences(evaluation["sentences"]),
        _titled("Beside simple models", _baselines(evaluation)),
        _titled("Each label", _labels(each)),
        _titled("What was called what", _confusion(evaluation.get("confusion"), list(each))),
        _titled("How far its probabilities can be believed", _calibration(evaluation.get("calibration"))),
        _titled("Rows that repeat the training data", _pairs(evaluation["leaks"])),
        _titled("Probably wrong in the data", _rows(evaluation.get("errors", {}).get("ranked", ()))),
        _titled("Worst mistakes", _rows(evaluation["mistakes"])),
    ]
    return "".join(parts)


def _train(train: Report) -> str:
    parts = [
        f'<p class="soft">{train["num_examples"]:,} examples</p>',
        _sentences([*train["sentences"], *([train["missing"]] if "missing" in train else [])]),
        _titled("Rows that repeat an earlier one", _pairs(train["repeats"])),
        _titled("Probably wrong labels", _rows(train.get("errors", {}).get("ranked", ()))),
    ]
    return "".join(parts)


def _titled(heading: str, body: str) -> str:
    return f'<h3 style="margin-top:22px">{page.text(heading)}</h3>{body}' if body else ""


def _with_interval(name: str, pair: Sequence[float]) -> str:
    return f"{name.replace('_', ' ')}, 95 %: {pair[0]:.4f} to {pair[1]:.4f}"


def _sentences(lines: Sequence[str]) -> str:
    inner = "".join(f"<li>{page.text(line[:1].upper() + line[1:])}.</li>" for line in lines)
    return f"<ul>{inner}</ul>" if inner else ""


def _baselines(evaluation: Report) -> str:
    """The model's row first; a difference is the model's lead."""
    baselines = {name: each for name, each in evaluation["baselines"].items() if isinstance(each, Mapping)}
    measures = list(dict.fromkeys(key for each in baselines.values() for key in each if isinstance(each[key], float)))
    if not measures:
        return ""
    rows: list[list[object]] = [["this model", *(_number(evaluation.get(name)) for name in measures), "", "", ""]]
    for name, each in baselines.items():
        apart = each.get("difference")
        lead = f"{apart['value']:+.4f} ({apart['low']:+.4f} to {apart['high']:+.4f})" if apart else ""
        p = "" if not apart else f"{apart['p']:.2g}" if apart["p"] >= SMALL else f"< {SMALL}"
        rows.append([CALLED.get(name, name), *(_number(each.get(key)) for key in measures), lead, p, each["about"]])
    head = ["", *(name.replace("_", " ") for name in measures), "lead of this model (95 %)", "p", "what it is"]
    return page.table(head, rows, range(1, len(measures) + 1))


def _number(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else ""


def _labels(each: Mapping[str, Mapping[str, float]]) -> str:
    names = ("precision", "recall", "f1")
    rows = [
        [label, *(f"{scores[name]:.3f}" for name in names), f"{scores['support']:,.0f}"]
        for label, scores in list(each.items())[:MOST_LABELS]
    ]
    drawn = page.table(["label", *names, "there"], rows, range(1, 5))
    return f'<div style="max-width:640px">{drawn}</div>{_more(len(each) - MOST_LABELS)}' if drawn else ""


def _more(count: int) -> str:
    return f'<p class="soft">And {count:,} more, in report.json.</p>' if count > 0 else ""


def _confusion(table: Sequence[Sequence[int]] | Json | None, labels: Sequence[str]) -> str:
    """Right labels in rows, called ones in columns; of many labels only what is confused most."""
    if not table:
        return ""
    if isinstance(table, Mapping) or len(labels) > WIDEST:
        cells = table["cells"] if isinstance(table, Mapping) else [
            (row, column, count) for row, counts in enumerate(table) for column, count in enumerate(counts) if count
        ]  # fmt: skip
        wrong = [(count, labels[row], labels[column]) for row, column, count in cells if row != column]
        worst = sorted(wrong, key=lambda cell: -cell[0])[:ROWS]
        return page.table(["right", "called", "times"], [[gold, called, f"{n:,}"] for n, gold, called in worst], [2])
    head = "".join(f'<th class="number">{page.text(label)}</th>' for label in labels)
    rows = ""
    for row, (label, counts) in enumerate(zip(labels, table, strict=True)):
        cells = "".join(_cell(count, sum(counts), row == at) for at, count in enumerate(counts))
        rows += f"<tr><th>{page.text(label)}</th>{cells}</tr>"
    return f'<div class="scroll"><table style="width:auto"><tr><th>right ↓ called →</th>{head}</tr>{rows}</table></div>'


def _cell(count: int, total: int, is_right: bool) -> str:
    """The darker the larger its share of the row; blue where it is right, orange where it is wrong."""
    colour = "0,114,178" if is_right else "213,94,0"
    shade = 0.55 * (count / total if total else 0) ** 0.5
    shown = f"{count:,}" if count else '<span class="soft">·</span>'
    return f'<td class="number" style="padding:5px 9px;background:rgba({colour},{shade:.2f})">{shown}</td>'


def _calibration(calibration: Json | None) -> str:
    if not calibration or not calibration["before"]["bins"]:
        return ""
    names = ("ece", "adaptive_ece", "brier", "loss")
    rows = [[when, *(f"{calibration[when][name]:.4f}" for name in names)] for when in ("before", "after")]
    head = [f"temperature {calibration['temperature']:.3f}", "ECE", "ECE, equal numbers", "Brier", "loss"]
    drawn = "".join(
        f'<figure style="margin:0;flex:0 1 {SIDE}px"><h3>{when}</h3>{_reliability(calibration[when]["bins"])}</figure>'
        for when in ("before", "after")
    )
    numbers = f'<div style="max-width:640px">{page.table(head, rows, range(1, 5))}</div>'
    return numbers + f'<div style="display:flex;flex-wrap:wrap;gap:12px 40px;margin-top:12px">{drawn}</div>'


def _reliability(bins: Sequence[Mapping[str, float]]) -> str:
    """Accuracy over confidence; on the diagonal both are the same. Bars below: how many examples."""

    def x(share: float) -> float:
        return round(EDGE + share * (SIDE - EDGE - MARGIN), 1)

    def y(share: float) -> float:
        return round(SIDE - EDGE - share * (SIDE - EDGE - MARGIN), 1)

    most = max(each["count"] for each in bins)
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(
            f'<path class="grid" d="M{x(0)} {y(tick)}H{x(1)}" stroke="#e1e5ea" fill="none"/>'
            f'<text class="ink" x="{x(0) - 6}" y="{y(tick) + 4}" font-size="11" text-anchor="end" fill="#57606a">'
            f"{tick:.0%}</text>"
            f'<text class="ink" x="{x(tick)}" y="{SIDE - EDGE + 16}" font-size="11" text-anchor="middle" '
            f'fill="#57606a">{tick:.0%}</text>'
        )
    for each in bins:
        height = 0.25 * each["count"] / most
        parts.append(
            f'<rect class="f0" x="{x(each["confidence"]) - 4}" y="{y(height)}" width="8" '
            f'height="{round(y(0) - y(height), 1)}" fill="{page.LIGHT[0]}" fill-opacity="0.25"/>'
        )
    line = "L".join(f"{x(each['confidence'])} {y(each['accuracy'])}" for each in bins)
    parts.append(
        f'<path class="axis" d="M{x(0)} {y(0)}L{x(1)} {y(1)}" stroke="#8c959f" stroke-dasharray="4 4" fill="none"/>'
        f'<path class="c1" d="M{line}" stroke="{page.LIGHT[1]}" stroke-width="2" fill="none"/>'
    )
    for each in bins:
        caption = f"sure by {each['confidence']:.1%}, right in {each['accuracy']:.1%} of {each['count']:,}"
        parts.append(
            f'<circle class="f1" cx="{x(each["confidence"])}" cy="{y(each["accuracy"])}" r="4" '
            f'fill="{page.LIGHT[1]}"><title>{caption}</title></circle>'
        )
    parts.append(
        f'<text class="ink" x="{x(0.5)}" y="{SIDE - 6}" font-size="12" text-anchor="middle" fill="#57606a">'
        "how sure</text>"
        f'<text class="ink" x="12" y="{y(0.5)}" font-size="12" text-anchor="middle" fill="#57606a" '
        f'transform="rotate(-90 12 {y(0.5)})">how often right</text>'
    )
    label = 'role="img" aria-label="Reliability diagram"'
    return f'<svg viewBox="0 0 {SIDE} {SIDE}" {label} font-family="{page.FONTS}">{"".join(parts)}</svg>'


def _place(row: Json, prefix: str = "") -> str:
    """Where a row stands: file and line, or its number among the examples."""
    name, line = row.get(f"{prefix}file"), row.get(f"{prefix}line")
    if not name:
        return f"example {row[f'{prefix}row']:,}"
    return (
        f"{Path(str(name)).name} line {line:,}" if line else f"{Path(str(name)).name} row {row[f'{prefix}row'] + 1:,}"
    )


def _pairs(matches: Json) -> str:
    """Rows side by side with what they repeat."""
    rows = [row for row in matches.get("examples", ()) if "text" in row][:ROWS]
    shown = [
        [f"{_place(row)} = {_place(row, 'other_')}", row["kind"], row["text"],
         "the same" if row["other_text"] == row["text"] else row["other_text"], _golds(row)]
        for row in rows
    ]  # fmt: skip
    return page.table(["where", "how", "text", "there", "labels"], shown) + _more(matches.get("num", 0) - len(rows))


def _golds(row: Json) -> str:
    if "gold" not in row:
        return ""
    return str(row["gold"]) if row["gold"] == row["other_gold"] else f"{row['gold']} ≠ {row['other_gold']}"


def _rows(rows: Sequence[Json]) -> str:
    """A ranked list: the columns are what its rows have."""
    shown = [row for row in rows if "text" in row][:ROWS]
    columns = {"gold": "given", "what": "what", "label": "label", "said": "said", "instead": "rather", "f1": "F1",
               "score": "score", "margin": "margin"}  # fmt: skip
    used = [name for name in columns if shown and name in shown[0]]
    cells = [[_place(row), row["text"], *(_shown(row[name]) for name in used)] for row in shown]
    numbers = [place + 2 for place, name in enumerate(used) if name in ("f1", "score", "margin")]
    return page.table(["where", "text", *(columns[name] for name in used)], cells, numbers) + _more(
        len(rows) - len(shown)
    )


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return " / ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
