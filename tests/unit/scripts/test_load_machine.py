from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import active_children

import pytest

from scripts.dev.load_machine import keep_busy, main, use_disk, use_memory, use_processor


def test_the_exit_code_is_that_of_the_command_and_no_work_goes_on() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit(7)"]
    before = set(active_children())
    assert main(["--processes", "1", "--memory-mb", "2", "--", *command]) == 7
    assert set(active_children()) <= before


@pytest.mark.parametrize("kind", [use_processor, use_disk, partial(use_memory, 2)])
def test_work_ends_when_its_time_is_over(kind: object) -> None:
    keep_busy(kind, 0.0)  # type: ignore[arg-type]


def test_work_ends_when_its_parent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([1, 1, 2])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))

    def idle() -> Iterator[None]:
        while True:
            yield time.sleep(0)

    keep_busy(idle, 3600.0)
    assert next(parents, None) is None
