"""A real Chromium: scenes in; pages, opened from disk with the network off, that must not complain, out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from watching import patient, until, watched


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium under Playwright, or a skip with its reason."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium on this machine")
    patient(sync_api.Locator)
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A scene in; its saved file, opened as a double click does and with the network off, and decoded, out."""
    from filbert.draw import book

    open_now: list[Any] = []

    def open_(scene: dict[str, Any], *, decoded: bool = True, **options: Any) -> Any:
        path = tmp_path / f"scene{len(open_now)}.html"
        path.write_text(book.saved(scene), encoding="utf-8")
        held = watched(browser, path.as_uri(), offline=True, **options)
        page = held.__enter__()
        open_now.append(held)
        page.goto(path.as_uri())
        page.wait_for_selector("main")
        if decoded:
            until(page, "!document.querySelector('.links .soft')")
        return page

    yield open_
    for held in open_now:
        held.__exit__(None, None, None)
