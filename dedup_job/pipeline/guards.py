"""Guards stop a run that is about to do something a person should look at first."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from shlex import quote

from dedup_job.config import LimitSettings
from dedup_job.errors import GuardStop
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.mongo.ids import extended
from dedup_job.preference.preference_ranks import NOTHING, count_kinds
from dedup_job.preference.preference_rule import LENGTH
from dedup_job.records import Action, FingerprintedBatch, Plan, Unchecked, is_failure
from dedup_job.report.decision_lines import compare_command
from dedup_job.report.terminal_text import format_id
from dedup_job.text.fields import count_field_kinds, count_text_fields, value_kind

# Records that are checked before any of them is decided.
FIRST_RECORDS = 1_000
# Bytes of first records that are buffered for that check; beyond, records are decided while it continues.
MAX_BUFFERED_BYTES = 64 << 20
# Records whose fields a message names.
SAMPLED_RECORDS = 100
# Fields or reasons in a message.
MAX_NAMES = 10
# With fewer records, a share of dropped or failed records means little.
MIN_RECORDS_FOR_SHARE = 10_000
# Duplicates of a keeper in a message.
MAX_DUPLICATES = 5

Warn = Callable[[str], object]

log = logging.getLogger("dedup_job")


def stop_run(message: str) -> None:
    """Stop the run with a GuardStop error."""
    raise GuardStop(f"{message}; run again with --allow if this is intended; earlier decisions stay")


@dataclass(frozen=True, slots=True)
class WarningList:
    """Logs warnings and collects them for the run's summary."""

    messages: list[str] = field(default_factory=list)

    def __call__(self, message: str) -> None:
        """Log a warning and add it to the list."""
        log.warning(message)
        self.messages.append(message)


class FirstRecordsGuard:
    """Stops a run before its first decision if the settings name fields that do not hold what they should.

    Of the first 1,000 records it counts those that cannot be judged, the types of values in each field of
    `[match] within`, and those in each field of `[match] prefer`.
    """

    def __init__(
        self,
        recipe: Recipe,
        max_unchecked_share: float,
        warn: Warn,
        note: Warn,
        judges_few: bool = False,
    ) -> None:
        """Set the limits.

        Args:
            recipe: The recipe of the run.
            max_unchecked_share: Largest share of the first records that may be unchecked.
            warn: Called if the share is larger, if values of a group field have several types, and if no
                record has a value that a rule of `prefer` compares.
            note: Called instead if there are fewer records, and if only some values have another type than a
                rule compares.  The share of unchecked ones among fewer records means nothing.
            judges_few: Whether to judge fewer records as if they were 1,000.
        """
        self.is_over = False
        self._fields = recipe.reader.fields
        self._max_unchecked_share, self._judges_few = max_unchecked_share, judges_few
        self._warn, self._note = warn, note
        self._seen = 0
        self._reasons = Counter[str]()
        self._groups = {path: Counter[str]() for path in self._fields.within}
        self._preferred = {rule: Counter[str]() for rule in recipe.matching.prefer if rule.order != LENGTH}
        self._sample: list[bytes] = []
        self._told = set[str]()

    def watch(self, batches: Iterable[FingerprintedBatch]) -> Iterator[FingerprintedBatch]:
        """Yield the batches of a part of the source; buffer the first ones until they are judged."""
        buffer: list[FingerprintedBatch] = []
        nbytes = 0
        for batch, prints in batches:
            self.add(batch.raws, prints.reasons)
            buffer.append((batch, prints))
            nbytes += batch.nbytes + prints.nbytes
            if self.is_over or nbytes >= MAX_BUFFERED_BYTES:
                yield from buffer
                buffer = []
        self.finish()
        yield from buffer

    def add(self, raws: Sequence[bytes], reasons: Sequence[str]) -> None:
        """Count some records, and judge the first ones when enough were counted.

        Args:
            raws: Raw records; they may be given apart from their reasons.
            reasons: Why each record cannot be judged, or "".
        """
        if self.is_over:
            return
        # Not one more, so that batches and engine make no difference.
        rest = FIRST_RECORDS - self._seen
        raws, reasons = raws[:rest], reasons[:rest]
        self._seen += len(reasons)
        self._reasons.update(filter(None, reasons))
        self._sample += islice(raws, SAMPLED_RECORDS - len(self._sample))
        self._count_groups(raws)
        for rule, kinds in self._preferred.items():
            kinds.update(count_kinds(raws, rule))
        if self._seen >= FIRST_RECORDS:
            self.finish()

    def _count_groups(self, raws: Sequence[bytes]) -> None:
        if not self._groups:
            return
        for raw in raws:
            with suppress(Unchecked):
                for kinds, value in zip(self._groups.values(), self._fields.group_values(raw), strict=True):
                    if value is not None:
                        kinds[value_kind(value)] += 1

    def finish(self) -> None:
        """Judge the records counted so far; called after each part of the source."""
        if self.is_over or not self._seen:
            return
        self.is_over = self._judges_few or self._seen >= FIRST_RECORDS
        warn = self._warn if self.is_over else self._note
        self._judge_groups(warn)
        self._judge_preferences(warn)
        if self.is_over:
            self._judge_reasons()
            self._sample = []

    def _judge_groups(self, warn: Warn) -> None:
        for path, kinds in self._groups.items():
            if len(kinds) > 1:
                self._tell_once(
                    warn,
                    f"[match] within: {_printable(path)} has values of several types in the first records",
                    f" ({list_counts(kinds)}), and values of different types are never equal",
                )

    def _judge_preferences(self, warn: Warn) -> None:
        for rule, kinds in self._preferred.items():
            first = f" in the first {self._seen:,} records ({list_counts(kinds)})"
            if not kinds[rule.wanted]:
                self._tell_once(warn, f"[match] prefer: {rule.name} holds no {rule.wanted}", first)
            elif kinds.keys() - {rule.wanted, NOTHING}:
                self._tell_once(
                    self._note,
                    f"[match] prefer: {rule.name} holds values of several types",
                    f"{first}; those that are no {rule.wanted} count as missing",
                )

    def _judge_reasons(self) -> None:
        unchecked = self._reasons.total()
        if unchecked > self._max_unchecked_share * self._seen:
            self._warn(
                f"{unchecked:,} of the first {self._seen:,} records cannot be judged "
                f"({list_counts(self._reasons)}), "
                f"more than [limits] max_unchecked_share = {self._max_unchecked_share:g}; "
                f"{_describe_text_fields(self._sample)}"
            )

    def _tell_once(self, tell: Warn, finding: str, details: str) -> None:
        """Tell a finding, but not again with the details of further records."""
        if finding not in self._told:
            self._told.add(finding)
            tell(finding + details)


