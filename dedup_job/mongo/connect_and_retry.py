"""Connect to MongoDB with forced concerns, retry transient errors, and translate driver errors."""

from __future__ import annotations

import atexit
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import stamina
import stamina.instrumentation
from pymongo import MongoClient
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WTimeoutError,
)

from dedup_job.errors import ConfigError, DedupError, NotPermitted, StorageFull, Unreachable
from dedup_job.mongo.comments_and_time_limits import JobClient
from dedup_job.mongo.connection_string_and_failures import (
    EXPECTED,
    Address,
    check_loopback,
    describe_failure,
    read_address,
)
from dedup_job.signals import SHUTDOWN

# Transient errors: the same command may succeed when it is sent again.
TRANSIENT_CODES = frozenset({6, 7, 43, 50, 64, 89, 91, 112, 134, 175, 189, 202, 237, 262, 290, 9001})
TRANSIENT_CODES |= {10107, 11600, 11602, 13388, 13435, 13436}
# Answers of a member that is not, or is no longer, the primary.
NO_PRIMARY = frozenset({189, 10107, 11602, 13435, 13436})
UNAUTHORIZED, WRONG_PASSWORD = 13, 18
PERMISSION = frozenset({8000, UNAUTHORIZED, WRONG_PASSWORD, 33})
STORAGE = frozenset({14031, 8})
# What is wrong in the settings or the connection string, by the server's code.
MISCONFIGURED = {
    73: "the server refuses the name of a database or a collection; correct [source] or [target]",
    334: "the server does not offer the authMechanism of the connection string; choose another",
}

# The server's message about a missing privilege.  Only names are taken from it: the rest is the command,
# which may hold ids of records.
DENIED = re.compile(r'not authorized on (\S+) to execute command \{ (\w+): (?:"([^"]*)")?')
# Privileges that a command needs, where they are not named like the command.
ACTIONS = {
    "count": "find",
    "create": "insert",
    "createIndexes": "createIndex",
    "aggregate": "find",
    "delete": "remove",
    "findAndModify": "find and update",
    "getMore": "find",
    "update": "find, update and insert",
}

APP_NAME = "dedup-job"
# Milliseconds between two questions to each member about its state, at most.
LONGEST_HEARTBEAT = 10_000

# The message of the driver when it finds no member for a read preference other than the primary.
NO_SECONDARY = re.compile(r'match selector "(Secondary|Nearest)')

T = TypeVar("T")
log = logging.getLogger("dedup_job")


class Disturbed(PyMongoError):
    """Another process changed a document between read and write; the work is retried."""

    # What a person is told if it happens again and again.
    means = "another process kept changing it at the same time; run again later"


class TooLate(Disturbed):
    """A write came after its deadline, and had no effect; the work is retried."""

    means = "it answers too slowly, or was paused, as this process may have been; run again"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries idempotent work after transient errors, with capped exponential backoff.

    Attributes:
        seconds: Time after which a command is no longer retried.
        read_seconds: Time limit of one read on the server.
    """

    seconds: float = 120.0
    read_seconds: float = 600.0

    @property
    def milliseconds(self) -> int:
        """`seconds` in milliseconds, at least 1: the server reads 0 as no limit."""
        return max(1, int(self.seconds * 1000))

    @property
    def read_milliseconds(self) -> int:
        """`read_seconds` in milliseconds, at least 1: the server reads 0 as no limit."""
        return max(1, int(self.read_seconds * 1000))

    def __call__(self, work: Callable[[], T]) -> T:
        """Call `work` until it succeeds, and return its result.

        Raises:
            Exception: The error of the last attempt, if it is not transient or the time is over.
        """
        for attempt in stamina.retry_context(
            on=is_transient, attempts=None, timeout=self.seconds, wait_initial=0.1, wait_max=2.0
        ):
            SHUTDOWN.check()
            with attempt:
                return work()
        raise AssertionError("unreachable")  # pragma: no cover


def is_transient(error: Exception) -> bool:
    """Return whether the same command may succeed when it is sent again."""
    if isinstance(error, (AutoReconnect, Disturbed, ExecutionTimeout, WTimeoutError)):
        return True
    return isinstance(error, OperationFailure) and error.code in TRANSIENT_CODES


def _log_retry(details: stamina.instrumentation.RetryDetails) -> None:
    """Log a retry with the error's name, not its message: messages of the driver may hold records."""
    fields = {"fault": type(details.caused_by).__name__, "attempt": details.retry_num}
    if code := getattr(details.caused_by, "code", None):
        fields["code"] = code
    log.warning("trying again", extra={"fields": fields})


