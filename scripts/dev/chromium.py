"""Start Chromium with playwright, for screenshots, the page's benchmark and the page's tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NONE = "no Chromium here; apt-get install chromium fonts-noto-cjk, pip install playwright"


def chromium() -> str | None:
    """Return the path of Chromium; None if Chromium or playwright is not installed."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return None
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def started(path: str) -> Iterator[Any]:
    """Start the installed browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
