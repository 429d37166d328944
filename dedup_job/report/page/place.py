"""Where a page is put: beside its place first, then into it, so that half a page is never there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dedup_job.errors import StorageFull, UsageError


def check_place(file: Path) -> None:
    """Raise UsageError where no file can be written."""
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}."):
            pass
    except OSError as error:
        raise UsageError(f"--html {file}: {error.strerror}; name a file in a folder that exists") from None


def store(file: Path, page: str) -> None:
    """Write a page, in place of one that is there; raises StorageFull when it cannot be written."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(page, "utf-8")
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StorageFull(f"{file}: cannot be written: {error.strerror}") from None
