"""Compile functions with numba, cache their machine code, and use a few CPU instructions."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

PACKAGE = Path(__file__).parents[1]
# Compiled code uses nothing from other packages.
ROOMS = ("native", "text", "fingerprint", "index", "analysis", "spark")


def find_cache_folder() -> Path | None:
    """Return the first candidate folder that this user can write to and nobody else; None if there is none.

    numba compiles a function again when the function's own file has changed. The code and constants that it
    uses from other files are compiled in, too, but numba does not check those files (numba issue 1833). So
    each version of the packages with compiled functions has a folder of its own, and outdated code is never
    loaded.
    """
    return next(filter(_is_private, _candidate_folders(source_digest()[:16])), None)


def source_digest() -> str:
    """Return the digest of all modules that compiled code is made from."""
    digest = hashlib.sha256()
    for file in sorted(file for room in ROOMS for file in (PACKAGE / room).rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(PACKAGE)} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _candidate_folders(version: str) -> Iterator[Path]:
    """Yield the user's choice, and folders in the package, the user's cache and the temporary folder."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(chosen) / version
    yield PACKAGE / "__pycache__" / "native" / version
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    # A user without a home has no cache: "~" then stays in the path.
    if caches.is_absolute():
        yield caches / "dedup-job" / version
    # Safe among other users' files: the sticky bit keeps them from renaming our folder.
    yield Path(tempfile.gettempdir()) / f"dedup-job-{os.getuid()}-{version}"


def _is_private(folder: Path) -> bool:
    """Create the folder if it is missing; return whether this user can write to it, and no other user."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A symbolic link in the temporary folder may point anywhere, and its owner can change it.
        status = folder.stat(follow_symlinks=False)
        with tempfile.TemporaryFile(dir=folder):
            return status.st_uid == os.getuid() and not status.st_mode & 0o022
    except OSError:
        return False


F = TypeVar("F", bound=Callable[..., object])

CACHE_FOLDER = find_cache_folder()


def compiled(function: F) -> F:
    """Compile a function that Python calls, once for each combination of argument types.

    The code is cached for other processes. It runs without the global interpreter lock.
    """
    # The setting is global, so it is restored: other packages' compiled functions keep their own cache.
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(CACHE_FOLDER or before)  # type: ignore[attr-defined]
    try:
        return cast(F, numba.njit(cache=CACHE_FOLDER is not None, nogil=True)(function))
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


def compiled_helper(function: F) -> F:
    """Compile a helper into the compiled functions that call it; it is not cached by itself.

    The helper must not create or return arrays.
    """
    # Without _nrt numba counts references to the arrays that the helper is given. In an inner loop that takes
    # longer than the helper's own work.
    return cast(F, numba.njit(nogil=True, _nrt=False)(function))  # type: ignore[call-overload]


def compiled_inline(function: Callable[..., object]) -> Any:
    """Compile a helper that is always inlined, for helpers that take a tuple of many arrays.

    The helper must not create or return arrays.
    """
    # Passing the arrays of a table to a call takes longer than the helper's own work.
    return numba.njit(nogil=True, _nrt=False, forceinline=True)(function)  # type: ignore[call-overload]


def instruction(builder: Callable[..., object]) -> Any:
    """Let compiled code call a function that is built from LLVM's instructions."""
    # numba's own type of it would count the context among the arguments.
    return intrinsic(builder)


@instruction
def popcount(_context: Any, bits: Any) -> Any:
    """Count the bits set in an unsigned integer; the result has the same type."""
    return bits(bits), lambda _, builder, __, arguments: builder.ctpop(arguments[0])


@instruction
def prefetch(_context: Any, array: Any, place: Any) -> Any:
    """Load an array's element into the processor's cache without waiting for it.

    Args:
        place: Index of the element in the flat array.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        load = builder.module.declare_intrinsic("llvm.prefetch", (address.type,), kind)
        # 0: for reading; 3: keep it in all caches; 1: data, not instructions.
        builder.call(load, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), build
