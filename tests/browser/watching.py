"""A browser in; a page that must not complain, and waiting for what it shows, out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WIDE = {"width": 1280, "height": 900}


@contextmanager
def watched(browser: Any, allowed: str, expected: str | None = None, **options: Any) -> Iterator[Any]:
    """A page; afterwards, nothing may have been written to its console, thrown, or asked of any other address.

    expected: what the one complaint that belongs to a test holds, since Chromium itself writes refused requests there.
    """
    context = browser.new_context(**{"viewport": WIDE, "locale": "en-GB", "color_scheme": "light", **options})
    page = context.new_page()
    page.set_default_timeout(10_000)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on(
        "request", lambda asked: asked.url.startswith((allowed, "data:")) or complaints.append(f"asked {asked.url}")
    )
    yield page
    context.close()
    assert [text for text in complaints if not expected or expected not in text] == []


def until(page: Any, expression: str) -> None:
    """Waits until it is true. The page's policy lets no string be run, so Playwright cannot wait inside the page."""
    for _ in range(400):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never: {expression}")


def drawn(page: Any) -> None:
    """Waits until what was asked for is drawn, however busy the machine: the page draws with the next frame."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
