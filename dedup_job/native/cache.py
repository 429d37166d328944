"""Where machine code is kept: in a folder named by a digest of the modules that it is made of.

numba makes code anew when the file of the function has changed.  What that function calls in other files, and
their constants, are compiled into it, too (numba issue 1833).  So each version of the rooms with compiled
functions has a folder of its own, and old code is never met.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
ROOMS = ("native", "text", "fingerprint", "match", "lab", "engine/spark")  # no compiled code uses any other


def cache_folder() -> Path | None:
    """Return the first folder that machine code can be kept in and that nobody else can write to, or None."""
    return next(filter(_is_ours, _folders(source_digest()[:16])), None)


def source_digest() -> str:
    """Return the digest of all modules that machine code is made of."""
    digest = hashlib.sha256()
    for file in sorted(file for room in ROOMS for file in (PACKAGE / room).rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(PACKAGE)} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _folders(version: str) -> Iterator[Path]:
    """Yield where to look: as the user says, beside the package, the user's cache, the temporary folder."""
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named) / version
    yield PACKAGE / "__pycache__" / "native" / version
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if caches.is_absolute():  # else there is no home
        yield caches / "dedup-job" / version
    yield Path(tempfile.gettempdir()) / f"dedup-job-{os.getuid()}-{version}"  # others cannot rename it there


def _is_ours(folder: Path) -> bool:
    """Make a folder where there is none; return whether we can write to it, and no other user."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat(follow_symlinks=False)
        with tempfile.TemporaryFile(dir=folder):
            return status.st_uid == os.getuid() and not status.st_mode & 0o022
    except OSError:
        return False
