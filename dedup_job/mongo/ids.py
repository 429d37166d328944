"""Ids of records: raw BSON, text, queries and sets.

A raw id is the BSON document `{"_id": ...}`, as bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isnan, nan
from struct import Struct
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from bson import decode, encode, json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidId
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex

from dedup_job.records import digests

T = TypeVar("T")
INT32 = Struct("<i")
# A BSON document begins with its length, in four bytes.
HEAD = 4
# Codes of BSON types, as in https://bsonspec.org/spec.html.
DOUBLE, DOCUMENT, ARRAY, OBJECT_ID, REGEX, SYMBOL = 0x01, 0x03, 0x04, 0x07, 0x0B, 0x0E
SCOPED_CODE, INT, TIMESTAMP, LONG, DECIMAL = 0x0F, 0x10, 0x11, 0x12, 0x13
# Bytes of a value, for the types of fixed size.
FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16}
FIXED |= {0x7F: 0, 0xFF: 0}
# Bytes of a value that its stored length does not count.
STRINGS = {0x02: 4, 0x0D: 4, 0x0E: 4, 0x05: 5, 0x0C: 16}
# The stored length of these types counts itself.
DOCUMENTS = {DOCUMENT, ARRAY, SCOPED_CODE}
# A server stores no document that is nested deeper, and answers queries for deeper ones with an error.
MOST_LEVELS = 180


def fields(raw: bytes, first: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yield the position of each field of a BSON document.

    Args:
        raw: Bytes that contain the document.
        first: Position of the document in `raw`.

    Yields:
        For each field the position of its type byte, of its value, and of the byte after its value.
    """
    start = first + HEAD
    while raw[start]:
        name_end = raw.index(0, start + 1) + 1
        end = name_end + value_size(raw, raw[start], name_end)
        yield start, name_end, end
        start = end


def value_size(raw: bytes, kind: int, start: int) -> int:
    """Return the number of bytes of the value at `start`.

    Args:
        raw: Bytes that contain the value.
        kind: Code of the value's BSON type.
        start: Position of the value in `raw`.
    """
    if kind in FIXED:
        return FIXED[kind]
    if kind == REGEX:
        # Pattern and options: two strings that each end with a zero byte.
        return raw.index(0, raw.index(0, start) + 1) + 1 - start
    length: int = INT32.unpack_from(raw, start)[0]
    if kind in DOCUMENTS:
        return length
    return STRINGS[kind] + length


def document(*elements: bytes) -> bytes:
    """Build a BSON document from raw elements."""
    body = b"".join(elements)
    return INT32.pack(HEAD + len(body) + 1) + body + b"\0"


def elements(raw: bytes) -> bytes:
    """Return the raw elements of a BSON document."""
    return raw[HEAD:-1]


INT64, FLOAT64 = Struct("<q"), Struct("<d")
NAME = b"_id\0"
# Bytes of ids in one query.  A command may have 16 MiB, and each id also costs a position in an array.
PORTION_BYTES = 4 << 20
# Bytes. A record with a longer id is never a keeper.
LONGEST_JUDGED = 64 << 10
MAY_HOLD_NAN = {DOUBLE, DECIMAL, DOCUMENT, ARRAY, SCOPED_CODE}
NAN, DECIMAL_NAN = FLOAT64.pack(nan), bytes(15) + b"\x7c"


def id_of(raw: bytes) -> bytes:
    """Return the id of a raw record.

    The server stores `_id` first, so only the beginning of a stored record is read.

    Raises:
        ValueError: If the record has no `_id`.

    >>> from bson import encode
    >>> id_of(encode({"_id": 7, "text": "x"})) == encode({"_id": 7})
    True
    """
    start = HEAD
    while raw[start]:
        name_end = raw.index(0, start + 1) + 1
        end = name_end + value_size(raw, raw[start], name_end)
        if raw[start + 1 : name_end] == NAME:
            return document(raw[start:end])
        start = end
    raise ValueError("a record without _id")


def as_field(raw_id: bytes, name: str) -> bytes:
    """Return the value of an id as a raw element with another field name."""
    return raw_id[HEAD : HEAD + 1] + name.encode() + b"\0" + raw_id[HEAD + 1 + len(NAME) : -1]


