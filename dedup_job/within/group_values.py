"""The group of a record: the values of the fields in `[match] within`, as a digest.

Two values are equal if they have the same BSON type and content.  Whole numbers are equal whatever their
type: 1, 1.0, NumberLong(1) and NumberDecimal("1") are one value.  So are a missing field and null.  Lists are
equal if their items are equal in the same order, documents if their fields are equal in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from numbers import Integral
from typing import Any, Final

from bson import encode
from bson.decimal128 import Decimal128, create_decimal128_context
from bson.raw_bson import RawBSONDocument

from dedup_job.records import digest

# Whole numbers from here on do not fit into a BSON integer.
MOST_WHOLE: Final = 2**63
# The 34 digits of a Decimal128.
DECIMAL128: Final = create_decimal128_context()
# Characters of a string whose digest is cached.
LONGEST_CACHED: Final = 100


def group_digest(values: Sequence[Any]) -> bytes:
    """Return 16 bytes that are equal for equal values only; None is a missing value.

    >>> group_digest(["a.example", 1]) == group_digest(["a.example", 1.0])
    True
    >>> group_digest(["1"]) == group_digest([1])
    False

    Raises:
        UnicodeEncodeError: If a string is not valid Unicode.
        bson.errors.BSONError: If BSON cannot store a value.
    """
    # Nearly all groups are short strings, and few of them: six times as fast as encoding each again.
    if all(value is None or (type(value) is str and len(value) <= LONGEST_CACHED) for value in values):
        return _cached_digest(tuple(values))
    return _digest(values)


def _digest(values: Sequence[Any]) -> bytes:
    return digest(encode({str(place): _normal(value) for place, value in enumerate(values)}))


_cached_digest = lru_cache(maxsize=1 << 14)(_digest)


def _normal(value: Any) -> Any:
    """Return a value with whole numbers in one form, in lists and documents as well.

    It is an int if it fits into 64 bits, else a double if it is exactly a double, else a Decimal128.
    """
    # Before the numbers: a bool is an int.
    if value is None or isinstance(value, (str, bool, bytes)):
        return value
    if isinstance(value, (int, float)):
        return int(value) if -MOST_WHOLE <= value < MOST_WHOLE and value == int(value) else value
    if isinstance(value, Decimal128):
        return _normal_decimal(value)
    if isinstance(value, list):
        return list(map(_normal, value))
    if isinstance(value, (dict, RawBSONDocument)):
        return {name: _normal(inner) for name, inner in value.items()}
    # An integer of numpy, from a program; it is no int.
    return int(value) if isinstance(value, Integral) else value


def _normal_decimal(value: Decimal128) -> int | float | Decimal128:
    number: Decimal = value.to_decimal()
    if not number.is_finite() or number != number.to_integral_value():
        return value
    if -MOST_WHOLE <= number < MOST_WHOLE:
        return int(number)
    # Not as an int, which can have 6,145 digits.
    nearest = float(number)
    return nearest if number == Decimal(nearest) else Decimal128(number.normalize(DECIMAL128))
