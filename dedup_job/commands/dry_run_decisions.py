"""The decisions of a dry run with `[match] prefer`: in a temporary file, not in the ledger."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from dedup_job.fingerprint.preference_ranks import pack_rank
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.replaced_decisions import named_storage_errors
from dedup_job.ledger.rows import Dependant
from dedup_job.pipeline.job import make_plan
from dedup_job.pipeline.redecision_queue import AT_ONCE, DroppedRecord, LeavingRecord
from dedup_job.records import Batch, Fingerprints, Plan, chunked

TABLES = (
    # The keeper is NULL for a record that was dropped by the ledger and would be kept.
    "CREATE TABLE decided (id BLOB PRIMARY KEY, keeper BLOB, number INTEGER, reason TEXT, rank BLOB)",
    "CREATE INDEX dropped_for ON decided (keeper)",
)


class DryRunDecisions:
    """Stores decisions as the ledger would, and writes nothing to MongoDB."""

    def __init__(
        self,
        reader: LedgerReader | None,
        first_number: int,
        accept: Callable[[Plan], Plan],
        blank: Fingerprints,
    ) -> None:
        """Set where earlier decisions are.

        Args:
            reader: The ledger; None to ignore it.
            first_number: Number of the first plan of this dry run.
            accept: Called with each plan; returns it as it would be applied.
            blank: The fingerprints of a record without a text.
        """
        self._reader, self._accept, self._blank = reader, accept, blank
        self.number = first_number - 1
        # An empty name means a temporary file that is deleted when it is closed.
        self._rows = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        weakref.finalize(self, self._rows.close)
        for statement in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", *TABLES):
            self._fetch(statement)

    def commit(self, plan: Plan) -> Plan:
        """Store a plan as if it were committed."""
        plan = self._accept(plan)
        self.number += 1
        rows = []
        for row, verdict in enumerate(plan.verdicts):
            match = verdict.match
            assert plan.ranks is not None
            rank, keeper = pack_rank(plan.ranks[row]), None if match is None else match.keeper
            rows.append((plan.ids[row], keeper, self.number, verdict.reason, rank))
        with named_storage_errors():
            self._rows.execute("BEGIN")
            self._rows.executemany("INSERT OR REPLACE INTO decided VALUES (?,?,?,?,?)", rows)
            self._rows.execute("COMMIT")
        return plan

    def redecide(self, plan: Plan, raws: Sequence[bytes], dropped: Sequence[DroppedRecord]) -> Plan:
        """Store new decisions on dropped records."""
        return self.commit(plan)

    def replace(self, leaving: Sequence[LeavingRecord]) -> Plan:
        """Return a plan of the records that would leave the target."""
        ids = [record.id for record in leaving]
        blank = Fingerprints.join([self._blank] * len(ids))
        return make_plan(Batch(ids, ()), blank, [record.verdict for record in leaving])

    def dropped_for(self, keepers: Sequence[bytes], take: Callable[[Sequence[Dependant]], None]) -> None:
        """Pass on the records that were dropped for these keepers, by the ledger or by this dry run."""
        if self._reader is not None:
            self._reader.dropped_for(keepers, lambda found: take(self._still_valid(found)))
        for some in chunked(keepers, AT_ONCE):
            columns = "id, keeper, number, reason, rank"
            marks = ",".join("?" * len(some))
            found = self._fetch(f"SELECT {columns} FROM decided WHERE keeper IN ({marks})", *some)
            take([Dependant(*row) for row in found])

    def _still_valid(self, dependants: Sequence[Dependant]) -> list[Dependant]:
        """Return the records that this dry run has not decided again."""
        ids = [one.id for one in dependants]
        again = set[bytes]()
        for some in chunked(ids, AT_ONCE):
            marks = ",".join("?" * len(some))
            again.update(
                row[0] for row in self._fetch(f"SELECT id FROM decided WHERE id IN ({marks})", *some)
            )
        return [one for one in dependants if one.id not in again]

    def finish(self) -> None:
        """No-op: nothing is stored."""

    def _fetch(self, statement: str, *values: object) -> list[Any]:
        with named_storage_errors():
            return self._rows.execute(statement, values).fetchall()
