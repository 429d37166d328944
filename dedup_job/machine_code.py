"""Where machine code is kept, and when it is stale: when any module that it may be made of has changed.

numba looks at the file of the function alone (numba issue 1833).  What that function calls in other modules,
and their constants, are compiled into it: a new version of those would be met by old machine code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Self

from numba.core.caching import InTreeCacheLocator, UserProvidedCacheLocator, UserWideCacheLocator

ROOT = Path(__file__).parent.parent
IMPORT = re.compile(r"^from (dedup_job[.\w]*) import (\([^)]*\)|.*)$", re.MULTILINE)


class _Whole:
    """Stamps machine code with all files that it may be made of."""

    _file: Path

    @classmethod
    def from_function(cls, function: Callable[..., object], file: str) -> Self | None:
        """Return the place for a function's machine code; None where nothing can be kept there."""
        place: Self | None = super().from_function(function, file)  # type: ignore[misc]
        if place is not None:
            place._file = Path(file)
        return place

    def get_source_stamp(self) -> tuple[tuple[str, int, int], ...]:
        """Return what machine code must have been made from to be used."""
        return tuple(map(_stamp, sorted(_with_imports(self._file))))


class AsTold(_Whole, UserProvidedCacheLocator):
    """In the folder that NUMBA_CACHE_DIR names."""


class BesideTheSource(_Whole, InTreeCacheLocator):
    """In the `__pycache__` beside the module."""


class InTheHome(_Whole, UserWideCacheLocator):
    """In the user's own cache."""


PLACES = ",".join(f"{__name__}.{place.__name__}" for place in (AsTold, BesideTheSource, InTheHome))


def _with_imports(file: Path) -> set[Path]:
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
    for module, names in IMPORT.findall(file.read_text("utf-8")):
        folder = ROOT.joinpath(*module.split("."))
        files = [folder.with_suffix(".py"), *(folder / f"{name}.py" for name in re.findall(r"\w+", names))]
        found |= {one for one in files if one.exists()}
    return found


@cache
def _stamp(file: Path) -> tuple[str, int, int]:
    state = file.stat()
    return str(file), state.st_mtime_ns, state.st_size
