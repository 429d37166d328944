"""A backfill that is decided on Spark and committed by the ledger's own protocol."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

from dedup_job.commands.backfill import decide as decide_here
from dedup_job.config import Settings
from dedup_job.errors import ConfigError
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.search import SEGMENT_BITS
from dedup_job.ledger.commit import Ledger
from dedup_job.ledger.compatibility import Consent
from dedup_job.ledger.head import Head
from dedup_job.ledger.plan_format import PlanColumns
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_history import RunId
from dedup_job.mongo.client import RetryPolicy, connect
from dedup_job.mongo.marks import MarkField
from dedup_job.mongo.pages import MAX_KEY, BatchSize, Window
from dedup_job.mongo.rate_limit import Pace, Rates
from dedup_job.mongo.source import Members, Source
from dedup_job.pipeline.context import Context
from dedup_job.pipeline.guards import (
    FIRST_RECORDS,
    SAMPLED_RECORDS,
    Guards,
    UncheckedGuard,
    WarningList,
    stop_run,
)
from dedup_job.pipeline.job import Observe, commit_in_parts
from dedup_job.pipeline.local_engine import Capacity
from dedup_job.pipeline.prior_decisions import interrupted_runs
from dedup_job.records import BACKFILL, Batch, Counts, Plan, RawIds
from dedup_job.report.run_summary import RunSummary
from dedup_job.spark.commit_verdicts import CommitJob, commit_verdicts
from dedup_job.spark.session import Cluster, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dedup_job.spark.read_ranges import SourceRange
    from dedup_job.spark.stage_files import Stage, Work

RECORDS_A_RANGE = 100_000
# Random ids per range.  Every 20th id begins a range, which makes the ranges about equal.
DRAWN_A_RANGE = 20


@dataclass(frozen=True, slots=True)
class SourceReading:
    """Reads ranges of the source on an executor, with this project's client and a share of the rate limit.

    Attributes:
        settings: The settings of the backfill.
        uri: Connection string of the source.
        share: Number of tasks that read at the same time.
        members: The members from which records are read.
    """

    settings: Settings
    uri: str
    share: int
    members: Members

    def batches(self, range_: SourceRange) -> Iterator[Batch]:
        """Yield the records of a range, in order."""
        settings, limits = self.settings.source, self.settings.limits
        retry = RetryPolicy(limits.retry_seconds, limits.read_seconds)
        size = BatchSize(limits.batch_records, limits.batch_mb << 20)
        rates = Rates(
            (limits.max_docs_per_second or inf) / self.share,
            (limits.max_mb_per_second or inf) * (1 << 20) / self.share,
        )
        how = (limits.connect_seconds, retry, limits.allow_plaintext, self.settings.command)
        with connect(self.uri, "source", *how) as client:
            collection = client[settings.database][settings.collection]
            read = MarkField(self.settings.mark.field).without
            source = Source(collection, settings.condition, size, retry, Pace(rates), read, self.members)
            if not range_.is_one:
                yield from source.batches(Window(start=range_.start, before=range_.before))
            elif range_.start is not None and (batch := source.stretch(range_.start, 1)).ids == [
                range_.start
            ]:
                yield batch


def decide(
    context: Context, observe: Observe, consent: Consent = Consent(), expected: int | None = None
) -> RunSummary:
    """Run a backfill on Spark; if it is complete, decide records that arrived since locally.

    Args:
        context: The open connections.
        observe: Called with each batch and its final plan.
        consent: Changes and guards that a person has accepted.
        expected: About how many records will be decided, for `status`; None if unknown.

    Raises:
        ConfigError: If Spark cannot decide this backfill.
        GuardStop: If a guard stops the run.
    """
    engine = context.settings.engine
    _check_radius(context.recipe)
    if context.references:
        raise ConfigError("[[reference]]: Spark does not support reference collections; use --engine local")
    cluster = Cluster(engine.master, engine.conf, engine.partitions)
    context.check_no_foreign_records(context.ledger_reader().head())
    with session(cluster, f"dedup-job {context.source_name}") as spark:
        from dedup_job.spark.stage_files import Work

        work = Work(spark, engine.work_folder, _stage_inputs(context))
        head = context.ledger_reader().head()
        if not work.is_done or head is None or head.is_empty:
            return _Backfill(context, spark, work, observe).run(consent, expected)
    return decide_here(context, BACKFILL, observe, consent, expected)


def _check_radius(recipe: Recipe) -> None:
    if recipe.matching.prefer:
        raise ConfigError("[match] prefer: Spark does not support it; use --engine local")
    if recipe.matching.radius >= recipe.bits // SEGMENT_BITS:
        raise ConfigError(
            f"[match] radius: from {recipe.bits // SEGMENT_BITS} on, each text is compared with all others, "
            "which Spark does not support; use --engine local"
        )


def _stage_inputs(context: Context) -> dict[str, Any]:
    """Return everything that the stages depend on; stages made from other inputs are not reused."""
    restored = sorted(chain.from_iterable(context.ledger_reader().overridden_ids()))
    return {
        "recipe": context.recipe.digest,
        "source": context.source_name,
        "filter": context.settings.source.plain_filter,
        "collection": context.places.now()["collections"]["source"],
        "restored records": hashlib.sha256(b"".join(restored)).hexdigest(),
    }


def _last_undone(ledger: LedgerReader) -> str | None:
    """Return the time of the last undo: stages from before it are not reused."""
    times = [row["undone"] for row in ledger.runs() if row.get("undone")]
    return max(times).isoformat() if times else None


def _check_decided_by_backfills(ledger: LedgerReader, head: Head) -> None:
    """Raise ConfigError if the ledger holds decisions of other modes, before hours are spent on stages."""
    if any(link.mode != BACKFILL for link in ledger.links(head.last)):
        raise ConfigError(
            "the ledger holds decisions of an adoption or of nightly runs, which Spark does not support; "
            "use --engine local"
        )


@dataclass(frozen=True, slots=True)
class _Backfill:
    """The steps of a backfill on Spark, with their shared connections."""

    context: Context
    spark: SparkSession
    work: Work
    observe: Observe

    def run(self, consent: Consent, expected: int | None) -> RunSummary:
        """Fingerprint, decide and commit all records; stages that are complete are reused."""
        # Imported here, as the module needs pyspark.
        from dedup_job.spark.decide_texts import Shape, decided

        context, run, started = self.context, RunId.new(BACKFILL), time.monotonic()
        warnings = WarningList()
        with context.ledger(run, consent) as ledger:
            head = ledger.recover(context.source, context.target)
            warn = warnings if consent.allow else stop_run
            before = interrupted_runs(context, ledger)
            guards = Guards.of(context.settings.limits, warn, before, fields=context.recipe.reader.fields)
            if len(context.undo_leftovers()):
                raise ConfigError(
                    f"an undo has left records in {context.target_name}, which Spark does not support; "
                    "use --engine local"
                )
            _check_decided_by_backfills(ledger, head)
            restored, undone = frozenset(chain.from_iterable(ledger.overridden_ids())), _last_undone(ledger)
            records = self.work.first("records", lambda: self._read_source(head, restored), undone)
            self._check_first_records(records, guards.first)
            recipe = context.recipe
            shape = Shape(recipe.matching, recipe.bits // 64, recipe.group_words, self._partitions)
            verdicts = decided(self.work, records, shape)
            ledger.begin_deciding(expected)
            counts = self._commit_verdicts(ledger, head, verdicts, guards)
            ledger.store_scan(*_times_of_reading(records), True)
            self.work.end()
            report = RunSummary(
                run.name,
                BACKFILL,
                counts,
                time.monotonic() - started,
                context.recipe.digest,
                context.recipe.about,
                refused_before=ledger.refused_before(),
                warnings=warnings.messages,
            )
            ledger.close({**report.as_json(), "exit_code": report.exit_code})
        return report

    def _check_first_records(self, records: Stage, guard: UncheckedGuard) -> None:
        """Let the guard judge the first records, if there are enough, before the stages that take hours."""
        first = records.table.select("order", "id", "reason").orderBy("order").limit(FIRST_RECORDS).collect()
        if len(first) == FIRST_RECORDS:
            sample = next(
                self.context.source.records([bytes(row.id) for row in first[:SAMPLED_RECORDS]]), None
            )
            guard.add(sample.raws if sample else [], [row.reason for row in first])

    def _commit_verdicts(self, ledger: Ledger, head: Head, verdicts: Stage, guards: Guards) -> Counts:
        """Commit the planned verdicts that the ledger does not hold yet."""
        from dedup_job.spark.planned_verdicts import chunks, first_of, rows, so_far, tables

        context = self.context

        def commit(plan: Plan, raws: Sequence[bytes]) -> Plan:
            guards.check_with_first(plan, raws)
            return ledger.commit(plan, raws, context.target, BACKFILL)

        deviations, rest = so_far(_plans(ledger.plan_columns(head)), tables(self.spark, verdicts))
        first, rest = first_of(rest)

        def find_gone(keepers: Mapping[bytes, int]) -> set[bytes]:
            # Only keepers of earlier runs: records of this run were inserted a moment ago.
            of_earlier_runs = [raw_id for raw_id, text in keepers.items() if text < first]
            return context.target.absent(keepers) | self._find_altered(of_earlier_runs)

        commit_job = CommitJob(
            expected=map(rows, chunks(rest, context.settings.limits.batch_records)),
            records=context.source.records,
            gone=find_gone,
            commit=lambda plan, raws: commit_in_parts(plan, raws, commit),
            observe=self.observe,
            deviations=deviations,
        )
        return commit_verdicts(commit_job)

    def _find_altered(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return the keepers whose records differ between source and target, or are in the target only."""
        altered = set(ids)
        for records in self.context.source.fetch(ids):
            altered -= records.keys() - self.context.target.conflicting(records.values())
        return altered

    def _read_source(self, head: Head, restored: frozenset[bytes]) -> tuple[DataFrame, Mapping[str, Any]]:
        """Return the fingerprinted records as a table, and the times at which reading began.

        Raises:
            ConfigError: If the ledger is not empty. Records with smaller ids that arrived since would be
                mistaken for deleted records.
        """
        from dedup_job.spark.decide_texts import read_into
        from dedup_job.spark.read_ranges import ExecutorFingerprinting, ranges, read

        context, limits = self.context, self.context.settings.limits
        if not head.is_empty:
            raise ConfigError(
                f"{self.context.target_name} has a backfill that was not decided on Spark, or whose stages "
                "are not in the folder [engine] work; finish it with --engine local"
            )
        looked, newest = context.source.begin_scan()
        times = {"looked": looked.isoformat(), "newest": newest.isoformat() if newest else None}
        last = context.source.last()
        count = max(self._partitions, -(-context.source.estimated_count() // RECORDS_A_RANGE))
        drawn = context.source.draw_ids(DRAWN_A_RANGE * count)
        splits = [drawn[len(drawn) * place // count] for place in range(1, count)] if drawn else []
        split = ranges(list(dict.fromkeys(splits)), None if last == MAX_KEY else last)
        parallel = self.spark.sparkContext.defaultParallelism
        reading = SourceReading(
            context.settings, context.settings.source_uri(), parallel, context.source.members
        )
        capacity = Capacity(1, limits.in_flight_mb << 20, limits.record_seconds)
        fingerprinting = ExecutorFingerprinting(context.recipe, capacity, restored)
        return read_into(len(split), read(split, reading, fingerprinting), self.spark), times

    @property
    def _partitions(self) -> int:
        """The least number of parts of a stage."""
        return self.context.settings.engine.partitions or 4 * self.spark.sparkContext.defaultParallelism


def _plans(plans: Iterable[PlanColumns]) -> Iterator[tuple[RawIds, Collection[bytes]]]:
    """Yield the ids of each plan, and the ids of its keepers."""
    for plan in plans:
        kept = zip(plan.texts.ids, plan.texts.is_kept.tolist(), strict=True)
        yield plan.ids, {raw_id for raw_id, is_kept in kept if is_kept}


def _times_of_reading(records: Stage) -> tuple[datetime, datetime | None]:
    """Return when reading the source began, and the time in the newest id at that moment."""
    notes = records.manifest.notes
    newest = datetime.fromisoformat(notes["newest"]) if notes["newest"] else None
    return datetime.fromisoformat(notes["looked"]), newest
