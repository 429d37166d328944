"""The status of a ledger, as a page for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dedup_job.report.terminal import id_text

UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
NUMBERS = ("read", "unique", "duplicate")


def as_text(shown: Mapping[str, Any]) -> str:
    """Return what `status` found."""
    if not shown["ledger"]:
        return (
            f"{shown['target']}: no ledger yet, so nothing is decided; report says what a backfill would do"
        )
    return "\n".join([f"{shown['target']}, from {shown['source']}", *_lines(shown), *_table(shown["runs"])])


def _lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """Say how far the ledger is, and who works on it."""
    duplicate, unjudged, refused = (_total(shown[name]) for name in ("duplicate", "unjudged", "refused"))
    yield f"  decided    {shown['read']:,} in {shown['plans']:,} plans"
    yield f"             unique {shown['unique']:,}, duplicate {duplicate:,}"
    yield f"             unjudged {unjudged:,}, refused {refused:,}, restored {shown['restored']:,}"
    if shown["failed"]:
        again = "to try them again: reconcile --apply"
        yield f"             failed {shown['failed']:,} of the unjudged; {again}"
    records = shown["lag"]["records"]
    uncounted = "not counted since the last full look"
    yield f"  undecided  {uncounted if records is None else f'about {records:,} or more'}"
    yield f"  covered    {_looked(shown['covered'], shown['lag']['seconds'])}"
    yield f"  full look  {_looked(shown['looked'], shown['lag']['full_look_seconds'])}"
    watermark = shown["watermark"]
    yield f"  watermark  {'none' if watermark is None else id_text(watermark)}"
    yield f"  recipe     {shown['recipe'][:12]}, fence {shown['fence']}"
    yield f"  lease      {_lease(shown['lease'])}"
    at_work = bool(shown["lease"] and shown["lease"]["held"])
    if shown["pending"]:
        end = "is being carried out" if at_work else "a run was killed; the next run finishes it"
        yield f"  pending    plan {shown['pending']['plan']} of run {shown['pending']['run']}: {end}"
    if shown["undoing"]:
        end = (
            "is being undone"
            if at_work
            else f"is half undone; finish that: dedup-job undo {shown['undoing']}"
        )
        yield f"  undo       run {shown['undoing']} {end}"


def _looked(at: str | None, seconds: float | None) -> str:
    """Say when the source was looked at."""
    if at is None or seconds is None:
        return "never: no run has looked at the whole source yet"
    return f"{at}, {duration(seconds)} ago"


def _lease(lease: Mapping[str, Any] | None) -> str:
    """Say who holds the lease, by the server's clock."""
    if lease is None:
        return "free"
    holder = f"process {lease['pid']} on {lease['host']}"
    if lease["holder_alive"] is False:
        return f"free: {holder} is gone"
    if not lease["held"]:
        return f"free: that of {holder} ended {duration(-lease['seconds_left'])} ago"
    alive = "" if lease["holder_alive"] is None else ", which is alive"
    return f"held by {holder}{alive}, for {duration(lease['seconds_left'])} more unless renewed"


def _table(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the last runs, newest first, in 80 columns."""
    yield f"\n  {'run':<21}{'mode':<10}{'seconds':>9}" + "".join(f"{name:>11}" for name in NUMBERS) + " exit"
    for run in runs:
        seconds = "-" if run["seconds"] is None else f"{run['seconds']:,.1f}"
        numbers = "".join(f"{_number(run[name]):>11}" for name in NUMBERS)
        code = "-" if run["exit_code"] is None else run["exit_code"]
        yield f"  {run['run']:<21}{run['mode']:<10}{seconds:>9}{numbers}{code:>5}"
        yield from (f"    {note}" for note in _notes(run))


def _notes(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield what else there is to say of a run."""
    if others := [f"{name} {_number(run[name])}" for name in ("unjudged", "refused") if run[name]]:
        yield ", ".join(others)
    if run["undone"]:
        yield f"undone {run['undone']}"
    if run["undid"]:
        yield f"took back {run['undid']}"
    if run["alike"]:
        what = "found nothing new" if run["exit_code"] in (0, 3) else "decided nothing either"
        yield f"and {run['alike']:,} before it that {what}"


def _number(value: int | Mapping[str, int] | None) -> str:
    if value is None:
        return "-"
    return f"{value if isinstance(value, int) else _total(value):,}"


def _total(parts: Mapping[str, int]) -> int:
    return sum(parts.values())


def duration(seconds: float) -> str:
    """Return a time in the largest unit of which there are two.

    >>> duration(5), duration(119), duration(120), duration(200_000)
    ('5 seconds', '119 seconds', '2 minutes', '2 days')
    """
    name, size = next((unit for unit in UNITS if seconds >= 2 * unit[1]), UNITS[-1])
    return f"{seconds / size:.0f} {name}"