# Replaces stamina's own hook, which logs the error's message.
stamina.instrumentation.set_on_retry_hooks([_log_retry])


def connect(
    uri: str,
    name: str,
    seconds: float = 10.0,
    retry: RetryPolicy = RetryPolicy(),
    allow_plaintext: bool = False,
    about: str = "",
) -> JobClient:
    """Connect to a deployment, and check that its primary answers.

    Writes are acknowledged by a majority and journaled, and reads return majority-committed data, whatever
    the connection string says.

    Args:
        uri: The connection string.
        name: "source", "target" or "reference ...", for messages.
        seconds: Time until a deployment without any answering member counts as unreachable. A member that
            stops answering later is noticed after 1.5 times this time.
        retry: How long commands are retried, and a primary is waited for. Also sets the time limit of reads.
        allow_plaintext: Whether records may travel unencrypted to another machine.
        about: The purpose of the connection, such as the name of a command; see `comment_of`.

    Raises:
        ConfigError: If the connection string is not valid, or records would travel unencrypted and this is
            not allowed.
        NotPermitted: If the server refuses the user.
        Unreachable: If no primary answers.
    """
    what = f"the {name} server"
    address = read_address(what, uri)
    if address.read_preference != "primary":
        raise ConfigError(
            f"{what}: remove readPreference from the connection string; to read the source from secondaries, "
            "set [source] read_preference"
        )
    allow_plaintext = allow_plaintext or address.is_encrypted
    if not allow_plaintext:
        check_loopback(what, address.hosts)
    _let_process_end_at_once()
    client = _client(uri, what, address, seconds, retry, comment_of(about))
    with named_errors(what):
        try:
            retry(lambda: _greet(client))
            # A replica set may have members that the connection string does not name.
            if not allow_plaintext:
                check_loopback(what, [host for host, _ in client.topology_description.server_descriptions()])
        except BaseException:
            client.close()
            raise
    return client


def comment_of(about: str) -> str:
    """Return the comment that is sent with each command, so that administrators see who asks.

    >>> comment_of("report"), comment_of("")
    ('dedup-job report', 'dedup-job')
    """
    return f"{APP_NAME} {about}".rstrip()


def _let_process_end_at_once() -> None:
    """Unregister the driver's exit handler, which waits for its threads.

    A thread of the driver sleeps for up to half a second, as long as all of `status` takes.  The threads are
    daemons, and have nothing left to do when their client is closed.
    """
    # The handler has no public name.  If a later driver renames it, commands only end a little later.
    handler = getattr(sys.modules.get("pymongo.synchronous.monitor"), "_shutdown_resources", None)
    if handler is not None:
        atexit.unregister(handler)


