"""Many copies of a text that the target refuses: each costs one insertion, none a plan."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from pymongo import monitoring

from tests.support.job import Job
from tests.support.kill_in_process import Died, Mortal, commands_of, killed, mortal
from tests.support.quiet_listener import QuietListener
from tests.support.strict_targets import refused
from tests.support.sync_cases import up_to_date
from tests.support.undo_cases import OTHERS

COPIES = 40
LONG = "".join(OTHERS[1:7])


class Sent(QuietListener):
    """Counts the commands by what they do to which collection, and the records that reach the target."""

    def __init__(self) -> None:
        self.commands: Counter[tuple[str, str]] = Counter()
        self.inserted: list[Any] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        collection = event.command.get(event.command_name)
        self.commands[event.command_name, str(collection).removeprefix("unique.dedup.")] += 1
        if (event.command_name, collection) == ("insert", "unique"):
            self.inserted += [document["_id"] for document in event.command["documents"]]


def fill(job: Job, copies: str = "exact", taken: int | None = None) -> None:
    """Put one text into the source, and then copies of another; the target takes just one of them, if any.

    copies  exact ones, near ones, or "both": several of each near text
    """
    job.source.insert_one({"_id": 0, "text": OTHERS[0], "place": "taken", "is_right": True})
    for n in range(1, COPIES + 1):
        number = {"exact": 0, "near": n, "both": n % 4}[copies]
        record = {"_id": n, "text": f"{LONG} {number}", "place": "taken"}
        job.source.insert_one(record | ({"place": n, "is_right": True} if n == taken else {}))


def make_strict(job: Job, refuses: str) -> None:
    if refuses == "validator":
        job.database.create_collection("unique", validator={"is_right": True})
    else:
        job.target.create_index("place", unique=True)


def sent_by(job: Job, mode: str = "backfill") -> Sent:
    sent = Sent()
    with mortal(sent):  # type: ignore[arg-type]
        job.decide(mode)
    return sent


@pytest.mark.parametrize("refuses", ["validator", "unique_index"])
@pytest.mark.parametrize(
    ("copies", "taken", "rounds"),
    [("exact", None, 40), ("exact", 30, 31), ("near", None, 2), ("both", None, 11)],
)
def test_a_refused_copy_costs_one_insertion(
    job: Job, refuses: str, copies: str, taken: int | None, rounds: int
) -> None:
    fill(job, copies, taken)
    make_strict(job, refuses)

    sent = sent_by(job)

    tried = list(range(1, (taken or COPIES) + 1))
    # None is sent again but the one that is taken, and none behind that one.
    assert sorted(sent.inserted) == sorted([0, *tried, *([taken] if taken else [])])
    assert sent.commands["insert", "unique"] == rounds
    assert sent.commands["update", "plans"] == 3
    assert refused(job) == dict.fromkeys([n for n in tried if n != taken], refuses)
    assert [record["_id"] for record in job.target.find().sort("_id", 1)] == ([0, taken] if taken else [0])
    assert job.ledger("dropped").count_documents({"keeper": taken}) == (COPIES - taken if taken else 0)
    assert job.differences() == {}


def test_what_was_refused_is_tried_again_by_an_apply_at_the_same_cost(job: Job) -> None:
    fill(job)
    make_strict(job, "validator")
    job.decide("backfill")
    sent = Sent()
    with mortal(sent):  # type: ignore[arg-type]
        up_to_date(job)

    assert max(Counter(sent.inserted).values()) <= 2  # once more at its end
    assert sent.commands["update", "plans"] < 10
    assert len(refused(job)) == COPIES


def test_a_run_that_is_killed_while_it_tries_copies_is_finished_as_if_it_had_not_been(
    job: Job, another_job: Any
) -> None:
    fill(job, "both", taken=11)
    make_strict(job, "validator")
    commands = commands_of(partial(job.decide, "backfill"))
    undisturbed = job.outcome()

    for number in range(commands // 3, commands, 4):
        other = another_job()  # with the same source
        make_strict(other, "validator")
        killed(partial(other.decide, "backfill"), number)
        other.decide("backfill")
        assert other.outcome() == undisturbed, f"killed after command {number} of {commands}"


def test_what_a_killed_run_had_tried_is_kept_though_the_target_takes_an_earlier_copy_by_then(
    job: Job,
) -> None:
    fill(job, taken=11)
    make_strict(job, "validator")

    def takes_11(_: int, event: monitoring.CommandStartedEvent) -> bool:
        is_insert = (event.command_name, event.command.get("insert")) == ("insert", "unique")
        return is_insert and event.command["documents"][0]["_id"] == 11

    with mortal(Mortal(takes_11)), suppress(Died):
        job.decide("backfill")
    assert job.target.count_documents({"_id": 11}) == 1
    job.database.command("collMod", "unique", validator={})
    job.decide("backfill")

    assert [record["_id"] for record in job.target.find().sort("_id", 1)] == [0, 2, 11]
    assert refused(job) == {1: "validator"}
    assert job.differences() == {}
