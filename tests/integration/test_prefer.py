"""`[match] prefer` keeps the best record of those that match, whatever the order in which they come."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.json_util import dumps

from dedup_job import config
from dedup_job.commands.backfill_and_run import adopt
from dedup_job.commands.dry_run_report import DryRun, dry_run
from dedup_job.commands.find import find
from dedup_job.errors import GuardStop, NotPermitted, StateError
from dedup_job.mongo.ids import extended, id_of
from dedup_job.mongo.target import Target
from dedup_job.pipeline import guards
from dedup_job.preference.id_order import tie_key
from dedup_job.recipe_from_settings import make_recipe
from dedup_job.records import Action
from tests.support.inline_engine import without_workers
from tests.support.job import RAW, Job
from tests.support.kill_in_process import commands_of, free_lease, killed, killed_after_setting
from tests.support.preferred_records import chained_records, kept_by_brute_force
from tests.support.sync_cases import EVERY, dropped, exceptions, up_to_date
from tests.support.undo_cases import OTHERS, undo

RULES: dict[str, list[Any]] = {
    "longest": ["longest"],
    "score": [{"field": "score", "order": "descending"}, "longest"],
    "oldest first": [{"field": "score", "order": "ascending"}],
}


@pytest.fixture
def preferring(job: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    without_workers(monkeypatch.setattr)
    job.set("match", prefer=RULES["longest"])
    job.set("limits", batch_records=20)
    return job


def kept(job: Job) -> set[Any]:
    return {record["_id"] for record in job.target.find({}, {"_id": 1})}


def wanted(job: Job) -> set[Any]:
    settings = config.check_settings(job.tables, "test")
    return kept_by_brute_force(list(job.source.find()), make_recipe(settings))


def check(job: Job) -> None:
    """The kept records are those of the brute force, and all rows and plans agree."""
    assert kept(job) == wanted(job)
    by_id = {record["_id"]: record for record in job.source.find()}
    for row in job.ledger("dropped").find():
        keeper = by_id[row["keeper"]]
        assert keeper["_id"] in kept(job)
        if job.tables["match"]["prefer"] == ["longest"]:
            assert len(keeper["text"]) >= len(by_id[row["_id"]]["text"])
    assert job.differences() == {}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("nights", [pytest.param(1, marks=pytest.mark.long), 4])
def test_backfill_and_nightly_runs_keep_what_keep_first_keeps_of_the_sorted_records(
    preferring: Job, rules: list[Any], nights: int
) -> None:
    job = preferring
    job.set("match", prefer=rules)
    records = chained_records(240, seed=nights)
    for night in range(nights):
        job.source.insert_many(records[night::nights])
        job.decide("run" if night else "backfill")
        check(job)


def test_a_nightly_run_says_how_many_keepers_it_has_replaced(preferring: Job) -> None:
    job = preferring
    text = "".join(f"第{number}句话说的是一件事" for number in range(30))
    job.source.insert_one({"_id": 1, "text": text})
    job.decide("backfill")
    job.source.insert_one({"_id": 2, "text": text + "最后一句"})

    summary = job.decide("run")

    assert kept(job) == {2}
    assert summary.as_json()["prefer"] == {"replaced": 1, "returned": 0, "decided_again": 1, "refused": {}}
    assert (summary.counts.unique, summary.counts.duplicate) == (1, 0)
    row = job.ledger("dropped").find_one({"_id": 1})
    assert row is not None
    assert (row["keeper"], row["replaced"]) == (2, True)


def test_a_keeper_that_others_changed_in_the_target_stays_there_and_the_run_says_so(preferring: Job) -> None:
    job = preferring
    text = "".join(f"第{number}句话说的是一件事" for number in range(30))
    job.source.insert_many([{"_id": 1, "text": text}, {"_id": 2, "text": text + "还有一句"}])
    job.decide("backfill")
    job.target.update_one({"_id": 2}, {"$set": {"by": "hand"}})
    job.source.insert_one({"_id": 3, "text": text + "还有一句又一句"})

    summary = job.decide("run")

    assert summary.exit_code == 3
    assert (summary.replaced.replaced, summary.replaced.refused) == (0, {"conflict": 1})
    assert "refused               1  of earlier runs: conflict 1" in summary.as_text()
    assert kept(job) == {2, 3}
    assert exceptions(job) == {2: ("refused", "conflict")}
    assert dropped(job) == {1: 3}
    assert job.differences() == {}
    job.target.delete_one({"_id": 2})
    assert up_to_date(job).exit_code == 0
    check(job)
    assert job.differences() == {}


def test_a_report_says_what_the_run_will_do_and_writes_nothing(preferring: Job) -> None:
    job, records = preferring, chained_records(160, seed=8)
    job.source.insert_many(records[:100])
    forecasts, done = [], []
    for some in (records[:0], records[100:]):
        if some:
            job.source.insert_many(some)
        before = job.hash()
        with job.context() as context:
            forecasts.append(dry_run(context, DryRun(), lambda plan: None))
        assert job.hash() == before
        done.append(job.decide("run" if some else "backfill"))

    for forecast, summary in zip(forecasts, done, strict=True):
        assert forecast.counts == summary.counts
        assert forecast.replaced == summary.replaced
    assert done[0].counts.unique == len(kept_after_backfill(job, records[:100]))
    assert done[1].as_json()["prefer"]["replaced"] > 0


def kept_after_backfill(job: Job, records: Sequence[dict[str, Any]]) -> set[Any]:
    settings = config.check_settings(job.tables, "test")
    return kept_by_brute_force(records, make_recipe(settings))


def test_sync_follows_changed_values_and_deletions(preferring: Job) -> None:
    job, dice = preferring, Random(4)
    job.set("match", prefer=RULES["score"])
    records = chained_records(160, seed=9)
    job.source.insert_many(records)
    job.decide("backfill")
    for record in dice.sample(records, 60):
        job.source.update_one({"_id": record["_id"]}, {"$set": {"score": dice.randrange(6)}})
    job.source.delete_many({"_id": {"$in": [record["_id"] for record in dice.sample(records, 20)]}})
    job.source.insert_many(chained_records(20, seed=9, first=1000))

    up_to_date(job)

    assert kept(job) == wanted(job)
    assert job.differences() == {}


def test_a_run_that_was_undone_and_is_repeated_ends_alike(preferring: Job) -> None:
    job, records = preferring, chained_records(160, seed=10)
    job.source.insert_many(records[:100])
    job.decide("backfill")
    job.source.insert_many(records[100:])
    run = job.decide("run")
    assert run.as_json()["prefer"]["decided_again"] > 0
    after = kept(job)

    undo(job, run.run)
    # What the run had decided again waits for the next run, as what it decided first.
    assert job.differences() == {}
    assert job.verified().waiting > run.counts.read
    job.decide("run")

    assert kept(job) == after
    check(job)


def test_records_of_the_target_itself_are_never_replaced(preferring: Job) -> None:
    job, text = preferring, "".join(f"第{number}句话说的是一件事" for number in range(30))
    job.target.insert_one({"_id": "own", "text": text})
    job.source.insert_one({"_id": 1, "text": text + "最后一句"})
    with job.context() as context:
        adopt(context, lambda plan: None)

    job.decide("backfill")

    assert kept(job) == {"own"}
    assert dropped(job) == {1: "own"}


def test_records_of_a_reference_are_better_than_all_others(preferring: Job) -> None:
    job, text = preferring, "".join(f"第{number}句话说的是一件事" for number in range(30))
    job.tables["reference"] = [{"database": job.database.name, "collection": "tests"}]
    job.database["tests"].insert_one({"_id": 1, "text": text})
    job.source.insert_one({"_id": 1, "text": text + "最后一句"})

    job.decide("backfill")

    assert kept(job) == set()
    assert [row["_id"] for row in job.ledger("dropped").find()] == [1]


def test_in_each_group_the_best_record_is_kept(preferring: Job) -> None:
    job, text = preferring, "".join(f"第{number}句话说的是一件事" for number in range(30))
    job.set("match", within=["site"])
    job.source.insert_many([{"_id": 1, "text": text, "site": "a"}, {"_id": 2, "text": text, "site": "b"}])
    job.decide("backfill")
    job.source.insert_one({"_id": 3, "text": text + "最后一句", "site": "a"})

    job.decide("run")

    assert kept(job) == {2, 3}
    assert job.differences() == {}


@pytest.mark.parametrize("batch_records", [10, 500])
def test_records_of_one_group_have_the_similarity_that_they_have_without_groups(
    preferring: Job, another_job: Callable[[], Job], batch_records: int
) -> None:
    preferring.source.insert_many({**record, "site": "a"} for record in chained_records(120, seed=12))
    other = another_job()
    for job in (preferring, other):
        job.set("limits", batch_records=batch_records)
    other.set("match", within=["site"])

    assert preferring.decide("backfill").counts.near > 20
    other.decide("backfill")

    assert other.rows("dropped") == preferring.rows("dropped")


def test_of_copies_that_lose_a_refused_keeper_the_best_is_kept(preferring: Job) -> None:
    preferring.set("match", prefer=RULES["score"])
    words = [f"word{number}" for number in range(41)]
    refused, text = " ".join(words[:40]), " ".join(words[1:])
    texts = {1: (refused, 9), 2: (text, 1), 3: (text, 5), 4: (text, 5)}
    preferring.source.insert_many(
        [{"_id": number, "text": text, "score": score} for number, (text, score) in texts.items()]
    )
    preferring.database.create_collection("unique", validator={"score": {"$ne": 9}})

    preferring.decide("backfill")

    assert kept(preferring) == {3}
    assert dropped(preferring) == {2: 3, 4: 3}
    assert preferring.differences() == {}


def test_records_that_the_target_refuses_count_as_if_they_had_never_come(preferring: Job) -> None:
    job, dice = preferring, Random(11)
    job.database.create_collection("unique", validator={"bad": {"$exists": False}})
    records = chained_records(200, seed=11)
    for record in dice.sample(records, 50):
        record["bad"] = True
    for night in range(2):
        job.source.insert_many(records[night::2])
        job.decide("run" if night else "backfill")

    good = [record for record in records if "bad" not in record]
    assert kept(job) == kept_after_backfill(job, good)
    assert job.differences() == {}


def test_a_dropped_record_that_vanished_or_changed_is_decided_as_it_is_now(preferring: Job) -> None:
    job = preferring
    # So wide that all texts are compared.
    job.set("match", radius=64)
    longest = "".join(map(chr, range(0x4E00, 0x4EC8)))
    shorter = longest[:180]
    job.source.insert_many(
        [
            {"_id": 1, "text": shorter + "".join(map(chr, range(0x6000, 0x6008)))},
            *({"_id": number, "text": shorter[: 158 - number]} for number in (2, 3, 4)),
        ]
    )
    job.decide("backfill")
    assert dropped(job) == {2: 1, 3: 1, 4: 1}
    job.source.delete_one({"_id": 2})
    job.source.update_one({"_id": 3}, {"$set": {"text": "".join(map(chr, range(0x7000, 0x7080)))}})
    # It is like record 1, and not like the others.
    job.source.insert_one({"_id": 5, "text": longest})

    job.decide("run")

    assert kept(job) == {3, 4, 5}
    assert exceptions(job) == {2: ("refused", "vanished")}
    assert dropped(job) == {1: 5}
    assert job.differences() == {}


def test_without_the_rights_to_remove_nothing_is_written(
    preferring: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Target, ids: Sequence[bytes], before: object) -> None:
        raise NotPermitted("the target: the user lacks the right remove")

    monkeypatch.setattr(Target, "remove", refuse)
    preferring.source.insert_many(chained_records(20, seed=1))
    before = preferring.hash()

    with pytest.raises(NotPermitted):
        preferring.decide("backfill")

    assert preferring.hash() == before


@pytest.mark.parametrize(
    ("value", "found"),
    [(None, "score holds no number in the first 20 records (nothing 20)"), ("7", "(text 20)")],
)
def test_a_field_that_no_record_has_stops_the_run_before_anything_is_decided(
    preferring: Job, monkeypatch: pytest.MonkeyPatch, value: object, found: str
) -> None:
    monkeypatch.setattr(guards, "FIRST_RECORDS", 20)
    job = preferring
    job.set("match", prefer=RULES["score"])
    job.source.insert_many({"_id": n, "text": OTHERS[n % 16] * 2, "score": value} for n in range(40))

    with pytest.raises(GuardStop, match=re.escape(found)):
        job.decide("backfill")

    assert kept(job) == set()
    assert job.ledger("plans").count_documents({}) == 0


def test_values_of_several_types_get_a_warning(preferring: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "FIRST_RECORDS", 20)
    job = preferring
    job.set("match", prefer=RULES["score"])
    job.source.insert_many(
        {"_id": n, "text": OTHERS[n % 16] * 2, "score": str(n) if n % 4 else n} for n in range(40)
    )

    warnings = job.decide("backfill").warnings

    assert len(warnings) == 1
    assert "score holds values of several types in the first 20 records (text 15, number 5)" in warnings[0]


@pytest.mark.parametrize("command", [("sweep", "--archive", "old", "--yes"), ("promote", "--yes")])
def test_dropped_records_stay_in_the_source(preferring: Job, command: tuple[str, ...]) -> None:
    preferring.source.insert_many(chained_records(40, seed=1))
    preferring.decide("backfill")
    before = preferring.hash()

    done = preferring.command(*command)

    assert done.returncode == 78
    assert "[match] prefer" in done.stderr
    assert preferring.hash() == before


def test_replaced_keepers_are_listed_and_explained(preferring: Job) -> None:
    job, records = preferring, chained_records(80, seed=13)
    for night in range(2):
        job.source.insert_many(records[night::2])
        job.decide("run" if night else "backfill")
    replaced = {row["_id"] for row in job.ledger("dropped").find({"replaced": True})}

    listed = job.command("list", "--replaced", "--json").stdout.splitlines()
    assert {json.loads(line)["id"] for line in listed} == replaced != set()
    assert all(json.loads(line)["replaced"] for line in listed)
    why = json.loads(job.command("why", str(min(replaced)), "--json").stdout)
    assert (why["verdict"], why["replaced"]) == ("duplicate", True)


def test_until_an_interrupted_replacement_is_finished_other_commands_refuse(preferring: Job) -> None:
    job, records = preferring, chained_records(120, seed=12)
    job.source.insert_many(records[:80])
    backfill = job.decide("backfill")
    job.source.insert_many(records[80:])
    killed_after_setting("unsettled", lambda: job.decide("run"))

    free_lease(job)
    assert "replacing  kept records by better ones; the run was killed" in job.command("status").stdout
    with pytest.raises(StateError, match="finish it first: dedup-job run"):
        undo(job, backfill.run)
    with pytest.raises(StateError, match="finish it first: dedup-job run"):
        job.differences()
    up_to_date(job)

    check(job)
    assert "replacing" not in job.command("status").stdout


@pytest.mark.long
@pytest.mark.parametrize("has_copies", [True, False])
def test_killed_at_every_command_and_run_again_the_same_records_are_kept(
    preferring: Job, another_job: Callable[[], Job], has_copies: bool
) -> None:
    records = chained_records(48, seed=3)
    preferring.set("limits", batch_records=16)

    def begin(job: Job) -> Job:
        job = job if has_copies else job.without_copies()
        job.source.insert_many(records[:24])
        job.decide("backfill")
        job.source.insert_many(records[24:])
        return job

    def outcome(job: Job) -> tuple[set[Any], set[Any]]:
        rows = {(row["_id"], row["replaced"]) for row in job.ledger("dropped").find()}
        return set(job.source.distinct("_id")) - {raw_id for raw_id, _ in rows}, kept(job)

    undisturbed = begin(another_job())
    commands = commands_of(lambda: undisturbed.decide("run"))
    assert wanted(undisturbed) == outcome(undisturbed)[0]
    for number in range(1, commands, EVERY):
        job = begin(another_job())
        killed(lambda job=job: job.decide("run"), number)
        if has_copies:
            assert_nothing_is_missing(job)
        job.decide("run")
        assert outcome(job) == outcome(undisturbed), f"killed after command {number} of {commands}"
        if has_copies:
            check(job)
        job.database.client.drop_database(job.database)


def assert_nothing_is_missing(job: Job) -> None:
    """Every row names a keeper that is in the target."""
    assert {row["keeper"] for row in job.ledger("dropped").find()} <= kept(job)


@pytest.mark.parametrize("rules", [RULES["longest"], RULES["score"]], ids=["longest", "score"])
def test_find_says_what_the_next_run_decides(preferring: Job, rules: list[Any]) -> None:
    job, records = preferring, chained_records(120, seed=13)
    job.set("match", prefer=rules)
    job.source.insert_many(records[:90])
    job.decide("backfill")
    told, decided = [], []
    for record in records[90:]:
        with job.context() as context:
            ((answer,),) = find(context, iter([[dumps(record).encode()]]))
        assert answer.verdict is not None
        match = answer.verdict.match
        told.append((answer.verdict.action, match and extended(match.keeper), answer.replaces is not None))
        job.source.insert_one(record)
        summary = job.decide("run")
        row = job.ledger("dropped").find_one({"_id": record["_id"]})
        replaced = summary.as_json()["prefer"]["replaced"] > 0
        decided.append((Action.DUPLICATE, row["keeper"], False) if row else (Action.UNIQUE, None, replaced))
    assert told == decided
    assert {(action, replaces) for action, _, replaces in told} == {
        (Action.DUPLICATE, False), (Action.UNIQUE, False), (Action.UNIQUE, True),
    }  # fmt: skip


def test_ids_of_all_types_are_sorted_as_the_server_sorts_them(job: Job) -> None:
    """Of equally good records the one with the smallest id is kept."""
    times = [DatetimeMS(-(10**14)), DatetimeMS(0), DatetimeMS(10**15), Timestamp(1, 2), Timestamp(2, 1)]
    numbers = [float("nan"), float("-inf"), Int64(-(2**60)), -1.5, 0, Decimal128("0.1"), 0.1, 7, 2**53 + 1]
    texts = ["", "a", "a\0", "a\0b", "a\x01", "ab", "b", "天"]
    binaries = [b"", b"\xff", b"ab", Binary(b"ab", 5), Binary(b"\0" * 16, 4), Binary(b"\1" * 16, 4)]
    objects = [ObjectId("0" * 24), ObjectId("6" * 24), False, True, None, MinKey(), MaxKey(), Code("f")]
    plain = [*times, *numbers, *texts, *binaries, *objects]
    documents = [{}, {"a": 256}, {"a": 1}, {"a": 2, "b": 1}, {"a": 2}, {"b": 0}, {"a": {"c": 1}}, {"a": {}}]
    documents += [{"a": value} for value in plain] + [
        {"a": [1, 2]},
        {"a": [1]},
        {"a": []},
        {"a": "a", "b": 1},
    ]
    values = [*plain, *documents]
    job.source.insert_many([{"_id": value} for value in Random(5).sample(values, len(values))])
    on_server = [id_of(record.raw) for record in job.source.with_options(RAW).find().sort("_id", 1)]
    assert len(on_server) == len(values)
    assert sorted(on_server, key=tie_key) == on_server
