"""Scan: the visible text of simple markup, in one compiled pass; all other texts are for the parser.

A text is simple when each of its tags is one of `names.SIMPLE`, in lower or in upper case, with plain
attributes, and each of its character references is a known one that ends in a semicolon.  The order of such
a text does not depend on the tree that a parser builds: a tag of a block leaves a space, and so does the end
of a link where another begins; any other tag leaves nothing.  A parser moves what stands in a table and not
in a cell, so nothing may; a title holds no tags.  Comments, scripts and styles without a `<` in them are
passed over, and so is the head of a page, in which all must be simple, too.  Names that HTML does not know,
without attributes, are text: `<int>`, `<Best Co>`.  Nearly all texts from an editor are simple.  The tests
hold this module to the parser.

Worked example:

    text    <p class="x">a &lt; <b>b</b></p>\\n<p>c，<d>
    out     a < b c,<d>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled, part
from dedup_job.native.ragged import Ragged
from dedup_job.text.characters import joined, strings
from dedup_job.text.constructs import (
    AND,
    LESS,
    MARK,
    SPACE,
    begins_construct,
    begins_link,
    end_of_declaration,
    end_of_raw,
    is_odd,
    is_space,
    read_reference,
    read_tag,
)
from dedup_job.text.markup import DEEPEST, MOST_FORMATTING
from dedup_job.text.names import (
    IS_BLOCK,
    IS_BODY,
    IS_CELL,
    IS_CLOSED,
    IS_CLOSING,
    IS_DEEP,
    IS_EVIDENT,
    IS_FORMATTING,
    IS_HEAD,
    IS_HEAD_ONLY,
    IS_LINK,
    IS_PART,
    IS_RAW,
    IS_TABLE,
    IS_TEXT,
    IS_TITLE,
    Codes,
    Table,
    reference_table,
    tag_table,
)

LONGEST: Final = 100_000  # characters
_NOTHING: Final = -1
AT_ONCE: Final = 32  # texts that are scanned together: they stay in the processor's cache

# What is noted of a text's tags: how many there are, and are evidently HTML; how many elements are open, and
# were at most; whether only parts of a table, or only the end of a title, may follow; where in a page's head
# the scan is, and how much was written before it; how many `<` are text.
_FOUND, _EVIDENT, _OPEN, _OPEN_FORMATTING, _DEEPEST, _BETWEEN_CELLS, _IN_TITLE, _HEAD, _WRITTEN, _TEXT = (
    range(10)
)
_NO_HEAD, _HEAD_BEGINS, _IN_HEAD, _HEAD_ENDS, _HEAD_IS_PAST = range(5)


def simple_texts(texts: Sequence[str]) -> list[tuple[str, bool] | None]:
    """Return the visible text of simple markup, and whether nothing is left to do to its characters.

    None for a text that is not simple.  White space is folded, and frequent wide characters are narrow.

    >>> simple_texts(['<p>f<b>oo</b> &lt;</p><p id="x">a，b', "é &amp; c", "<table>"])
    [('foo < a,b', True), ('é & c', False), None]
    """
    found: list[tuple[str, bool] | None] = []
    for start in range(0, len(texts), AT_ONCE):
        found += _together([_short(text) for text in texts[start : start + AT_ONCE]])
    return found


def _short(text: str) -> str:
    """Return a text without its byte order mark; one that is too long becomes one that is not simple."""
    return text.removeprefix("\ufeff") if len(text) <= LONGEST else "\0"


def _together(texts: Sequence[str]) -> list[tuple[str, bool] | None]:
    """Scan some texts at once."""
    codes = joined(texts)
    out = np.empty(len(codes.values), np.int32)
    stops, are_simple, are_done = _scan_all(
        codes.offsets, codes.values.view(np.int32), tag_table(), reference_table(), out
    )
    shown = strings(Ragged(stops, out.view(np.uint32)))
    outcomes = zip(shown, are_simple.tolist(), are_done.tolist(), strict=True)
    return [(text, is_done) if is_simple else None for text, is_simple, is_done in outcomes]


@part
def _spelled(code: int) -> int:
    """Return the one spelling of a frequent character, a space for white space, NOTHING for all others.

    The rule is that of `clean`, written as branches.
    """
    if SPACE < code < 0x7F or 0x4E00 <= code <= 0x9FFF:
        return code
    if code == SPACE or 9 <= code <= 13 or 0x1C <= code <= 0x1F or code == 0xA0 or code == 0x3000:
        return SPACE
    if 0x3001 <= code <= 0x3015 or 0x2013 <= code <= 0x2015 or 0x2018 <= code <= 0x201F:
        return code
    if code in (0xFF01, 0xFF08, 0xFF09, 0xFF0C, 0xFF1A, 0xFF1B, 0xFF1F):  # ！（），：；？
        return code - 0xFEE0
    return _NOTHING


@part
def _fits_head(notes: npt.NDArray[np.int64], kind: int) -> bool:
    """Take note of where a page's head begins or ends; tell whether a tag may stand there."""
    is_inside = notes[_HEAD] == _IN_HEAD
    if kind & IS_HEAD and not kind & IS_CLOSING:
        may_begin = notes[_HEAD] == _NO_HEAD
        notes[_HEAD] = _HEAD_BEGINS
        return may_begin and not kind & IS_CLOSED
    if is_inside and (kind & IS_HEAD or (kind & IS_BODY and not kind & IS_CLOSING)):
        notes[_HEAD] = _HEAD_ENDS
        return not kind & IS_CLOSED
    return is_inside or not kind & IS_HEAD_ONLY


