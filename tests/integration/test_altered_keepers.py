"""Keepers that somebody changes in the target: nothing is dropped for them any longer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dedup_job.ledger.commit_plans import Ledger
from dedup_job.records import Counts
from tests.support.foreign_targets import Killed, killed_at, rehearsed
from tests.support.job import Job
from tests.support.kill_in_process import killed_after_setting

LONG = "渡口的老船工每天清晨都要先看一看水位，再把缆绳检查一遍，然后才肯让第一批客人上船。"
NEAR = LONG.replace("第一批", "头一批")
OTHER = "The bakery on the corner opens at five, and by six the street smells of bread and coffee."
ANOTHER = "Somebody wrote this over what had been kept, and nobody told the job about it afterwards."


@pytest.fixture
def kept(job: Job) -> Job:
    """A job that has kept two records."""
    job.source.insert_many([{"_id": 1, "text": LONG}, {"_id": 2, "text": OTHER}])
    job.decide("backfill")
    return job


def dropped(job: Job) -> dict[Any, Any]:
    return {row["_id"]: (row["keeper"], row["reason"]) for row in job.ledger("dropped").find()}


@pytest.mark.parametrize("batch_records", [1, 2, 100])
def test_an_altered_keeper_stands_neither_for_copies_nor_for_what_is_near(
    kept: Job, batch_records: int
) -> None:
    kept.set("limits", batch_records=batch_records)
    kept.target.update_one({"_id": 1}, {"$set": {"text": ANOTHER}})
    kept.source.insert_many(
        [{"_id": 3, "text": f"<p>{LONG}</p>"}, {"_id": 4, "text": NEAR}, {"_id": 5, "text": OTHER}]
    )

    forecast, counts = rehearsed(kept), kept.decide("run").counts

    assert counts == forecast == Counts(unique=1, exact=1, near=1)
    assert dropped(kept) == {4: (3, "near"), 5: (2, "exact")}
    assert (kept.target.find_one({"_id": 3}) or {})["text"] == f"<p>{LONG}</p>"
    assert (kept.target.find_one({"_id": 1}) or {})["text"] == ANOTHER, "what somebody wrote is left alone"
    assert kept.differences().keys() == {"altered"}, "nothing was dropped for it"
    kept.source.insert_one({"_id": 6, "text": LONG})
    assert kept.decide("run").counts == Counts(exact=1)
    assert dropped(kept)[6] == (3, "exact")


def test_a_run_says_that_it_met_altered_keepers(kept: Job) -> None:
    kept.target.update_one({"_id": 1}, {"$set": {"text": ANOTHER}})
    kept.source.insert_many([{"_id": 3, "text": LONG}, {"_id": 4, "text": NEAR}])
    for command in ("report", "run"):
        done = kept.command(command, "--json")
        assert done.returncode == 0, done.stderr
        (warning,) = json.loads(done.stdout)["warnings"]
        assert warning.startswith("1 kept records were deleted or changed since they were kept")
    assert "warnings" not in json.loads(kept.command("run", "--json").stdout)


def test_a_keeper_to_which_somebody_adds_a_field_stands_for_its_copies(kept: Job) -> None:
    kept.target.update_one({"_id": 1}, {"$set": {"views": 7, "text": f"<div>{LONG}</div>"}})
    kept.source.insert_many([{"_id": 3, "text": LONG}, {"_id": 4, "text": NEAR}])
    assert kept.decide("run").counts == Counts(exact=1, near=1)
    assert dropped(kept) == {3: (1, "exact"), 4: (1, "near")}


def test_a_backfill_that_goes_on_does_not_rely_on_what_was_altered_meanwhile(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.set("limits", batch_records=2)
    job.source.insert_many([{"_id": number, "text": (LONG, OTHER)[number % 2]} for number in range(4)])
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", killed_at(2, Ledger.commit))
        with pytest.raises(Killed):
            job.decide("backfill")
    job.target.update_one({"_id": 0}, {"$set": {"text": ANOTHER}})
    assert job.decide("backfill").counts == Counts(unique=1, exact=1)
    assert dropped(job) == {3: (1, "exact")}


def test_a_report_does_not_rely_on_a_keeper_that_is_gone_from_the_target_alone(kept: Job) -> None:
    """The source still has it, as it has what the report itself would keep."""
    kept.target.delete_one({"_id": 1})
    kept.source.insert_many(
        [
            {"_id": 3, "text": LONG},
            {"_id": 4, "text": NEAR},
            {"_id": 5, "text": OTHER},
            {"_id": 6, "text": LONG},
        ]
    )

    forecast, counts = rehearsed(kept), kept.decide("run").counts

    assert counts == forecast == Counts(unique=1, exact=2, near=1)
    assert dropped(kept) == {4: (3, "near"), 5: (2, "exact"), 6: (3, "exact")}


@pytest.mark.parametrize("what", ["deleted", "altered", "added to"])
def test_a_plan_that_a_killed_run_left_relies_on_its_keepers_as_they_are_when_it_is_finished(
    kept: Job, what: str
) -> None:
    kept.source.insert_many([{"_id": 3, "text": LONG}, {"_id": 4, "text": LONG}, {"_id": 5, "text": OTHER}])
    killed_after_setting("pending", lambda: kept.decide("run"))
    if what == "deleted":
        kept.target.delete_one({"_id": 1})
    else:
        change = {"text": ANOTHER} if what == "altered" else {"views": 1}
        kept.target.update_one({"_id": 1}, {"$set": change})

    kept.decide("run")

    assert dropped(kept) == {4: (3, "exact"), 5: (2, "exact")}
    assert kept.differences().keys() == {"missing" if what == "deleted" else "altered"}
    kept.source.insert_one({"_id": 6, "text": LONG})
    assert kept.decide("run").counts == Counts(exact=1)


def test_a_plan_that_a_killed_run_left_is_finished_as_it_was_decided(kept: Job) -> None:
    kept.source.insert_many([{"_id": 3, "text": LONG}, {"_id": 4, "text": NEAR}, {"_id": 5, "text": OTHER}])
    killed_after_setting("pending", lambda: kept.decide("run"))
    kept.source.delete_many({"_id": {"$in": [1, 2]}})
    kept.decide("run")
    assert dropped(kept) == {3: (1, "exact"), 4: (1, "near"), 5: (2, "exact")}
