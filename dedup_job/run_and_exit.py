"""The process of a command: its streams, signals and exit code."""

from __future__ import annotations

import errno
import gc
import logging
import os
import re
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from threading import Event
from typing import Any, NoReturn

import click

from dedup_job import signals
from dedup_job.cli import commands
from dedup_job.errors import (
    NO_MEMORY,
    DedupError,
    Stopped,
    StorageFull,
    UsageError,
    exit_code_of,
    is_shortage,
)
from dedup_job.pipeline import measure_and_limit_memory
from dedup_job.report import logs

# Bytes.  With a larger value, records of many sizes fragment this process's memory.
LARGE = 4 << 20
LOG = logging.getLogger(logs.NAME)
# Errors of a stream that is closed, or is a file on a full or broken disk; they name no file.
UNWRITABLE = (errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EIO)
# Set when the signal that ended the run is logged.
IS_LOGGED = Event()


def main() -> NoReturn:
    """Run a command and exit with its code; an error is one line on stderr."""
    _open_streams()
    _find_temporary_directory()
    measure_and_limit_memory.work_in_batches(LARGE)
    # The job does no linear algebra, and further threads of OpenBLAS would spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Where scipy is installed, numba would load it, which takes 0.3 s and 14 MB.  None makes the import fail.
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    threading.excepthook = sys.unraisablehook = _end_without_memory
    try:
        signals.install_handlers(_log_stop)
        code = _run()
    except StorageFull as error:
        # There was no memory for the thread that waits for signals.
        _set_up_logging(sys.argv[1:])
        code = _log_failure(str(error), error.exit_code)
    except Stopped as stopped:
        code = _log_stop(stopped)
    _flush_streams()
    # Otherwise the interpreter visits all objects three times as it exits.
    gc.freeze()
    sys.exit(code)


def _open_streams() -> None:
    """Open closed standard streams as /dev/null, so that no connection or file gets their numbers.

    A report that is written to a closed stdout fails, as if the stream were still closed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # `open` returns the lowest free number, which is this stream's.
            os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _flush_streams() -> None:
    """Flush stdout and stderr; redirect a broken stream to /dev/null, so that the exit raises no error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _find_temporary_directory() -> None:
    """Choose a temporary directory if Python finds none."""
    # Python tries to write a file. On a full disk that fails, and the folders that we need can still be made.
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = os.environ.get("TMPDIR", "/tmp")


def _run() -> int:
    _set_up_logging(sys.argv[1:])
    if any(map(_is_not_utf8, sys.argv[1:])):
        return _log_failure("an argument is not in UTF-8", UsageError.exit_code)
    try:
        return commands(standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return UsageError.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context else ""
        # click ends some of its messages with a full stop.
        message = _without_addresses(error.format_message()).rstrip(".")
        return _log_failure(f"{message}{hint}", UsageError.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
            return _log_failure(f"stdout cannot be written: {error.strerror}", StorageFull.exit_code)
        done = getattr(error, "done", {})
        return _log_failure(_message(error), exit_code_of(error), done=done, trace=_trace(error))


def _is_not_utf8(argument: str) -> bool:
    """Return whether an argument has bytes that are not UTF-8, and is not the name of a file, which may."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return not os.path.lexists(argument)
    return False


def _set_up_logging(arguments: Sequence[str]) -> None:
    """Set up the log as the arguments say; they are read directly, because click may yet reject them."""
    logs.set_up_logging(
        is_json_log="--log=json" in arguments or ("--log", "json") in pairwise(arguments),
        # Short options can be written together, as in -vc shop.toml.
        is_verbose=any(each == "--verbose" or each.startswith("-v") for each in arguments),
        is_json="--json" in arguments,
    )


def _without_addresses(message: str) -> str:
    """Return a usage error without connection strings, which may have a password."""
    return re.sub(r"""[^\s'"]*:/.*""", "(a connection string?)", message, flags=re.DOTALL)


def _message(error: Exception) -> str:
    if isinstance(error, DedupError):
        return str(error)
    if is_shortage(error):
        return NO_MEMORY
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; correct this and run again; nothing is lost"
    return f"a bug: {type(error).__name__}; run again with -v, and report the traceback"


def _end_without_memory(failure: Any) -> None:
    """End the process when a thread dies for lack of memory: a hook for errors that nobody can catch.

    Such a thread may belong to the driver.  Nothing notices that it is gone, and some calls would wait for
    ever.
    """
    error = failure.exc_value
    if error is not None and is_shortage(error):
        try:
            _log_failure(NO_MEMORY, StorageFull.exit_code)
        finally:
            os._exit(StorageFull.exit_code)
    LOG.debug("a thread failed", extra={"fields": {"error": getattr(failure.exc_type, "__name__", "")}})


def _log_stop(stopped: Stopped) -> int:
    """Log the signal that ended the run, once; also called by the thread that ends a hanging process."""
    if not IS_LOGGED.is_set():
        IS_LOGGED.set()
        _log_failure(str(stopped), stopped.exit_code)
    return stopped.exit_code


def _log_failure(message: str, code: int, **more: object) -> int:
    """Log the error that has ended a command: on stderr and, with --json, on stdout."""
    LOG.error(message, extra={"fields": {"exit_code": code}, **more})
    return code


def _trace(error: Exception) -> str:
    """Return the traceback under -v, without messages of errors: they may contain document text."""
    return "".join(traceback.format_tb(error.__traceback__)) if LOG.isEnabledFor(logging.DEBUG) else ""
