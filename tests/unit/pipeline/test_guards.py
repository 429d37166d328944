from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from bson import ObjectId, encode

from dedup_job.config import LimitSettings
from dedup_job.errors import GuardStop
from dedup_job.pipeline import guards
from dedup_job.pipeline.guards import (
    FIRST_RECORDS,
    DropGuard,
    FailureGuard,
    FirstRecordsGuard,
    Guards,
    InterruptedCounts,
    Warn,
    WarningList,
    check_vanished,
    stop_run,
)
from dedup_job.records import UNIQUE, Action, Batch, Fingerprints, KeeperMatch, Plan, Verdict
from tests.support.recipes import recipe_of


def batch(count: int, unchecked: int = 0, nbytes: int = 0) -> tuple[Batch, Fingerprints]:
    """Records with a title, so many of which have no text where it was looked for."""
    raws = [encode({"_id": n, "title": "secret", "of": {"body": "x" * nbytes}}) for n in range(count)]
    ids = [encode({"_id": n}) for n in range(count)]
    rows = [Fingerprints.unchecked("missing" if n < unchecked else "", 1, 1, 0, b"") for n in range(count)]
    return Batch(ids, raws), Fingerprints.join(rows)


class Engine:
    """Hands on what was fingerprinted before, and counts it."""

    def __init__(self, *done: tuple[Batch, Fingerprints]) -> None:
        self.done, self.asked = done, 0

    def fingerprint_batches(self) -> Iterator[tuple[Batch, Fingerprints]]:
        for one in self.done:
            self.asked += 1
            yield one


def guard(
    share: float = 0.95,
    warn: Warn = stop_run,
    judges_few: bool = False,
    note: Warn = stop_run,
    **match: Any,
) -> FirstRecordsGuard:
    return FirstRecordsGuard(recipe_of("of", match=match), share, warn, note, judges_few)


def held(engine: Engine, look: FirstRecordsGuard) -> Iterator[int]:
    """How many batches the engine had made when each was handed on."""
    for _ in look.watch(engine.fingerprint_batches()):
        yield engine.asked


def told(
    look_at: Sequence[tuple[Batch, Fingerprints]], share: float = 0.95, judges_few: bool = False
) -> list[str]:
    notes = WarningList()
    list(held(Engine(*look_at), guard(share, notes, judges_few)))
    return notes.messages


def test_nothing_is_handed_on_before_the_first_records_were_looked_at() -> None:
    engine = Engine(batch(400), batch(400), batch(400), batch(400))
    assert list(held(engine, guard())) == [3, 3, 3, 4]


def test_records_of_which_nearly_none_can_be_judged_stop_the_run_before_any_is_handed_on() -> None:
    engine = Engine(batch(500, 500), batch(500, 451), batch(500))
    with pytest.raises(GuardStop) as caught:
        next(held(engine, guard()))
    message = str(caught.value)
    assert message.startswith(
        "951 of the first 1,000 records cannot be judged (missing 951), more than [limits] "
        "max_unchecked_share = 0.95; of 100 records, text is in title 100, of.body 100; "
        "run again with --allow"
    )
    assert "secret" not in message
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("parts", [[(1300, 951)], [(951, 951), (349, 0)], [(500, 500), (800, 451)]])
def test_batches_make_no_difference_to_which_records_are_the_first(parts: list[tuple[int, int]]) -> None:
    # Each part begins with its records without text, so these are among the first 1,000 in each case.
    (message,) = told([batch(count, unchecked) for count, unchecked in parts])
    assert message.startswith("951 of the first 1,000 records")


@pytest.mark.parametrize("sizes", [(1300,), (1000, 300), (700, 600)])
def test_values_behind_the_first_1000_records_do_not_help_a_rule_whatever_the_batches(
    sizes: tuple[int, ...],
) -> None:
    raws = [encode({"_id": n if n < FIRST_RECORDS else ObjectId()}) for n in range(1300)]
    stops = WarningList()
    first = guard(warn=stops, prefer=["newest"])
    for size in sizes:
        first.add(raws[:size], [""] * len(raws[:size]))
        raws = raws[size:]
    assert stops.messages == [
        "[match] prefer: _id holds no ObjectId in the first 1,000 records (number 1,000)"
    ]


def test_the_limit_itself_is_allowed_and_1_allows_everything() -> None:
    assert told([batch(1000, 950)]) == []
    assert told([batch(1000, 1000)], share=1) == []
    assert len(told([batch(1000, 1)], share=0)) == 1


