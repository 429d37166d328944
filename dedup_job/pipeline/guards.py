"""Guards stop a run that is about to do something a person should look at first."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from shlex import quote
from typing import Self

from dedup_job.config import LimitSettings
from dedup_job.errors import GuardStop
from dedup_job.fingerprint.preference_ranks import NOTHING, count_kinds
from dedup_job.fingerprint.preference_rule import LENGTH, PreferRule
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.mongo.ids import extended
from dedup_job.records import Action, FingerprintedBatch, Plan, Unchecked, is_failure
from dedup_job.report.decision_lines import compare_command
from dedup_job.report.terminal_text import format_id
from dedup_job.text.fields import TextFields, count_field_kinds, count_text_fields, value_kind

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


class UncheckedGuard:
    """Stops a run whose first records have no usable text, or values of several types in a group field."""

    is_over = False

    def __init__(
        self,
        max_share: float,
        warn: Warn,
        least: int = FIRST_RECORDS,
        fields: TextFields | None = None,
        note: Warn | None = None,
    ) -> None:
        """Set the limit.

        Args:
            max_share: Largest share of the first records that may be unchecked.
            warn: Called when the share is larger, and for a field with values of several types.
            least: With fewer records than this, the guard does not judge at all.
            fields: The fields in `within` whose types are checked.
            note: Called once for each such field if there are fewer records than `least`.
        """
        self._fields = fields
        self._kinds: dict[str, Counter[str]] = {path: Counter() for path in fields.within} if fields else {}
        self._max_share, self._warn, self._least = max_share, warn, least
        self._note = note
        self._seen = 0
        self._reasons = Counter[str]()
        self._sample: list[bytes] = []

    def add(self, raws: Sequence[bytes], reasons: Sequence[str]) -> None:
        """Count some records; check the share when enough were counted.

        Args:
            raws: Raw records, for naming their fields; fewer than `reasons` will do.
            reasons: Why each record cannot be judged, or "".
        """
        if self.is_over:
            return
        # Not one more, so that batches and engine make no difference.
        rest = FIRST_RECORDS - self._seen
        raws, reasons = raws[:rest], reasons[:rest]
        self._seen += len(reasons)
        self._reasons.update(filter(None, reasons))
        self._count_kinds(raws)
        self._sample += islice(raws, SAMPLED_RECORDS - len(self._sample))
        if self._seen >= FIRST_RECORDS:
            self.finish()

    def _count_kinds(self, raws: Sequence[bytes]) -> None:
        if self._fields is None or not self._kinds:
            return
        for raw in raws:
            with suppress(Unchecked):
                for path, value in zip(self._kinds, self._fields.group_values(raw), strict=True):
                    if value is not None:
                        self._kinds[path][value_kind(value)] += 1

    def finish(self) -> None:
        """Check the records counted so far; called after each part of the source."""
        if self.is_over:
            return
        if self._seen < self._least:
            if self._note is not None and self._check_kinds(self._note):
                self._note = None
            return
        self.is_over = True
        self._check_kinds(self._warn)
        unchecked, sample = self._reasons.total(), self._sample
        self._sample = []
        if unchecked > self._max_share * self._seen:
            self._warn(
                f"{unchecked:,} of the first {self._seen:,} records cannot be judged "
                f"({list_counts(self._reasons)}), "
                f"more than [limits] max_unchecked_share = {self._max_share:g}; "
                f"{_describe_text_fields(sample)}"
            )

    def _check_kinds(self, warn: Warn) -> bool:
        """Call `warn` for each group field with values of several types; return whether there is one."""
        mixed = {path: kinds for path, kinds in self._kinds.items() if len(kinds) > 1}
        for path, kinds in mixed.items():
            warn(
                f"[match] within: {_printable(path)} has values of several types in the first records "
                f"({list_counts(kinds)}), and values of different types are never equal"
            )
        return bool(mixed)


def check_first_records(
    batches: Iterable[FingerprintedBatch], guard: UncheckedGuard
) -> Iterator[FingerprintedBatch]:
    """Yield the batches; buffer the first ones until the guard of the first records has checked them."""
    buffer: list[FingerprintedBatch] = []
    nbytes = 0
    for batch, prints in batches:
        guard.add(batch.raws, prints.reasons)
        buffer.append((batch, prints))
        nbytes += batch.nbytes + prints.nbytes
        if guard.is_over or nbytes >= MAX_BUFFERED_BYTES:
            yield from buffer
            buffer = []
    guard.finish()
    yield from buffer


class PreferGuard:
    """Stops a run whose first records lack what `[match] prefer` compares, before any of them is decided.

    Fewer than 1,000 records, and single values of another type, get a warning only.
    """

    def __init__(self, rules: Sequence[PreferRule], warn: Warn, note: Warn) -> None:
        """Set the rules.

        Args:
            rules: The rules.
            warn: Called if none of the first records has a value that a rule compares.
            note: Called in the other cases.
        """
        self._kinds = {rule: Counter[str]() for rule in rules if rule.order != LENGTH}
        self._warn, self._note, self._seen = warn, note, 0

    def watch(self, batches: Iterable[FingerprintedBatch]) -> Iterator[FingerprintedBatch]:
        """Yield the batches, and judge the first records before the last of them is yielded."""
        for batch, prints in batches:
            self.add(batch.raws)
            yield batch, prints
        self.finish()

    def finish(self) -> None:
        """Judge fewer records than FIRST_RECORDS; the last call."""
        if 0 < self._seen < FIRST_RECORDS:
            self._judge(self._note)

    def add(self, raws: Sequence[bytes]) -> None:
        """Count some records, and judge the first ones when enough were counted."""
        if self._seen >= FIRST_RECORDS:
            return
        raws = raws[: FIRST_RECORDS - self._seen]
        self._seen += len(raws)
        for rule, kinds in self._kinds.items():
            kinds.update(count_kinds(raws, rule))
        if self._seen >= FIRST_RECORDS:
            self._judge(self._warn)

    def _judge(self, warn: Warn) -> None:
        for rule, kinds in self._kinds.items():
            first = f"the first {self._seen:,} records ({list_counts(kinds)})"
            if not kinds[rule.wanted]:
                warn(f"[match] prefer: {rule.name} holds no {rule.wanted} in {first}")
            elif kinds.keys() - {rule.wanted, NOTHING}:
                self._note(
                    f"[match] prefer: {rule.name} holds values of several types in {first}; "
                    f"those that are no {rule.wanted} count as missing"
                )


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


@dataclass(frozen=True, slots=True)
class Guards:
    """The guards of a run."""

    first: UncheckedGuard
    preferences: PreferGuard
    drops: DropGuard
    failures: FailureGuard

    def watch(self, batches: Iterable[FingerprintedBatch]) -> Iterator[FingerprintedBatch]:
        """Yield the batches, the first ones after the guards of the first records have checked them."""
        return check_first_records(self.preferences.watch(batches), self.first)

    def check(self, plan: Plan) -> None:
        """Check a plan's failures and drops, before it is committed."""
        self.failures.check(plan)
        self.drops.check(plan)

    @classmethod
    def of(
        cls,
        limits: LimitSettings,
        recipe: Recipe,
        warn: Warn,
        note: Warn,
        before: InterruptedCounts = InterruptedCounts(),
        least: int = FIRST_RECORDS,
    ) -> Self:
        """Return the guards of a run.

        Args:
            limits: The settings.
            recipe: The recipe of the run.
            warn: Called when a limit is passed.
            note: Called for what a person should know, but no limit is passed.
            before: Counts of interrupted runs, which are included.
            least: With fewer first records than this, the share of unchecked ones is not judged.
        """
        return cls(
            UncheckedGuard(limits.max_unchecked_share, warn, least, recipe.reader.fields, note),
            PreferGuard(recipe.matching.prefer, warn, note),
            DropGuard(limits.max_drop_share, limits.max_group, warn, before),
            FailureGuard(limits.max_failed_share, warn, before),
        )


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


def _describe_text_fields(raws: Iterable[bytes]) -> str:
    """Return which fields of some records hold text, or else which fields exist; never their values."""
    raws = list(raws)
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
