"""Output of commands: closed and full streams, saved reports, files of pairs."""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from scripts.bench.corpus import generate
from tests.support.faulty_runs import install
from tests.support.job import PROGRAM, ROOT, Job
from tests.support.refusals import told
from tests.support.waiting import HANG_SECONDS


@pytest.fixture
def filled(job: Job) -> Job:
    job.set("source", fields=["data"])
    job.source.insert_many(list(generate(50, seed=11)))
    return job


def started(
    job: Job, stdout: int | IO[str], before: Callable[[], object] | None = None, **environment: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dedup_job", "backfill", "-c", str(job.config_file())],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
        env={**os.environ, "DEDUP_SOURCE_URI": job.uri, **environment},
        cwd=ROOT,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    _, stderr = process.communicate(timeout=HANG_SECONDS)
    return process.returncode, failures(stderr.splitlines())


def failures(lines: list[str]) -> list[str]:
    """What the log says beside progress and what was done."""
    return [line for line in lines if " progress mode=" not in line and " done run=" not in line]


def exit_codes(job: Job) -> list[Any]:
    return [run["exit_code"] for run in job.ledger("runs").find()]


@pytest.mark.long
def test_a_reader_that_is_gone_does_not_change_the_exit_code(filled: Job) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with started(filled, writer) as process:
        os.close(writer)
        assert ended(process) == (0, [])
    assert exit_codes(filled) == [0]


@pytest.mark.long
def test_a_report_on_a_closed_stdout_has_its_exit_code(filled: Job) -> None:
    with started(filled, subprocess.DEVNULL, lambda: os.close(1)) as process:
        code, (line,) = ended(process)
    assert code == 74
    assert line.endswith(" the work is done, but its report cannot be written: Bad file descriptor")
    assert exit_codes(filled) == [0]


@pytest.mark.parametrize("stdout", ["", "/dev/full"], ids=["closed", "full"])
def test_help_that_cannot_be_printed_has_its_exit_code(stdout: str) -> None:
    shell = f"exec {sys.executable} -m dedup_job --help >{stdout or '&-'}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, cwd=ROOT)
    code, line = told(done)
    assert code == 74
    assert "dedup-job: stdout cannot be written: " in line


if Path("/dev/full").exists():

    @pytest.mark.long
    def test_a_report_that_cannot_be_written_has_its_exit_code(filled: Job) -> None:
        with open("/dev/full", "w") as full, started(filled, full) as process:
            code, (line,) = ended(process)
        assert code == 74
        assert " dedup-job: the work is done, but its report cannot be written: " in line
        assert exit_codes(filled) == [0]


@pytest.mark.long
def test_no_file_stays_behind(filled: Job, tmp_path: Path) -> None:
    folder = tmp_path / "t"  # the path of a socket has 107 characters at most
    folder.mkdir()
    with started(filled, subprocess.DEVNULL, TMPDIR=str(folder)) as process:
        assert ended(process)[0] == 0
    assert list(folder.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("command", ["backfill", "report", "doctor"])
def test_a_temporary_directory_whose_name_is_too_long_is_told(
    filled: Job, tmp_path: Path, command: str
) -> None:
    folder = tmp_path / ("t" * 80)
    folder.mkdir()

    done = filled.command(command, environment={"TMPDIR": str(folder)}, program=PROGRAM)

    assert done.returncode == 78
    told = f"too long for the workers' socket: {folder}; set TMPDIR to a path of at most 70"
    said = done.stdout if command == "doctor" else done.stderr  # in lines that end anywhere
    assert "".join(told.split()) in "".join(said.split())
    assert filled.command("backfill").returncode == 0


CLOSED = {"stdin": 0, "stdout": 1, "stderr": 2}


@pytest.mark.long
@pytest.mark.parametrize("closed", [["stderr"], ["stdout"], [*CLOSED]], ids="+".join)
@pytest.mark.parametrize("command", ["backfill", "run", "report", "status", "verify", "changes", "history"])
def test_a_command_whose_streams_are_closed_does_its_work(
    filled: Job, monkeypatch: pytest.MonkeyPatch, command: str, closed: list[str]
) -> None:
    """Only without stdout it has another exit code, as nobody gets its report."""
    if command not in ("backfill", "report"):
        install(monkeypatch)
        filled.decide("backfill")

    def close() -> None:
        for name in closed:
            os.close(CLOSED[name])

    done = subprocess.run(
        [sys.executable, "-m", "dedup_job", command, "-c", str(filled.config_file())],
        capture_output=True,
        preexec_fn=close,
        env={**os.environ, "DEDUP_SOURCE_URI": filled.uri},
        cwd=ROOT,
        check=False,
        timeout=HANG_SECONDS,
    )

    lines = failures(done.stderr.decode().splitlines())
    if "stdout" in closed:
        assert (done.returncode, done.stdout, len(lines)) == (74, b"", 0 if "stderr" in closed else 1)
    else:
        assert (done.returncode, lines) == (0, [])
        assert done.stdout
    assert exit_codes(filled) == ([] if command == "report" else [0] * (1 + (command == "run")))


@pytest.mark.long
@pytest.mark.parametrize("command", ["backfill", "report", "status"])
def test_a_command_that_may_write_no_file_ends_as_any_other(filled: Job, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dedup_job", command, "-c", str(filled.config_file())],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        env={**os.environ, "DEDUP_SOURCE_URI": filled.uri},
        cwd=ROOT,
        check=False,
        timeout=HANG_SECONDS,
    )
    assert (done.returncode, failures(done.stderr.splitlines())) == (0, [])


@pytest.mark.parametrize("command", ["backfill", "run", "report"])
def test_a_report_directory_that_cannot_be_written_ends_a_run_before_it_starts(
    filled: Job, tmp_path: Path, command: str
) -> None:
    (tmp_path / "file").write_text("")
    filled.set("report", directory="file/reports")

    done = filled.command(command)

    assert done.returncode == 78
    assert f"[report] directory: {tmp_path}/file/reports cannot be written" in done.stderr
    assert "unique.dedup.head" not in filled.database.list_collection_names()


def test_a_report_directory_is_beside_the_settings(filled: Job, tmp_path: Path) -> None:
    filled.set("report", directory="reports", keep=1)
    for command in ("backfill", "run", "report"):
        assert filled.command(command).returncode == 0
    (report,) = (tmp_path / "reports").iterdir()
    assert json.loads(report.read_text("utf-8"))["mode"] == "report (run)"


@pytest.mark.long
def test_what_may_write_no_file_and_has_to_says_so(filled: Job, tmp_path: Path) -> None:
    filled.set("report", directory=str(tmp_path / "reports"))
    no_files = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    with started(filled, subprocess.DEVNULL, no_files) as process:
        code, (line,) = ended(process)
    assert (code, " dedup-job: the work is done, but " in line) == (74, True)
    assert exit_codes(filled) == [0]


@pytest.mark.long
def test_a_report_that_cannot_be_saved_is_in_the_object_of_the_failure(filled: Job) -> None:
    """Something takes the place of the directory while the run is on."""
    filled.set("report", directory="reports")
    program = (
        "from dedup_job.report import output_files; from dedup_job.__main__ import main\n"
        "output_files.check_folder = lambda directory, _: directory.write_text('')\nmain()"
    )

    done = filled.command("backfill", "--json", program=("-c", program))

    shown = json.loads(done.stdout)
    assert (done.returncode, shown["exit_code"], shown["read"]) == (74, 74, 50)
    assert shown["error"].startswith("the work is done, but ")


def test_what_is_redirected_tells_of_progress_at_once(filled: Job) -> None:
    lines = filled.command("backfill").stderr.splitlines()
    assert " progress mode=backfill read=50 total=" in lines[0]
    assert " done run=" in lines[-1]
