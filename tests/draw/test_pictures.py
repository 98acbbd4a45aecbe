"""Pictures for papers: well-formed, every word in them, weights as dark as they are, nothing that runs, exact sizes."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from filbert.core.errors import InputError
from filbert.draw import charts, text_layout
from filbert.draw.book import packed
from filbert.draw.pictures import KINDS, attention, draw, png, svg
from filbert.draw.pictures import Choices as Chosen
from filbert.draw.svg import is_leftward, shortened, width_of

TEXTS = {
    "chinese": "今天北京的天气很好，小明去公园看熊猫。",
    "script": 'a <script>alert("1 & 2")</script> b',
    "leftward": "שלום עולם, זה מבחן",
    "emoji": "I ❤️ 👨‍👩‍👧 😀",
    "long": "量子计算机" * 24,
}
SPACE = "{http://www.w3.org/2000/svg}"


def view(text: str, layers: int = 2, heads: int = 3) -> dict[str, Any]:
    """A view of a text whose every sign is a token; two signs are a word; seeded weights whose rows sum to 1."""
    signs = [(at, sign) for at, sign in enumerate(text) if not sign.isspace()]
    tokens = [{"text": "[CLS]", "part": -1, "start": 0, "end": 0}]
    tokens += [{"text": sign, "part": 0, "start": at, "end": at + 1} for at, sign in signs]
    tokens += [{"text": "[SEP]", "part": -1, "start": 0, "end": 0}]
    groups = [[0], *([at, at + 1] if at + 1 < len(tokens) - 1 else [at] for at in range(1, len(tokens) - 1, 2))]
    groups.append([len(tokens) - 1])
    words = []
    for group in groups:
        first, last = tokens[group[0]], tokens[group[-1]]
        own = str(first["text"]) if first["part"] else text[first["start"] : last["end"]]  # type: ignore[misc]
        words.append({**first, "text": own, "end": last["end"], "tokens": group})
    random = np.random.default_rng(0)
    scores = random.normal(size=(layers, heads, len(tokens), len(tokens))) * 3
    values = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    kept = {"kind": "self", "layers": [*range(layers)], "heads": [*range(heads)], "rows": None, "columns": None}
    named = [word for word in words if word["part"] == 0]
    own_scores = random.normal(size=len(named))
    return {
        "model": "a <model>", "architecture": "bert", "task": "classify", "labels": ["体育", "财经"], "texts": [text],
        "windows": [{"tokens": tokens, "words": words, "attention": [{**kept, "values": packed(values)}],
                     "heads": {"entropy": random.random((layers, heads)).tolist(), "distance": [[1.5, 2, 3]] * layers,
                               "importance": None}}],
        "coverage": 1.0,
        "prediction": {"label": "体育", "score": 0.75, "scores": {"体育": 0.75, "财经": 0.25},
                       "spans": [{"start": 0, "end": 2, "label": "时间", "score": 0.9, "part": 0}]},
        "explanations": [{"method": "occlusion", "target": "体育", "value": 0.75, "baseline": 0.5, "certificate": None,
                          "words": [{"part": 0, "start": word["start"], "end": word["end"], "text": word["text"],
                                     "score": float(score)} for word, score in zip(named, own_scores, strict=True)]}],
        "blanks": [{"start": 0, "end": 1,
                    "candidates": [{"token": "今", "score": 0.8}, {"token": "明", "score": 0.1}]}],
    }  # fmt: skip


def drawn(kind: str, text: str, **choices: Any) -> ElementTree.Element:
    return ElementTree.fromstring(svg(view(text), kind, Chosen(**choices)))


def said(root: ElementTree.Element, name: str | None = None) -> list[str]:
    """What its labels say, the signs of direction left out."""
    found = (each for each in root.iter(SPACE + "text") if name is None or each.get("class") == name)
    return [(each.text or "").strip("\u2067\u2069") for each in found]


def marked(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [each for each in root.iter() if each.get("class") == name]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_well_formed_and_has_a_size(kind: str, text: str) -> None:
    root = drawn(kind, text)
    width, height = (float(root.get(side, "")) for side in ("width", "height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert width >= 260
    assert {each.tag.removeprefix(SPACE) for each in root.iter()} <= {
        "svg", "title", "desc", "rect", "path", "text", "image", "g", "circle",
    }  # fmt: skip
    for each in root.iter(SPACE + "text"):  # inside, whichever way it is anchored
        assert -1 <= float(each.get("x", "")) <= width
        assert 0 <= float(each.get("y", "")) <= height


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_token_and_word_is_there(text: str) -> None:
    tokens = [token["text"].strip() for token in view(text)["windows"][0]["tokens"]]
    for kind in ("head", "matrix"):
        root = drawn(kind, text)
        for side in ("row", "column"):
            assert said(root, side) == [token or "␣" for token in tokens]
    whole = "".join(text.split())
    for kind in ("attribution", "blanks", "prediction"):
        pieces = "".join(said(drawn(kind, text)))
        assert all(sign in pieces for sign in whole)
    by_word = said(drawn("matrix", text, by="words"), "row")
    assert by_word == [word["text"].strip() for word in view(text)["windows"][0]["words"]]


def test_lines_and_cells_are_as_dark_as_the_root_of_their_weight() -> None:
    text = TEXTS["chinese"]
    weights = attention(view(text), Chosen()).of(1, 2)
    cells = marked(drawn("matrix", text, layer=1, head=2), "weight")
    left, top = (min(float(cell.get(side, "")) for cell in cells) for side in "xy")
    pitch = float(cells[0].get("width", ""))
    shown = np.zeros_like(weights)
    for cell in cells:
        row, column = ((float(cell.get(side, "")) - low) / pitch for side, low in (("y", top), ("x", left)))
        shown[round(row), round(column)] = float(cell.get("fill-opacity", ""))
    np.testing.assert_allclose(shown, np.sqrt(weights), atol=0.006)
    lines = marked(drawn("head", text, layer=1, head=2), "weight")
    wanted = sorted(math.sqrt(weight) for weight in weights.ravel() if weight >= 0.01)
    np.testing.assert_allclose([float(line.get("stroke-opacity", "")) for line in lines], wanted, atol=0.006)
    of_one = marked(drawn("head", text, layer=1, head=2, token=4), "weight")
    np.testing.assert_allclose(
        [float(line.get("stroke-opacity", "")) for line in of_one],
        sorted(math.sqrt(weight) for weight in weights[4] if weight >= 0.01), atol=0.006,
    )  # fmt: skip


def test_words_take_the_sum_of_what_is_looked_at_and_the_mean_of_who_looks() -> None:
    shown = view(TEXTS["chinese"])
    tokens, by_word = (attention(shown, Chosen(by=by)).of(0, 1) for by in ("tokens", "words"))
    groups = [word["tokens"] for word in shown["windows"][0]["words"]]
    assert by_word[2, 3] == pytest.approx(tokens[np.ix_(groups[2], groups[3])].sum(1).mean())
    np.testing.assert_allclose(by_word.sum(-1), 1, atol=0.02)


def test_a_large_matrix_is_a_lossless_picture_of_the_same_weights() -> None:
    """Unpacked by hand: a point's number in the palette is 255·√weight."""
    import base64

    text = TEXTS["long"]
    weights = attention(view(text), Chosen()).of(0, 0)
    (image,) = drawn("matrix", text).iter(SPACE + "image")
    raw = base64.b64decode(image.get("href", "").partition(",")[2])
    width, height = struct.unpack(">II", raw[16:24])
    at = raw.index(b"IDAT")
    (size,) = struct.unpack(">I", raw[at - 4 : at])
    rows = np.frombuffer(zlib.decompress(raw[at + 4 : at + 4 + size]), np.uint8).reshape(height, width + 1)[:, 1:]
    times = width // len(weights)
    np.testing.assert_allclose(rows[::times, ::times] / 255, np.sqrt(weights), atol=0.003)


