"""Chromium, driven by playwright: for the pictures of the page, for its benchmark and for its tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NONE = "no Chromium here; apt-get install chromium fonts-noto-cjk, pip install playwright"


def chromium() -> str | None:
    """Return where it is; None where it, or playwright, is not installed."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return None
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def started(path: str) -> Iterator[Any]:
    """Start the browser that is there."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
