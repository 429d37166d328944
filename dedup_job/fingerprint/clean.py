"""The visible text of a document: markup gone, entities decoded, one spelling for each character.

A scanner, not a tree builder. A tree says what is nested in what, which nobody asks here, and its price is
high: reopening unclosed formatting elements, as the HTML standard demands, makes a million nodes out of 16 KB
(`<p>`, a thousand different `<font>`, a thousand `<p>`), text in a table moves before the table, and
`a<b and c>d` becomes `ad`. The scanner is linear in time and memory, keeps the words in their order, and lets
this module say what a tag is. The tests hold it against a tree builder on well-formed pages.
"""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dedup_job.document import Passed

MAX_MARKS: Final = 1_000_000
"""Most `<` and `&` in one document: beyond it the pieces alone would take hundreds of megabytes."""

MAX_ACCENTS: Final = 100
"""Most combining characters in a row; NFKC sorts them, in quadratic time (UAX #15 calls 30 a safe number)."""

# HTML elements, current and deprecated: those that break the line, and the others.
_BLOCK: Final = """
    address article aside blockquote body br caption center col colgroup dd details dialog dir div dl dt
    fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 header hgroup hr html isindex
    legend li listing main menu nav noframes ol optgroup option p plaintext pre search section summary table
    tbody td textarea tfoot th thead title tr ul xmp"""
_INLINE: Final = """
    a abbr acronym applet area audio b base basefont bdi bdo bgsound big blink button canvas cite code data
    datalist del dfn em embed font head i iframe img input ins kbd keygen label link map mark marquee math
    meta meter nobr noembed noscript object output param picture portal progress q rb rp rt rtc ruby s samp
    script select slot small source spacer span strike strong style sub sup svg template time track tt u var
    video wbr"""
_HIDDEN: Final = ("script", "style", "noscript", "template", "iframe")
# Start tags that nobody writes but in HTML: no words (`<table>`, `<source>`), and in upper case `<BR>` alone,
# since `<DD>` and `<LI>` stand in news for shares.
_TELLTALE: Final = """
    BR br hr div ul ol li dl dt dd tr td th tbody thead tfoot h1 h2 h3 h4 h5 h6 blockquote pre img html"""


def _marks(names: str, gap: str) -> dict[str, str]:
    spelled = (names + names.upper()).split()
    return {mark: gap for name in spelled for mark in (name, f"{name}>", f"{name}/>", f"/{name}>")}


# What stands in the text for a mark: a space for a block, else nothing. The keys are marks without their `<`
# (`p>`, `p/>`, `/p>`), and bare names for tags with attributes.
_GAPS: Final = _marks(_BLOCK, " ") | _marks(_INLINE, "")
_EVIDENCE: Final = {mark for mark in _GAPS if "/" in mark} | {f"{name}>" for name in _TELLTALE.split()}


def _any_case(name: str) -> str:
    return "".join(f"[{letter}{letter.upper()}]" for letter in name)


# The rest of a start tag after its name. Nothing here looks beyond the next `<`, but for three quoted values
# (`data-text="<p>hi</p>"`): that keeps the scan linear. A value that ends in `="` would run into the next, so
# its first quote was never closed: the tag ends at its first `>`, and hides no text.
_QUOTED = r"""(?:"[^"<]*+"|'[^'<]*+')"""
_QUOTED_MARKUP = r"""(?:"[^"]*+(?<!=)"|'[^']*+(?<!=)')"""
_UP_TO_MARKUP = rf"""(?:[^<>=]++|=\s*+(?:{_QUOTED}|(?!["'])))*+"""
_TO_END = rf"(?:{_UP_TO_MARKUP}(?:=\s*+{_QUOTED_MARKUP}{_UP_TO_MARKUP}){{0,3}}+>|[^<>]*+>)"
_VALUED = r"[\w:@.#*-]++\s*+=(?!=)"
_FLAG = (
    r"(?:allowfullscreen|async|autofocus|autoplay|border|checked|compact|controls|default|defer|disabled"
    r"|download|hidden|ismap|itemscope|loop|multiple|muted|nohref|noresize|noshade|novalidate|nowrap|open"
    r"|readonly|required|reversed|selected|data-[\w-]+)(?=[\s/>])"
)
_REST = rf"(?:\s*+/?>|[\s/]++(?={_VALUED}|{_FLAG}){_TO_END})"

