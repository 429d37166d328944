"""The summary of a run: counts, time and memory, as text and JSON."""

from __future__ import annotations

import re
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from dedup_job.mongo.copy_indexes import Copied
from dedup_job.records import Counts
from dedup_job.report.terminal_text import count_row, join_counts, to_json_line, wrap_text

STATUS = Path("/proc/self/status")


def indexes_as_json(copied: Copied) -> dict[str, Any]:
    """Return the result as JSON values; `expiry_held_back` has the seconds by index."""
    return {
        "built": list(copied.built),
        "there": list(copied.there),
        "refused": dict(copied.refused),
        "expiry_held_back": dict(copied.expiries),
    }


def index_lines(copied: Copied) -> Iterator[str]:
    """Yield the result as text, with the commands that turn on expiry."""
    yield f"  indexes of the source: {len(copied.built)} built, {len(copied.there)} already there"
    if copied.built:
        yield from wrap_text(f"built: {', '.join(copied.built)}", "    ")
    for name, reason in copied.refused.items():
        yield from wrap_text(f"index NOT built: {name}: {reason}", "  ")
    for name, seconds in copied.expiries.items():
        yield from wrap_text(
            f"index {name} built without its expiry: with it the server would delete kept records whose "
            "duplicates were dropped. To turn it on when the target replaces the source:",
            "  ",
        )
        yield f"    {expiry_command(copied.target, name, seconds)}"


