"""Pictures of every view of the page, light and dark, English and Chinese, wide and narrow, into docs/img.

    python tests/browser/shots.py            # needs chromium, and playwright and pillow from requirements-dev.txt

Scenes are those of page_scenes.py, whose numbers are made up; the texts are real.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from watching import until, watched

from filbert.draw import book
from kit import page_scenes as scenes

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "img"
MOST_BYTES = 200_000
MODELS = [{"name": "ner", "methods": ["integrated-gradients", "occlusion"]}, {"name": "builtin"}]
LONG = "512 tokens × 12 layers × 12 heads"
CHANGED = [
    {**blank, "candidates": [{"token": token, "score": share} for token, share in shares.items()]}
    for blank, shares in zip(
        scenes.BLANKS,
        ({"天": 0.655, "空": 0.184, "脾": 0.081, "运": 0.007}, {"公": 0.412, "花": 0.187, "校": 0.233, "医": 0.064}),
        strict=True,
    )
]


def entities(**more: Any) -> dict[str, Any]:
    """Entities of the Chinese text, by a model of 12 × 12 heads."""
    words = [scenes.CHINESE_WORDS]
    given: dict[str, Any] = {"prediction": scenes.ENTITIES, "layers": 12, "heads": 12, "task": "tag", "model": "ner"}
    return scenes.view([scenes.CHINESE], words, **given | more)


def other_cloze() -> dict[str, Any]:
    """The same blanks after one word was changed."""
    text, words = scenes.CLOZE.replace("很好", "很差"), [word.replace("好", "差") for word in scenes.CLOZE_WORDS]
    return scenes.cloze(text, CHANGED, words)


def word(number: int) -> Callable[[Any], None]:
    """Pins a word of the running text."""
    return lambda page: page.locator(".running").first.locator(".unit").nth(number).click()


def keys(*names: str) -> Callable[[Any], None]:
    """Presses keys."""
    return lambda page: [page.keyboard.press(name) for name in names]


def head(name: str) -> Callable[[Any], None]:
    """Chooses a head, such as "2/5"."""
    return lambda page: page.locator(f".head[data-index='{name}']").first.click()


def measure(page: Any) -> None:
    """Shows a measure, sorted."""
    page.locator(".overview select").first.select_option("importance")
    page.locator(".check input").first.check()


def chosen(place: str, value: str, number: int = 0) -> Callable[[Any], None]:
    """Chooses from a list of a part."""
    return lambda page: page.locator(f"{place} select").nth(number).select_option(value)


def point(page: Any) -> None:
    """Points into the large matrix."""
    page.locator(".matrix canvas").hover(position={"x": 164, "y": 158})


DARK: dict[str, Any] = {"color_scheme": "dark"}
NARROW: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
# Without emoji, which Debian draws only with fonts that CI does not have; test_saved.py has them.
HARD = [scenes.HEBREW, '<script>alert("是文本，不是程序")</script> & <b>粗体</b>']
HARD_WORDS = [text.split() for text in HARD]

# name: (the scene, what is done to it, how it is opened, the part that is kept or None for all)
SHOTS: dict[str, tuple[Callable[[], dict[str, Any]], list[Callable[[Any], None]], dict[str, Any], str | None]] = {
    "page-zh": (lambda: zh(scenes.explained()), [head("1/5"), word(8)], {}, None),
    "page-en-dark": (lambda: en(scenes.explained()), [head("1/5"), word(8)], DARK, None),
    "lines-zh-dark": (lambda: zh(entities()), [head("4/1"), word(4)], DARK, ".attention"),
    "matrix-en": (lambda: en(entities()), [keys("m", "f"), head("4/1"), word(8)], {}, ".attention"),
    "tokens-en": (lambda: en(entities()), [keys("w"), head("3/10"), measure], {}, ".attention"),
    "attribution-en": (lambda: en(scenes.explained()), [], {}, ".why"),
    "attribution-zh-dark": (lambda: zh(scenes.explained("random")), [], DARK, ".why"),
    "entities-en": (lambda: en(entities()), [], {}, ".prediction"),
    "blanks-zh": (lambda: zh(scenes.cloze(), other_cloze()), [], {}, ".blanks"),
    "compare-en": (lambda: en(scenes.explained(), other_model()), [word(8)], {}, None),
    "cross-en": (lambda: en(scenes.crossed()), [chosen(".toolbar", "cross"), word(2)], {}, ".attention"),
    "hierarchy-zh": (lambda: zh(scenes.hierarchy()), [chosen(".toolbar", "words")], {}, ".attention"),
    "windows-zh": (lambda: zh(scenes.windowed()), [chosen(".windows", "5")], {}, ".attention"),
    "large-matrix-en-dark": (lambda: en(scenes.long(), title=LONG), [keys("m"), head("0/5"), point], DARK, None),
    "hard-texts-en": (lambda: en(scenes.view(HARD, HARD_WORDS)), [word(2)], {}, ".attention"),
    "narrow-zh": (lambda: zh(scenes.explained()), [head("1/5"), word(8)], NARROW, None),
    "narrow-en-dark": (lambda: en(entities(layers=6, heads=6)), [head("1/5"), word(2)], {**NARROW, **DARK}, None),
    "live-en": (lambda: en(entities(), live={"models": MODELS}), [chosen(".composer", "text", 1)], {}, ".composer"),
    "live-blanks-zh": (lambda: zh(scenes.cloze(), live={"models": MODELS}), [], {}, ".blanks"),
    "help-en": (lambda: en(scenes.explained()), [keys("?")], {}, "dialog"),
}  # fmt: skip


def zh(*views: dict[str, Any], title: str = "上海博物馆开放新展厅", **more: Any) -> dict[str, Any]:
    """A scene in Chinese."""
    return scenes.scene(*views, title=title, language="zh", **more)


def en(*views: dict[str, Any], title: str = "A museum opens in Shanghai", **more: Any) -> dict[str, Any]:
    """A scene in English."""
    return scenes.scene(*views, title=title, language="en", **more)


def other_model() -> dict[str, Any]:
    """Another model on the same text."""
    labels = {"文化": 0.614, "旅游": 0.288, "社会": 0.071, "教育": 0.019, "体育": 0.008}
    said = {"label": "文化", "score": 0.614, "scores": labels}
    return scenes.explained("random", seed=4, model="news-small", prediction=said)


def shot(browser: Any, folder: Path, name: str) -> None:
    """Takes one picture."""
    made, acts, how, part = SHOTS[name]
    path = folder / f"{name}.html"
    scene = made()
    path.write_text((book.live if "live" in scene else book.saved)(scene), encoding="utf-8")
    with watched(browser, path.as_uri(), offline=True, reduced_motion="reduce", **how) as page:
        page.goto(path.as_uri())
        until(page, "!document.querySelector('.links .soft')")
        page.wait_for_timeout(2_500 if "large" in name else 300)
        for act in acts:
            act(page)
        if "large" not in name:
            page.mouse.move(0, 0)
        page.wait_for_timeout(200)
        raw = page.locator(part).screenshot() if part else page.screenshot(full_page=True)
    small = Image.open(io.BytesIO(raw)).convert("RGB")
    for colours in (None, 256, 128, 64):
        held = io.BytesIO()
        kept = (
            small if colours is None else small.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        )
        kept.save(held, "PNG", optimize=True)
        if held.tell() < MOST_BYTES:
            break
    (IMAGES / f"{name}.png").write_bytes(held.getvalue())
    print(f"{name}.png {held.tell() / 1000:.0f} kB")


def main(names: list[str]) -> None:
    """Takes the pictures named, or all."""
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in names or SHOTS:
            shot(browser, Path(folder), name)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
