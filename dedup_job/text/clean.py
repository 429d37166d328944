"""The visible text of a record: markup gone, entities decoded, one spelling for every character."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dedup_job.document import Unjudged
from dedup_job.text.markup import visible
from dedup_job.text.selectors import ElementSelection
from dedup_job.text.simple_markup import simple_texts

MAX_ACCENTS: Final = 100
"""Most combining characters in a row; NFKC sorts them, in quadratic time (UAX #15 calls 30 a safe number)."""

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


@dataclass(frozen=True)
class Cleaner:
    """HTML or plain text in, visible text out.

    drop_after  the text ends before the first of these markers, which are cleaned like the text itself; one
                that is absent changes nothing. ValueError for a marker of which nothing is visible.
    max_chars   the most characters of visible text.
    select      CSS selectors of the elements whose text it is; none for all of the page
    remove      CSS selectors of the elements that are taken out before. ValueError for what is no selector.

    With selectors every text of HTML is parsed, none is scanned.

    >>> Cleaner(drop_after=("Share:",)).clean("<p>f<b>oo</b> &lt;</p>if a<b<script>x()</script><p>Share: me")
    'foo < if a<b'
    """

    drop_after: tuple[str, ...] = ()
    max_chars: int = 1_000_000
    select: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a marker that would cut every text to nothing, and what is no selector."""
        bool(self._selection)
        if not all(self._markers):
            msg = "[clean] drop_after: a marker has no visible character and would cut every text: remove it"
            raise ValueError(msg)

    def clean(self, text: str) -> str:
        """Return the visible text.

        Raises `Unjudged`: `empty`, `hidden`, `too_long`, `too_complex`, `suspect`, `unselected`.
        """
        ((cleaned, reason),) = self.clean_all([text])
        if reason:
            raise Unjudged(reason)
        return cleaned

    def clean_all(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """Return for each text its visible text and "", or "" and the reason why there is none."""
        scanned = [None] * len(texts) if self._selection else simple_texts(texts)
        return list(map(self._cut_off, texts, scanned))

    def _cut_off(self, text: str, scanned: tuple[str, bool] | None) -> tuple[str, str]:
        try:
            cleaned = self._read(text, scanned, self._selection)
        except Unjudged as unjudged:
            return "", unjudged.reason
        for marker in self._markers:
            cleaned = cleaned.partition(marker)[0].rstrip()
        if not cleaned:
            return "", "empty"
        return ("", "too_long") if len(cleaned) > self.max_chars else (cleaned, "")

    @cached_property
    def _markers(self) -> tuple[str, ...]:
        return tuple(map(self._read, self.drop_after, simple_texts(self.drop_after)))

    @cached_property
    def _selection(self) -> ElementSelection:
        return ElementSelection(self.select, self.remove)

    def _read(
        self, text: str, scanned: tuple[str, bool] | None, selection: ElementSelection = ElementSelection()
    ) -> str:
        """Return the visible text of HTML or plain text, in its one spelling."""
        if scanned is None or len(text) > self.max_chars:
            return self._normalised(visible(text, selection))
        simple, is_ordinary = scanned
        return simple if is_ordinary else self._normalised(simple)

    def _normalised(self, text: str) -> str:
        """Return the text in NFKC without invisible characters, white space folded to single spaces."""
        if text.isascii():
            return self._folded(_INVISIBLE.sub("", text))
        for wide, narrow in _FREQUENT:
            text = text.replace(wide, narrow)
        text = self._folded(text)
        return text if _ORDINARY.fullmatch(text) else self._folded(_canonical(text))

    def _folded(self, text: str) -> str:
        """Fold white space; a text that folding would hardly save is refused before it costs memory."""
        if len(text) > 2 * self.max_chars:
            raise Unjudged("too_long")
        return " ".join(text.split())


def _canonical(text: str) -> str:
    """Return the text in NFKC without invisible characters."""
    text = _INVISIBLE.sub("", text)
    for run in _SIGNS.findall(text):
        if sum(unicodedata.category(sign)[0] == "M" for sign in run) > MAX_ACCENTS:
            raise Unjudged("too_complex")
    return unicodedata.normalize("NFKC", text)
