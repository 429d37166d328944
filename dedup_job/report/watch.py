"""Notify monitoring of a run: a metrics file for Prometheus, and a ping."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from dedup_job.config import Settings
from dedup_job.errors import LeaseHeld, StorageFull, exit_code_of
from dedup_job.report.files import check_folder
from dedup_job.report.ping import DONE, FAILED, START, Ping
from dedup_job.report.summary import LedgerProgress, Report

log = logging.getLogger("dedup_job")


class Watch:
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
        self._metrics = None
        if keeps_metrics and report.metrics is not None:
            from dedup_job.report.metrics import MetricsFile  # slow to import, and rarely needed

            check_folder(report.metrics.parent, "[report] metrics")
            self._metrics = MetricsFile(report.metrics, f"{target.database}.{target.collection}")

    @property
    def wants_metrics(self) -> bool:
        """Whether `done` needs the ledger's progress."""
        return self._metrics is not None

    def __enter__(self) -> Self:
        self._send_ping(START)
        return self

    def done(self, report: Report, progress: LedgerProgress) -> None:
        """Write the metrics of a finished run.

        Raises:
            StorageFull: If the file cannot be written.
        """
        if self._metrics is None:
            return
        try:
            self._metrics.write_success(report, progress, datetime.now(UTC))
        except OSError as error:
            raise StorageFull(
                f"the work is done, but {self._metrics.path} cannot be written: {error.strerror}"
            ) from None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._send_ping(DONE)
        elif not isinstance(error, LeaseHeld):
            self._send_ping(FAILED)
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
            self._metrics.write_failure(code, datetime.now(UTC))
        except OSError as error:
            # Only logged: raised here, it would hide why the run failed.
            log.warning("metrics not written", extra={"fields": {"error": error.strerror}})
