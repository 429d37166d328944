"""Ids as bytes that sort like the server sorts the ids: of equally good records, the smaller id is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from math import isinf, isnan
from struct import Struct
from typing import Any, Final

from bson import encode
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from dedup_job.records import RAW

TOP_BIT: Final = 1 << 63
_ALL_BITS: Final = (1 << 64) - 1
_UNSIGNED, _FLOAT = Struct(">Q"), Struct(">d")
# Codes of BSON types. A raw id has its type in the fifth byte, its value between the name and the last byte.
_STRING, _OBJECT_ID = 0x02, 0x07
_KIND, _VALUE = 4, slice(9, -1)


def tie_key(raw_id: bytes) -> bytes:
    """Return bytes that sort like an id on the server: among equally good records the smaller is better."""
    # Without decoding, as one of these is the id of most records.
    if raw_id[_KIND] == _OBJECT_ID:
        return _SORT_AS[ObjectId][0] + raw_id[_VALUE]
    if raw_id[_KIND] == _STRING:
        return _SORT_AS[str][0] + _terminated(raw_id[_VALUE][4:-1])
    # Equal numbers of different types are different ids, so the bytes come last.
    return _sort_key(RawBSONDocument(raw_id, RAW)["_id"]) + raw_id


def is_nan(number: int | float | Decimal) -> bool:
    """Return whether a number is "not a number"."""
    # A signaling NaN becomes no float.
    return number.is_nan() if isinstance(number, Decimal) else isnan(number)


def order_of_float(number: float) -> int:
    """Return an integer from 1 to 2**64 - 1 that sorts like the number.

    >>> [order_of_float(a) < order_of_float(b) for a, b in ((-2.0, -1.0), (-1.0, 0.0), (0.0, 0.5))]
    [True, True, True]
    """
    # Without a zero of its own sign, so that -0.0 and 0.0 are equal.
    bits: int = _UNSIGNED.unpack(_FLOAT.pack(number + 0.0))[0]
    return _ALL_BITS - bits if bits & TOP_BIT else bits | TOP_BIT


def _sort_key(value: Any) -> bytes:
    """Return bytes that sort like a value in MongoDB's comparison order, and of which none begins another."""
    code, sort = _SORT_AS.get(type(value), (b"\x0c", lambda other: encode({"": other})))
    return code + sort(value)


def _sort_fields(fields: Iterable[tuple[str, Any]]) -> bytes:
    """Return bytes that sort like a document: by type, name and value of each field in turn."""
    keys = [(_sort_key(value), name.encode("utf-8", "surrogateescape")) for name, value in fields]
    return b"".join(key[:1] + _terminated(name) + key[1:] for key, name in keys) + b"\0"


def _sort_number(number: int | float | Decimal) -> bytes:
    """Return bytes that sort like a number: first its nearest double, then the difference from it."""
    if is_nan(number):
        return bytes(2 * _UNSIGNED.size)
    # Infinite for a decimal that is too great for a double.
    nearest = float(number)
    rest = 0.0 if isinf(nearest) and number == nearest else float(Decimal(number) - Decimal(nearest))
    return _UNSIGNED.pack(order_of_float(nearest)) + _UNSIGNED.pack(order_of_float(rest))


def _terminated(text: bytes) -> bytes:
    """Return bytes that sort like a text, and end where no other text goes on."""
    return text.replace(b"\0", b"\0\xff") + b"\0\0"


def _sort_binary(value: bytes) -> bytes:
    """Return bytes that sort like binary data: by length, subtype and content."""
    subtype = value.subtype if isinstance(value, Binary) else 0
    return len(value).to_bytes(4) + bytes([subtype]) + value


# For each type a byte that sorts like the type, and a function that returns bytes for its values.  No key
# begins with zero, which ends a document.
_SORT_AS: Mapping[type, tuple[bytes, Callable[[Any], bytes]]] = {
    MinKey: (b"\x01", lambda _: b""),
    type(None): (b"\x02", lambda _: b""),
    **dict.fromkeys((int, Int64, float), (b"\x03", _sort_number)),
    Decimal128: (b"\x03", lambda number: _sort_number(number.to_decimal())),
    str: (b"\x04", lambda text: _terminated(text.encode("utf-8", "surrogateescape"))),
    RawBSONDocument: (b"\x05", lambda fields: _sort_fields(fields.items())),
    list: (b"\x06", lambda items: _sort_fields(("", item) for item in items)),
    **dict.fromkeys((bytes, Binary), (b"\x07", _sort_binary)),
    ObjectId: (b"\x08", lambda found: found.binary),
    bool: (b"\x09", lambda is_true: bytes([is_true])),
    DatetimeMS: (b"\x0a", lambda time: (TOP_BIT + int(time)).to_bytes(8)),
    Timestamp: (b"\x0b", lambda time: time.time.to_bytes(4) + time.inc.to_bytes(4)),
    MaxKey: (b"\x7f", lambda _: b""),
}
