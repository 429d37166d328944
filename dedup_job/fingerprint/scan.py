"""Scan: the visible text of simple markup, in one compiled pass; all other texts are for the parser.

A text is simple when each of its tags is one of SIMPLE, in lower or in upper case, with plain attributes, and
each of its character references is a known one that ends in a semicolon.  The order of such a text does not
depend on the tree that a parser builds: a tag of a block leaves a space, any other tag nothing.  A parser
moves what stands in a table and not in a cell, so nothing may; a title holds no tags.  Comments, scripts and
styles without a `<` in them are passed over, and so is the head of a page, in which all must be simple, too.
Names that HTML does not know, without attributes, are text: `<int>`, `<Best Co>`.  Nearly all texts from an
editor are simple.  The tests hold this module to the parser.

Worked example:

    text    <p class="x">a &lt; <b>b</b></p>\\n<p>c，<d>
    out     a < b c,<d>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, reduce
from html.entities import html5
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.compiled import compiled, part
from dedup_job.fingerprint.characters import encoded, joined, strings
from dedup_job.fingerprint.markup import (
    BLOCK,
    DEEPEST,
    FLAGS,
    FORMATTING,
    IMPLIED,
    KNOWN,
    LONGEST_TAG,
    MOST_FORMATTING,
    TELLTALE,
    VOID,
    names_of,
)
from dedup_job.ragged import Ragged

LONGEST: Final = 100_000  # characters
AT_ONCE: Final = 32  # texts that are scanned together: they stay in the processor's cache

PARTS: Final = names_of("table thead tbody tfoot tr td th")
CELLS: Final = names_of("td th")
RAW: Final = names_of("script style")
HEAD_ONLY: Final = names_of("link")  # elsewhere the parser's side takes it for a `<li`
PAGE: Final = names_of("html head body")
INSIDE: Final = names_of(
    """a abbr address article aside b big blockquote br center cite code dd del details div dl dt em fieldset
    figcaption figure font footer form h1 h2 h3 h4 h5 h6 header hr i img ins kbd li main mark meta nav ol p
    pre q s samp section small span strike strong sub summary sup title tt u ul var wbr"""
)
SIMPLE: Final = PARTS | RAW | HEAD_ONLY | PAGE | INSIDE

# What a tag is: bits of its kind.
_IS_KNOWN, _IS_SIMPLE, _IS_TEXT, _IS_BLOCK, _IS_PART, _IS_CELL, _IS_TABLE, _IS_TITLE = (
    1 << bit for bit in range(8)
)
_IS_FORMATTING, _IS_DEEP, _IS_TELLTALE, _IS_CLOSING, _HAS_VALUE, _IS_CLOSED = (
    1 << bit for bit in range(8, 14)
)
_IS_RAW, _IS_HEAD, _IS_BODY, _IS_HEAD_ONLY = (1 << bit for bit in range(14, 18))
_IS_EVIDENT: Final = _IS_TELLTALE | _IS_CLOSING | _HAS_VALUE | _IS_CLOSED
# What is noted of a text's tags: how many there are, and are evidently HTML; how many elements are open, and
# were at most; whether only parts of a table, or only the end of a title, may follow; where in a page's head
# the scan is, and how much was written before it; how many `<` are text.
_FOUND, _EVIDENT, _OPEN, _OPEN_FORMATTING, _DEEPEST, _BETWEEN_CELLS, _IN_TITLE, _HEAD, _WRITTEN, _TEXT = (
    range(10)
)
_NO_HEAD, _HEAD_BEGINS, _IN_HEAD, _HEAD_ENDS, _HEAD_IS_PAST = range(5)

_SPACE, _LESS, _GREATER, _SLASH, _AND, _HASH, _SEMICOLON, _EQUALS, _MINUS, _MARK, _X = map(ord, " <>/&#;=-!x")
_BOM: Final = 0xFEFF
_IN_NAMES: Final = (45, 46, 58, 95)  # - . : _
_DOUBLE_QUOTE, _QUOTE = map(ord, "\"'")
_NOTHING: Final = -1
_LONGEST_NAME: Final = 10
_DOCTYPE: Final = reduce(lambda key, letter: key << 6 | ord(letter) - 60, "doctype", 0)  # as _packed has it

Codes = npt.NDArray[np.int32]
Table = npt.NDArray[np.int64]


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
        codes.offsets, codes.values.view(np.int32), _tags(), _references(), out
    )
    shown = strings(Ragged(stops, out.view(np.uint32)))
    outcomes = zip(shown, are_simple.tolist(), are_done.tolist(), strict=True)
    return [(text, is_done) if is_simple else None for text, is_simple, is_done in outcomes]


@cache
def _tags() -> Table:
    """Return of what kind each tag is, by its name in lower and in upper case; flags are known names, too."""
    sets = {_IS_BLOCK: BLOCK, _IS_PART: PARTS, _IS_CELL: CELLS, _IS_TABLE: {"table"}, _IS_TITLE: {"title"}}
    sets |= {_IS_RAW: RAW, _IS_HEAD: {"head"}, _IS_BODY: {"body"}, _IS_HEAD_ONLY: HEAD_ONLY}
    sets |= {_IS_FORMATTING: FORMATTING, _IS_DEEP: KNOWN - VOID - IMPLIED, _IS_SIMPLE: SIMPLE}
    kinds = {}
    for name in KNOWN | FLAGS:
        kind = sum(bit for bit, names in sets.items() if name in names) | _IS_KNOWN
        for spelled in (name, name.upper()):
            kinds[spelled] = kind | (_IS_TELLTALE if spelled in TELLTALE else 0)
    return _hashed(kinds)


@cache
def _references() -> Table:
    """Return the character of each name that stands for one, such as `nbsp`."""
    names = {name[:-1]: value for name, value in html5.items() if name.endswith(";")}
    return _hashed(
        {name: ord(value) for name, value in names.items() if len(name) <= _LONGEST_NAME and len(value) == 1}
    )


def _hashed(values: Mapping[str, int]) -> Table:
    """Return a table for `_found`: packed names of up to ten characters and values, at most half full."""
    table = np.zeros((1 << (2 * len(values)).bit_length(), 2), np.int64)
    for name, value in values.items():
        _, key = _packed(encoded(name).view(np.int32), 0, False)
        if key:
            table[_row(table, key)] = key, value
    return table


@compiled()
def _packed(codes: Codes, place: int, is_folded: bool) -> tuple[int, int]:
    """Return where the letters and digits from a place on end, and up to ten of them packed; 0 for more.

    Folded are letters of both cases packed alike, as those of lower case.
    """
    key, start = 0, place
    while place < len(codes):
        code = int(codes[place])
        if 97 <= code <= 122:  # a - z
            key = key << 6 | code - 60
        elif 65 <= code <= 90:  # A - Z
            key = key << 6 | code - (28 if is_folded else 54)
        elif 48 <= code <= 57:  # 0 - 9
            key = key << 6 | code - 47
        else:
            break
        place += 1
    return place, key if place - start <= _LONGEST_NAME else 0


@compiled()
def _row(table: Table, key: int) -> int:
    """Return the row of a key, or the empty row where it belongs (open addressing)."""
    mask = len(table) - 1
    row = ((key ^ key >> 30) * 0x9E3779B1 >> 20) & mask
    while table[row, 0] != 0 and table[row, 0] != key:
        row = row + 1 & mask
    return row


# Helpers without a signature are compiled into their callers, and need not be loaded.
@part
def _found(table: Table, key: int) -> int:
    """Return the value of a key, 0 for one that is not in the table."""
    row = _row(table, key)
    return int(table[row, 1]) if key != 0 and table[row, 0] == key else 0


@part
def _spelled(code: int) -> int:
    """Return the one spelling of a frequent character, a space for white space, NOTHING for all others.

    The rule is that of `clean`, written as branches.
    """
    if _SPACE < code < 0x7F or 0x4E00 <= code <= 0x9FFF:
        return code
    if code == _SPACE or 9 <= code <= 13 or 0x1C <= code <= 0x1F or code == 0xA0 or code == 0x3000:
        return _SPACE
    if 0x3001 <= code <= 0x3015 or 0x2013 <= code <= 0x2015 or 0x2018 <= code <= 0x201F:
        return code
    if code in (0xFF01, 0xFF08, 0xFF09, 0xFF0C, 0xFF1A, 0xFF1B, 0xFF1F):  # ！（），：；？
        return code - 0xFEE0
    return _NOTHING


@part
def _is_space(code: int) -> bool:
    """Tell whether a character separates attributes."""
    return code == _SPACE or code == 9 or code == 10 or code == 12 or code == 13


@part
def _begins(codes: Codes, place: int) -> bool:
    """Tell whether a `<` may begin a tag, comment or declaration."""
    if codes[place] != _LESS or place + 1 == len(codes):
        return False
    code = int(codes[place + 1])
    return 97 <= code <= 122 or 65 <= code <= 90 or code == _SLASH or code == 33 or code == 63  # ! ?


@part
def _attribute(codes: Codes, place: int) -> int:
    """Return where an attribute with a value ends, or -1 when it is not simple."""
    start = place
    while place < len(codes) and (_packed(codes, place, False)[0] > place or codes[place] == _MINUS):
        place = max(_packed(codes, place, False)[0], place + 1)
    if place == start or place + 1 >= len(codes) or codes[place] != _EQUALS:
        return -1
    quote = int(codes[place + 1])
    if quote != _DOUBLE_QUOTE and quote != _QUOTE:
        end, _ = _packed(codes, place + 1, False)
        return end if end > place + 1 else -1
    place += 2
    while place < len(codes) and codes[place] != quote:
        if codes[place] == _LESS or codes[place] == _GREATER or codes[place] == 0:
            return -1
        place += 1
    return place + 1 if place < len(codes) else -1


@part
def _is_foreign(codes: Codes, place: int, tags: Table) -> bool:
    """Tell whether there is a name that HTML does not know, without attributes: `int>`, `Best Co>`."""
    end, key = _packed(codes, place, True)
    if key == 0 or _found(tags, key) != 0:
        return False
    while end < len(codes) and (_packed(codes, end, False)[0] > end or codes[end] in _IN_NAMES):
        end += 1
    if end + 1 >= len(codes) or codes[end] != _SPACE:
        return end < len(codes) and codes[end] == _GREATER
    end, key = _packed(codes, end + 1, True)
    if key == 0 or _found(tags, key) != 0 or end + 1 >= len(codes):  # it may be a flag
        return False
    return codes[end] == _GREATER or (codes[end] == _SPACE and _packed(codes, end + 1, False)[0] > end + 1)


@part
def _tag(codes: Codes, start: int, tags: Table) -> tuple[int, int]:
    """Return where the tag that begins with a `<` ends, and its kind; -1 when it is not simple.

    A `<` that begins a foreign name is no tag: it ends there, and its kind is text.
    """
    is_closing = codes[start + 1] == _SLASH
    name = start + (2 if is_closing else 1)
    place, key = _packed(codes, name, False)
    kind = _found(tags, key)
    if not kind & _IS_SIMPLE:
        is_text = not is_closing and _is_foreign(codes, name, tags)
        return start + 1 if is_text else -1, _IS_TEXT
    kind |= _IS_CLOSING if is_closing else 0
    while place < len(codes) and _is_space(codes[place]):
        place += 1
        if place < len(codes) and (_packed(codes, place, False)[0] > place or codes[place] == _MINUS):
            place = _attribute(codes, place)
            kind |= _HAS_VALUE
            if place < 0 or is_closing:
                return -1, 0
    if place < len(codes) and codes[place] == _SLASH and not is_closing:
        place += 1
        kind |= _IS_CLOSED
    is_simple = place < len(codes) and codes[place] == _GREATER and place - start < LONGEST_TAG
    return place + 1 if is_simple else -1, kind


@part
def _declaration(codes: Codes, start: int) -> int:
    """Return where the comment or document type that begins with `<!` ends; -1 when it is not simple."""
    place, key = _packed(codes, start + 2, True)
    if key == _DOCTYPE and place < len(codes) and (_is_space(codes[place]) or codes[place] == _GREATER):
        end = _passed_over(codes, place, _GREATER)
        return end + 1 if end >= 0 and codes[end] == _GREATER else -1
    place = start + 4
    if place >= len(codes) or codes[start + 2] != _MINUS or codes[start + 3] != _MINUS:
        return -1
    if codes[place] == _GREATER or codes[place] == _MINUS:  # it may be its end already
        return -1
    while place >= 0 and codes[place] != _LESS:
        place = _passed_over(codes, place, _MINUS)
        if place >= 0 and codes[place] == _MINUS:
            place += 1
            if place + 1 >= len(codes) or (codes[place] == _MINUS and codes[place + 1] == _MARK):
                return -1
            if codes[place] == _MINUS and codes[place + 1] == _GREATER:
                return place + 2
    return -1


@part
def _passed_over(codes: Codes, place: int, wanted: int) -> int:
    """Return where this character or a `<` is; -1 when there is neither, or something odd before it."""
    while place < len(codes) and codes[place] != wanted and codes[place] != _LESS:
        if _is_odd(codes[place]):
            return -1
        place += 1
    return place if place < len(codes) else -1


@part
def _raw_end(codes: Codes, start: int, place: int) -> int:
    """Return where the closing tag is of the script or style that begins at `start`, its text at `place`.

    -1 when there is another `<` before it.
    """
    end = _passed_over(codes, place, _LESS)
    if end < 0 or end + 1 >= len(codes) or codes[end + 1] != _SLASH:
        return -1
    _, key = _packed(codes, start + 1, True)
    return end if _packed(codes, end + 2, True)[1] == key else -1


@part
def _is_odd(code: int) -> bool:
    """Tell whether the parser changes a character."""
    return code == 0 or code == _BOM or 0xD800 <= code <= 0xDFFF


@part
def _number(codes: Codes, start: int) -> tuple[int, int]:
    """Return where a number ends, and its character; -1 when not all decoders agree on it."""
    is_hex = start < len(codes) and codes[start] | 32 == _X
    base = 16 if is_hex else 10
    first = start + is_hex
    value, place = 0, first
    while place < len(codes) and place - first < 7:
        digit = _digit(codes[place])
        if digit >= base:
            break
        value = base * value + digit
        place += 1
    is_closed = place < len(codes) and codes[place] == _SEMICOLON and place > first
    is_agreed = 0x20 <= value < 0x7F or 0xA0 <= value < 0xD800 or 0xE000 <= value < 0xFDD0
    is_agreed |= 0xFDF0 <= value <= 0x10FFFF and value & 0xFFFE != 0xFFFE
    return place + 1 if is_closed and is_agreed else -1, value


@part
def _digit(code: int) -> int:
    """Return what a hexadecimal digit is worth, more than 15 for other characters."""
    if 48 <= code <= 57:
        return code - 48
    folded = code | 32
    return folded - 87 if 97 <= folded <= 102 else 99


@part
def _reference(codes: Codes, start: int, references: Table) -> tuple[int, int]:
    """Return where the reference that begins with a `&` ends, and its character; -1 when it is not simple."""
    place, key = _packed(codes, start + 1, False)
    if place == start + 1:
        is_number = place < len(codes) and codes[place] == _HASH
        return _number(codes, place + 1) if is_number else (place, _AND)  # a `&` that begins nothing stays
    code = _found(references, key)
    is_simple = code != 0 and place < len(codes) and codes[place] == _SEMICOLON
    return place + 1 if is_simple else -1, code


@part
def _fits_head(notes: npt.NDArray[np.int64], kind: int) -> bool:
    """Take note of where a page's head begins or ends; tell whether a tag may stand there."""
    is_inside = notes[_HEAD] == _IN_HEAD
    if kind & _IS_HEAD and not kind & _IS_CLOSING:
        may_begin = notes[_HEAD] == _NO_HEAD
        notes[_HEAD] = _HEAD_BEGINS
        return may_begin and not kind & _IS_CLOSED
    if is_inside and (kind & _IS_HEAD or (kind & _IS_BODY and not kind & _IS_CLOSING)):
        notes[_HEAD] = _HEAD_ENDS
        return not kind & _IS_CLOSED
    return is_inside or not kind & _IS_HEAD_ONLY


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
    step = -1 if kind & _IS_CLOSING else 1
    is_astray = (notes[_BETWEEN_CELLS] and not kind & _IS_PART) or (
        notes[_IN_TITLE] and not (kind & _IS_TITLE and step < 0)
    )
    is_astray |= not _fits_head(notes, kind)
    notes[_FOUND] += 1
    notes[_EVIDENT] += kind & _IS_EVIDENT != 0
    notes[_OPEN] += step if kind & _IS_DEEP else 0
    notes[_OPEN_FORMATTING] += step if kind & _IS_FORMATTING else 0
    notes[_DEEPEST] = max(notes[_DEEPEST], notes[_OPEN])
    notes[_BETWEEN_CELLS] = kind & _IS_PART != 0 and not (kind & (_IS_CELL if step > 0 else _IS_TABLE))
    notes[_IN_TITLE] = kind & _IS_TITLE != 0 and step > 0
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
    if _begins(codes, place):
        if codes[place + 1] == _MARK:
            notes[_FOUND] += 1
            notes[_EVIDENT] += 1
            return _declaration(codes, place) if not notes[_IN_TITLE] else -1, _NOTHING
        end, kind = _tag(codes, place, tags)
        if end >= 0 and kind & _IS_RAW and not kind & _IS_CLOSING:
            end = _raw_end(codes, place, end) if not kind & _IS_CLOSED else -1
        if end >= 0 and not kind & _IS_TEXT:
            seen = _SPACE if kind & _IS_BLOCK else _NOTHING
            return end if _is_noted(notes, kind) else -1, seen
        notes[_TEXT] += 1
    elif code == _AND:
        end, code = _reference(codes, place, references)
    else:
        end = place + 1
        notes[_TEXT] += code == _LESS
    return end if not notes[_BETWEEN_CELLS] or _is_space(codes[place]) else -1, code


