"""Convert the caller's keys to raw BSON ids, as the keepers store them, and back."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Final, TypeAlias
from uuid import UUID

from bson import decode, encode
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from bson.objectid import ObjectId

Key: TypeAlias = str | int | bytes | UUID | ObjectId

# Types that BSON encodes without conversion; subclasses, such as an enum of str, are converted first.
_KINDS: Final = frozenset({str, int, bytes, UUID, ObjectId})
_OPTIONS: Final[CodecOptions[dict[str, Any]]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)


def raw_id(key: Key) -> bytes:
    """Encode a key as the raw BSON document `{"_id": key}`.

    An integer of numpy or bson gives the same id as an equal int.

    Raises:
        TypeError: If the key has none of the types of `Key`.
        ValueError: If BSON cannot store the key: an int of more than 64 bits, or a str with a lone surrogate.

    >>> raw_id(7).hex()
    '0e000000105f6964000700000000'
    >>> raw_id(7.0)
    Traceback (most recent call last):
        ...
    TypeError: a key is a str, an int, bytes, a UUID or an ObjectId, not a float
    """
    plain = key if type(key) in _KINDS else _plain(key)
    try:
        return encode({"_id": plain}, codec_options=_OPTIONS)
    except (BSONError, OverflowError, UnicodeEncodeError) as error:
        raise ValueError(f"{key!r} can be no key: {error}") from None


def key_of(raw: bytes) -> Key:
    """Decode a raw id; the inverse of `raw_id`."""
    return _plain(decode(raw, _OPTIONS)["_id"])


def _plain(key: object) -> Key:
    """Convert a key of a subclass to the type itself; raises TypeError for other types."""
    # A bool is an Integral, and True would be the same key as 1.
    if isinstance(key, Integral) and not isinstance(key, bool):
        return int(key)
    if isinstance(key, str):
        return str(key)
    if isinstance(key, bytes):
        return bytes(key)
    if isinstance(key, (UUID, ObjectId)):
        return key
    raise TypeError(f"a key is a str, an int, bytes, a UUID or an ObjectId, not a {type(key).__name__}")
