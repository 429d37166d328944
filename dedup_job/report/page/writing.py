"""Writing the page: what stands on it put into its template, where everything from a record is text."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from dedup_job.report.differences import Gap, Piece
from dedup_job.report.page import charts
from dedup_job.report.page.contents import Contents

MOST_BYTES = 5_000_000
# Controls, marks that turn the direction of what follows, and what has no width: shown by their numbers.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
KANA, HANGUL, HAN = (
    re.compile(f"[{these}]") for these in ("\u3040-\u30ff", "\uac00-\ud7af", "\u3400-\u9fff\uf900-\ufaff")
)
DIGIT = re.compile(r"\d")
SHORT = 20  # characters: a longer difference with digits in it is more than another number


def html(contents: Contents) -> str:
    """Return the page, of five megabytes at most: with fewer pairs and groups where all would be more."""
    drawn = _charts(contents)
    while len(page := _filled(contents, drawn)) * 4 > MOST_BYTES and len(page.encode()) > MOST_BYTES:
        pairs, groups = len(contents.pairs) // 2, len(contents.groups) // 2
        contents = replace(contents, pairs=contents.pairs[::2][:pairs], groups=contents.groups[:groups])
    return page


def _filled(contents: Contents, drawn: dict[str, Markup]) -> str:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "seen": seen,
        "ascii": ascii_json,
        "plain": plain,
        "lang": lang,
        "text_of": text_of,
    }
    environment.tests["a_number"] = lambda text: len(text) <= SHORT and DIGIT.search(text) is not None
    room = files(__package__)
    style, script = ((room / name).read_text("utf-8") for name in ("page.css", "page.js"))
    counts = contents.counts
    return environment.from_string((room / "page.html").read_text("utf-8")).render(
        page=contents,
        counts=counts,
        charts=drawn,
        title=f"{contents.source}: {'what a run did' if contents.is_done else 'what would go'}",
        sentence=sentence(contents),
        verdicts=_verdicts(contents),
        reasons=_reasons(contents),
        everything_sampled=all(one.drawn == one.total for one in contents.sampled),
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        version=version("dedup-job"),
        style=Markup(style),
        script=Markup(script),
        script_digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def sentence(contents: Contents) -> Markup:
    """Return in one sentence what goes."""
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
        _counted(counts.exact, "exact copy", "exact copies"),
        _counted(counts.near, "near duplicate", "near duplicates"),
        "stayed" if contents.is_done else "stay",
    )


def seen(text: str) -> Markup:
    """Return a text for the page: every character that cannot be seen is shown by its number.

    >>> str(seen("a<b\\x00"))
    'a&lt;b<span class="unseen">U+0000</span>'
    """
    shown, end = [], 0
    for found in UNSEEN.finditer(text):
        shown.append(escape(text[end : found.start()]))
        shown.append(Markup('<span class="unseen">U+{:04X}</span>').format(ord(found[0])))
        end = found.end()
    return Markup("").join([*shown, escape(text[end:])])


def ascii_json(raw_id: str) -> str:
    """Return an id, as the command line takes it, in ASCII: so it survives attributes and files.

    >>> ascii_json("0123456789abcdef01234567"), ascii_json('"今天"')
    ('0123456789abcdef01234567', '"\\\\u4eca\\\\u5929"')
    """
    return raw_id if raw_id.isascii() else json.dumps(json.loads(raw_id))


def plain(text: str) -> str:
    """Return the same without an element, for a title or an attribute."""
    return UNSEEN.sub(lambda found: f"U+{ord(found[0]):04X}", text)


def lang(text: str) -> str:
    """Return the language of a text as far as its characters tell, for fonts and line breaks; "" for others.

    >>> lang("数据去重"), lang("重複を除く"), lang("plain")
    ('zh-Hans', 'ja', '')
    """
    if KANA.search(text):
        return "ja"
    if HANGUL.search(text):
        return "ko"
    return "zh-Hans" if HAN.search(text) else ""


def text_of(parts: Sequence[Piece | Gap], side: str) -> str:
    """Return what is shown of a text."""
    return "".join(getattr(part, side) for part in parts if isinstance(part, Piece))


def _counted(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def _verdicts(contents: Contents) -> list[tuple[str, str, int]]:
    counts, done = contents.counts, contents.is_done
    rows = [
        ("kept", "kept", counts.unique),
        ("near", "near duplicates", counts.near),
        ("exact", "exact copies", counts.exact),
        ("unjudged", "copied unjudged", sum(counts.unjudged.values())),
        ("refused", "refused by the target" if done else "would be refused", sum(counts.refused.values())),
    ]
    return [row for row in rows if row[2] or row[0] in ("kept", "near", "exact")]


def _reasons(contents: Contents) -> list[tuple[str, str, int]]:
    counts = contents.counts
    return [
        ("unique", "", counts.unique),
        ("duplicate", "exact", counts.exact),
        ("duplicate", "near", counts.near),
        *(("unjudged", reason, number) for reason, number in sorted(counts.unjudged.items())),
        *(("refused", reason, number) for reason, number in sorted(counts.refused.items())),
    ]


def _charts(contents: Contents) -> dict[str, Any]:
    """Return the charts that there is something to draw in."""
    there = {
        "verdicts": contents.counts.read,
        "similarities": any(contents.similarities),
        "distances": contents.distances,
        "sizes": contents.sizes,
        "lengths": contents.kept_lengths or contents.dropped_lengths,
        "timeline": contents.in_order,
    }
    return {name: getattr(charts, name)(contents) if is_there else None for name, is_there in there.items()}
