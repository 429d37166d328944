"""A process that is stopped, and continued after others took its lease, changes nothing that they did."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

import pytest

from dedup_job.commands.mark import clear_marks
from dedup_job.errors import ConfigError, LeaseHeld, UsageError
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.kill_in_process import commands_of
from tests.support.marks import write_marks
from tests.support.preferred_records import chained_records
from tests.support.restore_cases import restore, with_two_copies
from tests.support.snapshot import Snapshot
from tests.support.stopped_process import Event, hurry_removals, sleep_past_removals, stopped
from tests.support.sweep_cases import ARCHIVE, archived, sweep
from tests.support.sync_cases import up_to_date
from tests.support.undo_cases import OTHERS, odd_run, state, undo

pytestmark = pytest.mark.long

Make = Callable[[], Job]
EVERY = int(os.environ.get("DEDUP_TEST_EVERY", "10"))  # 1 stops a process before each of its commands


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def _is(number: int, sent: int, _: Event) -> bool:
    return sent == number


def _is_no_insert(number: int, sent: int, event: Event) -> bool:
    return sent >= number and event.command_name != "insert"


def stopped_at_commands(
    make: Make,
    work: Callable[[Job], object],
    meanwhile: Callable[[Job], object],
    check: Callable[[Job], None],
    is_time: Callable[[int, int, Event], bool] = _is,
) -> None:
    """Stop a work before one of its commands after the other, and check what there is in the end."""
    whole = make()
    for number in range(1, commands_of(lambda: work(whole)) + 1, EVERY):
        half = make()
        with suppress(LeaseHeld, UsageError):  # what was to be undone is undone
            stopped(partial(work, half), partial(is_time, number), partial(_others, meanwhile, half))
        check(half)


def _others(meanwhile: Callable[[Job], object], job: Job, event: Event) -> None:
    meanwhile(job)
    if is_removal(event):
        sleep_past_removals()


def is_removal(event: Event) -> bool:
    """Return whether a command takes records out of the target."""
    return bool(event.command.get("delete") == "unique")


def second_removal(collection: str) -> Callable[[int, Event], bool]:
    """Select an undo's second removal from a collection, as the first only asks whether it may remove."""
    removals = count(1)

    def removes(_: int, event: Event) -> bool:
        return event.command.get("delete") == collection and next(removals) == 2

    return removes


def waiting(job: Job, twin: Make) -> tuple[Make, Job]:
    """Return what makes jobs with records of every verdict for a nightly run, and one that has run."""
    undo(job, odd_run(job)[1])

    def make() -> Job:
        made = twin()
        made.database.command("collMod", "unique", validator={"bad": {"$exists": False}})
        return made

    calm = make()
    calm.decide("run")
    return make, calm


def test_a_run_that_wakes_when_another_has_decided_changes_nothing(job: Job, twin: Make) -> None:
    make, calm = waiting(job, twin)

    def check(half: Job) -> None:
        assert half.decide("run").counts.read == 0
        assert half.outcome() == calm.outcome()
        assert half.differences() == {}

    stopped_at_commands(make, lambda half: half.decide("run"), lambda half: half.decide("run"), check)


def undo_deciding_runs(job: Job) -> None:
    """Undo all that was decided behind the first backfill."""
    _, *later = job.ledger("runs").find({"mode": {"$in": ["backfill", "run"]}}).sort("started", 1)
    for row in reversed(later):
        with suppress(UsageError):  # it decided nothing
            undo(job, row["_id"])


def test_a_run_that_wakes_when_it_was_undone_leaves_what_the_next_run_decides_alike(
    job: Job, twin: Make
) -> None:
    make, calm = waiting(job, twin)

    def meanwhile(half: Job) -> None:
        half.decide("run")
        undo_deciding_runs(half)

    def check(half: Job) -> None:
        half.decide("run")
        assert half.outcome() == calm.outcome()
        assert half.differences() == {}

    stopped_at_commands(make, lambda half: half.decide("run"), meanwhile, check)


def test_a_run_that_wakes_when_all_was_undone_and_decided_again_changes_nothing(job: Job, twin: Make) -> None:
    make, calm = waiting(job, twin)

    def meanwhile(half: Job) -> None:
        half.decide("run")
        undo_deciding_runs(half)
        half.decide("run")

    def check(half: Job) -> None:
        assert half.differences() == {}
        assert half.decide("run").counts.read == 0
        assert half.outcome() == calm.outcome()

    stopped_at_commands(make, lambda half: half.decide("run"), meanwhile, check)


