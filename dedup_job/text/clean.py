"""Clean a record's text: remove markup, decode entities, and write every character in one way."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dedup_job.records import Unchecked
from dedup_job.text.parsed_html import DIGIT_BREAK, ElementSelection, extract_visible_text
from dedup_job.text.simple_html import scan_texts

MAX_ACCENTS: Final = 100
"""Most combining characters in a row. NFKC sorts them in quadratic time (UAX #15 calls 30 a safe number)."""

# Two shortcuts around NFKC, together ten times as fast on Chinese text: the characters that NFKC changes most
# often there, and the characters that it never changes.
_FREQUENT_REPLACEMENTS: Final = [
    (wide, unicodedata.normalize("NFKC", wide)) for wide in "\xa0\u3000，：；？！（）"
]
_UNCHANGED_BY_NFKC: Final = re.compile("[ -~\u2013-\u2015\u2018-\u201f\u3001-\u3015\u4e00-\u9fff]*+")
# Signs that NFKC writes with digits of usual height: ² ½ ① ⒈ ㏠ ㎡ (Unicode, UnicodeData.txt). Beside a digit
# they get a space, or 2³ would become 23.
_DIGIT_SIGNS: Final = (
    "\xb2\xb3\xb9\xbc-\xbe\u2070\u2074-\u2079\u2080-\u2089\u2150-\u215f\u2189\u2460-\u249b\u24ea\u3251-\u325f"
    "\u32b1-\u32cb\u3358-\u3370\u3378\u3379\u339f-\u33a6\u33a8\u33af\u33e0-\u33fe\U0001f100-\U0001f10a"
)
_DIGITS: Final = "0-9\uff10-\uff19"
_ANY_DIGIT: Final = f"[{_DIGITS}{_DIGIT_SIGNS}]"
# A digit may end a sentence: the footnote in `in 2020.²` is no decimal place.
_POINT: Final = "[.\uff0e]"
_MAY_MEET: Final = re.compile(f"[{_DIGIT_SIGNS}]")
_MEETING_DIGITS: Final = re.compile(
    f"(?:(?<={_ANY_DIGIT})|(?<={_ANY_DIGIT}{_POINT}))(?=[{_DIGIT_SIGNS}])"
    f"|(?:(?<=[{_DIGIT_SIGNS}])|(?<=[{_DIGIT_SIGNS}]{_POINT}))(?=[{_DIGITS}])"
)
# Begins with the character itself, not with what is before it: `re` then skips to it.
_BREAK_OF_DIGITS: Final = re.compile(
    f"{DIGIT_BREAK}(?:(?<={_ANY_DIGIT}{DIGIT_BREAK})|(?<={_ANY_DIGIT}{_POINT}{DIGIT_BREAK}))"
    f"{DIGIT_BREAK}*(?={_ANY_DIGIT})"
)
# Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt), controls that are not white space,
# interlinear marks and lone surrogates. Written out, so that Python's Unicode version cannot change a text.
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Long runs that may hold combining characters; letters and ASCII are never combining.
_SIGN_RUN: Final = re.compile(rf"[^\w\x00-\x7f]{{{MAX_ACCENTS},}}")


@dataclass(frozen=True)
class Cleaner:
    """Turns HTML or plain text into its visible text.

    Args:
        drop_after: Cut the text before the first of these markers. Markers are cleaned like the text itself;
            an absent marker changes nothing.
        max_chars: Most characters of visible text.
        select: CSS selectors of the elements whose text is used; none for the whole page.
        remove: CSS selectors of elements that are removed first.

    With selectors, every HTML text is parsed and none is scanned (see `scan_texts`).

    Raises:
        ValueError: If a marker has no visible character, or a selector is not valid CSS.

    >>> Cleaner(drop_after=("Share:",)).clean("<p>f<b>oo</b> &lt;</p>if a<b<script>x()</script><p>Share: me")
    'foo < if a<b'
    """

    drop_after: tuple[str, ...] = ()
    max_chars: int = 1_000_000
    select: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check selectors and markers; an empty marker would cut every text to nothing."""
        # Building the selection checks its selectors.
        bool(self._selection)
        if not all(self._markers):
            msg = "[clean] drop_after: a marker has no visible character and would cut every text: remove it"
            raise ValueError(msg)

    def clean(self, text: str) -> str:
        """Return the visible text.

        Raises:
            Unchecked: `empty`, `hidden`, `too_long`, `too_complex`, `suspect` or `unselected`.
        """
        ((cleaned, reason),) = self.clean_all([text])
        if reason:
            raise Unchecked(reason)
        return cleaned

    def clean_all(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """Clean many texts at once.

        Returns:
            For each text its visible text and "", or "" and the reason why it has none (see `clean`).
        """
        # The scan knows no elements to select, so a selection needs the parser.
        scanned = [None] * len(texts) if self._selection else scan_texts(texts)
        return list(map(self._clean_scanned, texts, scanned))

    def _clean_scanned(self, text: str, scanned: tuple[str, bool] | None) -> tuple[str, str]:
        """Return the visible text and "", or "" and a reason; `scanned` is the result of `scan_texts`."""
        try:
            cleaned = self._extract(text, scanned, self._selection)
        except Unchecked as unchecked:
            return "", unchecked.reason
        for marker in self._markers:
            cleaned = cleaned.partition(marker)[0].rstrip()
        if not cleaned:
            return "", "empty"
        return ("", "too_long") if len(cleaned) > self.max_chars else (cleaned, "")

    @cached_property
    def _markers(self) -> tuple[str, ...]:
        return tuple(map(self._extract, self.drop_after, scan_texts(self.drop_after)))

    @cached_property
    def _selection(self) -> ElementSelection:
        return ElementSelection(self.select, self.remove)

    def _extract(
        self, text: str, scanned: tuple[str, bool] | None, selection: ElementSelection = ElementSelection()
    ) -> str:
        """Return the normalised visible text of HTML or plain text, before markers and limits apply."""
        if scanned is None or len(text) > self.max_chars:
            return self._normalise(extract_visible_text(text, selection))
        visible, is_normalised = scanned
        return visible if is_normalised else self._normalise(visible)

    def _normalise(self, text: str) -> str:
        """Return the text in NFKC, without invisible characters, white space folded to single spaces."""
        # First, because ASCII texts need nothing else.
        if DIGIT_BREAK in text:
            text = _BREAK_OF_DIGITS.sub(" ", text).replace(DIGIT_BREAK, "")
        if text.isascii():
            return self._fold_white_space(_INVISIBLE.sub("", text))
        for wide, narrow in _FREQUENT_REPLACEMENTS:
            text = text.replace(wide, narrow)
        text = self._fold_white_space(text)
        return text if _UNCHANGED_BY_NFKC.fullmatch(text) else self._fold_white_space(_to_nfkc(text))

    def _fold_white_space(self, text: str) -> str:
        """Fold white space to single spaces."""
        # Refused before `split` costs memory: folding hardly ever halves a text.
        if len(text) > 2 * self.max_chars:
            raise Unchecked("too_long")
        return " ".join(text.split())


def _to_nfkc(text: str) -> str:
    """Return the text in NFKC, without invisible characters.

    Raises:
        Unchecked: `too_complex` for more than MAX_ACCENTS combining characters in a row.
    """
    if _MAY_MEET.search(text):
        text = _MEETING_DIGITS.sub(" ", text)
    text = _INVISIBLE.sub("", text)
    for run in _SIGN_RUN.findall(text):
        if sum(unicodedata.category(sign)[0] == "M" for sign in run) > MAX_ACCENTS:
            raise Unchecked("too_complex")
    return unicodedata.normalize("NFKC", text)
