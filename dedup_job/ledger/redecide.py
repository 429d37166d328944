"""Let a new plan replace earlier decisions about the same records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo.collection import Collection

from dedup_job.errors import Unreachable
from dedup_job.ledger.apply_plan import CurrentRecords, is_as_judged
from dedup_job.ledger.overrides import KEEP, PASS
from dedup_job.ledger.plan_format import StoredPlan, pack, unpack
from dedup_job.ledger.rows import left_row, row_keys
from dedup_job.mongo.client import Disturbed, RetryPolicy, named_errors
from dedup_job.mongo.ids import portions, selector
from dedup_job.mongo.target import Target
from dedup_job.records import CONFLICT, COPYING_ACTIONS, Action, Verdict, digest

ALTERED = "altered"

Deadline = Callable[[], datetime]  # renews the lease, and tells until when writes are covered by it


def replace_kept(
    stored: StoredPlan, records: CurrentRecords, rows: Sequence[int], target: Target, deadline: Deadline
) -> dict[int, Verdict]:
    """Let these kept records take the place of their earlier copies; returns those that the target refuses.

    Where a copy is not as it was judged, or the record is not that of the plan, nothing is done.
    """
    due = _due(stored, records, rows)
    due = {row: due[row] for row in _copies(stored, due, target)[0]}
    if not due:
        return {}
    places = list(due)
    refused = {places[place]: reason for place, reason in target.replace([*due.values()], deadline()).items()}
    if _copies(stored, due.keys() - refused.keys(), target)[0]:
        deadline()  # which raises when another has the lease
        raise Unreachable("the target did not replace the records in time; run again")
    return {row: Verdict(Action.REFUSED, reason) for row, reason in refused.items()}


def insert_missing(stored: StoredPlan, records: CurrentRecords, target: Target) -> None:
    """Put what a plan keeps, and somebody took out of the target, there again as it is now.

    Which records the target does not take, `rows_in_target` shows.
    """
    rows = stored.plan.rows(*COPYING_ACTIONS)
    due = {stored.plan.ids[row]: raw for row, raw in _due(stored, records, rows).items()}
    target.insert([due[raw_id] for raw_id in sorted(target.absent(due))])


def remove_rest(stored: StoredPlan, target: Target, deadline: Deadline) -> dict[int, Verdict]:
    """Take the copies of what a plan does not keep out of the target; returns the rows of which one stays."""
    rows = _of_earlier(stored, stored.plan.rows(Action.DUPLICATE, Action.REFUSED))
    own, others = _copies(stored, rows, target)
    there = {stored.plan.ids[row] for row in own}
    while there:
        target.remove(sorted(there), deadline())
        before, there = there, there - target.absent(there)
        if there == before:
            deadline()
            raise Unreachable("the target did not remove the records in time; run again")
    return {row: CONFLICT for row in others if stored.plan.verdicts[row] != CONFLICT}


def left_rows(stored: StoredPlan) -> list[bytes]:
    """Return the rows of `left` on the copies that others altered: they stay, and are nobody else's."""
    rows = _of_earlier(stored, stored.plan.rows(Action.REFUSED))
    altered = [stored.plan.ids[row] for row in rows if stored.plan.verdicts[row] == CONFLICT]
    return [left_row(raw_id, ALTERED, stored.run, stored.at, decided=stored.run) for raw_id in altered]


def rows_in_target(stored: StoredPlan, target: Target) -> list[int]:
    """Return the rows whose record is in the target as the plan has it, or was to be in none."""
    wanted = {stored.plan.ids[row]: row for row in _of_earlier(stored, stored.plan.rows(*COPYING_ACTIONS))}
    there = {
        wanted[raw_id]
        for found in target.fetch(list(wanted))
        for raw_id in found.keys() & wanted.keys()
        if is_as_judged(found[raw_id], _hash_of(stored, wanted[raw_id]))
    }
    return [row for row, raw_id in enumerate(stored.plan.ids) if raw_id not in wanted or row in there]


def _of_earlier(stored: StoredPlan, rows: Sequence[int]) -> list[int]:
    """Return those of the rows whose record an earlier decision put into the target."""
    assert stored.before is not None
    return [row for row in rows if stored.before.hash_of(row) is not None]


def _due(stored: StoredPlan, records: CurrentRecords, rows: Sequence[int]) -> dict[int, bytes]:
    """Return by row those of the records that the target is to have otherwise than before."""
    now = ((row, _now(stored, records, row)) for row in _of_earlier(stored, rows))
    return {row: raw for row, raw in now if raw is not None}


def _now(stored: StoredPlan, records: CurrentRecords, row: int) -> bytes | None:
    """Return a record where it is as the plan has it, and is not what was decided of it before."""
    assert stored.before is not None
    raw, judged = records.raws[row], _hash_of(stored, row)
    is_new = raw is not None and digest(raw) == judged != stored.before.hash_of(row)
    return raw if is_new else None


