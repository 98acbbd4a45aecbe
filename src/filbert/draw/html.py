"""Parts of a page in; one file of HTML without script or network, light and dark, for screen and paper, out.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart. On paper a page is light whatever the
screen was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

LIGHT = ("#0072b2", "#d55e00", "#009e73", "#a8558a")
DARK = ("#56b4e9", "#ff9a4d", "#2fd3a5", "#e79fc8")
DASHES = ("", "7 3", "2 3", "9 3 2 3")
FONTS = "system-ui, 'Segoe UI', 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"

DRAWING_STYLE = (
    "@media screen and (prefers-color-scheme: dark) {"
    ".paper{fill:#16191d} .ink{fill:#b9c0c8} .grid{stroke:#333a42} .axis{stroke:#6b747e}"
    + "".join(f" .c{i}{{stroke:{colour}}} .f{i}{{fill:{colour}}}" for i, colour in enumerate(DARK))
    + "}"
)
PAGE_STYLE = (
    """
:root { color-scheme: light dark; --ink: #1c2127; --soft: #57606a; --rule: #d5dae0; --paper: #fff; --card: #f4f6f8; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ec; --soft: #a0a9b3; --rule: #333a42; --paper: #16191d; --card: #1f242a; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 24px 16px 64px; background: var(--paper); color: var(--ink);
  font: 15px/1.55 """
    + FONTS
    + """; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 10px; }
h3 { font-size: 14px; margin: 0 0 2px; font-weight: 600; }
p { margin: 6px 0; max-width: 72ch; }
.soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 18px 0 8px; }
.card { background: var(--card); border-radius: 8px; padding: 10px 14px; }
.card b { display: block; font-size: 21px; font-weight: 600; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 24px 20px; }
.curves figure { margin: 0; break-inside: avoid; }
.curves .wide { grid-column: 1 / -1; overflow-x: auto; }
.curves .wide svg { min-width: 640px; }
svg { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--rule);
  overflow-wrap: anywhere; }
th { font-weight: 600; white-space: nowrap; overflow-wrap: normal; }
td.number, th.number { text-align: right; white-space: nowrap; }
table.pairs th { width: 30%; font-weight: 400; color: var(--soft); white-space: normal; }
ul { padding-left: 20px; margin: 6px 0; }
@media print {
  body { max-width: none; padding: 0; font-size: 11px; }
  .card { border: 1px solid var(--rule); padding: 6px 10px; }
  .curves { grid-template-columns: 1fr 1fr; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
}
"""
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def whole(title: str, parts: Iterable[str]) -> str:
    """The page of these parts, empty ones left out."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{PAGE_STYLE}{DRAWING_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def section(heading: str, body: str) -> str:
    """A part with a heading; nothing where it has no body."""
    return f"<section><h2>{text(heading)}</h2>{body}</section>" if body else ""


def bullets(lines: Sequence[str]) -> str:
    """A list of sentences; nothing where there are none."""
    inner = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul>{inner}</ul>" if inner else ""


def cards(values: Sequence[tuple[str, str]]) -> str:
    """The few numbers that a reader looks for first: (what it is, the number)."""
    inner = "".join(f'<div class="card"><b>{text(value)}</b><span>{text(name)}</span></div>' for name, value in values)
    return f'<div class="cards">{inner}</div>' if inner else ""


def pairs(values: Mapping[str, object]) -> str:
    """A table of names and values."""
    rows = "".join(f"<tr><th>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in values.items())
    return f'<table class="pairs">{rows}</table>' if rows else ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()) -> str:
    """A table that scrolls where it is wide; columns of numbers stand to the right."""
    right = set(numbers)

    def cell(kind: str, place: int, value: object) -> str:
        return f"<{kind}{' class=number' if place in right else ''}>{text(value)}</{kind}>"

    lines = [("th", head), *(("td", row) for row in rows)]
    inner = "".join(
        f"<tr>{''.join(cell(kind, place, value) for place, value in enumerate(row))}</tr>" for kind, row in lines
    )
    return f'<div class="scroll"><table>{inner}</table></div>' if len(lines) > 1 else ""


def text(value: object) -> str:
    """The value as text of the page: nothing in it is markup, and every character can be written."""
    encodable = str(value).encode("utf-8", "replace").decode()
    return escape(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]", "\ufffd", encodable))
