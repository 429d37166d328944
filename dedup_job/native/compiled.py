"""Compiled functions: what numba makes of them, kept for the next process where there is a place for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numba

from dedup_job.native.cache import cache_folder

F = TypeVar("F", bound=Callable[..., object])

FOLDER = cache_folder()


def compiled(function: F) -> F:
    """Compile for each kind of arguments when they first come; other threads can run meanwhile."""
    with _kept():
        return cast(F, numba.njit(cache=FOLDER is not None, nogil=True)(function))


def part(function: F) -> F:
    """Compile into the callers, which is all that this function is for; so it need not be loaded itself.

    It makes no array and returns none: so the arrays that it is given are not counted, which in an inner loop
    takes longer than what is done there.
    """
    return cast(F, numba.njit(nogil=True, _nrt=False)(function))  # type: ignore[call-overload]


def inlined(function: Callable[..., object]) -> Any:
    """Compile as `part`, in the caller's very place: a table's many arrays are not even handed over."""
    return numba.njit(nogil=True, _nrt=False, forceinline=True)(function)  # type: ignore[call-overload]


@contextmanager
def _kept() -> Iterator[None]:
    """Let numba keep what is decorated meanwhile in our folder; what others compile is not touched."""
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(FOLDER or before)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]
