"""`list`, `group` and `why` show the decisions, and what `list` prints can be restored."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from click.testing import CliRunner

from dedup_job.cli import commands
from dedup_job.commands.restore import restore
from dedup_job.errors import DedupError, exit_code_of
from scripts.bench.corpus import Mix, generate
from tests.support.job import Job
from tests.support.text_pairs import LONG

NUMBERED = "In the year {} the town had four markets, two schools and a bridge over the river, it is said."
HOSTILE = "bell \x07, escape \x1b[31m, C1 \x9b31m, bidi \u202e001\u202c, line \u2028 end"


@pytest.fixture
def decided(job: Job) -> Job:
    """A job whose backfill dropped made-up records of two sites, exact and near ones."""
    records = list(generate(700, mix=Mix(duplicates=0.5, odd=0.05)))
    job.source.insert_many([{**one, "site": "ab"[number % 2]} for number, one in enumerate(records)])
    job.set("source", fields=["data"])
    counts = job.decide("backfill").counts
    assert counts.exact > 50
    assert counts.near > 50
    return job


@pytest.fixture
def few(job: Job) -> Job:
    """Texts that differ in numbers alone, in words, in nothing, and a record that no text can be had of."""
    texts = [NUMBERED.format(1900), NUMBERED.format(1901), NUMBERED.format(1900).replace("is", "was")]
    texts += [NUMBERED.format(1900), NUMBERED.format(1902).replace("town", "city")]
    job.source.insert_many([{"_id": f"id {number}", "text": text} for number, text in enumerate(texts)])
    job.source.insert_one({"_id": "none", "text": 5})
    job.set("match", min_similarity=0.6)
    assert job.decide("backfill").counts.duplicate == 4
    return job


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def called(job: Job, *arguments: str) -> Done:
    """What a command does, in this process."""
    given = [*arguments, "-c", str(job.config_file())]
    result = CliRunner().invoke(commands, given, standalone_mode=False)
    error = result.exception
    if error is not None and not isinstance(error, DedupError):
        raise error
    return Done(exit_code_of(error), "", f"dedup-job: {error}\n") if error else Done(0, result.stdout, "")


def listed(job: Job, *options: str) -> list[dict[str, Any]]:
    """The records that a command lists, and nothing is written meanwhile."""
    before = job.hash()
    done = called(job, "list", "--json", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert job.hash() == before
    return [json.loads(line) for line in done.stdout.splitlines()]


def opened(job: Job, keeper: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    done = called(job, "group", keeper, "--json")
    assert done.returncode == 0, done.stderr
    first, *members = map(json.loads, done.stdout.splitlines())
    return first, members


def ids(found: list[dict[str, Any]]) -> list[Any]:
    return [one["id"] for one in found]


def test_all_that_was_dropped_is_listed_as_the_ledger_has_it(decided: Job) -> None:
    rows = list(decided.ledger("dropped").find().sort("_id", 1))
    found = listed(decided)
    names = ("id", "keeper", "reason", "distance", "similarity", "run")
    assert [tuple(one[name] for name in names) for one in found] == [
        ({"$oid": str(row["_id"])}, {"$oid": str(row["keeper"])}, *(row[name] for name in names[2:]))
        for row in rows
    ]
    assert all(one["text"] and one["keeper_text"] for one in found)


def test_a_list_as_csv_has_the_rows_of_the_ledger_and_the_ids_of_the_other_form(few: Job) -> None:
    lines = called(few, "list", "--csv").stdout.splitlines()
    rows = list(csv.DictReader(lines))
    found = listed(few)
    assert len(rows) == len(found) > 0
    for row, one in zip(rows, found, strict=True):
        assert (json.loads(row["id"]), json.loads(row["keeper"])) == (one["id"], one["keeper"])
        assert (float(row["similarity"]), row["reason"]) == (one["similarity"], one["reason"])
        assert (row["verdict"], row["run"], row["at"]) == ("duplicate", one["run"], one["at"])
    assert [row["id"] for row in rows] == called(few, "list", "--ids").stdout.splitlines()
    unchecked = list(
        csv.DictReader(called(few, "list", "--csv", "--verdict", "unchecked").stdout.splitlines())
    )
    assert {row["keeper"] for row in unchecked} == {""}


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        (["--reason", "near"], {"reason": "near"}),
        (["--min-similarity", "0.9"], {"similarity": {"$gte": 0.9}}),
        (["--reason", "near", "--max-similarity", "0.9"], {"reason": "near", "similarity": {"$lte": 0.9}}),
    ],
)
def test_a_filter_takes_as_many_as_the_ledger_has(
    decided: Job, options: list[str], condition: dict[str, Any]
) -> None:
    wanted = {str(row["_id"]) for row in decided.ledger("dropped").find(condition)}
    assert wanted
    assert {one["id"]["$oid"] for one in listed(decided, *options)} == wanted


def test_a_run_is_listed_alone(decided: Job) -> None:
    new = list(generate(900, mix=Mix(duplicates=0.5, odd=0.05)))[700:]
    decided.source.insert_many(new)
    run = decided.decide("run").run
    found = listed(decided, "--run", run)
    assert found
    assert len(found) == decided.ledger("dropped").count_documents({"run": run})


def test_a_run_that_is_unknown_or_undone_is_refused_as_by_history(few: Job) -> None:
    few.source.insert_one({"_id": "restored", "text": NUMBERED.format(1900)})
    undone = few.decide("run").run
    assert called(few, "restore", "restored").returncode == 0
    assert called(few, "undo", undone, "--yes").returncode == 0
    for run, message in (("NOPE", "the ledger knows no run 'NOPE'"), (undone, f"run {undone} was undone by")):
        done = called(few, "list", "--run", run)
        assert (done.returncode, done.stderr) == (64, called(few, "history", run).stderr)
        assert message in done.stderr
    assert ids(listed(few, "--run", undone, "--verdict", "restored")) == ["restored"]


def test_records_are_filtered_by_what_the_source_has_in_other_fields(decided: Job) -> None:
    of_a = {one["_id"] for one in decided.source.find({"site": "a"}, {"_id": 1})}
    dropped = {row["_id"] for row in decided.ledger("dropped").find()}
    found = {ObjectId(one["id"]["$oid"]) for one in listed(decided, "--where", '{"site": "a"}')}
    assert found == of_a & dropped
    assert 0 < len(found) < len(dropped)


@pytest.mark.long
@pytest.mark.parametrize("order", ["similarity", "distance", "at", "keeper", "id"])
@pytest.mark.parametrize("options", [[], ["--reverse"]])
def test_records_are_listed_in_order(decided: Job, order: str, options: list[str]) -> None:
    found = listed(decided, "--sort", order, *options)
    values = [str(one[order]) if order in ("id", "keeper") else one[order] for one in found]
    assert values == sorted(values, reverse=bool(options))
    assert len(found) == decided.ledger("dropped").count_documents({})


def test_a_limit_is_kept_with_every_filter(decided: Job) -> None:
    every = listed(decided, "--sort", "similarity")
    assert listed(decided, "--sort", "similarity", "--limit", "7") == every[:7]
    of_a = listed(decided, "--where", '{"site": "a"}')
    assert listed(decided, "--where", '{"site": "a"}', "--limit", "7") == of_a[:7]
    assert ids(listed(decided, "--limit", "7")) == ids(listed(decided))[:7]


def test_what_was_unchecked_or_refused_is_listed_too(few: Job) -> None:
    (one,) = listed(few, "--verdict", "unchecked")
    assert (one["id"], one["reason"], one["text"]) == ("none", "not_text:number", "(not_text:number)")
    assert "keeper" not in one
    assert listed(few, "--verdict", "refused") == []
    assert called(few, "list", "--verdict", "unchecked").stdout.startswith(
        '"none": unchecked, not_text:number'
    )


def test_pairs_that_differ_in_numbers_alone_are_found(few: Job) -> None:
    assert ids(listed(few, "--numbers-only")) == ["id 1"]


def test_texts_are_shown_from_where_they_differ(few: Job) -> None:
    texts = {one["id"]: (one["text"], one["keeper_text"]) for one in listed(few)}
    assert texts["id 1"] == (NUMBERED.format(1901)[:80], NUMBERED.format(1900)[:80])
    assert texts["id 2"] == ("… the river, it was said.", "… the river, it is said.")
    done = called(few, "list", "--reason", "exact")
    told, text, keeper_text = done.stdout.splitlines()
    assert told.startswith('"id 3" for "id 0": exact, distance 0, similarity 1.0000, run ')
    assert (text[:28], keeper_text[:28]) == ("    - In the year 1900 the t", "    + In the year 1900 the t")


def test_a_record_that_is_gone_is_listed_without_its_text(few: Job) -> None:
    few.source.delete_one({"_id": "id 1"})
    few.target.delete_one({"_id": "id 0"})
    found = {one["id"]: one for one in listed(few)}
    assert found["id 1"]["text"] is None
    assert found["id 1"]["keeper_text"]  # the source has it
    keeper, members = opened(few, '"id 0"')
    assert not keeper["in_target"]
    assert {one["id"] for one in members if one["differences"] is None} == {"id 1"}


def test_every_group_has_the_records_that_its_keeper_stands_for(decided: Job) -> None:
    sizes = Counter(row["keeper"] for row in decided.ledger("dropped").find())
    keeper, size = sizes.most_common(1)[0]
    told, members = opened(decided, str(keeper))
    assert (told["keeper"], told["duplicates"], told["in_target"]) == ({"$oid": str(keeper)}, size, True)
    rows = {str(row["_id"]): row for row in decided.ledger("dropped").find({"keeper": keeper})}
    assert {one["id"]["$oid"] for one in members} == rows.keys()
    similarities = [one["similarity"] for one in members]
    assert similarities == sorted(similarities)
    assert all(bool(one["differences"]) == (one["reason"] == "near") for one in members)


def test_a_group_shows_what_differs(few: Job) -> None:
    members = {one["id"]: one["differences"] for one in opened(few, "id 0")[1]}
    assert members["id 3"] == []
    assert {"keeper": "1900", "duplicate": "1901"} in members["id 1"]
    assert {"keeper": "is", "duplicate": "was"} in members["id 2"]
    lines = called(few, "group", "id 0").stdout
    assert lines.startswith('"id 0" is the keeper of 4 more records\n    In the year 1900')
    assert "the year [-1900-]{+1901+} the town" in lines
    assert "(the same text)" in lines


def test_a_keeper_of_a_number_is_opened_whatever_type_it_is_given_in(job: Job) -> None:
    job.source.insert_many([{"_id": 7.0, "text": LONG}, {"_id": 8, "text": LONG}])
    job.decide("backfill")
    assert ids(opened(job, "7")[1]) == [8]
    assert ids(opened(job, "7.0")[1]) == [8]


def test_a_record_that_stands_for_nothing_and_one_that_was_dropped_say_so(few: Job) -> None:
    assert opened(few, "none") == (
        {"keeper": "none", "duplicates": 0, "in_target": True, "text": "(not_text:number)"}, [],
    )  # fmt: skip
    assert called(few, "group", "none").stdout.startswith('"none" is the keeper of no other record\n')
    assert opened(few, "id 1") == opened(few, "id 0"), "a dropped record is in its keeper's group"
    done = called(few, "group", "nobody")
    assert (done.returncode, len(done.stderr.splitlines())) == (64, 1)


def test_the_keepers_of_dropped_records_are_indexed_and_a_group_is_opened_without_it(few: Job) -> None:
    assert "keeper_1" in few.ledger("dropped").index_information()
    few.ledger("dropped").drop_index("keeper_1")
    assert len(opened(few, "id 0")[1]) == 4
    few.decide("run")
    assert "keeper_1" in few.ledger("dropped").index_information()


def test_another_index_of_that_name_ends_no_run_and_is_warned_of(
    few: Job, caplog: pytest.LogCaptureFixture
) -> None:
    few.ledger("dropped").drop_index("keeper_1")
    few.ledger("dropped").create_index("at", name="keeper_1")
    report = few.decide("run")
    assert report.exit_code == 0
    assert [one.message.split(";")[0] for one in caplog.records if one.levelname == "WARNING"] == [
        "the ledger: there is another index of this name"
    ]
    assert len(opened(few, "id 0")[1]) == 4


def test_what_is_listed_is_put_back_in_one_line(decided: Job) -> None:
    done = called(decided, "list", "--max-similarity", "0.9", "--ids")
    wanted = done.stdout.splitlines()
    assert len(wanted) == decided.ledger("dropped").count_documents({"similarity": {"$lte": 0.9}}) > 2
    (decided.folder / "ids").write_text(f"\n{done.stdout}\n", "utf-8")
    before = decided.target.count_documents({})
    restored = restored_from(decided, decided.folder / "ids")
    assert restored.returncode == 0, restored.stderr
    assert [str(one["$oid"]) for one in json.loads(restored.stdout)["restored"]] == wanted
    assert decided.target.count_documents({}) == before + len(wanted)
    assert listed(decided, "--max-similarity", "0.9") == []


def test_ids_of_every_kind_go_from_a_list_into_a_restore(job: Job) -> None:
    kinds = [1, "2", "three\n\x1b[31m\u202e", ObjectId(), {"a": 5, "b": "\x9b"}, 6.5, "-", "--why"]
    job.source.insert_one({"_id": 0, "text": LONG})
    job.source.insert_many([{"_id": one, "text": LONG} for one in kinds])
    job.decide("backfill")
    done = called(job, "list", "--ids")
    assert len(done.stdout.splitlines()) == job.ledger("dropped").count_documents({}) == len(kinds)
    (job.folder / "ids").write_text(done.stdout, "utf-8")
    assert restored_from(job, job.folder / "ids").returncode == 0
    assert job.target.count_documents({}) == len(kinds) + 1


@pytest.mark.long
@pytest.mark.parametrize("given", [b"\xff\n", b"not dropped\n"])
def test_ids_that_cannot_be_restored_are_one_line_and_nothing_is_changed(few: Job, given: bytes) -> None:
    (few.folder / "ids").write_bytes(b'"id 1"\n' + given)
    before = few.target.count_documents({})
    done = restored_from(few, few.folder / "ids")
    *progress, _ = done.stderr.splitlines()
    assert done.returncode == 64
    assert all(" progress mode=restore " in line for line in progress), done.stderr
    assert few.target.count_documents({}) == before


def restored_from(job: Job, path: Path) -> subprocess.CompletedProcess[str]:
    program = (
        "import subprocess, sys; sys.exit(subprocess.run(sys.argv[2:], stdin=open(sys.argv[1])).returncode)"
    )
    return job.command(
        "restore", "-", "--json", program=("-c", program, str(path), sys.executable, "-m", "dedup_job")
    )


@pytest.mark.parametrize(
    "command", [["list"], ["list", "--json"], ["list", "--ids"], ["group"], ["group", "--json"]]
)
def test_no_text_and_no_id_reaches_a_terminal_as_a_control_character(job: Job, command: list[str]) -> None:
    keeper = f"a {HOSTILE}"
    job.source.insert_many(
        [
            {"_id": keeper, "text": f"{LONG} {HOSTILE}"},
            {"_id": f"b {HOSTILE}", "text": f"{LONG} {HOSTILE} too"},
        ]
    )
    job.decide("backfill")
    assert job.ledger("dropped").count_documents({}) == 1
    name = json.dumps(keeper)
    done = called(job, *command, *([name] if command[0] == "group" else []))
    assert done.returncode == 0, done.stderr
    assert [one for line in done.stdout.split("\n") for one in line if not one.isprintable()] == []
    if "--json" in command:
        assert [json.loads(line) for line in done.stdout.splitlines()][-1]["id"] == f"b {HOSTILE}"


@pytest.mark.long
@pytest.mark.parametrize("kind", [".csv", ".jsonl"])
def test_a_report_writes_all_pairs_that_a_run_then_drops(job: Job, kind: str) -> None:
    job.source.insert_many(list(generate(400, mix=Mix(duplicates=0.5))))
    job.set("source", fields=["data"])
    path = job.folder / f"pairs{kind}"
    before = job.hash()
    done = called(job, "report", "--save-pairs", str(path))
    assert done.returncode == 0, done.stderr
    assert job.hash() == before
    run = job.decide("backfill").run
    rows = list(job.ledger("dropped").find())
    assert f"{len(rows):,} pairs in {path}" in done.stdout
    text = path.read_text("utf-8")
    assert called(job, "history", run, "--save-pairs", str(path)).returncode == 0
    assert path.read_text("utf-8") == text
    if kind == ".csv":
        pairs = list(csv.DictReader(io.StringIO(text)))
        expected = [(str(row["keeper"]), str(row["_id"]), str(row["similarity"])) for row in rows]
    else:
        pairs = [json.loads(line) for line in text.splitlines()]
        expected = [
            ({"$oid": str(row["keeper"])}, {"$oid": str(row["_id"])}, row["similarity"]) for row in rows
        ]
    found = [(one["keeper"], one["duplicate"], one["similarity"]) for one in pairs]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert Counter(one["reason"] for one in pairs) == Counter(row["reason"] for row in rows)


def test_pairs_of_a_report_can_be_evaluated(job: Job) -> None:
    job.source.insert_many(list(generate(200, mix=Mix(duplicates=0.5))))
    job.set("source", fields=["data"])
    path = str(job.folder / "pairs.csv")
    assert called(job, "report", "--save-pairs", path).returncode == 0
    done = called(job, "evaluate", "--labels", path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recall"]["value"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["list", "--where", "[1]"], 64, "--where: expected a filter"),
        (["list", "--ids", "--json"], 64, "--ids, --csv and --json are three forms of output"),
        (["list", "--ids", "--csv"], 64, "--ids, --csv and --json are three forms of output"),
        (["report", "--save-pairs", "pairs.txt"], 64, ".csv, a .jsonl or a .parquet"),
        (["report", "--save-pairs", "no/such/folder/pairs.csv"], 64, "No such file"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_a_code(
    job: Job, arguments: list[str], code: int, told: str
) -> None:
    job.source.insert_one({"_id": 1, "text": LONG})
    done = called(job, *arguments)
    assert done.returncode == code
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [
        "list", "group 1", "history some-run", "changes", "verify", "sync --yes", "restore 1",
        "undo some-run", "undo some-run --dry-run", "mark --yes", "mark --dry-run", "mark --clear --yes",
        "sweep --archive away --yes", "promote --yes",
    ],
)  # fmt: skip
def test_every_command_says_alike_that_there_is_no_ledger(job: Job, command: str) -> None:
    job.source.insert_one({"_id": 1, "text": LONG})
    done = called(job, *command.split())
    name = f"{job.database.name}.unique"
    told = f"[target]: nothing was decided for {name}; run backfill when the source has records"
    assert (done.returncode, done.stderr) == (78, f"dedup-job: {told}\n")


def test_a_condition_that_the_server_does_not_take_is_told_by_its_name_alone(few: Job) -> None:
    done = called(few, "list", "--where", '{"text": {"$nothing": "secret"}}')
    assert (done.returncode, done.stderr) == (
        64,
        "dedup-job: the server refuses this condition (BadValue)\n",
    )


def test_a_restored_record_is_listed_no_more(few: Job) -> None:
    with few.context() as context:
        restore(context, ["id 1"], "")
    assert "id 1" not in ids(listed(few))
    assert opened(few, "id 0")[0]["duplicates"] == 3


def test_restored_records_are_listed_with_the_reason_for_which_they_were_dropped(few: Job) -> None:
    before = {json.dumps(row["id"]): row for row in listed(few)}
    given = list(before)
    with few.context() as context:
        restore(context, given, "")
    found = listed(few, "--verdict", "restored")
    assert {json.dumps(row["id"]): {**row, "verdict": "duplicate"} for row in found} == before
    assert {row["verdict"] for row in found} == {"restored"}

    first = found[0]
    assert ": restored, " in called(few, "list", "--verdict", "restored").stdout
    rows = called(few, "list", "--verdict", "restored", "--csv").stdout.splitlines()[1:]
    assert len(rows) == len(found)
    only = listed(few, "--verdict", "restored", "--reason", first["reason"], "--sort", "similarity")
    assert [row["similarity"] for row in only] == sorted(
        row["similarity"] for row in found if row["reason"] == first["reason"]
    )


def test_restored_records_are_carried_to_a_new_target(few: Job) -> None:
    with few.context() as context:
        restore(context, ["id 1", "id 2"], "")
    names = called(few, "list", "--verdict", "restored", "--ids").stdout
    (few.folder / "ids").write_text(names, "utf-8")
    few.set("target", collection="unique_new")
    few.decide("backfill")
    done = restored_from(few, few.folder / "ids")
    assert done.returncode == 0, done.stderr
    assert few.database["unique_new"].count_documents({"_id": {"$in": ["id 1", "id 2"]}}) == 2


def test_a_restored_record_that_has_left_the_source_is_not_carried_to_a_new_target(few: Job) -> None:
    with few.context() as context:
        restore(context, ["id 1", "id 2"], "")
    few.source.delete_one({"_id": "id 1"})
    assert few.command("sync", "--yes").returncode == 0

    assert ids(listed(few, "--verdict", "restored")) == ["id 2"]
    assert ids(listed(few, "--verdict", "restored", "--limit", "1")) == ["id 2"]
    (few.folder / "ids").write_text(called(few, "list", "--verdict", "restored", "--ids").stdout, "utf-8")
    few.set("target", collection="unique_new")
    few.decide("backfill")
    assert restored_from(few, few.folder / "ids").returncode == 0


def test_a_restored_record_that_left_the_source_stays_unlisted_after_an_undo_of_the_sync(few: Job) -> None:
    assert called(few, "restore", "id 1", "id 2").returncode == 0
    few.source.delete_one({"_id": "id 1"})
    synced = json.loads(few.command("sync", "--yes", "--json").stdout)
    assert few.command("undo", synced["updated"]["run"], "--yes").returncode == 0

    assert ids(listed(few, "--verdict", "restored")) == ["id 2"]


def test_a_restored_record_that_was_decided_again_has_one_verdict_everywhere(few: Job) -> None:
    assert called(few, "restore", "id 3").returncode == 0
    few.source.update_one({"_id": "id 0"}, {"$set": {"text": "Another text, which has nothing in common."}})
    assert few.command("sync", "--yes").returncode == 0

    why = json.loads(called(few, "why", "id 3", "--json").stdout)
    status = json.loads(called(few, "status", "--json").stdout)
    assert (why["verdict"], why["reason"]) == ("unchecked", "restored")
    assert ids(listed(few, "--verdict", "unchecked", "--reason", "restored")) == ["id 3"]
    assert listed(few, "--verdict", "restored") == []
    assert (status["restored"], status["unchecked"]["restored"]) == (0, 1)


def test_why_knows_a_duplicate_whose_row_was_deleted_from_the_ledger(few: Job) -> None:
    row = few.ledger("dropped").find_one_and_delete({"_id": "id 1"})
    assert row is not None

    done = called(few, "why", "id 1")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('"id 1": duplicate')
    assert str(row["keeper"]) in done.stdout
    answer = json.loads(called(few, "why", "id 1", "--json").stdout)
    assert (answer["keeper"], answer["reason"]) == (row["keeper"], row["reason"])
