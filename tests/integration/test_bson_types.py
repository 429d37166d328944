"""Every BSON type, as `_id` and as text field: nothing is missed, nothing dropped wrongly."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp, encode
from bson.raw_bson import RawBSONDocument

from dedup_job.commands.changes import changes
from dedup_job.ledger.rows_on_records import id_of_row, row_key
from dedup_job.mongo.ids import as_field, document, elements, has_nan, id_of, plain_nans
from dedup_job.report.counts_with_ids import AffectedRecords
from tests.support.bson_types import raw_ids, texts_as_records
from tests.support.faulty_runs import install
from tests.support.job import RAW, Job
from tests.support.undo_cases import OTHERS, kinds, state, undo


def kept(job: Job) -> dict[bytes, bytes]:
    found = job.target.with_options(RAW).find()
    return {bytes(document.raw): bytes(document.raw) for document in found}


MINUS_NAN = struct.unpack("<d", bytes(6) + b"\xf8\xff")[0]
OTHER_NAN = struct.unpack("<d", b"\x01" + bytes(5) + b"\xf8\x7f")[0]
DECIMAL_NANS = [Decimal128("-NaN"), Decimal128("sNaN"), Decimal128("-sNaN")]
NANS = [MINUS_NAN, OTHER_NAN, *DECIMAL_NANS, {"a": MINUS_NAN}, {"b": [{"c": DECIMAL_NANS[1]}, OTHER_NAN]}]
NANS += [Code("f()", {"x": MINUS_NAN})]


def test_the_index_has_a_plain_nan_for_each_and_nothing_else_is_another_there(job: Job) -> None:
    values = [*NANS, -0.0, Decimal128("-0E+3"), {"d": Decimal128("0E-6000")}, {"e": -0.0}]
    values += [Int64(2**53 + 1), {"f": Decimal128("9007199254740993.00")}, {"g": Decimal128("1E-6176")}]
    for raw_id in [*raw_ids(), *(encode({"_id": value}) for value in values)]:
        job.source.delete_many({})
        job.source.insert_one(RawBSONDocument(raw_id))
        indexed = job.source.with_options(RAW).find({}, {"_id": 1}, hint={"_id": 1}).next()
        assert bytes(indexed.raw) == (plain_nans(raw_id) if has_nan(raw_id) else raw_id), raw_id


@pytest.mark.long
@pytest.mark.parametrize("nan", NANS, ids=repr)
def test_a_record_whose_id_has_another_nan_is_known_when_it_is_seen_again(
    job: Job, monkeypatch: pytest.MonkeyPatch, nan: Any
) -> None:
    install(monkeypatch)
    job.source.insert_many([{"_id": 1, "text": OTHERS[1]}, {"_id": "x", "text": OTHERS[2]}])
    first = job.decide("backfill").run
    before = state(job)
    record = RawBSONDocument(encode({"_id": nan, "text": OTHERS[3]}))
    job.source.insert_one(record)
    run = job.decide("run")
    assert (run.counts.read, run.counts.unique) == (1, 1)
    assert record.raw in kept(job)
    job.source.insert_one({"_id": "y", "text": OTHERS[3]})

    assert job.decide("run").counts.exact == 1
    assert kinds(job) == []
    with job.context() as context:
        done = changes(context, False, lambda _: None)
    assert (done.new, done.missed, done.vanished.as_json()) == (0, 0, AffectedRecords().as_json())

    *_, last = job.ledger("runs").find({"mode": "run"}).sort("started", 1)
    assert undo(job, last["_id"]).left == {}
    assert undo(job, run.run).left == {}
    assert state(job) == before
    assert undo(job, first).left == {}
    assert job.target.count_documents({}) == 0


@pytest.mark.parametrize("page", [1, 2, 3, 5, 1000])
def test_no_id_of_any_type_is_missed_whatever_the_page_size(job: Job, page: int) -> None:
    records = texts_as_records(raw_ids())
    job.source.insert_many(records)
    job.set("limits", batch_records=page)

    counts = job.decide("backfill").counts

    assert (counts.read, counts.unique) == (len(records), len(records))
    assert kept(job).keys() == {bytes(record.raw) for record in records}
    assert job.decide("backfill").counts.read == 0
    assert job.decide("run").counts.read == 0


def test_a_run_decides_new_ids_of_every_type(job: Job) -> None:
    records = texts_as_records(raw_ids())
    job.source.insert_many(records[::2])
    job.decide("backfill")
    job.source.insert_many(records[1::2])

    assert job.decide("run").counts.unique == len(records[1::2])
    assert kept(job).keys() == {bytes(record.raw) for record in records}


def test_duplicates_point_to_keepers_with_ids_of_every_type(job: Job) -> None:
    ids = raw_ids()
    copies = [
        RawBSONDocument(
            document(elements(encode({"_id": {"copy": n}})), elements(record.raw)[elements_of_id:])
        )
        for n, (record, elements_of_id) in enumerate(
            zip(texts_as_records(ids), map(len, map(elements, ids)), strict=True)
        )
    ]
    job.source.insert_many(texts_as_records(ids) + copies)

    counts = job.decide("backfill").counts

    assert counts.exact == len(ids)
    landed = [id_of(raw) for raw in kept(job)]
    rows = [bytes(row.raw) for row in job.ledger("dropped").with_options(RAW).find()]
    assert len(rows) == len(landed) == len(ids)
    assert [row for row in rows if not any(as_field(raw_id, "keeper") in row for raw_id in landed)] == []


TEXTS: dict[str, Any] = {
    "double": 1.5,
    "document": {"a": "文字"},
    "list": ["文字"],
    "binary": Binary(b"text"),
    "uuid": Binary(b"0" * 16, 4),
    "object_id": ObjectId("0123456789abcdef01234567"),
    "boolean": True,
    "date": datetime(2024, 1, 1, tzinfo=UTC),
    "null": None,
    "regex": Regex("a"),
    "pointer": DBRef("c", 1),
    "code": Code("f()"),
    "int": 5,
    "timestamp": Timestamp(5, 6),
    "long": Int64(5),
    "decimal": Decimal128("1"),
    "min": MinKey(),
    "max": MaxKey(),
    "empty": "",
    "blank": " \n\t",
    "tags": "<p></p>",
    "short": "短",
    "utf8": "正常的文字，没有什么特别。",
}
RAW_TEXTS = {
    "undefined": b"\x06text\0",
    "symbol": b"\x0etext\0\x07\0\0\0symbol\0",
    "invalid_utf8": b"\x02text\0\x04\0\0\0\xff\xfea\0",
    "surrogate": b"\x02text\0\x04\0\0\0\xed\xa0\x80\0",
    "late_date": b"\x09text\0" + (2**62).to_bytes(8, "little"),
    "absent": b"",
}


def test_every_bson_type_as_the_text_has_a_named_reason_and_is_copied_unchanged(job: Job) -> None:
    fields = {name: elements(encode({"text": value})) for name, value in TEXTS.items()} | RAW_TEXTS
    records = [
        RawBSONDocument(document(elements(encode({"_id": f"{name}{copy}"})), raw))
        for copy in range(2)
        for name, raw in fields.items()
    ]
    job.source.insert_many(records)

    counts = job.decide("backfill").counts

    assert counts.read == len(records)
    assert counts.duplicate == 3, "only the three that hold text have an exact copy"
    assert kept(job).keys() >= {bytes(record.raw) for record in records[: len(fields)]}
    dropped = {row["_id"] for row in job.ledger("dropped").find()}
    assert dropped == {"short1", "utf81", "symbol1"}
    reasons = {row["_id"]: row["reason"] for row in job.ledger("exceptions").find()}
    assert len(reasons) == len(records) - 6
    assert {reason.partition(":")[0] for reason in reasons.values()} == {
        "not_text",
        "null",
        "missing",
        "empty",
        "invalid_utf8",
    }


def test_trouble_in_other_fields_changes_nothing(job: Job) -> None:
    text = elements(encode({"text": "同一段文字出现在两条记录里。"}))
    trouble = b"\x02bad\0\x03\0\0\0\xff\xfe\0" + b"\x09late\0" + (2**62).to_bytes(8, "little")
    job.source.insert_many(
        [
            RawBSONDocument(document(elements(encode({"_id": 1})), text)),
            RawBSONDocument(document(elements(encode({"_id": 2})), trouble, text)),
        ]
    )

    assert job.decide("backfill").counts.exact == 1


def test_records_that_do_not_fit_into_one_reply_of_the_server_arrive_as_they_left(job: Job) -> None:
    """A reply holds 16 MiB; the rest of a page comes with the next one."""
    job.set("limits", batch_records=1000, batch_mb=64)
    trouble = b"\x09late\0" + (2**62).to_bytes(8, "little")
    pad = elements(encode({"pad": b"x" * (3 << 20)}))
    job.source.insert_many(
        RawBSONDocument(document(elements(encode({"_id": n, "text": f"第{n * 7919}篇"})), trouble, pad))
        for n in range(8)
    )

    assert job.decide("backfill").counts.read == 8
    assert kept(job).keys() == {bytes(record.raw) for record in job.source.with_options(RAW).find()}


EQUALS = [
    [25, 25.0, Int64(25), Decimal128("25"), Decimal128("25.0")],
    [0, 0.0, -0.0],
    [2.5, Decimal128("2.5")],
    [2**40, float(2**40)],
    [{"n": 25}, {"n": 25.0}],
    [float("nan"), Decimal128("NaN")],
]


@pytest.mark.long
@pytest.mark.parametrize("ids", EQUALS, ids=str)
def test_an_id_that_comes_again_as_an_equal_one_of_another_type_has_a_row_of_its_own(
    job: Job, monkeypatch: pytest.MonkeyPatch, ids: list[Any]
) -> None:
    install(monkeypatch)
    job.source.insert_many([{"_id": f"k{n}", "text": OTHERS[n]} for n in range(len(ids))])
    job.decide("backfill")
    states = []
    runs = []
    for n, raw_id in enumerate(ids):
        states.append(state(job))
        job.source.delete_many({"_id": raw_id})
        job.source.insert_one({"_id": raw_id, "text": OTHERS[n]})
        runs.append(job.decide("run").run)
        assert kinds(job) == []

    rows = [bytes(row.raw) for row in job.ledger("dropped").with_options(RAW).find()]
    assert {id_of_row(row) for row in rows} == {encode({"_id": raw_id}) for raw_id in ids}
    assert len(rows) == len(ids)
    assert {RawBSONDocument(row)["keeper"] for row in rows} == {f"k{n}" for n in range(len(ids))}
    for run, before in zip(reversed(runs), reversed(states), strict=True):
        undo(job, run)
        assert state(job) | {"head": None} == before | {"head": None}
        assert set(kinds(job)) <= {"undecided"}


def test_a_dropped_record_with_an_equal_id_is_restored_by_its_own(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    job.source.insert_many([{"_id": 1, "text": OTHERS[0]}, {"_id": 25, "text": OTHERS[0]}])
    job.decide("backfill")
    job.source.delete_one({"_id": 25})
    job.source.insert_one({"_id": 25.0, "text": OTHERS[0], "n": 1})
    job.decide("run")

    done = job.command("restore", "25.0")

    assert done.returncode == 0, done.stderr
    assert job.target.find_one({"_id": 25}) == {"_id": 25.0, "text": OTHERS[0], "n": 1}
    assert kinds(job) == []
    assert [id_of_row(bytes(row.raw)) for row in job.ledger("dropped").with_options(RAW).find()] == [
        encode({"_id": 25})
    ]


def test_an_id_that_looks_like_a_key_of_a_row_is_told_from_one() -> None:
    raw_id = encode({"_id": {"of": 1, "bytes": b"x", "adopted": False}})
    for is_adopted in (False, True):
        assert id_of_row(row_key(raw_id, is_adopted)) == raw_id
    assert len({raw_id, row_key(raw_id), row_key(raw_id, True)}) == 3


def test_keys_of_rows_are_the_ids_and_tell_all_ids_apart() -> None:
    ids = [*raw_ids(), *(encode({"_id": value}) for some in EQUALS for value in some)]
    assert [id_of_row(row_key(raw_id)) for raw_id in ids] == ids
    assert [id_of_row(row_key(raw_id, is_adopted=True)) for raw_id in ids] == ids
    assert row_key(encode({"_id": ObjectId(b"x" * 12)})) == encode({"_id": ObjectId(b"x" * 12)})
