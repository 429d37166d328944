"""Different records and texts with the same XXH3 digest: no command confuses them."""

from __future__ import annotations

import json

from tests.support.colliding_texts import ONE, OTHER, colliding_records
from tests.support.job import Job
from tests.support.undo_cases import undo


def test_texts_with_the_same_xxh3_are_both_kept(job: Job) -> None:
    job.source.insert_many([{"_id": 1, "text": ONE}, {"_id": 2, "text": OTHER}, {"_id": 3, "text": OTHER}])
    assert job.command("backfill").returncode == 0
    job.source.insert_one({"_id": 4, "text": ONE})
    assert job.command("run").returncode == 0
    assert [record["_id"] for record in job.target.find().sort("_id")] == [1, 2]
    assert {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()} == {3: 2, 4: 1}
    assert job.command("verify").returncode == 0


def test_a_record_that_became_another_with_the_same_xxh3_is_decided_again(job: Job) -> None:
    judged, changed = colliding_records(1)
    job.source.insert_one(judged)
    assert job.command("backfill").returncode == 0
    job.source.replace_one({"_id": 1}, changed)
    assert job.command("sync", "--yes").returncode == 0
    assert list(job.target.find()) == [changed]
    assert job.command("verify").returncode == 0


def test_an_altered_record_with_the_same_xxh3_is_named_and_stays(job: Job) -> None:
    judged, altered = colliding_records(1)
    job.source.insert_one(judged)
    run = job.decide("backfill").run
    job.target.replace_one({"_id": 1}, altered)
    verified = job.command("verify", "--json")
    assert verified.returncode == 65
    assert list(json.loads(verified.stdout)["differences"]) == ["altered"]
    assert undo(job, run).left == {"altered": 1}
    assert list(job.target.find()) == [altered]
