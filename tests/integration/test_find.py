"""`find` names the kept record that a text would be a duplicate of, and changes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bson.json_util import dumps
from bson.objectid import ObjectId

from dedup_job.commands import find as finding
from dedup_job.commands.record_lookup import read_ids
from dedup_job.errors import UsageError
from scripts.bench.corpus import Mix, generate
from scripts.bench.made_up import Collection, Forms
from tests.support.job import ROOT, Job
from tests.support.text_pairs import LONG, OTHER
from tests.support.waiting import HANG_SECONDS

NEAR = LONG.replace("海鸥", "白鸟")


def asked(job: Job, lines: Sequence[str], *options: str, code: int = 0) -> list[dict[str, Any]]:
    """The answers to lines, one for each."""
    path = job.folder / "lines"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    done = job.command("find", str(path), "--json", *options)
    assert done.returncode == code, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["line"] for answer in answers] == list(range(1, len(lines) + 1))
    return answers


@contextmanager
def kept_open(job: Job, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command, reading from a pipe."""
    command = [sys.executable, "-m", "dedup_job", "find", "-c", str(job.config_file()), *options]
    environment = {**os.environ, "DEDUP_SOURCE_URI": job.uri}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, cwd=ROOT) as process:
        yield process
        process.kill()


@pytest.fixture
def decided(job: Job) -> Job:
    """A job whose backfill dropped made-up records, exact and near ones."""
    job.source.insert_many(list(generate(700, mix=Mix(duplicates=0.5, odd=0.05))))
    job.set("source", fields=["data"])
    counts = job.decide("backfill").counts
    assert counts.exact > 50
    assert counts.near > 50
    return job


@pytest.fixture
def few(job: Job) -> Job:
    job.source.insert_many([{"_id": "long", "text": LONG}, {"_id": "other", "text": OTHER}])
    job.decide("backfill")
    return job


def test_the_text_of_every_dropped_record_names_its_keeper(decided: Job) -> None:
    rows = list(decided.ledger("dropped").find())
    texts = {one["_id"]: one for one in decided.source.find({"_id": {"$in": [row["_id"] for row in rows]}})}
    before = decided.hash()
    answers = asked(decided, [dumps(texts[row["_id"]]) for row in rows])
    assert decided.hash() == before
    assert answers == [
        {
            "line": number,
            "id": {"$oid": str(row["_id"])},
            "verdict": "duplicate",
            "reason": row["reason"],
            "keeper": {"$oid": str(row["keeper"])},
            "distance": row["distance"],
            "similarity": pytest.approx(row["similarity"], abs=1e-4),
        }
        for number, row in enumerate(rows, 1)
    ]


def test_the_text_of_every_kept_record_names_one_with_this_very_text(decided: Job) -> None:
    kept = list(decided.target.find())
    answers = asked(decided, [dumps(one) for one in kept])
    unchecked = {row["_id"] for row in decided.ledger("exceptions").find()}
    assert unchecked
    for one, answer in zip(kept, answers, strict=True):
        found = (answer["verdict"], answer["keeper"] and answer["keeper"]["$oid"])
        assert found == (("unchecked", None) if one["_id"] in unchecked else ("duplicate", str(one["_id"])))


def test_an_answer_is_what_a_run_then_decides(decided: Job) -> None:
    old = {one["_id"] for one in decided.source.find({}, {"_id": 1})}
    new = list(generate(1_000, mix=Mix(duplicates=0.5, odd=0.05)))[700:]
    answers = {one["id"]["$oid"]: one for one in asked(decided, [dumps(record) for record in new])}
    decided.source.insert_many(new)
    decided.decide("run")
    dropped = {row["_id"]: row for row in decided.ledger("dropped").find()}
    reasons = {row["_id"]: row["reason"] for row in decided.ledger("exceptions").find()}
    expected, told = [], []
    for record in new:
        row, answer = dropped.get(record["_id"]), answers[str(record["_id"])]
        if row and row["keeper"] not in old:
            continue  # for a new one, which was not there when the text was asked for
        told.append((answer["verdict"], answer["reason"], answer["keeper"] and answer["keeper"]["$oid"]))
        if row:
            expected.append(("duplicate", row["reason"], str(row["keeper"])))
        elif record["_id"] in reasons:
            expected.append(("unchecked", reasons[record["_id"]], None))
        else:
            expected.append(("unique", None, None))
    assert told == expected
    assert {verdict for verdict, _, _ in told} == {"duplicate", "unchecked", "unique"}


def test_texts_are_asked_for_by_the_line(few: Job) -> None:
    answers = asked(few, [f"<p>{LONG}</p>", NEAR, "", "another text altogether"], "--text")
    verdicts = [(one["verdict"], one["reason"], one["keeper"]) for one in answers]
    assert verdicts == [
        ("duplicate", "exact", "long"),
        ("duplicate", "near", "long"),
        ("unchecked", "empty", None),
        ("unique", None, None),
    ]