@part
def _scan(codes: Codes, tags: Table, references: Table, out: Codes) -> tuple[int, bool]:
    """Write the visible text; return its length (-1: not simple), and whether nothing is left to do to it."""
    notes = np.zeros(10, np.int64)
    place, filled, is_done = 0, 0, True
    while place < len(codes):
        code = int(codes[place])
        if code in (_LESS, _AND) or notes[_BETWEEN_CELLS]:  # a call takes the time of 20 characters
            place, code = _next(codes, place, tags, references, notes)
            filled = _without_head(notes, filled)
        else:
            place += 1
        if place < 0 or _is_odd(code):
            return -1, False
        if code == _NOTHING:
            continue
        spelled = _spelled(code)
        if spelled == _NOTHING:
            spelled, is_done = code, False
        if spelled != _SPACE or (filled > 0 and out[filled - 1] != _SPACE):
            out[filled] = spelled
            filled += 1
    if filled > 0 and out[filled - 1] == _SPACE:
        filled -= 1
    return filled if _is_judged(notes, len(codes), filled) else -1, is_done


@compiled(
    "Tuple((int64[::1], b1[::1], b1[::1]))(int64[::1], Array(int32, 1, 'C', readonly=True), int64[:, ::1], "
    "int64[:, ::1], int32[::1])",
)
def _scan_all(
    offsets: npt.NDArray[np.int64], codes: Codes, tags: Table, references: Table, out: Codes
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Write the visible text of each text, all of them one after the other.

    Returns where each begins and ends, which texts are simple, and to which of them nothing is left to do.
    """
    stops = np.zeros_like(offsets)
    are_simple, are_done = np.zeros(len(offsets) - 1, np.bool_), np.zeros(len(offsets) - 1, np.bool_)
    for text in range(len(offsets) - 1):
        filled, are_done[text] = _scan(
            codes[offsets[text] : offsets[text + 1]], tags, references, out[stops[text] :]
        )
        are_simple[text] = filled >= 0
        stops[text + 1] = stops[text] + max(filled, 0)
    return stops, are_simple, are_done