def test_of_a_few_records_a_run_says_nothing_and_a_dry_run_does() -> None:
    few = [batch(3, 3)]
    assert told(few) == []
    assert told(few, judges_few=True)[0].startswith("3 of the first 3 records")
    assert told([], judges_few=True) == []


def test_it_tells_once_and_hands_everything_on() -> None:
    notes = WarningList()
    engine = Engine(batch(1000, 1000), batch(1000, 1000))
    assert list(held(engine, guard(warn=notes))) == [1, 2]
    assert len(notes.messages) == 1


def test_a_look_goes_on_over_several_parts_of_the_source() -> None:
    look = guard()
    assert list(held(Engine(batch(600, 600)), look)) == [1]
    with pytest.raises(GuardStop):
        list(held(Engine(batch(600, 600)), look))


def test_a_finding_about_few_records_is_told_once_however_many_parts_the_source_has() -> None:
    notes = WarningList()
    first = guard(note=notes, prefer=["newest"], within=["site"])
    for n in range(3):
        raws = [encode({"_id": n, "of": "text", "site": site}) for site in ("a", 1)]
        first.add(raws, ["", ""])
        first.finish()
    assert notes.messages == [
        "[match] within: site has values of several types in the first records (text 1, number 1), and "
        "values of different types are never equal",
        "[match] prefer: _id holds no ObjectId in the first 2 records (number 2)",
    ]


