"""Compare a stored record with the one that was sent, allowing for what the server changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, combinations

from dedup_job.mongo.ids import NAME, TIMESTAMP, fields

EMPTY_TIME = re.compile(b"\x11[^\0]*+\0{9}")  # may be elsewhere in a record, too
DOLLAR = ord("$")
MOST_TIMES = 8


def arrived(sent: bytes, stored: bytes) -> bool:
    """Return whether a stored record is the one that was sent, byte for byte.

    Save for what the server sets itself on insertion: each `Timestamp(0, 0)` that is a field of the record.

    >>> from bson import Timestamp, encode
    >>> sent, stored = ({"_id": 1, "at": Timestamp(seconds, 0), "n": 2} for seconds in (0, 1760000000))
    >>> arrived(encode(sent), encode(stored)), arrived(encode(sent), encode({**stored, "n": 3}))
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


def as_sent(stored: bytes) -> Iterator[bytes]:
    """Yield what a stored record may have been when it was sent: as it is, or with some of its times empty.

    Of more than eight times it is all or none, as their choices are too many.

    >>> from bson import Timestamp, decode, encode
    >>> [decode(sent)["at"].time for sent in as_sent(encode({"_id": 1, "at": Timestamp(9, 1)}))]
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
    """Return whether a field of a record is `Timestamp(0, 0)`, which the server replaces on insertion."""
    return EMPTY_TIME.search(raw) is not None and any(True for _ in _empty_times(raw))


def has_dollar(raw: bytes) -> bool:
    """Return whether the name of a field of a record begins with a dollar, as an operator's does.

    >>> from bson import encode
    >>> has_dollar(encode({"_id": 1, "$note": 2})), has_dollar(encode({"_id": 1, "a$": {"$note": 2}}))
    (True, False)
    """
    return any(raw[start + 1] == DOLLAR for start, _, _ in fields(raw))


def _empty_times(raw: bytes) -> Iterator[int]:
    """Yield where the values of such fields begin; an id may be empty."""
    for start, value, end in fields(raw):
        if raw[start] == TIMESTAMP and not any(raw[value:end]) and raw[start + 1 : value] != NAME:
            yield value
