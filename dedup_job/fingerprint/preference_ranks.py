"""Ranks: which of two matching records `[match] prefer` keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from math import isinf, isnan, nan
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from bson import encode
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from dedup_job.fingerprint.preference_rule import LENGTH, PreferRule
from dedup_job.records import RAW, Unchecked
from dedup_job.text.fields import ABSENT, find_value, kind_of

Ranks = npt.NDArray[np.uint64]  # (n, rules)

# A missing value loses against every other value.
MISSING: Final = 0
# The rank of records that are never dropped, such as the target's own: no record is better.
BEST: Final = (1 << 64) - 1
# Orders that prefer the smaller value.
SMALLER_FIRST: Final = ("oldest", "ascending")

# The kind of a value that a record lacks.
NOTHING: Final = "nothing"

UNSIGNED, FLOAT = Struct(">Q"), Struct(">d")
TOP_BIT: Final = 1 << 63
# Codes of BSON types. A raw id has its type in the fifth byte, its value between the name and the last byte.
STRING, OBJECT_ID = 0x02, 0x07
KIND, VALUE = 4, slice(9, -1)


def rank_records(raws: Sequence[bytes], lengths: Sequence[int], rules: Sequence[PreferRule]) -> Ranks:
    """Return the ranks of records: of two records, the one with the greater row is better.

    Args:
        raws: n raw records.
        lengths: Characters of their cleaned texts; 0 for a record without a text.
        rules: The rules, the most important first.

    Returns:
        uint64, shape (n, rules); MISSING where a record lacks the value, or has one of another type.
    """
    ranks = np.zeros((len(raws), len(rules)), np.uint64)
    for place, rule in enumerate(rules):
        if rule.order == LENGTH:
            ranks[:, place] = np.array(lengths, np.uint64)
        else:
            ranks[:, place] = [_rank(_value_for(raw, rule), rule) for raw in raws]
    return ranks


def _value_for(raw: bytes, rule: PreferRule) -> Any:
    """Return the value that a rule compares; `ABSENT` if the record lacks it or it cannot be read."""
    try:
        path = rule.field.split(".") if rule.field else ["_id"]
        return find_value(RawBSONDocument(raw, RAW), tuple(path))
    except (BSONError, IndexError, Unchecked):
        return ABSENT


def _rank(found: Any, rule: PreferRule) -> int:
    """Return the rank of a value by a rule, from 1 on; MISSING for a value that the rule cannot compare."""
    if not _is_wanted(found, rule):
        return MISSING
    if rule.wanted == "number":
        ordered = _order_of_float(_as_float(found))
    else:
        # The first four bytes of an ObjectId are seconds since 1970; a date has milliseconds.
        time = int.from_bytes(found.binary[:4]) if isinstance(found, ObjectId) else int(found)
        ordered = max(1, TOP_BIT + time)
    # The greatest rank is left to records that are never dropped.
    ordered = min(ordered, BEST - 1)
    return BEST - ordered if rule.order in SMALLER_FIRST else ordered


def _is_wanted(found: Any, rule: PreferRule) -> bool:
    if rule.wanted == "ObjectId":
        return isinstance(found, ObjectId)
    if rule.wanted == "date":
        return isinstance(found, DatetimeMS)
    is_number = isinstance(found, (int, float, Decimal128)) and not isinstance(found, bool)
    return is_number and not isnan(_as_float(found))


def _as_float(number: int | float | Decimal128) -> float:
    exact = number.to_decimal() if isinstance(number, Decimal128) else number
    return nan if _is_nan(exact) else float(exact)


def _is_nan(number: int | float | Decimal) -> bool:
    # A signaling NaN becomes no float.
    return number.is_nan() if isinstance(number, Decimal) else isnan(number)


def _order_of_float(number: float) -> int:
    """Return an integer from 1 to 2**64 - 1 that sorts like the number.

    >>> [_order_of_float(a) < _order_of_float(b) for a, b in ((-2.0, -1.0), (-1.0, 0.0), (0.0, 0.5))]
    [True, True, True]
    """
    # Without a zero of its own sign, so that -0.0 and 0.0 are equal.
    bits: int = UNSIGNED.unpack(FLOAT.pack(number + 0.0))[0]
    return BEST - bits if bits & TOP_BIT else bits | TOP_BIT


def tie_key(raw_id: bytes) -> bytes:
    """Return bytes that sort like an id on the server: among equally good records the smaller is better."""
    # Without decoding, as one of these is the id of most records.
    if raw_id[KIND] == OBJECT_ID:
        return SORT_AS[ObjectId][0] + raw_id[VALUE]
    if raw_id[KIND] == STRING:
        return SORT_AS[str][0] + _terminated(raw_id[VALUE][4:-1])
    # Equal numbers of different types are different ids, so the bytes come last.
    return _sort_key(RawBSONDocument(raw_id, RAW)["_id"]) + raw_id


def _sort_key(value: Any) -> bytes:
    """Return bytes that sort like a value in MongoDB's comparison order, and of which none begins another."""
    code, sort = SORT_AS.get(type(value), (b"\x0c", lambda other: encode({"": other})))
    return code + sort(value)


