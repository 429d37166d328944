"""The connection to MongoDB: forced concerns, patience with passing faults, errors with names."""

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
from dedup_job.mongo.address import EXPECTED, Address, check_loopback, read
from dedup_job.mongo.connection_errors import describe_failure
from dedup_job.mongo.timeout_client import TimeoutClient
from dedup_job.signals import SHUTDOWN

# A passing fault: the same command may succeed when it is sent again.
TRANSIENT_CODES = frozenset({6, 7, 43, 50, 64, 89, 91, 112, 134, 175, 189, 202, 237, 262, 290, 9001})
TRANSIENT_CODES |= {10107, 11600, 11602, 13388, 13435, 13436}
# A member says that it is not, or no longer, the primary.
NO_PRIMARY = frozenset({189, 10107, 11602, 13435, 13436})
UNAUTHORIZED, WRONG_PASSWORD = 13, 18
PERMISSION = frozenset({8000, UNAUTHORIZED, WRONG_PASSWORD, 33})
STORAGE = frozenset({14031, 8})
INVALID_NAMESPACE = 73

# What the server says of a missing right.  Only names are taken from it: the rest is the command, with ids.
DENIED = re.compile(r'not authorized on (\S+) to execute command \{ (\w+): (?:"([^"]*)")?')
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

T = TypeVar("T")
log = logging.getLogger("dedup_job")


class Disturbed(PyMongoError):
    """Another process changed a document after it was read and before it was written."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a command is tried again before the run gives up, and one read may take, in seconds."""

    seconds: float = 120.0
    read_seconds: float = 600.0

    @property
    def milliseconds(self) -> int:
        """The same as the server counts it; 0 would be no limit."""
        return max(1, int(self.seconds * 1000))

    @property
    def read_milliseconds(self) -> int:
        """The time limit of a read as the server counts it."""
        return max(1, int(self.read_seconds * 1000))

    def __call__(self, work: Callable[[], T]) -> T:
        """Do idempotent work, again after each passing fault, with capped exponential backoff."""
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
    """Log that a fault is waited out, by its name alone: the driver's messages may hold records."""
    fields = {"fault": type(details.caused_by).__name__, "attempt": details.retry_num}
    if code := getattr(details.caused_by, "code", None):
        fields["code"] = code
    log.warning("trying again", extra={"fields": fields})


stamina.instrumentation.set_on_retry_hooks([_log_retry])  # its own would write the fault's message


def connect(
    uri: str,
    name: str,
    seconds: float = 10.0,
    patience: RetryPolicy = RetryPolicy(),
    allow_plaintext: bool = False,
) -> MongoClient[Any]:
    """Connect to a deployment and make sure that it answers.

    Writes are acknowledged by a majority and journaled, and reads are of majority-committed data, whatever
    the connection string says.  `name` says in messages which one this is: source or target.  A deployment
    of which nobody answers within `seconds` is given up; one that has no primary yet is waited for as
    `patience` says.  A member that falls silent later is noticed after one and a half times `seconds`.  The
    server ends a read after `patience.read_seconds`.

    Raises ConfigError where records would travel unencrypted to another machine, unless that is allowed.
    """
    what = f"the {name} server"
    address = read(what, uri)
    if address.read_preference != "primary":
        raise ConfigError(
            f"{what}: take readPreference out of the connection string; only a primary is current"
        )
    allow_plaintext = allow_plaintext or address.is_encrypted
    if not allow_plaintext:
        check_loopback(what, address.hosts)
    _let_process_end_at_once()
    client = _client(uri, what, address, seconds, patience)
    with named_errors(what):
        try:
            patience(lambda: _greet(client))
            if not allow_plaintext:  # a set may have members elsewhere
                check_loopback(what, [host for host, _ in client.topology_description.server_descriptions()])
        except BaseException:
            client.close()
            raise
    return client


def _let_process_end_at_once() -> None:
    """Take the driver's handler out that waits for its threads when the process ends.

    One of them sleeps for up to half a second, which was as much as all else that `status` does.  They are
    daemons, and have nothing left to do when their client is closed.
    """
    # The handler has no public name.  Without it, a command only ends a little later.
    handler = getattr(sys.modules.get("pymongo.synchronous.monitor"), "_shutdown_resources", None)
    if handler is not None:
        atexit.unregister(handler)


