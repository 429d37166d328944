"""`evaluate` and `tune` on a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bson import Int64, ObjectId
from pymongo import MongoClient

from dedup_job.analysis.labelled_pairs import LabelledPair, read_pairs
from dedup_job.analysis.sample_trials import TunedSample
from dedup_job.commands.evaluate import evaluate
from dedup_job.commands.tune import tune
from dedup_job.errors import ConfigError
from scripts.bench.corpus import Mix, generate, samples
from scripts.dev.local_mongod import LocalMongod
from tests.support.job import ROOT, Job

MIX = Mix(length=250, duplicates=0.5, near=0.7)


def evaluated(job: Job, pairs: list[LabelledPair]) -> Any:
    with job.context() as context:
        return evaluate(context, pairs)


def tuned(job: Job, records: int = 5_000) -> TunedSample:
    with job.context() as context:
        return tune(context, records, 0.8, lambda _: None)


def planted(job: Job, count: int) -> list[tuple[str, str, int]]:
    """Insert a corpus; return the pairs of a copy and its original, and pairs of originals."""
    job.set("source", fields=["data"])
    made = list(samples(count, 5, MIX))
    job.source.insert_many([sample.record for sample in made])
    pairs = [(str(sample.of), str(sample.record["_id"]), 1) for sample in made if sample.of]
    originals = [sample.record["_id"] for sample in made if sample.kind == "original"]
    pairs += [(str(one), str(other), 0) for one, other in pairwise(originals)]
    return pairs


def pairs_file(job: Job, pairs: list[tuple[str, str, int]]) -> Path:
    path = job.folder / "pairs.tsv"
    path.write_text(
        "id1\tid2\tlabel\n" + "".join(f"{one}\t{other}\t{label}\n" for one, other, label in pairs)
    )
    return path


def test_each_pair_is_judged_as_a_run_judges_the_two_alone(job: Job, another_job: Callable[[], Job]) -> None:
    job.set("match", bands=1, shingle=5)  # coarse, so that some are missed
    lines = [f"{one},{other},{label}" for one, other, label in planted(job, 120)]

    judged = evaluated(job, read_pairs(lines, 0.8)).judged

    found = next(one for one in judged if one.found and one.distance)
    missed = next(one for one in judged if one.pair.same and not one.found)
    for one in (found, missed):
        alone = another_job()
        alone.source.delete_many({"_id": {"$nin": [ObjectId(one.pair.first), ObjectId(one.pair.second)]}})
        assert alone.decide("backfill").counts.near == one.found


def test_evaluate_prints_scores_with_intervals_and_changes_nothing(job: Job) -> None:
    pairs = planted(job, 150)
    path = pairs_file(job, pairs)
    before = job.hash()

    done = job.command("evaluate", "--labels", str(path), "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["pairs"] == len(pairs)
    assert told["hits"] + told["misses"] == sum(label for *_, label in pairs)
    assert told["false_alarms"] == 0
    assert 0.5 < told["recall"]["low"] < told["recall"]["value"] <= told["recall"]["high"] <= 1
    assert len(told["worst_misses"]) == min(10, told["misses"])
    assert told["settings"] == {
        "radius": 3, "bands": 9, "rows": 4, "band_radius": 18, "min_similarity": 0.8,
    }  # fmt: skip
    assert job.hash() == before


def test_ids_of_every_type_are_found_and_so_are_records_of_the_target(job: Job) -> None:
    text = "小明今天在学校的图书馆里认真地读完了一本很有意思的历史故事书，然后高兴地回家吃晚饭去了。"
    values = [7, Int64(8), 9.0, "ten", "11", ObjectId("0123456789abcdef01234567"), {"a": 1}]
    job.source.insert_many([{"_id": value, "text": text} for value in values])
    job.target.insert_one({"_id": "gone", "text": text})
    names = ["7", "8", "9", "ten", "11", "0123456789abcdef01234567", '{"a": 1}', "gone"]
    lines = [json.dumps({"id1": names[0], "id2": name, "label": 1}) for name in names[1:]]

    assert evaluated(job, read_pairs(lines, 0.8)).score.hits == len(names) - 1


def test_what_cannot_be_judged_is_not_found_and_says_why(job: Job) -> None:
    job.source.insert_many([{"_id": "a"}, {"_id": "b", "text": "一二三四五六七八九十" * 5}, {"_id": "c"}])
    judged = evaluated(job, read_pairs(["a,b,1", "a,c,1"], 0.8)).judged
    assert [(one.found, one.unchecked) for one in judged] == [(False, "missing"), (False, "missing")]


def test_a_pair_that_is_repeated_counts_once(job: Job) -> None:
    job.source.insert_many([{"_id": name, "text": "一二三四五六七八九十" * 5} for name in "abc"])
    judged = evaluated(job, read_pairs(["a,b,1", "b,a,same", "a,c,1", 'a,"""b""",1'], 0.8)).judged
    assert [(one.pair.line, one.found) for one in judged] == [(1, True), (3, True)]


def test_lines_of_pairs_end_at_line_feeds_alone(job: Job) -> None:
    job.source.insert_many(
        [{"_id": name, "text": "一二三四五六七八九十" * 5} for name in ("a\u2028b", "c\x85d")]
    )
    path = job.folder / "pairs.jsonl"
    path.write_bytes('{"id1": "a\u2028b", "id2": "c\x85d", "label": 1}\r\n'.encode())
    done = job.command("evaluate", "--labels", str(path), "--json")
    assert (done.returncode, json.loads(done.stdout)["hits"]) == (0, 1), done.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a\tnowhere\t1", "line 3: no record has the id 'nowhere'"),
        ("a\tb", "line 3: expected two ids and a label"),
        ("7\t7.0\t1", "line 3: names the same record twice"),
        ("a\tb\t1", "line 3: labels the pair of line 2 differently"),
        ('b\t"a"\t1', "line 3: labels the pair of line 2 differently"),
    ],
)
def test_a_pair_that_cannot_be_judged_is_named_by_its_line(job: Job, line: str, message: str) -> None:
    job.source.insert_many([{"_id": name, "text": "text"} for name in ("a", "b", 7)])
    path = job.folder / "pairs.tsv"
    path.write_text(f"id1\tid2\tlabel\na\tb\t0\n{line}\n")

    done = job.command("evaluate", "--labels", str(path))

    assert done.returncode == 64
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_pairs_file_that_cannot_be_read_is_a_usage_error(job: Job) -> None:
    (job.folder / "binary").write_bytes(b"\xff\xfe\x00")
    for name, message in (("absent.tsv", "No such file"), ("binary", "not a text file in UTF-8")):
        done = job.command("evaluate", "--labels", str(job.folder / name))
        assert done.returncode == 64
        assert message in done.stderr


def test_tune_prints_a_table_and_settings_that_work_and_changes_nothing(job: Job) -> None:
    job.set("source", fields=["data"])
    job.source.insert_many(list(generate(300, 5, MIX)))
    before = job.hash()

    done = job.command("tune", "--sample", "250")

    assert done.returncode == 0, done.stderr
    assert all(" progress mode=" in line for line in done.stderr.splitlines())
    assert f"tune: 300 records of {job.database.name}.pages, in 1 stretch: " in done.stdout
    assert job.hash() == before
    chosen = tomllib.loads(done.stdout[done.stdout.index("[match]") :].split("\n\na target")[0])
    job.tables.update(chosen)
    assert job.decide("backfill").counts.near > 20


def test_tune_says_what_the_present_settings_would_drop(job: Job) -> None:
    job.set("source", fields=["data"])
    job.source.insert_many(list(generate(300, 5, MIX)))

    table = tuned(job)

    report = job.decide("backfill").counts
    (present,) = [one for one in table.levels if one.min_similarity == table.present.min_similarity]
    assert present.dropped + table.sample.same_text == report.duplicate
    assert (table.sample.read, table.sample.unchecked) == (report.read, sum(report.unchecked.values()))


def test_tune_works_on_a_target_that_was_decided_and_on_settings_beyond_the_grid(job: Job) -> None:
    job.set("source", fields=["data"])
    job.source.insert_many(list(generate(80, 5, MIX)))
    job.decide("backfill")
    job.set("match", radius=2, bands=7, rows=2, min_similarity=0.75)

    told = json.loads(job.command("tune", "--json").stdout)

    present = {"radius": 2, "bands": 7, "rows": 2, "band_radius": 18, "min_similarity": 0.75}
    assert told["present"] == present
    assert {**present, "min_similarity": 0.8} in [row["settings"] for row in told["rows"]]
    assert {row["settings"]["radius"] for row in told["rows"]} == {2}
    assert 0.75 in [level["min_similarity"] for level in told["levels"]]


def test_tune_works_where_only_segments_are_keys_and_texts_are_not_compared(job: Job) -> None:
    job.set("source", fields=["data"])
    job.set("recipe", profile="classic")
    job.source.insert_many(list(generate(150, 5, MIX)))
    table = tuned(job)
    assert (table.present.bands, table.present.min_similarity) == (0, 0.0)
    assert table.best is not None
    assert table.best.setting.bands > 0
    assert "min_similarity = 0.8" in table.as_text()


def test_large_texts_end_the_sample_early(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.set("source", fields=["data"])
    job.set("limits", batch_records=20)
    job.source.insert_many(list(generate(200, 5, MIX)))
    monkeypatch.setattr("dedup_job.commands.tune.MOST_SHINGLES", 5_000)
    table = tuned(job)
    assert 20 <= table.sample.read < 200
    assert table.sample.read % 20 == 0


def test_a_source_without_texts_is_refused(job: Job) -> None:
    job.source.insert_many([{"_id": 1, "body": "text"}, {"_id": 2, "text": None}])
    with pytest.raises(ConfigError, match=r"missing, null.*fields"):
        tuned(job)
    job.source.delete_many({})
    with pytest.raises(ConfigError, match="no records"):
        tuned(job)


@pytest.mark.long
def test_both_work_for_a_user_who_may_only_read(tmp_path: Path) -> None:
    with LocalMongod(auth=True) as server, MongoClient[dict[str, Any]](server.uri) as root:
        made = list(samples(120, 5, MIX))
        root.src.pages.insert_many([sample.record for sample in made])
        root.admin.command(
            "createUser", "reader", pwd="secret",
            roles=[{"role": "read", "db": "src"}, {"role": "read", "db": "dst"}],
        )  # fmt: skip
        copy = next(sample for sample in made if sample.of)
        (tmp_path / "pairs.csv").write_text(f"{copy.of},{copy.record['_id']},same\n")
        (tmp_path / "job.toml").write_text(
            '[source]\ndatabase = "src"\ncollection = "pages"\nfields = ["data"]\n'
            '[target]\ndatabase = "dst"\ncollection = "unique"\n'
        )
        for arguments in (["tune"], ["evaluate", "--labels", str(tmp_path / "pairs.csv")]):
            done = subprocess.run(
                [sys.executable, "-m", "dedup_job", *arguments, "-c", str(tmp_path / "job.toml")],
                capture_output=True, text=True, check=False, cwd=ROOT,
                env={**os.environ, "DEDUP_SOURCE_URI": server.uri_as("reader", "secret")},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