@dataclass(frozen=True, slots=True)
class InterruptedCounts:
    """Counts of the decisions of interrupted runs.

    Attributes:
        read: Records.
        dropped: Records that were dropped.
        failed: Records that the job failed on, by reason.
        groups: Records that were dropped for each keeper. Filled only if `max_group` is set, as it takes
            about 150 bytes per keeper.
    """

    read: int = 0
    dropped: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[bytes, int] = field(default_factory=dict)


class DropGuard:
    """Stops a run that would drop too large a share of all records, or too many records for one keeper."""

    def __init__(
        self,
        max_share: float,
        max_group: int | None,
        warn: Warn,
        before: InterruptedCounts = InterruptedCounts(),
    ) -> None:
        """Set the limits.

        Args:
            max_share: Largest share of records that may be dropped.
            max_group: Most records that may be dropped for one keeper; None for no limit.
            warn: Called once per limit, when it is passed.
            before: Counts of interrupted runs, which are included.
        """
        self._max_share, self._max_group, self._warn = max_share, max_group, warn
        self._read, self._dropped, self._groups = before.read, before.dropped, Counter(before.groups)
        self._reported = set[str]()

    def check(self, plan: Plan) -> None:
        """Warn if this plan, together with the earlier ones, would drop too many records.

        Keepers that better records displace count as dropped: each matches a record that the plan keeps.
        """
        group_sizes = Counter(verdict.match.keeper for verdict in plan.verdicts if verdict.match is not None)
        self._read += len(plan)
        dropped = group_sizes.total() + len(plan.displaced)
        self._dropped += dropped
        is_share_known = self._read >= MIN_RECORDS_FOR_SHARE
        if dropped and is_share_known and self._dropped > self._max_share * self._read:
            what = f"{self._dropped:,} of {self._read:,} records would be dropped"
            example = group_sizes.most_common(1)[0][0] if group_sizes else None
            self._warn_once(what, f"max_drop_share = {self._max_share}", example, plan)
        if self._max_group is not None:
            self._groups.update(group_sizes)
            largest = max(group_sizes, key=self._groups.__getitem__, default=b"")
            if self._groups[largest] > self._max_group:
                what = f"{self._groups[largest]:,} records would be dropped for one keeper"
                self._warn_once(what, f"max_group = {self._max_group}", largest, plan)

    def _warn_once(self, what: str, limit: str, keeper: bytes | None, plan: Plan) -> None:
        """Warn that a limit is passed, with examples.

        Args:
            what: What passes the limit.
            limit: The setting and its value.
            keeper: The examples are records that would be dropped for it; None for displaced keepers.
            plan: The plan with the examples.
        """
        if limit in self._reported:
            return
        self._reported.add(limit)
        if keeper is None:
            displaced = ", ".join(map(_shell_word, plan.displaced[:MAX_DUPLICATES]))
            self._warn(f"{what}, more than [limits] {limit}; better records would replace {displaced}")
            return
        members = (
            raw_id
            for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True)
            if verdict.match is not None and verdict.match.keeper == keeper
        )
        duplicates = list(islice(members, MAX_DUPLICATES))
        self._warn(
            f"{what}, more than [limits] {limit}; duplicates of {_shell_word(keeper)} would be "
            f"{', '.join(map(_shell_word, duplicates))}; to see why: "
            f"{compare_command(extended(keeper), extended(duplicates[0]))}"
        )


