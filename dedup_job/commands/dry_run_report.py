"""`report`: decide like a backfill or a run, and write nothing to MongoDB."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dedup_job.commands.backfill_and_run import plan_adoption
from dedup_job.commands.status import expected_records
from dedup_job.index.digest_index import DigestIndex
from dedup_job.ledger.head import Head
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.rows_on_records import Dependant
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.settings_fit_ledger import Consent
from dedup_job.mongo.id_lookup import RecordsInTurn
from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.pages import Window
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.pipeline.command_context import Context, find_head, first_records
from dedup_job.pipeline.displaced_records_queue import DroppedRecord, LeavingRecord
from dedup_job.pipeline.guards import Guards, InterruptedCounts, WarningList
from dedup_job.pipeline.job import Observe, plan_without_texts
from dedup_job.pipeline.load_keepers_and_scan_source import (
    PriorDecisions,
    interrupted_runs,
    scan_source,
    warn_missing_keepers,
)
from dedup_job.pipeline.replace_keepers_in_ledger import choose_decider
from dedup_job.preference.preference_ranks import pack_rank
from dedup_job.records import (
    BACKFILL,
    COPYING_ACTIONS,
    NIGHTLY,
    Counts,
    Fingerprints,
    Plan,
    RawIds,
    digests,
)
from dedup_job.report.progress import Advance
from dedup_job.report.run_summary import RunSummary
from dedup_job.temporary_ids_and_tables import TemporaryTables

TABLES = (
    # The keeper is NULL for a record that was dropped by the ledger and would be kept.
    "CREATE TABLE decided (id BLOB PRIMARY KEY, keeper BLOB, number INTEGER, reason TEXT, rank BLOB)",
    "CREATE INDEX dropped_for ON decided (keeper)",
)


@dataclass(frozen=True, slots=True)
class DryRun:
    """The options of a dry run.

    Attributes:
        mode: "backfill" or "run"; None for the mode that is due.
        fresh: Whether to ignore earlier runs.
        limit: Most records to read; None for all.
        consent: Changes that a person has accepted.
        adopt: Whether to keep the target's own records first, as `backfill --adopt` does.
    """

    mode: str | None = None
    fresh: bool = False
    limit: int | None = None
    consent: Consent = Consent()
    adopt: bool = False


class DryRunTarget(RecordsInTurn):
    """The target during a dry run: its own records, and the records that the run would have inserted.

    A keeper of an earlier run is fetched from the target only: it may have been deleted there and still be
    in the source.
    """

    def __init__(self, target: Target, source: Source) -> None:
        super().__init__(target, source)
        self._target, self._source = target, source
        # Digests of ids: 16 bytes each, however long the ids are.
        self._inserted = DigestIndex()

    def accept(self, plan: Plan) -> Plan:
        """Remember which records would be inserted; nothing is written, so nothing is refused."""
        self._inserted.number(digests([plan.ids[row] for row in plan.rows(*COPYING_ACTIONS)]))
        return plan

    def absent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Return the keepers that are neither in the target nor would have been inserted."""
        gone = self._target.absent(ids)
        inserted = self._ids_in_second(list(gone))
        return gone.difference(inserted) | self._source.absent(inserted)

    def conflicting(self, records: Iterable[bytes]) -> set[bytes]:
        """Return the ids of the raw records that differ from the target's record with the same id."""
        return self._target.conflicting(records)

    def _ids_in_second(self, ids: Sequence[bytes]) -> Sequence[bytes]:
        """Return the ids of records that the run would have inserted, which are in the source."""
        numbers = self._inserted.find(digests(ids)).tolist()
        return [raw_id for raw_id, number in zip(ids, numbers, strict=True) if number >= 0]


