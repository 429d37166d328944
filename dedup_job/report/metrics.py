"""What is left of a run for Prometheus: a file for node_exporter's textfile collector, replaced as a whole.

What a run did is that of the last one that was done, and stays there when a later one fails; `last_run` and
`exit_code` are those of the last attempt.  Every sample says which target it is about, so that several jobs
may leave files side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, Metric, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from dedup_job.report.summary import LedgerProgress, Report, peak_rss_mb

ATTEMPT = {
    "dedup_job_last_run_timestamp_seconds": "When a run last ended, in whatever way.",
    "dedup_job_exit_code": "The exit code of the last run.",
}
DONE = {
    "dedup_job_last_success_timestamp_seconds": "When a run was last done (exit code 0 or 3).",
    "dedup_job_seconds": "How long the last run that was done took.",
    "dedup_job_peak_memory_bytes": "The most memory that its deciding process held.",
    "dedup_job_covered_timestamp_seconds": "All that was in the source then is decided.",
    "dedup_job_undecided": "About how many records of the source are not decided; absent if unknown.",
}
RECORDS = "dedup_job_records"


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """The file, and the target that its samples are about."""

    path: Path
    target: str

    def done(self, report: Report, standing: LedgerProgress, now: datetime) -> None:
        """Write what a run did that was done; raises OSError."""
        registry = self._attempted(report.exit_code, now)
        covered = standing.covered
        values: dict[str, float | None] = {
            "dedup_job_last_success_timestamp_seconds": now.timestamp(),
            "dedup_job_seconds": report.seconds,
            "dedup_job_peak_memory_bytes": peak_rss_mb() * (1 << 20),
            "dedup_job_covered_timestamp_seconds": covered.timestamp() if covered else None,
            "dedup_job_undecided": standing.undecided,
        }
        for name, value in values.items():
            if value is not None:
                self._add(registry, name, DONE[name], value)
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

    def failed(self, code: int, now: datetime) -> None:
        """Write that a run failed; what the one before did stays.  Raises OSError."""
        registry = self._attempted(code, now)
        registry.register(_Before({metric.name: metric for metric in self._written()}))
        write_to_textfile(str(self.path), registry)

    def _attempted(self, code: int, now: datetime) -> CollectorRegistry:
        registry = CollectorRegistry()
        for (name, words), value in zip(ATTEMPT.items(), (now.timestamp(), code), strict=True):
            self._add(registry, name, words, value)
        return registry

    def _add(self, registry: CollectorRegistry, name: str, words: str, value: float) -> None:
        Gauge(name, words, ["target"], registry=registry).labels(self.target).set(value)

    def _written(self) -> Iterator[Metric]:
        """Yield what the file says of the last run that was done; nothing where there is no such file."""
        try:
            yield from text_string_to_metric_families(self.path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):  # of a file that is none of ours
            return


@dataclass(frozen=True, slots=True, eq=False)  # a registry wants it to be hashable
class _Before:
    """A collector of what was written before."""

    metrics: Mapping[str, Metric]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that tell of a run that was done."""
        for name in (*DONE, RECORDS):
            if name in self.metrics:
                yield self.metrics[name]
