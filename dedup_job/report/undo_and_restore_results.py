"""Results of `undo` and `restore`, as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from dedup_job.records import UPDATE, VANISHED, Counts
from dedup_job.report.terminal_text import count_row, format_id, join_counts

AFTER_UPDATE = (
    "  the next run decides all of these records; versions that were in the target before that",
    "  update do not come back if the source had changed or deleted them",
)


def _count_copied(counts: Counts) -> int:
    return counts.unique + sum(counts.unchecked.values())


@dataclass(frozen=True, slots=True)
class UndoPreview:
    """The effect that an undo would have.

    Attributes:
        undoes: The run to undo.
        mode: The run's mode; None if the ledger no longer has it.
        started: When the run started; None if the ledger no longer has it.
        plans: Number of its plans.
        counts: The verdicts in these plans.
        restored: Number of dropped records in these plans that a person restored.
        has_begun: Whether an earlier undo of the run was interrupted, so that this is the rest.
        has_copies: Whether kept records were copied to a target.
    """

    undoes: str
    mode: str | None = None
    started: datetime | None = None
    plans: int = 0
    counts: Counts = field(default_factory=Counts)
    restored: int = 0
    has_begun: bool = False
    has_copies: bool = True

    def with_plan(self, counts: Counts, restored: int) -> UndoPreview:
        """Return a copy with one more plan."""
        counts, restored = self.counts + counts, self.restored + restored
        return replace(self, plans=self.plans + 1, counts=counts, restored=restored)

    @property
    def most_removed(self) -> int:
        """Number of records that would be removed from the target if all are still unchanged there."""
        return _count_copied(self.counts) + self.restored if self.has_copies else 0

    def as_json(self) -> dict[str, Any]:
        """Return the effect as one JSON object."""
        return {
            "mode": "undo",
            "dry_run": True,
            "undoes": self.undoes,
            "has_begun": self.has_begun,
            "plans": self.plans,
            "read": self.counts.read,
            "most_removed": self.most_removed,
            "restored": self.restored,
            "duplicate": {"exact": self.counts.exact, "near": self.counts.near},
            "refused": dict(self.counts.refused),
        }

    def as_text(self) -> str:
        """Return the effect as text."""
        when = f" of {self.started:%Y-%m-%d %H:%M}" if self.started else ""
        rest = ", the rest of an interrupted undo" if self.has_begun else ""
        lines = [
            f"would undo run {self.undoes} ({self.mode or 'run'}{when}){rest}:",
            count_row("undecided again", self.counts.read),
        ]
        if self.has_copies:
            about = "at most: records stay that were changed there,"
            lines += [
                count_row("removed from target", self.most_removed, about),
                f"  {'':33}  or that the source no longer has unchanged",
            ]
        lines += AFTER_UPDATE if self.mode == UPDATE else ()
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The effect of an undo, including the effect of an interrupted undo that it continued.

    Attributes:
        run: The undo's own name.
        undid: The run that was undone.
        plans: Number of its plans.
        counts: The verdicts in these plans.
        left: Number of its records that stay in the target, by reason.
        restored: Number of its dropped records that a person had restored.
        seconds: How long it took.
        already: Whether the run had been undone before.
        has_copies: Whether kept records were copied to a target.
    """

    run: str
    undid: str
    plans: int = 0
    counts: Counts = field(default_factory=Counts)
    left: Mapping[str, int] = field(default_factory=dict)
    restored: int = 0
    seconds: float = 0.0
    already: bool = False
    has_copies: bool = True

    @property
    def exit_code(self) -> int:
        """0, or 3 if records stay in the target; the undo is done, and another one changes nothing."""
        return 3 if self.left else 0

    def as_json(self) -> dict[str, Any]:
        """Return the effect as one JSON object."""
        return {
            "run": self.run,
            "mode": "undo",
            "undid": self.undid,
            "already": self.already,
            "plans": self.plans,
            **self.counts.as_json(),
            "left": dict(self.left),
            "restored": self.restored,
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return the effect as text."""
        if self.already:
            return f"run {self.undid} was already undone by {self.run}"
        stay = sum(self.left.values())
        lines = [
            f"undo {self.run}: run {self.undid} is undone",
            count_row("undecided again", self.counts.read),
        ]
        if self.has_copies:
            removed = _count_copied(self.counts) + self.restored - stay
            lines.append(count_row("removed from target", removed))
        if stay:
            reasons = f"{join_counts(self.left)}; listed in dedup.left"
            lines.append(count_row("stay in the target", stay, reasons))
        return "\n".join([*lines, f"  {self.seconds:,.1f} s"])


class NotRestored(NamedTuple):
    """A record that could not be restored.

    Attributes:
        id: Its id, as a JSON value.
        refused_by: "target"; or "source", to which a record returns from the archive; None if neither
            refused it.
        reason: Why it was refused, such as "unique_index"; "vanished" if the source no longer has it;
            otherwise its verdict, such as "undecided": it was not dropped.
    """

    id: Any
    refused_by: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The records that a `restore` inserted into the target.

    Attributes:
        run: The restore's name; None if there was nothing to do.
        ids: The ids of these records, as JSON values.
        asked: Number of different records that the user named.
        changed: The ids among these whose record changed in the source after it was dropped.
        not_restored: The records that could not be restored.
        has_copies: Whether kept records are copied to a target.
        former_source: The collection whose place the target has taken; it still has the dropped records.
    """

    run: str | None
    ids: Sequence[Any]
    asked: int
    changed: Sequence[Any] = ()
    not_restored: Sequence[NotRestored] = field(default_factory=list)
    has_copies: bool = True
    former_source: str | None = None

    @property
    def exit_code(self) -> int:
        """0, or 3 if records could not be restored."""
        return 3 if self.not_restored else 0

    def as_json(self) -> dict[str, Any]:
        """Return the result as one JSON object."""
        return {
            "run": self.run,
            "mode": "restore",
            "restored": list(self.ids),
            "asked": self.asked,
            "changed": list(self.changed),
            "not_restored": [each._asdict() for each in self.not_restored],
        }

    def as_row(self) -> dict[str, Any]:
        """Return the result for the ledger: the ids themselves may be too many for one document."""
        return {
            "run": self.run,
            "mode": "restore",
            "asked": self.asked,
            "restored": len(self.ids),
            "changed": len(self.changed),
            "not_restored": len(self.not_restored),
        }

    def as_text(self) -> str:
        """Return the result as text."""
        note = ", in the source's present version, which differs from the dropped one"
        again, already = (
            ("in the target again", "in the target") if self.has_copies else ("no longer dropped", "kept")
        )
        changed = set(map(format_id, self.changed))
        shown_ids = map(format_id, self.ids)
        lines = [f"{shown_id} is {again}{note if shown_id in changed else ''}" for shown_id in shown_ids]
        before = self.asked - len(self.ids) - len(self.not_restored)
        if before:
            lines.append(f"already {already}: {before:,} of {self.asked:,} named records")
        missing = [each for each in self.not_restored if each.reason == VANISHED.reason]
        not_refused = [each for each in self.not_restored if each.refused_by is None]
        others = [each for each in not_refused if each.reason != VANISHED.reason]
        lines += [f"{format_id(each.id)} was not dropped: it is {each.reason}" for each in others]
        lines += [f"{format_id(each.id)} cannot be restored: the source no longer has it" for each in missing]
        if missing and self.former_source:
            lines.append(
                f"the target took the place of the source: copy these from {self.former_source} into the "
                "source, and restore them again"
            )
        refused = [each for each in self.not_restored if each.refused_by is not None]
        lines += [
            f"{format_id(each.id)} stays dropped: the {each.refused_by} refuses it ({each.reason})"
            for each in refused
        ]
        if refused:
            lines.append("correct the cause, and restore these again")
        return "\n".join(lines) or "no ids, so nothing was restored"
