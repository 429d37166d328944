"""Values that Python cannot decode, in ids and elsewhere, in every command and after every kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bson import encode
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from dedup_job.mongo.ids import document, elements, extended, id_of, selector
from dedup_job.report.terminal_text import format_id
from tests.support.faulty_runs import install
from tests.support.job import RAW, Job
from tests.support.kill_in_process import killed
from tests.support.restore_cases import restore
from tests.support.sync_cases import EVERY, up_to_date
from tests.support.undo_cases import OTHERS, undo

A, B, C, D, E = OTHERS[:5]

Element = Callable[[str, int], bytes]
Work = Callable[[], object]


def late_date(name: str, number: int) -> bytes:
    return b"\x09" + name.encode() + b"\0" + (2**62 + number).to_bytes(8, "little")


def early_date(name: str, number: int) -> bytes:
    return b"\x09" + name.encode() + b"\0" + (-(2**62) + number).to_bytes(8, "little", signed=True)


def latin_text(name: str, number: int) -> bytes:
    text = b"caf\xe9 %d\0" % number
    return b"\x02" + name.encode() + b"\0" + len(text).to_bytes(4, "little") + text


ODD = [late_date, early_date, latin_text]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def ids(odd: Element) -> list[bytes]:
    """Return two usual ids, and three odd ones, of which the second is one that a person can write."""
    writable = late_date if odd is latin_text else odd
    odd_ids = [document(element("_id", number)) for number, element in enumerate((odd, writable, odd))]
    return [encode({"_id": 1}), encode({"_id": 2}), *odd_ids]


def raws(collection: Collection[Any]) -> dict[bytes, bytes]:
    """Return raw records by their raw ids."""
    found = (bytes(one.raw) for one in collection.with_options(RAW).find())
    return {id_of(raw): raw for raw in found}


def history(job: Job, odd: Element) -> Iterator[Work]:
    """Yield command by command; between them the source changes.  Each record has an odd value."""
    usual, usual_copy, oddly, oddly_copy, another = ids(odd)

    def change(raw_id: bytes, name: str, value: object) -> None:
        job.source.update_one(selector([raw_id]), {"$set": {name: value}})

    for raw_id, text in zip(ids(odd), (A, A, B, B, C), strict=True):
        more = elements(encode({"text": text, "seen": 0}))
        job.source.insert_one(RawBSONDocument(document(elements(raw_id), odd("odd", 7), more)))
    yield lambda: job.decide("backfill")
    for raw_id in (usual, oddly, another):
        change(raw_id, "seen", 1)
    yield lambda: up_to_date(job)
    change(usual, "text", D)
    change(oddly, "text", E)
    yield lambda: up_to_date(job)
    change(oddly_copy, "text", E)
    yield lambda: up_to_date(job)
    yield lambda: restore(job, format_id(extended(oddly_copy)))
    job.source.delete_one(selector([another]))
    change(usual_copy, "text", E)
    yield lambda: up_to_date(job)


def check_end(job: Job, odd: Element) -> None:
    """Check that the target has each text of the source once, and the restored copy of one."""
    usual, _, oddly, oddly_copy, _ = ids(odd)
    there, source = raws(job.target), raws(job.source)
    assert there == {raw_id: source[raw_id] for raw_id in (usual, oddly, oddly_copy)}
    assert job.differences() == {}


@pytest.mark.parametrize("odd", ODD)
def test_records_with_values_that_cannot_be_decoded_are_brought_up_to_date_and_taken_back(
    job: Job, odd: Element
) -> None:
    for work in history(job, odd):
        work()
        assert job.differences() == {}
    check_end(job, odd)
    *_, last = job.ledger("runs").find({"mode": "update"}).sort("started", 1)

    undo(job, last["_id"])

    job.decide("run")
    check_end(job, odd)


@pytest.mark.long
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("first", [3, 9])
def test_commands_that_are_killed_over_such_records_are_ended_by_doing_them_again(
    job: Job, odd: Element, first: int
) -> None:
    for work in history(job, odd):
        is_done_after_kills(work, first)
    check_end(job, odd)


def is_done_after_kills(work: Work, first: int) -> None:
    """Kill a command at ever later moments, until it ends before it is killed."""
    number = first
    while True:
        try:
            killed(work, number)
        except AssertionError:  # it was not killed
            return
        number += EVERY


def test_an_odd_record_that_the_target_refuses_is_refused(job: Job) -> None:
    """The server's own message names the value that is there twice."""
    for number, text in enumerate(OTHERS[:6]):
        record = elements(encode({"_id": number, "text": text}))
        job.source.insert_one(RawBSONDocument(document(record, ODD[number // 2]("key", 5))))
    job.target.create_index("key", unique=True)

    report = job.decide("backfill")

    assert (report.counts.unique, report.counts.refused) == (3, {"unique_index": 3})
    assert job.differences() == {}
