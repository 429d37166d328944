"""Those who watch the nights: told when a run starts, is done or fails, by a metrics file and a ping."""

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
    """Tells of one run, which is its `with` block; that another run works is no failure of this one."""

    def __init__(self, settings: Settings, keeps_metrics: bool = True) -> None:
        """Look at the settings before the run; raises ConfigError where they cannot be.

        keeps_metrics  whether the metrics tell of it: they are about runs that decide
        """
        report, target = settings.report, settings.target
        self._ping = Ping(report.ping.get_secret_value()) if report.ping else None
        self._metrics = None
        if keeps_metrics and report.metrics is not None:
            from dedup_job.report.metrics import MetricsFile  # not loaded where nobody asks for it

            check_folder(report.metrics.parent, "[report] metrics")
            self._metrics = MetricsFile(report.metrics, f"{target.database}.{target.collection}")

    @property
    def wants_metrics(self) -> bool:
        """Return whether `done` is to be told how far the ledger is."""
        return self._metrics is not None

    def __enter__(self) -> Self:
        self._tell(START)
        return self

    def done(self, report: Report, standing: LedgerProgress) -> None:
        """Write what the run did; raises StorageFull."""
        if self._metrics is None:
            return
        try:
            self._metrics.done(report, standing, datetime.now(UTC))
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
            self._tell(DONE)
        elif not isinstance(error, LeaseHeld):
            self._tell(FAILED)
            self._failed(exit_code_of(error))
        if self._ping is not None:
            self._ping.wait()

    def _tell(self, event: str) -> None:
        if self._ping is not None:
            self._ping.tell(event)

    def _failed(self, code: int) -> None:
        """Write that the run failed; that this fails, too, does not hide why."""
        if self._metrics is None:
            return
        try:
            self._metrics.failed(code, datetime.now(UTC))
        except OSError as error:
            log.warning("metrics not written", extra={"fields": {"error": error.strerror}})
