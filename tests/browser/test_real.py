"""A real model's attention on the page: what Chromium shows is what `Model.attention` computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from filbert.draw.book import packed
from kit import page_scenes as scenes


def view_of(seen: Any) -> dict[str, Any]:
    """A view of the one window that was seen."""
    found = seen.map
    tokens = [dataclasses.asdict(token) for token in found.rows]
    words = [{**dataclasses.asdict(word), "tokens": list(word.tokens)} for word in found.row_words]
    entry = {"kind": "self", "layers": list(found.layers), "heads": list(found.heads), "rows": None, "columns": None,
             "values": packed(found.values)}  # fmt: skip
    window = {"tokens": tokens, "words": words, "attention": [entry], "heads": scenes.measures(found.values)}
    return {**scenes.view([""]), "texts": list(seen.texts), "windows": [window]}


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_built_in_model_on_the_page(opened: Callable[..., Any]) -> None:
    pytest.importorskip("torch")
    from filbert import load

    seen = load("builtin").attention("今天天气很好，我们去公园散步👨‍👩‍👧。")
    by_word = np.asarray(seen)
    page = opened(scenes.scene(view_of(seen), language="zh"))
    page.get_by_role("gridcell", name="第 1 层，第 0 头").click()
    layer = seen.map.layers.index(1)
    page.locator(".asks .unit").nth(2).hover()
    shown = page.locator(".answers .unit").evaluate_all("nodes => nodes.map(node => node.weight)")
    assert shown == pytest.approx(by_word[layer, 0, 2].tolist(), abs=0.006)
    text = page.locator(".running").inner_text()
    assert "今天天气很好，我们去公园散步👨‍👩‍👧。" in text