class DryRunDecisions:
    """Stores the decisions of a dry run with `[match] prefer`: in a temporary file, not in the ledger."""

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
        self._tables = TemporaryTables(*TABLES)

    def commit(self, plan: Plan) -> Plan:
        """Store a plan as if it were committed."""
        plan = self._accept(plan)
        self.number += 1
        assert plan.ranks is not None
        rows = [
            (raw_id, verdict.match and verdict.match.keeper, self.number, verdict.reason, pack_rank(rank))
            for raw_id, verdict, rank in zip(plan.ids, plan.verdicts, plan.ranks, strict=True)
        ]
        self._tables.fill("INSERT OR REPLACE INTO decided VALUES (?,?,?,?,?)", rows)
        return plan

    def redecide(self, plan: Plan, raws: Sequence[bytes], dropped: Sequence[DroppedRecord]) -> Plan:
        """Store new decisions on dropped records."""
        return self.commit(plan)

    def replace(self, leaving: Sequence[LeavingRecord]) -> Plan:
        """Return a plan of the records that would leave the target."""
        ids = [record.id for record in leaving]
        return plan_without_texts(self._blank, ids, [record.verdict for record in leaving])

    def dropped_for(self, keepers: Sequence[bytes], take: Callable[[Sequence[Dependant]], None]) -> None:
        """Pass on the records that were dropped for these keepers, by the ledger or by this dry run."""
        if self._reader is not None:
            self._reader.dropped_for(keepers, lambda found: take(self._still_valid(found)))
        select = "SELECT id, keeper, number, reason, rank FROM decided WHERE keeper IN"
        take([Dependant(*row) for row in self._tables.fetch_among(select, keepers)])

    def _still_valid(self, dependants: Sequence[Dependant]) -> list[Dependant]:
        """Return the records that this dry run has not decided again."""
        ids = [one.id for one in dependants]
        again = {raw_id for (raw_id,) in self._tables.fetch_among("SELECT id FROM decided WHERE id IN", ids)}
        return [one for one in dependants if one.id not in again]

    def finish(self) -> None:
        """No-op: nothing is stored."""


def dry_run(
    context: Context, options: DryRun, observe: Observe, advance: Advance = lambda number: None
) -> RunSummary:
    """Decide like a backfill or a nightly run, and return the summary; writes nothing to MongoDB.

    Guards warn and never stop a dry run, also with fewer records than a run would need for its guards.

    Args:
        context: The open connections.
        options: The mode, the limit and accepted changes.
        observe: Called with each plan.
        advance: Called with the number of records that would be adopted since the last call.

    Raises:
        ConfigError: If the target holds records from outside the job, and they are not to be adopted.
    """
    reader = context.ledger_reader()
    head = None if options.fresh else find_head(context, options.consent)
    if not (options.fresh or options.adopt):
        context.check_no_foreign_records(head)
    mode = due_mode(options, head)
    started = time.monotonic()
    warnings = WarningList()
    before = InterruptedCounts() if options.fresh else interrupted_runs(context, reader)
    guards = Guards(context.settings.limits, context.recipe, warnings, warnings, before, judges_few=True)
    with context.engine() as engine:
        target = DryRunTarget(context.target, context.source)
        keepers, window = context.keepers(target, engine), context.window(mode, head)
        adopted = list[RawIds]()
        if options.adopt and context.has_foreign_records(head):
            for batch, plan in plan_adoption(context, engine, reader, head):
                keepers.load_plan(plan.texts)
                adopted.append(RawIds.of(plan.ids))
                advance(len(batch))
        if options.fresh:
            past = PriorDecisions(keepers, IdSet(), IdSet(), window)
        else:
            past = PriorDecisions.read(context, reader, head, keepers, window, foreign=adopted)
        first_number = head.next if head else 0
        blank = context.recipe.unchecked("", b"")
        store = DryRunDecisions(reader if head else None, first_number, target.accept, blank)
        past = past.with_references(context, engine, lambda plan, raws: plan)
        decider = choose_decider(context, engine, past, target, store, first_number)

        def decide_window(window: Window, _: str) -> Counts:
            def accept(plan: Plan, raws: Sequence[bytes]) -> Plan:
                guards.check(plan)
                return store.commit(plan) if context.recipe.matching.prefer else target.accept(plan)

            records = first_records(context.source.batches(window), options.limit)
            batches = guards.first.watch(past.fingerprint(engine, records))
            return decider.decide_batches(batches, accept, observe)

        looked, _ = context.source.begin_scan()
        counts, _ = scan_source(context, reader, head, mode, looked, past.window, decide_window)
        replaced = decider.settle()
        warn_missing_keepers(keepers, warnings)
    return RunSummary(
        RunId.new(mode).name,
        f"report ({mode})",
        counts + replaced.own if replaced is not None else counts,
        time.monotonic() - started,
        context.recipe.digest,
        context.recipe.about,
        keepers.summary,
        warnings=warnings.messages,
        adopted=sum(map(len, adopted)),
        replaced=replaced,
    )


def expected_reads(context: Context, options: DryRun) -> int | None:
    """Return about how many records a dry run will read, for a progress bar; None if that is unknown."""
    mode = due_mode(options, None if options.fresh else context.ledger_reader().head())
    expected = expected_records(context, mode, options.fresh)
    if expected and options.limit:
        expected = min(expected, options.limit)
    adopted = context.target_records.estimated_count() if options.adopt else 0
    return expected + adopted if expected else None


def due_mode(options: DryRun, head: Head | None) -> str:
    """Return the mode of a dry run: the one in its options, or the one that is due."""
    return options.mode or (NIGHTLY if head and head.covered else BACKFILL)