def _copies(stored: StoredPlan, rows: Any, target: Target) -> tuple[list[int], list[int]]:
    """Return of which of these rows the earlier copy is in the target, and of which something else is."""
    assert stored.before is not None
    wanted = {stored.plan.ids[row]: row for row in rows}
    own, others = list[int](), list[int]()
    for found in target.fetch(list(wanted)):
        for raw_id in found.keys() & wanted.keys():
            row = wanted[raw_id]
            is_own = is_as_judged(found[raw_id], stored.before.hash_of(row) or b"")
            (own if is_own else others).append(row)
    return sorted(own), sorted(others)


def _hash_of(stored: StoredPlan, row: int) -> bytes:
    judged: bytes = stored.plan.hashes[row].tobytes()
    return judged


@dataclass(frozen=True, slots=True)
class EarlierPlans:
    """The plans, and the rows, of what was decided before; `collection` gives a collection of the ledger."""

    collection: Callable[[str], Collection[Any]]
    patience: RetryPolicy

    def take_out(self, stored: StoredPlan) -> None:
        """Take the records of a plan out of the plans before, and the rows that tell of those decisions.

        Rows are named by the runs that wrote them, so that those of later runs stay.
        """
        ids = self._by_number(stored, range(len(stored.plan)))
        self._forget_rows(stored.plan.ids, self._runs(ids))
        for number, some in ids.items():
            self._rewrite(number, lambda old: old.without(some))  # noqa: B023

    def renew(self, stored: StoredPlan, rows: Sequence[int]) -> None:
        """Let the plans before have the hashes that these rows have now, in the place of those they had.

        Where one has another by now, a later renewal was there.
        """
        assert stored.before is not None
        columns = stored.before.hashes, stored.plan.hashes
        hashes = {
            stored.plan.ids[row]: (columns[0][row].tobytes(), columns[1][row].tobytes()) for row in rows
        }
        for number in self._by_number(stored, rows):
            self._rewrite(number, lambda old: old.with_hashes(hashes))

    def _by_number(self, stored: StoredPlan, rows: Sequence[int]) -> Mapping[int, set[bytes]]:
        assert stored.before is not None
        ids: dict[int, set[bytes]] = defaultdict(set)
        for row in rows:
            ids[int(stored.before.numbers[row])].add(stored.plan.ids[row])
        return ids

    def _forget_rows(self, ids: Sequence[bytes], runs: Sequence[str]) -> None:
        """Take out what tells of earlier decisions; a person's word holds for the new one as for any."""
        by_runs = {"run": {"$in": runs}}
        restored = {"action": KEEP, "dropped.run": {"$in": runs}}
        with named_errors("the ledger"):
            for some in portions(row_keys(ids)):
                for name in ("dropped", "exceptions"):
                    rows = {"$and": [selector(some), by_runs]}
                    self.patience(lambda: self.collection(name).delete_many(rows))  # noqa: B023
                words = {"$and": [selector(some), restored]}
                passed = {"$set": {"action": PASS}}
                self.patience(lambda: self.collection("overrides").update_many(words, passed))  # noqa: B023

    def _runs(self, numbers: Mapping[int, Any]) -> list[str]:
        names = {plan["run"] for number in numbers for plan in self._found(number, {"run": 1})}
        return sorted(names)

    def _rewrite(self, number: int, changed: Callable[[StoredPlan], StoredPlan]) -> None:
        """Write a plan again as it is to be; after a pause, once more, where another process changed it."""
        with named_errors("the ledger"):
            self.patience(lambda: self._try_rewrite(number, changed))

    def _try_rewrite(self, number: int, changed: Callable[[StoredPlan], StoredPlan]) -> None:
        """Raise Disturbed where another process has changed the plan since it was read."""
        if not all([self._is_rewritten(packed, changed) for packed in self._found(number)]):
            raise Disturbed

    def _is_rewritten(self, packed: Mapping[str, Any], changed: Callable[[StoredPlan], StoredPlan]) -> bool:
        after = pack(changed(unpack(packed)))
        if after["sha256"] == packed["sha256"]:
            return True
        same = {"_id": packed["_id"], "sha256": packed["sha256"]}
        with named_errors("the ledger"):
            found = self.patience(lambda: self.collection("plans").replace_one(same, after))
        return found.matched_count == 1

    def _found(self, number: int, projection: Mapping[str, int] | None = None) -> Iterator[Mapping[str, Any]]:
        """Yield the plans of a number: one that is in the chain, and what killed runs have left."""
        condition = {"_id": {"$gte": {"number": number}, "$lt": {"number": number + 1}}}
        with named_errors("the ledger"):
            found = self.patience(lambda: list(self.collection("plans").find(condition, projection)))
        yield from found
