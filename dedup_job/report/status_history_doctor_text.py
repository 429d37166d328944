"""`status`, `history` and `doctor` as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dedup_job.pasteable_command import command_line
from dedup_job.report.progress import progress_text
from dedup_job.report.terminal_text import fit_cell, format_duration, format_id, hang, wrap_text

PROMOTIONS = {
    "begun": "half done; finish it with: {promote}",
    "done": "the target has the place of the source, which is {kept_as} now",
    "returning": "half taken back; finish it with: {promote} --back",
}
EVERYTHING_DECIDED = "everything that was in the source then is decided"
ONLY_EARLIER_DECIDED = "records from before are decided, later ones are not"
# After an undo of a sync, for example: records that an earlier run decided are undecided again.
MAYBE_UNDECIDED = "records from before may be undecided, too"

NUMBERS = ("read", "unique", "duplicate")
TABLE_HEADER = (
    f"  {'run':<21}{'mode':<10}{'seconds':>9}" + "".join(f"{name:>11}" for name in NUMBERS) + " exit"
)


def status_text(shown: Mapping[str, Any]) -> str:
    """Return the progress of the ledger, its lease and the last runs.

    Args:
        shown: The JSON object that `status --json` prints.
    """
    if not shown["ledger"]:
        return (
            f"{shown['target']}: no ledger yet, so nothing is decided; report says what a backfill would do"
        )
    rows = (f"  {label:<11}{value}" for label, value in _progress_rows(shown))
    return "\n".join([f"{shown['target']}, from {shown['source']}", *rows, *run_table(shown["runs"])])


def _progress_rows(shown: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield labels and values: how far the ledger is, and who works on it."""
    duplicate, unchecked, refused = (
        sum(shown[name].values()) for name in ("duplicate", "unchecked", "refused")
    )
    lag, watermark = shown["lag"], shown["watermark"]
    undecided = "none known; the next full scan makes sure"
    if lag["records"] is not None:
        undecided = f"about {lag['records']:,} or more"
    yield "decided", f"{shown['read']:,} records"
    restored = f" ({shown['restored']:,} of them restored)" if shown["restored"] else ""
    yield "", f"unique {shown['unique']:,}, duplicate {duplicate:,}{restored}"
    yield "", f"unchecked {unchecked:,}, refused {refused:,}"
    if shown["failed"]:
        yield "", f"failed {shown['failed']:,} of the unchecked; to try them again: sync"
    if shown["in_target"] is not None:
        yield "in target", f"{shown['in_target']:,} records: unique, unchecked and restored"
    yield "undecided", undecided
    decided = EVERYTHING_DECIDED if lag["records"] is None else ONLY_EARLIER_DECIDED
    decided = decided if shown["looked"] else MAYBE_UNDECIDED
    yield "last read", _describe_scan(shown["covered"], lag["seconds"], decided)
    scanned = _describe_scan(shown["looked"], lag["full_scan_seconds"], "all ids were compared")
    yield "full scan", scanned if shown["looked"] else "the next run compares all ids of the source"
    if watermark is not None:
        yield "backfill", f"has read up to the _id {format_id(watermark)}"
    yield "recipe", shown["recipe"][:12]
    yield "at work", _describe_lease(shown["lease"])
    if shown["running"]:
        yield "running", _describe_running(shown["running"])
    if shown["replication"]:
        yield "replicas", _describe_replication(shown["replication"])
    yield from _unfinished_rows(shown)


