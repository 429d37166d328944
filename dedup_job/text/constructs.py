"""Where tags, declarations and character references of simple HTML end, for compiled code.

Every function gets the code points of a whole text and a place in it. It returns -1 as the end of a construct
that is not simple: `scan_texts` then leaves the text to the parser.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from dedup_job.native.compiled import part
from dedup_job.text.markup import MAX_TAG_LENGTH
from dedup_job.text.names import (
    HAS_VALUE,
    IS_CLOSED,
    IS_CLOSING,
    IS_SIMPLE,
    IS_TEXT,
    Codes,
    NameTable,
    look_up,
    pack_name,
)

SPACE, LESS_THAN, GREATER_THAN, SLASH, AMPERSAND, HASH, SEMICOLON, EQUALS, HYPHEN, EXCLAMATION, LOWER_X = map(
    ord, " <>/&#;=-!x"
)
BYTE_ORDER_MARK: Final = 0xFEFF
NAME_PUNCTUATION: Final = (45, 46, 58, 95)  # - . : _
DOUBLE_QUOTE, SINGLE_QUOTE = map(ord, "\"'")
# `pack_name` of "doctype" in either case. It is a constant because numba compiles globals in.
DOCTYPE: Final = reduce(lambda key, letter: key << 6 | ord(letter) - 60, "doctype", 0)


@part
def is_space(code: int) -> bool:
    """Return whether a character separates attributes."""
    return code == SPACE or code == 9 or code == 10 or code == 12 or code == 13


@part
def begins_construct(codes: Codes, place: int) -> bool:
    """Return whether a `<` at this place may begin a tag, comment or declaration."""
    if codes[place] != LESS_THAN or place + 1 == len(codes):
        return False
    code = int(codes[place + 1])
    return 97 <= code <= 122 or 65 <= code <= 90 or code == SLASH or code == 33 or code == 63  # ! ?


@part
def begins_link(codes: Codes, place: int) -> bool:
    """Return whether the start tag of a link, `<a`, begins at this place."""
    # code | 32 is the lower case of an ASCII letter.
    if place + 2 >= len(codes) or codes[place] != LESS_THAN or codes[place + 1] | 32 != 97:
        return False
    code = int(codes[place + 2])
    return is_space(code) or code in (SLASH, GREATER_THAN)


@part
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


@part
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


@part
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


@part
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


@part
def _find_character(codes: Codes, place: int, character: int) -> int:
    """Return the place of this character or of a `<`, whichever comes first.

    -1 if there is neither, or a character before it that the parser changes.
    """
    while place < len(codes) and codes[place] != character and codes[place] != LESS_THAN:
        if is_changed_by_parser(codes[place]):
            return -1
        place += 1
    return place if place < len(codes) else -1


@part
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


@part
def is_changed_by_parser(code: int) -> bool:
    """Return whether the parser changes a character: NUL, byte order mark, half of a surrogate pair."""
    return code == 0 or code == BYTE_ORDER_MARK or 0xD800 <= code <= 0xDFFF


@part
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


@part
def _hex_digit_value(code: int) -> int:
    """Return the value of a hexadecimal digit, 99 for other characters."""
    if 48 <= code <= 57:
        return code - 48
    lower = code | 32
    return lower - 87 if 97 <= lower <= 102 else 99


@part
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
