"""Compiled code: what numba makes of a function, kept for the next process where there is a place for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast


@contextmanager
def _without(package: str) -> Iterator[None]:
    """Let nothing import a package, unless it is loaded already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


with _without("scipy"):  # which numba would load for matrix products: 0.2 s at every start
    import numba
    import numba.np.arraymath

F = TypeVar("F", bound=Callable[..., object])


def compiled(signature: str | None = None) -> Callable[[F], F]:
    """Compile without the GIL: at once with a signature, at the first call without one."""

    def compile_(function: F) -> F:
        try:
            return cast(F, numba.njit(signature, cache=True, nogil=True)(function))
        except RuntimeError:  # nowhere to keep it (read-only installation, no home): compile in each process
            return cast(F, numba.njit(signature, nogil=True)(function))

    return compile_


def part(function: F) -> F:
    """Compile into the callers, which is all that this function is for; so it need not be loaded itself."""
    return cast(F, numba.njit(nogil=True)(function))


def inlined(function: Callable[..., object]) -> Any:
    """Compile into the callers: handing over a table's many arrays would take longer than the work."""
    return numba.njit(nogil=True, forceinline=True)(function)