def test_layers_keep_their_numbers() -> None:
    """Also where a view has one of many."""
    shown = view("今天", layers=1)
    shown["windows"][0]["attention"][0]["layers"] = [7]
    assert "7" in said(ElementTree.fromstring(svg(shown, "layers")))
    assert {"0", "1"} <= set(said(drawn("layers", "今天")))


def test_words_speak_for_and_against_by_colour_and_line() -> None:
    shown = view(TEXTS["chinese"])
    root = ElementTree.fromstring(svg(shown, "attribution"))
    scores = [word["score"] for word in shown["explanations"][0]["words"]]
    grounds = marked(root, "score")
    most = max(map(abs, scores))
    np.testing.assert_allclose(
        [float(each.get("fill-opacity", "")) for each in grounds], [0.6 * abs(s) / most for s in scores], atol=0.006
    )
    assert [each.get("fill") for each in grounds] == ["#0072b2" if s >= 0 else "#d55e00" for s in scores]
    assert len([each for each in root.iter(SPACE + "path") if each.get("stroke-dasharray")]) == sum(
        s < 0 for s in scores
    )


def test_bars_are_as_long_as_their_shares() -> None:
    for kind, shares in (("blanks", [0.8, 0.1]), ("prediction", [0.75, 0.25])):
        boxes = (each for each in drawn(kind, "今天").iter(SPACE + "rect") if not each.get("class"))
        found = [float(each.get("width", "")) for each in boxes if each.get("fill") == "#0072b2"]
        assert found[1] / found[0] == pytest.approx(shares[1] / shares[0], rel=0.01)