def test_a_text_is_the_whole_text_wherever_the_fields_are(job: Job) -> None:
    job.set("source", fields=["page.parts.0", "title"])
    job.source.insert_one({"_id": 1, "page": {"parts": [LONG]}})
    job.decide("backfill")
    assert [one["keeper"] for one in asked(job, [LONG, OTHER], "--text")] == [1, None]
    document = {"page": {"parts": [LONG[:20]]}, "title": LONG[20:]}
    assert [one["reason"] for one in asked(job, [json.dumps(document)])] == ["near"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"_id": 7, "text": "%(other)s", "text": "%(long)s"}', "field_twice"),
        ('{"_id": 7, "text": "%(long)s", "text": null}', "field_twice"),
        ('{"_id": 7, "text": {"$symbol": "%(other)s", "$symbol": "%(long)s"}}', "not_text:document"),
        ('{"_id": 7, "text": "%(long)s", "n": 1, "n": 2}', "exact"),
        ('{"_id": 7, "text": "%(long)s", "page": [{"text": "a", "text": "b"}]}', "exact"),
        ('{"_id": 7, "text": "%(long)s", "at": {"$date": {"$numberLong": "99999999999999999"}}}', "exact"),
    ],
)
def test_a_name_that_a_document_has_twice_is_taken_as_a_run_takes_it(
    few: Job, line: str, reason: str
) -> None:
    (answer,) = asked(few, [line % {"long": LONG, "other": OTHER}])
    assert (answer["reason"], answer["id"]) == (reason, 7)


def test_asking_for_a_text_does_not_enter_it(few: Job) -> None:
    new = "A third text, which is asked for three times and is a duplicate of nothing that was kept."
    assert [one["verdict"] for one in asked(few, [new, new, f"{new}!"], "--text")] == ["unique"] * 3


def test_a_malformed_line_has_an_answer_of_its_own(few: Job) -> None:
    documents = ['{"text": 12345678901234567890}', '{"_id": 7, "text": 5}', "", json.dumps({"text": LONG})]
    answers = asked(few, ["{", "[1]", *documents], code=64)
    assert [one.get("error", "") for one in answers] == [
        "not JSON: Expecting property name enclosed in double quotes at character 2",
        "not a JSON document: {...}",
        "not a document that MongoDB could hold (OverflowError)",
        "",
        "not JSON: Expecting value at character 1",
        "",
    ]
    assert (answers[3]["id"], answers[3]["reason"]) == (7, "not_text:number")
    assert answers[5]["keeper"] == "long"


def test_no_line_of_bytes_breaks_it_off(few: Job) -> None:
    path = few.folder / "lines"
    documents = [b'{"text": "\xff"}', b'{"text": "\\ud800"}', b'{"a\\u0000": 1}']
    path.write_bytes(b"\n".join([*documents, b"\0", b"[" * 100_000, LONG.encode()]))
    done = few.command("find", str(path))
    assert (done.returncode, done.stderr) == (64, "")
    assert [line.split("\t")[1].startswith("error: ") for line in done.stdout.splitlines()] == [True] * 6
    done = few.command("find", str(path), "--text")
    errors = [line.split("\t")[1] for line in done.stdout.splitlines()]
    assert errors == ["error: not UTF-8 at byte 11", "unique", "unique", "empty", "unique", "exact"]


@pytest.mark.long
def test_one_line_in_is_one_line_out_while_it_is_kept_open(few: Job) -> None:
    with kept_open(few, "--text") as process:
        assert process.stdin
        assert process.stdout
        for text, answer in ((LONG, "long"), (OTHER, "other"), ("nothing like it", "-"), (NEAR, "long")) * 3:
            process.stdin.write(f"{text}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().decode().split("\t")[0].strip('"') == answer
        process.stdin.close()
        assert (process.stdout.read(), process.wait(HANG_SECONDS)) == (b"", 0)


@pytest.mark.long
def test_a_last_line_without_its_end_is_answered(few: Job) -> None:
    with kept_open(few, "--text") as process:
        assert process.communicate(LONG.encode(), timeout=HANG_SECONDS)[0] == b'"long"\texact\t0\t1.0000\n'


@pytest.mark.long
def test_it_ends_at_a_signal_while_it_waits_for_lines(few: Job) -> None:
    with kept_open(few, "--text") as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{LONG}\n".encode())
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_SECONDS) == 143


@pytest.mark.long
def test_it_ends_when_nobody_reads_its_answers(few: Job) -> None:
    with kept_open(few, "--text") as process:
        assert process.stdin
        assert process.stdout
        process.stdout.close()
        process.stdin.write(f"{LONG}\n".encode())
        process.stdin.flush()
        assert process.wait(HANG_SECONDS) == 0


def test_a_keeper_that_is_gone_from_the_target_is_not_named(few: Job) -> None:
    few.target.delete_one({"_id": "long"})
    answers = asked(few, [LONG, NEAR, OTHER], "--text")
    assert [one["verdict"] for one in answers] == ["unique", "unique", "duplicate"]


