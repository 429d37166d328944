"""A process that is paused, or whose server is, but keeps its lease, does what it would have done."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from bson import encode

from dedup_job.commands.mark import clear_marks
from dedup_job.ledger import head, leased_ledger, move_between_source_and_archive
from tests.support.faulty_runs import install
from tests.support.job import Job
from tests.support.marks import write_marks
from tests.support.preferred_records import chained_records
from tests.support.restore_cases import restore, with_two_copies
from tests.support.snapshot import Snapshot, contents, names
from tests.support.stopped_process import Event, stopped
from tests.support.sweep_cases import sweep
from tests.support.sync_cases import decided, overtake, up_to_date
from tests.support.undo_cases import OTHERS, odd_run, undo

pytestmark = pytest.mark.longest

EVERY = int(os.environ.get("DEDUP_TEST_EVERY", "4"))  # 1 pauses before each command with a deadline
# Instead of thirty. A command that comes later is sent again.
SECONDS = 2.0

Work = Callable[[], object]


def nightly(job: Job) -> Work:
    undo(job, odd_run(job)[1])
    return lambda: job.decide("run")


def with_better_records(job: Job) -> Work:
    job.set("match", prefer=["longest"])
    records = chained_records(80, seed=3)
    job.source.insert_many(records[:40])
    job.decide("backfill")
    job.source.insert_many(records[40:])
    return lambda: job.decide("run")


def outdated(job: Job) -> Work:
    overtake(decided(job))
    return lambda: up_to_date(job)


def swapped(job: Job) -> Work:
    job.source.insert_many([{"_id": n, "text": OTHERS[n], "key": n} for n in range(4)])
    job.decide("backfill")
    job.target.create_index("key", unique=True)
    job.source.update_one({"_id": 0}, {"$set": {"key": 1}})
    job.source.update_one({"_id": 1}, {"$set": {"key": 0}})
    return lambda: up_to_date(job)


def undone(job: Job) -> Work:
    _, run = odd_run(job)
    return lambda: undo(job, run)


def restored(job: Job) -> Work:
    with_two_copies(job)
    write_marks(job)
    return lambda: restore(job, "2", "3")


def swept(job: Job) -> Work:
    with_two_copies(job)
    return lambda: sweep(job)


def brought_back(job: Job) -> Work:
    with_two_copies(job)
    sweep(job)
    return lambda: restore(job, "2", "3")


def undone_with_archive(job: Job) -> Work:
    run = with_two_copies(job)
    sweep(job)
    return lambda: undo(job, run)


def marked(job: Job) -> Work:
    with_two_copies(job)
    return lambda: write_marks(job)


def cleared(job: Job) -> Work:
    with_two_copies(job)
    write_marks(job)

    def clear() -> None:
        with job.context() as context:
            clear_marks(context, lambda number: None)

    return clear


UNSTABLE = {"run", "at", "until"}


def collections(job: Job) -> dict[str, Any]:
    """Return all records, and the rows of the ledger without what differs from run to run."""
    rows = ("dropped", "exceptions", "overrides", "left")
    found: dict[str, Any] = {name: job.rows(name) for name in rows} | {"plans": job.plans()}
    found["head"] = (job.ledger("head").find_one() or {})["counts"]
    others = [name for name in names(job) if ".dedup." not in name or name.endswith(".aside")]
    # The order of insertion may differ.
    return found | {name: sorted(bytes(one.raw) for one in contents(job, name)) for name in others}


def has_deadline(event: Event) -> bool:
    is_write = event.command_name in ("delete", "update")
    return is_write and b"$$NOW" in encode({"command": event.command})


MAKERS = (
    nightly, with_better_records, outdated, swapped, undone, restored, swept, brought_back,
    undone_with_archive, marked, cleared,
)  # fmt: skip


@pytest.mark.parametrize("prepare", MAKERS, ids=lambda prepare: prepare.__name__)
def test_a_pause_within_the_lease_changes_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Job], Work]
) -> None:
    install(monkeypatch)
    work = prepare(job)
    before = Snapshot(job)
    work()
    calm = collections(job)
    monkeypatch.setattr(leased_ledger, "MARGIN", head.SECONDS - SECONDS)
    monkeypatch.setattr(move_between_source_and_archive, "BEGIN_SECONDS", SECONDS)
    is_over, first = False, 1
    while not is_over:
        before.restore()
        with_deadline = count(1)

        def pauses(_: int, event: Event, with_deadline: count[int] = with_deadline, at: int = first) -> bool:
            return has_deadline(event) and next(with_deadline) == at

        try:
            stopped(work, pauses, lambda event: time.sleep(SECONDS + 0.1))
        except AssertionError:
            # There are fewer such commands.
            is_over = True
        assert collections(job) == calm, f"paused before command {first} with a deadline"
        assert job.differences() == {}
        first += EVERY
    assert first > 1 + EVERY