def test_large_records_are_not_held_without_end_and_still_stop_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guards, "MAX_BUFFERED_BYTES", 100_000)
    engine = Engine(*(batch(100, 100, nbytes=300) for _ in range(11)))
    handed = []
    with pytest.raises(GuardStop):
        handed += list(held(engine, guard()))
    engine = Engine(*(batch(100, 0, nbytes=300) for _ in range(11)))
    assert list(held(engine, guard())) == [3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_records_without_any_text_name_the_fields_that_there_are() -> None:
    found, prints = batch(1000, 1000)
    raws = [encode({"_id": 0, "n": 3, "odd\x1b[0m": None})] * 1000
    (message,) = told([(Batch(found.ids, raws), prints)])
    assert message.endswith("no text is in their fields: n, 'odd\\x1b[0m'")


def raw_id(number: int) -> bytes:
    return encode({"_id": number})


def plan(*keepers: int | None, start: int = 0) -> Plan:
    """A plan in which each record is dropped for the keeper of that number, or kept."""
    verdicts = [
        UNIQUE if keeper is None else Verdict(Action.DUPLICATE, "near", KeeperMatch(raw_id(keeper), 1, 0.9))
        for keeper in keepers
    ]
    _, prints = batch(len(keepers))
    columns = (prints.bits, prints.has_fingerprint, prints.keys, prints.digests, prints.hashes)
    return Plan([raw_id(start + n) for n in range(len(keepers))], verdicts, *columns)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten records say enough."""
    monkeypatch.setattr(guards, "MIN_RECORDS_FOR_SHARE", 10)


@pytest.mark.usefixtures("soon")
def test_a_share_is_looked_at_from_so_many_records_on() -> None:
    notes = WarningList()
    drops = DropGuard(0.5, None, notes)
    drops.check(plan(*[None] + [0] * 8))
    assert notes.messages == []
    drops.check(plan(None, 0, 0, start=9))
    assert notes.messages == [
        "10 of 12 records would be dropped, more than [limits] max_drop_share = 0.5; "
        "duplicates of 0 would be 10, 11; to see why: dedup-job compare 0 10"
    ]


@pytest.mark.usefixtures("soon")
def test_keepers_that_better_records_replace_count_as_dropped() -> None:
    notes = WarningList()
    drops = DropGuard(0.5, None, notes)
    drops.check(plan(*[None] * 6))
    drops.check(replace(plan(*[None] * 6, start=6), displaced=[raw_id(n) for n in range(6)]))
    assert notes.messages == []
    drops.check(replace(plan(None, start=12), displaced=[raw_id(6)]))
    assert notes.messages == [
        "7 of 13 records would be dropped, more than [limits] max_drop_share = 0.5; "
        "better records would replace 6"
    ]


@pytest.mark.usefixtures("soon")
def test_the_share_itself_is_allowed_and_a_plan_that_drops_nothing_too() -> None:
    drops = DropGuard(0.5, None, stop_run)
    drops.check(plan(*[None, 0] * 5))
    late = DropGuard(0.5, None, stop_run, InterruptedCounts(100, 90))
    late.check(plan(None, None))
    with pytest.raises(GuardStop, match="91 of 103"):
        late.check(plan(0))


def test_a_group_is_counted_over_plans_and_over_runs_that_were_broken_off() -> None:
    notes = WarningList()
    drops = DropGuard(1, 8, notes, InterruptedCounts(groups={raw_id(0): 3}))
    drops.check(plan(0, 0, 0, 1, 1))
    drops.check(plan(0, 0, start=10))
    assert notes.messages == []
    drops.check(plan(0, 1, start=20))
    assert notes.messages == [
        "9 records would be dropped for one keeper, more than [limits] max_group = 8; "
        "duplicates of 0 would be 20; to see why: dedup-job compare 0 20"
    ]


def test_five_duplicates_are_named_as_a_command_line_takes_them() -> None:
    notes = WarningList()
    made = plan(*[7] * 9)
    ids = [encode({"_id": f"it's {n}"}) for n in range(9)]
    DropGuard(1, 1, notes).check(Plan(ids, *(getattr(made, name) for name in Plan.__slots__[1:])))
    named = """'"it'"'"'s {}"'"""
    assert f"duplicates of 7 would be {', '.join(named.format(n) for n in range(5))};" in notes.messages[0]


def test_a_plan_that_passes_a_limit_stops_the_run_and_plans_before_it_do_not() -> None:
    limits = LimitSettings(max_drop_share=1, max_group=2, max_failed_share=1)
    guards = Guards(limits, recipe_of("of"), stop_run, stop_run)
    guards.check(plan(None, 0, 0))
    with pytest.raises(GuardStop):
        guards.check(plan(0))


def failed(*reasons: str, start: int = 0) -> Plan:
    made = plan(*[None] * len(reasons), start=start)
    verdicts = [Verdict(Action.UNCHECKED, reason) if reason else UNIQUE for reason in reasons]
    return replace(made, verdicts=verdicts)


@pytest.mark.parametrize("reason", ["failed:KeyError", "poison"])
def test_more_than_one_failure_in_a_thousand_records_stops_the_run(reason: str) -> None:
    guard = FailureGuard(LimitSettings().max_failed_share, stop_run)
    guard.check(failed(*[reason] * 10))
    guard.check(failed(*[""] * 500, start=10))
    with pytest.raises(GuardStop) as caught:
        guard.check(failed(reason, start=510))
    assert str(caught.value).startswith(
        f"the job failed on 11 of 511 records ({reason} 11), more than [limits] max_failed_share = 0.001; "
    )
    assert caught.value.exit_code == 5


def test_failures_are_a_share_of_all_records_once_these_are_many() -> None:
    guard = FailureGuard(0.001, stop_run, InterruptedCounts(read=50_000, failed={"poison": 50}))
    guard.check(failed(*[""] * 999, "poison"))
    with pytest.raises(GuardStop, match="52 of 51,001 records"):
        guard.check(failed("failed:ValueError", start=1_000))


def test_what_is_wrong_with_a_record_is_no_failure_of_the_job() -> None:
    FailureGuard(0, stop_run).check(failed("missing", "undecodable", "too_long", "restored"))


def test_a_record_that_is_tried_again_counts_as_a_failure_once() -> None:
    guard = FailureGuard(0, stop_run)
    guard.check(failed("poison"), failed_before={raw_id(0)})
    with pytest.raises(GuardStop):
        guard.check(failed("poison", start=1), failed_before={raw_id(0)})


def test_each_limit_is_told_of_once() -> None:
    notes = WarningList()
    drops = DropGuard(1, 1, notes)
    for _ in range(3):
        drops.check(plan(0, 0))
    assert len(notes.messages) == 1


@pytest.mark.parametrize(
    ("vanished", "decided", "is_told"), [(500, 1_000, False), (501, 1_000, True), (999, 999, False)]
)
def test_more_than_the_allowed_share_of_vanished_records_is_told(
    vanished: int, decided: int, is_told: bool
) -> None:
    notes = WarningList()
    check_vanished(vanished, decided, 0.5, notes)
    assert len(notes.messages) == is_told
    assert all("501 of 1,000 decided records have vanished" in one for one in notes.messages)
