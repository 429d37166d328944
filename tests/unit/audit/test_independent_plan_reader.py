from __future__ import annotations

from typing import Any

import pytest
from bson import decode, encode
from bson.codec_options import CodecOptions
from hypothesis import given

from dedup_job.audit.independent_plan_reader import DamagedPlan, read_plan_document
from dedup_job.ledger.plan_format import COLUMNS, StoredPlan, checksum, pack, unpack
from dedup_job.ledger.rows_on_records import dropped_row, exception_row
from dedup_job.records import Action, digest
from tests.support.stored_plans import example, stored_plans

TIMED: CodecOptions[dict[str, object]] = CodecOptions(tz_aware=True)


@given(stored_plans())
def test_the_second_reading_of_a_plan_says_what_the_first_says(stored: StoredPlan) -> None:
    packed = decode(encode(pack(stored)), TIMED)
    plan, audited = unpack(packed).plan, read_plan_document(packed)

    assert (audited.previous, audited.mode) == (stored.previous and stored.previous.key, stored.mode)
    keepers = [verdict.match and verdict.match.keeper for verdict in plan.verdicts]
    assert [
        (one.id, one.action, one.reason, one.hash, one.digest, one.keeper) for one in audited.decisions
    ] == [
        (raw_id, verdict.action, verdict.reason, record.tobytes(), text.tobytes(), keeper)
        for raw_id, verdict, record, text, keeper in zip(
            plan.ids, plan.verdicts, plan.hashes, plan.digests, keepers, strict=True
        )
    ]
    first = stored.id.number << 32
    assert [one.place - first for one in audited.decisions] == list(range(len(plan)))


@given(stored_plans())
def test_the_row_that_must_tell_of_a_record_is_the_one_that_a_run_writes(stored: StoredPlan) -> None:
    decisions = read_plan_document(decode(encode(pack(stored)), TIMED)).decisions
    for row, (one, verdict) in enumerate(zip(decisions, stored.plan.verdicts, strict=True)):
        if verdict.action is Action.UNIQUE:
            assert (one.noted, one.note) == (None, None)
        elif verdict.action is Action.DUPLICATE:
            assert (one.noted, one.note) == ("dropped", digest(dropped_row(stored, row)))
        else:
            assert (one.noted, one.note) == (
                "exceptions",
                digest(exception_row(stored, row)),
            )


@pytest.mark.parametrize(
    "name", [*COLUMNS, "reason_names", "sha256", "previous", "mode", "count", "run", "at"]
)
def test_a_plan_that_lost_a_part_is_damaged(name: str) -> None:
    packed = pack(example())
    del packed[name]
    with pytest.raises(DamagedPlan):
        read_plan_document(packed)


SHORTER = ["ids", "hashes", "digests", "actions", "reasons", "keepers", "distances", "similarities"]


@pytest.mark.parametrize("changes", [{name: -1} for name in SHORTER] + [{"actions": bytes([1, 1])}])
def test_parts_that_do_not_fit_are_noticed_even_where_the_checksum_is_right(changes: dict[str, Any]) -> None:
    packed = pack(example())
    for name, change in changes.items():
        packed[name] = packed[name][:change] if change == -1 else change
    packed["sha256"] = checksum(packed)
    with pytest.raises(DamagedPlan):
        read_plan_document(packed)
