"""No password and no text of a record is in any output, log line or ledger."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote_plus

import pytest
from bson import encode
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect

from dedup_job import run_and_exit
from dedup_job.cli import commands
from dedup_job.mongo.target import Target
from dedup_job.pipeline import job as the_job
from dedup_job.records import Fingerprints
from scripts.dev.local_mongod import LocalMongod
from tests.support import inline_engine
from tests.support.faulty_runs import install
from tests.support.job import RAW, Job
from tests.support.recipes import PLAIN

CANARY = "canary-pässwörd/金丝雀"
TEXT = "金丝雀在矿井里歌唱，没有人听见 canary-text"
TRACES = ("canary", "金丝雀", quote_plus("金丝雀"), quote_plus("pässwörd"))

Run = Callable[..., tuple[int, str]]


@pytest.fixture(params=["text", "json"])
def run(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> Run:
    """Run a backfill here, as talkative as it can be; returns its exit code and all that it said."""
    install(monkeypatch)

    def run(uri: str | None = None) -> tuple[int, str]:
        if uri is not None:
            monkeypatch.setenv("DEDUP_SOURCE_URI", uri)
        options = ["-v", "--log", request.param, "-c", str(job.config_file())]
        monkeypatch.setattr(sys, "argv", ["dedup-job", "backfill", *options])
        code = run_and_exit._run()
        said = capsys.readouterr()
        return code, said.out + said.err + caplog.text

    return run


def is_clean(said: str, job: Job | None = None) -> bool:
    """Whether neither the output nor the ledger holds the password or the text."""
    ledger = b"".join(
        document.raw
        for name in (job.database.list_collection_names() if job else ())
        if job and ".dedup." in name
        for document in job.database[name].with_options(RAW).find()
    )
    return not any(trace in said or trace.encode() in ledger for trace in TRACES)


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("mongodb://user:{}@127.0.0.1:9/", 69),
        ("mongodb://user:{}@127.0.0.1:9/?replicaSet=canary", 69),
        ("mongodb://user:{}@db.example.org/", 78),
        ("mongodb+srv://user:{}@db.example.org/?tls=false", 78),
        ("mongodb://user:{}@127.0.0.1:canary/", 78),
        ("mongodb://user:{}@127.0.0.1:99999999/", 78),
        ("mongodb://user:{}@127.0.0.1/?authMechanism=canary", 78),
        ("mongodb://user:{}@127.0.0.1/?readPreference=canary", 78),
        ("mongodb://user:{}@", 78),
        ("mongo://user:{}@127.0.0.1/", 78),
        ("user:{}@127.0.0.1", 78),
        ("mongodb://user:canary@x@127.0.0.1/", 78),
        ("mongodb://user:canary%ZZ@127.0.0.1/", 78),
        ("mongodb://user:canary/?#@127.0.0.1/", 78),
    ],
)
def test_a_connection_string_that_does_not_work(job: Job, run: Run, uri: str, code: int) -> None:
    job.set("limits", connect_seconds=0.2, retry_seconds=0.2, allow_plaintext=False)
    ended, said = run(uri.format(quote_plus(CANARY)))
    assert ended == code
    assert said.count("dedup-job: ") + said.count('"level": "error"') == 1  # a line, or an object
    assert is_clean(said)


ARGUMENTS = {
    "why": ["1"],
    "group": ["1"],
    "compare": ["1", "2"],
    "undo": ["a-run"],
    "restore": ["1"],
    "sync": ["--yes"],
    "promote": ["--yes"],
    "export": ["--clusters", "groups.csv"],
    "evaluate": ["--labels", "pairs.tsv"],
}
# Without a terminal `init` looks at no server; `compile` takes no settings file.
CODES = {"init": (64,), "compile": (64,)}
FORMS = (
    ("mongodb://user:{}@db.example.org/", quote_plus),
    ("mongodb://user:{}@127.0.0.1:9/", quote_plus),
    ("mongodb://user:{}@127.0.0.1:9/", str),
    ("mongodb://{0}:{0}@127.0.0.1:9/?appName={0}", str),
    ("mongodb+srv://user:{}@db.example.org/?tls=false", str),
    ("{}", str),
)


@pytest.mark.parametrize("command", commands.commands)
def test_no_four_characters_of_a_password_are_in_what_a_command_says(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    job.set("limits", connect_seconds=0.02, retry_seconds=0.02)
    monkeypatch.chdir(job.folder)
    Path("pairs.tsv").write_text("1\t2\t1\n")
    drawn = Random(command)
    for form, code in FORMS:
        password = "".join(drawn.choices("aQ7xK9@:/?#[]%+&;=,$é中", k=drawn.randint(4, 20)))
        written = code(password)
        monkeypatch.setenv("DEDUP_SOURCE_URI", form.format(written))
        options = drawn.choice([[], ["--json"], ["--log", "json"], ["-v", "--json", "--log", "json"]])
        arguments = [command, *ARGUMENTS.get(command, []), *options, "-c", str(job.config_file())]
        monkeypatch.setattr(sys, "argv", ["dedup-job", *arguments])

        code_of_exit = run_and_exit._run()

        said = "".join(capsys.readouterr())
        assert (code_of_exit in CODES.get(command, (69, 78)), bool(said)) == (True, True)
        for secret in (password, written):
            assert not any(secret[at : at + 4] in said for at in range(len(secret) - 3))


def test_a_connection_string_on_the_command_line_is_not_repeated(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"mongodb://user:{CANARY}@127.0.0.1/"
    for arguments in (
        [uri],
        ["run", uri],
        ["run", f"--uri={uri}"],
        ["run", "--workers", uri],
        ["run", "-c", uri],
    ):
        monkeypatch.setattr(sys, "argv", ["dedup-job", *arguments])
        assert run_and_exit._run() in (64, 78)
        assert is_clean("".join(capsys.readouterr()))


def test_a_password_that_is_wrong(run: Run) -> None:
    with LocalMongod(auth=True) as server:
        ended, said = run(server.uri_as("root", CANARY))
    assert ended == 77
    assert "wrong user name or password" in said
    assert is_clean(said)


@pytest.mark.parametrize(
    ("section", "key"), [("source", "uri"), ("source", "uri_file"), ("target", "database"), ("limits", "uri")]
)
def test_a_connection_string_in_the_wrong_place(job: Job, run: Run, section: str, key: str) -> None:
    job.source.insert_one({"text": "x"})
    job.set(section, **{key: f"mongodb://user:{CANARY}@127.0.0.1/"})
    ended, said = run("") if key == "uri_file" else run()
    assert ended == 78
    assert is_clean(said)


def test_texts_that_the_target_refuses(job: Job, run: Run) -> None:
    unique = job.database.create_collection("unique", validator={"bad": {"$exists": False}})
    unique.create_index("text", unique=True)
    job.source.insert_one({"_id": 0, "text": "ours"})
    run()
    unique.insert_many([{"_id": 1, "text": "another"}, {"_id": 100, "text": TEXT}])
    job.source.insert_many(
        [
            {"_id": 1, "text": TEXT + "1"},
            {"_id": 2, "text": TEXT},
            {"_id": 3, "text": TEXT + "3" * 9, "bad": 1},
        ]
    )

    ended, said = run()

    assert ended == 3
    reasons = {row["reason"] for row in job.ledger("exceptions").find()}
    assert reasons == {"conflict", "unique_index", "validator"}
    assert is_clean(said, job)


def test_a_text_that_is_no_valid_bson_string(job: Job, run: Run) -> None:
    raw = encode({"_id": 1, "text": TEXT}).replace("歌".encode(), b"\xff\xfe\xff")
    job.source.with_options(RAW).insert_one(RawBSONDocument(raw))

    ended, said = run()

    assert ended == 0
    assert job.ledger("exceptions").distinct("reason") == ["invalid_utf8"]
    assert is_clean(said, job)


class Failing:
    """A fingerprinter that fails with the text in its message."""

    unchecked = staticmethod(PLAIN.unchecked)

    def __call__(self, raws: Sequence[bytes]) -> Fingerprints:
        raise ValueError(TEXT)


def test_code_that_fails_on_a_text(job: Job, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_engine, "_fingerprinter", lambda recipe: Failing())
    job.set("recipe", bits=64)
    job.source.insert_one({"text": TEXT})

    ended, said = run()

    assert ended == 0
    assert job.ledger("exceptions").distinct("reason") == ["failed:ValueError"]
    assert is_clean(said, job)


def test_a_bug_whose_message_holds_the_text(job: Job, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError(TEXT) from KeyError(TEXT)

    monkeypatch.setattr(the_job, "decide", fail)
    job.source.insert_one({"text": TEXT})

    ended, said = run()

    assert ended == 70
    assert "a bug: ValueError" in said
    assert is_clean(said, job)


def test_faults_that_are_waited_out_are_logged_by_name_alone(
    job: Job, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = iter([AutoReconnect(TEXT)])
    insert = Target._insert

    def failing(self: Target, *arguments: Any) -> Any:
        for fault in faults:
            raise fault
        return insert(self, *arguments)

    monkeypatch.setattr(Target, "_insert", failing)
    job.source.insert_one({"text": TEXT})

    ended, said = run()

    assert ended == 0
    line = next(line for line in said.splitlines() if "trying again" in line)
    assert "AutoReconnect" in line
    if line.startswith("{"):
        assert json.loads(line)["event"] == "trying again"
    assert is_clean(said, job)
