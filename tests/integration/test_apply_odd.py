"""`reconcile --apply` where records are large, oddly named, refused, or change in the wrong moment."""

from __future__ import annotations

from typing import Any

import pytest

from dedup_job import config
from dedup_job.commands import apply as applying
from dedup_job.commands import deciding
from dedup_job.commands.context import Context
from dedup_job.commands.outdated import Compared, compared
from dedup_job.errors import LeaseHeld
from tests.integration.conftest import Job
from tests.integration.moments import install
from tests.integration.mortal import killed_after_setting
from tests.integration.test_apply import (
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    H,
    J,
    differences,
    dropped,
    exceptions,
    up_to_date,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def fill(job: Job, texts: dict[int, str], **more: Any) -> None:
    job.source.insert_many([{"_id": number, "text": text, **more} for number, text in texts.items()])


def check_each_text_once(job: Job) -> None:
    """Check that each text of the source is in the target once, and nothing else is."""
    assert differences(job) == []
    texts = [record["text"] for record in job.target.find()]
    assert sorted(texts) == sorted({record["text"] for record in job.source.find()})


def test_records_that_were_decided_in_another_order_than_their_ids_are_read_whole(job: Job) -> None:
    """No batch holds them all, and the server gives those first that were decided last."""
    job.set("limits", batch_records=10, batch_mb=1)
    large = {"else": "x" * 400_000}
    fill(job, {10: A, 11: B, 12: C, 13: D}, **large)
    job.decide("backfill")
    fill(job, {1: E, 2: F, 3: G}, **large)
    job.decide("run")
    job.source.update_many({}, [{"$set": {"text": {"$concat": ["$text", J, H]}}}])

    done = up_to_date(job)

    assert done.applied is not None
    assert (done.applied.counts.unique, done.applied.counts.refused) == (7, {})
    check_each_text_once(job)


def test_a_record_that_changes_after_it_was_copied_unjudged_is_brought_up_to_date(job: Job) -> None:
    fill(job, {1: A, 2: B})
    killed_after_setting("pending", lambda: job.decide("backfill"))
    job.source.update_one({"_id": 1}, {"$set": {"text": C}})
    job.decide("backfill")
    assert exceptions(job) == {1: ("unjudged", "changed")}
    assert up_to_date(job).applied is None
    job.source.update_one({"_id": 1}, {"$set": {"text": D}})

    up_to_date(job)

    check_each_text_once(job)


def test_what_vanishes_while_its_decision_is_pending_is_decided_when_it_comes_again(job: Job) -> None:
    fill(job, {1: A, 2: B})
    job.decide("backfill")
    job.source.update_one({"_id": 1}, {"$set": {"text": C}})
    killed_after_setting("pending", lambda: up_to_date(job))
    job.source.delete_one({"_id": 1})
    job.decide("run")
    assert exceptions(job) == {1: ("refused", "vanished")}
    fill(job, {1: C})

    up_to_date(job)

    check_each_text_once(job)


def test_fields_with_a_dollar_are_brought_up_to_date(job: Job) -> None:
    job.source.insert_many(
        [{"_id": 1, "text": A, "$set": {"$in": 1}}, {"_id": 2, "text": B, "$": 1, "a.b": 2, "": 3}]
    )
    job.decide("backfill")
    job.source.delete_many({})
    job.source.insert_many(
        [{"_id": 1, "text": A, "$set": {"$in": 2}}, {"_id": 2, "text": C, "$": 2, "a.b": 3, "": 4}]
    )

    done = up_to_date(job)

    assert done.applied is not None
    assert (done.exit_code, done.applied.renewed, done.applied.counts.unique) == (0, 1, 1)
    check_each_text_once(job)


def test_a_run_that_was_at_work_during_the_comparison_ends_an_apply(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it drops for a record that is to go would be nowhere."""
    fill(job, {1: A, 2: B})
    job.decide("backfill")
    job.source.update_one({"_id": 1}, {"$set": {"text": C}})
    fill(job, {5: A})
    found = list[Compared]()
    with Context(config.check(job.tables, "test")) as context:
        check_keepers = deciding.check_keepers

        def compare(*arguments: Any) -> None:
            found.append(compared(context, lambda number: None))
            check_keepers(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(deciding, "check_keepers", compare)
            job.decide("run")
        assert dropped(job) == {5: 1}
        with pytest.raises(LeaseHeld, match="worked on this target meanwhile"):
            applying.carry_out(context, found[0], lambda number: None)

    up_to_date(job)

    check_each_text_once(job)