class FailureGuard:
    """Stops a run that fails on many records: a bug must not copy a collection without comparing it.

    Fewer than 10,000 records count as 10,000, so that a few bad records among the first do not stop a run.
    """

    def __init__(self, max_share: float, warn: Warn, before: InterruptedCounts = InterruptedCounts()) -> None:
        """Set the limit.

        Args:
            max_share: Largest share of records that the job may fail on.
            warn: Called once, when the share is larger.
            before: Counts of interrupted runs, which are included.
        """
        self._max_share, self._warn = max_share, warn
        self._read, self._reasons = before.read, Counter(before.failed)
        self._has_warned = False

    def check(self, plan: Plan, failed_before: Container[bytes] = ()) -> None:
        """Warn if the job has failed on too many records.

        Args:
            plan: The next plan.
            failed_before: Ids of records that failed in an earlier run and are tried again; not counted.
        """
        self._read += len(plan)
        self._reasons.update(
            reason
            for row in plan.rows(Action.UNCHECKED)
            if is_failure(reason := plan.verdicts[row].reason) and plan.ids[row] not in failed_before
        )
        failed = self._reasons.total()
        if failed > self._max_share * max(self._read, MIN_RECORDS_FOR_SHARE) and not self._has_warned:
            self._has_warned = True
            self._warn(
                f"the job failed on {failed:,} of {self._read:,} records "
                f"({list_counts(self._reasons)}), more than "
                f"[limits] max_failed_share = {self._max_share:g}; they would be copied without being "
                "compared: is memory short, or is it a bug? Please report it"
            )


class Guards:
    """The guards of a run.

    Attributes:
        first: The guard of the first records.
    """

    def __init__(
        self,
        limits: LimitSettings,
        recipe: Recipe,
        warn: Warn,
        note: Warn,
        before: InterruptedCounts = InterruptedCounts(),
        judges_few: bool = False,
    ) -> None:
        """Set the limits.

        Args:
            limits: The settings.
            recipe: The recipe of the run.
            warn: Called when a limit is passed.
            note: Called for what a person should know, but no limit is passed.
            before: Counts of interrupted runs, which are included.
            judges_few: Whether to judge fewer than 1,000 first records, too.
        """
        self.first = FirstRecordsGuard(recipe, limits.max_unchecked_share, warn, note, judges_few)
        self._drops = DropGuard(limits.max_drop_share, limits.max_group, warn, before)
        self._failures = FailureGuard(limits.max_failed_share, warn, before)

    def check(self, plan: Plan) -> None:
        """Check a plan's failures and drops, before it is committed."""
        self._failures.check(plan)
        self._drops.check(plan)


def check_vanished(vanished: int, decided: int, max_share: float, warn: Warn) -> None:
    """Warn if too large a share of the decided records vanished; fewer than 1,000 decided are not judged.

    `sync` would remove them from the target. If a retention removes fewer, the rest may have
    been lost by accident.
    """
    if decided >= FIRST_RECORDS and vanished > max_share * decided:
        warn(
            f"{vanished:,} of {decided:,} decided records have vanished from the source, more than "
            f"[limits] max_vanished_share = {max_share:g}; their copies would be removed from the target"
        )


def check_swept_share(dropped: int, decided: int, max_share: float, warn: Warn) -> None:
    """Warn if too large a share of the decided records would leave the source."""
    if decided >= MIN_RECORDS_FOR_SHARE and dropped > max_share * decided:
        warn(
            f"{dropped:,} of {decided:,} decided records would leave the source, more than "
            f"[limits] max_drop_share = {max_share:g}"
        )


def list_counts(counts: Mapping[str, int]) -> str:
    """Return names with their counts as text, the greatest count first."""
    return ", ".join(f"{name} {count:,}" for name, count in Counter(counts).most_common(MAX_NAMES))


def _describe_text_fields(raws: Sequence[bytes]) -> str:
    """Return which fields of some records hold text, or else which fields exist; never their values."""
    fields = count_field_kinds(raws)
    texts = {_printable(path): count for path, count in count_text_fields(fields).items()}
    if texts:
        return f"of {len(raws)} records, text is in {list_counts(texts)}"
    others = ", ".join(map(_printable, islice(fields, MAX_NAMES)))
    return f"no text is in their fields: {others or 'there is none'}"


def _shell_word(raw_id: bytes) -> str:
    """Return an id as a word of a command line."""
    return quote(format_id(extended(raw_id)))


def _printable(path: str) -> str:
    return path if path.isprintable() else ascii(path)
