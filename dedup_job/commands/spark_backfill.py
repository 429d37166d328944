"""A backfill that is decided on Spark and carried out by the ledger's own protocol."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

from dedup_job.commands.context import Context
from dedup_job.commands.decide import decide as decide_here
from dedup_job.commands.guard import FIRST, SAMPLED, FirstLook, Guards, Notes, stop
from dedup_job.commands.past import broken_off
from dedup_job.config import Settings
from dedup_job.document import Batch, Counts
from dedup_job.engine.local import Capacity
from dedup_job.engine.spark.carrying import Carrying, carry_out
from dedup_job.engine.spark.session import Cluster, session
from dedup_job.errors import ConfigError
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.job import Observe, in_parts
from dedup_job.ledger.commit import Ledger
from dedup_job.ledger.fitting import Consent
from dedup_job.ledger.head import Head
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.stored_plan import PlanColumns
from dedup_job.match.search import SEGMENT_BITS
from dedup_job.mongo.client import Patience, connect
from dedup_job.mongo.pace import Pace, Rates
from dedup_job.mongo.pages import MAX_KEY, BatchSize
from dedup_job.mongo.source import Source
from dedup_job.mongo.window import Window
from dedup_job.plan import BACKFILL, Plan, RawIds
from dedup_job.report.summary import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dedup_job.engine.spark.reading import Range
    from dedup_job.engine.spark.stages import Stage, Work

RECORDS_A_RANGE = 100_000
DRAWN_A_RANGE = 20  # ids, of which every 20th begins a range


@dataclass(frozen=True, slots=True)
class SourceReading:
    """How an executor reads the source: with our own client, and its share of the pace.

    uri     connection string of the source
    share   tasks that read at once
    """

    settings: Settings
    uri: str
    share: int

    def batches(self, range_: Range) -> Iterator[Batch]:
        """Yield the records of a range in order."""
        settings, limits = self.settings.source, self.settings.limits
        patience = Patience(limits.patience_seconds, limits.read_seconds)
        size = BatchSize(limits.batch_records, limits.batch_mb << 20)
        rates = Rates(
            (limits.max_docs_per_second or inf) / self.share,
            (limits.max_mb_per_second or inf) * (1 << 20) / self.share,
        )
        with connect(self.uri, "source", limits.connect_seconds, patience, limits.allow_plaintext) as client:
            collection = client[settings.database][settings.collection]
            source = Source(collection, settings.condition, size, patience, Pace(rates))
            if not range_.is_one:
                yield from source.batches(Window(start=range_.start, before=range_.before))
            elif range_.start is not None and (batch := source.stretch(range_.start, 1)).ids == [
                range_.start
            ]:
                yield batch


def decide(context: Context, observe: Observe, consent: Consent = Consent()) -> Report:
    """Run a backfill; one that was carried out already goes on locally, with what has come since."""
    engine = context.settings.engine
    folder = engine.work_folder
    _check_radius(context.recipe)
    cluster = Cluster(engine.master, engine.conf, engine.partitions)
    context.check_own(context.ledger_reader().head())
    with session(cluster, f"dedup-job {context.source_name}") as spark:
        from dedup_job.engine.spark.stages import Work

        work = Work(spark, folder, _about(context))
        head = context.ledger_reader().head()
        if not work.is_done or head is None or head.is_empty:
            return _Backfill(context, spark, work, observe)(consent)
    return decide_here(context, BACKFILL, observe, consent)


def _check_radius(recipe: Recipe) -> None:
    if recipe.matching.radius >= recipe.bits // SEGMENT_BITS:
        raise ConfigError(
            f"[match] radius: from {recipe.bits // SEGMENT_BITS} on, each text is compared with all others, "
            "which is not done on Spark; use --engine local"
        )


def _about(context: Context) -> dict[str, Any]:
    """Return what all stages must come from."""
    restored = sorted(chain.from_iterable(context.ledger_reader().overridden()))
    return {
        "recipe": context.recipe.digest,
        "source": context.source_name,
        "filter": context.settings.source.plain_filter,
        "collection": context.places.now()["collections"]["source"],
        "restored records": hashlib.sha256(b"".join(restored)).hexdigest(),
    }


def _last_undone(ledger: LedgerReader) -> str | None:
    """Return when a run was taken back last."""
    times = [row["undone"] for row in ledger.runs() if row.get("undone")]
    return max(times).isoformat() if times else None


def _check_decided_by_backfills(ledger: LedgerReader, head: Head) -> None:
    """Raise ConfigError where something else decided, too, before anything is made for nothing."""
    if any(link.mode != BACKFILL for link in ledger.links(head.last)):
        raise ConfigError(
            "the ledger holds what no backfill has decided (records that were adopted, or nightly runs); "
            "use --engine local"
        )


@dataclass(frozen=True, slots=True)
class _Backfill:
    """A backfill on Spark."""

    context: Context
    spark: SparkSession
    work: Work
    observe: Observe

    def __call__(self, consent: Consent) -> Report:
        context, run, started = self.context, RunId.new(BACKFILL), time.monotonic()
        notes = Notes()
        with context.ledger(run, consent) as ledger:
            head = ledger.recover(context.source, context.target)
            tell = notes if consent.allow else stop
            guards = Guards.of(context.settings.limits, tell, broken_off(context, ledger))
            self._check_nothing_left()
            _check_decided_by_backfills(ledger, head)
            restored, undone = frozenset(chain.from_iterable(ledger.overridden())), _last_undone(ledger)
            records = self.work.first("records", lambda: self._records(head, restored), undone)
            self._look_at_first(records, guards.first)
            verdicts = self._verdicts(records)
            counts = self._carried_out(ledger, head, verdicts, guards)
            ledger.covered(*_times(records), True)
            self.work.end()
            seconds = time.monotonic() - started
            about = (context.recipe.digest, context.about, f"{verdicts.manifest.rows:,} records on Spark")
            report = Report(
                run.name, BACKFILL, counts, seconds, *about, ledger.refused_before(), notes.messages
            )
            ledger.close({**report.as_json(), "exit_code": report.exit_code})
        return report

    def _check_nothing_left(self) -> None:
        if len(self.context.left()):
            raise ConfigError(
                f"an undo has left records in {self.context.target_name}, which are not decided on Spark; "
                "use --engine local"
            )

    def _look_at_first(self, records: Stage, look: FirstLook) -> None:
        """Let a guard see the first records before anything is made of them, where there are enough."""
        first = records.table.select("order", "id", "reason").orderBy("order").limit(FIRST).collect()
        if len(first) == FIRST:
            sample = next(self.context.source.records([bytes(row.id) for row in first[:SAMPLED]]), None)
            look.take(sample.raws if sample else [], [row.reason for row in first])

    def _verdicts(self, records: Stage) -> Stage:
        """Return what is expected for each record."""
        from dedup_job.engine.spark.decisions import Shape, decided

        recipe = self.context.recipe
        return decided(self.work, records, Shape(recipe.matching, recipe.bits // 64, self._partitions))

    def _carried_out(self, ledger: Ledger, head: Head, verdicts: Stage, guards: Guards) -> Counts:
        """Carry out what the ledger does not hold yet."""
        from dedup_job.engine.spark.verdict_files import chunks, first_of, rows, so_far, tables

        context = self.context

        def commit(plan: Plan, raws: Sequence[bytes]) -> Plan:
            return ledger.commit(plan, raws, context.target, BACKFILL)

        deviations, rest = so_far(_plans(ledger.plan_columns(head)), tables(self.spark, verdicts))
        first, rest = first_of(rest)

        def gone(keepers: Mapping[bytes, int]) -> set[bytes]:
            of_earlier_runs = [raw_id for raw_id, text in keepers.items() if text < first]
            return context.target.absent(keepers) | self._altered(of_earlier_runs)

        carrying = Carrying(
            expected=map(rows, chunks(rest, context.settings.limits.batch_records)),
            records=context.source.records,
            gone=gone,
            commit=lambda plan, raws: in_parts(plan, raws, guards.all_before(commit)),
            observe=self.observe,
            deviations=deviations,
        )
        return carry_out(carrying)

    def _altered(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return those of some keepers that are otherwise in the target than in the source, or only there."""
        altered = set(ids)
        for found in self.context.source.fetch(ids):
            altered -= found.keys() - self.context.target.conflicting(found.values())
        return altered

    def _records(self, head: Head, restored: frozenset[bytes]) -> tuple[DataFrame, Mapping[str, Any]]:
        """Return the records of the source as a table, and the times of this moment.

        What came behind records that are decided already would be taken for what was deleted since.
        """
        from dedup_job.engine.spark.decisions import read_into
        from dedup_job.engine.spark.reading import Fingerprinting, ranges, read

        context, limits = self.context, self.context.settings.limits
        if not head.is_empty:
            raise ConfigError(
                f"{self.context.target_name} has a backfill that was not decided on Spark, or whose stages "
                "are elsewhere than in [engine] work; end it with --engine local"
            )
        times = {"looked": _stamp(context.source.now()), "newest": _stamp(context.source.newest())}
        last = context.source.last()
        count = max(self._partitions, -(-context.source.estimated_count() // RECORDS_A_RANGE))
        drawn = context.source.drawn(DRAWN_A_RANGE * count)
        splits = [drawn[len(drawn) * place // count] for place in range(1, count)] if drawn else []
        split = ranges(list(dict.fromkeys(splits)), None if last == MAX_KEY else last)
        parallel = self.spark.sparkContext.defaultParallelism
        reading = SourceReading(context.settings, context.settings.source_uri(), parallel)
        capacity = Capacity(1, limits.in_flight_mb << 20, limits.record_seconds)
        fingerprinting = Fingerprinting(context.recipe, capacity, restored)
        return read_into(len(split), read(split, reading, fingerprinting), self.spark), times

    @property
    def _partitions(self) -> int:
        """How many parts a stage has at least."""
        return self.context.settings.engine.partitions or 4 * self.spark.sparkContext.defaultParallelism


def _plans(plans: Iterable[PlanColumns]) -> Iterator[tuple[RawIds, Collection[bytes]]]:
    """Yield the ids of each plan, and those that were kept for their texts."""
    for plan in plans:
        kept = zip(plan.texts.ids, plan.texts.is_kept.tolist(), strict=True)
        yield plan.ids, {raw_id for raw_id, is_kept in kept if is_kept}


def _times(records: Stage) -> tuple[datetime, datetime | None]:
    """Return when the source was looked at, and the time in its newest id then."""
    notes = records.manifest.notes
    newest = datetime.fromisoformat(notes["newest"]) if notes["newest"] else None
    return datetime.fromisoformat(notes["looked"]), newest


def _stamp(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
