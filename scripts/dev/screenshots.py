"""Take pictures of a report's page for the docs, with a made-up sample, a dry run, and Chromium.

Run as `python -m scripts.dev.screenshots`, with `pip install -e '.[page,dev]'` and Debian's `chromium` and
`fonts-noto-cjk`; the pictures are written to `docs/pictures`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.bench.corpus import generate, load
from scripts.dev.chromium import NONE, chromium, started
from scripts.dev.local_mongod import open_server

RECORDS = 5_000
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SETTINGS = """
[source]
database = "shop"
collection = "pages"
fields = ["data"]

[target]
database = "shop"
collection = "pages_unique"

[clean]
drop_after = ["收录:"]

[report]
show = ["title", "url"]
"""
# With less motion the page jumps to a place, where it would otherwise still be scrolling.
LIGHT: dict[str, Any] = {"viewport": {"width": 1120, "height": 760}, "reduced_motion": "reduce"}
DARK: dict[str, Any] = {**LIGHT, "color_scheme": "dark"}
TELEPHONE: dict[str, Any] = {**LIGHT, "viewport": {"width": 390, "height": 760}}


def page(folder: Path) -> Path:
    """Return the page of a dry run of a made-up sample."""
    settings, file = folder / "shop.toml", folder / "page.html"
    settings.write_text(SETTINGS, "utf-8")
    with open_server() as server:
        load(generate(RECORDS), server.uri, "shop", "pages")
        subprocess.run(
            [sys.executable, "-m", "dedup_job", "report", "-c", str(settings), "--html", str(file)],
            env=os.environ | {"DEDUP_SOURCE_URI": server.uri},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return file


def take(file: Path, path: str) -> None:
    """Take the pictures of a page."""
    with started(path) as browser:
        for name, options, place in (
            ("page", LIGHT, "body"),
            ("page-threshold", LIGHT, "#threshold"),
            ("page-pairs", DARK, "#pairs"),
            ("page-telephone", TELEPHONE, "#pairs"),
        ):
            tab = browser.new_context(offline=True, **options).new_page()
            tab.goto(file.as_uri())
            tab.locator("#line").fill("0.9")
            tab.locator(place).evaluate("part => part.scrollIntoView({behavior: 'instant'})")
            tab.wait_for_timeout(500)
            tab.screenshot(path=PICTURES / f"{name}.png")
            print(f"{name}.png: {(PICTURES / f'{name}.png').stat().st_size:,} bytes")


def main() -> int:
    """Run the command; returns its exit code."""
    path = chromium()
    if path is None:
        print(f"screenshots: {NONE}", file=sys.stderr)
        return 69
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        take(page(Path(folder)), path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
