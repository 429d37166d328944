"""The visible text of simple HTML in one compiled pass; anything else goes to the parser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.arrays import Ragged
from dedup_job.native.numba_compile import compiled, compiled_helper
from dedup_job.text.code_points import decode_texts, encode_texts
from dedup_job.text.parsed_html import MAX_DEPTH, MAX_OPEN_FORMATTING
from dedup_job.text.simple_html_scanner import (
    AMPERSAND,
    EXCLAMATION,
    IS_APART,
    IS_BLOCK,
    IS_BODY,
    IS_CELL,
    IS_CLOSED,
    IS_CLOSING,
    IS_DEEP,
    IS_EVIDENT,
    IS_FORMATTING,
    IS_HEAD,
    IS_HEAD_CONTENT,
    IS_HEAD_ONLY,
    IS_LINK,
    IS_PART,
    IS_RAW,
    IS_TABLE,
    IS_TEXT,
    IS_TITLE,
    LESS_THAN,
    POINT,
    SPACE,
    WIDE_POINT,
    Codes,
    NameTable,
    begins_construct,
    begins_link,
    find_declaration_end,
    find_raw_text_end,
    is_changed_by_parser,
    is_digit,
    is_space,
    read_reference,
    read_tag,
    reference_table,
    tag_table,
)

MAX_SCAN_LENGTH: Final = 100_000  # characters
# Texts that are scanned together. More would not stay in the processor's cache.
BATCH_TEXTS: Final = 32
_NOTHING: Final = -1

# Indexes into the scan's state, int64 (12,): an array, because compiled functions share nothing else that
# changes.
(
    _TAGS,  # tags and declarations so far
    _EVIDENT,  # of them, those that show that the text is HTML
    _DEPTH,  # elements open now
    _OPEN_FORMATTING,  # formatting elements open now
    _DEEPEST,  # most elements open at once
    _BETWEEN_CELLS,  # 1: inside a table and outside of its cells, where only parts of a table are simple
    _ONLY_SPACE,  # 1: between cells, or in a head and outside of its title: other text is not simple
    _IN_TITLE,  # 1: only the end of the title is simple
    _HEAD,  # where in a page's head the scan is: one of the five values below
    _BEFORE_HEAD,  # characters written before the head
    _TEXT_LESS_THAN,  # `<` that are text
    _APART,  # 1: after a tag of an element whose digits stand apart
) = range(12)
_NO_HEAD, _HEAD_BEGINS, _IN_HEAD, _HEAD_ENDS, _HEAD_IS_PAST = range(5)
State = npt.NDArray[np.int64]


def scan_texts(texts: Sequence[str]) -> list[tuple[str, bool] | None]:
    """Return each simple text's visible text, and whether it is normalised; None for all other texts.

    A text is simple if each of its tags is in `SIMPLE`, in lower or upper case, with plain attributes,
    and each of its character references has a known name, or number, and a semicolon. The order of its words
    then does not depend on the tree that a parser builds: a tag of a block leaves a space, and so does the
    end of a link before another link, and a tag of APART between two digits; any other tag leaves nothing.
    Further:

    - A parser moves text that stands in a table and outside of its cells, so a simple text has none there.
    - A title holds no tags.
    - Comments, scripts and styles without a `<` in them are skipped. The head of a page is skipped, too; it
      holds nothing but HEAD_CONTENT.
    - Names that HTML does not know, without attributes, are text: `<int>`, `<Best Co>`.

    Nearly all texts from an editor are simple.
    tests/unit/text/test_simple_html.py compares the scan with the parser.

    White space is folded, and the most frequent wide characters are written narrow.

    >>> scan_texts(['<p class="x">a &lt; <b>b</b></p>\\n<p>c，<d>', "é &amp; c", "<table>"])
    [('a < b c,<d>', True), ('é & c', False), None]
    """
    results: list[tuple[str, bool] | None] = []
    for start in range(0, len(texts), BATCH_TEXTS):
        results += _scan_batch(texts[start : start + BATCH_TEXTS])
    return results


def _scan_batch(texts: Sequence[str]) -> list[tuple[str, bool] | None]:
    """Scan some texts in one call of compiled code."""
    # "\0" is not simple: long texts are left to the parser.
    codes = encode_texts(
        [text.removeprefix("\ufeff") if len(text) <= MAX_SCAN_LENGTH else "\0" for text in texts]
    )
    out = np.empty(len(codes.values), np.int32)
    stops, are_simple, are_normalised = _scan_all(
        codes.offsets, codes.values.view(np.int32), tag_table(), reference_table(), out
    )
    visible = decode_texts(Ragged(stops, out.view(np.uint32)))
    results = zip(visible, are_simple.tolist(), are_normalised.tolist(), strict=True)
    return [(text, is_normalised) if is_simple else None for text, is_simple, is_normalised in results]


@compiled_helper
def _normalise_character(code: int) -> int:
    """Return the normal form of a frequent character, a space for white space, _NOTHING for all others.

    The rule is that of `Cleaner`, written as branches.
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


