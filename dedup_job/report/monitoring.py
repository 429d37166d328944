"""Tell monitoring about a run: a metrics file for Prometheus and a ping URL."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from threading import Event, Lock
from typing import Self
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

from prometheus_client import CollectorRegistry, Gauge, Metric, generate_latest, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from dedup_job.config import Settings
from dedup_job.errors import ConfigError, LeaseHeld, StorageFull, exit_code_of
from dedup_job.records import Counts, Plan
from dedup_job.report.output_files import check_folder, is_special
from dedup_job.report.progress import RunProgress
from dedup_job.report.run_summary import LedgerProgress, RunSummary, peak_rss_mb
from dedup_job.start_threads_and_count_processors import Threads, start_thread

LAST_RUN = {
    "dedup_job_last_run_timestamp_seconds": "When the last run ended, successful or not.",
    "dedup_job_exit_code": "The exit code of the last run.",
}
LAST_SUCCESS = {
    "dedup_job_last_success_timestamp_seconds": "When the last successful run ended (exit code 0 or 3).",
    "dedup_job_seconds": "How long the last successful run took.",
    "dedup_job_peak_memory_bytes": "The peak memory of its main process.",
    "dedup_job_covered_timestamp_seconds": "Every record in the source at this time is decided.",
    "dedup_job_undecided": "About how many records of the source are not decided; absent if unknown.",
}
RECORDS = "dedup_job_records"
RUNNING = {
    "dedup_job_running": "1 while a run is in progress, 0 after it.",
    "dedup_job_run_started_timestamp_seconds": "When the run in progress began.",
    "dedup_job_run_updated_timestamp_seconds": "When it decided its last batch.",
    "dedup_job_run_expected_records": "About how many records it will decide; absent if unknown.",
    "dedup_job_run_records_per_second": "Records that it decides in a second.",
    "dedup_job_run_left_seconds": "About how long it will still take; absent if unknown.",
    "dedup_job_replication_lag_seconds": "How far the slowest secondary lags; absent if unknown.",
}
RUN_RECORDS = "dedup_job_run_records"
# The metrics file is replaced this often during a run.
EVERY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """The metrics file of the runs on one target."""

    path: Path
    target: str

    def write_success(self, report: RunSummary, progress: LedgerProgress, now: datetime) -> None:
        """Replace the file after a successful run.

        Raises:
            OSError: If the file cannot be written.
        """
        registry, covered = self._make_registry(report.exit_code, now), progress.covered
        values = (
            now.timestamp(),
            report.seconds,
            peak_rss_mb() * (1 << 20),
            covered.timestamp() if covered else None,
            progress.undecided,
        )
        self._add(registry, LAST_SUCCESS, values)
        self._add_counts(registry, RECORDS, report.counts)
        self._write(registry)

    def write_failure(self, code: int, now: datetime) -> None:
        """Replace the file after a failed run; the metrics of the last successful run stay.

        Raises:
            OSError: If the file cannot be written.
        """
        registry = self._make_registry(code, now)
        registry.register(_KeptMetrics((*LAST_SUCCESS, RECORDS), tuple(self._read())))
        self._write(registry)

    def write_running(self, state: RunState, lag: float | None, now: datetime) -> None:
        """Replace the file during a run; the metrics of earlier runs stay.

        Args:
            state: How far the run is.
            lag: Lag of the secondaries in seconds; None if that is not measured.
            now: The time.

        Raises:
            OSError: If the file cannot be written.
        """
        registry, progress = CollectorRegistry(), state.progress
        registry.register(_KeptMetrics((*LAST_RUN, *LAST_SUCCESS, RECORDS), tuple(self._read())))
        values = (
            1,
            state.started.timestamp(),
            state.updated.timestamp(),
            progress.total,
            progress.per_second,
            progress.seconds_left,
            lag,
        )
        self._add(registry, RUNNING, values)
        self._add_counts(registry, RUN_RECORDS, state.counts)
        self._write(registry)

    def _write(self, registry: CollectorRegistry) -> None:
        """Write the metrics; a device, such as /dev/null, is not replaced."""
        if is_special(self.path):
            self.path.write_bytes(generate_latest(registry))
        else:
            write_to_textfile(str(self.path), registry)

    def _make_registry(self, code: int, now: datetime) -> CollectorRegistry:
        """Return a registry with the metrics of every run that has ended."""
        registry = CollectorRegistry()
        self._add(registry, LAST_RUN, (now.timestamp(), code))
        self._add(registry, {"dedup_job_running": RUNNING["dedup_job_running"]}, (0,))
        return registry

    def _add_counts(self, registry: CollectorRegistry, name: str, counts: Counts) -> None:
        description = "Records that it decided, by verdict."
        records = Gauge(name, description, ["target", "verdict"], registry=registry)
        verdicts = {
            "unique": counts.unique,
            "exact": counts.exact,
            "near": counts.near,
            "unchecked": sum(counts.unchecked.values()),
            "refused": sum(counts.refused.values()),
        }
        for verdict, number in verdicts.items():
            records.labels(self.target, verdict).set(number)

    def _add(
        self, registry: CollectorRegistry, metrics: Mapping[str, str], values: Sequence[float | None]
    ) -> None:
        """Add metrics, given as names with descriptions, and the value of each; None if it is unknown."""
        for (name, description), value in zip(metrics.items(), values, strict=True):
            if value is not None:
                Gauge(name, description, ["target"], registry=registry).labels(self.target).set(value)

    def _read(self) -> Iterator[Metric]:
        """Yield the metrics in the present file, none if there is no such file, or it is a device."""
        if is_special(self.path):
            return
        try:
            yield from text_string_to_metric_families(self.path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):  # ValueError: the file is not a metrics file
            return


# eq=False keeps the class hashable, as a registry requires.
@dataclass(frozen=True, slots=True, eq=False)
class _KeptMetrics:
    """A collector of metrics with these names, from the previous file."""

    names: Collection[str]
    metrics: Sequence[Metric]

    def collect(self) -> Iterator[Metric]:
        """Yield these metrics."""
        yield from (metric for metric in self.metrics if metric.name in self.names)


@dataclass(frozen=True, slots=True)
class RunState:
    """How far a run is.

    Attributes:
        started: When it began.
        updated: When it decided its last batch.
        counts: The verdicts so far.
        progress: The number of records, and the rate.
    """

    started: datetime
    updated: datetime
    counts: Counts
    progress: RunProgress


class RunningMetrics:
    """Keeps the metrics file current while a run decides records.

    Attributes:
        file: The metrics file.
    """

    def __init__(self, file: MetricsFile) -> None:
        """Set the file, which is first written after the first batch: then the run surely has the lease."""
        self.file = file
        self._started = datetime.now(UTC)
        self._expected: int | None = None
        self._lag: Callable[[], float | None] = lambda: None
        self._first: tuple[float, int] | None = None
        self._state: RunState | None = None
        self._ended = Event()
        self._writing = Lock()

    def expect(self, records: int | None, lag: Callable[[], float | None]) -> None:
        """Set about how many records the run will decide, and what measures the lag of secondaries."""
        self._expected, self._lag = records, lag

    def observe(self, plan: Plan) -> None:
        """Count the records of a batch."""
        now = time.monotonic()
        counts = (self._state.counts if self._state else Counts()) + plan.counts
        began, before = self._first or (now, counts.read)
        progress = RunProgress(counts.read, self._expected, now - began, before)
        self._state = RunState(self._started, datetime.now(UTC), counts, progress)
        if self._first is None:
            self._first = began, before
            self._write()
            # A thread, as a run may wait for minutes: for a server, or for secondaries that lag.
            start_thread(self._write_often)

    def end(self) -> None:
        """Stop writing; returns when a write in progress has finished."""
        self._ended.set()
        with self._writing:
            pass

    def _write_often(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            self._write()

    def _write(self) -> None:
        with self._writing:
            if self._ended.is_set() or self._state is None:
                return
            try:
                self.file.write_running(self._state, self._lag(), datetime.now(UTC))
            except OSError as error:
                # The run continues; at its end, the same error is an error of the run.
                log.warning("metrics not written", extra={"fields": {"error": error.strerror}})
                self._ended.set()


# Timeout of one ping, and of all unfinished pings at the end of a run.
PING_SECONDS = 3.0
PING_START, PING_DONE, PING_FAILED = "/start", "", "/fail"

log = logging.getLogger("dedup_job")


class Ping:
    """Sends pings to one URL, in the order of the events."""

    def __init__(self, url: str) -> None:
        """Check the URL.

        Raises:
            ConfigError: If it is not an HTTP URL; the message does not repeat it.
        """
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ConfigError("[report] ping: expected an address as https://hc-ping.com/...")
        self._parts = parts
        self._caller = Threads(1)
        self._last: Future[None] | None = None

    def send(self, event: str) -> None:
        """Send the ping of an event in the background, after the pings before it."""
        # One thread sends all: out of order, a late "/start" would make a finished run look unfinished.
        self._last = self._caller.submit(self._request, event)

    def wait(self) -> None:
        """Wait until all pings are sent, up to the timeout."""
        if self._last is not None:
            wait([self._last], PING_SECONDS)
        self._caller.stop()

    def _request(self, event: str) -> None:
        path = self._parts.path.rstrip("/") + event
        try:
            with urlopen(urlunsplit(self._parts._replace(path=path)), timeout=PING_SECONDS):
                pass
        except (OSError, HTTPException, ValueError) as error:
            # Only the kind of the error: its message may contain the URL.
            reason = error.code if isinstance(error, HTTPError) else type(error).__name__
            log.warning("ping failed", extra={"fields": {"of": event or "/", "error": reason}})


class MonitoredRun:
    """Notifies monitoring of one run: a context manager around it.

    A run that ends because another run holds the lease is not reported as a failure.
    """

    def __init__(self, settings: Settings, keeps_metrics: bool = True) -> None:
        """Check the settings before the run.

        Args:
            settings: Their section `[report]` names the metrics file and the URL to ping.
            keeps_metrics: Whether to write metrics; only for commands that decide records.

        Raises:
            ConfigError: If the URL is invalid, or the metrics file cannot be written.
        """
        report, target = settings.report, settings.target
        self._ping = Ping(report.ping.get_secret_value()) if report.ping else None
        self._metrics: RunningMetrics | None = None
        if keeps_metrics and report.metrics is not None:
            check_folder(report.metrics.parent, "[report] metrics")
            if report.metrics.is_fifo() or report.metrics.is_dir():
                # A pipe that nobody reads would never be written.
                raise ConfigError(f"[report] metrics: {report.metrics} is a pipe or a folder; name a file")
            file = MetricsFile(report.metrics, f"{target.database}.{target.collection}")
            self._metrics = RunningMetrics(file)

    @property
    def wants_metrics(self) -> bool:
        """Whether `done` needs the ledger's progress."""
        return self._metrics is not None

    def __enter__(self) -> Self:
        self._send_ping(PING_START)
        return self

    def expect(self, records: int | None, lag: Callable[[], float | None]) -> None:
        """Set the expected total and the lag for the metrics of the run; see `RunningMetrics.expect`."""
        if self._metrics is not None:
            self._metrics.expect(records, lag)

    def observe(self, plan: Plan) -> None:
        """Count the records of a batch for the metrics of the run in progress."""
        if self._metrics is not None:
            self._metrics.observe(plan)

    def done(self, report: RunSummary, progress: LedgerProgress) -> None:
        """Write the metrics of a finished run.

        Raises:
            StorageFull: If the file cannot be written.
        """
        if self._metrics is None:
            return
        self._metrics.end()
        file = self._metrics.file
        try:
            file.write_success(report, progress, datetime.now(UTC))
        except OSError as error:
            raise StorageFull(
                f"the work is done, but {file.path} cannot be written: {error.strerror}"
            ) from None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._metrics is not None:
            self._metrics.end()
        if error is None:
            self._send_ping(PING_DONE)
        elif not isinstance(error, LeaseHeld):
            self._send_ping(PING_FAILED)
            self._write_failure(exit_code_of(error))
        if self._ping is not None:
            self._ping.wait()

    def _send_ping(self, event: str) -> None:
        if self._ping is not None:
            self._ping.send(event)

    def _write_failure(self, code: int) -> None:
        if self._metrics is None:
            return
        try:
            self._metrics.file.write_failure(code, datetime.now(UTC))
        except OSError as error:
            # Only logged: raised here, it would hide why the run failed.
            log.warning("metrics not written", extra={"fields": {"error": error.strerror}})
