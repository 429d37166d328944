"""Render the page's template; everything from a record is escaped as text."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from dedup_job.fingerprint.shingles import NUMBER_PATTERN
from dedup_job.html_page import charts
from dedup_job.html_page.page_data import PageContents
from dedup_job.report.differences import TextGap, TextPiece

MOST_BYTES = 5_000_000
# Controls, marks that change the direction of text, and characters without width: shown as code points.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
KANA, HANGUL, HAN = (
    re.compile(f"[{characters}]")
    for characters in ("\u3040-\u30ff", "\uac00-\ud7af", "\u3400-\u9fff\uf900-\ufaff")
)
NUMBER = re.compile(f"({NUMBER_PATTERN.pattern})")
WEB_ADDRESS = re.compile(r"https?://[^\s/][^\s]*", re.IGNORECASE)


def render_page(contents: PageContents) -> str:
    """Render the page, with at most five megabytes: a larger page gets fewer pairs and groups."""
    drawn = charts.draw_all(contents)
    # A character has at most four bytes, so most pages need not be encoded to know that they are small.
    while len(page := _render(contents, drawn)) * 4 > MOST_BYTES and len(page.encode()) > MOST_BYTES:
        # Every second pair, so that all similarities stay represented; of the groups the larger half.
        pairs, groups = len(contents.pairs) // 2, len(contents.groups) // 2
        contents = replace(contents, pairs=contents.pairs[::2][:pairs], groups=contents.groups[:groups])
    return page


def _render(contents: PageContents, drawn: Mapping[str, Markup | None]) -> str:
    """Render the template with the contents and the charts."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "seen": show_invisible,
        "ascii": to_ascii_id,
        "plain": show_invisible_plain,
        "lang": guess_language,
        "text_of": shown_text,
        "numbers": split_numbers,
        "web_address": find_web_address,
    }
    folder = files(__package__)
    style, script = ((folder / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return environment.from_string((folder / "page.html").read_text("utf-8")).render(
        page=contents,
        counts=contents.counts,
        charts=drawn,
        title=f"{contents.source}: {'what a run did' if contents.is_done else 'what would go'}",
        sentence=lead_sentence(contents),
        verdicts=_verdict_rows(contents),
        reasons=_reason_rows(contents),
        everything_sampled=all(sample.drawn == sample.total for sample in contents.sampled),
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        version=version("dedup-job"),
        style=Markup(style),
        script=Markup(script),
        # The page's Content-Security-Policy allows only this script, so none from a record can run.
        script_digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def lead_sentence(contents: PageContents) -> Markup:
    """Return one sentence that says how many records are dropped."""
    counts = contents.counts
    if not counts.read:
        return Markup("There is nothing to decide.")
    would = "were dropped" if contents.is_done else "would be dropped"
    if not counts.duplicate:
        return Markup("Of <b>{}</b> records <b>none</b> {}.").format(f"{counts.read:,}", would)
    return Markup("Of <b>{}</b> records <b>{}</b> {}, <b>{}</b>: {} and {} of records that {}.").format(
        f"{counts.read:,}",
        f"{counts.duplicate:,}",
        would,
        f"{100 * counts.duplicate / counts.read:.1f} %",
        f"{counts.exact:,} exact {'copy' if counts.exact == 1 else 'copies'}",
        f"{counts.near:,} near {'duplicate' if counts.near == 1 else 'duplicates'}",
        "stayed" if contents.is_done else "stay",
    )


def show_invisible(text: str) -> Markup:
    """Return a text as HTML, with every invisible character shown as its code point.

    >>> str(show_invisible("a<b\\x00"))
    'a&lt;b<span class="unseen">U+0000</span>'
    """
    # Escaping changes only & < > " and ', which are all visible.
    escaped = str(escape(text))
    return Markup(UNSEEN.sub(lambda found: f'<span class="unseen">U+{ord(found[0]):04X}</span>', escaped))


def to_ascii_id(raw_id: str) -> str:
    """Return an id, given as the command line takes it, in ASCII, so that it survives attributes and files.

    >>> to_ascii_id("0123456789abcdef01234567"), to_ascii_id('"今天"')
    ('0123456789abcdef01234567', '"\\\\u4eca\\\\u5929"')
    """
    return raw_id if raw_id.isascii() else json.dumps(json.loads(raw_id))


def show_invisible_plain(text: str) -> str:
    """Return a text with code points as in `show_invisible`, without markup: for titles and attributes."""
    return UNSEEN.sub(lambda match: f"U+{ord(match[0]):04X}", text)


def guess_language(text: str) -> str:
    """Guess the language of a text from its characters, for fonts and line breaks; "" if they do not say.

    >>> guess_language("数据去重"), guess_language("重複を除く"), guess_language("plain")
    ('zh-Hans', 'ja', '')
    """
    # Japanese and Korean texts may contain Han characters, so kana and hangul are tried first.
    if KANA.search(text):
        return "ja"
    if HANGUL.search(text):
        return "ko"
    return "zh-Hans" if HAN.search(text) else ""


def split_numbers(text: str) -> list[tuple[str, bool]]:
    """Split a text into numbers, marked with True, and the parts between them.

    >>> split_numbers("at 2.40 a kilo")
    [('at ', False), ('2.40', True), (' a kilo', False)]
    """
    return [(part, bool(at % 2)) for at, part in enumerate(NUMBER.split(text)) if part]


def find_web_address(fields: Sequence[tuple[str, str]]) -> str | None:
    """Return the first value that is a complete web address, for a link; None if there is none.

    Only http and https: a record must not bring a link that runs a script.

    >>> find_web_address([("title", "see http://a.org"), ("url", "https://example.org/今天?a=1")])
    'https://example.org/今天?a=1'
    >>> find_web_address([("url", "javascript:alert(1)"), ("url", "https://example.org/cut…")])
    """
    values = (value for _, value in fields if WEB_ADDRESS.fullmatch(value) and not UNSEEN.search(value))
    # A long value is cut, and ends with an ellipsis.
    return next((value for value in values if not value.endswith("…")), None)


def shown_text(parts: Sequence[TextPiece | TextGap], side: str) -> str:
    """Return the shown parts of one text.

    Args:
        parts: Two texts with gaps.
        side: "first" or "second".
    """
    return "".join(getattr(part, side) for part in parts if isinstance(part, TextPiece))


def _verdict_rows(contents: PageContents) -> list[tuple[str, str, int]]:
    """Return the legend of the first chart: CSS classes, labels and numbers."""
    counts, is_done = contents.counts, contents.is_done
    rows = [
        ("kept", "kept", counts.unique),
        ("near", "near duplicates", counts.near),
        ("exact", "exact copies", counts.exact),
        ("unchecked", "copied unchecked", sum(counts.unchecked.values())),
        ("refused", "refused by the target" if is_done else "would be refused", sum(counts.refused.values())),
    ]
    return [row for row in rows if row[2] or row[0] in ("kept", "near", "exact")]


def _reason_rows(contents: PageContents) -> list[tuple[str, str, int]]:
    """Return the table of all verdicts: verdict, reason and number."""
    counts = contents.counts
    return [
        ("unique", "", counts.unique),
        ("duplicate", "exact", counts.exact),
        ("duplicate", "near", counts.near),
        *(("unchecked", reason, number) for reason, number in sorted(counts.unchecked.items())),
        *(("refused", reason, number) for reason, number in sorted(counts.refused.items())),
    ]
