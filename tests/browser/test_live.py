"""The page beside a server: type a text, edit a word at a blank, compare, and see what cannot be done."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from watching import until, watched

from filbert.draw import book
from filbert.draw.book import packed
from kit import page_scenes as scenes

pytestmark = pytest.mark.slow

LAYERS, HEADS = 3, 4
MODELS = [
    {"name": "news", "task": "classify", "labels": ["文化", "体育"], "methods": ["occlusion"], "fills": False},
    {"name": "builtin", "task": None, "labels": [], "methods": [], "fills": True},
]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """A view of what is asked, computed from the text alone: its characters, and one layer at a time."""
    texts = request["texts"]
    if "错误" in texts[0]:
        raise ValueError("the text holds 错误, which is not allowed; leave it out.")
    characters = [[char for char in text if char.strip()] for text in texts]
    view = scenes.view(texts, characters, layers=1, heads=1, model=request["model"])
    window, count = view["windows"][0], len(view["windows"][0]["tokens"])
    weights = scenes.maps(LAYERS, HEADS, count, count, sum(map(ord, "".join(texts))))
    entry = {**window["attention"][0], "layers": request["layers"], "heads": [*range(HEADS)]}
    window["attention"] = [{**entry, "values": packed(weights[request["layers"]])}]
    window["heads"] = scenes.measures(weights[request["layers"]])
    place = texts[0].find("[MASK]")
    if place >= 0:
        share = 0.9 if "很好" in texts[0] else 0.4
        found = [{"token": "天", "score": share}, {"token": "空", "score": 1 - share}]
        view["blanks"] = [{"start": place, "end": place + 6, "candidates": found}]
    if request["model"] == "news":
        view["prediction"] = {"label": "文化", "score": 0.8, "scores": {"文化": 0.8, "体育": 0.2}}
    if request["explain"]:
        words = [{"part": 0, "start": 0, "end": 1, "text": texts[0][0], "score": 0.7}]
        method, target = request["explain"]["method"], request["explain"]["target"]
        view["explanations"] = [{**scenes.explanation("weak", target or "文化", method), "words": words}]
    return {**view, "depth": LAYERS}


class Handler(BaseHTTPRequestHandler):
    """GET / is the page, POST /look a view; requests are kept to be looked at."""

    asked: list[dict[str, Any]]
    scene: dict[str, Any]

    def do_GET(self) -> None:
        self._send(200, "text/html; charset=utf-8", book.live(self.scene).encode())

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(request)
        try:
            self._send(200, "application/json", json.dumps(answer(request)).encode())
        except ValueError as error:
            self._send(422, "application/json", json.dumps({"error": str(error)}).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is written."""


@pytest.fixture
def served(browser: Any) -> Iterator[Callable[..., tuple[Any, list[dict[str, Any]]]]]:
    """A live page in the browser, and what it asked of its server."""
    running: list[Any] = []

    def serve(*views: dict[str, Any], refuses: bool = False, models: Any = MODELS) -> tuple[Any, list[dict[str, Any]]]:
        scene = scenes.scene(*views, title="filbert", live={"models": models})
        handler = type("Bound", (Handler,), {"asked": [], "scene": scene})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        held = watched(browser, address, expected="422" if refuses else None)
        page = held.__enter__()
        running.append((held, server))
        page.goto(address)
        return page, handler.asked

    yield serve
    for held, server in running:
        held.__exit__(None, None, None)
        server.shutdown()
        server.server_close()


def layers_seen(page: Any, layers: int = LAYERS) -> None:
    """Waits until so many layers have come."""
    until(page, f"document.querySelectorAll('.board .row').length === {layers}")
    until(page, "!document.querySelector('.links .soft')")


def test_typing_a_text_shows_it_and_its_layers_come_one_by_one(served: Any) -> None:
    page, asked = served()
    assert page.get_by_text("Type or paste a text above").is_visible()
    page.get_by_role("button", name="Look").click()
    assert page.get_by_role("status").inner_text() == "Type a text first."
    assert asked == []
    page.get_by_label("Text", exact=True).fill("上海的海")
    page.keyboard.press("Control+Enter")
    layers_seen(page)
    until(page, "performance.getEntriesByType('resource').length >= 3")
    assert [request["layers"] for request in asked] == [[0], [1], [2]]
    assert all(request["texts"] == ["上海的海"] and request["model"] == "news" for request in asked)
    assert page.locator(".running .unit").all_inner_texts() == ["[CLS]", "上", "海", "的", "海", "[SEP]"]
    page.locator(".running .unit").nth(2).hover()
    assert page.locator(".note").inner_text() == "Colour: where “海” looks."
    page.keyboard.press("Escape")
    page.locator(".stepper h3").click()
    page.keyboard.press("]")
    page.keyboard.press("]")
    assert page.locator(".stepper h3").inner_text() == "Layer 2, head 0"
    until(page, "document.querySelectorAll('.links li').length === 6")


