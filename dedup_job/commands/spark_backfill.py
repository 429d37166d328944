"""A backfill that is decided on Spark and committed by the ledger's own protocol."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from dedup_job.commands.backfill_and_run import decide as decide_here
from dedup_job.errors import ConfigError
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.index.key_map_search import SEGMENT_BITS
from dedup_job.ledger.apply_plan import is_as_judged
from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.head import Head
from dedup_job.ledger.plan_format import PlanColumns
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.settings_fit_ledger import Consent
from dedup_job.ledger.version_digests_by_id import VersionDigests
from dedup_job.mongo.reference_collections import is_reference
from dedup_job.pipeline.command_context import Context
from dedup_job.pipeline.guards import (
    FIRST_RECORDS,
    SAMPLED_RECORDS,
    Guards,
    WarningList,
    stop_run,
)
from dedup_job.pipeline.job import Observe, commit_in_parts
from dedup_job.pipeline.load_keepers_and_scan_source import interrupted_runs, read_kept_versions
from dedup_job.pipeline.replace_keepers_in_ledger import check_rights_to_replace
from dedup_job.records import BACKFILL, NIGHTLY, REFERENCE, Batch, Counts, Plan, RawIds, digest
from dedup_job.report.run_summary import ReplacementCounts, RunSummary
from dedup_job.spark.check_and_commit_verdicts import Phase, commit_verdicts
from dedup_job.spark.session import name_end_of_java, session
from dedup_job.spark.spark_errors import named_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dedup_job.spark.stage_files import Stage, Work

log = logging.getLogger("dedup_job")


def decide(
    context: Context, observe: Observe, consent: Consent = Consent(), expected: int | None = None
) -> RunSummary:
    """Run a backfill on Spark; if it is complete, decide records that arrived since locally.

    Args:
        context: The open connections.
        observe: Called with each final plan.
        consent: Changes and guards that a person has accepted.
        expected: About how many records will be decided, for `status`; None if unknown.

    Raises:
        ConfigError: If Spark cannot decide this backfill.
        GuardStop: If a guard stops the run.
    """
    engine = context.settings.engine
    folder = engine.work_folder
    _check_radius(context.recipe)
    check_rights_to_replace(context)
    head = context.ledger_reader().head()
    context.check_no_foreign_records(head)
    if head is not None and not head.is_empty and head.stages is not None and head.stages["is_done"]:
        return decide_here(context, BACKFILL, observe, consent, expected)
    with session(engine, f"dedup-job {context.source_name}") as spark:
        from dedup_job.spark.work_folder import make_work_folder

        make_work_folder(spark, folder)
        summary, is_complete = _Backfill(context, spark, folder, observe).run(consent, expected)
    if is_complete:
        return summary
    log.info("deciding locally what Spark has left")
    rest = decide_here(context, BACKFILL, observe, consent)
    # Named for the run that decided nearly all.
    counts, seconds = summary.counts + rest.counts, summary.seconds + rest.seconds
    return replace(rest, run=summary.run, counts=counts, seconds=seconds)


def _check_radius(recipe: Recipe) -> None:
    if recipe.matching.radius >= recipe.bits // SEGMENT_BITS:
        raise ConfigError(
            f"[match] radius: from {recipe.bits // SEGMENT_BITS} on, each text is compared with all others, "
            "which Spark does not support; use --engine local"
        )


def _stage_inputs(context: Context) -> dict[str, Any]:
    """Return everything that the stages depend on; stages made from other inputs are not reused.

    Records that a person restores in between were decided, and so need no stage.  Only an undo makes them
    undecided, and then the stages are made again.
    """
    return {
        "recipe": context.recipe.digest,
        "source": context.source_name,
        "filter": context.settings.source.plain_filter,
        "collection": context.places.now()["collections"]["source"],
        "list of references": [
            [one.full_name, one.fields or context.settings.source.fields]
            for one in context.settings.reference
        ],
    }


def _last_undone(ledger: LedgerReader) -> str | None:
    """Return the time of the last undo: stages from before it are not reused."""
    times = [row["undone"] for row in ledger.runs() if row.get("undone")]
    return max(times).isoformat() if times else None


def _check_decided_by_backfills(ledger: LedgerReader, head: Head) -> None:
    """Raise ConfigError if the ledger holds decisions of other modes, before hours are spent on stages."""
    modes = {row["_id"]: row["mode"] for row in ledger.runs()}
    # A backfill with `[match] prefer` stores its duplicates in plans of another mode; see `_commit_verdicts`.
    of_backfills = {(BACKFILL, BACKFILL), (BACKFILL, REFERENCE), (BACKFILL, NIGHTLY)}
    if any((modes.get(link.run), link.mode) not in of_backfills for link in ledger.links(head.last)):
        raise ConfigError(
            "the ledger holds decisions of an adoption or of nightly runs, which Spark does not support; "
            "use --engine local"
        )


@dataclass(frozen=True, slots=True)
class _Backfill:
    """The steps of a backfill on Spark, with their shared connections."""

    context: Context
    spark: SparkSession
    folder: str
    observe: Observe

    def run(self, consent: Consent, expected: int | None) -> tuple[RunSummary, bool]:
        """Fingerprint, decide and commit all records; stages that are complete are reused.

        Returns:
            The summary, and whether a local run need not decide what Spark has left.
        """
        # Imported here, as the module needs pyspark.
        from dedup_job.spark.decision_stages import Shape, decided

        context, run, started = self.context, RunId.new(BACKFILL), time.monotonic()
        warnings = WarningList()
        # The ledger stores the exit code of a run that fails, so the error is named inside.
        with context.ledger(run, consent) as ledger, name_end_of_java(self.spark):
            head = ledger.recover(
                context.source, context.target, settles=bool(context.recipe.matching.prefer)
            )
            warn = warnings if consent.allow else stop_run
            before = interrupted_runs(context, ledger)
            guards = Guards(context.settings.limits, context.recipe, warn, warnings, before)
            if len(context.undo_leftovers()):
                raise ConfigError(
                    f"an undo has left records in {context.target_name}, which Spark does not support; "
                    "use --engine local"
                )
            _check_decided_by_backfills(ledger, head)
            work, records = self._begin_stages(ledger, head)
            first_order = records.manifest.notes["first_order"]
            self._check_first_records(records, first_order, guards)
            verdicts = decided(work, records, Shape(context.recipe, self._partitions, first_order))
            ledger.run_row.begin_deciding(ledger.current_head, expected)
            counts, left = self._commit_verdicts(ledger, head, verdicts, guards)
            # What an interrupted run has left is not counted again.
            prefer = context.recipe.matching.prefer
            is_complete = not prefer or (head.is_empty and not left and ledger.current_head.unsettled is None)
            ledger.store_scan(*_times_of_reading(records), is_complete)
            ledger.finish_stages()
            report = RunSummary(
                run.name,
                BACKFILL,
                counts,
                time.monotonic() - started,
                context.recipe.digest,
                context.recipe.about,
                refused_before=ledger.run_row.refused_before(),
                warnings=warnings.messages,
                replaced=ReplacementCounts() if prefer else None,
            )
            ledger.close({**report.as_json(), "exit_code": report.exit_code})
        return report, is_complete

    def _begin_stages(self, ledger: Ledger, head: Head) -> tuple[Work, Stage]:
        """Return the stages, and the first of them; read the source if it is not complete, or not valid.

        Raises:
            ConfigError: If the ledger is not empty, and its stages are not in the folder. Records with
                smaller ids that arrived since would be mistaken for deleted records.
        """
        from dedup_job.spark.stage_files import Work

        inputs, undone = _stage_inputs(self.context), _last_undone(ledger)
        former = None
        if head.stages is not None:
            former = Work(self.spark, self.folder, head.stages["snapshot"], inputs, ledger.check_held)
            found = None if head.stages["is_done"] else former.find("records")
            if found is not None and found.manifest.notes["undone"] == undone:
                return former, found
        if not head.is_empty:
            raise ConfigError(
                f"{self.context.target_name} has a backfill that was not decided on Spark, or whose stages "
                "are not in the folder [engine] work; finish it with --engine local"
            )
        work = Work(self.spark, self.folder, secrets.token_hex(8), inputs, ledger.check_held)
        # In a copy of a ledger, the former stages are those of the original, which may still need them.
        is_own = head.stages is not None and head.stages["collection"] == inputs["collection"]
        stages = {"snapshot": work.snapshot, "collection": inputs["collection"], "is_done": False}
        ledger.swap({"pending": None}, {"stages": stages})
        if former is not None and is_own:
            former.remove()
        table, notes = self._read_source(frozenset(chain.from_iterable(ledger.overridden_ids())))
        return work, work.make("records", lambda: table, {**notes, "undone": undone})

    def _check_first_records(self, records: Stage, first_order: int, guards: Guards) -> None:
        """Let guards judge the first records of the source, before the stages that take hours."""
        some = records.table.where(f"order >= {first_order}").select("order", "id", "reason")
        with named_errors("records", self.folder):
            first = some.orderBy("order").limit(FIRST_RECORDS).collect()
        ids = [bytes(row.id) for row in first]
        # Only groups and preferences depend on other fields of all these records.
        recipe = self.context.recipe
        looks_at_all = recipe.matching.prefer or recipe.reader.fields.within
        for batch in self.context.source.records(ids if looks_at_all else ids[:SAMPLED_RECORDS]):
            guards.first.add(batch.raws, ())
        guards.first.add((), [row.reason for row in first])
        guards.first.finish()

    def _commit_verdicts(
        self, ledger: Ledger, head: Head, verdicts: Stage, guards: Guards
    ) -> tuple[Counts, int]:
        """Commit the planned verdicts that the ledger does not hold yet; see `commit_verdicts`."""
        from dedup_job.spark.read_planned_verdicts import chunks, first_of, rows, so_far, tables

        context, prefer = self.context, self.context.recipe.matching.prefer
        versions = read_kept_versions(ledger, head, True) if context.references else VersionDigests()
        # Read only if needed: it takes 50 bytes for each kept record.
        judged = cache(lambda: read_kept_versions(ledger, head, False))

        def commit(plan: Plan, raws: Sequence[bytes], phase: Phase) -> Plan:
            if phase is Phase.REFERENCE:
                versions.add(plan)
                return ledger.keep_references(plan, raws, context.target)
            guards.check(plan)
            # With `[match] prefer`, duplicates are committed behind the watermark, like late arrivals.
            mode = NIGHTLY if phase is Phase.DUPLICATES else BACKFILL
            return ledger.commit(plan, raws, context.target, mode)

        stored = tables(self.spark, verdicts, self.folder)
        deviations, rest = so_far(_plans(ledger.plan_columns(head)), stored)
        first, rest = first_of(rest)

        def find_gone(keepers: Mapping[bytes, int]) -> set[bytes]:
            references = [raw_id for raw_id in keepers if is_reference(raw_id)]
            own = {raw_id: text for raw_id, text in keepers.items() if not is_reference(raw_id)}
            # Only keepers of earlier runs: records of this run were inserted a moment ago.  With `prefer` the
            # number of a text does not say when its keeper was inserted.
            is_any_earlier = bool(prefer) and not head.is_empty
            earlier = [raw_id for raw_id, text in own.items() if is_any_earlier or text < first]
            gone = context.target.absent(own) | self._find_altered(earlier, judged)
            return gone | self._find_outdated_references(references, versions)

        return commit_verdicts(
            expected=map(rows, chunks(rest, context.settings.limits.batch_records)),
            records=self._records,
            find_gone=find_gone,
            commit=lambda plan, raws, phase: commit_in_parts(plan, raws, partial(commit, phase=phase)),
            observe=self.observe,
            deviations=deviations,
            rules=len(prefer),
        )

    def _records(self, ids: Sequence[bytes]) -> Iterator[Batch]:
        """Yield these records of the source, or of references, in this order."""
        if not is_reference(ids[0]):
            yield from self.context.source.records(ids)
            return
        for reference in self.context.references:
            own = [raw_id for raw_id in map(reference.own_id, ids) if raw_id is not None]
            yield from map(reference.views, reference.records.records(own))

    def _find_outdated_references(self, ids: Sequence[bytes], versions: VersionDigests) -> set[bytes]:
        """Return the reference records that were deleted, or have another text or group by now."""
        outdated, known = set(ids), versions.find(ids)
        for records in self.context.target.fetch(ids) if ids else ():
            outdated -= {
                raw_id
                for raw_id, raw in records.items()
                if raw_id in known and digest(raw) == known[raw_id][0]
            }
        return outdated

    def _find_altered(self, ids: Sequence[bytes], judged: Callable[[], VersionDigests]) -> set[bytes]:
        """Return the keepers whose records in the target are no longer as they were judged."""
        source, target = self.context.source, self.context.target
        altered = set(ids)
        for records in source.fetch(ids):
            altered -= records.keys() - target.conflicting(records.values())
        if not altered:
            return altered
        # These differ between source and target; it may be the source that somebody changed.
        known = judged().find(list(altered))
        for records in target.fetch(list(known)):
            altered -= {raw_id for raw_id, raw in records.items() if is_as_judged(raw, known[raw_id][0])}
        return altered

    def _read_source(self, restored: frozenset[bytes]) -> tuple[DataFrame, Mapping[str, Any]]:
        """Return the fingerprinted records, and when reading began and the source's first `order`."""
        from dedup_job.spark.arrow_columns import POSITION_BITS
        from dedup_job.spark.fingerprint_ranges import SourceReading, ranges, read

        context, settings = self.context, self.context.settings
        looked, newest = context.source.begin_scan()
        split = [
            range_
            for place, reference in enumerate(context.references)
            for range_ in ranges(reference.records, 1, place)
        ]
        notes = {
            "looked": looked.isoformat(),
            "newest": newest.isoformat() if newest else None,
            "first_order": len(split) << POSITION_BITS,
        }
        split += ranges(context.source, self._partitions)
        reading = SourceReading(
            settings,
            settings.source_uri(),
            list(map(settings.reference_uri, settings.reference)),
            self.spark.sparkContext.defaultParallelism,
            context.source.members,
        )
        return read(self.spark, split, reading, context.recipe, restored), notes

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
