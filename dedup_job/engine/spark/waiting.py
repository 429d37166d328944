"""Waiting for workers: a stage that nobody works on is told of, as Spark itself waits without a word."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

LOOK_SECONDS = 15.0

log = logging.getLogger("dedup_job")


@contextmanager
def told_of_waiting(context: SparkContext) -> Iterator[None]:
    """Warn while this is open when a stage stands still because no worker takes its tasks."""
    ended = threading.Event()
    threading.Thread(target=_look, args=(context, ended), name="waiting", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _look(context: SparkContext, ended: threading.Event) -> None:
    """Look now and then; one look finds nothing out, since between two tasks nobody works either."""
    from py4j.protocol import Py4JError

    before: dict[int, int] = {}
    is_told = False
    with suppress(Py4JError, OSError):  # Spark has ended; the command learns it by itself
        while not ended.wait(LOOK_SECONDS):
            now = _without_workers(context)
            is_waiting = bool(now) and now == before
            if is_waiting and not is_told:
                log.warning(
                    "no worker of the Spark cluster takes the tasks that are ready: has it workers, and are "
                    "their memory and cores free? The run waits for one"
                )
            before, is_told = now, is_waiting


def _without_workers(context: SparkContext) -> dict[int, int]:
    """Return how many tasks of each stage that has begun are done; none while any task runs."""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    if any(stage is None or stage.numActiveTasks for stage in stages):
        return {}
    return {stage.stageId: stage.numCompletedTasks for stage in stages if stage}