@compiled_helper
def _track_head(state: State, kind: int) -> bool:
    """Note where a page's head begins or ends; return whether a tag of this kind is simple here."""
    is_inside = state[_HEAD] == _IN_HEAD
    if kind & IS_HEAD and not kind & IS_CLOSING:
        may_begin = state[_HEAD] == _NO_HEAD
        state[_HEAD] = _HEAD_BEGINS
        return may_begin and not kind & IS_CLOSED
    # A body ends the head as well: `</head>` may be missing.
    if is_inside and (kind & IS_HEAD or (kind & IS_BODY and not kind & IS_CLOSING)):
        state[_HEAD] = _HEAD_ENDS
        return not kind & IS_CLOSED
    if is_inside:
        return kind & IS_HEAD_CONTENT != 0 and (not kind & IS_CLOSING or kind & (IS_TITLE | IS_RAW) != 0)
    return not kind & IS_HEAD_ONLY


@compiled_helper
def _discard_head(state: State, length: int) -> int:
    """Return the length of the output: at the end of a head, the length before the head."""
    if state[_HEAD] == _HEAD_BEGINS:
        state[_HEAD], state[_BEFORE_HEAD] = _IN_HEAD, length
    elif state[_HEAD] == _HEAD_ENDS:
        state[_HEAD] = _HEAD_IS_PAST
        return int(state[_BEFORE_HEAD])
    return length


@compiled_helper
def _track_tag(state: State, kind: int) -> bool:
    """Enter a tag into the state; return whether it is simple here."""
    step = -1 if kind & IS_CLOSING else 1
    is_misplaced = (state[_BETWEEN_CELLS] and not kind & IS_PART) or (
        state[_IN_TITLE] and not (kind & IS_TITLE and step < 0)
    )
    is_misplaced |= not _track_head(state, kind)
    state[_TAGS] += 1
    state[_EVIDENT] += kind & IS_EVIDENT != 0
    state[_DEPTH] += step if kind & IS_DEEP else 0
    state[_OPEN_FORMATTING] += step if kind & IS_FORMATTING else 0
    state[_DEEPEST] = max(state[_DEEPEST], state[_DEPTH])
    # True after every part of a table but the start of a cell and the end of the table.
    state[_BETWEEN_CELLS] = kind & IS_PART != 0 and not (kind & (IS_CELL if step > 0 else IS_TABLE))
    state[_IN_TITLE] = kind & IS_TITLE != 0 and step > 0
    is_in_head = state[_HEAD] == _HEAD_BEGINS or state[_HEAD] == _IN_HEAD
    state[_ONLY_SPACE] = state[_BETWEEN_CELLS] or (is_in_head and not state[_IN_TITLE])
    state[_APART] |= kind & IS_APART != 0
    return not is_misplaced


@compiled_helper
def _accept_result(state: State, length: int, visible_length: int) -> bool:
    """Return whether the parser would read the whole text like the scan.

    It does if the text is HTML or has no tag, exceeds no limit of the parser, and leaves enough text.
    """
    is_html = state[_TAGS] == 0 or state[_EVIDENT] > 0
    is_too_complex = state[_OPEN_FORMATTING] > MAX_OPEN_FORMATTING or state[_DEEPEST] > MAX_DEPTH
    is_unclosed = state[_IN_TITLE] or state[_HEAD] == _IN_HEAD
    # The text's length as the parser gets it: a space at each tag, and `&lt;` for each `<` that is text.
    parsed_length = length + state[_TAGS] + 3 * state[_TEXT_LESS_THAN]
    # 10 is 1 / MIN_TEXT_SHARE.
    return is_html and not is_too_complex and not is_unclosed and 10 * visible_length >= parsed_length


