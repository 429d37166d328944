"""Compiled code: what numba makes of a function, kept for the next process where there is a place for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast


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

    from dedup_job import machine_code

F = TypeVar("F", bound=Callable[..., object])


def compiled(signature: str | None = None) -> Callable[[F], F]:
    """Compile without the GIL: for this signature, or else for each kind of arguments when they first come.

    With a signature that is done, or its machine code loaded, by the first call, or by `load`; then only
    Python can call it.  What compiled code is to call has none.
    """

    def compile_(function: F) -> F:
        return cast(F, _Late(function, signature) if signature else _compiled(function))

    return compile_


def load() -> None:
    """Load all that has a signature, for the processes that are forked from this one."""
    for late in _Late.all:
        late.load()


class _Late:
    """A function that takes time to load, and may not be needed."""

    all: ClassVar[list[_Late]] = []

    def __init__(self, function: Callable[..., object], signature: str) -> None:
        self._function, self._signature = function, signature
        self.all.append(self)
        machine_code.stamp(Path(function.__code__.co_filename))  # now: the files may be others by then
        update_wrapper(self, function)

    def load(self) -> None:
        """Be ready to be called."""
        self._call = _compiled(self._function, self._signature)

    def __call__(self, *arguments: object) -> object:
        if not hasattr(self, "_call"):
            self.load()
        return self._call(*arguments)


def _compiled(function: Callable[..., object], signature: str | None = None) -> Any:
    try:
        with machine_code.kept():
            return numba.njit(signature, cache=True, nogil=True)(function)
    except RuntimeError:  # nowhere to keep it (read-only installation, no home): compile in each process
        return numba.njit(signature, nogil=True)(function)


def part(function: F) -> F:
    """Compile into the callers, which is all that this function is for; so it need not be loaded itself.

    It makes no array and returns none: so the arrays that it is given are not counted, which in an inner loop
    takes longer than what is done there.
    """
    return cast(F, numba.njit(nogil=True, _nrt=False)(function))  # type: ignore[call-overload]


def inlined(function: Callable[..., object]) -> Any:
    """Compile as `part`, in the caller's very place: a table's many arrays are not even handed over."""
    return numba.njit(nogil=True, _nrt=False, forceinline=True)(function)  # type: ignore[call-overload]
