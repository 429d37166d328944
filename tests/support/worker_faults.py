"""Worker code that obeys orders in the text: CRASH, SPIN, SLOW, KILL, KILL-ONCE FLAG, STALL, SHORT, RAISE.

A worker imports this module while the time limit of its first records runs, so it imports little.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bson import decode

from dedup_job.pipeline import worker_tasks
from dedup_job.records import Fingerprints

# Seconds; no test waits this long unless something hangs.
LONG = 60.0

_work, _count_terms = worker_tasks.work, worker_tasks.count_terms


def work(raws: Sequence[bytes]) -> Fingerprints:
    for raw in raws:
        _obey(decode(raw)["text"])
    return _work(raws)


def count_terms(raws: Sequence[bytes]) -> tuple[int, Counter[str]]:
    for raw in raws:
        _obey(decode(raw)["text"])
    return _count_terms(raws)


def _obey(text: str) -> None:
    order, _, argument = text.partition(" ")
    if order == "KILL" or (order == "KILL-ONCE" and _is_first(Path(argument.split()[0]))):
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "CRASH":
        os.kill(os.getpid(), signal.SIGSEGV)
    while order == "SPIN":
        pass
    if order == "SLOW":
        time.sleep(2 * 6 * 0.4)
    if order == "SHORT":
        raise MemoryError
    if order == "STALL":
        time.sleep(LONG)
    if order == "RAISE":
        raise RuntimeError("a bug in the work")


def _is_first(flag: Path) -> bool:
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
