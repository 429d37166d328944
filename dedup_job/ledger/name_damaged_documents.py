"""Name a document of the ledger that cannot be parsed, so that a command ends with 65 and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from bson.errors import BSONError

from dedup_job.errors import StateError, is_shortage

P = ParamSpec("P")
R = TypeVar("R")


def name_damage(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function that parses a document of the ledger raise StateError if the document is damaged.

    That is, if it lacks a field, or has a value that cannot be right.

    Args:
        what: The document, for the message.
    """

    def decorate(parse: Callable[P, R]) -> Callable[P, R]:
        # Plain code, as it runs for each row of a list: a context manager would nearly double the time.
        @wraps(parse)
        def parse_or_name(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return parse(*args, **kwargs)
            except (AttributeError, LookupError, TypeError, ValueError, BSONError) as error:
                # bson also wraps a shortage of memory.
                if is_shortage(error):
                    raise
                raise StateError(
                    f"{what} in the ledger is damaged ({type(error).__name__}); restore the target database "
                    "from a backup"
                ) from error

        return parse_or_name

    return decorate
