"""Reports saved in a directory: a JSON file for each run; the oldest are deleted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dedup_job.errors import StorageFull
from dedup_job.report.files import store

REPORT_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]+\.json")  # a run's name begins with its time
TIME_LENGTH = 15  # characters of the time, to the second


@dataclass(frozen=True, slots=True)
class SavedReports:
    """The reports in a directory; the newest `keep` stay."""

    directory: Path
    keep: int

    def save(self, run: str, values: Mapping[str, Any]) -> Path:
        """Write the report of a run, delete the oldest ones, and return the new file.

        Raises:
            StorageFull: If the report cannot be written.
        """
        path = self.directory / f"{run}.json"
        try:
            # Without the directory `store` fails too, and its error names the report.
            with suppress(OSError):
                self.directory.mkdir(parents=True, exist_ok=True)
            store(path, json.dumps(values, ensure_ascii=False, indent=2, default=str) + "\n")
        except StorageFull as error:
            raise StorageFull(f"the work is done, but {error}") from None
        self._delete_oldest()
        return path

    def _delete_oldest(self) -> None:
        """Delete the oldest reports; a report that cannot be deleted does not fail the run."""
        with suppress(OSError):
            # Only files named like a run: the directory may hold files of others.
            ours = (path for path in self.directory.iterdir() if REPORT_NAME.fullmatch(path.name))
            # Two runs may begin within one second; their names then end with random digits.
            reports = sorted(ours, key=lambda path: (path.name[:TIME_LENGTH], path.stat().st_mtime_ns))
            for path in reports[: -self.keep]:
                path.unlink(missing_ok=True)
