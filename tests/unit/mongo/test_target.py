"""Which errors of an unordered insert belong to single records: mongomock gives them the server's shape."""

from __future__ import annotations

import mongomock
import pytest
from pymongo.errors import BulkWriteError, OperationFailure, WTimeoutError

from dedup_job.mongo.target import DUPLICATE_KEY, record_errors


def test_each_duplicate_key_is_reported_with_its_place() -> None:
    collection = mongomock.MongoClient().db.unique
    collection.insert_many([{"_id": 2}, {"_id": 4}])

    with pytest.raises(BulkWriteError) as caught:
        collection.insert_many([{"_id": n} for n in range(1, 6)], ordered=False)

    errors = record_errors(caught.value)
    assert [(error["index"], error["code"]) for error in errors] == [(1, DUPLICATE_KEY), (3, DUPLICATE_KEY)]
    assert collection.count_documents({}) == 5


def failed(*codes: int, concern: bool = False) -> BulkWriteError:
    errors = [{"index": index, "code": code, "op": {"text": "canary"}} for index, code in enumerate(codes)]
    return BulkWriteError({"writeErrors": errors, "writeConcernErrors": [{"code": 64}] if concern else []})


@pytest.mark.parametrize("error", [failed(concern=True), failed(11000, concern=True), failed(121, 91)])
def test_what_may_fare_better_another_time_is_no_error_of_a_record(error: BulkWriteError) -> None:
    with pytest.raises(WTimeoutError) as caught:
        record_errors(error)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("code", [14031, 13])
def test_a_server_that_cannot_write_refuses_no_record(code: int) -> None:
    with pytest.raises(OperationFailure) as caught:
        record_errors(failed(121, code))
    assert caught.value.code == code
    assert "canary" not in str(caught.value)
