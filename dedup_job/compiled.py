"""Compiled code: what numba makes of a function, kept for the next process where there is a place for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

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
