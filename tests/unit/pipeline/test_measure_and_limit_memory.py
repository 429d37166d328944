from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from dedup_job.errors import StorageFull
from dedup_job.pipeline import measure_and_limit_memory
from dedup_job.pipeline.measure_and_limit_memory import available_bytes, family, peak_bytes, resident_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells, in /proc")

SLEEPER = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"


def test_a_family_is_what_was_started_and_what_that_started() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        below = family(process.pid)
        assert len(below) == 1
        assert {process.pid, *below} <= set(family())
        assert os.getpid() not in family()
        process.stdin.write(b"\n")
    assert process.pid not in family()


def test_a_process_holds_what_it_fills() -> None:
    before = resident_bytes(os.getpid())
    assert before is not None
    filled = bytearray(b"x" * (64 << 20))
    now = resident_bytes(os.getpid())
    assert now is not None
    assert now - before > 0.9 * len(filled)


def test_what_a_process_once_held_is_not_forgotten() -> None:
    filled = bytearray(b"x" * (64 << 20))
    before = resident_bytes(os.getpid())
    del filled
    most = peak_bytes(os.getpid())
    assert before is not None
    assert most is not None
    assert most > 0.9 * before


def test_nobody_tells_of_a_process_that_is_not_there() -> None:
    assert resident_bytes(2**22 + 1) is None
    assert family(2**22 + 1) == []


FREED = """
import os
from dedup_job.pipeline.measure_and_limit_memory import work_in_batches
from dedup_job.pipeline.measure_and_limit_memory import resident_bytes
work_in_batches(4 << 20)
large = b"x" * (30 << 20)
del large  # glibc would take from its own store what is smaller from now on
blocks = [b"x" * (4 << 20) for _ in range(20)]
before = resident_bytes(os.getpid())
del blocks[::2]
print(before - resident_bytes(os.getpid()))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of other C libraries nothing is asked")
def test_memory_that_is_free_between_what_is_not_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 39 << 20


def test_what_is_free_is_the_least_of_the_machines_and_of_what_the_groups_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_and_limit_memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(measure_and_limit_memory, "GROUPS", tmp_path / "cgroup")
    assert available_bytes() is None
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    4000 kB\n")
    assert available_bytes() == 4000 << 10
    inner = tmp_path / "cgroup" / "a.slice" / "b.service"
    inner.mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/a.slice/b.service\n")
    for folder, most in ((inner, "max"), (inner.parent, "3000000")):
        (folder / "memory.max").write_text(most)
        (folder / "memory.current").write_text("1000000")
        (folder / "memory.stat").write_text("anon 5\ninactive_file 400000\n")
    assert available_bytes() == 2_400_000
    (inner / "memory.max").write_text("500000")
    assert available_bytes() == 0


def test_the_limits_of_groups_of_the_first_version_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a group without a limit has a number that no machine reaches, and folders are below `memory`."""
    monkeypatch.setattr(measure_and_limit_memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(measure_and_limit_memory, "GROUPS", tmp_path / "cgroup")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    inner = tmp_path / "cgroup" / "memory" / "docker" / "4711"
    inner.mkdir(parents=True)
    groups = "12:cpu,cpuacct:/docker/4711\n4:memory:/docker/4711\n1:name=systemd:/docker/4711\n0::/\n"
    (tmp_path / "proc" / "self" / "cgroup").write_text(groups)
    for folder, most in ((inner, 3_000_000), (inner.parent, 9_223_372_036_854_771_712)):
        (folder / "memory.limit_in_bytes").write_text(f"{most}\n")
        (folder / "memory.usage_in_bytes").write_text("1000000\n")
        (folder / "memory.stat").write_text("inactive_file 7\ntotal_inactive_file 400000\n")
    assert available_bytes() == 2_400_000


def test_in_a_container_of_the_first_version_the_limit_is_in_the_root_of_the_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path in /proc is the host's, and has no folder in the container."""
    monkeypatch.setattr(measure_and_limit_memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(measure_and_limit_memory, "GROUPS", tmp_path / "cgroup")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("4:memory:/docker/4711\n")
    root = tmp_path / "cgroup" / "memory"
    root.mkdir(parents=True)
    (root / "memory.limit_in_bytes").write_text("3000000")
    (root / "memory.usage_in_bytes").write_text("1000000")
    (root / "memory.stat").write_text("total_inactive_file 0\n")
    assert available_bytes() == 2_000_000


def test_on_this_machine_something_is_free() -> None:
    free = available_bytes()
    assert free is not None
    assert free > 1 << 20


STARTED = """
import resource, sys
from dedup_job.pipeline.measure_and_limit_memory import check_least
kind, limit, workers = getattr(resource, sys.argv[1]), int(sys.argv[2]) << 20, int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
resource.setrlimit(kind, (limit, limit))
try:
    check_least(workers)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("kind", "limit", "workers", "said"),
    [
        ("RLIMIT_AS", 639, 2, "StorageFull the limit on a process's address space (ulimit -v) is 639 MiB"),
        ("RLIMIT_AS", 640, 2, ""),
        ("RLIMIT_AS", 700, 16, "needs 736 MiB; raise the limit"),
        ("RLIMIT_DATA", 300, 2, "StorageFull the limit on a process's data (ulimit -d) is 300 MiB"),
        ("RLIMIT_DATA", 400, 2, ""),
    ],
)
def test_a_limit_under_which_no_run_can_begin_is_named(
    kind: str, limit: int, workers: int, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED, kind, str(limit), str(workers)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said in done.stdout
    assert bool(said) == bool(done.stdout)


def test_too_little_free_memory_is_told_before_a_run_begins_and_swap_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_and_limit_memory, "PROC", tmp_path)
    measure_and_limit_memory.check_least(2)  # nobody tells
    (tmp_path / "meminfo").write_text("MemAvailable: 204800 kB\nSwapFree: 102400 kB\n")
    measure_and_limit_memory.check_least(2)
    (tmp_path / "meminfo").write_text("MemAvailable: 204800 kB\nSwapFree: 0 kB\n")
    with pytest.raises(StorageFull, match=r"200 MiB of memory are free .* needs 256 MiB"):
        measure_and_limit_memory.check_least(2)


FILES = """
import resource, sys
from dedup_job.pipeline.measure_and_limit_memory import check_least
resource.setrlimit(resource.RLIMIT_NOFILE, (20, int(sys.argv[1])))
check_least(2)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_a_low_limit_on_open_files_is_raised_where_the_system_allows_it() -> None:
    done = subprocess.run([sys.executable, "-c", FILES, "100"], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 20


def test_too_low_a_limit_on_open_files_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", FILES, "30"], capture_output=True, text=True, check=False)
    assert "StorageFull: a process may open 30 files (ulimit -n), and a run needs " in done.stderr
