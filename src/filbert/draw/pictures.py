"""Pictures for papers: the data of a view (see.view_model) and the kind of picture in; one SVG, or a PNG of it, out.

Legend: Q tokens that ask, S tokens that answer, A layers, H heads.
A view is plain data (docs/design.md): what `filbert attend` shows on its page. Shades and lines are as dark as the
square root of their weight, from 0 to 1 whatever the largest is, so that two pictures can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from filbert.core.errors import InputError, needed, one_of
from filbert.core.files import whole_file, write_text
from filbert.core.records import Floats
from filbert.draw import charts, text_layout
from filbert.draw.book import unpacked
from filbert.draw.svg import (  # fmt: skip
    AGAINST,
    DEEP,
    FOR,
    INK,
    MARGIN,
    RULE,
    SIZE,
    SOFT,
    Sheet,
    bars,
    element,
    is_leftward,
    label,
    number,
    points,
    scale_of_weights,
    shade,
    shortened,
    width_of,
)

View = Mapping[str, Any]
Span = Mapping[str, Any]  # a stretch of a text as `filbert predict` writes it: start, end, label
ENDINGS = (".svg", ".png")
FAINT = 0.01  # weights below it are no line
ROOM = 110.0  # px for a token's name
VECTOR_CELLS = 48 * 48  # of a matrix that is drawn cell by cell; a larger one is a picture in the drawing
PITCHES = ((64, 17.0, 12.0), (160, 11.0, 8.5), (4096, 4.0, 8.5))  # tokens at most, px for each, size of their names
THUMB, THUMB_CELLS = 72.0, 96  # px of a small matrix, and its cells at most
BARS, WIDTH = 12, 560.0  # of labels shown, and of a picture with running text
GROUND = 0.6  # how dark the ground of the strongest word is: letters on it can still be read


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Which part of a view is drawn, and how."""

    layer: int = 0  # as the view numbers them
    head: int = 0
    kind: str = "self"  # of attention: self, cross, words, sentences
    window: int = 0
    by: str = "tokens"  # tokens | words
    token: int | None = None  # only what this one looks at, by its place among those that ask
    explanation: int = 0
    width_mm: float | None = None  # of the picture on paper; without it 1 px is 1 px

    def __post_init__(self) -> None:
        if self.by not in ("tokens", "words"):
            raise one_of("by", self.by, ("tokens", "words"))
        if self.width_mm is not None and not 10 <= self.width_mm <= 2_000:
            raise InputError(f"width_mm is {self.width_mm!r}, but must be from 10 to 2,000 millimetres.")


def svg(view: View, what: str, chosen: Choices | None = None) -> str:
    """The picture of a view: what is head, matrix, grid, attribution, blanks, layers or prediction; see `Choices`."""
    if what not in KINDS:
        raise one_of("the kind of picture", what, KINDS)
    chosen = chosen or Choices()
    return KINDS[what](view, chosen).svg(chosen.width_mm)


def png(drawing: str, path: Path | str, scale: float = 2.0) -> None:
    """Writes a drawing as points, `scale` of them for each px; needs filbert[plot], and nothing from the network."""
    if not 0.1 <= scale <= 20:
        raise InputError(f"scale is {scale!r}, but must be from 0.1 to 20.")
    renderer = needed("resvg_py", "plot")
    made = bytes(renderer.svg_to_bytes(svg_string=drawing, zoom=scale))
    with whole_file(path) as file:
        file.write_bytes(made)


def draw(view: View, what: str, path: Path | str, chosen: Choices | None = None, *, scale: float = 2.0) -> Path:
    """Writes the picture of a view to a file whose ending says how: .svg or .png."""
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        raise InputError(f"{path}: a picture is written as .svg or .png; give it one of these endings.")
    if not target.absolute().parent.is_dir():
        raise InputError(f"{path}: its folder does not exist; make it first.")
    made = svg(view, what, chosen)
    if target.suffix.lower() == ".svg":
        write_text(target, made)
    else:
        png(made, target, scale)
    return target


