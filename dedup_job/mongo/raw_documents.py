"""BSON documents by their bytes: where their fields are, and how new ones are put together."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

INT32 = Struct("<i")
HEAD = 4  # bytes of a document's length
DOUBLE, DOCUMENT, ARRAY, OBJECT_ID, REGEX, SYMBOL = 0x01, 0x03, 0x04, 0x07, 0x0B, 0x0E
SCOPED_CODE, INT, TIMESTAMP, LONG, DECIMAL = 0x0F, 0x10, 0x11, 0x12, 0x13
FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16}
FIXED |= {0x7F: 0, 0xFF: 0}
STRINGS = {0x02: 4, 0x0D: 4, 0x0E: 4, 0x05: 5, 0x0C: 16}  # bytes beside those that the length counts
DOCUMENTS = {DOCUMENT, ARRAY, SCOPED_CODE}  # their length counts itself


def fields(raw: bytes, first: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yield of each field of the document at `first` where it begins, where its value does, where it ends."""
    start = first + HEAD
    while raw[start]:
        name_end = raw.index(0, start + 1) + 1
        end = name_end + value_size(raw, raw[start], name_end)
        yield start, name_end, end
        start = end


def value_size(raw: bytes, kind: int, start: int) -> int:
    """Return the bytes of a value of this kind that begins at `start`."""
    if kind in FIXED:
        return FIXED[kind]
    if kind == REGEX:  # two C strings
        return raw.index(0, raw.index(0, start) + 1) + 1 - start
    length: int = INT32.unpack_from(raw, start)[0]
    if kind in DOCUMENTS:
        return length
    return STRINGS[kind] + length


def document(*elements: bytes) -> bytes:
    """Return the BSON document made of raw elements."""
    body = b"".join(elements)
    return INT32.pack(HEAD + len(body) + 1) + body + b"\0"


def elements(raw: bytes) -> bytes:
    """Return the raw elements of a BSON document."""
    return raw[HEAD:-1]
