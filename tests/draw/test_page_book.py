"""The book of a scene: what it escapes, what its policy allows, and how weights are packed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import numpy as np
import pytest

from filbert.draw import book

HOSTILE = "</script><script>ran()</script><!-- {{style}} & ' \" \u2028\u2029 \ud800 \x00 👨‍👩‍👧 上海"


class Parts(HTMLParser):
    """Every element of a page with its attributes and its text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))
        self.open = self.found[-1][2]

    def handle_endtag(self, tag: str) -> None:
        self.open = []

    def handle_data(self, data: str) -> None:
        self.open.append(data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(traits, "".join(text)) for name, traits, text in self.found if name == tag]


def parts(page: str) -> Parts:
    parser = Parts()
    parser.feed(page)
    return parser


def scene(text: str = "天气", **more: Any) -> dict[str, Any]:
    view = {"model": text, "architecture": "bert", "task": None, "labels": [], "texts": [text], "windows": []}
    return {"format": 1, "title": text, "language": "zh", "views": [view], **more}


def policy(page: str) -> dict[str, str]:
    meta = next(traits for traits, _ in parts(page).all("meta") if "http-equiv" in traits)
    return dict(rule.split(" ", 1) for rule in str(meta["content"]).split("; "))


def test_a_text_never_becomes_markup() -> None:
    page = book.saved(scene(HOSTILE))
    page.encode()  # a lone surrogate can be written too
    (data, source), (code, _) = parts(page).all("script")
    assert (data["type"], code["type"]) == ("application/json", "module")
    assert json.loads(source) == scene(HOSTILE)
    assert not set(source) & set("<>&\u2028\u2029\ud800")
    assert parts(page).all("title")[0][1].startswith("</script><script>ran()</script><!-- {{style}} & ' \" ")
    assert len(parts(page).all("style")) == 1


def test_numbers_that_json_has_not_become_null() -> None:
    source = parts(book.saved(scene(more=(float("nan"), [float("inf")], 1.5)))).all("script")[0][1]
    assert json.loads(source)["more"] == [None, [None], 1.5]


@pytest.mark.parametrize(("made", "connect"), [(book.saved, "'none'"), (book.live, "'self'")])
def test_the_policy_names_what_may_run_and_nothing_else(made: Any, connect: str) -> None:
    page = made(scene())
    rules = policy(page)
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == connect
    for rule, tag in (("script-src", "script"), ("style-src", "style")):
        digest = hashlib.sha256(parts(page).all(tag)[-1][1].encode()).digest()
        assert rules[rule] == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert "unsafe" not in str(rules)
    assert rules["require-trusted-types-for"] == "'script'"


def test_the_file_needs_nothing_else() -> None:
    page = book.saved(scene())
    code = parts(page).all("script")[1][1]
    assert not re.search(r"^\s*(import|export)\b", code, re.MULTILINE)
    assert not re.search(r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval)\b", code)
    addresses = [traits[name] for _, traits, _ in parts(page).found for name in ("src", "href") if name in traits]
    assert all(str(address).startswith("data:") for address in addresses)
    assert set(re.findall(r"https?://[\w./]+", code)) <= {"http://www.w3.org/2000/svg"}


def test_every_module_is_in_the_page_and_opens_with_a_sentence() -> None:
    folder = resources.files("filbert.draw").joinpath("page")
    modules = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".js"))
    code = parts(book.saved(scene())).all("script")[1][1]
    assert "main.js" in modules
    for name in modules:
        text = folder.joinpath(name).read_text(encoding="utf-8")
        assert f"const module_{name.removesuffix('.js')} = (" in code
        assert re.match(r"// .+\.\n", text), name
        assert text.count("\n") < 300, name


def test_both_languages_say_everything_that_is_said() -> None:
    folder = resources.files("filbert.draw").joinpath("page")
    sources = {
        entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".js")
    }
    said = {name for text in sources.values() for name in re.findall(r"\bsay\('(\w+)'", text)}
    known = set(re.findall(r"^  (\w+): \['(?:[^'\\]|\\.)+', '(?:[^'\\]|\\.)+'\],$", sources["words.js"], re.MULTILINE))
    assert said - known == set()


def test_the_same_scene_makes_the_same_file() -> None:
    assert book.saved(scene()) == book.saved(scene())
    assert book.saved(scene()) != book.saved(scene("天晴"))
    assert '<html lang="zh">' in book.saved(scene())
    assert '<html lang="en">' in book.saved(scene(language='"><script>'))


def test_weights_are_packed_to_within_half_a_level() -> None:
    weights = np.random.default_rng(0).dirichlet(np.full(7, 0.3), size=(2, 3, 5)).astype(np.float32)
    again = book.unpacked(book.packed(weights), weights.shape)
    assert again.dtype == np.float32
    assert np.abs(np.sqrt(again) - np.sqrt(weights)).max() <= 0.5 / 255 + 1e-6
    ends = book.unpacked(book.packed(np.array([0, 1, 2, -1, np.nan], np.float32)), (5,))
    assert ends.tolist() == [0, 1, 1, 0, 0]
    assert book.packed(weights) == book.packed(weights.copy())
    assert book.unpacked(book.packed(np.zeros((1, 0, 0), np.float32)), (1, 0, 0)).shape == (1, 0, 0)
