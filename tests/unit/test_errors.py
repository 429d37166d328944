from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime

import pytest

from dedup_job import run_and_exit
from dedup_job.errors import ConfigError, exit_code_of


def test_each_error_has_its_exit_code() -> None:
    errors = [ConfigError("wrong"), MemoryError(), PermissionError(13, "no", "/a"), OSError(), ValueError()]
    assert list(map(exit_code_of, errors)) == [78, 74, 74, 70, 70]


PROGRAM = """
import resource
import numpy
from dedup_job.errors import exit_code_of
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {more},) * 2)
try:
    {work}
except BaseException as error:
    found = type(error).__name__, exit_code_of(error)
print(*found)
"""


@pytest.mark.parametrize(
    ("megabytes", "work", "found"),
    [
        (40, "import llvmlite.binding", "OSError 74"),
        (8, "raise SystemError", "SystemError 74"),
        (8, "raise ValueError", "ValueError 70"),
        (80, "raise SystemError", "SystemError 70"),
    ],
)
def test_what_python_raises_where_the_address_space_ends_is_want_of_memory(
    megabytes: int, work: str, found: str
) -> None:
    program = PROGRAM.format(more=megabytes << 20, work=work)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == found, done.stderr


def test_want_of_memory_is_not_called_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def commands(standalone_mode: bool) -> int:
        raise MemoryError

    monkeypatch.setattr(run_and_exit, "commands", commands)
    assert run_and_exit._run() == 74
    said = capsys.readouterr().err
    assert " dedup-job: there is not enough memory" in said
    assert "bug" not in said


def test_a_file_that_nobody_foresaw_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def commands(standalone_mode: bool) -> int:
        raise PermissionError(13, "Permission denied", "/srv/x")

    monkeypatch.setattr(run_and_exit, "commands", commands)
    assert run_and_exit._run() == 74
    assert "/srv/x: Permission denied; " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--json"], ["run", "--json"], ["run", "--json", "--log=json", "-c", "/nowhere"]]
)
def test_a_failure_with_json_is_one_object_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dedup-job", *arguments])

    code = run_and_exit._run()

    said = capsys.readouterr()
    assert json.loads(said.out)["exit_code"] == code
    assert json.loads(said.out)["error"] in said.err
    if "--log=json" in arguments:
        line = json.loads(said.err)
        assert (line["level"], line["exit_code"]) == ("error", 78)
        assert datetime.fromisoformat(line["ts"]).tzinfo is not None


WITHOUT_MEMORY_IN_A_THREAD = """
import sys, threading
from dedup_job import run_and_exit

def die():
    raise MemoryError

def commands(standalone_mode):
    threading.Thread(target=die, daemon=True).start()
    threading.Event().wait()

run_and_exit.commands = commands
run_and_exit.main()
"""


def test_a_thread_that_dies_for_want_of_memory_ends_the_process_and_nobody_waits_for_it() -> None:
    """Also one of the driver, for which somebody would wait for ever."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY_IN_A_THREAD],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 74
    assert done.stderr.count("\n") == 1
    assert " dedup-job: there is not enough memory; " in done.stderr
