"""Compare a stored record with the record that was sent.

The server changes one value on insertion: it sets an empty timestamp, `Timestamp(0, 0)`, in a field of the
record to the current time.  Timestamps in nested documents, and in `_id`, stay empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

from dedup_job.mongo.ids import NAME, TIMESTAMP, fields

# The end of a name and an empty value.
EMPTY = bytes(1 + 8)
TIME = bytes([TIMESTAMP])
DOLLAR = ord("$")
# The number of combinations doubles with each timestamp.
MOST_TIMES = 8


def is_unchanged(sent: bytes, stored: bytes) -> bool:
    """Return whether a stored record equals the sent record, byte for byte.

    Timestamps that were sent empty may have any value in the stored record.

    >>> from bson import Timestamp, encode
    >>> sent, stored = ({"_id": 1, "at": Timestamp(seconds, 0), "n": 2} for seconds in (0, 1760000000))
    >>> is_unchanged(encode(sent), encode(stored)), is_unchanged(encode(sent), encode({**stored, "n": 3}))
    (True, False)
    """
    if sent == stored:
        return True
    if len(sent) != len(stored):
        return False
    masked = bytearray(stored)
    for start in _empty_times(sent):
        masked[start : start + 8] = bytes(8)
    return masked == sent


def possible_originals(stored: bytes) -> Iterator[bytes]:
    """Yield the records that may have been sent: the stored record, then with some of its timestamps emptied.

    A record with more than eight timestamps is only yielded unchanged and with all of them empty.

    >>> from bson import Timestamp, decode, encode
    >>> [decode(sent)["at"].time for sent in possible_originals(encode({"_id": 1, "at": Timestamp(9, 1)}))]
    [9, 0]
    """
    places = [
        value
        for start, value, _ in fields(stored)
        if stored[start] == TIMESTAMP and stored[start + 1 : value] != NAME
    ]
    sizes = range(len(places) + 1) if len(places) <= MOST_TIMES else (0, len(places))
    for chosen in chain.from_iterable(combinations(places, size) for size in sizes):
        sent = bytearray(stored)
        for place in chosen:
            sent[place : place + 8] = bytes(8)
        yield bytes(sent)


def has_empty_time(raw: bytes) -> bool:
    """Return whether a field of a record is `Timestamp(0, 0)`, which the server sets on insertion."""
    # Two searches for bytes spare most records the parsing.  A regular expression of a name would take time
    # in proportion to the square of a long value without a zero byte.
    return EMPTY in raw and TIME in raw and any(True for _ in _empty_times(raw))


def has_dollar(raw: bytes) -> bool:
    """Return whether a top-level field name begins with a dollar sign, like an operator.

    >>> from bson import encode
    >>> has_dollar(encode({"_id": 1, "$note": 2})), has_dollar(encode({"_id": 1, "a$": {"$note": 2}}))
    (True, False)
    """
    return any(raw[start + 1] == DOLLAR for start, _, _ in fields(raw))


def _empty_times(raw: bytes) -> Iterator[int]:
    """Yield the position of each empty timestamp in a top-level field, except in `_id`."""
    for start, value, end in fields(raw):
        if raw[start] == TIMESTAMP and not any(raw[value:end]) and raw[start + 1 : value] != NAME:
            yield value
