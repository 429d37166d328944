"""Constructs of simple markup: where a tag, a declaration or a character reference ends, and what it is.

What is not simple ends at -1: see `scan`.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from dedup_job.native.compiled import part
from dedup_job.text.markup import LONGEST_TAG
from dedup_job.text.names import (
    HAS_VALUE,
    IS_CLOSED,
    IS_CLOSING,
    IS_SIMPLE,
    IS_TEXT,
    Codes,
    Table,
    packed,
    value_of,
)

SPACE, LESS, GREATER, SLASH, AND, HASH, SEMICOLON, EQUALS, MINUS, MARK, X = map(ord, " <>/&#;=-!x")
BOM: Final = 0xFEFF
IN_NAMES: Final = (45, 46, 58, 95)  # - . : _
DOUBLE_QUOTE, QUOTE = map(ord, "\"'")
DOCTYPE: Final = reduce(lambda key, letter: key << 6 | ord(letter) - 60, "doctype", 0)  # as packed has it


@part
def is_space(code: int) -> bool:
    """Tell whether a character separates attributes."""
    return code == SPACE or code == 9 or code == 10 or code == 12 or code == 13


@part
def begins_construct(codes: Codes, place: int) -> bool:
    """Tell whether a `<` may begin a tag, comment or declaration."""
    if codes[place] != LESS or place + 1 == len(codes):
        return False
    code = int(codes[place + 1])
    return 97 <= code <= 122 or 65 <= code <= 90 or code == SLASH or code == 33 or code == 63  # ! ?


@part
def begins_link(codes: Codes, place: int) -> bool:
    """Tell whether the start tag of a link begins."""
    if place + 2 >= len(codes) or codes[place] != LESS or codes[place + 1] | 32 != 97:
        return False
    code = int(codes[place + 2])
    return is_space(code) or code in (SLASH, GREATER)


@part
def _attribute(codes: Codes, place: int) -> int:
    """Return where an attribute with a value ends, or -1 when it is not simple."""
    start = place
    while place < len(codes) and (packed(codes, place, False)[0] > place or codes[place] == MINUS):
        place = max(packed(codes, place, False)[0], place + 1)
    if place == start or place + 1 >= len(codes) or codes[place] != EQUALS:
        return -1
    quote = int(codes[place + 1])
    if quote != DOUBLE_QUOTE and quote != QUOTE:
        end, _ = packed(codes, place + 1, False)
        return end if end > place + 1 else -1
    place += 2
    while place < len(codes) and codes[place] != quote:
        if codes[place] == LESS or codes[place] == GREATER or codes[place] == 0:
            return -1
        place += 1
    return place + 1 if place < len(codes) else -1


@part
def _is_foreign(codes: Codes, place: int, tags: Table) -> bool:
    """Tell whether there is a name that HTML does not know, without attributes: `int>`, `Best Co>`."""
    end, key = packed(codes, place, True)
    if key == 0 or value_of(tags, key) != 0:
        return False
    while end < len(codes) and (packed(codes, end, False)[0] > end or codes[end] in IN_NAMES):
        end += 1
    if end + 1 >= len(codes) or codes[end] != SPACE:
        return end < len(codes) and codes[end] == GREATER
    end, key = packed(codes, end + 1, True)
    if key == 0 or value_of(tags, key) != 0 or end + 1 >= len(codes):  # it may be a flag
        return False
    return codes[end] == GREATER or (codes[end] == SPACE and packed(codes, end + 1, False)[0] > end + 1)


@part
def read_tag(codes: Codes, start: int, tags: Table) -> tuple[int, int]:
    """Return where the tag that begins with a `<` ends, and its kind; -1 when it is not simple.

    A `<` that begins a foreign name is no tag: it ends there, and its kind is text.
    """
    is_closing = codes[start + 1] == SLASH
    name = start + (2 if is_closing else 1)
    place, key = packed(codes, name, False)
    kind = value_of(tags, key)
    if not kind & IS_SIMPLE:
        is_text = not is_closing and _is_foreign(codes, name, tags)
        return start + 1 if is_text else -1, IS_TEXT
    kind |= IS_CLOSING if is_closing else 0
    while place < len(codes) and is_space(codes[place]):
        place += 1
        if place < len(codes) and (packed(codes, place, False)[0] > place or codes[place] == MINUS):
            place = _attribute(codes, place)
            kind |= HAS_VALUE
            if place < 0 or is_closing:
                return -1, 0
    if place < len(codes) and codes[place] == SLASH and not is_closing:
        place += 1
        kind |= IS_CLOSED
    is_simple = place < len(codes) and codes[place] == GREATER and place - start < LONGEST_TAG
    return place + 1 if is_simple else -1, kind


@part
def end_of_declaration(codes: Codes, start: int) -> int:
    """Return where the comment or document type that begins with `<!` ends; -1 when it is not simple."""
    place, key = packed(codes, start + 2, True)
    if key == DOCTYPE and place < len(codes) and (is_space(codes[place]) or codes[place] == GREATER):
        end = _passed_over(codes, place, GREATER)
        return end + 1 if end >= 0 and codes[end] == GREATER else -1
    place = start + 4
    if place >= len(codes) or codes[start + 2] != MINUS or codes[start + 3] != MINUS:
        return -1
    if codes[place] == GREATER or codes[place] == MINUS:  # it may be its end already
        return -1
    while place >= 0 and codes[place] != LESS:
        place = _passed_over(codes, place, MINUS)
        if place >= 0 and codes[place] == MINUS:
            place += 1
            if place + 1 >= len(codes) or (codes[place] == MINUS and codes[place + 1] == MARK):
                return -1
            if codes[place] == MINUS and codes[place + 1] == GREATER:
                return place + 2
    return -1


@part
def _passed_over(codes: Codes, place: int, wanted: int) -> int:
    """Return where this character or a `<` is; -1 when there is neither, or something odd before it."""
    while place < len(codes) and codes[place] != wanted and codes[place] != LESS:
        if is_odd(codes[place]):
            return -1
        place += 1
    return place if place < len(codes) else -1


@part
def end_of_raw(codes: Codes, start: int, place: int) -> int:
    """Return where the closing tag is of the script or style that begins at `start`, its text at `place`.

    -1 when there is another `<` before it.
    """
    end = _passed_over(codes, place, LESS)
    if end < 0 or end + 1 >= len(codes) or codes[end + 1] != SLASH:
        return -1
    _, key = packed(codes, start + 1, True)
    return end if packed(codes, end + 2, True)[1] == key else -1


@part
def is_odd(code: int) -> bool:
    """Tell whether the parser changes a character."""
    return code == 0 or code == BOM or 0xD800 <= code <= 0xDFFF


@part
def _number(codes: Codes, start: int) -> tuple[int, int]:
    """Return where a number ends, and its character; -1 when not all decoders agree on it."""
    is_hex = start < len(codes) and codes[start] | 32 == X
    base = 16 if is_hex else 10
    first = start + is_hex
    value, place = 0, first
    while place < len(codes) and place - first < 7:
        digit = _digit(codes[place])
        if digit >= base:
            break
        value = base * value + digit
        place += 1
    is_closed = place < len(codes) and codes[place] == SEMICOLON and place > first
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
def read_reference(codes: Codes, start: int, references: Table) -> tuple[int, int]:
    """Return where the reference that begins with a `&` ends, and its character; -1 when it is not simple."""
    place, key = packed(codes, start + 1, False)
    if place == start + 1:
        is_number = place < len(codes) and codes[place] == HASH
        return _number(codes, place + 1) if is_number else (place, AND)  # a `&` that begins nothing stays
    code = value_of(references, key)
    is_simple = code != 0 and place < len(codes) and codes[place] == SEMICOLON
    return place + 1 if is_simple else -1, code
