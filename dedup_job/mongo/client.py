"""The connection to MongoDB: forced concerns, patience with passing faults, errors with names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import stamina
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)

from dedup_job.errors import ConfigError, DedupError, NotPermitted, StorageFull, Unreachable

RAW: CodecOptions[Any] = CodecOptions(
    document_class=RawBSONDocument,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    unicode_decode_error_handler="surrogateescape",
)
# A passing fault: the same command may succeed when it is sent again.
PASSING = frozenset({6, 7, 43, 50, 64, 89, 91, 112, 175, 189, 202, 237, 262, 290, 9001})
PASSING |= {10107, 11600, 11602, 13388, 13435, 13436}
PERMISSION = frozenset({8000, 13, 18, 33})
STORAGE = frozenset({14031, 8})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a command is tried again before the run gives up, in seconds."""

    seconds: float = 120.0

    def __call__(self, work: Callable[[], T]) -> T:
        """Do idempotent work, again after each passing fault, with capped exponential backoff."""
        for attempt in stamina.retry_context(
            on=is_passing, attempts=None, timeout=self.seconds, wait_initial=0.1, wait_max=5.0
        ):
            with attempt:
                return work()
        raise AssertionError("unreachable")  # pragma: no cover


def is_passing(error: Exception) -> bool:
    """Return whether the same command may succeed when it is sent again."""
    if isinstance(error, (AutoReconnect, ExecutionTimeout, WTimeoutError)):
        return True
    return isinstance(error, OperationFailure) and error.code in PASSING


def connect(uri: str, name: str, seconds: float = 10.0) -> MongoClient[Any]:
    """Connect to a deployment and make sure that it answers.

    Writes are acknowledged by a majority and journaled, reads are of majority-committed data, whatever the
    connection string says.  `name` says in messages which one this is: source or target.
    """
    with named_errors(f"the {name} server"):
        client: MongoClient[Any] = MongoClient(
            uri,
            appname="dedup-job",
            w="majority",
            journal=True,
            retryWrites=True,
            readConcernLevel="majority",
            serverSelectionTimeoutMS=int(seconds * 1000),
        )
        Patience(seconds)(lambda: client.admin.command("ping"))
    return client


@contextmanager
def named_errors(what: str) -> Iterator[None]:
    """Turn the driver's errors into this project's, without document text and without passwords."""
    try:
        yield
    except (InvalidURI, ConfigurationError) as error:
        message = f"{what}: the connection string is not valid; expected mongodb://host:port/"
        raise ConfigError(message) from error
    except ConnectionFailure as error:
        message = f"{what} does not answer; is it running, and is the address in DEDUP_SOURCE_URI right?"
        if what != "the source server":
            message = message.replace("SOURCE", "TARGET")
        raise Unreachable(message) from error
    except PyMongoError as error:
        raise _named(what, error) from error


def _named(what: str, error: PyMongoError) -> DedupError:
    code = getattr(error, "code", None)
    details = getattr(error, "details", None) or {}
    name = details.get("codeName") or type(error).__name__
    if code in PERMISSION:
        return NotPermitted(f"{what}: the user may not do this ({name}); see the roles in the README")
    if code in STORAGE:
        return StorageFull(f"{what} cannot write ({name}); free some space and run again")
    if is_passing(error):
        return Unreachable(f"{what} kept failing ({name}); it is safe to run again")
    return DedupError(f"{what}: unexpected answer {name} (code {code})")
