"""Turn ids into keys of the audit database, so that ids that are read in sequence lie together on disk.

BSON stores the least significant byte of a number first, and a string behind its length.  Raw ids in the
server's order would therefore be inserted at random places of a large file.
"""

from __future__ import annotations

from dedup_job.mongo.ids import NAME
from dedup_job.mongo.raw_documents import HEAD, document

VALUE = HEAD + 1 + len(NAME)  # offset of the value in a raw id
NUMBERS = frozenset({0x01, 0x09, 0x10, 0x11, 0x12})  # double, date, int32, timestamp, int64
STRINGS = frozenset({0x02, 0x0E})  # string, symbol
LENGTH = 4  # bytes of a string's length


def as_key(raw_id: bytes) -> bytes:
    """Return the key of a raw id: its type, then its value, the most significant part first.

    >>> from bson import encode
    >>> [as_key(encode({"_id": value})).hex() for value in (1, 256, "ab")]
    ['1000000001', '1000000100', '0261620003000000']
    """
    kind, value = raw_id[HEAD], raw_id[VALUE:-1]
    if kind in NUMBERS:
        value = value[::-1]
    elif kind in STRINGS:
        value = value[LENGTH:] + value[:LENGTH]
    return raw_id[HEAD : HEAD + 1] + value


def as_id(key: bytes) -> bytes:
    """Return the raw id of a key.

    >>> from bson import encode
    >>> as_id(as_key(encode({"_id": "ab"}))) == encode({"_id": "ab"})
    True
    """
    kind, value = key[0], key[1:]
    if kind in NUMBERS:
        value = value[::-1]
    elif kind in STRINGS:
        value = value[-LENGTH:] + value[:-LENGTH]
    return document(key[:1] + NAME + value)