# What of a view -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attention:
    """One kind of attention in one window: weights [A, H, Q, S] and what stands along their edges."""

    values: Floats
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]

    def of(self, layer: int, head: int) -> Floats:
        """[Q, S] the weights of one head."""
        for name, wanted, there in (("layer", layer, self.layers), ("head", head, self.heads)):
            if wanted not in there:
                raise InputError(f"{name} {wanted!r} is not in this view, which has {_listed(there)}.")
        weights: Floats = self.values[self.layers.index(layer), self.heads.index(head)]
        return weights


def attention(view: View, chosen: Choices) -> Attention:
    """The attention that is asked for, unpacked; by words: the sum over the tokens looked at, the mean over askers."""
    window = _window(view, chosen)
    kinds = {str(each["kind"]): each for each in window.get("attention") or ()}
    if not kinds:
        raise InputError("this view has no attention to draw; make it with layers.")
    if chosen.kind not in kinds:
        raise one_of("the kind of attention", chosen.kind, kinds)
    maps = kinds[chosen.kind]
    rows, columns = (window["tokens"] if maps.get(side) is None else maps[side] for side in ("rows", "columns"))
    shape = (len(maps["layers"]), len(maps["heads"]), len(rows), len(columns))
    values = unpacked(maps["values"], shape)
    askers, answers = _names(rows), _names(columns)
    if chosen.by == "words":
        if maps.get("rows") is not None or maps.get("columns") is not None:
            raise InputError(f"{chosen.kind} attention has tokens of its own and no words; draw it by tokens.")
        groups = [list(word["tokens"]) for word in window["words"]]
        values = np.stack([values[..., places].sum(axis=-1) for places in groups], axis=-1)
        values = np.stack([values[..., places, :].mean(axis=-2) for places in groups], axis=-2)
        askers = answers = _names(window["words"])
    return Attention(values, askers, answers, tuple(maps["layers"]), tuple(maps["heads"]))


def _window(view: View, chosen: Choices) -> Mapping[str, Any]:
    windows = view.get("windows") or ()
    if not 0 <= chosen.window < len(windows):
        raise InputError(f"window {chosen.window!r} is not in this view, which has {_listed(range(len(windows)))}.")
    window: Mapping[str, Any] = windows[chosen.window]
    return window


def _listed(numbers: Sequence[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0]) if len(numbers) else "none"


