"""Where machine code is kept, and when it is stale: when any module that it may be made of has changed.

numba looks at the file of the function alone (numba issue 1833).  What that function calls in other modules,
and their constants, are compiled into it: a new version of those would be met by old machine code.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Self

import numba
from numba.core.caching import InTreeCacheLocator, UserProvidedCacheLocator, UserWideCacheLocator

PACKAGE = Path(__file__).parent
IMPORT = re.compile(r"^from (dedup_job[.\w]*) import (\([^)]*\)|.*)$", re.MULTILINE)

_one_at_a_time = threading.RLock()


class _Whole:
    """Stamps machine code with the contents of all files that it may be made of."""

    _file: Path

    @classmethod
    def from_function(cls, function: Callable[..., object], file: str) -> Self | None:
        """Return the place for a function's machine code; None where nothing can be kept there."""
        place: Self | None = super().from_function(function, file)  # type: ignore[misc]
        if place is not None:
            place._file = Path(file)
        return place

    def get_source_stamp(self) -> str:
        """Return what machine code must have been made from to be used."""
        return stamp(self._file)


class AsTold(_Whole, UserProvidedCacheLocator):
    """In the folder that NUMBA_CACHE_DIR names."""


class BesideTheSource(_Whole, InTreeCacheLocator):
    """In the `__pycache__` beside the module."""


class InTheHome(_Whole, UserWideCacheLocator):
    """In the user's own cache."""


PLACES = ",".join(f"{__name__}.{place.__name__}" for place in (AsTold, BesideTheSource, InTheHome))


@contextmanager
def kept() -> Iterator[None]:
    """Let numba keep what is compiled meanwhile in these places; what others compile is not touched."""
    with _one_at_a_time:
        before = numba.config.CACHE_LOCATOR_CLASSES  # type: ignore[attr-defined]
        numba.config.CACHE_LOCATOR_CLASSES = PLACES  # type: ignore[attr-defined]
        try:
            yield
        finally:
            numba.config.CACHE_LOCATOR_CLASSES = before  # type: ignore[attr-defined]


@cache
def stamp(file: Path) -> str:
    """Return the digest of a module, and of this package's modules that it imports, or that these import.

    It is taken once: the functions that a process has loaded are those of the files as they were then.
    """
    digest = hashlib.sha256()
    for one in sorted(with_imports(file)):
        digest.update(f"{one.name} {len(_content(one))} ".encode())
        digest.update(_content(one))
    return digest.hexdigest()


def with_imports(file: Path) -> set[Path]:
    """Return a module's file, and those of this package's modules that it imports, or that these import."""
    found, waiting = set(), {file}
    while waiting:
        found |= waiting
        waiting = {other for one in waiting for other in _imported(one)} - found
    return found


@cache
def _imported(file: Path) -> set[Path]:
    """Return the files of this package's modules that a module imports."""
    found = set()
    for module, names in IMPORT.findall(_content(file).decode("utf-8", "replace")):
        folder = PACKAGE.parent.joinpath(*module.split("."))
        files = [folder.with_suffix(".py"), *(folder / f"{name}.py" for name in re.findall(r"\w+", names))]
        found |= {one for one in files if one.exists()}
    return found


@cache
def _content(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""