@part
def _without_head(notes: npt.NDArray[np.int64], filled: int) -> int:
    """Return where to write on: what was written of a head is overwritten."""
    if notes[_HEAD] == _HEAD_BEGINS:
        notes[_HEAD], notes[_WRITTEN] = _IN_HEAD, filled
    elif notes[_HEAD] == _HEAD_ENDS:
        notes[_HEAD] = _HEAD_IS_PAST
        return int(notes[_WRITTEN])
    return filled


@part
def _is_noted(notes: npt.NDArray[np.int64], kind: int) -> bool:
    """Take note of a tag; tell whether it may stand there."""
    step = -1 if kind & IS_CLOSING else 1
    is_astray = (notes[_BETWEEN_CELLS] and not kind & IS_PART) or (
        notes[_IN_TITLE] and not (kind & IS_TITLE and step < 0)
    )
    is_astray |= not _fits_head(notes, kind)
    notes[_FOUND] += 1
    notes[_EVIDENT] += kind & IS_EVIDENT != 0
    notes[_OPEN] += step if kind & IS_DEEP else 0
    notes[_OPEN_FORMATTING] += step if kind & IS_FORMATTING else 0
    notes[_DEEPEST] = max(notes[_DEEPEST], notes[_OPEN])
    notes[_BETWEEN_CELLS] = kind & IS_PART != 0 and not (kind & (IS_CELL if step > 0 else IS_TABLE))
    notes[_IN_TITLE] = kind & IS_TITLE != 0 and step > 0
    return not is_astray


@part
def _is_judged(notes: npt.NDArray[np.int64], length: int, left: int) -> bool:
    """Tell whether the parser would read it so: it is HTML or has no tag, no monster, and enough is left."""
    is_html = notes[_FOUND] == 0 or notes[_EVIDENT] > 0
    is_monster = notes[_OPEN_FORMATTING] > MOST_FORMATTING or notes[_DEEPEST] > DEEPEST
    is_open = notes[_IN_TITLE] or notes[_HEAD] == _IN_HEAD
    seen = length + notes[_FOUND] + 3 * notes[_TEXT]  # by the parser, with spaces and each `<` as `&lt;`
    return is_html and not is_monster and not is_open and 10 * left >= seen


@part
def _next(
    codes: Codes, place: int, tags: Table, references: Table, notes: npt.NDArray[np.int64]
) -> tuple[int, int]:
    """Return where the next character, reference or tag ends (-1: not simple), and what is seen of it."""
    code = int(codes[place])
    if begins_construct(codes, place):
        if codes[place + 1] == MARK:
            notes[_FOUND] += 1
            notes[_EVIDENT] += 1
            return end_of_declaration(codes, place) if not notes[_IN_TITLE] else -1, _NOTHING
        end, kind = read_tag(codes, place, tags)
        if end >= 0 and kind & IS_RAW and not kind & IS_CLOSING:
            end = end_of_raw(codes, place, end) if not kind & IS_CLOSED else -1
        if end >= 0 and not kind & IS_TEXT:
            is_between_links = kind & IS_LINK and kind & IS_CLOSING and begins_link(codes, end)
            seen = SPACE if kind & IS_BLOCK or is_between_links else _NOTHING
            return end if _is_noted(notes, kind) else -1, seen
        notes[_TEXT] += 1
    elif code == AND:
        end, code = read_reference(codes, place, references)
    else:
        end = place + 1
        notes[_TEXT] += code == LESS
    return end if not notes[_BETWEEN_CELLS] or is_space(codes[place]) else -1, code


@part
def _scan(
    codes: Codes, tags: Table, references: Table, notes: npt.NDArray[np.int64], out: Codes
) -> tuple[int, bool]:
    """Write the visible text; return its length (-1: not simple), and whether nothing is left to do to it."""
    notes[:] = 0
    place, filled, is_done = 0, 0, True
    while place < len(codes):
        code = int(codes[place])
        if code in (LESS, AND) or notes[_BETWEEN_CELLS]:  # a call takes the time of 20 characters
            place, code = _next(codes, place, tags, references, notes)
            filled = _without_head(notes, filled)
        else:
            place += 1
        if place < 0 or is_odd(code):
            return -1, False
        if code == _NOTHING:
            continue
        spelled = _spelled(code)
        if spelled == _NOTHING:
            spelled, is_done = code, False
        if spelled != SPACE or (filled > 0 and out[filled - 1] != SPACE):
            out[filled] = spelled
            filled += 1
    if filled > 0 and out[filled - 1] == SPACE:
        filled -= 1
    return filled if _is_judged(notes, len(codes), filled) else -1, is_done


@compiled
def _scan_all(
    offsets: npt.NDArray[np.int64], codes: Codes, tags: Table, references: Table, out: Codes
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Write the visible text of each text, all of them one after the other.

    Returns where each begins and ends, which texts are simple, and to which of them nothing is left to do.
    """
    stops = np.zeros_like(offsets)
    are_simple, are_done = np.zeros(len(offsets) - 1, np.bool_), np.zeros(len(offsets) - 1, np.bool_)
    notes = np.zeros(10, np.int64)
    for text in range(len(offsets) - 1):
        filled, are_done[text] = _scan(
            codes[offsets[text] : offsets[text + 1]], tags, references, notes, out[stops[text] :]
        )
        are_simple[text] = filled >= 0
        stops[text + 1] = stops[text] + max(filled, 0)
    return stops, are_simple, are_done
