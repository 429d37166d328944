"""Files that commands leave: tried beforehand, and whole where they are."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from dedup_job.errors import ConfigError, DedupError, StorageFull, UsageError


def check_folder(folder: Path, what: str, kind: type[DedupError] = ConfigError) -> None:
    """Make a folder and try it before anything else is done; raises an error that names it.

    `what` says where the folder was named.  The file it is tried with has no name: nothing stays of it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise kind(f"{what}: {folder} cannot be written: {error.strerror}") from None


def check_file(file: Path, what: str) -> None:
    """Raise UsageError where a file cannot be written as its folder is; see `check_folder`."""
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise UsageError(f"{what} {file}: {error.strerror}; name a file in a folder that exists") from None


def store(file: Path, text: str) -> None:
    """Write a text, in place of a file that is there; raises StorageFull when it cannot be written.

    It is written beside its place first, so that half of it is never there.
    """
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(text, "utf-8")
        beside.replace(file)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise StorageFull(f"{file} cannot be written: {error.strerror}") from None