def selector(ids: Iterable[bytes], name: str = "_id") -> Mapping[str, Any]:
    """Build the query filter that matches these raw ids in a field.

    The ids are never decoded, so every BSON value stays unchanged.
    """
    array = document(*(as_field(raw_id, str(i)) for i, raw_id in enumerate(ids)))
    condition = document(b"\x04$in\0" + array)
    return RawBSONDocument(document(b"\x03" + name.encode() + b"\0" + condition))


def portions(
    items: Iterable[T], most: int = PORTION_BYTES, size: Callable[[Any], int] = len
) -> Iterator[list[T]]:
    """Split ids, or other items, in order, into lists small enough for one command.

    Args:
        items: Raw ids, or other items.
        most: Most bytes of a list; a single item may be larger.
        size: Returns the bytes of an item.
    """
    some: list[T] = []
    nbytes = 0
    for item in items:
        if some and nbytes + size(item) > most:
            yield some
            some, nbytes = [], 0
        some.append(item)
        nbytes += size(item)
    if some:
        yield some


def split(joined: bytes) -> Iterator[bytes]:
    """Yield the raw ids in a concatenation of raw ids."""
    start = 0
    while start < len(joined):
        end = start + max(HEAD, INT32.unpack_from(joined, start)[0])
        yield joined[start:end]
        start = end


def has_nan(raw_id: bytes) -> bool:
    """Return whether an id is a NaN or contains one.

    NaN has many bit patterns. The server treats them all as equal.
    """
    return raw_id[HEAD] in MAY_HOLD_NAN and any(True for _ in _nans(raw_id))


def plain_nans(raw_id: bytes) -> bytes:
    """Return the form of an id that an index stores: every NaN is replaced by the default NaN.

    >>> from bson import Decimal128, decode, encode
    >>> decode(plain_nans(encode({"_id": {"n": Decimal128("-NaN")}})))
    {'_id': {'n': Decimal128('NaN')}}
    """
    plain = bytearray(raw_id)
    for start, end in _nans(raw_id):
        plain[start:end] = NAN if end - start == len(NAN) else DECIMAL_NAN
    return bytes(plain)


def _nans(raw: bytes, first: int = 0) -> Iterator[tuple[int, int]]:
    """Yield start and end of each NaN in the document at `first`, nested ones included."""
    for start, value, end in fields(raw, first):
        kind = raw[start]
        if kind in (DOUBLE, DECIMAL) and _is_nan(raw, kind, value):
            yield value, end
        elif kind in (DOCUMENT, ARRAY):
            yield from _nans(raw, value)
        elif kind == SCOPED_CODE:
            # Layout: total length, length of the code, the code, the scope (a document).
            yield from _nans(raw, value + 8 + INT32.unpack_from(raw, value + 4)[0])


def _is_nan(raw: bytes, kind: int, start: int) -> bool:
    if kind == DOUBLE:
        return isnan(FLOAT64.unpack_from(raw, start)[0])
    return raw[start + 15] & 0x7C == 0x7C


def is_alone(raw_id: bytes) -> bool:
    """Return whether the bytes of this id identify it: the server never treats other bytes as the same id.

    The server compares numbers by value, whatever their type, and a symbol as a string. Among equal numbers
    this function returns True for one type only: int32 if the value fits, otherwise int64, otherwise double.

    >>> from bson import Int64, encode
    >>> [is_alone(encode({"_id": value})) for value in (25, 25.0, Int64(25), 2**40, 2.5, "a", {"n": 1.0})]
    [True, False, False, True, True, True, False]
    """
    return all(_is_alone(raw_id, raw_id[start], value, end) for start, value, end in fields(raw_id))


def _is_alone(raw: bytes, kind: int, start: int, end: int) -> bool:
    if kind == DOUBLE:
        number = FLOAT64.unpack_from(raw, start)[0]
        return not isnan(number) and not (number.is_integer() and abs(number) <= 2.0**63)
    if kind == LONG:
        return not -(2**31) <= INT64.unpack_from(raw, start)[0] < 2**31
    if kind in (DOCUMENT, ARRAY):
        return is_alone(raw[start:end])
    return kind not in (DECIMAL, SYMBOL, SCOPED_CODE)