@compiled_helper
def _read_construct(
    codes: Codes, place: int, tags: NameTable, references: NameTable, state: State
) -> tuple[int, int]:
    """Read the character, reference or tag at a place.

    Returns:
        Where it ends (-1: not simple), and the character it leaves in the text, or _NOTHING.
    """
    code = int(codes[place])
    if begins_construct(codes, place):
        if codes[place + 1] == EXCLAMATION:
            state[_TAGS] += 1
            state[_EVIDENT] += 1
            return find_declaration_end(codes, place) if not state[_IN_TITLE] else -1, _NOTHING
        end, kind = read_tag(codes, place, tags)
        if end >= 0 and kind & IS_RAW and not kind & IS_CLOSING:
            end = find_raw_text_end(codes, place, end) if not kind & IS_CLOSED else -1
        if end >= 0 and not kind & IS_TEXT:
            is_between_links = kind & IS_LINK and kind & IS_CLOSING and begins_link(codes, end)
            left = SPACE if kind & IS_BLOCK or is_between_links else _NOTHING
            return end if _track_tag(state, kind) else -1, left
        state[_TEXT_LESS_THAN] += 1
    elif code == AMPERSAND:
        end, code = read_reference(codes, place, references)
    else:
        end = place + 1
        state[_TEXT_LESS_THAN] += code == LESS_THAN
    return end if not state[_ONLY_SPACE] or is_space(codes[place]) else -1, code


@compiled_helper
def _ends_in_digit(out: Codes) -> bool:
    """Return whether a text ends in a digit, or in a digit and a point."""
    length = len(out)
    if length > 1 and (out[length - 1] == POINT or out[length - 1] == WIDE_POINT):
        length -= 1
    return length > 0 and is_digit(out[length - 1])


@compiled_helper
def _scan(codes: Codes, tags: NameTable, references: NameTable, state: State, out: Codes) -> tuple[int, bool]:
    """Write the visible text of one text to `out`.

    Returns:
        Its length (-1: not simple), and whether it is normalised.
    """
    state[:] = 0
    place, length, is_normalised = 0, 0, True
    while place < len(codes):
        code = int(codes[place])
        # Ordinary characters are read right here: a call takes as long as 20 of them.
        if code in (LESS_THAN, AMPERSAND) or state[_ONLY_SPACE]:
            place, code = _read_construct(codes, place, tags, references, state)
            length = _discard_head(state, length)
        else:
            place += 1
        if place < 0 or is_changed_by_parser(code):
            return -1, False
        if code == _NOTHING:
            continue
        normal = _normalise_character(code)
        if normal == _NOTHING:
            # A rare character: `Cleaner` normalises the text afterwards.
            normal, is_normalised = code, False
        if state[_APART]:
            state[_APART] = 0
            if is_digit(normal) and _ends_in_digit(out[:length]):
                out[length] = SPACE
                length += 1
        if normal != SPACE or (length > 0 and out[length - 1] != SPACE):
            out[length] = normal
            length += 1
    if length > 0 and out[length - 1] == SPACE:
        length -= 1
    return length if _accept_result(state, len(codes), length) else -1, is_normalised


@compiled
def _scan_all(
    offsets: npt.NDArray[np.int64], codes: Codes, tags: NameTable, references: NameTable, out: Codes
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Write the visible text of each text to `out`, one after the other.

    Args:
        offsets: int64 (n + 1,): text i is codes[offsets[i] : offsets[i + 1]].
        out: int32, as long as `codes`.

    Returns:
        Where each visible text ends in `out`, int64 (n + 1,); which texts are simple; which are normalised.
    """
    stops = np.zeros_like(offsets)
    are_simple, are_normalised = np.zeros(len(offsets) - 1, np.bool_), np.zeros(len(offsets) - 1, np.bool_)
    state = np.zeros(12, np.int64)
    for text in range(len(offsets) - 1):
        length, are_normalised[text] = _scan(
            codes[offsets[text] : offsets[text + 1]], tags, references, state, out[stops[text] :]
        )
        are_simple[text] = length >= 0
        stops[text + 1] = stops[text] + max(length, 0)
    return stops, are_simple, are_normalised