def _names(tokens: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Their texts; white space, which would be nothing, is shown as ␣."""
    return tuple(str(token["text"]).strip() or "␣" for token in tokens)


def _title(view: View, *more: str) -> str:
    return " · ".join(str(part) for part in (view.get("model"), *more) if part)


def _cut(names: Sequence[str], size: float, sheet: Sheet, room: float = ROOM) -> list[str]:
    """Names that fit their room; the caption says what was cut, with the full names of the first few."""
    cut = [shortened(name, room, size) for name in names]
    long = list(dict.fromkeys(name for name, short in zip(names, cut, strict=True) if short != name))
    if long:
        shown = ", ".join(name if len(name) <= 60 else name[:59] + "…" for name in long[:3])
        more = f" and {len(long) - 3} more" if len(long) > 3 else ""
        sheet.note(f"Cut to fit (…): {shown}{more}.")
    return cut


# The kinds ------------------------------------------------------------------------------------------------------------


def _head(view: View, chosen: Choices) -> Sheet:
    """Askers on the left, what they look at on the right, a line for each weight."""
    seen = attention(view, chosen)
    weights = seen.of(chosen.layer, chosen.head)
    askers = range(len(seen.rows)) if chosen.token is None else [chosen.token]
    if not all(0 <= asker < len(seen.rows) for asker in askers):
        raise InputError(f"token {chosen.token!r} is not in this view, which has {_listed(range(len(seen.rows)))}.")
    sheet = Sheet(_title(view, f"layer {chosen.layer}, head {chosen.head}", f"{chosen.kind} attention by {chosen.by}"))
    pitch, size = 17.0, 12.0
    sides = [_cut(names, size, sheet) for names in (seen.rows, seen.columns)]
    rooms = [max((width_of(name, size) for name in side), default=0.0) for side in sides]
    top, bottom = MARGIN + 8, MARGIN + 8 + max(map(len, sides)) * pitch
    gap = min(max(170.0, 0.12 * bottom), 420.0)  # of a long list the lines would else be too steep to follow
    left, right = MARGIN + rooms[0] + 8, MARGIN + rooms[0] + 8 + gap

    def y(place: int) -> float:
        return top + (place + 0.5) * pitch

    drawn = [(float(weights[a, b]), a, b) for a in askers for b in range(len(seen.columns)) if weights[a, b] >= FAINT]
    for weight, a, b in sorted(drawn):  # the darkest on top
        path = f"M{number(left)} {number(y(a))}C{number(left + gap * 0.4)} {number(y(a))} "
        path += f"{number(right - gap * 0.4)} {number(y(b))} "
        sheet.add(
            element("path", d=path + f"{number(right)} {number(y(b))}", stroke=FOR, stroke_width=1.6, fill="none",
                    class_="weight", stroke_opacity=shade(weight))
        )  # fmt: skip
    for place, name in enumerate(sides[0]):
        colour = INK if place in askers else SOFT
        sheet.add(label(name, left - 6, y(place) + 4, size=size, anchor="end", class_="row", fill=colour))
    for place, name in enumerate(sides[1]):
        sheet.add(label(name, right + 6, y(place) + 4, size=size, class_="column"))
    sheet.add(_key_of_lines(MARGIN, bottom + 14))
    sheet.reach(right + 6 + rooms[1], bottom + 26)
    sheet.reach(MARGIN + 270, 0)
    sheet.note(f"A line is as dark as the square root of its weight; weights under {FAINT:g} have none.")
    return sheet


def _key_of_lines(x: float, y: float) -> str:
    parts = [label("weight", x, y + 4, size=10.5, fill=SOFT)]
    for at, weight in enumerate((0.05, 0.25, 1.0)):
        left = x + 50 + at * 74
        line = f"M{number(left)} {number(y)}h34"
        parts += [element("path", d=line, stroke=FOR, stroke_width=1.6, stroke_opacity=shade(weight), fill="none"),
                  label(f"{weight:g}", left + 40, y + 4, size=10.5, fill=SOFT)]  # fmt: skip
    return "".join(parts)


def _matrix(view: View, chosen: Choices) -> Sheet:
    """Askers down, what they look at across, a cell for each weight."""
    seen = attention(view, chosen)
    weights = seen.of(chosen.layer, chosen.head)
    sheet = Sheet(_title(view, f"layer {chosen.layer}, head {chosen.head}", f"{chosen.kind} attention by {chosen.by}"))
    most = max(len(seen.rows), len(seen.columns))
    pitch, size = next((pitch, size) for count, pitch, size in PITCHES if most <= count or count == PITCHES[-1][0])
    stride = math.ceil((size + 2) / pitch)
    if stride > 1:
        sheet.note(f"Of the {chosen.by}, one in {stride} is named.")
    rows, columns = (_cut(names[::stride], size, sheet) for names in (seen.rows, seen.columns))
    upright = [width_of(name, size) <= pitch * stride for name in columns]
    left = MARGIN + max((width_of(name, size) for name in rows), default=0.0) + 6
    top = (
        MARGIN
        + 6
        + max(
            (size if fits else width_of(name, size) for name, fits in zip(columns, upright, strict=True)), default=0.0
        )
    )
    wide, high = pitch * len(seen.columns), pitch * len(seen.rows)
    if weights.size <= VECTOR_CELLS:
        for a, b in np.argwhere(np.rint(np.sqrt(weights) * 255) > 0).tolist():
            sheet.add(
                element("rect", x=left + b * pitch, y=top + a * pitch, width=pitch, height=pitch, fill=DEEP,
                        class_="weight", fill_opacity=shade(float(weights[a, b])))
            )  # fmt: skip
    else:
        sheet.add(points(weights, left, top, (wide, high), least=4))
    sheet.add(element("rect", x=left, y=top, width=wide, height=high, fill="none", stroke=RULE))
    for place, name in enumerate(rows):
        y = top + (place * stride + 0.5) * pitch + size * 0.35
        sheet.add(label(name, left - 5, y, size=size, anchor="end", class_="row"))
    for place, name in enumerate(columns):
        x = left + (place * stride + 0.5) * pitch
        if upright[place]:
            sheet.add(label(name, x, top - 5, size=size, anchor="middle", class_="column"))
        else:
            sheet.add(label(name, x + size * 0.35, top - 5, size=size, turned=-90, class_="column"))
    sheet.add(scale_of_weights(left, top + high + 12))
    sheet.reach(max(left + wide, left + 210), top + high + 38)
    sheet.note("Rows look at columns; a shade is the square root of its weight.")
    return sheet


def _grid(view: View, chosen: Choices) -> Sheet:
    """Every head as a small matrix: layers down, heads across."""
    seen = attention(view, chosen)
    sheet = Sheet(_title(view, "all heads", f"{chosen.kind} attention by {chosen.by}"))
    size = max(seen.values.shape[2:], default=0)
    pool = -(-size // THUMB_CELLS)
    if pool > 1:
        sheet.note(f"A point is the largest of {pool} × {pool} weights.")
    left, top, step = MARGIN + 52, MARGIN + 16, THUMB + 8
    for column, head in enumerate(seen.heads):
        sheet.add(
            label(f"head {head}", left + column * step + THUMB / 2, top - 6, size=10.5, anchor="middle", fill=SOFT)
        )
    for row, layer in enumerate(seen.layers):
        y = top + row * step
        sheet.add(label(f"layer {layer}", left - 8, y + THUMB / 2 + 4, size=10.5, anchor="end", fill=SOFT))
        for column in range(len(seen.heads)):
            x = left + column * step
            pooled = _pooled(seen.values[row, column], pool)
            least = max(1, 144 // max(pooled.shape))
            sheet.add(
                points(pooled, x, y, (THUMB, THUMB), least),
                element("rect", x=x, y=y, width=THUMB, height=THUMB, fill="none", stroke=RULE),
            )
    bottom = top + len(seen.layers) * step
    sheet.add(scale_of_weights(left, bottom + 6))
    sheet.reach(max(left + len(seen.heads) * step, left + 210), bottom + 32)
    sheet.note(
        f"In each, {len(seen.rows)} rows look at {len(seen.columns)} columns; a shade is the square root of its weight."
    )
    return sheet


def _pooled(values: Floats, by: int) -> Floats:
    """The largest of each `by` × `by` cells: what is strong stays to be seen."""
    if by == 1:
        return values
    rows, columns = (-(-size // by) * by for size in values.shape)
    padded = np.zeros((rows, columns), dtype=values.dtype)
    padded[: values.shape[0], : values.shape[1]] = values
    largest: Floats = padded.reshape(rows // by, by, columns // by, by).max(axis=(1, 3))
    return largest


def _attribution(view: View, chosen: Choices) -> Sheet:
    """The texts, each word on a ground of its score: blue speaks for the target, orange against it."""
    every = view.get("explanations") or ()
    if not 0 <= chosen.explanation < len(every):
        what = _listed(range(len(every)))
        raise InputError(f"explanation {chosen.explanation!r} is not in this view, which has {what}.")
    explanation = every[chosen.explanation]
    most = max((abs(float(word["score"])) for word in explanation["words"]), default=0.0) or 1.0
    sheet = Sheet(_title(view, str(explanation["method"]), f"why {explanation['target']}"))
    y = MARGIN
    for part, text in enumerate(view["texts"]):
        words = sorted((w for w in explanation["words"] if w["part"] == part), key=lambda word: int(word["start"]))
        pieces = text_layout.pieces(text, [text_layout.Mark(int(w["start"]), int(w["end"]), w) for w in words])
        for piece in text_layout.laid(
            pieces, MARGIN, y, WIDTH, text_layout.Look(size=15.0, lead=34.0), is_leftward(text)
        ):
            sheet.add(
                _scored(piece, float(piece.payload["score"]), most)
                if piece.payload is not None
                else text_layout.drawn(piece)
            )
            sheet.reach(piece.x + piece.width, piece.y + 10)
        y = sheet.height + 12
    sheet.add(_key_of_scores(MARGIN, y + 4, most))
    sheet.reach(MARGIN + 330, y + 34)
    value, baseline = float(explanation["value"]), float(explanation["baseline"])
    sheet.note(f"The target scores {value:.3g}, and {baseline:.3g} for the emptied text.")
    certificate = explanation.get("certificate")
    if certificate:
        sentence = certificate.get("sentence_zh" if view.get("language") == "zh" else "sentence_en")
        sheet.note(str(sentence or certificate["verdict"]))
    return sheet


def _scored(piece: text_layout.Piece[Span], score: float, most: float) -> str:
    """A word on its ground; a line beneath it is whole for the target and broken against it, for print in grey."""
    share, colour = abs(score) / most, FOR if score >= 0 else AGAINST
    under = f"M{number(piece.x)} {number(piece.y + 8.5)}h{number(piece.width)}"
    ground = element(
        "rect", x=piece.x - 0.5, y=piece.y - 16, width=piece.width + 1, height=22, rx=2, fill=colour, class_="score",
        fill_opacity=GROUND * share,
    )  # fmt: skip
    line = element(
        "path", d=under, stroke=colour, stroke_opacity=share, stroke_width=2, fill="none",
        stroke_dasharray=None if score >= 0 else "3 2",
    )  # fmt: skip
    return ground + line + text_layout.drawn(piece)


def _key_of_scores(x: float, y: float, most: float) -> str:
    parts, wide = [], 44.0
    for at, share in enumerate((-1.0, -0.5, 0.0, 0.5, 1.0)):
        left, colour = x + at * wide, FOR if share >= 0 else AGAINST
        box = element(
            "rect", x=left, y=y, width=wide, height=13, fill=colour, fill_opacity=GROUND * abs(share), stroke=RULE
        )
        shown = f"{share * most:+.2g}" if share else "0"
        parts += [box, label(shown, left + wide / 2, y + 26, size=9.5, anchor="middle", fill=SOFT)]
    return "".join(parts) + label("against ← score → for", x + 5 * wide + 10, y + 11, size=10.5, fill=SOFT)


def _blanks(view: View, chosen: Choices) -> Sheet:
    """The text with its blanks, and what could stand in each."""
    blanks = view.get("blanks") or ()
    if not blanks:
        raise InputError("this view has no blanks: its text needs a [MASK], and its model a head that fills it.")
    sheet, text = Sheet(_title(view, "what could stand in the blank")), str(view["texts"][0])
    marked = [text_layout.Mark(int(b["start"]), int(b["end"]), at + 1) for at, b in enumerate(blanks)]
    for piece in text_layout.laid(
        text_layout.pieces(text, marked), MARGIN, MARGIN, WIDTH, text_layout.Look(), is_leftward(text)
    ):
        if piece.payload is not None:
            sheet.add(
                element(
                    "rect",
                    x=piece.x - 1,
                    y=piece.y - 15,
                    width=piece.width + 2,
                    height=21,
                    rx=3,
                    fill="none",
                    stroke=FOR,
                )
            )
            sheet.add(
                label(str(piece.payload), piece.x + piece.width / 2, piece.y + 17, size=9.5, anchor="middle", fill=FOR)
            )
        sheet.add(text_layout.drawn(piece))
        sheet.reach(piece.x + piece.width, piece.y + 20)
    for at, blank in enumerate(blanks):
        y = sheet.height + 14
        values = [(str(each["token"]), float(each["score"])) for each in blank["candidates"][:BARS]]
        sheet.add(label(f"blank {at + 1}", MARGIN, y + 10, size=11, font_weight=600))
        _shares(sheet, values, y + 18)
    return sheet


def _layers(view: View, chosen: Choices) -> Sheet:
    """What each layer's heads are like: entropy, distance, importance; a point is a head, the line their mean."""
    window = _window(view, chosen)
    heads = window.get("heads") or {}
    names = {"entropy": "entropy of a row, nats", "distance": "distance looked, tokens", "importance": "importance"}
    there = {name: heads[name] for name in names if heads.get(name)}
    if not there:
        raise InputError("this view says nothing of its heads (entropy, distance); make it with them.")
    sheet = Sheet(_title(view, "heads by layer"))
    for at, (name, values) in enumerate(there.items()):
        rows = [[float(value) for value in row] for row in values]
        means = [(float(place), float(np.mean(row))) for place, row in enumerate(rows)]
        numbers = next((each["layers"] for each in window["attention"] if len(each["layers"]) == len(rows)), None)
        chart = charts.Chart(
            title=names[name], lines=[charts.Line("mean", means, marked=True, spread=rows)], x_name="layer",
            x_labels=[str(layer) for layer in numbers or range(len(rows))], size=(316, 240), from_zero=True,
            has_heading=True, has_hovers=False,
        )  # fmt: skip
        sheet.add(charts.group(chart, (MARGIN + at * 330, MARGIN)))
        sheet.reach(MARGIN + at * 330 + 316, MARGIN + 240)
    sheet.note("A point is a head, the line their mean.")
    return sheet


def _prediction(view: View, chosen: Choices) -> Sheet:
    """What the model says, as `filbert predict` writes it: stretches as marks in the text, words, labels as bars."""
    prediction = view.get("prediction")
    if not prediction:
        raise InputError("this view has no prediction: its model was not fine-tuned for a task.")
    sheet = Sheet(_title(view, str(view.get("task") or "prediction")))
    spans = _stretches(prediction, len(view["texts"]) - 1)
    look = text_layout.Look(lead=40.0) if spans else text_layout.Look()
    for part, text in enumerate(view["texts"]):
        of_text = sorted((span for span in spans if span["part"] == part), key=lambda span: int(span["start"]))
        marked = text_layout.apart([text_layout.Mark(int(span["start"]), int(span["end"]), span) for span in of_text])
        if len(marked) < len(of_text):
            sheet.note(f"{len(of_text) - len(marked)} stretches lie within others and are not marked.")
        _run(sheet, text, marked, look)
    scores = sorted((prediction.get("scores") or {}).items(), key=lambda pair: -float(pair[1]))
    generated = (
        prediction.get("written") or prediction.get("text") or (None if spans or scores else prediction.get("answer"))
    )
    if generated:
        _run(sheet, f"→ {generated}", [], look)
    for name in ("value", "cosine"):
        if prediction.get(name) is not None:
            _run(sheet, f"→ {name} {float(prediction[name]):.4g}", [], look)
    if scores:
        _shares(sheet, [(str(name), float(score)) for name, score in scores[:BARS]], sheet.height + 12)
    if len(scores) > BARS:
        rest = sum(float(score) for _, score in scores[BARS:])
        sheet.note(f"{len(scores) - BARS} more labels share {rest:.1%}.")
    return sheet


def _shares(sheet: Sheet, values: Sequence[tuple[str, float]], top: float) -> None:
    """Names and their shares as bars; names that are too long are cut, and the caption says so."""
    names = _cut([name for name, _ in values], SIZE, sheet, WIDTH / 2)
    drawn, reached = bars(list(zip(names, (share for _, share in values), strict=True)), MARGIN, top)
    sheet.add(drawn)
    sheet.reach(*reached)


def _stretches(prediction: View, last: int) -> list[dict[str, Any]]:
    """What it names of the texts: spans, an answer in the last text, or the two sides of a relation."""
    spans = [{"part": 0, **span} for span in prediction.get("spans") or prediction.get("entities") or ()]
    if prediction.get("answer"):
        spans += [{"part": last, "label": "", **span} for span in (prediction.get("candidates") or ())[:1]]
    sides = ((side, prediction.get(side)) for side in ("head", "tail"))
    return spans + [{"part": 0, "label": side, **stretch} for side, stretch in sides if isinstance(stretch, Mapping)]


def _run(sheet: Sheet, text: str, marked: Sequence[text_layout.Mark[Span]], look: text_layout.Look) -> None:
    """Running text below what is there, its marked stretches in boxes."""
    stretches, top = text_layout.pieces(text, marked), sheet.height + MARGIN
    for piece in text_layout.laid(stretches, MARGIN, top, WIDTH, look, is_leftward(text)):
        sheet.add(_marked(piece, piece.payload) if piece.payload is not None else "", text_layout.drawn(piece))
        sheet.reach(piece.x + piece.width, piece.y + (24 if marked else 8))


def _marked(piece: text_layout.Piece[Span], span: Span) -> str:
    """A stretch with its label beneath."""
    box = element("rect", x=piece.x - 1, y=piece.y - 16, width=piece.width + 2, height=22, rx=3, fill=FOR,
                  fill_opacity=0.14, stroke=FOR, class_="span")  # fmt: skip
    if not piece.is_first:
        return box
    return box + label(str(span["label"]), piece.x, piece.y + 18, size=9.5, fill=FOR)


KINDS: dict[str, Callable[[View, Choices], Sheet]] = {
    "head": _head, "matrix": _matrix, "grid": _grid, "attribution": _attribution, "blanks": _blanks,
    "layers": _layers, "prediction": _prediction,
}  # fmt: skip
