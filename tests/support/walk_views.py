"""Checks that the commands which only read agree with the ledger, and with each other."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

ASKED = 3  # records, and groups, for each check

Keeper = int | str
"""The `_id` of a kept record, or the JSON of a reference record's id."""

Ask = Callable[..., list[Any]]
"""Runs a command with `--json`, and returns the objects that it printed."""


@dataclass(frozen=True)
class Decisions:
    """What a ledger says.

    Attributes:
        records: The owner's records.
        dropped: The keeper of each dropped record.
        kept: The kept records, restored ones among them.
        refused: The records that the target refused.
        restored: The restored records that still exist, without those that were decided again.
        unchecked: The restored records that were decided again.
        references: The reference records.
        arrived: Records that were written to a promoted target, and stayed in it when the promotion was taken
            back: they are kept, even if another kept record has their text.
    """

    records: Mapping[int, Mapping[str, Any]]
    dropped: Mapping[int, Keeper]
    kept: Set[int]
    refused: Set[int]
    restored: Set[int]
    unchecked: Set[int]
    references: Set[Keeper]
    arrived: Set[int]

    @property
    def present(self) -> Set[int]:
        """Every record that still exists."""
        return self.kept | self.refused | self.dropped.keys()


def name_keeper(keeper: Any) -> Keeper:
    """Return a keeper from the ledger, or from a command's answer in JSON, in one form."""
    return json.dumps(keeper) if isinstance(keeper, dict) else keeper


def wrong_views(ask: Ask, truth: Decisions, chance: Random, folder: Path) -> Iterator[str]:
    """Yield what the commands say that differs from the ledger, after everything was brought up to date.

    Args:
        ask: Runs a command.
        truth: What the ledger says.
        chance: Chooses the records that are asked for one by one.
        folder: A place for the files of `export` and `find`.
    """
    yield from _wrong_counts(ask, truth)
    yield from _wrong_lists(ask, truth)
    yield from _wrong_groups(ask, truth, folder / "groups.csv")
    yield from _wrong_answers(ask, truth, chance, folder / "asked.jsonl")


def wrong_previews(changes: Any, preview: Any, sync: Any) -> Iterator[str]:
    """Yield in what `changes --content`, `sync --dry-run` and the `sync` after them differ."""
    undecided = changes["new"] + changes["missed"]
    if not undecided == preview["undecided"] == sync["undecided"]:
        yield f"undecided: {undecided}, {preview['undecided']}, {sync['undecided']}"
    vanished, again = changes["vanished"], preview["decide_again"]
    if vanished != sync["vanished"] or vanished["kept"] + vanished["dropped"] != sum(
        preview["take_out"].values()
    ):
        yield f"vanished: {vanished}, {preview['take_out']}, {sync['vanished']}"
    if changes["changed"] != sync["changed"]:
        yield f"changed: {changes['changed']}, {sync['changed']}"
    if sum(changes["changed"][was] for was in ("kept", "dropped")) < preview["renew"]:
        yield f"renewed: {changes['changed']}, {preview['renew']}"
    planned = [preview["renew"], preview["bring_back"], *again.values(), *preview["take_out"].values()]
    if any(planned) != ("updated" in sync):
        yield f"updates: {preview}, {sync}"


def _wrong_counts(ask: Ask, truth: Decisions) -> Iterator[str]:
    (status,), (changes,), (report,) = ask("status"), ask("changes", "--content"), ask("report")
    # Restored duplicates are counted among the duplicates.
    restored = status["restored"]
    kept = status["unique"] + sum(status["unchecked"].values()) + restored
    counted = kept, sum(status["duplicate"].values()) - restored
    expected = len(truth.kept), len(truth.dropped)
    if restored != len(truth.restored):
        yield f"status counts {restored} restored, not {truth.restored}"
    if counted != expected or status["in_target"] not in (None, len(truth.kept)):
        yield f"status counts {counted}, in target {status['in_target']}, not {expected} (kept, dropped)"
    left = changes["new"], changes["missed"], changes["changed"]["records"], changes["vanished"]["records"]
    if any(left):
        yield f"changes names records after a sync: {left}"
    if report["read"]:
        yield f"report would decide {report['read']} records"
    runs = {run["run"]: run for run in ask("history")}
    for run in status["runs"]:
        if run["run"] not in runs or run["read"] != runs[run["run"]]["read"]:
            yield f"status and history differ about {run}"


def _wrong_lists(ask: Ask, truth: Decisions) -> Iterator[str]:
    listed = {row["id"]: name_keeper(row["keeper"]) for row in ask("list")}
    if listed != truth.dropped:
        yield f"list: {listed}, not {truth.dropped}"
    for verdict in ("restored", "unchecked", "refused"):
        rows = ask("list", "--verdict", verdict)
        # Refused records that have left the source stay in the list.
        named = {row["id"] for row in rows if row["reason"] != "vanished"} & truth.present
        if named != getattr(truth, verdict):
            yield f"list --verdict {verdict}: {named}, not {getattr(truth, verdict)}"


def _wrong_groups(ask: Ask, truth: Decisions, file: Path) -> Iterator[str]:
    ask("export", "--clusters", str(file))
    rows = list(csv.DictReader(file.read_text("utf-8").splitlines()))
    keepers = set(truth.dropped.values())
    exported = sorted((row["id"], row["keeper"]) for row in rows)
    expected = [*truth.dropped.items(), *((keeper, keeper) for keeper in keepers)]
    if exported != sorted((str(one), str(keeper)) for one, keeper in expected):
        yield f"export: {exported}, not {truth.dropped}"


def _wrong_answers(ask: Ask, truth: Decisions, chance: Random, file: Path) -> Iterator[str]:
    decided, keepers = sorted(truth.kept | truth.dropped.keys()), sorted(set(truth.dropped.values()), key=str)
    for one in chance.sample(decided, min(ASKED, len(decided))):
        (why,) = ask("why", str(one))
        if why["verdict"] == "duplicate":
            is_right = name_keeper(why["keeper"]) == truth.dropped.get(one)
        else:
            is_right = one in truth.kept and (why["verdict"] == "restored") == (one in truth.restored)
        if not is_right:
            yield f"why {one}: {json.dumps(why)}"
        # After a promotion the source has the kept records only.
        if one not in truth.records:
            continue
        file.write_text(json.dumps(truth.records[one]) + "\n", "utf-8")
        (found,) = ask("find", str(file))
        # A reference record may be newer than the decision.
        expected = set(truth.references)
        if why["verdict"] == "unique":
            expected |= truth.kept if one in truth.arrived else {one}
        elif why["verdict"] == "duplicate":
            # Near duplicates may be nearer to a record that was kept later.
            expected |= truth.kept if why["reason"] == "near" else {truth.dropped[one]}
        if why["verdict"] in ("unique", "duplicate") and name_keeper(found["keeper"]) not in expected:
            yield f"find {one}: {json.dumps(found)}, but why: {json.dumps(why)}"
    for keeper in chance.sample(keepers, min(ASKED, len(keepers))):
        first, *rows = ask("group", str(keeper))
        shown = name_keeper(first["keeper"]), {row["id"] for row in rows}
        group = keeper, {one for one, other in truth.dropped.items() if other == keeper}
        if shown != group:
            yield f"group {keeper}: {shown}, not {group}"
