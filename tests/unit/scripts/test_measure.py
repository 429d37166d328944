from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dedup_job.pipeline import measure_and_limit_memory
from scripts.bench import measure
from scripts.bench.measure import Usage, cell, numbers, watched

# Half a second of work in a process, another half in one that it starts, and 64 MB held in each; both wait
# until the watcher has seen that.
BUSY = """
import subprocess, sys, time
work = "import time; held = b'x' * (64 << 20)\\nwhile time.process_time() < 0.5: pass"
wait = '''
from pathlib import Path
Path("worked").touch()
while not Path("seen").exists(): time.sleep(0.01)
'''
exec(work)
subprocess.run([sys.executable, "-c", work + wait], check=True)
print('{"done": 1}')
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells, in /proc")
def test_a_command_is_watched_with_all_that_it_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks = []

    def family(pid: int) -> list[int]:
        """Note each look at the processes; the second one since the work was done comes after a whole one."""
        if (tmp_path / "worked").exists():
            looks.append(pid)
        if len(looks) > 1:
            (tmp_path / "seen").touch()
        return list(measure_and_limit_memory.family(pid))

    monkeypatch.setattr(measure, "family", family)
    monkeypatch.setattr(measure, "POLLS_FOR_MEMORY", 1)
    usage, printed = watched([sys.executable, "-c", BUSY], folder=tmp_path)
    assert printed == {"done": 1}
    assert usage.cpu >= 0.9
    assert usage.peak >= 2 * (64 << 20)


def test_a_command_that_fails_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit):
        watched([sys.executable, "-c", "raise SystemExit(3)"])


def test_medians_are_taken_figure_by_figure() -> None:
    usages = [
        Usage(1.0, 30.0, 0.0, 5, 4.0, 3),
        Usage(2.0, 10.0, 0.0, 9, 5.0, 1),
        Usage(9.0, 20.0, 1.0, 7, 9.0, 2),
    ]
    assert Usage.median(usages) == Usage(2.0, 20.0, 0.0, 7, 5.0, 2)


def test_a_number_gets_as_many_digits_as_it_deserves() -> None:
    cells = [cell(value) for value in (1234.5, 12.34, 1.234, 12_345, "x")]
    assert cells == ["1,234", "12.3", "1.23", "12,345", "x"]
    assert numbers("1,20,") == [1, 20]
