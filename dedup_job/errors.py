"""Errors that end a command, each with the exit code that cron sees.

DedupError                70  a bug
+-- GuardStop              5  a guard of `[limits]` stopped the run; a person must check
+-- UsageError            64  the command cannot do what its command line asks
+-- StateError            65  ledger, target and source disagree; a person must check
+-- Unreachable           69  MongoDB did not answer before the deadline
+-- StorageFull           74  disk full, I/O error or too little memory; see also `is_shortage`
+-- LeaseHeld             75  another run holds the lease
+-- NotPermitted          77  the MongoDB user lacks a privilege
+-- ConfigError           78  wrong settings, or a recipe that differs from the ledger's
Stopped              130/143  SIGINT or SIGTERM, safe to run again
"""

from __future__ import annotations

import errno
import re
import resource
import signal
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

# The loader's messages about a library for which there is no memory.
UNLOADABLE = re.compile("failed to map segment|annot allocate memory")
# Bytes of address space with which Python itself may fail.
LITTLE_SPACE = 16 << 20
NO_MEMORY = (
    "there is not enough memory; free some, raise the limit (ulimit, container), or use fewer workers or a "
    "smaller batch_mb, in_flight_mb or cache_mb in the settings; then run again: nothing is lost"
)


class DedupError(Exception):
    """An error that ends a command; its message says what to do about it.

    Attributes:
        exit_code: The exit code of the process.
        done: The report of the run if its work was finished before the error, otherwise empty.
    """

    exit_code = 70
    done: Mapping[str, Any] = MappingProxyType({})


class GuardStop(DedupError):
    """A run was about to exceed a limit of the settings; a person must check."""

    exit_code = 5


class UsageError(DedupError):
    """The command line asks for something impossible."""

    exit_code = 64


class StateError(DedupError):
    """The ledger, the target and the source disagree; a person must check."""

    exit_code = 65


class Unreachable(DedupError):
    """MongoDB did not answer before the deadline."""

    exit_code = 69


class StorageFull(DedupError):
    """The server or this machine is out of space, or cannot write."""

    exit_code = 74


class LeaseHeld(DedupError):
    """Another run works on this target."""

    exit_code = 75


class NotPermitted(DedupError):
    """The MongoDB user lacks a privilege that the command needs."""

    exit_code = 77


class ConfigError(DedupError):
    """The settings are wrong, or differ from the ones the ledger was made with."""

    exit_code = 78


# Derived from BaseException, so that no library catches it with `except Exception`.
class Stopped(BaseException):
    """A signal asked the run to end; it is safe to run again."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}; it is safe to run again")
        # As shells report a process that was ended by a signal.
        self.exit_code = 128 + signum


def is_shortage(error: BaseException) -> bool:
    """Return whether an error means a shortage of memory, also for a new thread, process or library."""
    # The loader's message may be that of the error which was handled when this one was raised.
    if isinstance(error, (ImportError, OSError)) and UNLOADABLE.search(f"{error}\n{error.__context__}"):
        return True
    if isinstance(error, OSError):
        # A fork that is refused memory, or one more process, fails with EAGAIN.
        return error.errno in (errno.ENOMEM, errno.EAGAIN) and error.filename is None
    if isinstance(error, RuntimeError):
        return str(error) == "can't start new thread"
    if isinstance(error, (SystemError, TypeError)):
        # Python raises them in places that do not expect a MemoryError, such as an import.
        return _lacks_address_space()
    # bson wraps any error in an InvalidBSON with the same message, and a MemoryError has no message.
    is_wrapped = type(error).__name__ == "InvalidBSON" and not str(error)
    return isinstance(error, MemoryError) or is_wrapped


def _lacks_address_space() -> bool:
    """Return whether a limit on the address space (`ulimit -v`) is all but reached (Linux only)."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return False
    return limit != resource.RLIM_INFINITY and limit - used < LITTLE_SPACE


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a command that an error ended; 70 for an unexpected error.

    A shortage of memory counts as full storage (74), as does an OSError of a file.
    """
    # An OSError without a file name comes from a socket or a pipe, so it is a bug here.
    if is_shortage(error) or (isinstance(error, OSError) and error.filename is not None):
        return StorageFull.exit_code
    code: int = getattr(error, "exit_code", DedupError.exit_code)
    return code
