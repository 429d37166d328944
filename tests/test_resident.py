from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from dedup_job.engine.resident import family, most_held, resident_bytes

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
    most = most_held(os.getpid())
    assert before is not None
    assert most is not None
    assert most > 0.9 * before


def test_nobody_tells_of_a_process_that_is_not_there() -> None:
    assert resident_bytes(2**22 + 1) is None
    assert family(2**22 + 1) == []


FREED = """
import os
from dedup_job.engine.resident import give_back_soon, resident_bytes
give_back_soon()
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
