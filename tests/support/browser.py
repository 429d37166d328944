"""A browser for tests: Debian's Chromium, driven by playwright, with the network off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scripts.dev.chromium import chromium, started

NONE = "no browser here, so the page was not tried in one: apt-get install chromium, pip install playwright"


@dataclass
class Opened:
    """An open page, the messages of the browser, and its requests."""

    tab: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def browser() -> Iterator[Any]:
    """Start Chromium; skip the test if it is not installed."""
    path = chromium()
    if path is None:
        pytest.skip(NONE)
    with started(path) as running:
        yield running


@contextmanager
def opened(running: Any, file: Path, **options: Any) -> Iterator[Opened]:
    """Open a file with the network off."""
    context = running.new_context(offline=True, accept_downloads=True, **options)
    page = Opened(context.new_page())
    page.tab.on("console", lambda message: page.said.append(message.text))
    page.tab.on("pageerror", lambda error: page.said.append(str(error)))
    page.tab.on("dialog", lambda dialog: (page.said.append(dialog.message), dialog.accept()))
    page.tab.on("request", lambda request: page.asked.append(request.url))
    page.tab.goto(file.as_uri())
    yield page
    context.close()
