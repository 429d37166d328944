"""Metrics of runs for Prometheus: a file for node_exporter's textfile collector, replaced as a whole.

Most metrics describe the last successful run, and stay in the file when a later run fails; `last_run` and
`exit_code` describe the last run, successful or not.  Every sample has the target as a label, so that several
jobs can have their files in one folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, Metric, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from dedup_job.report.summary import LedgerProgress, Report, peak_rss_mb

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


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """The metrics file of the runs on one target."""

    path: Path
    target: str

    def write_success(self, report: Report, progress: LedgerProgress, now: datetime) -> None:
        """Replace the file after a successful run.

        Raises:
            OSError: If the file cannot be written.
        """
        registry = self._make_registry(report.exit_code, now)
        covered = progress.covered
        values: dict[str, float | None] = {
            "dedup_job_last_success_timestamp_seconds": now.timestamp(),
            "dedup_job_seconds": report.seconds,
            "dedup_job_peak_memory_bytes": peak_rss_mb() * (1 << 20),
            "dedup_job_covered_timestamp_seconds": covered.timestamp() if covered else None,
            "dedup_job_undecided": progress.undecided,
        }
        for name, value in values.items():
            if value is not None:
                self._add(registry, name, LAST_SUCCESS[name], value)
        records = Gauge(
            RECORDS, "Records that it decided, by verdict.", ["target", "verdict"], registry=registry
        )
        counts = report.counts
        verdicts = {
            "unique": counts.unique,
            "exact": counts.exact,
            "near": counts.near,
            "unjudged": sum(counts.unjudged.values()),
            "refused": sum(counts.refused.values()),
        }
        for verdict, number in verdicts.items():
            records.labels(self.target, verdict).set(number)
        write_to_textfile(str(self.path), registry)

    def write_failure(self, code: int, now: datetime) -> None:
        """Replace the file after a failed run; the metrics of the last successful run stay.

        Raises:
            OSError: If the file cannot be written.
        """
        registry = self._make_registry(code, now)
        registry.register(_LastSuccess({metric.name: metric for metric in self._read()}))
        write_to_textfile(str(self.path), registry)

    def _make_registry(self, code: int, now: datetime) -> CollectorRegistry:
        """Return a registry with the metrics of every run."""
        registry = CollectorRegistry()
        for (name, description), value in zip(LAST_RUN.items(), (now.timestamp(), code), strict=True):
            self._add(registry, name, description, value)
        return registry

    def _add(self, registry: CollectorRegistry, name: str, description: str, value: float) -> None:
        Gauge(name, description, ["target"], registry=registry).labels(self.target).set(value)

    def _read(self) -> Iterator[Metric]:
        """Yield the metrics in the present file, none if there is no such file."""
        try:
            yield from text_string_to_metric_families(self.path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):  # ValueError: the file is not a metrics file
            return


@dataclass(frozen=True, slots=True, eq=False)  # eq=False keeps it hashable, as a registry requires
class _LastSuccess:
    """A collector of the metrics of the last successful run."""

    metrics: Mapping[str, Metric]

    def collect(self) -> Iterator[Metric]:
        """Yield these metrics."""
        for name in (*LAST_SUCCESS, RECORDS):
            if name in self.metrics:
                yield self.metrics[name]