@pytest.mark.parametrize(
    ("said_of_it", "boxes", "words"),
    [
        ({"entities": [{"text": "北京", "label": "LOC", "start": 2, "end": 4, "score": 0.9}]}, 1, ["北京", "LOC"]),
        ({"answer": "天气", "candidates": [{"text": "天气", "start": 5, "end": 7, "score": 0.9}]}, 1, ["天气"]),
        ({"head": {"text": "今天", "start": 0, "end": 2}, "tail": {"text": "北京", "start": 2, "end": 4},
          "label": "at", "scores": {"at": 1.0}}, 2, ["head", "tail", "at"]),
        ({"value": 3.25, "text": None}, 0, ["→ value 3.25"]),
        ({"written": "It is sunny."}, 0, ["→ It is sunny."]),
        ({"answer": "", "candidates": []}, 0, []),
    ],
)  # fmt: skip
def test_predictions_of_every_task_are_drawn(said_of_it: dict[str, Any], boxes: int, words: list[str]) -> None:
    root = ElementTree.fromstring(svg({**view("今天北京的天气很好"), "prediction": said_of_it}, "prediction"))
    assert len(marked(root, "span")) == boxes
    assert set(words) <= set(said(root))


@pytest.mark.parametrize("kind", KINDS)
def test_markup_is_shown_and_never_run(kind: str) -> None:
    made = svg(view(TEXTS["script"]), kind)
    assert "<script" not in made
    assert "a <model>" in "".join(ElementTree.fromstring(made).itertext())


def test_what_is_cut_is_told() -> None:
    shown = view(TEXTS["chinese"])
    shown["windows"][0]["tokens"][3]["text"] = "internationalization" * 3
    root = ElementTree.fromstring(svg(shown, "matrix"))
    assert any(name.endswith("…") for name in said(root, "row"))
    assert "Cut to fit" in "".join(root.itertext())
    assert "internationalizationinternationalization" in "".join(root.itertext()).replace("\n", "")
    assert "Cut to fit" not in svg(view(TEXTS["chinese"]), "matrix")
    options = {"scores": {"量子计算机" * 20: 0.9, "short": 0.1}}
    made = svg({**view("今天"), "prediction": options}, "prediction")
    assert "Cut to fit (…): 量子计算机" in "".join(ElementTree.fromstring(made).itertext())


@pytest.mark.slow
def test_many_tokens_have_some_names_and_say_so() -> None:
    root = drawn("matrix", "量子" * 120)
    assert "Of the tokens, one in 3 is named." in "".join(root.itertext())
    assert len(said(root, "row")) == math.ceil(242 / 3)
    assert "the largest of 3 × 3 weights" in "".join(drawn("grid", "量子" * 120).itertext())


def test_text_from_right_to_left_runs_that_way() -> None:
    """The first word stands to the right of the second; what runs the other way keeps its own order."""
    text = "שלום עולם abc <def> סוף"
    cuts = [(0, 5), (5, 10), (10, 14), (14, 15), (15, 18), (18, 20), (20, 23)]
    stretches = text_layout.pieces(text, [text_layout.Mark(start, end, start) for start, end in cuts])
    places = {
        piece.text.strip(): piece.x
        for piece in text_layout.laid(stretches, 0, 0, 500, text_layout.Look(), is_leftward(text))
    }
    assert places["שלום"] > places["עולם"] > places["abc"]
    assert places["abc"] < places["<"] < places["def"]
    assert places["סוף"] < places["abc"]
    assert not is_leftward("今天 שלום 天气很好")


def test_lines_break_within_their_width() -> None:
    for text in (*TEXTS.values(), "one two three " * 20, "x" * 200):
        for piece in text_layout.laid(text_layout.pieces(text, []), 10, 0, 200, text_layout.Look(), is_leftward(text)):
            assert piece.x >= 10 - width_of("  ", 15)
            assert piece.x + piece.width <= 210 + width_of("  ", 15)
        laid = "".join(
            piece.text for piece in text_layout.laid(text_layout.pieces(text, []), 10, 0, 200, text_layout.Look())
        )
        assert "".join(laid.split()) == "".join(text.split())
    assert shortened("今天天气", 30, 12) == "今…"
    assert width_of("今天", 12) == 24


