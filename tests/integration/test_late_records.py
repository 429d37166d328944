"""Records that arrive late, have ids from the future or out of order, or change while a run reads them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from bson import Binary, ObjectId, Timestamp

from dedup_job.ledger.plan_format import unpack
from dedup_job.mongo.ids import value
from tests.support.job import RAW, Job
from tests.support.kill_in_process import free_lease, killed_after_inserting_into, killed_after_setting
from tests.support.late_records import POOL
from tests.support.undo_cases import kinds

EMPTY = Timestamp(0, 0)


def object_id(rng: Random, hours: float) -> ObjectId:
    """Return an id that says it was made so many hours from now."""
    made = ObjectId.from_datetime(datetime.now(UTC) + timedelta(hours=hours))
    return ObjectId(made.binary[:4] + rng.randbytes(8))


HOURS = [-400_000, -10_000, -47, -1, 0, 1, 20_000, 600_000]  # from 1981 to 2095
IDS: dict[str, Callable[[Random], Any]] = {
    "ObjectId": lambda rng: object_id(rng, rng.choice(HOURS)),
    "int": lambda rng: rng.randrange(-(10**9), 10**9),
    "uuid": lambda rng: Binary(rng.randbytes(16), 4),
    "mixed": lambda rng: rng.choice([f"k{rng.random()}", rng.random(), object_id(rng, rng.choice(HOURS))]),
}


def decided(job: Job) -> Counter[Any]:
    """Return how often each id was decided."""
    plans = map(unpack, job.ledger("plans").find())
    return Counter(value(raw_id) for stored in plans for raw_id in stored.plan.ids)


def contents(job: Job, name: str) -> dict[Any, bytes]:
    records = job.database[name].with_options(RAW).find()
    return {record["_id"]: bytes(record.raw) for record in records}


def nobody_is_forgotten(job: Job, seen: dict[Any, bytes]) -> None:
    """Every record was decided once, and is in the target as it was seen, or is dropped for one that is."""
    assert set(decided(job).values()) <= {1}
    assert decided(job).keys() == seen.keys()
    target = contents(job, "unique")
    dropped = {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()}
    assert target.keys() | dropped.keys() == seen.keys()
    assert not target.keys() & dropped.keys()
    assert {name: seen[name] for name in target} == target
    assert set(dropped.values()) <= target.keys()


@pytest.mark.long
@pytest.mark.parametrize("ids", IDS)
def test_every_record_is_decided_once_whenever_its_id_says_it_was_made(job: Job, ids: str) -> None:
    rng = Random(ids)
    job.set("limits", batch_records=7)
    for _ in range(4):
        new = [{"_id": IDS[ids](rng), "text": rng.choice(POOL)} for _ in range(rng.randrange(1, 30))]
        job.source.insert_many(new)
        counts = job.decide(rng.choice(["run", "run", "backfill"])).counts
        counts += job.decide("run").counts
        assert counts.read == len(new)
        nobody_is_forgotten(job, contents(job, "pages"))


def test_ids_from_the_future_do_not_hide_what_comes_after_them(job: Job) -> None:
    future = ObjectId.from_datetime(datetime(2100, 1, 1, tzinfo=UTC))
    job.source.insert_many([{"_id": future, "text": POOL[0]}, {"text": POOL[1]}])
    job.decide("backfill")
    for n in range(2, 5):
        job.source.insert_one({"text": POOL[n]})
        assert job.decide("run").counts.unique == 1
    assert job.target.count_documents({}) == 5


@pytest.mark.parametrize("seed", range(3))
def test_updates_and_deletions_of_decided_records_change_nothing(job: Job, seed: int) -> None:
    rng = Random(seed)
    seen: dict[Any, bytes] = {}
    for _ in range(3):
        new = [{"_id": object_id(rng, rng.choice([-1, 0, 9])), "text": rng.choice(POOL)} for _ in range(12)]
        job.source.insert_many(new)
        seen |= {name: raw for name, raw in contents(job, "pages").items() if name not in seen}
        assert job.decide("run").counts.read == 12
        nobody_is_forgotten(job, seen)
        for name in rng.sample(sorted(seen), 4):
            job.source.delete_one({"_id": name})
        for name in rng.sample(sorted(seen), 4):
            job.source.update_one({"_id": name}, {"$set": {"text": rng.choice(POOL), "edited": True}})
        assert job.decide("run").counts.read == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["backfill", "run"])
def test_what_changes_between_decision_and_commit_is_kept_as_it_is_then(
    job: Job, mode: str, seed: int
) -> None:
    """A run is killed when its plan is final and not carried out; records change; a run finishes it."""
    rng = Random(f"{mode} {seed}")
    job.source.insert_many([{"_id": n, "text": rng.choice(POOL[:10])} for n in range(30)])
    killed_after_setting("pending", lambda: job.decide(mode))
    deleted = set(rng.sample(range(30), 8))
    job.source.delete_many({"_id": {"$in": list(deleted)}})
    edited = set(rng.sample(range(30), 8)) - deleted
    for n in edited:
        job.source.update_one({"_id": n}, {"$set": {"text": "改过的文字" + POOL[n]}})

    job.decide(mode)

    now, target = contents(job, "pages"), contents(job, "unique")
    dropped = {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()}
    reasons = {row["_id"]: row["reason"] for row in job.ledger("exceptions").find()}
    assert set(decided(job).values()) == {1}
    assert decided(job).keys() == set(range(30))
    assert {n for n, reason in reasons.items() if reason == "vanished"} == deleted - dropped.keys()
    assert {n for n, reason in reasons.items() if reason == "changed"} == edited - dropped.keys()
    assert {n: now[n] for n in target} == target, "what is copied is the record as it is"
    assert target.keys() | dropped.keys() | deleted == set(range(30))
    assert set(dropped.values()) <= target.keys() - edited, "none stands for what it is not"
    assert job.decide("run").counts.read == 0


@pytest.mark.parametrize("times", [{"at": EMPTY}, {"at": EMPTY, "other": Timestamp(5, 6), "third": EMPTY}])
def test_a_record_whose_time_the_server_set_has_landed_though_the_source_has_it_no_more(
    job: Job, times: dict[str, Timestamp]
) -> None:
    """Killed between insertion and advance; then the source's records are deleted."""
    job.source.insert_many([{"_id": n, "text": POOL[n % 4], **times} for n in range(8)])
    killed_after_inserting_into("unique", lambda: job.decide("backfill"))
    free_lease(job)
    job.source.delete_many({"_id": {"$lt": 4}})

    done = job.command("run", "--json")

    assert (done.returncode, json.loads(done.stdout)["read"]) == (0, 0), done.stderr
    assert sorted(record["_id"] for record in job.target.find()) == [0, 1, 2, 3]
    assert {row["_id"]: row["keeper"] for row in job.ledger("dropped").find()} == {
        n: n - 4 for n in range(4, 8)
    }
    assert job.ledger("exceptions").count_documents({}) == 0
    assert kinds(job) == []


