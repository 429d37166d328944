"""`export --clusters` writes a row for every record of a group, in each format, or leaves the old file."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import Int64, ObjectId
from pyarrow import parquet

from dedup_job.commands import record_lookup
from dedup_job.report import table_file
from scripts.bench.corpus import Mix, generate
from tests.support.console import Console
from tests.support.job import Job

NAMES = ["id", "keeper", "reason", "similarity"]


def id_of(number: int) -> Any:
    """Return one of several kinds of ids."""
    return (ObjectId(f"{number:024x}"), number, str(number), Int64(2**40 + number))[number % 4]


@pytest.fixture
def decided(job: Job) -> Job:
    job.set("source", fields=["data"])
    records = generate(400, seed=3, mix=Mix(duplicates=0.4, odd=0.05))
    job.source.insert_many([{**one, "_id": id_of(number)} for number, one in enumerate(records)])
    job.decide("backfill")
    return job


@pytest.fixture
def console(decided: Job, capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(capsys, decided.config_file())


def expected(job: Job, show: Callable[[Any], Any]) -> list[list[Any]]:
    """Return the rows of the ledger, grouped by keeper, with a row for each keeper."""
    dropped = list(job.ledger("dropped").find(sort=[("keeper", 1), ("_id", 1)]))
    assert len(dropped) > 50
    rows: list[list[Any]] = []
    for row in dropped:
        keeper = show(row["keeper"])
        if not rows or rows[-1][1] != keeper:
            rows.append([keeper, keeper, "keeper", 1.0])
        rows.append([show(row["_id"]), keeper, row["reason"], row["similarity"]])
    return rows


def as_text(raw_id: Any) -> str:
    return str(raw_id) if isinstance(raw_id, ObjectId) else json.dumps(raw_id)


def as_json(raw_id: Any) -> Any:
    return {"$oid": str(raw_id)} if isinstance(raw_id, ObjectId) else raw_id


def read(path: Path) -> Iterator[list[Any]]:
    """Return the names of the columns, and the rows."""
    if path.suffix == ".csv":
        names, *rows = csv.reader(path.read_text("utf-8").splitlines())
        yield names
        yield from ([*row[:3], float(row[3])] for row in rows)
    elif path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        yield list(lines[0])
        yield from (list(line.values()) for line in lines)
    else:
        table = parquet.read_table(path)
        yield table.column_names
        yield from (list(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_every_record_of_a_group_has_a_row_and_each_keeper_comes_first(
    decided: Job, console: Console, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    # Groups that do not end with a portion, and row groups that do not end with the file.
    monkeypatch.setattr(record_lookup, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(table_file, "ROWS_OF_A_GROUP", 50)
    path, before = decided.folder / f"groups{suffix}", decided.hash()

    done = console("export", "--clusters", str(path), "--json")

    assert done.code == 0, done.err
    names, *rows = read(path)
    assert names == NAMES
    assert rows == expected(decided, as_json if suffix == ".jsonl" else as_text)
    groups = {json.dumps(row[1]) for row in rows}
    assert (done.json["records"], done.json["groups"]) == (len(rows), len(groups))
    assert decided.hash() == before


def test_ids_and_rows_are_those_of_list(decided: Job, console: Console) -> None:
    path = decided.folder / "groups.csv"
    assert console("export", "--clusters", str(path)).code == 0
    listed = csv.DictReader(console("list", "--csv").out.splitlines())
    exported = csv.DictReader(path.read_text("utf-8").splitlines())
    rows = {tuple(row[name] for name in NAMES) for row in exported if row["reason"] != "keeper"}
    assert rows == {tuple(row[name] for name in NAMES) for row in listed}


def test_a_restored_record_is_in_no_group(decided: Job, console: Console) -> None:
    path = decided.folder / "groups.csv"
    row = decided.ledger("dropped").find_one()
    assert row is not None
    assert console("restore", as_text(row["_id"])).code == 0
    assert console("export", "--clusters", str(path)).code == 0
    assert as_text(row["_id"]) not in {one[0] for one in read(path)}


def test_a_failed_export_leaves_the_old_file_and_nothing_else(
    decided: Job, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = decided.folder / "groups.csv"
    path.write_text("the old file")
    before = sorted(decided.folder.iterdir())

    def fail(rows: object) -> None:
        raise OSError(28, "No space left on device")

    def open_on_a_full_disk(*given: Any) -> Callable[[object], None]:
        table_file._open_csv(*given)
        return fail

    monkeypatch.setitem(table_file.OPENERS, ".csv", open_on_a_full_disk)
    done = console("export", "--clusters", str(path))

    assert (done.code, "No space left" in done.err) == (74, True)
    assert path.read_text() == "the old file"
    assert sorted(decided.folder.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("groups.txt", "name a .csv, a .jsonl or a .parquet file"),
        ("groups", "name a .csv, a .jsonl or a .parquet file"),
        ("no/such/folder/groups.csv", "No such file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(console: Console, name: str, says: str) -> None:
    done = console("export", "--clusters", name)
    assert (done.code, says in done.err, len(done.err.splitlines())) == (64, True, 1)


def test_without_pyarrow_a_parquet_file_is_refused_with_the_name_of_the_extra(
    decided: Job, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_file, "find_spec", lambda name: None)
    done = console("export", "--clusters", str(decided.folder / "groups.parquet"))
    assert (done.code, "dedup-job[spark]" in done.err, len(done.err.splitlines())) == (64, True, 1)


def test_a_ledger_without_decisions_is_refused(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.source.insert_one({"_id": 1, "text": "x"})
    path = job.folder / "groups.csv"
    done = Console(capsys, job.config_file())("export", "--clusters", str(path))
    assert (done.code, "nothing was decided" in done.err) == (78, True)
    assert list(job.folder.glob("*groups*")) == []