def _unfinished_rows(shown: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is being done, or was left half done by a command that was killed."""
    # Without a holder of the lease, a pending plan or undo is the rest of a killed run.
    is_held = bool(shown["lease"] and shown["lease"]["held"])
    if shown["pending"]:
        state = "is being carried out" if is_held else "a run was killed; the next run finishes it"
        yield "pending", f"plan {shown['pending']['plan']} of run {shown['pending']['run']}: {state}"
    if shown["replacing"]:
        state = "is at work" if is_held else "was killed; the next run finishes it"
        yield "replacing", f"kept records by better ones; the run {state}"
    if promotion := shown["promotion"]:
        state = PROMOTIONS[promotion["state"]]
        yield "promotion", state.format(kept_as=promotion["kept_as"], promote=command_line("promote"))
    if run := shown["undoing"]:
        finish = command_line(f"undo {run}")
        state = "is being undone" if is_held else f"is half undone; finish with: {finish}"
        yield "undo", f"run {run} {state}"


def _describe_scan(at: str | None, seconds: float | None, meaning: str) -> str:
    """Return when the source was last scanned, and what that means."""
    if at is None or seconds is None:
        return "never: no run has scanned the whole source yet"
    return f"{at}, {format_duration(seconds)} ago: {meaning}"


def _describe_lease(lease: Mapping[str, Any] | None) -> str:
    """Return who holds the lease, by the server's clock."""
    if lease is None:
        return "no process"
    holder = f"process {lease['pid']} on {lease['host']}"
    if lease["holder_alive"] is False:
        return f"no process: {holder} is gone"
    if not lease["held"]:
        return f"no process: the lease of {holder} expired {format_duration(-lease['seconds_left'])} ago"
    # `None` if the holder runs on another machine, where its process cannot be checked.
    alive = "" if lease["holder_alive"] is None else ", which is alive"
    return f"{holder}{alive}; its lease ends in {format_duration(lease['seconds_left'])} unless renewed"


def _describe_running(running: Mapping[str, Any]) -> str:
    """Return how far the run in progress is."""
    if running["deciding"]:
        return f"{running['mode']}: {progress_text(running)}"
    age = format_duration(running["seconds"])
    return f"{running['mode']} {running['run']}, for {age}; it has not begun to decide records"


def _describe_replication(replication: Mapping[str, Any]) -> str:
    """Return how far secondaries lag, and whether runs wait for them."""
    lag, limit = replication["lag_seconds"], replication["max_lag_seconds"]
    if lag is None:
        return "the lag of secondaries is unknown: no primary, or no secondary, answers"
    over = "; runs pause until they have caught up" if replication["is_over"] else ""
    return f"secondaries lag {lag:,.1f} seconds; the limit is {limit:,g}{over}"


STATES = {"ok": "ok", "warning": "warning", "fault": "FAULT"}
LACKS = "the user lacks the right to "
# Columns of a field's path.
PATH_WIDTH = 26


def doctor_text(shown: Mapping[str, Any]) -> str:
    """Return the checks and their results, in lines of at most 110 columns.

    Args:
        shown: The JSON object that `doctor --json` prints.
    """
    versions = ", ".join(f"{name} {number}" for name, number in shown["versions"].items())
    place = f"to {shown['target']}" if shown["target"] else f"without copies, ledger in {shown['ledger']}.*"
    lines = [f"doctor: from {shown['source']} {place}", f"  {versions}"]
    for check in shown["checks"]:
        lines += hang(f"  {STATES[check['state']]:<8} {check['about']:<14} ", check["message"])
    lines += _command_lines(shown["commands"])
    lines += _field_lines(shown.get("fields"))
    if shown["exit_code"]:
        # A run ends at its first problem, so this is the exit code of the run, too.
        first = next(check for check in shown["checks"] if check["exit_code"])
        result = f"a run would end with {shown['exit_code']}: {first['about']}, see above"
    elif warned := [check["about"] for check in shown["checks"] if check["state"] == "warning"]:
        result = f"a run can start, but look at the warnings first: {', '.join(dict.fromkeys(warned))}"
    else:
        result = "no problem was found: a run can start"
    return "\n".join([*lines, "", result])


def _command_lines(commands: list[Mapping[str, Any]]) -> Iterator[str]:
    if commands:
        yield from ("", "commands that these users may run")
    for row in commands:
        yield from wrap_text(f"{'yes' if row['allowed'] else 'no '}  {row['commands']}", "  ")
        for lack in row["lacking"]:
            yield from wrap_text(f"lacks {lack.removeprefix(LACKS)}", "         ")


def _field_lines(fields: Mapping[str, Any] | None) -> Iterator[str]:
    if not fields:
        return
    yield from ("", f"fields of {fields['records']:,} records; * has the text")
    for mark, paths in (("*", fields["of_settings"]), (" ", fields["others"])):
        for path, kinds in paths.items():
            shares = ", ".join(f"{kind} {count:,}" for kind, count in kinds.items())
            yield f"  {mark} {fit_cell(path, PATH_WIDTH)} {shares}"


def run_table(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of the last runs, newest first, in 80 columns."""
    yield f"\n{TABLE_HEADER}"
    for run in runs:
        yield _numbers(run)
        yield from (f"    {note}" for note in _notes(run))
        if run["alike"]:
            result = "found nothing new" if run["exit_code"] in (0, 3) else "decided nothing either"
            yield f"    and {run['alike']:,} earlier run{'s' * (run['alike'] != 1)} {result}"


def run_line(run: Mapping[str, Any]) -> str:
    """Return a run as one line of the table."""
    return "  ".join([_numbers(run), *_notes(run)])


def _numbers(run: Mapping[str, Any]) -> str:
    seconds = "-" if run["seconds"] is None else f"{run['seconds']:,.1f}"
    numbers = "".join(f"{_format_number(run[name]):>11}" for name in NUMBERS)
    code = "-" if run["exit_code"] is None else run["exit_code"]
    return f"  {run['run']:<21}{run['mode']:<10}{seconds:>9}{numbers}{code:>5}"


def _notes(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the facts about a run that have no column."""
    if others := [f"{name} {_format_number(run[name])}" for name in ("unchecked", "refused") if run[name]]:
        yield ", ".join(others)
    if run["undone"]:
        yield f"undone {run['undone']}"
    if run["undid"]:
        yield f"undid {run['undid']}"


def _format_number(value: int | Mapping[str, int] | None) -> str:
    if value is None:
        return "-"
    return f"{value if isinstance(value, int) else sum(value.values()):,}"
