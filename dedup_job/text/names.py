"""Names: tags and character references, packed into numbers that compiled code looks up.

Worked example: `li` is packed as 48 << 6 | 45, six bits a letter, and stands in the table with what kind of
tag it is, in lower and in upper case.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html.entities import html5
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled, part
from dedup_job.text.characters import encoded
from dedup_job.text.markup import BLOCK, FLAGS, FORMATTING, IMPLIED, KNOWN, TELLTALE, VOID, names_of

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
IS_KNOWN, IS_SIMPLE, IS_TEXT, IS_BLOCK, IS_PART, IS_CELL, IS_TABLE, IS_TITLE = (1 << bit for bit in range(8))
IS_FORMATTING, IS_DEEP, IS_TELLTALE, IS_CLOSING, HAS_VALUE, IS_CLOSED = (1 << bit for bit in range(8, 14))
IS_RAW, IS_HEAD, IS_BODY, IS_HEAD_ONLY, IS_LINK = (1 << bit for bit in range(14, 19))
IS_EVIDENT: Final = IS_TELLTALE | IS_CLOSING | HAS_VALUE | IS_CLOSED
LONGEST_NAME: Final = 10

Codes = npt.NDArray[np.int32]
Table = npt.NDArray[np.int64]


@cache
def tag_table() -> Table:
    """Return of what kind each tag is, by its name in lower and in upper case; flags are known names, too."""
    sets = {IS_BLOCK: BLOCK, IS_PART: PARTS, IS_CELL: CELLS, IS_TABLE: {"table"}, IS_TITLE: {"title"}}
    sets |= {IS_RAW: RAW, IS_HEAD: {"head"}, IS_BODY: {"body"}, IS_HEAD_ONLY: HEAD_ONLY, IS_LINK: {"a"}}
    sets |= {IS_FORMATTING: FORMATTING, IS_DEEP: KNOWN - VOID - IMPLIED, IS_SIMPLE: SIMPLE}
    kinds = {}
    for name in KNOWN | FLAGS:
        kind = sum(bit for bit, names in sets.items() if name in names) | IS_KNOWN
        for spelled in (name, name.upper()):
            kinds[spelled] = kind | (IS_TELLTALE if spelled in TELLTALE else 0)
    return _hashed(kinds)


@cache
def reference_table() -> Table:
    """Return the character of each name that stands for one, such as `nbsp`."""
    names = {name[:-1]: value for name, value in html5.items() if name.endswith(";")}
    return _hashed(
        {name: ord(value) for name, value in names.items() if len(name) <= LONGEST_NAME and len(value) == 1}
    )


def _hashed(values: Mapping[str, int]) -> Table:
    """Return a table for `value_of`: packed names of up to ten characters and values, at most half full."""
    table = np.zeros((1 << (2 * len(values)).bit_length(), 2), np.int64)
    for name, value in values.items():
        _, key = packed(encoded(name).view(np.int32), 0, False)
        if key:
            table[_row(table, key)] = key, value
    return table


@compiled
def packed(codes: Codes, place: int, is_folded: bool) -> tuple[int, int]:
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
    return place, key if place - start <= LONGEST_NAME else 0


@compiled
def _row(table: Table, key: int) -> int:
    """Return the row of a key, or the empty row where it belongs (open addressing)."""
    mask = len(table) - 1
    row = ((key ^ key >> 30) * 0x9E3779B1 >> 20) & mask
    while table[row, 0] != 0 and table[row, 0] != key:
        row = row + 1 & mask
    return row


@part
def value_of(table: Table, key: int) -> int:
    """Return the value of a key, 0 for one that is not in the table."""
    row = _row(table, key)
    return int(table[row, 1]) if key != 0 and table[row, 0] == key else 0
