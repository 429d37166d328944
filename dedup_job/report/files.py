"""Files that commands write: checked before the work, and replaced as a whole."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

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


def store(file: Path, text: str) -> None:
    """Write a text to a file; replace the file if it exists.

    Raises:
        StorageFull: If the file cannot be written.
    """
    # A rename is atomic: readers see the old file or the new one, never half of it.
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(file)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise StorageFull(f"{file} cannot be written: {error.strerror}") from None