_STARTS = {name: f"{_any_case(name)}{_REST}" for name in (*_HIDDEN, "head")}
_ENDS = {name: rf"</{_any_case(name)}\s*+>" for name in _HIDDEN}
_ENDS["head"] = rf"<(?:/{_any_case('head')}\s*+>|{_any_case('body')}[\s>])"
# Up to its end, which is a mark of its own.
_HIDDEN_ELEMENT = "|".join(
    f"{_STARTS[name]}[^<]*+(?:(?!{end})<[^<]*+)*+(?={end})" for name, end in _ENDS.items()
)
_COMMENT = r"!--(?:-?>|[^-]*+(?:-(?!-!?>)[^-]*+)*+--!?>)"
_DECLARATION = rf"(?:!{_any_case('doctype')}\b|!\[(?:if|endif)\b|\?xml\b)[^<>]*+>"
_NAME = r"[a-zA-Z][\w:.-]*+"
_START_TAG = rf"{_NAME}(?=[\s/>]){_REST}"
_CLOSING_TAG = rf"/{_NAME}(?:[\x00-\x20/][^<>]*+)?>"
_FREQUENT_TAG = r"/?[a-gj-mo-ru-zA-GJ-MO-RU-Z][a-zA-Z0-9]*+>"  # no hidden element has such an initial
_MARK: Final = re.compile(
    f"<({_FREQUENT_TAG}|{_COMMENT}|{_HIDDEN_ELEMENT}|{_DECLARATION}|{_CLOSING_TAG}|{_START_TAG})", re.ASCII
)
_TAG_NAME: Final = re.compile(f"/?({_NAME})", re.ASCII)
_ENDLESS: Final = [
    (re.compile(f"<(?={start})", re.ASCII), re.compile(end, re.ASCII))
    for start, end in [("!--", "--!?>"), *((_STARTS[name], _ENDS[name]) for name in _ENDS)]
]
_MAYBE_HIDDEN: Final = re.compile(
    "|".join(["<!--", *(rf"<{_any_case(name)}[\s/>]" for name in _ENDS)]), re.ASCII
)

# Two short cuts, worth a factor of ten on Chinese text: what NFKC changes there most often, and what it never
# changes.
_FREQUENT: Final = [(wide, unicodedata.normalize("NFKC", wide)) for wide in "\xa0\u3000，：；？！（）"]
_ORDINARY: Final = re.compile("[ -~\u2013-\u2015\u2018-\u201f\u3001-\u3015\u4e00-\u9fff]*+")
# Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt), controls that are not white space,
# interlinear marks and lone surrogates. Written out: Python's Unicode version must not change the answer.
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

_SIGNS: Final = re.compile(rf"[^\w\x00-\x7f]{{{MAX_ACCENTS},}}")
_HUGE_NUMBER: Final = re.compile("&#[0-9]{1000,};?")  # int() would refuse it


@dataclass(frozen=True)
class Cleaner:
    """HTML or plain text in, visible text out.

    drop_after  the text ends before the first of these markers, which are cleaned like the text itself; one
                that is absent changes nothing. ValueError for a marker of which nothing is visible.
    max_chars   the most characters of visible text.

    >>> Cleaner(drop_after=("Share:",)).clean("<p>f<b>oo</b> &lt;</p>if a<b<script>x()</script><p>Share: me")
    'foo < if a<b'
    """

    drop_after: tuple[str, ...] = ()
    max_chars: int = 1_000_000

    def __post_init__(self) -> None:
        """Refuse a marker that would cut every text to nothing."""
        if not all(self._markers):
            msg = "drop_after: a marker has no visible character and would cut every text; remove it"
            raise ValueError(msg)

    def clean(self, text: str) -> str:
        """Return the visible text, or raise `Passed`: `empty`, `too_long`, `too_complex`."""
        cleaned = self._normalised(_visible(text))
        for marker in self._markers:
            cleaned = cleaned.partition(marker)[0].rstrip()
        if not cleaned:
            raise Passed("empty")
        if len(cleaned) > self.max_chars:
            raise Passed("too_long")
        return cleaned

    @cached_property
    def _markers(self) -> tuple[str, ...]:
        return tuple(self._normalised(_visible(marker)) for marker in self.drop_after)

    def _normalised(self, text: str) -> str:
        """Return the text in NFKC without invisible characters, white space folded to single spaces."""
        for wide, narrow in _FREQUENT:
            text = text.replace(wide, narrow)
        text = self._folded(text)
        return text if _ORDINARY.fullmatch(text) else self._folded(_canonical(text))

    def _folded(self, text: str) -> str:
        """Fold white space; a text that folding would hardly save is refused before it costs memory."""
        if len(text) > 2 * self.max_chars:
            raise Passed("too_long")
        return " ".join(text.split())


