"""Collections and commands shared by the tests of `undo`."""

from __future__ import annotations

from random import Random
from typing import Any

from dedup_job.commands import verify
from dedup_job.commands import verify as verify_command
from dedup_job.commands.undo import undo as undo_command
from dedup_job.report.undo_and_restore_results import UndoResult
from tests.support.job import Job
from tests.support.kill_in_process import killed_after_setting

TEXT = "这一段文字在两条记录里完全相同，后一条是前一条的重复。"
OTHERS = ["".join(chr(Random(50 * n + i).randrange(0x4E00, 0x9000)) for i in range(50)) for n in range(16)]


def undo(job: Job, run: str) -> UndoResult:
    with job.context() as context:
        return undo_command(context, run, lambda plan: None)


def target_hash(job: Job) -> str | None:
    name = job.target.name
    hashes: dict[str, str] = job.target.database.command("dbHash", collections=[name])["collections"]
    return hashes.get(name)


def state(job: Job) -> dict[str, Any]:
    """Return the result of a run: the target's hash, the head without the lease, and other collections."""
    head = job.ledger("head").find_one() or {}
    return {
        "target": target_hash(job),
        "head": {name: value for name, value in head.items() if name not in ("fence", "lease", "places")},
        "plans": [plan["_id"] for plan in job.ledger("plans").find().sort("_id", 1)],
        "dropped": job.rows("dropped"),
        "exceptions": job.rows("exceptions"),
    }


def texts(start: int, stop: int, **more: Any) -> list[dict[str, Any]]:
    return [{"_id": n, "text": OTHERS[n], **more} for n in range(start, stop)]


def odd_run(job: Job) -> tuple[dict[str, Any], str]:
    """Decide records of every verdict in a nightly run; return the state before, and the run."""
    job.set("limits", batch_records=6)
    job.database.create_collection("unique", validator={"bad": {"$exists": False}})
    job.source.insert_many(texts(0, 4))
    job.decide("backfill")
    before = state(job)
    job.source.insert_many(
        [
            *texts(10, 13),
            {"_id": 20, "text": TEXT, "bad": 1},
            {"_id": 21, "text": TEXT},
            {"_id": 22, "text": TEXT},
            {"_id": 23, "text": ""},
            {"_id": 24},
            {"_id": 25, "text": OTHERS[1]},
        ]
    )
    report = job.decide("run")
    assert (report.counts.unique, report.counts.exact) == (4, 2)
    assert (sum(report.counts.unchecked.values()), report.counts.refused) == (2, {"validator": 1})
    return before, report.run


def stopped_before_the_insert(job: Job) -> str:
    """Let a nightly run die after its plan is accepted; return its name."""
    killed_after_setting("pending", lambda: job.decide("run"))
    row = job.ledger("runs").find_one(sort=[("started", -1)]) or {}
    return str(row["_id"])


def half_undone(job: Job) -> str:
    """Leave an undo half done; return the run."""
    job.source.insert_many(texts(0, 4))
    job.decide("backfill")
    job.source.insert_many(texts(4, 8))
    run = job.decide("run").run
    killed_after_setting("undo", lambda: undo(job, run))
    return run


def kinds(job: Job) -> list[str]:
    with job.context() as context:
        found = verify_command.verify(context, None, lambda number: None)
        sample = verify.verify_sample(context, 1_000, lambda number: None)
    return [one.kind for one in (*found.differences, *sample.differences)]