def expiry_command(collection: str, index: str, seconds: float) -> str:
    """Return the line for mongosh that turns on the expiry of an index.

    >>> expiry_command("pages", "at_1", 3600)
    'db.runCommand({collMod: "pages", index: {"name": "at_1", "expireAfterSeconds": 3600}})'
    """
    expiry = to_json_line({"name": index, "expireAfterSeconds": seconds})
    return f"db.runCommand({{collMod: {to_json_line(collection)}, index: {expiry}}})"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The result of a run.

    Attributes:
        run: The run's name.
        mode: The command.
        counts: The verdicts.
        seconds: How long it took.
        recipe: The recipe's digest.
        about: The recipe in words.
        index: The number of different `texts` in the index, and of `kept` records; empty without an index.
        refused_before: Records that the target refused in earlier runs that did not report them, by reason.
        warnings: Messages of guards that did not stop the run.
        indexes: The result of copying the source's indexes, None if that was not asked for.
        adopted: Number of records of the target that a dry run would adopt.
        replaced: How many keepers better records have replaced; None without `[match] prefer`.
    """

    run: str
    mode: str
    counts: Counts
    seconds: float
    recipe: str
    about: str = ""
    index: Mapping[str, int] = field(default_factory=dict)
    refused_before: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    indexes: Copied | None = None
    adopted: int = 0
    replaced: ReplacementCounts | None = None

    @property
    def docs_per_second(self) -> float:
        """Records decided in a second."""
        return self.counts.read / self.seconds if self.seconds else 0.0

    @property
    def exit_code(self) -> int:
        """0, or 3 if the target refused something, in this run or in an interrupted run before it."""
        refused = sum(self.counts.refused.values()) + sum(self.refused_before.values())
        refused += self.replaced.refused.total() if self.replaced else 0
        return 3 if refused or (self.indexes and self.indexes.refused) else 0

    def as_json(self) -> dict[str, Any]:
        """Return the report as one JSON object."""
        return {
            "run": self.run,
            "mode": self.mode,
            **self.counts.as_json(),
            "seconds": round(self.seconds, 3),
            "docs_per_second": round(self.docs_per_second, 1),
            "peak_rss_mb": round(peak_rss_mb(), 1),
            "recipe": self.recipe,
            "index": dict(self.index),
            **({"adopted": self.adopted} if self.adopted else {}),
            **({"prefer": self.replaced.as_json()} if self.replaced else {}),
            **({"refused_before": dict(self.refused_before)} if self.refused_before else {}),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
            **({"indexes": indexes_as_json(self.indexes)} if self.indexes else {}),
        }

    def as_text(self) -> str:
        """Return the report as text."""
        counts = self.counts
        if not counts.read:
            return "\n".join([f"{self.mode} {self.run}: nothing new to decide", *self._last_lines()])
        rows = [
            ("read", counts.read, ""),
            ("unique", counts.unique, ""),
            ("duplicate", counts.duplicate, f"exact {counts.exact:,}, near {counts.near:,}"),
            ("unchecked", sum(counts.unchecked.values()), join_counts(counts.unchecked)),
            ("refused", sum(counts.refused.values()), join_counts(counts.refused)),
        ]
        lines = [f"{self.mode} {self.run}", *(f"  WARNING: {warning}" for warning in self.warnings)]
        if self.adopted:
            lines.append(f"  {self.adopted:,} records of the target would be adopted: they stay unchanged")
        for name, count, note in rows:
            share = f"{100 * count / counts.read:5.1f} %"
            lines.append(count_row(name, count, f"{share}  {note}", width=10))
        if counts.partial:
            lines.append(
                f"  {counts.partial:,} judged by some of their fields: others are missing, null or empty"
            )
        lines.append(
            f"  {self.seconds:,.1f} s, {self.docs_per_second:,.0f} documents/s, "
            f"peak memory of the main process {peak_rss_mb():,.0f} MB"
        )
        lines.append(f"  recipe {self.recipe[:12]}: {self.about}".rstrip(": "))
        if self.index:
            texts, kept = self.index["texts"], self.index["kept"]
            lines.append(f"  index: {texts:,} different texts, {kept:,} records kept")
        return "\n".join([*lines, *self._last_lines()])

    def _last_lines(self) -> Iterator[str]:
        """Yield the lines that belong to a run without new records, too."""
        if self.replaced and self.replaced.decided_again:
            yield from self.replaced.lines()
        if self.refused_before:
            yield f"  refused in earlier interrupted runs: {join_counts(self.refused_before)}"
        if self.indexes:
            yield from index_lines(self.indexes)


@dataclass(frozen=True, slots=True)
class LedgerProgress:
    """The progress of a ledger after a run.

    Attributes:
        undecided: About how many records of the source are not decided; None if unknown.
        covered: Every record in the source at this time is decided; None if no scan was complete.
    """

    undecided: int | None
    covered: datetime | None


@dataclass(slots=True)
class ReplacementCounts:
    """What a run has decided again because of `[match] prefer`.

    Attributes:
        own: Correction of the counts of the records that this run has decided first.
        replaced: Keepers of earlier runs that left the target because a better record came.
        returned: Dropped records of earlier runs that came to the target, as their keeper left it.
        decided_again: Records that were decided again, those in this run included.
        refused: Records of earlier runs that are refused now, by reason: keepers that should leave the target
            and were changed there, and dropped records that should come back.
    """

    own: Counts = field(default_factory=Counts)
    replaced: int = 0
    returned: int = 0
    decided_again: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {
            "replaced": self.replaced,
            "returned": self.returned,
            "decided_again": self.decided_again,
            "refused": dict(self.refused),
        }

    def lines(self) -> Iterator[str]:
        """Yield the numbers as text."""
        yield count_row("replaced", self.replaced, "keepers of earlier runs, by better records", width=10)
        if self.returned:
            yield count_row("returned", self.returned, "dropped for a replaced keeper, kept now", width=10)
        if self.refused:
            note = f"of earlier runs: {join_counts(self.refused)}"
            yield count_row("refused", self.refused.total(), note, width=10)


def peak_rss_mb() -> float:
    """Return the peak memory of this process in MB, without its workers."""
    with suppress(OSError):
        # Linux's `getrusage` would count the memory of the program that started this one.
        if found := re.search(r"^VmHWM:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE):
            return int(found[1]) / (1 << 10)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, other systems kilobytes.
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
