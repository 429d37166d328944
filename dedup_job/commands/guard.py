"""Guards: they see what a run is about to do, and tell when a person should look before it is done.

What they tell ends a run; a dry run, and a run that a person allowed to go on, note it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from shlex import quote
from typing import Self

from dedup_job.document import Action, Batch, Fingerprints, is_failure
from dedup_job.engine.exempt import Fingerprinting
from dedup_job.errors import GuardStop
from dedup_job.mongo.shown_ids import extended
from dedup_job.plan import Plan
from dedup_job.report.terminal import id_text
from dedup_job.settings.sections import LimitSettings
from dedup_job.text.inventory import inventory, with_text

FIRST = 1_000  # records that are looked at before any of them is decided
HELD_BYTES = 64 << 20  # of them that wait for that; what comes after is decided while the look goes on
SAMPLED = 100  # records whose fields are named
NAMED = 10  # fields
TELLING = 10_000  # records of which the share that is dropped says something
SHOWN = 5  # duplicates of a keeper

Commit = Callable[[Plan, Sequence[bytes]], Plan]
Tell = Callable[[str], object]

log = logging.getLogger("dedup_job")


def stop(message: str) -> None:
    """Tell it by ending the run."""
    raise GuardStop(f"{message}; run again with --allow if it is meant; what was decided before stays")


@dataclass(frozen=True, slots=True)
class Notes:
    """Tells it by noting it, for the log and the summary."""

    messages: list[str] = field(default_factory=list)

    def __call__(self, message: str) -> None:
        """Note what a guard has to say."""
        log.warning(message)
        self.messages.append(message)


class FirstLook:
    """A guard of the first records: whether they can be judged."""

    is_over = False

    def __init__(self, max_share: float, tell: Tell, least: int = FIRST) -> None:
        """Tell when more than `max_share` of them cannot, once; of fewer than `least` records say nothing."""
        self._max_share, self._tell, self._least = max_share, tell, least
        self._seen = 0
        self._reasons = Counter[str]()
        self._sample: list[bytes] = []

    def take(self, raws: Sequence[bytes], reasons: Sequence[str]) -> None:
        """Look at some records, and why each cannot be judged or "", until enough were seen."""
        if self.is_over:
            return
        self._seen += len(reasons)
        self._reasons.update(filter(None, reasons))
        self._sample += islice(raws, SAMPLED - len(self._sample))
        if self._seen >= FIRST:
            self.end()

    def end(self) -> None:
        """Judge by what was seen: no more will come, or need come."""
        if self.is_over or self._seen < self._least:
            return
        self.is_over = True
        unjudged, sample = self._reasons.total(), self._sample
        self._sample = []
        if unjudged > self._max_share * self._seen:
            self._tell(
                f"{unjudged:,} of the first {self._seen:,} records cannot be judged "
                f"({named(self._reasons)}), more than [limits] max_unjudged_share = {self._max_share:g}; "
                f"{_where_text_is(sample)}"
            )


@dataclass(frozen=True, slots=True)
class HeldBack:
    """An engine that hands on nothing before the first records have been looked at."""

    engine: Fingerprinting
    look: FirstLook

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        """Yield each batch with its fingerprints, in order."""
        held: list[tuple[Batch, Fingerprints]] = []
        nbytes = 0
        for batch, prints in self.engine.fingerprinted(batches):
            self.look.take(batch.raws, prints.reasons)
            held.append((batch, prints))
            nbytes += batch.nbytes + prints.nbytes
            if self.look.is_over or nbytes >= HELD_BYTES:
                yield from held
                held = []
        self.look.end()
        yield from held


@dataclass(frozen=True, slots=True)
class EarlierCounts:
    """What runs that were broken off decided.

    read     records
    dropped  those of them that were dropped
    failed   how many of them the job failed on, by reason
    groups   how many were dropped for each keeper; counted only where it is limited, as it takes about
             150 bytes for each keeper of a duplicate
    """

    read: int = 0
    dropped: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[bytes, int] = field(default_factory=dict)


class Drops:
    """A guard of what is dropped: how much of all, and how much for one keeper."""

    def __init__(
        self, max_share: float, max_group: int | None, tell: Tell, before: EarlierCounts = EarlierCounts()
    ) -> None:
        """Go on from what runs that were broken off had decided; tell of each limit once."""
        self._max_share, self._max_group, self._tell = max_share, max_group, tell
        self._read, self._dropped, self._groups = before.read, before.dropped, Counter(before.groups)
        self._reported = set[str]()

    def look(self, plan: Plan) -> None:
        """Tell when a plan, were it carried out, would drop too much."""
        here = Counter(verdict.match.keeper for verdict in plan.verdicts if verdict.match is not None)
        self._read += len(plan)
        self._dropped += here.total()
        if here and self._read >= TELLING and self._dropped > self._max_share * self._read:
            what = f"{self._dropped:,} of {self._read:,} records would be dropped"
            self._say(what, f"max_drop_share = {self._max_share}", here.most_common(1)[0][0], plan)
        if self._max_group is not None:
            self._groups.update(here)
            largest = max(here, key=self._groups.__getitem__, default=b"")
            if self._groups[largest] > self._max_group:
                what = f"{self._groups[largest]:,} records would be dropped for one keeper"
                self._say(what, f"max_group = {self._max_group}", largest, plan)

    def _say(self, what: str, limit: str, keeper: bytes, plan: Plan) -> None:
        """Tell what passes a limit, once, and show it by some records that would be dropped for a keeper."""
        if limit in self._reported:
            return
        self._reported.add(limit)
        verdicts = zip(plan.ids, plan.verdicts, strict=True)
        stood_for = (
            raw_id for raw_id, one in verdicts if one.match is not None and one.match.keeper == keeper
        )
        name, duplicates = _word(keeper), list(map(_word, islice(stood_for, SHOWN)))
        self._tell(
            f"{what}, more than [limits] {limit}; {name} would stand for {', '.join(duplicates)}; "
            f"to see why: dedup-job explain -c FILE {name} {duplicates[0]}"
        )


class FailureGuard:
    """Stops a run that fails on many records: a bug must not copy a collection without comparing it.

    Fewer than 10,000 records count as 10,000, so that a few bad ones among the first do not stop a run.
    """

    def __init__(self, max_share: float, tell: Tell, before: EarlierCounts = EarlierCounts()) -> None:
        """Go on from what runs that were broken off had decided; tell once."""
        self._max_share, self._tell = max_share, tell
        self._read, self._reasons = before.read, Counter(before.failed)
        self._has_told = False

    def look(self, plan: Plan, failed_before: Container[bytes] = ()) -> None:
        """Tell when the job has failed on too many records.

        failed_before  ids of records on which it failed before, and which it tries again
        """
        self._read += len(plan)
        self._reasons.update(
            verdict.reason
            for raw_id, verdict in zip(plan.ids, plan.verdicts, strict=True)
            if verdict.action is Action.UNJUDGED
            and is_failure(verdict.reason)
            and raw_id not in failed_before
        )
        failed = self._reasons.total()
        if failed > self._max_share * max(self._read, TELLING) and not self._has_told:
            self._has_told = True
            self._tell(
                f"the job failed on {failed:,} of {self._read:,} records ({named(self._reasons)}), more than "
                f"[limits] max_failed_share = {self._max_share:g}; they would be copied without being "
                "compared: is memory short, or is it a bug? Please report it"
            )


@dataclass(frozen=True, slots=True)
class Guards:
    """The guards of a run."""

    first: FirstLook
    drops: Drops
    failures: FailureGuard

    def before(self, commit: Commit) -> Commit:
        """Return a commit before which those guards look that judge a run by its plans."""

        def looked_at(plan: Plan, raws: Sequence[bytes]) -> Plan:
            self.failures.look(plan)
            self.drops.look(plan)
            return commit(plan, raws)

        return looked_at

    def all_before(self, commit: Commit) -> Commit:
        """Return a commit before which all of them look, for plans that were made without being held back."""
        guarded = self.before(commit)

        def looked_at(plan: Plan, raws: Sequence[bytes]) -> Plan:
            unjudged = [one.reason if one.action is Action.UNJUDGED else "" for one in plan.verdicts]
            self.first.take(raws, unjudged)
            return guarded(plan, raws)

        return looked_at

    @classmethod
    def of(
        cls, limits: LimitSettings, tell: Tell, before: EarlierCounts = EarlierCounts(), least: int = FIRST
    ) -> Self:
        """Set them up as the settings have it; see FirstLook, Drops and FailureGuard."""
        return cls(
            FirstLook(limits.max_unjudged_share, tell, least),
            Drops(limits.max_drop_share, limits.max_group, tell, before),
            FailureGuard(limits.max_failed_share, tell, before),
        )


def check_vanished(vanished: int, decided: int, max_share: float, tell: Tell) -> None:
    """Tell when more than `max_share` of the decided records vanished; of fewer than FIRST say nothing.

    They would leave the target, and more of them than a retention takes may have been lost by accident.
    """
    if decided >= FIRST and vanished > max_share * decided:
        tell(
            f"{vanished:,} of {decided:,} decided records have vanished from the source, more than "
            f"[limits] max_vanished_share = {max_share:g}; what of them is in the target would leave it"
        )


def named(counts: Mapping[str, int]) -> str:
    """Return names with their numbers, the greatest first."""
    return ", ".join(f"{name} {count:,}" for name, count in Counter(counts).most_common(NAMED))


def _where_text_is(raws: Iterable[bytes]) -> str:
    """Say which fields of some records hold text, or else which there are; values are never told."""
    raws = list(raws)
    fields = inventory(raws)
    texts = {_printable(path): count for path, count in with_text(fields).items()}
    if texts:
        return f"of {len(raws)} records, text is in {named(texts)}"
    others = ", ".join(map(_printable, islice(fields, NAMED)))
    return f"no text is in their fields: {others or 'there is none'}"


def _word(raw_id: bytes) -> str:
    """Return an id as a word of a command line."""
    return quote(id_text(extended(raw_id)))


def _printable(path: str) -> str:
    return path if path.isprintable() else ascii(path)