def _client(uri: str, what: str, address: Address, seconds: float, patience: RetryPolicy) -> MongoClient[Any]:
    """Return a client with the forced concerns; it connects in the background."""
    milliseconds = int(seconds * 1000)
    try:
        # The driver warns of options that it does not know or cannot use, and goes on without them.
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            return TimeoutClient(
                uri,
                patience.read_milliseconds,
                appname="dedup-job",
                w="majority",
                journal=True,
                wTimeoutMS=patience.milliseconds,
                retryWrites=True,
                retryReads=True,
                readConcernLevel="majority",
                serverSelectionTimeoutMS=milliseconds,
                connectTimeoutMS=milliseconds,
                heartbeatFrequencyMS=max(milliseconds // 2, 500),
            )
    except (ConfigurationError, UserWarning, TypeError, ValueError) as error:
        if address.is_looked_up and error.__cause__ is not None:
            raise Unreachable(
                f"{what}: {address.hosts[0]} is not a name under which servers are found (mongodb+srv:), "
                "or no name server answers"
            ) from error
        raise ConfigError(f"{what}: {EXPECTED}") from None


def _greet(client: MongoClient[Any]) -> None:
    """Make sure that a primary answers; not a passing fault when no member answers at all."""
    try:
        client.admin.command("ping")
    except ServerSelectionTimeoutError as error:
        if members_answer(error):
            raise
        raise ConnectionFailure(str(error)) from None


def members_answer(error: PyMongoError) -> bool:
    """Return whether a replica set is there, and only its primary is missing."""
    # The error holds no more than a message; `client.topology_description` may have changed since.
    return isinstance(error, ServerSelectionTimeoutError) and "server_type: RS" in str(error)


@contextmanager
def named_errors(what: str) -> Iterator[None]:
    """Turn the driver's errors into this project's, without document text and without passwords."""
    try:
        yield
    except ConfigurationError as error:  # of the string itself, it is known by now to be well formed
        raise ConfigError(
            f"{what} cannot be spoken to as the connection string asks; are its version and options right?"
        ) from error
    except PyMongoError as error:
        raise _named(what, error) from error


def is_refused(error: BaseException | None) -> bool:
    """Return whether the server will not do what a command says, whoever asks, and whenever."""
    if not isinstance(error, OperationFailure) or isinstance(error, (ExecutionTimeout, WTimeoutError)):
        return False
    return not is_transient(error) and error.code not in PERMISSION | STORAGE


def name_of_refusal(error: OperationFailure) -> str:
    """Return what the server calls an error: its own sentence may hold what is in a record."""
    name: str = (error.details or {}).get("codeName") or f"code {error.code}"
    return name


def _named(what: str, error: PyMongoError) -> DedupError:
    code = getattr(error, "code", None)
    details = getattr(error, "details", None) or {}
    name = details.get("codeName") or type(error).__name__
    if members_answer(error) or code in NO_PRIMARY:
        return Unreachable(f"{what}: the set has no primary; are most of its members up? Run again later")
    if isinstance(error, ConnectionFailure) and not isinstance(error, NotPrimaryError):
        variable = "DEDUP_SOURCE_URI" if what.startswith("the source") else "DEDUP_TARGET_URI"
        failure = describe_failure(error) or "is it running?"
        return Unreachable(f"{what} does not answer: {failure} (its address is from {variable} or uri_file)")
    if isinstance(error, Disturbed):
        return Unreachable(f"{what}: another process kept changing it at the same time; run again later")
    if isinstance(error, WTimeoutError):
        return Unreachable(f"{what}: no majority acknowledged in time; do secondaries lag? Run again later")
    if code in PERMISSION:
        return NotPermitted(f"{what}: {_refusal(code, str(details.get('errmsg', '')), name)}")
    if code == INVALID_NAMESPACE:
        return ConfigError(
            f"{what}: the server does not take the name of a database or a collection; "
            "see [source] and [target] in the settings"
        )
    if code in STORAGE:
        return StorageFull(f"{what} cannot write ({name}); free some space and run again")
    if isinstance(error, ExecutionTimeout):
        return Unreachable(
            f"{what} took too long over an operation ({name}); is it busy, or without a majority? Where a "
            "filter leaves out nearly all records of a large collection, raise [limits] read_seconds"
        )
    if is_transient(error):
        return Unreachable(f"{what} kept failing ({name}); it is safe to run again")
    return DedupError(f"{what}: unexpected answer {name} (code {code})")


def _refusal(code: int, message: str, name: str) -> str:
    """Say which right is missing; docs/reference/rights.md lists those that are needed."""
    if code == WRONG_PASSWORD:
        return "wrong user name or password in the connection string"
    if "requires authentication" in message:
        return "name a user and a password in the connection string"
    if denied := DENIED.search(message):
        database, command, collection = denied.groups()
        place = f"{database}.{collection}" if collection else database
        right = ACTIONS.get(command, command)
        return f"the user lacks the right to {right} on {place}; see docs/how-to/grant-rights.md"
    return f"the user may not do this ({name}); see docs/how-to/grant-rights.md"
