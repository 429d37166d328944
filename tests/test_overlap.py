"""Of two runs on one host the second ends before it has loaded anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dedup_job.errors import LeaseHeld
from dedup_job.overlap import alone

ROOT = Path(__file__).parents[1]
HOLDER = """
import sys
from pathlib import Path
from dedup_job.overlap import alone
with alone(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("DEDUP_SOURCE_URI", "mongodb://127.0.0.1:9/")


def settings(folder: Path, collection: str, name: str = "job") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(f'[target]\ndatabase = "d"\ncollection = "{collection}"\n', "utf-8")
    return path


@pytest.fixture
def hold() -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """Start processes that hold the lock for some settings."""
    started: list[subprocess.Popen[bytes]] = []

    def start(config: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", HOLDER, str(config)]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        started.append(holder)
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        return holder

    yield start
    for holder in started:
        with holder:  # closes its pipes
            holder.kill()


def test_while_a_run_works_another_on_its_target_is_refused(
    tmp_path: Path, hold: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    holder = hold(settings(tmp_path, "unique"))

    other_name = settings(tmp_path, "unique", "the same by another name")
    with pytest.raises(LeaseHeld, match=f"process {holder.pid} on this host"), alone(other_name):
        pytest.fail("two at once")
    with alone(settings(tmp_path, "other")):
        pass


def test_the_lock_ends_with_its_holder_in_whatever_way(
    tmp_path: Path, hold: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    config = settings(tmp_path, "unique")
    for end in (lambda holder: holder.kill(), lambda holder: holder.stdin.close()):
        holder = hold(config)
        end(holder)
        holder.wait()
        with alone(config):
            assert len(list(tmp_path.glob("*.lock"))) == 1
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_a_stopped_holder_does_not_count(
    tmp_path: Path, hold: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    config = settings(tmp_path, "unique")
    holder = hold(config)
    holder.send_signal(signal.SIGSTOP)
    while Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "Tt":
        time.sleep(0.01)

    with alone(config):
        pass
    holder.send_signal(signal.SIGCONT)
    while Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt":
        time.sleep(0.01)
    with pytest.raises(LeaseHeld), alone(config):
        pytest.fail("two at once")


@pytest.mark.parametrize("content", ["[target]\n[target]", "target = 3", "x = 1", ""])
def test_settings_that_name_no_target_are_left_for_the_run_to_refuse(tmp_path: Path, content: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(content, "utf-8")
    with alone(path), alone(path), alone(tmp_path / "nothing"):
        pass


def test_where_nothing_can_be_locked_a_run_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    config = settings(tmp_path, "unique")
    with alone(config), alone(config):
        pass


@pytest.mark.parametrize(
    "command",
    [["backfill"], ["backfill", "--adopt"], ["run"], ["reconcile"], ["undo", "a-run"], ["restore", "7"]],
)
def test_the_second_of_two_commands_that_write_loads_nothing_heavy(
    command: list[str], tmp_path: Path, hold: Callable[[Path], subprocess.Popen[bytes]]
) -> None:
    config = settings(tmp_path, "unique")
    hold(config)
    program = "import sys; from dedup_job.cli import commands\ntry: commands(standalone_mode=False)\n"
    program += "except Exception as e: print(e.exit_code, {'numpy', 'pymongo', 'numba'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program, *command, "-c", str(config)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("75 set()\n", "")
