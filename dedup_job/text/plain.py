"""Plain records: where the string of a field stands, found in many records at once; others are for bson.

A record is plain when it holds nothing but doubles, strings, documents, ObjectIds, booleans, dates, nulls and
integers, all of them whole, under names in ASCII.  What is in its documents does not matter.  bson makes an
object of each record and of each of its values, which takes four times as long as all of this.

Worked example, the record {"a": "xy"} (bsonspec.org, version 1.1), its string from place 11 to 13:

    bytes   0f 00 00 00   02   61 00   03 00 00 00   78 79 00   00
            size 15       kind "a"     length 3      "xy"       end
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled, part
from dedup_job.text.characters import offsets_of

Octets = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

_STRING, _DOCUMENT, _BOOLEAN = 2, 3, 8
_FIXED: Final = {1: 8, 7: 12, _BOOLEAN: 1, 9: 8, 10: 0, 16: 4, 18: 8}
_LENGTH: Final = 4  # bytes of a length
_SMALLEST: Final = 5  # bytes of a document
_NO_SIZE: Final = -1
_SIZES: Final = np.array([_FIXED.get(kind, _NO_SIZE) for kind in range(256)])  # bytes of a value of each kind


def string_places(raws: Sequence[bytes], name: str) -> tuple[Places, Places]:
    """Return where the string of a field begins and ends in each raw record; -1 where it is not plain.

    A record without the field, or with another value in it, counts as not plain, too.

    >>> from bson import encode
    >>> string_places([encode({"a": "xy"}), encode({"a": 1})], "a")
    (array([11, -1]), array([13, -1]))
    """
    if not name.isascii() or "\0" in name:
        return np.full(len(raws), -1), np.full(len(raws), -1)
    octets = np.frombuffer(b"".join(raws), np.uint8)
    wanted = np.frombuffer(name.encode() + b"\0", np.uint8)
    return _string_places(offsets_of(raws), octets, wanted)


# Helpers without a signature are compiled into their callers, and need not be loaded.
@part
def _place_in(octets: Octets, wanted: Octets) -> tuple[int, int]:
    """Return where the string of a field begins and ends in one record."""
    end = len(octets) - 1  # of the elements
    if end < _SMALLEST - 1 or _int32(octets, 0) != len(octets) or octets[end] != 0:
        return -1, -1
    start, stop, place = -1, -1, _LENGTH
    while place < end:
        kind, name = octets[place], place + 1
        place = name
        while octets[place] != 0:  # there is one at the end
            if octets[place] >= 0x80:
                return -1, -1
            place += 1
        value = place + 1
        size = _size_of(octets, kind, value, end)
        place = value + size
        if size == _NO_SIZE:
            return -1, -1
        if _is_same(octets, name, wanted):
            if kind != _STRING:
                return -1, -1
            start, stop = value + _LENGTH, place - 1
    return start, stop


@part
def _size_of(octets: Octets, kind: int, place: int, end: int) -> int:
    """Return the bytes of the value at a place, _NO_SIZE for one that is not whole or not plain."""
    if kind in (_STRING, _DOCUMENT):
        if place + _LENGTH > end:
            return _NO_SIZE
        size = _int32(octets, place) + (_LENGTH if kind == _STRING else 0)
        is_whole = size >= _SMALLEST and place + size <= end and octets[place + size - 1] == 0
        return size if is_whole else _NO_SIZE
    size = int(_SIZES[kind])
    if place + size > end or (kind == _BOOLEAN and octets[place] > 1):
        return _NO_SIZE
    return size


@part
def _is_same(octets: Octets, start: int, wanted: Octets) -> bool:
    """Tell whether a name, its zero byte included, is the wanted one."""
    place = 0
    while place < len(wanted) and octets[start + place] == wanted[place]:
        place += 1
    return place == len(wanted)


@part
def _int32(octets: Octets, place: int) -> int:
    """Return the little-endian number at a place."""
    value = np.uint32(octets[place]) | np.uint32(octets[place + 1]) << np.uint32(8)
    value |= np.uint32(octets[place + 2]) << np.uint32(16) | np.uint32(octets[place + 3]) << np.uint32(24)
    return int(np.int64(np.int32(value)))


@compiled
def _string_places(offsets: Places, octets: Octets, wanted: Octets) -> tuple[Places, Places]:
    starts, stops = np.empty(len(offsets) - 1, np.int64), np.empty(len(offsets) - 1, np.int64)
    for record in range(len(starts)):
        starts[record], stops[record] = _place_in(octets[offsets[record] : offsets[record + 1]], wanted)
    return starts, stops
