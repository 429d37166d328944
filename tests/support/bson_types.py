"""Records of every BSON type."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp, encode
from bson.raw_bson import RawBSONDocument

from dedup_job.mongo.ids import document, elements

SYMBOL_ID = document(b"\x0e_id\0\x04\0\0\0sym\0")
POINTER_ID = document(b"\x0c_id\0\x02\0\0\0c\0" + bytes(range(12)))
IDS: list[Any] = [
    None,
    7,
    Int64(2**40),
    2.5,
    Decimal128("3.25"),
    float("inf"),
    float("-inf"),
    float("nan"),
    "text",
    "",
    {},
    {"a": {"b": 1}, "c": []},
    Binary(b"\0\1", 0),
    Binary(b"", 0),
    Binary(b"x" * 5, 128),
    uuid.UUID(int=5),
    ObjectId("0123456789abcdef01234567"),
    True,
    False,
    datetime(1969, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1, tzinfo=UTC),
    Timestamp(5, 6),
    Code("f()"),
    Code("f()", {"x": 1}),
    MinKey(),
    MaxKey(),
]
LATE_DATE_ID = document(b"\x09_id\0" + (2**62).to_bytes(8, "little"))


def raw_ids() -> list[bytes]:
    from bson.binary import UuidRepresentation
    from bson.codec_options import CodecOptions

    options: CodecOptions[Any] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
    return [encode({"_id": value}, codec_options=options) for value in IDS] + [
        SYMBOL_ID,
        POINTER_ID,
        LATE_DATE_ID,
    ]


def texts_as_records(ids: list[bytes]) -> list[RawBSONDocument]:
    return [
        RawBSONDocument(document(elements(raw_id), elements(encode({"text": f"第{n}篇短文"}))))
        for n, raw_id in enumerate(ids)
    ]