def test_a_width_on_paper_scales_the_drawing() -> None:
    plain, scaled = drawn("matrix", "今天天气"), drawn("matrix", "今天天气", width_mm=85)
    assert scaled.get("width") == "85mm"
    assert scaled.get("viewBox") == plain.get("viewBox")
    ratio = float(plain.get("height", "")) / float(plain.get("width", ""))
    assert float(scaled.get("height", "").removesuffix("mm")) == pytest.approx(85 * ratio, abs=0.1)


@pytest.mark.slow
def test_points_have_the_size_asked_for_and_something_on_them(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    for kind in KINDS:
        drawing, path = svg(view(TEXTS["chinese"]), kind), tmp_path / f"{kind}.png"
        png(drawing, path, scale=1.5)
        raw = path.read_bytes()
        root = ElementTree.fromstring(drawing)
        wanted = [float(root.get(side, "")) * 1.5 for side in ("width", "height")]
        assert raw.startswith(b"\x89PNG")
        np.testing.assert_allclose(struct.unpack(">II", raw[16:24]), wanted, atol=1.5)
        data = zlib.decompress(_data(raw))
        assert len(set(data)) > 20  # neither white nor of one colour


def _data(raw: bytes) -> bytes:
    found, at = b"", 8
    while at < len(raw):
        (size,) = struct.unpack(">I", raw[at : at + 4])
        found += raw[at + 8 : at + 8 + size] if raw[at + 4 : at + 8] == b"IDAT" else b""
        at += size + 12
    return found


def test_the_ending_says_how_it_is_written(tmp_path: Path) -> None:
    shown: Mapping[str, Any] = view(TEXTS["chinese"])
    path = draw(shown, "head", tmp_path / "head.svg", Chosen(layer=1, head=0))
    assert path.read_text(encoding="utf-8") == svg(shown, "head", Chosen(layer=1, head=0))
    for name, sentence in (("head.pdf", "a picture is written as .svg or .png"), ("no/head.svg", "does not exist")):
        with pytest.raises(InputError, match=sentence):
            draw(shown, "head", tmp_path / name)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("kind", "choices", "sentence"),
    [
        ("sketch", {}, "must be one of: head, matrix, grid, attribution, blanks, layers, prediction"),
        ("head", {"layer": 7}, "layer 7 is not in this view, which has 0 to 1."),
        ("matrix", {"head": -1}, "head -1 is not in this view, which has 0 to 2."),
        ("head", {"token": 99}, "token 99 is not in this view"),
        ("grid", {"kind": "cross"}, "must be one of: self."),
        ("grid", {"window": 2}, "window 2 is not in this view, which has 0."),
        ("matrix", {"by": "letters"}, "must be one of: tokens, words."),
        ("attribution", {"explanation": 3}, "explanation 3 is not in this view, which has 0."),
        ("matrix", {"width_mm": 1}, "must be from 10 to 2,000 millimetres."),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(kind: str, choices: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        svg(view("今天天气"), kind, Chosen(**choices))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(("kind", "key"), [("blanks", "blanks"), ("prediction", "prediction")])
def test_a_view_without_the_part_says_so(kind: str, key: str) -> None:
    with pytest.raises(InputError, match="this view has no"):
        svg({**view("今天"), key: None}, kind)
    bare = {**view("今天"), "windows": [{**view("今天")["windows"][0], "attention": [], "heads": {}}]}
    for each in ("head", "layers"):
        with pytest.raises(InputError, match="this view"):
            svg(bare, each)


def test_a_chart_tells_its_lines_apart_without_colour() -> None:
    lines = [charts.Line(f"line {at}", [(0, 0.2), (1, 0.3 + at / 10)], marked=True) for at in range(4)]
    chart = charts.Chart(
        title="four", lines=lines, x_name="layer", x_labels=["0", "7"], levels=[("chance", 0.5)], percent=True,
        size=(320, 240), has_hovers=False,
    )  # fmt: skip
    root = ElementTree.fromstring(charts.svg(chart))
    drawn = [each for each in root.iter("path") if (each.get("class") or "").startswith("c")]
    assert len({each.get("stroke-dasharray") for each in drawn}) == 4
    titles = [each.text for each in root.iter("title")]
    assert "line 3: 0.6" in titles
    assert len(titles) == 8
    texts = list(root.iter("text"))
    assert {"chance", "layer", "0", "7", "20%", "line 3"} <= {each.text for each in texts}
    rows = {each.get("y") for each in texts if (each.text or "").startswith("line")}
    assert len(rows) == 2  # the legend has no room for four names in one
    assert all((each.get("class") or "") == "ink" for each in texts)  # so that a dark page shows them light