def test_a_backfill_that_wakes_when_all_is_undone_leaves_records_that_nobody_takes_for_its_own(
    job: Job,
) -> None:
    job.source.insert_many([{"_id": n, "text": OTHERS[n]} for n in range(4)])

    def inserts(_: int, event: Event) -> bool:
        return bool(event.command.get("insert") == "unique")

    def done_and_undone(_: Event) -> None:
        job.decide("backfill")
        undo_last(job)

    with pytest.raises(LeaseHeld):
        stopped(lambda: job.decide("backfill"), inserts, done_and_undone)

    assert job.differences().keys() == {"foreign"}
    with pytest.raises(ConfigError, match="records that no run put there"):
        job.decide("backfill")


def test_a_run_that_wakes_before_it_inserts_when_its_records_were_decided_otherwise_inserts_none(
    job: Job,
) -> None:
    job.source.insert_many([{"_id": n, "text": OTHERS[n]} for n in range(2)])
    job.decide("backfill")
    job.source.insert_many([{"_id": n, "text": OTHERS[n]} for n in range(2, 5)])

    def is_accepted(_: int, event: Event) -> bool:
        return bool(
            event.command.get("find") == "unique.dedup.head"
            and job.ledger("head").find_one({"pending": {"$ne": None}})
        )

    def decided_otherwise(_: Event) -> None:
        job.decide("run")
        job.source.update_many({"_id": {"$gt": 1}}, {"$set": {"text": OTHERS[0]}})
        up_to_date(job)

    with pytest.raises(LeaseHeld):
        stopped(lambda: job.decide("run"), is_accepted, decided_otherwise)

    assert job.differences() == {}


def undo_last(job: Job) -> None:
    """Undo the run that the newest plan is of."""
    plan = job.ledger("plans").find_one(sort=[("_id", -1)]) or {}
    undo(job, plan["run"])


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry_removals(monkeypatch)


def test_an_undo_that_wakes_when_another_has_ended_it_changes_nothing(
    job: Job, twin: Make, short: None
) -> None:
    before, run = odd_run(job)

    def check(half: Job) -> None:
        assert state(half) == before

    stopped_at_commands(twin, lambda half: undo(half, run), lambda half: undo(half, run), check)


def test_an_undo_that_wakes_when_all_is_decided_again_changes_nothing(
    job: Job, twin: Make, short: None
) -> None:
    _, run = odd_run(job)
    decided = job.outcome()

    def make() -> Job:
        made = twin()
        made.database.command("collMod", "unique", validator={"bad": {"$exists": False}})
        return made

    def meanwhile(half: Job) -> None:
        undo(half, run)
        half.decide("run")

    def check(half: Job) -> None:
        assert half.outcome() == decided
        assert half.differences() == {}

    stopped_at_commands(make, lambda half: undo(half, run), meanwhile, check)


def test_a_restore_that_wakes_when_its_run_was_undone_and_done_again_agrees_with_the_ledger(
    job: Job, twin: Make
) -> None:
    run = with_two_copies(job)

    def meanwhile(half: Job) -> None:
        undo(half, run)
        half.decide("run")

    def check(half: Job) -> None:
        assert half.differences() == {}
        half.decide("run")
        assert half.differences() == {}

    # A late insertion of overrides is named by `verify`.
    stopped_at_commands(twin, lambda half: restore(half, "2", "3"), meanwhile, check, _is_no_insert)


def test_a_restore_that_wakes_when_its_records_were_edited_and_decided_again_leaves_them_so(job: Job) -> None:
    run = with_two_copies(job)

    def inserts(_: int, event: Event) -> bool:
        return bool(event.command.get("insert") == "unique")

    def decided_again(_: Event) -> None:
        undo(job, run)
        job.source.update_many({"_id": {"$in": [2, 3]}}, {"$set": {"text": OTHERS[0]}})
        job.decide("run")
        assert job.differences() == {}

    with pytest.raises(LeaseHeld):
        stopped(lambda: restore(job, "2", "3"), inserts, decided_again)

    assert job.differences() == {}


def deletes_rows(_: int, event: Event) -> bool:
    return bool(event.command.get("delete") == "unique.dedup.dropped")


def test_a_run_that_wakes_within_its_lease_deletes_the_rows_that_it_was_about_to(
    job: Job, short: None
) -> None:
    job.set("match", prefer=["longest"])
    records = chained_records(120, seed=3)
    job.source.insert_many(records[:60])
    job.decide("backfill")
    job.source.insert_many(records[60:])

    stopped(lambda: job.decide("run"), deletes_rows, lambda event: sleep_past_removals())

    assert job.differences() == {}


def test_an_undo_that_wakes_within_its_lease_removes_what_it_was_about_to(job: Job, short: None) -> None:
    run = with_two_copies(job)

    stopped(lambda: undo(job, run), second_removal("unique"), lambda event: sleep_past_removals())

    assert job.target.count_documents({}) == job.ledger("aside").count_documents({}) == 0


