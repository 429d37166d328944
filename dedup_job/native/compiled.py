"""Decorators that compile functions with numba."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numba

from dedup_job.native.cache import find_cache_folder

F = TypeVar("F", bound=Callable[..., object])

CACHE_FOLDER = find_cache_folder()


def compiled(function: F) -> F:
    """Compile a function that Python calls, once for each combination of argument types.

    The code is cached for other processes. It runs without the global interpreter lock.
    """
    with _use_our_cache():
        return cast(F, numba.njit(cache=CACHE_FOLDER is not None, nogil=True)(function))


def part(function: F) -> F:
    """Compile a helper into the compiled functions that call it; it is not cached by itself.

    The helper must not create or return arrays.
    """
    # Without _nrt numba counts references to the arrays that the helper is given. In an inner loop that takes
    # longer than the helper's own work.
    return cast(F, numba.njit(nogil=True, _nrt=False)(function))  # type: ignore[call-overload]


def inlined(function: Callable[..., object]) -> Any:
    """Compile a helper that is always inlined, for helpers that take a tuple of many arrays.

    The helper must not create or return arrays.
    """
    # Passing the arrays of a table to a call takes longer than the helper's own work.
    return numba.njit(nogil=True, _nrt=False, forceinline=True)(function)  # type: ignore[call-overload]


@contextmanager
def _use_our_cache() -> Iterator[None]:
    """Let numba use our cache folder for functions that are decorated inside."""
    # The setting is global, so it is restored: other packages' compiled functions keep their own cache.
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(CACHE_FOLDER or before)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]
