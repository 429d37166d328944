"""Run a backfill whose deciding process is the benchmark itself, which measures between batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter, process_time

from dedup_job import config
from dedup_job.commands.backfill_and_run import decide
from dedup_job.index.keepers import Keepers
from dedup_job.pipeline.command_context import Context, RecordLookup
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.pipeline.measure_and_limit_memory import family, resident_bytes
from dedup_job.records import Plan
from dedup_job.report.run_summary import RunSummary
from scripts.bench.index_memory import keepers_bytes
from scripts.bench.measure import cpu_seconds, job_commands, mongod_of
from scripts.dev.local_mongod import Server


class WatchedContext(Context):
    """The parts of a run, with access to its keepers."""

    seen: Keepers

    def keepers(self, records: RecordLookup, engine: FingerprintWorkers) -> Keepers:
        self.seen = super().keepers(records, engine)
        return self.seen


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a run at one moment, and its cost so far.

    Attributes:
        decided: Number of decided records.
        indexed: Number of texts in the index.
        seconds: Seconds by the clock.
        cpu: Processor seconds of the deciding process.
        workers: Processor seconds of the workers.
        held: Memory of the deciding process in bytes, with its part of shared memory.
        parts: Bytes of each part of the index.
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
    """The work of a run between two marks."""

    start: Mark
    end: Mark

    @property
    def records(self) -> int:
        """Number of decided records."""
        return self.end.decided - self.start.decided

    @property
    def rate(self) -> float:
        """Documents per second."""
        return self.records / (self.end.seconds - self.start.seconds)

    @property
    def cpu(self) -> float:
        """Microseconds of the deciding process per record."""
        return 1e6 * (self.end.cpu - self.start.cpu) / self.records


@dataclass
class Watch:
    """Makes a mark at regular numbers of decided records, and shows the stretches so far.

    The first stretch begins after the first batch, so that it excludes loading and starting.
    """

    context: WatchedContext
    every: int
    mongod: int | None
    show: Callable[[Sequence[Stretch]], None]
    decided: int = 0
    last: Mark | None = None
    stretches: list[Stretch] = field(default_factory=list)
    workers: dict[int, float] = field(default_factory=dict)

    def observe(self, plan: Plan) -> None:
        before, self.decided = self.decided, self.decided + len(plan)
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
        return Mark(
            self.decided, len(keepers), perf_counter(), process_time(), workers, now, keepers_bytes(keepers)
        )


def backfill(
    server: Server, every: int, show: Callable[[Sequence[Stretch]], None]
) -> tuple[RunSummary, list[Stretch]]:
    """Decide the source with the default settings; return the summary and the stretches.

    The calling process becomes the deciding process; workers are separate processes.
    """
    with job_commands(server) as commands:
        os.environ["DEDUP_SOURCE_URI"] = server.uri
        with WatchedContext(config.load_settings(commands.settings)) as context:
            watch = Watch(context, every, mongod_of(server), show)
            report = decide(context, "backfill", watch.observe)
    return report, watch.stretches
