"""The line of scripts/nightly/crontab, run by a shell like that of cron."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from scripts.bench.corpus import generate
from scripts.dev.local_mongod import LocalMongod
from tests.support.job import ROOT
from tests.support.waiting import HANG_SECONDS

LINE = (ROOT / "scripts" / "nightly" / "crontab").read_text("utf-8").splitlines()[-1]
FOLDERS = (
    "/opt/dedup-job/.venv/bin",
    "/etc/dedup-job",
    "/var/log",
    "/var/lib/dedup-job",
    "/var/lib/prometheus/node-exporter",
)


@pytest.fixture(scope="module")
def shop() -> Iterator[LocalMongod]:
    with LocalMongod() as server:
        yield server


@pytest.fixture
def machine(tmp_path: Path, shop: LocalMongod) -> Path:
    """A machine on which the job is installed as the line has it, with the nightly settings."""
    for folder in FOLDERS:
        (tmp_path / folder.lstrip("/")).mkdir(parents=True)
    program = tmp_path / "opt/dedup-job/.venv/bin/dedup-job"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m dedup_job "$@"\n')
    program.chmod(0o755)
    settings = (ROOT / "config" / "nightly.toml").read_text("utf-8")
    for commented in ("uri_file", "metrics"):
        settings = settings.replace(f"# {commented}", commented)
    (tmp_path / "etc/dedup-job/shop.toml").write_text(here(settings, tmp_path), "utf-8")
    (tmp_path / "etc/dedup-job/source.uri").touch(0o600)
    (tmp_path / "etc/dedup-job/source.uri").write_text(shop.uri + "\n")
    return tmp_path


def here(text: str, machine: Path) -> str:
    for folder in FOLDERS:
        text = text.replace(folder, f"{machine}{folder}")
    return text


def cron(machine: Path) -> tuple[int, str]:
    """Do what cron does with the line; returns the code, and what it would mail."""
    command = LINE.split(maxsplit=5)[5]
    assert "%" not in command  # which is a new line to cron
    done = subprocess.run(
        ["/bin/sh", "-c", here(command, machine)],
        env={"HOME": str(machine), "LOGNAME": "dedup-job", "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"},
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def logged(machine: Path) -> list[dict[str, Any]]:
    """The lines of the log, each of which is an object with its time."""
    lines = [json.loads(line) for line in (machine / "var/log/dedup-job.log").read_text("utf-8").splitlines()]
    assert all(datetime.fromisoformat(line["ts"]).tzinfo for line in lines)
    return lines


@pytest.mark.long
def test_each_line_of_the_log_of_some_nights_is_a_dated_object(machine: Path, shop: LocalMongod) -> None:
    with MongoClient[dict[str, Any]](shop.uri) as client:
        client.shop.pages.insert_many(list(generate(60, seed=5)))
        assert cron(machine) == (0, "")
        client.shop.drop_collection("pages_unique")
        code, mailed = cron(machine)

    lines = logged(machine)
    first = next(line for line in lines if line["event"] == "done")
    assert (first["mode"], first["read"], first["exit_code"]) == ("run", 60, 0)
    assert (lines[-1]["level"], lines[-1]["exit_code"]) == ("error", 65)
    assert code == 0  # of tail: cron looks at what is mailed
    assert json.loads(mailed.splitlines()[-1]) == lines[-1]
    metrics = (machine / "var/lib/prometheus/node-exporter/dedup-job.prom").read_text("utf-8")
    about = 'target="shop.pages_unique"'
    assert f"dedup_job_exit_code{{{about}}} 65.0\n" in metrics
    assert f"dedup_job_undecided{{{about}}} 0.0\n" in metrics
    assert [path.suffix for path in (machine / "var/lib/dedup-job/reports").iterdir()] == [".json"]


@pytest.mark.long
def test_a_server_that_is_not_there_is_mailed(machine: Path) -> None:
    (machine / "etc/dedup-job/source.uri").write_text("mongodb://u:S3cretPass@127.0.0.1:9/")
    _, mailed = cron(machine)
    (line,) = logged(machine)
    assert line["exit_code"] == 69
    assert line["event"].startswith("the source server does not answer: 127.0.0.1:9 refuses the connection")
    assert "S3cret" not in mailed