def test_crowded_keys_answer_as_a_run_decides(job: Job) -> None:
    form = Collection(Forms(forms=1, words_each=60, fields=3, least=0.3, most=1.0), copies=0.2)
    texts = form.texts(np.arange(400))
    records = [{"_id": number, "text": text.decode()} for number, text in enumerate(texts)]
    job.source.insert_many(records[:390])
    job.decide("backfill")
    answers = asked(job, [json.dumps(one) for one in records[390:]])
    job.source.insert_many(records[390:])
    job.decide("run")
    dropped = {row["_id"]: row["keeper"] for row in job.ledger("dropped").find({"keeper": {"$lt": 390}})}
    assert [one["keeper"] for one in answers if one["id"] in dropped] == [
        dropped[one["id"]] for one in answers if one["id"] in dropped
    ]
    assert len([one for one in answers if one["id"] in dropped]) > 2


@pytest.mark.parametrize("kind", ["no ledger", "no file", "another recipe"])
def test_what_cannot_be_asked_is_one_line_and_a_code(job: Job, kind: str) -> None:
    job.source.insert_one({"_id": 1, "text": LONG})
    if kind == "another recipe":
        job.decide("backfill")
        job.set("match", min_similarity=0.7)
    (job.folder / "lines").write_text("")
    done = job.command("find", str(job.folder / ("nowhere" if kind == "no file" else "lines")))
    told = {"no ledger": "nothing was decided for", "no file": "No such file", "another recipe": "recipe"}
    assert done.returncode == (64 if kind == "no file" else 78)
    assert told[kind] in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_lines_are_taken_as_they_come() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\nth")
    lines = finding.read_lines(reader)
    assert next(lines) == [b"one", b"two"]
    os.write(writer, b"ree\n\n")
    assert next(lines) == [b"three", b""]
    os.write(writer, b"last")
    os.close(writer)
    assert list(lines) == [[b"last"]]
    os.close(reader)


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MAX_LINE_BYTES", 1_000)
    monkeypatch.setattr(finding, "READ_BYTES", 300)
    (tmp_path / "lines").write_bytes(b"a\n" + b"b" * 5_000 + b"\nc\n" + b"d" * 5_000)
    with (tmp_path / "lines").open("rb") as file:
        found = [line for lines in finding.read_lines(file.fileno()) for line in lines]
    assert found == [b"a", None, b"c", None]


def test_an_endless_line_is_reported_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MAX_LINE_BYTES", 1_000)
    monkeypatch.setattr(finding, "READ_BYTES", 300)
    with Path("/dev/zero").open("rb") as endless:
        assert next(finding.read_lines(endless.fileno())) == [None]
        with pytest.raises(UsageError, match="a line that is too long for an id"):
            read_ids(endless.fileno())


def test_a_record_that_is_better_than_a_kept_one_is_unique_and_names_it(job: Job) -> None:
    job.set("match", prefer=[{"field": "score", "order": "descending"}])
    job.source.insert_many(
        [
            {"_id": 1, "text": LONG, "score": 5},
            {"_id": 2, "text": NEAR, "score": 4},
            {"_id": 3, "text": OTHER},
        ]
    )
    job.decide("backfill")
    records: list[dict[str, Any]] = [
        {"_id": 9, "text": LONG, "score": 9},
        {"_id": 9, "text": NEAR, "score": 9},
        {"_id": 9, "text": LONG, "score": 5},
        {"_id": 0, "text": LONG, "score": 5},
        {"text": LONG},
        {"_id": 1, "text": LONG, "score": 5},
        {"_id": 9, "text": "完全不同的另外一段话，说的是另外一件事情。" * 3, "score": 9},
        {"_id": 9},
    ]

    answers = asked(job, [dumps(record) for record in records])

    assert [(answer["verdict"], answer["keeper"], answer.get("replaces")) for answer in answers] == [
        ("unique", None, 1),
        ("unique", None, 1),
        ("duplicate", 1, None),
        ("unique", None, 1),
        ("duplicate", 1, None),
        ("duplicate", 1, None),
        ("unique", None, None),
        ("unchecked", None, None),
    ]
    assert (answers[0]["distance"], answers[0]["similarity"]) == (0, 1.0)
    (job.folder / "line").write_text(dumps(records[0]) + "\n", "utf-8")
    text = job.command("find", str(job.folder / "line")).stdout
    assert text == "-\tbetter than 1\t0\t1.0000\n"
    job.source.insert_one(records[0])
    assert job.decide("run").as_json()["prefer"]["replaced"] == 1


def test_a_text_without_an_id_counts_as_inserted_now(job: Job) -> None:
    job.set("match", prefer=["newest"])
    old = ObjectId.from_datetime(datetime(2020, 1, 1, tzinfo=UTC))
    job.source.insert_one({"_id": old, "text": LONG})
    job.decide("backfill")

    (answer,) = asked(job, [LONG], "--text")

    assert (answer["verdict"], answer["replaces"]) == ("unique", {"$oid": str(old)})
