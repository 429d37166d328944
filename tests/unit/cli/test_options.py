from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dedup_job.cli import commands
from dedup_job.errors import UsageError
from tests.support.waiting import HANG_SECONDS, becomes


def test_a_command_that_fails_early_leaves_no_process_behind(tmp_path: Path) -> None:
    """The process for its workers is still loading then."""
    file = tmp_path / "settings.toml"
    file.write_text(
        '[source]\ndatabase = "wiki"\ncollection = "pages"\nfields = ["body"]\n'
        '[target]\ndatabase = "wiki"\ncollection = "unique"\n',
        "utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "dedup_job", "backfill", "-c", str(file)],
        env={name: value for name, value in os.environ.items() if not name.startswith("DEDUP_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    printed, said = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, printed) == (78, b"")
    assert b" dedup-job: set DEDUP_SOURCE_URI to the connection string" in said
    assert said.count(b"\n") == 1
    assert becomes(lambda: not of_session(process.pid)), of_session(process.pid)


@pytest.mark.parametrize(
    "arguments",
    [
        ("tune", "--at", "nan"),
        ("evaluate", "--at", "nan", "labels.csv"),
        ("list", "--min-similarity", "nan"),
        ("list", "--max-similarity", "nan"),
        ("run", "--max-docs-per-second", "nan"),
        ("report", "--max-mb-per-second", "nan"),
    ],
)
def test_nan_is_no_number_for_an_option(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(commands, arguments)

    assert done.exit_code == 2
    assert "'nan' is not a number" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--runs"),
        ("list", "--limit"),
        ("report", "--limit"),
        ("fit-idf", "--limit"),
        ("fit-idf", "--min-df"),
        ("verify", "--sample"),
    ],
)
def test_a_number_that_mongodb_cannot_take_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(commands, (*arguments, str(1 << 63)))

    assert done.exit_code == 2
    assert f"{1 << 63} is not in the range 1<=x<=1000000000" in done.output


def of_session(number: int) -> list[str]:
    """Return the processes of a session that have not ended."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = entry.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if session == str(number) and state != "Z":
            found.append(entry.parent.name)
    return found


SMALLEST = """[source]
database = "d"
collection = "s"
fields = ["text"]
[target]
database = "d"
collection = "t"
[report]
metrics = "out.csv"
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("report --html out.html --save-pairs out.html", "--save-pairs out.html: this is the file of --html"),
        ("history some --save-pairs out.csv", "--save-pairs out.csv: this is the file of [report] metrics"),
        ("fit-idf --output dedup-job.toml", "--output dedup-job.toml: this is the file of -c"),
        ("changes --ids ./dedup-job.toml", "--ids dedup-job.toml: this is the file of -c"),
        ("export --clusters link", "--clusters link: this is the file of -c"),
        ("verify --state dedup-job.toml", "--state dedup-job.toml: this is the file of -c"),
        (
            "status --set report.metrics='\"dedup-job.toml\"'",
            "[report] metrics {}/dedup-job.toml: this is the file of -c",
        ),
    ],
)
def test_no_output_is_written_over_another_or_over_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dedup-job.toml").write_text(SMALLEST, "utf-8")
    Path("link").symlink_to("dedup-job.toml")
    done = CliRunner().invoke(commands, shlex.split(arguments))
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == message.format(tmp_path) + "; name another one"


def test_a_device_can_take_several_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dedup-job.toml").write_text(SMALLEST, "utf-8")
    done = CliRunner().invoke(commands, ["report", "--html", "/dev/null", "--save-pairs", "/dev/null"])
    assert "/dev/null: name a .csv" in str(done.exception)


def test_the_settings_file_is_in_the_working_directory_or_where_a_variable_says(tmp_path: Path) -> None:
    (tmp_path / "dedup-job.toml").write_text("[wrong]\n", "utf-8")
    (tmp_path / "other.toml").write_text("[other]\n", "utf-8")

    def status(**variables: str) -> str:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
        command = [sys.executable, "-m", "dedup_job", "status"]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )
        assert done.returncode == 78
        return done.stderr

    assert "dedup-job.toml: [wrong]: unknown key" in status()
    assert "other.toml: [other]: unknown key" in status(DEDUP_CONFIG="other.toml")