def _visible(text: str) -> str:
    """Return the text without its markup, entities decoded once."""
    if text.count("<") + text.count("&") > MAX_MARKS:
        raise Passed("too_complex")
    if "<" in text:
        text = _without_markup(text)
    if "&#" in text:
        text = _HUGE_NUMBER.sub("\ufffd", text)
    return html.unescape(text)


def _without_markup(text: str) -> str:
    """Return the text without tags, comments and hidden elements; a text that is no HTML stays as it is."""
    if "<![CDATA[" in text:
        text = text.replace("<![CDATA[", " ").replace("]]>", " ")
    if _MAYBE_HIDDEN.search(text):
        text = _endless_broken(text)
    pieces = _MARK.split(text)  # text, mark, text, mark, ..., text; the marks without their `<`
    if not _is_html(pieces):
        return text
    pieces[1::2] = _gaps(pieces[1::2])
    return "".join(pieces)


def _endless_broken(text: str) -> str:
    """Break what opens a comment or a hidden element that never ends, so that all after it stays visible.

    A browser would hide the rest of the document, and different documents would be equal. And the scan stays
    linear: every search for an end now finds one. An invisible character after the `<` does it, which
    normalising takes out; without the `<` the tags before it would read on, and other elements open.
    """
    for start, end in _ENDLESS:
        last = max((found.end() for found in end.finditer(text)), default=0)
        text = text[:last] + start.sub("<\u2060", text[last:])
    return text


def _is_html(pieces: list[str]) -> bool:
    """Tell markup from a plain text with `<` and `>` in it, such as `vector<int> v` or `a<b>c`.

    Evidence is a comment or declaration; a known element's closing tag, or its start tag if that has a value
    or closes itself; a start tag that nobody writes but in HTML; `<p>` twice, or at the start of a line.
    """
    marks = pieces[1::2]
    if not _EVIDENCE.isdisjoint(marks):
        return True
    paragraphs = [before for before, mark in zip(pieces[::2], marks, strict=False) if mark in ("p>", "P>")]
    if len(paragraphs) > 1 or any(not before or before[-1] == "\n" for before in paragraphs):
        return True
    return any(map(_is_evident, marks))


def _is_evident(mark: str) -> bool:
    """Tell whether one mark alone shows that a text is HTML."""
    name = _name(mark).lower()
    return not name or (name in _GAPS and _is_certain(mark))


def _name(mark: str) -> str:
    """Return the name of a tag as it is spelled; a comment or declaration has none."""
    found = _TAG_NAME.match(mark)
    return found[1] if found else ""


def _is_certain(mark: str) -> bool:
    """Tell whether a tag has a value, or closes something."""
    return "=" in mark or "/" in (mark[0], mark[-2])


def _gaps(marks: list[str]) -> list[str]:
    """Return what stands in the text for each mark."""
    distinct = set(marks)
    unusual = distinct.difference(_GAPS)
    if not unusual:
        return [_GAPS[mark] for mark in marks]
    closed = {_name(mark).lower() for mark in distinct if mark[0] == "/"}
    gaps = {mark: _unusual_gap(mark, closed) for mark in unusual}
    return [_GAPS[mark] if mark in _GAPS else gaps[mark] for mark in marks]


def _unusual_gap(mark: str, closed: set[str]) -> str:
    """Return what stands in the text for a mark that is no plain tag, given the names that some tag closes.

    A name that is no HTML element's, or in mixed case (`<o:p>`, `<my-box>`, `<Div>`, `List<Object>`), is a
    tag when it has a value, closes itself, or is closed anywhere in the text; else it is text.
    """
    name = _name(mark)
    if not name or name in _GAPS or name.lower() in closed or _is_certain(mark):
        return _GAPS.get(name.lower(), "")
    return "<" + mark


def _canonical(text: str) -> str:
    """Return the text in NFKC without invisible characters."""
    text = _INVISIBLE.sub("", text)
    for run in _SIGNS.findall(text):
        if sum(unicodedata.category(sign)[0] == "M" for sign in run) > MAX_ACCENTS:
            raise Passed("too_complex")
    return unicodedata.normalize("NFKC", text)
