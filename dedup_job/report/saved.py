"""Reports that commands leave in a directory, as JSON: a file for each run, the oldest ones deleted."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dedup_job.errors import ConfigError, DedupError, StorageFull

OURS = re.compile(r"\d{8}T\d{6}-[0-9a-f]+\.json")  # a run is named after its time, so names are in order
SECOND = 15  # characters of a name, which say it; runs of one second are told apart by their files


def check_writable(directory: Path, what: str, kind: type[DedupError] = ConfigError) -> None:
    """Make a directory and try it before anything else is done; raises an error that names it.

    `what` says where the directory was named.  The file it is tried with has no name: nothing stays of it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise kind(f"{what}: {directory} cannot be written: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class SavedReports:
    """The reports in a directory, of which so many are kept."""

    directory: Path
    keep: int

    def save(self, run: str, values: Mapping[str, Any]) -> Path:
        """Write the report of a run and return its path; raises StorageFull where that fails."""
        path = self.directory / f"{run}.json"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values, ensure_ascii=False, indent=2, default=str) + "\n", "utf-8")
        except OSError as error:
            raise StorageFull(f"it is done, but {path} cannot be written: {error.strerror}") from None
        self._delete_oldest()
        return path

    def _delete_oldest(self) -> None:
        """Delete reports of ours beyond those that are kept; one that stays is no failure."""
        with suppress(OSError):
            ours = (path for path in self.directory.iterdir() if OURS.fullmatch(path.name))
            reports = sorted(ours, key=lambda path: (path.name[:SECOND], path.stat().st_mtime_ns))
            for path in reports[: -self.keep]:
                path.unlink(missing_ok=True)
