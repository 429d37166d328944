"""Runs that overlap on one host: the second ends at once, before it loads anything that takes time.

A lock on a file in the host's temporary directory tells, which the system frees when its holder ends in
whatever way.  It only saves time and work: what keeps runs apart, on one host or on many, is the lease.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dedup_job.errors import LeaseHeld

URIS = ("DEDUP_TARGET_URI", "DEDUP_SOURCE_URI")


@contextmanager
def alone(config: Path) -> Iterator[None]:
    """Raise LeaseHeld while another run of this user, on this host, works on the target of these settings.

    A holder that is stopped (SIGSTOP) does not count: its lease runs out, and then another may go on.
    """
    path = _lock_path(config)
    descriptor = _opened(path) if path else None
    if path is None or descriptor is None:
        yield  # wrong settings, or nowhere to lock: the run itself says so, or does without
        return
    try:
        if not _locked(descriptor, path):
            _check_stopped(os.pread(descriptor, 20, 0))
            yield
            return
        with suppress(OSError):  # no room: who holds it is then not told
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _lock_path(config: Path) -> Path | None:
    """Return the file that stands for a target, or None when the settings do not say which one it is."""
    try:
        target = tomllib.loads(config.read_text("utf-8"))["target"]
        place = [target["database"], target["collection"], target.get("uri_file")]
        key = hashlib.sha256(json.dumps([os.getuid(), *place, *map(os.environ.get, URIS)]).encode())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return Path(tempfile.gettempdir()) / f"dedup-job-{key.hexdigest()[:32]}.lock"


def _opened(path: Path) -> int | None:
    with suppress(OSError):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return None


def _locked(descriptor: int, path: Path) -> bool:
    """Take the lock; a file that its holder removed in between is as good as locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except OSError:
        return False


def _check_stopped(pid: bytes) -> None:
    """Raise LeaseHeld unless this process is stopped, as far as this system tells."""
    with suppress(OSError, ValueError):
        state = Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "Tt":
            return
    who = f"process {pid.decode()} on this host" if pid.isdigit() else "it has just begun"
    raise LeaseHeld(f"another run works on this target: {who}; try again later")