def test_what_a_killed_run_was_refused_counts_for_the_exit_code_of_the_run_that_ends_it(job: Job) -> None:
    job.set("limits", batch_records=5)
    job.database.create_collection("unique", validator={"bad": {"$exists": False}})
    job.source.insert_many(
        [{"_id": n, "text": POOL[n], **({"bad": 1} if n in (1, 7) else {})} for n in range(20)]
    )
    # The second time: the first plan amended, the second accepted and amended, the third accepted.
    for times in (1, 4):
        killed_after_setting("pending", lambda: job.decide("backfill"), times)
    free_lease(job)

    done = job.command("run", "--json")

    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    assert (told["refused"], told["refused_before"]) == ({}, {"validator": 2})
    assert job.command("run").returncode == 0, "it is said once"


def test_a_vanished_record_whose_id_another_has_in_the_target_is_a_conflict(job: Job) -> None:
    job.source.insert_many([{"_id": n, "text": POOL[n]} for n in range(4)])
    killed_after_inserting_into("unique", lambda: job.decide("backfill"))
    job.source.delete_one({"_id": 2})
    job.target.update_one({"_id": 2}, {"$set": {"mine": 1}})

    job.decide("run")

    assert {row["_id"]: row["reason"] for row in job.ledger("exceptions").find()} == {2: "conflict"}
    assert kinds(job) == []
