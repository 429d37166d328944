"""A backfill whose deciding process is the benchmark's own, looked at between batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter, process_time

from dedup_job import config
from dedup_job.commands.backfill import decide
from dedup_job.index.keepers import Keepers
from dedup_job.pipeline.context import Context, RecordLookup
from dedup_job.pipeline.local_engine import LocalEngine
from dedup_job.pipeline.process_memory import family, resident_bytes
from dedup_job.records import Batch, Plan
from dedup_job.report.run_summary import RunSummary
from scripts.local_mongod import Server
from scripts.measure import cpu_seconds, job_commands, mongod_of


class WatchedContext(Context):
    """The parts of a run that let us look at its keepers."""

    seen: Keepers

    def keepers(self, records: RecordLookup, engine: LocalEngine) -> Keepers:
        self.seen = super().keepers(records, engine)
        return self.seen


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a run is, and what it took so far.

    decided     records
    indexed     texts in the index
    seconds     of the clock
    cpu         processor seconds of the deciding process
    workers     processor seconds of the workers
    held        bytes that the deciding process holds, its part of what it shares
    parts       bytes of each part of the index
    """

    decided: int
    indexed: int
    seconds: float
    cpu: float
    workers: float
    held: int
    parts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a run did between two marks."""

    start: Mark
    end: Mark

    @property
    def records(self) -> int:
        """Records that were decided."""
        return self.end.decided - self.start.decided

    @property
    def rate(self) -> float:
        """Documents a second."""
        return self.records / (self.end.seconds - self.start.seconds)

    @property
    def cpu(self) -> float:
        """Microseconds of the deciding process a record."""
        return 1e6 * (self.end.cpu - self.start.cpu) / self.records


@dataclass
class Watch:
    """Looks at a run when so many records more are decided, and shows the stretches so far, the last one new.

    The first stretch begins behind the first batch: loading and starting are no part of it.
    """

    context: WatchedContext
    every: int
    mongod: int | None
    show: Callable[[Sequence[Stretch]], None]
    decided: int = 0
    last: Mark | None = None
    stretches: list[Stretch] = field(default_factory=list)
    workers: dict[int, float] = field(default_factory=dict)

    def observe(self, batch: Batch, plan: Plan) -> None:
        before, self.decided = self.decided, self.decided + len(batch)
        if self.last is None:
            self.last = self._mark()
        elif before // self.every < self.decided // self.every:
            stretch = Stretch(self.last, self._mark())
            self.last = stretch.end
            self.stretches.append(stretch)
            self.show(self.stretches)

    def _mark(self) -> Mark:
        for pid in family():
            if pid != self.mongod:
                self.workers[pid] = max(self.workers.get(pid, 0.0), cpu_seconds(pid))
        keepers, workers = self.context.seen, sum(self.workers.values())
        now = resident_bytes(os.getpid()) or 0
        return Mark(self.decided, len(keepers), perf_counter(), process_time(), workers, now, keepers.parts)


def backfill(
    server: Server, every: int, show: Callable[[Sequence[Stretch]], None]
) -> tuple[RunSummary, list[Stretch]]:
    """Decide what the source holds with the default settings; returns what was done, stretch by stretch.

    The benchmark's process becomes the deciding one; the workers are others.
    """
    with job_commands(server) as commands:
        os.environ["DEDUP_SOURCE_URI"] = server.uri
        with WatchedContext(config.load_settings(commands.settings)) as context:
            watch = Watch(context, every, mongod_of(server), show)
            report = decide(context, "backfill", watch.observe)
    return report, watch.stretches
