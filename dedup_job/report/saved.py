"""Reports that commands leave in a directory, as JSON: a file for each run, the oldest ones deleted."""

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

OURS = re.compile(r"\d{8}T\d{6}-[0-9a-f]+\.json")  # a run is named after its time, so names are in order
SECOND = 15  # characters of a name, which say it; runs of one second are told apart by their files


@dataclass(frozen=True, slots=True)
class SavedReports:
    """The reports in a directory, of which so many are kept."""

    directory: Path
    keep: int

    def save(self, run: str, values: Mapping[str, Any]) -> Path:
        """Write the report of a run and return its path; raises StorageFull where that fails."""
        path = self.directory / f"{run}.json"
        try:
            with suppress(OSError):  # which is named where the report cannot be written
                self.directory.mkdir(parents=True, exist_ok=True)
            store(path, json.dumps(values, ensure_ascii=False, indent=2, default=str) + "\n")
        except StorageFull as error:
            raise StorageFull(f"the work is done, but {error}") from None
        self._delete_oldest()
        return path

    def _delete_oldest(self) -> None:
        """Delete reports of ours beyond those that are kept; one that stays is no failure."""
        with suppress(OSError):
            ours = (path for path in self.directory.iterdir() if OURS.fullmatch(path.name))
            reports = sorted(ours, key=lambda path: (path.name[:SECOND], path.stat().st_mtime_ns))
            for path in reports[: -self.keep]:
                path.unlink(missing_ok=True)