def test_editing_a_word_shows_what_it_moves(served: Any) -> None:
    page, asked = served()
    page.get_by_label("Model", exact=True).select_option("builtin")
    page.get_by_label("Text", exact=True).fill("今天[MASK]气很好")
    page.get_by_role("button", name="Look").click()
    assert page.locator(".gap").inner_text().startswith("天")
    assert page.locator(".arrow").count() == 0
    page.locator(".editable", has_text="好").click()
    page.locator(".edit").fill("坏")
    page.keyboard.press("Enter")
    page.wait_for_selector(".arrow")
    assert [text.strip() for text in page.locator(".arrow").all_inner_texts()] == ["▼ 50.0 pp", "▲ 50.0 pp"]
    assert page.locator(".moved").inner_text() == "changed: 好 → 坏"
    assert page.get_by_label("Text", exact=True).input_value() == "今天[MASK]气很坏"
    assert asked[-1]["texts"] == ["今天[MASK]气很坏"]


def test_two_models_and_two_texts(served: Any) -> None:
    page, asked = served()
    page.get_by_label("Text", exact=True).fill("博物馆")
    page.get_by_label("Beside it").select_option("model")
    page.get_by_role("button", name="Look").click()
    page.wait_for_selector(".names")
    assert {request["model"] for request in asked} == {"news", "builtin"}
    page.get_by_label("Beside it").select_option("text")
    page.get_by_label("The other text").fill("海洋馆")
    page.get_by_role("button", name="Look").click()
    until(page, "document.querySelectorAll('.running')[1]?.textContent.includes('洋')")
    page.locator(".seen").nth(0).locator(".running .unit").nth(3).hover()
    assert page.locator(".seen").nth(1).locator(".running .lit").inner_text() == "馆"


def test_an_explanation_is_asked_for_and_a_pair_is_read(served: Any) -> None:
    page, asked = served()
    page.get_by_label("Text", exact=True).fill("博物馆")
    page.get_by_text("Add a second text").click()
    page.get_by_label("Second text of a pair").fill("体育场")
    page.get_by_label("Explain by").select_option("occlusion")
    page.get_by_label("Explain", exact=True).select_option("体育")
    page.get_by_role("button", name="Look").click()
    page.wait_for_selector(".certificate")
    assert asked[0] == {"model": "news", "texts": ["博物馆", "体育场"], "layers": [0],
                        "explain": {"method": "occlusion", "target": "体育"}}  # fmt: skip
    assert page.get_by_text("体育, by occlusion").is_visible()
    assert page.locator(".running p").count() == 2


def test_what_the_server_refuses_is_said(served: Any) -> None:
    page, _ = served(scenes.view(["天"], [["天"]]), refuses=True)
    page.get_by_label("Text", exact=True).fill("错误")
    page.get_by_role("button", name="Look").click()
    until(page, "document.querySelector('.status').textContent.includes('错误')")
    assert (
        page.get_by_role("status").inner_text()
        == "It did not work: the text holds 错误, which is not allowed; leave it out."
    )
    assert page.locator(".running .unit").count() == 3  # what was there stays


def test_F11_a_model_that_cannot_be_looked_into_says_so_before_one_types(served: Any) -> None:
    page, asked = served(models=[{**MODELS[0], "methods": [], "closed": "no_torch"}, {**MODELS[1], "closed": None}])
    assert "start it with --runtime torch" in page.get_by_role("status").inner_text()
    assert page.get_by_role("button", name="Look").is_disabled()
    page.get_by_label("Text", exact=True).fill("博物馆")
    page.keyboard.press("Control+Enter")
    page.get_by_label("Model", exact=True).select_option("builtin")
    assert page.get_by_role("status").inner_text() == ""
    page.get_by_role("button", name="Look").click()
    layers_seen(page)
    assert {request["model"] for request in asked} == {"builtin"}


def test_hostile_text_that_is_typed(served: Any) -> None:
    page, _ = served()
    page.get_by_label("Text", exact=True).fill(scenes.HOSTILE)
    page.get_by_role("button", name="Look").click()
    layers_seen(page)
    assert page.evaluate("window.ran") is None
    assert page.locator("#page img, #page script").count() == 0
    page.get_by_label("Text", exact=True).fill(scenes.CHINESE * 20)
    page.get_by_role("button", name="Look").click()
    until(page, f"document.querySelectorAll('.running .unit').length === {len(scenes.CHINESE) * 20 + 2}")
