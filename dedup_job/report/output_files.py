"""Files that commands write: check them before the work, and replace them atomically."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dedup_job.errors import ConfigError, StorageFull, UsageError


def check_folder(folder: Path, setting: str) -> None:
    """Create the folder that a setting names if it does not exist, and check that files can be written there.

    Raises:
        ConfigError: If no file can be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A temporary file has no name on Linux, so nothing is left behind even if the process is killed.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except FileExistsError:
        raise ConfigError(f"{setting}: {folder} is a file, not a folder") from None
    except OSError as error:
        raise ConfigError(f"{setting}: {folder} cannot be written: {error.strerror}") from None


def check_file(file: Path, what: str) -> None:
    """Check that a file can be written, or replaced, in its folder.

    Raises:
        UsageError: If it cannot.
    """
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if is_special(file):
            return
        # The name of the file that will replace it may be too long.
        with suppress(FileNotFoundError):
            _beside(file).stat()
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise UsageError(f"{what} {file}: {error.strerror}; name a file in a folder that exists") from None


def is_special(file: Path) -> bool:
    """Return whether a file is a device, a pipe or a folder."""
    return file.exists() and not file.is_file()


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Give the file to write, which takes the place of `file` if the block succeeds, and else is deleted.

    A rename is atomic: readers see the old file or the new one, never half of it.  The new file can be read
    by whom the old one could be, and a link stays one.  A device or a pipe, such as /dev/null, is written
    itself: a rename would put a file in its place, for all programs.
    """
    if is_special(file):
        yield file
        return
    file = file.resolve()
    written = _beside(file)
    try:
        written.touch()
        if file.exists():
            written.chmod(stat.S_IMODE(file.stat().st_mode))
        yield written
        written.replace(file)
    finally:
        with suppress(OSError):
            written.unlink()


def _beside(file: Path) -> Path:
    """Return a new name for the file that is written to replace this one."""
    return file.with_name(f".{file.name}.{secrets.token_hex(4)}")


def replace_file(file: Path, pieces: Iterable[str]) -> None:
    """Write pieces of text to a file; replace the file if it exists.

    Raises:
        StorageFull: If the file cannot be written.
    """
    try:
        with replacing(file) as path, path.open("w", encoding="utf-8") as written:
            written.writelines(pieces)
    except OSError as error:
        raise StorageFull(f"{file} cannot be written: {error.strerror}") from None


# A run's name begins with its time.
REPORT_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]+\.json")
# Characters of the time, to the second.
TIME_LENGTH = 15


def save_report(directory: Path, keep: int, run: str, values: Mapping[str, Any]) -> Path:
    """Write the report of a run to a directory, delete the oldest reports there, and return the new file.

    Args:
        directory: The directory, which is created if it does not exist.
        keep: Number of reports that stay, the newest.
        run: Name of the run.
        values: The report as JSON values.

    Raises:
        StorageFull: If the report cannot be written.
    """
    path = directory / f"{run}.json"
    try:
        # If the directory cannot be made, `replace_file` fails too, and its error names the report.
        with suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
        replace_file(path, [json.dumps(values, ensure_ascii=False, indent=2, default=str), "\n"])
    except StorageFull as error:
        raise StorageFull(f"the work is done, but {error}") from None
    # A report that cannot be deleted does not fail the run.
    with suppress(OSError):
        # Only files named like a run: the directory may hold files of others.
        ours = (file for file in directory.iterdir() if REPORT_NAME.fullmatch(file.name) and file.is_file())
        # Two runs may begin within one second; their names then end with random digits.
        reports = sorted(ours, key=lambda file: (file.name[:TIME_LENGTH], file.stat().st_mtime_ns))
        for file in reports[:-keep]:
            file.unlink(missing_ok=True)
    return path
