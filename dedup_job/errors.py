"""The errors of a run, each with the exit code that cron sees.

DedupError                70  a bug
+-- GuardStop              5  a guard of `[limits]` stopped the run, a person must look
+-- UsageError            64  wrong command line
+-- StateError            65  state and data disagree, a person must look
+-- Unreachable           69  MongoDB did not answer before the deadline
+-- StorageFull           74  disk full, I/O error or too little memory; see also `is_shortage`
+-- LeaseHeld             75  another run holds the lease
+-- NotPermitted          77  the MongoDB user lacks a right
+-- ConfigError           78  configuration or recipe mismatch
Stopped              130/143  SIGINT or SIGTERM, safe to run again
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NO_MEMORY = (
    "there is not enough memory; free some, or raise the limit (ulimit, container), or take fewer --workers "
    "or a smaller batch_mb, in_flight_mb or cache_mb, and run again: nothing is lost"
)


class DedupError(Exception):
    """Something that ends a run; the message says what to do about it.

    `done` is the report of a run that was done all the same.
    """

    exit_code = 70
    done: Mapping[str, Any] = MappingProxyType({})


class GuardStop(DedupError):
    """A run was about to do what a limit of the settings forbids; a person must look."""

    exit_code = 5


class UsageError(DedupError):
    """The command line asks for something that cannot be done."""

    exit_code = 64


class StateError(DedupError):
    """The ledger, the target and the source disagree; a person must look."""

    exit_code = 65


class Unreachable(DedupError):
    """MongoDB did not answer before the deadline."""

    exit_code = 69


class StorageFull(DedupError):
    """The server or this machine has no room left or cannot write."""

    exit_code = 74


class LeaseHeld(DedupError):
    """Another run works on this target."""

    exit_code = 75


class NotPermitted(DedupError):
    """The MongoDB user lacks a right that the command needs."""

    exit_code = 77


class ConfigError(DedupError):
    """The configuration is wrong, or differs from the one the ledger was made with."""

    exit_code = 78


class Stopped(BaseException):
    """A signal asked the run to end; it is safe to run again.  No Exception, lest a library swallows it."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}; it is safe to run again")
        self.exit_code = 128 + signum


def is_shortage(error: BaseException) -> bool:
    """Return whether an error means too little memory on this machine, or none for a thread or a process."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOMEM, errno.EAGAIN) and error.filename is None  # EAGAIN: of fork
    if isinstance(error, RuntimeError):
        return str(error) == "can't start new thread"
    if isinstance(error, ImportError):
        return "failed to map segment" in str(error) or "annot allocate memory" in str(error)
    # bson raises an InvalidBSON with the message of whatever failed, and a MemoryError has none.
    is_wrapped = type(error).__name__ == "InvalidBSON" and not str(error)
    return isinstance(error, MemoryError) or is_wrapped


def exit_code_of(error: BaseException) -> int:
    """Return the code with which an error ends a run: 70 for what nobody foresaw.

    It is 74 for want of memory, and for a file that cannot be read or written.
    """
    if is_shortage(error) or (isinstance(error, OSError) and error.filename is not None):
        return StorageFull.exit_code
    code: int = getattr(error, "exit_code", DedupError.exit_code)
    return code
