"""Files that commands write: check them before the work, and replace them atomically."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dedup_job.errors import ConfigError, DedupError, StorageFull, UsageError


def check_folder(folder: Path, what: str, kind: type[DedupError] = ConfigError) -> None:
    """Create a folder if it does not exist, and check that files can be written there.

    Args:
        folder: The folder.
        what: The setting or option that names it, for the message.
        kind: The error to raise.

    Raises:
        DedupError: Of this kind, if no file can be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A temporary file has no name on Linux, so nothing is left behind even if the process is killed.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise kind(f"{what}: {folder} cannot be written: {error.strerror}") from None


def check_file(file: Path, what: str) -> None:
    """Check that a file can be written in its folder.

    Raises:
        UsageError: If it cannot.
    """
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise UsageError(f"{what} {file}: {error.strerror}; name a file in a folder that exists") from None


def writing_place(file: Path) -> Path:
    """Return the file to write, which then takes the place of `file` by a rename.

    A rename is atomic: readers see the old file or the new one, never half of it.  A device or a pipe, such
    as /dev/null, is written itself: a rename would put a file in its place, for all programs.
    """
    if file.exists() and not file.is_file():
        return file
    return file.with_name(f".{file.name}.{os.getpid()}")


def replace_file(file: Path, text: str) -> None:
    """Write a text to a file; replace the file if it exists.

    Raises:
        StorageFull: If the file cannot be written.
    """
    written = writing_place(file)
    try:
        written.write_text(text, "utf-8")
        if written != file:
            written.replace(file)
    except OSError as error:
        raise StorageFull(f"{file} cannot be written: {error.strerror}") from None
    finally:
        if written != file:
            with suppress(OSError):
                written.unlink()


# A run's name begins with its time.
REPORT_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]+\.json")
# Characters of the time, to the second.
TIME_LENGTH = 15


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
            # If the directory cannot be made, `replace_file` fails too, and its error names the report.
            with suppress(OSError):
                self.directory.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps(values, ensure_ascii=False, indent=2, default=str) + "\n")
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