@dataclass(frozen=True, slots=True)
class IdSet:
    """A read-only set of ids that stores 16 bytes per id.

    Only a 128-bit digest of each id is stored, so an id is found by mistake if its digest collides.
    """

    _sorted: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 2), np.uint64))

    @classmethod
    def of(cls, chunks: Iterable[Iterable[bytes]]) -> IdSet:
        """Build a set from several sequences of ids."""
        return cls().including(chunks)

    def including(self, chunks: Iterable[Iterable[bytes]]) -> IdSet:
        """Return the set with the ids of further sequences."""
        hashes = np.concatenate([self._sorted, *map(digests, chunks)])
        return IdSet(hashes[np.argsort(hashes[:, 0])])

    def __len__(self) -> int:
        return len(self._sorted)

    def among(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return the ids that are in the set."""
        return set(ids).difference(self.missing(ids)) if len(self) else set()

    def missing(self, ids: Sequence[bytes]) -> list[bytes]:
        """Return the ids that are not in the set, in their original order."""
        wanted = digests(ids)
        column = self._sorted[:, 0]
        first = np.searchsorted(column, wanted[:, 0], "left")
        last = np.searchsorted(column, wanted[:, 0], "right")
        is_there = np.zeros(len(wanted), np.bool_)
        # One pass per digest with the same first half; nearly always a single pass.
        for place in range(int((last - first).max(initial=0))):
            inside = np.flatnonzero(first + place < last)
            is_there[inside] |= self._sorted[first[inside] + place, 1] == wanted[inside, 1]
        return [raw_id for raw_id, there in zip(ids, is_there.tolist(), strict=True) if not there]


# Decodes every id and row, also dates outside Python's range and invalid UTF-8.
SHOWABLE: CodecOptions[Any] = CodecOptions(
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",
)
ID_JSON = json_util.JSONOptions(
    json_mode=json_util.JSONMode.RELAXED, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


def value(raw_id: bytes) -> Any:
    """Decode a raw id to a Python value."""
    return RawBSONDocument(raw_id)["_id"]


def readings(given: str) -> list[bytes]:
    """Return the raw ids that an id on the command line may mean, the most likely first.

    24 hexadecimal digits are read as an ObjectId first, then as extended JSON, then as a string.
    So `42` is the number if a record has it as its id, otherwise the string; `"42"` is the string.
    """
    values: list[Any] = []
    with suppress(InvalidId):
        values.append(ObjectId(given))
    # Malformed extended JSON raises many types of errors, some of them undocumented.
    with suppress(Exception):
        values.append(json_util.loads(given, json_options=ID_JSON))
    values.append(given)
    found = []
    for value in values:
        is_pattern = isinstance(value, Regex) or (
            isinstance(value, dict) and str(next(iter(value), "")).startswith("$")
        )
        # No id can be a pattern or an operator, and a query would run it as a condition.
        if not is_pattern:
            # Fails for numbers above 64 bits and for text that is not valid UTF-8.
            with suppress(Exception):
                if _levels(value) <= MOST_LEVELS:
                    found.append(encode({"_id": value}))
    return list(dict.fromkeys(found))


def _levels(value: Any) -> int:
    """Return how deep documents and arrays are nested in a value; 0 for one that is neither."""
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(map(_levels, value.values() if isinstance(value, dict) else value), default=0)


def with_equals(ids: Iterable[bytes]) -> list[bytes]:
    """Return the ids, followed by equal numbers of other types.

    >>> from bson import encode
    >>> [value(raw_id) for raw_id in with_equals([encode({"_id": 42}), encode({"_id": "a"})])]
    [42, 'a', 42, 42.0]
    """
    ids = list(ids)
    numbers = [value(raw_id) for raw_id in ids if raw_id[HEAD] in (DOUBLE, INT, LONG)]
    whole = [int(number) for number in numbers if number == number // 1 and abs(number) < 2**63]
    others = [kind(number) for number in whole for kind in (int, Int64, float)]
    return list(dict.fromkeys([*ids, *(encode({"_id": number}) for number in others)]))


def extended(raw_id: bytes) -> Any:
    """Return an id as extended JSON values, a form that the command line accepts.

    `report.terminal_text.format_id` turns them into the text that people see.
    """
    value = decode(raw_id, SHOWABLE)["_id"]
    return json.loads(json_util.dumps(value, json_options=ID_JSON))