def _sort_fields(fields: Iterable[tuple[str, Any]]) -> bytes:
    """Return bytes that sort like a document: by type, name and value of each field in turn."""
    keys = [(_sort_key(value), name.encode("utf-8", "surrogateescape")) for name, value in fields]
    return b"".join(key[:1] + _terminated(name) + key[1:] for key, name in keys) + b"\0"


def _sort_number(number: int | float | Decimal) -> bytes:
    """Return bytes that sort like a number: first its nearest double, then the difference from it."""
    if _is_nan(number):
        return bytes(2 * UNSIGNED.size)
    # Infinite for a decimal that is too great for a double.
    nearest = float(number)
    rest = 0.0 if isinf(nearest) and number == nearest else float(Decimal(number) - Decimal(nearest))
    return UNSIGNED.pack(_order_of_float(nearest)) + UNSIGNED.pack(_order_of_float(rest))


def _terminated(text: bytes) -> bytes:
    """Return bytes that sort like a text, and end where no other text goes on."""
    return text.replace(b"\0", b"\0\xff") + b"\0\0"


def _sort_binary(value: bytes) -> bytes:
    """Return bytes that sort like binary data: by length, subtype and content."""
    subtype = value.subtype if isinstance(value, Binary) else 0
    return len(value).to_bytes(4) + bytes([subtype]) + value


# For each type a byte that sorts like the type, and a function that returns bytes for its values.  No key
# begins with zero, which ends a document.
SORT_AS: Mapping[type, tuple[bytes, Callable[[Any], bytes]]] = {
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


def best_first(ranks: Ranks, ids: Sequence[bytes]) -> npt.NDArray[np.intp]:
    """Return the rows of n records, the best first.

    Args:
        ranks: uint64, shape (n, rules).
        ids: Their raw ids.
    """
    ties = sorted(range(len(ids)), key=lambda row: tie_key(ids[row]))
    place = np.empty(len(ids), np.int64)
    place[ties] = np.arange(len(ids))
    # The last key counts most, and `lexsort` sorts upwards.
    order: npt.NDArray[np.intp] = np.lexsort([place, *(~ranks).T[::-1]])
    return order


def pack_rank(rank: npt.NDArray[np.uint64]) -> bytes:
    """Return a record's rank as bytes that sort like it."""
    return rank.astype(">u8").tobytes()


def unpack_ranks(packed: Iterable[bytes], rules: int) -> Ranks:
    """Return the ranks of records from their packed form, uint64 (n, rules)."""
    joined = b"".join(packed)
    return np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, rules)


def preference_keys(ids: Sequence[bytes], ranks: Ranks | None, first: int) -> list[bytes]:
    """Return bytes for each record by which Spark sorts best first; empty bytes without `[match] prefer`.

    Reference records come before all others, in reading order.

    Args:
        ids: Raw ids of n records.
        ranks: uint64, shape (n, rules).
        first: `order` of the first record; the others count up from it.
    """
    if ranks is None:
        return [b""] * len(ids)
    # Inverted, as the greater rank is better, and big-endian, as bytes are compared from the first on.
    inverted = (~ranks).astype(">u8")
    is_reference = (ranks == BEST).all(axis=1).tolist()
    return [
        inverted[row].tobytes() + ((first + row).to_bytes(8) if is_reference[row] else tie_key(raw_id))
        for row, raw_id in enumerate(ids)
    ]


def ranks_in(keys: Sequence[bytes], rules: int) -> Ranks:
    """Return the ranks in preference keys: uint64, shape (n, rules)."""
    # Records that could not be fingerprinted have no rank: they get zeros, inverted.
    size = UNSIGNED.size * rules
    return ~unpack_ranks((key[:size] or b"\xff" * size for key in keys), rules)


def count_kinds(raws: Iterable[bytes], rule: PreferRule) -> Counter[str]:
    """Count what records have where a rule expects a value: `rule.wanted`, NOTHING, or another kind."""
    return Counter(_kind(_value_for(raw, rule), rule) for raw in raws)


def _kind(found: Any, rule: PreferRule) -> str:
    if found is ABSENT or found is None:
        return NOTHING
    if _is_wanted(found, rule):
        return rule.wanted
    return "text" if type(found) is str else kind_of(found)
