"""A browser in; a page that must not complain, and waiting for what it shows, out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

WIDE = {"width": 1280, "height": 900}
ACTS = ("check", "click", "fill", "focus", "hover", "select_option")  # what a test does to a page


@contextmanager
def watched(browser: Any, allowed: str, expected: str | None = None, **options: Any) -> Iterator[Any]:
    """A page; afterwards, nothing may have been written to its console, thrown, or asked of any other address.

    expected: what the one complaint that belongs to a test holds, since Chromium itself writes refused requests there.
    """
    context = browser.new_context(**{"viewport": WIDE, "locale": "en-GB", "color_scheme": "light", **options})
    page = context.new_page()
    page.set_default_timeout(10_000)
    for hand, act in ((page.keyboard, "press"), (page.mouse, "move")):
        setattr(hand, act, then_drawn(getattr(hand, act), lambda *_: page))
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


def then_drawn(act: Callable[..., Any], where: Callable[..., Any]) -> Callable[..., Any]:
    """An act in; the same, which ends when the page has drawn what came of it, out: no test need think of it."""

    @wraps(act)
    def done(*given: Any, **options: Any) -> Any:
        result = act(*given, **options)
        drawn(where(*given))
        return result

    return done


def patient(locator: Any) -> None:
    """Playwright's class of what is on a page in; its acts wait until they are drawn."""
    for act in ACTS:
        setattr(locator, act, then_drawn(getattr(locator, act), lambda found, *_: found.page))
