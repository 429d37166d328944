"""Compiled helpers for simple HTML: where tags, declarations and character references end."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from html.entities import html5
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.numba_compile import compiled, compiled_helper
from dedup_job.text.code_points import encode_text
from dedup_job.text.parsed_html import (
    APART,
    BLOCK,
    FLAGS,
    FORMATTING,
    IMPLIED,
    KNOWN,
    MAX_TAG_LENGTH,
    TELLTALE,
    VOID,
    split_names,
)

TABLE_PARTS: Final = split_names("table thead tbody tfoot tr td th")
CELLS: Final = split_names("td th")
RAW_TEXT: Final = split_names("script style")
# Only simple inside a head: elsewhere `_separate_blocks` replaces `<li` within `<link` when it separates
# blocks.
HEAD_ONLY: Final = split_names("link")
# All that is simple inside a head: anything else ends it.
HEAD_CONTENT: Final = split_names("title script style meta link")
PAGE: Final = split_names("html head body")
CONTENT: Final = split_names(
    """a abbr address article aside b big blockquote br center cite code dd del details div dl dt em fieldset
    figcaption figure font footer form h1 h2 h3 h4 h5 h6 header hr i img ins kbd li main mark meta nav ol p
    pre q s samp section small span strike strong sub summary sup title tt u ul var wbr"""
)
SIMPLE: Final = TABLE_PARTS | RAW_TEXT | HEAD_ONLY | PAGE | CONTENT
"""Tags that the scan reads without a parser: see `scan_texts`."""

# The kind of a tag is a set of these bits.
IS_KNOWN, IS_SIMPLE, IS_TEXT, IS_BLOCK, IS_PART, IS_CELL, IS_TABLE, IS_TITLE = (1 << bit for bit in range(8))
IS_FORMATTING, IS_DEEP, IS_TELLTALE, IS_CLOSING, HAS_VALUE, IS_CLOSED = (1 << bit for bit in range(8, 14))
IS_RAW, IS_HEAD, IS_BODY, IS_HEAD_ONLY, IS_LINK, IS_APART, IS_HEAD_CONTENT = (
    1 << bit for bit in range(14, 21)
)
# Any of these shows that a text is HTML.
IS_EVIDENT: Final = IS_TELLTALE | IS_CLOSING | HAS_VALUE | IS_CLOSED
# Six bits a letter: ten letters fit into a non-negative int64.
MAX_NAME_LENGTH: Final = 10

Codes = npt.NDArray[np.int32]
NameTable = npt.NDArray[np.int64]
"""Shape (n, 2): a packed name (0: free row) and its value."""


@cache
def tag_table() -> NameTable:
    """Return the kind of each tag by its name, in lower and in upper case.

    Attributes without a value (FLAGS) are in the table as well, with the kind IS_KNOWN.
    """
    sets = {IS_BLOCK: BLOCK, IS_PART: TABLE_PARTS, IS_CELL: CELLS, IS_TABLE: {"table"}, IS_TITLE: {"title"}}
    sets |= {IS_RAW: RAW_TEXT, IS_HEAD: {"head"}, IS_BODY: {"body"}, IS_HEAD_ONLY: HEAD_ONLY, IS_LINK: {"a"}}
    sets |= {
        IS_HEAD_CONTENT: HEAD_CONTENT,
        IS_APART: APART,
        IS_FORMATTING: FORMATTING,
        IS_DEEP: KNOWN - VOID - IMPLIED,
        IS_SIMPLE: SIMPLE,
    }
    kinds = {}
    for name in KNOWN | FLAGS:
        kind = sum(bit for bit, names in sets.items() if name in names) | IS_KNOWN
        for spelling in (name, name.upper()):
            kinds[spelling] = kind | (IS_TELLTALE if spelling in TELLTALE else 0)
    return _build_table(kinds)


@cache
def reference_table() -> NameTable:
    """Return the code point of each named character reference, such as `nbsp`.

    Names of more than ten characters, and names of two code points, are left to the parser.
    """
    return _build_table(
        {name[:-1]: ord(value) for name, value in html5.items() if name.endswith(";") and len(value) == 1}
    )


def _build_table(values: Mapping[str, int]) -> NameTable:
    """Build a table for `look_up`, at most half full; names of more than ten characters are left out."""
    table = np.zeros((1 << (2 * len(values)).bit_length(), 2), np.int64)
    for name, value in values.items():
        _, key = pack_name(encode_text(name).view(np.int32), 0, False)
        if key:
            table[_find_row(table, key)] = key, value
    return table


@compiled
def pack_name(codes: Codes, place: int, ignore_case: bool) -> tuple[int, int]:
    """Pack the ASCII letters and digits that begin at a place into an integer, six bits each.

    `li` becomes 48 << 6 | 45.

    Args:
        ignore_case: Pack upper case letters like lower case ones.

    Returns:
        Where the name ends, and its key: 0 for no name, and for a name of more than ten characters.
    """
    key, start = 0, place
    while place < len(codes):
        code = int(codes[place])
        if 97 <= code <= 122:  # a - z: 37 to 62
            key = key << 6 | code - 60
        elif 65 <= code <= 90:  # A - Z: 11 to 36
            key = key << 6 | code - (28 if ignore_case else 54)
        elif 48 <= code <= 57:  # 0 - 9: 1 to 10
            key = key << 6 | code - 47
        else:
            break
        place += 1
    return place, key if place - start <= MAX_NAME_LENGTH else 0


@compiled
def _find_row(table: NameTable, key: int) -> int:
    """Return the row of a key, or the free row where it belongs (open addressing)."""
    mask = len(table) - 1
    row = ((key ^ key >> 30) * 0x9E3779B1 >> 20) & mask
    while table[row, 0] != 0 and table[row, 0] != key:
        row = row + 1 & mask
    return row


@compiled_helper
def look_up(table: NameTable, key: int) -> int:
    """Return the value of a key, 0 for a key that is not in the table."""
    row = _find_row(table, key)
    # Key 0 means "no name", and would match a free row.
    return int(table[row, 1]) if key != 0 and table[row, 0] == key else 0


SPACE, LESS_THAN, GREATER_THAN, SLASH, AMPERSAND, HASH, SEMICOLON, EQUALS, HYPHEN, EXCLAMATION, LOWER_X = map(
    ord, " <>/&#;=-!x"
)
BYTE_ORDER_MARK: Final = 0xFEFF
NAME_PUNCTUATION: Final = (45, 46, 58, 95)  # - . : _
DOUBLE_QUOTE, SINGLE_QUOTE = map(ord, "\"'")
POINT, WIDE_POINT = map(ord, ".\uff0e")
# `pack_name` of "doctype" in either case. It is a constant because numba compiles globals in.
DOCTYPE: Final = reduce(lambda key, letter: key << 6 | ord(letter) - 60, "doctype", 0)


@compiled_helper
def is_space(code: int) -> bool:
    """Return whether a character separates attributes."""
    return code == SPACE or code == 9 or code == 10 or code == 12 or code == 13


@compiled_helper
def is_digit(code: int) -> bool:
    """Return whether a character is a digit, ASCII or wide."""
    return 48 <= code <= 57 or 0xFF10 <= code <= 0xFF19


@compiled_helper
def begins_construct(codes: Codes, place: int) -> bool:
    """Return whether a `<` at this place may begin a tag, comment or declaration."""
    if codes[place] != LESS_THAN or place + 1 == len(codes):
        return False
    code = int(codes[place + 1])
    return 97 <= code <= 122 or 65 <= code <= 90 or code == SLASH or code == 33 or code == 63  # ! ?


@compiled_helper
def begins_link(codes: Codes, place: int) -> bool:
    """Return whether the start tag of a link, `<a`, begins at this place."""
    # code | 32 is the lower case of an ASCII letter.
    if place + 2 >= len(codes) or codes[place] != LESS_THAN or codes[place + 1] | 32 != 97:
        return False
    code = int(codes[place + 2])
    return is_space(code) or code in (SLASH, GREATER_THAN)


@compiled_helper
def _skip_attribute(codes: Codes, place: int) -> int:
    """Return where an attribute with a value ends, or -1 if it is not simple."""
    start = place
    while place < len(codes) and (pack_name(codes, place, False)[0] > place or codes[place] == HYPHEN):
        place = max(pack_name(codes, place, False)[0], place + 1)
    if place == start or place + 1 >= len(codes) or codes[place] != EQUALS:
        return -1
    quote = int(codes[place + 1])
    if quote != DOUBLE_QUOTE and quote != SINGLE_QUOTE:
        end, _ = pack_name(codes, place + 1, False)
        return end if end > place + 1 else -1
    place += 2
    while place < len(codes) and codes[place] != quote:
        # A `<` or `>` in a value may mean that a quote is missing, which only the whole text can decide.
        if codes[place] == LESS_THAN or codes[place] == GREATER_THAN or codes[place] == 0:
            return -1
        place += 1
    return place + 1 if place < len(codes) else -1


@compiled_helper
def _is_unknown_name(codes: Codes, place: int, tags: NameTable) -> bool:
    """Return whether a name that HTML does not know, without attributes, begins here: `int>`, `Best Co>`."""
    end, key = pack_name(codes, place, True)
    if key == 0 or look_up(tags, key) != 0:
        return False
    while end < len(codes) and (pack_name(codes, end, False)[0] > end or codes[end] in NAME_PUNCTUATION):
        end += 1
    if end + 1 >= len(codes) or codes[end] != SPACE:
        return end < len(codes) and codes[end] == GREATER_THAN
    # A second word. If it is a flag such as `open`, this may be a tag.
    end, key = pack_name(codes, end + 1, True)
    if key == 0 or look_up(tags, key) != 0 or end + 1 >= len(codes):
        return False
    return codes[end] == GREATER_THAN or (
        codes[end] == SPACE and pack_name(codes, end + 1, False)[0] > end + 1
    )


@compiled_helper
def read_tag(codes: Codes, start: int, tags: NameTable) -> tuple[int, int]:
    """Return where the tag that begins with the `<` at `start` ends, and its kind; -1 if it is not simple.

    A `<` before an unknown name begins no tag: its kind is IS_TEXT, and it ends after the `<`.
    """
    is_closing = codes[start + 1] == SLASH
    name = start + (2 if is_closing else 1)
    place, key = pack_name(codes, name, False)
    kind = look_up(tags, key)
    if not kind & IS_SIMPLE:
        is_text = not is_closing and _is_unknown_name(codes, name, tags)
        return start + 1 if is_text else -1, IS_TEXT
    kind |= IS_CLOSING if is_closing else 0
    while place < len(codes) and is_space(codes[place]):
        place += 1
        if place < len(codes) and (pack_name(codes, place, False)[0] > place or codes[place] == HYPHEN):
            place = _skip_attribute(codes, place)
            kind |= HAS_VALUE
            if place < 0 or is_closing:
                return -1, 0
    if place < len(codes) and codes[place] == SLASH and not is_closing:
        place += 1
        kind |= IS_CLOSED
    is_simple = place < len(codes) and codes[place] == GREATER_THAN and place - start < MAX_TAG_LENGTH
    return place + 1 if is_simple else -1, kind


@compiled_helper
def find_declaration_end(codes: Codes, start: int) -> int:
    """Return where the comment or document type that begins with `<!` ends; -1 if it is not simple."""
    place, key = pack_name(codes, start + 2, True)
    if key == DOCTYPE and place < len(codes) and (is_space(codes[place]) or codes[place] == GREATER_THAN):
        end = _find_character(codes, place, GREATER_THAN)
        return end + 1 if end >= 0 and codes[end] == GREATER_THAN else -1
    place = start + 4
    if place >= len(codes) or codes[start + 2] != HYPHEN or codes[start + 3] != HYPHEN:
        return -1
    # `<!-->` and `<!--->` are whole comments in HTML.
    if codes[place] == GREATER_THAN or codes[place] == HYPHEN:
        return -1
    while place >= 0 and codes[place] != LESS_THAN:
        place = _find_character(codes, place, HYPHEN)
        if place >= 0 and codes[place] == HYPHEN:
            place += 1
            # `--!` may end a comment as well.
            if place + 1 >= len(codes) or (codes[place] == HYPHEN and codes[place + 1] == EXCLAMATION):
                return -1
            if codes[place] == HYPHEN and codes[place + 1] == GREATER_THAN:
                return place + 2
    return -1


@compiled_helper
def _find_character(codes: Codes, place: int, character: int) -> int:
    """Return the place of this character or of a `<`, whichever comes first.

    -1 if there is neither, or a character before it that the parser changes.
    """
    while place < len(codes) and codes[place] != character and codes[place] != LESS_THAN:
        if is_changed_by_parser(codes[place]):
            return -1
        place += 1
    return place if place < len(codes) else -1


@compiled_helper
def find_raw_text_end(codes: Codes, start: int, place: int) -> int:
    """Return the place of the closing tag of a script or style; -1 if another `<` comes before it.

    Args:
        start: Place of the start tag.
        place: Place of the text after the start tag.
    """
    end = _find_character(codes, place, LESS_THAN)
    if end < 0 or end + 1 >= len(codes) or codes[end + 1] != SLASH:
        return -1
    _, key = pack_name(codes, start + 1, True)
    return end if pack_name(codes, end + 2, True)[1] == key else -1


@compiled_helper
def is_changed_by_parser(code: int) -> bool:
    """Return whether the parser changes a character: NUL, byte order mark, half of a surrogate pair."""
    return code == 0 or code == BYTE_ORDER_MARK or 0xD800 <= code <= 0xDFFF


@compiled_helper
def _read_number(codes: Codes, start: int) -> tuple[int, int]:
    """Return where a numeric reference ends, and its code point; -1 where decoders disagree about it."""
    is_hex = start < len(codes) and codes[start] | 32 == LOWER_X
    base = 16 if is_hex else 10
    first = start + is_hex
    value, place = 0, first
    # Seven digits are enough for every code point, and cannot overflow.
    while place < len(codes) and place - first < 7:
        digit = _hex_digit_value(codes[place])
        if digit >= base:
            break
        value = base * value + digit
        place += 1
    is_closed = place < len(codes) and codes[place] == SEMICOLON and place > first
    # Without controls, surrogates and noncharacters: HTML decoders replace, drop or keep those.
    is_agreed = 0x20 <= value < 0x7F or 0xA0 <= value < 0xD800 or 0xE000 <= value < 0xFDD0
    is_agreed |= 0xFDF0 <= value <= 0x10FFFF and value & 0xFFFE != 0xFFFE
    return place + 1 if is_closed and is_agreed else -1, value


@compiled_helper
def _hex_digit_value(code: int) -> int:
    """Return the value of a hexadecimal digit, 99 for other characters."""
    if 48 <= code <= 57:
        return code - 48
    lower = code | 32
    return lower - 87 if 97 <= lower <= 102 else 99


@compiled_helper
def read_reference(codes: Codes, start: int, references: NameTable) -> tuple[int, int]:
    """Return where the reference that begins with the `&` at `start` ends, and its code point.

    The end is -1 if the reference is not simple.
    """
    place, key = pack_name(codes, start + 1, False)
    if place == start + 1:
        is_number = place < len(codes) and codes[place] == HASH
        # A `&` that begins no reference stays a `&`.
        return _read_number(codes, place + 1) if is_number else (place, AMPERSAND)
    code = look_up(references, key)
    is_simple = code != 0 and place < len(codes) and codes[place] == SEMICOLON
    return place + 1 if is_simple else -1, code
