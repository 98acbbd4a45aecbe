"""The saved page in Chromium: every view, by mouse and by keyboard, with the network off."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from watching import drawn

from filbert.draw import book
from filbert.draw.book import packed
from kit import page_scenes as scenes

pytestmark = pytest.mark.slow

Opened = Callable[..., Any]
FOCUS_IS_SEEN = """() => { const node = document.activeElement;
    return node === document.body || [node, node.nextElementSibling].filter(Boolean)
        .some(one => ['solid', 'auto'].includes(getComputedStyle(one).outlineStyle)); }"""
STYLE = """() => { const made = document.createElement('style'); made.textContent = 'body { margin: 99px }';
    document.head.append(made); return getComputedStyle(document.body).marginTop; }"""


def one_head(texts: list[str], words: list[list[str]], weights: np.ndarray) -> dict[str, Any]:
    """A scene of exactly these weights."""
    view = scenes.view(texts, words, layers=weights.shape[0], heads=weights.shape[1])
    view["windows"][0]["attention"][0]["values"] = packed(weights)
    return scenes.scene(view)


def tint(page: Any, selector: str) -> list[float]:
    """The weight that each unit is coloured by; its colour is one of 20 levels of the square root."""
    drawn(page)
    read = "nodes => nodes.map(node => [node.weight, Number(node.className.match(/w(\\d+)/)?.[1] ?? 0)])"
    found = page.locator(selector).evaluate_all(read)
    assert [level for _, level in found] == [round(20 * weight**0.5) for weight, _ in found]
    return [weight for weight, _ in found]


def heading(page: Any) -> str:
    """The name of the head that is shown large."""
    return page.locator(".stepper h3").first.inner_text()


def test_pointing_at_a_word_shows_where_it_looks_and_who_looks_at_it(opened: Opened) -> None:
    weights = np.zeros((1, 1, 4, 4), np.float32)
    weights[0, 0] = [[1, 0, 0, 0], [0.25, 0, 0.75, 0], [0, 0.5, 0.5, 0], [0, 0, 0.04, 0.96]]
    page = opened(one_head(["天气"], [["天", "气"]], weights))
    page.locator(".running .unit").nth(1).hover()
    assert tint(page, ".running .unit") == pytest.approx([0.25, 0, 0.75, 0], abs=0.004)
    assert page.locator(".note").inner_text() == "Colour: where “天” looks."
    assert page.locator(".answers [data-weight]").evaluate_all("n => n.map(x => x.dataset.weight)") == ["0.25", "0.75"]
    page.locator(".answers .unit").nth(2).hover()
    assert tint(page, ".asks .unit") == pytest.approx([0, 0.75, 0.5, 0.04], abs=0.004)
    page.get_by_text("who looks at it").click()
    page.locator(".running .unit").nth(2).hover()
    assert page.locator(".note").inner_text() == "Colour: who looks at “气”."
    page.mouse.move(2, 2)
    assert tint(page, ".running .unit") == pytest.approx(weights[0, 0].mean(0).tolist(), abs=0.004)


def test_words_sum_what_their_tokens_get_and_average_what_they_ask(opened: Opened) -> None:
    weights = np.zeros((1, 1, 5, 5), np.float32)
    weights[0, 0] = [
        [1, 0, 0, 0, 0],
        [0, 0.16, 0.2, 0.64, 0],
        [0, 0.04, 0, 0.36, 0.6],
        [0.5, 0.25, 0.25, 0, 0],
        [0] * 5,
    ]
    page = opened(one_head(["天气好"], [["天气", "好"]], weights))
    page.locator(".running .unit").nth(1).hover()
    by_word = [0, (0.36 + 0.04) / 2, (0.64 + 0.36) / 2, 0.3]
    assert tint(page, ".running .unit") == pytest.approx(by_word, abs=0.004)
    page.get_by_text("Tokens").click()
    assert page.locator(".running .unit").all_inner_texts() == ["[CLS]", "天", "气", "好", "[SEP]"]
    page.keyboard.press("w")
    assert page.locator(".running .unit").all_inner_texts() == ["[CLS]", "天气", "好", "[SEP]"]


def test_heads_are_chosen_by_mouse_keys_and_steps(opened: Opened) -> None:
    page = opened(scenes.scene(scenes.explained()))
    before = page.locator(".links").inner_text()
    page.get_by_role("gridcell", name=re.compile(r"^Layer 2, head 5")).click()
    assert heading(page) == "Layer 2, head 5"
    assert page.locator(".links").inner_text() != before
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert heading(page) == "Layer 3, head 6"
    page.keyboard.press("[")
    page.keyboard.press(".")
    assert heading(page) == "Layer 2, head 7"
    page.get_by_role("button", name="Next layer").click()
    assert heading(page) == "Layer 3, head 7"
    assert page.locator(".head[tabindex='0']").count() == 1
    assert page.locator(".head[aria-selected='true']").get_attribute("data-index") == "3/7"


def test_heads_are_sorted_by_a_measure(opened: Opened) -> None:
    view = scenes.explained()
    page = opened(scenes.scene(view))
    page.get_by_label("Show").select_option("entropy")
    page.get_by_label("sort by it").check()
    shown = page.locator(".board .row").first.locator(".head").evaluate_all("n => n.map(x => x.dataset.index)")
    entropy = view["windows"][0]["heads"]["entropy"][0]
    assert shown == [f"0/{head}" for head in sorted(range(8), key=lambda head: -entropy[head])]
    assert "entropy" in page.locator(".head").first.get_attribute("aria-label")


def test_everything_is_reached_by_keyboard(opened: Opened) -> None:
    page = opened(scenes.scene(scenes.explained()))
    page.keyboard.press("t")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator(".note").inner_text() == "Colour: where “上海” looks."
    page.keyboard.press("g")  # the word stays kept
    assert page.evaluate("document.activeElement.className") == "head"
    assert page.locator(".running .lit").inner_text() == "上海"
    page.keyboard.press("Escape")
    assert page.locator(".running .lit").count() == 0
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    stops = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        stops.add(page.evaluate("document.activeElement.closest('fieldset, section, nav, main')?.className ?? ''"))
        assert page.evaluate(FOCUS_IS_SEEN), "focus must be seen"
    assert {"part attention", "part why", "segmented"} <= stops


def test_the_matrix_tells_each_cell(opened: Opened) -> None:
    weights = np.zeros((1, 1, 4, 4), np.float32)
    weights[0, 0] = [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0.25, 0, 0], [0, 0, 0, 1]]
    page = opened(one_head(["天气"], [["天", "气"]], weights))
    page.get_by_text("Matrix").click()
    page.locator(".matrix canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.locator(".readout").inner_text().split() == ["气", "→", "天", "25", "%"]
    assert page.locator(".lines").count() == 0
    page.keyboard.press("l")
    assert page.locator(".matrix").count() == 0


def test_the_drawing_shows_the_weights(opened: Opened) -> None:
    """Pixels of the matrix: a weight of 1 is the darkest colour, 0 is paper, and dark is the other way round."""
    weights = np.eye(4, dtype=np.float32)[None, None]
    page = opened(one_head(["天气"], [["天", "气"]], weights))
    page.keyboard.press("m")
    read = """canvas => { const [w, h] = [canvas.width, canvas.height];
        const pen = new OffscreenCanvas(w, h).getContext('2d', { willReadFrequently: true });
        pen.drawImage(canvas, 0, 0);
        const at = (x, y) => [...pen.getImageData(x, y, 1, 1).data].slice(0, 3);
        return [at(w - 12, h - 12), at(w - 42, h - 12)]; }"""
    drawn(page)
    assert page.locator(".matrix canvas").evaluate(read) == [[0, 52, 92], [255, 255, 255]]
    page.get_by_text("Dark").click()
    assert page.locator(".matrix canvas").evaluate(read) == [[214, 240, 255], [24, 28, 34]]


def test_language_and_theme(opened: Opened) -> None:
    page = opened(scenes.scene(scenes.explained(), language=None), color_scheme="dark")
    assert page.evaluate("document.documentElement.lang") == "en"  # the browser's
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_text("中文", exact=True).click()
    assert page.locator("h2").all_inner_texts() == ["模型的回答", "哪些词起了作用", "它在看哪里"]
    assert page.locator(".badge").inner_text().endswith("可信")
    page.get_by_text("浅色").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(247, 245, 241)"
    page.keyboard.press("z")
    assert page.locator("h2").first.inner_text() == "What it says"
    assert opened(scenes.scene(scenes.explained(), language="zh")).locator("h2").first.inner_text() == "模型的回答"


def test_two_views_are_linked(opened: Opened) -> None:
    other = scenes.explained(seed=4, model="other", layers=2, heads=4, verdict="random")
    other["windows"][0]["words"] = [
        {**token, "tokens": [at]} for at, token in enumerate(other["windows"][0]["tokens"])
    ]  # it cuts the same text otherwise
    page = opened(scenes.scene(scenes.explained(), other))
    assert page.locator(".names .panel").all_inner_texts() == [
        "A\nbuiltin · bert · task: classify",
        "B\nother · bert · task: classify",
    ]
    first, second = page.locator(".seen").nth(0), page.locator(".seen").nth(1)
    first.locator(".running .unit").nth(2).hover()  # 博物馆
    assert first.locator(".running .lit").inner_text() == "博物馆"
    assert second.locator(".running .lit").inner_text() in "博物馆"
    page.get_by_role("gridcell", name=re.compile("^Layer 5, head 6")).click()
    assert second.locator(".stepper h3").inner_text() == "Layer 1, head 3"  # the nearest it has
    assert [badge.split("\n") for badge in page.locator(".badge").all_inner_texts()] == [
        ["✓", "Faithful"],
        ["✕", "No better than random"],
    ]


def test_two_texts_are_linked_word_by_word(opened: Opened) -> None:
    one = scenes.view(["今天天气很好"], [["今天", "天气", "很", "好"]])
    two = scenes.view(["昨天天气真的很坏"], [["昨天", "天气", "真的", "很", "坏"]])
    page = opened(scenes.scene(one, two))
    second = page.locator(".seen").nth(1)
    for place, counterpart in {1: "昨天", 2: "天气", 3: "很", 4: "坏", 5: "[SEP]"}.items():
        page.locator(".seen").nth(0).locator(".running .unit").nth(place).hover()
        assert second.locator(".running .lit").inner_text() == counterpart


def test_attributions_with_their_certificate(opened: Opened) -> None:
    page = opened(scenes.scene(scenes.explained("random")))
    word = page.locator(".word", has_text="博物馆")
    word.hover()
    assert page.get_by_role("tooltip").inner_text() == "+0.410"
    assert word.get_attribute("aria-label") == "博物馆 +0.410"
    colours = page.locator(".word").evaluate_all("n => n.map(x => [x.textContent, x.className])")
    assert ["排队", "word against w8 strong"] in colours
    assert "No better than random" in page.locator(".badge").inner_text()
    assert "43% of random orders of the words do as well" in page.locator(".certificate").inner_text()
    numbers = page.locator(".numbers > div").all_inner_texts()
    assert numbers[0].split("\n")[:2] == ["words", "16"]
    assert numbers[2].split("\n")[:3] == ["lift", "3.82", "random: −1.20 … 1.46"]
    assert numbers[-1].startswith("agreement with occlusion")
    page.get_by_text("The numbers as a table").click()
    assert page.locator(".picture tbody tr").all_inner_texts()[:2] == ["博物馆\t+0.410", "青铜器\t+0.330"]
    page.get_by_label("Explanation").select_option("1")
    assert "Weak" in page.locator(".badge").inner_text()


def test_prediction_as_bars(opened: Opened) -> None:
    page = opened(scenes.scene(scenes.explained()))
    assert page.locator(".answer").inner_text().split() == ["文化", "93.4", "%"]
    assert page.locator(".bars tbody tr").count() == 5
    widths = page.locator(".bars .bar span").evaluate_all("n => n.map(x => x.getBoundingClientRect().width)")
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 20 * widths[1]


def test_blanks_and_what_the_other_text_moves(opened: Opened) -> None:
    changed = [{**blank, "candidates": [dict(one) for one in blank["candidates"]]} for blank in scenes.BLANKS]
    changed[0]["candidates"][0]["score"] = 0.5
    changed[0]["candidates"][3] = {"token": "晦", "score": 0.2}
    other = scenes.cloze(scenes.CLOZE.replace("好", "坏"), changed, [w.replace("好", "坏") for w in scenes.CLOZE_WORDS])
    page = opened(scenes.scene(scenes.cloze(), other))
    assert page.locator(".gap").first.inner_text().startswith("天")
    left, right = page.locator(".blanks .panel").nth(0), page.locator(".blanks .panel").nth(1)
    assert left.locator(".arrow").count() == 0
    arrows = [text.strip() for text in right.locator(".blank").first.locator(".arrow").all_inner_texts()]
    assert arrows == ["▼ 41.2 pp", "=", "=", "new"]


def test_entities_are_marked_nested_ones_too(opened: Opened) -> None:
    page = opened(scenes.scene(scenes.view([scenes.CHINESE], [scenes.CHINESE_WORDS], prediction=scenes.ENTITIES)))
    assert page.locator("mark mark").inner_text().startswith("上海")
    assert page.locator("mark").count() == 4
    assert (
        page.locator(".marked").evaluate(
            "n => { n.querySelectorAll('.tag').forEach(t => t.remove()); return n.textContent }"
        )
        == scenes.CHINESE
    )
    crossing = {"spans": [{"start": 0, "end": 5, "label": "A"}, {"start": 2, "end": 8, "label": "B"}]}
    page = opened(scenes.scene(scenes.view([scenes.CHINESE], [scenes.CHINESE_WORDS], prediction=crossing)))
    assert (
        page.locator(".marked").evaluate(
            "n => { n.querySelectorAll('.tag').forEach(t => t.remove()); return n.textContent }"
        )
        == scenes.CHINESE
    )
    assert page.locator("mark").count() == 3  # the second in two pieces


def test_an_answer_is_marked_in_the_passage(opened: Opened) -> None:
    passage = "博物馆于1952年开放。"
    said = {"answer": "1952年", "score": 0.9, "candidates": [{"text": "1952年", "start": 4, "end": 9, "score": 0.9}]}
    page = opened(scenes.scene(scenes.view(["何时开放？", passage], [["何时", "开放"], ["博物馆"]], prediction=said)))
    assert page.locator("mark").evaluate("n => n.firstChild.textContent") == "1952年"
    nothing = scenes.view(["何时？", passage], [["何时"], ["博物馆"]], prediction={"answer": None, "candidates": []})
    assert opened(scenes.scene(nothing)).get_by_text("It found no answer in the text.").is_visible()


def test_rows_and_columns_may_be_different_texts(opened: Opened) -> None:
    page = opened(scenes.scene(scenes.crossed()))
    page.get_by_label("Attention", exact=True).select_option("cross")
    assert page.locator(".strip .running").first.inner_text().strip() == "I like watching the sea"
    assert page.locator(".asks .unit").all_inner_texts() == ["I", "like", "watc", "##hing", "the", "sea"]
    assert page.locator(".answers .unit").all_inner_texts() == ["[CLS]", "我", "喜", "欢", "看", "海", "[SEP]"]
    page.locator(".strip").nth(0).locator(".unit").nth(1).hover()
    assert sum(tint(page, ".strip:nth-of-type(2) .unit")) == pytest.approx(1, abs=0.03)
    page = opened(scenes.scene(scenes.hierarchy()))
    assert page.locator(".answers .unit").all_inner_texts() == ["电影很好看。", "票价太贵。", "我还会再来。"]
    page.get_by_label("Attention", exact=True).select_option("words")
    assert page.locator(".asks .unit").count() == 3


def test_a_long_text_in_windows(opened: Opened) -> None:
    page = opened(scenes.scene(scenes.windowed()))
    assert page.get_by_text("The windows read 98.0 % of the text.").is_visible()
    page.get_by_label("Window", exact=True).select_option("78")
    assert page.locator(".running .unit").nth(1).inner_text() == (scenes.CHINESE * 1000)[78 * 256]
    assert "79 of 79" in page.get_by_label("Window", exact=True).locator("option:checked").inner_text()


def test_twenty_thousand_words_are_explained_and_marked(opened: Opened) -> None:
    view = scenes.windowed()
    text = view["texts"][0]
    words = [{"part": 0, "start": at, "end": at + 1, "text": text[at], "score": at / 20_000} for at in range(20_000)]
    marks = [{"start": at, "end": at + 5, "label": "ORG", "score": 0.9} for at in range(0, 19_990, 29)]
    view |= {"explanations": [{**scenes.explanation(), "words": words}], "prediction": {"spans": marks}}
    page = opened(scenes.scene(view))
    assert page.locator(".attributed").evaluate("n => n.textContent") == text
    assert page.locator(".word").count() == 3_000
    assert page.locator("mark").count() == len(marks)
    assert page.evaluate("document.querySelectorAll('*').length") < 10_000


def test_markup_in_the_text_is_shown_and_never_run(opened: Opened) -> None:
    entry = {"method": scenes.HOSTILE, "target": scenes.HOSTILE, "value": 1.0, "baseline": 0.0, "certificate": None,
             "words": [{"part": 0, "start": 0, "end": 8, "text": "<script>", "score": 1.0}]}  # fmt: skip
    said = {"label": scenes.HOSTILE, "score": 0.5, "scores": {scenes.HOSTILE: 0.5},
            "spans": [{"start": 0, "end": 8, "label": scenes.HOSTILE, "score": 0.5}]}  # fmt: skip
    view = scenes.view(
        [scenes.HOSTILE], model=scenes.HOSTILE, task=scenes.HOSTILE, prediction=said, explanations=[entry]
    )
    page = opened(scenes.scene(view, title=scenes.HOSTILE))
    assert page.evaluate("window.ran") is None
    assert page.locator("#page img, #page script").count() == 0
    assert page.locator("h1").inner_text() == scenes.HOSTILE
    assert page.title().startswith("<script>window.ran = 1</script>")
    assert page.locator(".attributed p").inner_text().startswith(scenes.HOSTILE[:40])


def test_no_string_becomes_markup_even_by_mistake(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "scene.html"
    path.write_text(book.saved(scenes.scene(scenes.view([""]))), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    sink = "() => { try { document.body.innerHTML = '<b>x</b>'; return 'taken' } catch { return 'refused' } }"
    assert page.evaluate(sink) == "refused"
    assert page.evaluate(STYLE) == "0px"  # a style whose hash the policy does not name
    assert page.evaluate("fetch('https://example.org').then(() => 'reached', () => 'refused')") == "refused"
    page.close()


def test_right_to_left_and_emoji(opened: Opened) -> None:
    words = [scenes.HEBREW.split(), ["一家人", "👨‍👩‍👧‍👦", "去看", "🇨🇳", "的", "海", "👩🏽‍🚀", "。"]]
    page = opened(scenes.scene(scenes.view([scenes.HEBREW, scenes.FAMILY], words)))
    lines = page.locator(".running p")
    assert lines.evaluate_all("n => n.map(x => getComputedStyle(x).direction)") == ["rtl", "ltr"]
    assert lines.nth(1).inner_text().startswith(scenes.FAMILY)
    units = page.locator(".running .unit").all_inner_texts()
    assert "👨‍👩‍👧‍👦" in units
    assert "👩🏽‍🚀" in units
    first = page.locator(".running .unit").nth(1).bounding_box()
    second = page.locator(".running .unit").nth(2).bounding_box()
    assert first["x"] > second["x"]
    page.keyboard.press("t")
    page.keyboard.press("ArrowLeft")  # forward, in Hebrew
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.textContent") == "עולם,"


def test_an_empty_text(opened: Opened) -> None:
    page = opened(scenes.scene(scenes.view([""])))
    assert page.get_by_text("The text is empty.").is_visible()
    bare = {**scenes.view([""]), "windows": []}
    assert opened(scenes.scene(bare)).get_by_text("The text is empty.").is_visible()


def test_damaged_weights_are_said_to_be(opened: Opened) -> None:
    for values in (packed(np.ones((1, 1, 2, 2), np.float32)), "bm90IGRlZmxhdGVk", "%"):
        view = scenes.view(["天气"], [["天", "气"]])
        view["windows"][0]["attention"][0]["values"] = values
        page = opened(scenes.scene(view), decoded=False)
        assert "could not be read" in page.get_by_role("alert").inner_text()
        assert page.locator(".running .unit").count() == 4


def test_a_narrow_screen_has_no_sideways_scroll(opened: Opened) -> None:
    for made in (scenes.explained(), scenes.view([scenes.CHINESE], [scenes.CHINESE_WORDS], layers=12, heads=12)):
        page = opened(scenes.scene(made, made))
        page.set_viewport_size({"width": 390, "height": 844})
        drawn(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.keyboard.press("m")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_paper_is_light(opened: Opened) -> None:
    page = opened(scenes.scene(scenes.explained()), color_scheme="dark")
    dark = page.locator(".grid canvas").evaluate("canvas => canvas.toDataURL()")
    printed = "window.dispatchEvent(new Event('beforeprint')), document.querySelector('.grid canvas').toDataURL()"
    assert page.evaluate(printed) != dark  # drawn anew before the event ends
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
