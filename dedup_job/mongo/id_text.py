"""Ids as text: how they are printed, and what an id on a command line may mean."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from bson import decode, encode, json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidId
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex

from dedup_job.mongo.ids import DOUBLE, HEAD, INT, LONG

# So that every id and row can be shown: dates out of Python's range and bad UTF-8 too.
SHOWABLE: CodecOptions[Any] = CodecOptions(
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",
)
ID_JSON = json_util.JSONOptions(
    json_mode=json_util.JSONMode.RELAXED, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


def value(raw_id: bytes) -> Any:
    """Return an id as Python has it, for people to read."""
    return RawBSONDocument(raw_id)["_id"]


def readings(given: str) -> list[bytes]:
    """Return what an id on the command line may mean, likeliest first, as raw ids.

    24 hexadecimal digits are an ObjectId; else it is extended JSON of the value; else the string itself.
    So `42` is a number where there is one, and `"42"` a string.
    """
    values: list[Any] = []
    with suppress(InvalidId):
        values.append(ObjectId(given))
    with suppress(Exception):  # the parser raises whatever a malformed value leads it to
        values.append(json_util.loads(given, json_options=ID_JSON))
    values.append(given)
    found = []
    for value in values:
        is_pattern = isinstance(value, Regex) or (
            isinstance(value, dict) and str(next(iter(value), "")).startswith("$")
        )
        if not is_pattern:  # no id can be one, and a query would take it for a condition
            with suppress(Exception):  # a number that is too large, a text that is not valid UTF-8
                found.append(encode({"_id": value}))
    return list(dict.fromkeys(found))


def with_equals(ids: Iterable[bytes]) -> list[bytes]:
    """Return ids, and behind them those numbers of other types that are equal to one of them.

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
    """Return an id as JSON values: extended JSON, which the command line takes.

    `report.terminal.id_text` makes of it the text that is shown to people.
    """
    value = decode(raw_id, SHOWABLE)["_id"]
    return json.loads(json_util.dumps(value, json_options=ID_JSON))
