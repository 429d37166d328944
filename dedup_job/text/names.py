"""Names of tags and character references, packed into integers so that compiled code can look them up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html.entities import html5
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled, part
from dedup_job.text.characters import encode_text
from dedup_job.text.markup import BLOCK, FLAGS, FORMATTING, IMPLIED, KNOWN, TELLTALE, VOID, split_names

TABLE_PARTS: Final = split_names("table thead tbody tfoot tr td th")
CELLS: Final = split_names("td th")
RAW_TEXT: Final = split_names("script style")
# Only simple inside a head: elsewhere `_separate_blocks` replaces `<li` within `<link` when it separates
# blocks.
HEAD_ONLY: Final = split_names("link")
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
IS_RAW, IS_HEAD, IS_BODY, IS_HEAD_ONLY, IS_LINK = (1 << bit for bit in range(14, 19))
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
    sets |= {IS_FORMATTING: FORMATTING, IS_DEEP: KNOWN - VOID - IMPLIED, IS_SIMPLE: SIMPLE}
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
    names = {name[:-1]: value for name, value in html5.items() if name.endswith(";")}
    return _build_table(
        {
            name: ord(value)
            for name, value in names.items()
            if len(name) <= MAX_NAME_LENGTH and len(value) == 1
        }
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


@part
def look_up(table: NameTable, key: int) -> int:
    """Return the value of a key, 0 for a key that is not in the table."""
    row = _find_row(table, key)
    # Key 0 means "no name", and would match a free row.
    return int(table[row, 1]) if key != 0 and table[row, 0] == key else 0
