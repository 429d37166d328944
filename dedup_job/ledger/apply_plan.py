"""Apply a plan to the target: insert kept records, and replace or remove earlier copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from dedup_job.errors import Unreachable
from dedup_job.ledger.overrides import KEEP, PASS
from dedup_job.ledger.plan_format import StoredPlan, pack, unpack, with_number
from dedup_job.ledger.rows_on_records import left_row, row_keys
from dedup_job.mongo.compare_stored_with_sent import possible_originals
from dedup_job.mongo.connect_and_retry import Disturbed
from dedup_job.mongo.id_lookup import RecordsById
from dedup_job.mongo.ids import portions, selector
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.records import CONFLICT, COPYING_ACTIONS, VANISHED, Action, Plan, Verdict, digest


@dataclass(frozen=True, slots=True)
class CurrentRecords:
    """The present versions of a plan's records.

    Attributes:
        raws: Raw record by row; None if it no longer exists.
        changed: `digest` of the present version by row, where it differs from the version that was judged.
        taken: Rows whose record no longer exists, while the target has another record with its id.
        landed: Rows whose record a killed run inserted into the target.
    """

    raws: Sequence[bytes | None]
    changed: Mapping[int, bytes] = field(default_factory=dict)
    taken: frozenset[int] = frozenset()
    landed: frozenset[int] = frozenset()


def records_now(stored: StoredPlan, source: Source, target: Target) -> CurrentRecords:
    """Fetch the present versions of a pending plan's records.

    A record that is in the target in the judged version is taken from there, with the timestamps that the
    server set when it was inserted.  A copy that the plan replaces or removes is not another record.
    """
    plan, before = stored.plan, stored.before
    raws: list[bytes | None] = [None] * len(plan)
    taken, changed, landed = set[int](), dict[int, bytes](), set[int]()
    for row, raw in _fetch_rows(plan, range(len(plan)), target):
        is_from_before = before and is_as_judged(raw, before.hash_of(row) or b"")
        if is_as_judged(raw, plan.hash_of(row)):
            raws[row] = raw
            if not is_from_before and target.holds_copies:
                landed.add(row)
        elif not is_from_before:
            taken.add(row)
    missing = [row for row, known in enumerate(raws) if known is None]
    for row, raw in _fetch_rows(plan, missing, source):
        raws[row] = raw
        taken.discard(row)
        if (present := digest(raw)) != plan.hash_of(row):
            changed[row] = present
    return CurrentRecords(raws, changed, frozenset(taken), frozenset(landed))


def _fetch_rows(plan: Plan, rows: Iterable[int], records: RecordsById) -> Iterator[tuple[int, bytes]]:
    """Yield each of these rows whose record exists, and the raw record."""
    row_of = {plan.ids[row]: row for row in rows}
    for found in records.fetch(list(row_of)):
        for raw_id, raw in found.items():
            yield row_of[raw_id], raw


def gone_keepers(stored: StoredPlan, earlier: Iterable[StoredPlan], target: Target) -> set[bytes]:
    """Return the keepers of a plan, from before it, that are missing from the target or changed there."""
    matches = (verdict.match for verdict in stored.plan.verdicts)
    keepers = {match.keeper for match in matches if match is not None} - set(stored.plan.ids)
    if not keepers:
        return set()
    judged = {
        raw_id: hashed.tobytes()
        for one in earlier
        for raw_id, hashed in zip(one.plan.ids, one.plan.hashes, strict=True)
        if raw_id in keepers
    }
    for found in target.fetch(list(keepers)):
        keepers -= {one for one, raw in found.items() if one in judged and is_as_judged(raw, judged[one])}
    return keepers


def is_as_judged(stored: bytes, judged: bytes) -> bool:
    """Return whether a record in the target is the judged version.

    Args:
        stored: The record in the target, whose empty timestamps the server may have set.
        judged: `digest` of the version that was judged.
    """
    return any(digest(sent) == judged for sent in possible_originals(stored))


def not_as_judged(plan: Plan, records: CurrentRecords, rows: Iterable[int]) -> dict[int, Verdict]:
    """Return new verdicts for the rows whose record vanished or changed since the decision."""
    failed = {
        row: CONFLICT if row in records.taken else VANISHED for row in rows if records.raws[row] is None
    }
    for row in records.changed.keys() & rows:
        if records.changed[row] != plan.hash_of(row):
            failed[row] = Verdict(Action.UNCHECKED, "changed")
    return failed


def as_arriving(plan: Plan, records: CurrentRecords, rows: Iterable[int]) -> Plan:
    """Return the plan with the hashes of the present versions in these rows, which will be inserted."""
    hashes = plan.hashes.copy()
    for row in records.changed.keys() & rows:
        hashes[row] = np.frombuffer(records.changed[row], np.uint64)
    return replace(plan, hashes=hashes)


# Records that are removed from their earlier plans together.
RECORDS_AT_ONCE = 500_000
# Times that a replacement or a removal is tried, each as long as the lease lasts: the transaction of a killed
# run keeps others from its records for a minute.
TRIES = 4
# Times that the records of a plan are replaced all at once, each time without the record that was refused.
EXCHANGES = 20
# Reason to leave a copy in the target: somebody changed it there.
ALTERED = "altered"

# Renews the lease, and returns the server time until which it covers writes.
Deadline = Callable[[], datetime]


def replace_kept(
    stored: StoredPlan, records: CurrentRecords, rows: Sequence[int], target: Target, deadline: Deadline
) -> dict[int, Verdict]:
    """Replace earlier copies in the target by the new versions of these kept records.

    Copies that somebody altered, and records that changed again since the plan, are left alone.

    Returns:
        The new verdicts of rows that the target refuses.

    Raises:
        Unreachable: If the target did not replace the records before the deadline.
    """
    versions = _new_versions(stored, records, rows)
    refused, tries = dict[int, str](), 0
    while due := _split_copies(stored, versions.keys() - refused.keys(), target)[0]:
        # This raises if another run has taken the lease.
        before = deadline()
        if tries == TRIES:
            raise Unreachable("the target did not replace the records in time; run again")
        answer = target.replace([versions[row] for row in due], before)
        refused |= {due[place]: reason for place, reason in answer.items()}
        tries += 1
    return {row: Verdict(Action.REFUSED, reason) for row, reason in refused.items()}


def exchange_kept(
    stored: StoredPlan, records: CurrentRecords, rows: Sequence[int], target: Target, deadline: Deadline
) -> None:
    """Replace earlier copies that the target refused to replace one by one, all at once.

    Records may have swapped values of a unique index: each new version is refused while the other's old
    version is there.  A record that is refused even so keeps its earlier copy.
    """
    versions = _new_versions(stored, records, rows)
    due = [versions[row] for row in _split_copies(stored, versions, target)[0]]
    for _ in range(EXCHANGES):
        # One record cannot have swapped a value with itself.
        if len(due) < 2:
            return
        refused = target.exchange(due, deadline)
        if refused is None:
            return
        del due[refused]


def insert_missing(
    stored: StoredPlan, records: CurrentRecords, target: Target, check_held: Callable[[], object]
) -> None:
    """Insert kept records again, in their new version, that somebody deleted from the target.

    Records that the target refuses are found by `rows_in_target`.  `check_held` is as for `Target.insert`.
    """
    rows = stored.plan.rows(*COPYING_ACTIONS)
    due = {stored.plan.ids[row]: raw for row, raw in _new_versions(stored, records, rows).items()}
    target.insert([due[raw_id] for raw_id in sorted(target.absent(due))], check_held=check_held)


def remove_rest(stored: StoredPlan, target: Target, deadline: Deadline) -> dict[int, Verdict]:
    """Remove earlier copies of records that the plan does not keep from the target.

    Returns:
        The new verdicts of rows whose copy stays, as somebody altered it.

    Raises:
        Unreachable: If the target did not remove the records before the deadline.
    """
    rows = _rows_inserted_before(stored, stored.plan.rows(Action.DUPLICATE, Action.REFUSED))
    own, others = _split_copies(stored, rows, target)
    remove_until_gone(target, [stored.plan.ids[row] for row in own], deadline)
    return {row: CONFLICT for row in others if stored.plan.verdicts[row] != CONFLICT}


def remove_until_gone(target: Target, ids: Iterable[bytes], deadline: Deadline) -> None:
    """Remove records, again if a pause of this process or the server has made a removal too late.

    Raises:
        LeaseHeld: If another run has taken the lease.
        Unreachable: If the target did not remove the records before the last deadline.
    """
    there = set(ids)
    for _ in range(TRIES):
        if not there:
            return
        target.remove(sorted(there), deadline())
        there -= target.absent(there)
    if there:
        raise Unreachable("the target did not remove the records in time; run the same command again")


def left_rows(stored: StoredPlan) -> list[bytes]:
    """Return the rows of `left` on copies that somebody altered, so that they stay in the target."""
    rows = _rows_inserted_before(stored, stored.plan.rows(Action.REFUSED))
    altered = [stored.plan.ids[row] for row in rows if stored.plan.verdicts[row] == CONFLICT]
    return [left_row(raw_id, ALTERED, stored.run, stored.at, decided=stored.run) for raw_id in altered]


def rows_in_target(stored: StoredPlan, target: Target) -> list[int]:
    """Return the rows whose new version is in the target, and the rows that need no copy there."""
    plan = stored.plan
    inserted = _rows_inserted_before(stored, plan.rows(*COPYING_ACTIONS))
    found = _fetch_rows(plan, inserted, target)
    lacking = set(inserted) - {row for row, raw in found if is_as_judged(raw, plan.hash_of(row))}
    return [row for row in range(len(plan)) if row not in lacking]


def _rows_inserted_before(stored: StoredPlan, rows: Sequence[int]) -> list[int]:
    """Return the rows whose record was inserted into the target for an earlier decision."""
    assert stored.before is not None
    return [row for row in rows if stored.before.hash_of(row) is not None]


def _new_versions(stored: StoredPlan, records: CurrentRecords, rows: Sequence[int]) -> dict[int, bytes]:
    """Return the raw records, by row, whose version in the plan differs from the version inserted before."""
    assert stored.before is not None
    versions: dict[int, bytes] = {}
    for row in _rows_inserted_before(stored, rows):
        raw, judged = records.raws[row], stored.plan.hash_of(row)
        if raw is not None and digest(raw) == judged != stored.before.hash_of(row):
            versions[row] = raw
    return versions


def _split_copies(stored: StoredPlan, rows: Iterable[int], target: Target) -> tuple[list[int], list[int]]:
    """Return the rows whose earlier copy is in the target, and the rows where another record is.

    If the record is dropped, the version that was judged now counts, too: its owner may have edited source
    and target alike.
    """
    assert stored.before is not None
    own, others = list[int](), list[int]()
    for row, raw in _fetch_rows(stored.plan, rows, target):
        versions = [stored.before.hash_of(row) or b""]
        if stored.plan.verdicts[row].action is Action.DUPLICATE:
            versions.append(stored.plan.hash_of(row))
        is_own = any(is_as_judged(raw, version) for version in versions)
        (own if is_own else others).append(row)
    return sorted(own), sorted(others)


@dataclass(frozen=True, slots=True)
class EarlierPlans:
    """Changes the plans, and the rows, of earlier decisions.

    A run that took over may have undone these plans, and decided their records again in others.  So each
    change names what was read before the last look at the lease.

    Attributes:
        collection: Returns a collection of the ledger by its name.
        check_held: Raises LeaseHeld if another run has taken the lease.
    """

    collection: Callable[[str], RetryingCollection]
    check_held: Callable[[], object]

    def remove_records(self, stored: StoredPlan) -> None:
        """Remove the records of a plan from earlier plans, and the rows on the earlier decisions.

        Only rows of those plans' runs are deleted, so rows of later runs stay.
        """
        ids = self._by_number(stored, range(len(stored.plan)))
        plans = self.collection("plans")
        runs = sorted({plan["run"] for number in ids for plan in plans.find(with_number(number), {"run": 1})})
        self.check_held()
        self._delete_rows(stored, runs)
        self._remove_by_number(ids)

    def remove_redecided(self, plans: Iterable[StoredPlan]) -> None:
        """Remove the records of plans that decided them again from their earlier plans.

        Each earlier plan is rewritten once for many records.  The plans must come in order: a plan that is
        rewritten itself no longer says where its records were before.
        """
        ids: dict[int, set[bytes]] = defaultdict(set)
        waiting = 0
        for stored in plans:
            if stored.before is None:
                continue
            for number, some in self._by_number(stored, range(len(stored.plan))).items():
                ids[number] |= some
            waiting += len(stored.plan)
            if waiting >= RECORDS_AT_ONCE:
                self._remove_by_number(ids)
                ids.clear()
                waiting = 0
        self._remove_by_number(ids)

    def _remove_by_number(self, ids: Mapping[int, Collection[bytes]]) -> None:
        for number in sorted(ids):
            self._rewrite(number, partial(StoredPlan.without, ids=ids[number]))

    def renew(self, stored: StoredPlan, rows: Sequence[int]) -> None:
        """Write the new hashes of these rows into the earlier plans.

        A hash that a later renewal has changed is left alone.
        """
        plan, before = stored.plan, stored.before
        assert before is not None
        hashes = {plan.ids[row]: (before.hash_of(row), plan.hash_of(row)) for row in rows}
        for number in self._by_number(stored, rows):
            self._rewrite(number, lambda old: old.with_hashes(hashes))

    def _by_number(self, stored: StoredPlan, rows: Sequence[int]) -> Mapping[int, set[bytes]]:
        assert stored.before is not None
        ids: dict[int, set[bytes]] = defaultdict(set)
        for row in rows:
            ids[int(stored.before.numbers[row])].add(stored.plan.ids[row])
        return ids

    def _delete_rows(self, stored: StoredPlan, runs: Sequence[str]) -> None:
        """Delete the rows on earlier decisions; overrides stay valid for the new decision."""
        # The plan's own rows are there already.  The earlier decision may be of the same run, which decides
        # again what the target refused because of a unique index.
        others = [run for run in runs if run != stored.run]
        earlier = {"$or": [{"run": {"$in": others}}, {"run": stored.run, "at": {"$lt": stored.at}}]}
        restored = {"action": KEEP, "dropped.run": {"$in": runs}}
        for some in portions(row_keys(stored.plan.ids)):
            for name in ("dropped", "exceptions"):
                rows = {"$and": [selector(some), earlier]}
                self.collection(name).delete_many(rows)
            words = {"$and": [selector(some), restored]}
            passed = {"$set": {"action": PASS}}
            self.collection("overrides").update_many(words, passed)

    def _rewrite(self, number: int, change: Callable[[StoredPlan], StoredPlan]) -> None:
        """Rewrite a plan; retry after a pause if another process changes it at the same time."""
        self.collection("plans").attempt(lambda: self._try_rewrite(number, change))

    def _try_rewrite(self, number: int, change: Callable[[StoredPlan], StoredPlan]) -> None:
        """Rewrite a plan; raise Disturbed if another process has changed it since it was read."""
        found = self.collection("plans").find(with_number(number))
        self.check_held()
        if not all([self._swap_plan(packed, change) for packed in found]):
            raise Disturbed

    def _swap_plan(self, packed: Mapping[str, Any], change: Callable[[StoredPlan], StoredPlan]) -> bool:
        """Store the changed plan if the ledger still has the version `packed`; return whether it had."""
        after = pack(change(unpack(packed)))
        if after["sha256"] == packed["sha256"]:
            return True
        same = {"_id": packed["_id"], "sha256": packed["sha256"]}
        found = self.collection("plans").replace_one(same, after)
        return found.matched_count == 1