def test_an_undo_that_wakes_within_its_lease_leaves_no_backup(job: Job, short: None) -> None:
    run = with_two_copies(job)

    stopped(lambda: undo(job, run), second_removal("unique.dedup.aside"), lambda event: sleep_past_removals())

    assert job.ledger("aside").count_documents({}) == 0


def marked(job: Job) -> set[int]:
    return {record["_id"] for record in job.source.find({"dedup": {"$exists": True}})}


def changes_source(_: int, event: Event) -> bool:
    return bool(event.command.get("update") == "pages")


def test_a_marking_that_wakes_when_its_records_are_kept_marks_none(job: Job, short: None) -> None:
    run = with_two_copies(job)
    write_marks(job)
    with job.context() as context:
        clear_marks(context, lambda count: None)

    def kept(_: Event) -> None:
        undo(job, run)
        job.source.delete_one({"_id": 1})
        job.decide("run")
        write_marks(job)
        sleep_past_removals()

    with pytest.raises(LeaseHeld):
        stopped(lambda: write_marks(job), changes_source, kept)

    assert marked(job) == {3}


def test_an_undo_that_wakes_when_its_records_were_marked_again_leaves_the_marks(
    job: Job, short: None
) -> None:
    run = with_two_copies(job)
    write_marks(job)

    def marked_again(_: Event) -> None:
        undo(job, run)
        job.decide("run")
        write_marks(job)
        sleep_past_removals()

    with pytest.raises(LeaseHeld):
        stopped(lambda: undo(job, run), changes_source, marked_again)

    assert marked(job) == {2, 3}


def test_a_marking_that_wakes_within_its_lease_marks_all(job: Job, short: None) -> None:
    with_two_copies(job)

    stopped(lambda: write_marks(job), changes_source, lambda event: sleep_past_removals())

    assert marked(job) == {2, 3}


def test_a_restore_that_wakes_when_its_records_were_brought_back_and_deleted_inserts_none(job: Job) -> None:
    with_two_copies(job)
    sweep(job)

    reads = 0

    def has_read_archive(_: int, event: Event) -> bool:
        nonlocal reads
        reads += event.command.get("find") == ARCHIVE and "projection" not in event.command
        # The first compares the versions.
        return reads == 2 and event.command_name == "listCollections"

    def deleted(_: Event) -> None:
        restore(job, "2", "3")
        job.source.delete_one({"_id": 2})

    with pytest.raises(LeaseHeld):
        stopped(lambda: restore(job, "2", "3"), has_read_archive, deleted)

    assert [record["_id"] for record in job.source.find()] == [1, 3]


def test_a_sweep_that_wakes_when_its_records_were_moved_and_restored_archives_none(job: Job) -> None:
    with_two_copies(job)
    before = Snapshot(job)
    for number in range(1, commands_of(lambda: sweep(job)) + 1, EVERY):
        before.restore()

        def is_next(sent: int, event: Event, number: int = number) -> bool:
            # An insert itself cannot ask who has the lease.  The time limit of a removal would count for the
            # others, too, who work in the same thread here.
            return (
                sent >= number and event.command.get("insert") != ARCHIVE and event.command_name != "delete"
            )

        def moved_and_restored(_: Event) -> None:
            sweep(job)
            restore(job, "2", "3")

        with suppress(LeaseHeld):
            stopped(lambda: sweep(job), is_next, moved_and_restored)

        assert archived(job) == {}, f"stopped before command {number}"
        assert job.differences() == {}


def test_an_undo_that_wakes_when_its_plans_are_gone_says_who_took_them(job: Job, twin: Make) -> None:
    _, run = odd_run(job)
    half = twin()

    def reads_plans(_: int, event: Event) -> bool:
        return bool(event.command.get("find") == "unique.dedup.plans")

    with pytest.raises(LeaseHeld, match="another command has undone plans"):
        stopped(lambda: undo(half, run), reads_plans, lambda event: undo(half, run))


def test_an_undo_that_wakes_before_its_backup_when_another_has_ended_it_leaves_none(
    job: Job, twin: Make
) -> None:
    _, run = odd_run(job)
    half = twin()

    def reads_source(_: int, event: Event) -> bool:
        return bool(event.command.get("find") == "pages")

    with pytest.raises(LeaseHeld):
        stopped(lambda: undo(half, run), reads_source, lambda event: undo(half, run))

    assert half.ledger("aside").count_documents({}) == 0


def test_an_undo_that_wakes_before_a_removal_says_who_works(job: Job, twin: Make, short: None) -> None:
    _, run = odd_run(job)
    half = twin()

    def decided_again(job: Job) -> None:
        undo(job, run)
        job.decide("run")

    with pytest.raises(LeaseHeld, match="another run took over"):
        stopped(lambda: undo(half, run), second_removal("unique"), partial(_others, decided_again, half))