def _client(
    uri: str, what: str, address: Address, seconds: float, retry: RetryPolicy, comment: str
) -> JobClient:
    """Return a client with the forced concerns; it connects in the background."""
    milliseconds = int(seconds * 1000)
    try:
        # The driver only warns about options that it does not know or cannot use, and ignores them.
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            return JobClient(
                uri,
                retry.read_milliseconds,
                comment,
                appname=APP_NAME,
                w="majority",
                journal=True,
                wTimeoutMS=retry.milliseconds,
                retryWrites=True,
                retryReads=True,
                readConcernLevel="majority",
                serverSelectionTimeoutMS=milliseconds,
                connectTimeoutMS=milliseconds,
                # Bounded, as the driver refuses a bound on staleness that is not well above it.
                heartbeatFrequencyMS=min(max(milliseconds // 2, 500), LONGEST_HEARTBEAT),
            )
    except (ConfigurationError, UserWarning, TypeError, ValueError) as error:
        if address.is_looked_up and error.__cause__ is not None:
            raise Unreachable(
                f"{what}: {address.hosts[0]} has no SRV record (mongodb+srv:), or no name server answers; "
                "check the host name"
            ) from error
        raise ConfigError(f"{what}: {EXPECTED}") from None


def _greet(client: MongoClient[Any]) -> None:
    """Check that a primary answers.

    Raises:
        ServerSelectionTimeoutError: If only the primary is missing; this is retried.
        ConnectionFailure: If no member answers.
    """
    try:
        client.admin.command("ping")
    except ServerSelectionTimeoutError as error:
        if members_answer(error):
            raise
        # Not a transient error: the address is probably wrong.
        raise ConnectionFailure(str(error)) from None


def members_answer(error: PyMongoError) -> bool:
    """Return whether members of a replica set answer, and only a primary is missing."""
    # The state is only in the message; `client.topology_description` may have changed since.
    return isinstance(error, ServerSelectionTimeoutError) and "server_type: RS" in str(error)


@contextmanager
def named_errors(what: str) -> Iterator[None]:
    """Translate driver errors into errors of this project, without document text and without passwords.

    Args:
        what: The name in messages, such as "the source".
    """
    try:
        yield
    # The string itself was checked before, so the server or a file in an option is the cause.
    except ConfigurationError as error:
        raise ConfigError(
            f"{what} does not support the options of the connection string; check its version and the options"
        ) from error
    except PyMongoError as error:
        raise _translate_error(what, error) from error


def is_refused(error: OperationFailure) -> bool:
    """Return whether the server refuses a command itself: for every user, and at any time."""
    return not is_transient(error) and error.code not in PERMISSION | STORAGE


def name_of_refusal(error: OperationFailure) -> str:
    """Return the server's name for an error; its message may hold parts of a record."""
    name: str = (error.details or {}).get("codeName") or f"code {error.code}"
    return name


@contextmanager
def named_refusals(kind: type[DedupError], message: str) -> Iterator[None]:
    """Turn the server's refusal of a command itself into an error of this project; see `is_refused`.

    Args:
        kind: The type of the error.
        message: Its message, to which the server's name for the refusal is added.
    """
    try:
        yield
    except OperationFailure as error:
        if not is_refused(error):
            raise
        raise kind(f"{message} ({name_of_refusal(error)})") from error


def _missing_member(error: PyMongoError) -> str:
    """Describe which member of a replica set is missing; empty if another error occurred."""
    if isinstance(error, ServerSelectionTimeoutError) and NO_SECONDARY.search(str(error)):
        return (
            "no secondary fits [source] read_preference and max_staleness_seconds: is one up, and does it "
            "keep up with the primary? Run again later, or read from the primary"
        )
    if members_answer(error) or getattr(error, "code", None) in NO_PRIMARY:
        return "the set has no primary; are most of its members up? Run again later"
    return ""


def _translate_error(what: str, error: PyMongoError) -> DedupError:
    code = getattr(error, "code", None)
    details = getattr(error, "details", None) or {}
    name = details.get("codeName") or type(error).__name__
    if missing := _missing_member(error):
        return Unreachable(f"{what}: {missing}")
    if isinstance(error, ConnectionFailure) and not isinstance(error, NotPrimaryError):
        failure = describe_failure(error) or "is it running?"
        return Unreachable(f"{what} does not answer: {failure} (its address is from {_address_of(what)})")
    if isinstance(error, Disturbed):
        return Unreachable(f"{what}: {error.means}")
    if isinstance(error, WTimeoutError):
        return Unreachable(f"{what}: no majority acknowledged in time; do secondaries lag? Run again later")
    if code in PERMISSION:
        return NotPermitted(f"{what}: {_refusal(code, str(details.get('errmsg', '')), name)}")
    if code in MISCONFIGURED:
        return ConfigError(f"{what}: {MISCONFIGURED[code]}")
    if code in STORAGE:
        return StorageFull(f"{what} cannot write ({name}); free some space and run again")
    if isinstance(error, ExecutionTimeout):
        return Unreachable(
            f"{what} took too long over an operation ({name}); is it busy, or without a majority? If the "
            "filter leaves out nearly all records of a large collection, raise [limits] read_seconds"
        )
    if is_transient(error):
        return Unreachable(f"{what} kept failing ({name}); it is safe to run again")
    return DedupError(f"{what}: unexpected error {name} (code {code})")


def _address_of(what: str) -> str:
    """Return where a person gives the address of a server, by the name in messages."""
    if what.startswith("the reference"):
        return "uri_env of its [[reference]], or that of the source"
    # The archive is beside the source, and the ledger beside the target.
    variable = "DEDUP_SOURCE_URI" if what.startswith(("the source", "the archive")) else "DEDUP_TARGET_URI"
    return f"{variable} or uri_file"


def _refusal(code: int, message: str, name: str) -> str:
    """Describe the missing privilege; docs/reference/rights.md lists the privileges of each command."""
    if code == WRONG_PASSWORD:
        return "wrong user name or password; correct the connection string"
    if "requires authentication" in message:
        return "the server requires a login; add a user name and a password to the connection string"
    if denied := DENIED.search(message):
        database, command, collection = denied.groups()
        place = f"{database}.{collection}" if collection else database
        right = ACTIONS.get(command, command)
        return f"the user lacks the right to {right} on {place}; see docs/how-to/grant-rights.md"
    return f"the user may not do this ({name}); see docs/how-to/grant-rights.md"
